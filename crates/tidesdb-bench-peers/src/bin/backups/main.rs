//! Backups of this engine beside RocksDB's `BackupEngine`: `tidesdb-bench-backups SCENE ENGINE DIR [MIB]`.
//!
//! * `generations`: a database of MIB is backed up ten times; 2 % of its rows are overwritten in between, in a range or everywhere. Then all but three
//!   generations are pruned, and each of these is restored and compared row by row.
//! * `writers`: puts at a fixed rate, without and beside a first backup.
//! * `flips`: one bit of the store is flipped, a hundred times: who notices it.
//! * `kills`: a process that makes and prunes generations is killed fifty times; then each generation is restored (this engine only).

mod engines;
mod rows;
mod scenes;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// What went wrong.
type Failure = Box<dyn std::error::Error>;
type Result<T> = std::result::Result<T, Failure>;

const USAGE: &str =
    "usage: tidesdb-bench-backups generations|everywhere|writers|flips|kills tidesdb|rocksdb DIR [MIB]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        [scene, engine, dir] => run(scene, engine, dir.as_ref(), "1024"),
        [scene, engine, dir, mib] => run(scene, engine, dir.as_ref(), mib),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "{e}"); // there is no other way to report it
            ExitCode::from(2)
        }
    }
}

fn run(scene: &str, engine: &str, dir: &Path, mib: &str) -> Result<()> {
    let rows = (mib.parse::<u64>()? << 20) / rows::ROW_BYTES;
    let engine = engines::of(engine)?;
    std::fs::create_dir_all(dir)?;
    match scene {
        "generations" => scenes::generations(engine, dir, rows, rows::Changes::Range),
        "everywhere" => scenes::generations(engine, dir, rows, rows::Changes::Everywhere),
        "writers" => scenes::writers(engine, dir, rows),
        "flips" => scenes::flips(engine, dir, rows),
        "kills" => scenes::kills(dir, rows),
        "victim" => scenes::victim(dir, rows),
        _ => Err(USAGE.into()),
    }
}

/// Prints a line and flushes it. Errors are ignored: a parent that does not read has exited.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
