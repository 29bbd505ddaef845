//! A line per second about a process: operations and the slowest of them, bytes, memory, files.
//!
//! Threads that issue operations count on a [`Board`], each in its own cell. A [`Watch`] reads it every second and also
//! when a part ends, so the first and last line of a part may be shorter than a second.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::{self, Charged};
use crate::measure::now;
use crate::process::{self, Usage};

/// Current activity of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The measured operations.
    #[default]
    Run,
    /// Flushing memtables and waiting for the background work.
    Settle,
}

impl Part {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Settle => "settle",
        }
    }
}

/// One line. Bytes are those within the line, memory and files those at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds from the beginning of the row to the end of this line.
    pub at: f64,
    /// Length of this line in seconds.
    pub length: f64,
    /// Activity of the process.
    pub part: Part,
    /// Operations that ended within this line, by kind.
    pub beats: Vec<Beat>,
    /// Bytes read from devices.
    pub read: u64,
    /// Bytes that read calls returned; maps and io_uring are not included.
    pub read_calls: u64,
    /// Bytes that were or will be written to devices.
    pub written: u64,
    /// Resident memory of the process, including mapped files.
    pub resident: u64,
    /// Memory charged to the cgroup; zeros without one.
    #[serde(default)]
    pub charged: Charged,
    /// Bytes of all files of the database.
    pub files: u64,
}

/// Operations of one kind in one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// The kind.
    pub operation: String,
    /// Number of operations that ended.
    pub ops: u64,
    /// Duration of the slowest operation in microseconds.
    pub slowest: f64,
}

impl Second {
    /// Returns the operations of a kind per second; `None` if the line has no such kind.
    pub fn rate(&self, operation: &str) -> Option<f64> {
        let beat = self.beats.iter().find(|b| b.operation == operation)?;
        (self.length > 0.0).then(|| beat.ops as f64 / self.length)
    }

    /// Returns the operations of all kinds.
    pub fn ops(&self) -> u64 {
        self.beats.iter().map(|b| b.ops).sum()
    }
}

/// Counts of one thread and kind, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    ops: AtomicU64,
    /// Nanoseconds, since the last line.
    slowest: AtomicU64,
}

/// Maximum number of kinds of operations in a row.
const KINDS: usize = 5;

/// Counters of all threads.
#[derive(Debug)]
pub struct Board {
    kinds: OnceLock<Vec<String>>,
    lanes: Vec<[Cell; KINDS]>,
}

impl Board {
    /// Creates a board for `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self { kinds: OnceLock::new(), lanes: (0..threads).map(|_| Default::default()).collect() }
    }

    /// Sets the names of the kinds, once.
    pub fn name(&self, kinds: &[&str]) {
        self.kinds.get_or_init(|| kinds.iter().map(|k| (*k).to_owned()).collect());
    }

    /// Records that `ops` operations of a kind ended on this thread, after `latency`.
    #[inline]
    pub fn beat(&self, thread: usize, kind: usize, ops: u64, latency: Duration) {
        let cell = &self.lanes[thread][kind];
        // Only this thread adds.
        cell.ops.store(cell.ops.load(Relaxed) + ops, Relaxed);
        let nanos = latency.as_nanos() as u64;
        if nanos > cell.slowest.load(Relaxed) {
            cell.slowest.fetch_max(nanos, Relaxed);
        }
    }

    /// Returns all operations of each kind so far, and the slowest since the last call.
    fn read(&self) -> Vec<(u64, u64)> {
        let kinds = self.kinds.get().map_or(0, Vec::len).min(KINDS);
        let of = |kind: usize| {
            let cells = || self.lanes.iter().map(|lane| &lane[kind]);
            let ops = cells().map(|cell| cell.ops.load(Relaxed)).sum();
            (ops, cells().map(|cell| cell.slowest.swap(0, Relaxed)).max().unwrap_or(0))
        };
        (0..kinds).map(of).collect()
    }
}

/// A thread that records the lines.
pub struct Watch {
    parts: Sender<Part>,
    thread: JoinHandle<Vec<Second>>,
}

/// Sources of the figures.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Counters of the operations.
    pub board: Arc<Board>,
    /// The directory of the database.
    pub dir: PathBuf,
    /// The cgroup of this process, if it has one.
    pub group: Option<PathBuf>,
}

impl Watch {
    /// Starts with the part `Run`; a line is recorded every `every`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(sources: Sources, every: Duration) -> Result<Self, String> {
        let (parts, changes) = channel();
        let mut lines = Lines::new(sources);
        let work = move || {
            let mut part = Part::Run;
            let mut due = every;
            loop {
                match changes.recv_timeout(due.saturating_sub(lines.start.elapsed())) {
                    Err(RecvTimeoutError::Timeout) => {
                        lines.add(part);
                        due += every;
                    }
                    Ok(next) => {
                        lines.add(part);
                        part = next;
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        lines.add(part);
                        return lines.all;
                    }
                }
            }
        };
        let thread =
            std::thread::Builder::new().spawn(work).map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Self { parts, thread })
    }

    /// Starts another part.
    pub fn part(&self, part: Part) {
        // The thread ends only when this handle is dropped.
        let _ = self.parts.send(part);
    }

    /// Returns the lines.
    ///
    /// # Errors
    /// If the thread panicked.
    pub fn finish(self) -> Result<Vec<Second>, String> {
        drop(self.parts);
        self.thread.join().map_err(|_| "the watch thread panicked".to_owned())
    }
}

/// The lines so far, and the counters at the end of the last one.
struct Lines {
    sources: Sources,
    start: std::time::Instant,
    at: Duration,
    ops: Vec<u64>,
    usage: Usage,
    all: Vec<Second>,
}

impl Lines {
    fn new(sources: Sources) -> Self {
        Self {
            sources,
            start: now(),
            at: Duration::ZERO,
            ops: Vec::new(),
            usage: Usage::now(),
            all: Vec::new(),
        }
    }

    fn add(&mut self, part: Part) {
        let (counts, at, usage) = (self.sources.board.read(), self.start.elapsed(), Usage::now());
        self.ops.resize(counts.len(), 0);
        let names = self.sources.board.kinds.get().into_iter().flatten();
        let beats = names.zip(&counts).zip(&self.ops).map(|((name, (ops, slowest)), before)| Beat {
            operation: name.clone(),
            ops: ops - before,
            slowest: *slowest as f64 / 1e3,
        });
        let used = usage.since(&self.usage);
        self.all.push(Second {
            at: at.as_secs_f64(),
            length: (at - self.at).as_secs_f64(),
            part,
            beats: beats.collect(),
            read: used.read,
            read_calls: used.read_calls,
            written: used.written,
            resident: process::resident(),
            charged: self.sources.group.as_deref().map(cgroup::charged).unwrap_or_default(),
            files: process::bytes_below(&self.sources.dir),
        });
        (self.ops, self.at, self.usage) = (counts.iter().map(|c| c.0).collect(), at, usage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_what_happened_since_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let board = Arc::new(Board::new(2));
        board.name(&["PUT", "GET"]);
        let mut lines = Lines::new(Sources { board: board.clone(), dir: dir.path().to_owned(), group: None });
        board.beat(0, 0, 100, Duration::from_micros(3));
        board.beat(1, 0, 100, Duration::from_micros(7));
        std::fs::write(dir.path().join("file"), [0; 1234]).unwrap();
        lines.add(Part::Run);
        board.beat(0, 1, 1, Duration::from_micros(2));
        lines.add(Part::Settle);
        let beat =
            |line: usize, kind: usize| (lines.all[line].beats[kind].ops, lines.all[line].beats[kind].slowest);
        assert_eq!((beat(0, 0), beat(0, 1)), ((200, 7.0), (0, 0.0)));
        assert_eq!((beat(1, 0), beat(1, 1)), ((0, 0.0), (1, 2.0)), "counts and the slowest are reset");
        assert_eq!((lines.all[0].files, lines.all[1].part), (1234, Part::Settle));
        let ends: Vec<f64> = lines.all.iter().map(|l| l.at).collect();
        let lengths: f64 = lines.all.iter().map(|l| l.length).sum();
        assert!(ends[0] < ends[1] && (lengths - ends[1]).abs() < 1e-9, "{ends:?} {lengths}");
        assert!(lines.all[0].resident > 1 << 20);
        assert_eq!(lines.all[0].rate("SEEK"), None);
    }

    #[test]
    fn a_watch_records_a_line_per_interval_and_one_at_the_end_of_each_part() {
        let dir = tempfile::tempdir().unwrap();
        let board = Arc::new(Board::new(1));
        board.name(&["PUT"]);
        let sources = Sources { board: board.clone(), dir: dir.path().to_owned(), group: None };
        let watch = Watch::start(sources, Duration::from_millis(20)).unwrap();
        for _ in 0..10 {
            board.beat(0, 0, 5, Duration::from_millis(5));
            std::thread::sleep(Duration::from_millis(5));
        }
        watch.part(Part::Settle);
        std::thread::sleep(Duration::from_millis(5));
        let lines = watch.finish().unwrap();
        assert!(lines.len() >= 3, "{lines:?}");
        assert_eq!(lines.iter().map(Second::ops).sum::<u64>(), 50);
        assert!(lines.is_sorted_by(|a, b| a.at < b.at));
        assert_eq!(lines.last().unwrap().part, Part::Settle);
        assert!(lines.iter().filter(|l| l.part == Part::Settle).all(|l| l.ops() == 0));
    }
}
