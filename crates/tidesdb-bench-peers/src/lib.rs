//! Other engines for the benchmark, one program each, so that the C libraries of two engines are never loaded into one
//! process.
//!
//! A program consists of an adapter (an [`Engine`](tidesdb_bench::engine::Engine) and its sessions) and a `main` that
//! passes its `open` to [`serve`]. A feature enables each program: `--features rocksdb` builds `tidesdb-bench-rocksdb`.
//! Without features this crate contains only the code that the programs share.
//!
//! All adapters follow one rule: each engine is configured as an expert would configure it, with the same cache,
//! memtable, block size, filter and compression where the engine has them. The table is in `docs/testing/bench.md`. `unsafe`
//! appears where an engine's own interface is unsafe: the memory map of LMDB, and C functions loaded by name from a
//! library.

pub mod batch;
pub mod conformance;

use std::io::Write;
use std::process::ExitCode;

use tidesdb_bench::engine::Open;
use tidesdb_bench::run::child;

/// Runs the command line of every program: `PROGRAM TASK` runs a task of the benchmark, `PROGRAM conform ENGINE DIR
/// SEED` checks the adapter against a model.
pub fn serve(open: Open) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        [task] => child(task, open, say),
        ["conform", engine, dir, seed] => seed
            .parse()
            .map_err(|_| format!("invalid seed {seed:?}: a number is required"))
            .and_then(|seed| conformance::run(open, engine, dir.as_ref(), seed)),
        _ => Err("this program is started by `tidesdb bench --vs`".to_owned()),
    };
    match done {
        Ok(line) => {
            say(&line);
            ExitCode::SUCCESS
        }
        Err(what) => {
            // If this fails, there is no other way to report the error.
            let _ = writeln!(std::io::stderr(), "{what}");
            ExitCode::from(2)
        }
    }
}

/// Prints a line and flushes it. Errors are ignored: a parent that does not read has exited.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
