//! The pages of the book: which there are, and the samples in them; the lines and links of any page.

pub(crate) mod summary;
pub(crate) mod samples;

use std::ops::Range;

/// What a line of a page is.
#[derive(Clone, Copy)]
pub(crate) enum Kind<'a> {
    /// A line outside of fenced text.
    Prose,
    /// The beginning of fenced text, with what follows the backticks: a language, and more.
    Begin(&'a str),
    /// A line of fenced text.
    Fenced,
    /// The end of fenced text.
    End,
}

/// Returns the lines of a page.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (&str, Kind<'_>)> {
    let mut open = false;
    text.lines().map(move |line| {
        let fence = line.trim_start().strip_prefix("```");
        let kind = match (fence, open) {
            (Some(info), false) => Kind::Begin(info.trim()),
            (Some(_), true) => Kind::End,
            (None, true) => Kind::Fenced,
            (None, false) => Kind::Prose,
        };
        open ^= fence.is_some();
        (line, kind)
    })
}

/// Returns the lines outside of fenced text, numbered from 1.
pub(crate) fn prose(text: &str) -> Vec<(usize, &str)> {
    let numbered = (1..).zip(lines(text));
    numbered.filter_map(|(at, (line, kind))| matches!(kind, Kind::Prose).then_some((at, line))).collect()
}

/// Fenced text of a page.
pub(crate) struct Fence<'a> {
    /// Line of its beginning, from 1.
    pub line: usize,
    /// What follows the backticks: a language, and more.
    pub info: &'a str,
    /// Its lines.
    pub body: Vec<&'a str>,
}

impl Fence<'_> {
    /// Returns its lines as one text.
    pub(crate) fn text(&self) -> String {
        self.body.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Returns the fenced texts of a page.
pub(crate) fn fences(text: &str) -> Vec<Fence<'_>> {
    let mut out: Vec<Fence<'_>> = Vec::new();
    for (at, (line, kind)) in (1..).zip(lines(text)) {
        match (kind, out.last_mut()) {
            (Kind::Begin(info), _) => out.push(Fence { line: at, info, body: Vec::new() }),
            (Kind::Fenced, Some(fence)) => fence.body.push(line),
            _ => {}
        }
    }
    out
}

/// Returns where the targets of `[text](target)` and of `[name]: target` are in a line of prose, in their order. Text between backticks has
/// none.
pub(crate) fn targets(line: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let is_name = |text: &str| text.starts_with('[') && !text.starts_with("[ ") && !text.contains(']');
    if let Some((_, rest)) = line.split_once("]: ").filter(|(name, _)| is_name(name)) {
        let target = rest.split_whitespace().next().unwrap_or("");
        let begin = line.len() - rest.trim_start().len();
        out.push(begin..begin + target.len());
        return out;
    }
    let mut begin = 0;
    for (n, piece) in line.split('`').enumerate() {
        // Pieces with odd index between backticks are code.
        for (at, open) in piece.match_indices("](").filter(|_| n % 2 == 0) {
            let target = piece[at + open.len()..].split([')', ' ']).next().unwrap_or("");
            let at = begin + at + open.len();
            out.push(at..at + target.len());
        }
        begin += piece.len() + 1;
    }
    out
}

/// Returns a page that is read without the others: a link to another file becomes its text.
pub(crate) fn alone(text: &str) -> String {
    relinked_page(text, |target| (is_outside(target) || target.starts_with('#')).then(|| target.to_owned()))
}

/// Returns a page with other targets of its links, as [`relinked`] does for a line.
pub(crate) fn relinked_page(text: &str, mut other: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::new();
    for (line, kind) in lines(text) {
        match kind {
            Kind::Prose => out += &relinked(line, &mut other),
            _ => out += line,
        }
        out.push('\n');
    }
    out
}

/// Returns a line of prose with other targets of its links. Of a link that has none, the text in brackets is left.
pub(crate) fn relinked(line: &str, mut other: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut done = 0;
    for target in targets(line) {
        out += &line[done..target.start];
        done = target.end;
        match other(&line[target.clone()]) {
            Some(target) => out += &target,
            None if out.ends_with("](") => {
                out.truncate(out.len() - "](".len());
                match out.rfind('[') {
                    Some(begin) => out.replace_range(begin..=begin, ""),
                    None => out.push(']'),
                }
                done += line[done..].find(')').map_or(0, |at| at + 1);
            }
            None => out += &line[target],
        }
    }
    out + &line[done..]
}

/// Returns whether a target is no file of the repository.
pub(crate) fn is_outside(target: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_links_outside_of_code() {
        for (line, want) in [
            ("[a](b.md) and [`c`](d.md#e \"title\"), [f", &["b.md", "d.md#e"][..]),
            ("`[a](b.md)` [c](d.md)", &["d.md"]),
            ("[a]: b.md", &["b.md"]),
            ("[a](b.md) [c]: d", &["b.md"]),
            ("[ ]: none", &[]),
        ] {
            let found: Vec<_> = targets(line).into_iter().map(|target| &line[target]).collect();
            assert_eq!(found, want, "{line}");
        }
    }

    #[test]
    fn a_page_alone_leads_to_no_other_file() {
        let page = "# A\n[b](../b.md#c), [own](#a), [far](https://example.org)\n```sh\n[b](b.md)\n```\n";
        let want = "# A\nb, [own](#a), [far](https://example.org)\n```sh\n[b](b.md)\n```\n";
        assert_eq!(alone(page), want);
    }

    #[test]
    fn a_link_without_a_target_becomes_its_text() {
        let other = |target: &str| (target != "gone").then(|| format!("../{target}"));
        for (line, want) in [
            ("see [a](gone), [b](c) and `[d](gone)`", "see a, [b](../c) and `[d](gone)`"),
            ("[a](gone \"title\") b", "a b"),
            ("[a]: gone", "[a]: gone"),
            ("the end](gone) of a link", "the end] of a link"),
        ] {
            assert_eq!(relinked(line, other), want, "{line}");
        }
    }
}
