//! The cost and the durability of a write in each sync mode.
//!
//! `cargo run --profile dist -p tidesdb-engine --example durability [FOLDER]` (a folder on a real disk shows real costs)
#![expect(clippy::disallowed_methods, reason = "an example may read the clock")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidesdb::{Db, SyncMode, WriteBatch, WriteOptions};

const WRITES: u32 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or(temp.path().to_owned(), PathBuf::from);

    // In every mode a write that returned survives the end of the process, and a power cut leaves a prefix of the writes
    // without gaps. The mode determines the length of the prefix.
    let modes = [
        (SyncMode::Full, "full", "every write that returned"),
        (SyncMode::Interval(Duration::from_millis(100)), "interval", "all but about the last 100 ms"),
        (SyncMode::None, "none", "up to the last flush or sync"),
    ];
    println!("mode       per write    a power cut leaves");
    for (mode, name, survives) in modes {
        let took = write(&folder.join(name), mode)?;
        println!("{name:<9} {took:>10.1?}    {survives}");
    }

    // A single write can request more durability than its database provides; all earlier writes become durable with it.
    let db = Db::options(folder.join("none")).sync(SyncMode::None).open()?;
    let mut batch = WriteBatch::new();
    batch.put(db.default_family(), b"order 17", b"paid")?;
    let seq = db.write_with(&mut batch, &WriteOptions::default().sync(SyncMode::Full))?;
    println!("\norder 17 is commit {seq}; durable now: everything below {}", db.stats().durable_end);

    // `sync` does the same at any time: afterwards everything so far is durable.
    db.put(b"order 18", b"paid")?;
    println!("after sync: everything below {}", db.sync()?);
    db.close()?;

    let db = Db::open(folder.join("none"))?;
    println!("opened again: {}", db.recovery_report());
    let kept = db.iter()?.count();
    if kept != WRITES as usize + 2 {
        return Err(format!("{kept} of {} writes survived", WRITES + 2).into());
    }
    Ok(())
}

/// Returns the time per write.
fn write(folder: &Path, mode: SyncMode) -> tidesdb::Result<Duration> {
    let db = Db::options(folder).sync(mode).open()?;
    let start = Instant::now();
    for n in 0..WRITES {
        db.put(format!("key {n:04}").as_bytes(), b"value")?;
    }
    let took = start.elapsed() / WRITES;
    db.close()?;
    Ok(took)
}
