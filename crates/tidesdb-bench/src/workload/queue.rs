//! Queues: each thread appends a batch at the end of its own queue and takes one from the front. It finds the front by
//! a scan from the original start of the queue, across all deleted entries (HEAD), and deletes what it found (TAKE).
//! This measures the cost of tombstones.

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::verify::Summary;

const APPEND: usize = 0;
const HEAD: usize = 1;
const TAKE: usize = 2;
/// Name of the scan that finds the front.
pub const FRONT: &str = "HEAD";
/// Number of entries kept in a queue; shorter in short runs.
const DEPTH: u64 = 1000;

/// A queue: the original start, the first entry, and the position of the next entry.
struct Queue {
    origin: u64,
    head: u64,
    tail: u64,
}

impl Bench<'_> {
    pub(super) fn queue(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let (share, batch) = (self.spec.share(), self.spec.batch);
        let depth = DEPTH.min(share / 8).max(batch);
        let done = self.parallel(engine, &["APPEND", FRONT, "TAKE"], limit, |lane, session| {
            let origin = lane.thread * share;
            let mut queue = Queue { origin, head: origin, tail: origin };
            let mut taken = Vec::with_capacity(batch as usize);
            while lane.more() {
                queue.append(lane, session, lane.batch(batch))?;
                if queue.tail - queue.head > depth && lane.more() {
                    queue.take(lane, session, batch, &mut taken)?;
                }
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
    fn append(&mut self, lane: &mut Lane<'_>, session: &mut dyn Session, batch: u64) -> Result<()> {
        for _ in 0..batch {
            lane.put(session, self.tail, 0)?;
            self.tail += 1;
        }
        session.commit()?;
        lane.lap(APPEND, batch)
    }

    fn take(
        &mut self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        batch: u64,
        taken: &mut Vec<u64>,
    ) -> Result<()> {
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
        lane.step(HEAD, 1)?;
        for index in head..head + batch {
            lane.aim(index);
            session.delete(&lane.key)?;
        }
        session.commit()?;
        self.head += batch;
        lane.lap(TAKE, batch)
    }

    fn summary(&self, lane: &Lane<'_>) -> Summary {
        let mut all = Summary::default();
        (self.head..self.tail).for_each(|index| all.add(lane.keys.item(index).id, 0));
        all
    }
}
