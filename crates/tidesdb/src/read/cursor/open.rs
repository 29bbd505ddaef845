//! Makes cursors, and charges their memory.

use std::sync::Arc;

use super::super::row_buffer::RowBuffer;
use super::super::stored::StoredAhead;
use super::super::track::Track;
use super::{Cursor, OwnReads, ReadTimestamp, ReaderCursor, Versions};
use crate::Result;
use crate::context::ReadCtx;
use crate::family::{FamilyCore, ReadView, SEEK_CHARGE};
use crate::memory::{Charge, Memory, Use};
use crate::merge::{Combine, HidingCursor, MergeCursor, VisibleCursor};
use crate::mvcc::SnapshotPin;
use crate::options::ReadOptions;
use crate::ranges::{Hidden, RangeSet, SharedRanges};
use crate::sources::Source;
use crate::types::{EntryCursor, ReadPoint, Scope, SeqNo};

/// Returns a cursor over the keys that a reader at `at` sees in `view`, not positioned yet. It reads no values and calls no
/// merge operator.
pub fn show_keys(view: &ReadView, family: &Arc<FamilyCore>, at: ReadPoint) -> impl EntryCursor + use<> {
    let mut cursor = Cursor::merged(family, view, at, None);
    let mut scope = Scope::default();
    scope.keys_only = true;
    scope.one_call = true;
    cursor.set_scope(&scope);
    cursor
}

/// Bytes that the cursor over a view with `runs` sorted runs takes before it is positioned. A source is also in two lists of the merge.
fn base_bytes(view: &ReadView, runs: u32) -> u64 {
    const SOURCE_BYTES: usize = size_of::<Source>() + 4 * size_of::<usize>();
    let sources = view.memtables().count() + runs as usize + 1;
    (size_of::<Cursor>() + sources * SOURCE_BYTES) as u64
}

/// Number of sorted runs in the tables of `view`.
fn runs(view: &ReadView) -> u32 {
    let runs = view.version.runs().iter().map(|run| if run.is_overlapping() { run.len() } else { 1 });
    u32::try_from(runs.sum::<usize>()).unwrap_or(u32::MAX)
}

impl Cursor {
    /// Creates a cursor at `snapshot`, or at the newest visible commit.
    pub(crate) fn new(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        snapshot: Option<SnapshotPin>,
        options: ReadOptions,
    ) -> Result<Self> {
        let moment = snapshot.map_or(ReadTimestamp::Now, ReadTimestamp::Snapshot);
        Self::in_transaction(reads, family, moment, None, None, options)
    }

    /// Creates a cursor that also shows the transaction's `own` writes and records in `track` the keys it reads.
    pub(crate) fn in_transaction(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        moment: ReadTimestamp,
        own: Option<OwnReads>,
        track: Option<Track>,
        options: ReadOptions,
    ) -> Result<Self> {
        let admit = |charge: &mut Charge, memory: &Arc<Memory>, bytes| charge.grow(memory, bytes).map(drop);
        let mut cursor = Self::admitted(reads, family, moment, own, track, admit)?;
        if options.keys_only {
            cursor.set_keys_only();
        }
        Ok(cursor)
    }

    /// Creates a cursor for one read within a call; it shows the transaction's `own` writes.
    pub(crate) fn for_one_call(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        moment: ReadTimestamp,
        own: Option<OwnReads>,
    ) -> Result<Self> {
        let admit = |charge: &mut Charge, memory: &Arc<Memory>, bytes| {
            charge.set(memory, bytes);
            Ok(())
        };
        let mut cursor = Self::admitted(reads, family, moment, own, None, admit)?;
        let mut scope = Scope::default();
        scope.one_call = true;
        cursor.set_scope(&scope);
        Ok(cursor)
    }

    /// Creates a cursor whose memory `admit` charges.
    fn admitted(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        moment: ReadTimestamp,
        own: Option<OwnReads>,
        track: Option<Track>,
        admit: impl FnOnce(&mut Charge, &Arc<Memory>, u64) -> Result<()>,
    ) -> Result<Self> {
        reads.check_open()?;
        // Take the view before the sequence number: see `mvcc`. The view retains every version visible at its time.
        // Also take it before checking for a drop: a drop sets the flag first and empties the view afterwards.
        let view = family.owned_view();
        family.check_usable()?;
        let (runs, mut charge) = (runs(&view), Charge::new(Use::Cursors));
        let base = base_bytes(&view, runs);
        admit(&mut charge, &family.memory, base)?;
        let seq = moment.seq(reads);
        let inner = Self::merged(family, &view, ReadPoint { seq, now: reads.now() }, own.as_ref());
        Ok(Self {
            reads: Arc::clone(reads),
            family: Arc::clone(family),
            // For each sorted run above the first.
            seek_charge: runs.saturating_sub(1).saturating_mul(SEEK_CHARGE),
            view,
            inner,
            seq,
            moment,
            // A transaction records each row it reads, so rows are not copied in advance.
            buffer: RowBuffer::new(own.is_none() && track.is_none()),
            own,
            track,
            resolved: None,
            spare: Vec::new(),
            stored: StoredAhead::default(),
            combines: family.options.merge_operator().is_some(),
            base,
            charge,
        })
    }

    /// Returns a cursor over what a reader at `at` sees in `view`.
    pub(super) fn merged(
        family: &Arc<FamilyCore>,
        view: &ReadView,
        at: ReadPoint,
        own: Option<&OwnReads>,
    ) -> ReaderCursor {
        let versions = Self::versions(family, view, at.seq, own);
        let combine = family.options.merge_operator().map(|_| Arc::clone(family) as Arc<dyn Combine>);
        VisibleCursor::new(versions, family.options.comparator.clone(), at.seq, at.now)
            .counting_from(view.active_from)
            .combining(combine)
    }

    /// Returns a cursor over the versions in `view` for a reader at `seq`.
    fn versions(family: &FamilyCore, view: &ReadView, seq: SeqNo, own: Option<&OwnReads>) -> Versions {
        let comparator = &family.options.comparator;
        let mut sources: Vec<Source> = own.map(|own| Source::own(&own.map, seq)).into_iter().collect();
        sources.extend(view.memtables().map(|slot| Source::memtable(&slot.map)));
        for run in view.version.runs() {
            if run.is_overlapping() {
                sources.extend(run.tables().map(Source::table));
            } else {
                sources.push(Source::run(run, comparator));
            }
        }
        // For the reader, its own writes are as new as its snapshot, while the memtables may hold newer versions.
        let merged = match own {
            Some(_) => MergeCursor::newest_after_first(comparator.clone(), sources),
            None => MergeCursor::newest_first(comparator.clone(), sources),
        };
        let mut ranges: Vec<RangeSet> = Vec::new(); // does not allocate while empty
        let shared_ranges = view.memtables().map(|slot| &slot.ranges);
        ranges.extend(shared_ranges.filter(|set| !set.is_empty()).map(SharedRanges::to_owned));
        ranges.extend(Some(view.version.ranges()).filter(|set| !set.is_empty()).cloned());
        ranges.extend(own.map(|own| own.ranges_at(comparator, seq)));
        HidingCursor::new(merged, comparator.clone(), Hidden::new(ranges, seq))
    }

    /// Creates a second cursor at the same read timestamp and the same expiry time.
    ///
    /// # Errors
    /// `Busy` if memory is scarce.
    pub(in super::super) fn sibling(&self) -> Result<Self> {
        let mut charge = Charge::new(Use::Cursors);
        charge.grow(&self.family.memory, self.base)?;
        let at = ReadPoint { seq: self.seq, now: self.inner.now() };
        let mut inner = Self::merged(&self.family, &self.view, at, self.own.as_ref());
        inner.set_scope(self.inner.scope());
        Ok(Self {
            reads: Arc::clone(&self.reads),
            family: Arc::clone(&self.family),
            view: Arc::clone(&self.view),
            inner,
            seq: self.seq,
            seek_charge: self.seek_charge,
            moment: self.moment.clone(),
            own: self.own.clone(),
            track: self.track.as_ref().map(Track::sibling),
            resolved: None,
            spare: Vec::new(),
            buffer: self.buffer.sibling(),
            stored: StoredAhead::default(),
            combines: self.combines,
            base: self.base,
            charge,
        })
    }

    /// Charges `bytes` for values and buffers, if that is more than before.
    ///
    /// # Errors
    /// `Busy` if cursors hold their share of the memory.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<()> {
        let wanted = self.base + bytes as u64;
        if wanted <= self.charge.bytes() {
            return Ok(());
        }
        if self.inner.scope().one_call {
            self.charge.set(&self.family.memory, wanted);
            return Ok(());
        }
        self.charge.grow(&self.family.memory, wanted).map(drop)
    }
}
