//! A transaction's own writes, sorted for reading. Built when first needed, then extended as the batch grows and undone as it is cut
//! back.

use crate::context::ReadCtx;
use crate::family::FamilyCore;
use crate::memory::Use;
use crate::ranges::RangeTombstone;
use crate::read::OwnReads;
use crate::types::{Comparator, FamilyId, Kind};
use crate::undo_map::{RECORD_BYTES, ROLLBACKS_MAX, UndoMap, stamp};
use crate::write::{Mark, Op, WriteBatch};
use crate::{Error, Result};

/// Batches up to this many operations are searched linearly; longer ones are sorted.
const SEARCH_MAX: usize = 16;

/// Versions that were undone stay in the maps until they take more memory than the other ones divided by this. So a scan passes few of
/// them, and building the maps again costs a constant number of inserts for each operation rolled back.
const UNDONE_PART: usize = 4;
/// They may take this much in any case.
const UNDONE_MIN: usize = 4 << 10;

/// The transaction's own write to a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnWrite<'a> {
    Value(&'a [u8]),
    /// The encoded place of a chunked value.
    Chunks(&'a [u8]),
    Deleted,
    /// An operand, to be combined with older writes.
    Operand,
}

/// Result of a lookup in the own writes. If they do not contain the key, the caller's `read` closure is returned
/// unused.
pub(super) enum Own<R, F> {
    Written(Option<R>),
    Unwritten(F),
}

/// Own writes by family, in the order in which the batch first names them.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    families: Vec<(FamilyId, OwnReads)>,
    /// Bytes of the batch that are in the maps.
    covered: usize,
    /// Operations of the batch that are in the maps.
    ops: u32,
    /// Rollbacks since the maps were built.
    rollbacks: u64,
    /// Memory of the versions that these undid, about.
    undone: usize,
}

impl OwnWrites {
    /// Forgets everything: the batch was cleared.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns true if the batch is short and not yet sorted, so that [`search_batch`] is the fastest way to find a
    /// key.
    pub(super) fn is_short(&self, batch: &WriteBatch) -> bool {
        self.covered == 0 && batch.len() <= SEARCH_MAX
    }

    /// Returns true if the whole batch is sorted, so that [`OwnWrites::get`] may be called.
    pub(super) fn is_caught_up(&self, batch: &WriteBatch) -> bool {
        self.covered == batch.body_bytes()
    }

    /// The write to `key` in the sorted batch, if there is one.
    pub(super) fn get(&self, reads: &ReadCtx, family: &FamilyCore, key: &[u8]) -> Option<OwnWrite<'_>> {
        let own = self.of(family)?;
        if let Some(e) = own.map.get(key) {
            return Some(own_write(reads, Kind::from_u8(e.kind).unwrap_or(Kind::Delete), e.expiry, e.value));
        }
        let order = &family.options.comparator;
        own.ranges.iter().any(|range| range.covers(order, key)).then_some(OwnWrite::Deleted)
    }

    /// The sorted writes to `family`, if there are any.
    pub(super) fn of(&self, family: &FamilyCore) -> Option<&OwnReads> {
        self.families.iter().find(|(id, _)| *id == family.id).map(|(_, own)| own)
    }

    /// Sorts the operations added since the last call. After an error, all sorted operations are discarded.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub(super) fn catch_up(&mut self, batch: &WriteBatch) -> Result<()> {
        self.sort(batch).inspect_err(|_| self.clear())
    }

    fn sort(&mut self, batch: &WriteBatch) -> Result<()> {
        for op in batch.ops_from(self.covered) {
            let op = op?;
            let family = batch.family(op.family).ok_or_else(|| Error::internal("a batch lost a family"))?;
            let known = self.families.iter().position(|(id, _)| *id == op.family);
            if known.is_none() {
                if family.memory.used_for(Use::Transactions) >= family.memory.sorted_max() {
                    return Err(full());
                }
                let map = UndoMap::new(family.memtable(u64::from(op.family.0), Use::Transactions));
                self.families.push((op.family, OwnReads { map, ranges: Vec::new() }));
            }
            self.ops += 1;
            let stamp = stamp(self.rollbacks, self.ops);
            let at = known.unwrap_or(self.families.len() - 1);
            let own = &mut self.families[at].1;
            if op.kind == Kind::RangeDelete {
                delete_range(own, &family.options.comparator, op.range_tombstone(stamp))?;
            } else {
                own.map.insert(op.key, (stamp, op.kind, op.expiry), op.value).map_err(|_| full())?;
            }
        }
        self.covered = batch.body_bytes();
        Ok(())
    }

    /// Takes the operations after `mark` out of the maps; they must still be in `batch`. Costs as much as to sort these operations,
    /// on average. If that fails, or too much memory is taken by undone versions, discards all sorted operations.
    pub(super) fn cut_back(&mut self, batch: &WriteBatch, mark: Mark) {
        let Some(count) = self.ops.checked_sub(mark.counts.ops).filter(|count| *count > 0) else { return };
        let memory = |ops: u32, bytes: usize| ops as usize * RECORD_BYTES + bytes;
        // Each undone version has a record that undoes it.
        self.undone += 2 * memory(count, self.covered - mark.body_bytes);
        let limit = UNDONE_MIN.max(memory(mark.counts.ops, mark.body_bytes) / UNDONE_PART);
        if self.undone > limit || self.rollbacks == ROLLBACKS_MAX {
            return self.clear();
        }
        self.rollbacks += 1;
        self.families.truncate(mark.families);
        let mut undone = batch.ops_from(mark.body_bytes).take(count as usize);
        if undone.try_for_each(|op| self.undo(batch, &op?, mark)).is_err() {
            return self.clear();
        }
        (self.covered, self.ops) = (mark.body_bytes, mark.counts.ops);
    }

    /// Undoes what `op`, which was added to `batch` after `mark`, and later operations wrote to the keys of `op`.
    fn undo(&mut self, batch: &WriteBatch, op: &Op<'_>, mark: Mark) -> Result<()> {
        let (kept, stamp) = (mark.counts.ops, stamp(self.rollbacks, mark.counts.ops));
        let own = self.families.iter_mut().find(|(id, _)| *id == op.family);
        let (Some(family), Some((_, own))) = (batch.family(op.family), own) else { return Ok(()) };
        if op.kind != Kind::RangeDelete {
            return own.map.undo(op.key, kept, stamp).map(|_| ()).map_err(|_| full());
        }
        let mut memory = 0;
        each_key(&own.map, &family.options.comparator, &op.range_tombstone(0), |key| {
            let is_undone = own.map.undo(key, kept, stamp).map_err(|_| full())?;
            memory += if is_undone { 2 * (key.len() + RECORD_BYTES) } else { 0 };
            Ok(())
        })?;
        own.ranges.pop();
        self.undone += memory;
        Ok(())
    }
}

/// The last write to `key` in a short batch, if there is one.
///
/// # Errors
/// `Internal`: the batch cannot be decoded.
pub(super) fn search_batch<'b>(
    reads: &ReadCtx,
    batch: &'b WriteBatch,
    family: &FamilyCore,
    key: &[u8],
) -> Result<Option<OwnWrite<'b>>> {
    let order = &family.options.comparator;
    let mut last = None;
    for op in batch.ops_from(0) {
        let op = op?;
        let same = match op.kind {
            Kind::RangeDelete => op.range_tombstone(0).covers(order, key),
            _ => order.compare(op.key, key).is_eq(),
        };
        if op.family == family.id && same {
            last = Some(own_write(reads, op.kind, op.expiry, op.value));
        }
    }
    Ok(last)
}

/// Deletes the transaction's own writes in `range`, whose number is a stamp, key by key, and records the range for all other keys.
fn delete_range(own: &mut OwnReads, order: &Comparator, range: RangeTombstone) -> Result<()> {
    each_key(&own.map, order, &range, |key| {
        own.map.insert(key, (range.seq, Kind::Delete, 0), &[]).map_err(|_| full())
    })?;
    own.ranges.push(range);
    Ok(())
}

/// Calls `visit` with each key of `map` in `range`. It may change the key.
fn each_key(
    map: &UndoMap,
    order: &Comparator,
    range: &RangeTombstone,
    mut visit: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut cursor = map.cursor();
    match &range.start {
        Some(start) => cursor.seek(start),
        None => cursor.seek_to_first(),
    }
    let mut key = Vec::new();
    while cursor.valid() && range.covers(order, cursor.entry().key) {
        key.clear();
        key.extend_from_slice(cursor.entry().key);
        cursor.next_key();
        visit(&key)?;
    }
    Ok(())
}

fn full() -> Error {
    Error::MemoryLimit { what: "the writes of a transaction".into() }
}

/// An expired put hides what others wrote, as a delete does.
fn own_write<'v>(reads: &ReadCtx, kind: Kind, expiry: u64, value: &'v [u8]) -> OwnWrite<'v> {
    match kind {
        _ if kind.is_tombstone() || reads.is_expired(expiry) => OwnWrite::Deleted,
        Kind::Merge => OwnWrite::Operand,
        Kind::PutPointer => OwnWrite::Chunks(value),
        _ => OwnWrite::Value(value),
    }
}
