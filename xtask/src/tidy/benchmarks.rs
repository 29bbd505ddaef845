//! A page of a benchmark says how its figures were measured, has one table, and shows losses first.

use super::Finding;
use crate::pages::prose;
use crate::tree::Tree;

/// What each page states, each in a list item.
const FIELDS: [&str; 5] = ["Command", "Scale", "Date", "Commit", "Machine"];

/// Marks of a row that was lost.
const LOST: [&str; 2] = ["**loss**", "**not met**"];

/// Returns the findings in the pages of all suites.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    let is_page = |path: &str| path.starts_with("docs/benchmarks/") && path.ends_with("/README.md");
    for (path, text) in tree.texts.iter().filter(|(path, _)| is_page(path) && path.matches('/').count() == 3)
    {
        for field in FIELDS {
            let stated =
                |line: &str| line.strip_prefix(&format!("* {field}: ")).is_some_and(|rest| !rest.is_empty());
            if !text.lines().any(stated) {
                out.push(Finding::new(path, 1, format!("no line `* {field}: ...`")));
            }
        }
        let tables: Vec<_> = prose(text).into_iter().filter(|(_, line)| line.starts_with("| ---")).collect();
        if tables.len() != 1 {
            out.push(Finding::new(
                path,
                1,
                format!("{} tables: older figures belong to history.md", tables.len()),
            ));
        }
        let rows = tables.first().map_or(0, |table| table.0);
        let lost = |line: &str| LOST.iter().any(|mark| line.contains(mark));
        let after = text.lines().enumerate().skip(rows).skip_while(|(_, line)| lost(line));
        let late = after.filter(|(_, line)| line.starts_with('|') && lost(line));
        out.extend(
            late.map(|(at, _)| {
                Finding::new(path, at + 1, "a row that was lost stands after one that was not")
            }),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    const PAGE: &str = "# Queue\n* Command: `x`\n* Scale: 1\n* Date: d\n* Commit: c\n* Machine: m\n| a |\n| --- |\n| 1, **loss** |\n| 2 |\n";

    fn findings(text: &str) -> Vec<String> {
        places(&check(&tree(&[
            ("docs/benchmarks/queue/README.md", text),
            ("docs/benchmarks/README.md", "# All"),
        ])))
    }

    #[test]
    fn pages_without_origin_order_or_with_old_tables_fire() {
        let path = "docs/benchmarks/queue/README.md";
        assert_eq!(findings(PAGE), [] as [&str; 0]);
        assert_eq!(findings(&PAGE.replace("* Scale: 1\n", "")), [format!("{path}:1")]);
        assert_eq!(findings(&PAGE.replace("* Scale: 1", "* Scale: ")), [format!("{path}:1")]);
        assert_eq!(
            findings(&format!("{PAGE}\nThe day before:\n\n| a |\n| --- |\n| 3 |\n")),
            [format!("{path}:1")]
        );
        assert_eq!(findings(&format!("{PAGE}| 3, **not met** |\n")), [format!("{path}:11")]);
    }
}
