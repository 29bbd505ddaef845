//! `cargo xtask go`: the Go module in `bindings/go`: tests it with the installed C library, and measures it beside Pebble.

use crate::cargo::{DEV, Done, said, shown, target, works};
use crate::install::{self, Shape};
use crate::stages::{Outcome, Staged};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the module.
const MODULE: &str = "bindings/go";
/// The folder of the comparison, a module of its own, so that the other one has no dependencies.
const BENCH: &str = "bindings/go/bench";
/// The oldest Go that compiles the module: major and minor version.
const OLDEST: (u32, u32) = (1, 25);

/// What to do.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    /// An installed library.
    prefix: Option<PathBuf>,
    /// How many seeds the model test uses.
    seeds: Option<u32>,
    /// How many calls the memory test makes of each function.
    rounds: Option<u32>,
    bench: bool,
    /// Arguments after `--`, for the benchmark or the tests.
    rest: Vec<String>,
}

/// Runs `cargo xtask go` with `args`.
///
/// # Errors
/// Unknown arguments; the first step that fails; a tool that is missing.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let plan = parse(args)?;
    if let Some(why) = hindrance() {
        return Err(why);
    }
    let go = Go::new(root, plan.prefix, &Shape::default())?;
    if plan.bench {
        return shown(go.command(BENCH).args(["run", "."]).args(&plan.rest));
    }
    go.test(&plan.rest, plan.seeds, plan.rounds)
}

/// The stage of a check run.
///
/// # Errors
/// The first step that fails.
pub(crate) fn stage(root: &Path) -> Staged {
    if let Some(why) = hindrance() {
        return Ok(Outcome::Skipped(why));
    }
    Go::new(root, None, &Shape { profile: DEV, ..Shape::default() })?.test(&[], None, None)?;
    Ok(Outcome::Passed)
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or(format!("{arg} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{arg} needs a number"));
        match arg.as_str() {
            "--prefix" => plan.prefix = Some(PathBuf::from(value()?)),
            "--seeds" => plan.seeds = Some(number(value()?)?),
            "--rounds" => plan.rounds = Some(number(value()?)?),
            "--bench" => plan.bench = true,
            "--" => plan.rest = args.by_ref().cloned().collect(),
            other => {
                return Err(format!(
                    "unknown argument `{other}`; usage: cargo xtask go [--prefix DIR] [--seeds N] [--rounds N] [--bench] [-- ARGS]"
                ));
            }
        }
    }
    Ok(plan)
}

/// Returns the reason why Go programs cannot be built here, if there is one.
fn hindrance() -> Option<String> {
    let oldest = format!("Go {}.{}", OLDEST.0, OLDEST.1);
    let Ok(printed) = said(Command::new("go").args(["env", "GOVERSION"])) else {
        return Some(format!("no Go: install {oldest} or newer"));
    };
    if version(&printed).is_none_or(|version| version < OLDEST) {
        return Some(format!("{} is too old: install {oldest} or newer", printed.trim()));
    }
    [("pkg-config", "--version"), ("cc", "--version")]
        .iter()
        .find_map(|(tool, arg)| (!works(tool, &[arg])).then(|| format!("no {tool}: apt-get install {tool}")))
}

/// Returns the major and minor version in what `go env GOVERSION` prints.
fn version(printed: &str) -> Option<(u32, u32)> {
    let mut numbers = printed.trim().strip_prefix("go")?.split(['.', '-', 'r', 'b']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Go, with the library.
struct Go {
    root: PathBuf,
    prefix: PathBuf,
}

impl Go {
    /// Installs the library, unless there is one.
    fn new(root: &Path, prefix: Option<PathBuf>, shape: &Shape) -> Result<Go, String> {
        let prefix = match prefix {
            Some(prefix) => prefix,
            None => {
                let prefix = target(root).join("go/prefix");
                install::install(root, &prefix, shape)?;
                prefix
            }
        };
        let prefix = std::path::absolute(&prefix).map_err(|e| format!("{}: {e}", prefix.display()))?;
        if !prefix.join("lib/pkgconfig/tidesdb.pc").is_file() {
            return Err(format!("{} has no lib/pkgconfig/tidesdb.pc", prefix.display()));
        }
        Ok(Go { root: root.to_owned(), prefix })
    }

    /// Returns a command of Go in a module, whose programs find the library.
    fn command(&self, module: &str) -> Command {
        let mut command = Command::new("go");
        install::found_by(&mut command, &self.prefix);
        command.env("CGO_ENABLED", "1").env("GOWORK", "off").current_dir(self.root.join(module));
        command
    }

    /// Checks the format, runs vet, all tests, and the shorter ones again with the race detector and with the strict check of pointers that go
    /// to C.
    fn test(&self, args: &[String], seeds: Option<u32>, rounds: Option<u32>) -> Done {
        let unformatted = said(Command::new("gofmt").args(["-l", "."]).current_dir(self.root.join(MODULE)))?;
        if !unformatted.is_empty() {
            return Err(format!("gofmt -w would change, in {MODULE}:\n{unformatted}"));
        }
        shown(self.command(MODULE).args(["vet", "./..."]))?;
        let mut tests = self.command(MODULE);
        for (name, value) in [("TIDESDB_SEEDS", seeds), ("TIDESDB_ROUNDS", rounds)] {
            if let Some(value) = value {
                tests.env(name, value.to_string());
            }
        }
        shown(tests.args(["test", "-timeout", "4h"]).args(args).arg("./..."))?;
        shown(self.command(MODULE).args(["test", "-race", "-short"]).args(args).arg("./..."))?;
        let mut strict = self.command(MODULE);
        strict.env("GOEXPERIMENT", "cgocheck2");
        shown(strict.args(["test", "-short"]).args(args).arg("./..."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Result<Plan, String> {
        parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        assert_eq!(plan(&[]), Ok(Plan::default()));
        let all = plan(&["--seeds", "9", "--rounds", "7", "--prefix", "p", "--bench", "--", "-rows", "5"]);
        let expected = Plan {
            prefix: Some(PathBuf::from("p")),
            seeds: Some(9),
            rounds: Some(7),
            bench: true,
            rest: vec!["-rows".to_owned(), "5".to_owned()],
        };
        assert_eq!(all, Ok(expected));
        assert!(
            plan(&["--seeds"]).is_err() && plan(&["--seeds", "x"]).is_err() && plan(&["--other"]).is_err()
        );
    }

    #[test]
    fn versions_of_go() {
        assert_eq!(version("go1.26.8\n"), Some((1, 26)));
        assert_eq!(version("go1.27rc1"), Some((1, 27)));
        assert_eq!(version("devel"), None);
        assert!(version("go1.9").is_some_and(|version| version < OLDEST));
    }
}
