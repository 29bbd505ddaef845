//! Passes the commit and the target to `tidesdb --version`. Outside of a checkout the commit is empty.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=TIDESDB_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    // Asked now: a folder of built files may be a copy from another checkout.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&own).join("../..");
    println!("cargo::rustc-env=TIDESDB_COMMIT={}", commit(&root));
    // The file changes with each commit and checkout, and only then. Cargo builds again and again for a file that does not exist.
    let log = git(&root, &["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]);
    if !log.is_empty() && Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// Returns the commit that is checked out in `root`; empty if `root` is not a checkout. If these sources are part of another checkout,
/// its commit says nothing about them.
fn commit(root: &Path) -> String {
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

/// Returns what git prints in the checkout `root`, or an empty string.
fn git(root: &Path, args: &[&str]) -> String {
    if !root.join(".git").exists() {
        return String::new();
    }
    let output = Command::new("git").current_dir(root).args(args).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
