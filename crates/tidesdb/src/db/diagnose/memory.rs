//! Rules about memory.

use super::{Evidence, Finding, Severity, finding, share, size};
use crate::order;

pub(super) fn above_group(seen: &Evidence<'_>) -> Option<Finding> {
    let (limit, allowed) = (seen.stats.memory_limit_bytes, seen.around.memory?);
    (limit > allowed / 10 * 9).then_some(())?;
    finding(
        (Severity::Problem, "memory-limit"),
        "memory_limit is as large as all memory that the process may use",
        vec![format!(
            "memory_limit is {}; the machine, or the control group, allows {}",
            size(limit),
            size(allowed)
        )],
        [
            "the rest of the program, the page cache and the allocator need memory, too: the kernel may kill the process",
            "set memory_limit to half of it; 0 does that by itself",
            "a smaller block cache: more reads from the disk",
        ],
    )
}

/// The limit is nearly used by what cannot be dropped at once.
pub(super) fn scarce(seen: &Evidence<'_>) -> Option<Finding> {
    let stats = seen.stats;
    (stats.memory_pressure >= 2).then_some(())?;
    let mut uses = [
        ("memtables", stats.memory_memtables_bytes),
        ("transactions and batches", stats.memory_transactions_bytes),
        ("cursors and iterators", stats.memory_cursors_bytes),
        ("flushes and merges", stats.memory_jobs_bytes),
        ("range deletes", stats.memory_ranges_bytes),
        ("the cache, filters and indexes", stats.memory_tables_bytes),
        ("fixed parts", stats.memory_fixed_bytes),
    ];
    order::sort_by_key(&mut uses, |(_, bytes)| std::cmp::Reverse(*bytes));
    let limit = stats.memory_limit_bytes;
    let part = |bytes: u64| 100.0 * share(bytes as f64, limit as f64);
    let lines =
        uses.iter().take(3).map(|(what, bytes)| format!("{what}: {}, {:.0} %", size(*bytes), part(*bytes)));
    let others = (stats.databases > 1).then(|| {
        let own: u64 = uses.iter().map(|(_, bytes)| bytes).sum();
        let (all, n) = (stats.memory_shared_bytes, stats.databases);
        format!("{n} databases have the limit together and use {}, this one {}", size(all), size(own))
    });
    finding(
        (Severity::Problem, "memory"),
        "memory is scarce, and writers are slowed down",
        [format!("memory_limit is {}", size(limit))].into_iter().chain(others).chain(lines).collect(),
        [
            "what the database holds is near its limit: writers wait until flushes and merges free some of it",
            "end long transactions, iterators and snapshots; raise memory_limit; docs/concepts/memory.md#reading-the-numbers",
            "memory",
        ],
    )
}

/// Memtables that flushes are done with, and that something in the program keeps.
pub(super) fn held_memtables(seen: &Evidence<'_>) -> Option<Finding> {
    let stats = seen.stats;
    (seen.families_left_out == 0).then_some(())?;
    let in_use = stats.families.iter().fold(0_u64, |sum, family| sum.saturating_add(family.memtable_bytes));
    let held = stats.memory_memtables_bytes.saturating_sub(in_use);
    (held > 64 << 20 && held > stats.memory_limit_bytes / 4).then_some(())?;
    let severity = if stats.memory_pressure >= 2 { Severity::Urgent } else { Severity::Problem };
    finding(
        (severity, "held-memtables"),
        "memtables that are flushed already are still in memory, because the program holds parts of them",
        vec![
            format!(
                "memtables take {}; those in use {}; memory_limit is {}",
                size(stats.memory_memtables_bytes),
                size(in_use),
                size(stats.memory_limit_bytes)
            ),
            format!(
                "{} cursors and iterators are open, {} snapshots and transactions",
                stats.cursors, stats.snapshots
            ),
        ],
        [
            "a value (Slice) read from a memtable may be lent, not copied: while the program keeps it, or an open cursor or iterator, the whole memtable stays",
            "copy values that are kept (Slice::into_vec), drop the others, and close old cursors and iterators",
            "a copy of each value that is kept",
        ],
    )
}
