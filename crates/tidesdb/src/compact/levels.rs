//! The tree of a family as figures: what each level holds, what it may hold, and the debt of merges.

use std::sync::Arc;

use super::plan;
use super::policy::{Planner, PolicySettings, Run, Tree};
use crate::Result;
use crate::options::LiveOptions;
use crate::sources::TableVersion;
use crate::sst::TableMeta;
use crate::stats::statistics;
use crate::types::{Comparator, SeqNo};
use crate::version::{FamilyState, FamilyVersion};

statistics! {
    /// One level of a tree.
    #[derive(Clone, Debug, Default)]
    LevelStats of seen: &SeenLevel<'_>;

    plain {
        "First key of the level; empty without tables." first_key: Vec<u8> = seen.key(|m| &m.smallest, false);
        "Last key of the level; empty without tables." last_key: Vec<u8> = seen.key(|m| &m.largest, true);
    }
    figures {
        Gauge Count level: usize = usize::from(seen.level), "Number of the level, 1 for flushed tables.";
        Gauge Count runs: usize = seen.runs, "Sorted runs: a seek takes a position in each. Each table of level 1 is one.";
        Gauge Count tables: usize = seen.tables.len(), "Tables.";
        Gauge Bytes bytes: u64 = seen.bytes(), "Bytes of the tables.";
        Gauge Bytes capacity_bytes: u64 = seen.capacity,
            "Bytes that the level may hold; for the largest level, bytes above which the tree gets another level.";
        Gauge Share fill: f64 = seen.bytes() as f64 / seen.capacity.max(1) as f64,
            "Bytes divided by capacity; more than 1 if the level is over its capacity.";
        Gauge Bytes debt_bytes: u64 = seen.debt, "Bytes that merges must move to a deeper level now; 0 if the order of the keys is not known.";
        Gauge Bytes value_log_bytes: u64 = seen.sum(|m| m.vlog_refs.iter().map(|r| r.bytes).sum()),
            "Bytes that the values of the level take in value logs.";
        Gauge Count entries: u64 = seen.sum(|m| m.entries), "Entries, old versions and tombstones included.";
        Gauge Count tombstones: u64 = seen.sum(|m| m.tombstones), "Entries that are tombstones.";
        Gauge Count expiring_tables: u64 = seen.sum(|m| u64::from(m.expires().is_some())),
            "Tables all of whose rows expire.";
        Gauge Count oldest_seq: SeqNo = seen.tables.iter().map(|m| m.min_seq).min().unwrap_or(0),
            "Sequence number of the oldest entry; 0 if no reader needs to know it, and without tables.";
    }
}

statistics! {
    /// The tree of a family.
    #[derive(Clone, Debug, Default)]
    TreeStats of seen: &SeenTree<'_>;

    plain {
        "Name of the family." family: String = seen.name.to_owned();
        "Name of the order of its keys." order: String = seen.order.name().to_owned();
        "True if the order is known here. If not, first and last keys and the number of runs are those in byte order."
        order_is_known: bool = seen.order_is_known;
        "Each level, level 1 first, up to the largest level." levels: Vec<LevelStats> = seen.levels();
    }
    figures {
        Gauge Count largest_level: usize = usize::from(seen.planner.shape().largest), "The largest level of the tree.";
        Gauge Count tiered_level: usize = usize::from(seen.planner.shape().tiered),
            "The level with several sorted runs: levels above it are merged whole, levels from it on in partitions.";
        Gauge Count partitions: usize = seen.partitions(),
            "Partitions of the largest level, which are merged one at a time; 0 if the order of the keys is not known.";
        Gauge Count tables: usize = seen.runs.iter().map(|(_, tables)| tables.len()).sum(), "Tables of all levels.";
        Gauge Bytes bytes: u64 = seen.runs.iter().flat_map(|(_, tables)| tables).map(|m| m.file_bytes).sum(), "Bytes of all tables.";
        Gauge Bytes debt_bytes: u64 = seen.debts(),
            "Bytes that merges must move to a deeper level now; 0 if the order of the keys is not known.";
    }
}

/// The tree of a family, and where its tables are: see [`crate::inspect::layouts`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Layout {
    /// The tree.
    pub tree: TreeStats,
    /// Its tables: level by level, in each run by run, newest data first, and in a run by key.
    pub tables: Vec<LayoutTable>,
    /// First keys of the partitions of the largest level, without the first partition; empty if the order of the keys is not known.
    pub partition_starts: Vec<Vec<u8>>,
}

/// A table in a tree.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LayoutTable {
    /// Its level, 1 for flushed tables.
    pub level: usize,
    /// Sorted run of the level, 1 for the newest. Each table of level 1 is one.
    pub run: usize,
    /// Bytes of the file.
    pub bytes: u64,
    /// Entries, old versions and tombstones included.
    pub entries: u64,
    /// Entries that are tombstones.
    pub tombstones: u64,
    /// First key.
    pub first_key: Vec<u8>,
    /// Last key.
    pub last_key: Vec<u8>,
}

/// The tree of `version`.
pub fn tree(name: &str, version: &TableVersion, options: &LiveOptions) -> TreeStats {
    with_tree(name, version, true, options, TreeStats::of)
}

/// The tree that the manifest records of a family.
///
/// # Errors
/// `Internal`, as for any version.
pub fn stored_tree(family: &Arc<FamilyState>) -> Result<TreeStats> {
    of_stored(family, TreeStats::of)
}

/// The tree that the manifest records of a family, with its tables.
///
/// # Errors
/// `Internal`, as for any version.
pub fn stored_layout(family: &Arc<FamilyState>) -> Result<Layout> {
    of_stored(family, |seen| Layout {
        tree: TreeStats::of(seen),
        tables: seen.placed(),
        partition_starts: seen.partition_starts(),
    })
}

fn of_stored<R>(family: &Arc<FamilyState>, look: impl FnOnce(&SeenTree<'_>) -> R) -> Result<R> {
    let version = FamilyVersion::described(family)?;
    Ok(with_tree(&family.name, &version, false, &LiveOptions::new(family.options.clone()), look))
}

/// Returns what `look` sees of the tree of `version`. `is_live` if the family is open, so that its order is known.
fn with_tree<T, R>(
    name: &str,
    version: &FamilyVersion<T>,
    is_live: bool,
    options: &LiveOptions,
    look: impl FnOnce(&SeenTree<'_>) -> R,
) -> R {
    let order = version.order();
    let runs = version.runs().iter();
    let runs = runs.map(|run| (run.level(), run.tables().map(|table| &**table.meta()).collect()));
    let runs: Vec<(u8, Vec<&TableMeta>)> = runs.collect();
    let views = runs.iter().map(|(level, metas)| Run {
        level: *level,
        tables: metas.iter().map(|meta| plan::view(meta, false)).collect(),
    });
    let (tree, settings) = (Tree::new(order, views.collect()), PolicySettings::of(&options.now()));
    let planner = Planner::new(&tree, &settings);
    let order_is_known = is_live || Comparator::by_name(order.name()).is_some();
    look(&SeenTree { name, order, order_is_known, planner, runs: &runs })
}

struct SeenTree<'a> {
    name: &'a str,
    order: &'a Comparator,
    order_is_known: bool,
    planner: Planner<'a, 'a>,
    runs: &'a [(u8, Vec<&'a TableMeta>)],
}

struct SeenLevel<'a> {
    level: u8,
    order: &'a Comparator,
    runs: usize,
    tables: Vec<&'a TableMeta>,
    capacity: u64,
    debt: u64,
}

impl SeenTree<'_> {
    fn levels(&self) -> Vec<LevelStats> {
        let shape = self.planner.shape();
        let level = |level: u8| {
            let runs = self.runs.iter().filter(|run| run.0 == level);
            let tables: Vec<_> = runs.clone().flat_map(|run| run.1.iter().copied()).collect();
            LevelStats::of(&SeenLevel {
                level,
                order: self.order,
                runs: if level == 1 { tables.len() } else { runs.count() },
                tables,
                capacity: if level == shape.largest { shape.holds(level) } else { shape.capacity(level) },
                debt: self.debt(level),
            })
        };
        (1..=shape.largest).map(level).collect()
    }

    fn debt(&self, level: u8) -> u64 {
        if self.order_is_known { self.planner.debt_bytes(level) } else { 0 }
    }

    fn debts(&self) -> u64 {
        (1..=self.planner.shape().largest).map(|level| self.debt(level)).sum()
    }

    fn partitions(&self) -> usize {
        if self.order_is_known { self.planner.partition_count() } else { 0 }
    }

    fn partition_starts(&self) -> Vec<Vec<u8>> {
        let starts = if self.order_is_known { self.planner.partition_starts() } else { Vec::new() };
        starts.into_iter().map(<[u8]>::to_vec).collect()
    }

    fn placed(&self) -> Vec<LayoutTable> {
        let mut out: Vec<LayoutTable> = Vec::new();
        let mut before = (0, 0); // level and run of the last table
        for (level, tables) in self.runs {
            let level = usize::from(*level);
            let first = if before.0 == level { before.1 + 1 } else { 1 };
            for (n, meta) in tables.iter().enumerate() {
                let run = if level == 1 { first + n } else { first };
                before = (level, run);
                out.push(LayoutTable {
                    level,
                    run,
                    bytes: meta.file_bytes,
                    entries: meta.entries,
                    tombstones: meta.tombstones,
                    first_key: meta.smallest.clone(),
                    last_key: meta.largest.clone(),
                });
            }
        }
        out
    }
}

impl SeenLevel<'_> {
    fn sum(&self, of: fn(&TableMeta) -> u64) -> u64 {
        self.tables.iter().map(|meta| of(meta)).sum()
    }

    fn bytes(&self) -> u64 {
        self.sum(|meta| meta.file_bytes)
    }

    /// The largest of these keys, or the smallest.
    fn key(&self, of: fn(&TableMeta) -> &Vec<u8>, largest: bool) -> Vec<u8> {
        let keys = self.tables.iter().map(|meta| of(meta));
        let found = if largest {
            keys.max_by(|a, b| self.order.compare(a, b))
        } else {
            keys.min_by(|a, b| self.order.compare(a, b))
        };
        found.cloned().unwrap_or_default()
    }
}
