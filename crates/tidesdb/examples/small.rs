//! What a small database costs: many are created, written once, closed and removed; one is opened and closed many times.
//!
//! `cargo run --release -p tidesdb-engine --example small [COUNT [FOLDER]]` (1000 databases in the system's folder for temporary files)
#![allow(clippy::disallowed_methods, reason = "a program that measures reads the clock")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidesdb::Db;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let count: u32 = args.next().map_or(Ok(1000), |count| count.parse())?;
    let temp = tempfile::tempdir_in(args.next().map_or_else(std::env::temp_dir, PathBuf::from))?;

    let mut removed = Duration::ZERO;
    let began = Instant::now();
    for n in 0..count {
        let path = temp.path().join(n.to_string());
        let db = Db::open(&path)?;
        db.put("whale", "blue")?;
        db.close()?;
        let begins = Instant::now();
        std::fs::remove_dir_all(&path)?;
        removed += begins.elapsed();
    }
    let took = began.elapsed();
    println!("{count} databases created, written once and closed: {}", each(took - removed, count));
    println!("removed: {}", each(removed, count));

    let path = temp.path().join("one");
    let db = Db::open(&path)?;
    println!("a new database takes {} KiB", kib(&path)?);
    db.put("whale", "blue")?;
    println!("with a row {} KiB", kib(&path)?);
    db.close()?;
    println!("closed {} KiB", kib(&path)?);
    let began = Instant::now();
    for _ in 0..count {
        Db::open(&path)?.close()?;
    }
    println!("opened and closed: {}", each(began.elapsed(), count));
    let began = Instant::now();
    for n in 0..count {
        let db = Db::open(&path)?;
        db.put("whale", n.to_string())?;
        db.close()?;
    }
    println!("opened, written once and closed: {}", each(began.elapsed(), count));
    Ok(())
}

fn each(took: Duration, count: u32) -> String {
    format!("{:.2} s, {:.2} ms each", took.as_secs_f64(), took.as_secs_f64() * 1e3 / f64::from(count.max(1)))
}

/// What the files in `path` take of the disk.
#[cfg(unix)]
fn kib(path: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::read_dir(path)?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.blocks() / 2))
}

#[cfg(not(unix))]
fn kib(path: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(path)?.try_fold(0, |sum, entry| Ok(sum + (entry?.metadata()?.len() >> 10)))
}
