//! `cargo xtask wheel`: the Python package in `bindings/python`: builds it with maturin, tests it, and measures it beside other stores.
//!
//! Tools of Python are installed into environments of their own below the target folder. `PYTHON` names another interpreter than `python3`.
//!
//! A wheel for release (`--release`, and any for another system) has the program `tidesdb` too, and runs on older systems. The program is a file
//! beside the extension module: it starts in milliseconds, and handles signals, the terminal and its exit codes itself, which it could not as a
//! function within an interpreter. To build it takes more processor time than the rest, and the linker is a download of hundreds of megabytes.

use crate::cargo::{DIST, Done, host, said, shown, target, works};
use crate::install::{copy, read, remove, write};
use crate::platforms::Environment;
use crate::single::{Single, features};
use crate::stages::{Outcome, Staged};
use crate::{licenses, platforms};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the package.
const PACKAGE: &str = "bindings/python";
/// The profile of a wheel that is tested.
const QUICK: &str = "quick";
/// That of a wheel for this machine, which somebody waits for: it takes a fifth less time than the one for releases and figures.
const PLAIN: &str = "release";
/// What builds a wheel.
const BUILD: &[&str] = &["maturin>=1.7,<2"];
/// The same with a linker that makes it run on older systems, for release.
const RELEASE: &[&str] = &["maturin>=1.7,<2", "ziglang"];
/// What tests one.
const TEST: &[&str] = &["pytest", "pytest-timeout", "hypothesis", "mypy"];
/// The stores that it is compared with.
const PEERS: &[&str] = &["rocksdict", "lmdb", "plyvel"];
/// The oldest C library that a wheel for release needs.
const GLIBC: &str = "2.28";
/// The oldest Python, as a tuple of Python.
const OLDEST: &str = "(3, 11)";

/// Set for the tests of a wheel for release: they then fail if the program is missing.
const HAS_PROGRAM: &str = "TIDESDB_WHEEL_HAS_PROGRAM";

/// Which wheel to build.
#[derive(Clone, Copy)]
pub(crate) struct Wheel<'a> {
    /// The platform; `None` = this machine.
    pub other: Option<&'a str>,
    pub profile: &'a str,
    /// With the program, and for older systems.
    pub release: bool,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    /// The name of a platform to build for.
    target: Option<String>,
    profile: Option<String>,
    release: bool,
    test: bool,
    stress: Option<u32>,
    bench: bool,
    /// Arguments after `--`, for pytest or the benchmark.
    rest: Vec<String>,
}

/// Runs `cargo xtask wheel` with `args`.
///
/// # Errors
/// Unknown arguments; the first step that fails; a tool that is missing.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let plan = parse(args)?;
    if let Some(why) = hindrance() {
        return Err(why);
    }
    let release = plan.release || plan.target.is_some();
    let default = if plan.test || plan.stress.is_some() {
        QUICK
    } else if release || plan.bench {
        DIST
    } else {
        PLAIN
    };
    let profile = plan.profile.as_deref().unwrap_or(default);
    let wheel = build(root, Wheel { other: plan.target.as_deref(), profile, release })?;
    println!("{}", wheel.display());
    if plan.test {
        test(root, &wheel, release, &plan.rest)?;
    }
    if let Some(minutes) = plan.stress {
        let python = environment(root, "test", TEST)?;
        install(&python, &wheel)?;
        shown(python_in(root, &python).arg("tests/stress.py").args(["--minutes", &minutes.to_string()]))?;
    }
    if plan.bench {
        let python = environment(root, "bench", PEERS)?;
        install(&python, &wheel)?;
        shown(python_in(root, &python).arg("bench/bench.py").args(&plan.rest))?;
    }
    Ok(())
}

/// The stage of a check run: builds the wheel with the profile of the test programs and tests it.
///
/// # Errors
/// The first step that fails.
pub(crate) fn stage(root: &Path) -> Staged {
    if let Some(why) = hindrance() {
        return Ok(Outcome::Skipped(why));
    }
    for (name, packages) in [("build", BUILD), ("test", TEST)] {
        if let Err(error) = environment(root, name, packages) {
            let last = error.lines().last().unwrap_or_default();
            return Ok(Outcome::Skipped(format!("pip cannot fetch what is needed: {last}")));
        }
    }
    let wheel = build(root, Wheel { other: None, profile: QUICK, release: false })?;
    test(root, &wheel, false, &[])?;
    Ok(Outcome::Passed)
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--target" => plan.target = Some(value()?),
            "--profile" => plan.profile = Some(value()?),
            "--release" => plan.release = true,
            "--test" => plan.test = true,
            "--stress" => {
                let minutes = value()?.parse().map_err(|_| "--stress needs a number of minutes")?;
                plan.stress = Some(minutes);
            }
            "--bench" => plan.bench = true,
            "--" => plan.rest = args.by_ref().cloned().collect(),
            other => {
                return Err(format!(
                    "unknown argument `{other}`; usage: cargo xtask wheel [--release] [--target arm64|windows] [--profile NAME] \
                     [--test] [--stress MINUTES] [--bench] [-- ARGS]"
                ));
            }
        }
    }
    if plan.target.is_some() && (plan.test || plan.stress.is_some() || plan.bench) {
        return Err("a wheel for another system can only be built here".to_owned());
    }
    Ok(plan)
}

/// Returns the interpreter that makes the environments.
fn interpreter() -> String {
    std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Returns the reason why there can be no environment of Python, if there is one.
fn hindrance() -> Option<String> {
    let python = interpreter();
    let new_enough = format!("import sys; sys.exit(sys.version_info < {OLDEST})");
    if !works(&python, &["-c", &new_enough]) {
        return Some(format!("no Python {OLDEST} or newer as {python}: name one in PYTHON"));
    }
    let venv = works(&python, &["-c", "import venv, ensurepip"]);
    (!venv).then(|| format!("{python} makes no environments: apt-get install python3-venv"))
}

/// Returns the Python of the environment `name`, in which `packages` are installed.
fn environment(root: &Path, name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = std::path::absolute(target(root).join("python").join(name)).map_err(|e| e.to_string())?;
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let (done, wanted) = (folder.join("packages"), packages.join("\n"));
    if works(&python.to_string_lossy(), &["-c", ""]) && read(&done).is_ok_and(|had| had == wanted) {
        return Ok(python);
    }
    eprintln!("$ pip install {}", packages.join(" "));
    remove(&folder)?;
    said(Command::new(interpreter()).args(["-m", "venv"]).arg(&folder))?;
    said(pip_install(&python).args(packages))?;
    write(&done, &wanted)?;
    Ok(python)
}

/// Builds a wheel and returns its path.
///
/// # Errors
/// If a tool is missing, or the build fails.
pub(crate) fn build(root: &Path, Wheel { other, profile, release }: Wheel<'_>) -> Result<PathBuf, String> {
    let older = release && profile == DIST && cfg!(target_os = "linux") && other != Some("windows");
    let python = match older {
        true => environment(root, "release", RELEASE)?,
        false => environment(root, "build", BUILD)?,
    };
    let (triple, env) = match other {
        Some(name) => platforms::prepare(root, name)?,
        None => (String::new(), Vec::new()),
    };
    let package = root.join(PACKAGE);
    let data = package.join("tidesdb.data");
    remove(&data.join("scripts"))?;
    std::fs::create_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?; // maturin wants it
    if release {
        program(root, &triple, profile, older, &env)?;
    }
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root.join(license), &package.join(license), 0o644)?;
    }
    let crates: &[&str] = if release { &["tidesdb-python", "tidesdb-cli"] } else { &["tidesdb-python"] };
    write(&package.join("LICENSE-THIRD-PARTY"), &licenses::text(root, crates)?)?;
    let out = target(root).join("wheels").join(if triple.is_empty() { "here" } else { &triple });
    remove(&out)?;
    let mut maturin = Command::new(&python);
    maturin.args(["-m", "maturin", "build", "--locked", "--profile", profile, "--out"]).arg(&out);
    if !triple.is_empty() {
        maturin.args(["--target", &triple]);
    }
    if older {
        maturin.args(["--zig", "--compatibility", &format!("manylinux_{}", GLIBC.replace('.', "_"))]);
    }
    // The linker of Zig is a module of the environment: maturin finds it through the path.
    let bin = python.parent().map(Path::to_path_buf).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)));
    maturin.env("PATH", path.map_err(|e| e.to_string())?).current_dir(&package);
    if !older {
        maturin.envs(env); // otherwise Zig compiles and links: the compiler of this system would ask for its own, newer C library
    }
    maturin.env("CARGO_TARGET_DIR", std::path::absolute(target(root)).map_err(|e| e.to_string())?);
    shown(&mut maturin)?;
    let files = std::fs::read_dir(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let mut wheels = files.filter_map(Result::ok).map(|entry| entry.path());
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|end| end == "whl");
    wheels.find(is_wheel).ok_or(format!("maturin left no wheel in {}", out.display()))
}

/// Builds the program `tidesdb` and puts it where maturin takes the files of the wheel from. With `alone` it needs no library of the system,
/// so that it runs on every Linux.
fn program(root: &Path, triple: &str, profile: &str, alone: bool, env: &Environment) -> Done {
    let host = if alone && triple.is_empty() { host()? } else { triple.to_owned() };
    let single = Single { triple: &host, env, profile, features: features!(), alone };
    single.build(root, &root.join(PACKAGE).join("tidesdb.data/scripts").join(single.file()))
}

/// Installs the wheel into an environment.
fn install(python: &Path, wheel: &Path) -> Done {
    said(pip_install(python).args(["--no-deps", "--force-reinstall"]).arg(wheel)).map(drop)
}

/// Returns the command that installs into the environment of `python`, without what to install.
fn pip_install(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// Tests the wheel as it is installed; one for release with its program.
///
/// # Errors
/// If the packages for the tests cannot be installed, or a test fails.
pub(crate) fn test(root: &Path, wheel: &Path, release: bool, args: &[String]) -> Done {
    let python = environment(root, "test", TEST)?;
    install(&python, wheel)?;
    let mut pytest = python_in(root, &python);
    if release {
        pytest.env(HAS_PROGRAM, "1");
    }
    shown(pytest.args(["-m", "pytest", "-q"]).args(args))
}

/// Returns a command for Python in the folder of the package.
fn python_in(root: &Path, python: &Path) -> Command {
    let mut command = Command::new(python);
    command.current_dir(root.join(PACKAGE)).env("PYTHONFAULTHANDLER", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read() {
        let stress = Plan { stress: Some(10), test: true, ..Plan::default() };
        assert_eq!(plan("--test --stress 10"), Ok(stress));
        assert_eq!(plan("--release"), Ok(Plan { release: true, ..Plan::default() }));
        let rest = Plan { bench: true, rest: vec!["--rows".to_owned(), "9".to_owned()], ..Plan::default() };
        assert_eq!(plan("--bench -- --rows 9"), Ok(rest));
        for wrong in ["--stress soon", "--target", "--fast", "--target arm64 --test"] {
            assert!(plan(wrong).is_err(), "{wrong}");
        }
    }
}
