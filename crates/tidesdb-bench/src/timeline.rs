//! Timeline of a row, one line per second: operations and the slowest of them, bytes, memory, files, stalls, debt.
//!
//! Threads count their operations on a [`Board`], each in its own cells. A [`Watch`] reads the board every second, and
//! also when a part or a period ends, so the first and last lines of these may cover less than a second.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::{self, Charged};
use crate::engine::{Cause, Engine};
use crate::measure::now;
use crate::process::{self, Usage};

/// Part of a row.
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
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Settle => "settle",
        }
    }
}

/// A period of a row that does one thing after another, in seconds since its operations began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// Name in tables.
    pub name: String,
    /// Operations that only this period has.
    pub operations: Vec<String>,
    /// Begin.
    pub from: f64,
    /// End.
    pub to: f64,
}

impl Period {
    /// Returns the lines of the timeline whose middle is in this period.
    pub fn lines<'a>(&self, timeline: &'a [Second]) -> impl Iterator<Item = &'a Second> {
        let (from, to) = (self.from, self.to);
        timeline.iter().filter(move |s| (from..to).contains(&(s.at - s.length / 2.0)))
    }

    /// Returns the seconds that operations of this kind ran: those of its period, else all lines.
    pub fn lines_of(periods: &[Self], operation: &str, timeline: &[Second]) -> Vec<Second> {
        match periods.iter().find(|p| p.operations.iter().any(|o| o == operation)) {
            Some(period) => period.lines(timeline).cloned().collect(),
            None => timeline.to_vec(),
        }
    }
}

/// One line. Bytes count this line only; memory and files are as of its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds from the start of the row to the end of this line.
    pub at: f64,
    /// Length of this line in seconds.
    pub length: f64,
    /// Part of the row.
    pub part: Part,
    /// Operations that ended in this line, by kind.
    pub beats: Vec<Beat>,
    /// Bytes read from devices.
    pub read: u64,
    /// Bytes returned by read calls. Without memory maps and io_uring.
    pub read_calls: u64,
    /// Bytes that were or will be written to devices.
    pub written: u64,
    /// Resident memory of the process, mapped files included.
    pub resident: u64,
    /// Memory charged to the cgroup; zeros without one.
    #[serde(default)]
    pub charged: Charged,
    /// Total size of all files of the database.
    pub files: u64,
    /// Bytes of the blocks allocated to these files, as `du` counts.
    #[serde(default)]
    pub allocated: u64,
    /// Bytes of the keys and values that exist; 0 if the row does not count them.
    #[serde(default)]
    pub live: u64,
    /// Bytes that background work must still flush or merge, as the engine counts them.
    #[serde(default)]
    pub debt: u64,
    /// Commits that were refused in this line.
    #[serde(default)]
    pub busy: u64,
    /// Stalls of writers that ended in this line, by cause.
    #[serde(default)]
    pub stalls: Vec<Cause>,
}

/// Operations of one kind in one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Kind of operation.
    pub operation: String,
    /// Number of operations that ended.
    pub ops: u64,
    /// Latency of the slowest one, in microseconds.
    pub slowest: f64,
    /// Latencies of all commits and reads, in seconds.
    #[serde(default)]
    pub seconds: f64,
}

/// Returns true if operations of this kind write; all others only read.
pub fn is_write(operation: &str) -> bool {
    let kinds = ["UPDATE", "INSERT", "MODIFY", "DELETE", "APPEND", "TAKE", "CHURN", "TX", "SEARCH"];
    operation.starts_with("PUT") || kinds.contains(&operation)
}

impl Second {
    /// Returns operations of a kind per second; `None` if the line has no such kind.
    pub fn rate(&self, operation: &str) -> Option<f64> {
        let beat = self.beats.iter().find(|b| b.operation == operation)?;
        (self.length > 0.0).then(|| beat.ops as f64 / self.length)
    }

    /// Returns the number of operations of all kinds.
    pub fn ops(&self) -> u64 {
        self.beats.iter().map(|b| b.ops).sum()
    }
}

/// Counters of one thread for one kind, on their own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    ops: AtomicU64,
    /// Largest latency since the last line, in nanoseconds.
    slowest: AtomicU64,
    /// Sum of all latencies, in nanoseconds.
    time: AtomicU64,
}

/// Maximum number of operation kinds in a row.
const KINDS: usize = 12;

/// Counters of one thread.
#[derive(Debug, Default)]
struct Lane {
    cells: [Cell; KINDS],
    /// Bytes of keys and values that this thread has put and not deleted.
    live: AtomicU64,
}

/// Operation counters of all threads.
#[derive(Debug)]
pub struct Board {
    kinds: OnceLock<Vec<String>>,
    lanes: Vec<Lane>,
    watch: Mutex<Option<Sender<Change>>>,
}

/// What a watch is told.
#[derive(Debug)]
enum Change {
    /// The current part ends and this one begins.
    Part(Part),
    /// A line ends here; the answer follows when it is written.
    Line(Sender<()>),
    /// The last part ends.
    End,
}

impl Board {
    /// Creates a board for `threads` threads.
    pub fn new(threads: usize) -> Self {
        let lanes = (0..threads).map(|_| Default::default()).collect();
        Self { kinds: OnceLock::new(), lanes, watch: Mutex::default() }
    }

    /// Ends the current line of the timeline, if a watch writes one, and waits until it is written.
    pub fn cut(&self) {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (answer, written) = channel();
        if watch.is_some_and(|watch| watch.send(Change::Line(answer)).is_ok()) {
            // An error means that the watch has ended.
            let _ = written.recv();
        }
    }

    /// Names the kinds. Only the first call has an effect.
    pub fn name(&self, kinds: &[&str]) {
        self.kinds.get_or_init(|| kinds.iter().map(|k| (*k).to_owned()).collect());
    }

    /// Counts `ops` operations of a kind that ended on this thread after `latency`.
    #[inline]
    pub fn beat(&self, thread: usize, kind: usize, ops: u64, latency: Duration) {
        let cell = &self.lanes[thread].cells[kind];
        // Only this thread adds, so a load and a store suffice.
        cell.ops.store(cell.ops.load(Relaxed) + ops, Relaxed);
        let nanos = latency.as_nanos() as u64;
        cell.time.store(cell.time.load(Relaxed) + nanos, Relaxed);
        if nanos > cell.slowest.load(Relaxed) {
            cell.slowest.fetch_max(nanos, Relaxed);
        }
    }

    /// Counts bytes of keys and values that this thread put (`more`) or deleted.
    pub fn keep(&self, thread: usize, more: bool, bytes: u64) {
        let live = &self.lanes[thread].live;
        let old = live.load(Relaxed);
        live.store(if more { old + bytes } else { old.saturating_sub(bytes) }, Relaxed);
    }

    /// Returns the bytes of keys and values that exist.
    fn live(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.live.load(Relaxed)).sum()
    }

    /// Returns, per kind, all operations so far, the sum of their latencies, and the largest latency since the last
    /// call.
    fn read(&self) -> Vec<(u64, u64, u64)> {
        let kinds = self.kinds.get().map_or(0, Vec::len).min(KINDS);
        let of = |kind: usize| {
            let cells = || self.lanes.iter().map(|lane| &lane.cells[kind]);
            let sum = |of: fn(&Cell) -> &AtomicU64| cells().map(|cell| of(cell).load(Relaxed)).sum();
            (
                sum(|c| &c.ops),
                sum(|c| &c.time),
                cells().map(|cell| cell.slowest.swap(0, Relaxed)).max().unwrap_or(0),
            )
        };
        (0..kinds).map(of).collect()
    }
}

/// Thread that writes the lines.
pub struct Watch<'scope> {
    changes: Changes,
    thread: ScopedJoinHandle<'scope, Vec<Second>>,
}

/// Tells the thread of a watch what changes. Dropping it ends the thread: the board, which outlives a failed row, has a sender too.
struct Changes(Sender<Change>);

impl Drop for Changes {
    fn drop(&mut self) {
        let _ = self.0.send(Change::End);
    }
}

/// Sources of the figures.
#[derive(Clone)]
pub struct Sources<'a> {
    /// Operation counters.
    pub board: Arc<Board>,
    /// Directory of the database.
    pub dir: PathBuf,
    /// Cgroup of this process, if it has one.
    pub group: Option<PathBuf>,
    /// The engine, for its stalls and its debt.
    pub engine: &'a dyn Engine,
}

impl<'scope> Watch<'scope> {
    /// Starts with the part `Run` and writes a line every `every`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start<'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        sources: Sources<'a>,
        every: Duration,
    ) -> Result<Self, String> {
        let (send, changes) = channel();
        *sources.board.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(send.clone());
        let mut lines = Lines::new(sources);
        let work = move || {
            let mut part = Part::Run;
            let mut due = every;
            loop {
                match changes.recv_timeout(due.saturating_sub(lines.start.elapsed())) {
                    Err(RecvTimeoutError::Timeout) => {
                        lines.add(part);
                        // After a time in which this process did not run, lines are not made up.
                        due = (due + every).max(lines.start.elapsed());
                    }
                    Ok(Change::Part(next)) => {
                        lines.add(part);
                        part = next;
                    }
                    Ok(Change::Line(answer)) => {
                        lines.add(part);
                        // The writer that asked may have failed meanwhile.
                        let _ = answer.send(());
                    }
                    Ok(Change::End) | Err(RecvTimeoutError::Disconnected) => {
                        lines.add(part);
                        return lines.all;
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .spawn_scoped(scope, work)
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Self { changes: Changes(send), thread })
    }

    /// Ends the current part and begins `part`.
    pub fn part(&self, part: Part) {
        // The send cannot fail: the thread ends only after this handle is dropped.
        let _ = self.changes.0.send(Change::Part(part));
    }

    /// Ends the last part and returns all lines.
    ///
    /// # Errors
    /// Returns an error if the thread panicked.
    pub fn finish(self) -> Result<Vec<Second>, String> {
        drop(self.changes);
        self.thread.join().map_err(|_| "the timeline thread panicked".to_owned())
    }
}

/// Lines so far, and the counters at the end of the last one.
struct Lines<'a> {
    sources: Sources<'a>,
    start: std::time::Instant,
    at: Duration,
    /// Operations, and the sum of their latencies.
    counts: Vec<(u64, u64)>,
    usage: Usage,
    busy: u64,
    causes: Vec<Cause>,
    all: Vec<Second>,
}

impl<'a> Lines<'a> {
    fn new(sources: Sources<'a>) -> Self {
        Self {
            sources,
            start: now(),
            at: Duration::ZERO,
            counts: Vec::new(),
            usage: Usage::now(),
            busy: 0,
            causes: Vec::new(),
            all: Vec::new(),
        }
    }

    fn add(&mut self, part: Part) {
        let (counts, at, usage) = (self.sources.board.read(), self.start.elapsed(), Usage::now());
        self.counts.resize(counts.len(), (0, 0));
        let names = self.sources.board.kinds.get().into_iter().flatten();
        let beats = names.zip(&counts).zip(&self.counts).map(|((name, (ops, time, slowest)), before)| Beat {
            operation: name.clone(),
            ops: ops - before.0,
            slowest: *slowest as f64 / 1e3,
            seconds: (time - before.1) as f64 / 1e9,
        });
        let used = usage.since(&self.usage);
        let (busy, causes) = (self.sources.engine.stats().busy, self.sources.engine.causes());
        let space = process::space_below(&self.sources.dir);
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
            files: space.bytes,
            allocated: space.allocated,
            live: self.sources.board.live(),
            debt: self.sources.engine.debt(),
            busy: busy - self.busy,
            stalls: causes.iter().filter_map(|cause| cause.since(&self.causes)).collect(),
        });
        (self.counts, self.at, self.usage) = (counts.iter().map(|c| (c.0, c.1)).collect(), at, usage);
        (self.busy, self.causes) = (busy, causes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Result, Session, Stats};

    /// An engine that stalls three times, and refuses one commit, between two looks.
    struct Stalling(AtomicU64);

    impl Engine for Stalling {
        fn session(&self) -> Result<Box<dyn Session + '_>> {
            Err("there is no data".to_owned())
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }

        fn settle(&self) -> Result<()> {
            Ok(())
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }

        fn stats(&self) -> Stats {
            Stats { busy: self.0.fetch_add(1, Relaxed) + 1, ..Stats::default() }
        }

        fn causes(&self) -> Vec<Cause> {
            let n = self.0.load(Relaxed);
            vec![Cause { cause: "debt".to_owned(), count: 3 * n, seconds: n as f64 }, Cause::default()]
        }

        fn debt(&self) -> u64 {
            77
        }

        fn settings(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn each_line_covers_the_time_since_the_previous_one() {
        let dir = tempfile::tempdir().unwrap();
        let board = Arc::new(Board::new(2));
        board.name(&["PUT", "GET"]);
        let engine = Stalling(AtomicU64::new(0));
        let (group, files) = (None, dir.path().to_owned());
        let mut lines = Lines::new(Sources { board: board.clone(), dir: files, group, engine: &engine });
        board.beat(0, 0, 100, Duration::from_micros(3));
        board.beat(1, 0, 100, Duration::from_micros(7));
        std::fs::write(dir.path().join("file"), [0; 1234]).unwrap();
        board.keep(0, true, 5000);
        board.keep(1, true, 700);
        board.keep(0, false, 1000);
        lines.add(Part::Run);
        board.beat(0, 1, 1, Duration::from_micros(2));
        lines.add(Part::Settle);
        let beat =
            |line: usize, kind: usize| (lines.all[line].beats[kind].ops, lines.all[line].beats[kind].slowest);
        assert_eq!((beat(0, 0), beat(0, 1)), ((200, 7.0), (0, 0.0)));
        assert_eq!(
            (beat(1, 0), beat(1, 1)),
            ((0, 0.0), (1, 2.0)),
            "counts and the slowest restart with each line"
        );
        assert_eq!((lines.all[0].files, lines.all[1].part), (1234, Part::Settle));
        assert_eq!(lines.all[1].live, 4700);
        let ends: Vec<f64> = lines.all.iter().map(|l| l.at).collect();
        let lengths: f64 = lines.all.iter().map(|l| l.length).sum();
        assert!(ends[0] < ends[1] && (lengths - ends[1]).abs() < 1e-9, "{ends:?} {lengths}");
        assert!(lines.all[0].resident > 1 << 20);
        assert_eq!(lines.all[0].rate("SEEK"), None);
        let stall = Cause { cause: "debt".to_owned(), count: 3, seconds: 1.0 };
        for line in &lines.all {
            assert_eq!((line.busy, line.debt, line.stalls.as_slice()), (1, 77, &[stall.clone()][..]));
        }
    }

    #[test]
    fn a_line_belongs_to_the_period_of_its_middle() {
        let second = |at: u32| Second { at: f64::from(at), length: 1.0, ..Second::default() };
        let all: Vec<Second> = (1..=5).map(second).collect();
        let operations = vec!["PUT".to_owned()];
        let period = Period { name: String::new(), operations, from: 1.2, to: 3.7 };
        let found: Vec<f64> = Period::lines_of(&[period], "PUT", &all).iter().map(|s| s.at).collect();
        assert_eq!(found, [2.0, 3.0, 4.0]);
        assert_eq!(Period::lines_of(&[], "PUT", &all).len(), 5);
    }

    #[test]
    fn a_watch_writes_a_line_per_interval_and_one_at_the_end_of_each_part() {
        let dir = tempfile::tempdir().unwrap();
        let board = Arc::new(Board::new(1));
        board.name(&["PUT"]);
        let engine = Stalling(AtomicU64::new(0));
        let (group, files) = (None, dir.path().to_owned());
        let sources = Sources { board: board.clone(), dir: files, group, engine: &engine };
        let lines = std::thread::scope(|scope| {
            let watch = Watch::start(scope, sources, Duration::from_millis(20)).unwrap();
            for _ in 0..10 {
                board.beat(0, 0, 5, Duration::from_millis(5));
                std::thread::sleep(Duration::from_millis(5));
            }
            board.cut();
            board.beat(0, 0, 7, Duration::from_millis(5));
            watch.part(Part::Settle);
            std::thread::sleep(Duration::from_millis(5));
            watch.finish().unwrap()
        });
        board.cut(); // no watch answers any more
        let sum_to = |n: usize| lines[..n].iter().map(Second::ops).sum::<u64>();
        assert!((1..lines.len()).any(|n| sum_to(n) == 50), "a line was cut off: {lines:?}");
        assert!(lines.len() >= 3, "{lines:?}");
        assert_eq!(lines.iter().map(Second::ops).sum::<u64>(), 57);
        assert!(lines.is_sorted_by(|a, b| a.at < b.at));
        assert_eq!(lines.last().unwrap().part, Part::Settle);
        assert!(lines.iter().filter(|l| l.part == Part::Settle).all(|l| l.ops() == 0));
    }
}
