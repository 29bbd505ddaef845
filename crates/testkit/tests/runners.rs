//! Runs every runner with a small workload, so that each test of the whole engine is part of `cargo test`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::process::Command;

/// Runs a program of this package. It must succeed and print the line of its test.
fn run(program: &str, args: &[&str], line: &str) {
    let out = Command::new(program).args(args).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    print!("{stdout}");
    eprint!("{stderr}");
    assert!(out.status.success(), "{program} {args:?}: {}", out.status);
    assert!(stdout.lines().any(|l| l.starts_with(line)), "no line {line}");
}

#[test]
fn crash() {
    run(env!("CARGO_BIN_EXE_crash"), &["--points", "250", "--threads", "2", "--seed", "11"], "T01 ");
}

#[test]
fn faults() {
    let args = ["--cases", "400", "--points", "30", "--seed", "12"];
    let bin = env!("CARGO_BIN_EXE_faults");
    run(bin, &[&args[..], &["--only", "9"]].concat(), "T09 ");
    run(bin, &[&args[..], &["--only", "10"]].concat(), "T10 ");
    run(bin, &[&args[..], &["--only", "11"]].concat(), "T11 ");
}

#[test]
fn kill() {
    run(env!("CARGO_BIN_EXE_kill"), &["--kills", "12", "--seed", "13"], "T04 ");
}

#[test]
fn beside() {
    run(env!("CARGO_BIN_EXE_beside"), &["--refreshes", "100", "--seed", "20"], "T46 ");
}

#[test]
fn sweep() {
    run(env!("CARGO_BIN_EXE_sweep"), &["--stride", "127", "--blocks", "10", "--seed", "14"], "T27 ");
}

#[test]
fn invariants() {
    run(env!("CARGO_BIN_EXE_invariants"), &["--points", "400", "--seed", "18"], "T13-invariants ");
}

#[test]
fn model() {
    run(env!("CARGO_BIN_EXE_model"), &["--ops", "40000", "--length", "2000", "--seed", "15"], "T14 ");
}

#[test]
fn metamorphic() {
    run(
        env!("CARGO_BIN_EXE_metamorphic"),
        &["--configs", "12", "--length", "12000", "--seed", "19"],
        "T15-metamorphic ",
    );
}

#[test]
fn order() {
    run(env!("CARGO_BIN_EXE_order"), &["--scripts", "60", "--seed", "16"], "T08 ");
}

#[test]
fn tmpfs() {
    run(
        env!("CARGO_BIN_EXE_tmpfs"),
        &["--rounds", "2", "--mib", "40", "--seed", "17", "--scarce", "0"],
        "T11-tmpfs ",
    );
}
