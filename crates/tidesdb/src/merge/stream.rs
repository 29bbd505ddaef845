//! The loop of flush and compaction: a merged walk, judged, as the entries to be written.

use std::fmt;

use super::purge::{Purge, Purger};
use super::{Retain, RetainCounts, Verdict};
use crate::types::{EntryCursor, EntryRef, SeqNo, Stamp};
use crate::{Error, Result};

/// Walks a source of versions and yields those that must be written, in order.
///
/// The source must be positioned already, on the first version of a key.
#[derive(Debug)]
pub struct RetainStream<C> {
    inner: C,
    purger: Purger,
    retain: Retain,
    /// Keys from here on belong to the next piece of the merge.
    end: Option<Box<[u8]>>,
    step: Step,
    /// Entries the source stood on.
    met: u64,
    check: Option<Check>,
}

/// Whether the merge may go on.
struct Check(Box<dyn Fn() -> Result<()>>);

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

/// So many entries of the source may go by, written or not, before the merge asks whether it may go on.
const CHECK_EVERY: u64 = 4096;

/// What the next call begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Judge the entry the source stands on.
    Judge,
    /// Move the source first.
    Advance,
    /// Yield the entry the source stands on: it was judged, and a released tombstone went first.
    Yield,
    /// Nothing is left.
    Done,
    /// The source failed, or is being asked.
    Failed,
}

enum Found {
    Entry,
    Released,
    Last,
}

impl<C: EntryCursor> RetainStream<C> {
    /// Judges what `inner` yields from its position on, up to the key `end` (exclusive), if one is given.
    pub fn new(inner: C, retain: Retain, end: Option<&[u8]>) -> Self {
        let purger = Purger::new(&Purge::nothing(), retain.order().clone());
        Self { inner, purger, retain, end: end.map(Into::into), step: Step::Judge, met: 0, check: None }
    }

    /// Leaves out first what `purge` deletes for all readers.
    #[must_use]
    pub fn purging(mut self, purge: &Purge) -> Self {
        self.purger = Purger::new(purge, self.retain.order().clone());
        self
    }

    /// Asks `check` now and then whether to go on.
    #[must_use]
    pub fn checking(mut self, check: impl Fn() -> Result<()> + 'static) -> Self {
        self.check = Some(Check(Box::new(check)));
        self
    }

    /// The next entry to write; `None` at the end.
    ///
    /// # Errors
    /// Whatever the source or the check fails with. The merge must then be given up: nothing more is yielded.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its entries")]
    pub fn next(&mut self) -> Result<Option<EntryRef<'_>>> {
        let step = std::mem::replace(&mut self.step, Step::Failed);
        let (found, next) = self.find(step)?;
        let entry = match found {
            Found::Entry => {
                let Stamp { seq, kind, expiry } = self.inner.stamp();
                let value = self.inner.value()?;
                Some(EntryRef { key: self.retain.key(), seq, kind, expiry, value })
            }
            Found::Released => self.retain.released(),
            Found::Last => self.retain.finish(),
        };
        self.step = next;
        Ok(entry)
    }

    /// What was done so far; complete once [`RetainStream::next`] gave `None`.
    pub fn counts(&self) -> &RetainCounts {
        self.retain.counts()
    }

    /// Entries that were purged; they are none of those that were seen.
    pub fn purged(&self) -> u64 {
        self.purger.dropped
    }

    /// Nothing that was yielded so far is covered by a range tombstone of a number up to this one.
    pub fn purged_to(&self) -> SeqNo {
        self.purger.purged_to
    }

    /// What is to be yielded and what to do after that.
    fn find(&mut self, mut step: Step) -> Result<(Found, Step)> {
        loop {
            match step {
                Step::Judge => {}
                Step::Advance => self.inner.next()?,
                Step::Yield => return Ok((Found::Entry, Step::Advance)),
                Step::Done => return Ok((Found::Last, Step::Done)),
                Step::Failed => return Err(Error::internal("a merge went on after it had failed")),
            }
            if !self.inner.valid() || self.at_end() {
                return Ok((Found::Last, Step::Done));
            }
            self.met += 1;
            if self.met.is_multiple_of(CHECK_EVERY)
                && let Some(Check(check)) = &self.check
            {
                check()?;
            }
            let inner = &self.inner;
            if self.purger.drops(self.retain.rules(), inner.key(), inner.seq()) {
                step = Step::Advance;
                continue;
            }
            let Stamp { seq, kind, expiry } = inner.stamp();
            let verdict = self.retain.judge(inner.key(), seq, kind, expiry);
            step = if verdict == Verdict::Keep { Step::Yield } else { Step::Advance };
            if self.retain.released().is_some() {
                return Ok((Found::Released, step));
            }
        }
    }

    fn at_end(&self) -> bool {
        self.end.as_ref().is_some_and(|end| self.retain.order().compare(self.inner.key(), end).is_ge())
    }
}
