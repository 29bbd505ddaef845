//! The pages as Markdown, for programs that read them, and the list of these.

use super::copy::{Book, inside};
use crate::pages::summary::Entry;
use crate::pages::{Kind, lines, relinked};

/// Returns a page without the lines of its samples that the book hides.
pub(super) fn page(text: &str) -> String {
    let mut out = String::new();
    let mut rust = false;
    for (line, kind) in lines(text) {
        if let Kind::Begin(info) = kind {
            rust = info.starts_with("rust");
        }
        let hidden = rust
            && matches!(kind, Kind::Fenced)
            && (line.trim() == "#" || line.trim_start().starts_with("# "));
        if !hidden {
            out += line;
            out.push('\n');
        }
    }
    out
}

/// Returns the list of pages in the form of `llms.txt`: a title, a summary, and the links of each part with the first sentence of the page.
pub(super) fn index(entries: &[Entry<'_>], book: &Book) -> String {
    let mut out = String::new();
    let mut part = "";
    for entry in entries {
        let path = inside(&entry.path());
        let text = book.pages.get(&path).map_or("", String::as_str);
        if out.is_empty() {
            out = format!("# {}\n\n> {}\n\n", entry.title, first_sentence(text));
        }
        if entry.part != part {
            part = entry.part;
            out += &format!("\n## {part}\n\n");
        }
        let about = first_sentence(text);
        let about = if about.is_empty() { about } else { format!(": {about}") };
        out += &format!("- [{}]({path}){about}\n", entry.title);
    }
    out
}

/// Returns the first sentence of the first paragraph, without its links; empty if the page begins with something else.
fn first_sentence(text: &str) -> String {
    let lines = text.lines().skip_while(|line| line.is_empty() || line.starts_with('#'));
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    if paragraph.starts_with(['|', '`', '*', '-', '<']) {
        return String::new();
    }
    let plain = relinked(&paragraph, |_| None);
    let end = plain.find(". ").map_or(plain.len(), |at| at + 1);
    plain[..end].trim_end_matches(':').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::summary::{SUMMARY, entries};
    use crate::tree::Tree;

    #[test]
    fn hidden_lines_of_samples_are_left_out() {
        let text = "# Title\n```rust\n# let dir = ();\n#\nlet a = 1;\n#[test]\n# Ok(())\n```\n```sh\n# a comment\n```\n";
        assert_eq!(page(text), "# Title\n```rust\nlet a = 1;\n#[test]\n```\n```sh\n# a comment\n```\n");
    }

    #[test]
    fn the_list_has_the_first_sentence_of_each_page() {
        let list = "# Summary\n[T](../README.md)\n# Use\n- [P](p.md)\n- [Q](q.md)\n";
        let files = [
            (SUMMARY, list),
            ("README.md", "# T\n\nT is [a store](docs/p.md) for\nrows. It is fast."),
            ("docs/p.md", "# P\n\nPuts a row: then more"),
            ("docs/q.md", "# Q\n\n| a table |"),
        ];
        let tree = Tree::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
        let want = "# T\n\n> T is a store for rows.\n\n- [T](index.md): T is a store for rows.\n\n## Use\n\n\
                    - [P](p.md): Puts a row: then more\n- [Q](q.md)\n";
        assert_eq!(index(&entries(list), &Book::of(&tree)), want);
    }
}
