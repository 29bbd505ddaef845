//! What a reader beside the writer costs the writer.
//!
//! A child process puts rows as fast as it can, then waits until its background work is done. It does so in three situations that
//! take turns: alone; while another process reads a second database, to which nobody writes; and while that process reads the
//! database that is being written, through a [`Reader`](tidesdb::Reader) that it refreshes several times a second. The second situation
//! shows what sharing the machine costs, the third one what sharing the files adds.
//!
//! Figures of the writer are those that other processes disturb least: processor time of the thread that puts and of the whole
//! process, system calls, page faults and bytes. With `perf`, all system calls are counted; without it, those that read or write.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidesdb::{Db, Family, SyncMode};
use tidesdb_io::{Clock, RealClock};

use crate::beside::{Done, Running, text};
use crate::process::{self, processor_time, thread_time};
use crate::report::line;
use crate::rng::Rng;

const VALUE_BYTES: usize = 100;
/// The first line of a child whose database is open.
const READY: &str = "ready";
/// A child that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What a run measures.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Puts of a writer.
    pub puts: u64,
    /// Keys are drawn from so many.
    pub keys: u64,
    /// Sync mode of the puts.
    pub sync: SyncMode,
    /// Refreshes of the reader per second.
    pub refreshes: u64,
    /// Gets after each refresh.
    pub gets: u64,
    /// Rows that are scanned after each refresh.
    pub rows: u64,
}

/// Figures of a writer. Times are in nanoseconds.
const WRITER: [&str; 8] = [
    "put_thread_cpu",
    "process_cpu",
    "puts_wall",
    "read_write_calls",
    "page_faults",
    "waits",
    "written_bytes",
    "system_calls",
];
/// Figures of a reader.
const READER: [&str; 4] = ["refreshes", "gets", "rows", "reader_cpu"];

/// What runs beside the writer.
const SITUATIONS: [&str; 3] = ["alone", "beside_another_database", "beside_this_database"];

/// Figures of one round of one situation: those of the writer, then those of the reader.
type Figures = [u64; WRITER.len() + READER.len()];

/// Counters of this process.
struct Process {
    thread_cpu: u64,
    cpu: u64,
    calls: u64,
    faults: u64,
    waits: u64,
}

impl Process {
    fn now() -> Done<Self> {
        let file = |path: &str| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let sum = |text: &str, names: [&str; 2]| -> u64 {
            let values = text.lines().filter_map(|line| line.split_once(':'));
            values
                .filter(|(name, _)| names.contains(name))
                .filter_map(|(_, n)| n.trim().parse::<u64>().ok())
                .sum()
        };
        let stat = file("/proc/self/stat")?;
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
        let field =
            |at: usize| fields.get(at).and_then(|n| n.parse::<u64>().ok()).ok_or("/proc/self/stat is odd");
        Ok(Self {
            thread_cpu: thread_time().as_nanos() as u64,
            cpu: processor_time().as_nanos() as u64,
            calls: sum(&file("/proc/self/io")?, ["syscr", "syscw"]),
            faults: field(7)? + field(9)?,
            waits: sum(&file("/proc/thread-self/status")?, ["voluntary_ctxt_switches", ""]),
        })
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("row{n:013}").into_bytes()
}

/// Prints figures as a line for the parent.
fn say(figures: &[u64]) -> Done {
    println!("{}", figures.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    std::io::stdout().flush().map_err(|e| e.to_string())
}

/// The writer: opens a new database, waits for a line on its input, puts rows, and prints its figures.
///
/// # Errors
/// Errors of the database and of `/proc`.
pub fn put(path: &Path, load: &Load) -> Done {
    let db = Db::options(path).sync(load.sync).open().map_err(text)?;
    db.put("first", "row").map_err(text)?;
    println!("{READY}");
    std::io::stdin().lock().read_line(&mut String::new()).map_err(|e| e.to_string())?;
    let (clock, mut rng) = (RealClock::new(), Rng::new(1));
    let (before, begin) = (Process::now()?, clock.mono());
    let mut value = [0x5a; VALUE_BYTES];
    for _ in 0..load.puts {
        value[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        db.put(key(rng.below(load.keys)), value).map_err(text)?;
    }
    let (wall, thread) = (clock.mono() - begin, Process::now()?);
    db.flush().map_err(text)?;
    while db.stats().jobs_pending > 0 {
        clock.sleep(Duration::from_millis(20));
    }
    let after = Process::now()?;
    say(&[
        thread.thread_cpu - before.thread_cpu,
        after.cpu - before.cpu,
        wall.as_nanos() as u64,
        after.calls - before.calls,
        after.faults - before.faults,
        thread.waits - before.waits,
        db.stats().written_bytes,
    ])?;
    db.close().map_err(text)
}

/// The reader: refreshes and reads at a bounded rate until it is killed, and prints its figures each time.
///
/// # Errors
/// Errors of the database.
pub fn poll(path: &Path, load: &Load) -> Done {
    let reader = Db::options(path).open_reader().map_err(text)?;
    println!("{READY}");
    let (clock, mut rng) = (RealClock::new(), Rng::new(2));
    let period = Duration::from_secs(1) / u32::try_from(load.refreshes.max(1)).unwrap_or(u32::MAX);
    let (mut refreshes, mut gets, mut rows) = (0, 0, 0);
    loop {
        let begin = clock.mono();
        let view = reader.refresh().map_err(text)?;
        refreshes += 1;
        gets += load.gets;
        rows += read(view.default_family(), load, &mut rng)?;
        say(&[refreshes, gets, rows, processor_time().as_nanos() as u64])?;
        clock.sleep(period.saturating_sub(clock.mono() - begin));
    }
}

/// Reads from a view; returns the number of rows that were scanned.
fn read(family: &Family, load: &Load, rng: &mut Rng) -> Done<u64> {
    for _ in 0..load.gets {
        family.get(key(rng.below(load.keys))).map_err(text)?;
    }
    let rows = family.range(key(rng.below(load.keys))..).map_err(text)?.take(load.rows as usize);
    rows.map(|row| row.map_err(text)).try_fold(0, |n, row| row.map(|_| n + 1))
}

/// The parent.
#[derive(Debug)]
pub struct Parent<'a> {
    /// An empty folder.
    pub dir: &'a Path,
    /// The load.
    pub load: Load,
}

impl Parent<'_> {
    /// Runs all situations in turns, `rounds` times, and prints the figures of each, then their medians.
    ///
    /// # Errors
    /// Errors of the children.
    pub fn run(&self, rounds: u64) -> Done {
        let other = self.dir.join("other");
        self.write(&other, None)?;
        let mut all: [Vec<Figures>; SITUATIONS.len()] = Default::default();
        for round in 0..rounds {
            for turn in 0..SITUATIONS.len() {
                let situation = (turn + round as usize) % SITUATIONS.len();
                let path = self.dir.join("db");
                let read = [None, Some(&other), Some(&path)][situation];
                let figures = self.write(&path, read)?;
                println!("{}", line(&format!("round {round} {}", SITUATIONS[situation]), &named(&figures)));
                all[situation].push(figures);
                std::fs::remove_dir_all(&path).map_err(|e| e.to_string())?;
            }
        }
        self.report(&all);
        Ok(())
    }

    /// Runs one writer on a new database at `path`, and beside it a reader of the database at `read`.
    fn write(&self, path: &Path, read: Option<&PathBuf>) -> Done<Figures> {
        let counted = self.dir.join("perf");
        let mut writer =
            Running::start(self.counting(&counted)?.arg("--put").arg(path).args(process::own_args()))?;
        writer.wait_for(READY)?;
        let mut reader = match read {
            None => None,
            Some(path) => {
                let mut command = process::itself()?;
                Some(Running::start(command.arg("--poll").arg(path).args(process::own_args()))?)
            }
        };
        if let Some(reader) = &reader {
            reader.wait_for(READY)?;
        }
        writer.child.stdin.take().ok_or("no pipe")?.write_all(b"go\n").map_err(|e| e.to_string())?;
        let said =
            writer.lines.recv_timeout(PATIENCE).map_err(|e| format!("the writer says nothing: {e}"))?;
        if let Some(reader) = &mut reader {
            if reader.ended()? {
                return Err("the reader ended by itself".into());
            }
            reader.kill()?;
        }
        let status = writer.child.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("the writer failed: {status}"));
        }
        let mut figures = Figures::default();
        let heard = reader.and_then(|reader| reader.lines.iter().last()).unwrap_or_default();
        let numbers = |text: &str| text.split(' ').filter_map(|n| n.parse().ok()).collect::<Vec<u64>>();
        let (of_writer, of_reader) = figures.split_at_mut(WRITER.len());
        of_writer.iter_mut().zip(numbers(&said)).for_each(|(figure, n)| *figure = n);
        of_writer[WRITER.len() - 1] = system_calls(&counted);
        of_reader.iter_mut().zip(numbers(&heard)).for_each(|(figure, n)| *figure = n);
        Ok(figures)
    }

    /// A command that runs the program and counts its system calls, if `perf` can.
    fn counting(&self, counted: &Path) -> Done<Command> {
        let perf = Command::new("perf").args(["stat", "-e", "raw_syscalls:sys_enter", "true"]).output();
        let itself = process::itself()?;
        let mut command = if perf.is_ok_and(|output| output.status.success()) {
            let mut perf = Command::new("perf");
            perf.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o"])
                .arg(counted)
                .arg(itself.get_program())
                .args(itself.get_args());
            perf
        } else {
            itself
        };
        command.stdin(Stdio::piped());
        Ok(command)
    }

    /// Prints the medians, and the median of the ratios to the writer that was alone in the same round.
    fn report(&self, all: &[Vec<Figures>; SITUATIONS.len()]) {
        let names: Vec<&str> = WRITER.into_iter().chain(READER).collect();
        println!("\n{:<20}{:>36}{:>36}{:>36}", "median", SITUATIONS[0], SITUATIONS[1], SITUATIONS[2]);
        for (at, name) in names.into_iter().enumerate() {
            print!("{name:<20}");
            for rounds in all {
                let value = median(rounds.iter().map(|round| round[at] as f64).collect());
                let ratios =
                    rounds.iter().zip(&all[0]).map(|(round, alone)| round[at] as f64 / alone[at] as f64);
                let ratio = median(ratios.collect());
                let ratio = if ratio.is_finite() { format!(" ({ratio:.3})") } else { String::new() };
                let per_put = value / self.load.puts as f64;
                print!("{:>36}", format!("{value:.0} {per_put:.3}/put{ratio}"));
            }
            println!();
        }
    }
}

fn named(figures: &Figures) -> Vec<(&'static str, u64)> {
    WRITER.into_iter().chain(READER).zip(*figures).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The count that `perf stat` wrote; 0 without `perf`.
fn system_calls(counted: &Path) -> u64 {
    let text = std::fs::read_to_string(counted).unwrap_or_default();
    let line = text.lines().find(|line| line.contains("sys_enter")).unwrap_or_default();
    line.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
