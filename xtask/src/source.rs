//! One Rust source file, split into tokens and outlined: brackets, test regions, functions, paths.
//!
//! The outline is derived from tokens alone. It is exact for rustfmt-formatted code of this repository, and
//! safe on anything else: a check may miss something in unusual code, but never panics.

use crate::lexer::{Kind, Token, tokens};
use std::collections::HashMap;
use std::ops::Range;

/// A source file and its outline.
pub(crate) struct Source {
    /// The whole text.
    pub text: String,
    /// Tokens without comments.
    pub code: Vec<Token>,
    /// Comments, in order.
    pub comments: Vec<Token>,
    /// The index of the closing bracket for each opening bracket in `code`.
    close: HashMap<usize, usize>,
    /// Ranges of `code` compiled for tests only.
    tests: Vec<Range<usize>>,
}

/// A function with a body.
pub(crate) struct Function {
    /// Its name.
    pub name: String,
    /// Line of the `fn`.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

/// A path such as `crate::wal::Log`, or one branch of a `use` tree.
#[derive(Debug)]
pub(crate) struct Path<'a> {
    /// The names in order; a glob is `*`.
    pub names: Vec<&'a str>,
    /// The name that a `use` brings into scope; the last name elsewhere.
    pub alias: &'a str,
    /// True if it is part of a `use`.
    pub import: bool,
    /// Line of its first name.
    pub line: usize,
    /// Index of its first name in [`Source::code`].
    pub at: usize,
}

/// A `mod` declaration.
pub(crate) struct Mod<'a> {
    /// Its name.
    pub name: &'a str,
    /// Index of `mod` in [`Source::code`].
    pub at: usize,
    /// Files named by `path` attributes.
    pub paths: Vec<&'a str>,
    /// The range of its body, if it is inline.
    pub body: Option<Range<usize>>,
}

impl Source {
    /// Tokenizes and outlines `text`.
    pub(crate) fn new(text: String) -> Source {
        let (comments, code): (Vec<_>, Vec<_>) =
            tokens(&text).into_iter().partition(|token| token.kind == Kind::Comment);
        let close = brackets(&text, &code);
        let mut source = Source { text, code, comments, close, tests: Vec::new() };
        source.tests = source.test_regions();
        source
    }

    /// Returns the text of the code token at `at`; empty past the end.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.code.get(at).map_or("", |token| self.span(token))
    }

    /// Returns the text of a token.
    pub(crate) fn span(&self, token: &Token) -> &str {
        &self.text[token.start..token.end]
    }

    /// Returns whether the code token at `at` is compiled for tests only.
    pub(crate) fn in_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// Returns whether the tokens from `at` on are these words.
    pub(crate) fn words_are(&self, at: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(i, word)| self.word(at + i) == *word)
    }

    /// Returns the number of lines.
    pub(crate) fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// Returns the line ranges compiled for tests only.
    pub(crate) fn test_lines(&self) -> Vec<Range<usize>> {
        let line = |range: &Range<usize>| {
            let end = self.code.get(range.end - 1).map_or(0, |token| token.end_line);
            self.code[range.start].line..end + 1
        };
        self.tests.iter().filter(|range| !range.is_empty()).map(line).collect()
    }

    /// Returns all functions with bodies, in order of their `fn`.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let starts = (0..self.code.len()).filter(|&at| {
            self.word(at) == "fn" && self.code.get(at + 1).is_some_and(|name| name.kind == Kind::Ident)
        });
        starts.filter_map(|at| self.function(at)).collect()
    }

    fn function(&self, at: usize) -> Option<Function> {
        let end = self.item_end(at, false);
        if self.word(end) != "}" {
            return None;
        }
        let line = self.code[at].line;
        let lines = self.code[end].end_line - line + 1;
        Some(Function { name: self.word(at + 1).to_owned(), line, lines })
    }

    /// Returns all `mod` declarations, including nested ones.
    pub(crate) fn mods(&self) -> Vec<Mod<'_>> {
        let mut out = Vec::new();
        for at in 0..self.code.len() {
            let opener = self.word(at + 2);
            let named = self.code.get(at + 1).is_some_and(|name| name.kind == Kind::Ident);
            if self.word(at) != "mod" || !named || !matches!(opener, ";" | "{") {
                continue;
            }
            let body = (opener == "{").then(|| at + 2..self.partner(at + 2));
            out.push(Mod { name: self.word(at + 1), at, paths: self.path_attributes(at), body });
        }
        out
    }

    /// Returns every path in code, with `use` trees expanded. Single names are included only if they are
    /// imported.
    pub(crate) fn paths(&self) -> Vec<Path<'_>> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < self.code.len() {
            if self.word(at) == "use" && self.starts_item(at) {
                let end = self.item_end(at, false);
                let start = if self.words_are(at + 1, &[":", ":"]) { at + 3 } else { at + 1 };
                self.use_tree(start, end, &[], &mut out);
                at = end;
            } else if self.starts_path(at) {
                at = self.plain_path(at, &mut out);
                continue;
            }
            at += 1;
        }
        out
    }

    /// Returns whether this `use` begins an item, and not the capture list of `impl Trait + use<'a>`.
    fn starts_item(&self, at: usize) -> bool {
        self.word(at + 1) != "<"
    }

    fn starts_path(&self, at: usize) -> bool {
        let joined = at >= 2 && self.words_are(at - 2, &[":", ":"]);
        let field = at >= 1 && self.word(at - 1) == "." && !(at >= 2 && self.word(at - 2) == ".");
        let visibility = at >= 2 && self.words_are(at - 2, &["(", "in"]);
        self.code[at].kind == Kind::Ident
            && !joined
            && !field
            && !visibility
            && self.words_are(at + 1, &[":", ":"])
    }

    /// Reads `a::b::c`. Returns the index after it.
    fn plain_path<'a>(&'a self, first: usize, out: &mut Vec<Path<'a>>) -> usize {
        let mut names = vec![self.word(first)];
        let mut at = first + 1;
        while self.words_are(at, &[":", ":"]) && self.code.get(at + 2).is_some_and(|t| t.kind == Kind::Ident)
        {
            names.push(self.word(at + 2));
            at += 3;
        }
        let alias = names.last().copied().unwrap_or("");
        out.push(Path { alias, names, import: false, line: self.code[first].line, at: first });
        at
    }

    /// Expands the branch of a `use` tree in `at..end` under `prefix`.
    fn use_tree<'a>(&'a self, mut at: usize, end: usize, prefix: &[&'a str], out: &mut Vec<Path<'a>>) {
        let first = at;
        let mut names = prefix.to_vec();
        while at < end {
            match self.word(at) {
                ":" => at += 1,
                "{" => {
                    let close = self.partner(at).min(end);
                    for (from, to) in self.branches(at + 1, close) {
                        self.use_tree(from, to, &names, out);
                    }
                    return;
                }
                "as" => break,
                name => {
                    names.push(name);
                    at += 1;
                }
            }
        }
        if names.len() > 1 && names.last() == Some(&"self") {
            names.pop();
        }
        let last = names.last().copied().unwrap_or("");
        let alias = if self.word(at) == "as" && at < end { self.word(at + 1) } else { last };
        if first < end {
            out.push(Path { names, alias, import: true, line: self.code[first].line, at: first });
        }
    }

    fn branches(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let mut out = Vec::new();
        let (mut start, mut at) = (from, from);
        while at < to {
            match self.word(at) {
                "{" => at = self.partner(at),
                "," => {
                    out.push((start, at));
                    start = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        out.push((start, to));
        out
    }

    /// Returns the index of the bracket that closes the one at `at`, or `at` itself if there is none.
    pub(crate) fn partner(&self, at: usize) -> usize {
        self.close.get(&at).copied().unwrap_or(at)
    }

    /// Returns the last token of the item, statement or field that begins at `at`.
    fn item_end(&self, mut at: usize, comma_ends: bool) -> usize {
        while at < self.code.len() {
            match self.word(at) {
                "(" | "[" => at = self.partner(at),
                "{" => {
                    let close = self.partner(at);
                    // The braces of a `use` tree are followed by its semicolon.
                    return if self.word(close + 1) == ";" { close + 1 } else { close };
                }
                ";" => return at,
                "," if comma_ends => return at,
                ")" | "]" | "}" => return at - 1,
                _ => {}
            }
            at += 1;
        }
        self.code.len().saturating_sub(1)
    }

    fn test_regions(&self) -> Vec<Range<usize>> {
        let mut out = Vec::new();
        for at in 0..self.code.len() {
            let inner = self.words_are(at, &["#", "!", "["]);
            if !inner && !self.words_are(at, &["#", "["]) {
                continue;
            }
            let open = if inner { at + 2 } else { at + 1 };
            if !self.is_test_attribute(open) {
                continue;
            }
            if inner {
                return std::iter::once(0..self.code.len()).collect();
            }
            let item = self.after_attributes(at);
            let comma_ends = !self.is_item_keyword(item);
            out.push(at..self.item_end(item, comma_ends) + 1);
        }
        out
    }

    /// Returns whether the attribute that opens at `open` is `test` or a `cfg` for tests.
    fn is_test_attribute(&self, open: usize) -> bool {
        let close = self.partner(open);
        let mut at = open + 1;
        if self.word(at) != "cfg" {
            return self.word(close - 1) == "test" && self.word(at) != "doc";
        }
        while at < close {
            match self.word(at) {
                "not" => at = self.partner(at + 1),
                "test" => return true,
                _ => {}
            }
            at += 1;
        }
        false
    }

    fn after_attributes(&self, mut at: usize) -> usize {
        while self.words_are(at, &["#", "["]) {
            at = self.partner(at + 1) + 1;
        }
        at
    }

    fn is_item_keyword(&self, mut at: usize) -> bool {
        if self.word(at) == "pub" {
            at += 1;
            if self.word(at) == "(" {
                at = self.partner(at) + 1;
            }
        }
        const WORDS: [&str; 14] = [
            "fn", "mod", "struct", "enum", "impl", "trait", "use", "const", "static", "type", "unsafe",
            "extern", "async", "let",
        ];
        WORDS.contains(&self.word(at)) || self.word(at + 1) == "!"
    }

    /// Returns the values of `path` in the attributes directly before the item keyword at `at`.
    fn path_attributes(&self, at: usize) -> Vec<&str> {
        let mut out = Vec::new();
        let mut from = at;
        // Goes back over attributes and visibility to the end of the previous item.
        while from > 0 && !matches!(self.word(from - 1), ";" | "}" | "{") {
            from -= 1;
        }
        for i in from..at {
            if self.words_are(i, &["path", "="]) {
                out.push(self.word(i + 2).trim_matches('"'));
            }
        }
        out
    }
}

fn brackets(text: &str, code: &[Token]) -> HashMap<usize, usize> {
    let mut open = Vec::new();
    let mut close = HashMap::new();
    for (at, token) in code.iter().enumerate().filter(|(_, token)| token.kind == Kind::Punct) {
        match &text[token.start..token.end] {
            "(" | "[" | "{" => open.push(at),
            ")" | "]" | "}" => {
                if let Some(partner) = open.pop() {
                    close.insert(partner, at);
                }
            }
            _ => {}
        }
    }
    close
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        Source::new(text.to_owned()).paths().iter().map(|path| path.names.join("::")).collect()
    }

    #[test]
    fn use_trees_unfold() {
        assert_eq!(
            paths("pub(crate) use crate::{a, b::{self, C as D, e::*}, f};"),
            ["crate::a", "crate::b", "crate::b::C", "crate::b::e::*", "crate::f"]
        );
        let source = Source::new("use std::thread as t; use std::fs;".to_owned());
        let aliases: Vec<_> = source.paths().iter().map(|path| path.alias.to_owned()).collect();
        assert_eq!(aliases, ["t", "fs"]);
    }

    #[test]
    fn inline_paths_are_found_anywhere() {
        assert_eq!(
            paths("fn f(x: Vec<crate::a::B>) { m!(super::c(), ..std::d()); x.y; pub(in crate::q) }"),
            ["crate::a::B", "super::c", "std::d"]
        );
    }

    #[test]
    fn a_capture_list_is_no_import() {
        assert_eq!(paths("fn f<'a>() -> impl A + use<'a> { b::c() }"), ["b::c"]);
    }

    #[test]
    fn functions_have_lengths() {
        let source =
            Source::new("fn a();\nfn b(x: [u8; 3]) -> fn(u8) {\n  x\n}\nimpl A { fn c() {} }".to_owned());
        let found: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("b".to_owned(), 2, 3), ("c".to_owned(), 5, 1)]);
    }

    #[test]
    fn test_regions_cover_exactly_the_item() {
        let source = Source::new(
            "#[cfg(test)] mod t { fn a() {} } fn b() {} #[test] #[ignore] fn c() {} #[cfg(not(test))] fn d() {}
             struct S { #[cfg(all(test, unix))] e: u8, f: u8 }"
                .to_owned(),
        );
        let inside = |name: &str| {
            let at = (0..source.code.len()).find(|&at| source.word(at) == name).expect("the snippet has it");
            source.in_test(at)
        };
        assert!(inside("a") && inside("c") && inside("e"));
        assert!(!inside("b") && !inside("d") && !inside("f"));
    }

    #[test]
    fn an_inner_attribute_covers_the_file() {
        assert!(Source::new("#![cfg(test)] fn a() {}".to_owned()).in_test(9));
        assert!(!Source::new("#![forbid(unsafe_code)] fn a() {}".to_owned()).in_test(9));
    }

    #[test]
    fn mods_have_the_files_of_path_attributes() {
        let source =
            Source::new("mod a; #[cfg_attr(loom, path = \"l.rs\")] pub mod b; mod c { mod d; }".to_owned());
        let found: Vec<_> = source.mods().iter().map(|m| (m.name.to_owned(), m.paths.len())).collect();
        assert_eq!(found, [("a".into(), 0), ("b".into(), 1), ("c".into(), 0), ("d".into(), 0)]);
    }

    #[test]
    fn broken_code_is_survived() {
        for text in
            ["mod", "use", "use a::{", "#[", "#[cfg(test)]", "fn f(", "}", "]", "#![cfg(test", "unsafe"]
        {
            let source = Source::new(text.to_owned());
            source.paths();
            source.mods();
            source.functions();
            source.test_lines();
        }
    }
}
