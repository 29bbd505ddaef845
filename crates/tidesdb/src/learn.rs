//! Learning deserts before a reader has to: the background walks over what was deleted, as a reader of the newest number would.
//!
//! ```text
//! flush of a memtable with long runs of tombstones --> runs --+
//! many deletes since the last look, by the timekeeper --------+--> walk: seek, over deleted keys, to the first live one
//!                                                                    --> `FamilyCore::deserts`
//! ```
//!
//! What is learned is what the walk has seen with all versions up to its number before it, so it holds for every reader at that number or a
//! later one, whoever writes meanwhile. Runs and marks are hints: they say where to look, nothing else.
//!
//! A walk is bounded. It ends at the first entry behind its run, and where live keys are more than a small share of what it meets; from there it goes
//! to later marks, ever farther apart while that is in vain, so deletes at random cost a few seeks. A failure to read is left to
//! the reader who comes upon it. A walk for the background gives way to jobs that are more urgent, and keeps what it has learned.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidesdb_memtable::Memtable;

use crate::Result;
use crate::family::{FamilyCore, MemSlot, Metric, Progress, Run};
use crate::jobs::Job;
use crate::ranges::RangeTombstone;
use crate::read::{Versions, moment, versions};
use crate::shared::Shared;
use crate::sources::Source;
use crate::types::{Comparator, EntryCursor, SeqNo};

/// Tombstones in a row from which on they are looked at.
const RUN_MIN: usize = 4096;
/// Tombstones of a run for each mark.
const MARK_EVERY: usize = 4096;
/// Deleted keys from which on they are remembered.
const DESERT_MIN: u64 = 1024;
/// Deletes after which a family is looked at between flushes.
pub const LOOK_EVERY: u64 = 64 << 10;
/// Live keys that a walk may meet, and one more for so many deleted ones.
const LIVE_MAX: u64 = 32;
const LIVE_SHARE: u64 = 16;
/// Steps between two looks at who waits.
const STEPS: u64 = 4096;
/// Versions too new for the walk that are passed one by one.
const NEWER_MAX: usize = 32;
/// How often a desert may be found not to have grown before its end is forgotten.
const MISSES_MAX: u32 = 16;

/// The memtable `slot` of `family` was written to tables that hold `tombstones`: its runs are to be looked at.
pub fn flushed(shared: &Shared, family: &FamilyCore, slot: &MemSlot, tombstones: u64) {
    if tombstones < RUN_MIN as u64 || family.is_dropped() {
        return;
    }
    family.learning.add(survey(&slot.map));
    if family.learning.is_waiting() {
        shared.jobs.push(Job::Learn(family.id));
    }
}

/// Asks for a look at the families in which much was deleted.
pub fn ask(shared: &Shared) {
    for family in shared.all_families() {
        if family.learning.is_due(family.total(Metric::Deletes), LOOK_EVERY) {
            shared.jobs.push(Job::Learn(family.id));
        }
    }
}

/// Learns what there is to learn of `family`; if `patient`, without giving way to anybody.
pub fn run(shared: &Arc<Shared>, family: &Arc<FamilyCore>, patient: bool) {
    let mut progress = family.learning.progress.lock();
    let learner = Learner { shared, family, patient };
    let learned = learner.learn_runs(&mut progress).and_then(|()| learner.look(&mut progress));
    if let Err(error) = learned {
        tracing::debug!(family = %family.name(), %error, "deserts could not be learned");
    }
    drop(progress);
    if family.learning.is_waiting() && !learner.must_end() {
        shared.jobs.push(Job::Learn(family.id));
    }
}

/// The runs of tombstones in `map`.
fn survey(map: &Arc<Memtable>) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut cursor = Source::memtable(map);
    let mut run = Run { marks: Vec::new(), last: Vec::new() };
    let mut length = 0;
    let _ = cursor.seek_to_first(); // a memtable does not fail
    while cursor.valid() {
        if cursor.kind().is_tombstone() {
            if length % MARK_EVERY == 0 {
                run.marks.push(cursor.key().to_vec());
            }
            length += 1;
            if length >= RUN_MIN {
                run.last.clear();
                run.last.extend_from_slice(cursor.key());
            }
        } else if length > 0 {
            let ended = std::mem::replace(&mut run, Run { marks: Vec::new(), last: Vec::new() });
            runs.extend((length >= RUN_MIN).then_some(ended));
            length = 0;
        }
        let _ = cursor.next_key();
    }
    runs.extend((length >= RUN_MIN).then_some(run));
    runs
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is behind its run, or behind the last key.
    Done,
    /// Too many live keys.
    Live,
    /// Somebody waits.
    Urgent,
}

struct Learner<'a> {
    shared: &'a Arc<Shared>,
    family: &'a Arc<FamilyCore>,
    patient: bool,
}

impl Learner<'_> {
    /// Whether nobody needs what is learned.
    fn must_end(&self) -> bool {
        self.shared.jobs.is_closed()
            || self.shared.closed.load(Ordering::Relaxed)
            || self.family.is_dropped()
            || self.shared.health.is_poisoned()
    }

    fn must_stop(&self) -> bool {
        self.must_end() || (!self.patient && self.shared.jobs.is_waited_for(Job::Learn(self.family.id)))
    }

    /// Walks over all runs that wait; what is left of them waits again.
    fn learn_runs(&self, progress: &mut Progress) -> Result<()> {
        let mut runs = self.family.learning.take().into_iter();
        while let Some(run) = runs.next() {
            if let Some(rest) = self.learn_run(run, progress)? {
                self.family.learning.add(std::iter::once(rest).chain(runs));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Walks over `run`; what is left of it, if somebody waits.
    fn learn_run(&self, mut run: Run, progress: &mut Progress) -> Result<Option<Run>> {
        let Some(mut walk) = Walk::new(self.shared, self.family) else { return Ok(Some(run)) };
        let order = &self.family.options.comparator;
        let first = run.marks[0].clone();
        let mut from = self.family.deserts.to_owned().first_adjoining(order, &first);
        let (mut at, mut stride) = (0, 1);
        loop {
            let joined = from.is_some();
            let target = from.take().unwrap_or_else(|| run.marks[at].clone());
            let end = walk.over(&target, Some(&run.last), || self.must_stop())?;
            if walk.learned {
                (progress.frontier, progress.misses, stride) = (walk.end.take(), 0, 1);
            }
            match end {
                End::Done => return Ok(None),
                End::Urgent => {
                    let ahead = run.marks.partition_point(|m| order.compare(m, &walk.place).is_le());
                    run.marks.drain(..ahead);
                    run.marks.insert(0, std::mem::take(&mut walk.place));
                    return Ok(Some(run));
                }
                End::Live => {
                    let ahead = run.marks.partition_point(|m| order.compare(m, &walk.place).is_lt());
                    if joined && ahead == 0 {
                        continue;
                    }
                    at = ahead.max(at + stride);
                    stride *= 2;
                    if at >= run.marks.len() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Looks whether the desert that was learned last has grown, and else what the active memtable deletes.
    fn look(&self, progress: &mut Progress) -> Result<()> {
        let deletes = self.family.total(Metric::Deletes);
        if let Some(frontier) = &progress.frontier {
            let Some(mut walk) = Walk::new(self.shared, self.family) else { return Ok(()) };
            walk.over(frontier, None, || self.must_stop())?;
            if walk.learned {
                (progress.frontier, progress.misses) = (walk.end.take(), 0);
                progress.surveyed = deletes;
                return Ok(());
            }
            progress.misses += 1;
            if progress.misses >= MISSES_MAX {
                progress.frontier = None;
            }
        }
        let Some(slot) = self.family.owned_view().active.clone() else { return Ok(()) };
        // A look at all of it costs something: no more than the deletes themselves.
        let since = deletes.saturating_sub(progress.surveyed);
        if since >= LOOK_EVERY && since >= slot.map.entries() / 4 {
            progress.surveyed = deletes;
            self.family.learning.add(survey(&slot.map));
            return self.learn_runs(progress);
        }
        Ok(())
    }
}

/// One walk at one moment.
struct Walk<'a> {
    family: &'a FamilyCore,
    cursor: Versions,
    seq: SeqNo,
    /// Whether the last stretch found a desert, and where the last one ended; `None` = it has no end.
    learned: bool,
    end: Option<Vec<u8>>,
    /// The key at which the last stretch ended.
    place: Vec<u8>,
}

impl<'a> Walk<'a> {
    /// `None` if the moment cannot be had.
    fn new(shared: &Shared, family: &'a FamilyCore) -> Option<Self> {
        let (view, seq, complete) = moment(shared, family);
        let cursor = versions(family, &view, seq);
        complete.then_some(Self { family, cursor, seq, learned: false, end: None, place: Vec::new() })
    }

    fn order(&self) -> &Comparator {
        &self.family.options.comparator
    }

    /// From `from` on as far as keys are deleted, up to `last`; `is_urgent` is asked now and then.
    fn over(&mut self, from: &[u8], last: Option<&[u8]>, is_urgent: impl Fn() -> bool) -> Result<End> {
        let mut start = from.to_vec();
        let (mut dead, mut live, mut steps) = (0, 0, 0);
        self.learned = false;
        self.cursor.seek(from)?;
        let end = loop {
            steps += 1;
            if !self.cursor.valid() {
                break End::Done;
            }
            if steps % 64 == 0 {
                if last.is_some_and(|last| self.order().compare(self.cursor.key(), last).is_gt()) {
                    break End::Done;
                }
                if steps % STEPS == 0 && is_urgent() {
                    break End::Urgent;
                }
            }
            if self.cursor.seq() > self.seq {
                self.pass_newer()?;
            } else if self.cursor.kind().is_tombstone() {
                dead += 1;
                self.cursor.next_key()?;
            } else {
                self.learn(&start, dead);
                if last.is_some_and(|last| self.order().compare(self.cursor.key(), last).is_gt()) {
                    break End::Done;
                }
                live += 1;
                if live > LIVE_MAX + steps / LIVE_SHARE {
                    break End::Live;
                }
                self.cursor.next_key()?;
                dead = 0;
                start.clear();
                if self.cursor.valid() {
                    start.extend_from_slice(self.cursor.key());
                }
            }
        };
        self.learn(&start, dead);
        self.family.learning.steps.fetch_add(steps, Ordering::Relaxed);
        self.place.clear();
        if self.cursor.valid() {
            self.place.extend_from_slice(self.cursor.key());
        }
        Ok(end)
    }

    /// On among versions that are newer than the walk.
    fn pass_newer(&mut self) -> Result<()> {
        for _ in 0..NEWER_MAX {
            self.cursor.next()?;
            if !self.cursor.valid() || self.cursor.seq() <= self.seq {
                return Ok(());
            }
        }
        self.place.clear();
        self.place.extend_from_slice(self.cursor.key());
        self.cursor.seek_version(&self.place, self.seq)
    }

    /// From `start` on up to where the cursor stands there were `dead` deleted keys, and others only that are newer than the walk.
    fn learn(&mut self, start: &[u8], dead: u64) {
        if dead < DESERT_MIN {
            return;
        }
        self.end = self.cursor.valid().then(|| self.cursor.key().to_vec());
        let end = self.end.as_deref().map(Into::into);
        let found = RangeTombstone { seq: self.seq, start: Some(start.into()), end };
        self.family.learn_desert(found);
        self.learned = true;
    }
}
