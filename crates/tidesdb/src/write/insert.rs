//! Operations go into memtables: those of a commit that is in the log, and those that recovery reads from it.

use std::sync::Arc;

use tidesdb_memtable::{MemtableFull, Place};
use tidesdb_sync::{Guard, pin};

use super::batch::WriteBatch;
use super::ops::Op;
use crate::callback::comparing;
use crate::context::WriteCtx;
use crate::family::{FamilyCore, MemSlot};
use crate::types::SeqNo;
use crate::wal::Commit;
use crate::{Error, Result};

/// Operations that are inserted under one epoch pin: a longer pin would delay reclamation.
const PINNED_OPS_MAX: u32 = 64;
/// Operations whose places in a memtable are found together, so that their leaves are fetched side by side.
const FETCHED_OPS: usize = 16;
/// A batch of at least twice this length frees its memory in pieces of this length.
const FREED_BYTES: usize = 4 << 20;

/// The error of a commit whose memtable is full.
#[cold]
pub(super) fn out_of_addresses(_: MemtableFull) -> Error {
    Error::internal("a memtable ran out of address space")
}

/// Inserts every operation into the memtable that the commit's sequence number belongs to. Returns true if a memtable is
/// full now.
pub(super) fn insert(ctx: &WriteCtx, batch: &mut WriteBatch, commit: &Commit) -> Result<bool> {
    if batch.families.iter().all(|f| f.options.comparator.is_bytewise()) {
        return insert_all(ctx, batch, commit);
    }
    comparing(|| insert_all(ctx, batch, commit))
}

/// The operations are in the log by now, so a long batch frees its memory while they are inserted: otherwise they would take memory
/// twice. A batch that a hook will read is kept.
fn insert_all(ctx: &WriteCtx, batch: &mut WriteBatch, commit: &Commit) -> Result<bool> {
    let keeps = batch.record.len() < 2 * FREED_BYTES || batch.families.iter().any(|f| f.hook.is_set());
    let piece = if keeps { usize::MAX } else { FREED_BYTES };
    let (mut left, mut done, mut rank) = (batch.counts.ops, 0, Some(0));
    loop {
        let mut ops = batch.ops_after(done, rank);
        let mut position = (0, rank);
        while position.0 < piece {
            let guard = pin();
            insert_some(ctx, batch, commit, ops.by_ref().take(PINNED_OPS_MAX as usize), &guard)?;
            left = left.saturating_sub(PINNED_OPS_MAX);
            if left == 0 {
                return Ok(batch.families.iter().any(|family| family.is_full(family.view(&guard))));
            }
            position = ops.position();
        }
        (done, rank) = (done + position.0, position.1);
        batch.free_front(done);
    }
}

fn insert_some<'b>(
    ctx: &WriteCtx,
    batch: &WriteBatch,
    commit: &Commit,
    mut ops: impl Iterator<Item = Result<Op<'b>>>,
    guard: &Guard,
) -> Result<()> {
    // The family of the previous operation, and its memtable.
    let mut target: Option<(&FamilyCore, Option<&Arc<MemSlot>>)> = None;
    let mut together = [None; FETCHED_OPS];
    loop {
        let (mut met, mut n) = (0, 0);
        for op in ops.by_ref().take(FETCHED_OPS) {
            let op = op?;
            met += 1;
            let (family, slot) = match target {
                Some(same) if same.0.id == op.family => same,
                _ => {
                    let family = batch.family(op.family);
                    let family = family.ok_or_else(|| Error::internal("a batch lost one of its families"))?;
                    *target.insert((family, slot_of(ctx, family, commit.seq, guard)?))
                }
            };
            let Some(slot) = slot else { continue };
            let place = (batch.counts.ops > 1).then(|| slot.map.place(op.key));
            together[n] = Some((op, family, slot, place));
            n += 1;
        }
        for (op, family, slot, place) in together[..n].iter().flatten() {
            debug_assert!(commit.seq + u64::from(op.rank) < commit.end, "a sequence number for each rank");
            insert_op(slot, family, commit.seq, op, *place).map_err(out_of_addresses)?;
        }
        if met < FETCHED_OPS {
            return Ok(());
        }
    }
}

/// Inserts an operation of commit `seq` into `slot`, a memtable of `family`, at `place` if that is known.
///
/// # Errors
/// [`MemtableFull`].
#[inline]
pub fn insert_op(
    slot: &MemSlot,
    family: &FamilyCore,
    seq: SeqNo,
    op: &Op<'_>,
    place: Option<Place<'_>>,
) -> Result<(), MemtableFull> {
    let seq = seq + u64::from(op.rank);
    if op.kind.is_range() {
        let range = op.range_tombstone(seq);
        range.charge_to(&family.memory);
        slot.ranges.add(&family.options.comparator, range);
        return Ok(());
    }
    match place {
        Some(place) => place.insert(op.version(seq), op.value),
        None => slot.map.insert(op.key, op.version(seq), op.value),
    }
}

/// Returns the memtable of `family` for commit `seq`, which is created if it is missing. `None` if the family was dropped
/// after the commit got its number: its operations are discarded.
///
/// # Errors
/// `Internal`.
pub fn slot_of<'g>(
    ctx: &WriteCtx,
    family: &'g FamilyCore,
    seq: SeqNo,
    guard: &'g Guard,
) -> Result<Option<&'g Arc<MemSlot>>> {
    if family.view(guard).slot_for(seq).is_none() {
        let seed = ctx.env.entropy.next_u64();
        family.make_slot(seq, seed, || ctx.log.sequencer().visible_end());
    }
    match family.view(guard).slot_for(seq) {
        Some(slot) => Ok(Some(slot)),
        None if family.is_dropped() => Ok(None),
        None => Err(Error::internal("a commit has no memtable")),
    }
}
