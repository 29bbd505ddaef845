//! Pages name what exists: a path or an identifier in back-ticks is one of this repository.
//!
//! * A path is a file or folder of the tree, or the end of its path: `policy/` and `wal/log.rs` are found in any crate.
//! * A name that follows the path of a source, as in "`wal/sync.rs` (`lead`)", occurs in that file.
//! * `Owner::name` is defined in or used as that pair, unless the owner is foreign, such as `Arc`.
//! * Other names with an underscore or a capital occur in code or in a literal. A single word in lower case is checked after a path only:
//!   it may be a command, an operation or a word of prose. In the glossary it is a name of the code.
//!
//! Comments are checked for paths of sources and of `docs/` only.
//!
//! The call trees of `ARCHITECTURE.md` are checked too. Exempt are other fenced code, spans with spaces, pages about other products
//! ([`FOREIGN_PAGES`]), and names of the system and of other projects ([`FOREIGN_NAMES`]).

use super::Finding;
use crate::lexer::Kind;
use crate::pages::prose;
use crate::source::Source;
use crate::tree::{Tree, parent};
use std::collections::HashSet;

/// Pages, or folders of pages, that name the interfaces of other products, or columns of reports.
const FOREIGN_PAGES: [&str; 3] = ["docs/coming-from/", "docs/how-to/clients.md", "docs/testing/bench.md"];

/// The page whose fenced text is trees of calls.
const CALLS: &str = "ARCHITECTURE.md";

/// The page whose words in back-ticks are names of the code.
const GLOSSARY: &str = "docs/reference/glossary.md";

/// Folders outside of the tree.
const FOREIGN_FOLDERS: [&str; 2] = ["target/", "lib/"];

/// Names of the system and of other projects.
const FOREIGN_NAMES: [&str; 14] = [
    "RWF_SYNC",
    "RWF_NOWAIT",
    "MADV_RANDOM",
    "POSIX_FADV_RANDOM",
    "FALLOC_FL_PUNCH_HOLE",
    "posix_fadvise",
    "lz4_flex",
    "SIGBUS",
    "max_blocking_threads",
    "memtable_op_scan_flush_trigger",
    "CompactOnDeletionCollector",
    "tidesdb::tidesdb", // CMake targets
    "tidesdb::static",
    "N_L",
];

/// Findings in all pages.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let names = Names::of(tree);
    let mut out = Vec::new();
    for (path, source) in tree.sources.iter().filter(|(path, _)| !path.starts_with("xtask/")) {
        for comment in &source.comments {
            let paths = spans(source.span(comment)).into_iter();
            for span in paths.filter(|span| span.text.ends_with(".rs") || span.text.starts_with("docs/")) {
                let fault = names.fault(tree, path, span.text, None);
                out.extend(fault.map(|text| Finding::new(path, comment.line, text)));
            }
        }
    }
    if let Some(text) = tree.texts.get(CALLS) {
        for (line, word) in call_trees(text) {
            let fault = names.fault(tree, CALLS, word, None);
            out.extend(fault.map(|text| Finding::new(CALLS, line, text)));
        }
    }
    for (path, text) in tree.texts.iter().filter(|(path, _)| is_page(path)) {
        let mut file: Option<&str> = None;
        for span in spans(text) {
            let follows = span.before == " (" || span.before == ", ";
            let within = file.filter(|_| follows && span.text.chars().all(is_word));
            let fault = names.fault(tree, path, span.text, within);
            out.extend(fault.map(|text| Finding::new(path, span.line, text)));
            if within.is_none() {
                file = span.text.ends_with(".rs").then_some(span.text);
            }
        }
    }
    out
}

/// Returns the paths and the names with `::` or `_` in fenced text.
fn call_trees(text: &str) -> Vec<(usize, &str)> {
    let prose: HashSet<usize> = prose(text).into_iter().map(|(line, _)| line).collect();
    let fenced = text.lines().enumerate().filter(|(at, _)| !prose.contains(&(at + 1)));
    let words = fenced.flat_map(|(at, line)| {
        line.split_whitespace().map(move |word| (at + 1, word.trim_matches([',', ';', ':', '(', ')'])))
    });
    words
        .filter(|(_, word)| {
            word.ends_with(".rs") || word.ends_with('/') || word.contains("::") || word.contains('_')
        })
        .collect()
}

/// Returns whether the names of a Markdown file are checked.
fn is_page(path: &str) -> bool {
    let top = !path.contains('/');
    path.ends_with(".md")
        && (top || path.starts_with("docs/"))
        && !path.starts_with("docs/benchmarks/")
        && !FOREIGN_PAGES.iter().any(|foreign| path.starts_with(foreign))
}

/// Text between back-ticks.
pub(super) struct Span<'a> {
    /// Its line.
    pub line: usize,
    /// The text.
    pub text: &'a str,
    /// What is between it and the previous span of the line, or the beginning of the line.
    pub before: &'a str,
    /// The rest of the line.
    pub after: &'a str,
}

/// Returns the spans outside of fenced code.
pub(super) fn spans(text: &str) -> Vec<Span<'_>> {
    let mut out = Vec::new();
    for (line, whole) in prose(text) {
        let mut rest = whole;
        while let Some((before, (text, after))) =
            rest.split_once('`').and_then(|(before, tail)| Some((before, tail.split_once('`')?)))
        {
            out.push(Span { line, text, before, after });
            rest = after;
        }
    }
    out
}

/// What the sources define and use.
struct Names<'a> {
    /// Every identifier in code, and every word of a literal or of a source in C or Go.
    words: HashSet<&'a str>,
    /// Types and modules of the repository.
    owners: HashSet<&'a str>,
    /// What they contain, and pairs that code uses.
    pairs: HashSet<(&'a str, &'a str)>,
}

impl<'a> Names<'a> {
    fn of(tree: &'a Tree) -> Names<'a> {
        let mut names = Names { words: HashSet::new(), owners: HashSet::new(), pairs: HashSet::new() };
        for (path, source) in &tree.sources {
            let stem = path.trim_end_matches("/mod.rs").trim_end_matches(".rs").rsplit('/').next();
            names.owners.extend(stem);
            names.words.extend(stem);
            names.read(source, stem.unwrap_or(""));
        }
        for (path, text) in &tree.texts {
            if [".h", ".c", ".go", ".toml"].iter().any(|end| path.ends_with(end)) {
                names.words.extend(text.split(|c| !is_word(c)));
            }
        }
        names
    }

    fn read(&mut self, source: &'a Source, module: &'a str) {
        for (at, token) in source.code.iter().enumerate() {
            match token.kind {
                Kind::Ident => {
                    self.words.insert(source.word(at));
                }
                Kind::Text => {
                    self.words.insert(source.word(at).trim_matches(['"', 'b', '#']));
                    self.words.extend(source.word(at).split(|c| !is_word(c)));
                }
                _ => {}
            }
            if let Some(owner) = owner(source, at) {
                self.owners.insert(owner);
                let body = (at..source.code.len()).find(|&i| matches!(source.word(i), "{" | ";"));
                if let Some(body) = body.filter(|&body| source.word(body) == "{") {
                    self.define(owner, source, body + 1..source.partner(body));
                }
            }
        }
        self.define(module, source, 0..source.code.len());
        for path in source.paths() {
            if path.import {
                self.pairs.insert((module, path.alias));
            }
            self.pairs.extend(path.names.windows(2).map(|pair| (pair[0], pair[1])));
        }
    }

    /// Adds what `range` defines outside of inner brackets: items, fields and variants.
    fn define(&mut self, owner: &'a str, source: &'a Source, range: std::ops::Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            if is_definition(source, at, range.start) {
                self.pairs.insert((owner, source.word(at)));
            }
            at = source.partner(at).max(at) + 1;
        }
    }

    /// Returns whether a name is that of a metric: those of histograms end with their unit, the others, on the pages for operators, have the
    /// name of a figure in them.
    fn is_metric(&self, from: &str, name: &str) -> bool {
        let Some(rest) = name.strip_prefix("tidesdb_") else { return false };
        if name.ends_with("_seconds") || !from.starts_with("docs/operate/") {
            return name.ends_with("_seconds");
        }
        let figure = ["family_", "level_", "tree_", "stall_", "remote_"]
            .iter()
            .find_map(|source| rest.strip_prefix(source))
            .unwrap_or(rest);
        let without = ["_total", "_ratio"].iter().find_map(|unit| figure.strip_suffix(unit));
        [Some(rest), Some(figure), without].iter().flatten().any(|name| self.words.contains(name))
    }

    /// Returns what is wrong with a span of the page `from`. `file` is the source whose path precedes it.
    fn fault(&self, tree: &Tree, from: &str, span: &str, file: Option<&str>) -> Option<String> {
        if is_path(span) {
            let missing = braces(span).into_iter().find(|path| files(tree, from, path).is_empty())?;
            return Some(format!("no such path: `{missing}`"));
        }
        let name = span.trim_end_matches("()");
        let is_name =
            name.split("::").all(|part| !part.is_empty() && part.chars().all(is_word)) && starts(name);
        if !is_name || self.is_metric(from, name) || FOREIGN_NAMES.contains(&name) {
            return None;
        }
        if let Some(file) = file {
            let found = braces(file).into_iter().flat_map(|file| files(tree, from, &file));
            let found = found.filter_map(|path| tree.sources.get(path)).any(|source| defines(source, name));
            return (!found).then(|| format!("`{file}` does not define `{name}`"));
        }
        let parts: Vec<_> = name.split("::").collect();
        let wrong = parts.windows(2).find(|pair| {
            let defined = [pair[0], "$"].iter().any(|owner| self.pairs.contains(&(*owner, pair[1])));
            (self.owners.contains(pair[0]) && !defined) || !self.words.contains(pair[1])
        });
        let is_word =
            from != GLOSSARY && !name.contains(|c: char| matches!(c, ':' | '_') || c.is_ascii_uppercase());
        match wrong {
            _ if self.words.contains(name) => None, // alone, or as a whole in a literal
            Some(pair) => Some(format!("`{}` has no `{}`", pair[0], pair[1])),
            None if is_word || (parts.len() > 1 && self.words.contains(parts[0])) => None,
            None => Some(format!("no such name: `{name}`")),
        }
    }
}

/// Keywords before the name of an item.
const ITEMS: [&str; 9] = ["fn", "const", "static", "type", "struct", "enum", "trait", "mod", "macro_rules"];

/// Returns whether the token at `at` is the name of an item, a field or a variant. `first` is the first one of its body.
fn is_definition(source: &Source, at: usize, first: usize) -> bool {
    let before = if at == first { "{" } else { source.word(at - 1) };
    let is_item = ITEMS.contains(&before) || (before == "!" && source.words_are(at - 2, &["macro_rules"]));
    let is_part = matches!(before, "{" | "," | "]" | ")" | "pub")
        && matches!(source.word(at + 1), ":" | "," | "(" | "{" | "}" | "=");
    source.code[at].kind == Kind::Ident && (is_item || is_part)
}

/// Returns whether a source defines `name`, at any depth.
fn defines(source: &Source, name: &str) -> bool {
    (1..source.code.len()).any(|at| source.word(at) == name && is_definition(source, at, 0))
}

/// Returns the type, trait or module whose definition or `impl` begins at `at`.
fn owner(source: &Source, at: usize) -> Option<&str> {
    match source.word(at) {
        "struct" | "enum" | "union" | "trait" | "mod" if source.code[at].kind == Kind::Ident => {
            Some(source.word(at + 1))
        }
        "impl" => {
            let end = (at..source.code.len()).find(|&i| matches!(source.word(i), "{" | "where" | ";"))?;
            let start = (at..end).rev().find(|&i| source.word(i) == "for").unwrap_or(at) + 1;
            let start = if source.word(start) == "<" { generics_end(source, start) } else { start };
            // The last name of a path, before its parameters.
            let params = (start..end).find(|&i| source.word(i) == "<").unwrap_or(end);
            let name = (start..params).rev().find(|&i| source.code[i].kind == Kind::Ident)?;
            // What a macro defines belongs to any type.
            Some(if source.word(name - 1) == "$" { "$" } else { source.word(name) })
        }
        _ => None,
    }
}

/// Returns the index after the `>` that closes the `<` at `at`.
fn generics_end(source: &Source, at: usize) -> usize {
    let mut depth = 0;
    for i in at..source.code.len() {
        match source.word(i) {
            "<" => depth += 1,
            ">" if source.word(i - 1) != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    source.code.len()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns whether a span begins like a name and is not the end of one, such as `_us`.
fn starts(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Returns whether a span is a path of the repository.
fn is_path(span: &str) -> bool {
    let legal = |c: char| is_word(c) || matches!(c, '.' | '-' | '/' | '{' | '}' | ',');
    let inside = span.contains('/') || span.ends_with(".rs");
    inside
        && span.chars().all(legal)
        && !span.starts_with(['/', '.'])
        && !FOREIGN_FOLDERS.iter().any(|folder| span.starts_with(folder))
}

/// Returns the paths that `a/{b,c}.rs` stands for.
fn braces(path: &str) -> Vec<String> {
    let Some((before, (inner, after))) =
        path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![path.to_owned()];
    };
    inner.split(',').map(|one| format!("{before}{one}{after}")).collect()
}

/// Returns the files that a path names: itself, what is in it, or the files whose paths end with it.
fn files<'a>(tree: &'a Tree, from: &str, path: &str) -> Vec<&'a str> {
    let path = path.trim_end_matches('/');
    let beside = crate::tree::join(&parent(from), path);
    let known = tree.paths.iter().map(String::as_str);
    known
        .filter(|known| {
            *known == beside
                || *known == path
                || known.ends_with(&format!("/{path}"))
                || known.starts_with(&format!("{path}/"))
                || known.contains(&format!("/{path}/"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, tree};
    use super::*;

    const CODE: &str = "
        pub struct Log { table: u8, pub(crate) kept: u8 }
        enum Kind { One, Two(u8), Three { deep: u8 } }
        impl<T: Into<u8>> Log { pub fn append(&self) { let inner = 1; } const PART: u8 = 4; }
        impl Drop for Log { fn drop(&mut self) {} }
        trait Order { type Key; fn compare(&self); }
        macro_rules! table { ($name:ident) => { impl $name { pub fn figures(&self) {} } } }
        // gone_for_good
        const TARGET: &str = \"log::event\"; fn use_it() { Arc::clone(&x); tidesdb_io::sim::alone(); }";

    fn findings(path: &str, text: &str) -> Vec<String> {
        let tree = tree(&[
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/lib.rs", "mod log; mod other;"),
            ("crates/a/src/log/mod.rs", CODE),
            ("crates/a/src/other.rs", "fn elsewhere() {}"),
            ("crates/a/include/a.h", "int a_in_c(void);"),
            (path, text),
        ]);
        check(&tree).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn paths_that_do_not_exist_fire() {
        for path in
            ["log.rs", "log/gone.rs", "gone/", "crates/b/src/lib.rs", "src/{other,gone}.rs", "log/tests"]
        {
            assert_eq!(findings("docs/p.md", &format!("see `{path}`")).len(), 1, "{path}");
        }
        for path in [
            "other.rs",
            "log/",
            "a/src/log",
            "src/{other,lib}.rs",
            "crates/a/src/lib.rs",
            "/proc/x",
            "target/x",
        ] {
            assert_eq!(findings("docs/p.md", &format!("see `{path}`")), [] as [&str; 0], "{path}");
        }
    }

    #[test]
    fn a_path_in_a_comment_that_does_not_exist_fires() {
        for path in ["log/gone.rs", "docs/gone.md"] {
            assert_eq!(
                findings("crates/a/src/new.rs", &format!("//! See `{path}`, `Gone`.\n")).len(),
                1,
                "{path}"
            );
        }
        assert_eq!(findings("crates/a/src/new.rs", "//! See `log/mod.rs`, `x/y`.\n"), [] as [&str; 0]);
    }

    #[test]
    fn names_that_are_not_defined_fire() {
        for name in
            ["Lag", "gone_for_good", "Log::gone", "Log::inner", "Kind::Four", "log::gone", "log::gone()"]
        {
            assert_eq!(findings("ARCHITECTURE.md", &format!("by `{name}`")).len(), 1, "{name}");
        }
        for name in [
            "Log::append",
            "Log::append()",
            "Log::table",
            "Log::kept",
            "Log::PART",
            "Log::figures",
            "Kind::Two",
            "Kind::Three",
            "Order::Key",
            "Order::compare",
            "log::Log",
            "Arc::clone",
            "sim::alone",
            "log::event",
            "a_in_c",
            "use_it",
            "gone",
            "_us",
            "--flag",
            "two words",
        ] {
            assert_eq!(findings("ARCHITECTURE.md", &format!("by `{name}`")), [] as [&str; 0], "{name}");
        }
    }

    #[test]
    fn a_word_of_the_glossary_is_in_the_code() {
        assert_eq!(findings("docs/reference/glossary.md", "in code: `sight`").len(), 1);
        assert_eq!(findings("docs/reference/glossary.md", "in code: `append`"), [] as [&str; 0]);
    }

    #[test]
    fn call_trees_are_checked() {
        let tree = |line: &str| findings("ARCHITECTURE.md", &format!("```text\n{line}\n```\n"));
        for line in [
            "Log::gone   appends",
            "  use_them   calls",
            "append   it   log/gone.rs, other.rs",
            "policy  gone/",
        ] {
            assert_eq!(tree(line).len(), 1, "{line}");
        }
        assert_eq!(tree("Log::append   gone elsewhere:   log/mod.rs, other.rs"), [] as [&str; 0]);
    }

    #[test]
    fn a_name_after_a_file_is_defined_there() {
        for text in [
            "`other.rs` (`append`)",
            "(`other.rs`, `append`)",
            "`log/mod.rs` (`append`, `elsewhere`)",
            "`log/mod.rs`, `inner`",
        ] {
            assert_eq!(findings("docs/p.md", text).len(), 1, "{text}");
        }
        for text in [
            "`log/mod.rs` (`append`, `drop`)",
            "`log/mod.rs`, `use_it`",
            "`{log/mod,other}.rs` (`elsewhere`)",
            "`other.rs` and `append`",
        ] {
            assert_eq!(findings("docs/p.md", text), [] as [&str; 0], "{text}");
        }
    }

    #[test]
    fn a_metric_has_the_name_of_a_figure() {
        for name in
            ["tidesdb_kept", "tidesdb_kept_total", "tidesdb_family_kept_total", "tidesdb_level_kept_ratio"]
        {
            assert_eq!(findings("docs/operate/p.md", &format!("`{name}`")), [] as [&str; 0], "{name}");
        }
        assert_eq!(findings("docs/p.md", "`tidesdb_kept_total`").len(), 1);
        assert_eq!(findings("docs/operate/p.md", "`tidesdb_gone_total`").len(), 1);
    }

    #[test]
    fn other_products_and_code_are_exempt() {
        assert_eq!(findings("docs/how-to/clients.md", "`Gone::gone`"), [] as [&str; 0]);
        assert_eq!(
            findings("docs/p.md", "```\n`Gone::gone`\n```\n`RWF_SYNC` `tidesdb_x_seconds`"),
            [] as [&str; 0]
        );
    }
}
