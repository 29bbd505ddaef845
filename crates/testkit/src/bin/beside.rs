//! T46: reads a database beside the process that writes it, kills both at random times, and checks every view. Usage:
//! `beside [--refreshes N] [--seed S] [--dir PATH]`; N refreshes that show something new.

use std::path::PathBuf;
use std::process::ExitCode;

use testkit::beside::{Parent, THREADS, read, write};
use testkit::report::{argument, exit, finish, temp_dir};

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
        [flag, path, n] if flag == "--write" => Some(write(&PathBuf::from(path), parse(n))),
        [flag, path, seed, least @ ..] if flag == "--read" && least.len() == THREADS => {
            let least = std::array::from_fn(|n| parse(&least[n]));
            Some(read(&PathBuf::from(path), parse(seed), least))
        }
        _ => None,
    }
}
