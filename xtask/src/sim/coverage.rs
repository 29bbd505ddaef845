//! `cargo xtask sim --coverage FILE`: which lines of the engine run in the simulation.
//!
//! The simulation is built once more with counters of LLVM, below `target/coverage`. Each seed is a process of its own, whose counts are merged.
//! A table with a line for each folder of the engine is printed; FILE gets the lines that never ran, by file.

use super::FLAGS;
use crate::cargo::{Cargo, Done, host, said, target};
use crate::install::remove;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the build is told besides the flags of the simulation, its folder below the target folder, and the folder of the sources.
const COUNTING: &str = "-C instrument-coverage";
const BUILD: &str = "coverage/build";
const SOURCES: &str = "crates/tidesdb/src/";
/// Processes write into so many files at the same time.
const POOL: u32 = 4;

/// How often each line ran, by file below the sources.
type Lines = BTreeMap<String, BTreeMap<u32, u64>>;

/// Runs the simulation with `args` and writes the lines that did not run to `missed`.
///
/// # Errors
/// If it cannot be built, the tools of LLVM are missing, or a seed fails.
pub(crate) fn run(root: &Path, missed: &Path, args: &[String]) -> Done {
    let tools = tools()?;
    let flags = format!("{FLAGS} {COUNTING}");
    Cargo::new("build --package testkit").flags(root, "RUSTFLAGS", &flags, BUILD).run(root)?;
    let program = target(root).join(BUILD).join("debug/testkit");
    let profiles = target(root).join("coverage/profiles");
    remove(&profiles)?;
    fs::create_dir_all(&profiles).map_err(|e| format!("{}: {e}", profiles.display()))?;
    let pattern = profiles.join(format!("%{POOL}m.profraw"));
    let mut sim = Command::new(&program);
    sim.arg("sim").args(args).env("LLVM_PROFILE_FILE", pattern).current_dir(root);
    print!("{}", said(&mut sim)?);
    let merged = profiles.join("all.profdata");
    let inputs = fs::read_dir(&profiles).map_err(|e| format!("{}: {e}", profiles.display()))?;
    let inputs = inputs.filter_map(|entry| Some(entry.ok()?.path()));
    let inputs: Vec<PathBuf> =
        inputs.filter(|path| path.extension().is_some_and(|e| e == "profraw")).collect();
    said(
        Command::new(tools.join("llvm-profdata")).args(["merge", "-sparse", "-o"]).arg(&merged).args(inputs),
    )?;
    let mut export = Command::new(tools.join("llvm-cov"));
    export.args(["export", "-format=lcov", "-instr-profile"]).arg(&merged).arg(&program);
    let lines = parse(&said(&mut export)?);
    print!("{}", table(&lines));
    fs::write(missed, never_ran(&lines)).map_err(|e| format!("{}: {e}", missed.display()))
}

/// The folder with the tools of LLVM that fit the compiler.
fn tools() -> Result<PathBuf, String> {
    let sysroot = said(Command::new("rustc").args(["--print", "sysroot"]))?;
    let tools = Path::new(sysroot.trim()).join("lib/rustlib").join(host()?).join("bin");
    match tools.join("llvm-cov").is_file() {
        true => Ok(tools),
        false => Err("the tools of LLVM are missing: rustup component add llvm-tools".to_owned()),
    }
}

/// Reads what `llvm-cov export -format=lcov` prints: `SF:` names a file, `DA:` has a line and its count.
fn parse(text: &str) -> Lines {
    let (mut lines, mut file) = (Lines::new(), None);
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = path.split_once(SOURCES).map(|(_, name)| name.to_owned());
        }
        let counted = line.strip_prefix("DA:").and_then(|rest| rest.split_once(','));
        let numbers = counted.and_then(|(line, count)| Some((line.parse().ok()?, count.parse().ok()?)));
        if let (Some((line, count)), Some(file)) = (numbers, &file) {
            lines.entry(file.clone()).or_default().insert(line, count);
        }
    }
    lines
}

/// A line for each folder, and for the files outside of one.
fn table(lines: &Lines) -> String {
    let mut parts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (file, counts) in lines {
        let folder = file.split_once('/').map_or("(others)", |(folder, _)| folder);
        let (ran, all) = parts.entry(folder).or_default();
        *ran += counts.values().filter(|count| **count > 0).count();
        *all += counts.len();
    }
    let line = |(part, (ran, all)): (&str, (usize, usize))| {
        format!("coverage {part}: {ran} of {all} lines, {:.1} %\n", 100.0 * ran as f64 / all as f64)
    };
    parts.into_iter().map(line).collect()
}

/// The lines that never ran, as ranges, by file.
fn never_ran(lines: &Lines) -> String {
    let mut text = String::new();
    for (file, counts) in lines {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut is_before = false;
        for (line, count) in counts {
            match ranges.last_mut() {
                Some((_, last)) if *count == 0 && is_before => *last = *line,
                _ if *count == 0 => ranges.push((*line, *line)),
                _ => {}
            }
            is_before = *count == 0;
        }
        let shown =
            |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
        let ranges: Vec<String> = ranges.into_iter().map(shown).collect();
        if !ranges.is_empty() {
            let _ = writeln!(text, "{file}: {}", ranges.join(" ")); // a String takes everything
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "SF:/tree/crates/tidesdb/src/wal/log.rs\nDA:1,5\nDA:2,0\nDA:4,0\nDA:5,1\nDA:7,0\nend_of_record\n\
                         SF:/tree/crates/tidesdb-io/src/lib.rs\nDA:1,0\nend_of_record\n";

    #[test]
    fn lines_are_counted_by_folder_and_listed_as_ranges() {
        let lines = parse(TRACE);
        assert_eq!(table(&lines), "coverage wal: 2 of 5 lines, 40.0 %\n");
        assert_eq!(never_ran(&lines), "wal/log.rs: 2-4 7\n");
    }
}
