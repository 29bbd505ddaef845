//! A test that looks at the whole process has a process of its own: other tests of its process run at the same time.

use super::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Calls and names that show or change something that all threads of a process share.
const SHARED: [&str; 9] = [
    "anonymous_bytes(",
    "Heap::now(",
    "Heap::recent(",
    "\"/proc/self/",
    "Usage::now(",
    "process::umask(",
    "set_var(",
    "remove_var(",
    "set_current_dir(",
];

/// Runs the rest of a test in a process of its own.
const ALONE: &str = "alone(";

/// Returns the functions of tests that look at their process and share it.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, source) in tree.sources.iter().filter(|(path, _)| !path.contains("/examples/")) {
        let is_test_file = tree.is_test_file(path);
        let is_alone = is_test_file && source.text.matches("#[test]").count() == 1;
        if !is_alone {
            findings(path, source, is_test_file, &mut out);
        }
    }
    out
}

fn findings(file: &str, source: &Source, is_test_file: bool, out: &mut Vec<Finding>) {
    let tests = source.test_lines();
    let in_test = |line: usize| is_test_file || tests.iter().any(|lines| lines.contains(&line));
    for function in source.functions().iter().filter(|function| in_test(function.line)) {
        let body: Vec<&str> = source.text.lines().skip(function.line - 1).take(function.lines).collect();
        let found = SHARED.iter().find(|what| body.iter().any(|line| line.contains(**what)));
        if let Some(what) = found
            && !body.iter().any(|line| line.contains(ALONE))
        {
            let what = what.trim_matches(['(', '"']);
            let text = format!("`{what}` in a test that shares its process: use `tidesdb_io::sim::alone`");
            out.push(Finding::new(file, function.line, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, places, tree};
    use super::*;

    const LOOK: &str = "#[test]\nfn a() { let x = Heap::now(); }\n#[test]\nfn b() {}\n";

    fn found(name: &str, text: &str) -> Vec<String> {
        places(&check(&tree(&[("crates/a/Cargo.toml", MANIFEST), (name, text)])))
    }

    #[test]
    fn a_look_at_the_process_fires() {
        assert_eq!(found("crates/a/tests/t.rs", LOOK), ["crates/a/tests/t.rs:2"]);
        let unit = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{LOOK}}}\n");
        assert_eq!(found("crates/a/src/lib.rs", &unit), ["crates/a/src/lib.rs:5"]);
    }

    #[test]
    fn a_test_alone_in_its_process_may_look() {
        let alone = LOOK.replace("let x = Heap::now();", "alone(|| drop(Heap::now()));");
        assert!(found("crates/a/tests/t.rs", &alone).is_empty());
        assert!(
            found("crates/a/tests/t.rs", "#[test]\nfn a() { Heap::now(); }\n").is_empty(),
            "the only test"
        );
        assert!(found("crates/a/src/lib.rs", "fn f() { Heap::now(); }\n").is_empty(), "no test");
    }
}
