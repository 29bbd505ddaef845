//! Fills a database whose memtables are small, so that its tree has all kinds of levels, and prints the events of its last merge into the
//! largest level.
//!
//! ```sh
//! cargo run --release -p tidesdb-engine --example four_levels -- /tmp/four-levels
//! tidesdb levels /tmp/four-levels
//! ```
#![allow(clippy::disallowed_methods, reason = "it empties its folder")]

use std::path::Path;
use std::time::Duration;

use tidesdb::{Db, FamilyOptions, SyncMode, WriteBatch};

/// Rows to write.
const ROWS: u64 = 2_000_000;
/// Number of different keys.
const KEYS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the argument is the directory of a new database")?;
    let family = FamilyOptions::default().write_buffer_bytes(64 << 10).table_bytes(512 << 10);
    let db = Db::options(&path).sync(SyncMode::None).default_family(family).open()?;
    let mut batch = WriteBatch::new();
    for i in 0..ROWS {
        let random = mix(i);
        let value = [random, mix(random), mix(random + 1), mix(random + 2)].map(u64::to_le_bytes).concat();
        batch.put(db.default_family(), format!("user{:09}", random % KEYS).as_bytes(), &value)?;
        if batch.len() == 100 {
            db.write(&mut batch)?;
        }
    }
    db.write(&mut batch)?;
    while db.stats().jobs_pending > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let largest = db.default_family().tree().largest_level;
    db.close()?;
    print_last_merge(Path::new(&path), largest)
}

/// Prints the last merge into the `largest` level, and the flush before it.
fn print_last_merge(path: &Path, largest: usize) -> Result<(), Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(path.join("EVENTS"))?;
    let lines: Vec<&str> = text.lines().collect();
    let is = |line: &&str, event: &str| line.contains(&format!("\"event\":\"{event}\""));
    let merge =
        lines.iter().rposition(|line| is(line, "merge") && line.contains(&format!("\"target\":{largest},")));
    let merge = merge.ok_or("no merge reached the largest level")?;
    let flush = lines[..merge].iter().rfind(|line| is(line, "flush"));
    flush.into_iter().chain([&lines[merge]]).for_each(|line| println!("{line}"));
    Ok(())
}

/// A reproducible random number (SplitMix64).
fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
