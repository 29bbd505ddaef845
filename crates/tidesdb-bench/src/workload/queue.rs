//! Queues: each thread appends a batch at the end of its own queue and takes one from the front. It finds the front by
//! a scan from the original start of the queue, across all deleted entries (HEAD), and deletes what it found (TAKE).
//! This measures the cost of tombstones.

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::verify::Summary;

/// Kinds of operations, counted from the first one of a queue.
const APPEND: usize = 0;
const HEAD: usize = 1;
const TAKE: usize = 2;
/// Name of the scan that finds the front.
pub const FRONT: &str = "HEAD";
/// Number of entries kept in a queue; shorter in short runs.
pub(super) const DEPTH: u64 = 1000;

/// A queue: the original start, the first entry, and the position of the next entry.
pub(super) struct Queue {
    /// Index of the kind APPEND among the kinds of the row.
    kinds: usize,
    depth: u64,
    taken: Vec<u64>,
    origin: u64,
    head: u64,
    tail: u64,
}

impl Bench<'_> {
    pub(super) fn queue(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let (share, batch) = (self.spec.share(), self.spec.batch);
        let depth = DEPTH.min(share / 8);
        let done = self.parallel(engine, &["APPEND", FRONT, "TAKE"], limit, |lane, session| {
            let origin = lane.thread * share;
            let mut queue = Queue::new(0, origin, depth.max(batch));
            while lane.more() {
                queue.turn(lane, session, batch)?;
            }
            Ok(queue.summary(lane))
        })?;
        Ok(Measured::of(done, |lanes| {
            let mut all = Summary::default();
            lanes.iter().for_each(|lane| all.merge(lane));
            Model::Known(all)
        }))
    }
}

impl Queue {
    /// Creates an empty queue that keeps `depth` entries and starts at the index `origin`. `kinds` is the index of the
    /// kind APPEND.
    pub(super) fn new(kinds: usize, origin: u64, depth: u64) -> Self {
        Self { kinds, depth, taken: Vec::new(), origin, head: origin, tail: origin }
    }

    /// Appends a batch, and takes one if the queue is long enough.
    pub(super) fn turn(&mut self, lane: &mut Lane<'_>, session: &mut dyn Session, batch: u64) -> Result<()> {
        self.append(lane, session, lane.batch(batch))?;
        if self.tail - self.head > self.depth && lane.more() {
            self.take(lane, session, batch)?;
        }
        Ok(())
    }

    fn append(&mut self, lane: &mut Lane<'_>, session: &mut dyn Session, batch: u64) -> Result<()> {
        for _ in 0..batch {
            lane.put(session, self.tail, 0)?;
            self.tail += 1;
        }
        session.commit()?;
        lane.keep(true, batch);
        lane.lap(self.kinds + APPEND, batch)
    }

    fn take(&mut self, lane: &mut Lane<'_>, session: &mut dyn Session, batch: u64) -> Result<()> {
        let taken = &mut self.taken;
        taken.clear();
        lane.aim(self.origin);
        session.refresh()?;
        let due = lane.check.due();
        let check = &mut lane.check;
        session.range(&lane.key, batch, &mut |key, value| {
            taken.push(check.row(due, taken.last().copied(), key, value));
        })?;
        let head = self.head;
        let right = taken.iter().copied().eq(head..head + batch);
        lane.check.ensure(right, || "the front of a queue is not where it should be".to_owned());
        lane.step(self.kinds + HEAD, 1)?;
        for index in head..head + batch {
            lane.aim(index);
            session.delete(&lane.key)?;
        }
        session.commit()?;
        self.head += batch;
        lane.keep(false, batch);
        lane.lap(self.kinds + TAKE, batch)
    }

    /// Returns the entries.
    pub(super) fn summary(&self, lane: &Lane<'_>) -> Summary {
        let mut all = Summary::default();
        (self.head..self.tail).for_each(|index| all.add(lane.keys.item(index).id, 0));
        all
    }
}
