//! `unsafe` stays in the leaf crates, and each block and implementation states why it is sound.

use super::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Folders that may contain `unsafe`.
const LEAVES: [&str; 6] = [
    "crates/tidesdb-io/",
    "crates/tidesdb-sync/",
    "crates/tidesdb-memtable/",
    "crates/tidesdb-cache/",
    "crates/tidesdb-capi/",
    // Bindings to other engines: a memory map, functions of a library.
    "crates/tidesdb-bench-peers/src/bin/",
];

/// Maximum distance of the note above the keyword in lines, to allow for attributes and the head of a long
/// statement.
const REACH: usize = 3;

/// An `unsafe` block or implementation.
pub(super) struct Site {
    /// Its line.
    pub line: usize,
    /// True if there is a note above it.
    pub noted: bool,
    /// True if it is a block.
    pub block: bool,
}

/// Findings in all sources.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, source) in &tree.sources {
        if LEAVES.iter().any(|leaf| path.starts_with(leaf)) {
            for site in sites(source).iter().filter(|site| !site.noted) {
                out.push(Finding::new(path, site.line, "`unsafe` without a `// SAFETY:` note above it"));
            }
        } else {
            let words = (0..source.code.len()).filter(|&at| source.word(at) == "unsafe");
            let text = "`unsafe` outside of the leaf crates";
            out.extend(words.map(|at| Finding::new(path, source.code[at].line, text)));
        }
    }
    out
}

/// Returns the `unsafe` blocks and implementations of a source.
pub(super) fn sites(source: &Source) -> Vec<Site> {
    let notes = notes(source);
    let starts = (0..source.code.len())
        .filter(|&at| source.word(at) == "unsafe" && matches!(source.word(at + 1), "{" | "impl"));
    starts
        .map(|at| {
            let line = source.code[at].line;
            let noted = notes.iter().any(|&note| note <= line && note + REACH >= line);
            Site { line, noted, block: source.word(at + 1) == "{" }
        })
        .collect()
}

/// Returns the last line of each group of comments that contains a note.
fn notes(source: &Source) -> Vec<usize> {
    let mut out = Vec::new();
    let mut run: Option<(usize, bool)> = None;
    for comment in &source.comments {
        let says = source.span(comment).contains("SAFETY:");
        run = match run {
            Some((end, noted)) if comment.line <= end + 1 => Some((comment.end_line, noted || says)),
            other => {
                out.extend(other.filter(|run| run.1).map(|run| run.0));
                Some((comment.end_line, says))
            }
        };
    }
    out.extend(run.filter(|run| run.1).map(|run| run.0));
    out
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        places(&check(&tree(&[(path, text)])))
    }

    #[test]
    fn only_leaves_hold_unsafe() {
        let text = "// SAFETY: noted.\nunsafe { x() }";
        assert_eq!(findings("crates/tidesdb/src/a.rs", text), ["crates/tidesdb/src/a.rs:2"]);
        assert_eq!(findings("crates/tidesdb-io/src/a.rs", text), [] as [&str; 0]);
        let free = "#![forbid(unsafe_code)] // unsafe\nfn f() { \"unsafe\"; }";
        assert_eq!(findings("crates/tidesdb/src/a.rs", free), [] as [&str; 0]);
    }

    #[test]
    fn blocks_and_impls_need_a_note() {
        let path = "crates/tidesdb-sync/src/a.rs";
        assert_eq!(findings(path, "unsafe { x() }\nunsafe impl Send for A {}").len(), 2);
        assert_eq!(
            findings(path, "// SAFETY: a\n// long note.\n#[x]\nlet y =\n    unsafe { x() };"),
            [] as [&str; 0]
        );
        assert_eq!(
            findings(path, "// SAFETY: far.\n\n\n\n\nunsafe { x() }"),
            ["crates/tidesdb-sync/src/a.rs:6"]
        );
        assert_eq!(findings(path, "// no note\nunsafe { x() }"), ["crates/tidesdb-sync/src/a.rs:2"]);
    }

    #[test]
    fn declarations_need_no_note_here() {
        assert_eq!(
            findings("crates/tidesdb-io/src/a.rs", "pub unsafe fn f() {} type F = unsafe fn();"),
            [] as [&str; 0]
        );
    }
}
