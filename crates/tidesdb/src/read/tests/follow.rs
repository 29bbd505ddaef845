//! Cursors that are held while the tables change show their moment, from the newest tables.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidesdb_io::sim;

use super::{Cursor, Rng, write};
use crate::read::cursor::{cursor_sources, has_newest_view};
use crate::types::Comparator;
use crate::{Db, Family, FamilyOptions, Isolation, MergeOperator, Snapshot, Transaction};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const SEPARATOR: &str = ",";

/// A cursor with the rows of its moment in key order, and the place where it must stand.
struct Held {
    what: String,
    cursor: Cursor,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    at: Option<usize>,
    _keeps: Option<Keeps>,
}

enum Keeps {
    Snapshot(#[expect(dead_code, reason = "it lives")] Snapshot),
    Transaction(#[expect(dead_code, reason = "it lives")] Box<Transaction>),
}

struct World {
    db: Db,
    order: Comparator,
    rng: Rng,
    rows: Rows,
}

impl World {
    fn new(seed: u64, order: Comparator) -> Self {
        let (env, _, _) = sim::env(7);
        let mut options = FamilyOptions::default().comparator(order.clone()).write_buffer_bytes(4 << 10);
        options.merge_operator = Some(MergeOperator::append(SEPARATOR));
        options.value_threshold = 100;
        options.vlog_file_bytes = 4 << 10;
        options.table_bytes = 2 << 10;
        options.l1_tables_trigger = 2;
        let db = Db::options("/db").env(env).background_threads(0).comparator(order.clone());
        let db = db.default_family(options).with(|o| o.disk_free_min = 0).open().unwrap();
        Self { db, order, rng: Rng(seed), rows: Rows::new() }
    }

    fn family(&self) -> &Family {
        self.db.default_family()
    }

    fn key(&mut self) -> Vec<u8> {
        format!("{:03}", self.rng.below(200)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let long = self.rng.below(5) == 0;
        let digit = b'a' + self.rng.below(26) as u8;
        vec![digit; if long { 100 + self.rng.below(300) } else { self.rng.below(20) }]
    }

    fn bounds(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (a, b) = (self.key(), self.key());
        if self.order.compare(&a, &b).is_lt() { (a, b) } else { (b, a) }
    }

    fn is_within(&self, key: &[u8], (low, high): &(Vec<u8>, Vec<u8>)) -> bool {
        self.order.compare(key, low).is_ge() && self.order.compare(key, high).is_lt()
    }

    /// One write, by `tx` if there is one, to `rows`.
    fn write(&mut self, tx: Option<&mut Transaction>, rows: &mut Rows) {
        let (key, value, kind) = (self.key(), self.value(), self.rng.below(16));
        let bounds = self.bounds();
        let family = self.db.default_family().clone();
        match (kind, tx) {
            (0, Some(tx)) => tx.delete_range(&family, bounds.0.clone()..bounds.1.clone()).unwrap(),
            (0, None) => drop(family.delete_range(bounds.0.clone()..bounds.1.clone()).unwrap()),
            (1..5, Some(tx)) => tx.delete(&family, &key).unwrap(),
            (1..5, None) => drop(family.delete(&key).unwrap()),
            (5..8, Some(tx)) => tx.merge(&family, &key, &value).unwrap(),
            (5..8, None) => drop(family.merge(&key, &value).unwrap()),
            (_, Some(tx)) => tx.put(&family, &key, &value).unwrap(),
            (_, None) => drop(family.put(&key, &value).unwrap()),
        }
        match kind {
            0 => rows.retain(|key, _| !self.is_within(key, &bounds)),
            1..5 => drop(rows.remove(&key)),
            5..8 => match rows.get_mut(&key) {
                Some(old) => old.extend([SEPARATOR.as_bytes(), &value].concat()),
                None => drop(rows.insert(key, value)),
            },
            _ => drop(rows.insert(key, value)),
        }
    }

    fn hold(&mut self, n: usize) -> Held {
        let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
        let (mut rows, mut keeps) = (self.rows.clone(), None);
        let (mut cursor, what) = match n % 6 {
            0 => (self.db.cursor().unwrap(), "a cursor".to_owned()),
            1 | 2 => {
                let snapshot = self.db.snapshot();
                let cursor = snapshot.cursor(self.family()).unwrap();
                keeps = (n % 6 == 1).then_some(Keeps::Snapshot(snapshot));
                (cursor, "a cursor of a snapshot".to_owned())
            }
            _ => {
                let level = levels[n % 3];
                let mut tx = self.db.begin(level);
                for _ in 0..self.rng.below(10) {
                    self.write(Some(&mut tx), &mut rows);
                }
                let cursor = tx.cursor(self.family()).unwrap();
                keeps = (self.rng.below(2) == 0).then(|| Keeps::Transaction(Box::new(tx)));
                (cursor, format!("a cursor of a transaction, {level:?}"))
            }
        };
        if self.rng.below(3) == 0 {
            let bounds = self.bounds();
            cursor.set_range(bounds.0.clone()..bounds.1.clone());
            rows.retain(|key, _| self.is_within(key, &bounds));
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by(|(a, _), (b, _)| self.order.compare(a, b));
        Held { what, cursor, rows, at: None, _keeps: keeps }
    }

    fn change_tables(&mut self) {
        match self.rng.below(4) {
            0 => self.db.compact().unwrap(),
            1 => {
                let bounds = self.bounds();
                self.family().compact_range(bounds.0..bounds.1).unwrap();
            }
            2 => self.db.flush().unwrap(),
            _ => {}
        }
    }
}

impl Held {
    /// Moves at random and compares each row.
    fn walk(&mut self, world: &mut World) {
        let order = world.order.clone();
        for _ in 0..4 {
            let key = world.key();
            let count = |f: fn(std::cmp::Ordering) -> bool| {
                self.rows.partition_point(|(k, _)| f(order.compare(k, &key)))
            };
            match world.rng.below(8) {
                0 => {
                    self.cursor.seek_to_first().unwrap();
                    self.at = Some(0);
                }
                1 => {
                    self.cursor.seek_to_last().unwrap();
                    self.at = self.rows.len().checked_sub(1);
                }
                2 => {
                    self.cursor.seek(&key).unwrap();
                    self.at = Some(count(std::cmp::Ordering::is_lt));
                }
                3 => {
                    self.cursor.seek_for_prev(&key).unwrap();
                    self.at = count(std::cmp::Ordering::is_le).checked_sub(1);
                }
                way => self.step(way < 6, world.rng.below(60)),
            }
            self.check();
        }
    }

    fn step(&mut self, forwards: bool, steps: usize) {
        for _ in 0..steps {
            let Some(at) = self.at.filter(|at| *at < self.rows.len()) else { return };
            self.at = if forwards {
                self.cursor.next().unwrap();
                Some(at + 1)
            } else {
                self.cursor.prev().unwrap();
                at.checked_sub(1)
            };
            self.check();
        }
    }

    fn check(&mut self) {
        let wanted = self.at.and_then(|at| self.rows.get(at));
        let found = match self.cursor.valid() {
            true => Some(self.cursor.entry().map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()),
            false => None,
        };
        assert_eq!(found.as_ref(), wanted, "{}", self.what);
    }
}

#[test]
fn held_cursors_show_their_moment_whatever_happens_to_the_tables() {
    for seed in 0..12 {
        let order = [Comparator::bytewise(), Comparator::reverse_bytewise()][seed as usize % 2].clone();
        let mut world = World::new(seed, order);
        let mut held: Vec<Held> = Vec::new();
        for round in 0..60 {
            let mut rows = std::mem::take(&mut world.rows);
            for _ in 0..world.rng.below(40) {
                world.write(None, &mut rows);
            }
            world.rows = rows;
            if round % 3 == 0 {
                let new = world.hold(round / 3);
                held.push(new);
            }
            if held.len() > 8 {
                held.remove(world.rng.below(8));
            }
            world.change_tables();
            for one in &mut held {
                one.walk(&mut world);
            }
        }
    }
}

fn open(
    options: FamilyOptions,
) -> (Db, std::sync::Arc<sim::SimDisk>, std::sync::Arc<tidesdb_io::ManualClock>) {
    let (env, disk, clock) = sim::env(7);
    let db = Db::options("/db").env(env).background_threads(0).default_family(options);
    (db.with(|o| o.disk_free_min = 0).open().unwrap(), disk, clock)
}

fn key(n: usize) -> Vec<u8> {
    format!("{n:05}").into_bytes()
}

/// Overwrites all keys in several flushes.
fn overwrite(db: &Db) {
    for part in 0..4 {
        write(db, (0..2000).filter(|n| n % 4 == part).map(|n| (key(n), false)));
        db.flush().unwrap();
    }
}

fn tables(disk: &sim::SimDisk) -> BTreeSet<String> {
    disk.file_names("/db").unwrap().into_iter().filter(|name| name.ends_with(".klog")).collect()
}

#[test]
fn a_held_cursor_reads_merged_tables_and_lets_the_files_of_old_ones_go() {
    let options = FamilyOptions { l1_tables_trigger: 100, ..FamilyOptions::default() };
    for walks in [false, true] {
        let (db, disk, _) = open(options.clone());
        overwrite(&db);
        let mut cursor = db.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        overwrite(&db);
        let old = tables(&disk);
        assert_eq!((old.len(), cursor_sources(&cursor)), (8, 4));
        db.compact().unwrap();
        if walks {
            for n in 0..16 {
                assert_eq!(cursor.key(), key(n));
                cursor.next().unwrap();
            }
        } else {
            cursor.seek(key(7)).unwrap();
            assert_eq!(cursor.key(), key(7));
        }
        assert_eq!(cursor_sources(&cursor), 1);
        tidesdb_sync::reclaim();
        write(&db, [(key(1), false)]);
        db.flush().unwrap(); // removes files that are due
        assert_eq!(tables(&disk).intersection(&old).count(), 0, "walks: {walks}");
        assert_eq!(db.stats().cursors, 1);
    }
}

#[test]
fn memtables_above_the_number_of_a_cursor_are_not_searched() {
    let (db, _, _) = open(FamilyOptions::default());
    write(&db, (0..10).map(|n| (key(n), false)));
    let mut cursor = db.cursor().unwrap();
    db.flush().unwrap();
    write(&db, (0..10).map(|n| (key(n), true)));
    cursor.seek_to_first().unwrap();
    assert_eq!((cursor.key(), cursor_sources(&cursor)), (&key(0)[..], 1));
}

#[test]
fn what_expired_vanishes_when_a_cursor_moves_except_in_a_transaction_that_validates() {
    let second = Duration::from_secs(1);
    for level in
        [None, Some(Isolation::ReadCommitted), Some(Isolation::Snapshot), Some(Isolation::Serializable)]
    {
        let (db, _, clock) = open(FamilyOptions::default());
        db.put("a", "stays").unwrap();
        db.default_family().put_with_ttl("b", "goes", second).unwrap();
        db.put("c", "stays").unwrap();
        let tx = level.map(|level| db.begin(level));
        let cursor = || match &tx {
            Some(tx) => tx.cursor(db.default_family()).unwrap(),
            None => db.cursor().unwrap(),
        };
        let mut cursors = [cursor(), cursor()];
        let keys = |cursor: &mut Cursor| {
            let mut keys = String::new();
            cursor.seek_to_first().unwrap();
            while cursor.valid() {
                keys += std::str::from_utf8(cursor.key()).unwrap();
                cursor.next().unwrap();
            }
            keys
        };
        assert_eq!(keys(&mut cursors[0]), "abc");
        clock.advance(second);
        assert_eq!(keys(&mut cursors[0]), "abc", "{level:?}: nothing has moved it");
        let validates = level.is_some_and(|level| level != Isolation::ReadCommitted);
        let mut tx = tx;
        for ends in [false, true] {
            if ends && let Some(tx) = &mut tx {
                tx.rollback(); // the cursors stay
            }
            db.put("a", "new").unwrap();
            db.compact().unwrap();
            for cursor in &mut cursors {
                assert_eq!(keys(cursor), if validates { "abc" } else { "ac" }, "{level:?}, ends: {ends}");
            }
        }
        drop(cursors);
        db.put("a", "new").unwrap();
        db.compact().unwrap();
        assert_eq!(db.default_family().stats().table_entries, 2, "{level:?}");
    }
}

#[test]
fn a_cursor_of_a_dropped_family_or_of_uncommitted_rows_keeps_its_view() {
    let (db, _, _) = open(FamilyOptions::default());
    let family = db.create_family("f", FamilyOptions::default()).unwrap();
    family.put("a", "1").unwrap();
    family.flush().unwrap();
    family.put("b", "2").unwrap();
    let tx = db.begin(Isolation::ReadUncommitted);
    let mut cursors = [family.cursor().unwrap(), tx.cursor(&family).unwrap()];
    let both = |cursors: &mut [Cursor; 2]| {
        for cursor in cursors {
            cursor.seek_to_first().unwrap();
            assert_eq!(cursor.entry().unwrap(), (&b"a"[..], &b"1"[..]));
            cursor.next().unwrap();
            assert_eq!(cursor.key(), b"b");
        }
    };
    both(&mut cursors);
    db.rename_family("f", "g").unwrap();
    family.compact().unwrap();
    both(&mut cursors);
    assert_eq!(cursors.each_ref().map(has_newest_view), [true, false]);
    db.drop_family("g").unwrap();
    both(&mut cursors);
    assert!(cursors.iter_mut().all(|cursor| cursor.refresh().is_err()));
}

#[test]
fn cursors_are_counted_apart_from_snapshots() {
    let (db, _, clock) = open(FamilyOptions::default());
    db.put("a", "1").unwrap();
    let counts = || (db.stats().snapshots, db.stats().cursors);
    let snapshot = db.snapshot();
    let of_snapshot = snapshot.cursor(db.default_family()).unwrap();
    assert_eq!(counts(), (1, 1));
    drop(snapshot);
    let tx = db.begin(Isolation::Serializable);
    let many: Vec<_> = (0..200).map(|_| db.iter().unwrap()).collect();
    let of_tx = tx.cursor(db.default_family()).unwrap();
    assert_eq!(counts(), (1, 202));
    drop(tx);
    clock.advance(Duration::from_secs(5));
    assert_eq!(counts(), (0, 202));
    assert!((4.0..6.0).contains(&db.stats().oldest_cursor_seconds), "{}", db.stats().oldest_cursor_seconds);
    drop((of_snapshot, many));
    assert_eq!(counts(), (0, 1));
    drop(of_tx);
    assert_eq!((counts(), db.stats().oldest_cursor_seconds), ((0, 0), 0.0));
    assert!(db.first().unwrap().is_some() && db.get("a").unwrap().is_some());
}

#[test]
fn a_cursor_that_cannot_read_the_new_tables_walks_on_in_the_old_ones() {
    let (db, disk, _) = open(FamilyOptions::default());
    overwrite(&db);
    let mut cursor = db.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    db.compact().unwrap();
    let fault = sim::Fault::errno(5).on(sim::OpKind::Read).forever();
    disk.inject(fault);
    for n in 0..8 {
        assert_eq!(cursor.key(), key(n));
        cursor.next().unwrap();
    }
}

#[test]
fn both_ends_of_an_iterator_meet_after_they_moved() {
    let (db, _, _) = open(FamilyOptions::default());
    overwrite(&db);
    let mut iter = db.iter().unwrap().keys();
    let (mut front, mut back) = (0, 2000);
    for round in 0..2000 {
        if round % 100 == 50 {
            write(&db, (0..50).map(|n| (key(round + n), true)));
            if round % 200 == 50 { db.compact().unwrap() } else { db.flush().unwrap() }
        }
        if round % 3 == 0 {
            back -= 1;
            assert_eq!(iter.next_back().unwrap().unwrap(), key(back));
        } else {
            assert_eq!(iter.next().unwrap().unwrap(), key(front));
            front += 1;
        }
    }
    assert!(front == back && iter.next().is_none() && iter.next_back().is_none());
}
