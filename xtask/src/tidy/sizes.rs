//! Files have at most 700 lines and functions at most 70. Larger ones are listed and may only shrink. `ARCHITECTURE.md` has at most 200: what
//! a protocol needs belongs to its page in `docs/internals`.

use super::Finding;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// Maximum number of lines of a source file.
pub(super) const FILE_LINES: usize = 700;
/// Maximum number of lines of a function, from `fn` to the closing brace.
pub(super) const FUNCTION_LINES: usize = 70;

/// Maximum number of lines of the page of the architecture.
const PAGE_LINES: usize = 200;
const PAGE: &str = "ARCHITECTURE.md";

const BUDGETS: &str = "xtask/budgets.toml";

/// Sizes by key: the path of a file, or `path::name` of a function.
type Sizes = BTreeMap<String, (usize, usize)>;

/// Checks files and functions against the limits and the list of exceptions.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut files = Sizes::new();
    let mut functions = Sizes::new();
    for (path, source) in &tree.sources {
        files.insert(path.clone(), (source.lines(), 1));
        for function in source.functions() {
            let size = functions.entry(format!("{path}::{}", function.name)).or_default();
            *size = (*size).max((function.lines, function.line));
        }
    }
    let text = tree.texts.get(BUDGETS).map_or("", String::as_str);
    let mut out = compare("file_lines", FILE_LINES, &files, text);
    out.extend(compare("function_lines", FUNCTION_LINES, &functions, text));
    let page = tree.texts.get(PAGE).map_or(0, |text| text.lines().count());
    if page > PAGE_LINES {
        out.push(Finding::new(
            PAGE,
            page,
            format!("{page} lines; the limit is {PAGE_LINES}: move a part to docs/internals"),
        ));
    }
    out
}

fn compare(section: &str, limit: usize, sizes: &Sizes, budgets: &str) -> Vec<Finding> {
    let mut out = Vec::new();
    let listed = entries(section, budgets);
    for (key, &(lines, line)) in sizes {
        let path = key.split("::").next().unwrap_or(key);
        let budget = listed.get(key).map_or(limit, |entry| entry.0);
        if lines > budget {
            out.push(Finding::new(path, line, format!("`{key}` has {lines} lines; the limit is {budget}")));
        }
    }
    for (key, (budget, line)) in listed {
        let lines = sizes.get(&key).map_or(0, |size| size.0);
        if lines <= limit {
            out.push(Finding::new(BUDGETS, line, format!("`{key}` is under the limit: remove the entry")));
        } else if lines < budget {
            out.push(Finding::new(BUDGETS, line, format!("`{key}` shrank: lower its entry to {lines}")));
        }
    }
    out
}

/// Returns the lines `"key" = number` of a section, with the line number of each.
fn entries(section: &str, text: &str) -> Sizes {
    let mut out = Sizes::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(name) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = name == section;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| inside && !line.starts_with('#')) {
            // A number that does not parse allows nothing, so that a typo cannot lift a limit.
            let lines = value.trim().parse().unwrap_or(0);
            out.insert(key.trim().trim_matches('"').to_owned(), (lines, number + 1));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    fn long_function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    x();\n".repeat(lines - 2))
    }

    fn findings(source: &str, budgets: &str) -> Vec<String> {
        places(&check(&tree(&[("a.rs", source), (BUDGETS, budgets)])))
    }

    #[test]
    fn the_page_of_the_architecture_is_short() {
        let found = |lines: usize| check(&tree(&[("ARCHITECTURE.md", &"a\n".repeat(lines))])).len();
        assert_eq!((found(200), found(201)), (0, 1));
    }

    #[test]
    fn files_have_a_limit() {
        assert_eq!(findings(&"\n".repeat(701), ""), ["a.rs:1"]);
        assert_eq!(findings(&"\n".repeat(700), ""), [] as [&str; 0]);
    }

    #[test]
    fn functions_have_a_limit() {
        assert_eq!(findings(&format!("\n{}", long_function(71)), ""), ["a.rs:2"]);
        assert_eq!(findings(&long_function(70), ""), [] as [&str; 0]);
    }

    #[test]
    fn an_entry_must_match_exactly() {
        let with =
            |lines| findings(&long_function(80), &format!("[function_lines]\n\"a.rs::long\" = {lines}\n"));
        assert_eq!(with(80), [] as [&str; 0]);
        assert_eq!(with(79), ["a.rs:1"]);
        assert_eq!(with(81), ["xtask/budgets.toml:2"]);
    }

    #[test]
    fn a_needless_entry_must_be_removed() {
        assert_eq!(findings("", "[file_lines]\n\"a.rs\" = 800\n"), ["xtask/budgets.toml:2"]);
        assert_eq!(findings("", "[file_lines]\n# \"a.rs\" = 800\n"), [] as [&str; 0]);
    }
}
