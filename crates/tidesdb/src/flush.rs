//! Flush: the oldest immutable memtable of a family becomes a table of level 1.
//!
//! ```text
//! wait until the memtable receives nothing more -> make durable what precedes its end elsewhere
//!   -> rewrite into tables -> sync files, then the directory -> install -> swap the read view -> release the log
//! ```
//!
//! If a table were durable while an earlier commit of another family is not, a crash would leave a hole. So the log is made durable first, in
//! every sync mode, if a memtable of another family holds such a commit. Otherwise the tables hold all commits up to the boundary, and
//! segments that no sync ever covered are removed without being written to the device. The edit that adds the table also says up to where the family is flushed and
//! where the log begins, so after a crash either the log or the table holds the data.

use std::sync::Arc;

use tidesdb_sync::Backoff;

use crate::codec::key_hash;
use crate::events::{Event, TARGET};
use crate::family::{FamilyCore, MemSlot, Metric};
use crate::jobs::Job;
use crate::merge::CoveringRanges;
use crate::ranges::{RangeSet, RangeTombstone};
use crate::rewrite::{self, FLUSH_LEVEL, RewriteTarget, Rewritten};
use crate::shared::{JobStart, MaintenanceCtx, PartDone, Progress, WriteCtx};
use crate::sources::{Source, TableVersion};
use crate::sst::TableMeta;
use crate::types::{EntryCursor, SeqNo};
use crate::version::{Change, State, VersionEdit};
use crate::{Error, Result};

/// Keys of a flush that are looked up in older tables, about.
const SAMPLED_KEYS: u64 = 256;

/// Flushes the oldest immutable memtable of `family`; returns `false` if there is none.
///
/// # Errors
/// `NoSpace`, `Io`: nothing changed, try again. Others poison the database.
pub fn run(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>) -> Result<bool> {
    let flushed = {
        let _one_at_a_time = family.flushing.lock();
        run_locked(ctx, family)?
    };
    if flushed {
        // The read view that held the memtable is garbage now; its memory counts until it is reclaimed.
        tidesdb_sync::reclaim();
    }
    Ok(flushed)
}

/// Like [`run`]; the caller holds `family.flushing`.
///
/// # Errors
/// As [`run`].
pub fn run_locked(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>) -> Result<bool> {
    let Some((slot, boundary)) = family.owned_view().immutables.last().cloned() else {
        return Ok(false);
    };
    if family.is_dropped() {
        forget(&ctx.write, family, &slot);
        return Ok(true);
    }
    wait_published(&ctx.write, boundary)?;
    if slot.is_empty() {
        forget(&ctx.write, family, &slot);
        return Ok(true);
    }
    make_earlier_durable(&ctx.write, family, boundary)?;

    let (bytes, entries, owed) = (slot.bytes() as u64, slot.map.entries(), slot.debt());
    let job = ctx.write.running.begin(JobStart {
        kind: "flush",
        family: family.name(),
        target: FLUSH_LEVEL,
        bytes,
        entries,
        parts_done: vec![PartDone { sum: Arc::clone(&ctx.write.debt.part_flushed), total: owed }],
    });
    let _span = tracing::debug_span!(target: TARGET, "flush", family = %family.name()).entered();
    let (out, freed) = match ctx.with_reserve(|| write(ctx, family, &slot, boundary, &job.progress)) {
        Err(Error::NotFound { .. }) if family.is_dropped() => {
            forget(&ctx.write, family, &slot); // dropped meanwhile
            return Ok(true);
        }
        other => other?,
    };
    let took = job.took();
    ctx.write.debt.subtract(freed);
    drop(job); // with the debt that it paid: what it has written must not hide the debt of other memtables
    ctx.write.debt.flush_rate.measured(bytes, took);
    ctx.write.running.flushes.record(took);
    ctx.write.events.record(&Event::Flush {
        family: family.name(),
        memtable_bytes: bytes,
        entries: out.entries_in,
        dropped: out.dropped,
        outputs: out.tables.len() as u64,
        tables: out.table_numbers(),
        bytes: out.bytes(),
        seconds: took,
    });
    Ok(true)
}

/// Writes the memtable `slot` as tables and installs them. Also returns the debt of the memtable, if it was in the view.
fn write(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    slot: &Arc<MemSlot>,
    boundary: SeqNo,
    progress: &Arc<Progress>,
) -> Result<(Rewritten, u64)> {
    let mut cursor = Source::memtable(&slot.map);
    cursor.seek_to_first()?;
    let bottom = family.owned_view().version.is_empty();
    note_new_keys(family, slot)?;
    let purge = CoveringRanges { ranges: slot.ranges.to_owned(), complete_to: boundary - 1 };
    let target = RewriteTarget { progress: Some(progress), ..RewriteTarget::flush(bottom) };
    let mut out = rewrite::run(ctx, family, cursor, target, &purge)?;
    // Law: each version in the memtable is read, or passed over by a rule and counted, once.
    if out.entries_in != slot.map.entries() {
        out.abandon(ctx);
        return Err(Error::internal("a flush did not read each version of its memtable once"));
    }
    out.ranges = still_hiding(&family.owned_view().version, &out.tables, &purge.ranges);
    let freed = install(ctx, family, slot, boundary, &out)?;
    Ok((out, freed))
}

/// Estimates how many keys of `slot` are in no older table, by the filters of the tables, for the collection of values.
fn note_new_keys(family: &FamilyCore, slot: &MemSlot) -> Result<()> {
    let version = Arc::clone(&family.owned_view().version);
    if version.is_empty() {
        family.collection.note_first_tables();
        return Ok(());
    }
    if version.vlogs().is_empty() || !version.order().is_bytewise() {
        return Ok(()); // there are no values to hide, or no filters
    }
    let step = (slot.map.entries() / SAMPLED_KEYS).max(1) as usize;
    let (mut sampled, mut new) = (0u32, 0u32);
    let mut cursor = Source::memtable(&slot.map);
    cursor.seek_to_first()?;
    for n in 0usize.. {
        if !cursor.valid() {
            break;
        }
        if n % step == 0 {
            let (hash, mut is_known) = (key_hash(cursor.key()), false);
            version.tables_for(cursor.key(), |table| is_known |= table.table().may_contain(hash));
            sampled += 1;
            new += u32::from(!is_known);
        }
        cursor.next()?;
    }
    family.collection.note_new_keys(f64::from(new) / f64::from(sampled.max(1)));
    Ok(())
}

/// The tombstones of `ranges` that cover an older entry of a table of `version` or of `new`.
fn still_hiding(
    version: &TableVersion,
    new: &[Arc<TableMeta>],
    ranges: &RangeSet,
) -> Vec<Arc<RangeTombstone>> {
    let tables = || version.tables().map(|slot| slot.meta()).chain(new);
    let hides =
        |range: &&Arc<RangeTombstone>| tables().any(|table| table.may_be_hidden(version.order(), range));
    ranges.iter().filter(hides).cloned().collect()
}

/// Waits until every commit below `boundary` is published: from then on the memtable below it receives nothing more.
///
/// # Errors
/// `Poisoned`.
fn wait_published(ctx: &WriteCtx, boundary: SeqNo) -> Result<()> {
    let mut backoff = Backoff::new();
    while ctx.log.sequencer().visible_end() < boundary {
        ctx.health.check()?;
        backoff.snooze();
        if ctx.options.background_threads != Some(0) {
            // In sync mode the remaining commits wait for the disk: long enough to sleep.
            ctx.env.clock.sleep(std::time::Duration::from_micros(200));
        }
    }
    Ok(())
}

/// Makes durable what a crash may not lose once the commits of `family` below `boundary` are in tables: commits of other families below
/// it, and values. All of these commits are published, so no memtable gets another one.
///
/// # Errors
/// `Poisoned`: a sync failed.
fn make_earlier_durable(ctx: &WriteCtx, family: &Arc<FamilyCore>, boundary: SeqNo) -> Result<()> {
    let needs_log = |other: &Arc<FamilyCore>| {
        let view = other.owned_view();
        !Arc::ptr_eq(other, family) && view.memtables().any(|slot| slot.pins < boundary && !slot.is_empty())
    };
    if ctx.all_families().iter().any(needs_log) {
        return ctx.sync_to(boundary);
    }
    family.vlog.sync().map_err(|e| Error::Poisoned { cause: ctx.poison(e) })
}

fn install(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    slot: &Arc<MemSlot>,
    boundary: SeqNo,
    out: &Rewritten,
) -> Result<u64> {
    // Law: what the edit reports as flushed is in these tables. Cost: one comparison per table of a flush.
    assert!(slot.from < boundary, "a memtable covers at least one sequence number");
    assert!(out.tables.iter().all(|t| t.max_seq < boundary), "a table holds an entry of a newer memtable");
    let naming = family.naming.lock();
    let mut edit = VersionEdit::new();
    out.add_to(ctx, family, FLUSH_LEVEL, &mut edit).inspect_err(|_| out.abandon(ctx))?;
    edit.push(Change::FlushedTo { family: family.id, seq: boundary.saturating_sub(1) });
    let first_needed = ctx.log_start_edit(&mut edit, Some(slot));
    let mut freed = 0;
    let publish = |version| {
        // Counted first: whoever waits for the flush may look at the figures as soon as the memtable is gone.
        family.count(Metric::FlushBytes, out.bytes());
        family.count(Metric::Flushes, 1);
        freed = family.release(slot, Some(version));
    };
    ctx.install(&edit, family, publish).inspect_err(|_| out.abandon(ctx))?;
    drop(naming);
    ctx.write.log.set_needed_from(ctx.write.log_needed_from());
    if first_needed.0 > 0 {
        ctx.write.log.release_before(first_needed);
    }
    Ok(freed)
}

/// Discards a memtable that is empty or whose family was dropped.
fn forget(ctx: &WriteCtx, family: &FamilyCore, slot: &Arc<MemSlot>) {
    ctx.debt.subtract(family.release(slot, None));
}

/// Flushes the commits of `family` below `boundary`, the boundary of a rotation; the caller holds `family.flushing`.
///
/// # Errors
/// As [`run`].
pub fn up_to(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, boundary: SeqNo) -> Result<()> {
    while is_due(family, boundary) && run_locked(ctx, family)? {}
    tidesdb_sync::reclaim();
    Ok(())
}

fn is_due(family: &FamilyCore, boundary: SeqNo) -> bool {
    family.owned_view().immutables.last().is_some_and(|(_, end)| *end <= boundary)
}

/// Flushes everything that was committed to `family` before the call.
///
/// # Errors
/// As [`run`].
pub fn all(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>) -> Result<()> {
    if ctx.write.options.read_only {
        return Err(Error::ReadOnly);
    }
    ctx.write.rotate(family);
    // Only up to this boundary: with concurrent writers the loop would not end.
    let boundary = ctx.write.log.sequencer().tail();
    while is_due(family, boundary) && run(ctx, family)? {}
    ctx.write.jobs.push(Job::Compact(family.id));
    ctx.write.jobs.push(Job::Collect(family.id));
    Ok(())
}

/// The state after all commits below a boundary and none above it.
#[derive(Debug)]
pub struct Prefix {
    /// The state in the manifest.
    pub state: State,
    /// Versions that keep its files alive.
    pub versions: Vec<Arc<TableVersion>>,
    /// The families; these keep their files if they are dropped.
    pub families: Vec<Arc<FamilyCore>>,
    /// The boundary.
    pub boundary: SeqNo,
    /// Number of installs that the state includes, at least.
    pub installs: u64,
}

/// Flushes all families up to one boundary, and no further: their tables then hold a prefix of the commits. The caller
/// holds `catalog`.
///
/// # Errors
/// As [`run`].
pub fn prefix(ctx: &MaintenanceCtx) -> Result<Prefix> {
    let families = ctx.write.all_families();
    let flushing: Vec<_> = families.iter().map(|f| f.flushing.lock_in_order()).collect();
    let boundary = ctx.write.rotate_all(&families);
    for family in &families {
        up_to(ctx, family, boundary)?;
    }
    let installs = ctx.versions.installs();
    let (state, versions) = ctx.versions.pinned_state();
    drop(flushing);
    Ok(Prefix { state, versions, families, boundary, installs })
}
