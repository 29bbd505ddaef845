//! [`Cursor`]: manual positioning at one read timestamp. Owned, `Send + 'static`.

use std::mem;
use std::sync::Arc;
use std::time::SystemTime;

mod follow;
mod open;

use follow::{Follows, Looks, Registered};
#[cfg(test)]
pub(super) use follow::{cursor_sources, has_newest_view};
pub use open::show_keys;
pub(super) use open::{Sorted, range_sets, sorted_sources};

use super::get::resolve_chunks;
use super::row_buffer::RowBuffer;
use super::stored::StoredAhead;
use super::track::{Side, Track};
use crate::context::ReadCtx;
use crate::family::{FamilyCore, ReadView};
use crate::jobs::Job;
use crate::memory::Charge;
use crate::merge::{HidingCursor, MergeCursor, VisibleCursor};
use crate::mvcc::SnapshotPin;
use crate::ranges::Cover;
use crate::sources::Source;
use crate::types::{
    Comparator, EntryCursor, EntryMeta, KeyRange, ReadPoint, RowSpan, Rows, SEQ_MAX, Scope, SeqNo, Slice,
    moment_of,
};
use crate::undo_map::UndoMap;
use crate::vlog::{ChunkedPlace, VlogPointer};
use crate::{Error, Result};

/// A cursor that leaves its values gives back their memory charge only if it is more than this many bytes.
const SMALL_VALUES: u64 = 64 << 10;
/// The memory of a value of at least this length is used again for the next value.
const KEPT_BYTES_MIN: usize = 8 << 20;

/// Iterates over the keys of a family at one read timestamp. Seeking again does not allocate.
///
/// A cursor keeps the versions that it shows on disk, and the memory and files of the tables that it reads. A seek, and now and then a step,
/// moves it to the newest tables, so the files of older ones are removed. It shows the same rows there, except those that have expired
/// meanwhile. Drop or [`Cursor::refresh`] it when it is no longer needed.
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
    reads: Registered,
    family: Arc<FamilyCore>,
    view: Arc<ReadView>,
    /// [`FamilyCore::changes`] when the cursor last looked for a newer view.
    seen: u64,
    follows: Follows,
    looks: Looks,
    pub(super) inner: ReaderCursor,
    seq: SeqNo,
    /// Charge of each seek for the sorted runs above the first.
    seek_charge: u32,
    /// Where [`Cursor::refresh`] begins; `None`: it stays at its sequence number.
    refreshes: Option<Moment<'static>>,
    /// Writes of the transaction that owns the cursor.
    own: Option<OwnReads>,
    /// Records the keys that the cursor reads.
    track: Option<Track>,
    /// The value that the current pointer led to; cleared when the cursor moves.
    resolved: Option<Slice>,
    /// Memory of the long value that the cursor has just left: to clear new pages takes a third of the time of reading such a value.
    spare: Vec<u8>,
    /// Rows that were copied in advance. While there are some, `inner` stands after them.
    buffer: RowBuffer,
    /// Read-ahead of values in value logs.
    stored: StoredAhead,
    /// True if the family combines operands: the combined value is in a buffer.
    combines: bool,
    /// Memory of the cursor itself, without values.
    base: u64,
    /// Bytes of what it remembers, which `base` includes.
    pub(super) remembered: usize,
    charge: Charge,
}

/// Deleted keys that a cursor steps over before it charges them.
const CHARGED_DEAD: u64 = 1024;

/// The cursor under a [`Cursor`]: shows the visible version of each key.
pub(super) type ReaderCursor = VisibleCursor<Versions>;
/// All versions of a family except those hidden by range tombstones.
type Versions = HidingCursor<MergeCursor<Source>>;

/// A transaction's own writes to a family, in readable form. Clones share them.
#[derive(Clone, Debug)]
pub struct OwnReads {
    /// Its puts, deletes and merges.
    pub map: UndoMap,
    /// Its range deletes, which hide all commits and its earlier writes. In the place of a sequence number they have a stamp.
    pub deleted: Cover,
}

/// Read timestamp of a transaction.
#[derive(Debug)]
pub enum ReadTimestamp {
    /// The newest visible commit at the start of each read.
    Now,
    /// Everything in the memtables, whether visible yet or not.
    Uncommitted,
    /// The sequence number of a snapshot.
    Snapshot(SnapshotPin),
}

/// Read timestamp of a read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment<'p> {
    /// See [`ReadTimestamp::Now`].
    Now,
    /// See [`ReadTimestamp::Uncommitted`].
    Uncommitted,
    /// See [`ReadTimestamp::Snapshot`].
    Snapshot(&'p SnapshotPin),
}

impl ReadTimestamp {
    fn moment(&self) -> Moment<'_> {
        match self {
            Self::Now => Moment::Now,
            Self::Uncommitted => Moment::Uncommitted,
            Self::Snapshot(pin) => Moment::Snapshot(pin),
        }
    }

    /// Returns the sequence number to read at.
    pub fn seq(&self, reads: &ReadCtx) -> SeqNo {
        self.moment().seq(reads)
    }
}

impl Moment<'_> {
    fn seq(self, reads: &ReadCtx) -> SeqNo {
        match self {
            Self::Now => reads.visible(),
            Self::Uncommitted => SEQ_MAX,
            Self::Snapshot(pin) => pin.seq(),
        }
    }

    /// Where [`Cursor::refresh`] begins; `None` for a snapshot, at which it stays.
    fn of_refresh(self) -> Option<Moment<'static>> {
        match self {
            Self::Now => Some(Moment::Now),
            Self::Uncommitted => Some(Moment::Uncommitted),
            Self::Snapshot(_) => None,
        }
    }
}

#[cold]
fn no_value() -> Error {
    Error::invalid("the cursor has no value: it is keys-only, or not on a key; check Cursor::valid first")
}

impl Cursor {
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
    pub fn set_range(&mut self, range: impl KeyRange) {
        let mut scope = self.inner.scope().clone();
        let (low, high) = range.bounds();
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
        self.jump();
        // The memory of the bounds cannot be refused: the caller has allocated them already.
        let bytes = |scope: &Scope| (scope.memory_bytes() as u64).cast_signed();
        self.grow_base(bytes(scope) - bytes(self.inner.scope()));
        self.inner.set_scope(scope);
        if let Some(track) = &mut self.track {
            track.clip(scope);
        }
    }

    /// Counts `more` bytes for the cursor itself.
    fn grow_base(&mut self, more: i64) {
        self.base = self.base.saturating_add_signed(more);
        self.charge.set(&self.family.memory, self.charge.bytes().saturating_add_signed(more));
    }

    /// Moves to the newest read timestamp, or stays at the snapshot. The position is lost.
    ///
    /// # Errors
    /// `NotFound` for a dropped family, `Closed`.
    pub fn refresh(&mut self) -> Result<()> {
        let Some(moment) = self.refreshes else { return self.renew() };
        let (own, track) = (self.own.clone(), self.track.as_ref().map(Track::sibling));
        *self = Self::within(&self.reads, &self.family, moment, (own, track), self.inner.scope())?;
        Ok(())
    }

    /// Returns the sequence number that the cursor reads at.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// Returns whether the cursor stands on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        self.buffer.is_active() || self.inner.valid()
    }

    /// Moves to the first key.
    ///
    /// # Errors
    /// `Corrupt`, `Io`: the cursor is then not valid. `Busy` if it needs more memory and iterators hold their share of `memory_limit`;
    /// `MemoryLimit` if its transaction has read too many intervals. The same holds for all methods below.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.land(ReaderCursor::seek_to_first)?;
        self.note(|track, landed| track.seek(Side::High, None, landed));
        Ok(())
    }

    /// Moves to the last key.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.land(ReaderCursor::seek_to_last)?;
        self.note(|track, landed| track.seek(Side::Low, None, landed));
        Ok(())
    }

    /// Moves to the first key at or after `target`.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    #[inline]
    pub fn seek(&mut self, target: impl AsRef<[u8]>) -> Result<()> {
        let target = target.as_ref();
        self.land(|inner| inner.seek(target))?;
        self.note(|track, landed| track.seek(Side::High, Some(target), landed));
        Ok(())
    }

    /// Moves to the last key at or before `target`.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek_for_prev(&mut self, target: impl AsRef<[u8]>) -> Result<()> {
        let target = target.as_ref();
        self.land(|inner| inner.seek_for_prev(target))?;
        self.note(|track, landed| track.seek(Side::Low, Some(target), landed));
        Ok(())
    }

    /// Moves to the next key. Does nothing if the cursor is not valid.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor moves; it does not yield")]
    pub fn next(&mut self) -> Result<()> {
        if self.buffer.step() { Ok(()) } else { self.step() }
    }

    /// Returns the buffered rows: their bytes, and the span of each from the current row on. Empty unless the cursor
    /// moves forward and has buffered rows.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for n in 0..100u8 { db.put(&[n], b"value")?; }
    /// let (mut cursor, mut sum) = (db.cursor()?, 0);
    /// cursor.seek_to_first()?;
    /// while cursor.valid() {
    ///     sum += u32::from(cursor.entry()?.0[0]);
    ///     // Reading buffered rows costs less than stepping to them.
    ///     let (bytes, rows) = cursor.buffered();
    ///     sum += rows.iter().skip(1).map(|row| u32::from(bytes[row.start()])).sum::<u32>();
    ///     let more = rows.len().saturating_sub(1);
    ///     cursor.advance(more);
    ///     cursor.next()?;
    /// }
    /// assert_eq!(sum, 99 * 100 / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn buffered(&self) -> (&[u8], &[RowSpan]) {
        self.buffer.parts()
    }

    /// Moves `n` keys forward within the [buffered rows](Cursor::buffered), at most to the last of them.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        self.buffer.advance(n);
    }

    /// Moves to the next key after the buffered rows.
    #[inline]
    fn step(&mut self) -> Result<()> {
        self.leave_value();
        self.stored.step(false);
        if self.buffer.is_active() {
            self.buffer.finish()?;
            self.inner.resume()?;
        } else if self.inner.valid() {
            self.inner.next()?;
        } else {
            return Ok(());
        }
        self.count_step(false);
        self.note(|track, landed| track.step(Side::High, landed));
        if self.buffer.note_step() { self.fill_buffer() } else { Ok(()) }
    }

    /// Copies rows in advance, from the current row on.
    ///
    /// # Errors
    /// If the current row cannot be read, and the cursor has lost its place.
    #[cold]
    #[inline(never)]
    fn fill_buffer(&mut self) -> Result<()> {
        if self.counts_rows() || self.try_charge(Rows::BYTES_MAX).is_err() {
            return Ok(());
        }
        self.buffer.fill(|rows| self.inner.take_rows(rows));
        if self.buffer.is_active() { Ok(()) } else { self.buffer.finish() }
    }

    /// Moves to another position by `seek`.
    #[inline]
    fn land(&mut self, seek: impl FnOnce(&mut ReaderCursor) -> Result<()>) -> Result<()> {
        if let Some(track) = &self.track {
            track.make_room()?;
        }
        self.jump();
        self.follow();
        if self.seek_charge > 0 {
            self.view.probes.charge(self.seek_charge); // for the sorted runs that it would not search after a merge
        }
        let timer = self.reads.sample(&self.reads.times.seeks);
        if timer.is_some() {
            self.looks.begin(self.inner.hidden());
        }
        let sought = seek(&mut self.inner);
        match timer {
            None => sought,
            Some(timer) => {
                drop(timer);
                self.looks.count_row(self.inner.valid(), self.inner.hidden());
                sought
            }
        }
    }

    /// Discards the position, because a seek follows.
    #[inline]
    fn jump(&mut self) {
        self.stored.forget();
        self.leave();
    }

    /// Forgets the value of the current row.
    #[inline]
    fn leave_value(&mut self) {
        if self.resolved.is_some() || self.spare.capacity() > 0 {
            self.free_value();
        }
    }

    /// Keeps the memory of a long value for the next one, and no longer.
    fn free_value(&mut self) {
        let long = self.resolved.take().filter(|value| value.len() >= KEPT_BYTES_MIN);
        self.spare = long.map_or_else(Vec::new, Slice::into_vec);
        let kept = self.base + self.stored.bytes() as u64;
        if self.charge.bytes() > kept + SMALL_VALUES {
            self.charge.set(&self.family.memory, kept + self.spare.capacity() as u64);
        }
    }

    /// Discards the position.
    #[inline]
    fn leave(&mut self) {
        self.leave_value();
        self.buffer.forget();
    }

    /// Moves to the previous key. Does nothing if the cursor is not valid.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        if self.buffer.is_active() {
            let sought = self.inner.seek(self.buffer.row().0);
            self.leave();
            sought?;
        }
        self.leave();
        self.stored.step(true);
        if self.inner.valid() {
            self.inner.prev()?
        } else {
            self.inner.seek_to_last()?
        }
        self.count_step(true);
        self.note(|track, landed| track.step(Side::Low, landed));
        self.try_charge(self.inner.held_bytes())
    }

    /// Charges the active memtable for the deleted keys that the scan stepped over, and requests its flush if that is due.
    #[cold]
    fn charge_dead(&mut self) {
        let dead = self.inner.take_fresh_dead();
        let Some(slot) = self.view.active.as_ref().filter(|_| self.own.is_none()) else { return };
        if slot.charge(dead) {
            self.reads.jobs.push(Job::FlushActive(self.family.id));
        }
    }

    /// Charges the combined value, which is there already.
    #[cold]
    fn charge_combined(&mut self) {
        self.charge_held(self.inner.held_bytes());
    }

    /// Records the new position in the transaction's track, if there is one, and charges the memtable for deleted
    /// keys that the scan has stepped over.
    #[inline]
    fn note(&mut self, tell: impl FnOnce(&mut Track, Option<&[u8]>)) {
        if let Some(track) = &mut self.track {
            tell(track, self.inner.valid().then(|| self.inner.key()));
        }
        if self.inner.fresh_dead() >= CHARGED_DEAD {
            self.charge_dead();
        }
        if self.combines {
            self.charge_combined();
        }
        if self.inner.remembered_bytes() != self.remembered {
            self.charge_remembered();
        }
    }

    /// Charges what the cursor remembers.
    #[cold]
    fn charge_remembered(&mut self) {
        let bytes = self.inner.remembered_bytes();
        self.grow_base((bytes as u64).cast_signed() - (self.remembered as u64).cast_signed());
        self.remembered = bytes;
    }

    /// Returns the key.
    ///
    /// # Panics
    /// If the cursor is not [valid](Cursor::valid): before the first seek, or past either end.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.buffer.is_active() {
            return self.buffer.row().0;
        }
        assert!(
            self.inner.valid(),
            "Cursor::key: the cursor is not on a row; check Cursor::valid after each move"
        );
        self.inner.key()
    }

    /// Returns the value. Values are read lazily, by this call.
    ///
    /// # Errors
    /// `Corrupt`, `Io`; `InvalidArgument` if the cursor is keys-only or not valid.
    #[inline]
    pub fn value(&mut self) -> Result<&[u8]> {
        Ok(self.entry()?.1)
    }

    /// Returns the key and its value. Values are read lazily, by this call.
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
        self.buffer.note_value();
        if self.buffer.is_active() {
            return Ok(self.buffer.row());
        }
        if self.inner.scope().keys_only || !self.valid() {
            return Err(no_value());
        }
        if self.inner.entry_meta().kind().holds_pointer() {
            return self.stored_entry();
        }
        let (key, _, value) = self.inner.entry()?;
        Ok((key, value))
    }

    /// Like [`Cursor::entry`], for a value in a value log.
    fn stored_entry(&mut self) -> Result<(&[u8], &[u8])> {
        if self.resolved.is_none() {
            let value = match VlogPointer::decode(self.inner.entry()?.2) {
                Some(pointer) => self.read_stored(&pointer)?,
                None => {
                    let len = ChunkedPlace::decode(self.inner.entry()?.2).map_or(0, |place| place.len);
                    self.try_charge(usize::try_from(len).unwrap_or(usize::MAX))?;
                    resolve_chunks(&self.family, self.inner.entry()?.2, mem::take(&mut self.spare))?
                }
            };
            self.resolved = Some(value);
        }
        Ok((self.inner.key(), self.resolved.as_deref().unwrap_or_default()))
    }

    /// Returns the value that `pointer` leads to; reads those of the next rows too in a long scan.
    fn read_stored(&mut self, pointer: &VlogPointer) -> Result<Slice> {
        self.try_charge((pointer.raw_len as usize).saturating_add(self.stored.bytes()))?;
        if !self.family.memory.has_room_for_cursors() {
            self.stored.forget();
            return self.family.vlog.read(pointer).map(Slice::from);
        }
        let Self { stored, inner, family, view, own, seq, .. } = self;
        stored.prepare(
            pointer,
            &family.vlog,
            || family.page_cache_keeps_values(),
            |backwards| {
                let at = ReadPoint { seq: *seq, now: inner.now() };
                let mut scout = Self::merged(family, view, at, own.as_ref());
                scout.set_scope(inner.scope());
                if backwards { scout.seek_for_prev(inner.key()) } else { scout.seek(inner.key()) }?;
                Ok(scout)
            },
        );
        self.charge_held((pointer.raw_len as usize).saturating_add(self.stored.bytes()));
        match self.stored.take(pointer)? {
            Some(value) => Ok(value),
            None => self.family.vlog.read(pointer).map(Slice::from),
        }
    }

    /// Returns where the value lies if it is stored in chunks.
    ///
    /// # Errors
    /// As [`Cursor::value`].
    pub(crate) fn chunks(&mut self) -> Result<Option<ChunkedPlace>> {
        if self.buffer.is_active() || !self.inner.valid() {
            return Ok(None);
        }
        let (_, kind, place) = self.inner.entry()?;
        Ok(if kind.holds_pointer() { ChunkedPlace::decode(place) } else { None })
    }

    /// Returns the sequence number of the current version: that of the commit that wrote it, or 0 once compaction has
    /// moved it to the largest level and every reader sees it. To keep the numbers of recent commits, set
    /// `OpenOptions::history_bytes`.
    pub fn version_seq(&self) -> SeqNo {
        self.entry_meta().seq
    }

    /// Returns the expiry of the current version as it is stored.
    pub(crate) fn stored_expiry(&self) -> u64 {
        self.entry_meta().expiry()
    }

    /// Returns the moment at which the current row expires, in whole milliseconds; `None` = never.
    pub fn expiry(&self) -> Option<SystemTime> {
        moment_of(self.stored_expiry())
    }

    fn entry_meta(&self) -> EntryMeta {
        if self.buffer.is_active() { self.buffer.entry_meta() } else { self.inner.entry_meta() }
    }

    /// Returns the key order of the family.
    pub(super) fn order(&self) -> &Comparator {
        &self.family.options.comparator
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("seq", &self.seq).field("valid", &self.valid()).finish_non_exhaustive()
    }
}
