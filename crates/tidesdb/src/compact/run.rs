//! Executes compaction plans.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::plan::{self, Begun, CompactionPlan, MergeLimits};
use super::policy::{Cause, PlanKind};
use super::{parts, record};
use crate::events::TARGET;
use crate::family::{Claimed, FamilyCore, Metric};
use crate::jobs::Job;
use crate::maintenance::MaintenanceCtx;
use crate::merge::CoveringRanges;
use crate::order::Gather;
use crate::rewrite::{self, Rewritten};
use crate::sources::TableVersion;
use crate::types::TableId;
use crate::version::{Change, VersionEdit};
use crate::vlog::ValueMover;
use crate::{Error, Result, files};

/// Runs the compaction of `family` that is due. Returns `false` if none is due.
///
/// # Errors
/// `NoSpace`, `Io`, `Busy` if merges were stopped: nothing changed. `Corrupt`: an input is damaged; the inputs are
/// kept.
pub fn run(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>) -> Result<bool> {
    let Some((begun, _claimed)) = begin(ctx, family) else { return Ok(false) };
    if begun.plan.is_merge() {
        ctx.write.jobs.push(Job::Compact(family.id)); // another one may run concurrently
    }
    carry_out(ctx, family, &begun).map(|()| true)
}

/// Returns true if a compaction of `family` is due.
pub fn is_due(ctx: &MaintenanceCtx, family: &FamilyCore) -> bool {
    begin(ctx, family).is_some()
}

/// Rewrites one table that refers to the value logs to empty, or all tables `together`, so that their live values move. Returns `false` if
/// no table can be rewritten now.
///
/// # Errors
/// As [`run`]; `Corrupt` if a value is damaged: it stays where it is, and so do the other values of its file.
pub fn move_values(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, together: bool) -> Result<bool> {
    let stops = ctx.write.merges.stops(); // read first, so that no later stop is missed
    let victims = family.collection.victims();
    if together {
        let plan = |version: &TableVersion| plan::for_values(version, &family.options, &victims);
        let begun = run_alone(ctx, family, stops, plan)?;
        return family.collection.damage().map_or(Ok(begun.is_some()), Err);
    }
    let begun = family.claims.begin(ctx.write.env.clock.mono(), |claims| {
        if family.is_dropped() {
            return None;
        }
        let version = version_of(family);
        let plan = plan::of_values(&version, claims, &victims)?;
        let claim = plan.claim(&version);
        Some((Arc::new(Begun { plan, purge: purge_of(&version), stops }), claim))
    });
    let Some((begun, _claimed)) = begun else { return Ok(false) };
    carry_out(ctx, family, &begun)?;
    family.collection.damage().map_or(Ok(true), Err)
}

/// Plans a compaction and claims what it uses.
pub(super) fn begin<'f>(ctx: &MaintenanceCtx, family: &'f FamilyCore) -> Option<(Arc<Begun>, Claimed<'f>)> {
    let stops = ctx.write.merges.stops(); // read first, so that no later stop is missed
    family.claims.begin(ctx.write.env.clock.mono(), |claims| {
        if ctx.write.merges.are_off() || family.is_dropped() {
            return None;
        }
        let changes = family.changes();
        // The version after the claims: what ended before is in it.
        let version = version_of(family);
        // Range tombstones may drop whole tables, so planning raises the floor of history; without range tombstones it only reads the
        // floor.
        let has_ranges = !version.ranges().is_empty();
        let readers = if has_ranges { rewrite::rules(ctx, false) } else { rewrite::outlook(ctx) };
        let probes_credit = family.owned_view().probes.look();
        let is_idle = ctx.write.idle.load(Ordering::Relaxed);
        let is_in_ranges = ctx.write.memory.is_in_ranges();
        let settles = is_idle || family.hides_many_values(&version);
        let planned = |bytes_max| {
            let limits = MergeLimits { bytes_max, probes_credit, settles, is_in_ranges };
            plan::next(&version, claims, &family.options, &readers, limits, &family.merge_debt)
        };
        let Some(mut plan) = planned(u64::MAX) else {
            if is_idle {
                family.set_settled(changes);
            }
            return None;
        };
        let room = if plan.is_merge() { ctx.write.log.room_for_merge() } else { u64::MAX };
        // A smaller merge may fit. If none does, this one fails, and is tried again later.
        if plan.output_bytes() > room
            && let Some(smaller) = planned(room).filter(|plan| plan.output_bytes() <= room)
        {
            plan = smaller;
        }
        if plan.cause == Cause::Idle && plan.output_bytes() > room {
            return None; // nothing waits for it
        }
        if plan.cause == Cause::Idle && !is_idle {
            plan.cause = Cause::Values; // it looks for garbage in value logs
        }
        if plan.bottom && plan.is_merge() {
            family.choose_victims(&version, ctx.write.budget()); // the merge moves values anyway
        }
        let claim = plan.claim(&version);
        Some((Arc::new(Begun { plan, purge: purge_of(&version), stops }), claim))
    })
}

/// Executes the plan that `plan` returns for the current version, while no other merge of the family runs. Fails with `Busy` if merges
/// were stopped since `stops` stops were counted. Returns what was carried out.
pub(super) fn run_alone(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    stops: u64,
    plan: impl FnOnce(&TableVersion) -> Option<CompactionPlan>,
) -> Result<Option<Arc<Begun>>> {
    let running = family.claims.begin_alone();
    let merge = || {
        ctx.write.merges.check(Some(stops))?;
        let version = version_of(family);
        let plan = plan(&version).filter(|_| !family.is_dropped());
        let begun = plan.map(|plan| Arc::new(Begun { plan, purge: purge_of(&version), stops }));
        drop(version);
        if let Some(begun) = &begun {
            carry_out(ctx, family, begun)?;
        }
        Ok(begun)
    };
    let result = merge();
    drop(running);
    ctx.write.jobs.push(Job::Compact(family.id)); // what was due meanwhile could not begin
    result
}

/// Returns the current tables. Does not keep the view, which would keep its memtables in memory until the merge ends.
pub(super) fn version_of(family: &FamilyCore) -> Arc<TableVersion> {
    Arc::clone(&family.owned_view().version)
}

/// Range tombstones of the tables.
fn purge_of(version: &TableVersion) -> CoveringRanges {
    CoveringRanges { ranges: version.ranges().clone(), complete_to: version.flushed_to() }
}

/// Executes a plan. If the family is dropped meanwhile, that is not an error.
pub(super) fn carry_out(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, begun: &Arc<Begun>) -> Result<()> {
    let result = compact(ctx, family, begun);
    family.merge_debt.set_failing(result.is_err());
    match result {
        Err(e) if family.was_lost(&e) => Ok(()),
        Err(e) => {
            let e = blame(&begun.plan, e);
            if e.is_corruption() {
                quarantine(ctx, family, &begun.plan, &e);
            }
            Err(e)
        }
        Ok(()) => Ok(()),
    }
}

/// Quarantines the input that `damage` names, or all inputs if it names none of them.
fn quarantine(ctx: &MaintenanceCtx, family: &FamilyCore, plan: &CompactionPlan, damage: &Error) {
    let ids = || plan.inputs.iter().map(|(_, table)| table.id());
    let names = |id: &TableId| matches!(damage, Error::Corrupt { file, .. } if **file == *files::table(*id));
    let named: Vec<TableId> = ids().filter(names).collect();
    let tables = if named.is_empty() { ids().collect() } else { named };
    tracing::error!(family = %family.name(), error = %damage, ?tables, "damaged tables are left out of merges; nothing was dropped");
    family.quarantine(&tables, ctx.write.env.clock.mono());
}

/// Returns the damage in an input that explains a violated invariant of the merge, if there is any. Entries out of
/// order with valid checksums are detected only here.
fn blame(plan: &CompactionPlan, e: Error) -> Error {
    if !matches!(e, Error::Internal { .. }) {
        return e;
    }
    let damage = plan.inputs.iter().filter_map(|(_, table)| table.table().verify().err());
    damage.into_iter().find(Error::is_corruption).unwrap_or(e)
}

fn compact(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>, begun: &Arc<Begun>) -> Result<()> {
    let plan = &begun.plan;
    let job = record::begin(ctx, family, plan);
    let _span =
        tracing::debug_span!(target: TARGET, "merge", family = %family.name(), kind = plan.kind.name())
            .entered();
    let moves = plan.bottom || plan.cause == Cause::Values;
    let victims = if moves { family.collection.victims() } else { Arc::default() };
    // The leases of `mover` end after the install.
    let (out, mover, _space) = match plan.kind {
        PlanKind::Move => {
            let tables = plan.inputs.iter().map(|(_, t)| Arc::clone(t.meta())).collect();
            (Rewritten::unchanged(tables), ValueMover::default(), None)
        }
        PlanKind::Drop => (Rewritten::default(), ValueMover::default(), None),
        _ => {
            let (out, mover, space) =
                parts::merge(ctx, family, begun, &job.progress, &victims).map_err(|e| match e.is_full() {
                    true => ctx.write.log.no_space(plan.output_bytes()),
                    false => e,
                })?;
            (out, mover, Some(space))
        }
    };
    mover.sync(&family.vlog).map_err(|e| {
        out.abandon(ctx);
        Error::clone(&ctx.write.poison(e)) // a later sync of the log would fail too
    })?;
    let installing = family.claims.installing();
    let naming = family.naming.lock();
    let version = version_of(family);
    let mut edit = removals(&version, plan, &out);
    let generation = plan.generation(&version);
    let added = match plan.kind {
        PlanKind::Move => {
            for (_, table) in &plan.inputs {
                let generation = generation.saturating_add(version.generation(table.id()));
                let meta = Arc::clone(table.meta());
                edit.push(Change::AddTable { family: family.id, level: plan.target, generation, meta });
            }
            Ok(())
        }
        _ => out.add_to(ctx, family, |_| (plan.target, generation), &mut edit),
    };
    added.and_then(|()| ctx.install(&edit, &[family])).inspect_err(|_| {
        if plan.is_merge() {
            out.abandon(ctx);
        }
    })?;
    drop((naming, installing));
    family.end_quarantine(plan.inputs.iter().map(|(_, table)| table.id()));
    ctx.write.pacing.progress.advance();
    out.count(family);
    family.count(Metric::ValuesMoved, mover.bytes());
    record::done(ctx, family, plan, &out, job);
    if let Some((file, damage)) = mover.damaged() {
        tracing::error!(family = %family.name(), error = %damage, "a value log cannot be emptied; nothing was dropped");
        family.collection.exclude(*file, damage.clone());
    }
    Ok(())
}

/// Removes the inputs of `plan`, and the range tombstones of `version` that hide nothing once `out` replaces them. Tables that were flushed
/// since are newer than all of these tombstones.
fn removals(version: &TableVersion, plan: &CompactionPlan, out: &Rewritten) -> VersionEdit {
    let family = version.id();
    let tables = plan.inputs.iter().map(|(level, table)| (*level, table.id()));
    let inputs: BTreeSet<_> = tables.clone().map(|(_, table)| table).gather();
    let ranges = version.ranges().iter().filter(|range| !version.is_hiding(range, &inputs, &out.tables));
    let tables = tables.map(|(level, table)| Change::RemoveTable { family, level, table });
    tables.chain(ranges.map(|range| Change::RemoveRange { family, seq: range.seq })).collect()
}
