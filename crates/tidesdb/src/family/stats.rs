//! Statistics of one family. A new counter is one line under `counters`, and calls of [`FamilyCore::count`].

use std::fmt;
use std::sync::Arc;

use tidesdb_sync::Mutex;

use super::{FamilyCore, ReadView};
use crate::sources::TableVersion;
use crate::sst::TableMeta;
use crate::stats::{statistics, write_lines};
use crate::vlog::VlogPointer;

statistics! {
    /// Figures about one family. Counters count since the open. Its `Display` is for people: it leaves out figures that are 0.
    #[derive(Clone, Debug, Default)]
    FamilyStats of seen: &Seen<'_>;

    plain {
        "Its name." name: String = seen.core.name().to_string();
    }
    figures {
        Gauge Bytes memtable_bytes: u64 = seen.view.memtables().map(|m| m.bytes() as u64).sum(),
            "Bytes of all memtables.", c "memtable_size";
        Gauge Bytes active_memtable_bytes: u64 = seen.view.active.as_ref().map_or(0, |m| m.bytes() as u64),
            "Bytes of the memtable that receives writes.";
        Gauge Count memtable_entries: u64 = seen.view.memtables().map(|m| m.entries()).sum(),
            "Entries in all memtables, old versions and tombstones included.";
        Gauge Count immutables: usize = seen.view.immutables.len(),
            "Memtables waiting to be flushed.";
        Gauge Count flushing: bool = !seen.view.immutables.is_empty(),
            "Whether a memtable waits to be flushed, or is being flushed.";
        Gauge Count compacting: bool = !seen.core.claims.are_none(),
            "Whether tables of the family are being merged.";
        Gauge Count level_tables: Vec<usize> = seen.by_level(|_| 1).into_iter().map(|n| n as usize).collect(),
            "Tables in each level, level 1 first.";
        Gauge Bytes level_bytes: Vec<u64> = seen.by_level(|meta| meta.file_bytes),
            "Bytes of tables in each level, level 1 first.";
        Gauge Bytes level_value_log_bytes: Vec<u64> = seen.by_level(value_log_bytes),
            "Bytes that the values of each level take in value logs, level 1 first.";
        Gauge Count level_entries: Vec<u64> = seen.by_level(|meta| meta.entries),
            "Entries of the tables of each level, level 1 first, old versions and tombstones included.";
        Gauge Count level_tombstones: Vec<u64> = seen.by_level(|meta| meta.tombstones),
            "Tombstones in the tables of each level, level 1 first.";
        Gauge Bytes key_bytes: u64 = seen.sum(|meta| meta.raw_key_bytes),
            "Bytes of the keys of all entries in tables, before compression.";
        Gauge Bytes value_bytes: u64 = seen.sum(value_bytes),
            "Bytes of the values of all entries in tables, before compression; of those in value logs, the bytes they take there.";
        Gauge Count table_entries: u64 = seen.sum(|meta| meta.entries),
            "Entries in all tables, old versions and tombstones included.";
        Gauge Count tombstones: u64 = seen.sum(|meta| meta.tombstones),
            "Tombstones in all tables.", c "total_tombstones";
        Gauge Share tombstone_share_max: f64 = seen.densest().0,
            "Largest share of tombstones among the entries of one table, from 0 to 1.";
        Gauge Count tombstone_share_level: usize = seen.densest().1,
            "Level of that table, 1 or more; 0 if no table has a tombstone.";
        Gauge Count value_log_files: usize = seen.files().count(),
            "Value logs.";
        Gauge Bytes value_log_file_bytes: u64 = seen.files().map(|(bytes, _)| bytes).sum(),
            "Bytes of all value logs on disk, without those that only a reader still uses.";
        Gauge Bytes value_log_live_bytes: u64 = seen.files().map(|(_, live)| live).sum(),
            "Bytes of value logs that tables refer to. Values whose commits are only in memtables are not counted.";
        Gauge Bytes value_log_garbage_bytes: u64 = seen.files().map(|(bytes, live)| bytes.saturating_sub(live)).sum(),
            "The rest of the bytes of value logs: overwritten and deleted values, and those of memtables.";
        Gauge Count range_tombstones: u64 = seen.range_tombstones(),
            "Range tombstones, in memtables and in force over tables.";
        Gauge Bytes resident_bytes: u64 = seen.version().tables().map(|t| t.table().resident_bytes()).sum(),
            "Bytes of filters and indexes that stay in memory. Those that the cache holds are among `cache_bytes`.";
        Counter Bytes merged_bytes: Vec<u64> = seen.core.merged.now(),
            "Bytes that merges wrote into each level, level 1 first.";
        Gauge Ratio write_amplification: f64 = seen.write_amplification(),
            "Bytes written by flushes, merges and to the value log, for each byte that users wrote; the log is not included.";
    }
    counters Metric {
        Bytes user_bytes UserBytes, "Bytes of keys and values that users wrote.", c "user_bytes_written";
        Bytes flush_bytes FlushBytes, "Bytes of tables that flushes wrote.", c "flush_bytes_written";
        Count flushes Flushes, "Flushes.", c "flush_count";
        Bytes compaction_read CompactionRead, "Bytes of tables that compactions read.", c "compaction_bytes_read";
        Bytes compaction_written CompactionWritten, "Bytes of tables that compactions wrote.",
            c "compaction_bytes_written";
        Count compactions Compactions, "Compactions.", c "compaction_count";
        Count merge_parts MergeParts, "Key ranges that merges were divided into, so that several threads could work on one merge.";
        Count moves Moves, "Compactions that moved tables to another level without writing them again.";
        Count merges_level_1 MergesLevel1, "Merges because of the number or bytes of the tables in level 1.";
        Count merges_capacity MergesCapacity, "Merges because a level held more than it may, or for another number of levels.";
        Count merges_tombstones MergesTombstones, "Merges because of tombstones of keys or of ranges.";
        Count merges_expired MergesExpired, "Merges because rows had expired.";
        Count merges_probes MergesProbes, "Merges because reads looked into sorted runs that held nothing for them.";
        Count merges_values MergesValues, "Merges that moved values out of value logs.";
        Count merges_idle MergesIdle, "Merges while no commits came, of old versions above the largest level.";
        Count merges_manual MergesManual, "Merges that a user asked for.";
        Bytes value_log_written ValueLogWritten, "Bytes of values that commits wrote to the value log.";
        Count entries_written EntriesWritten, "Entries that flushes and merges wrote.";
        Count older_versions OlderVersions, "Of these, older versions of their keys: a snapshot, a transaction, a cursor or `history_bytes` keeps them.";
        Count combined Combined, "Reads of one key that combined operands of a merge operator.";
        Count operands_combined OperandsCombined, "Operands that these reads combined.";
        Count dropped Dropped, "Entries that compactions and flushes dropped by rule.";
        Bytes value_bytes_moved ValuesMoved, "Bytes of values that merges moved out of value logs that were mostly garbage.";
        Count value_files_removed ValueFilesRemoved, "Value logs that were removed because no value in them was live.";
        Count deletes Deletes,
            "Tombstones of single keys that were written, or a few more: those of a batch count for each of its families.";
        Count conflicts Conflicts, "Commits that were refused because another commit had changed a key of the family.";
    }
}

impl FamilyCore {
    /// Figures about the family.
    pub fn stats(&self) -> FamilyStats {
        FamilyStats::of(&Seen { core: self, view: &self.owned_view() })
    }
}

/// A counter for each level.
#[derive(Debug, Default)]
pub struct LevelCounters(Mutex<Vec<u64>>);

impl LevelCounters {
    /// Adds `n` to the counter of `level`.
    pub fn add(&self, level: u8, n: u64) {
        let mut counters = self.0.lock();
        let at = usize::from(level.max(1)) - 1;
        if counters.len() <= at {
            counters.resize(at + 1, 0);
        }
        counters[at] += n;
    }

    /// The counters, level 1 first, up to the largest level that was counted.
    pub fn now(&self) -> Vec<u64> {
        self.0.lock().clone()
    }
}

/// A family at one moment.
struct Seen<'a> {
    core: &'a FamilyCore,
    view: &'a ReadView,
}

impl fmt::Display for FamilyStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "family {:?}", self.name)?;
        write_lines(f, "  ", self.figures())
    }
}

impl Seen<'_> {
    fn version(&self) -> &Arc<TableVersion> {
        &self.view.version
    }

    fn total(&self, metric: Metric) -> u64 {
        self.core.total(metric)
    }

    fn sum(&self, of: fn(&TableMeta) -> u64) -> u64 {
        self.version().tables().map(|t| of(t.meta())).sum()
    }

    fn by_level(&self, of: fn(&TableMeta) -> u64) -> Vec<u64> {
        let levels = 1..=self.version().depth();
        levels.map(|level| self.version().level(level).map(|t| of(t.meta())).sum()).collect()
    }

    /// Length and live bytes of each value log.
    fn files(&self) -> impl Iterator<Item = (u64, u64)> {
        let named = self.version().vlogs();
        let open = self.core.vlog.open.infos();
        let length = |id| open.iter().find(|f| f.id == id).map_or(0, |f| f.bytes);
        let of_named =
            named.iter().map(|(id, v)| (if v.sealed_at.is_some() { v.bytes } else { length(*id) }, v.used()));
        let unnamed = open.iter().filter(|f| !named.contains_key(&f.id)).map(|f| (f.bytes, 0));
        of_named.chain(unnamed).collect::<Vec<_>>().into_iter()
    }

    /// The largest share of tombstones in a table, and the level of that table.
    fn densest(&self) -> (f64, usize) {
        let runs = self.version().runs().iter();
        let shares =
            runs.flat_map(|run| run.tables().map(|t| (tombstone_share(t.meta()), usize::from(run.level()))));
        shares.filter(|(share, _)| *share > 0.0).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
    }

    fn write_amplification(&self) -> f64 {
        let written = [Metric::FlushBytes, Metric::CompactionWritten, Metric::ValueLogWritten];
        let written: u64 = written.into_iter().map(|metric| self.total(metric)).sum();
        written as f64 / self.total(Metric::UserBytes).max(1) as f64
    }

    fn range_tombstones(&self) -> u64 {
        let in_memory: usize = self.view.memtables().map(|m| m.ranges.to_owned().len()).sum();
        (in_memory + self.version().ranges().len()) as u64
    }
}

/// Values in the table itself, and what it refers to in value logs.
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
