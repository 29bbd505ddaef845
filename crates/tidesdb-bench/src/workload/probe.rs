//! Probes: what each kind of read costs in a tree that writers have just filled, or are filling. One thread does all kinds
//! in turn, each for a moment, so that all of them read the same tree.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::lane::{Gathered, Lane, Limit};
use super::overload::SEARCH;
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::keys::Stream;
use crate::measure::now;
use crate::spec::Workload;
use crate::timeline::Period;
use crate::verify::Summary;

/// Kinds of probes.
pub(crate) const PROBES: [&str; 5] = ["SEEK", "RANGE 10", "RANGE 100", "GET", "ABSENT"];
/// Operations of a row, the writes first.
const KINDS: [&str; 7] = ["SEARCH", "PUT", PROBES[0], PROBES[1], PROBES[2], PROBES[3], PROBES[4]];
const PUT: usize = 1;
const FIRST_PROBE: usize = 2;

/// Each kind of probe runs this long, then the next one.
const TURN: Duration = Duration::from_millis(20);
/// The rate that writers can keep is searched for this part of the duration of the row.
const SEARCH_PART: u32 = 2;
/// Writers put at this part of the rate that was found.
const RATE_PART: f64 = 0.5;

/// Returns the number of rows that a probe reads; `None` if the operation is not one.
pub(crate) fn rows_of_probe(operation: &str) -> Option<u64> {
    let rows = [1, 10, 100, 1, 0];
    PROBES.iter().zip(rows).find_map(|(probe, rows)| (*probe == operation).then_some(rows))
}

/// What the threads know of each other.
#[derive(Default)]
struct Course {
    /// Writers that have finished the phase before the probes.
    arrived: AtomicUsize,
    /// Puts in the second half of the search.
    found: AtomicU64,
    /// When the probes began, in seconds since the start.
    begun: OnceLock<f64>,
}

impl Bench<'_> {
    /// Overwrites all keys as fast as possible, then probes.
    pub(super) fn probe_after(&self, engine: &dyn Engine) -> Result<Measured> {
        let (done, begun, end) = self.probing(engine, |lane, session, course| {
            self.put_next_version(lane, session, (PUT, self.spec.share()))?;
            course.arrived.fetch_add(1, Ordering::AcqRel);
            Ok(())
        })?;
        let model = |mut puts: Vec<u64>| {
            puts.truncate(self.spec.threads);
            Model::Rewritten(0, puts)
        };
        Ok(in_parts(done, model, [("overwrite", PUT, 0.0, begun), ("probes", FIRST_PROBE, begun, end)]))
    }

    /// Searches the rate that the writers can keep, then probes beside writers at half of it.
    pub(super) fn probe_beside(&self, engine: &dyn Engine) -> Result<Measured> {
        let (done, begun, end) = self.probing(engine, |lane, session, course| {
            let mut stream = self.drawing(lane.thread);
            let put_batch = |lane: &mut Lane<'_>| self.put_any_batch(lane, session, &mut stream);
            let found = self.search(lane, self.probe_time() / SEARCH_PART, put_batch)?;
            course.found.fetch_add(found, Ordering::Relaxed);
            course.arrived.fetch_add(1, Ordering::AcqRel);
            if lane.wait_for(&course.arrived, self.spec.threads) {
                self.put_beside(lane, session, (&mut stream, course))?;
            }
            Ok(())
        })?;
        let parts = [("search", SEARCH, 0.0, begun), ("probes", FIRST_PROBE, begun, end)];
        // Writers draw from all keys, so the newest version of a key is not known.
        let mut keys = Summary::default();
        (0..self.spec.population()).for_each(|index| keys.add(self.keys.item(index).id, 0));
        Ok(Measured { versions: false, ..in_parts(done, |_| Model::Known(keys), parts) })
    }

    /// Runs `write` on each writer, and the probes once all writers have arrived. Returns the operations of each thread, and when the
    /// probes began and ended.
    fn probing(
        &self,
        engine: &dyn Engine,
        write: impl Fn(&mut Lane<'_>, &mut dyn Session, &Course) -> Result<()> + Sync,
    ) -> Result<(Gathered<u64>, f64, f64)> {
        let (start, course, writers) = (now(), Course::default(), self.spec.threads);
        let limit = Limit::Count(u64::MAX);
        let done = self.parallel_on(self.spec.crew(), engine, (&KINDS, limit), |lane, session| {
            if (lane.thread as usize) < writers {
                write(lane, session, &course)?;
            } else if lane.wait_for(&course.arrived, writers) {
                self.begin_probes(&course, start);
                let _held = self.held_cursor(engine, lane)?;
                lane.resume();
                self.probe(lane, session)?;
            }
            Ok(lane.done)
        })?;
        Ok((done, course.begun.into_inner().unwrap_or(0.0), start.elapsed().as_secs_f64()))
    }

    /// Returns a session with a cursor that sees the database as of now, if the row has one.
    fn held_cursor<'e>(
        &self,
        engine: &'e dyn Engine,
        lane: &mut Lane<'_>,
    ) -> Result<Option<Box<dyn Session + 'e>>> {
        if self.spec.workload != Workload::ProbeBeside {
            return Ok(None);
        }
        let mut session = engine.session()?;
        lane.aim(0);
        session.seek(&lane.key, &mut |_| ())?;
        Ok(Some(session))
    }

    fn begin_probes(&self, course: &Course, start: std::time::Instant) {
        self.board.as_deref().inspect(|board| board.cut());
        course.begun.get_or_init(|| start.elapsed().as_secs_f64());
    }

    fn probe_time(&self) -> Duration {
        Duration::from_secs_f64(self.spec.seconds)
    }

    /// Puts at a part of the rate that was found, as long as the probes run.
    fn put_beside(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        (stream, course): (&mut Stream, &Course),
    ) -> Result<()> {
        let searched = (self.probe_time() / SEARCH_PART / 2).as_secs_f64();
        let found = course.found.load(Ordering::Relaxed) as f64 / searched;
        let commits = found * RATE_PART / self.spec.threads as f64 / self.spec.batch as f64;
        lane.resume();
        lane.keep_rate(commits);
        let end = lane.elapsed() + self.probe_time();
        while lane.elapsed() < end && lane.more() {
            self.put_any_batch(lane, session, stream)?;
            lane.lap(PUT, self.spec.batch)?;
        }
        Ok(())
    }

    fn put_any_batch(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        stream: &mut Stream,
    ) -> Result<()> {
        for n in 0..self.spec.batch {
            lane.put(session, stream.advance(), self.version_at(lane.done + n))?;
        }
        session.commit()
    }

    /// Does all kinds of probes in turn, for the duration of the row.
    fn probe(&self, lane: &mut Lane<'_>, session: &mut dyn Session) -> Result<()> {
        let (mut stream, end) = (self.drawing(lane.thread), lane.elapsed() + self.probe_time());
        while lane.elapsed() < end {
            for probe in 0..PROBES.len() {
                session.refresh()?;
                lane.resume();
                let turn = lane.elapsed() + TURN;
                while lane.elapsed() < turn && lane.more() {
                    self.probe_once(lane, session, (probe, stream.advance()))?;
                    lane.lap(FIRST_PROBE + probe, 1)?;
                }
            }
            if lane.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    fn probe_once(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        (probe, index): (usize, u64),
    ) -> Result<()> {
        match PROBES[probe] {
            "GET" => self.get_any_from(lane, session, index),
            "ABSENT" => {
                // Indexes above the population have keys of their own, spread over the same space.
                let found = lane.get(session, self.spec.population() + index, None)?;
                lane.check.ensure(!found, || "a key that was never written was found".to_owned());
                Ok(())
            }
            "SEEK" => self.seek_once(lane, session, index),
            range => self.range_once(lane, session, (index, rows_of_probe(range).unwrap_or(1))),
        }
    }
}

/// Returns the measurements of a row that writes, then probes. A part begins at a time and has the operations from one kind
/// on. Probes take turns, so each kind has the time that its operations took.
fn in_parts<T>(
    done: Gathered<T>,
    model: impl FnOnce(Vec<T>) -> Model,
    parts: [(&str, usize, f64, f64); 2],
) -> Measured {
    let mut measured = Measured::of(done, model);
    let [(_, writes, ..), _] = parts;
    let periods = parts.map(|(name, first, from, to)| {
        let kinds = if first == FIRST_PROBE { &KINDS[writes + 1..] } else { &KINDS[first..=first] };
        Period {
            name: name.to_owned(),
            operations: kinds.iter().map(|k| (*k).to_owned()).collect(),
            from,
            to,
        }
    });
    measured.in_periods(periods.into());
    for phase in measured.phases.iter_mut().filter(|p| rows_of_probe(&p.operation).is_some()) {
        phase.seconds = phase.latency.as_ref().map_or(0.0, |l| l.mean * 1e-6 * l.samples as f64);
    }
    measured
}
