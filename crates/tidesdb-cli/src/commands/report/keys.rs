//! Where the tables of a tree are in the space of its keys.
//!
//! A key has no length that could be drawn. Its position is the share of the bytes of the tree that comes before it, estimated from the first and last
//! keys of the tables: the bytes of a table are divided evenly among the keys of that list within it, and the gaps between them. So a stretch is as
//! wide as what it holds, and a position says nothing about the bytes of the key.

use serde_json::{Value, json};
use tidesdb::Comparator;
use tidesdb::inspect::{Layout, LayoutTable};

use super::shown_key;
use crate::text::{count, grouped, size};

/// The right end of the space of keys.
const WIDTH: f64 = 10_000.0;
/// Stretches of the profile of a level.
const STRETCHES: usize = 120;
/// Boxes of a picture, each one table or several that follow each other. A run may have one more.
pub(super) const BOXES_MAX: usize = 600;
/// Sorted runs of a level that are drawn: the newest ones.
pub(super) const RUNS_MAX: usize = 24;
/// Borders of partitions that are drawn.
const PARTITIONS_MAX: usize = 200;

/// The picture of a tree.
pub(super) fn picture(layout: &Layout, with_keys: bool) -> Value {
    let scale = Scale::of(layout);
    let per_box = layout.tables.len().div_ceil(BOXES_MAX).max(1);
    let levels = layout.tree.levels.iter().filter(|level| level.tables > 0).map(|level| {
        let tables: Vec<Placed<'_>> = layout
            .tables
            .iter()
            .filter(|table| table.level == level.level)
            .map(|table| scale.place(table))
            .collect();
        let runs: Vec<&[Placed<'_>]> = tables.chunk_by(|a, b| a.table.run == b.table.run).collect();
        let drawn = runs.iter().take(RUNS_MAX);
        let boxes = |run: &&[Placed<'_>]| run.chunks(per_box).map(|part| of_box(part, with_keys)).collect();
        json!({
            "level": level.level,
            "profile": profile(&tables),
            "runs": drawn.map(boxes).collect::<Vec<Vec<Value>>>(),
            "left_out": runs.len().saturating_sub(RUNS_MAX),
        })
    });
    let levels: Vec<Value> = levels.collect();
    let starts = layout.partition_starts.iter().take(PARTITIONS_MAX).map(|key| scale.begin(key).round());
    let ends = scale.ends().filter(|_| with_keys).map(|ends| ends.map(shown_key));
    json!({
        "levels": levels,
        "partitions": starts.collect::<Vec<f64>>(),
        "per_box": per_box,
        "ends": ends,
    })
}

/// The space of keys of a tree.
struct Scale<'a> {
    order: Comparator,
    /// First and last keys of tables, each once, in order.
    keys: Vec<&'a [u8]>,
    /// Where each key begins and ends, one after the other: one more than twice the keys.
    positions: Vec<f64>,
}

/// A table with its place.
struct Placed<'a> {
    table: &'a LayoutTable,
    from: f64,
    to: f64,
}

impl<'a> Scale<'a> {
    fn of(layout: &'a Layout) -> Self {
        let order = Comparator::by_name(&layout.tree.order).unwrap_or_else(Comparator::bytewise);
        let mut keys: Vec<&[u8]> =
            layout.tables.iter().flat_map(|table| [&*table.first_key, &*table.last_key]).collect();
        keys.sort_by(|a, b| order.compare(a, b));
        keys.dedup_by(|a, b| order.compare(a, b).is_eq());
        let mut scale = Self { order, keys, positions: Vec::new() };
        // What each key, and each gap behind one, has more than the one before.
        let mut more = vec![0.0; scale.keys.len() * 2 + 1];
        for table in &layout.tables {
            let cells = scale.cells(table);
            let share = table.bytes as f64 / cells.clone().count().max(1) as f64;
            more[cells.start] += share;
            more[cells.end] -= share;
        }
        let (mut each, mut sum) = (0.0, 0.0);
        let mut add = |more: &f64| {
            each += more;
            sum += f64::max(each, 0.0); // a sum of fractions may end just below zero
            sum
        };
        scale.positions = std::iter::once(0.0).chain(more.iter().map(&mut add)).collect();
        scale.positions.pop();
        let factor = WIDTH / scale.positions.last().copied().unwrap_or(0.0).max(1.0);
        scale.positions.iter_mut().for_each(|position| *position *= factor);
        scale
    }

    /// Cells from the first key of a table to its last: two for each key, its own and that of the gap behind it.
    fn cells(&self, table: &LayoutTable) -> std::ops::Range<usize> {
        2 * self.at(&table.first_key)..2 * self.at(&table.last_key) + 1
    }

    /// The first of the keys that is not before `key`.
    fn at(&self, key: &[u8]) -> usize {
        self.keys.partition_point(|other| self.order.compare(other, key).is_lt())
    }

    /// Where `key` begins.
    fn begin(&self, key: &[u8]) -> f64 {
        self.positions.get(2 * self.at(key)).copied().unwrap_or(WIDTH)
    }

    fn place<'t>(&self, table: &'t LayoutTable) -> Placed<'t> {
        let cells = self.cells(table);
        let position = |cell: usize| self.positions.get(cell).copied().unwrap_or(WIDTH);
        Placed { table, from: position(cells.start), to: position(cells.end) }
    }

    /// First and last key.
    fn ends(&self) -> Option<[&'a [u8]; 2]> {
        Some([self.keys.first()?, self.keys.last()?])
    }
}

/// A box: where it begins and ends, tombstones of its entries in percent, and what it is.
fn of_box(part: &[Placed<'_>], with_keys: bool) -> Value {
    let sum = |of: fn(&LayoutTable) -> u64| part.iter().map(|placed| of(placed.table)).sum::<u64>();
    let from = part.iter().map(|placed| placed.from).fold(WIDTH, f64::min);
    let to = part.iter().map(|placed| placed.to).fold(0.0, f64::max);
    let (entries, tombstones) = (sum(|t| t.entries), sum(|t| t.tombstones));
    let deleted = tombstones as f64 / entries.max(1) as f64 * 100.0;
    let percent = |position: f64| position / WIDTH * 100.0;
    let mut about = format!(
        "{}, {}, {} entries, {deleted:.1} % deleted, from {:.1} % to {:.1} % of the bytes",
        count(part.len() as u64, "table", "tables"),
        size(sum(|t| t.bytes)),
        grouped(entries),
        percent(from),
        percent(to),
    );
    if let (Some(first), Some(last), true) = (part.first(), part.last(), with_keys) {
        about += &format!(", {} .. {}", shown_key(&first.table.first_key), shown_key(&last.table.last_key));
    }
    json!([from.round(), to.round(), deleted.round(), about])
}

/// How much of the level each stretch of the keys has, in percent of the stretch that has most.
fn profile(tables: &[Placed<'_>]) -> Vec<f64> {
    let wide = WIDTH / STRETCHES as f64;
    let mut bytes = vec![0.0; STRETCHES];
    for Placed { table, from, to } in tables {
        let first = ((from / wide) as usize).min(STRETCHES - 1);
        let last = ((to / wide) as usize).clamp(first, STRETCHES - 1);
        let whole = (to - from).max(f64::MIN_POSITIVE);
        for (at, bytes) in bytes.iter_mut().enumerate().take(last + 1).skip(first) {
            let begin = at as f64 * wide;
            let inside = (to.min(begin + wide) - from.max(begin)).max(0.0);
            let share = if first == last { 1.0 } else { inside / whole };
            *bytes += table.bytes as f64 * share;
        }
    }
    let most = bytes.iter().copied().fold(1.0, f64::max);
    bytes.into_iter().map(|bytes| (bytes / most * 100.0).round()).collect()
}
