//! Statistics of the database and its families.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Db;
use crate::family::{FamilyCore, Metric};
use crate::remote::RemoteStats;
use crate::shared::HeldUp;
use crate::sst::TableMeta;
use crate::types::SeqNo;
use crate::vlog::VlogPointer;

/// Statistics of one family.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FamilyStats {
    /// Name of the family.
    pub name: String,
    /// Bytes of all its memtables.
    pub memtable_bytes: u64,
    /// Immutable memtables not flushed yet.
    pub immutables: usize,
    /// Tables in each level, level 1 first.
    pub level_tables: Vec<usize>,
    /// Bytes of tables in each level, level 1 first.
    pub level_bytes: Vec<u64>,
    /// Bytes in value logs that the tables of each level refer to, level 1 first.
    pub level_value_log_bytes: Vec<u64>,
    /// Entries of the tables of each level, level 1 first, old versions and tombstones included.
    pub level_entries: Vec<u64>,
    /// Tombstones in the tables of each level, level 1 first.
    pub level_tombstones: Vec<u64>,
    /// Entries in all memtables, old versions and tombstones included.
    pub memtable_entries: u64,
    /// Bytes of the keys of all entries in tables, before compression.
    pub key_bytes: u64,
    /// Bytes of the values of all entries in tables, before compression. For values in value logs, their size there.
    pub value_bytes: u64,
    /// Whether an immutable memtable is queued or being flushed.
    pub flushing: bool,
    /// Whether tables of the family are being merged.
    pub compacting: bool,
    /// Entries in all tables, old versions and tombstones included.
    pub table_entries: u64,
    /// Tombstones in all tables.
    pub tombstones: u64,
    /// Largest share of tombstones among the entries of one table, from 0 to 1.
    pub tombstone_share_max: f64,
    /// Level of that table, 1 or more; 0 if no table has a tombstone.
    pub tombstone_share_level: usize,
    /// Range tombstones in memtables and over tables.
    pub range_tombstones: u64,
    /// Bytes of filters and indexes that are always in memory. Cached ones count in `cache_bytes` instead.
    pub resident_bytes: u64,
    /// Bytes of keys and values that users wrote since the open.
    pub user_bytes: u64,
    /// Bytes of tables written by flushes since the open.
    pub flush_bytes: u64,
    /// Flushes since the open.
    pub flushes: u64,
    /// Bytes of tables read by compactions since the open.
    pub compaction_read: u64,
    /// Bytes of tables written by compactions since the open.
    pub compaction_written: u64,
    /// Compactions since the open.
    pub compactions: u64,
    /// Entries that flushes and compactions dropped by garbage collection rules since the open.
    pub dropped: u64,
}

impl FamilyStats {
    pub(super) fn of(core: &FamilyCore) -> Self {
        let view = core.owned_view();
        let levels = view.version.levels();
        let tables = || view.version.tables();
        let by_level = |of: fn(&TableMeta) -> u64| {
            levels.iter().map(|l| l.tables().iter().map(|t| of(t.meta())).sum()).collect()
        };
        let shares = (1..)
            .zip(levels)
            .flat_map(|(level, l)| l.tables().iter().map(move |t| (tombstone_share(t.meta()), level)));
        let densest = shares.filter(|(share, _)| *share > 0.0).max_by(|a, b| a.0.total_cmp(&b.0));
        Self {
            name: core.name().to_string(),
            memtable_bytes: view.memtables().map(|m| m.bytes() as u64).sum(),
            immutables: view.immutables.len(),
            level_tables: levels.iter().map(|l| l.len()).collect(),
            level_bytes: levels.iter().map(|l| l.bytes()).collect(),
            level_value_log_bytes: by_level(value_log_bytes),
            level_entries: by_level(|meta| meta.entries),
            level_tombstones: by_level(|meta| meta.tombstones),
            memtable_entries: view.memtables().map(|m| m.map.entries()).sum(),
            key_bytes: tables().map(|t| t.meta().raw_key_bytes).sum(),
            value_bytes: tables().map(|t| value_bytes(t.meta())).sum(),
            flushing: !view.immutables.is_empty(),
            compacting: core.merging.load(Ordering::Relaxed),
            table_entries: tables().map(|t| t.meta().entries).sum(),
            tombstones: tables().map(|t| t.meta().tombstones).sum(),
            tombstone_share_max: densest.map_or(0.0, |(share, _)| share),
            tombstone_share_level: densest.map_or(0, |(_, level)| level),
            range_tombstones: (view.memtables().map(|m| m.ranges.to_owned().len()).sum::<usize>()
                + view.version.ranges().len()) as u64,
            resident_bytes: tables().map(|t| t.table().resident_bytes()).sum(),
            user_bytes: core.total(Metric::UserBytes),
            flush_bytes: core.total(Metric::FlushBytes),
            flushes: core.total(Metric::Flushes),
            compaction_read: core.total(Metric::CompactionRead),
            compaction_written: core.total(Metric::CompactionWritten),
            compactions: core.total(Metric::Compactions),
            dropped: core.total(Metric::Dropped),
        }
    }
}

/// Bytes of values in the table itself and in the value logs it refers to.
fn value_bytes(meta: &TableMeta) -> u64 {
    let pointers = meta.vlog_refs.iter().map(|r| r.count).sum::<u64>() * VlogPointer::BYTES as u64;
    meta.raw_value_bytes.saturating_sub(pointers) + value_log_bytes(meta)
}

fn value_log_bytes(meta: &TableMeta) -> u64 {
    meta.vlog_refs.iter().map(|r| r.bytes).sum()
}

fn tombstone_share(meta: &TableMeta) -> f64 {
    meta.tombstones as f64 / meta.entries.max(1) as f64
}

/// Statistics of the whole database. Its `Display` is for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Newest visible sequence number.
    pub visible_seq: SeqNo,
    /// First sequence number that is not durable yet.
    pub durable_seq: SeqNo,
    /// Bytes written to the log since the open.
    pub wal_bytes: u64,
    /// Number of the current log segment; it grows for the life of the database.
    pub wal_segment: u64,
    /// Bytes of log that a crash now would make the next open replay.
    pub wal_live_bytes: u64,
    /// Blocks, and partitions of filters and indexes, found in the cache.
    pub cache_hits: u64,
    /// Cache lookups that missed.
    pub cache_misses: u64,
    /// Bytes the cache holds.
    pub cache_bytes: u64,
    /// Parts of blocks in the cache.
    pub cache_entries: u64,
    /// Table reads by lookups that missed the cache. Reads through memory maps are not counted.
    pub lookup_reads: u64,
    /// Bytes read by these reads.
    pub lookup_read_bytes: u64,
    /// Always 1; exists for the C ABI only.
    pub cache_shards: u64,
    /// Live snapshots.
    pub snapshots: usize,
    /// Background jobs queued or running.
    pub jobs_pending: usize,
    /// Writers delayed since the open because immutable memtables were not flushed yet.
    pub stalled_by_memtables: StallStats,
    /// Writers delayed since the open because a family had too many tables in level 1.
    pub stalled_by_tables: StallStats,
    /// The object store, if there is one.
    pub remote: Option<RemoteStats>,
    /// Statistics of each family.
    pub families: Vec<FamilyStats>,
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

/// Delays of writers for one cause since the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallStats {
    /// Total time, summed over all threads.
    pub time: Duration,
    /// Commits that were slowed down.
    pub slowed: u64,
    /// Commits that were stopped.
    pub stopped: u64,
}

impl StallStats {
    fn of(held: &HeldUp) -> Self {
        Self {
            time: Duration::from_nanos(held.nanos.load(Ordering::Relaxed)),
            slowed: held.slowed.load(Ordering::Relaxed),
            stopped: held.stopped.load(Ordering::Relaxed),
        }
    }
}

impl Db {
    /// Returns statistics of the database.
    pub fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        let cache = shared.tables.cache.stats();
        Stats {
            visible_seq: shared.reads.visible(),
            durable_seq: shared.write.log.sequencer().durable(),
            wal_bytes: shared.write.log.bytes_written(),
            wal_segment: shared.write.log.segment_of(shared.reads.visible()).0,
            wal_live_bytes: shared.write.log.bytes_since(shared.write.log_needed_from()),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_bytes: cache.used_bytes,
            cache_entries: cache.entries,
            lookup_reads: shared.tables.reads.reads(),
            lookup_read_bytes: shared.tables.reads.bytes(),
            cache_shards: 1,
            snapshots: shared.reads.snapshots.count(),
            jobs_pending: shared.write.jobs.pending(),
            stalled_by_memtables: StallStats::of(&shared.write.debt.by_memtables),
            stalled_by_tables: StallStats::of(&shared.write.debt.by_tables),
            remote: shared.remote.as_ref().map(|remote| remote.stats()),
            families: shared.write.all_families().iter().map(|f| FamilyStats::of(f)).collect(),
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "visible sequence   {}", self.visible_seq)?;
        writeln!(f, "durable below      {}", self.durable_seq)?;
        writeln!(f, "log                {} B written, {} B live", self.wal_bytes, self.wal_live_bytes)?;
        let lookups = (self.cache_hits + self.cache_misses).max(1);
        writeln!(
            f,
            "block cache        {} B, {:.1} % of {} lookups hit",
            self.cache_bytes,
            self.cache_hits as f64 * 100.0 / lookups as f64,
            self.cache_hits + self.cache_misses
        )?;
        writeln!(f, "lookups read       {} B in {} reads", self.lookup_read_bytes, self.lookup_reads)?;
        writeln!(f, "snapshots          {}", self.snapshots)?;
        for (cause, held) in [("memtables", self.stalled_by_memtables), ("tables   ", self.stalled_by_tables)]
        {
            let StallStats { time, slowed, stopped } = held;
            writeln!(f, "stalls, {cause}  {time:?}, {slowed} slowed, {stopped} stopped")?;
        }
        for family in &self.families {
            writeln!(f, "family {:?}", family.name)?;
            writeln!(f, "  memtables        {} B, {} immutable", family.memtable_bytes, family.immutables)?;
            for (i, (tables, bytes)) in family.level_tables.iter().zip(&family.level_bytes).enumerate() {
                writeln!(f, "  level {}          {tables} tables, {bytes} B", i + 1)?;
            }
            writeln!(
                f,
                "  entries          {} in tables, {} tombstones",
                family.table_entries, family.tombstones
            )?;
            writeln!(f, "  filters, indexes {} B", family.resident_bytes)?;
            writeln!(
                f,
                "  written          {} B by users, {} B by {} flushes, {} B by {} compactions",
                family.user_bytes,
                family.flush_bytes,
                family.flushes,
                family.compaction_written,
                family.compactions
            )?;
        }
        Ok(())
    }
}
