//! Space of value logs: seals full files while the database runs, removes files that hold no live value, and empties
//! files that are mostly garbage.
//!
//! A file is **sealed** once it is complete and durable and no lease on it is left: then every commit that refers to it
//! has its sequence number, and the edit that seals it records a number above all of them. It is **dead** once it is
//! sealed, everything up to that number is in tables, and no table refers to it. A dead file leaves the manifest at
//! once. It leaves the disk with the last version or memtable that a reader still uses (`version/obsolete.rs`).
//!
//! **Garbage** is what sealed files hold beyond the values that tables refer to. When it exceeds its bound, the files
//! with the largest share of garbage become **victims**: merges into the lowest place of their keys move live values
//! out of them, and collection rewrites the other tables that refer to them. Values of entries that newer tables hide
//! are not garbage yet. On an idle database, a flush and a merge find them, if there may be enough of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::codec::Salt;
use crate::context::FLUSH_FOR_SPACE_MIN;
use crate::family::{FamilyCore, GarbageBudget, MemSlot, Metric, ReadView, SettledFiles, ValueSpace};
use crate::maintenance::MaintenanceCtx;
use crate::read::{self, Located};
use crate::remote::Remote;
use crate::sources::{Source, TableVersion};
use crate::types::{EntryCursor, SeqNo, VlogId};
use crate::version::{Change, VersionEdit, VlogState};
use crate::{Error, Result, compact, rewrite};

/// A merge that only looks for garbage writes at most this many times what it may find.
const LOOK_COST: u64 = 8;

/// All tables are merged to move values if the files to empty have at least this many times the bytes of all tables,
const TOGETHER_COST: u64 = 4;
/// and at most this many bytes move, which take space twice until the merge ends.
const TOGETHER_MAX: u64 = 1 << 30;

/// Returns whether the family has value logs.
pub fn has_values(family: &FamilyCore) -> bool {
    let named = || !family.owned_view().version.vlogs().is_empty();
    named() || !family.vlog.begun.facts().is_empty()
}

/// When [`step`] would do something, if nothing tells before that the family has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Now.
    Now,
    /// At any time, without a notice: leases on files end, commits become visible, an upload gets on, a pause after a failure ends.
    Soon,
    /// When the database is idle, or has been idle again.
    Later,
    /// Never.
    Never,
}

/// Returns when [`step`] would do something.
pub fn due(ctx: &MaintenanceCtx, family: &FamilyCore, store: Option<&Remote>) -> Due {
    if !has_values(family) {
        return Due::Never;
    }
    let (seen, retry) = (Seen::now(ctx, family), &family.collection.retry);
    let budget = ctx.write.budget();
    let is_due = || {
        !sealable(family, &seen.view.version).is_empty()
            || !seen.dead(store).is_empty()
            || (!ctx.write.merges.are_off() && Usage::of(family, &seen).next(family, budget) != Next::Nothing)
    };
    match () {
        () if retry.waits(ctx.write.env.clock.mono()) => Due::Soon,
        () if is_due() => Due::Now,
        () if retry.is_failing() || family.vlog.is_closing() || seen.waits(store) => Due::Soon,
        () if budget == GarbageBudget::Busy || !seen.is_flushed => Due::Later,
        () => Due::Never,
    }
}

/// Takes the most useful step that frees space of `family`. Returns whether something changed; then there may be more to do. If the family is
/// dropped meanwhile, that is not an error.
///
/// # Errors
/// Errors of an install and of a merge; `Corrupt` for a damaged value, which stays where it is.
pub fn step(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, store: Option<&Remote>) -> Result<bool> {
    match take_step(ctx, family, store) {
        Err(e) if family.was_lost(&e) => Ok(false),
        other => other,
    }
}

fn take_step(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, store: Option<&Remote>) -> Result<bool> {
    // A drop empties the view some time after it has set the flag; until then nothing here would change anything.
    if !has_values(family) || family.is_dropped() {
        return Ok(false);
    }
    if run(ctx, family, store)? {
        return Ok(true); // the space of dead files first
    }
    if ctx.write.merges.are_off() {
        return Ok(false);
    }
    let next = Usage::of(family, &Seen::now(ctx, family)).next(family, ctx.write.budget());
    carry_out(ctx, family, next)
}

/// Seals and removes what can be, and moves values until garbage is within the bound of an idle database.
///
/// # Errors
/// As [`step`].
pub fn all(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, store: Option<&Remote>) -> Result<()> {
    while !family.is_dropped() {
        ctx.write.jobs.check_open()?; // a close waits for one step, not for all
        let removed = run(ctx, family, store)?;
        let budget = ctx.write.budget().max(GarbageBudget::Idle);
        let next = Usage::of(family, &Seen::now(ctx, family)).next(family, budget);
        let goes_on = matches!(next, Next::Rotate | Next::Move(_)) && carry_out(ctx, family, next)?;
        if !goes_on && !removed {
            break;
        }
    }
    Ok(())
}

fn carry_out(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, next: Next) -> Result<bool> {
    let victims = if let Next::Move(victims) = &next { victims.clone() } else { BTreeSet::new() };
    family.collection.set_victims(victims);
    family.note_values();
    match next {
        Next::Nothing => Ok(false),
        Next::Flush => {
            ctx.write.rotate(family);
            Ok(false) // the flush asks for another step
        }
        Next::Rotate => {
            let before = family.vlog.incomplete();
            family.vlog.give_back().map_err(|e| Error::clone(&ctx.write.poison(e)))?;
            Ok(family.vlog.incomplete() != before) // a file that a commit is writing stays incomplete
        }
        Next::Merge => compact::everything(ctx, family).map(|()| true),
        Next::Move(victims) => move_values(ctx, family, &victims),
    }
}

/// Moves values out of `victims`, and measures how fast that frees their garbage. Where tables are small beside the victims, all
/// are merged: by several threads, and the merge also finds the values that newer tables hide. Otherwise it moves what one table
/// refers to.
fn move_values(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, victims: &BTreeSet<VlogId>) -> Result<bool> {
    let clock = &ctx.write.env.clock;
    let (begun, moved) = (clock.mono(), family.total(Metric::ValuesMoved));
    let version = Arc::clone(&family.owned_view().version);
    let files = || version.vlogs().iter().filter(|(id, _)| victims.contains(id)).map(|(_, v)| v);
    let (live, garbage) = files().fold((0, 0), |(live, all), v| (live + v.used(), all + v.garbage()));
    let tables = ValueSpace::of(&version).table_bytes;
    let together =
        live <= TOGETHER_MAX && tables.saturating_mul(TOGETHER_COST) <= live.saturating_add(garbage);
    let result = compact::move_values(ctx, family, together)?;
    let moved = family.total(Metric::ValuesMoved) - moved;
    if moved > 0 {
        let freed = garbage as f64 * (moved as f64 / live.max(1) as f64).min(1.0);
        ctx.write.pacing.garbage_rate.note(freed as u64, clock.mono().saturating_sub(begun));
    }
    Ok(result)
}

/// What to do next for the space of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// Flush the memtable, which may overwrite many values.
    Flush,
    /// Close and sync the value logs that are not complete, which are mostly garbage.
    Rotate,
    /// Merge all tables: they may hide many values.
    Merge,
    /// Move the live values out of these files.
    Move(BTreeSet<VlogId>),
}

/// The tables and memtables of a family at one moment.
#[derive(Debug)]
struct Seen {
    view: Arc<ReadView>,
    /// All commits up to this one are in tables.
    flushed_to: SeqNo,
    /// Whether the memtables are empty.
    is_flushed: bool,
}

impl Seen {
    fn now(ctx: &MaintenanceCtx, family: &FamilyCore) -> Self {
        let visible_end = ctx.write.log.sequencer().visible_end(); // before the view: it holds every commit below
        let view = family.owned_view();
        let is_flushed = view.memtables().all(|slot| slot.is_empty());
        let flushed_to = if is_flushed { visible_end.saturating_sub(1) } else { 0 };
        let flushed_to = flushed_to.max(view.version.flushed_to());
        Self { view, flushed_to, is_flushed }
    }

    /// Returns true if value logs are sealed that a commit which is not visible yet may refer to, or dead ones are kept for `store`.
    fn waits(&self, store: Option<&Remote>) -> bool {
        let version = &self.view.version;
        let is_ahead = |v: &VlogState| v.sealed_at.is_some_and(|seq| seq > self.flushed_to);
        self.is_flushed && version.vlogs().values().any(is_ahead)
            || version.obsolete_vlogs_at(self.flushed_to).count() > self.dead(store).len()
    }

    /// Returns the dead value logs that `store` does not need.
    fn dead(&self, store: Option<&Remote>) -> Vec<VlogId> {
        let (version, from) = (&self.view.version, store.map_or(SeqNo::MAX, |store| store.kept.from()));
        let may_go = |id: &VlogId| version.vlogs()[id].sealed_at.is_some_and(|seq| seq < from);
        version.obsolete_vlogs_at(self.flushed_to).filter(may_go).collect()
    }

    /// Bytes of the dead value logs that `store` needs.
    fn kept_bytes(&self, store: &Remote) -> u64 {
        let (version, from) = (&self.view.version, store.kept.from());
        let dead = version.obsolete_vlogs_at(self.flushed_to).map(|id| version.vlogs()[&id]);
        dead.filter(|v| v.sealed_at.is_some_and(|seq| seq >= from)).map(|v| v.bytes).sum()
    }
}

/// The use of disk space by the values of a family.
#[derive(Debug)]
struct Usage {
    sealed: SettledFiles,
    /// Bytes of the files that are not complete and durable, and how many of these bytes tables refer to.
    incomplete: (u64, u64),
    space: ValueSpace,
    /// Maximum bytes of values that the memtables may overwrite, and that no table refers to yet.
    unflushed: u64,
}

impl Usage {
    fn of(family: &FamilyCore, seen: &Seen) -> Self {
        let version = &seen.view.version;
        let vlogs = version.vlogs();
        let space = ValueSpace::of(version);
        let used = |id| vlogs.get(&id).map_or(0, VlogState::used);
        let incomplete = family.vlog.incomplete().into_iter();
        Self {
            sealed: SettledFiles::of(family, version, seen.flushed_to),
            incomplete: incomplete.fold((0, 0), |sum, (id, bytes)| (sum.0 + bytes, sum.1 + used(id))),
            unflushed: unflushed(family, seen, space.average),
            space,
        }
    }

    /// Decides what to do next.
    fn next(&self, family: &FamilyCore, budget: GarbageBudget) -> Next {
        if family.options.value_garbage_percent() == 0 {
            return Next::Nothing;
        }
        let victims = family.victims(&self.sealed, budget);
        if !victims.is_empty() {
            return Next::Move(victims);
        }
        if budget == GarbageBudget::Busy {
            return Next::Nothing;
        }
        let share = |bytes| family.garbage_max(bytes, budget);
        let ((incomplete, used), garbage) = (self.incomplete, self.sealed.garbage);
        let total = self.sealed.bytes + incomplete;
        if garbage + self.unflushed > share(total) && self.unflushed > family.garbage_slack() {
            return Next::Flush;
        }
        let ValueSpace { hidden, table_bytes, .. } = self.space;
        if garbage + hidden > share(total) && hidden > table_bytes / LOOK_COST {
            return Next::Merge;
        }
        if incomplete.saturating_sub(used) > share(incomplete) {
            return Next::Rotate;
        }
        Next::Nothing
    }
}

/// Returns the maximum bytes of values that no table refers to, or that memtables overwrite.
fn unflushed(family: &FamilyCore, seen: &Seen, average: u64) -> u64 {
    let Seen { view, flushed_to, is_flushed } = seen;
    if *is_flushed {
        return 0;
    }
    let vlogs = view.version.vlogs();
    let deletes_ranges = view.memtables().any(|slot| !slot.ranges.is_empty());
    let overwritten = match deletes_ranges {
        true => vlogs.values().map(VlogState::used).sum(),
        false => view.memtables().map(|slot| slot.map.entries()).sum::<u64>().saturating_mul(average),
    };
    let unsettled =
        vlogs.values().filter(|v| v.sealed_at.is_some_and(|seq| seq > *flushed_to)).map(VlogState::garbage);
    let unnamed = family.vlog.begun.facts().iter().filter(|f| !vlogs.contains_key(&f.id)).count() as u64;
    overwritten + unsettled.sum::<u64>() + unnamed * family.vlog.sizes.of_new()
}

/// Returns whether a flush of `slot`, the active memtable of `family`, may free the space of values: of those that were stored since it was
/// created, or of those in tables that its entries hide. The flush finds out which of them are dead.
pub fn flush_frees_values(ctx: &MaintenanceCtx, family: &FamilyCore, slot: &MemSlot) -> bool {
    let stored = family.total(Metric::ValueLogWritten).saturating_sub(slot.stored);
    let view = family.owned_view();
    let has_stored = !view.version.vlogs().is_empty();
    stored >= FLUSH_FOR_SPACE_MIN
        || (has_stored && !slot.ranges.is_empty())
        || (has_stored && hides_values(ctx, family, slot, &view).unwrap_or(false))
}

/// Returns whether the entries of `slot` hide values in tables that are worth a flush. A memtable of more than a few thousand entries is
/// flushed for the space of its log, so there are few to look up.
fn hides_values(ctx: &MaintenanceCtx, family: &FamilyCore, slot: &MemSlot, view: &ReadView) -> Result<bool> {
    let tables = Arc::new(ReadView { active: None, immutables: Vec::new(), ..view.clone() });
    let mut cursor = Source::memtable(&slot.map);
    cursor.seek_to_first()?;
    let mut hidden = 0;
    while cursor.valid() && hidden < FLUSH_FOR_SPACE_MIN {
        if let Some(Located::Stored(place)) = read::locate(&ctx.reads, family, &tables, cursor.key(), None)? {
            hidden += place.stored_bytes();
        }
        cursor.next_key()?;
    }
    Ok(hidden >= FLUSH_FOR_SPACE_MIN)
}

/// Seals the full value logs of `family` and removes the dead ones. Keeps those that
/// `store` needs. Returns whether a file was removed.
///
/// # Errors
/// Errors of an install.
pub fn run(ctx: &MaintenanceCtx, family: &FamilyCore, store: Option<&Remote>) -> Result<bool> {
    match seal(ctx, family).and_then(|()| remove_dead(ctx, family, store)) {
        Err(e) if family.was_lost(&e) => Ok(false),
        other => other,
    }
}

/// A file to seal.
#[derive(Clone, Copy, Debug)]
struct Sealable {
    /// `None` if the manifest names the file.
    unnamed: Option<Salt>,
    bytes: u64,
}

/// Returns the files of `family` that can be sealed: complete ones of this session without a lease, and those that a
/// stand-in for the family wrote, as for a clone, before the family was published.
fn sealable(family: &FamilyCore, version: &TableVersion) -> BTreeMap<VlogId, Sealable> {
    let begun = family.vlog.begun.facts();
    let named = |id| version.vlogs().contains_key(id);
    let is_sealed = |id| version.vlogs().get(id).is_some_and(|v| v.sealed_at.is_some());
    let of_session = begun.iter().filter(|f| !is_sealed(&f.id)).filter_map(|f| {
        let unnamed = (!named(&f.id)).then_some(f.salt);
        Some((f.id, Sealable { unnamed, bytes: f.sealable? }))
    });
    let is_begun = |id| begun.iter().any(|f| f.id == id);
    let open = version.vlogs().iter().filter(|(id, v)| v.sealed_at.is_none() && !is_begun(**id));
    let of_others = open.filter_map(|(id, _)| {
        Some((*id, Sealable { unnamed: None, bytes: family.vlog.info(*id).ok()?.bytes }))
    });
    of_session.chain(of_others).collect()
}

/// Makes the value logs of `family` durable that were begun, and names them: see [`name`].
///
/// # Errors
/// As [`name`]; a failed sync poisons the database.
pub fn name_begun(ctx: &MaintenanceCtx, family: &FamilyCore) -> Result<()> {
    family.vlog.sync_begun().map_err(|e| Error::clone(&ctx.write.poison(e)))?;
    name(ctx, family)
}

/// Names in the manifest the durable value logs of `family` that it does not name yet. After a crash, an open removes
/// those that nothing refers to.
///
/// # Errors
/// Errors of an install; `NotFound` for a dropped family.
pub fn name(ctx: &MaintenanceCtx, family: &FamilyCore) -> Result<()> {
    let _naming = family.naming.lock();
    family.check_usable()?;
    let mut edit = VersionEdit::new();
    rewrite::name_vlogs(ctx, family, family.vlog.begun.nameable(), &mut edit)?;
    if edit.changes.is_empty() { Ok(()) } else { ctx.install(&edit, &[family]) }
}

fn seal(ctx: &MaintenanceCtx, family: &FamilyCore) -> Result<()> {
    let _naming = family.naming.lock();
    let version = Arc::clone(&family.owned_view().version);
    let files = sealable(family, &version);
    // Recovery seals the files that it wrote itself.
    let sealed = version.vlogs().iter().filter(|(_, v)| v.sealed_at.is_some());
    sealed.for_each(|(id, _)| family.vlog.begun.sealed(*id));
    if files.is_empty() {
        return Ok(());
    }
    // Read after the leases: every commit that refers to the files is below.
    let sealed_at = ctx.write.log.sequencer().tail() - 1;
    let mut edit = VersionEdit::new();
    for (&vlog, &Sealable { unnamed, bytes }) in &files {
        if let Some(salt) = unnamed {
            edit.push(Change::AddVlog { family: family.id, vlog, salt });
        }
        edit.push(Change::SealVlog { family: family.id, vlog, bytes, sealed_at });
    }
    ctx.install(&edit, &[family])?;
    files.keys().for_each(|id| family.vlog.begun.sealed(*id));
    Ok(())
}

fn remove_dead(ctx: &MaintenanceCtx, family: &FamilyCore, store: Option<&Remote>) -> Result<bool> {
    let _naming = family.naming.lock(); // so that no other thread removes the same files
    let seen = Seen::now(ctx, family);
    if let Some(store) = store {
        let max = if ctx.write.log.lacks_space() { 0 } else { ctx.write.log.kept_bytes_max() };
        store.kept.set(family.id, seen.kept_bytes(store), max);
        if family.is_dropped() {
            store.kept.forget(family.id); // the drop may have done so before
        }
    }
    let dead = seen.dead(store);
    if dead.is_empty() {
        return Ok(false);
    }
    let mut edit = VersionEdit::new();
    edit.push(Change::FlushedTo { family: family.id, seq: seen.flushed_to });
    for &vlog in &dead {
        edit.push(Change::RemoveVlog { family: family.id, vlog });
    }
    ctx.install(&edit, &[family])?;
    family.count(Metric::ValueFilesRemoved, dead.len() as u64);
    tracing::debug!(family = %family.name(), files = dead.len(), "removed dead value logs");
    Ok(true)
}
