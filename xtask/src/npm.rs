//! `cargo xtask npm`: tests the npm package `tidesdb`, as published in the registry, with the C library of this
//! repository.

use crate::cargo::{Done, said, target, works};
use crate::install::{self, CRATE, Shape, copy};
use crate::stages::{Outcome, Staged};
use std::path::Path;
use std::process::Command;

/// Duration of the random transactions in a check run, in seconds.
const SECONDS: &str = "20";

/// Runs the program with `args`: seconds, then a seed.
///
/// # Errors
/// If the library cannot be installed, the program fails, or it cannot run here.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    if args.len() > 2 || args.iter().any(|arg| arg.parse::<u32>().is_err()) {
        return Err("usage: cargo xtask npm [SECONDS [SEED]]".to_owned());
    }
    let arg = |at: usize, otherwise: &str| args.get(at).map_or(otherwise.to_owned(), Clone::clone);
    match attempt(root, &arg(0, SECONDS), &arg(1, "1"))? {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(why) => Err(why),
    }
}

/// Runs the program with the settings of a check run.
///
/// # Errors
/// Errors of [`run`], except that it may be unable to run here.
pub(crate) fn stage(root: &Path) -> Staged {
    attempt(root, SECONDS, "1")
}

fn attempt(root: &Path, seconds: &str, seed: &str) -> Staged {
    for tool in ["node", "npm"] {
        if !works(tool, &["--version"]) {
            return Ok(Outcome::Skipped(format!("no {tool}: apt-get install nodejs npm")));
        }
    }
    let folder = target(root).join("npm");
    let _ = std::fs::remove_dir_all(&folder);
    let source = root.join(CRATE).join("c-tests/npm");
    for file in ["package.json", "main.js"] {
        copy(&source.join(file), &folder.join(file), 0o644)?;
    }
    let mut fetch = Command::new("npm");
    fetch.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]);
    if let Err(error) = said(fetch.current_dir(&folder)) {
        let first = error.lines().find(|line| line.contains("npm error")).unwrap_or(&error).to_owned();
        return Ok(Outcome::Skipped(format!("npm cannot fetch the package: {first}")));
    }
    let prefix = folder.join("prefix");
    install::install(root, &prefix, &Shape::default())?;
    let mut program = Command::new("node");
    program.arg("main.js").arg(folder.join("db")).args([seconds, seed]).current_dir(&folder);
    let printed = said(program.env("LD_LIBRARY_PATH", prefix.join("lib")))?;
    println!("  {}", printed.trim());
    Ok(Outcome::Passed)
}
