//! `tidesdb stats`: statistics of a database.

use serde_json::{Value, json};
use tidesdb::FamilyStats;

use crate::failure::{Exit, Outcome};
use crate::output::{Out, Style};
use crate::session::Session;
use crate::text::{grouped, size};

/// Print statistics of the database and its families
///
/// With --family, only of that family. Counters start at zero when the database is opened, so they are most useful in the
/// shell.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Stats {}

impl Stats {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        if session.common.family.is_some() {
            let family = session.family()?.stats();
            if session.common.json {
                out.json(&family_json(&family))?
            } else {
                print_family(&family, out)?
            }
            return Ok(Exit::Done);
        }
        let stats = session.db.stats();
        if session.common.json {
            out.json(&database_json(&stats))?;
            return Ok(Exit::Done);
        }
        out.line(out.paint(Style::Strong, &session.path.display().to_string()))?;
        out.line(format!("  newest commit     {}", stats.visible_seq))?;
        out.line(format!("  durable below     {}", stats.durable_seq))?;
        let (written, live) = (size(stats.wal_bytes), size(stats.wal_live_bytes));
        out.line(format!("  log               {written} written, {live} to replay after a crash"))?;
        let lookups = stats.cache_hits + stats.cache_misses;
        let rate = stats.cache_hits as f64 * 100.0 / lookups.max(1) as f64;
        let cache = size(stats.cache_bytes);
        out.line(format!("  block cache       {cache}, {rate:.1} % of {} lookups hit", grouped(lookups)))?;
        out.line(format!("  snapshots         {}", stats.snapshots))?;
        out.line(format!("  jobs queued       {}", stats.jobs_pending))?;
        for (cause, held) in [("memtables", stats.stalled_by_memtables), ("tables", stats.stalled_by_tables)]
        {
            let (slowed, stopped) = (grouped(held.slowed), grouped(held.stopped));
            out.line(format!(
                "  stalls: {cause:<9} {:?}, {slowed} commits slowed, {stopped} stopped",
                held.time
            ))?;
        }
        stats.families.iter().try_for_each(|family| print_family(family, out))?;
        Ok(Exit::Done)
    }
}

fn print_family(family: &FamilyStats, out: &mut Out<'_>) -> Outcome<()> {
    out.line(out.paint(Style::Strong, &format!("family {}", family.name)))?;
    out.line(format!("  memtables         {}, {} to flush", size(family.memtable_bytes), family.immutables))?;
    for (i, (tables, bytes)) in family.level_tables.iter().zip(&family.level_bytes).enumerate() {
        if *tables > 0 {
            out.line(format!("  level {:<11} {} tables, {}", i + 1, grouped(*tables as u64), size(*bytes)))?;
        }
    }
    let (entries, tombstones) = (grouped(family.table_entries), grouped(family.tombstones));
    out.line(format!("  entries in tables {entries}, {tombstones} of them tombstones"))?;
    out.line(format!("  filters, indexes  {} in memory", size(family.resident_bytes)))?;
    out.line(format!("  written by users  {}", size(family.user_bytes)))?;
    out.line(format!("  flushed           {} in {} flushes", size(family.flush_bytes), family.flushes))?;
    let (read, written) = (size(family.compaction_read), size(family.compaction_written));
    let jobs = family.compactions;
    out.line(format!("  compacted         {read} read, {written} written in {jobs} compactions"))?;
    out.line(format!("  entries dropped   {}", grouped(family.dropped)))
}

fn database_json(stats: &tidesdb::Stats) -> Value {
    json!({
        "visible_seq": stats.visible_seq,
        "durable_seq": stats.durable_seq,
        "wal_bytes": stats.wal_bytes,
        "wal_live_bytes": stats.wal_live_bytes,
        "cache_hits": stats.cache_hits,
        "cache_misses": stats.cache_misses,
        "cache_bytes": stats.cache_bytes,
        "snapshots": stats.snapshots,
        "jobs_waiting": stats.jobs_pending,
        "stall_seconds": stats.stall_time().as_secs_f64(),
        "stalls": stats.stalls(),
        "stalled_by_memtables": stalls_json(stats.stalled_by_memtables),
        "stalled_by_tables": stalls_json(stats.stalled_by_tables),
        "families": stats.families.iter().map(family_json).collect::<Vec<_>>(),
    })
}

fn stalls_json(held: tidesdb::StallStats) -> Value {
    json!({ "seconds": held.time.as_secs_f64(), "slowed": held.slowed, "stopped": held.stopped })
}

fn family_json(family: &FamilyStats) -> Value {
    json!({
        "name": family.name,
        "memtable_bytes": family.memtable_bytes,
        "immutables": family.immutables,
        "level_tables": family.level_tables,
        "level_bytes": family.level_bytes,
        "table_entries": family.table_entries,
        "tombstones": family.tombstones,
        "resident_bytes": family.resident_bytes,
        "user_bytes": family.user_bytes,
        "flush_bytes": family.flush_bytes,
        "flushes": family.flushes,
        "compaction_read": family.compaction_read,
        "compaction_written": family.compaction_written,
        "compactions": family.compactions,
        "dropped": family.dropped,
    })
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn figures_match_those_of_the_engine() {
        let stage = Stage::with(&["a", "b", "c"]);
        stage.db.flush().unwrap();
        let stats: Value = serde_json::from_str(&stage.run(&["stats", "--json"])).unwrap();
        assert_eq!(stats["families"][0]["table_entries"], 3);
        assert_eq!(stats["families"][0]["user_bytes"], 6);
        assert_eq!(stats["visible_seq"], stage.db.stats().visible_seq);
        let text = stage.run(&["stats"]);
        assert!(text.contains("entries in tables 3, 0 of them tombstones"), "{text}");
        let family = stage.run(&["stats", "--family", "default"]);
        assert!(family.starts_with("family default\n"), "{family}");
    }
}
