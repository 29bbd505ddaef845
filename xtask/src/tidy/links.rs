//! Relative links in Markdown must lead to an existing file, and to an existing heading if they name one.

use super::{Finding, docs};
use crate::pages::{is_outside, prose, targets};
use crate::tree::{Tree, join, normal, parent};

/// Findings in all Markdown files.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(text) {
            out.extend(fault(tree, path, target).map(|fault| Finding::new(path, line, fault)));
        }
    }
    out
}

fn fault(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if is_outside(target) {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { from.to_owned() } else { normal(&join(&parent(from), file)) };
    let path = path.trim_end_matches('/').to_owned();
    let folder = format!("{path}/");
    if !tree.paths.iter().any(|known| *known == path || known.starts_with(&folder)) {
        return Some(format!("dead link: `{target}`"));
    }
    let text = tree.texts.get(&path).filter(|_| path.ends_with(".md") && !anchor.is_empty())?;
    let known = prose(text).iter().any(|(_, line)| docs::heading(line).is_some() && slug(line) == anchor);
    (!known).then(|| format!("no such heading: `{target}`"))
}

/// Returns the targets of all links, each with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let in_line = |(number, line)| targets(line).into_iter().map(move |target| (number, &line[target]));
    prose(text).into_iter().flat_map(in_line).collect()
}

/// Converts a heading to its anchor, as forges do.
fn slug(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let linked = "# The `Title`, here\n[a](docs/a.md)";
        places(&check(&tree(&[("docs/a.md", text), ("b.md", linked), ("docs/x/c.txt", "")])))
    }

    #[test]
    fn dead_links_fire() {
        for text in ["[a](gone.md)", "x [`a`](../gone.md)", "[a](../b.md#none)", "[a](#none)", "[a]: gone.md"]
        {
            assert_eq!(findings(text), ["docs/a.md:1"], "{text}");
        }
    }

    #[test]
    fn live_links_are_silent() {
        for text in [
            "[a](../b.md) and [b](../b.md#the-title-here)",
            "[a](x/) [b](x/c.txt) [c](https://example.org/gone.md) [d](mailto:a@b.c)",
            "# Here\n[a](#here)",
            "`[a](gone.md)`",
            "```\n[a](gone.md)\n```",
            "- [ ]: not a link",
        ] {
            assert_eq!(findings(text), [] as [&str; 0], "{text}");
        }
    }
}
