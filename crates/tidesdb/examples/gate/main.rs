//! Runs one kind of operation, to count its instructions: `cargo xtask bench-gate` runs this under callgrind.
//!
//! `gate OPERATION` prepares a database, warms up, and then runs the operation `COUNT` times inside a function whose name ends in
//! `measured`; only instructions in there are counted. No threads, no timers: the count is the same each time.
#![allow(clippy::disallowed_methods, reason = "a measurement copies its database")]
#![allow(clippy::unwrap_used, reason = "a measurement panics at the first error")]

mod rows;

use std::hint::black_box;
use std::path::Path;

use rows::{KEYS, key, scattered, value};
use tidesdb::{Cursor, Db, Family, Isolation, SyncMode, Transaction, WriteBatch};

/// Name, number of repetitions, and the function.
type Operation = (&'static str, u64, fn(&Path, u64));

const OPERATIONS: [Operation; 12] = [
    ("put", 10_000, |dir, n| put_measured(loaded(dir, SyncMode::None, false).default_family(), n)),
    ("put-batch-1000", 20_000, |dir, n| {
        let db = loaded(dir, SyncMode::None, false);
        batches_measured(&db, &mut WriteBatch::new(), n);
    }),
    ("tx-batch-1000", 20_000, |dir, n| {
        let db = loaded(dir, SyncMode::None, false);
        transactions_measured(&db, &mut db.begin(Isolation::ReadCommitted), n, 1000);
    }),
    ("tx-serializable", 5_000, |dir, n| {
        let db = loaded(dir, SyncMode::None, true);
        updates_measured(&db, &mut db.begin(Isolation::Serializable), n);
    }),
    ("commit-sync", 200, |dir, n| put_measured(loaded(dir, SyncMode::Full, false).default_family(), n)),
    ("get-memtable", 20_000, |dir, n| get(&loaded(dir, SyncMode::None, false), n, 0)),
    ("get-table", 20_000, |dir, n| get(&loaded(dir, SyncMode::None, true), n, 0)),
    ("get-absent", 20_000, |dir, n| get(&loaded(dir, SyncMode::None, true), n, 1)),
    ("seek", 20_000, |dir, n| {
        let db = loaded(dir, SyncMode::None, true);
        let mut cursor = db.default_family().cursor().unwrap();
        (0..KEYS).for_each(|i| cursor.seek(&key(i * 2)).unwrap());
        seek_measured(&mut cursor, n);
    }),
    ("next", 40_000, |dir, n| {
        let db = loaded(dir, SyncMode::None, true);
        assert_eq!(db.iter().unwrap().count() as u64, KEYS);
        scan_measured(&mut at_first(&db), n);
    }),
    ("range-100", 1_000, |dir, n| {
        let db = loaded(dir, SyncMode::None, true);
        assert_eq!(db.iter().unwrap().count() as u64, KEYS);
        ranges_measured(&mut at_first(&db), n);
    }),
    ("next-merged", 40_000, |dir, n| {
        let db = loaded(dir, SyncMode::None, true);
        (0..KEYS).step_by(3).for_each(|i| db.put(&key(i * 2), &value(i)).map(drop).unwrap());
        scan_measured(&mut at_first(&db), n);
    }),
];

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((name, count, run)) = OPERATIONS.iter().find(|(known, ..)| *known == name) else {
        // One line each: `name count`.
        OPERATIONS.iter().for_each(|(name, count, _)| println!("{name} {count}"));
        return;
    };
    let dir = std::env::temp_dir().join(format!("tidesdb-gate-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    run(&dir, *count);
    std::fs::remove_dir_all(&dir).unwrap();
    println!("{name} done");
}

/// Creates a database with `KEYS` even keys, in tables or in the memtable.
fn loaded(dir: &Path, sync: SyncMode, flushed: bool) -> Db {
    let db =
        Db::options(dir).sync(SyncMode::None).background_threads(0).cache_bytes(64 << 20).open().unwrap();
    let mut batch = WriteBatch::new();
    for i in 0..KEYS {
        let i = scattered(i) % KEYS;
        batch.put(db.default_family(), &key(i * 2), &value(i)).unwrap();
        if batch.len() == 1000 {
            db.write(&mut batch).unwrap();
        }
    }
    (0..KEYS).for_each(|i| batch.put(db.default_family(), &key(i * 2), &value(i)).unwrap());
    db.write(&mut batch).unwrap();
    if flushed {
        db.compact().unwrap();
    }
    if sync == SyncMode::None {
        return db;
    }
    db.close().unwrap();
    let db = Db::options(dir).sync(sync).background_threads(0).open().unwrap();
    db.put(key(0), value(0)).unwrap(); // the first write of a session begins its log and its manifest
    db
}

fn at_first(db: &Db) -> Cursor {
    let mut cursor = db.default_family().cursor().unwrap();
    cursor.seek_to_first().unwrap();
    cursor
}

fn get(db: &Db, n: u64, odd: u64) {
    let family = db.default_family();
    for i in 0..KEYS {
        black_box(family.get(&key(i * 2 + odd)).unwrap());
    }
    get_measured(family, n, odd);
}

#[inline(never)]
fn put_measured(family: &Family, n: u64) {
    for i in 0..n {
        family.put(&key(scattered(i) % (KEYS * 2)), &value(i)).unwrap();
    }
}

#[inline(never)]
fn batches_measured(db: &Db, batch: &mut WriteBatch, n: u64) {
    for i in 0..n {
        batch.put(db.default_family(), &key(scattered(i) % (KEYS * 2)), &value(i)).unwrap();
        if batch.len() == 1000 {
            db.write(batch).unwrap();
        }
    }
}

#[inline(never)]
fn transactions_measured(db: &Db, tx: &mut Transaction, n: u64, writes: usize) {
    for i in 0..n {
        tx.put(db.default_family(), &key(scattered(i) % (KEYS * 2)), &value(i)).unwrap();
        if tx.len() == writes {
            tx.commit().unwrap();
            tx.reset();
        }
    }
}

/// Reads one key, writes it, commits.
#[inline(never)]
fn updates_measured(db: &Db, tx: &mut Transaction, n: u64) {
    for i in 0..n {
        let key = key(scattered(i) % KEYS * 2);
        black_box(tx.get(db.default_family(), &key).unwrap());
        tx.put(db.default_family(), &key, &value(i)).unwrap();
        tx.commit().unwrap();
        tx.reset();
    }
}

#[inline(never)]
fn get_measured(family: &Family, n: u64, odd: u64) {
    for i in 0..n {
        black_box(family.get(&key(scattered(i) % KEYS * 2 + odd)).unwrap());
    }
}

#[inline(never)]
fn seek_measured(cursor: &mut Cursor, n: u64) {
    for i in 0..n {
        cursor.seek(&key(scattered(i) % KEYS * 2)).unwrap();
        black_box(cursor.key());
    }
}

/// Seeks to a key and reads 100 rows from there.
#[inline(never)]
fn ranges_measured(cursor: &mut Cursor, n: u64) {
    for i in 0..n {
        cursor.seek(&key(scattered(i) % (KEYS - 100) * 2)).unwrap();
        black_box(cursor.entry().unwrap());
        for _ in 1..100 {
            cursor.next().unwrap();
            black_box(cursor.entry().unwrap());
        }
    }
}

#[inline(never)]
fn scan_measured(cursor: &mut Cursor, n: u64) {
    for _ in 0..n {
        if !cursor.valid() {
            return;
        }
        black_box(cursor.entry().unwrap());
        cursor.next().unwrap();
    }
}
