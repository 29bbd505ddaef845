//! The command line tool of the repository: `cargo xtask`.
//!
//! Every check runs from here, so that build servers and people run the same commands. The tool uses the
//! standard library only: it compiles in seconds and needs no network.

mod lexer;
mod source;
mod tree;
mod pages;
mod tidy;
mod cargo;
mod api;
mod gate;
mod install;
mod tools;
mod ctests;
mod inject;
mod licenses;
mod trial;
mod package;
mod s3;
mod npm;
mod clients;
mod wine;
mod dll;
mod platforms;
mod single;
mod weight;
mod wheel;
mod go;
mod guided;
mod sim;
mod book;
mod integrations;
mod stages;
mod soak;
mod release;

use cargo::Done;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  quick               before each commit: tidy, format, clippy, unit tests
  test                all tests, including doc tests and the examples that check themselves
  tidy [--stats]      the project rules; --stats also prints code statistics
  ci [STAGE...]       the stages of a check run; default: all but `clients`, `package` and `integrations`, in about three
                      quarters of an hour; `brief` are those of the build server besides `tidy` and `test`
                      stages: tidy lint msrv platforms test bench gate weight report docs book c c-dist go npm clients package loom
                      crash faults sim kill beside reopen sweep model metamorphic isolation fuzz tmpfs descriptors families sectors
                      mounts latency memory asan miri python integrations;
                      `report` opens the benchmark report and that of a database in Chromium, `c` tests the
                      C library (needs a C compiler and pkg-config) as the tests are built, `c-dist`
                      as it is installed, `go`, `npm` and `clients` test it from other languages, `package` builds
                      packages, and the crates as the registry would
  install --prefix DIR [--destdir DIR] [--libdir DIR] [--target TARGET] [--debug-files] [--s3]
                      installs the C library with its headers, for pkg-config and CMake; --target installs it
                      for another system; --debug-files keeps debug information in .debug next to the libraries;
                      --s3 installs the library for object stores in S3, too
  s3 [--only PART] [--mib N] [--kills N] [FILTER]
                      tests object stores in S3 with servers on this machine: s3s-fs, which it installs, and moto if it is
                      there (pip install 'moto[server]'); PART is one of: s3s moto c program lint; default: all, with a load of 1024 MiB
                      and 50 kills
  dll                 tests the C library for Windows with C programs under Wine (needs gcc-mingw-w64 and wine64)
  package [--debug-files] [--try DIR]
                      builds Debian packages, a tar.gz and checksums in target/package; --try installs the
                      packages in a clean system in DIR (needs root; an empty DIR needs debootstrap)
  release [--only PART]... [--baseline REV]
                      tests, builds and lays out everything of this version in target/release-files, with checksums: crates,
                      the program as one file, packages, wheels; publishes nothing. PART is one of: version names tests
                      crates programs packages wheels
  npm [SECONDS [SEED]]
                      tests the npm package tidesdb with the C library: examples, then random transactions
  go [--prefix DIR] [--seeds N] [--rounds N] [--bench] [-- ARGS]
                      tests the Go module with the C library, which it installs in target/go unless there is one in DIR; N
                      seeds of random calls, N calls of each function in the test of the memory; --bench compares it with
                      Pebble instead (needs Go; --bench fetches modules)
  integrations [NAME]... [--short] [--rocksdb] [--rounds N] [--seconds N] [--seed N]
                      runs the tests of the systems below which the engine works, on its stores and on their own ones, then
                      kills the nodes of a cluster in N rounds of N seconds and takes the power of simulated disks 100 times;
                      --rocksdb tests the store on RocksDB, too, which takes long to compile unless ROCKSDB_LIB_DIR names a
                      library; --short takes a minute and is the stage of that name. NAME is one of: openraft
  clients             tests the C library from Go and Java, and with the tests of the Rust binding
  platforms [NAME...]
                      compiles the engine for macOS, FreeBSD, Windows, 32 bits, ARM64 and s390x, and runs its tests and
                      programs where an emulator runs them, which it installs if it is root: docs/reference/platforms.md; the
                      stage of that name only compiles for macOS and Windows
  wheel [--target arm64|windows] [--profile NAME] [--test] [--stress MINUTES] [--bench] [-- ARGS]
                      builds the Python package in target/wheels; --test runs its tests, with ARGS for pytest; --stress makes
                      random calls from several threads; --bench compares it with other stores (needs Python and pip)
  api                 writes the listing of the public API, docs/api, which `ci docs` checks
  book [--open | --samples]
                      builds the book in target/book with the rendered Rust API, and with mdbook, which it installs in
                      target/tools: the first time that takes four to six minutes of processor time; --open
                      shows it; --samples lists the samples of the pages with their tests
  loom [NAME]         explores all interleavings of the lock-free parts; NAME filters the models
  asan                the leaf crates under the address sanitizer (needs nightly Rust)
  miri                the lock-free leaf crates under Miri (needs nightly Rust and its component)
  bench [ARGS]        the speed example of the engine
  bench-gate [--update | --release]
                      compares instructions per operation with xtask/instructions.txt (needs valgrind); --release
                      shows them for a program that is built with Cargo's defaults
  weight [--update]   compares the processor time of a build of the program from nothing with xtask/weight.txt
  msrv                checks the crates with the oldest supported Rust (needs that toolchain)
  crash|faults|kill|beside|reopen|sweep|model|metamorphic|isolation|fuzz|tmpfs [ARGS]
  descriptors|families|sectors|mounts|latency|memory [ARGS]
                      the programs of crates/testkit, at full size
  inject [--seed N] [--limit N] [--stride N] [--only CALL] [--jobs N] [--prefix DIR]
                      runs a C program in which one system call fails, for each call in turn; --limit is the
                      maximum N of the N-th call, --prefix uses an installed library (needs strace)
  fuzz-guided [--target NAME] [--seconds N] [--keep]
                      the targets of `fuzz` under libFuzzer, N seconds each (needs nightly Rust); --keep adds inputs that reach
                      new code to crates/testkit/corpus
  sim [--seed N] [--seeds N] [--minutes M] [--strategy walk|priorities|turns] [--soak FILE] [--plant NAME|all [--starts N]]
      [--coverage FILE]
                      the engine with all its threads under a deterministic simulation: a seed decides everything; --plant
                      searches a fault that crates/testkit/plants puts into a copy of the tree; --coverage prints how many
                      lines of the engine run, and writes those that do not to FILE (needs llvm-tools of rustup)
  soak --hours H [--seed N] [--only NAME]
                      runs these programs and `inject` in turn, without tmpfs (needs root) and latency, each
                      round with the next seed, until the time is over or one fails
";

/// Runs a command in the repository at this root, with the arguments after its name.
type Command = fn(&Path, &[String]) -> Done;

/// The commands besides `tidy`, which has its own exit code, and the programs of the test kit.
const COMMANDS: [(&str, Command); 28] = [
    ("quick", |root, _| stages::run(root, &["tidy", "lint", "unit"])),
    ("test", |root, _| stages::run(root, &["test"])),
    ("ci", stages::ci),
    ("install", install::run),
    ("s3", s3::run),
    ("dll", |root, _| dll::run(root)),
    ("package", package::run),
    ("release", release::run),
    ("npm", npm::run),
    ("clients", |root, _| clients::run(root)),
    ("platforms", platforms::run),
    ("wheel", wheel::run),
    ("go", go::run),
    ("integrations", integrations::run),
    ("api", |root, _| stages::api(root)),
    ("book", book::run),
    ("loom", stages::loom),
    ("asan", |root, _| stages::run(root, &["asan"])),
    ("miri", |root, _| stages::run(root, &["miri"])),
    ("bench", stages::bench),
    ("bench-gate", gate::run),
    ("weight", weight::run),
    ("msrv", |root, _| stages::run(root, &["msrv"])),
    ("inject", inject::run),
    ("sim", sim::run),
    ("fuzz-guided", guided::run),
    ("soak", soak::run),
    ("help", |_, _| {
        print!("{HELP}");
        Ok(())
    }),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = args.split_first().map_or(("help", &[][..]), |(first, rest)| (first.as_str(), rest));
    let root = root();
    let name = if matches!(name, "--help" | "-h") { "help" } else { name };
    let done = match COMMANDS.iter().find(|(known, _)| *known == name) {
        _ if name == "tidy" => return tidy::run(&root, rest.iter().any(|arg| arg == "--stats")),
        Some((_, command)) => command(&root, rest),
        None if stages::is_kit(name) => stages::testkit(&root, name, rest),
        None => Err(format!("unknown command `{name}`\n\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root of the repository: the parent of this package's folder, as given by `cargo run`, else as
/// compiled in.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = PathBuf::from(here);
    here.parent().map_or(here.clone(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A line was lost in a merge, and the command that it named could not be reached.
    #[test]
    fn the_help_has_each_command() {
        let heads = HELP.lines().skip(1).filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let helped: BTreeSet<&str> =
            heads.filter(|head| !head.is_empty()).flat_map(|head| head.split('|')).collect();
        let mut known = known();
        known.remove("help");
        assert_eq!(helped, known);
    }

    fn known() -> BTreeSet<&'static str> {
        let listed = COMMANDS.iter().map(|(name, _)| *name);
        listed.chain(stages::KIT.map(|(name, _)| name)).chain(["tidy"]).collect()
    }

    /// A page once listed a runner that was gone.
    #[test]
    fn the_pages_name_commands_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let known = known();
        let mut named = 0;
        for name in tree::git_files(&root).expect("git lists the files") {
            if !name.ends_with(".md") {
                continue;
            }
            let page = std::fs::read_to_string(root.join(&name)).expect("a listed page");
            for line in page.lines() {
                let mut commands: Vec<&str> = line.split("cargo xtask ").skip(1).collect();
                // The first cell of a row may name further commands by themselves.
                if let Some(row) = line.strip_prefix("| `cargo xtask ") {
                    let cell = row.split(" | ").next().unwrap_or("");
                    commands.extend(cell.split('`').skip(2).step_by(2));
                }
                for command in commands {
                    let end =
                        command.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-');
                    let word = &command[..end.unwrap_or(command.len())];
                    named += 1;
                    assert!(
                        word.is_empty() || word.starts_with("--") || known.contains(word),
                        "{name}: {line}"
                    );
                }
            }
        }
        assert!(named > 50, "{named} commands are named");
    }

    #[test]
    fn the_help_has_each_stage() {
        let list = HELP.split("stages: ").nth(1).and_then(|rest| rest.split(';').next());
        assert_eq!(list.map(|list| list.split_whitespace().collect()), Some(stages::ALL.to_vec()));
    }
}
