//! Other engines for the benchmark, one program each, so that the C libraries of two engines are never in one process.
//!
//! A program is an adapter (an [`Engine`](tidesdb_bench::engine::Engine) and its sessions) and a `main` that hands its
//! `open` to [`serve`]. Its feature builds it: `--features rocksdb` builds `tidesdb-bench-rocksdb`. Without features this
//! crate holds what the programs have in common, and costs nothing.
//!
//! Adapters follow one rule: each engine is used as somebody would who knows it well, with the same cache, memtable, block
//! size, filter and compression where it has them. `docs/bench.md` has the table. `unsafe` is here where an engine's
//! own interface is unsafe: the memory map of LMDB, and C functions found by name in a library.

pub mod batch;
pub mod conformance;

use std::io::Write;
use std::process::ExitCode;

use tidesdb_bench::engine::Open;
use tidesdb_bench::run::child;

/// What `main` of every program does: `PROGRAM TASK` does a task of the benchmark, `PROGRAM conform ENGINE DIR SEED` checks
/// the adapter against a model.
pub fn serve(open: Open) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        [task] => child(task, open, say),
        ["conform", engine, dir, seed] => seed
            .parse()
            .map_err(|_| format!("{seed:?} is no seed"))
            .and_then(|seed| conformance::run(open, engine, dir.as_ref(), seed)),
        _ => Err("this program is started by `tidesdb bench --vs`".to_owned()),
    };
    match done {
        Ok(line) => {
            say(&line);
            ExitCode::SUCCESS
        }
        Err(what) => {
            // Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "{what}");
            ExitCode::from(2)
        }
    }
}

/// Prints a line at once. A parent that does not listen has ended.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
