//! Every section heading is followed by text. What a command costs stands where a reader sees it.

use super::Finding;
use crate::pages::fences;
use crate::source::Source;
use crate::tree::Tree;

/// Words of reasons that a reader must know before he runs the commands.
const COSTS: [&str; 4] = ["minutes", "installs", "root", "network"];

/// Findings in documentation comments and in Markdown files.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, source) in &tree.sources {
        for run in runs(source) {
            out.extend(empty_sections(path, &run));
        }
    }
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        let lines: Vec<_> = text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
        out.extend(empty_sections(path, &lines));
        out.extend(hidden_costs(path, text));
    }
    out
}

/// A reader does not see the words after the language of fenced text: commands that take minutes or change the system say so in a comment.
fn hidden_costs(path: &str, text: &str) -> Vec<Finding> {
    let costs = |info: &str| info.starts_with("sh (") && COSTS.iter().any(|cost| info.contains(cost));
    let is_silent = |body: &[&str]| !body.iter().any(|line| line.contains("# "));
    let hidden = fences(text).into_iter().filter(|fence| costs(fence.info) && is_silent(&fence.body));
    hidden.map(|fence| Finding::new(path, fence.line, "no comment says what the commands cost")).collect()
}

/// Returns groups of consecutive documentation lines without their markers, each line with its number.
fn runs(source: &Source) -> Vec<Vec<(usize, &str)>> {
    let mut out: Vec<Vec<(usize, &str)>> = Vec::new();
    for comment in &source.comments {
        let text = source.span(comment);
        let Some(body) = text.strip_prefix("///").or_else(|| text.strip_prefix("//!")) else { continue };
        let follows = out.last().and_then(|run| run.last()).is_some_and(|last| last.0 + 1 == comment.line);
        if !follows {
            out.push(Vec::new());
        }
        if let Some(run) = out.last_mut() {
            run.push((comment.line, body.strip_prefix(' ').unwrap_or(body)));
        }
    }
    out
}

fn empty_sections(path: &str, lines: &[(usize, &str)]) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut open: Option<(usize, usize, &str)> = None;
    let mut fenced = false;
    let mut close = |open: Option<(usize, usize, &str)>| {
        out.extend(
            open.map(|(line, _, name)| Finding::new(path, line, format!("section `{name}` is empty"))),
        );
    };
    for &(number, line) in lines {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let level = if fenced || fence { None } else { heading(line) };
        match level {
            Some(level) => {
                // A title above its first subsection is not an empty section.
                close(open.take().filter(|open| open.1 >= level));
                open = Some((number, level, line.trim_start_matches('#').trim()));
            }
            None if !line.trim().is_empty() => open = None,
            None => {}
        }
    }
    close(open);
    out
}

/// Returns the level of a heading line.
pub(super) fn heading(line: &str) -> Option<usize> {
    let level = line.bytes().take_while(|&b| b == b'#').count();
    ((1..=6).contains(&level) && line[level..].starts_with(' ')).then_some(level)
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    #[test]
    fn what_a_command_costs_is_visible() {
        let page = |body: &str| format!("# A\n\n```sh (takes minutes)\n{body}\n```\n");
        assert_eq!(findings("docs/a.md", &page("make all")), ["docs/a.md:3"]);
        assert!(findings("docs/a.md", &page("make all # takes minutes")).is_empty());
    }

    fn findings(path: &str, text: &str) -> Vec<String> {
        places(&check(&tree(&[(path, text)])))
    }

    #[test]
    fn empty_sections_fire() {
        assert_eq!(findings("a.rs", "/// Does.\n///\n/// # Safety\npub fn f() {}"), ["a.rs:3"]);
        assert_eq!(findings("a.rs", "//! # A\n//!\n//! # B\n//! Text."), ["a.rs:1"]);
        assert_eq!(findings("a.md", "# A\n\n## B\n\n## C\ntext\n"), ["a.md:3"]);
    }

    #[test]
    fn full_sections_are_silent() {
        assert_eq!(findings("a.rs", "/// # Errors\n/// If it fails.\nfn f() {}"), [] as [&str; 0]);
        assert_eq!(
            findings("a.rs", "/// # Examples\n/// ```\n/// # let x = 1;\n/// ```\nfn f() {}"),
            [] as [&str; 0]
        );
        assert_eq!(
            findings("a.md", "# Title\n\n## A\n```sh\n# a shell comment\n```\n#hashtag\n"),
            [] as [&str; 0]
        );
    }
}
