//! The copy of the pages from which the book is built.
//!
//! | file | in the book |
//! | --- | --- |
//! | `docs/A` | `A` |
//! | a page elsewhere that the list names, such as `ARCHITECTURE.md` | at its own path |
//! | a page called `README.md` | `index.md` in the same folder |
//! | another file that a page links | below `source`, with `.txt` at its end, so that browsers show it |
//! | the root of a crate with a public API, `crates/A/src/lib.rs` | its documentation as rustdoc renders it, in `api` |
//! | a folder | nothing: the link becomes its text |

use crate::api;
use crate::cargo::Done;
use crate::install::{copy, write};
use crate::pages::summary::{SUMMARY, entries, list};
use crate::pages::{is_outside, relinked_page};
use crate::tree::{Tree, join, normal, parent};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Folder of the files that are no pages.
const FILES: &str = "source";

/// What the book is built from.
pub(super) struct Book {
    /// The list of pages.
    summary: String,
    /// Pages by their path in the book.
    pub pages: BTreeMap<String, String>,
    /// Files of the repository that are copied, with their path in the book.
    files: BTreeMap<String, String>,
}

impl Book {
    /// Returns the book of a tree.
    pub(super) fn of(tree: &Tree) -> Book {
        let list = list(tree);
        let listed: BTreeSet<String> = entries(list).iter().map(|entry| entry.path()).collect();
        let mut book = Book { summary: String::new(), pages: BTreeMap::new(), files: BTreeMap::new() };
        book.summary = book.rewritten(tree, &listed, SUMMARY, list);
        for path in &listed {
            let Some(text) = tree.texts.get(path) else { continue };
            let page = book.rewritten(tree, &listed, path, text);
            book.pages.insert(inside(path), page);
        }
        for path in tree.paths.iter().filter(|path| path.starts_with("docs/") && !path.ends_with(".md")) {
            book.files.insert(path.clone(), inside(path));
        }
        book
    }

    /// Writes everything into `folder`.
    ///
    /// # Errors
    /// The I/O error, with the path.
    pub(super) fn write(&self, root: &Path, folder: &Path) -> Done {
        write(&folder.join("SUMMARY.md"), &self.summary)?;
        for (path, text) in &self.pages {
            write(&folder.join(path), text)?;
        }
        self.files.iter().try_for_each(|(from, to)| copy(&root.join(from), &folder.join(to), 0o644))
    }

    /// Returns the page with the links of its place in the book.
    fn rewritten(&mut self, tree: &Tree, listed: &BTreeSet<String>, page: &str, text: &str) -> String {
        relinked_page(text, |target| self.target(tree, listed, page, target))
    }

    /// Returns the target of a link in the book; `None` for a folder.
    fn target(&mut self, tree: &Tree, listed: &BTreeSet<String>, page: &str, target: &str) -> Option<String> {
        if is_outside(target) || target.starts_with('#') {
            return Some(target.to_owned());
        }
        let (file, anchor) = target
            .split_once('#')
            .map_or((target, String::new()), |(file, anchor)| (file, format!("#{anchor}")));
        let path = normal(&join(&parent(page), file));
        if !tree.paths.contains(&path) {
            return None;
        }
        let to = if path == SUMMARY {
            inside("README.md") // each page has the list beside it
        } else if listed.contains(&path) || (path.starts_with("docs/") && !path.ends_with(".md")) {
            inside(&path)
        } else if let Some(page) = api::page_of(&path) {
            join(super::API, &page)
        } else {
            // A link to `a.md.txt` would become one to `a.html`.
            let to = format!("{FILES}/{}.txt", path.strip_suffix(".md").unwrap_or(&path));
            self.files.insert(path, to.clone());
            to
        };
        Some(relative(&parent(&inside(page)), &to) + &anchor)
    }
}

/// Returns the path of a page or picture in the book. The program that builds it gives pages called `README` another name, but keeps links to
/// the old one.
pub(super) fn inside(path: &str) -> String {
    let path = path.strip_prefix("docs/").unwrap_or(path);
    path.strip_suffix("README.md").map_or(path.to_owned(), |folder| format!("{folder}index.md"))
}

/// Returns the path from a folder to a file; both are relative to the same folder.
fn relative(folder: &str, file: &str) -> String {
    let folders: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
    let names: Vec<&str> = file.split('/').collect();
    let same = folders.iter().zip(&names).take_while(|(a, b)| a == b).count();
    "../".repeat(folders.len() - same) + &names[same..].join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(page: &str) -> Book {
        let files = [
            (SUMMARY, "# Summary\n[T](../README.md)\n# Use\n- [P](use/p.md)\n- [Q](q.md)\n"),
            ("README.md", "# T\n[p](docs/use/p.md#x)"),
            ("docs/use/p.md", page),
            ("docs/q.md", "# Q"),
            ("docs/use/x.svg", "<svg/>"),
            ("crates/a/examples/e.rs", ""),
            ("crates/tidesdb-typed/src/lib.rs", ""),
            ("data/README.md", "# D"),
        ];
        Book::of(&Tree::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())).into()))
    }

    #[test]
    fn links_lead_to_the_places_in_the_book() {
        for (link, want) in [
            ("[q](../q.md#a-b)", "[q](../q.md#a-b)"),
            ("[t](../../README.md)", "[t](../index.md)"),
            (
                "see [`e.rs`](../../crates/a/examples/e.rs), [x](x.svg)",
                "see [`e.rs`](../source/crates/a/examples/e.rs.txt), [x](x.svg)",
            ),
            ("[t](../../crates/tidesdb-typed/src/lib.rs)", "[t](../api/tidesdb_typed/index.html)"),
            ("the [examples](../../crates/a/examples) here", "the examples here"),
            (
                "`a[0](b)` [h](#here) [w](https://example.org/a.md)",
                "`a[0](b)` [h](#here) [w](https://example.org/a.md)",
            ),
            ("[q]: ../q.md", "[q]: ../q.md"),
            (
                "[l](../SUMMARY.md) [d](../../data/README.md)",
                "[l](../index.md) [d](../source/data/README.txt)",
            ),
            ("```text\n[t](../../README.md)\n```", "```text\n[t](../../README.md)\n```"),
        ] {
            assert_eq!(book(link).pages["use/p.md"], format!("{want}\n"), "{link}");
        }
        let book = book("[e](../../crates/a/examples/e.rs)");
        assert_eq!(book.summary, "# Summary\n[T](index.md)\n# Use\n- [P](use/p.md)\n- [Q](q.md)\n");
        assert_eq!(book.pages["index.md"], "# T\n[p](use/p.md#x)\n");
        let files: Vec<_> = book.files.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        assert_eq!(
            files,
            [
                ("crates/a/examples/e.rs", "source/crates/a/examples/e.rs.txt"),
                ("docs/use/x.svg", "use/x.svg")
            ]
        );
    }
}
