//! A cache of pages whose entries expire; large values are stored separately from small ones.
//!
//! `cargo run -p tidesdb-engine --example ttl_cache`

use std::error::Error;
use std::time::Duration;

use tidesdb::{Compression, Db, Family, FamilyOptions, SyncMode};

const FRESH: Duration = Duration::from_secs(1);

/// Returns the page, from the cache or newly created, and whether it was cached.
fn page(cache: &Family, address: &str) -> tidesdb::Result<(String, bool)> {
    if let Some(page) = cache.get_map(address.as_bytes(), |v| String::from_utf8_lossy(v).into_owned())? {
        return Ok((page, true));
    }
    let page = format!("<h1>{address}</h1>{}", "<p>words</p>".repeat(2000)); // slow, in a real program
    cache.put_with_ttl(address.as_bytes(), page.as_bytes(), FRESH)?;
    Ok((page, false))
}

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    // A cache may lose its most recent entries in a power cut.
    let db = Db::options(temp.path()).sync(SyncMode::None).open()?;
    // Values from 1 KiB on are stored in separate files: compaction moves their keys but not the values.
    let options = FamilyOptions::default().value_threshold(1024).compression(Compression::Zstd);
    let cache = db.family_or_create("pages", options)?;

    for visit in ["first", "second"] {
        let (page, cached) = page(&cache, "/whales")?;
        println!("{visit} visit: {} bytes, cached: {cached}", page.len());
        if cached != (visit == "second") {
            return Err("the cache does not work".into());
        }
    }

    std::thread::sleep(FRESH + Duration::from_millis(250)); // an idle database reads the clock ten times a second
    println!("after its expiry it is found: {}", cache.contains(b"/whales")?);
    if cache.contains(b"/whales")? {
        return Err("the page has not expired".into());
    }

    cache.compact()?; // otherwise the background does this later
    println!("entries left after compaction: {}", cache.stats().table_entries);
    Ok(())
}
