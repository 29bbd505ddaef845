//! Code for an operating system is in one place: the crates that a program links, and the programs of every system, ask for a system in the
//! seam and nowhere else.
//!
//! Tests may ask for a system.

use super::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// The crates that a program links, and the programs and the C library, which run on every system.
const LINKED: [&str; 11] = [
    "crates/tidesdb/src/",
    "crates/tidesdb-io/src/",
    "crates/tidesdb-sync/src/",
    "crates/tidesdb-memtable/src/",
    "crates/tidesdb-cache/src/",
    "crates/tidesdb-typed/src/",
    "crates/tidesdb-tokio/src/",
    "crates/tidesdb-objects/src/",
    "crates/tidesdb-console/src/",
    "crates/tidesdb-cli/src/",
    "crates/tidesdb-capi/src/",
];

/// Where the systems are, and the arena, which takes memory by calls of Linux or from the heap.
const PLACES: [&str; 2] = ["crates/tidesdb-io/src/system/", "crates/tidesdb-memtable/src/arena/block.rs"];

/// Names that only code for a system has.
const NAMES: [&str; 7] =
    ["target_os", "target_vendor", "target_family", "target_env", "libc", "rustix", "windows_sys"];

/// Returns where a system is asked for.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let begins = |path: &str, with: &[&str]| with.iter().any(|begin| path.starts_with(begin));
    let mut out = Vec::new();
    for (path, source) in &tree.sources {
        if !begins(path, &LINKED) || begins(path, &PLACES) || tree.is_test_file(path) {
            continue;
        }
        let found = (0..source.code.len()).filter(|at| names_a_system(source, *at) && !source.in_test(*at));
        out.extend(found.map(|at| {
            let text = format!("`{}`: code for a system belongs to `{}`", source.word(at), PLACES[0]);
            Finding::new(path, source.code[at].line, text)
        }));
    }
    out
}

fn names_a_system(source: &Source, at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map_or("", |at| source.word(at));
    match source.word(at) {
        "unix" | "windows" => {
            before(1) == "(" && matches!(before(2), "cfg" | "cfg_attr" | "not" | "any" | "all")
        }
        "os" => [before(1), before(2), before(3)] == [":", ":", "std"],
        word => NAMES.contains(&word),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, places, tree};
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        let manifest = "crates/tidesdb-io/Cargo.toml";
        places(&check(&tree(&[
            (manifest, MANIFEST),
            ("crates/tidesdb-io/src/lib.rs", "mod a;\n"),
            (name, text),
        ])))
    }

    #[test]
    fn code_for_a_system_outside_of_the_seam_fires() {
        let file = "crates/tidesdb-io/src/a.rs";
        for text in [
            "#[cfg(unix)]\nfn f() {}\n",
            "#[cfg(not(windows))]\nfn f() {}\n",
            "use std::os::fd::OwnedFd;\n",
            "fn f() { libc::sync(); }\n",
            "#[cfg(all(target_os = \"linux\", not(miri)))]\nfn f() {}\n",
        ] {
            assert_eq!(found(file, text), [format!("{file}:1")], "{text}");
            assert!(found("crates/tidesdb-io/src/system/a.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn programs_and_the_c_library_are_looked_at() {
        for name in ["console", "cli", "capi"] {
            let (manifest, root) =
                (format!("crates/tidesdb-{name}/Cargo.toml"), format!("crates/tidesdb-{name}/src/lib.rs"));
            let text = "use std::os::fd::OwnedFd;\n";
            let found = places(&check(&tree(&[(&manifest, MANIFEST), (&root, text)])));
            assert_eq!(found, [format!("{root}:1")]);
        }
    }

    #[test]
    fn other_words_and_tests_do_not_fire() {
        let text = "fn f(b: &[u8]) { b.windows(2); }\n#[cfg(target_arch = \"x86_64\")]\nfn g() {}\n\
                    #[cfg(test)]\nmod tests {\n#[cfg(unix)]\nfn h() {}\n}\n";
        assert!(found("crates/tidesdb-io/src/a.rs", text).is_empty());
    }
}
