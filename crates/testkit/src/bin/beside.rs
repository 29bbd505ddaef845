//! T46: reads a database beside the process that writes it, kills both at random times, and checks every view. Usage:
//! `beside [--refreshes N] [--seed S] [--dir PATH]`; N refreshes that show something new.
//!
//! `beside --cost ROUNDS [--puts N] [--keys N] [--full 1] [--hz N] [--gets N] [--rows N] [--dir PATH]` measures instead what a reader
//! costs the writer: see `reader_cost.rs`. `--full 1` makes each put durable.

use std::path::PathBuf;
use std::process::ExitCode;

use testkit::beside::{Parent, THREADS, read, write};
use testkit::reader_cost::{self, Load};
use testkit::report::{argument, exit, finish, temp_dir};
use tidesdb::SyncMode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(result) = child(&args) {
        if let Err(e) = &result {
            eprintln!("child {}: {e}", args[0]);
        }
        return exit(result.is_ok());
    }
    let (refreshes, seed) = (argument("refreshes").unwrap_or(1000), argument("seed").unwrap_or(1));
    let (Ok(temp), Ok(program)) = (temp_dir(), std::env::current_exe()) else {
        eprintln!("cannot create a temporary directory");
        return ExitCode::FAILURE;
    };
    if let Some(rounds) = argument("cost") {
        let parent = reader_cost::Parent { program: &program, dir: temp.path(), load: load() };
        let result = parent.run(rounds).inspect_err(|e| eprintln!("{e}"));
        return exit(result.is_ok());
    }
    let mut parent = Parent::new(&program, &temp.path().join("db"), seed);
    if let Err(e) = parent.run(refreshes) {
        eprintln!("VIOLATION seed {seed}: {e}; the files are in {}", temp.path().display());
        parent.totals.violations += 1;
        let _kept = temp.keep();
    }
    let t = parent.totals;
    let figures = [
        ("refreshes", t.refreshes),
        ("changed", t.changed),
        ("rows", t.rows),
        ("writers_killed", t.writers_killed),
        ("writers_closed", t.writers_closed),
        ("readers_killed", t.readers_killed),
        ("violations", t.violations),
        ("seed", seed),
    ];
    let floors =
        [("changed", refreshes), ("writers_killed", refreshes / 100), ("readers_killed", refreshes / 200)];
    exit(finish("T46", &figures, &floors))
}

/// Runs a child if the arguments ask for one.
fn child(args: &[String]) -> Option<Result<(), String>> {
    let parse = |n: &String| n.parse::<u64>().unwrap_or(0);
    match args {
        [flag, path, ..] if flag == "--put" => Some(reader_cost::put(&PathBuf::from(path), &load())),
        [flag, path, ..] if flag == "--poll" => Some(reader_cost::poll(&PathBuf::from(path), &load())),
        [flag, path, n] if flag == "--write" => Some(write(&PathBuf::from(path), parse(n))),
        [flag, path, seed, least @ ..] if flag == "--read" && least.len() == THREADS => {
            let least = std::array::from_fn(|n| parse(&least[n]));
            Some(read(&PathBuf::from(path), parse(seed), least))
        }
        _ => None,
    }
}

/// The load of `--cost`.
fn load() -> Load {
    Load {
        puts: argument("puts").unwrap_or(2_000_000),
        keys: argument("keys").unwrap_or(1_000_000),
        sync: if argument("full").is_some() { SyncMode::Full } else { SyncMode::None },
        refreshes: argument("hz").unwrap_or(10),
        gets: argument("gets").unwrap_or(100),
        rows: argument("rows").unwrap_or(1000),
    }
}
