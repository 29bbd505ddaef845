//! Statistics of the database and its families.

use std::fmt;
use std::time::Duration;

use super::Engine;
use crate::compact::{self, TreeStats};
use crate::family::{FamilyCore, FamilyStats, Metric};
use crate::jobs::JobStats;
use crate::memory::{Breakdown, Memory, Use};
use crate::remote::RemoteStats;
use crate::stats::{TimeStats, statistics, write_lines};
use crate::types::SeqNo;
use crate::waits::{StallCause, StallStats};

statistics! {
    /// Statistics of the whole database. Its `Display` is for people: it leaves out figures that are 0.
    #[derive(Clone, Debug, Default)]
    Stats of seen: &Seen<'_>;

    plain {
        "Delays of writers, in the order of [`StallCause::ALL`]."
        stalled: [StallStats; StallCause::ALL.len()] = StallCause::ALL.map(|cause| seen.engine.write.pacing.delays(cause).stats(seen.engine.write.env.clock.mono()));
        "Reads of one key: `get`, `get_map` and `contains`. A random sample of them, also of those that fail."
        gets: TimeStats = (&seen.engine.reads.times.gets).into();
        "Reads of many keys: each `multi_get` and `multi_contains`, however many keys it has. A random sample of them, also of those that fail."
        multi_gets: TimeStats = (&seen.engine.reads.times.multi_gets).into();
        "Seeks of cursors, and the first step of iterators. A random sample of them, also of those that fail."
        seeks: TimeStats = (&seen.engine.reads.times.seeks).into();
        "Single writes: each `put`, `delete` and `merge` with its commit, all waits included. A random sample of them, also of those that fail."
        puts: TimeStats = (&seen.engine.reads.times.puts).into();
        "Commits of batches and transactions that write, all waits included. A random sample of them, also of those that fail."
        commits: TimeStats = (&seen.engine.reads.times.commits).into();
        "Syncs of the log, with the value logs."
        syncs: TimeStats = seen.engine.write.log.sync_times().into();
        "Flushes."
        flushes: TimeStats = (&seen.engine.write.running.flushes).into();
        "Merges; tables that are moved or dropped do not count."
        merges: TimeStats = (&seen.engine.write.running.merges).into();
        "Flushes and merges that run."
        jobs: Vec<JobStats> = seen.engine.write.running.now();
        "The object store, if there is one."
        remote: Option<RemoteStats> = seen.engine.remote.as_ref().map(|remote| remote.stats());
        "The tree of each family."
        trees: Vec<TreeStats> = seen.trees.clone();
        "Each family."
        families: Vec<FamilyStats> = seen.engine.write.all_families().iter().map(|f| f.stats()).collect();
    }
    figures {
        Gauge Count visible_seq: SeqNo = seen.engine.reads.visible(),
            "Newest visible sequence number.", c "global_seq";
        Gauge Count durable_end: SeqNo = seen.engine.write.log.sequencer().durable(),
            "End of what the log has durably: every commit below is durable, and later ones may be durable in tables.";
        Counter Bytes wal_bytes: u64 = seen.engine.write.log.bytes_written(),
            "Bytes written to the log since the open.";
        Gauge Count wal_segment: u64 = seen.engine.write.log.segment_of(seen.engine.reads.visible()).0,
            "Number of the current log segment; it grows for the life of the database.";
        Gauge Bytes wal_live_bytes: u64 = seen.engine.write.log.bytes_since(seen.engine.write.log_needed_from()),
            "Bytes of log that a crash now would make the next open replay.";
        Counter Count cache_hits: u64 = seen.cache.hits,
            "Blocks, and partitions of filters and indexes, found in the cache.", c "hits";
        Counter Count cache_misses: u64 = seen.cache.misses,
            "Cache lookups that missed.", c "misses";
        Gauge Share cache_hit_share: f64 = share(seen.cache.hits, seen.cache.misses),
            "Share of lookups in the cache that hit, from 0 to 1.";
        Counter Count cache_returns: u64 = seen.cache.returns,
            "Misses of what the cache had dropped lately: a larger one would have had it.";
        Gauge Bytes cache_bytes: u64 = seen.cache.used_bytes,
            "Bytes the cache holds.", c "total_bytes";
        Gauge Count cache_entries: u64 = seen.cache.entries,
            "Parts of blocks the cache holds.", c "total_entries";
        Counter Count lookup_reads: u64 = seen.engine.maintenance.tables.reads.reads(),
            "Table reads by lookups that missed the cache. Reads through memory maps are not counted.";
        Counter Bytes lookup_read_bytes: u64 = seen.engine.maintenance.tables.reads.bytes(),
            "Bytes read by these reads.";
        Counter Count lookups_in_vain: u64 = seen.engine.maintenance.tables.reads.in_vain(),
            "Look-ups of a key in a table that had no version of it, although no filter had ended them.";
        Gauge Bytes memory_limit_bytes: u64 = seen.engine.write.memory.limit(),
            "Limit for the memory of the database.", c "resolved_memory_limit";
        Gauge Bytes memory_memtables_bytes: u64 = seen.memory.used_for(Use::Memtables),
            "Memory of memtables: active, immutable, and those that only readers still use.";
        Gauge Bytes memory_transactions_bytes: u64 = seen.memory.used_for(Use::Transactions),
            "Memory of batches and transactions: their writes, and the keys and intervals they read.";
        Gauge Bytes memory_cursors_bytes: u64 = seen.memory.used_for(Use::Cursors),
            "Memory of iterators, of readers and writers of long values, and of views of a reader beside the writer.";
        Gauge Bytes memory_jobs_bytes: u64 = seen.memory.used_for(Use::Jobs),
            "Memory of the tables that flushes and merges build, and of what merges read.";
        Gauge Bytes memory_ranges_bytes: u64 = seen.memory.used_for(Use::Ranges),
            "Memory of range deletes: in memtables, and over tables that no merge has applied them to yet.";
        Gauge Bytes memory_tables_bytes: u64 = seen.memory.used_for(Use::Tables),
            "Memory of the block cache, and of the filters, indexes, first and last keys of open tables; with a shared cache only of open tables.";
        Gauge Bytes memory_spare_bytes: u64 = seen.memory.spare,
            "Memory of this process that is kept for new memtables and freed under pressure.";
        Gauge Bytes memory_allocator_bytes: u64 = seen.memory.allocator,
            "Freed memory of this process that the allocator of the C library keeps. It is not part of what the limit counts.";
        Gauge Bytes memory_fixed_bytes: u64 = seen.engine.write.memory.fixed_bytes(),
            "Memory of threads, the log, families without their tables, and other parts of a fixed size.";
        Gauge Count memory_pressure: u64 = seen.engine.write.memory.level() as u64,
            "How scarce memory is: 0 normal, 1 elevated, 2 high, 3 critical.", c "memory_pressure_level";
        Gauge Bytes memory_shared_bytes: u64 = seen.engine.write.memory.whole().used(),
            "Memory of all databases that have the limit together, this one included: those with the same resources, or those of the process that set no limit.";
        Gauge Count databases: u64 = seen.engine.write.memory.databases(),
            "Databases that have the limit together.";
        Gauge Count snapshots: usize = seen.engine.reads.snapshots.count(),
            "Live snapshots, and transactions that read at one sequence number.";
        Gauge Seconds oldest_snapshot_seconds: f64 = seen.age(seen.engine.reads.snapshots.oldest(seen.visible())),
            "Age of the oldest of them that does not show the newest state. Others keep nothing.";
        Gauge Count cursors: usize = seen.cursors.0,
            "Live cursors and iterators. Merges keep the versions that they show.";
        Gauge Seconds oldest_cursor_seconds: f64 = seen.age(seen.cursors.1),
            "Age of the oldest of them.";
        Gauge Count jobs_pending: usize = seen.jobs_pending(),
            "Background jobs queued or running.";
        Gauge Bytes flush_debt_bytes: u64 = seen.engine.write.pacing.flush_debt(),
            "Bytes of memtables that wait for a flush.";
        Gauge Seconds flush_debt_seconds: f64 = seen.flush_debt_seconds(),
            "Estimated time to flush them, at the rate of the last flushes.";
        Gauge Bytes merge_debt_bytes: u64 = seen.merge_debt_bytes(),
            "Bytes above the capacity of their level, which merges must move to a deeper level now.";
        Gauge Seconds merge_debt_seconds: f64 = seen.merge_debt_seconds(),
            "Estimated time to merge them, at the rate of the last merges.";
        Gauge Seconds sync_running_seconds: Duration = seen.engine.write.log.sync_runs_for(),
            "Time that the sync of the log which is under way has taken so far; 0 if there is none.";
        Counter Bytes written_bytes: u64 = seen.written_bytes(),
            "Bytes written to the log, the value logs and by flushes and merges.";
        Gauge Ratio write_amplification: f64 = seen.written_bytes() as f64 / seen.total(Metric::UserBytes).max(1) as f64,
            "These bytes, for each byte that users wrote.";
        Counter Count events: u64 = seen.engine.write.events.recorded(),
            "Events recorded for the event log.";
        Counter Count events_lost: u64 = seen.engine.write.events.lost(),
            "Of these, events that could not be written to the event log.";
    }
}

struct Seen<'a> {
    engine: &'a Engine,
    cache: tidesdb_cache::CacheStats,
    memory: Breakdown,
    trees: Vec<TreeStats>,
    /// How many there are, and when the oldest was created.
    cursors: (usize, Option<u64>),
}

impl Seen<'_> {
    fn visible(&self) -> SeqNo {
        self.engine.reads.visible()
    }

    /// Seconds since `born`, by the clock itself: the time of the last refresh can be older than the caller's.
    fn age(&self, born: Option<u64>) -> f64 {
        born.map_or(0.0, |born| self.engine.reads.refresh_clock().saturating_sub(born) as f64 / 1000.0)
    }

    fn total(&self, metric: Metric) -> u64 {
        self.engine.write.families.read().total(metric)
    }

    /// An open for reading has no thread for jobs.
    fn jobs_pending(&self) -> usize {
        if self.engine.write.options.read_only { 0 } else { self.engine.write.jobs.pending() }
    }

    fn written_bytes(&self) -> u64 {
        let tables = [Metric::FlushBytes, Metric::CompactionWritten, Metric::ValueLogWritten];
        self.engine.write.log.bytes_written() + tables.into_iter().map(|m| self.total(m)).sum::<u64>()
    }

    fn flush_debt_seconds(&self) -> f64 {
        let pacing = &self.engine.write.pacing;
        pacing.flush_debt() as f64 / pacing.flush_rate.get()
    }

    fn merge_debt_bytes(&self) -> u64 {
        self.trees.iter().map(|tree| tree.debt_bytes).sum()
    }

    fn merge_debt_seconds(&self) -> f64 {
        self.merge_debt_bytes() as f64 / self.engine.write.pacing.merge_rate.get()
    }
}

/// `part` of `part` and `rest`; 0 of nothing.
fn share(part: u64, rest: u64) -> f64 {
    part as f64 / (part + rest).max(1) as f64
}

/// The durations of each kind of operation and of work with its name, borrowed as the statistics are.
macro_rules! by_name {
    ($stats:ident) => { by_name!($stats: gets multi_gets seeks puts commits syncs flushes merges) };
    ($stats:ident: $($kind:ident)+) => {{
        let Self { $($kind,)+ .. } = $stats;
        [$((stringify!($kind), $kind)),+]
    }};
}

impl Stats {
    /// Returns the durations of each kind of operation and of work, by name. Those of operations are random samples:
    /// [`Durations::sampled_one_in`](crate::Durations::sampled_one_in).
    pub fn times(&self) -> [(&'static str, &TimeStats); 8] {
        by_name!(self)
    }

    /// The durations of the kind `name`: see [`Stats::times`].
    pub(crate) fn times_of(&mut self, name: &str) -> Option<&mut TimeStats> {
        by_name!(self).into_iter().find_map(|(other, times)| (other == name).then_some(times))
    }

    /// Returns the time writers were delayed since the open, summed over all threads.
    pub fn stall_time(&self) -> Duration {
        self.stalled.iter().fold(Duration::ZERO, |sum, stall| sum.saturating_add(stall.time))
    }

    /// Returns how often a writer was stopped on purpose since the open. Waits for the log, the device or a lock are not among them.
    pub fn stalls(&self) -> u64 {
        StallCause::PACED.map(|cause| self.stalled_by(cause).stopped).iter().sum()
    }

    /// Returns how writers were delayed by `cause`.
    pub fn stalled_by(&self, cause: StallCause) -> StallStats {
        self.stalled[cause as usize].clone()
    }

    /// Returns each cause for which writers are delayed, and how they were.
    pub fn stalls_by_cause(&self) -> [(StallCause, &StallStats); StallCause::ALL.len()] {
        StallCause::ALL.map(|cause| (cause, &self.stalled[cause as usize]))
    }
}

/// The tree of `family`.
pub fn tree_of(family: &FamilyCore) -> TreeStats {
    compact::tree(&family.name(), &family.owned_view().version, &family.options)
}

impl Engine {
    /// Statistics of the database at this moment.
    pub fn stats(&self) -> Stats {
        self.stats_with(Memory::breakdown)
    }

    /// The same without [`Stats::memory_allocator_bytes`], for which the allocator holds up other threads.
    pub fn stats_without_heap(&self) -> Stats {
        self.stats_with(Memory::breakdown_without_heap)
    }

    fn stats_with(&self, breakdown: fn(&Memory) -> Breakdown) -> Stats {
        let trees = self.write.all_families().iter().map(|family| tree_of(family)).collect();
        self.count_memory();
        let memory = breakdown(&self.write.memory);
        let cursors = self.reads.snapshots.cursors();
        let cache = self.maintenance.tables.cache.stats();
        Stats::of(&Seen { engine: self, cache, memory, trees, cursors })
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(f, "", self.figures())?;
        for (work, times) in self.times().into_iter().filter(|(_, times)| times.count > 0) {
            writeln!(f, "{work}")?;
            write_lines(f, "  ", times.figures())?;
        }
        for job in &self.jobs {
            writeln!(f, "running: {} of family {:?}", job.kind, job.family)?;
            write_lines(f, "  ", job.figures())?;
        }
        for (cause, held) in self
            .stalls_by_cause()
            .into_iter()
            .filter(|(_, held)| !held.time.is_zero() || held.delayed_now > 0)
        {
            writeln!(f, "writers delayed by {}", cause.name())?;
            write_lines(f, "  ", held.figures())?;
        }
        if let Some(remote) = &self.remote {
            writeln!(f, "object store")?;
            write_lines(f, "  ", remote.figures())?;
        }
        for family in &self.families {
            write!(f, "{family}")?;
        }
        for tree in &self.trees {
            writeln!(f, "tree of family {:?}", tree.family)?;
            write_lines(f, "  ", tree.figures())?;
        }
        Ok(())
    }
}
