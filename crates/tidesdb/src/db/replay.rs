//! Operations of the log, as recovery and a late key order replay them: into a memtable, and from there to tables.

use std::sync::Arc;

use tidesdb_memtable::Version;

use crate::family::FamilyCore;
use crate::merge::CoveringRanges;
use crate::rewrite::{self, RewriteTarget, Rewritten};
use crate::shared::{MaintenanceCtx, WriteCtx};
use crate::sources::Source;
use crate::types::{EntryCursor, Kind, SeqNo};
use crate::write::Op;
use crate::{Error, Result};

/// Inserts an operation of commit `seq` into the memtable of `family`.
pub(super) fn insert(ctx: &WriteCtx, family: &Arc<FamilyCore>, seq: SeqNo, op: &Op<'_>) -> Result<()> {
    family.make_slot(seq, ctx.env.entropy.next_u64(), || seq);
    let view = family.owned_view();
    let slot = view.slot_for(seq).ok_or_else(|| Error::internal("a replayed commit has no memtable"))?;
    let seq = seq + u64::from(op.rank);
    if op.kind == Kind::RangeDelete {
        slot.ranges.add(&family.options.comparator, op.range_tombstone(seq));
        return Ok(());
    }
    let version = Version { seq, kind: op.kind as u8, expiry: op.expiry };
    let full = |_| Error::MemoryLimit { what: "replaying the log".into() };
    slot.map.insert(op.key, version, op.value).map_err(full)
}

/// Writes the memtable of `family` as tables, which nothing names yet, and lets go of it. `has_more` says that the version is not
/// all there is below them.
pub(super) fn to_table(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    has_more: bool,
) -> Result<Option<Rewritten>> {
    let view = family.owned_view();
    let Some(slot) = &view.active else {
        return Ok(None);
    };
    let bottom = view.version.is_empty() && !has_more;
    let mut cursor = Source::memtable(&slot.map);
    cursor.seek_to_first()?;
    let ranges = slot.ranges.to_owned();
    let purge = CoveringRanges { ranges: ranges.clone(), complete_to: 0 };
    let mut out = rewrite::run(ctx, family, cursor, RewriteTarget::flush(bottom), &purge)?;
    out.ranges = ranges.iter().cloned().collect();
    family.forget_memtables();
    Ok(Some(out))
}
