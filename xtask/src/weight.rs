//! `weight`: the processor time of the build that a newcomer waits for, the program for `tidesdb tour`, from nothing.
//!
//! The wall clock depends on the number of processors and on other programs; processor time much less. It still depends on the machine,
//! so the budget is that of the build server. The build fails if anything wants a C compiler.

use crate::cargo::{Done, target};
use crate::install::read;
use std::path::Path;
use std::process::Command;

const BUDGET: &str = "xtask/weight.txt";
/// More processor time than this factor of the budget fails; less than the inverse suggests a lower budget.
const TOLERANCE: f64 = 1.2;
/// Ticks of the kernel's times per second, the same on all machines.
const TICKS: f64 = 100.0;
/// Commands that a build script would call for C.
const COMPILERS: [&str; 2] = ["CC", "CXX"];

/// Builds the program in an empty folder and compares the processor time in seconds with the budget; with `--update` sets the budget.
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
        return std::fs::write(root.join(BUDGET), format!("{first:.0}\n"))
            .map_err(|e| format!("{BUDGET}: {e}"));
    }
    let budget = read(&root.join(BUDGET))?;
    let budget: f64 = budget.trim().parse().map_err(|_| format!("{BUDGET} has no number of seconds"))?;
    // A machine that does other work slows every program down a little.
    let least = if judge(first, budget).is_err() { first.min(build(root)?) } else { first };
    println!("{}", judge(least, budget)?);
    Ok(())
}

/// Builds the program and returns the processor time in seconds.
fn build(root: &Path) -> Result<f64, String> {
    let folder = target(root).join("weight");
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", folder.display()));
        }
        _ => {}
    }
    let mut command = Command::new("cargo");
    command.args(["build", "--quiet", "--release"]).current_dir(root).env("CARGO_TARGET_DIR", &folder);
    for variable in COMPILERS {
        command.env(variable, "a-default-build-needs-no-C-compiler");
    }
    // What changes the settings of the build that is measured.
    for variable in ["RUSTFLAGS", "RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER", "CARGO_INCREMENTAL"] {
        command.env_remove(variable);
    }
    eprintln!("$ CARGO_TARGET_DIR='{}' cargo build --release", folder.display());
    let before = children()?;
    let status = command.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    let after = children()?;
    let _ = std::fs::remove_dir_all(&folder); // nothing uses it again
    if status.success() { Ok(after - before) } else { Err(format!("the build failed ({status})")) }
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

/// Returns a line about a build of `seconds`; an error if it exceeds the budget.
fn judge(seconds: f64, budget: f64) -> Result<String, String> {
    let line = format!("{seconds:.0} s of processor time, budget {budget:.0} s");
    if seconds > budget * TOLERANCE {
        return Err(format!(
            "the program for the tour takes {line}: see docs/weight.md; to accept this: cargo xtask weight --update"
        ));
    }
    let hint =
        if seconds * TOLERANCE < budget { "; lower the budget: cargo xtask weight --update" } else { "" };
    Ok(line + hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_more_than_the_budget_fails() {
        assert!(judge(120.0, 100.0).is_ok() && judge(100.0, 100.0).is_ok_and(|line| !line.contains("lower")));
        assert!(
            judge(121.0, 100.0).is_err_and(|error| error.contains("121 s") && error.contains("--update"))
        );
        assert!(judge(83.0, 100.0).is_ok_and(|line| line.contains("lower the budget")));
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
        assert!(budget.trim().parse::<f64>().is_ok_and(|seconds| seconds > 1.0), "{budget}");
    }
}
