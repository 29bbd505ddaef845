//! The benchmark as a program of its own.

use std::env::consts::{EXE_SUFFIX, OS};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidesdb_io::program;

use super::BENCH;
use crate::failure::{Failure, Outcome};

/// Becomes the program, or runs it and ends with its exit code. Returns only if that is not possible.
pub(super) fn run(args: &[OsString], json: bool) -> Outcome {
    let beside = beside();
    let Some(path) = find(BENCH, beside.as_deref()) else {
        let beside = beside.map_or_else(String::new, |dir| format!("{} or ", dir.display()));
        let what =
            format!("the benchmark is a program of its own: there is no tidesdb-bench in {beside}PATH");
        return Err(Failure::usage(what).next(way_to_it(OS)));
    };
    let mut command = Command::new(&path);
    command.args(args).args(json.then_some("--json"));
    match program::become_another(&mut command, "tidesdb bench") {
        Ok(code) => std::process::exit(code),
        Err(e) => Err(Failure::failed(format!("cannot start {}: {e}", path.display()))),
    }
}

/// Returns what the program says of its arguments, if it is there.
#[cfg(feature = "pages")]
pub(super) fn described() -> Option<String> {
    let path = find(BENCH, beside().as_deref())?;
    String::from_utf8(Command::new(path).arg("describe").output().ok()?.stdout).ok()
}

/// Returns where to get the benchmark on this system.
fn way_to_it(system: &str) -> &'static str {
    match system {
        "linux" => {
            "the Debian package has it; from source: `cargo run --profile dist -p tidesdb-bench -- quick`, or \
             `cargo install --profile dist --path crates/tidesdb-bench`"
        }
        _ => "it measures on Linux only: docs/testing/bench.md; everything else of this program works here",
    }
}

/// Returns the directory of this program.
fn beside() -> Option<PathBuf> {
    Some(tidesdb_console::program::file().ok()?.parent()?.to_owned())
}

/// Returns the path of a program: in `beside`, otherwise in the first directory of `PATH` that has it.
fn find(name: &str, beside: Option<&Path>) -> Option<PathBuf> {
    let list = std::env::var_os("PATH").unwrap_or_default();
    let places = beside.map(Path::to_owned).into_iter().chain(std::env::split_paths(&list));
    let file = format!("tidesdb-{name}{EXE_SUFFIX}");
    places.map(|place| place.join(&file)).find(|path| program::is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_the_benchmark_is_told_so() {
        assert!(way_to_it("linux").contains("cargo install"));
        for system in ["windows", "macos", "freebsd"] {
            assert!(way_to_it(system).contains("on Linux only"), "{system}");
        }
    }
}
