//! `weight`: the processor time of the build that a newcomer waits for, the program for `tidesdb tour`, from nothing.
//!
//! The wall clock depends on the number of processors. Processor time depends on the machine, by a factor of two between those seen, and
//! rises by half if other programs are at work. So the budget is a multiple of the processor time that some crates of others take, which
//! are built first, a minute before the rest. The build fails if anything wants a C compiler.

use crate::cargo::{Done, target};
use crate::install::{read, remove};
use std::path::Path;
use std::process::Command;

const BUDGET: &str = "xtask/weight.txt";
/// More processor time than this factor of the budget fails; less than the inverse suggests a lower budget.
const TOLERANCE: f64 = 1.2;
/// The crates of others whose build is the unit.
const UNIT: [&str; 2] = ["clap_builder", "rustyline"];
/// Ticks of the kernel's times per second, the same on all machines.
const TICKS: f64 = 100.0;
/// Commands that a build script would call for C.
const COMPILERS: [&str; 2] = ["CC", "CXX"];

/// What a build took, in seconds of processor time.
#[derive(Clone, Copy)]
struct Times {
    unit: f64,
    whole: f64,
}

impl Times {
    fn ratio(self) -> f64 {
        self.whole / self.unit
    }
}

/// Builds the program in an empty folder and compares the processor time with the budget; with `--update` sets the budget.
///
/// # Errors
/// If the build fails, or takes more than a fifth more than the budget, twice; on a system without `/proc`.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let is_update = match args {
        [] => false,
        [arg] if arg == "--update" => true,
        _ => return Err(format!("unknown arguments `{}`: use --update", args.join(" "))),
    };
    let first = build(root)?;
    if is_update {
        return std::fs::write(root.join(BUDGET), format!("{:.2}\n", first.ratio()))
            .map_err(|e| format!("{BUDGET}: {e}"));
    }
    let budget = read(&root.join(BUDGET))?;
    let budget: f64 = budget.trim().parse().map_err(|_| format!("{BUDGET} has no number"))?;
    let line = match judge(first, budget) {
        Ok(line) => line,
        // Chance decides which of the two builds another program slowed down.
        Err(_) => judge(build(root)?, budget)?,
    };
    println!("{line}");
    Ok(())
}

/// Builds the unit, then the rest of the program.
fn build(root: &Path) -> Result<Times, String> {
    let folder = target(root).join("weight");
    remove(&folder)?;
    let packages: Vec<&str> = UNIT.iter().flat_map(|name| ["-p", name]).collect();
    let unit = timed(root, &folder, &packages)?;
    let rest = timed(root, &folder, &[])?;
    let _ = std::fs::remove_dir_all(&folder); // nothing uses it again
    Ok(Times { unit, whole: unit + rest })
}

/// Runs `cargo build --release` with more arguments in `folder` and returns the processor time in seconds.
fn timed(root: &Path, folder: &Path, more: &[&str]) -> Result<f64, String> {
    let mut command = Command::new("cargo");
    command.args(["build", "--quiet", "--release"]).args(more);
    command.current_dir(root).env("CARGO_TARGET_DIR", folder);
    for variable in COMPILERS {
        command.env(variable, "a-default-build-needs-no-C-compiler");
    }
    // What changes the settings of the build that is measured.
    for variable in ["RUSTFLAGS", "RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER", "CARGO_INCREMENTAL"] {
        command.env_remove(variable);
    }
    eprintln!("$ CARGO_TARGET_DIR='{}' cargo build --release {}", folder.display(), more.join(" "));
    let before = children()?;
    let status = command.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    let took = children()? - before;
    if !status.success() {
        return Err(format!("the build failed ({status})"));
    }
    Ok(took)
}

/// Returns the processor time of the children of this process that have ended, and of theirs, in seconds.
fn children() -> Result<f64, String> {
    of_children(&read(Path::new("/proc/self/stat"))?)
}

/// Finds that time in the text of `/proc/PID/stat`.
fn of_children(stat: &str) -> Result<f64, String> {
    // The second field, a name in brackets, may contain blanks. Fields 16 and 17 are the times in user and kernel mode.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at - 3).and_then(|ticks| ticks.parse::<f64>().ok());
    match (ticks(16), ticks(17)) {
        (Some(user), Some(kernel)) => Ok((user + kernel) / TICKS),
        _ => Err("/proc/self/stat has no times of children".to_owned()),
    }
}

/// Returns a line about a build; an error if it exceeds the budget.
fn judge(times: Times, budget: f64) -> Result<String, String> {
    let (ratio, Times { unit, whole }) = (times.ratio(), times);
    let line = format!(
        "{whole:.0} s of processor time, {ratio:.2} times the {unit:.0} s of {}, budget {budget:.2}",
        UNIT.join(" and ")
    );
    if ratio > budget * TOLERANCE {
        return Err(format!(
            "the program for the tour takes {line}: see docs/reference/weight.md; to accept this: cargo xtask weight --update"
        ));
    }
    let hint =
        if ratio * TOLERANCE < budget { "; lower the budget: cargo xtask weight --update" } else { "" };
    Ok(line + hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_more_than_the_budget_fails() {
        let of = |whole| judge(Times { unit: 10.0, whole }, 10.0);
        assert!(of(120.0).is_ok() && of(100.0).is_ok_and(|line| !line.contains("lower")));
        assert!(of(121.0).is_err_and(|error| error.contains("121 s") && error.contains("--update")));
        assert!(of(83.0).is_ok_and(|line| line.contains("lower the budget")));
        assert!(judge(Times { unit: 20.0, whole: 200.0 }, 10.0).is_ok(), "a slow machine");
    }

    #[test]
    fn times_of_children_are_read_behind_any_name() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 250 50 20 0 1";
        assert_eq!(of_children(stat), Ok(3.0));
        assert!(of_children("7 (x) S 1 2").is_err());
    }

    /// A child that works shows up.
    #[test]
    fn the_work_of_a_child_counts() {
        let before = children().expect("the time");
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let child = Command::new("sh").args(["-c", script]).status().expect("a shell");
        assert!(child.success() && children().is_ok_and(|now| now > before));
    }

    #[test]
    fn an_unknown_argument_is_refused() {
        assert!(
            run(Path::new("nowhere"), &["--fast".to_owned()]).is_err_and(|error| error.contains("--fast"))
        );
    }

    #[test]
    fn the_budget_is_a_number() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let budget = read(&root.join(BUDGET)).expect("the budget is committed");
        assert!(budget.trim().parse::<f64>().is_ok_and(|ratio| ratio > 1.0), "{budget}");
    }
}
