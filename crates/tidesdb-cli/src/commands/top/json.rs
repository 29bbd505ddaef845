//! The figures as one JSON object. What is not known is null; times are in seconds, sizes in bytes.

use serde_json::{Map, Value, json};

use super::super::stats::writer_json;
use crate::look::Look;
use crate::look::model::{Family, Job, Model};

/// Returns the model of the last figures as JSON.
pub(super) fn object(look: &Look, model: &Model) -> Value {
    let memory: Map<String, Value> =
        model.memory.uses.iter().map(|(name, bytes)| (name.replace(' ', "_"), (*bytes).into())).collect();
    let (flow, amplification, disk, work) = (&model.flow, &model.amplification, &model.disk, &model.work);
    json!({
        "figures_of": writer_json(&look.figures),
        "written_millis": model.millis,
        "health": model.health,
        "health_causes": look.figures.health.causes,
        "window_seconds": model.window,
        "operations": operations(model),
        "waits": waits(model),
        "bytes_per_second": {
            "from_users": flow.user,
            "log": flow.log,
            "tables_and_values": flow.tables,
            "read_by_lookups": flow.lookups,
        },
        "amplification": {
            "write": amplification.write,
            "write_since_open": amplification.write_all,
            "space_estimate": amplification.space,
        },
        "memory": { "limit": model.memory.limit, "pressure": model.memory.pressure, "used": model.memory.used(), "uses": memory, "spare": model.memory.spare },
        "cache": {
            "hit_share": model.cache.share,
            "hit_share_since_open": model.cache.share_all,
            "lookups_per_second": model.cache.rate,
            "bytes": model.cache.bytes,
        },
        "disk": { "database": disk.database, "log": disk.log, "free": disk.free, "total": disk.total },
        "work": {
            "flushes": work.flushes,
            "merges": work.merges,
            "flush_debt_bytes": work.flush_debt.map(|(bytes, _)| bytes),
            "flush_debt_seconds": work.flush_debt.map(|(_, secs)| secs),
            "merge_debt_bytes": work.merge_debt.map(|(bytes, _)| bytes),
            "merge_debt_seconds": work.merge_debt.map(|(_, secs)| secs),
            "sync_running_seconds": work.sync_runs,
        },
        "jobs": work.jobs.iter().flatten().map(job).collect::<Vec<_>>(),
        "families": model.families.iter().map(family).collect::<Vec<_>>(),
    })
}

/// The operations, by kind.
fn operations(model: &Model) -> Map<String, Value> {
    model
        .operations
        .iter()
        .map(|op| {
            let figures = json!({
                "since_open": op.total,
                "per_second": op.rate,
                "p50": op.p50,
                "p99": op.p99,
                "p999": op.p999,
                "longest": op.longest,
            });
            (op.kind.to_owned(), figures)
        })
        .collect()
}

/// The waits, by cause.
fn waits(model: &Model) -> Map<String, Value> {
    model
        .waits
        .iter()
        .map(|wait| {
            let figures = json!({
                "delayed_now": wait.now,
                "seconds_per_second": wait.rate,
                "recent_seconds": wait.recent.map(|(waited, _)| waited),
                "recent_window": wait.recent.map(|(_, window)| window),
                "since_open": wait.total,
                "longest": wait.longest,
                "gave_up": wait.gave_up,
            });
            (wait.cause.to_owned(), figures)
        })
        .collect()
}

fn job(job: &Job) -> Value {
    json!({
        "kind": job.kind,
        "family": job.family,
        "target": job.target,
        "bytes": job.bytes,
        "bytes_done": job.done,
        "seconds": job.seconds,
        "bytes_per_second": job.speed(),
        "seconds_left": job.left(),
    })
}

fn family(family: &Family) -> Value {
    let levels = family.levels.iter().map(|level| {
        json!({
            "level": level.level,
            "fill": level.fill,
            "bytes": level.bytes,
            "capacity_bytes": level.capacity,
            "runs": level.runs,
            "tables": level.tables,
        })
    });
    json!({
        "name": family.name,
        "written_per_second": family.rate,
        "memtable_bytes": family.memtables,
        "bytes": family.bytes,
        "value_log_bytes": family.value_logs,
        "tables": family.tables,
        "debt_bytes": family.debt,
        "levels": levels.collect::<Vec<_>>(),
    })
}
