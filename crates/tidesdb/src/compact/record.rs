//! Records what a compaction did: counters of the family, and an event.

use std::ops::Range;
use std::sync::Arc;

use super::plan::CompactionPlan;
use super::policy::{Cause, PlanKind};
use crate::events::{Event, LevelPart};
use crate::family::{FamilyCore, Metric};
use crate::jobs::{JobStart, RunningJob};
use crate::maintenance::MaintenanceCtx;
use crate::pacing::Reduction;
use crate::rewrite::Rewritten;
use crate::sources::TableSlot;

/// Registers the merge as running.
pub(super) fn begin<'c>(
    ctx: &'c MaintenanceCtx,
    family: &FamilyCore,
    plan: &CompactionPlan,
) -> RunningJob<'c> {
    let metas = || plan.inputs.iter().map(|(_, table)| table.meta());
    ctx.write.running.begin(JobStart {
        kind: plan.kind.name(),
        family: family.name(),
        target: plan.target,
        bytes: metas().map(|meta| meta.file_bytes).sum(),
        entries: metas().map(|meta| meta.entries).sum(),
        reduces: family.merge_debt.reduced_by(&reduction(plan)),
    })
}

/// Returns what `plan` takes off the debt of merges.
pub(super) fn reduction(plan: &CompactionPlan) -> Reduction {
    let bytes_in = |levels: Range<u8>| {
        let inputs = plan.inputs.iter().filter(|(level, _)| levels.contains(level));
        inputs.map(|(_, table)| table.meta().file_bytes).sum::<u64>()
    };
    let level_1 = || plan.inputs.iter().filter(|(level, _)| *level == 1).map(|(_, table)| table.meta());
    // A move takes no time: it would report a rate that merges do not reach.
    let raw = level_1().filter(|_| plan.is_merge()).map(|meta| meta.raw_key_bytes + meta.raw_value_bytes);
    let reduction =
        Reduction { level_1: level_1().count() as u64, raw_bytes: raw.sum(), ..Reduction::default() };
    match plan.kind {
        PlanKind::Move => reduction, // the next plan measures what it changes
        PlanKind::Tiered => Reduction { sunk: bytes_in(1..plan.target), ..reduction },
        _ => Reduction { drained: bytes_in(2..plan.target), ..reduction },
    }
}

/// Records a compaction that was installed.
pub(super) fn done(
    ctx: &MaintenanceCtx,
    family: &FamilyCore,
    plan: &CompactionPlan,
    out: &Rewritten,
    job: RunningJob<'_>,
) {
    let seconds = job.took();
    drop(job);
    let (now, trigger) = (ctx.write.env.clock.mono(), family.options.l1_tables_trigger());
    family.merge_debt.installed(&reduction(plan), &ctx.write.pacing.merge_rate, now, seconds, trigger);
    family.count(Metric::Compactions, 1);
    let inputs = inputs(plan);
    let (name, cause) = (family.name(), format!("{:?}", plan.cause));
    ctx.write.events.record(&match plan.kind {
        PlanKind::Move => {
            family.count(Metric::Moves, 1);
            Event::Move { family: name, cause, inputs, target: plan.target }
        }
        PlanKind::Drop => Event::Drop { family: name, cause, inputs },
        kind => {
            let read_bytes: u64 = inputs.iter().map(|part| part.bytes).sum();
            let above = inputs.iter().filter(|part| part.level < plan.target).map(|part| part.bytes);
            let write_amp = out.bytes() as f64 / above.sum::<u64>() as f64;
            family.count(Metric::MergeParts, out.parts);
            family.count(Metric::CompactionRead, read_bytes);
            family.count(Metric::CompactionWritten, out.bytes());
            family.merged.add(plan.target, out.bytes());
            family.count(merges_for(plan.cause), 1);
            family.owned_view().probes.credit(out.entries_in);
            ctx.write.running.merges.record(seconds);
            Event::Merge {
                family: name,
                kind: kind.name(),
                cause,
                inputs,
                read_bytes,
                target: plan.target,
                outputs: out.tables.len() as u64,
                tables: out.table_numbers(),
                bytes: out.bytes(),
                entries: out.entries_in,
                dropped: out.dropped,
                parts: out.parts,
                write_amp,
                seconds,
            }
        }
    });
}

/// The counter of merges for `cause`.
fn merges_for(cause: Cause) -> Metric {
    match cause {
        Cause::Level1 => Metric::MergesLevel1,
        Cause::Capacity | Cause::Disjoint | Cause::Levels => Metric::MergesCapacity,
        Cause::Tombstones | Cause::Ranges => Metric::MergesTombstones,
        Cause::Expired => Metric::MergesExpired,
        Cause::Probes => Metric::MergesProbes,
        Cause::Values => Metric::MergesValues,
        Cause::Idle => Metric::MergesIdle,
        Cause::Manual => Metric::MergesManual,
    }
}

/// Tables and bytes of the inputs per level.
fn inputs(plan: &CompactionPlan) -> Vec<LevelPart> {
    let levels = plan.inputs.chunk_by(|a, b| a.0 == b.0);
    let part = |tables: &[_]| {
        let bytes = tables.iter().map(|(_, table): &(u8, Arc<TableSlot>)| table.meta().file_bytes);
        LevelPart { level: tables[0].0, tables: tables.len() as u64, bytes: bytes.sum() }
    };
    levels.map(part).collect()
}
