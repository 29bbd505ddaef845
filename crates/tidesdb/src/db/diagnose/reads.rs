//! Rules about reads.

use super::{Evidence, Finding, Severity, default_of, finding, share, size, worst};
use crate::family::FamilyStats;
use crate::stats::TimeStats;
use crate::types::Comparator;

pub(super) fn tombstones(seen: &Evidence<'_>) -> Option<Finding> {
    let dead = |family: &FamilyStats| share(family.tombstones as f64, family.table_entries as f64);
    let is_bad = |family: &FamilyStats| dead(family) > 0.3 && family.tombstones > 100_000;
    let (family, _) = worst(seen, |family| if is_bad(family) { dead(family) } else { 0.0 })?;
    finding(
        (Severity::Problem, "tombstones"),
        format!("scans of family {:?} step over many deleted rows", family.name),
        vec![format!(
            "{} of its {} entries are tombstones; the densest table has {:.0} %, in level {}",
            family.tombstones,
            family.table_entries,
            family.tombstone_share_max * 100.0,
            family.tombstone_share_level
        )],
        [
            "rows are deleted faster than merges drop the tombstones, or a snapshot or cursor keeps them",
            "delete ranges with delete_range, end old snapshots and cursors, or compact the family once",
            "a compaction writes the family again",
        ],
    )
}

pub(super) fn cache(seen: &Evidence<'_>) -> Option<Finding> {
    let stats = seen.stats;
    let lookups = stats.cache_hits.saturating_add(stats.cache_misses);
    let returns = share(stats.cache_returns as f64, stats.cache_misses as f64);
    (lookups > 100_000 && stats.cache_hit_share < 0.8 && stats.cache_misses > 50_000).then_some(())?;
    (returns > 0.05).then_some(())?;
    finding(
        (Severity::Advice, "cache"),
        "the block cache is too small for what is read",
        vec![
            format!(
                "{:.0} % of {lookups} look-ups hit; the cache holds {}",
                stats.cache_hit_share * 100.0,
                size(stats.cache_bytes)
            ),
            format!("{:.0} % of the misses are of what it had dropped shortly before", returns * 100.0),
            format!("{} reads of tables, of {}", stats.lookup_reads, size(stats.lookup_read_bytes)),
        ],
        [
            "the same blocks are read again, and do not fit: each miss pays for a block from the page cache or the disk",
            "a larger cache_bytes, within memory_limit",
            "memory; the misses named above become hits, if it grows by a half",
        ],
    )
}

/// Reads that look into tables which do not have their key.
pub(super) fn filters(seen: &Evidence<'_>) -> Option<Finding> {
    let stats = seen.stats;
    let gets = stats.gets.estimate();
    // Other operations look keys up, too: each of them some.
    let others = [&stats.multi_gets, &stats.puts, &stats.commits].map(TimeStats::estimate);
    let others = others.into_iter().fold(0, u64::saturating_add);
    let each = share(stats.lookups_in_vain as f64, gets.saturating_add(others) as f64);
    (gets > 0 && stats.lookups_in_vain > 100_000 && each > 0.3).then_some(())?;
    let (bits, usual) = (
        |family: &FamilyStats| seen.setting_of(family, "filter_bits_per_key"),
        default_of("filter_bits_per_key"),
    );
    let weak: Vec<_> = stats.families.iter().filter(|family| bits(family) < usual).collect();
    // Tables in another order than that of the bytes have no filters: there is nothing to set.
    let is_by_design = stats.trees.iter().any(|tree| tree.order != Comparator::bytewise().name());
    (!weak.is_empty() || !is_by_design).then_some(())?;
    let weak = weak.into_iter().take(5).map(|family| match bits(family) {
        0 => format!("family {:?} has no filters: filter_bits_per_key is 0", family.name),
        bits => {
            format!("family {:?} has filters of {bits} bits for each key, in place of {usual}", family.name)
        }
    });
    let all = format!(
        "{} look-ups in tables found nothing, {each:.1} for each operation; there were about {gets} gets",
        stats.lookups_in_vain
    );
    finding(
        (Severity::Problem, "filters"),
        "reads of one key look into tables that do not have it",
        [all].into_iter().chain(weak).collect(),
        [
            "no filter, or one with few bits, ended these look-ups; each takes a search of an index and a block, often a read",
            "set filter_bits_per_key to 10, which merges put into new tables; compact the family once for all of them",
            "10 bits of disk and memory for each key",
        ],
    )
}

/// Reads of keys with many operands.
pub(super) fn operands(seen: &Evidence<'_>) -> Option<Finding> {
    let each = |family: &FamilyStats| share(family.operands_combined as f64, family.combined as f64);
    let is_bad = |family: &FamilyStats| family.operands_combined > 100_000 && each(family) > 100.0;
    let (family, _) = worst(seen, |family| if is_bad(family) { each(family) } else { 0.0 })?;
    finding(
        (Severity::Problem, "operands"),
        format!("reads of family {:?} combine many operands of its merge operator", family.name),
        vec![
            format!(
                "{} reads combined {} operands, {:.0} each",
                family.combined,
                family.operands_combined,
                each(family)
            ),
            format!(
                "{} entries are in its memtables, of {}",
                family.memtable_entries,
                size(family.memtable_bytes)
            ),
        ],
        [
            "a few keys get many operands; they are combined into one when the memtable is flushed, until then by each read",
            "a smaller write_buffer_bytes for this family, or Family::flush from time to time; or write the result back with update",
            "a few small tables",
        ],
    )
}
