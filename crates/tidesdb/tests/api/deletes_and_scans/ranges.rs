//! Range deletes compared with a model, on every path: reads, scans, snapshots, batches, transactions, flush, merge, crash.

use std::collections::BTreeMap;
use std::ops::Bound;

use tidesdb::{Comparator, Db, Error, Family, Isolation, Snapshot, WriteBatch};

use crate::common::{Pair, Sim, contents, fill, keys, letters, noise, pairs, small, value};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Random numbers with a seed.
struct Dice(std::vec::IntoIter<u8>, u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(noise(seed, 4096).into_iter(), seed)
    }

    fn below(&mut self, n: u32) -> u32 {
        let mut byte = || match self.0.next() {
            Some(byte) => u32::from(byte),
            None => {
                *self = Self::new(self.1 + 1_000_003);
                u32::from(self.0.next().unwrap())
            }
        };
        (byte() << 8 | byte()) % n
    }

    fn key(&mut self) -> Vec<u8> {
        format!("{:03}", self.below(400)).into_bytes()
    }

    fn range(&mut self) -> Range {
        let wide = self.below(8) == 0;
        let from = self.below(400);
        let to = from + self.below(if wide { 400 } else { 30 });
        let [from, to] = [from, to].map(|n| format!("{n:03}").into_bytes());
        let low = match self.below(10) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(from),
            _ => Bound::Included(from),
        };
        let high = match self.below(10) {
            0 if !wide => Bound::Included(from_of(&low).unwrap_or(to)),
            1 | 2 => Bound::Included(to),
            3 if wide => Bound::Unbounded,
            _ => Bound::Excluded(to),
        };
        (low, high)
    }
}

fn from_of(low: &Bound<Vec<u8>>) -> Option<Vec<u8>> {
    match low {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    }
}

/// `range` is in the order of the family: for a reverse order its ends are swapped in the model.
fn delete_from(model: &mut Model, (low, high): &Range, reverse: bool) {
    let (low, high) = if reverse { (high, low) } else { (low, high) };
    let inside = |key: &Vec<u8>| {
        let above = match low {
            Bound::Unbounded => true,
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
        };
        let below = match high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
        };
        above && below
    };
    model.retain(|key, _| !inside(key));
}

fn in_order(model: &Model, reverse: bool) -> Vec<Pair> {
    let pairs = model.iter().map(|(k, v)| (k.clone(), v.clone()));
    if reverse { pairs.rev().collect() } else { pairs.collect() }
}

fn check(family: &Family, model: &Model, reverse: bool, snapshot: Option<&Snapshot>, what: &str) {
    let expected = in_order(model, reverse);
    let iter = || snapshot.map_or_else(|| family.iter(), |snapshot| snapshot.iter(family)).unwrap();
    assert_eq!(pairs(iter()), expected, "{what}");
    let backward: Vec<Pair> = expected.iter().rev().cloned().collect();
    assert_eq!(pairs(iter().rev()), backward, "{what}, backward");
    for n in (0..430).step_by(7) {
        let key = format!("{n:03}").into_bytes();
        let found = snapshot.map_or_else(|| family.get(&key), |snapshot| snapshot.get(family, &key));
        assert_eq!(found.unwrap().map(tidesdb::Slice::into_vec), model.get(&key).cloned(), "{what}, {n}");
    }
}

/// Puts the same operations into a batch and into a transaction, and commits one of them.
fn commit(
    db: &Db,
    family: &Family,
    (dice, model): (&mut Dice, &mut Model),
    (byte, transact, reverse): (u8, bool, bool),
    what: &str,
) {
    let mut batch = WriteBatch::new();
    let mut tx = db.begin(Isolation::Snapshot);
    for _ in 0..1 + dice.below(12) {
        let (key, range) = (dice.key(), dice.range());
        match dice.below(8) {
            0 => {
                batch.delete_range(family, range.clone()).unwrap();
                tx.delete_range(family, range.clone()).unwrap();
                delete_from(model, &range, reverse);
            }
            1 => {
                batch.delete(family, &key).unwrap();
                tx.delete(family, &key).unwrap();
                model.remove(&key);
            }
            _ => {
                let value = vec![byte; 1 + dice.below(40) as usize];
                batch.put(family, &key, &value).unwrap();
                tx.put(family, &key, &value).unwrap();
                model.insert(key.clone(), value);
            }
        }
        let probe = dice.key();
        let own = tx.get(family, &probe).unwrap().map(tidesdb::Slice::into_vec);
        assert_eq!(own, model.get(&probe).cloned(), "{what}: own writes first");
    }
    assert_eq!(pairs(tx.iter(family).unwrap()), in_order(model, reverse), "{what}: own scan");
    if transact {
        tx.commit().unwrap();
    } else {
        drop(tx);
        db.write(&mut batch).unwrap();
    }
}

fn one_history(seed: u64, order: Comparator, threads: usize) {
    let sim = Sim::new();
    let reverse = order.name() == "reverse-bytewise";
    let options = small().comparator(order).l1_tables_trigger(3);
    let open = |sim: &Sim| sim.options().background_threads(threads).open().unwrap();
    let mut db = open(&sim);
    let mut family = db.create_family("f", options).unwrap();
    let mut dice = Dice::new(seed);
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for step in 0..300 {
        let what = format!("seed {seed} step {step}");
        match dice.below(40) {
            0 => family.flush().unwrap(),
            1 => family.compact().unwrap(),
            2 => snapshots.push((db.snapshot(), model.clone())),
            3 if !snapshots.is_empty() => {
                let (snapshot, model) = snapshots.remove(dice.below(snapshots.len() as u32) as usize);
                check(&family, &model, reverse, Some(&snapshot), &what);
            }
            4 => {
                snapshots.clear();
                drop(family);
                if dice.below(2) == 0 {
                    db.close().unwrap();
                } else {
                    drop(db);
                }
                db = open(&sim);
                family = db.family("f").unwrap();
                check(&family, &model, reverse, None, &what);
            }
            5 => check(&family, &model, reverse, None, &what),
            6..10 => {
                let range = dice.range();
                family.delete_range(range.clone()).unwrap();
                delete_from(&mut model, &range, reverse);
            }
            10 => {
                let prefix = format!("{:02}", dice.below(40)).into_bytes();
                family.delete_prefix(&prefix).unwrap();
                model.retain(|key, _| !key.starts_with(&prefix));
            }
            kind => {
                commit(&db, &family, (&mut dice, &mut model), (step as u8, kind % 2 == 0, reverse), &what)
            }
        }
    }
    check(&family, &model, reverse, None, "the end");
    for (snapshot, model) in &snapshots {
        check(&family, model, reverse, Some(snapshot), "the end");
    }
    snapshots.clear();
    family.compact().unwrap();
    check(&family, &model, reverse, None, "compacted");
    assert_eq!(family.stats().range_tombstones, 0, "range tombstones are left");
    assert_eq!(family.stats().table_entries, model.len() as u64, "deleted entries are left");
    db.verify().unwrap();
}

#[test]
fn histories_agree_with_a_model() {
    for seed in 0..12 {
        one_history(seed, Comparator::bytewise(), if seed % 2 == 0 { 0 } else { 2 });
    }
}

#[test]
fn histories_with_a_user_comparator_agree_with_a_model() {
    for seed in 20..26 {
        one_history(seed, Comparator::reverse_bytewise(), if seed % 2 == 0 { 0 } else { 2 });
    }
}

#[test]
fn operations_of_a_batch_take_effect_in_order() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut batch = WriteBatch::new();
    batch.put(f, b"a", b"1").unwrap();
    batch.put(f, b"b", b"1").unwrap();
    batch.delete_range(f, [b'a']..[b'z']).unwrap();
    batch.put(f, b"b", b"2").unwrap();
    batch.put(f, b"c", b"2").unwrap();
    batch.delete_range(f, [b'c']..=[b'c']).unwrap();
    assert_eq!(batch.len(), 6);
    let seq = db.write(&mut batch).unwrap();
    let expected = vec![(b"b".to_vec(), b"2".to_vec())];
    assert_eq!(contents(f), expected);
    assert!(db.snapshot().seq() >= seq);
    assert_eq!(contents(sim.killed().open().default_family()), expected, "replayed");
    f.flush().unwrap();
    assert_eq!(contents(f), expected);
}

/// As many range deletes of the smallest kind as a batch can hold: each needs its own sequence number.
#[test]
fn a_batch_with_only_range_deletes() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    letters(f, "abc");
    let mut batch = WriteBatch::new();
    for _ in 0..10_000 {
        batch.delete_range(f, ..).unwrap();
    }
    batch.put(f, b"x", b"x").unwrap();
    db.write(&mut batch).unwrap();
    f.put(b"y", b"y").unwrap();
    assert_eq!(keys(f.iter()), ["x", "y"]);
    assert_eq!(keys(sim.killed().open().default_family().iter()), ["x", "y"]);
}

#[test]
fn invalid_bounds_are_rejected_without_effect() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small().comparator(Comparator::u64_le())).unwrap();
    let mut batch = WriteBatch::new();
    let refused = [
        batch.delete_prefix(&f, b"a"),
        batch.delete_range(&f, (Bound::Excluded([b'a']), Bound::Unbounded)),
        batch.delete_range(&f, &b""[..]..),
        batch.delete_range(&f, vec![1; 70_000]..),
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{result:?}");
    }
    batch.delete_range(db.default_family(), [b'z']..[b'a']).unwrap(); // backwards: empty
    batch.delete_range(db.default_family(), [b'a']..[b'a']).unwrap();
    assert!(batch.is_empty());
}

#[test]
fn covered_tables_are_dropped_unread_and_free_their_space() {
    let sim = Sim::new();
    let db = sim.options().background_threads(1).open().unwrap();
    let f = db.create_family("f", small().l1_tables_trigger(2)).unwrap();
    fill(&f, 4000, &[7; 200]);
    f.flush().unwrap();
    fill(&f, 4000, &[8; 200]);
    f.flush().unwrap();
    f.compact().unwrap();
    let before = f.stats();
    f.delete_range(..="key003999").unwrap();
    f.put(b"later", b"v").unwrap();
    f.flush().unwrap();
    for _ in 0..6000 {
        if f.stats().range_tombstones == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let after = f.stats();
    assert_eq!((after.range_tombstones, after.table_entries), (0, 1), "{after:?}");
    assert_eq!(after.compaction_read, before.compaction_read, "no table was read");
    assert_eq!(keys(f.iter()), ["later"]);
}

/// A merge of a part of the keys may leave the range tombstone stored; rows written after it must stay newer than it.
#[test]
fn rows_newer_than_a_stored_range_delete_survive_a_merge_to_the_bottom() {
    let key = |i: u32| format!("key{i:06}").into_bytes();
    let mut stored = 0;
    for start in (500..600).step_by(9) {
        let sim = Sim::new();
        let options = small().l1_tables_trigger(1000).table_bytes(16 << 10);
        let db = sim.options().default_family(options).open().unwrap();
        let f = db.default_family();
        for i in 0..3000 {
            f.put(key(i), noise(u64::from(i), 100)).unwrap();
        }
        f.compact().unwrap();
        f.delete_range(key(start)..key(2500)).unwrap();
        f.flush().unwrap();
        f.put("key001050", b"new").unwrap();
        f.flush().unwrap();
        f.compact_range("key001000".."key001100").unwrap();
        assert_eq!(f.stats().level_tables[0], 0);
        stored += f.stats().range_tombstones;
        for _ in 0..2 {
            assert_eq!(f.get("key001050").unwrap().as_deref(), Some(&b"new"[..]));
            assert_eq!(f.get("key001051").unwrap(), None);
            assert_eq!(contents(f).len(), 501 + start as usize);
            f.compact().unwrap();
        }
        assert_eq!(f.stats().range_tombstones, 0);
    }
    assert!(stored > 5, "the range delete was needed after {stored} merges");
}

#[test]
fn transactions_and_range_deletes_conflict_exactly_when_they_overlap() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let commit_beside = |level, mine: &dyn Fn(&mut tidesdb::Transaction), theirs: &dyn Fn(&Db)| {
        f.delete_range(..).unwrap();
        letters(f, "bdfh");
        let mut tx = db.begin(level);
        mine(&mut tx);
        tx.put(f, b"mine", b"v").unwrap();
        theirs(&db);
        let flushed = sim.disk.file_names("db").is_ok_and(|names| names.len() % 2 == 0);
        if flushed {
            f.flush().unwrap();
        }
        match tx.commit() {
            Ok(_) => true,
            Err(Error::Conflict { .. }) => false,
            Err(e) => panic!("{e}"),
        }
    };
    let delete = |from: u8, to: u8| move |db: &Db| assert!(db.delete_range([from]..[to]).unwrap() > 0);
    let get = |key: u8| move |tx: &mut tidesdb::Transaction| drop(tx.get(f, &[key]).unwrap());
    let walk = |from: u8, to: u8| {
        move |tx: &mut tidesdb::Transaction| {
            drop(pairs(tx.range(f, [from]..[to]).unwrap()));
        }
    };
    let own_range =
        |from: u8, to: u8| move |tx: &mut tidesdb::Transaction| tx.delete_range(f, [from]..[to]).unwrap();
    for level in [Isolation::Serializable, Isolation::RepeatableRead] {
        assert!(!commit_beside(level, &get(b'd'), &delete(b'c', b'e')), "a key that was read was deleted");
        assert!(commit_beside(level, &get(b'd'), &delete(b'e', b'z')), "another one");
        assert!(!commit_beside(level, &walk(b'c', b'g'), &delete(b'f', b'z')), "a scanned key");
        assert!(commit_beside(level, &walk(b'c', b'f'), &delete(b'f', b'z')), "outside of the scan");
        assert!(
            commit_beside(level, &walk(b'a', b'e'), &delete(b'c', b'd')),
            "inside the scan, but without any key"
        );
    }
    let level = Isolation::Snapshot;
    assert!(!commit_beside(level, &own_range(b'a', b'e'), &delete(b'd', b'z')), "both delete d");
    assert!(commit_beside(level, &own_range(b'a', b'e'), &delete(b'f', b'z')));
    let put = |key: u8| move |db: &Db| assert!(db.put(&[key], b"theirs").unwrap() > 0);
    assert!(!commit_beside(level, &own_range(b'a', b'e'), &put(b'c')), "a put into what this one deletes");
    assert!(commit_beside(level, &own_range(b'a', b'e'), &put(b'e')));
    let own_put = |key: u8| move |tx: &mut tidesdb::Transaction| tx.put(f, &[key], b"v").unwrap();
    assert!(!commit_beside(level, &own_put(b'd'), &delete(b'a', b'z')), "first to commit wins");
    assert_eq!(value(f, b"d"), None);
}

#[test]
fn a_rollback_to_a_savepoint_undoes_a_range_delete() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    letters(f, "abcd");
    let mut tx = db.begin(Isolation::Serializable);
    tx.put(f, b"b", b"new").unwrap();
    let savepoint = tx.savepoint();
    tx.delete_range(f, [b'a']..[b'c']).unwrap();
    assert_eq!(keys(tx.iter(f)), ["c", "d"]);
    tx.put(f, b"a", b"again").unwrap();
    assert_eq!(keys(tx.iter(f)), ["a", "c", "d"]);
    tx.rollback_to(savepoint).unwrap();
    assert_eq!(keys(tx.iter(f)), ["a", "b", "c", "d"]);
    tx.delete_prefix(f, b"d").unwrap();
    tx.commit().unwrap();
    assert_eq!(keys(f.iter()), ["a", "b", "c"]);
    assert_eq!(value(f, b"b").unwrap(), b"new");
}

#[test]
fn copies_of_a_family_and_of_a_database_preserve_range_deletes() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    letters(&f, "abcdef");
    f.flush().unwrap();
    let snapshot = db.snapshot();
    f.delete_range([b'b']..[b'e']).unwrap();
    f.flush().unwrap();
    assert_eq!(f.stats().range_tombstones, 1);
    let copy = db.clone_family("f", "copy").unwrap();
    db.checkpoint("other").unwrap();
    let other = sim.options_at("other").open().unwrap();
    for family in [&f, &copy, &other.family("f").unwrap()] {
        assert_eq!(keys(family.iter()), ["a", "e", "f"]);
    }
    assert_eq!(pairs(snapshot.iter(&f).unwrap()).len(), 6);
}
