//! `docs/SUMMARY.md`: the pages of the book in their order.

use crate::tree::{Tree, join, normal};

/// The list of pages.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";

/// A page in the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Line of the list, from 1.
    pub line: usize,
    /// Its name in the list.
    pub title: &'a str,
    /// What is linked, as written.
    pub target: &'a str,
    /// The heading of the list above it; empty before the first one.
    pub part: &'a str,
}

impl Entry<'_> {
    /// Returns the path of the page, relative to the root.
    pub(crate) fn path(&self) -> String {
        normal(&join("docs", self.target))
    }
}

/// Returns the text of the list.
pub(crate) fn list(tree: &Tree) -> &str {
    tree.texts.get(SUMMARY).map_or("", String::as_str)
}

/// Returns the entries of a list. Its first heading is its own title.
pub(crate) fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut out = Vec::new();
    let (mut titled, mut part) = (false, "");
    for (at, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("# ") {
            part = if titled { name.trim() } else { "" };
            titled = true;
        }
        let item = line.trim_start().trim_start_matches("- ");
        let Some((title, rest)) = item.strip_prefix('[').and_then(|rest| rest.split_once("](")) else {
            continue;
        };
        let target = rest.split(')').next().unwrap_or(rest);
        out.push(Entry { line: at + 1, title, target, part });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_their_part_and_path() {
        let list = "# Summary\n\n[Home](../README.md)\n\n# Use\n\n- [A `b`](use/a.md)\n    - [C](use/c.md)\n# End\n- [](x.md)\n";
        let found: Vec<_> =
            entries(list).iter().map(|e| (e.line, e.title.to_owned(), e.path(), e.part.to_owned())).collect();
        let want = [
            (3, "Home", "README.md", ""),
            (7, "A `b`", "docs/use/a.md", "Use"),
            (8, "C", "docs/use/c.md", "Use"),
            (10, "", "docs/x.md", "End"),
        ];
        let want: Vec<_> = want
            .map(|(line, title, path, part)| (line, title.to_owned(), path.to_owned(), part.to_owned()))
            .into();
        assert_eq!(found, want);
    }
}
