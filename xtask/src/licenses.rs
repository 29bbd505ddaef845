//! Collects the licences of everything that is linked into the libraries and the programs, to be shipped in
//! packages.

use crate::cargo::said;
use crate::install::read;
use crate::single::features;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders inside a crate that hold third-party sources with their own licences.
const VENDORED: [&str; 2] = ["zstd", "vendor"];

/// What the program contains besides crates: what it is, its licence, and the file with the text of that.
const DATA: [(&str, &str, &str); 2] = [
    ("the list of characters of Unicode", "Unicode-3.0", "crates/tidesdb-cli/data/unicode/LICENSE"),
    ("the charting library uPlot", "MIT", "crates/tidesdb-cli/data/uplot/LICENSE"),
];

/// Prefixes of the names of licence files.
const NAMES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

/// Returns the licences of the project and of each crate that is linked into one of `packages`.
///
/// # Errors
/// If cargo cannot list the crates, or a licence is missing.
pub(crate) fn text(root: &Path, packages: &[&str]) -> Result<String, String> {
    let mut out = format!(
        "TidesDB\n\nLicensed under the MIT licence or the Apache License 2.0, at your choice.\n\n{}\n{}\n",
        read(&root.join("LICENSE-MIT"))?,
        read(&root.join("LICENSE-APACHE"))?,
    );
    out.push_str(
        "The libraries and the programs contain the Rust standard library, (c) The Rust Project Developers,\n",
    );
    out.push_str("MIT OR Apache-2.0, and the packages below. Texts that came up before are not repeated.\n");
    for (what, license, file) in DATA {
        let _ = write!(
            out,
            "\n==== {what}, in the program: {license}\n\n{}\n",
            read(&root.join(file))?.trim_end()
        );
    }
    let folders = folders(root)?;
    let mut seen: Vec<String> = Vec::new();
    for (name, license) in crates(root, packages)? {
        let folder = folders.get(&name).ok_or(format!("cargo does not report the folder of {name}"))?;
        let _ = write!(out, "\n==== {name}: {license}\n");
        for file in files(folder) {
            let text = read(&file)?;
            if !seen.contains(&text) {
                let _ = write!(out, "\n{}\n", text.trim_end());
                seen.push(text);
            }
        }
    }
    Ok(out)
}

/// Returns the linked crates as `name-version` with their licences, without those of this repository.
fn crates(root: &Path, packages: &[&str]) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for package in packages {
        let mut command = Command::new("cargo");
        command.args(["tree", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}|{l}"]);
        if *package == "tidesdb-cli" {
            command.args(["--features", features!()]);
        }
        for line in said(command.current_dir(root))?.lines() {
            found.extend(linked(line));
        }
    }
    Ok(found)
}

/// Parses a line of `cargo tree`: `snap v1.1.2|BSD-3-Clause`.
fn linked(line: &str) -> Option<(String, String)> {
    let (package, license) = line.trim_end_matches(" (*)").split_once('|')?;
    // A macro runs in the compiler; a crate with a path belongs to this repository.
    if package.contains('(') {
        return None;
    }
    let (name, version) = package.split_once(" v")?;
    Some((format!("{name}-{version}"), license.to_owned()))
}

/// Returns the source folder of each crate, by `name-version`.
fn folders(root: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1", "--all-features"]).current_dir(root);
    let metadata = said(&mut command)?;
    let paths = metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let folders = paths.filter_map(|path| Path::new(path).parent().map(Path::to_owned));
    Ok(folders
        .filter_map(|folder| Some((folder.file_name()?.to_string_lossy().into_owned(), folder)))
        .collect())
}

/// Returns the licence files of a crate, including those of its vendored sources.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for inside in std::iter::once("").chain(VENDORED) {
        let entries = fs::read_dir(folder.join(inside)).into_iter().flatten().filter_map(Result::ok);
        let named = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin))
        };
        let mut here: Vec<_> = entries.map(|entry| entry.path()).filter(named).collect();
        here.sort();
        found.extend(here);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tree_are_read() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(linked("snap v1.1.2|BSD-3-Clause"), pair("snap-1.1.2", "BSD-3-Clause"));
        assert_eq!(linked("snap v1.1.2|BSD-3-Clause (*)"), pair("snap-1.1.2", "BSD-3-Clause"));
        assert_eq!(linked("zstd-sys v2.1.2+zstd.1.5.7|MIT"), pair("zstd-sys-2.1.2+zstd.1.5.7", "MIT"));
        assert_eq!(linked("thiserror-impl v2.0.21 (proc-macro)|MIT"), None);
        assert_eq!(linked("tidesdb v0.1.0 (/somewhere)|MIT"), None);
    }

    #[test]
    fn all_required_licences_are_included() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = text(&root, &["tidesdb-capi", "tidesdb-cli"]).expect("the licences");
        let of_the_program = super::text(&root, &["tidesdb-cli"]).expect("the licences");
        assert!(of_the_program.contains("==== ratatui-core-") && of_the_program.contains("==== zstd-sys-"));
        for needed in ["==== snap-", "==== zstd-sys-", "Meta Platforms", "UNICODE LICENSE", "Leon Sorokin"] {
            assert!(text.contains(needed), "{needed}");
        }
    }
}
