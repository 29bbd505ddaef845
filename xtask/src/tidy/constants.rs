//! No page repeats a number of the code unchecked.
//!
//! * A constant in back-ticks with a number in brackets after it, in any page or comment, has that value. Of several constants with this name,
//!   one has it. A setting with such a number has it as its default.
//! * So has a number of a page with the name in a comment after it, which readers do not see: `5 seconds<!-- QUIET -->`.
//! * The pages of the architecture ([`STRICT`]) write a number in no other way if it is 10 or more, or has a unit. Ranks of locks, which a
//!   test of `tidesdb-sync` compares, and numbers of steps and records are exempt.
//!
//! A number written as a word is not seen.

use super::{Finding, names};
use crate::lexer::Kind;
use crate::pages::prose;
use crate::source::Source;
use crate::tree::Tree;
use std::collections::HashMap;

/// Pages that state numbers only beside the name of their constant.
const STRICT: [&str; 2] = ["ARCHITECTURE.md", "docs/internals/"];

/// Units and their factors. Time is in seconds.
const UNITS: [(&str, f64); 12] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("bytes", 1.0),
    ("bits", 1.0),
    ("%", 0.01),
    ("ms", 0.001),
    ("s", 1.0),
    ("second", 1.0),
    ("seconds", 1.0),
    ("minute", 60.0),
    ("minutes", 60.0),
];

/// Findings in all Markdown files.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let constants = Constants::of(tree);
    let mut out = Vec::new();
    for (path, source) in &tree.sources {
        for comment in &source.comments {
            for span in names::spans(source.span(comment)) {
                let fault = stated(&span).and_then(|stated| constants.fault(span.text, stated));
                out.extend(fault.map(|text| Finding::new(path, comment.line + span.line - 1, text)));
            }
        }
    }
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for span in names::spans(text) {
            let Some(stated) = stated(&span) else { continue };
            let fault = constants.fault(span.text, stated);
            out.extend(fault.map(|text| Finding::new(path, span.line, text)));
        }
        for (line, whole) in prose(text) {
            out.extend(marked(whole).filter_map(|(stated, name)| {
                let fault = match stated {
                    Some(stated) if constants.has(name) => constants.fault(name, &stated),
                    Some(_) => Some(format!("no constant `{name}`")),
                    None => Some(format!("no number before `<!-- {name} -->`")),
                };
                fault.map(|text| Finding::new(path, line, text))
            }));
        }
        if STRICT.iter().any(|strict| path.starts_with(strict)) {
            for (line, whole) in prose(text) {
                out.extend(bare(whole).map(|number| {
                    Finding::new(
                        path,
                        line,
                        format!("write {number} as the name of its constant, or \"`NAME` ({number})\""),
                    )
                }));
            }
        }
    }
    out
}

/// Returns the value that a page states for a constant or a setting: what follows a name in brackets, if that is a number.
fn stated<'a>(span: &names::Span<'a>) -> Option<&'a str> {
    let value = span.after.strip_prefix(" (")?.split_once(')')?.0;
    let is_name = span.text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
    (is_name && value.starts_with(|c: char| c.is_ascii_digit())).then_some(value)
}

/// Returns each name in a comment of a line with the number before it, and its unit. Code in back-ticks has no comments.
fn marked(line: &str) -> impl Iterator<Item = (Option<String>, &str)> {
    let is_text = |at: &usize| line[..*at].matches('`').count().is_multiple_of(2);
    let comments = line.match_indices("<!-- ").filter(move |(at, _)| is_text(at));
    comments.filter_map(|(at, begin)| {
        let name = line[at + begin.len()..].split_once(" -->")?.0;
        let mut words = line[..at].rsplit([' ', '(']).take(2);
        let (last, before) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        let stated = match (is_number(last), is_number(before)) {
            (true, _) => Some(last.to_owned()),
            (false, true) => Some(format!("{before} {last}")),
            (false, false) => None,
        };
        Some((stated, name))
    })
}

/// Returns the value of a text such as `1,024`, `64 KiB` or `0.5`; other words after the number have no meaning.
fn quantity(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, ',' | '.')).unwrap_or(text.len());
    let number: f64 = text[..end].replace(',', "").parse().ok()?;
    let unit = text[end..].split_whitespace().next().unwrap_or("");
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map_or(1.0, |(_, factor)| *factor);
    Some(number * factor)
}

/// Returns the first number of a line that stands without the name of a constant.
fn bare(line: &str) -> Option<String> {
    let mut rest = without_label(line);
    let mut prose = String::new();
    // Drops spans with the value in brackets after them, and targets of links.
    while let Some(at) = rest.find(['`', ']']) {
        let (before, tail) = rest.split_at(at);
        prose.push_str(before);
        rest = if let Some(span) = tail.strip_prefix('`') {
            let after = span.split_once('`').map_or("", |(_, after)| after);
            let value =
                after.strip_prefix(" (").filter(|value| value.starts_with(|c: char| c.is_ascii_digit()));
            value.and_then(|value| value.split_once(')')).map_or(after, |(_, after)| after)
        } else {
            let target = tail.strip_prefix("](").and_then(|target| target.split_once(')'));
            target.map_or(&tail[1..], |(_, after)| after)
        };
        prose.push('~');
    }
    prose.push_str(rest);
    let words: Vec<&str> = prose.split_whitespace().collect();
    let number = |at: usize| {
        let word = words[at].trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '%');
        let digits = word.trim_end_matches('%');
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '.'));
        let next = words
            .get(at + 1)
            .map_or("", |next| next.trim_matches(|c: char| !c.is_alphanumeric() && c != '%'));
        let unit = if digits.len() < word.len() { "%" } else { next };
        let has_unit = UNITS.iter().any(|(name, _)| *name == unit);
        let unit = if has_unit { unit } else { "" };
        let value = quantity(digits).filter(|_| is_number)?;
        let is_record = digits.len() == 4 && digits.starts_with('0');
        ((value >= 10.0 || has_unit) && !is_record).then(|| format!("{digits} {unit}").trim().to_owned())
    };
    (0..words.len()).find_map(number)
}

/// Removes the number of a list item, and the rank of a lock in its table.
fn without_label(line: &str) -> &str {
    let item = line.trim_start();
    let label = |rest: &str| rest.find(|c: char| !c.is_ascii_digit()).filter(|&end| end > 0);
    match item.strip_prefix("| ") {
        Some(cell) => {
            label(cell).filter(|&end| cell[end..].starts_with(" | `")).map_or(item, |end| &cell[end..])
        }
        None => label(item).filter(|&end| item[end..].starts_with(". ")).map_or(item, |end| &item[end..]),
    }
}

/// Constants of all sources.
struct Constants<'a> {
    /// Where each is defined: its source and the index of its name.
    places: HashMap<&'a str, Vec<(&'a Source, usize)>>,
    /// Where the default of each setting is: its source and the index of the value.
    settings: HashMap<&'a str, (&'a Source, usize)>,
}

impl<'a> Constants<'a> {
    fn of(tree: &'a Tree) -> Constants<'a> {
        let mut places: HashMap<_, Vec<_>> = HashMap::new();
        let mut settings = HashMap::new();
        for (path, source) in &tree.sources {
            for at in (1..source.code.len()).filter(|at| source.word(at + 1) == ":" && !source.in_test(*at)) {
                if source.word(at - 1) == "const" {
                    places.entry(source.word(at)).or_default().push((source, at));
                } else if path.contains("/options/") {
                    // `name: value,` of a `Default`, or `id name: type = value,` of the table.
                    let value = if source.word(at + 3) == "=" { at + 4 } else { at + 2 };
                    if source.code.get(value).is_some_and(|token| token.kind == Kind::Number) {
                        settings.insert(source.word(at), (source, value));
                    }
                }
            }
        }
        Constants { places, settings }
    }

    fn has(&self, name: &str) -> bool {
        self.places.contains_key(name) || self.settings.contains_key(name)
    }

    fn fault(&self, name: &str, stated: &str) -> Option<String> {
        let name = name.rsplit("::").next().unwrap_or("");
        let values: Vec<f64> = match (self.places.get(name), self.settings.get(name)) {
            (Some(places), _) => places.iter().filter_map(|(source, at)| self.value(source, *at)).collect(),
            (None, Some((source, at))) => {
                Reader { constants: self, source, at: *at }.binary(0).into_iter().collect()
            }
            (None, None) => {
                let is_constant = name.len() > 1 && !name.contains(|c: char| c.is_ascii_lowercase());
                return is_constant.then(|| format!("no constant `{name}`"));
            }
        };
        let said = quantity(stated)?;
        // A share may be stored in percent.
        let same = |value: &f64| {
            let scale = if stated.contains('%') { [1.0, 100.0] } else { [1.0, 1.0] };
            scale.iter().any(|scale| (said * scale - value).abs() <= value.abs() * 1e-9)
        };
        if values.is_empty() {
            return Some(format!("the value of `{name}` is not understood: leave it out"));
        }
        (!values.iter().any(same)).then(|| format!("`{name}` is {values:?}, not {stated}"))
    }

    /// Returns the value of the constant whose name is at `at`; durations in seconds.
    fn value(&self, source: &'a Source, at: usize) -> Option<f64> {
        let start = (at..source.code.len()).find(|&i| source.word(i) == "=")? + 1;
        let mut reader = Reader { constants: self, source, at: start };
        reader.binary(0).filter(|_| source.word(reader.at) == ";")
    }
}

/// Evaluates an expression of numbers, `+ - * / <<`, casts, other constants and constructors of `Duration`.
struct Reader<'c, 'a> {
    constants: &'c Constants<'a>,
    source: &'a Source,
    at: usize,
}

impl Reader<'_, '_> {
    fn word(&self) -> &str {
        self.source.word(self.at)
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let is = self.source.words_are(self.at, words);
        self.at += if is { words.len() } else { 0 };
        is
    }

    /// Reads operators that bind at least as strongly as `level`: 0 shifts, 1 sums, 2 products.
    fn binary(&mut self, level: usize) -> Option<f64> {
        if level == 3 {
            return self.operand();
        }
        let mut left = self.binary(level + 1)?;
        loop {
            let operator = ["<<", "+", "-", "*", "/"].into_iter().find(|operator| {
                let own = match *operator {
                    "<<" => 0,
                    "+" | "-" => 1,
                    _ => 2,
                };
                let words: &[&str] =
                    if *operator == "<<" { &["<", "<"] } else { std::slice::from_ref(operator) };
                own == level && self.take(words)
            });
            let Some(operator) = operator else { return Some(left) };
            let right = self.binary(level + 1)?;
            left = match operator {
                "<<" => left * right.exp2(),
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                _ => left / right,
            };
        }
    }

    fn operand(&mut self) -> Option<f64> {
        let token = self.source.code.get(self.at)?;
        let value = match token.kind {
            Kind::Number => number(self.word())?,
            Kind::Punct if self.word() == "(" => {
                self.at += 1;
                self.binary(0)?
            }
            Kind::Ident if self.take(&["Duration", ":", ":"]) => {
                let factor = match self.word() {
                    "from_secs" => 1.0,
                    "from_millis" => 1e-3,
                    "from_micros" => 1e-6,
                    "from_nanos" => 1e-9,
                    _ => return None,
                };
                self.at += 2;
                self.binary(0)? * factor
            }
            // `if cfg!(loom) { .. } else { VALUE }`
            Kind::Ident if self.word() == "if" => {
                while self.word() != "else" {
                    self.at = self.source.partner(self.at).max(self.at) + 1;
                    self.source.code.get(self.at)?;
                }
                self.at += 2;
                self.binary(0)?
            }
            Kind::Ident => {
                let places = self.constants.places.get(self.word())?;
                let near =
                    places.iter().find(|place| std::ptr::eq(place.0, self.source)).or(places.first())?;
                self.constants.value(near.0, near.1)?
            }
            _ => return None,
        };
        self.at += 1;
        if self.take(&["as"]) {
            self.at += 1;
        }
        Some(value)
    }
}

/// Returns the value of a literal such as `0x10`, `1_000u64` or `0.5`.
fn number(literal: &str) -> Option<f64> {
    let plain = literal.replace('_', "");
    if let Some(hex) = plain.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|value| value as f64);
    }
    let end = plain.find(['u', 'i', 'f']).unwrap_or(plain.len());
    plain[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, tree};
    use super::*;

    const CODE: &str = "
        const PIECE_BYTES: usize = 4 << 10;
        pub(crate) const ALL_BYTES: u64 = PIECE_BYTES as u64 * (2 + 0x2) - 1;
        const HALF: f64 = 0.5; const PERCENT: u64 = 50; const SLOTS: usize = if cfg!(loom) { 4 } else { 1 << 14 };
        const WAIT: Duration = Duration::from_millis(1_500); const NAMES: [u8; 2] = [1, 2];
        #[cfg(test)] mod tests { const INNER: u8 = 1; }";

    fn findings(path: &str, text: &str) -> Vec<String> {
        let files = [("crates/a/Cargo.toml", MANIFEST), ("crates/a/src/lib.rs", CODE), (path, text)];
        check(&tree(&files)).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_number_that_differs_from_its_constant_fires() {
        for text in [
            "`PIECE_BYTES` (8 KiB)",
            "`ALL_BYTES` (16,384)",
            "`HALF` (0.4)",
            "`WAIT` (1.5 ms)",
            "`SLOTS` (4)",
            "`GONE` (4)",
            "`NAMES` (12)",
            "`PERCENT` (51 %)",
            "`INNER` (1)",
        ] {
            assert_eq!(findings("docs/p.md", text).len(), 1, "{text}");
        }
        for text in [
            "`PIECE_BYTES` (4 KiB)",
            "`ALL_BYTES` (16,383 or so)",
            "`HALF` (0.5)",
            "`HALF` (50 %)",
            "`PERCENT` (50 %)",
            "`WAIT` (1.5 seconds)",
            "`Log::SLOTS` (16,384) slots",
            "`NAMES` (two)",
            "`Name` (8)",
        ] {
            assert_eq!(findings("docs/p.md", text), [] as [&str; 0], "{text}");
        }
    }

    #[test]
    fn a_number_with_its_constant_in_a_comment_is_compared() {
        for (text, want) in [
            ("pieces of 4 KiB<!-- PIECE_BYTES -->, or 0.5<!-- HALF -->", 0),
            ("(16,384<!-- SLOTS -->) and 1.5 seconds<!-- WAIT -->", 0),
            ("pieces of 8 KiB<!-- PIECE_BYTES -->", 1),
            ("1 KiB<!-- GONE -->", 1),
            ("a piece<!-- PIECE_BYTES -->", 1),
            ("`8 KiB<!-- PIECE_BYTES -->`", 0),
            ("```text\n8 KiB<!-- PIECE_BYTES -->\n```", 0),
        ] {
            assert_eq!(findings("docs/p.md", text).len(), want, "{text}");
        }
    }

    #[test]
    fn a_default_that_differs_from_the_setting_fires() {
        let code = "fields! { 2 buffer_bytes: usize = 64 << 20, (1, MAX), \"h\"; }
            impl Default for DbOptions { fn default() -> Self { Self { wal_bytes: 256 << 20, on: true } } }";
        let found = |text: &str| {
            let files = [
                ("crates/a/Cargo.toml", MANIFEST),
                ("crates/a/src/options/db.rs", code),
                ("docs/p.md", text),
            ];
            check(&tree(&files)).len()
        };
        assert_eq!(found("`buffer_bytes` (32 MiB) and `wal_bytes` (1 GiB)"), 2);
        assert_eq!(found("`buffer_bytes` (64 MiB), `DbOptions::wal_bytes` (256 MiB), `other` (3)"), 0);
    }

    #[test]
    fn a_bare_number_on_a_page_of_the_architecture_fires() {
        for text in [
            "at most 8,192.",
            "after 5 minutes",
            "(4 MiB)",
            "60 % of it",
            "60% of it",
            "`a`, 64 slots",
            "[p](x.md) has 128 keys",
        ] {
            assert_eq!(findings("docs/internals/p.md", text).len(), 1, "{text}");
        }
        for text in [
            "`SLOTS` (16,384) slots",
            "12. a step",
            "| 130 | `CATALOG` | a lock |",
            "level 1 of 2",
            "[0006](../0006-a.md) and 0006",
            "LZ4, x86",
            "```\n64 KiB\n```",
            "`64 KiB`",
        ] {
            assert_eq!(findings("docs/internals/p.md", text), [] as [&str; 0], "{text}");
        }
        assert_eq!(findings("docs/memory.md", "at most 8,192."), [] as [&str; 0]);
    }

    #[test]
    fn comments_are_compared_too() {
        let path = "crates/a/src/other.rs";
        assert_eq!(findings(path, "/// At most `PIECE_BYTES` (8 KiB).\nfn f() {}").len(), 1);
        assert_eq!(findings(path, "/// At most `PIECE_BYTES` (4 KiB), 8,192.\nfn f() {}"), [] as [&str; 0]);
    }
}
