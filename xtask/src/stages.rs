//! The stages of a check run, the same locally and on a build server.
//!
//! A stage that cannot run prints `SKIPPED` and the reason; it is never skipped silently.

use crate::cargo::{Cargo, DEV, DIST, Done, host, shown, target, works};
use crate::{
    api, book, clients, ctests, gate, go, integrations, npm, package, platforms, sim, tidy, weight, wheel,
};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Stages in the order of a full run, the fast ones first.
pub(crate) const ALL: [&str; 40] = [
    "tidy",
    "lint",
    "msrv",
    "platforms",
    "test",
    "bench",
    "gate",
    "weight",
    "report",
    "docs",
    "book",
    "c",
    "c-dist",
    "go",
    "npm",
    "clients",
    "package",
    "loom",
    "crash",
    "faults",
    "sim",
    "kill",
    "beside",
    "reopen",
    "sweep",
    "model",
    "metamorphic",
    "isolation",
    "fuzz",
    "tmpfs",
    "descriptors",
    "families",
    "sectors",
    "mounts",
    "latency",
    "memory",
    "asan",
    "miri",
    "python",
    "integrations",
];

/// Stages that take many minutes or much network traffic and depend on few changes. They run only if named.
const ON_REQUEST: [&str; 3] = ["clients", "package", "integrations"];

/// What a build server runs after `tidy` and `test`. A full run has the other stages too, which take as long again and depend on fewer changes.
const BRIEF: [&str; 12] = [
    "lint",
    "platforms",
    "docs",
    "c",
    "go",
    "crash",
    "faults",
    "kill",
    "metamorphic",
    "sim",
    "descriptors",
    "memory",
];

/// Programs of the test kit with their arguments in a check run, which takes minutes in total: a line for each time that one runs. Without
/// arguments they run at full size.
pub(crate) const KIT: [(&str, &[&str]); 19] = [
    ("crash", &["--points", "2000"]),
    ("crash", &["--points", "400", "--disk", "macos"]),
    ("crash", &["--points", "400", "--disk", "windows"]),
    ("faults", &["--cases", "1000"]),
    ("kill", &["--kills", "90"]),
    ("beside", &["--refreshes", "300"]),
    ("reopen", &["--mib", "64"]),
    ("sweep", &["--stride", "7"]),
    ("model", &["--ops", "300000"]),
    ("metamorphic", &["--configs", "16"]),
    ("isolation", &["--transactions", "120000"]),
    ("fuzz", &["--seconds", "3"]),
    ("tmpfs", &["--rounds", "12", "--scarce", "10"]),
    ("descriptors", &[]),
    ("families", &["--sizes", "1000,4000", "--rows", "50000", "--idle", "2"]),
    ("sectors", &[]),
    ("mounts", &["--rounds", "3"]),
    ("latency", &["--commits", "2"]),
    ("memory", &["--mib", "600"]),
];

/// Packages that contain `unsafe`.
const LEAVES: [&str; 4] = ["tidesdb-sync", "tidesdb-io", "tidesdb-memtable", "tidesdb-cache"];

/// Packages with lock-free code, run under Miri and, in a check run, loom.
const LOCK_FREE: [&str; 3] = ["tidesdb-memtable", "tidesdb-cache", "tidesdb-sync"];

/// Packages with loom models.
const MODELLED: [&str; 4] = ["tidesdb-memtable", "tidesdb-cache", "tidesdb-sync", "tidesdb-engine"];

/// The peers need C++, and S3 needs TLS: they are built on request only.
const WORKSPACE: &str = "--workspace --exclude tidesdb-bench-peers --exclude tidesdb-s3";

/// Crates without doc tests. `doctest = false` in their manifests has no effect on a command that names the doc tests. Without the benchmark,
/// crates would have other features than in their tests, and would be built once more.
const UNDOCUMENTED: &str = "--exclude tidesdb-capi --exclude tidesdb-console";

/// What is tested on other systems than Linux: not the Python package, whose tests need an interpreter, nor the benchmark, the test kit and this program, which measure and crash by means of Linux.
const PORTABLE: &str = "--workspace --exclude tidesdb-bench-peers --exclude tidesdb-s3 --exclude tidesdb-python --exclude tidesdb-bench --exclude testkit --exclude xtask";

/// Result of a stage.
pub(crate) enum Outcome {
    Passed,
    /// The reason why it could not run here.
    Skipped(String),
}

/// Result of a stage, or the message of its failure.
pub(crate) type Staged = Result<Outcome, String>;

/// Runs the named stages. Without a name, runs all except those on request; `brief` stands for [`BRIEF`].
///
/// # Errors
/// The failure of the first stage that fails; an unknown name.
pub(crate) fn ci(root: &Path, names: &[String]) -> Done {
    let mut stages = Vec::new();
    for name in names {
        match ALL.iter().find(|stage| *stage == name) {
            Some(stage) => stages.push(*stage),
            None if name == "brief" => stages.extend(BRIEF),
            None => return Err(format!("unknown stage `{name}`; the stages are: brief {}", ALL.join(" "))),
        }
    }
    if names.is_empty() {
        stages.extend(ALL.iter().filter(|stage| !ON_REQUEST.contains(stage)));
    }
    run(root, &stages)
}

/// Runs stages in order, prints the time of each, and stops at the first failure.
///
/// # Errors
/// The message of the failed stage.
#[expect(clippy::disallowed_methods, reason = "a tool may look at the clock")]
pub(crate) fn run(root: &Path, names: &[&str]) -> Done {
    let mut summary = Vec::new();
    for name in names {
        eprintln!("== {name}");
        let begin = Instant::now();
        let outcome = stage(root, name);
        let took = begin.elapsed();
        let line = line(name, &outcome, took);
        eprintln!("== {line}");
        summary.push(line);
        if let Err(message) = outcome {
            return Err(format!("stage `{name}`: {message}"));
        }
    }
    println!("{}", summary.join("\n"));
    Ok(())
}

fn line(name: &str, outcome: &Staged, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    match outcome {
        Ok(Outcome::Passed) => format!("{name:<6} ok       {seconds:7.1} s"),
        Ok(Outcome::Skipped(why)) => format!("{name:<6} SKIPPED  {seconds:7.1} s  {why}"),
        Err(_) => format!("{name:<6} FAILED   {seconds:7.1} s"),
    }
}

fn stage(root: &Path, name: &str) -> Staged {
    let done = match name {
        "tidy" => tidy_stage(root),
        "lint" => lint(root),
        "unit" => Cargo::new(&format!("test {} --lib --bins", workspace(root))).run(root),
        "test" => test(root),
        // The programs alone, as users build them.
        "bench" => Cargo::new("test -p tidesdb-bench -p tidesdb-cli").run(root),
        "gate" => match gate::hindrance() {
            Some(why) => return Ok(Outcome::Skipped(why.to_owned())),
            None => gate::run(root, &[]),
        },
        "weight" => weight::run(root, &[]),
        "msrv" => return msrv(root),
        "platforms" => return platforms::stage(root),
        "c" | "c-dist" => match ctests::hindrance() {
            Some(why) => return Ok(Outcome::Skipped(why)),
            None => ctests::run(root, if name == "c" { DEV } else { DIST }),
        },
        "go" => return go::stage(root),
        "npm" => return npm::stage(root),
        "clients" => clients::run(root),
        "package" => return packages_and_crates(root),
        "python" => return wheel::stage(root),
        "integrations" => return integrations::stage(root),
        "report" => return report(root),
        "docs" => docs(root),
        "book" => return book(root),
        // The engine takes minutes to build for its models: `cargo xtask loom` explores them.
        "loom" => explore(root, &LOCK_FREE, &[]),
        "sim" => sim::stage(root),
        "asan" => return asan(root),
        "miri" => return miri(root),
        program => return testkit_stage(root, program),
    };
    done.map(|()| Outcome::Passed)
}

/// Runs all tests: the programs, then the doc tests, which Cargo runs with other targets only if it builds every example too. Clippy compiles
/// those examples that are no tests.
fn test(root: &Path) -> Done {
    // A full run gains nothing from incremental compilation, which costs a third of the build time.
    let run = |line: String| Cargo::new(&line).env("CARGO_INCREMENTAL", "0").run(root);
    run(tests(root, "--tests"))?;
    run(tests(root, &format!("--doc {UNDOCUMENTED}")))
}

fn tidy_stage(root: &Path) -> Done {
    match tidy::run(root, false) {
        ExitCode::SUCCESS => Ok(()),
        _ => Err("project rules are broken, see above".to_owned()),
    }
}

fn lint(root: &Path) -> Done {
    Cargo::new("fmt --all --check").run(root)?;
    Cargo::new(&format!(
        "clippy {} --all-targets --features tidesdb-typed/json,tidesdb-cli/top,tidesdb-cli/report -- -D warnings",
        workspace(root)
    ))
    .run(root)?;
    for features in ["--no-default-features", "--features lz4-c"] {
        Cargo::new(&format!("clippy --package tidesdb-engine {features} --lib -- -D warnings")).run(root)?;
    }
    Ok(())
}

/// Checks everything that is published with the oldest Rust that the manifest promises. Clippy knows only what is missing from its library.
fn msrv(root: &Path) -> Staged {
    let manifest =
        std::fs::read_to_string(root.join("Cargo.toml")).map_err(|e| format!("Cargo.toml: {e}"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.ok_or("Cargo.toml has no rust-version")?.trim_matches('"');
    let toolchain = format!("+{version}");
    if !works("cargo", &[&toolchain, "--version"]) {
        return Ok(Outcome::Skipped(format!(
            "no Rust {version}: rustup toolchain install {version} --profile minimal"
        )));
    }
    let check =
        format!("{toolchain} check {} --exclude testkit --exclude xtask --all-features", workspace(root));
    Cargo::new(&check).flags(root, "RUSTFLAGS", "", "msrv").run(root)?;
    Ok(Outcome::Passed)
}

/// Opens the benchmark report, and a page of `tidesdb report`, in a browser.
fn report(root: &Path) -> Staged {
    let named = std::env::var("CHROMIUM").unwrap_or_default();
    let names = [named.as_str(), "chromium", "chromium-browser", "google-chrome"];
    if !names.iter().any(|name| !name.is_empty() && works(name, &["--version"])) {
        return Ok(Outcome::Skipped(
            "no Chromium: apt-get install chromium, or name it in CHROMIUM".to_owned(),
        ));
    }
    Cargo::new("test -p tidesdb-bench --lib -- --ignored report::browser").run(root)?;
    Cargo::new("test -p tidesdb-cli --features report --test all -- --ignored browser::").run(root)?;
    Ok(Outcome::Passed)
}

/// Builds the packages, and the crates as the registry would build them; tests what a build with fewer features lacks.
fn packages_and_crates(root: &Path) -> Staged {
    // Built alone, this crate has the default features of the engine only.
    Cargo::new("test -p tidesdb-objects").run(root)?;
    package::build(root, false)?;
    if !works("cargo", &["search", "--limit", "1", "libc"]) {
        return Ok(Outcome::Skipped(
            "packages are made; the registry of crates cannot be reached".to_owned(),
        ));
    }
    Cargo::new("publish --workspace --dry-run --allow-dirty").run(root)?;
    Ok(Outcome::Passed)
}

/// Builds the book. Its program takes minutes to compile, so a check run does not install it.
fn book(root: &Path) -> Staged {
    match book::hindrance(root) {
        Some(why) => Ok(Outcome::Skipped(why)),
        None => book::run(root, &[]).map(|()| Outcome::Passed),
    }
}

/// Builds the documentation, and checks that the listing of the public API is that of the documentation.
fn docs(root: &Path) -> Done {
    document(root)?;
    api::check(root)
}

/// Writes the listing of the public API.
///
/// # Errors
/// If the documentation cannot be built.
pub(crate) fn api(root: &Path) -> Done {
    document(root)?;
    api::write(root)
}

fn document(root: &Path) -> Done {
    let docs = Cargo::new(&format!("doc {} --no-deps --features tidesdb-typed/json", workspace(root)));
    docs.env("RUSTDOCFLAGS", "-D warnings").run(root)
}

/// Explores all loom models; `args` may contain the name of one.
///
/// # Errors
/// If a model fails.
pub(crate) fn loom(root: &Path, args: &[String]) -> Done {
    explore(root, &MODELLED, args)
}

/// Explores the loom models of `names`.
fn explore(root: &Path, names: &[&str], args: &[String]) -> Done {
    let packages = packages(root, names, |dir| dir.join("tests/loom.rs").is_file());
    if packages.is_empty() {
        return Err("no crate has tests/loom.rs".to_owned());
    }
    let loom = Cargo::new(&format!("test --release {packages} --test loom --")).args(args);
    let loom = loom.env("LOOM_MAX_PREEMPTIONS", "2");
    loom.flags(root, "RUSTFLAGS", "--cfg loom", "loom").run(root)
}

fn asan(root: &Path) -> Staged {
    if !works("cargo", &["+nightly", "--version"]) {
        return Ok(Outcome::Skipped("no nightly Rust: rustup toolchain install nightly".to_owned()));
    }
    let host = host()?;
    let packages = packages(root, &LEAVES, |_| true);
    let test = Cargo::new(&format!("+nightly test {packages} --lib --tests --target {host}"));
    // The epoch collector frees lazily, so memory not freed at the end is not a leak.
    let test = test.env("ASAN_OPTIONS", "detect_leaks=0");
    test.flags(root, "RUSTFLAGS", "-Zsanitizer=address", "asan").run(root)?;
    Ok(Outcome::Passed)
}

fn miri(root: &Path) -> Staged {
    if !works("cargo", &["+nightly", "miri", "--version"]) {
        return Ok(Outcome::Skipped("no Miri: rustup +nightly component add miri rust-src".to_owned()));
    }
    // The unsafe code of `tidesdb-io` maps files, which Miri does not support; the address sanitizer covers it.
    let packages = packages(root, &LOCK_FREE, |_| true);
    // The lists of crossbeam-epoch access a struct through a pointer to its field, which only the newer of
    // Miri's two models allows.
    let flags = "-Zmiri-disable-isolation -Zmiri-ignore-leaks -Zmiri-tree-borrows";
    let test = Cargo::new(&format!("+nightly miri test {packages} --lib"));
    test.flags(root, "MIRIFLAGS", flags, "miri").run(root)?;
    Ok(Outcome::Passed)
}

/// Runs the speed example with `args`.
///
/// # Errors
/// If it cannot be built or fails.
pub(crate) fn bench(root: &Path, args: &[String]) -> Done {
    Cargo::new(&format!("run --profile {DIST} --package tidesdb-engine --example speed --"))
        .args(args)
        .run(root)
}

/// Runs a program of the test kit with `args`.
///
/// # Errors
/// If there is no such program, or it fails.
pub(crate) fn testkit(root: &Path, program: &str, args: &[String]) -> Done {
    if !has_program(root, program) {
        return Err(format!("crates/testkit has no program `{program}`"));
    }
    // A fuzzer needs assertions and overflow checks.
    let profile = if program == "fuzz" { "dev" } else { "quick" };
    Cargo::new(&format!("run --profile {profile} --package testkit -- {program}")).args(args).run(root)
}

fn testkit_stage(root: &Path, program: &str) -> Staged {
    if !has_program(root, program) {
        return Ok(Outcome::Skipped(format!("crates/testkit has no program `{program}`")));
    }
    if !is_kit(program) {
        return Err(format!("`{program}` has no arguments for a check run"));
    }
    // As the tests have built it: with assertions, and without compiling the engine once more.
    Cargo::new(&tests(root, "--tests --no-run")).env("CARGO_INCREMENTAL", "0").run(root)?;
    let kit = target(root).join("debug/testkit");
    for (_, args) in KIT.iter().filter(|(name, _)| *name == program) {
        shown(Command::new(&kit).arg(program).args(*args).current_dir(root))?;
    }
    Ok(Outcome::Passed)
}

/// Returns whether `command` is a program of the test kit.
pub(crate) fn is_kit(command: &str) -> bool {
    KIT.iter().any(|(name, _)| *name == command)
}

/// Returns whether the test kit has this program.
pub(crate) fn has_program(root: &Path, program: &str) -> bool {
    root.join(format!("crates/testkit/src/runners/{program}.rs")).is_file()
}

/// Returns `-p` for each of these crates that exists and is `wanted`.
fn packages(root: &Path, names: &[&str], wanted: impl Fn(&Path) -> bool) -> String {
    let here = |name: &&&str| {
        let dir = root.join("crates").join(folder(name));
        dir.join("Cargo.toml").is_file() && wanted(&dir)
    };
    names.iter().filter(here).map(|name| format!("-p {name} ")).collect::<String>().trim().to_owned()
}

/// Returns the folder of a package: that of the engine has the name of its library.
fn folder(package: &str) -> &str {
    if package == "tidesdb-engine" { "tidesdb" } else { package }
}

/// Returns the command of Cargo that runs the tests of these `targets`.
fn tests(root: &Path, targets: &str) -> String {
    format!(
        "test {} --features tidesdb-typed/json,tidesdb-cli/top,tidesdb-cli/report {targets}",
        workspace(root)
    )
}

fn workspace(root: &Path) -> &'static str {
    if !cfg!(target_os = "linux") {
        return PORTABLE;
    }
    if root.join("crates/tidesdb-bench-peers").is_dir() { WORKSPACE } else { "--workspace" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_stage_is_refused() {
        let error = ci(Path::new("nowhere"), &["nonsense".to_owned()]).expect_err("there is no such stage");
        assert!(error.contains("nonsense") && error.contains("docs"));
    }

    /// The engine was left out silently when its package got another name than its folder.
    #[test]
    fn all_packages_with_models_are_explored() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = packages(&root, &MODELLED, |dir| dir.join("tests/loom.rs").is_file());
        assert_eq!(found.split(' ').filter(|word| *word != "-p").collect::<Vec<_>>(), MODELLED);
        let leaves = packages(&root, &LEAVES, |_| true);
        assert_eq!(leaves.matches("-p ").count(), LEAVES.len());
    }

    #[test]
    fn a_skipped_stage_says_so() {
        let outcome = testkit_stage(Path::new("nowhere"), "crash");
        let text = line("crash", &outcome, Duration::from_millis(1500));
        assert!(
            text.contains("SKIPPED") && text.contains("1.5 s") && text.contains("crates/testkit"),
            "{text}"
        );
    }
}
