//! What bounded cursors walk over, counted in steps, and that they show what a filter over all keys shows.

mod follow;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tidesdb_io::sim::{self, OpKind, SimDisk};

use super::{Cursor, Iter, is_before};
use crate::options::SyncMode;
use crate::types::Comparator;
use crate::{Db, FamilyOptions, WriteBatch};

fn open_on(disk: SimDisk, options: FamilyOptions) -> (Db, Arc<SimDisk>) {
    let (env, disk, _) = sim::env_on(disk, 7);
    let db = Db::options("/db").env(env).background_threads(0).sync(SyncMode::None).default_family(options);
    (db.with(|o| o.disk_free_min = 0).open().unwrap(), disk)
}

fn open(options: FamilyOptions) -> Db {
    open_on(SimDisk::new(7), options).0
}

/// Writes in batches of a thousand.
fn write(db: &Db, ops: impl IntoIterator<Item = (Vec<u8>, bool)>) {
    let mut batch = WriteBatch::new();
    for (key, delete) in ops {
        if delete {
            batch.delete(db.default_family(), &key).unwrap();
        } else {
            batch.put(db.default_family(), &key, &[7; 100]).unwrap();
        }
        if batch.len() == 1000 {
            db.write(&mut batch).unwrap();
        }
    }
    db.write(&mut batch).unwrap();
}

const DEAD: usize = 1_000_000;

#[test]
fn a_range_beside_a_million_deleted_keys_does_not_walk_over_them() {
    let db = open(FamilyOptions::default());
    write(&db, (0..10).map(|n| (format!("a{n}").into_bytes(), false)));
    write(&db, (0..DEAD).map(|n| (format!("b{n:07}").into_bytes(), true)));
    write(&db, (0..10).map(|n| (format!("c{n}").into_bytes(), false)));
    let walked = |low: Bound<&str>, high: Bound<&str>, backwards: bool| {
        let mut cursor = db.cursor().unwrap();
        cursor.set_range((low, high));
        if backwards { cursor.seek_to_last() } else { cursor.seek_to_first() }.unwrap();
        let mut rows = 0;
        while cursor.valid() {
            rows += 1;
            if backwards { cursor.prev() } else { cursor.next() }.unwrap();
        }
        (rows, cursor.inner.hidden() as usize)
    };
    let (a, b, c) = ("a", "b", "c");
    for backwards in [false, true] {
        assert_eq!(walked(Bound::Included(a), Bound::Excluded(b), backwards), (10, 0));
        assert_eq!(walked(Bound::Excluded(a), Bound::Excluded(b), backwards), (10, 0));
        assert_eq!(walked(Bound::Included(c), Bound::Unbounded, backwards), (10, 0));
        assert_eq!(walked(Bound::Unbounded, Bound::Included("b0000010"), backwards), (10, 11));
    }
    assert_eq!(db.range("a".."b").unwrap().keys().count(), 10);
    assert_eq!(walked(Bound::Included(a), Bound::Unbounded, false), (20, DEAD), "without a bound");
}

#[test]
fn tables_beside_a_range_are_not_read() {
    for deep in [false, true] {
        let options = FamilyOptions { l1_tables_trigger: 100, ..FamilyOptions::default() };
        let (db, disk) = open_on(SimDisk::new(7), options);
        for n in 0..8 {
            write(&db, (0..200).map(|i| (format!("{n}-{i:04}").into_bytes(), false)));
            db.flush().unwrap();
            if deep {
                db.default_family().compact_range(format!("{n}")..).unwrap();
            }
        }
        let levels = db.default_family().stats().level_tables;
        assert_eq!(levels.iter().position(|n| *n == 8), Some(usize::from(deep)), "{levels:?}");
        disk.log_ops(true);
        assert_eq!(db.range("3".."4").unwrap().count(), 200);
        assert_eq!(db.range("3".."4").unwrap().rev().count(), 200);
        assert_eq!(db.prefix(b"3").unwrap().keys().count(), 200);
        let ops = disk.ops();
        let files: BTreeSet<_> =
            ops.iter().filter(|op| op.kind == OpKind::Read).map(|op| Arc::clone(&op.path)).collect();
        assert_eq!(files.len(), 1, "{files:?}");
    }
}

/// Numbers from a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) as usize % n
    }

    fn key(&mut self) -> Vec<u8> {
        let key = format!("{:03}", self.below(700));
        key[..2 + self.below(2)].into()
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }
}

/// Puts, deletes and range deletes over two levels and a memtable, and what is left.
fn filled(rng: &mut Rng, order: &Comparator) -> (Db, Vec<Vec<u8>>) {
    let options = FamilyOptions::default().comparator(order.clone());
    let (db, mut live) = (open(options), BTreeMap::new());
    let family = db.default_family();
    for n in 0..4_000 {
        let key = rng.key();
        if rng.below(500) == 0 {
            let (low, high) = (rng.key(), rng.key());
            if order.compare(&low, &high).is_lt() {
                family.delete_range(low.clone()..high.clone()).unwrap();
                live.retain(|key: &Vec<u8>, ()| {
                    order.compare(key, &low).is_lt() || order.compare(key, &high).is_ge()
                });
            }
        } else if rng.below(3) == 0 {
            family.delete(&key).unwrap();
            live.remove(&key);
        } else {
            family.put(&key, &[7; 200]).unwrap();
            live.insert(key, ());
        }
        match n {
            1_000 => db.compact().unwrap(),
            2_000 | 2_500 | 3_000 => db.flush().unwrap(),
            _ => {}
        }
    }
    let mut live: Vec<_> = live.into_keys().collect();
    live.sort_by(|a, b| order.compare(a, b));
    (db, live)
}

/// Moves at random; `model` has the keys in range.
fn walk(rng: &mut Rng, order: &Comparator, cursor: &mut Cursor, model: &[Vec<u8>]) {
    let mut at: Option<usize> = None;
    for _ in 0..30 {
        let key = rng.key();
        match rng.below(8) {
            0 => {
                cursor.seek_to_first().unwrap();
                at = (!model.is_empty()).then_some(0);
            }
            1 => {
                cursor.seek_to_last().unwrap();
                at = model.len().checked_sub(1);
            }
            2 => {
                cursor.seek(&key).unwrap();
                at = Some(model.partition_point(|k| order.compare(k, &key).is_lt()));
            }
            3 => {
                cursor.seek_for_prev(&key).unwrap();
                at = model.partition_point(|k| order.compare(k, &key).is_le()).checked_sub(1);
            }
            way => {
                for _ in 0..rng.below(40) {
                    let Some(i) = at else { break };
                    at = if way < 6 {
                        cursor.next().unwrap();
                        Some(i + 1)
                    } else {
                        cursor.prev().unwrap();
                        i.checked_sub(1)
                    };
                    at = at.filter(|at| *at < model.len());
                    assert_eq!(cursor.valid().then(|| cursor.key().to_vec()), at.map(|at| model[at].clone()));
                }
            }
        }
        at = at.filter(|at| *at < model.len());
        assert_eq!(cursor.valid().then(|| cursor.key().to_vec()), at.map(|at| model[at].clone()));
    }
}

#[test]
fn a_bounded_cursor_shows_what_a_filter_shows() {
    let custom = Comparator::custom("bytes", <[u8]>::cmp);
    for (seed, order) in [Comparator::bytewise(), custom, Comparator::reverse_bytewise()].iter().enumerate() {
        let mut rng = Rng(seed as u64);
        let (db, live) = filled(&mut rng, order);
        for _ in 0..150 {
            let (low, high) = (rng.bound(), rng.bound());
            let above = |key: &[u8]| match &low {
                Bound::Unbounded => true,
                Bound::Included(low) => order.compare(key, low).is_ge(),
                Bound::Excluded(low) => order.compare(key, low).is_gt(),
            };
            let model: Vec<_> =
                live.iter().filter(|key| above(key) && is_before(order, key, &high)).cloned().collect();
            let mut cursor = db.cursor().unwrap();
            cursor.set_range((low.clone(), high.clone()));
            walk(&mut rng, order, &mut cursor, &model);
            let keys = |iter: Iter| iter.map(|row| row.unwrap().0.to_vec()).collect::<Vec<_>>();
            let range = || db.range((low.clone(), high.clone())).unwrap();
            assert_eq!(keys(range()), model);
            let mut back: Vec<_> = range().keys().rev().map(|key| key.unwrap().to_vec()).collect();
            back.reverse();
            assert_eq!(back, model);
        }
    }
}

/// Appends ten keys at the tail and takes ten from the head, which a scan finds. Returns the deleted keys that the longest scan stepped
/// over, and all of them did.
fn work_queue(db: &Db, rounds: u64, backwards: bool) -> (u64, u64) {
    let key = |n: u64| format!("{:08}", if backwards { 99_999_999 - n } else { n }).into_bytes();
    let (mut most, mut all) = (0, 0);
    write(db, (0..1000).map(|n| (key(n), false)));
    for round in 0..rounds {
        write(db, (0..10).map(|n| (key(1000 + round * 10 + n), false)));
        let mut cursor = db.cursor().unwrap();
        if backwards { cursor.seek_to_last() } else { cursor.seek_to_first() }.unwrap();
        assert_eq!(cursor.key(), key(round * 10));
        most = most.max(cursor.inner.hidden());
        all += cursor.inner.hidden();
        drop(cursor);
        write(db, (0..10).map(|n| (key(round * 10 + n), true)));
    }
    (most, all)
}

#[test]
fn scans_of_the_head_of_a_queue_do_not_get_slower() {
    for backwards in [false, true] {
        let db = open(FamilyOptions::default());
        let (most, early) = work_queue(&db, 4_000, backwards);
        assert!(most < 20_000, "{most}");
        let (most, late) = work_queue(&open(FamilyOptions::default()), 12_000, backwards);
        assert!(most < 20_000, "{most}");
        assert!(late < 3 * early * 3 / 2, "{early}, then {late}");
        let stats = db.default_family().stats();
        assert!(stats.flushes > 1 && stats.tombstones < 20_000, "{stats:?}");
    }
}

#[test]
fn deleted_keys_in_tables_flush_no_memtable() {
    let db = open(FamilyOptions::default());
    write(&db, (0..40_000).map(|n| (format!("{n:08}").into_bytes(), false)));
    let snapshot = db.snapshot();
    write(&db, (0..40_000).map(|n| (format!("{n:08}").into_bytes(), true)));
    db.flush().unwrap();
    let flushes = db.default_family().stats().flushes;
    for n in 0..200 {
        write(&db, [(format!("{n}").into_bytes(), false)]);
        let mut cursor = db.cursor().unwrap();
        cursor.seek(b"00000000").unwrap();
        assert!(cursor.inner.hidden() >= 39_000);
    }
    assert_eq!(db.default_family().stats().flushes, flushes);
    drop(snapshot);
}

/// A held cursor passed all of them at each seek.
#[test]
fn a_held_cursor_passes_a_stretch_of_deleted_keys_once() {
    const ROWS: usize = 50_000;
    let key = |n: usize| format!("b{n:07}").into_bytes();
    for by_range in [false, true] {
        let db = open(FamilyOptions::default());
        write(&db, [(b"a".to_vec(), false), (b"c".to_vec(), false)]);
        write(&db, (0..ROWS).map(|n| (key(n), false)));
        let older = db.snapshot();
        match by_range {
            false => write(&db, (0..ROWS).map(|n| (key(n), true))),
            true => _ = db.delete_range("b".."c").unwrap(),
        }
        let mut cursor = db.cursor().unwrap();
        let mut seek = |seeks: usize| {
            for n in 0..seeks {
                let target = key(n * 7919 % ROWS);
                let (sought, found) = match n % 2 {
                    0 => (cursor.seek(&target), b"c"),
                    _ => (cursor.seek_for_prev(&target), b"a"),
                };
                sought.unwrap();
                assert_eq!(cursor.key(), found);
            }
            (cursor.inner.hidden() as usize, cursor.remembered)
        };
        let (passed, bytes) = seek(1000);
        assert!(passed < 2 * ROWS && (by_range || passed > ROWS / 2), "{passed} keys");
        assert!(bytes > 0, "what the cursor remembers is charged");
        db.flush().unwrap();
        let (passed, _) = seek(1000);
        assert!(passed < 20_000, "{passed} keys in the newest tables");
        drop(older);
    }
}
