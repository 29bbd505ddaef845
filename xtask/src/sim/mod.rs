//! `cargo xtask sim`: runs the engine under a deterministic simulation, threads included; with `--plant NAME`, a copy of the tree with a fault.
//!
//! The simulation is a build of its own (`--cfg simulated`, below `target/simulated`). A plant is a patch in `crates/testkit/plants` that puts
//! back a fault, or makes a new one. The tool applies it to a copy of the tree and counts the seeds and the time to the first finding, from
//! several starts.

mod coverage;

use crate::cargo::{Cargo, Done, said, target};
use crate::tree::git_files;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const FLAGS: &str = "--cfg simulated";
/// Folder of the patches.
const PLANTS: &str = "crates/testkit/plants";
/// Folder below the target folder where a tree with a fault is built.
const BUILD: &str = "plants/build";
/// Distance between the first seeds of two starts.
const APART: u64 = 1_000_000;

/// Runs the simulation with `args`.
///
/// # Errors
/// If it cannot be built, or a seed fails; for a plant, if a start does not find it.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let mut rest = args.to_vec();
    if let Some(missed) = take(&mut rest, "--coverage") {
        return coverage::run(root, Path::new(&missed), &rest);
    }
    let Some(name) = take(&mut rest, "--plant") else {
        let sim = Cargo::new("run --package testkit -- sim").args(&rest);
        return sim.flags(root, "RUSTFLAGS", FLAGS, "simulated").run(root);
    };
    let number =
        |value: Option<String>, or: u64| value.map_or(Ok(or), |n| n.parse().map_err(|e| format!("{n}: {e}")));
    let starts = number(take(&mut rest, "--starts"), 10)?;
    let seeds = number(take(&mut rest, "--seeds"), 2000)?;
    let plants = match name.as_str() {
        "all" => plants(root)?,
        one => vec![one.to_owned()],
    };
    let mut missed = Vec::new();
    for plant in &plants {
        let found = try_plant(root, plant, (starts, seeds), &rest)?;
        println!("{found}");
        missed.extend((found.count() < starts).then(|| plant.clone()));
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not found from each start: {}", missed.join(", "))) }
}

/// A check run: the tests of the scheduler and of the oracle, then new seeds for two minutes, which the commit decides.
///
/// # Errors
/// As [`run`].
pub(crate) fn stage(root: &Path) -> Done {
    let tests = Cargo::new("test --package tidesdb-sync --package testkit --lib -- scheduler:: sim::");
    tests.flags(root, "RUSTFLAGS", FLAGS, "simulated").run(root)?;
    let head = said(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root)).unwrap_or_default();
    let seed = u64::from_str_radix(head.get(..8).unwrap_or("1"), 16).unwrap_or(1) * APART;
    run(root, &["--minutes", "2", "--seed", &seed.to_string()].map(str::to_owned))
}

/// Removes `name` and its value from `args`.
fn take(args: &mut Vec<String>, name: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == name)?;
    args.remove(at);
    (at < args.len()).then(|| args.remove(at))
}

/// Returns the names of all plants.
fn plants(root: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(root.join(PLANTS)).map_err(|e| format!("{PLANTS}: {e}"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".patch").map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

/// What the search for a plant has shown.
struct Search {
    plant: String,
    starts: u64,
    /// Seeds and time to the first finding, of each start that found it.
    seeds: Vec<u64>,
    times: Vec<Duration>,
    /// The first finding.
    first: String,
}

impl Search {
    /// Number of starts that found it.
    fn count(&self) -> u64 {
        self.seeds.len() as u64
    }
}

impl std::fmt::Display for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut seeds, mut times) = (self.seeds.clone(), self.times.clone());
        seeds.sort_unstable();
        times.sort_unstable();
        let median = (seeds.get(seeds.len() / 2), times.get(times.len() / 2));
        write!(f, "plant {}: found from {} of {} starts", self.plant, self.count(), self.starts)?;
        if let (Some(seeds), Some(time)) = median {
            write!(f, ", median {seeds} seeds, {:.1} s: {}", time.as_secs_f64(), self.first)?;
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a tool may look at the clock")]
fn try_plant(
    root: &Path,
    plant: &str,
    (starts, seeds): (u64, u64),
    args: &[String],
) -> Result<Search, String> {
    let tree = target(root).join("plants/tree");
    copy_tree(root, &tree)?;
    let patch = root.join(PLANTS).join(format!("{plant}.patch"));
    let mut apply = Command::new("patch");
    apply.args(["-p1", "--silent", "--no-backup-if-mismatch", "-i"]).arg(&patch).current_dir(&tree);
    said(&mut apply).map_err(|e| format!("{} does not apply: {e}", patch.display()))?;
    let build = Cargo::new("build --quiet --package testkit").flags(root, "RUSTFLAGS", FLAGS, BUILD);
    build.run(&tree).map_err(|e| format!("the tree with {plant} does not build: {e}"))?;
    let program = target(root).join(BUILD).join("debug/testkit");
    let mut search =
        Search { plant: plant.to_owned(), starts, seeds: vec![], times: vec![], first: String::new() };
    for start in 0..starts {
        let begin = Instant::now();
        let (first, count) = ((1 + start) * APART, seeds.to_string());
        let output = Command::new(&program)
            .args(["sim", "--find", "--again", "0", "--seeds", &count, "--seed", &first.to_string()])
            .args(args)
            .output()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let runs = out.split(' ').find_map(|part| part.strip_prefix("runs=")?.parse().ok()).unwrap_or(0);
        if let Some(violation) = err.lines().find(|line| line.starts_with("VIOLATION")) {
            search.seeds.push(runs);
            search.times.push(begin.elapsed());
            if search.first.is_empty() {
                search.first = violation.chars().take(220).collect();
            }
        }
    }
    Ok(search)
}

/// Makes `tree` a copy of what git knows of `root`. Files that are equal keep their times, so that little is built again.
fn copy_tree(root: &Path, tree: &Path) -> Done {
    for name in git_files(root).ok_or("git does not list the files")? {
        let (from, to) = (root.join(&name), tree.join(&name));
        let bytes = fs::read(&from).map_err(|e| format!("{}: {e}", from.display()))?;
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let made = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&to, bytes));
        made.map_err(|e| format!("{}: {e}", to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plant_applies_to_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for plant in plants(&root).expect("there are plants") {
            let patch = root.join(PLANTS).join(format!("{plant}.patch"));
            let check =
                Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(&root).output();
            let output = check.expect("git runs");
            assert!(output.status.success(), "{plant}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn an_argument_is_taken_with_its_value() {
        let mut args: Vec<String> = ["--seed", "3", "--plant", "a", "--off", "x"].map(str::to_owned).into();
        assert_eq!(take(&mut args, "--plant").as_deref(), Some("a"));
        assert_eq!(take(&mut args, "--plant"), None);
        assert_eq!(args, ["--seed", "3", "--off", "x"]);
    }
}
