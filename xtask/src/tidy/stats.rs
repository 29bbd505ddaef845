//! Statistics of the code, one row per crate.
//!
//! Tests, examples and benchmarks are counted separately: sizes, comments and assertions describe the code that
//! ships.

use super::{floors, sizes};
use crate::lexer::Kind;
use crate::source::Source;
use crate::tree::{Crate, Tree};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Counts for one crate, or for all.
#[derive(Default)]
struct Figures {
    files: Vec<usize>,
    functions: Vec<usize>,
    test_lines: usize,
    code_lines: usize,
    comment_lines: usize,
    asserts: usize,
    unsafe_blocks: usize,
    upward: usize,
}

/// Returns a table with a row per crate and one for all.
pub(super) fn report(tree: &Tree) -> String {
    let mut out = String::new();
    let mut all = Figures::default();
    let _ = writeln!(
        out,
        "{:<24} {:>6} {:>7} {:>7} {:>11} {:>6} {:>14} {:>4} {:>8} {:>10} {:>11} {:>3}",
        "crate",
        "files",
        "lines",
        "tests",
        "file md/mx",
        "fns",
        "fn md/p90/mx",
        ">70",
        "comments",
        "asserts/kl",
        "unsafe",
        "up"
    );
    for krate in &tree.crates {
        let mut own = Figures { upward: floors::upward(tree, krate), ..Figures::default() };
        for path in krate.modules.keys() {
            own.count(&tree.sources[path], tree.is_test_file(path));
        }
        own.row(&krate_name(krate), &mut out);
        all.add(own);
    }
    all.row("all", &mut out);
    out
}

fn krate_name(krate: &Crate) -> String {
    krate.dir.rsplit('/').next().unwrap_or("").to_owned()
}

impl Figures {
    fn count(&mut self, source: &Source, test_file: bool) {
        self.unsafe_blocks +=
            (0..source.code.len()).filter(|&at| source.words_are(at, &["unsafe", "{"])).count();
        if test_file {
            self.test_lines += source.lines();
            return;
        }
        let tests: Vec<_> = source.test_lines();
        let ships = |line: usize| !tests.iter().any(|range| range.contains(&line));
        let in_tests = (1..=source.lines()).filter(|&line| !ships(line)).count();
        self.test_lines += in_tests;
        self.files.push(source.lines() - in_tests);
        self.functions.extend(source.functions().iter().filter(|f| ships(f.line)).map(|f| f.lines));
        let code: BTreeSet<_> =
            source.code.iter().flat_map(|t| t.line..=t.end_line).filter(|&l| ships(l)).collect();
        let comment = source.comments.iter().flat_map(|t| t.line..=t.end_line);
        let comment: BTreeSet<_> = comment.filter(|&l| ships(l) && !code.contains(&l)).collect();
        self.code_lines += code.len();
        self.comment_lines += comment.len();
        self.asserts +=
            (0..source.code.len()).filter(|&at| !source.in_test(at) && is_assertion(source, at)).count();
    }

    fn add(&mut self, other: Figures) {
        self.files.extend(other.files);
        self.functions.extend(other.functions);
        self.test_lines += other.test_lines;
        self.code_lines += other.code_lines;
        self.comment_lines += other.comment_lines;
        self.asserts += other.asserts;
        self.unsafe_blocks += other.unsafe_blocks;
        self.upward += other.upward;
    }

    fn row(&mut self, name: &str, out: &mut String) {
        self.files.sort_unstable();
        self.functions.sort_unstable();
        let over = self.functions.iter().filter(|&&lines| lines > sizes::FUNCTION_LINES).count();
        let written = (self.code_lines + self.comment_lines).max(1);
        let lines: usize = self.files.iter().sum();
        let _ = writeln!(
            out,
            "{name:<24} {:>6} {lines:>7} {:>7} {:>11} {:>6} {:>14} {over:>4} {:>7}% {:>10.1} {:>11} {:>3}",
            self.files.len(),
            self.test_lines,
            format!("{}/{}", rank(&self.files, 50), rank(&self.files, 100)),
            self.functions.len(),
            format!(
                "{}/{}/{}",
                rank(&self.functions, 50),
                rank(&self.functions, 90),
                rank(&self.functions, 100)
            ),
            self.comment_lines * 100 / written,
            self.asserts as f64 * 1000.0 / self.code_lines.max(1) as f64,
            self.unsafe_blocks,
            self.upward,
        );
    }
}

fn is_assertion(source: &Source, at: usize) -> bool {
    let word = source.word(at);
    source.code[at].kind == Kind::Ident
        && source.word(at + 1) == "!"
        && (word.starts_with("assert") || word.starts_with("debug_assert") || word == "law")
}

/// Returns the smallest of the sorted values that is not below `percent` of them.
fn rank(sorted: &[usize], percent: usize) -> usize {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, tree};
    use super::*;

    #[test]
    fn ranks_are_nearest() {
        assert_eq!(rank(&[], 50), 0);
        assert_eq!(rank(&[1, 2, 3, 4], 50), 2);
        assert_eq!(rank(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 90), 9);
        assert_eq!(rank(&[1, 2, 3], 100), 3);
    }

    #[test]
    fn tests_are_counted_separately() {
        let lib = "// why\nfn a() {\n    assert!(true);\n}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let tree = tree(&[("crates/a/Cargo.toml", MANIFEST), ("crates/a/src/lib.rs", lib)]);
        let mut figures = Figures::default();
        figures.count(&tree.sources["crates/a/src/lib.rs"], false);
        assert_eq!((figures.files.as_slice(), figures.test_lines), ([4].as_slice(), 4));
        assert_eq!((figures.functions.as_slice(), figures.asserts), ([3].as_slice(), 1));
        assert_eq!((figures.code_lines, figures.comment_lines), (3, 1));
        assert!(report(&tree).contains("\nall "));
    }
}
