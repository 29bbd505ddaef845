//! The folders of tests of the engine are the promises: their page names each folder, and each folder that it names exists.

use super::{Finding, names};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// The page, which names a folder as `name/`.
const PAGE: &str = "docs/start/promises.md";
const TESTS: &str = "crates/tidesdb/tests/api/";

/// Findings in the page and in the folders.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.texts.get(PAGE) else { return Vec::new() };
    let inside = tree.sources.keys().filter_map(|path| path.strip_prefix(TESTS)?.split_once('/'));
    let folders: BTreeSet<&str> = inside.map(|(folder, _)| folder).collect();
    let spans = names::spans(text).into_iter();
    let named: Vec<_> = spans.filter_map(|span| Some((span.line, span.text.strip_suffix('/')?))).collect();
    let gone = named.iter().filter(|(_, name)| !folders.contains(name));
    let mut out: Vec<_> = gone
        .map(|(line, name)| Finding::new(PAGE, *line, format!("no folder `{name}` in {TESTS}")))
        .collect();
    let unnamed = folders.iter().filter(|folder| named.iter().all(|(_, name)| name != *folder));
    out.extend(unnamed.map(|folder| {
        Finding::new(&format!("{TESTS}{folder}/mod.rs"), 1, format!("{PAGE} does not name `{folder}/`"))
    }));
    out
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    fn findings(row: &str) -> Vec<String> {
        let module = format!("{TESTS}space/mod.rs");
        places(&check(&tree(&[(&module, "mod disk;"), (&format!("{TESTS}main.rs"), ""), (PAGE, row)])))
    }

    #[test]
    fn folders_and_their_page_agree() {
        assert_eq!(findings("| space | `make` | `space/` |"), [] as [&str; 0]);
        assert_eq!(
            findings("| space | `make` | `time/` |"),
            [format!("{PAGE}:1"), format!("{TESTS}space/mod.rs:1")]
        );
    }
}
