//! Calls through C, to count their instructions: the operations of the engine's example `gate` that C has too, over the
//! same rows and under the same names. `cargo xtask bench-gate` runs both.

#[path = "../../../tidesdb/examples/gate/rows.rs"]
mod rows;
#[path = "../through_c/mod.rs"]
mod through_c;

use std::path::Path;

use rows::{KEYS, key, scattered, value};
use through_c::{Handle, Rows, ThroughC};

/// Name, number of operations, and the function that runs them.
type Operation = (&'static str, u64, fn(&ThroughC, u64));

const OPERATIONS: [Operation; 6] = [
    ("tx-batch-1000", 20_000, |c, n| {
        let txn = c.begin();
        batches_measured(c, txn, n);
        c.commit(txn);
        c.end(txn);
    }),
    ("get-memtable", 20_000, |c, n| get(c, n)),
    ("get-table", 20_000, |c, n| {
        c.purge();
        get(c, n);
    }),
    ("seek", 20_000, |c, n| {
        walk(c, |rows| {
            (0..KEYS).for_each(|i| rows.seek(&key(i * 2)));
            seeks_measured(rows, n);
        });
    }),
    ("range-100", 1_000, |c, n| walk(c, |rows| ranges_measured(rows, n))),
    ("next", 40_000, |c, n| walk(c, |rows| scan_measured(rows, n))),
];

fn main() -> std::io::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((name, count, run)) = OPERATIONS.iter().find(|(known, ..)| *known == name) else {
        // One line each: `name count`.
        OPERATIONS.iter().for_each(|(name, count, _)| println!("{name} {count}"));
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let c = loaded(dir.path());
    run(&c, *count);
    c.close();
    println!("{name} done");
    Ok(())
}

fn loaded(dir: &Path) -> ThroughC {
    let c = ThroughC::open(dir);
    let txn = c.begin();
    let order = (0..KEYS).map(|i| scattered(i) % KEYS).chain(0..KEYS);
    for (n, i) in order.enumerate() {
        c.put(txn, &key(i * 2), &value(i));
        if n % 1000 == 999 {
            c.commit(txn);
            c.reset(txn);
        }
    }
    c.end(txn);
    c
}

#[inline(never)]
fn batches_measured(c: &ThroughC, txn: Handle, n: u64) {
    for i in 0..n {
        c.put(txn, &key(scattered(i) % (KEYS * 2)), &value(i));
        if i % 1000 == 999 {
            c.commit(txn);
            c.reset(txn);
        }
    }
}

fn get(c: &ThroughC, n: u64) {
    let txn = c.begin();
    (0..KEYS).for_each(|i| c.get(txn, &key(i * 2)));
    gets_measured(c, txn, n);
    c.end(txn);
}

#[inline(never)]
fn gets_measured(c: &ThroughC, txn: Handle, n: u64) {
    (0..n).for_each(|i| c.get(txn, &key(scattered(i) % KEYS * 2)));
}

/// Runs `what` on an iterator over tables that has visited all rows and is at the first one.
fn walk(c: &ThroughC, what: impl FnOnce(&mut Rows)) {
    c.purge();
    let txn = c.begin();
    let mut rows = c.iterator(txn);
    rows.seek(&key(0));
    for _ in 0..KEYS {
        rows.key_and_value();
        rows.next();
    }
    rows.seek(&key(0));
    what(&mut rows);
    rows.free();
    c.end(txn);
}

#[inline(never)]
fn seeks_measured(rows: &mut Rows, n: u64) {
    for i in 0..n {
        rows.seek(&key(scattered(i) % KEYS * 2));
        rows.key();
    }
}

#[inline(never)]
fn ranges_measured(rows: &mut Rows, n: u64) {
    for i in 0..n {
        rows.seek(&key(scattered(i) % (KEYS - 100) * 2));
        rows.key_and_value();
        for _ in 1..100 {
            rows.next();
            rows.key_and_value();
        }
    }
}

#[inline(never)]
fn scan_measured(rows: &mut Rows, n: u64) {
    for _ in 0..n {
        rows.key_and_value();
        rows.next();
    }
}
