//! Measures the extra cost of calls through C over Rust: `cargo run --profile dist -p tidesdb-capi --example cost`.
//!
//! The same work alternates between both interfaces, on two databases of the same contents. The result is this thread's
//! processor time in nanoseconds per operation, in the fastest of several rounds, because background flushes slow some. On Windows
//! it is the time that passes.

#[path = "../through_c/mod.rs"]
mod through_c;

use std::hint::black_box;

use through_c::ThroughC;
use tidesdb::{Db, Isolation, SyncMode};

const KEYS: u64 = 100_000;
const OPS: u64 = 200_000;
const ROUNDS: usize = 12;

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    let mut n = n % KEYS;
    for place in key[4..].iter_mut().rev() {
        *place = b'0' + (n % 10) as u8;
        n /= 10;
    }
    key
}

/// Returns the keys in a scattered order.
fn nth(n: u64) -> [u8; 16] {
    key(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
}

#[cfg(unix)]
fn now() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(not(unix))]
#[allow(clippy::disallowed_methods, reason = "it measures time")]
fn now() -> f64 {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed().as_nanos() as f64
}

fn nanos(ops: u64, mut op: impl FnMut(u64)) -> f64 {
    let started = now();
    (0..ops).for_each(&mut op);
    (now() - started) / ops as f64
}

fn report(what: &str, rust: impl FnMut(u64), c: impl FnMut(u64)) {
    report_of(OPS, what, rust, c);
}

fn report_of(ops: u64, what: &str, mut rust: impl FnMut(u64), mut c: impl FnMut(u64)) {
    let (mut by_rust, mut by_c) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            by_rust.push(nanos(ops, &mut rust));
            by_c.push(nanos(ops, &mut c));
        } else {
            by_c.push(nanos(ops, &mut c));
            by_rust.push(nanos(ops, &mut rust));
        }
    }
    by_rust.sort_by(f64::total_cmp);
    by_c.sort_by(f64::total_cmp);
    let (rust, c) = (by_rust[0], by_c[0]);
    println!("{what:28} Rust {rust:7.1} ns   C {c:7.1} ns   {:+6.1} ns", c - rust);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (dir, c_dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let db = Db::options(dir.path()).sync(SyncMode::None).open()?;
    let data = db.create_family("data", tidesdb::FamilyOptions::default())?;
    let c = ThroughC::open(c_dir.path());
    let mut tx = db.begin(Isolation::ReadCommitted);
    let txn = c.begin();
    for n in 0..KEYS {
        tx.put(&data, &key(n), &[7; 100])?;
        c.put(txn, &key(n), &[7; 100]);
    }
    tx.commit()?;
    c.commit(txn);

    reads(&db, &data, &c, "in memory");
    db.compact()?;
    c.purge();
    reads(&db, &data, &c, "in tables");

    c.reset(txn);
    report(
        "put in a batch of 1000",
        |n| {
            if n % 1000 == 0 {
                let _ = tx.commit();
                tx.reset_at(Isolation::ReadCommitted);
            }
            let _ = tx.put(&data, &nth(n), &[7; 100]);
        },
        |n| {
            if n % 1000 == 0 {
                c.commit(txn);
                c.reset(txn);
            }
            c.put(txn, &nth(n), &[7; 100]);
        },
    );
    report(
        "begin, put, commit, free",
        |n| {
            let mut tx = db.begin(Isolation::ReadCommitted);
            let _ = (tx.put(&data, &nth(n), &[7; 100]), tx.commit());
        },
        |n| {
            let txn = c.begin();
            c.put(txn, &nth(n), &[7; 100]);
            c.commit(txn);
            c.end(txn);
        },
    );
    c.end(txn);
    c.close();
    Ok(())
}

fn reads(db: &Db, data: &tidesdb::Family, c: &ThroughC, place: &str) {
    let tx = db.begin(Isolation::ReadCommitted);
    let txn = c.begin();
    report(&format!("get {place}"), |n| drop(black_box(tx.get(data, &nth(n)))), |n| c.get(txn, &nth(n)));
    let Ok(mut cursor) = tx.cursor(data) else { return };
    let mut rows = c.iterator(txn);
    report(
        &format!("seek {place}"),
        |n| {
            let _ = cursor.seek(&nth(n));
            black_box(cursor.key());
        },
        |n| {
            rows.seek(&nth(n));
            rows.key();
        },
    );
    report(
        &format!("next, key, value {place}"),
        |n| {
            if n % 50_000 == 0 {
                let _ = cursor.seek(&key(0));
            }
            let _ = cursor.next();
            black_box(cursor.entry()).ok();
        },
        |n| {
            if n % 50_000 == 0 {
                rows.seek(&key(0));
            }
            rows.next();
            rows.key_and_value();
        },
    );
    let start = |n| key(n * 7919 % (KEYS - 100));
    report_of(
        OPS / 50,
        &format!("range of 100 {place}"),
        |n| {
            let _ = cursor.seek(&start(n));
            black_box(cursor.entry()).ok();
            for _ in 1..100 {
                let _ = cursor.next();
                black_box(cursor.entry()).ok();
            }
        },
        |n| {
            rows.seek(&start(n));
            rows.key_and_value();
            for _ in 1..100 {
                rows.next();
                rows.key_and_value();
            }
        },
    );
    rows.free();
    c.end(txn);
}
