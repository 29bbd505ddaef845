//! A child process writes numbered records, each durable before it is acknowledged, and is killed while it runs. Every
//! acknowledged record must exist afterwards.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb::{Db, FamilyOptions, SyncMode};
use tidesdb_io::program;

use super::count;
use super::guide::Guide;
use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::output::Out;
use crate::progress::Progress;
use crate::text::grouped;

/// Write records until killed, and print the number of each acknowledged record; used by `tour`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Witness {
    /// Directory of the database
    path: PathBuf,
}

const RECORDS: &str = "records";
/// The child is killed after this time ...
const LIFE: Duration = Duration::from_millis(1000);
/// ... but not before it has acknowledged this many records, unless it takes too long.
const RECORDS_MIN: u64 = 20;
const LIFE_MAX: Duration = Duration::from_secs(20);
/// The child ends by itself at this number, in case its parent dies without closing the pipe.
const RECORDS_MAX: u64 = 50_000_000;

fn record(n: u64) -> (String, String) {
    (format!("{n:012}"), format!("record {n}, acknowledged once it was on disk"))
}

impl Witness {
    pub(crate) fn run(&self, out: &mut Out<'_>) -> Outcome {
        let db = Db::options(&self.path).sync(SyncMode::Full).create_if_missing(false).open()?;
        let records = db.family_or_create(RECORDS, FamilyOptions::default())?;
        for n in 1..=RECORDS_MAX {
            let (key, value) = record(n);
            records.put(key.as_bytes(), value.as_bytes())?;
            out.line(n.to_string())?;
            out.flush()?;
        }
        Ok(Exit::Done)
    }
}

/// Kills a writer and opens its database again. `rows` is the number of rows in the default family before.
pub(super) fn kill_and_recover(path: &Path, rows: u64, guide: &mut Guide<'_, '_>) -> Outcome<Db> {
    guide.title("Kill")?;
    let mut child = spawn(path)?;
    guide.say(format!("process {} writes records, each synced before it is acknowledged ...", child.id()))?;
    let acknowledged = watch_and_kill(&mut child, guide)?;

    let started = host::now();
    let db = Db::open(path)?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    guide.say(format!("opened again in {took:.1} ms: {}", db.recovery_report()))?;
    let records = db.family(RECORDS)?;
    let mut present = 0;
    for n in 1..=acknowledged {
        let (key, value) = record(n);
        present +=
            u64::from(records.get_map(key.as_bytes(), |found| found == value.as_bytes())? == Some(true));
    }
    let text = format!("{} of {} acknowledged records survived", grouped(present), grouped(acknowledged));
    guide.promise(present == acknowledged, text)?;
    // The last put may have returned, or reached the disk, before its number was printed.
    let extra = count(&records)?.saturating_sub(acknowledged);
    let also = match extra {
        0 => "and nothing else".to_owned(),
        extra => format!("and {extra} more, being written when the process died"),
    };
    guide.promise(extra <= 1, also)?;
    guide.promise(count(db.default_family())? == rows, "all data from before survived too")?;
    Ok(db)
}

fn spawn(path: &Path) -> Outcome<Child> {
    let failed = |e| Failure::failed(format!("cannot start a second process of this program: {e}"));
    let program = tidesdb_console::program::file().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("witness").arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().map_err(failed)
}

/// Reads the numbers that the child acknowledges, kills it after a while, and returns the last number.
fn watch_and_kill(child: &mut Child, guide: &mut Guide<'_, '_>) -> Outcome<u64> {
    let pipe = child.stdout.take().ok_or_else(|| Failure::failed("the second process has no output"))?;
    let last = AtomicU64::new(0);
    let started = host::now();
    let progress = Progress::new(None);
    let status = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_numbers(pipe, &last));
        let alive = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        while alive(child) && started.elapsed() < LIFE_MAX {
            if started.elapsed() >= LIFE && last.load(Ordering::Relaxed) >= RECORDS_MIN {
                break;
            }
            progress.say(format!("{} acknowledged", grouped(last.load(Ordering::Relaxed))));
            std::thread::sleep(Duration::from_millis(5));
        }
        let killed = child.kill();
        let status = child.wait();
        // Numbers printed before the kill are still in the pipe: read it to its end.
        let in_order = reader.join().unwrap_or(false);
        killed.and(status).map(|status| (status, in_order))
    });
    drop(progress);
    let secs = started.elapsed().as_secs_f64();
    let (status, in_order) =
        status.map_err(|e| Failure::failed(format!("cannot kill the second process: {e}")))?;
    let last = last.into_inner();
    guide.say(format!(
        "... and is killed with {} after {secs:.1} s and {} records, {} per second",
        program::KILL,
        grouped(last),
        grouped((last as f64 / secs) as u64)
    ))?;
    let killed = program::was_killed(status) && in_order && last > 0;
    guide.promise(killed, "it was killed while it was writing")?;
    Ok(last)
}

/// Reads lines `1`, `2`, ... to the end of `pipe`. An incomplete last line is ignored: its number may be cut off.
fn read_numbers(pipe: impl Read, last: &AtomicU64) -> bool {
    let mut pipe = BufReader::new(pipe);
    let mut line = String::new();
    let mut expected = 1;
    loop {
        line.clear();
        match pipe.read_line(&mut line) {
            Ok(0) => return true,
            Ok(_) if !line.ends_with('\n') => return true,
            Ok(_) if line.trim_end() == expected.to_string() => {
                last.store(expected, Ordering::Relaxed);
                expected += 1;
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_number_does_not_count() {
        for (text, last, in_order) in
            [("1\n2\n3", 2, true), ("1\n3\n", 1, false), ("", 0, true), ("1\nx\n", 1, false)]
        {
            let found = AtomicU64::new(0);
            assert_eq!(read_numbers(text.as_bytes(), &found), in_order, "{text:?}");
            assert_eq!(found.into_inner(), last, "{text:?}");
        }
    }
}
