//! Turnover: all keys are put, overwritten several times in different orders, and nine of ten deleted; then queues run
//! for a while, then nothing is written. The database stays open. One more thread scans ranges all the time.
//!
//! Every key has the version of the current round, so the contents at the end are known without a table.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lane::{Lane, Limit};
use super::queue::{DEPTH, FRONT, Queue};
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::keys::Stream;
use crate::measure::now;
use crate::rng::Rng;
use crate::timeline::{Board, Period};
use crate::verify::Summary;

const KINDS: [&str; 7] = ["PUT", "UPDATE", "DELETE", "APPEND", FRONT, "TAKE", "SCAN"];
const PUT: usize = 0;
const UPDATE: usize = 1;
const DELETE: usize = 2;
const APPEND: usize = 3;
const SCAN: usize = 6;

/// Periods, and the operations that only they have.
const PERIODS: [(&str, &[&str]); 6] = [
    ("load", &["PUT"]),
    ("calm", &[]),
    ("overwrite", &["UPDATE"]),
    ("delete", &["DELETE"]),
    ("queue", &["APPEND", FRONT, "TAKE"]),
    ("rest", &[]),
];
const LOAD: usize = 0;
const CALM: usize = 1;
const OVERWRITE: usize = 2;
const QUEUE: usize = 4;
const REST: usize = 5;

/// The calm before the overwrites is this part of the duration of the row.
const CALM_PART: u32 = 6;
/// One key of this many is kept.
const KEPT: u64 = 10;
/// Time between two scans, and while nothing is written.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(500)];
const POLL: Duration = Duration::from_millis(1);
/// Index of a queue's start within the indexes of its thread, above all other keys.
const QUEUES: u64 = 500_000_000_000;

/// The periods so far. All writers enter a period together.
struct Course {
    start: Instant,
    /// Current period.
    at: AtomicUsize,
    arrived: AtomicUsize,
    writers: usize,
    periods: Mutex<Vec<Period>>,
    /// Ends the line of the timeline when a period ends, so that no line covers two periods.
    board: Option<Arc<Board>>,
}

impl Course {
    fn new(writers: usize, board: Option<Arc<Board>>) -> Self {
        let (at, arrived) = (AtomicUsize::new(LOAD), AtomicUsize::new(0));
        let course = Self { start: now(), at, arrived, writers, periods: Mutex::default(), board };
        course.begin(LOAD);
        course
    }

    fn at(&self) -> usize {
        self.at.load(Ordering::Acquire)
    }

    /// Ends the current period and begins another one.
    fn begin(&self, period: usize) {
        self.board.as_deref().inspect(|board| board.cut());
        let from = self.start.elapsed().as_secs_f64();
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = periods.last_mut() {
            last.to = from;
        }
        if let Some((name, operations)) = PERIODS.get(period) {
            let operations = operations.iter().map(|o| (*o).to_owned()).collect();
            periods.push(Period { name: (*name).to_owned(), operations, from, to: from });
        }
        drop(periods);
        self.at.store(period, Ordering::Release);
    }

    /// Waits until all writers are done with the period before `period`, or one has failed.
    fn enter(&self, lane: &mut Lane<'_>, period: usize) {
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == period * self.writers {
            self.begin(period);
        }
        while self.at() < period && !lane.is_stopped() {
            std::thread::sleep(POLL);
        }
        lane.resume();
    }

    fn periods(self) -> Vec<Period> {
        self.begin(PERIODS.len());
        self.periods.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if the key of the index is not deleted.
fn is_kept(index: u64) -> bool {
    index.is_multiple_of(KEPT)
}

impl Bench<'_> {
    pub(super) fn turnover(&self, engine: &dyn Engine) -> Result<Measured> {
        let course = Course::new(self.spec.threads, self.board.clone());
        let limit = Limit::Count(u64::MAX);
        let done = self.parallel_on(self.spec.crew(), engine, (&KINDS, limit), |lane, session| {
            match (lane.thread as usize) < self.spec.threads {
                true => self.turn_over(lane, session, &course),
                false => self.scan_all_the_time(lane, session, &course),
            }
        })?;
        let periods = course.periods();
        let mut measured = Measured::of(done, |lanes| {
            let mut all = Summary::default();
            lanes.iter().for_each(|lane| all.merge(lane));
            Model::Known(all)
        });
        measured.in_periods(periods);
        Ok(measured)
    }

    /// Number of keys of each writer.
    fn slice_of_set(&self) -> u64 {
        self.spec.population() / self.spec.threads as u64
    }

    /// Runs one writer. Returns the rows that it leaves.
    fn turn_over(&self, lane: &mut Lane<'_>, session: &mut dyn Session, course: &Course) -> Result<Summary> {
        let mut rng = Rng::new(self.spec.seed, lane.thread);
        let rounds = (self.spec.ops / self.spec.population()).max(1) as u32;
        let time = Duration::from_secs_f64(self.spec.seconds);
        self.put_all(lane, session, &mut rng, (PUT, 0))?;
        course.enter(lane, CALM);
        wait(lane, time / CALM_PART);
        course.enter(lane, OVERWRITE);
        for round in 1..=rounds {
            self.put_all(lane, session, &mut rng, (UPDATE, round))?;
        }
        course.enter(lane, OVERWRITE + 1);
        self.delete_most(lane, session, &mut rng)?;
        course.enter(lane, QUEUE);
        let origin = lane.thread * self.spec.share() + QUEUES;
        let mut queue = Queue::new(APPEND, origin, DEPTH.max(self.spec.batch));
        let end = lane.elapsed() + time;
        while lane.elapsed() < end && lane.more() {
            queue.turn(lane, session, self.spec.batch)?;
        }
        course.enter(lane, REST);
        let mut left = queue.summary(lane);
        let first = lane.thread * self.slice_of_set();
        for index in (first..first + self.slice_of_set()).filter(|index| is_kept(*index)) {
            left.add(lane.keys.item(index).id, rounds);
        }
        Ok(left)
    }

    /// Puts all keys of a writer in a new order.
    fn put_all(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        rng: &mut Rng,
        (kind, version): (usize, u32),
    ) -> Result<()> {
        let (slice, mut left) = (self.slice_of_set(), self.slice_of_set());
        let (first, mut stream) = (lane.thread * slice, Stream::shuffled(slice, rng));
        while left > 0 && lane.more() {
            let batch = self.spec.batch.min(left);
            for _ in 0..batch {
                lane.put(session, first + stream.advance(), version)?;
            }
            session.commit()?;
            left -= batch;
            if kind == PUT {
                lane.keep(true, batch);
            }
            lane.lap(kind, batch)?;
        }
        Ok(())
    }

    /// Deletes all keys of a writer that are not kept, in a new order.
    fn delete_most(&self, lane: &mut Lane<'_>, session: &mut dyn Session, rng: &mut Rng) -> Result<()> {
        let slice = self.slice_of_set();
        let (first, mut stream) = (lane.thread * slice, Stream::shuffled(slice, rng));
        let all = (0..slice).map(|_| first + stream.advance());
        let gone: Vec<u64> = all.filter(|index| !is_kept(*index)).collect();
        lane.resume();
        for batch in gone.chunks(self.spec.batch as usize) {
            if lane.is_stopped() {
                break;
            }
            for index in batch {
                lane.aim(*index);
                session.delete(&lane.key)?;
            }
            session.commit()?;
            lane.keep(false, batch.len() as u64);
            lane.lap(DELETE, batch.len() as u64)?;
        }
        Ok(())
    }

    /// Scans ranges from the end of the load to the end of the rest.
    fn scan_all_the_time(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        course: &Course,
    ) -> Result<Summary> {
        let mut rng = Rng::new(self.spec.seed, lane.thread);
        let rest = Duration::from_secs_f64(self.spec.seconds);
        let mut end = None;
        while !lane.is_stopped() {
            let at = course.at();
            if at == REST && now() >= *end.get_or_insert_with(|| now() + rest) {
                break;
            }
            if at == LOAD {
                std::thread::sleep(POLL);
                continue;
            }
            lane.resume();
            self.scan_once(lane, session, course, rng.below(self.spec.population()))?;
            let calm = at == CALM || at == REST;
            sleep_while(PAUSES[usize::from(calm)], || course.at() == at && !lane.is_stopped());
        }
        Ok(Summary::default())
    }

    fn scan_once(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        course: &Course,
        index: u64,
    ) -> Result<()> {
        let (before, item) = (course.at(), lane.aim(index));
        session.refresh()?;
        let due = lane.check.due();
        let (check, values) = (&mut lane.check, lane.values);
        let (mut last, mut whole, keys) = (None, true, self.spec.population());
        let rows = session.range(&lane.key, self.spec.range, &mut |key, value| {
            let id = check.row(due, last, key, value);
            std::hint::black_box(values.version(value));
            check
                .ensure(before < QUEUE || id >= keys || is_kept(id), || "a deleted key was found".to_owned());
            whole &= id == last.map_or(item.id, |last| last + 1);
            last = Some(id);
        })?;
        // All keys exist, and no others, if this is still so after the scan.
        if (CALM..=OVERWRITE).contains(&course.at()) {
            whole &= rows == self.spec.range.min(keys - index);
            check.ensure(whole, || format!("a scan returned {rows} rows; some are missing"));
        }
        lane.lap(SCAN, 1)
    }
}

fn wait(lane: &Lane<'_>, time: Duration) {
    sleep_while(time, || !lane.is_stopped());
}

/// Sleeps for `time`, as long as `goes_on` returns true.
fn sleep_while(time: Duration, goes_on: impl Fn() -> bool) {
    let end = now() + time;
    while now() < end && goes_on() {
        std::thread::sleep(POLL.min(end.saturating_duration_since(now())));
    }
}
