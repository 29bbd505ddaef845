//! Staging: sorts a large batch into memtables of its own before it gets its place in the order of commits.
//!
//! Inserting a large batch takes seconds, and no later commit becomes visible before it. So its entries are first
//! inserted, with sequence number 0, into one memtable per family that no other thread sees. Then the commit gets its
//! place. Before any other commit can be ordered, these memtables get the commit's number as their base and join the
//! read views, between the memtables of earlier and of later commits. Readers skip them until the commit is published.
//! Only the writing of the record lies between getting the place and publishing.

use std::sync::Arc;

use tidesdb_memtable::Memtable;
use tidesdb_sync::pin;

use super::batch::WriteBatch;
use super::insert::out_of_addresses;
use crate::callback::comparing;
use crate::context::WriteCtx;
use crate::family::FamilyCore;
use crate::memory::Use;
use crate::{Error, Result};

/// Minimum of staged bytes per family: smaller memtables would make too many tables.
const BYTES_MIN: usize = 1 << 20;
/// The same as a fraction of the write buffer: 1/4.
const BUFFER_PART: usize = 4;

/// A batch sorted into memtables of its own.
pub(super) type Staged = Vec<(Arc<FamilyCore>, Arc<Memtable>)>;

/// Sorts `batch`; `None` if it is too small or contains range deletes or merges.
///
/// # Errors
/// `Internal`, `InvalidArgument` if a comparator panics; nothing happened.
pub(super) fn stage(ctx: &WriteCtx, batch: &WriteBatch) -> Result<Option<Staged>> {
    let buffer = |family: &Arc<FamilyCore>| family.buffer_bytes_of(family.view(&pin()));
    let least = |family: &Arc<FamilyCore>| (buffer(family) / BUFFER_PART).max(BYTES_MIN);
    if batch.counts.ranks > 0 || batch.record.len() < batch.families.iter().map(least).sum() {
        return Ok(None);
    }
    comparing(|| sort(ctx, batch)).map(Some)
}

fn sort(ctx: &WriteCtx, batch: &WriteBatch) -> Result<Staged> {
    let memtable = |family: &Arc<FamilyCore>| {
        (Arc::clone(family), family.memtable(ctx.env.entropy.next_u64(), Use::Memtables))
    };
    let staged: Staged = batch.families.iter().map(memtable).collect();
    for op in batch.ops_from(0) {
        let op = op?;
        let part = staged.iter().find(|(family, _)| family.id == op.family);
        let (_, map) = part.ok_or_else(|| Error::internal("a batch lost one of its families"))?;
        map.insert(op.key, op.version(0), op.value).map_err(out_of_addresses)?;
    }
    Ok(staged)
}
