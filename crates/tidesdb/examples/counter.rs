//! Page views counted by a merge operator, and forgotten by a compaction filter.
//!
//! `cargo run -p tidesdb-engine --example counter`
#![allow(clippy::disallowed_methods, reason = "a program has threads")]

use std::error::Error;

use tidesdb::{CompactionFilter, Db, Decision, Family, FamilyOptions, MergeOperator, SyncMode, WriteBatch};

/// The views of `page`.
fn views(family: &Family, page: &str) -> Result<u64, Box<dyn Error>> {
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
    Ok(family.get_map(page, number)?.transpose()?.unwrap_or(0))
}

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    let db = Db::options(temp.path()).sync(SyncMode::None).open()?;
    let options = FamilyOptions::default().merge_operator(MergeOperator::add());
    let pages = db.family_or_create("views", options)?;

    // A merge is written like a put: nothing is read, and no other writer is in its way.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).try_for_each(|_| pages.merge("/whales", 1u64.to_le_bytes()).map(drop)));
        }
    });
    pages.merge("/once", 1u64.to_le_bytes())?;
    println!("/whales: {} views", views(&pages, "/whales")?);
    if views(&pages, "/whales")? != 4000 {
        return Err("a view was lost".into());
    }

    // Several operands of one batch apply in order, and with the rest of the batch or not at all.
    let mut batch = WriteBatch::new();
    batch.merge(&pages, "/whales", 10u64.to_le_bytes())?;
    batch.merge(&pages, "/seals", 2u64.to_le_bytes())?;
    batch.delete(&pages, "/old")?;
    db.write(&mut batch)?;
    println!("/whales: {} views, /seals: {}", views(&pages, "/whales")?, views(&pages, "/seals")?);

    // Merges of tables combine the operands, and drop pages that were viewed only once.
    pages.set_compaction_filter(Some(CompactionFilter::new("viewed once", |row| match row.value {
        Some(value) if value == 1u64.to_le_bytes() => Decision::Remove,
        _ => Decision::Keep,
    })));
    pages.compact()?;
    println!("after a merge of the tables: {} entries", pages.stats().table_entries);
    if pages.contains("/once")? || views(&pages, "/whales")? != 4010 {
        return Err("the merge of the tables went wrong".into());
    }
    db.close()?;
    Ok(())
}
