//! Makes cursors, and charges their memory.

use std::sync::Arc;

use tidesdb_sync::pin;

use super::super::row_buffer::RowBuffer;
use super::super::stored::StoredAhead;
use super::super::track::Track;
use super::follow::{Follows, Looks, NewestView, Registered, seek_charge};
use super::{Cursor, Moment, OwnReads, ReadTimestamp, ReaderCursor, Versions};
use crate::Result;
use crate::context::ReadCtx;
use crate::family::{FamilyCore, MemSlot, ReadView};
use crate::memory::{Charge, Use};
use crate::merge::{Combine, HidingCursor, MergeCursor, VisibleCursor};
use crate::mvcc::SnapshotPin;
use crate::options::ReadOptions;
use crate::ranges::{Cover, Hidden, RangeSet, SharedRanges};
use crate::sources::{Source, TableRun, TableSlot};
use crate::types::{EntryCursor, ReadPoint, SEQ_MAX, Scope, SeqNo};

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

/// Bytes that the cursor at `seq` over a view with `runs` sorted runs takes before it is positioned. A source is also in two lists of the
/// merge.
pub(super) fn base_bytes(view: &ReadView, seq: SeqNo, runs: u32) -> u64 {
    const SOURCE_BYTES: usize = size_of::<Source>() + 4 * size_of::<usize>();
    let sources = view.memtables_at(seq).count() + runs as usize + 1;
    (size_of::<Cursor>() + sources * SOURCE_BYTES) as u64
}

/// Number of sorted runs in the tables of `view`.
pub(super) fn runs(view: &ReadView) -> u32 {
    let runs = view.version.runs().iter().map(|run| if run.is_overlapping() { run.len() } else { 1 });
    u32::try_from(runs.sum::<usize>()).unwrap_or(u32::MAX)
}

/// A source of a cursor.
pub(in super::super) enum Sorted<'v> {
    Memtable(&'v Arc<MemSlot>),
    /// A table of level 1.
    Table(&'v Arc<TableSlot>),
    /// A sorted run of a deeper level.
    Run(&'v Arc<TableRun>),
}

/// Returns the sources in `view` for a reader at `seq`, newest first.
pub(in super::super) fn sorted_sources(view: &ReadView, seq: SeqNo) -> impl Iterator<Item = Sorted<'_>> {
    let tables = view.version.runs().iter().flat_map(|run| {
        let run_itself = (!run.is_overlapping()).then_some(Sorted::Run(run));
        let tables = run.is_overlapping().then(|| run.tables().map(Sorted::Table));
        run_itself.into_iter().chain(tables.into_iter().flatten())
    });
    let memtables = view.memtables_at(seq).flat_map(|slot| {
        let runs = slot.taken.iter().flat_map(|taken| taken.runs()).map(Sorted::Run);
        slot.taken.is_none().then_some(Sorted::Memtable(slot)).into_iter().chain(runs)
    });
    memtables.chain(tables)
}

/// Returns the range tombstones in `view` for a reader at `seq`.
pub(in super::super) fn range_sets(view: &ReadView, seq: SeqNo) -> Vec<RangeSet> {
    let mut ranges: Vec<RangeSet> = Vec::new(); // does not allocate while empty
    let shared_ranges = view.memtables_at(seq).map(|slot| &slot.ranges);
    ranges.extend(shared_ranges.filter(|set| !set.is_empty()).map(SharedRanges::to_owned));
    ranges.extend(Some(view.version.ranges()).filter(|set| !set.is_empty()).cloned());
    ranges
}

fn scope_of(options: ReadOptions) -> Scope {
    let mut scope = Scope::default();
    scope.keys_only = options.keys_only;
    scope
}

/// What a cursor begins with.
struct Start {
    reads: Registered,
    seq: SeqNo,
    newest: NewestView,
    follows: Follows,
    /// See [`Cursor::refreshes`].
    refreshes: Option<Moment<'static>>,
}

impl Start {
    /// Registers the number of `moment` and takes the view afterwards: see `mvcc`.
    fn registered(reads: &Arc<ReadCtx>, family: &FamilyCore, moment: Moment<'_>) -> Result<Self> {
        let (reads, seq) = match moment {
            Moment::Now => Registered::newest(reads),
            Moment::Uncommitted => (Registered::none(reads), moment.seq(reads)),
            Moment::Snapshot(pin) => (Registered::at(reads, pin), pin.seq()),
        };
        let (newest, follows) = (NewestView::of(family)?, reads.follows());
        Ok(Self { reads, seq, newest, follows, refreshes: moment.of_refresh() })
    }

    /// Registers nothing: a snapshot that is read lives as long as the call. Takes the view before the sequence number: see `mvcc`. The
    /// view retains every version visible at its time. A memtable that began in between holds commits below the number, and the view lacks
    /// it: take both again.
    fn of_call(reads: &Arc<ReadCtx>, family: &FamilyCore, moment: Moment<'_>) -> Result<Self> {
        loop {
            let newest = NewestView::of(family)?;
            let seq = moment.seq(reads);
            let is_current = || Arc::ptr_eq(&newest.view, family.view(&pin()));
            if !matches!(moment, Moment::Now) || is_current() {
                let (reads, follows) = (Registered::none(reads), Follows::Never);
                return Ok(Self { reads, seq, newest, follows, refreshes: moment.of_refresh() });
            }
        }
    }
}

impl Cursor {
    /// Creates a cursor at `snapshot`, or at the newest visible commit.
    pub(crate) fn new(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        snapshot: Option<&SnapshotPin>,
        options: ReadOptions,
    ) -> Result<Self> {
        let moment = snapshot.map_or(Moment::Now, Moment::Snapshot);
        Self::within(reads, family, moment, (None, None), &scope_of(options))
    }

    /// Creates a cursor that also shows the transaction's `own` writes and records in `track` the keys it reads.
    pub(crate) fn in_transaction(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        moment: &ReadTimestamp,
        own: Option<OwnReads>,
        track: Option<Track>,
        options: ReadOptions,
    ) -> Result<Self> {
        Self::within(reads, family, moment.moment(), (own, track), &scope_of(options))
    }

    /// Creates a cursor for one read within a call; it shows the transaction's `own` writes.
    pub(crate) fn for_one_call(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        moment: &ReadTimestamp,
        own: Option<OwnReads>,
    ) -> Result<Self> {
        let mut scope = Scope::default();
        scope.one_call = true;
        Self::within(reads, family, moment.moment(), (own, None), &scope)
    }

    /// Creates a cursor at `snapshot`, or at the newest visible commit, for one read within a call.
    pub(crate) fn of_call(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        snapshot: Option<&SnapshotPin>,
    ) -> Result<Self> {
        let mut scope = Scope::default();
        scope.one_call = true;
        let moment = snapshot.map_or(Moment::Now, Moment::Snapshot);
        Self::within(reads, family, moment, (None, None), &scope)
    }

    /// Creates a cursor that is limited to `scope`.
    pub(super) fn within(
        reads: &Arc<ReadCtx>,
        family: &Arc<FamilyCore>,
        moment: Moment<'_>,
        of_transaction: (Option<OwnReads>, Option<Track>),
        scope: &Scope,
    ) -> Result<Self> {
        reads.check_open()?;
        let start = match scope.one_call {
            true => Start::of_call(reads, family, moment),
            false => Start::registered(reads, family, moment),
        }?;
        let now = reads.now(); // after the view: no merge in it has a later time
        Self::over(family, start, now, of_transaction, scope)
    }

    /// Creates a cursor over the view of `start` that judges expiry at `now`.
    fn over(
        family: &Arc<FamilyCore>,
        start: Start,
        now: u64,
        (own, track): (Option<OwnReads>, Option<Track>),
        scope: &Scope,
    ) -> Result<Self> {
        let Start { reads, seq, newest: NewestView { view, seen }, follows, refreshes } = start;
        let runs = runs(&view);
        let mut cursor = Self {
            reads,
            family: Arc::clone(family),
            inner: Self::merged(family, &view, ReadPoint { seq, now }, own.as_ref()),
            remembered: 0,
            seq,
            seek_charge: seek_charge(runs),
            base: base_bytes(&view, seq, runs),
            view,
            seen,
            follows,
            looks: Looks::default(),
            refreshes,
            // A transaction records each row it reads, so rows are not copied in advance.
            buffer: RowBuffer::new(own.is_none() && track.is_none()),
            own,
            track,
            resolved: None,
            spare: Vec::new(),
            stored: StoredAhead::default(),
            combines: family.options.merge_operator().is_some(),
            charge: Charge::new(Use::Cursors),
        };
        if scope.is_bounded() || scope.keys_only || scope.one_call {
            cursor.set_scope(scope);
        }
        if cursor.remembers() {
            cursor.inner.begin_to_remember();
        }
        cursor.try_charge(0)?;
        Ok(cursor)
    }

    /// Whether its rows become fewer only: it shows no writes of a transaction, which may add some, and no commits to come.
    pub(super) fn remembers(&self) -> bool {
        self.own.is_none() && self.seq != SEQ_MAX && !self.inner.scope().one_call
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
        let own_source = own.map(|own| Source::own(&own.map, &own.deleted, comparator, seq));
        let mut sources: Vec<Source> = own_source.into_iter().collect();
        sources.extend(sorted_sources(view, seq).map(|source| match source {
            Sorted::Memtable(slot) => Source::memtable(&slot.map),
            Sorted::Table(slot) => Source::table(slot),
            Sorted::Run(run) => Source::run(run, comparator),
        }));
        // For the reader, its own writes are as new as its snapshot, while the memtables may hold newer versions.
        let merged = match own {
            Some(_) => MergeCursor::newest_after_first(comparator.clone(), sources),
            None => MergeCursor::newest_first(comparator.clone(), sources),
        };
        let deleted = own.map_or_else(Cover::default, |own| own.deleted.clone());
        let hidden = Hidden::in_transaction(range_sets(view, seq), deleted, seq);
        HidingCursor::new(merged, comparator.clone(), hidden)
    }

    /// Creates a second cursor at the same read timestamp and the same expiry time. It must not outlive this one, whose registration it
    /// relies on.
    ///
    /// # Errors
    /// `Busy` if memory is scarce.
    pub(in super::super) fn sibling(&self) -> Result<Self> {
        let of_transaction = (self.own.clone(), self.track.as_ref().map(Track::sibling));
        let newest = NewestView { view: Arc::clone(&self.view), seen: self.seen };
        let (reads, follows) = (Registered::none(&self.reads), self.follows);
        let start = Start { reads, seq: self.seq, newest, follows, refreshes: self.refreshes };
        Self::over(&self.family, start, self.inner.now(), of_transaction, self.inner.scope())
    }

    /// Charges `bytes` for values and buffers, if that is more than before.
    ///
    /// # Errors
    /// `Busy` if cursors hold their share of the memory.
    pub(super) fn try_charge(&mut self, bytes: usize) -> Result<()> {
        let wanted = self.base + bytes as u64;
        if wanted > self.charge.bytes() && !self.inner.scope().one_call {
            return self.charge.grow(&self.family.memory, wanted).map(drop);
        }
        self.charge_held(bytes);
        Ok(())
    }

    /// Like [`Self::try_charge`], for memory that is taken already.
    pub(super) fn charge_held(&mut self, bytes: usize) {
        let wanted = self.base + bytes as u64;
        if wanted > self.charge.bytes() {
            self.charge.set(&self.family.memory, wanted);
        }
    }
}
