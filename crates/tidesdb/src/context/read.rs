//! What a read needs of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;
use tidesdb_sync::CachePadded;

use crate::clock::ExpiryClock;
use crate::jobs::JobQueue;
use crate::mvcc::{CursorPlace, SnapshotPin, Snapshots};
use crate::stats::counts::{self, Counter};
use crate::stats::{Histogram, Timer, is_chosen, is_recorded};
use crate::types::{ReadPoint, SeqNo, expiry_after, has_passed};
use crate::wal::{Log, Sequencer};
use crate::{Error, Result};

/// Durations of the operations of users: a random sample of each, see [`ReadCtx::sample`].
#[derive(Debug)]
pub struct OperationTimes {
    /// Reads of one key.
    pub gets: Histogram,
    /// Reads of many keys.
    pub multi_gets: Histogram,
    /// Seeks of cursors.
    pub seeks: Histogram,
    /// Commits of single writes.
    pub puts: Histogram,
    /// Commits of batches and transactions.
    pub commits: Histogram,
}

impl Default for OperationTimes {
    fn default() -> Self {
        let [gets, multi_gets, seeks, puts, commits] = std::array::from_fn(|_| Histogram::of_sample());
        Self { gets, multi_gets, seeks, puts, commits }
    }
}

impl OperationTimes {
    /// Each kind of operation with its name.
    pub fn all(&self) -> [(&'static str, &Histogram); 5] {
        [
            ("get", &self.gets),
            ("multi_get", &self.multi_gets),
            ("seek", &self.seeks),
            ("put", &self.puts),
            ("commit", &self.commits),
        ]
    }

    /// Counts an operation whose durations go to `times`.
    fn count(&self, times: &Histogram) {
        let counters = [
            (&self.gets, Counter::Gets),
            (&self.multi_gets, Counter::MultiGets),
            (&self.seeks, Counter::Seeks),
            (&self.puts, Counter::Puts),
            (&self.commits, Counter::Commits),
        ];
        let found = counters.into_iter().find(|(of, _)| std::ptr::eq(*of, times));
        found.into_iter().for_each(|(_, counter)| counts::add(counter, 1));
    }

    /// Estimates how many single writes and commits of batches there were.
    pub fn writes(&self) -> u64 {
        [&self.puts, &self.commits].map(Histogram::estimate).iter().sum()
    }

    /// Estimates how many reads and seeks there were.
    pub fn reads(&self) -> u64 {
        [&self.gets, &self.multi_gets, &self.seeks].map(Histogram::estimate).iter().sum()
    }
}

/// Decides what a reader sees: the newest visible commit, the snapshots, the time of expiry, and whether the database is open.
#[derive(Debug)]
pub struct ReadCtx {
    sequencer: Arc<Sequencer>,
    clock: Arc<dyn Clock>,
    /// Whether a thread refreshes `expiry_clock`; otherwise each read of the time does.
    ticking: AtomicBool,
    /// Sequence numbers that live snapshots and cursors use.
    pub snapshots: Arc<Snapshots>,
    /// The time that decides expiry.
    pub expiry_clock: ExpiryClock,
    /// True once `close` was called.
    pub closed: AtomicBool,
    /// Whether all operations are timed, because slow ones are reported.
    reports_slow: AtomicBool,
    /// The queue of background work, for reads that find work to do.
    pub jobs: Arc<JobQueue>,
    /// Durations of operations. On cache lines of their own: the fields above are read by each operation.
    pub times: CachePadded<OperationTimes>,
}

impl ReadCtx {
    /// The readers of `log`.
    pub fn new(log: &Log, clock: &Arc<dyn Clock>) -> Self {
        Self {
            sequencer: Arc::clone(log.sequencer()),
            clock: Arc::clone(clock),
            ticking: AtomicBool::new(false),
            snapshots: Arc::new(Snapshots::default()),
            expiry_clock: ExpiryClock::default(),
            closed: AtomicBool::new(false),
            reports_slow: AtomicBool::new(false),
            jobs: Arc::default(),
            times: CachePadded::default(),
        }
    }

    /// Begins to measure an operation for `times`, if it is chosen, or if slow operations are reported.
    #[inline]
    pub fn sample<'a>(&'a self, times: &'a Histogram) -> Option<Timer<'a>> {
        let is_chosen = is_chosen();
        if is_chosen || self.reports_slow() { Some(self.measure(times, is_chosen)) } else { None }
    }

    /// Returns true if all operations are timed, because slow ones are reported.
    #[inline]
    pub fn reports_slow(&self) -> bool {
        self.reports_slow.load(Ordering::Relaxed)
    }

    /// Begins to measure an operation for `times`, which records it if it was chosen for the sample. Counts it for the profile of this thread.
    #[cold]
    #[inline(never)]
    pub fn measure<'a>(&'a self, times: &'a Histogram, is_chosen: bool) -> Timer<'a> {
        if counts::is_running() {
            self.times.count(times);
        }
        times.start(&*self.clock, is_chosen && is_recorded())
    }

    /// Sets from which duration on operations are reported as slow. With one, every operation is timed.
    pub fn set_slow_from(&self, time: Option<Duration>) {
        let time = time.filter(|time| !time.is_zero());
        self.times.all().iter().for_each(|(_, times)| times.set_slow_from(time));
        self.reports_slow.store(time.is_some(), Ordering::Relaxed);
    }

    /// Fails after close.
    ///
    /// # Errors
    /// `Closed`.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Newest sequence number that a reader may see.
    #[inline]
    pub fn visible(&self) -> SeqNo {
        self.sequencer.snapshot()
    }

    /// Registers a snapshot of the newest visible commit. First waits for commits that have returned, before it takes
    /// the lock of the snapshots: a commit that is waited for may need that lock in a comparator that reads.
    pub fn register_snapshot(&self) -> SnapshotPin {
        self.visible();
        self.snapshots.register(self.expiry_clock.seen(), || self.sequencer.visible_end() - 1)
    }

    /// As [`ReadCtx::register_snapshot`], for a transaction that begins now and whose commit looks for conflicts.
    pub fn register_validating(&self) -> SnapshotPin {
        self.visible();
        self.now();
        // A merge reads the time before it looks for such transactions, so it has none that is later than that of one it misses.
        let now = || ReadPoint { seq: self.sequencer.visible_end() - 1, now: self.expiry_clock.seen() };
        self.snapshots.register_validating(now)
    }

    /// Registers a cursor at the newest visible commit, before it takes its view. Returns its sequence number too.
    pub fn register_cursor(&self) -> (CursorPlace, SeqNo) {
        self.snapshots.register_cursor(self.expiry_clock.seen(), || self.visible())
    }

    /// Registers a cursor at `seq`, the number of a snapshot that lives until the call returns.
    pub fn register_cursor_at(&self, seq: SeqNo) -> CursorPlace {
        self.snapshots.register_cursor_at(seq, self.expiry_clock.seen())
    }

    /// Time for expiry in milliseconds since the UNIX epoch, as of the last refresh; as of now if no thread refreshes it. Never goes
    /// back.
    #[inline]
    pub fn now(&self) -> u64 {
        if !self.ticking.load(Ordering::Relaxed) {
            return self.refresh_clock();
        }
        self.expiry_clock.seen()
    }

    /// Returns true if a version with this expiry is expired now; an expiry of 0 means never.
    #[inline]
    pub fn is_expired(&self, expiry: u64) -> bool {
        expiry != 0 && has_passed(expiry, self.now())
    }

    /// Returns the expiry of a row that is written now with `ttl`: the first millisecond that is not before the end of `ttl`.
    ///
    /// # Errors
    /// `InvalidArgument` if that is after the last moment that a row can store, in the year 10889.
    pub fn expiry_after(&self, ttl: Duration) -> Result<u64> {
        expiry_after(self.expiry_clock.read_exactly(&*self.clock), ttl)
    }

    /// From now on the calling thread calls [`ReadCtx::refresh_clock`] often.
    pub fn begin_ticking(&self) {
        self.refresh_clock();
        self.ticking.store(true, Ordering::Relaxed);
    }

    /// Reads the clock and returns the time.
    pub fn refresh_clock(&self) -> u64 {
        self.expiry_clock.read(&*self.clock)
    }
}
