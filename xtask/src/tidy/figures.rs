//! A table that quotes a suite of the benchmark agrees with the page of the suite: each figure and the date stand there too.

use super::Finding;
use crate::tree::Tree;

/// Pages whose tables quote other pages.
const QUOTING: [&str; 2] = ["README.md", "docs/benchmarks/README.md"];

/// Returns the rows with a figure or a date that the page they link to does not have.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for page in QUOTING {
        let text = tree.texts.get(page).map_or("", String::as_str);
        let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
        for (at, row) in rows {
            let Some((suite, source)) = quoted(tree, row) else { continue };
            let date = source.lines().find_map(|line| line.strip_prefix("* Date: ")).unwrap_or("");
            let date = date.split(',').next().unwrap_or("");
            let mut missing: Vec<_> = figures(row).filter(|figure| !has(source, figure)).collect();
            if !row.contains(date) {
                missing.push(date);
            }
            out.extend(missing.into_iter().map(|figure| {
                Finding::new(page, at + 1, format!("the page of `{suite}` and this row differ: `{figure}`"))
            }));
        }
    }
    out
}

/// Returns the suite that a row links to, and its page.
fn quoted<'a>(tree: &'a Tree, row: &'a str) -> Option<(&'a str, &'a str)> {
    let (before, _) = row.split_once("/README.md)")?;
    let suite = before.rsplit(['/', '(']).next()?;
    let source = tree.texts.get(&format!("docs/benchmarks/{suite}/README.md"))?;
    Some((suite, source))
}

/// Returns the words of a row that begin with a digit, without what surrounds them and outside of links.
fn figures(row: &str) -> impl Iterator<Item = &str> {
    let words = row.split_whitespace().filter(|word| !word.contains("]("));
    let bare = words.map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()));
    bare.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns whether `figure` stands in `text` as a word of its own.
fn has(text: &str, figure: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric();
    text.match_indices(figure).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + figure.len()..]);
        let goes_on = after.strip_prefix('.').unwrap_or(after).starts_with(is_part);
        !before.ends_with(|c| is_part(c) || c == '.') && !goes_on
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    const PAGE: &str = "# Steady\n* Date: 1 May 2026, one run\n| load | 4.70x, 2.57 M |\n";

    fn findings(row: &str) -> Vec<String> {
        let page = ("docs/benchmarks/steady/README.md", PAGE);
        places(&check(&tree(&[page, ("README.md", &format!("# T\n{row}\n"))])))
    }

    #[test]
    fn figures_and_dates_that_differ_from_the_quoted_page_fire() {
        let row = "| **Loads 4.70x** | [steady](docs/benchmarks/steady/README.md), 1 May 2026 |";
        assert_eq!(findings(row), [] as [&str; 0]);
        assert_eq!(findings(&row.replace("4.70x", "4.7x")), ["README.md:2"]);
        assert_eq!(findings(&row.replace("4.70x", "70x")), ["README.md:2"]);
        assert_eq!(findings(&row.replace("1 May", "2 May")), ["README.md:2", "README.md:2"]);
    }

    #[test]
    fn rows_that_quote_no_suite_are_silent() {
        assert_eq!(findings("| 5 levels | [transactions](docs/concepts/transactions.md) |"), [] as [&str; 0]);
    }
}
