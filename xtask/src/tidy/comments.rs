//! Comments are prose: no commented-out code, and no markers of open work without an issue number.

use super::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Findings in all sources.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, source) in &tree.sources {
        for comment in &source.comments {
            let text = source.span(comment);
            if let Some(body) = plain(text).filter(|body| is_code(body)) {
                out.push(Finding::new(path, comment.line, format!("commented-out code: `{body}`")));
            }
            if let Some(promise) = promise(text) {
                out.push(Finding::new(path, comment.line, promise));
            }
        }
        out.extend(stubs(path, source));
    }
    out
}

/// Returns the text of a line comment that is not documentation.
fn plain(comment: &str) -> Option<&str> {
    let body = comment.strip_prefix("//")?;
    let doc = body.starts_with('!') || (body.starts_with('/') && !body.starts_with("//"));
    (!doc).then(|| body.trim())
}

/// Returns whether a comment reads like a statement or the head of a block. Prose seldom ends in `;` or `{`.
fn is_code(body: &str) -> bool {
    let mut words = body.split_whitespace();
    let first = words.next().unwrap_or("");
    let second = words.next().unwrap_or("");
    if body.starts_with("#[") || body.starts_with("#![") {
        return body.ends_with(']');
    }
    if matches!(body, "}" | "};" | "})" | "});" | "},") {
        return true;
    }
    if body.ends_with('{') {
        const HEADS: [&str; 12] =
            ["if", "for", "while", "match", "loop", "fn", "pub", "impl", "struct", "enum", "unsafe", "}"];
        return HEADS.contains(&first) || body.ends_with("=> {") || body.ends_with("| {");
    }
    if !body.ends_with(';') {
        return false;
    }
    let assigns = matches!(second, "=" | "+=" | "-=" | "*=" | "|=" | "&=");
    let calls =
        first.ends_with(");") || first.contains("!(") || (first.contains('(') && !first.starts_with('('));
    match first {
        "let" | "const" | "static" | "type" => body.contains('='),
        "use" | "pub" => body.contains("::") || body.contains('='),
        "return" | "break" | "continue" | "return;" | "break;" | "continue;" => words.next().is_none(),
        "mod" => second.ends_with(';') && words.next().is_none(),
        _ => assigns || calls,
    }
}

/// Returns what is wrong with a marker in a comment.
fn promise(comment: &str) -> Option<String> {
    let mut words = comment.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let marker = words.find(|word| matches!(*word, "FIXME" | "XXX" | "TODO"))?;
    if marker != "TODO" {
        return Some(format!("`{marker}`: do it now, or write `TODO #number`"));
    }
    let after = comment.split_once("TODO").map_or("", |(_, after)| after).trim_start_matches([' ', '(', ':']);
    let numbered = after.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    (!numbered).then(|| "`TODO` without a `#number`".to_owned())
}

/// Finds `todo!` and `unimplemented!`, which clippy detects only in compiled code.
fn stubs(path: &str, source: &Source) -> Vec<Finding> {
    let stub =
        |at: &usize| matches!(source.word(*at), "todo" | "unimplemented") && source.word(at + 1) == "!";
    let found = (0..source.code.len()).filter(stub);
    found.map(|at| Finding::new(path, source.code[at].line, format!("`{}!`", source.word(at)))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::tree;
    use super::*;

    fn count(text: &str) -> usize {
        check(&tree(&[("a.rs", text)])).len()
    }

    #[test]
    fn code_in_comments_fires() {
        for text in [
            "// let x = 1;",
            "// x += 1;",
            "// self.flush();",
            "// log.append(&batch)?;",
            "// if ready {",
            "// }",
            "// return None;",
            "// use std::fs;",
            "// #[inline]",
            "// assert!(x == 1);",
            "// } else {",
            "// Some(x) => {",
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
    }

    #[test]
    fn prose_is_silent() {
        for text in [
            "// The log is synced first; then the manifest.",
            "// use it with care, and then;",
            "// return early when the log is empty;",
            "// the rest (see above) waits;",
            "// (one of these two holds);",
            "// Sizes {small, large}",
            "/// let x = 1;",
            "//! fn f() {",
            "// =====",
            "let x = \"// let x = 1;\";",
        ] {
            assert_eq!(count(text), 0, "{text}");
        }
    }

    #[test]
    fn promises_need_a_number() {
        for text in [
            "// TODO later",
            "// FIXME: x",
            "/// XXX",
            "/* TODO(me) */",
            "fn f() { todo!() }",
            "unimplemented!();",
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
        for text in ["// TODO #12: later", "// TODO(#12) later", "fn todo() {}", "// XXXL", "\"TODO\";"] {
            assert_eq!(count(text), 0, "{text}");
        }
    }
}
