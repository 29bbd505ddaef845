//! The tree of a family as figures: what each level holds, what it may hold, and what merges owe.

use super::plan;
use super::policy::{Shape, Spooky, Tree};
use crate::options::LiveOptions;
use crate::sources::TableVersion;
use crate::sst::TableMeta;
use crate::stats::statistics;
use crate::types::{Comparator, SeqNo};
use crate::version::FamilyState;

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
        "True if the order is known here. If not, first and last keys are those in byte order."
        order_is_known: bool = seen.order_is_known();
        "Each level, level 1 first, up to the largest level." levels: Vec<LevelStats> = seen.levels();
    }
    figures {
        Gauge Count largest_level: usize = usize::from(seen.shape.largest), "The largest level of the tree.";
        Gauge Count first_dividing_level: usize = usize::from(seen.shape.top),
            "The first dividing level: levels above it are merged whole, levels from it on in partitions.";
        Gauge Count dividing_level: usize = usize::from(seen.shape.dividing),
            "The last dividing level. Each of them holds at most one sorted run of the same keys.";
        Gauge Count partitions: usize = seen.partitions(),
            "Partitions of the largest level, which are merged one at a time; 0 if the order of the keys is not known.";
        Gauge Count tables: usize = seen.tree.tables().count(), "Tables of all levels.";
        Gauge Bytes bytes: u64 = seen.tree.tables().map(|(_, t)| t.bytes).sum(), "Bytes of all tables.";
        Gauge Bytes debt_bytes: u64 = seen.debts.iter().sum(),
            "Bytes that merges must move to a deeper level now; 0 if the order of the keys is not known.";
    }
}

/// The tree of `version`.
pub fn tree(name: &str, version: &TableVersion, options: &LiveOptions) -> TreeStats {
    let tables = version.levels().iter().zip(1..);
    let tables = tables.flat_map(|(level, n)| level.tables().map(move |t| (n, &**t.meta())));
    SeenTree::stats((name, version.order(), true), tables.collect(), options)
}

/// The tree that the manifest records of a family.
pub fn stored_tree(family: &FamilyState) -> TreeStats {
    let tables = family.tables.iter().map(|table| (table.level, &*table.meta)).collect();
    let options = LiveOptions::new(family.options.clone());
    SeenTree::stats((&family.name, &family.options.comparator, false), tables, &options)
}

struct SeenTree<'a> {
    name: &'a str,
    order: &'a Comparator,
    /// The family is open, so its order is known.
    is_live: bool,
    shape: Shape,
    /// As for the planner.
    tree: &'a Tree<'a>,
    metas: &'a [Vec<&'a TableMeta>],
    debts: Vec<u64>,
}

struct SeenLevel<'a> {
    level: u8,
    order: &'a Comparator,
    tables: &'a [&'a TableMeta],
    capacity: u64,
    debt: u64,
}

impl SeenTree<'_> {
    fn stats(
        (name, order, is_live): (&str, &Comparator, bool),
        tables: Vec<(u8, &TableMeta)>,
        options: &LiveOptions,
    ) -> TreeStats {
        let depth = tables.iter().map(|(level, _)| usize::from(*level)).max().unwrap_or(0);
        let mut metas = vec![Vec::new(); depth];
        for (level, meta) in tables {
            metas[usize::from(level.max(1)) - 1].push(meta);
        }
        for tables in metas.iter_mut().skip(1) {
            tables.sort_by(|a: &&TableMeta, b| order.compare(&a.smallest, &b.smallest));
        }
        let views =
            metas.iter().map(|tables| tables.iter().map(|meta| plan::view(meta, false)).collect()).collect();
        let tree = Tree::new(order, views);
        let settings = plan::settings(options);
        let shape = Shape::of(&tree, &settings);
        metas.resize(usize::from(shape.largest), Vec::new());
        let mut seen = SeenTree {
            name,
            order,
            is_live,
            shape,
            tree: &tree,
            metas: &metas,
            debts: vec![0; shape.largest.into()],
        };
        if seen.order_is_known() {
            let debt = |level| Spooky::debt_bytes(&tree, &settings, level);
            seen.debts = (1..=shape.largest).map(debt).collect();
        }
        TreeStats::of(&seen)
    }

    fn levels(&self) -> Vec<LevelStats> {
        let level = |(tables, level): (&Vec<&TableMeta>, u8)| {
            let capacity = match level {
                level if level == self.shape.largest => self.shape.most(),
                level => self.shape.capacity(level),
            };
            let debt = self.debts[usize::from(level) - 1];
            LevelStats::of(&SeenLevel { level, order: self.order, tables, capacity, debt })
        };
        self.metas.iter().zip(1..).map(level).collect()
    }

    fn order_is_known(&self) -> bool {
        self.is_live || Comparator::by_name(self.order.name()).is_some()
    }

    fn partitions(&self) -> usize {
        if self.order_is_known() { Spooky::partitions(self.tree, &self.shape) } else { 0 }
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
