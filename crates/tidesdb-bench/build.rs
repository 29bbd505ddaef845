//! Passes the compiler version, the build profile and the commit to the report. Unknown values are empty. Refuses systems other than Linux.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system != "linux") {
        println!(
            "cargo::error=tidesdb-bench measures on Linux only: it reads /proc and control groups, and empties the page cache"
        );
    }
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    println!("cargo::rustc-env=TIDESDB_BENCH_COMPILER={}", said(&compiler, &["--version"]));
    println!("cargo::rustc-env=TIDESDB_BENCH_PROFILE={}", profile());
    let commit = said("git", &["rev-parse", "--short=12", "HEAD"]);
    println!("cargo::rustc-env=TIDESDB_BENCH_COMMIT={commit}");
    let head = said("git", &["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]);
    if !head.is_empty() && std::path::Path::new(&head).exists() {
        println!("cargo::rerun-if-changed={head}");
    }
}

/// Returns the name of the profile. Cargo tells only the one that it inherits from, but builds into a folder of its name:
/// `target/NAME/build/PACKAGE/out`.
fn profile() -> String {
    let out = std::env::var_os("OUT_DIR").map(std::path::PathBuf::from).unwrap_or_default();
    let folder = out.ancestors().nth(3).and_then(std::path::Path::file_name);
    folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns the first output line of a program, or an empty string.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.ok().filter(|output| output.status.success());
    let text = output.map_or_else(String::new, |o| String::from_utf8_lossy(&o.stdout).into_owned());
    text.lines().next().unwrap_or_default().to_owned()
}
