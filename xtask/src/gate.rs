//! `bench-gate`: instructions per operation, counted by callgrind, compared with committed budgets.
//!
//! On a busy machine a timer cannot detect a slowdown of 5 %. A count of instructions detects 1 %, and is the
//! same in every run. It does not include cache misses and system calls: use `bench` and `tidesdb bench` for
//! those.

use crate::cargo::{Cargo, DIST, Done, target, works};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const BUDGETS: &str = "xtask/instructions.txt";
/// Exceeding the budget by more than this many per cent fails; staying below it by more than twice as many
/// suggests a lower budget. Another processor uses other routines of the C library, which changes the count by
/// a few per cent.
const TOLERANCE: f64 = 10.0;
/// The counted programs: package, example, and prefix of the names of its operations.
const EXAMPLES: [(&str, &str, &str); 2] =
    [("tidesdb-engine", "gate", ""), ("tidesdb-capi", "gate_c", THROUGH_C)];
/// The C library copies and clears long pieces with one instruction that callgrind counts once for each byte. So it does it in vectors.
const COPY_BY_VECTORS: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";
/// Prefix of calls through C. The operation without the prefix is that of the engine.
const THROUGH_C: &str = "c-";
/// Maximum ratio of the instructions of a call through C to those of the engine.
const C_MAX: f64 = 1.1;
/// A call that takes at most this many instructions more than the engine is not over its limit: the extra cost of a call does not
/// depend on what is called. Of a get, 126 of them are `malloc` and `free` of the value.
const C_EXTRA: f64 = 220.0;

/// Returns the reason why nothing can be counted here, if there is one.
pub(crate) fn hindrance() -> Option<&'static str> {
    let found = works("valgrind", &["--version"]);
    (!found).then_some("no valgrind: apt-get install valgrind")
}

/// Counts every operation of the examples `gate` and `gate_c` and compares it with its budget; with `--update`
/// rewrites the budgets. With `--release` counts what a program gets that is built with Cargo's defaults, and only shows the difference.
///
/// # Errors
/// An operation over its budget or without one, or one that costs too much more through C; if callgrind cannot
/// run; an unknown argument.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    if let Some(why) = hindrance() {
        return Err(why.to_owned());
    }
    let (profile, is_update) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => (DIST, false),
        ["--update"] => (DIST, true),
        ["--release"] => ("release", false),
        _ => return Err(format!("unknown arguments `{}`: use --update or --release", args.join(" "))),
    };
    let counts = count(root, profile)?;
    if is_update {
        let text: String = counts.iter().map(|(name, n)| format!("{name} {n:.0}\n")).collect();
        return std::fs::write(root.join(BUDGETS), text).map_err(|e| format!("{BUDGETS}: {e}"));
    }
    let budgets = std::fs::read_to_string(root.join(BUDGETS)).map_err(|e| format!("{BUDGETS}: {e}"))?;
    let (table, over) = judge(&counts, &budgets);
    print!("{table}");
    if over.is_empty() || profile != DIST {
        return Ok(());
    }
    Err(format!("over the budget: {}; to accept this: cargo xtask bench-gate --update", over.join(", ")))
}

/// Returns the instructions of every operation, built with `profile`.
fn count(root: &Path, profile: &str) -> Result<Vec<(String, f64)>, String> {
    let mut counts = Vec::new();
    for (package, example, prefix) in EXAMPLES {
        Cargo::new(&format!("build --profile {profile} --package {package} --example {example}"))
            .run(root)?;
        let program = target(root).join(profile).join("examples").join(example);
        for line in output(&mut Command::new(&program))?.0.lines() {
            let (name, count) = line.split_once(' ').ok_or("unknown format of the operations")?;
            let count: u64 = count.parse().map_err(|_| format!("`{line}` has no number of operations"))?;
            counts.push((format!("{prefix}{name}"), instructions(&program, name)? as f64 / count as f64));
        }
    }
    Ok(counts)
}

/// Returns the number of instructions inside the measured function.
fn instructions(program: &Path, name: &str) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    valgrind.arg("--toggle-collect=*measured*").arg(program).arg(name);
    valgrind.env("GLIBC_TUNABLES", COPY_BY_VECTORS);
    let (_, said) = output(&mut valgrind)?;
    let count = said.lines().find_map(|line| line.split_once("Collected :")).map(|(_, count)| count.trim());
    match count.and_then(|count| count.parse().ok()) {
        Some(count) if count > 0 => Ok(count),
        _ => Err(format!("callgrind counted nothing for `{name}`:\n{said}")),
    }
}

/// Returns the two outputs of a command.
fn output(command: &mut Command) -> Result<(String, String), String> {
    let line = format!("{command:?}");
    let output = command.output().map_err(|e| format!("cannot start ({e}): {line}"))?;
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if output.status.success() { Ok((out, err)) } else { Err(format!("{line} failed:\n{err}")) }
}

/// Returns the table, and the operations that exceed their limits.
fn judge(counts: &[(String, f64)], budgets: &str) -> (String, Vec<String>) {
    let mut table = format!("{:<16} {:>12} {:>8}\n", "operation", "instructions", "budget");
    let mut over = Vec::new();
    for (name, count) in counts {
        let budget = budgets.lines().filter_map(|line| line.split_once(' ')).find(|(known, _)| known == name);
        let budget = budget.and_then(|(_, budget)| budget.trim().parse::<f64>().ok()).unwrap_or(0.0);
        let percent = (count / budget - 1.0) * 100.0;
        let through_rust = name
            .strip_prefix(THROUGH_C)
            .and_then(|name| counts.iter().find(|(known, _)| known == name))
            .map(|(_, rust)| *rust);
        let too_much = through_rust.is_some_and(|rust| *count > (rust * C_MAX).max(rust + C_EXTRA));
        let times = through_rust.map_or(String::new(), |rust| format!("  {:.2} x Rust", count / rust));
        let verdict = if percent > TOLERANCE || too_much {
            over.push(name.clone());
            "  OVER"
        } else if percent < -2.0 * TOLERANCE {
            "  lower the budget: cargo xtask bench-gate --update"
        } else {
            ""
        };
        let _ = writeln!(table, "{name:<16} {count:>12.0} {budget:>8.0} {percent:>+6.1} %{times}{verdict}");
    }
    (table, over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_budget_and_no_budget_fail() {
        let counts = [("a", 109.0), ("b", 111.0), ("c", 75.0), ("d", 1.0)].map(|(n, c)| (n.to_owned(), c));
        let (table, over) = judge(&counts, "a 100\nb 100\nc 100\n");
        assert_eq!(over, ["b", "d"]);
        assert!(table.contains("+11.0 %  OVER") && table.contains("lower the budget"), "{table}");
    }

    #[test]
    fn a_call_through_c_may_cost_little_more() {
        let counts = [("a", 10_000.0), ("b", 1_000.0), ("c-a", 10_900.0), ("c-b", 1_221.0)];
        let (table, over) =
            judge(&counts.map(|(n, c)| (n.to_owned(), c)), "a 10000\nb 1000\nc-a 10900\nc-b 1221\n");
        assert_eq!(over, ["c-b"]);
        assert!(table.contains("+0.0 %  1.09 x Rust\n") && table.contains("1.22 x Rust  OVER"), "{table}");
        let counts = [("a", 100.0), ("c-a", 320.0)].map(|(n, c)| (n.to_owned(), c));
        assert_eq!(
            judge(&counts, "a 100\nc-a 320\n").1,
            [""; 0],
            "220 instructions more are the price of a call"
        );
    }

    #[test]
    fn an_unknown_argument_is_refused() {
        if hindrance().is_none() {
            let error =
                run(Path::new("nowhere"), &["--fast".to_owned()]).expect_err("there is no such argument");
            assert!(error.contains("--fast") && error.contains("--release"), "{error}");
        }
    }

    #[test]
    fn every_operation_has_a_budget() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let budgets = std::fs::read_to_string(root.join(BUDGETS)).expect("the budgets are committed");
        let read = |path: &str| std::fs::read_to_string(root.join("crates").join(path)).expect("the example");
        let engine = read("tidesdb/examples/gate/main.rs");
        let through_c = read("tidesdb-capi/examples/gate_c/main.rs");
        for line in budgets.lines() {
            let name = line.split(' ').next().unwrap_or_default();
            let (example, name) = match name.strip_prefix(THROUGH_C) {
                Some(name) => (&through_c, name),
                None => (&engine, name),
            };
            assert!(example.contains(&format!("(\"{name}\", ")), "{name} is no longer counted");
        }
        assert!(budgets.lines().count() >= 15);
    }
}
