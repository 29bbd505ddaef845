//! How deletes affect the cost of a scan: `cargo run --profile dist --example deletes [MILLIONS]`.
//!
//! A family has N million keys, followed by a tenth as many. The first N million are deleted, one by one or by one range delete. Then the
//! rest is scanned from the beginning of the family, over the deleted keys: at once or after `flush()`, and when the background is done.
//! The first scan is compared with the first scan of a family without deletes, and the best later scan with its best. Finally, a
//! transaction of N million puts.

#![expect(clippy::disallowed_methods, reason = "measures time outside of the engine")]

use std::time::{Duration, Instant};

use tidesdb::{Db, Family, Isolation, SyncMode, WriteBatch};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key-............";
    key[4..].copy_from_slice(format!("{n:012}").as_bytes());
    key
}

fn fill(db: &Db, from: u64, to: u64) -> Outcome<()> {
    let mut batch = WriteBatch::new();
    for n in from..to {
        batch.put(db.default_family(), &key(n), &[7; 100])?;
        if batch.len() == 1000 || n + 1 == to {
            db.write(&mut batch)?;
        }
    }
    Ok(())
}

fn settle(db: &Db) -> Outcome<()> {
    db.flush()?;
    while db.stats().jobs_pending > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns the seconds for a scan of all rows: the first time, and the best of three more.
fn scan(family: &Family, rows: u64) -> Outcome<(f64, f64)> {
    let (mut first, mut best) = (0.0, f64::MAX);
    for round in 0..4 {
        let started = Instant::now();
        let mut cursor = family.cursor()?;
        cursor.seek_to_first()?;
        let mut count = 0;
        while cursor.valid() {
            count += 1;
            cursor.next()?;
        }
        let took = started.elapsed().as_secs_f64();
        match round {
            0 => first = took,
            _ => best = best.min(took),
        }
        assert_eq!(count, rows);
    }
    Ok((first, best))
}

fn open() -> Outcome<(tempfile::TempDir, Db)> {
    let dir = tempfile::tempdir()?;
    let db = Db::options(dir.path()).sync(SyncMode::None).open()?;
    Ok((dir, db))
}

fn main() -> Outcome<()> {
    let millions: u64 = std::env::args().nth(1).map_or(Ok(10), |n| n.parse())?;
    let (dead, rows) = (millions * 1_000_000, millions * 100_000);

    let (_dir, db) = open()?;
    fill(&db, dead, dead + rows)?;
    settle(&db)?;
    let (plain_first, plain) = scan(db.default_family(), rows)?;
    println!("{rows} rows, nothing deleted before them: {plain_first:.3} s at first, {plain:.3} s again");

    for how in ["one by one", "one by one and flushed", "by one range delete"] {
        let (_dir, db) = open()?;
        fill(&db, 0, dead + rows)?;
        settle(&db)?;
        let started = Instant::now();
        if how != "by one range delete" {
            let mut batch = WriteBatch::new();
            for n in 0..dead {
                batch.delete(db.default_family(), &key(n))?;
                if batch.len() == 1000 {
                    db.write(&mut batch)?;
                }
            }
            db.write(&mut batch)?;
        } else {
            db.delete_range(key(0)..key(dead))?;
        }
        let took = started.elapsed();
        if how == "one by one and flushed" {
            db.flush()?;
            println!("flush(): {:.2?}", started.elapsed() - took);
        }
        let (first, again) = scan(db.default_family(), rows)?;
        settle(&db)?;
        let (_, settled) = scan(db.default_family(), rows)?;
        println!(
            "{dead} keys deleted {how} in {took:.2?}: {first:.3} s ({:.1} times) at once, {again:.3} s ({:.1} times) again, \
             {settled:.3} s ({:.1} times) settled, {} MiB of tables",
            first / plain_first,
            again / plain,
            settled / plain,
            db.default_family().stats().level_bytes.iter().sum::<u64>() >> 20,
        );
    }

    let (_dir, db) = open()?;
    let started = Instant::now();
    let mut tx = db.begin(Isolation::Snapshot);
    for n in 0..dead {
        tx.put(db.default_family(), &key(n), &[7; 100])?;
    }
    tx.commit()?;
    println!("a transaction of {dead} puts: {:.2?}", started.elapsed());
    Ok(())
}
