//! Flush: the oldest immutable memtables of a family become a table of level 1.
//!
//! ```text
//! wait until the memtables receive nothing more -> make durable what precedes their end elsewhere
//!   -> rewrite into tables -> sync files, then the directory -> install -> swap the read views -> release the log
//! ```
//!
//! A table costs some syncs, however small it is. So one flush takes small memtables together: neighbours of a family become one table, and
//! the tables of several families share one sync of the directory and one edit of the manifest.
//!
//! If a table were durable while an earlier commit of another family is not, a crash would leave a hole. So the log is made durable first, in
//! every sync mode, if a memtable of another family holds such a commit. Otherwise the tables hold all commits up to the boundary, and
//! segments that no sync ever covered are removed without being written to the device. The edit that adds the table also says up to where
//! the family is flushed and where the log begins, so after a crash either the log or the table holds the data.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidesdb_sync::Backoff;

use crate::codec::key_hash;
use crate::compact;
use crate::context::{Flushed, WriteCtx};
use crate::events::{Event, TARGET};
use crate::family::{FamilyCore, MemSlot, Metric};
use crate::jobs::{Job, JobStart, Progress};
use crate::maintenance::MaintenanceCtx;
use crate::merge::{CoveringRanges, MergeCursor};
use crate::order;
use crate::ranges::{RangeSet, RangeTombstone};
use crate::rewrite::{self, FLUSH_LEVEL, RewriteTarget, Rewritten};
use crate::sources::{Source, TableVersion};
use crate::sst::TableMeta;
use crate::types::{EntryCursor, SeqNo};
use crate::version::{Change, State, VersionEdit};
use crate::vlog::ValueMover;
use crate::{Error, Result};

/// Approximate number of keys of a flush that are looked up in older tables.
const SAMPLED_KEYS: u64 = 256;

/// Maximum bytes of memtables that one flush takes together: neighbours of a family, which become one table, and memtables of several
/// families, whose tables are installed together. A memtable of more is flushed alone.
const TOGETHER_BYTES: u64 = 16 << 20;
/// Maximum number of families of one flush: the table of each is an open file until all of them are synced.
const TOGETHER_FAMILIES: usize = 64;

/// The oldest immutable memtables of a family, which become one table.
#[derive(Clone, Debug)]
struct Part {
    family: Arc<FamilyCore>,
    /// Newest first.
    slots: Vec<Arc<MemSlot>>,
    /// The first sequence number above the newest.
    boundary: SeqNo,
    bytes: u64,
}

impl Part {
    /// Takes the oldest immutable memtable of `family`, and the newer ones for which `room` bytes suffice and that end by `end`: from there
    /// on, commits are not published.
    fn of(family: &Arc<FamilyCore>, room: u64, end: SeqNo) -> Option<Self> {
        let view = family.owned_view();
        let mut oldest_first = view.immutables.iter().rev();
        let (oldest, boundary) = oldest_first.next()?;
        let mut part = Self {
            family: Arc::clone(family),
            slots: vec![Arc::clone(oldest)],
            boundary: *boundary,
            bytes: oldest.bytes() as u64,
        };
        for (slot, boundary) in oldest_first {
            let bytes = slot.bytes() as u64;
            if part.taken().is_some() || slot.taken.is_some() {
                break; // what a commit took stays as it is
            }
            if *boundary > end || part.bytes.saturating_add(bytes) > room {
                break;
            }
            part.bytes += bytes;
            part.boundary = *boundary;
            part.slots.push(Arc::clone(slot));
        }
        part.slots.reverse();
        Some(part)
    }

    fn entries(&self) -> u64 {
        self.slots.iter().map(|slot| slot.entries()).sum()
    }

    /// The tables that a commit took, if the part stands for these.
    fn taken(&self) -> Option<&Arc<TableVersion>> {
        self.slots.first().and_then(|slot| slot.taken.as_ref())
    }

    fn debt(&self) -> u64 {
        self.slots.iter().map(|slot| slot.debt()).sum()
    }

    /// The range tombstones of the memtables.
    fn ranges(&self) -> RangeSet {
        let sets: Vec<RangeSet> = self.slots.iter().map(|slot| slot.ranges.to_owned()).collect();
        let all = sets.iter().flat_map(RangeSet::iter).cloned().collect();
        RangeSet::new(&self.family.options.comparator, all)
    }

    /// Writes the memtables as one table, which is not durable yet. `caches` keeps its blocks in the block cache.
    fn write(&self, ctx: &MaintenanceCtx, caches: bool, progress: &Arc<Progress>) -> Result<Rewritten> {
        let family = &self.family;
        if let Some(taken) = self.taken() {
            return Ok(self.unchanged(taken));
        }
        let bottom = family.owned_view().version.is_empty();
        note_new_keys(self)?;
        let purge = CoveringRanges { ranges: self.ranges(), complete_to: self.boundary - 1 };
        let target = RewriteTarget { progress: Some(progress), caches, ..RewriteTarget::flush(bottom) };
        let mover = &mut ValueMover::default();
        let (mut out, _) = match &self.slots[..] {
            [only] => {
                let source = first_of(Source::memtable(&only.map))?;
                rewrite::run_part(ctx, family, source, target, &purge, mover)
            }
            several => {
                let sources = several.iter().map(|slot| Source::memtable(&slot.map)).collect();
                let merged = first_of(MergeCursor::new(family.options.comparator.clone(), sources))?;
                rewrite::run_part(ctx, family, merged, target, &purge, mover)
            }
        }?;
        // Law: each version in the memtables is read, or passed over by a rule and counted, once.
        if out.entries_in != self.entries() {
            out.abandon(ctx);
            return Err(Error::internal("a flush did not read each version of its memtables once"));
        }
        out.ranges = self.hiding(&purge.ranges, &out.tables);
        Ok(out)
    }

    /// The tables that a commit took stay as they are.
    fn unchanged(&self, taken: &TableVersion) -> Rewritten {
        let tables: Vec<_> = taken.oldest_first().map(|slot| Arc::clone(slot.meta())).collect();
        let ranges = self.hiding(&self.ranges(), &tables);
        let mut out = Rewritten::unchanged(tables);
        (out.entries_in, out.ranges) = (self.entries(), ranges);
        out
    }

    /// Those of `ranges` that hide something in tables, once there are `new` ones.
    fn hiding(&self, ranges: &RangeSet, new: &[Arc<TableMeta>]) -> Vec<Arc<RangeTombstone>> {
        let version = Arc::clone(&self.family.owned_view().version);
        let hides = |range: &&Arc<_>| version.is_hiding(range, &BTreeSet::new(), new);
        ranges.iter().filter(hides).cloned().collect()
    }

    fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.is_empty())
    }
}

fn first_of<C: EntryCursor>(mut cursor: C) -> Result<C> {
    cursor.seek_to_first()?;
    Ok(cursor)
}

/// Flushes the oldest immutable memtables of `family`, and small ones of other families with them; returns `false` if `family` has none.
///
/// # Errors
/// `NoSpace`, `Io`: nothing changed, try again. Others poison the database.
pub fn run(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>) -> Result<bool> {
    let flushed = {
        let _one_at_a_time = family.flushing.lock();
        if family.owned_view().immutables.is_empty() {
            return Ok(false);
        }
        let others = ctx.write.families_with_immutables(family.id, TOGETHER_FAMILIES - 1);
        let locks: Vec<_> = others.iter().filter_map(|f| Some((f, f.flushing.try_lock()?))).collect();
        let families = std::iter::once(family).chain(locks.iter().map(|(other, _)| *other));
        flush_some(ctx, families, SeqNo::MAX)?
    };
    if flushed.is_empty() {
        return Ok(false);
    }
    for part in &flushed {
        // While its memtables waited, the active one may have outgrown its size.
        ctx.write.rotate_if_full(&part.family);
        if !Arc::ptr_eq(&part.family, family) {
            ctx.write.jobs.push(Job::Flush(part.family.id));
            ask_for_merges(ctx, &part.family);
        }
    }
    // The read views that held the memtables are garbage now; their memory stays charged until it is reclaimed.
    drop(flushed);
    tidesdb_sync::reclaim();
    Ok(true)
}

/// Flushes immutable memtables that end by `limit`: the oldest of the first of `families` that has one, and as many more of all families as one
/// flush takes together. The caller holds `flushing` of them. Returns what was flushed.
///
/// # Errors
/// As [`run`].
fn flush_some<'f>(
    ctx: &MaintenanceCtx,
    families: impl IntoIterator<Item = &'f Arc<FamilyCore>>,
    limit: SeqNo,
) -> Result<Vec<Part>> {
    let (mut parts, mut room) = (Vec::<Part>::new(), TOGETHER_BYTES);
    for family in families {
        let published = ctx.write.log.sequencer().visible_end();
        let Some(part) = Part::of(family, room, published.min(limit)) else { continue };
        let is_due = part.boundary <= limit && (parts.is_empty() || part.boundary <= published);
        if !is_due || (part.bytes > room && !parts.is_empty()) {
            continue;
        }
        room = room.saturating_sub(part.bytes);
        parts.push(part);
        if parts.len() == TOGETHER_FAMILIES {
            break;
        }
    }
    order::sort_by_key(&mut parts, |part| part.family.id);
    flush_parts(ctx, parts)
}

/// Flushes `parts`, sorted by family. If something is wrong with one of several, each is flushed alone.
fn flush_parts(ctx: &MaintenanceCtx, mut parts: Vec<Part>) -> Result<Vec<Part>> {
    let done = parts.clone();
    let Some(boundary) = parts.iter().map(|part| part.boundary).max() else { return Ok(done) };
    wait_published(&ctx.write, boundary)?;
    parts.retain(|part| {
        let is_needed = !part.family.is_dropped() && !part.is_empty();
        if !is_needed {
            part.taken().into_iter().for_each(|taken| taken.give_up());
            ctx.write.pacing.subtract_flush_debt(part.family.release(&part.slots, None));
        }
        is_needed
    });
    match write_and_report(ctx, &parts) {
        Err(e) if parts.iter().any(|part| part.family.was_lost(&e)) => {
            flush_parts(ctx, parts)?;
        }
        Err(_) if parts.len() > 1 && ctx.write.health.check().is_ok() && !ctx.versions.is_poisoned() => {
            let alone = parts.into_iter().map(|part| flush_parts(ctx, vec![part]).map(drop));
            alone.fold(Ok(()), Result::and)?; // all of them, whatever happens to one
        }
        other => other?,
    }
    Ok(done)
}

/// Writes `parts` as tables, installs them together, and reports it.
fn write_and_report(ctx: &MaintenanceCtx, parts: &[Part]) -> Result<()> {
    let [first, ..] = parts else { return Ok(()) };
    make_earlier_durable(&ctx.write, parts)?;
    let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>();
    let bytes = sum(|part| part.bytes);
    let job = ctx.write.running.begin(JobStart {
        kind: "flush",
        family: first.family.name(),
        target: FLUSH_LEVEL,
        bytes,
        entries: sum(Part::entries),
        reduces: ctx.write.pacing.reduced_by(sum(Part::debt)),
    });
    let _span = tracing::debug_span!(target: TARGET, "flush", family = %first.family.name()).entered();
    let (outs, freed) = ctx.with_reserve(|| write(ctx, parts, &job.progress))?;
    let took = job.took();
    ctx.write.pacing.subtract_flush_debt(freed);
    drop(job); // with the debt that it reduced: what it has written must not hide the debt of other memtables
    ctx.write.pacing.flush_rate.note(bytes, took);
    ctx.write.running.flushes.record(took);
    for (part, out) in parts.iter().zip(outs) {
        ctx.write.events.record(&Event::Flush {
            family: part.family.name(),
            memtable_bytes: part.bytes,
            entries: out.entries_in,
            dropped: out.dropped,
            outputs: out.tables.len() as u64,
            tables: out.table_numbers(),
            bytes: out.bytes(),
            seconds: took,
        });
    }
    Ok(())
}

/// Writes `parts` as tables and installs them. Also returns the debt of those memtables that were in the view.
fn write(ctx: &MaintenanceCtx, parts: &[Part], progress: &Arc<Progress>) -> Result<(Vec<Rewritten>, u64)> {
    let mut outs: Vec<Rewritten> = Vec::with_capacity(parts.len());
    let caches = ctx.demand.note(ctx.reads.times.reads(), parts.iter().map(Part::entries).sum());
    for part in parts {
        let out = part
            .write(ctx, caches, progress)
            .inspect_err(|_| outs.iter().for_each(|out| out.abandon(ctx)))?;
        outs.push(out);
    }
    Rewritten::sync_all(ctx, &mut outs)?;
    let freed = install(ctx, parts, &outs).inspect_err(|_| outs.iter().for_each(|out| out.abandon(ctx)))?;
    Ok((outs, freed))
}

/// Estimates how many keys of `part` are in no older table, by the filters of the tables, for the collection of values.
fn note_new_keys(part: &Part) -> Result<()> {
    let family = &part.family;
    let version = Arc::clone(&family.owned_view().version);
    if version.is_empty() {
        family.collection.note_first_tables();
        return Ok(());
    }
    if version.vlogs().is_empty() || !version.order().is_bytewise() {
        return Ok(()); // there are no values to hide, or no filters
    }
    let step = (part.entries() / SAMPLED_KEYS).max(1) as usize;
    let (mut sampled, mut new) = (0u32, 0u32);
    for slot in &part.slots {
        let mut cursor = first_of(Source::memtable(&slot.map))?;
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
    }
    family.collection.note_new_keys(f64::from(new) / f64::from(sampled.max(1)));
    Ok(())
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

/// Makes durable what a crash may not lose once the commits of `parts` are in tables: other commits below their last boundary, and values.
/// All of these commits are published, so no memtable gets another one.
///
/// # Errors
/// `Poisoned`: a sync failed.
fn make_earlier_durable(ctx: &WriteCtx, parts: &[Part]) -> Result<()> {
    let (gone, boundary) = (flushed(parts), parts.iter().map(|part| part.boundary).max().unwrap_or(0));
    let needs_log = |family: &FamilyCore| {
        let may_hold = |slot: &Arc<MemSlot>| {
            slot.from.max(slot.pins) < boundary && !slot.is_empty() && !gone.holds(family.id, slot)
        };
        family.owned_view().memtables().any(may_hold)
    };
    if ctx.any_pins_log(boundary, needs_log) {
        return ctx.sync_to(boundary);
    }
    let sync = |part: &Part| part.family.vlog.sync();
    parts.iter().try_for_each(sync).map_err(|e| Error::Poisoned { cause: ctx.poison(e) })
}

fn install<'p>(ctx: &MaintenanceCtx, parts: &'p [Part], outs: &[Rewritten]) -> Result<u64> {
    // Held until the tables are installed there.
    let place = |part: &'p Part| part.taken().map(|taken| compact::place_taken(ctx, &part.family, taken));
    let places: Vec<_> = parts.iter().map(place).collect();
    let naming: Vec<_> = parts.iter().map(|part| part.family.naming.lock_in_order()).collect();
    let mut edit = VersionEdit::new();
    for ((part, out), place) in parts.iter().zip(outs).zip(&places) {
        // Law: what the edit reports as flushed is in these tables. Cost: one comparison per table of a flush.
        assert!(
            part.slots.iter().all(|slot| slot.from < part.boundary),
            "a memtable covers at least one sequence number"
        );
        assert!(
            out.tables.iter().all(|t| t.max_seq < part.boundary),
            "a table holds an entry of a newer memtable"
        );
        match place {
            None => out.add_to(ctx, &part.family, |_| (FLUSH_LEVEL, 0), &mut edit)?,
            Some(place) => {
                out.add_to(ctx, &part.family, |table| place.of(table), &mut edit)?;
                out.seal_values(ctx, &part.family, part.boundary - 1, &mut edit)?;
            }
        }
        edit.push(Change::FlushedTo { family: part.family.id, seq: part.boundary.saturating_sub(1) });
    }
    let first_needed = ctx.log_start_edit(&mut edit, &flushed(parts));
    let mut freed = 0;
    let families: Vec<&FamilyCore> = parts.iter().map(|part| &*part.family).collect();
    let publish = |n: usize, version| {
        let (part, out) = (&parts[n], &outs[n]);
        // Counted first: a thread that waits for the flush may read the figures as soon as the memtables are gone.
        if part.taken().is_none() {
            out.count(&part.family);
            part.family.count(Metric::FlushBytes, out.bytes());
            part.family.count(Metric::Flushes, 1);
        }
        freed += part.family.release(&part.slots, Some(version));
    };
    ctx.install_for(&edit, &families, publish)?;
    drop(naming);
    ctx.write.log.set_needed_from(ctx.write.log_needed_from());
    if first_needed.0 > 0 {
        ctx.write.log.release_before(first_needed);
    }
    Ok(freed)
}

fn flushed(parts: &[Part]) -> Flushed {
    Flushed(parts.iter().map(|part| (part.family.id, part.boundary)).collect())
}

/// Flushes the commits of `families` below `boundary`, the boundary of a rotation; the caller holds `flushing` of each.
///
/// # Errors
/// As [`run`].
pub fn up_to(ctx: &MaintenanceCtx, families: &[Arc<FamilyCore>], boundary: SeqNo) -> Result<()> {
    let mut left: &[Arc<FamilyCore>] = families;
    while !flush_some(ctx, left, boundary)?.is_empty() {
        let is_done = |family: &&Arc<FamilyCore>| !is_due(family, boundary);
        left = &left[left.iter().take_while(is_done).count()..];
    }
    tidesdb_sync::reclaim();
    Ok(())
}

fn is_due(family: &FamilyCore, boundary: SeqNo) -> bool {
    family.owned_view().immutables.last().is_some_and(|(_, end)| *end <= boundary)
}

/// Flushes everything that was committed to `families` before the call.
///
/// # Errors
/// As [`run`].
pub fn all(ctx: &MaintenanceCtx, families: &[Arc<FamilyCore>]) -> Result<()> {
    if ctx.write.options.read_only {
        return Err(Error::ReadOnly);
    }
    ctx.write.rotate_used(families);
    // Only up to this boundary: with concurrent writers the loop would not end.
    let boundary = ctx.write.log.sequencer().tail();
    for family in families {
        while is_due(family, boundary) && run(ctx, family)? {}
        ask_for_merges(ctx, family);
    }
    Ok(())
}

fn ask_for_merges(ctx: &MaintenanceCtx, family: &FamilyCore) {
    ctx.write.jobs.push(Job::Compact(family.id));
    ctx.write.jobs.push(Job::Collect(family.id));
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
    up_to(ctx, &families, boundary)?;
    let installs = ctx.versions.installs();
    let (state, versions) = ctx.versions.pinned_state();
    drop(flushing);
    Ok(Prefix { state, versions, families, boundary, installs })
}
