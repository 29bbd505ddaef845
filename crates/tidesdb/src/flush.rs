//! Flush: the oldest immutable memtable of a family becomes a table of level 1.
//!
//! ```text
//! wait until nothing more can come to the memtable -> make the log durable up to its end
//!   -> rewrite into tables -> sync files, then the directory -> install -> swap the read view -> let go of the log
//! ```
//!
//! The log is made durable first in every sync mode: a table that is durable while an earlier commit of another family is not
//! would leave a hole. The edit that adds the table also says up to where the family is flushed and where the log
//! begins, so a crash leaves the log or the table, never neither.

use std::sync::Arc;

use tidesdb_sync::Backoff;

use crate::family::{FamilyCore, MemSlot, Metric};
use crate::jobs::Job;
use crate::merge::Purge;
use crate::ranges::{RangeSet, RangeTombstone};
use crate::rewrite::{self, FLUSH_LEVEL, Rewritten, Target};
use crate::shared::Shared;
use crate::sources::{Source, TableVersion};
use crate::sst::TableMeta;
use crate::types::{EntryCursor, SeqNo};
use crate::version::{Change, State, VersionEdit};
use crate::{Error, Result};

/// Flushes the oldest immutable memtable of `family`; `false` if there is none.
///
/// # Errors
/// `NoSpace`, `Io`: nothing changed, try again. Others poison.
pub fn run(shared: &Arc<Shared>, family: &Arc<FamilyCore>) -> Result<bool> {
    let flushed = {
        let _one_at_a_time = family.flushing.lock();
        run_locked(shared, family)?
    };
    if flushed {
        // The read view that held the memtable is garbage now; its memory counts until it is collected.
        tidesdb_sync::reclaim();
    }
    Ok(flushed)
}

/// As [`run`]; the caller holds `family.flushing`.
///
/// # Errors
/// As [`run`].
pub fn run_locked(shared: &Arc<Shared>, family: &Arc<FamilyCore>) -> Result<bool> {
    let Some((slot, boundary)) = family.owned_view().immutables.last().cloned() else {
        return Ok(false);
    };
    if family.is_dropped() {
        forget(shared, family, &slot);
        return Ok(true);
    }
    wait_published(shared, boundary)?;
    if slot.is_empty() {
        forget(shared, family, &slot);
        return Ok(true);
    }
    shared.sync_to(boundary)?;

    let started = shared.env.clock.mono();
    let out = match shared.with_reserve(|| write(shared, family, &slot, boundary)) {
        Err(Error::NotFound { .. }) if family.is_dropped() => {
            forget(shared, family, &slot); // dropped meanwhile
            return Ok(true);
        }
        other => other?,
    };
    let bytes = slot.bytes() as u64;
    let took = shared.env.clock.mono().saturating_sub(started);
    shared.debt.flushed(bytes, took);
    family.count(Metric::FlushBytes, out.bytes());
    family.count(Metric::Flushes, 1);
    tracing::debug!(family = %family.name(), entries = out.entries_in, bytes = out.bytes(), ?took, "flushed");
    Ok(true)
}

/// Writes the memtable `slot` as tables and puts them into force.
fn write(
    shared: &Arc<Shared>,
    family: &Arc<FamilyCore>,
    slot: &Arc<MemSlot>,
    boundary: SeqNo,
) -> Result<Rewritten> {
    let mut cursor = Source::memtable(&slot.map);
    cursor.seek_to_first()?;
    let bottom = family.owned_view().version.is_empty();
    let purge = Purge { ranges: slot.ranges.to_owned(), complete_to: boundary - 1 };
    let mut out = rewrite::run(shared, family, cursor, Target::flush(bottom), &purge)?;
    out.ranges = still_hiding(&family.owned_view().version, &out.tables, &purge.ranges);
    install(shared, family, slot, boundary, &out)?;
    Ok(out)
}

/// Those of `ranges` that cover an older entry of a table of `version`, or of `new`.
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

/// Waits until every commit below `boundary` is published: then nothing more can come to the memtable below it.
///
/// # Errors
/// `Poisoned`.
fn wait_published(shared: &Shared, boundary: SeqNo) -> Result<()> {
    let mut backoff = Backoff::new();
    while shared.log.sequencer().visible_end() < boundary {
        shared.health.check()?;
        backoff.snooze();
        if shared.options.background_threads != Some(0) {
            // In sync mode the rest waits for the disk: long enough to sleep.
            shared.env.clock.sleep(std::time::Duration::from_micros(200));
        }
    }
    Ok(())
}

fn install(
    shared: &Arc<Shared>,
    family: &Arc<FamilyCore>,
    slot: &Arc<MemSlot>,
    boundary: SeqNo,
    out: &Rewritten,
) -> Result<()> {
    debug_assert!(slot.from < boundary, "a memtable covers at least one sequence number");
    debug_assert!(
        out.tables.iter().all(|t| t.max_seq < boundary),
        "nothing of a newer memtable is in the table"
    );
    let mut edit = VersionEdit::new();
    out.add_to(shared, family, FLUSH_LEVEL, &mut edit).inspect_err(|_| out.abandon(shared))?;
    edit.push(Change::FlushedTo { family: family.id, seq: boundary.saturating_sub(1) });
    let first_needed = shared.log_start_edit(&mut edit, Some(slot));
    let mut freed = 0;
    shared
        .install(&edit, family, |version| freed = family.release(slot, Some(version)))
        .inspect_err(|_| out.abandon(shared))?;
    shared.debt.subtract(freed);
    shared.log.set_needed_from(shared.log_needed_from());
    if first_needed.0 > 0 {
        shared.log.release_before(first_needed);
    }
    Ok(())
}

/// A memtable that is empty, or whose family was dropped, is thrown away.
fn forget(shared: &Shared, family: &FamilyCore, slot: &Arc<MemSlot>) {
    shared.debt.subtract(family.release(slot, None));
}

/// Flushes what `family` has of the commits below `boundary`, the boundary of a rotation; the caller holds `family.flushing`.
///
/// # Errors
/// As [`run`].
pub fn up_to(shared: &Arc<Shared>, family: &Arc<FamilyCore>, boundary: SeqNo) -> Result<()> {
    while is_due(family, boundary) && run_locked(shared, family)? {}
    tidesdb_sync::reclaim();
    Ok(())
}

fn is_due(family: &FamilyCore, boundary: SeqNo) -> bool {
    family.owned_view().immutables.last().is_some_and(|(_, end)| *end <= boundary)
}

/// Flushes everything of `family` that was committed before the call.
///
/// # Errors
/// As [`run`].
pub fn all(shared: &Arc<Shared>, family: &Arc<FamilyCore>) -> Result<()> {
    if shared.options.read_only {
        return Err(Error::ReadOnly);
    }
    shared.rotate(family);
    // No further: among writers there would be no end.
    let boundary = shared.log.sequencer().tail();
    while is_due(family, boundary) && run(shared, family)? {}
    shared.jobs.push(Job::Compact(family.id));
    Ok(())
}

/// The state after all commits below a boundary and none above it.
#[derive(Debug)]
pub struct Prefix {
    /// What the manifest says.
    pub state: State,
    /// What keeps its files.
    pub versions: Vec<Arc<TableVersion>>,
    /// The families, which keep theirs if they are dropped.
    pub families: Vec<Arc<FamilyCore>>,
    /// The boundary.
    pub boundary: SeqNo,
    /// Installs that the state holds, at least.
    pub installs: u64,
}

/// Flushes all families up to one boundary, and no further: their tables then hold a prefix of the commits. The caller holds
/// `catalog`.
///
/// # Errors
/// As [`run`].
pub fn prefix(shared: &Arc<Shared>) -> Result<Prefix> {
    let families = shared.all_families();
    let flushing: Vec<_> = families.iter().map(|f| f.flushing.lock()).collect();
    let boundary = shared.rotate_all(&families);
    for family in &families {
        up_to(shared, family, boundary)?;
    }
    let installs = shared.versions.installs();
    let (state, versions) = shared.versions.pinned_state();
    drop(flushing);
    Ok(Prefix { state, versions, families, boundary, installs })
}
