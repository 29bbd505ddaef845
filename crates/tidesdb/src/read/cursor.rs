//! A [`Cursor`]: manual positioning over one moment in time, owned, `Send + 'static`.

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use tidesdb_memtable::Memtable;

use super::ahead::Ahead;
use super::get::resolve;
use super::track::Track;
use crate::family::{FamilyCore, ReadView};
use crate::merge::{HidingCursor, MergeCursor, VisibleCursor};
use crate::mvcc::SnapshotPin;
use crate::options::ReadOptions;
use crate::ranges::{Hidden, RangeSet, RangeTombstone, SharedRanges};
use crate::shared::Shared;
use crate::sources::Source;
use crate::types::{Comparator, EntryCursor, Kind, RowSpan, SEQ_MAX, Scope, SeqNo, Slice, Stamp};
use crate::{Error, Result};

/// Walks the keys of a family as they were at one moment. Seeking again costs no allocation.
///
/// The cursor keeps the memory and the files of its moment alive: drop or [`Cursor::refresh`] it when it is no longer needed.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// db.put(b"b", b"2")?;
/// db.put(b"d", b"4")?;
/// let mut cursor = db.cursor()?;
/// cursor.seek(b"c")?;
/// assert_eq!(cursor.key(), b"d");
/// cursor.prev()?;
/// assert_eq!(cursor.key(), b"b");
/// assert_eq!(cursor.value()?, b"2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cursor {
    shared: Arc<Shared>,
    family: Arc<FamilyCore>,
    view: Arc<ReadView>,
    pub(super) inner: Walk,
    seq: SeqNo,
    moment: Moment,
    /// Writes of the transaction that the cursor belongs to.
    own: Option<OwnReads>,
    /// Notes what the cursor looks at.
    track: Option<Track>,
    /// The value that a pointer led to, until the cursor moves.
    resolved: Option<Slice>,
    /// Rows that were read ahead; `inner` comes after them then.
    ahead: Ahead,
}

/// Deleted keys that a cursor steps over before it charges them.
const CHARGED_DEAD: u64 = 1024;

/// What a cursor stands on.
type Walk = VisibleCursor<Versions>;
/// All versions of a family but those that range tombstones hide.
type Versions = HidingCursor<MergeCursor<Source>>;

/// What a reader at `seq` and time `now` sees of `view`, not positioned yet.
pub fn show(view: &ReadView, family: &FamilyCore, (seq, now): (SeqNo, u32)) -> impl EntryCursor + use<> {
    Cursor::merged(family, view, (seq, now), None)
}

/// A transaction's own writes to a family, as a reader sees them.
#[derive(Clone, Debug)]
pub struct OwnReads {
    /// Its puts and deletes; the newest of a key counts.
    pub map: Arc<Memtable>,
    /// Its range deletes, which hide everything that is not its own. Their sequence numbers mean nothing.
    pub ranges: Vec<RangeTombstone>,
}

impl OwnReads {
    /// The range deletes for a reader at `seq`: newer than all commits it sees, and not newer than its own writes.
    fn ranges_at(&self, order: &Comparator, seq: SeqNo) -> RangeSet {
        let at = |range: &RangeTombstone| Arc::new(RangeTombstone { seq, ..range.clone() });
        RangeSet::new(order, self.ranges.iter().map(at).collect())
    }
}

/// When a read is.
#[derive(Clone, Debug)]
pub enum Moment {
    /// At the newest visible commit, as of the beginning of the read.
    Now,
    /// With everything that is in the memtables, visible yet or not.
    Uncommitted,
    /// At a snapshot.
    Snapshot(SnapshotPin),
}

impl Moment {
    /// The sequence number to read at.
    pub fn seq(&self, shared: &Shared) -> SeqNo {
        match self {
            Self::Now => shared.visible(),
            Self::Uncommitted => SEQ_MAX,
            Self::Snapshot(pin) => pin.seq(),
        }
    }
}

#[cold]
fn no_value() -> Error {
    Error::invalid("the cursor has no value here: it is for keys only, or past an end")
}

impl Cursor {
    /// A cursor at `snapshot`, or at the newest visible commit.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        family: &Arc<FamilyCore>,
        snapshot: Option<SnapshotPin>,
        options: ReadOptions,
    ) -> Result<Self> {
        let moment = snapshot.map_or(Moment::Now, Moment::Snapshot);
        Self::in_transaction(shared, family, moment, (None, None), options)
    }

    /// A cursor that also shows the transaction's `own` writes, and notes in `track` what it looks at.
    pub(crate) fn in_transaction(
        shared: &Arc<Shared>,
        family: &Arc<FamilyCore>,
        moment: Moment,
        (own, track): (Option<OwnReads>, Option<Track>),
        options: ReadOptions,
    ) -> Result<Self> {
        shared.check_open()?;
        // The view before the sequence number: see `mvcc`. The view keeps every version of its moment. And before the look
        // whether the family was dropped: a drop says so first and empties the view then.
        let view = family.owned_view();
        if family.is_dropped() {
            return Err(Error::NotFound { what: format!("column family {}", family.name()).into() });
        }
        let seq = moment.seq(shared);
        let inner = Self::merged(family, &view, (seq, shared.now_secs()), own.as_ref());
        let mut cursor = Self {
            shared: Arc::clone(shared),
            family: Arc::clone(family),
            view,
            inner,
            seq,
            moment,
            // What a transaction looks at is noted row by row.
            ahead: Ahead::new(own.is_none() && track.is_none()),
            own,
            track,
            resolved: None,
        };
        if options.keys_only {
            cursor.set_keys_only();
        }
        Ok(cursor)
    }

    /// What a reader at `seq` and time `now` sees of `view`.
    fn merged(
        family: &FamilyCore,
        view: &ReadView,
        (seq, now): (SeqNo, u32),
        own: Option<&OwnReads>,
    ) -> Walk {
        let versions = Self::versions(family, view, seq, own);
        VisibleCursor::new(versions, family.options.comparator.clone(), seq, now)
            .counting_from(view.active_from)
    }

    /// What there is to be seen of `view` for a reader at `seq`.
    fn versions(family: &FamilyCore, view: &ReadView, seq: SeqNo, own: Option<&OwnReads>) -> Versions {
        let comparator = &family.options.comparator;
        let mut sources: Vec<Source> = own.map(|own| Source::own(&own.map, seq)).into_iter().collect();
        sources.extend(view.memtables().map(|slot| Source::memtable(&slot.map)));
        for level in view.version.levels().iter().filter(|l| !l.is_empty()) {
            if level.is_overlapping() {
                sources.extend(level.tables().iter().map(Source::table));
            } else {
                sources.push(Source::level(level.tables_arc(), comparator));
            }
        }
        // To the reader its own writes are as new as its snapshot, and the memtables may hold newer versions.
        let merged = match own {
            Some(_) => MergeCursor::newest_after_first(comparator.clone(), sources),
            None => MergeCursor::newest_first(comparator.clone(), sources),
        };
        let mut ranges: Vec<RangeSet> = Vec::new(); // takes no memory where there are none
        let shared_ranges = view.memtables().map(|slot| &slot.ranges);
        ranges.extend(shared_ranges.filter(|set| !set.is_empty()).map(SharedRanges::to_owned));
        ranges.extend(Some(view.version.ranges()).filter(|set| !set.is_empty()).cloned());
        ranges.extend(own.map(|own| own.ranges_at(comparator, seq)));
        HidingCursor::new(merged, comparator.clone(), Hidden::new(ranges, seq))
    }

    /// A second cursor over the same moment, and as of the same time.
    pub(super) fn sibling(&self) -> Self {
        let moment = (self.seq, self.inner.now());
        let mut inner = Self::merged(&self.family, &self.view, moment, self.own.as_ref());
        inner.set_scope(self.inner.scope());
        Self {
            shared: Arc::clone(&self.shared),
            family: Arc::clone(&self.family),
            view: Arc::clone(&self.view),
            inner,
            seq: self.seq,
            moment: self.moment.clone(),
            own: self.own.clone(),
            track: self.track.as_ref().map(Track::sibling),
            resolved: None,
            ahead: self.ahead.sibling(),
        }
    }

    /// Limits the cursor to the keys in `range`, in the order of the family; the position is lost. What lies beyond is not read, and
    /// deleted keys there cost nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for key in ["a", "b", "c"] { db.put(key.as_bytes(), b"")?; }
    /// let mut cursor = db.cursor()?;
    /// cursor.set_range("a".."c");
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), b"b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_range<B: AsRef<[u8]>>(&mut self, range: impl RangeBounds<B>) {
        let mut scope = self.inner.scope().clone();
        let (low, high) = (range.start_bound().map(AsRef::as_ref), range.end_bound().map(AsRef::as_ref));
        scope.set_range(self.order(), low, high);
        self.set_scope(&scope);
    }

    /// Reads no value from now on; the position is lost.
    pub(super) fn set_keys_only(&mut self) {
        let mut scope = self.inner.scope().clone();
        scope.keys_only = true;
        self.set_scope(&scope);
    }

    /// Limits every layer of the cursor, and what it notes as read.
    fn set_scope(&mut self, scope: &Scope) {
        self.leave();
        self.inner.set_scope(scope);
        if let Some(track) = &mut self.track {
            track.clip(scope);
        }
    }

    /// Moves to the newest moment, or stays at the snapshot; the position is lost.
    ///
    /// # Errors
    /// `NotFound` for a dropped family, `Closed`.
    pub fn refresh(&mut self) -> Result<()> {
        let own = (self.own.clone(), self.track.as_ref().map(Track::sibling));
        let (scope, options) = (self.inner.scope().clone(), ReadOptions::default());
        *self = Self::in_transaction(&self.shared, &self.family, self.moment.clone(), own, options)?;
        self.set_scope(&scope);
        Ok(())
    }

    /// The sequence number the cursor reads at.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// Whether the cursor stands on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        self.ahead.is_active() || self.inner.valid()
    }

    /// To the first key.
    ///
    /// # Errors
    /// `Corrupt`, `Io`: the cursor is then not valid. So for all that follow.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.leave();
        self.inner.seek_to_first()?;
        self.note(|track, landed| track.forward(Bound::Unbounded, landed));
        Ok(())
    }

    /// To the last key.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.leave();
        self.inner.seek_to_last()?;
        self.note(|track, landed| track.backward(Bound::Unbounded, landed));
        Ok(())
    }

    /// To the first key at or after `target`.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    #[inline]
    pub fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.leave();
        self.inner.seek(target)?;
        self.note(|track, landed| track.forward(Bound::Included(target), landed));
        Ok(())
    }

    /// To the last key at or before `target`.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.leave();
        self.inner.seek_for_prev(target)?;
        self.note(|track, landed| track.backward(Bound::Included(target), landed));
        Ok(())
    }

    /// To the next key. Does nothing if not valid.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor moves; it does not yield")]
    pub fn next(&mut self) -> Result<()> {
        if self.ahead.step() { Ok(()) } else { self.step() }
    }

    /// Rows that are at hand, read ahead: the bytes of all, and where among them each lies, the one stood on and those after it. There are
    /// none, or some of a walk forwards.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for n in 0..100u8 { db.put(&[n], b"value")?; }
    /// let (mut cursor, mut sum) = (db.cursor()?, 0);
    /// cursor.seek_to_first()?;
    /// while cursor.valid() {
    ///     sum += u32::from(cursor.entry()?.0[0]);
    ///     // What is at hand costs less than what is stepped to.
    ///     let (bytes, rows) = cursor.at_hand();
    ///     sum += rows.iter().skip(1).map(|row| u32::from(bytes[row.start()])).sum::<u32>();
    ///     let more = rows.len().saturating_sub(1);
    ///     cursor.advance(more);
    ///     cursor.next()?;
    /// }
    /// assert_eq!(sum, 99 * 100 / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn at_hand(&self) -> (&[u8], &[RowSpan]) {
        self.ahead.parts()
    }

    /// `n` keys on, to one of those [at hand](Cursor::at_hand); no further than to the last of them.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        self.ahead.advance(n);
    }

    /// To the next key that was not read ahead.
    #[inline]
    fn step(&mut self) -> Result<()> {
        self.resolved = None;
        if self.ahead.is_active() {
            self.ahead.finish()?;
            self.inner.resume()?;
        } else if self.inner.valid() {
            self.inner.next()?;
        } else {
            return Ok(());
        }
        self.note(Track::next);
        if self.ahead.note_step() {
            self.read_ahead();
        }
        Ok(())
    }

    /// Copies rows from here on, to be shown one by one.
    #[cold]
    #[inline(never)]
    fn read_ahead(&mut self) {
        self.ahead.fill(|rows| self.inner.take_rows(rows));
    }

    /// The position is lost.
    #[inline]
    fn leave(&mut self) {
        self.resolved = None;
        self.ahead.forget();
    }

    /// To the previous key. Does nothing if not valid.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        if self.ahead.is_active() {
            let sought = self.inner.seek(self.ahead.row().0);
            self.leave();
            sought?;
        }
        self.leave();
        if self.inner.valid() {
            self.inner.prev()?
        } else {
            self.inner.seek_to_last()?
        }
        self.note(Track::prev);
        Ok(())
    }

    /// Charges the active memtable for deleted keys that were stepped over. Once scans have spent on it what a flush costs, it is flushed, and
    /// the background merges tables that consist of tombstones.
    #[cold]
    fn charge_dead(&mut self) {
        let dead = self.inner.take_fresh_dead();
        let Some(slot) = self.view.active.as_ref().filter(|_| self.own.is_none()) else { return };
        if slot.charge(dead) && self.shared.check_writable().is_ok() {
            self.shared.try_rotate(&self.family, slot);
        }
    }

    /// Tells the transaction, if there is one, where the cursor has come to.
    #[inline]
    fn note(&mut self, tell: impl FnOnce(&mut Track, Option<&[u8]>)) {
        if let Some(track) = &mut self.track {
            tell(track, self.inner.valid().then(|| self.inner.key()));
        }
        if self.inner.fresh_dead() >= CHARGED_DEAD {
            self.charge_dead();
        }
    }

    /// The key. The cursor must be valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.ahead.is_active() { self.ahead.row().0 } else { self.inner.key() }
    }

    /// The value; read only when asked for.
    ///
    /// # Errors
    /// `Corrupt`, `Io`; `InvalidArgument` if the cursor is for keys only or not valid.
    #[inline]
    pub fn value(&mut self) -> Result<&[u8]> {
        Ok(self.entry()?.1)
    }

    /// The key and its value, which is read only when asked for.
    ///
    /// # Errors
    /// As [`Cursor::value`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// db.put(b"a", b"1")?;
    /// db.put(b"b", b"2")?;
    /// let mut cursor = db.cursor()?;
    /// let mut text = String::new();
    /// cursor.seek_to_first()?;
    /// while cursor.valid() {
    ///     let (key, value) = cursor.entry()?;
    ///     text += &format!("{}={};", key.escape_ascii(), value.escape_ascii());
    ///     cursor.next()?;
    /// }
    /// assert_eq!(text, "a=1;b=2;");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn entry(&mut self) -> Result<(&[u8], &[u8])> {
        self.ahead.note_value();
        if self.ahead.is_active() {
            return Ok(self.ahead.row());
        }
        if self.inner.scope().keys_only || !self.valid() {
            return Err(no_value());
        }
        let (key, kind, value) = self.inner.entry()?;
        if kind != Kind::PutPointer {
            return Ok((key, value));
        }
        if self.resolved.is_none() {
            self.resolved = Some(resolve(&self.family, value)?);
        }
        Ok((key, self.resolved.as_deref().unwrap_or_default()))
    }

    /// Sequence number of the version the cursor stands on.
    pub fn version_seq(&self) -> SeqNo {
        self.stamp().seq
    }

    /// Expiry of the version the cursor stands on, in UNIX seconds; 0 = never.
    pub fn expiry(&self) -> u32 {
        self.stamp().expiry
    }

    fn stamp(&self) -> Stamp {
        if self.ahead.is_active() { self.ahead.stamp() } else { self.inner.stamp() }
    }

    /// The value, to keep.
    pub(super) fn value_slice(&mut self) -> Result<Slice> {
        self.value().map(Slice::from)
    }

    /// The order of the family.
    pub(super) fn order(&self) -> &Comparator {
        &self.family.options.comparator
    }

    /// Compares the key with `other` in the order of the family.
    pub(super) fn compare_key(&self, other: &[u8]) -> Ordering {
        self.family.options.comparator.compare(self.key(), other)
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("seq", &self.seq).field("valid", &self.valid()).finish_non_exhaustive()
    }
}
