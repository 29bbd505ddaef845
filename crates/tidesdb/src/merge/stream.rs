//! The loop of flush and compaction: applies garbage collection to a merged sequence and yields the entries to write.

use std::sync::Arc;

use super::fold::Chain;
use super::purge::{CoveringRanges, RangeFilter};
use super::{Action, Reason, Retain, RetainCounts};
use crate::events::TARGET;
use crate::memory::{LongValue, Memory};
use crate::types::{
    CompactionFilter, Decision, EntryCursor, EntryMeta, EntryRef, FilterRow, Kind, MergeOperator, SeqNo,
    VALUE_BYTES_MAX,
};
use crate::{Error, Result};

/// Iterates over a source of versions and yields those that must be written, in order.
///
/// The source must be positioned already, on the first version of a key.
pub struct RetainStream<C> {
    inner: C,
    purger: RangeFilter,
    retain: Retain,
    /// Keys from here on belong to the next part of the merge.
    end: Option<Box<[u8]>>,
    /// If set, the part ends early: after all versions of this key.
    last_key: Option<Box<[u8]>>,
    step: Step,
    /// Of the entry judged last.
    meta: EntryMeta,
    /// Number of entries of the source processed so far.
    met: u64,
    /// Returns whether the merge may continue.
    check: Option<Box<dyn Fn() -> Result<()>>>,
    chain: Chain,
    filter: Option<CompactionFilter>,
    /// The value that the filter gave to the current entry.
    changed: Vec<u8>,
    memory: Option<Arc<Memory>>,
    /// Set while a value is in memory of which flushes and merges have one at a time.
    long: Option<LongValue>,
}

/// Number of source entries, written or not, between two calls of the check.
pub const CHECK_EVERY: u64 = 4096;

/// What the next call does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Judge the current entry of the source.
    Judge,
    /// Move the source first.
    Advance,
    /// Move the source first, after an entry that was judged to stay.
    AdvanceKept,
    /// Yield the current entry of the source: it was judged, and a pending tombstone was yielded before it.
    Yield,
    /// Yield the next entry of the chain of operands. The source stands after the chain.
    YieldChain,
    /// Nothing is left.
    Done,
    /// The source failed, or the current call has not finished.
    Failed,
}

enum NextEntry {
    Entry,
    Folded(SeqNo, Kind),
    /// An entry to which the filter gave another value.
    Changed(EntryMeta),
    /// The number of an entry that the filter removed.
    Removed(SeqNo),
    Released,
    Last,
}

impl<C: EntryCursor> RetainStream<C> {
    /// Judges the entries of `inner` from its position on, up to the key `end` (exclusive) if given.
    pub fn new(inner: C, retain: Retain, end: Option<&[u8]>) -> Self {
        let purger = RangeFilter::new(&CoveringRanges::default(), retain.order().clone());
        Self {
            inner,
            purger,
            retain,
            end: end.map(Into::into),
            last_key: None,
            step: Step::Judge,
            meta: EntryMeta::default(),
            met: 0,
            check: None,
            chain: Chain::default(),
            filter: None,
            changed: Vec::new(),
            memory: None,
            long: None,
        }
    }

    /// Has long values read one at a time in all flushes and merges of a database.
    #[must_use]
    pub fn sharing(mut self, memory: &Arc<Memory>) -> Self {
        self.memory = Some(Arc::clone(memory));
        self
    }

    /// Drops the entries that `purge` hides from all readers, before the other rules apply.
    #[must_use]
    pub fn purging(mut self, purge: &CoveringRanges) -> Self {
        self.purger = RangeFilter::new(purge, self.retain.order().clone());
        self
    }

    /// Combines operands by `operator`; see [`super::retain`].
    #[must_use]
    pub fn folding(mut self, operator: Option<MergeOperator>) -> Self {
        self.chain = Chain::new(operator);
        self
    }

    /// Applies `filter`; see [`super::retain`].
    #[must_use]
    pub fn filtering(mut self, filter: Option<CompactionFilter>) -> Self {
        self.filter = filter;
        self
    }

    /// Calls `check` regularly to ask whether the merge may continue.
    #[must_use]
    pub fn checking(mut self, check: impl Fn() -> Result<()> + 'static) -> Self {
        self.check = Some(Box::new(check));
        self
    }

    /// Returns the next entry to write; `None` at the end.
    ///
    /// # Errors
    /// Errors of the source or the check. The merge must then be abandoned: nothing more is yielded.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its entries")]
    pub fn next(&mut self) -> Result<Option<EntryRef<'_>>> {
        loop {
            let step = std::mem::replace(&mut self.step, Step::Failed);
            let (found, next) = self.find(step)?;
            let found = if self.filter.is_some() { self.filtered(found)? } else { Some(found) };
            match found {
                Some(found) => return self.entry(found, next),
                None => {
                    self.step = next;
                    self.end_value();
                }
            }
        }
    }

    /// Waits, if the value of the current entry of the source is long, until it may be read.
    #[inline]
    fn admit_value(&mut self) {
        if let Some(memory) = &self.memory
            && memory.is_long(self.inner.value_len())
        {
            self.long.get_or_insert_with(|| memory.take_long());
        }
    }

    /// Ends the use of the entry that was returned last: another flush or merge may read a long value.
    #[inline]
    pub fn end_value(&mut self) {
        if self.long.is_some() && self.chain.entries() == 0 {
            self.changed = Vec::new();
            self.chain.free();
            self.long = None;
        }
    }

    /// Whether it still has the permission for a long value: operands are not combined yet.
    #[inline]
    pub fn has_long_value(&self) -> bool {
        self.long.is_some()
    }

    /// Returns the entry that was found.
    #[inline]
    fn entry(&mut self, found: NextEntry, next: Step) -> Result<Option<EntryRef<'_>>> {
        let entry = match found {
            NextEntry::Entry => {
                self.admit_value();
                let (seq, kind, expiry) = self.meta.parts();
                let (seq, value) = (self.retain.number(seq), self.inner.value()?);
                Some(EntryRef { key: self.retain.key(), seq, kind, expiry, value })
            }
            NextEntry::Folded(seq, kind) => {
                let seq = if kind.is_put() { self.retain.number(seq) } else { seq };
                Some(EntryRef { key: self.retain.key(), seq, kind, expiry: 0, value: self.chain.value() })
            }
            NextEntry::Changed(meta) => {
                let (seq, kind, expiry) = meta.parts();
                let seq = self.retain.number(seq);
                Some(EntryRef { key: self.retain.key(), seq, kind, expiry, value: &self.changed })
            }
            NextEntry::Removed(seq) => {
                Some(EntryRef { key: self.retain.key(), seq, kind: Kind::Delete, expiry: 0, value: &[] })
            }
            NextEntry::Released => self.retain.released(),
            NextEntry::Last => self.retain.finish(),
        };
        self.step = next;
        Ok(entry)
    }

    /// Asks the filter about the entry that was found, if rule 12 applies to it. Returns what to write instead; `None` = nothing.
    #[cold]
    fn filtered(&mut self, found: NextEntry) -> Result<Option<NextEntry>> {
        let (seq, kind, expiry) = match found {
            NextEntry::Entry => self.meta.parts(),
            NextEntry::Folded(seq, kind) => (seq, kind, 0),
            _ => return Ok(Some(found)),
        };
        let is_put = kind.is_put();
        if !(is_put && self.retain.may_filter(seq)) {
            return Ok(Some(found));
        }
        if matches!(found, NextEntry::Entry) {
            self.admit_value();
        }
        let Some(filter) = &self.filter else { return Ok(Some(found)) };
        let value = match found {
            NextEntry::Entry => self.inner.value()?,
            _ => self.chain.value(),
        };
        let row = FilterRow::new(self.retain.key(), kind.holds_value().then_some(value), expiry);
        Ok(match filter.decide(&row) {
            Some(Decision::Keep) => Some(found),
            Some(Decision::Change(value)) if value.len() <= VALUE_BYTES_MAX => {
                self.changed = value;
                Some(NextEntry::Changed(EntryMeta::new(seq, Kind::Put, expiry)))
            }
            Some(Decision::Remove) => self.retain.filtered_stays().then_some(NextEntry::Removed(seq)),
            Some(Decision::Change(_)) | None => {
                tracing::error!(target: TARGET, filter = filter.name(), "a compaction filter panicked or returned a value of more than 4 GiB; the row stays");
                Some(found)
            }
        })
    }

    /// Ends the part after the key at which the source stands. [`RetainStream::rest`] then returns what was left out.
    pub fn end_after_key(&mut self) {
        if self.inner.valid() && self.last_key.is_none() {
            self.last_key = Some(self.inner.key().into());
        }
    }

    /// Returns the first key of the part that was not read because the part ended early, once [`RetainStream::next`] has returned
    /// `None`.
    pub fn rest(&self) -> Option<&[u8]> {
        let left_out = self.last_key.is_some() && self.inner.valid() && !self.is_beyond(self.end.as_deref());
        left_out.then(|| self.inner.key())
    }

    /// Returns the counts so far; complete once [`RetainStream::next`] has returned `None`.
    pub fn counts(&self) -> &RetainCounts {
        self.retain.counts()
    }

    /// Returns the number of entries dropped because of range tombstones. [`RetainStream::counts`] does not include
    /// them.
    pub fn purged(&self) -> u64 {
        self.purger.dropped
    }

    /// Returns the sequence number up to which no range tombstone covers any entry yielded so far.
    pub fn purged_to(&self) -> SeqNo {
        self.purger.purged_to
    }

    /// Returns what to yield next and the step after it.
    fn find(&mut self, mut step: Step) -> Result<(NextEntry, Step)> {
        loop {
            match step {
                Step::Judge => {}
                Step::AdvanceKept if self.pass_shadowed()? => {}
                Step::Advance | Step::AdvanceKept => self.inner.next()?,
                Step::Yield if self.chain.has_operator() && self.inner.kind().is_operand() => {
                    self.fold()?;
                    step = Step::YieldChain;
                    continue;
                }
                Step::Yield => return Ok((NextEntry::Entry, Step::AdvanceKept)),
                Step::YieldChain => {
                    if let Some((seq, kind)) = self.chain.pop() {
                        return Ok((NextEntry::Folded(seq, kind), Step::YieldChain));
                    }
                }
                Step::Done => return Ok((NextEntry::Last, Step::Done)),
                Step::Failed => return Err(Error::internal("a merge continued after it had failed")),
            }
            if !self.inner.valid() || self.at_end() {
                return Ok((NextEntry::Last, Step::Done));
            }
            self.note_met()?;
            self.meta = self.inner.entry_meta();
            let ((seq, kind, expiry), key) = (self.meta.parts(), self.inner.key());
            if self.purger.drops(self.retain.rules(), key, seq) {
                step = Step::Advance;
                continue;
            }
            let action = self.retain.judge(key, seq, kind, expiry);
            step = if action == Action::Keep { Step::Yield } else { Step::Advance };
            if self.retain.released().is_some() {
                return Ok((NextEntry::Released, step));
            }
        }
    }

    /// Moves the source past the older versions of the entry that stays, if they can be dropped without a look at each: hot keys have
    /// thousands in a memtable. Returns whether it did.
    #[inline]
    fn pass_shadowed(&mut self) -> Result<bool> {
        let is_put = self.meta.kind().is_put();
        if !(is_put && self.retain.shadows_puts(self.meta.seq)) {
            return Ok(false);
        }
        let Some(passed) = self.inner.next_key_past_alike() else { return Ok(false) };
        self.retain.count_dropped(Reason::Shadowed, passed);
        for _ in 0..passed {
            self.note_met()?;
        }
        Ok(true)
    }

    /// Counts an entry of the source, and asks from time to time whether the merge may continue.
    #[inline]
    fn note_met(&mut self) -> Result<()> {
        self.met += 1;
        match &self.check {
            Some(check) if self.met.is_multiple_of(CHECK_EVERY) => check(),
            _ => Ok(()),
        }
    }

    /// Combines the operand on which the source stands, which stays, with older versions of its key, as far as rules 10
    /// and 11 allow. Leaves the source on the first version that was not combined.
    #[cold]
    fn fold(&mut self) -> Result<()> {
        self.admit_value();
        self.chain.begin(self.inner.seq(), self.inner.value()?);
        let ended = loop {
            self.inner.next()?;
            if !self.inner.valid() || !self.retain.same_key(self.inner.key()) {
                break self.retain.rules().bottom && self.chain.end_with(None);
            }
            let (seq, kind, expiry) = self.inner.entry_meta().parts();
            if self.purger.drops(self.retain.rules(), self.inner.key(), seq) {
                self.note_met()?;
                self.inner.next()?;
                break self.chain.end_with(None);
            }
            let covered = self.purger.covers_between(self.inner.key(), seq, self.chain.oldest());
            if kind.is_tombstone() || self.retain.rules().expired(expiry) || covered == Some(true) {
                break self.chain.end_with(None);
            }
            let apart = covered.is_none() || self.retain.rules().reader_within(seq..self.chain.oldest());
            match kind {
                Kind::Merge if !apart => {
                    if self.chain.is_long() && !self.chain.compact() {
                        break false;
                    }
                    self.note_met()?;
                    self.admit_value();
                    self.chain.push(seq, self.inner.value()?);
                }
                Kind::Put if !apart && expiry == 0 => {
                    self.admit_value();
                    let done = self.chain.end_with(Some(self.inner.value()?));
                    if done {
                        self.note_met()?;
                        self.inner.next()?;
                    }
                    break done;
                }
                Kind::Merge | Kind::Put | Kind::PutPointer => break false,
                Kind::Delete | Kind::SingleDelete | Kind::RangeDelete => break false, // these ended it above
            }
        };
        if ended {
            self.retain.becomes_put(self.chain.newest());
        } else {
            self.chain.end_open();
        }
        self.retain.count_dropped(Reason::Folded, self.chain.folded());
        (1..self.chain.entries()).for_each(|_| self.retain.count_kept());
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.is_beyond(self.end.as_deref()) || self.last_key.as_ref().is_some_and(|last| self.is_past(last))
    }

    fn is_beyond(&self, end: Option<&[u8]>) -> bool {
        end.is_some_and(|end| self.retain.order().compare(self.inner.key(), end).is_ge())
    }

    #[cold]
    fn is_past(&self, last: &[u8]) -> bool {
        self.retain.order().compare(self.inner.key(), last).is_gt()
    }
}
