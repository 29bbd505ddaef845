//! The book: each page of `docs` is in its list once, and each sample of a page has a test or says why it has none.

use super::Finding;
use crate::pages::samples::{Fate, samples};
use crate::pages::summary::{SUMMARY, entries, list};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// Findings in the list of pages. That its links lead somewhere is a rule of its own.
pub(super) fn check_summary(tree: &Tree) -> Vec<Finding> {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = Vec::new();
    for entry in entries(list(tree)) {
        if entry.title.is_empty() {
            out.push(Finding::new(SUMMARY, entry.line, "a page without a name"));
        }
        if let Some(first) = lines.insert(entry.path(), entry.line) {
            let what = format!("{} is in line {first} already", entry.target);
            out.push(Finding::new(SUMMARY, entry.line, what));
        }
    }
    let pages = tree.texts.keys().filter(|path| path.starts_with("docs/") && path.ends_with(".md"));
    let missing = pages.filter(|path| *path != SUMMARY && !lines.contains_key(*path));
    out.extend(
        missing.map(|path| Finding::new(path, 1, format!("the page is not in {SUMMARY}: add a line for it"))),
    );
    out
}

/// Findings in the samples.
pub(super) fn check_samples(tree: &Tree) -> Vec<Finding> {
    let unknown = samples(tree).into_iter().filter(|sample| sample.fate == Fate::Unknown);
    let found = unknown.map(|sample| {
        let advice = match sample.language.as_str() {
            "rust" => "include the page in crates/testkit/src/pages.rs, or write `rust,ignore (why nothing runs it)`",
            "sh" => "make it a session, ```console, whose output is compared, or write `sh (why nothing runs it)`",
            _ => "no test runs it: write the reason in brackets after the language",
        };
        Finding::new(&sample.page, sample.line, format!("sample in {}: {advice}", sample.language))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    fn findings(list: &str) -> Vec<String> {
        let pages = [("docs/a.md", "# A"), ("docs/x/b.md", "# B"), ("README.md", "# T"), (SUMMARY, list)];
        places(&check_summary(&tree(&pages)))
    }

    #[test]
    fn a_page_that_is_not_listed_once_fires() {
        let list = "# Summary\n[T](../README.md)\n- [A](a.md)\n- [B](x/b.md)\n";
        assert_eq!(findings(list), [] as [&str; 0]);
        assert_eq!(findings(&list.replace("- [B](x/b.md)\n", "")), ["docs/x/b.md:1"]);
        assert_eq!(findings(&format!("{list}- [Again](./a.md)\n")), ["docs/SUMMARY.md:5"]);
        assert_eq!(findings(&list.replace("[A]", "[]")), ["docs/SUMMARY.md:3"]);
    }

    #[test]
    fn a_sample_without_a_test_fires() {
        let found = |text| places(&check_samples(&tree(&[("docs/a.md", text)])));
        assert_eq!(found("# A\n```rust\n```"), ["docs/a.md:2"]);
        assert_eq!(found("# A\n```sh (needs root)\n```"), [] as [&str; 0]);
    }
}
