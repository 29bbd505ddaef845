//! The engine uses files, clock, threads and locks through its leaf crates only, so that a simulated world can
//! replace the real one.

use super::Finding;
use crate::source::{Path, Source};
use crate::tree::Tree;
use std::collections::HashMap;

/// The engine's sources.
const ENGINE: &str = "crates/tidesdb/src/";

/// Names that are not allowed, and their replacements.
const BANNED: [(&str, &str); 9] = [
    ("std::fs", "tidesdb_io"),
    ("std::time::Instant", "tidesdb_io::Clock"),
    ("std::time::SystemTime::now", "tidesdb_io::Clock"),
    ("std::thread::spawn", "tidesdb_io::Threads"),
    ("std::thread::scope", "tidesdb_io::Threads"),
    ("std::thread::Builder", "tidesdb_io::Threads"),
    ("std::sync::Mutex", "tidesdb_sync"),
    ("std::sync::RwLock", "tidesdb_sync"),
    ("std::sync::Condvar", "tidesdb_sync"),
];

/// Returns the findings in the engine.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, source) in tree.sources.iter().filter(|(path, _)| path.starts_with(ENGINE)) {
        if !tree.is_test_file(path) {
            findings(path, source, &mut out);
        }
    }
    out
}

fn findings(file: &str, source: &Source, out: &mut Vec<Finding>) {
    let paths = source.paths();
    let imports: HashMap<_, _> =
        paths.iter().filter(|path| path.import).map(|path| (path.alias, path)).collect();
    for path in paths.iter().filter(|path| !source.in_test(path.at)) {
        let full = full(path, &imports);
        for (banned, instead) in BANNED {
            let below =
                full.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
            if below {
                out.push(Finding::new(file, path.line, format!("`{banned}`: use `{instead}`")));
            }
        }
    }
}

/// Returns the path with its first name replaced by the path it was imported from.
fn full(path: &Path<'_>, imports: &HashMap<&str, &Path<'_>>) -> String {
    let first = path.names.first().copied().unwrap_or("");
    let own = path.names.join("::");
    match imports.get(first) {
        Some(import) if !path.import => format!("{}{}", import.names.join("::"), &own[first.len()..]),
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, tree};
    use super::*;

    fn count(root: &str) -> usize {
        let tree = tree(&[
            ("crates/tidesdb/Cargo.toml", MANIFEST),
            ("crates/tidesdb/src/lib.rs", root),
            ("crates/tidesdb/src/tests.rs", "use std::fs;"),
            ("crates/tidesdb/tests/t.rs", "use std::fs;"),
            ("crates/tidesdb-io/src/lib.rs", "use std::fs;"),
        ]);
        check(&tree).len()
    }

    #[test]
    fn the_outside_fires() {
        for text in [
            "use std::fs;",
            "use std::fs::File;",
            "use std::{io, time::{Duration, Instant}};",
            "use std::time::SystemTime; fn f() { SystemTime::now(); }",
            "use std::thread; fn f() { thread::spawn(g); }",
            "use std::thread as t; fn f() { t::Builder::new(); }",
            "use std::sync::{Arc, Mutex};",
        ] {
            assert_eq!(count(&format!("#[cfg(test)] mod tests; {text}")), 1, "{text}");
        }
    }

    #[test]
    fn the_rest_is_silent() {
        for text in [
            "use std::sync::Arc; use std::time::Duration;",
            "use std::time::SystemTime; fn f(moment: SystemTime) {}",
            "use tidesdb_sync::Mutex;",
            "use std::thread; fn f() { thread::yield_now(); }",
            "// std::fs\nconst A: &str = \"std::fs\";",
            "#[cfg(test)] mod inner { use std::time::Instant; }",
        ] {
            assert_eq!(count(&format!("#[cfg(test)] mod tests; {text}")), 0, "{text}");
        }
    }
}
