//! The samples of the pages, and the test that runs each of them.
//!
//! A sample is fenced text in a language of [`LANGUAGES`]. Something runs it, or its info string ends with the reason why nothing does, in
//! brackets: `sh (installs a package)`.

use super::{Fence, fences};
use crate::tree::{Tree, join, normal, parent};
use std::collections::BTreeMap;

/// Languages whose fenced text is a sample. Other fenced text is data, drawings or output.
const LANGUAGES: [&str; 8] = ["rust", "c", "cpp", "python", "sh", "console", "go", "java"];

/// Runs what the pages show of a terminal.
const CONSOLE: &str = "crates/tidesdb-cli/tests/all/book.rs";

/// Runs the programs in C.
const C: &str = "xtask/src/ctests.rs";

/// A sample.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Its page, relative to the root.
    pub page: String,
    /// Line of its beginning, from 1.
    pub line: usize,
    /// Its language.
    pub language: String,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of a sample.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The test that runs it, or compiles it.
    Tested(String),
    /// Why nothing runs it.
    Untested(String),
    /// Nothing runs it, and nothing says why.
    Unknown,
}

/// Returns whether the samples of a file are listed: those of the front page, of `docs` and of the pages of crates and bindings.
fn is_page(path: &str) -> bool {
    path.ends_with(".md")
        && (path == "README.md"
            || path.starts_with("docs/")
            || (["crates/", "bindings/", "integrations/"].iter().any(|dir| path.starts_with(dir))
                && path.ends_with("/README.md")))
}

/// Returns the samples of all pages.
pub(crate) fn samples(tree: &Tree) -> Vec<Sample> {
    let readers = readers(tree);
    let mut out = Vec::new();
    for (page, text) in tree.texts.iter().filter(|(path, _)| is_page(path)) {
        for fence in fences(text) {
            let language = fence.info.split([',', ' ']).next().unwrap_or("");
            if LANGUAGES.contains(&language) {
                let fate = fate(tree, &readers, page, &fence, language);
                out.push(Sample {
                    page: page.clone(),
                    line: fence.line,
                    language: language.to_owned(),
                    fate,
                });
            }
        }
    }
    out
}

fn fate(
    tree: &Tree,
    readers: &BTreeMap<String, String>,
    page: &str,
    fence: &Fence<'_>,
    language: &str,
) -> Fate {
    if fence.info.contains('`') {
        return Fate::Unknown; // Markdown takes such a line for text
    }
    let (words, reason) = match fence.info.split_once(" (") {
        Some((words, reason)) => (words, reason.strip_suffix(')').filter(|reason| !reason.is_empty())),
        None => (fence.info, None),
    };
    let has = |word: &str| words.split(',').any(|each| each == word);
    let untested =
        |reason: Option<&str>| reason.map_or(Fate::Unknown, |reason| Fate::Untested(reason.to_owned()));
    let test = match language {
        "rust" if has("ignore") => return untested(reason),
        "rust" if has("no_run") && reason.is_none() => return Fate::Unknown,
        "rust" => readers.get(page).map(|source| format!("doc test of {source}")),
        "console" if reason.is_none() && page.starts_with("docs/") => {
            tree.sources.contains_key(CONSOLE).then(|| CONSOLE.to_owned())
        }
        "c" if reason.is_none() => tree.sources.contains_key(C).then(|| C.to_owned()),
        "python" if reason.is_none() => reader_in(tree, page, ".py"),
        "go" if reason.is_none() => reader_in(tree, page, ".go"),
        _ => return untested(reason),
    };
    match (test, reason) {
        (Some(test), Some(reason)) => Fate::Tested(format!("{test}, compiled only: {reason}")),
        (Some(test), None) => Fate::Tested(test),
        (None, _) => Fate::Unknown,
    }
}

/// Returns the source that has each page as documentation, and so as doc tests.
fn readers(tree: &Tree) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (path, source) in &tree.sources {
        for rest in source.text.split("doc = include_str!(\"").skip(1) {
            let file = rest.split('"').next().unwrap_or("");
            out.insert(normal(&join(&parent(path), file)), path.clone());
        }
    }
    out
}

/// Returns the program, in a language whose files have this ending or of this tool, that names the page.
fn reader_in(tree: &Tree, page: &str, ending: &str) -> Option<String> {
    let name = page.strip_prefix("docs/").unwrap_or(page);
    let programs = tree.texts.iter().filter(|(path, _)| path.ends_with(ending));
    let own =
        tree.sources.iter().filter(|(path, _)| path.starts_with("xtask/src/") && !path.contains("/pages/"));
    let mut all = programs
        .map(|(path, text)| (path, text.as_str()))
        .chain(own.map(|(path, source)| (path, source.text.as_str())));
    all.find(|(_, text)| text.contains(name)).map(|(path, _)| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(page: &str, text: &str) -> Vec<Fate> {
        let files = [
            (page, text),
            ("crates/k/src/pages.rs", "#[doc = include_str!(\"../../../docs/read.md\")] struct A;"),
            (CONSOLE, ""),
            (C, ""),
            ("bindings/python/tests/test_pages.py", "PAGE = \"how-to/python.md\""),
            ("bindings/go/page_test.go", "const page = \"how-to/go.md\""),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        samples(&Tree::of(files.into())).into_iter().map(|sample| sample.fate).collect()
    }

    fn tested(test: &str) -> Vec<Fate> {
        vec![Fate::Tested(test.to_owned())]
    }

    #[test]
    fn a_sample_has_a_test() {
        assert_eq!(fates("docs/read.md", "```rust\n```"), tested("doc test of crates/k/src/pages.rs"));
        let compiled = "doc test of crates/k/src/pages.rs, compiled only: needs a network";
        assert_eq!(fates("docs/read.md", "```rust,no_run (needs a network)\n```"), tested(compiled));
        assert_eq!(fates("docs/a.md", "```console\n$ tidesdb tour\n```"), tested(CONSOLE));
        assert_eq!(fates("docs/a.md", "```c\n```"), tested(C));
        assert_eq!(
            fates("docs/how-to/python.md", "```python\n```"),
            tested("bindings/python/tests/test_pages.py")
        );
        assert_eq!(fates("docs/how-to/go.md", "```go\n```"), tested("bindings/go/page_test.go"));
    }

    #[test]
    fn a_sample_without_a_test_says_why() {
        for text in ["```sh (needs root)\n```", "```rust,ignore (needs root)\n```", "```c (needs root)\n```"]
        {
            assert_eq!(fates("docs/a.md", text), [Fate::Untested("needs root".to_owned())], "{text}");
        }
    }

    #[test]
    fn a_sample_without_a_test_or_a_reason_is_found() {
        let pages = [
            ("docs/a.md", "```rust\n```"),
            ("docs/read.md", "```rust,ignore\n```"),
            ("docs/read.md", "```rust,no_run\n```"),
            ("docs/a.md", "```sh\n```"),
            ("docs/a.md", "```sh ()\n```"),
            ("docs/a.md", "```sh (`true` does it)\n```"),
            ("docs/a.md", "```python\n```"),
            ("docs/a.md", "```go\n```"),
            ("crates/k/README.md", "  ```console\n  ```"),
        ];
        for (page, text) in pages {
            assert_eq!(fates(page, text), [Fate::Unknown], "{page} {text}");
        }
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        for (page, text) in
            [("docs/a.md", "```text\n```\n```\n```\n```toml\n```"), ("CHANGELOG.md", "```rust\n```")]
        {
            assert_eq!(fates(page, text), [], "{page} {text}");
        }
    }
}
