//! Every source is reached by a `mod` line or by Cargo, and no file has a name without meaning.

use super::Finding;
use crate::tree::Tree;

/// File and folder names that do not describe their contents.
const DRAWERS: [&str; 6] = ["util", "utils", "helper", "helpers", "misc", "common"];

/// Findings in all crates.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for path in tree.sources.keys() {
        let Some(krate) = tree.crate_of(path) else { continue };
        let Some(module) = krate.modules.get(path) else {
            out.push(Finding::new(path, 1, "no `mod` line reaches this file"));
            continue;
        };
        let name = module.path.last().map_or("", String::as_str);
        if !module.test && DRAWERS.contains(&name) {
            out.push(Finding::new(
                path,
                1,
                format!("`{name}` does not describe the contents: rename it, or move the code to its user"),
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, places, tree};
    use super::*;

    #[test]
    fn lost_files_and_drawers_fire() {
        let found = check(&tree(&[
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/lib.rs", "mod kept; mod utils;"),
            ("crates/a/src/kept.rs", ""),
            ("crates/a/src/utils.rs", ""),
            ("crates/a/src/lost.rs", ""),
            ("crates/a/tests/t.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
        ]));
        assert_eq!(places(&found), ["crates/a/src/lost.rs:1", "crates/a/src/utils.rs:1"]);
    }
}
