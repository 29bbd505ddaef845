//! Random histories with operands, range deletes, snapshots, flushes and merges, compared with a model that reads the
//! whole history.

use std::sync::Arc;

use super::history::{History, KEYS, Rewrite, World as _, random_key};
use super::*;
use crate::merge::{
    Combine, CoveringRanges, HidingCursor, MergeCursor, Retain, RetainRules, RetainStream, VisibleCursor,
};
use crate::ranges::{Hidden, RangeSet, RangeTombstone};
use crate::types::{MergeOperator, Operands};

/// Concatenates. Fails on anything that contains an X, unless it is alone.
fn operator() -> MergeOperator {
    MergeOperator::custom("test", |value, operand| {
        if value.contains(&b'X') || operand.contains(&b'X') {
            return Err("planted".into());
        }
        value.extend_from_slice(operand);
        Ok(())
    })
}

#[derive(Debug)]
struct Combiner(MergeOperator);

impl Combine for Combiner {
    fn combine(&self, operands: &Operands, base: Option<(Kind, &[u8])>) -> Result<Vec<u8>> {
        operands.fold(&self.0, base.map(|(_, value)| value)).map_err(|what| Error::Merge {
            family: "family".into(),
            operator: "test".into(),
            what: what.into(),
        })
    }
}

/// A key with its value; `None` if the operator fails.
type Row = (Vec<u8>, Option<Vec<u8>>);

#[derive(Default)]
struct World {
    history: History,
    ranges: Vec<RangeTombstone>,
    /// Commits up to here are in runs.
    flushed: SeqNo,
    with_ranges: bool,
    folded: u64,
}

impl history::World for World {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn commit(&mut self, rng: &mut Rng) {
        for _ in 0..1 + rng.below(3) {
            self.history.seq += 1;
            let seq = self.history.seq;
            let key = random_key(rng);
            if self.with_ranges && rng.one_in(12) {
                let end = (key[0] < b'c').then(|| vec![key[0] + 1].into());
                self.ranges.push(RangeTombstone::new(seq, Some(key.into()), end));
                continue;
            }
            let kind = match rng.below(10) {
                0 | 1 => Kind::Put,
                2 => Kind::PutPointer,
                3 => Kind::Delete,
                _ => Kind::Merge,
            };
            let mut v = version(&key, seq, kind);
            if kind != Kind::Delete {
                v.value = format!("{seq},").into_bytes();
            }
            if kind == Kind::Merge && rng.one_in(30) {
                v.value = b"X".to_vec();
            }
            if matches!(kind, Kind::Put | Kind::PutPointer) && rng.one_in(3) {
                v.expiry = self.history.now + rng.below(4) as u64;
            }
            self.history.write(v);
        }
    }

    fn rewrite(&mut self, rng: &mut Rng, Rewrite { inputs, bottom, is_flush }: Rewrite) -> Vec<Version> {
        let order = Comparator::bytewise();
        let rules = self.history.rules(rng, bottom, !self.with_ranges);
        // A flush knows the range tombstones of its memtable, a merge those of all tables.
        let from = if is_flush { self.flushed } else { 0 };
        if is_flush {
            self.flushed = self.history.seq;
        }
        let to = self.flushed;
        let known = self.ranges.iter().filter(|t| t.seq > from && t.seq <= to).cloned().map(Arc::new);
        let purge = match rng.one_in(6) {
            true => CoveringRanges::default(),
            false => CoveringRanges { ranges: RangeSet::new(&order, known.collect()), complete_to: to },
        };
        let children = inputs.into_iter().map(|run| VecCursor::sorted(&order, run)).collect();
        let mut merged = MergeCursor::new(order.clone(), children);
        merged.seek_to_first().unwrap();
        let retain = Retain::new(rules, order.clone());
        let mut stream = RetainStream::new(merged, retain, None).purging(&purge).folding(Some(operator()));
        let mut out = Vec::new();
        while let Some(e) = stream.next().unwrap() {
            out.push(self.history.kept(&e));
        }
        let counts = stream.counts();
        assert_eq!((counts.seen, counts.kept), (counts.kept + counts.dropped_in_all(), out.len() as u64));
        self.folded += counts.dropped[crate::merge::Reason::Folded as usize];
        assert!(out.is_sorted_by(|a, b| super::order(&order, a, b).is_lt()), "{out:?}");
        out
    }
}

impl World {
    /// What a reader at `reader` sees of the whole history.
    fn expected(&self, reader: SeqNo) -> Vec<Row> {
        (0..KEYS).filter_map(|n| self.expected_value(&[b'a' + n as u8], reader)).collect()
    }

    fn expected_value(&self, key: &[u8], reader: SeqNo) -> Option<Row> {
        let order = Comparator::bytewise();
        let deleted =
            self.ranges.iter().filter(|t| t.seq <= reader && t.covers(&order, key)).map(|t| t.seq).max();
        let visible = |v: &&Version| v.key == key && v.seq <= reader && deleted.is_none_or(|by| v.seq > by);
        let mut parts: Vec<&[u8]> = Vec::new();
        for v in self.history.written.iter().filter(visible) {
            let dead = v.kind.is_tombstone() || (v.expiry != 0 && v.expiry <= self.history.now);
            if dead {
                break;
            }
            parts.push(&v.value);
            if v.kind != Kind::Merge {
                break;
            }
        }
        let fails = parts.len() > 1 && parts.iter().any(|part| part.contains(&b'X'));
        parts.reverse();
        (!parts.is_empty()).then(|| (key.to_vec(), (!fails).then(|| parts.concat())))
    }

    fn check(&self) {
        let order = Comparator::bytewise();
        for reader in self.history.readers() {
            let ranges = RangeSet::new(&order, self.ranges.iter().cloned().map(Arc::new).collect());
            let hidden = Hidden::new(vec![ranges], reader);
            let shown = HidingCursor::new(self.history.stored(&order), order.clone(), hidden);
            let mut cursor = VisibleCursor::new(shown, order.clone(), reader, self.history.now)
                .combining(Some(Arc::new(Combiner(operator()))));
            let expected = self.expected(reader);
            let row = |cursor: &mut VisibleCursor<_>| -> Row {
                let key = cursor.key().to_vec();
                (key, cursor.value().map(<[u8]>::to_vec).ok())
            };
            cursor.seek_to_first().unwrap();
            let (mut forward, mut backward) = (Vec::new(), Vec::new());
            while cursor.valid() {
                forward.push(row(&mut cursor));
                cursor.next().unwrap();
            }
            assert_eq!(forward, expected, "reader at {reader}");
            cursor.seek_to_last().unwrap();
            while cursor.valid() {
                backward.insert(0, row(&mut cursor));
                // Turning back and forth ends on the same row.
                cursor.prev().unwrap();
                if cursor.valid() {
                    cursor.next().unwrap();
                    assert_eq!(row(&mut cursor), backward[0], "reader at {reader}");
                    cursor.prev().unwrap();
                }
            }
            assert_eq!(backward, expected, "reader at {reader}");
        }
        for begun in &self.history.transactions {
            let stored: Vec<_> =
                self.history.active.iter().chain(self.history.runs.iter().flatten()).collect();
            for n in 0..KEYS {
                let key = [b'a' + n as u8];
                let newest = |all: &mut dyn Iterator<Item = &Version>| {
                    all.filter(|v| v.key == key).map(|v| v.seq).max().is_some_and(|seq| seq > *begun)
                };
                let ranged = self.ranges.iter().any(|t| t.seq > *begun);
                let (stored, written) =
                    (newest(&mut stored.iter().copied()), newest(&mut self.history.written.iter()));
                assert!(stored == written || ranged, "conflicts of a transaction at {begun}");
            }
        }
    }
}

#[test]
fn no_reader_notices_that_operands_are_combined() {
    let (folded, renumbered) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    with_seeds(600, |rng| {
        let mut world = World { with_ranges: rng.one_in(2), ..World::default() };
        world.history.now = 1;
        for _ in 0..80 {
            world.step(rng);
            world.check();
        }
        folded.set(folded.get() + world.folded);
        renumbered.set(renumbered.get() + world.history.renumbered);
    });
    assert!(folded.get() > 1000 && renumbered.get() > 1000);
}

#[test]
fn without_older_readers_the_bottom_level_has_one_put_of_each_key() {
    let order = Comparator::bytewise();
    let base = |kind| version(b"a", 1, kind);
    for (bottom, versions, expected) in [
        (true, vec![base(Kind::Put)], vec![Kind::Put]),
        (true, vec![], vec![Kind::Put]),
        (true, vec![base(Kind::Delete)], vec![Kind::Put]),
        (true, vec![base(Kind::PutPointer)], vec![Kind::Merge, Kind::PutPointer]),
        (true, vec![Version { expiry: 5, ..base(Kind::Put) }], vec![Kind::Put]),
        (true, vec![Version { expiry: 6, ..base(Kind::Put) }], vec![Kind::Merge, Kind::Put]),
        (false, vec![base(Kind::Put)], vec![Kind::Put]),
        (false, vec![], vec![Kind::Merge]),
        (false, vec![base(Kind::Delete)], vec![Kind::Put, Kind::Delete]),
    ] {
        let mut all: Vec<Version> = (2..9000).rev().map(|seq| version(b"a", seq, Kind::Merge)).collect();
        all.extend(versions);
        let mut cursor = VecCursor::new(&order, all.into());
        cursor.seek_to_first().unwrap();
        let rules = RetainRules {
            visible_floor: 10_000,
            bottom,
            now: Some(5),
            renumber: true,
            ..RetainRules::default()
        };
        let purge = CoveringRanges { ranges: RangeSet::default(), complete_to: 10_000 };
        let mut stream = RetainStream::new(cursor, Retain::new(rules, order.clone()), None)
            .purging(&purge)
            .folding(Some(operator()));
        let mut kinds = Vec::new();
        while let Some(e) = stream.next().unwrap() {
            assert_eq!(e.seq == 0, bottom && matches!(e.kind, Kind::Put | Kind::PutPointer), "{e:?}");
            kinds.push(e.kind);
        }
        assert_eq!(kinds, expected);
    }
}
