//! Motion: single puts of all keys, an overwrite of all of them, and at once reads through cursors that are held from then on, while the
//! engine still merges. Then the same reads once the engine is at rest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Cause, Engine, Result, Session};
use crate::keys::Stream;
use crate::measure::now;
use crate::timeline::Period;

/// Kinds of operations in their order: puts, reads within [`AT_ONCE`], later reads through the same cursors, reads of an engine at rest.
const KINDS: [&str; 11] = [
    LOAD,
    OVERWRITE,
    "SEEK AT ONCE",
    "RANGE AT ONCE",
    "GET AT ONCE",
    "SEEK HELD",
    "RANGE HELD",
    "GET HELD",
    "SEEK",
    "RANGE",
    "GET",
];
/// Puts of all keys, and of their next versions.
pub(crate) const LOAD: &str = "PUT";
pub(crate) const OVERWRITE: &str = "PUT AGAIN";
/// The cause of slow puts that is not the engine's.
const SCHEDULING: &str = "scheduling";
/// First of the three kinds of reads of each part.
const READS: [usize; 3] = [2, 5, 8];
/// Reads that begin this soon after the last put are counted apart.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Each kind of read runs this long, then the next one.
const TURN: Duration = Duration::from_millis(20);

/// Returns the rows that a read of this workload shows, if each range has `range` rows; `None` if the operation is not one.
pub(crate) fn rows_of_motion(operation: &str, range: u64) -> Option<u64> {
    let kind = operation.strip_suffix(" AT ONCE").or_else(|| operation.strip_suffix(" HELD"))?;
    Some(if kind == "RANGE" { range } else { 1 })
}

/// Ends of the parts: how many threads have reached each.
type Ends = [AtomicUsize; 4];

impl Bench<'_> {
    /// Puts, overwrites, reads at once, waits for the background work, and reads again.
    pub(super) fn motion(&self, engine: &dyn Engine) -> Result<Measured> {
        let (start, ends, threads) = (now(), Ends::default(), self.spec.threads);
        let all = Limit::Count(u64::MAX);
        let done = self.parallel(engine, &KINDS, all, |lane, session| {
            let (mut times, mut scheduling) = (Vec::new(), (0, Duration::ZERO));
            let mut part_ends = |lane: &mut Lane<'_>, part: usize| {
                ends[part].fetch_add(1, Ordering::AcqRel);
                let goes_on = lane.wait_for(&ends[part], threads);
                times.push(start.elapsed().as_secs_f64());
                lane.resume();
                goes_on
            };
            let share = self.spec.share();
            lane.watch_scheduling();
            let first = (self.filling(lane.thread), self.spec.version);
            self.put_versions(lane, session, first, (0, share))?;
            if !part_ends(lane, 0) {
                return Ok((share, times, scheduling));
            }
            self.put_next_version(lane, session, (1, 2 * share))?;
            scheduling = lane.scheduling();
            if !part_ends(lane, 1) {
                return Ok((share, times, scheduling));
            }
            session.refresh()?;
            let mut stream = self.drawing(lane.thread);
            let reads = Duration::from_secs_f64(self.spec.seconds);
            self.read_in_turns(lane, session, (&mut stream, READS[0], AT_ONCE.min(reads)))?;
            self.read_in_turns(lane, session, (&mut stream, READS[1], reads.saturating_sub(AT_ONCE)))?;
            if !part_ends(lane, 2) {
                return Ok((share, times, scheduling));
            }
            if lane.thread == 0 {
                engine.settle()?;
            }
            if part_ends(lane, 3) {
                session.refresh()?;
                self.read_in_turns(lane, session, (&mut stream, READS[2], reads / 2))?;
            }
            Ok((share, times, scheduling))
        })?;
        let times = done.lanes.first().map_or_else(Vec::new, |(_, times, _)| times.clone());
        let scheduling = done.lanes.iter().fold(Cause::default(), |sum, (_, _, lane)| Cause {
            cause: SCHEDULING.to_owned(),
            count: sum.count + lane.0,
            seconds: sum.seconds + lane.1.as_secs_f64(),
        });
        let mut measured = Measured::of(done, |lanes: Vec<(u64, Vec<f64>, (u64, Duration))>| {
            Model::Rewritten(0, lanes.into_iter().map(|(puts, ..)| puts).collect())
        });
        measured.causes.extend((scheduling.count > 0).then_some(scheduling));
        measured.in_periods(periods(&times, start.elapsed().as_secs_f64()));
        // The kinds of reads take turns: each has the time that its operations took, on all threads at once.
        for phase in measured.phases.iter_mut().filter(|p| !p.operation.starts_with(LOAD)) {
            let sum = phase.latency.as_ref().map_or(0.0, |l| l.mean * 1e-6 * l.samples as f64);
            phase.seconds = sum / threads as f64;
        }
        Ok(measured)
    }

    /// Seeks, reads ranges and gets in turn for `time`; `first` is the kind of the seeks.
    fn read_in_turns(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        (stream, first, time): (&mut Stream, usize, Duration),
    ) -> Result<()> {
        lane.resume();
        let end = lane.elapsed() + time;
        while lane.elapsed() < end && !lane.is_stopped() {
            for kind in 0..3 {
                let turn = (lane.elapsed() + TURN).min(end);
                while lane.elapsed() < turn && lane.more() {
                    let index = stream.advance();
                    match kind {
                        0 => self.seek_once(lane, session, index)?,
                        1 => self.range_once(lane, session, (index, self.spec.range))?,
                        _ => self.get_any_from(lane, session, index)?,
                    }
                    lane.lap(first + kind, 1)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the periods of a row whose parts ended at `times`, and which ended at `end`.
fn periods(times: &[f64], end: f64) -> Vec<Period> {
    let [load, overwrite, reads, settled] = std::array::from_fn(|n| times.get(n).copied().unwrap_or(end));
    let part = |name: &str, kinds: &[&str], from, to| Period {
        name: name.to_owned(),
        operations: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        from,
        to,
    };
    vec![
        part("load", &KINDS[..1], 0.0, load),
        part("overwrite", &KINDS[1..2], load, overwrite),
        part("reads in motion", &KINDS[READS[0]..READS[2]], overwrite, reads),
        part("reads at rest", &KINDS[READS[2]..], settled, end),
    ]
}
