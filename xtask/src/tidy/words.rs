//! One word for one thing. Also: sources are ASCII, and no file names a path on a particular machine.

use super::Finding;
use crate::tree::Tree;

/// Words that are not allowed, and their replacements.
const WORDS: [(&str, &str); 5] = [
    ("journal", "WAL"),
    ("keyspace", "family"),
    ("superversion", "read view"),
    ("lsn", "seqno"),
    ("zombie", "obsolete"),
];

/// Folders that may use the words of other projects.
const FREE: [&str; 2] = ["xtask/", "crates/tidesdb-bench-peers/"];

/// Folders of a particular machine. Written in two parts, so that this file passes its own check.
const PLACES: [&str; 3] = [concat!("/", "work"), concat!("/", "root"), concat!("/", "home")];

/// An address that is not ours: the binding of the C library.
const OTHER: &str = concat!("github.com/tidesdb/", "tidesdb-rs");

/// Findings in all sources.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, source) in &tree.sources {
        let free = FREE.iter().any(|folder| path.starts_with(folder));
        for (at, line) in source.text.lines().enumerate() {
            if let Some(odd) = line.chars().find(|c| !c.is_ascii()) {
                out.push(Finding::new(path, at + 1, format!("U+{:04X} is not ASCII", u32::from(odd))));
            }
            let banned = WORDS.iter().filter(|(word, _)| !free && has_word(line, word));
            out.extend(
                banned.map(|(word, ours)| Finding::new(path, at + 1, format!("`{word}`: use `{ours}`"))),
            );
        }
    }
    out
}

/// Findings in all text files.
pub(super) fn check_paths(tree: &Tree) -> Vec<Finding> {
    let sources = tree.sources.iter().map(|(path, source)| (path, &source.text));
    let mut out = Vec::new();
    for (path, text) in tree.texts.iter().chain(sources) {
        for (at, line) in text.lines().enumerate() {
            let named = PLACES.iter().filter(|place| has_place(line, place));
            out.extend(
                named.map(|place| Finding::new(path, at + 1, format!("`{place}` is a path of one machine"))),
            );
            if line.contains(OTHER) {
                out.push(Finding::new(path, at + 1, "this address belongs to another project"));
            }
        }
    }
    out
}

/// Returns whether `line` contains `word` as a word, or as a part of a `snake_case` or `CamelCase` name.
fn has_word(line: &str, word: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let bytes = line.as_bytes();
    lower.match_indices(word).any(|(at, _)| {
        let end = at + word.len();
        let end = if lower[end..].starts_with('s') { end + 1 } else { end };
        let before = at.checked_sub(1).map_or(b' ', |i| bytes[i]);
        let after = bytes.get(end).copied().unwrap_or(b' ');
        let camel = bytes[at].is_ascii_uppercase();
        let starts = !before.is_ascii_alphabetic() || (camel && before.is_ascii_lowercase());
        let ends = !after.is_ascii_alphabetic() || (camel && after.is_ascii_uppercase());
        starts && ends
    })
}

/// Returns whether `line` names `place` as the beginning of an absolute path.
fn has_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back().unwrap_or(' ');
        let after = line[at + place.len()..].chars().next().unwrap_or(' ');
        let joined =
            before.is_ascii_alphanumeric() || matches!(before, '.' | '_' | '-' | '}' | ')' | '/' | '*' | '~');
        !joined && !after.is_ascii_alphanumeric() && !matches!(after, '_' | '-')
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    #[test]
    fn banned_words_fire_as_words_only() {
        for line in
            ["let journal = 1;", "// the Keyspaces", "fn f(next_lsn: u64)", "struct LsnRange;", "a Zombie."]
        {
            assert_eq!(check(&tree(&[("a.rs", line)])).len(), 1, "{line}");
        }
        for line in ["journalist", "fn columns()", "else_n", "ElsNot", "superversions2x"] {
            let found = check(&tree(&[("a.rs", line)])).len();
            assert_eq!(found, usize::from(line.starts_with("super")), "{line}");
        }
        assert!(
            check(&tree(&[("crates/tidesdb-bench-peers/src/a.rs", "keyspace"), ("b.md", "journal")]))
                .is_empty()
        );
    }

    #[test]
    fn sources_are_ascii() {
        let found = check(&tree(&[("a.rs", "ok\n// na\u{ef}ve"), ("a.md", "na\u{ef}ve")]));
        assert_eq!(places(&found), ["a.rs:2"]);
    }

    #[test]
    fn the_address_of_another_project_fires() {
        let line = format!("repository = \"https://{OTHER}\"");
        assert_eq!(places(&check_paths(&tree(&[("Cargo.toml", &line)]))), ["Cargo.toml:1"]);
    }

    #[test]
    fn places_of_one_machine_fire() {
        let [work, root, home] = PLACES;
        for line in [format!("cd {work}/main"), format!("\"{root}\""), format!("(see {home}/me/x)")] {
            assert_eq!(check_paths(&tree(&[("a.toml", &line)])).len(), 1, "{line}");
        }
        for line in [
            format!("src{work}load.rs"),
            format!("https://a.b{work}/c"),
            format!("{work}load"),
            format!("a{root}/b"),
        ] {
            assert_eq!(check_paths(&tree(&[("a.toml", &line)])).len(), 0, "{line}");
        }
    }
}
