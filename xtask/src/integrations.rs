//! `cargo xtask integrations`: runs the tests of the systems below which the engine works, on its stores and on their own ones, side by side.
//!
//! An integration is a folder of `integrations` with a workspace of its own, which takes its host from the crate registry and changes nothing
//! of it. Its tests are those of the host, then its own, then a kill test: real processes, killed and cut off, whose clients' history is checked.
//! The last one takes the power of simulated disks.

use crate::cargo::{Cargo, Done, target};
use crate::stages::{Outcome, Staged};
use std::path::Path;

/// The integrations, by the names of their folders.
const NAMES: [&str; 1] = ["openraft"];

/// Names the folder of a library of RocksDB, without which that store takes long to compile.
const ROCKSDB: &str = "ROCKSDB_LIB_DIR";

/// What to do.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    names: Vec<&'static str>,
    short: bool,
    rocksdb: bool,
    /// Arguments of the kill test.
    kill: Vec<String>,
}

/// Runs `cargo xtask integrations` with `args`.
///
/// # Errors
/// Unknown arguments; a test that fails, after all tests of the stores have run.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let plan = parse(args)?;
    plan.names.iter().try_for_each(|name| match *name {
        "openraft" => openraft(root, &plan),
        other => Err(format!("no integration `{other}`")),
    })
}

/// The stage of a check run.
///
/// # Errors
/// As [`run`].
pub(crate) fn stage(root: &Path) -> Staged {
    run(root, &["--short".to_owned()]).map(|()| Outcome::Passed)
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let mut plan = Plan { rocksdb: std::env::var_os(ROCKSDB).is_some(), ..Plan::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--short" => plan.short = true,
            "--rocksdb" => plan.rocksdb = true,
            "--rounds" | "--seconds" | "--seed" => {
                let value = args.next().ok_or(format!("{arg} needs a value"))?;
                plan.kill.extend([arg.clone(), value.clone()]);
            }
            name => {
                let known = NAMES.iter().find(|known| **known == name);
                plan.names.push(known.ok_or_else(|| {
                    format!("unknown argument `{name}`; usage: cargo xtask integrations [NAME]... [--short] [--rocksdb] [--rounds N] [--seconds N] [--seed N]; the names are: {}", NAMES.join(" "))
                })?);
            }
        }
    }
    if plan.names.is_empty() {
        plan.names = NAMES.to_vec();
    }
    Ok(plan)
}

/// What a run of tests has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    /// Adds what a line of the test program says, if it is the last one.
    fn add(&mut self, line: &str) {
        let Some((_, result)) = line.split_once("test result: ") else { return };
        for part in result.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(count)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }
}

/// Returns a command of Cargo in the workspace `folder`, built in one folder for all integrations.
fn cargo(root: &Path, folder: &str, command: &str) -> Cargo {
    let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
    let manifest = format!("integrations/{folder}/Cargo.toml");
    let into = target(root).join("integrations");
    let fixed = ["--manifest-path", &manifest, "--target-dir", &into.to_string_lossy()].map(str::to_owned);
    let rest: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
    Cargo::new(name).args(&fixed).args(&rest)
}

/// Runs the tests of a store. Prints their counts at once; a table follows.
fn store(root: &Path, folder: &str, command: &str) -> (Counts, Done) {
    let mut counts = Counts::default();
    let done = cargo(root, folder, command).run_reading(root, |line| counts.add(line));
    (counts, done)
}

fn openraft(root: &Path, plan: &Plan) -> Done {
    let mut rows = vec![
        ("TidesDB", store(root, "openraft", "test --locked --test suite")),
        ("openraft-memstore", store(root, "openraft/host", "test --locked --test memory")),
    ];
    if plan.rocksdb && !plan.short {
        let test = "test --locked --features rocksdb --test rocksdb";
        rows.push(("openraft-rocksstore", store(root, "openraft/host", test)));
    }
    println!("the suite of openraft, each of its 35 tests and once as a whole:");
    for (name, (Counts { passed, failed, skipped }, done)) in &rows {
        let failed = if *failed == 0 && done.is_err() { "?".to_owned() } else { failed.to_string() };
        println!("  {name:<20} {passed} passed, {failed} failed, {skipped} skipped");
    }
    if !plan.rocksdb || plan.short {
        println!(
            "  openraft-rocksstore  SKIPPED: --rocksdb compiles RocksDB, unless {ROCKSDB} names a library"
        );
    }
    for (_, (_, done)) in rows {
        done?;
    }
    if !plan.short {
        cargo(root, "openraft", "test --locked --workspace --lib --bins").run(root)?;
        // Runs the samples for a shell of docs/how-to/replicate.md.
        cargo(root, "openraft", "test --locked -p tidesdb-openraft-kv --test page").run(root)?;
        cargo(root, "openraft", "test --locked --doc").run(root)?;
        cargo(root, "openraft", "clippy --locked --workspace --all-targets -- -D warnings").run(root)?;
    }
    cargo(root, "openraft", "build --locked -p tidesdb-openraft-kv").run(root)?;
    let kill = cargo(root, "openraft", "run --locked -p tidesdb-openraft-kv --bin kv-kill --");
    let rounds = if plan.short { "--rounds 2 --seconds 3" } else { "--rounds 50" };
    // The last one of two equal options counts.
    let rounds: Vec<String> = rounds.split(' ').map(str::to_owned).collect();
    kill.args(&rounds).args(&plan.kill).run(root)?;
    if plan.short {
        return Ok(());
    }
    let power = "run --locked -p tidesdb-openraft-kv --bin kv-power -- --failures 100";
    cargo(root, "openraft", power).run(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Plan, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_integrations_are_run_unless_named() {
        assert_eq!(parsed("").map(|plan| plan.names), Ok(NAMES.to_vec()));
        let plan = parsed("openraft --short --rocksdb --rounds 3 --seed 7").expect("good arguments");
        assert!(plan.short && plan.rocksdb && plan.names == ["openraft"]);
        assert_eq!(plan.kill, ["--rounds", "3", "--seed", "7"]);
        assert!(parsed("kine").is_err_and(|error| error.contains("openraft")));
        assert!(parsed("--rounds").is_err());
    }

    #[test]
    fn what_the_test_programs_print_is_counted() {
        let mut counts = Counts::default();
        counts.add("running 36 tests");
        counts.add("test result: FAILED. 34 passed; 1 failed; 2 ignored; 0 measured; 5 filtered out; finished in 0.1s");
        counts.add("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(counts, Counts { passed: 35, failed: 1, skipped: 2 });
    }

    /// An integration that is not listed would not be tested.
    #[test]
    fn each_folder_is_an_integration() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations");
        let folders = std::fs::read_dir(root).expect("the folder of the integrations");
        let names: Vec<_> = folders.map(|folder| folder.expect("a folder").file_name()).collect();
        assert_eq!(names, NAMES);
    }
}
