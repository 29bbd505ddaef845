//! A consistent copy of a database in use, checked before it is trusted.
//!
//! `cargo run -p tidesdb-engine --example backup [DATABASE COPY]` (without arguments: a small database in a temporary folder)

use std::error::Error;
use std::path::PathBuf;

use tidesdb::{Db, WriteBatch};

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (database, copy, sample) = match (args.next(), args.next()) {
        (Some(database), Some(copy)) => (database, copy, false),
        _ => (temp.path().join("shop.db"), temp.path().join("backup"), true),
    };

    let db = Db::options(&database).create_if_missing(sample).open()?;
    if sample {
        let mut batch = WriteBatch::new();
        for n in 0..10_000u32 {
            batch.put(db.default_family(), format!("order {n:06}").as_bytes(), b"one whale, gift-wrapped")?;
        }
        db.write(&mut batch)?;
    }

    // Hard links to immutable files: fast, initially without disk space, and writers continue. The copy must be on the same
    // file system; from there it can be copied anywhere with ordinary tools.
    db.checkpoint(&copy)?;
    println!("copied to {}", copy.display());
    db.put(b"order after the backup", b"not in the copy")?;

    // Do not trust a copy that was never read. Read every byte of it.
    let backup = Db::options(&copy).read_only(true).open()?;
    let report = backup.verify()?;
    println!("{report}");
    if !report.is_ok() {
        return Err("the copy is damaged".into());
    }
    for name in backup.families() {
        println!("family {name:?}: {} keys", backup.family(&name)?.iter()?.keys().count());
    }
    if backup.contains(b"order after the backup")? {
        return Err("the copy is not independent".into());
    }
    Ok(())
}
