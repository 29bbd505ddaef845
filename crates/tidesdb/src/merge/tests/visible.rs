use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Mutex;

use super::*;
use crate::merge::{MergeCursor, VisibleCursor};

const NOW: u64 = 100;

/// Computes what a reader sees, by brute force.
fn view(
    compare: &Comparator,
    entries: &[Version],
    snapshot: SeqNo,
    bounds: &[Option<Vec<u8>>; 2],
) -> Vec<Version> {
    let mut sorted: Vec<_> = entries.iter().filter(|v| v.seq <= snapshot).cloned().collect();
    sorted.sort_by(|a, b| order(compare, a, b));
    sorted.dedup_by(|older, newer| compare.compare(&older.key, &newer.key).is_eq());
    sorted.retain(|v| !v.kind.is_tombstone() && (v.expiry == 0 || v.expiry > NOW));
    sorted.retain(|v| bounds[0].as_ref().is_none_or(|b| compare.compare(&v.key, b).is_ge()));
    sorted.retain(|v| bounds[1].as_ref().is_none_or(|b| compare.compare(&v.key, b).is_lt()));
    sorted
}

fn random_entries(rng: &mut Rng, (keys, most): (usize, usize)) -> Vec<Version> {
    let keys = 1 + rng.below(keys);
    let tombs = 1 + rng.below(5);
    (0..rng.below(most))
        .map(|i| {
            let kind = match rng.below(tombs + 2) {
                0 => Kind::Delete,
                1 if tombs > 2 => Kind::SingleDelete,
                _ => Kind::Put,
            };
            let mut v = version(format!("{:02}", rng.below(keys)).as_bytes(), i as u64, kind);
            v.expiry = [0, 0, NOW - 1, NOW, NOW + 1][rng.below(5)];
            v
        })
        .collect()
}

fn scope(compare: &Comparator, [low, high]: &[Option<Vec<u8>>; 2]) -> Scope {
    let mut scope = Scope::default();
    let low = low.as_deref().map_or(Bound::Unbounded, Bound::Included);
    scope.set_range(compare, low, high.as_deref().map_or(Bound::Unbounded, Bound::Excluded));
    scope
}

fn random_walk(rng: &mut Rng, compare: &Comparator, of: (usize, usize)) {
    let entries = random_entries(rng, of);
    let cuts = 1 + rng.below(5);
    let mut children: Vec<_> = entries
        .chunks(entries.len() / cuts + 1)
        .map(|chunk| VecCursor::sorted(compare, chunk.to_vec()))
        .collect();
    children.reverse(); // newest first
    let merged = MergeCursor::newest_first(compare.clone(), children);
    let mut cursor = VisibleCursor::new(merged, compare.clone(), 0, NOW);
    for _ in 0..8 {
        let snapshot = rng.below(entries.len() + 2) as u64;
        let mut bound = || rng.one_in(2).then(|| format!("{:02}", rng.below(14)).into_bytes());
        let bounds = [bound(), bound()];
        set_view(&mut cursor, snapshot, NOW);
        cursor.set_scope(&scope(compare, &bounds));
        walk_view(rng, compare, &mut cursor, &view(compare, &entries, snapshot, &bounds));
    }
}

fn walk_view<C: EntryCursor>(rng: &mut Rng, compare: &Comparator, cursor: &mut C, model: &[Version]) {
    assert!(!cursor.valid());
    let mut at: Option<usize> = None;
    for _ in 0..40 {
        let target = format!("{:02}", rng.below(14)).into_bytes();
        match (rng.below(12), at) {
            (0, _) => {
                cursor.seek_to_first().unwrap();
                at = (!model.is_empty()).then_some(0);
            }
            (1, _) => {
                cursor.seek_to_last().unwrap();
                at = model.len().checked_sub(1);
            }
            (2, _) | (6.., None) => {
                cursor.seek_for_prev(&target).unwrap();
                at = model.partition_point(|v| compare.compare(&v.key, &target).is_le()).checked_sub(1);
            }
            (3, _) | (_, None) => {
                cursor.seek(&target).unwrap();
                let i = model.partition_point(|v| compare.compare(&v.key, &target).is_lt());
                at = (i < model.len()).then_some(i);
            }
            (4..=7, Some(i)) => {
                cursor.next().unwrap();
                at = (i + 1 < model.len()).then_some(i + 1);
            }
            (_, Some(i)) => {
                cursor.prev().unwrap();
                at = i.checked_sub(1);
            }
        }
        assert_eq!(entry(cursor), at.map(|i| model[i].clone()));
    }
}

#[test]
fn random_movements_match_the_model() {
    with_seeds(2000, |rng| random_walk(rng, &Comparator::bytewise(), (12, 250)));
    with_seeds(500, |rng| random_walk(rng, &Comparator::reverse_bytewise(), (12, 250)));
}

#[test]
fn random_movements_over_keys_with_thousands_of_versions_match_the_model() {
    with_seeds(100, |rng| random_walk(rng, &Comparator::bytewise(), (4, 6000)));
    with_seeds(50, |rng| random_walk(rng, &Comparator::case_insensitive(), (4, 6000)));
}

#[test]
fn a_key_with_very_many_versions_costs_few_steps() {
    let order = Comparator::bytewise();
    let mut entries: Vec<_> = (1..=5000).map(|seq| put(b"hot", seq)).collect();
    entries.extend([put(b"a", 1), put(b"z", 1), version(b"gone", 7001, Kind::Delete)]);
    entries.extend((6000..7000).map(|seq| put(b"gone", seq)));
    for snapshot in [1, 31, 32, 33, 2500, 5000, 8000] {
        let mut cursor =
            VisibleCursor::new(VecCursor::sorted(&order, entries.clone()), order.clone(), snapshot, NOW);
        let expected = view(&order, &entries, snapshot, &[None, None]);
        assert_eq!(all(&mut cursor), expected);
        let mut back = Vec::new();
        cursor.seek_to_last().unwrap();
        while let Some(v) = entry(&mut cursor) {
            back.push(v);
            cursor.prev().unwrap();
        }
        back.reverse();
        assert_eq!(back, expected);
        assert!(cursor.inner.steps < 600, "{} steps over 6000 versions", cursor.inner.steps);
    }
}

#[test]
fn an_expired_version_hides_older_ones() {
    let order = Comparator::bytewise();
    let mut dying = put(b"k", 2);
    dying.expiry = NOW;
    let mut cursor = VisibleCursor::new(VecCursor::sorted(&order, vec![put(b"k", 1), dying]), order, 9, NOW);
    assert!(all(&mut cursor).is_empty());
    assert_eq!(cursor.hidden(), 1);
    cursor.seek_to_last().unwrap();
    assert!(!cursor.valid());
    assert_eq!(cursor.hidden(), 2);
    set_view(&mut cursor, 1, NOW);
    assert_eq!(all(&mut cursor).len(), 1);
    set_view(&mut cursor, 9, NOW - 1);
    assert_eq!(all(&mut cursor)[0].seq, 2);
}

#[test]
fn errors_are_returned_and_leave_the_cursor_invalid() {
    let order = Comparator::bytewise();
    let mut run = VecCursor::sorted(&order, vec![put(b"a", 1), put(b"b", 1), put(b"c", 1)]);
    run.fails_at = Some(1);
    let mut cursor = VisibleCursor::new(run, order, 9, NOW);
    cursor.seek_to_first().unwrap();
    assert!(cursor.next().is_err());
    assert!(!cursor.valid());
    assert!(cursor.seek(b"b").is_err());
    // Moving back from the last key reads the previous one, which fails: that is an error, not an end.
    assert!(cursor.seek_to_last().is_err());
    assert!(!cursor.valid());
    cursor.seek(b"c").unwrap();
    assert_eq!(cursor.key(), b"c");
}

#[test]
fn keys_only_does_not_read_values_backward() {
    let order = Comparator::bytewise();
    let mut cursor =
        VisibleCursor::new(VecCursor::sorted(&order, vec![put(b"a", 1), put(b"b", 1)]), order, 9, NOW);
    let mut scope = Scope::default();
    scope.keys_only = true;
    cursor.set_scope(&scope);
    cursor.seek_to_last().unwrap();
    assert_eq!((cursor.key(), cursor.seq(), cursor.kind()), (b"b".as_slice(), 1, Kind::Put));
    assert!(cursor.value().unwrap().is_empty());
}

type Place = (Vec<u8>, Reverse<SeqNo>);
type Shared = Arc<Mutex<BTreeSet<Place>>>;

/// Iterates over a set that grows meanwhile, as a memtable does.
struct Growing {
    set: Shared,
    at: Option<Place>,
}

impl EntryCursor for Growing {
    fn set_scope(&mut self, _: &Scope) {}
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek(b"")
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.at = self.set.lock().unwrap().last().cloned();
        Ok(())
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.at = self.set.lock().unwrap().range((target.to_vec(), Reverse(SeqNo::MAX))..).next().cloned();
        Ok(())
    }
    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        self.at = self.set.lock().unwrap().range((target.to_vec(), Reverse(seq))..).next().cloned();
        Ok(())
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.at = self.set.lock().unwrap().range(..=(target.to_vec(), Reverse(0))).next_back().cloned();
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        use std::ops::Bound::{Excluded, Unbounded};
        let at = self.at.take().unwrap();
        self.at = self.set.lock().unwrap().range((Excluded(at), Unbounded)).next().cloned();
        Ok(())
    }
    fn next_key(&mut self) -> Result<()> {
        let key = self.at.take().unwrap().0;
        let range = (Bound::Excluded((key, Reverse(0))), Bound::Unbounded);
        self.at = self.set.lock().unwrap().range(range).next().cloned();
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        let at = self.at.take().unwrap();
        self.at = self.set.lock().unwrap().range(..at).next_back().cloned();
        Ok(())
    }
    fn key(&self) -> &[u8] {
        &self.at.as_ref().unwrap().0
    }
    fn entry_meta(&self) -> EntryMeta {
        EntryMeta::new(self.at.as_ref().unwrap().1.0, Kind::Put, 0)
    }
    fn entry(&mut self) -> Result<Stored<'_>> {
        Ok((self.key(), Kind::Put, b""))
    }
}

#[test]
fn a_view_does_not_change_while_sources_grow() {
    with_seeds(1000, |rng| {
        let order = Comparator::bytewise();
        let key = |rng: &mut Rng| format!("{:02}", rng.below(30)).into_bytes();
        let mut entries = Vec::new();
        let sets: Vec<Shared> = (0..1 + rng.below(4)).map(|_| Shared::default()).collect();
        for seq in 1..=rng.below(60) as u64 {
            let k = key(rng);
            sets[rng.below(sets.len())].lock().unwrap().insert((k.clone(), Reverse(seq)));
            entries.push(Version { value: Vec::new(), ..put(&k, seq) });
        }
        let children = sets.iter().map(|set| Growing { set: Arc::clone(set), at: None }).collect();
        let merged = MergeCursor::new(order.clone(), children);
        let model = view(&order, &entries, 60, &[None, None]);
        let mut cursor = VisibleCursor::new(merged, order, 60, NOW);
        let mut at = (!model.is_empty()).then_some(0);
        cursor.seek_to_first().unwrap();
        for seq in 61..200 {
            assert_eq!(entry(&mut cursor), at.map(|i| model[i].clone()));
            let Some(i) = at else {
                cursor.seek_to_last().unwrap();
                at = model.len().checked_sub(1);
                continue;
            };
            for _ in 0..rng.below(3) {
                sets[rng.below(sets.len())].lock().unwrap().insert((key(rng), Reverse(seq)));
            }
            if rng.one_in(2) {
                cursor.next().unwrap();
                at = (i + 1 < model.len()).then_some(i + 1);
            } else {
                cursor.prev().unwrap();
                at = i.checked_sub(1);
            }
        }
    });
}

#[test]
fn a_merge_keeps_its_order_while_sources_grow() {
    with_seeds(500, |rng| {
        let order = Comparator::bytewise();
        let sets: Vec<Shared> = (0..3).map(|_| Shared::default()).collect();
        let insert = |rng: &mut Rng, seq: SeqNo| {
            let key = format!("{:02}", rng.below(30)).into_bytes();
            sets[rng.below(3)].lock().unwrap().insert((key, Reverse(seq)));
        };
        (1..40).for_each(|seq| insert(rng, seq));
        let children = sets.iter().map(|set| Growing { set: Arc::clone(set), at: None }).collect();
        let mut merged = MergeCursor::new(order, children);
        merged.seek(b"15").unwrap();
        for seq in 40..140 {
            if !merged.valid() {
                break;
            }
            let before = (merged.key().to_vec(), Reverse(merged.seq()));
            (0..rng.below(4)).for_each(|i| insert(rng, seq * 4 + i as u64));
            let forward = rng.one_in(2);
            if forward {
                merged.next().unwrap()
            } else {
                merged.prev().unwrap()
            }
            if merged.valid() {
                let after = (merged.key().to_vec(), Reverse(merged.seq()));
                assert_eq!(before < after, forward, "{before:?} then {after:?}");
            }
        }
    });
}

/// Layers of tombstones over puts and over each other: dead keys are skipped, live keys never.
#[test]
fn skipping_dead_keys_never_skips_a_live_one() {
    with_seeds(2000, |rng| {
        let compare = if rng.one_in(8) { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        let layers = 1 + rng.below(5);
        let dead = 1 + rng.below(60);
        let mut entries = Vec::new();
        let mut children = Vec::new();
        for layer in 0..layers {
            let mut run = Vec::new();
            for n in 0..100 {
                for _ in 0..[0, 1, 1, 1, 2][rng.below(5)] {
                    let kind = if layer > 0 && !rng.one_in(dead) { Kind::Delete } else { Kind::Put };
                    let seq = (layer * 1000 + run.len()) as u64;
                    run.push(version(format!("{n:02}").as_bytes(), seq, kind));
                }
            }
            entries.extend_from_slice(&run);
            children.insert(0, VecCursor::sorted(&compare, run));
        }
        let newest = entries.iter().map(|v| v.seq).max().unwrap_or(0);
        let snapshot = if rng.one_in(3) { rng.below(newest as usize + 1) as u64 } else { newest };
        let mut bound = || rng.one_in(3).then(|| format!("{:02}", rng.below(100)).into_bytes());
        let bounds = [bound(), bound()];
        let model = view(&compare, &entries, snapshot, &bounds);
        let merged = MergeCursor::newest_first(compare.clone(), children);
        let mut cursor = VisibleCursor::new(merged, compare.clone(), snapshot, NOW);
        cursor.set_scope(&scope(&compare, &bounds));
        cursor.seek_to_first().unwrap();
        for expected in &model {
            assert_eq!(entry(&mut cursor).as_ref(), Some(expected));
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        let inside = |v: &&Version| {
            view(&compare, &[Version { kind: Kind::Put, ..(*v).clone() }], snapshot, &bounds).len() == 1
        };
        let seen: BTreeSet<&[u8]> = entries.iter().filter(inside).map(|v| &v.key[..]).collect();
        assert_eq!(
            cursor.hidden() as usize + model.len(),
            seen.len(),
            "each key must be shown or counted exactly once"
        );
    });
}
