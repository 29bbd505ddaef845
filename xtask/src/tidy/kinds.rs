//! Each visitor of operations and of log records names every kind, so that a new kind does not compile until each has decided.
//!
//! Outside of tests, the engine names a variant of [`ENUMS`] in a pattern only as a whole arm of a `match`, without an arm for the
//! rest (`_`, or a name), and neither compares it nor casts it to its number. Questions that several places have are methods of
//! the enum. Not seen are kinds of another name (`use ... as`), a number that is compared with a literal, and `_` inside of the
//! pattern of an outer `match`, which names no kind.

use super::Finding;
use crate::lexer::Kind as Lexeme;
use crate::source::Source;
use crate::tree::Tree;
use std::collections::BTreeSet;
use std::ops::Range;

/// The engine.
const ENGINE: &str = "crates/tidesdb/src/";

/// Names of enums of the engine, and the files of it that define them.
const ENUMS: [(&str, &str); 2] = [("Kind", "types/entry.rs"), ("RecordKind", "wal/layout.rs")];

/// Returns the places that would accept a new kind in silence.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (name, home) in ENUMS {
        for (path, source) in engine(tree) {
            let uses = Uses::new(tree, name, home, path, source);
            uses.findings(&mut |at, text| out.push(Finding::new(path, source.code[at].line, text)));
        }
    }
    out
}

/// The sources of the engine that are not for tests.
fn engine(tree: &Tree) -> impl Iterator<Item = (&str, &Source)> {
    let sources = tree.sources.iter().map(|(path, source)| (path.as_str(), source));
    sources.filter(|(path, _)| path.starts_with(ENGINE) && !tree.is_test_file(path))
}

/// How one source uses one enum.
struct Uses<'a> {
    source: &'a Source,
    name: &'a str,
    /// True in the file of the enum, where `Self` is taken for it.
    is_home: bool,
    /// Its variants.
    variants: BTreeSet<&'a str>,
}

/// An arm of a `match`: its pattern with the guard, and the end of the pattern.
struct Arm {
    all: Range<usize>,
    pattern_end: usize,
}

impl<'a> Uses<'a> {
    fn new(tree: &'a Tree, name: &'a str, home: &str, path: &str, source: &'a Source) -> Self {
        let home = format!("{ENGINE}{home}");
        let variants = tree.sources.get(&home).map(|source| variants(source, name)).unwrap_or_default();
        Self { source, name, is_home: path == home, variants }
    }

    fn findings(&self, found: &mut impl FnMut(usize, String)) {
        let (source, name) = (self.source, self.name);
        for at in (0..source.code.len()).filter(|at| !source.in_test(*at)) {
            if self.is_variant(at) && (self.is_compared(at) || source.word(at + 4) == "as") {
                found(
                    at,
                    format!(
                        "asks for one `{name}`, so that a new one gets the other answer: ask a method of `{name}`"
                    ),
                );
            }
            if source.words_are(at, &[name, ":", ":"]) && matches!(source.word(at + 3), "{" | "*") {
                found(at, format!("`{name}::` is left out where its variants are used"));
            }
            let pattern = match source.word(at) {
                "matches" if source.word(at + 1) == "!" => at..source.partner(at + 2),
                "let" => at..self.until(at + 1, "=", source.code.len()),
                _ => at..at,
            };
            if pattern.clone().any(|at| self.is_variant(at)) {
                found(
                    at,
                    format!(
                        "a pattern beside which a new `{name}` passes in silence: use `match`, or a method of `{name}`"
                    ),
                );
            }
        }
        for arms in self.matches() {
            self.arm_findings(&arms, found);
        }
    }

    fn arm_findings(&self, arms: &[Arm], found: &mut impl FnMut(usize, String)) {
        for arm in arms {
            if !self.is_catch_all(arm) && !self.is_whole_pattern(arm) && self.mentions(arm) {
                found(
                    arm.all.start,
                    format!("a `{}` inside of another pattern: match the kind itself", self.name),
                );
            } else if self.is_catch_all(arm) {
                found(arm.all.start, format!("an arm for each `{}` that is not named: name them", self.name));
            }
        }
    }

    /// The arms of each `match` that has a variant in a pattern.
    fn matches(&self) -> Vec<Vec<Arm>> {
        let source = self.source;
        let starts = (0..source.code.len()).filter(|at| source.word(*at) == "match" && !source.in_test(*at));
        let all = starts.map(|at| self.arms(self.until(at + 1, "{", source.code.len())));
        all.filter(|arms| arms.iter().any(|arm| self.mentions(arm))).collect()
    }

    /// The arms between the braces that open at `open`.
    fn arms(&self, open: usize) -> Vec<Arm> {
        let (source, close) = (self.source, self.source.partner(open));
        let (mut out, mut at) = (Vec::new(), open + 1);
        while at < close {
            while source.word(at) == "#" {
                at = source.partner(at + 1) + 1;
            }
            let arrow = self.until(at, "=>", close);
            let pattern_end = self.until(at, "if", arrow);
            out.push(Arm { all: at..arrow, pattern_end });
            let body = arrow + 2;
            let is_block = source.word(body) == "{";
            at = if is_block { source.partner(body) + 1 } else { self.until(body, ",", close) };
            at += usize::from(source.word(at) == ",");
        }
        out
    }

    /// Returns the first place from `at` on with this word outside of brackets, `end` if there is none.
    fn until(&self, mut at: usize, word: &str, end: usize) -> usize {
        let source = self.source;
        let is_there = |at: usize| match word {
            "=>" => source.words_are(at, &["=", ">"]),
            _ => source.word(at) == word,
        };
        while at < end && !is_there(at) {
            at = source.partner(at) + 1; // itself, if it opens no bracket
        }
        at.min(end)
    }

    /// Returns whether the tokens from `at` on are a path to a variant.
    fn is_variant(&self, at: usize) -> bool {
        let names = self.source.word(at) == self.name || self.is_home && self.source.word(at) == "Self";
        names
            && self.source.words_are(at + 1, &[":", ":"])
            && self.variants.contains(self.source.word(at + 3))
    }

    /// Returns whether `==` or `!=` is beside the variant at `at`.
    fn is_compared(&self, at: usize) -> bool {
        let source = self.source;
        let mut first = at;
        while first >= 3 && source.words_are(first - 2, &[":", ":"]) {
            first -= 3;
        }
        let is_sign = |at: usize| {
            let joined =
                source.code.get(at).zip(source.code.get(at + 1)).is_some_and(|(a, b)| a.end == b.start);
            joined && matches!(source.word(at), "=" | "!") && source.word(at + 1) == "="
        };
        is_sign(at + 4) || first >= 2 && is_sign(first - 2)
    }

    fn mentions(&self, arm: &Arm) -> bool {
        (arm.all.start..arm.pattern_end).any(|at| self.is_variant(at))
    }

    /// Returns whether the pattern consists of variants and `|`.
    fn is_whole_pattern(&self, arm: &Arm) -> bool {
        let mut at = arm.all.start;
        while at < arm.pattern_end {
            match self.source.word(at) {
                "|" => at += 1,
                _ if self.is_variant(at) => at += 4,
                _ => return false,
            }
        }
        true
    }

    /// Returns whether the arm accepts everything: `_` or a name, without a condition.
    fn is_catch_all(&self, arm: &Arm) -> bool {
        let is_one = arm.all.len() == 1 && self.source.code[arm.all.start].kind == Lexeme::Ident;
        is_one && self.source.word(arm.all.start).starts_with(|c: char| c == '_' || c.is_lowercase())
    }
}

/// The variants of the enum `name` in its source.
fn variants<'a>(source: &'a Source, name: &str) -> BTreeSet<&'a str> {
    let mut places = 0..source.code.len();
    let Some(at) = places.find(|at| source.words_are(*at, &["enum", name, "{"])) else {
        return BTreeSet::new();
    };
    let inside = at + 3..source.partner(at + 2);
    inside.filter(|at| source.word(at + 1) == "=").map(|at| source.word(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, places, tree};
    use super::*;

    const KINDS: &str = "enum Kind { Put = 1, Delete = 2, }\nimpl Kind { fn f(self) { match self { Self::Put => 1, Self::Delete => 2 } } }";

    fn found(body: &str) -> Vec<String> {
        let files = [
            ("crates/tidesdb/Cargo.toml", MANIFEST),
            ("crates/tidesdb/src/lib.rs", "mod types; mod a;"),
            ("crates/tidesdb/src/types/mod.rs", "mod entry;"),
            ("crates/tidesdb/src/types/entry.rs", KINDS),
            ("crates/tidesdb/src/a.rs", &format!("fn f(kind: Kind) {{\n{body}\n}}")),
        ];
        places(&check(&tree(&files))).iter().map(|place| place.replace("crates/tidesdb/src/", "")).collect()
    }

    #[test]
    fn a_place_that_would_accept_a_new_kind_fires() {
        for body in [
            "kind == Kind::Put",
            "kind != crate::types::Kind::Put",
            "Kind::Put == kind",
            "number < Kind::Put as u8",
            "use crate::types::Kind::*;",
            "matches!(kind, Kind::Put | Kind::Delete)",
            "if let Kind::Put = kind {}",
            "if let Some((Kind::Put, value)) = hit {}",
        ] {
            assert_eq!(found(body), ["a.rs:2"], "{body}");
        }
        for arm in ["_ => 2", "other => other.f()", "_ => {}"] {
            assert_eq!(
                found(&format!("match kind {{\nKind::Put if x => {{ y }}\n{arm}, }}")),
                ["a.rs:4"],
                "{arm}"
            );
        }
        assert_eq!(found("match hit {\nSome((Kind::Put, _)) => 1,\nNone => 2 }"), ["a.rs:3"]);
        assert_eq!(found("match x { _ => match kind {\nKind::Put => f(|_| 1),\n_ => 2 } }"), ["a.rs:4"]);
    }

    #[test]
    fn a_match_over_each_kind_and_an_expression_are_silent() {
        for body in [
            "match kind { Kind::Put if x == 1 => 1, Kind::Put | Kind::Delete => 2 }",
            "match other { Some(_) => match kind { Kind::Put => 1, Kind::Delete => 2 }, _ => 3 }",
            "let kind = if x { Kind::Put } else { Kind::Delete };",
            "held.kind = Kind::Delete; match x { 1 => Kind::Put, _ => Kind::Delete }",
            "let Some(kind) = f(Kind::Put) else { return };",
            "x == y && f(Kind::Put)",
            "#[cfg(test)] mod tests { fn f() { kind == Kind::Put } }",
            "OtherKind::Put == kind || kind == Kind::named()",
        ] {
            assert!(found(body).is_empty(), "{body}: {:?}", found(body));
        }
    }

    /// What the page says about the compiler is what the compiler does: the files whose `match` a new kind stops, and those that make
    /// the kinds, where it stops nothing.
    #[test]
    fn the_page_names_each_file_that_names_a_kind() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let tree = Tree::read(&root).expect("the files of the repository");
        let page = &tree.texts["docs/internals/extend.md"];
        for ((name, home), heading) in ENUMS.into_iter().zip(["A kind of operation", "A kind of log record"])
        {
            let (mut decide, mut make) = (BTreeSet::new(), BTreeSet::new());
            for (path, source) in engine(&tree) {
                let uses = Uses::new(&tree, name, home, path, source);
                let short = path.strip_prefix(ENGINE).unwrap_or(path);
                let is_named = (0..source.code.len()).any(|at| uses.is_variant(at) && !source.in_test(at));
                match uses.matches().is_empty() {
                    false => _ = decide.insert(short),
                    true if is_named => _ = make.insert(short),
                    true => {}
                }
            }
            let section = page.split("\n## ").find(|part| part.starts_with(heading)).expect("the section");
            let tables: Vec<BTreeSet<&str>> =
                section.split("\n\n").filter(|part| part.starts_with('|')).map(files).collect();
            assert_eq!(tables[..], [decide, make], "docs/internals/extend.md, then the code: {heading}");
        }
    }

    fn files(table: &str) -> BTreeSet<&str> {
        table.split('`').filter(|span| span.ends_with(".rs")).collect()
    }
}
