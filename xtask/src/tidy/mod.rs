//! `cargo xtask tidy`: project rules that neither rustc nor clippy checks.
//!
//! A rule is a function from a [`Tree`] to [`Finding`]s without side effects. It has its own file, with tests
//! that show when it fires and when it does not. Adding a rule needs a file and a line in [`RULES`].

mod alone;
mod benchmarks;
mod book;
mod comments;
mod constants;
mod coverage;
mod docs;
mod figures;
mod floors;
mod kinds;
mod links;
mod manifests;
mod names;
mod promises;
mod reach;
mod sizes;
mod stats;
mod systems;
mod words;

use crate::tree::Tree;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File, relative to the root.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong and, if not obvious, what to do.
    pub text: String,
}

impl Finding {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [(&str, Rule); 20] = [
    ("floors", floors::check),
    ("sizes", sizes::check),
    ("reach", reach::check),
    ("systems", systems::check),
    ("comments", comments::check),
    ("alone", alone::check),
    ("kinds", kinds::check),
    ("docs", docs::check),
    ("links", links::check),
    ("summary", book::check_summary),
    ("samples", book::check_samples),
    ("manifests", manifests::check),
    ("benchmarks", benchmarks::check),
    ("figures", figures::check),
    ("names", names::check),
    ("promises", promises::check),
    ("constants", constants::check),
    ("coverage", coverage::check),
    ("words", words::check),
    ("paths", words::check_paths),
];

/// Checks the repository at `root` and prints the findings; with `stats`, prints statistics too.
pub(crate) fn run(root: &Path, stats: bool) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot list {}: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let mut count = 0;
    for (name, rule) in RULES {
        let mut findings = rule(&tree);
        findings.sort();
        for finding in &findings {
            println!("{finding} [{name}]");
        }
        count += findings.len();
    }
    if stats {
        print!("{}", stats::report(&tree));
    }
    println!("tidy: {} sources, {} rules, {count} findings", tree.sources.len(), RULES.len());
    if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod test_kit {
    use super::{Finding, Tree};

    /// A manifest with a package name, for snippets that need a crate.
    pub(super) const MANIFEST: &str = "[package]\nname = \"a\"\n";

    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    /// Returns `path:line` of each finding.
    pub(super) fn places(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }
}
