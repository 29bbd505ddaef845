//! Threads that start together, and the state of each one.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Bench, Phase};
use crate::engine::{Engine, Result, Session};
use crate::keys::{Item, Keys};
use crate::measure::{Meter, Recorder, SLOW};
use crate::process::{RunDelay, Usage};
use crate::spec::Workload;
use crate::timeline::Board;
use crate::values::Values;
use crate::verify::{Check, SAMPLE};

/// How often a thread that waits for others looks at them.
const POLL: Duration = Duration::from_millis(1);

/// A thread whose run delay is counted looks at it once in so many operations. A slow one cannot be charged for more than these.
const DELAY_EVERY: u32 = 64;

/// Condition that ends a thread.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After this number of operations.
    Count(u64),
    /// After this duration.
    Time(Duration),
}

/// State of one thread of a phase.
pub(super) struct Lane<'a> {
    pub(super) thread: u64,
    pub(super) keys: &'a Keys,
    pub(super) values: &'a Values,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) check: Check,
    /// Number of operations done.
    pub(super) done: u64,
    counts: Vec<u64>,
    meter: Meter,
    limit: Limit,
    stop: &'a AtomicBool,
    board: Option<&'a Board>,
    delays: Option<Delays>,
}

/// What slow operations of a thread waited for a processor.
#[derive(Debug)]
struct Delays {
    thread: RunDelay,
    operations: u32,
    slow: u64,
    time: Duration,
}

impl Delays {
    #[inline]
    fn note(&mut self, latency: Duration) {
        self.operations += 1;
        if latency >= SLOW || self.operations == DELAY_EVERY {
            self.look(latency);
        }
    }

    #[cold]
    fn look(&mut self, latency: Duration) {
        let delay = self.thread.take().min(latency);
        if latency >= SLOW && !delay.is_zero() {
            self.slow += 1;
            self.time += delay;
        }
        self.operations = 0;
    }
}

impl Lane<'_> {
    /// Returns true if there are operations left.
    #[inline]
    pub(super) fn more(&self) -> bool {
        let more = match self.limit {
            Limit::Count(count) => self.done < count,
            Limit::Time(time) => self.meter.elapsed() < time,
        };
        more && !self.is_stopped()
    }

    /// Returns true after another thread has failed.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the size of the next batch.
    pub(super) fn batch(&self, batch: u64) -> u64 {
        match self.limit {
            Limit::Count(count) => batch.min(count - self.done),
            Limit::Time(_) => batch,
        }
    }

    /// Writes the key of `index` into `self.key` and returns its item.
    #[inline]
    pub(super) fn aim(&mut self, index: u64) -> Item {
        let item = self.keys.item(index);
        self.keys.write(item.id, &mut self.key);
        item
    }

    /// Adds a put of the key and value of `index` to the open batch.
    #[inline]
    pub(super) fn put(&mut self, session: &mut dyn Session, index: u64, version: u32) -> Result<()> {
        let item = self.aim(index);
        self.values.fill(item, version, &mut self.value);
        session.put(&self.key, &self.value)
    }

    /// Gets the value of `index` and checks it; `want` is its version, if known. Returns whether the key exists.
    #[inline]
    pub(super) fn get(&mut self, session: &mut dyn Session, index: u64, want: Option<u32>) -> Result<bool> {
        let item = self.aim(index);
        let due = self.check.due();
        let check = &mut self.check;
        session.get(&self.key, &mut |value| check.value(due, item.id, want, value))
    }

    /// Ends `ops` operations of a kind: records latency and counts, and returns an error if an answer was wrong.
    #[inline]
    pub(super) fn lap(&mut self, kind: usize, ops: u64) -> Result<()> {
        self.done += ops;
        self.step(kind, ops)
    }

    /// Ends `ops` operations of an open loop: records how long they took once they began, and in `since_due` how long
    /// since they were due.
    #[inline]
    pub(super) fn lap_served(&mut self, kind: usize, ops: u64, since_due: &mut Recorder) -> Result<()> {
        self.done += ops;
        let (served, since) = self.meter.lap_served(kind);
        since_due.record(since);
        self.count(kind, ops, served)
    }

    /// Ends a step of an operation, which is measured like an operation but does not count towards the limit.
    #[inline]
    pub(super) fn step(&mut self, kind: usize, ops: u64) -> Result<()> {
        let latency = self.meter.lap(kind);
        self.count(kind, ops, latency)
    }

    #[inline]
    fn count(&mut self, kind: usize, ops: u64, latency: Duration) -> Result<()> {
        if let Some(board) = self.board {
            board.beat(self.thread as usize, kind, ops, latency);
        }
        if let Some(delays) = &mut self.delays {
            delays.note(latency);
        }
        self.counts[kind] += ops;
        self.check.verdict()
    }

    /// Counts how long slow operations wait for a processor, from now on.
    pub(super) fn watch_scheduling(&mut self) {
        let thread = RunDelay::of_this_thread();
        self.delays = Some(Delays { thread, operations: 0, slow: 0, time: Duration::ZERO });
    }

    /// Returns the slow operations since [`Lane::watch_scheduling`] that waited, and how long they did; counts no longer.
    pub(super) fn scheduling(&mut self) -> (u64, Duration) {
        self.delays.take().map_or((0, Duration::ZERO), |delays| (delays.slow, delays.time))
    }

    /// Counts `rows` rows that this thread put (`more`) or deleted, for the timeline.
    pub(super) fn keep(&self, more: bool, rows: u64) {
        if let Some(board) = self.board {
            board.keep(self.thread as usize, more, rows * (self.key.len() + self.value.len()) as u64);
        }
    }

    /// Excludes the time since the last operation.
    pub(super) fn resume(&mut self) {
        self.meter.resume();
        if let Some(delays) = &mut self.delays {
            delays.look(Duration::ZERO);
        }
    }

    /// Begins an open loop with this number of commits per second.
    pub(super) fn keep_rate(&mut self, commits: f64) {
        self.meter.keep_pace(Duration::from_secs_f64(1.0 / commits.max(1.0)));
    }

    /// Waits until `wanted` threads have arrived. Returns false if another thread has failed before.
    pub(super) fn wait_for(&self, arrived: &AtomicUsize, wanted: usize) -> bool {
        while arrived.load(Ordering::Acquire) < wanted {
            if self.is_stopped() {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    /// Returns the time from the start until the current operation began.
    pub(super) fn elapsed(&self) -> Duration {
        self.meter.elapsed()
    }
}

/// Measurements of all threads, and the value returned by each thread.
pub(super) struct Gathered<T> {
    pub(super) phases: Vec<Phase>,
    pub(super) lanes: Vec<T>,
    pub(super) checked: u64,
    /// Processor seconds of the whole process during the phase.
    pub(super) processor: f64,
}

/// Measurements of one thread.
struct Brought<T> {
    result: T,
    checked: u64,
    counts: Vec<u64>,
    start: Instant,
    end: Instant,
    recorders: Vec<Recorder>,
}

impl Bench<'_> {
    /// Runs `body` on every thread of the row. `kinds` names the operations that the body measures. The first failure
    /// stops all threads.
    pub(super) fn parallel<T: Send>(
        &self,
        engine: &dyn Engine,
        kinds: &[&str],
        limit: Limit,
        body: impl Fn(&mut Lane<'_>, &mut dyn Session) -> Result<T> + Sync,
    ) -> Result<Gathered<T>> {
        self.parallel_on(self.spec.threads, engine, (kinds, limit), body)
    }

    /// Runs `body` like [`Bench::parallel`], on `threads` threads.
    pub(super) fn parallel_on<T: Send>(
        &self,
        threads: usize,
        engine: &dyn Engine,
        (kinds, limit): (&[&str], Limit),
        body: impl Fn(&mut Lane<'_>, &mut dyn Session) -> Result<T> + Sync,
    ) -> Result<Gathered<T>> {
        self.board.as_deref().inspect(|board| board.name(kinds));
        let (barrier, stop) = (Barrier::new(threads), AtomicBool::new(false));
        let work = |thread| {
            let session = match self.spec.families.is_empty() {
                true => engine.session(),
                false => engine.session_of(thread),
            };
            let mut lane = self.lane(thread as u64, kinds.len(), limit, &stop);
            barrier.wait();
            lane.meter.begin();
            let result = session.and_then(|mut session| body(&mut lane, &mut *session));
            if result.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            let (start, end, recorders) = lane.meter.finish();
            let (checked, counts) = (lane.check.checked(), lane.counts);
            result.map(|result| Brought { result, checked, counts, start, end, recorders })
        };
        let before = Usage::now();
        let brought = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            handles
                .into_iter()
                .map(|h| h.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
                .collect()
        });
        let processor = Usage::now().since(&before).processor;
        gather(kinds, brought, processor)
    }

    /// Creates the state of a thread.
    pub(super) fn lane<'a>(
        &'a self,
        thread: u64,
        kinds: usize,
        limit: Limit,
        stop: &'a AtomicBool,
    ) -> Lane<'a> {
        // With one more thread of another kind, the rate applies to that thread alone. It puts batches or gets single keys.
        let (threads, batch) = match self.spec.workload {
            Workload::ReadWhileWriting => (None, self.spec.batch),
            Workload::WriteWhileReading => (None, 1),
            _ => (Some(self.spec.threads), self.spec.batch),
        };
        let is_paced = threads.is_some() || thread == self.spec.threads as u64;
        let pace = (self.spec.rate > 0.0 && is_paced).then(|| {
            let commits = self.spec.rate / threads.unwrap_or(1) as f64 / batch as f64;
            Duration::from_secs_f64(1.0 / commits)
        });
        Lane {
            thread,
            keys: &self.keys,
            values: &self.values,
            key: self.keys.buffer(),
            value: self.values.buffer(),
            check: self.check(),
            done: 0,
            counts: vec![0; kinds],
            meter: Meter::new(kinds, pace),
            limit,
            stop,
            board: self.board.as_deref(),
            delays: None,
        }
    }

    /// Creates the checks of a thread.
    pub(super) fn check(&self) -> Check {
        let every = if self.spec.verify { 1 } else { SAMPLE };
        Check::new(self.keys.clone(), self.values.clone(), every, self.lenient)
    }
}

fn gather<T>(kinds: &[&str], brought: Vec<Result<Brought<T>>>, processor: f64) -> Result<Gathered<T>> {
    let brought = brought.into_iter().collect::<Result<Vec<_>>>()?;
    let start = brought.iter().map(|b| b.start).min();
    let end = brought.iter().map(|b| b.end).max();
    let seconds = start.zip(end).map_or(0.0, |(start, end)| (end - start).as_secs_f64());
    let phase = |(kind, name): (usize, &&str)| {
        let mut all = Recorder::default();
        brought.iter().for_each(|b| all.merge(&b.recorders[kind]));
        let ops = brought.iter().map(|b| b.counts[kind]).sum();
        Phase { operation: (*name).to_owned(), ops, seconds, latency: all.latency() }
    };
    let phases = kinds.iter().enumerate().map(phase).filter(|p| p.ops > 0).collect();
    let checked = brought.iter().map(|b| b.checked).sum();
    Ok(Gathered { phases, lanes: brought.into_iter().map(|b| b.result).collect(), checked, processor })
}
