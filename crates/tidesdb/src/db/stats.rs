//! Statistics of the database and its families.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Db;
use crate::family::FamilyStats;
use crate::remote::RemoteStats;
use crate::shared::{DelayStats, Shared};
use crate::stats::{statistics, write_lines};
use crate::types::SeqNo;

statistics! {
    /// Statistics of the whole database. Its `Display` is for people.
    #[derive(Clone, Debug, Default)]
    Stats of seen: &Seen<'_>;

    plain {
        "Writers held up because memtables wait for their flush."
        stalled_by_memtables: StallStats = StallStats::of(&seen.shared.write.debt.by_memtables);
        "Writers held up because a family has too many tables in level 1."
        stalled_by_tables: StallStats = StallStats::of(&seen.shared.write.debt.by_tables);
        "The object store, if there is one."
        remote: Option<RemoteStats> = seen.shared.remote.as_ref().map(|remote| remote.stats());
        "Each family."
        families: Vec<FamilyStats> = seen.shared.write.all_families().iter().filter(|f| !f.is_unresolved()).map(|f| f.stats()).collect();
    }
    figures {
        Gauge Count visible_seq: SeqNo = seen.shared.reads.visible(),
            "Newest visible sequence number.", c "global_seq";
        Gauge Count durable_seq: SeqNo = seen.shared.write.log.sequencer().durable(),
            "First sequence number that is not durable yet.";
        Counter Bytes wal_bytes: u64 = seen.shared.write.log.bytes_written(),
            "Bytes written to the log since the open.";
        Gauge Count wal_segment: u64 = seen.shared.write.log.segment_of(seen.shared.reads.visible()).0,
            "Number of the current log segment; it grows for the life of the database.";
        Gauge Bytes wal_live_bytes: u64 = seen.shared.write.log.bytes_since(seen.shared.write.log_needed_from()),
            "Bytes of log that a crash now would make the next open replay.";
        Counter Count cache_hits: u64 = seen.cache.hits,
            "Blocks, and partitions of filters and indexes, found in the cache.", c "hits";
        Counter Count cache_misses: u64 = seen.cache.misses,
            "Cache lookups that missed.", c "misses";
        Gauge Share cache_hit_share: f64 = share(seen.cache.hits, seen.cache.misses),
            "Share of lookups in the cache that hit, from 0 to 1.";
        Gauge Bytes cache_bytes: u64 = seen.cache.used_bytes,
            "Bytes the cache holds.", c "total_bytes";
        Gauge Count cache_entries: u64 = seen.cache.entries,
            "Parts of blocks the cache holds.", c "total_entries";
        Counter Count lookup_reads: u64 = seen.shared.tables.reads.reads(),
            "Table reads by lookups that missed the cache. Reads through memory maps are not counted.";
        Counter Bytes lookup_read_bytes: u64 = seen.shared.tables.reads.bytes(),
            "Bytes read by these reads.";
        Gauge Count snapshots: usize = seen.shared.reads.snapshots.count(),
            "Live snapshots.";
        Gauge Count jobs_pending: usize = seen.shared.write.jobs.pending(),
            "Background jobs queued or running.";
    }
}

statistics! {
    /// Delays of writers for one cause since the open.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    StallStats of held: &DelayStats;

    plain {}
    figures {
        Counter Seconds time: Duration = Duration::from_nanos(held.nanos.load(Ordering::Relaxed)),
            "Total time, summed over all threads.";
        Counter Count slowed: u64 = held.slowed.load(Ordering::Relaxed),
            "Commits that were slowed down.";
        Counter Count stopped: u64 = held.stopped.load(Ordering::Relaxed),
            "Commits that were stopped.";
    }
}

struct Seen<'a> {
    shared: &'a Shared,
    cache: tidesdb_cache::CacheStats,
}

/// `part` of `part` and `rest`; 0 of nothing.
fn share(part: u64, rest: u64) -> f64 {
    part as f64 / (part + rest).max(1) as f64
}

impl Stats {
    /// Returns the time writers were delayed since the open, summed over all threads.
    pub fn stall_time(&self) -> Duration {
        self.stalled_by_memtables.time + self.stalled_by_tables.time
    }

    /// Returns how often a writer was stopped since the open.
    pub fn stalls(&self) -> u64 {
        self.stalled_by_memtables.stopped + self.stalled_by_tables.stopped
    }
}

impl Db {
    /// Returns statistics of the database.
    pub fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        Stats::of(&Seen { shared, cache: shared.tables.cache.stats() })
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(f, "", self.figures())?;
        for (cause, held) in [("memtables", self.stalled_by_memtables), ("tables", self.stalled_by_tables)] {
            writeln!(f, "writers delayed by {cause}")?;
            write_lines(f, "  ", held.figures())?;
        }
        if let Some(remote) = &self.remote {
            writeln!(f, "object store")?;
            write_lines(f, "  ", remote.figures())?;
        }
        for family in &self.families {
            writeln!(f, "family {:?}", family.name)?;
            write_lines(f, "  ", family.figures())?;
        }
        Ok(())
    }
}
