//! `cargo xtask fuzz-guided`: the fuzz targets of the test kit under libFuzzer, which keeps inputs that reach new code.
//!
//! Needs nightly Rust and a C++ compiler; `cargo-fuzz` is installed in `target/tools`. The inputs of a target begin with those in
//! `crates/testkit/corpus` and grow in `target/fuzz-guided`, where the next run goes on. `--keep` puts short ones that reach code beyond the
//! corpus in the tree into it. `cargo xtask fuzz` runs the same targets with any compiler, without guidance.

use crate::cargo::{Done, host, said, shown, target, works};
use crate::install::remove;
use crate::tools::Tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.1", flags: "" };
const CRATE: &str = "crates/testkit/fuzz";
const CORPUS: &str = "crates/testkit/corpus";
/// Prefix of the inputs in the corpus that a run has found.
const FOUND: &str = "found-";
/// Inputs that go into the tree are at most so long, and so many of a target in a run.
const KEPT_BYTES_MAX: u64 = 4 << 10;
const KEPT_MAX: usize = 12;

struct Plan {
    targets: Vec<String>,
    seconds: u64,
    keep: bool,
}

/// Runs the targets that `args` name, or all.
///
/// # Errors
/// If a tool is missing, the build fails, or a target finds an input that breaks a promise.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let plan = parse(root, args)?;
    if !works("cargo", &["+nightly", "--version"]) {
        return Err(
            "nightly Rust is missing: rustup toolchain install nightly; `cargo xtask fuzz` runs without it"
                .into(),
        );
    }
    let program = build(root)?;
    let mut bad = Vec::new();
    for name in &plan.targets {
        let grown = target(root).join("fuzz-guided").join(name);
        fs::create_dir_all(&grown).map_err(|e| format!("{}: {e}", grown.display()))?;
        let artifacts = target(root).join("fuzz-guided").join(format!("finding-{name}-"));
        let mut fuzz = Command::new(&program);
        fuzz.arg(&grown).arg(root.join(CORPUS).join(name)).env("TIDESDB_FUZZ_TARGET", name).current_dir(root);
        fuzz.args([
            &format!("-max_total_time={}", plan.seconds),
            "-max_len=98304",
            "-timeout=20",
            "-rss_limit_mb=3072",
        ]);
        fuzz.args(["-print_final_stats=1", &format!("-artifact_prefix={}", artifacts.display())]);
        if shown(&mut fuzz).is_err() {
            println!("FINDING of {name}: cargo xtask fuzz --target {name} --input {}*", artifacts.display());
            bad.push(name.clone());
        }
        println!("guided {name}: {} inputs", files(&grown).count());
        if plan.keep {
            keep(root, &program, name, &grown)?;
        }
    }
    if bad.is_empty() { Ok(()) } else { Err(format!("findings: {}", bad.join(", "))) }
}

fn parse(root: &Path, args: &[String]) -> Result<Plan, String> {
    let folders = fs::read_dir(root.join(CORPUS)).map_err(|e| format!("{CORPUS}: {e}"))?;
    let mut all: Vec<String> =
        folders.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    all.sort();
    let mut plan = Plan { targets: all.clone(), seconds: 60, keep: false };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match (arg.as_str(), rest.as_slice().first()) {
            ("--keep", _) => plan.keep = true,
            ("--target", Some(name)) if all.contains(name) => plan.targets = vec![name.clone()],
            ("--target", _) => return Err(format!("--target is one of {}", all.join(" "))),
            ("--seconds", Some(n)) => plan.seconds = n.parse().map_err(|e| format!("--seconds {n}: {e}"))?,
            _ => return Err(format!("unknown or incomplete option `{arg}`")),
        }
        if arg != "--keep" {
            rest.next();
        }
    }
    Ok(plan)
}

/// Builds the program with the versions of the workspace.
fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo_fuzz = CARGO_FUZZ.install(root)?;
    let lock = root.join(CRATE).join("Cargo.lock");
    fs::copy(root.join("Cargo.lock"), &lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    let folder = target(root).join("fuzz-guided/build");
    let mut build = Command::new(&cargo_fuzz);
    build.args(["build", "guided", "--fuzz-dir", CRATE, "--target-dir"]).arg(&folder).current_dir(root);
    build.env("RUSTUP_TOOLCHAIN", "nightly").env_remove("CARGO").env_remove("RUSTC");
    shown(&mut build)?;
    Ok(folder.join(host()?).join("release/guided"))
}

/// Puts the shortest inputs that reach code beyond the corpus in the tree into it.
fn keep(root: &Path, program: &Path, name: &str, grown: &Path) -> Done {
    let (tree, merged) = (root.join(CORPUS).join(name), grown.with_extension("merged"));
    remove(&merged)?;
    let copied = fs::create_dir_all(&merged).and_then(|()| copy_all(&tree, &merged));
    copied.map_err(|e| format!("{}: {e}", merged.display()))?;
    let mut merge = Command::new(program);
    merge.arg("-merge=1").arg(&merged).arg(grown).env("TIDESDB_FUZZ_TARGET", name).current_dir(root);
    said(&mut merge)?;
    let mut new: Vec<(u64, PathBuf)> =
        files(&merged).filter(|(_, path)| !tree.join(base(path)).exists()).collect();
    new.retain(|(len, _)| *len <= KEPT_BYTES_MAX);
    new.sort();
    for (_, path) in new.iter().take(KEPT_MAX) {
        let kept = tree.join(format!("{FOUND}{:.12}", base(path)));
        fs::copy(path, &kept).map_err(|e| format!("{}: {e}", kept.display()))?;
    }
    println!(
        "guided {name}: {} of {} new inputs are kept in {CORPUS}/{name}",
        new.len().min(KEPT_MAX),
        new.len()
    );
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    files(from).try_for_each(|(_, path)| fs::copy(&path, to.join(base(&path))).map(drop))
}

/// The files of a folder with their lengths.
fn files(folder: &Path) -> impl Iterator<Item = (u64, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| {
        let entry = entry.ok()?;
        Some((entry.metadata().ok()?.len(), entry.path()))
    })
}

fn base(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_make_a_plan() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let plan = |line: &str| parse(&root, &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let all = plan("").expect("no option is needed");
        assert!(all.targets.contains(&"calls".to_owned()) && all.seconds == 60 && !all.keep);
        let one = plan("--keep --target log --seconds 5").expect("all of it is right");
        assert!(one.targets == ["log"] && one.seconds == 5 && one.keep);
        for line in ["--target", "--target x", "--seconds x", "--seconds", "--fast"] {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
