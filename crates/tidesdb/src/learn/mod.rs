//! Learning deserts before a reader has to: the background walks over what was deleted, as a reader of the newest number would.
//!
//! ```text
//! many deletes since the last look, by the timekeeper --> walk on from where the last desert ended, else look at the memtable --+
//! flush of a memtable with long runs of tombstones --> raise what is known of them --> the rest: runs ------------------------+
//!     walk: seek, over deleted keys, to the first live one --> `FamilyCore::deserts`  <----------------------------------------+
//! ```
//!
//! What is learned is what a walk has seen that had every version up to its number before it, so it holds for every reader at that number
//! or a later one, whoever writes meanwhile. Runs and marks are hints: they say where to look, nothing else.
//!
//! A walk is bounded. It ends behind its run, and where live keys are more than a small share of what it meets; from there it goes to later
//! marks, ever farther apart while that is in vain, so deletes at random cost a few seeks. A failure to read is left to the reader who
//! comes upon it.
//!
//! Threads: one at a time learns for a family; a thread of its own does, so that neither flushes nor the timekeeper wait.

mod survey;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use survey::{RUN_MIN, raise, survey};

use crate::Result;
use crate::family::{FamilyCore, MemSlot, Metric, Progress, Run};
use crate::jobs::Job;
use crate::ranges::RangeTombstone;
use crate::read::{Versions, moment, versions};
use crate::shared::WriteCtx;
use crate::types::{EntryCursor, SeqNo};

/// Deleted keys from which on they are remembered.
const DESERT_MIN: u64 = 1024;
/// Deletes after which a family is looked at between flushes.
pub const LOOK_EVERY: u64 = 64 << 10;
/// A look at a memtable is due when so many of its entries are new deletes: one of so many.
const SURVEY_SHARE: u64 = 4;
/// Live keys that a walk may meet, and one more for so many deleted ones.
const LIVE_MAX: u64 = 32;
const LIVE_SHARE: u64 = 16;
/// Keys passed between two looks at whether the walk must end.
const STEPS: u64 = 4096;
/// Versions too new for the walk that are passed one by one.
const NEWER_MAX: usize = 32;
/// How often a desert may be found not to have grown before its end is forgotten.
const MISSES_MAX: u32 = 16;

/// The memtable `slot` of `family`, which has all of its commits below `boundary` and no others, was written to tables that hold
/// `tombstones`. What was learned while it was written is now known of all of it; the rest of its runs is to be looked at.
pub fn flushed(ctx: &WriteCtx, family: &FamilyCore, slot: &MemSlot, boundary: SeqNo, tombstones: u64) {
    if tombstones < RUN_MIN as u64 || family.is_dropped() {
        return;
    }
    let order = &family.options.comparator;
    for mut stretch in survey(&slot.map) {
        raise(family, &stretch, (slot.from, boundary));
        let known = family.deserts.to_owned();
        stretch.run.marks.retain(|mark| known.newest(order, mark, SeqNo::MAX) + 1 < boundary);
        family.learning.add((!stretch.run.marks.is_empty()).then_some(stretch.run));
    }
    if family.learning.is_waiting() {
        ctx.jobs.push(Job::Learn(family.id));
    }
}

/// Asks for a look at the families in which much was deleted.
pub fn ask(ctx: &WriteCtx) {
    for family in ctx.all_families() {
        if family.learning.is_due(family.total(Metric::Deletes), LOOK_EVERY) {
            ctx.jobs.push(Job::Learn(family.id));
        }
    }
}

/// Learns what there is to learn of `family`.
pub fn run(ctx: &WriteCtx, family: &Arc<FamilyCore>) {
    let mut progress = family.learning.progress.lock();
    let learner = Learner { ctx, family };
    let learned = learner.look(&mut progress).and_then(|()| learner.learn_runs(&mut progress));
    if let Err(error) = learned {
        tracing::debug!(family = %family.name(), %error, "deserts could not be learned");
    }
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is behind its run, or behind the last key.
    Done,
    /// Too many live keys.
    Live,
    /// Nobody needs what it learns any more.
    Stopped,
}

struct Learner<'a> {
    ctx: &'a WriteCtx,
    family: &'a Arc<FamilyCore>,
}

impl Learner<'_> {
    /// Whether nobody needs what is learned.
    fn must_end(&self) -> bool {
        self.ctx.jobs.is_closed()
            || self.ctx.reads.closed.load(Ordering::Relaxed)
            || self.family.is_dropped()
            || self.ctx.health.is_poisoned()
    }

    /// Walks over all runs that wait.
    fn learn_runs(&self, progress: &mut Progress) -> Result<()> {
        for run in self.family.learning.take() {
            if self.learn_run(&run, progress)? == End::Stopped {
                break;
            }
        }
        Ok(())
    }

    /// Walks over `run`.
    fn learn_run(&self, run: &Run, progress: &mut Progress) -> Result<End> {
        let Some(mut walk) = Walk::new(self.ctx, self.family) else { return Ok(End::Done) };
        let order = &self.family.options.comparator;
        // Joined to what is known before it, which costs a leap.
        let joined = self.family.deserts.to_owned().first_adjoining(order, &run.marks[0]);
        let (mut at, mut stride) = (0, 1);
        if let Some(start) = joined {
            let end = walk.over(&start, Some(&run.last), || self.must_end())?;
            progress.note(&mut walk);
            if end != End::Live {
                return Ok(end);
            }
            at = run.marks.partition_point(|m| order.compare(m, &walk.place).is_lt());
        }
        while let Some(mark) = run.marks.get(at) {
            let end = walk.over(mark, Some(&run.last), || self.must_end())?;
            if end != End::Live {
                progress.note(&mut walk);
                return Ok(end);
            }
            stride = if progress.note(&mut walk) { 1 } else { stride * 2 };
            let passed = run.marks.partition_point(|m| order.compare(m, &walk.place).is_lt());
            at = passed.max(at + stride);
        }
        Ok(End::Done)
    }

    /// Looks whether the desert that was learned last has grown, and else what the active memtable deletes.
    fn look(&self, progress: &mut Progress) -> Result<()> {
        let deletes = self.family.total(Metric::Deletes);
        if let Some(frontier) = &progress.frontier {
            let Some(mut walk) = Walk::new(self.ctx, self.family) else { return Ok(()) };
            walk.over(frontier, None, || self.must_end())?;
            if progress.note(&mut walk) {
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
        if since >= LOOK_EVERY && since >= slot.map.entries() / SURVEY_SHARE {
            progress.surveyed = deletes;
            self.family.learning.add(survey(&slot.map).into_iter().map(|stretch| stretch.run));
        }
        Ok(())
    }
}

impl Progress {
    /// `walk` has been over a stretch; whether it has learned something.
    fn note(&mut self, walk: &mut Walk<'_>) -> bool {
        if walk.learned {
            (self.frontier, self.misses) = (walk.end.take(), 0);
        }
        walk.learned
    }
}

/// One walk at one moment.
struct Walk<'a> {
    family: &'a FamilyCore,
    cursor: Versions,
    seq: SeqNo,
    /// Whether the last stretch held a desert, and where that ended; `None` = it has no end.
    learned: bool,
    end: Option<Vec<u8>>,
    /// The key at which the last stretch ended.
    place: Vec<u8>,
}

impl<'a> Walk<'a> {
    /// `None` if there is no moment at which everything is to be seen: the next look will find one.
    fn new(ctx: &WriteCtx, family: &'a FamilyCore) -> Option<Self> {
        let (view, seq, complete) = moment(&ctx.reads, family);
        let cursor = versions(family, &view, seq);
        complete.then_some(Self { family, cursor, seq, learned: false, end: None, place: Vec::new() })
    }

    /// Whether the cursor stands on a key behind `last`.
    fn is_behind(&self, last: Option<&[u8]>) -> bool {
        let order = &self.family.options.comparator;
        last.is_some_and(|last| order.compare(self.cursor.key(), last).is_gt())
    }

    /// From `from` on as far as keys are deleted, up to `last`; `must_end` is asked now and then.
    fn over(&mut self, from: &[u8], last: Option<&[u8]>, must_end: impl Fn() -> bool) -> Result<End> {
        let mut start = from.to_vec();
        let (mut dead, mut live, mut steps, mut asked) = (0, 0, 0, 0);
        let share = if last.is_some() { LIVE_SHARE } else { u64::MAX };
        self.learned = false;
        self.cursor.seek(from)?;
        let end = loop {
            steps += 1;
            if !self.cursor.valid() {
                break End::Done;
            }
            if steps >= asked + STEPS {
                asked = steps;
                if self.is_behind(last) {
                    break End::Done;
                }
                if must_end() {
                    break End::Stopped;
                }
            }
            let stamp = self.cursor.stamp();
            if stamp.seq > self.seq {
                self.pass_newer()?;
            } else if stamp.kind.is_tombstone() {
                self.cursor.next_key()?;
                let more = self.cursor.skip_dead(self.seq, None, STEPS)?;
                dead += 1 + more;
                steps += more;
            } else {
                self.learn(&start, dead);
                live += 1;
                if self.is_behind(last) {
                    break End::Done;
                }
                if live > LIVE_MAX + steps / share {
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
        self.family.learn_desert(RangeTombstone { seq: self.seq, start: Some(start.into()), end });
        self.learned = true;
    }
}
