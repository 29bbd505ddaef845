//! What a reader remembers of dead keys: they are passed once, and no live key is passed with them.

use super::*;
use crate::merge::{HidingCursor, MergeCursor, VisibleCursor};
use crate::ranges::{Hidden, RangeSet, RangeTombstone};

const NOW: u64 = 100;
const KEYS: usize = 100;

fn key(n: usize) -> Vec<u8> {
    format!("{n:05}").into_bytes()
}

fn range(seq: SeqNo, start: &[u8], end: &[u8]) -> RangeTombstone {
    RangeTombstone::new(seq, Some(start.into()), Some(end.into()))
}

/// Versions of [`KEYS`] keys in layers, newest first, and range tombstones between them. Most keys are dead to a reader at `reader`.
struct World {
    order: Comparator,
    reader: SeqNo,
    layers: Vec<Vec<Version>>,
    ranges: Vec<RangeTombstone>,
}

impl World {
    fn random(rng: &mut Rng) -> Self {
        let order = if rng.one_in(8) { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        let (mut seq, mut layers, mut ranges) = (0, Vec::new(), Vec::new());
        let lives = 1 + rng.below(60);
        for layer in 0..1 + rng.below(4) {
            let mut run = Vec::new();
            for n in 0..KEYS {
                for _ in 0..[0, 1, 1, 1, 2][rng.below(5)] {
                    seq += 1;
                    let kind = if layer > 0 && !rng.one_in(lives) { Kind::Delete } else { Kind::Put };
                    let expiry = [0, 0, 0, NOW, NOW + 1][rng.below(5)];
                    let expiry = if kind == Kind::Put { expiry } else { 0 };
                    run.push(Version { expiry, ..version(&key(n), seq, kind) });
                }
            }
            layers.insert(0, run);
            for _ in 0..rng.below(3) {
                seq += 1;
                let mut ends = [key(rng.below(KEYS)), key(rng.below(KEYS))];
                ends.sort_by(|a, b| order.compare(a, b));
                ranges.push(range(seq, &ends[0], &ends[1]));
            }
        }
        let reader = if rng.one_in(2) { seq } else { rng.below(seq as usize + 1) as u64 };
        Self { order, reader, layers, ranges }
    }

    fn cursor(&self) -> VisibleCursor<HidingCursor<MergeCursor<VecCursor>>> {
        let ranges = RangeSet::new(&self.order, self.ranges.iter().cloned().map(Arc::new).collect());
        let layers = self.layers.iter().map(|run| VecCursor::sorted(&self.order, run.clone())).collect();
        let merged = MergeCursor::newest_first(self.order.clone(), layers);
        let shown = HidingCursor::new(merged, self.order.clone(), Hidden::new(vec![ranges], self.reader));
        VisibleCursor::new(shown, self.order.clone(), self.reader, NOW)
    }

    /// Adds versions that the reader does not see.
    fn grow(&mut self, rng: &mut Rng) {
        let seq = 1 << 40;
        let run = (0..KEYS).filter(|_| rng.one_in(2)).map(|n| put(&key(n), seq)).collect();
        self.layers.insert(0, run);
    }
}

/// Moves both cursors in the same way, and compares what they show.
fn walk<C: EntryCursor, D: EntryCursor>(rng: &mut Rng, cursor: &mut C, model: &mut D) {
    for _ in 0..60 {
        let target = key(rng.below(KEYS));
        match (rng.below(10), cursor.valid()) {
            (0, _) => (cursor.seek_to_first().unwrap(), model.seek_to_first().unwrap()),
            (1, _) => (cursor.seek_to_last().unwrap(), model.seek_to_last().unwrap()),
            (2..=3, _) | (4.., false) => (cursor.seek(&target).unwrap(), model.seek(&target).unwrap()),
            (4..=5, _) => (cursor.seek_for_prev(&target).unwrap(), model.seek_for_prev(&target).unwrap()),
            (6..=7, _) => (cursor.next().unwrap(), model.next().unwrap()),
            _ => (cursor.prev().unwrap(), model.prev().unwrap()),
        };
        assert_eq!(entry(cursor), entry(model));
    }
}

#[test]
fn a_cursor_that_remembers_shows_what_another_one_shows() {
    with_seeds(3000, |rng| {
        let mut world = World::random(rng);
        let mut cursor = world.cursor();
        cursor.begin_to_remember();
        walk(rng, &mut cursor, &mut world.cursor());
        // It moves to other tables, with versions that are newer than the reader, and goes on with what it remembers.
        world.grow(rng);
        let mut moved = world.cursor();
        moved.remember(&mut cursor);
        let mut scope = Scope::default();
        let (low, high) = (key(rng.below(KEYS / 2)), key(KEYS / 2 + rng.below(KEYS / 2)));
        let (low, high) = if world.order.is_bytewise() { (low, high) } else { (high, low) };
        scope.set_range(&world.order, std::ops::Bound::Included(&low), std::ops::Bound::Excluded(&high));
        let mut model = world.cursor();
        if rng.one_in(2) {
            moved.set_scope(&scope);
            model.set_scope(&scope);
        }
        walk(rng, &mut moved, &mut model);
    });
}

/// Steps of `seeks` to random keys among `dead` ones, with a row at each end.
fn steps_of(dead: &[Version], reader: SeqNo, ranges: &[RangeTombstone], seeks: usize) -> usize {
    let order = Comparator::bytewise();
    let mut entries = dead.to_vec();
    entries.extend([put(b"!", 1), put(b"~", 1)]);
    let ranges = RangeSet::new(&order, ranges.iter().cloned().map(Arc::new).collect());
    let source = VecCursor::sorted(&order, entries);
    let shown = HidingCursor::new(source, order.clone(), Hidden::new(vec![ranges], reader));
    let mut cursor = VisibleCursor::new(shown, order, reader, NOW);
    cursor.begin_to_remember();
    let mut rng = Rng(3);
    for n in 0..seeks {
        let target = key(rng.below(dead.len()));
        if n % 2 == 0 { cursor.seek(&target) } else { cursor.seek_for_prev(&target) }.unwrap();
        assert_eq!(cursor.key(), if n % 2 == 0 { b"~" } else { b"!" });
    }
    let bytes = cursor.remembered_bytes();
    assert!(bytes > 0 && bytes < 1 << 10, "{bytes}");
    cursor.inner.inner.steps
}

#[test]
fn a_stretch_of_dead_keys_is_passed_once_in_either_direction() {
    const DEAD: usize = 20_000;
    const SEEKS: usize = 2000;
    let all = |version: &dyn Fn(Vec<u8>) -> Version| (0..DEAD).map(|n| version(key(n))).collect::<Vec<_>>();
    let deleted = all(&|key| version(&key, 5, Kind::Delete));
    let expired = all(&|key| Version { expiry: NOW, ..put(&key, 5) });
    let (rows, newer) = (all(&|key| put(&key, 5)), all(&|key| put(&key, 50)));
    let range = [range(7, &key(0), b"a")];
    for (what, dead, ranges) in [
        ("deleted", deleted, &[][..]),
        ("expired", expired, &[]),
        ("newer", newer, &[]),
        ("range", rows, &range),
    ] {
        let steps = steps_of(&dead, 9, ranges, SEEKS);
        println!("{what}: {steps} steps of {SEEKS} seeks");
        assert!(steps <= 3 * DEAD + SEEKS * 100, "{what}: {steps} steps");
    }
}
