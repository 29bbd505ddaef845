//! Writes a database with an object store, removes its folder, reopens it from the store and compares every
//! row.
//!
//! ```text
//! cargo run --profile dist -p tidesdb-objects --example cold_open -- FOLDER [MEGABYTES] [VALUE BYTES] [CACHE MEGABYTES]
//! ```
#![expect(clippy::unwrap_used, reason = "an example stops at the first error")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidesdb::store::DirectoryStore;
use tidesdb::{Db, RemoteOptions, RemoteStats, SyncMode};

const MB: u64 = 1 << 20;

/// The value of row `i`: bytes that do not compress.
fn value(i: u64, bytes: usize) -> Vec<u8> {
    let mut state = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Returns a key. The order is random without a cache limit, and ascending with one: tables are fetched whole,
/// so random reads over more tables than the cache holds would fetch them again and again.
fn key(i: u64, cache_mb: u64) -> Vec<u8> {
    let n = if cache_mb == 0 { i.wrapping_mul(7_919) % 1_000_000_007 } else { i };
    format!("key{n:012}").into_bytes()
}

fn open(folder: &Path, cache_mb: u64) -> Db {
    let store = DirectoryStore::open(folder.join("objects")).unwrap();
    let mut remote = RemoteOptions::new(Arc::new(store));
    remote.local_bytes_max = cache_mb * MB;
    Db::options(folder.join("db")).sync(SyncMode::None).remote(remote).open().unwrap()
}

fn show(what: &str, since: Instant, stats: &RemoteStats) {
    println!(
        "{what:<22} {:>6.1} s  uploaded {:>5} objects {:>7.1} MB  fetched {:>5} objects {:>7.1} MB  here {:>7.1} MB",
        since.elapsed().as_secs_f64(),
        stats.uploads,
        stats.uploaded_bytes as f64 / MB as f64,
        stats.downloads,
        stats.downloaded_bytes as f64 / MB as f64,
        stats.local_bytes as f64 / MB as f64,
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(default, |arg| arg.parse().unwrap());
    let folder = Path::new(args.first().map_or("cold-open", String::as_str));
    let (megabytes, bytes, cache_mb) = (number(1, 1024), number(2, 1000) as usize, number(3, 0));
    let rows = megabytes * MB / bytes as u64;
    let began = Instant::now();
    let db = open(folder, cache_mb);
    for i in 0..rows {
        db.put(&key(i, cache_mb), &value(i, bytes)).unwrap();
    }
    show("written", began, &db.stats().remote.unwrap());
    db.upload().unwrap();
    show("uploaded", began, &db.stats().remote.unwrap());
    db.close().unwrap();
    let stored: u64 = std::fs::read_dir(folder.join("objects"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    println!("{rows} rows of {bytes} bytes; the store holds {:.1} MB", stored as f64 / MB as f64);
    std::fs::remove_dir_all(folder.join("db")).unwrap();

    let began = Instant::now();
    let db = open(folder, cache_mb);
    show("opened cold", began, &db.stats().remote.unwrap());
    for i in 0..rows {
        let found = db.get(&key(i, cache_mb)).unwrap();
        assert!(found.as_deref() == Some(&*value(i, bytes)), "row {i} differs from what was written");
    }
    assert_eq!(db.iter().unwrap().count() as u64, rows);
    show("every row is equal", began, &db.stats().remote.unwrap());
    db.close().unwrap();
}
