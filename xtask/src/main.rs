//! The one door of the repository: `cargo xtask`.
//!
//! Every check that runs anywhere runs from here, so that a machine and a person run the same commands. The
//! programs are written with the standard library alone: they compile in seconds and need no network.

mod lexer;
mod source;
mod tree;
mod tidy;
mod cargo;
mod gate;
mod install;
mod ctests;
mod inject;
mod licenses;
mod trial;
mod package;
mod npm;
mod clients;
mod stages;
mod soak;

use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  quick               before each commit: tidy, format, clippy, unit tests
  test                every test, doc tests and examples included; those of the benchmark are in `ci bench`
  tidy [--stats]      the house rules; with the figures of the house
  ci [STAGE...]       what the build server runs; without a stage all but `clients` and `package`; `extra` leaves out `test`, too
                      stages: tidy lint test bench gate report docs c npm clients package loom crash faults order
                      kill sweep model isolation invariants fuzz tmpfs races descriptors sectors latency asan miri;
                      `report` opens the benchmark's report in Chromium, `c` tries the C library (needs a C
                      compiler and pkg-config), `npm` and `clients` programs in other languages on it, `package`
                      makes packages and builds the crates as a registry would
  install --prefix DIR [--destdir DIR] [--libdir DIR] [--debug-files]
                      the C library with its headers, for pkg-config and CMake; --debug-files keeps what
                      debuggers need in .debug beside the libraries
  package [--debug-files] [--try DIR]
                      packages for Debian, a tar.gz and checksums, into target/package; --try installs them
                      in a clean system in DIR (needs root; an empty DIR needs debootstrap)
  npm [SECONDS [SEED]]
                      the npm package tidesdb on the C library: a tour, then random transactions
  clients             the C library from Go and Java, and under the Rust binding with its own tests
  loom [NAME]         all interleavings of the lock-free parts; NAME filters the models
  asan                the leaf crates under the address sanitizer (needs nightly Rust)
  miri                the lock-free leaf crates under Miri (needs nightly Rust and its component)
  bench [ARGS]        the speed example of the engine
  bench-gate [--update]
                      instructions per operation against xtask/instructions.txt (needs valgrind)
  crash|faults|order|kill|sweep|model|isolation|invariants|fuzz|tmpfs [ARGS]
  races|descriptors|sectors|latency [ARGS]
                      the programs of crates/testkit, at full size
  inject [--seed N] [--limit N] [--stride N] [--only CALL] [--jobs N] [--prefix DIR]
                      a C program of which one system call fails, each in turn; --limit caps the N-th call
                      that fails, --prefix takes an installed library (needs strace)
  soak --hours H [--seed N] [--only NAME]
                      those in turn, `inject` too, without tmpfs (it needs root) and latency, each round with
                      the next seed, until the time is over or one fails
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) =
        args.split_first().map_or(("help", &[][..]), |(first, rest)| (first.as_str(), rest));
    let root = root();
    let done = match command {
        "tidy" => return tidy::run(&root, rest.iter().any(|arg| arg == "--stats")),
        "quick" => stages::run(&root, &["tidy", "lint", "unit"]),
        "test" => stages::run(&root, &["test"]),
        "ci" => stages::ci(&root, rest),
        "loom" => stages::loom(&root, rest),
        "asan" | "miri" => stages::run(&root, &[command]),
        "bench" => stages::bench(&root, rest),
        "bench-gate" => gate::run(&root, rest),
        "install" => install::run(&root, rest),
        "package" => package::run(&root, rest),
        "npm" => npm::run(&root, rest),
        "clients" => clients::run(&root),
        command if stages::is_kit(command) => stages::testkit(&root, command, rest),
        "inject" => inject::run(&root, rest),
        "soak" => soak::run(&root, rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("no command `{other}`\n\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository: the folder above this package, as `cargo run` names it, else as it was built.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = PathBuf::from(here);
    here.parent().map_or(here.clone(), PathBuf::from)
}
