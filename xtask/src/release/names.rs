//! Whether the names of the packages can be used in each registry.

use crate::cargo::{Done, said, shown};
use crate::tools::Tool;
use std::path::Path;
use std::process::Command;

const SEMVER_CHECKS: Tool = Tool { name: "cargo-semver-checks", version: "0.49.0", flags: "" };

/// What a registry says of a package.
#[derive(Debug, PartialEq)]
pub(super) enum Name {
    /// Nobody has it.
    Free,
    /// The newest version.
    Published(String),
    /// The registry gave no answer that is understood.
    Unknown(String),
}

/// The registry of Rust crates.
pub(super) fn of_crate(name: &str) -> Name {
    // In another folder, where Cargo does not find the crate of this tree.
    let mut command = Command::new("cargo");
    command.args(["info", "--registry", "crates-io", name]).current_dir(std::env::temp_dir());
    of_answer(said(&mut command), "version: ", "could not find")
}

/// The registry of Python packages.
pub(super) fn of_wheel(name: &str) -> Name {
    let mut command = Command::new("python3");
    let answer = said(command.args(["-m", "pip", "index", "versions", "--disable-pip-version-check", name]));
    of_answer(answer, "LATEST: ", "No matching distribution")
}

/// Reads the answer of a program: the version follows `before`; a failure that says `missing` means that nobody has the name.
fn of_answer(answer: Result<String, String>, before: &str, missing: &str) -> Name {
    let text = match answer {
        Err(message) if message.contains(missing) => return Name::Free,
        Err(message) => return Name::Unknown(message.lines().last().unwrap_or_default().to_owned()),
        Ok(text) => text,
    };
    let in_brackets = text.lines().next().and_then(|line| line.split_once(" (")?.1.strip_suffix(')'));
    let after = text.lines().find_map(|line| line.trim().strip_prefix(before));
    match after.or(in_brackets).and_then(|rest| rest.split_whitespace().next()) {
        Some(version) => Name::Published(version.to_owned()),
        None => Name::Unknown(text.lines().next().unwrap_or_default().to_owned()),
    }
}

/// Compares the interface of each of these crates with its newest version in the registry, or with that of the commit `baseline`, by
/// `cargo semver-checks`.
///
/// # Errors
/// If a change needs another version number, or the tool cannot be installed.
pub(super) fn compare(root: &Path, crates: &[String], baseline: Option<&str>) -> Done {
    let mut command = Command::new(SEMVER_CHECKS.install(root)?);
    command.arg("semver-checks").args(crates.iter().map(|name| format!("--package={name}")));
    command.args(baseline.map(|baseline| format!("--baseline-rev={baseline}")));
    shown(command.current_dir(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_registries_are_understood() {
        let published = |version: &str| Name::Published(version.to_owned());
        let of = |answer: Result<&str, &str>| {
            let answer = answer.map(str::to_owned).map_err(str::to_owned);
            of_answer(answer, "version: ", "could not find")
        };
        assert_eq!(of(Ok("a #b\ntext\nversion: 1.2.0 (latest 1.3.0)\nlicense: MIT")), published("1.2.0"));
        assert_eq!(of(Err("    Updating index\nerror: could not find `a` in registry")), Name::Free);
        assert_eq!(of(Err("error: network\nno route")), Name::Unknown("no route".to_owned()));
        assert_eq!(of(Ok("what")), Name::Unknown("what".to_owned()));
        let pip =
            of_answer(Ok("lmdb (1.7.5)\nAvailable versions: 1.7.5".to_owned()), "LATEST: ", "No matching");
        assert_eq!(pip, published("1.7.5"));
    }
}
