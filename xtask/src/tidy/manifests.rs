//! Dependencies come from the workspace table, so that the root manifest lists all of them. A crate whose tests need more of its own
//! features depends on itself by path. Pages name the version of Rust that the root manifest asks for.

use super::Finding;
use crate::tree::Tree;

/// Returns the findings in the manifests of all crates; the fuzzing crate is its own workspace.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, text) in &tree.texts {
        // A manifest with a workspace of its own has no table of another one.
        if path.ends_with("/Cargo.toml") && !text.contains("\n[workspace]") {
            out.extend(foreign(text).into_iter().map(|(line, name)| {
                Finding::new(
                    path,
                    line,
                    format!("`{name}` is not from the workspace table: write `{name}.workspace = true`"),
                )
            }));
        }
    }
    out.extend(old_rust(tree));
    out
}

/// Returns the pages that promise a version of Rust and name another one than the root manifest.
fn old_rust(tree: &Tree) -> Vec<Finding> {
    let manifest = tree.texts.get("Cargo.toml").map_or("", String::as_str);
    let stated = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let Some(version) = stated.map(|value| value.trim_matches('"')) else { return Vec::new() };
    let pages = ["README.md", "docs/formats/compatibility.md"];
    let wrong = pages
        .iter()
        .filter(|page| !tree.texts.get(**page).is_some_and(|text| text.contains(&format!("Rust {version}"))));
    wrong
        .map(|page| {
            Finding::new(page, 1, format!("does not say `Rust {version}`, which Cargo.toml asks for"))
        })
        .collect()
}

/// Returns the dependencies without `workspace = true`, by line and name.
fn foreign(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut inside = false;
    let mut table: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(name) = line.strip_prefix('[') {
            out.extend(table.take());
            let name = name.trim_end_matches(']');
            inside = name.ends_with("dependencies");
            table = name.split_once("dependencies.").map(|(_, own)| (at + 1, own.to_owned()));
        } else if table.is_some() && is_workspace(line) {
            table = None;
        } else if let Some((key, _)) = line.split_once('=').filter(|_| inside) {
            let name = key.trim().split('.').next().unwrap_or("").to_owned();
            if !line.contains("workspace = true") && !line.contains("path = \".\"") {
                out.push((at + 1, name));
            }
        }
    }
    out.extend(table);
    out
}

fn is_workspace(line: &str) -> bool {
    line.replace(' ', "") == "workspace=true"
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{places, tree};
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        places(&check(&tree(&[("a/Cargo.toml", text)])))
    }

    #[test]
    fn own_versions_fire() {
        assert_eq!(findings("[dependencies]\na = \"1\"\n"), ["a/Cargo.toml:2"]);
        assert_eq!(
            findings("[target.'cfg(loom)'.dev-dependencies]\nb = { version = \"1\" }\n"),
            ["a/Cargo.toml:2"]
        );
        assert_eq!(
            findings("[dependencies.c]\nversion = \"1\"\n[lints]\nworkspace = true\n"),
            ["a/Cargo.toml:1"]
        );
    }

    #[test]
    fn a_page_with_another_version_of_rust_fires() {
        let manifest = "[workspace.package]\nrust-version = \"1.95\"\n";
        let found = |readme: &str| {
            let page = ("docs/formats/compatibility.md", "**Rust 1.95** or newer");
            places(&check(&tree(&[("Cargo.toml", manifest), ("README.md", readme), page])))
        };
        assert_eq!(found("You need Rust 1.95 or newer"), [] as [&str; 0]);
        assert_eq!(found("You need Rust 1.94 or newer"), ["README.md:1"]);
    }

    #[test]
    fn workspace_ones_are_silent() {
        let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true # why\nb = { workspace = true, features = [\"f\"] }
x = { path = \".\", features = [\"f\"] }
[dev-dependencies.c]\nworkspace = true\n[features]\nd = []\n";
        assert_eq!(findings(text), [] as [&str; 0]);
    }
}
