//! A transaction's own writes, sorted for reading. Built when first needed, then extended as the batch grows and undone as it is cut
//! back.

use crate::context::ReadCtx;
use crate::family::FamilyCore;
use crate::memory::Use;
use crate::ranges::RangeStack;
use crate::read::OwnReads;
use crate::types::{FamilyId, Kind};
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

/// Own writes to one family.
#[derive(Debug)]
struct OfFamily {
    id: FamilyId,
    /// Puts, deletes and merges by stamp.
    map: UndoMap,
    /// Range deletes by stamp. They hide the writes before them, and do not change the map.
    ranges: RangeStack,
}

/// Own writes by family, in the order in which the batch first names them.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    families: Vec<OfFamily>,
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
        let own = self.find(family)?;
        let deleted = own.ranges.cover().newest(&family.options.comparator, key);
        match own.map.get(key) {
            Some(e) if e.seq > deleted => {
                Some(own_write(reads, Kind::of_version(e.kind).unwrap_or(Kind::Delete), e.expiry, e.value))
            }
            _ => (deleted > 0).then_some(OwnWrite::Deleted),
        }
    }

    /// The sorted writes to `family`, if there are any.
    pub(super) fn of(&self, family: &FamilyCore) -> Option<OwnReads> {
        let own = self.find(family)?;
        Some(OwnReads { map: own.map.clone(), deleted: own.ranges.cover().clone() })
    }

    fn find(&self, family: &FamilyCore) -> Option<&OfFamily> {
        self.families.iter().find(|own| own.id == family.id)
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
            let known = self.families.iter().position(|own| own.id == op.family);
            // With short rows the maps take several times as much as the batch.
            if family.memory.whole().used_for(Use::Transactions) >= family.memory.sorted_max() {
                return Err(full());
            }
            let at = known.unwrap_or_else(|| {
                let map = UndoMap::new(family.memtable(u64::from(op.family.0), Use::Transactions));
                self.families.push(OfFamily { id: op.family, map, ranges: RangeStack::new(&family.memory) });
                self.families.len() - 1
            });
            self.ops += 1;
            let stamp = stamp(self.rollbacks, self.ops);
            let own = &mut self.families[at];
            if op.kind.is_range() {
                own.ranges.push(&family.options.comparator, op.range_tombstone(stamp));
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

    /// Undoes `op`, which was added to `batch` after `mark`. For all writes to one key, one call is enough.
    fn undo(&mut self, batch: &WriteBatch, op: &Op<'_>, mark: Mark) -> Result<()> {
        let (kept, stamp) = (mark.counts.ops, stamp(self.rollbacks, mark.counts.ops));
        let own = self.families.iter_mut().find(|own| own.id == op.family);
        let (Some(family), Some(own)) = (batch.family(op.family), own) else { return Ok(()) };
        if op.kind.is_range() {
            own.ranges.pop(&family.options.comparator); // as many as there are, the newest first
            return Ok(());
        }
        own.map.undo(op.key, kept, stamp).map_err(|_| full())
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
        let same = match op.kind.is_range() {
            true => op.range_tombstone(0).covers(order, key),
            false => order.compare(op.key, key).is_eq(),
        };
        if op.family == family.id && same {
            last = Some(own_write(reads, op.kind, op.expiry, op.value));
        }
    }
    Ok(last)
}

fn full() -> Error {
    let what = "no memory to sort the writes of a transaction for reading: transactions hold their share of memory_limit";
    Error::MemoryLimit { what: what.into() }
}

/// An expired put hides what others wrote, as a delete does.
fn own_write<'v>(reads: &ReadCtx, kind: Kind, expiry: u64, value: &'v [u8]) -> OwnWrite<'v> {
    match kind {
        Kind::Delete | Kind::SingleDelete | Kind::RangeDelete => OwnWrite::Deleted,
        Kind::Put | Kind::PutPointer | Kind::Merge if reads.is_expired(expiry) => OwnWrite::Deleted,
        Kind::Merge => OwnWrite::Operand,
        Kind::PutPointer => OwnWrite::Chunks(value),
        Kind::Put => OwnWrite::Value(value),
    }
}
