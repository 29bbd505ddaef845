//! Overload: puts of drawn keys as fast as the engine takes them, then at twice that rate in an open loop.
//!
//! The rate is measured in the second half of the search, when memtables and levels have filled up. Each writer draws
//! from its own part of the keys, so the newest version of every key is known.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::keys::Stream;
use crate::measure::{Latency, Recorder, now};
use crate::timeline::Period;

/// Operation of the search.
pub(super) const SEARCH: usize = 0;
const PUT: usize = 1;
const KINDS: [&str; 2] = ["SEARCH", "PUT"];
/// The search takes this part of the duration of the row.
const SEARCH_PART: u32 = 5;
/// The offered rate as a multiple of the rate that was found.
const TIMES: f64 = 2.0;

/// Rates of an overload, and the latency that a caller sees who does not slow down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Puts per second in the second half of the search.
    pub found: f64,
    /// Puts per second that were offered.
    pub offered: f64,
    /// Latency from when a commit was due. It grows as long as the overload lasts.
    pub since_due: Latency,
}

/// What the writers know of each other.
struct Load {
    /// Puts in the second half of the search.
    found: AtomicU64,
    arrived: AtomicUsize,
    /// Seconds from the start to the begin of the overload.
    begun: OnceLock<f64>,
    since_due: Mutex<Recorder>,
}

impl Bench<'_> {
    pub(super) fn overload(&self, engine: &dyn Engine) -> Result<Measured> {
        let (found, arrived) = (AtomicU64::new(0), AtomicUsize::new(0));
        let (begun, since_due) = (OnceLock::new(), Mutex::default());
        let load = Load { found, arrived, begun, since_due };
        let start = now();
        let limit = Limit::Count(u64::MAX);
        let done = self.parallel(engine, &KINDS, limit, |lane, session| {
            let mut stream = self.draws(lane.thread, None);
            let put_batch = |lane: &mut Lane<'_>| self.put_drawn_batch(lane, session, &mut stream);
            let found = self.search(lane, self.search_time(), put_batch)?;
            load.found.fetch_add(found, Ordering::Relaxed);
            load.arrived.fetch_add(1, Ordering::AcqRel);
            lane.wait_for(&load.arrived, self.spec.threads);
            load.begun.get_or_init(|| {
                self.board.as_deref().inspect(|board| board.cut());
                start.elapsed().as_secs_f64()
            });
            self.overwhelm(lane, session, (&mut stream, &load))?;
            Ok(lane.done)
        })?;
        let end = start.elapsed().as_secs_f64();
        let begun = load.begun.into_inner().unwrap_or(end);
        let found = load.found.into_inner() as f64 / (self.search_time() / 2).as_secs_f64();
        let since_due = load.since_due.into_inner().unwrap_or_else(PoisonError::into_inner);
        let period = |kind: usize, from, to| Period {
            name: KINDS[kind].to_lowercase(),
            operations: vec![KINDS[kind].to_owned()],
            from,
            to,
        };
        let mut measured = Measured::of(done, Model::Drawn);
        measured.in_periods(vec![period(SEARCH, 0.0, begun), period(PUT, begun, end)]);
        measured.overload = Some(Overload {
            found,
            offered: found * TIMES,
            since_due: since_due.latency().unwrap_or_default(),
        });
        Ok(measured)
    }

    fn search_time(&self) -> Duration {
        Duration::from_secs_f64(self.spec.seconds) / SEARCH_PART
    }

    /// Puts batches as fast as possible for `time`. Returns the number of puts in the second half, when memtables and levels have filled up.
    pub(super) fn search(
        &self,
        lane: &mut Lane<'_>,
        time: Duration,
        mut put_batch: impl FnMut(&mut Lane<'_>) -> Result<()>,
    ) -> Result<u64> {
        let mut before = None;
        while lane.elapsed() < time && lane.more() {
            if lane.elapsed() >= time / 2 {
                before.get_or_insert(lane.done);
            }
            put_batch(lane)?;
            lane.lap(SEARCH, self.spec.batch)?;
        }
        Ok(lane.done - before.unwrap_or(lane.done))
    }

    /// Puts at twice the rate that was found, for the duration of the row.
    fn overwhelm(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        (stream, load): (&mut Stream, &Load),
    ) -> Result<()> {
        let found = load.found.load(Ordering::Relaxed) as f64 / (self.search_time() / 2).as_secs_f64();
        let commits = found * TIMES / self.spec.threads as f64 / self.spec.batch as f64;
        let mut since_due = Recorder::default();
        lane.keep_rate(commits);
        let end = lane.elapsed() + Duration::from_secs_f64(self.spec.seconds);
        while lane.elapsed() < end && lane.more() {
            self.put_drawn_batch(lane, session, stream)?;
            lane.lap_served(PUT, self.spec.batch, &mut since_due)?;
        }
        load.since_due.lock().unwrap_or_else(PoisonError::into_inner).merge(&since_due);
        Ok(())
    }

    fn put_drawn_batch(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        stream: &mut Stream,
    ) -> Result<()> {
        let first = lane.thread * self.spec.share();
        for n in 0..self.spec.batch {
            lane.put(session, first + stream.advance(), self.version_at(lane.done + n))?;
        }
        session.commit()
    }
}
