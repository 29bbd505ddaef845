//! A report over a snapshot, while another thread keeps writing.
//!
//! `cargo run -p tidesdb-engine --example snapshots_and_scans`
#![allow(clippy::disallowed_methods, reason = "a program has threads")]

use std::error::Error;

use tidesdb::{Db, SyncMode};

const TILLS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    let db = Db::options(temp.path()).sync(SyncMode::None).open()?;
    let sales = db.default_family();

    // Keys are ordered as bytes, so "till/number" keeps the sales of one till together and in order.
    let key = |till: u32, n: u32| format!("{till:02}/{n:06}");
    for n in 0..1000 {
        db.put(key(n % TILLS, n).as_bytes(), b"1.50")?;
    }

    let closing_time = db.snapshot(); // one read timestamp for all families; cheap to take
    let total = std::thread::scope(|scope| -> tidesdb::Result<usize> {
        let late = scope
            .spawn(|| (1000..3000).try_for_each(|n| db.put(key(n % TILLS, n).as_bytes(), b"2.00").map(drop)));
        let mut total = 0;
        for till in 0..TILLS {
            // Scans of the snapshot do not see the thread's writes, and do not delay them.
            let sold = closing_time.prefix(sales, format!("{till:02}/").as_bytes())?.count();
            println!("till {till}: {sold} sales at closing time");
            total += sold;
        }
        late.join().expect("the writer does not panic")?;
        Ok(total)
    })?;
    println!("at closing time: {total}, now: {}", db.iter()?.count());

    // A cursor can be moved anywhere: to the last sale of till 3, and one further back.
    let mut cursor = db.cursor()?;
    cursor.seek_for_prev(b"03/999999")?;
    println!("last sale of till 3: {}", String::from_utf8_lossy(cursor.key()));
    cursor.prev()?;
    println!("the one before:      {}", String::from_utf8_lossy(cursor.key()));

    if total != 1000 {
        return Err("the snapshot changed".into());
    }
    Ok(())
}
