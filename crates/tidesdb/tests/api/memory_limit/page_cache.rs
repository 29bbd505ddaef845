//! What merges leave in the system's page cache.

use std::path::Path;

use tidesdb::{Db, FamilyOptions};
use tidesdb_io::{Access, Advice, Disk as _, File, RealDisk};

/// The tables in `path`.
fn tables(path: &Path) -> Vec<std::sync::Arc<dyn File>> {
    let dir = RealDisk::new().open_dir(path, false).unwrap();
    let names =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".klog")).map(|name| dir.open(&name, Access::Read).unwrap()).collect()
}

/// After a restart of the machine no table is in the page cache. Tables that merges wrote used to stay out of it from then on.
#[test]
fn a_merge_of_data_that_fits_into_memory_fills_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let family = FamilyOptions::default().table_bytes(1 << 20);
        Db::options(dir.path()).default_family(family).background_threads(0).open().unwrap()
    };
    let db = open();
    for version in 0..2 {
        for i in 0..20_000u64 {
            db.put(i.to_le_bytes(), (i * 0x9E37_79B9 + version).to_le_bytes().repeat(20)).unwrap();
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
    for table in tables(dir.path()) {
        table.advise(Advice::DontNeed, 0, 0).unwrap();
        if table.is_cached(4096).unwrap() {
            return; // a file system in memory
        }
    }
    let db = open();
    db.compact().unwrap();
    db.close().unwrap();
    let tables = tables(dir.path());
    assert!(!tables.is_empty());
    for table in tables {
        let len = table.len().unwrap();
        let places = (0..16).map(|i| i * (len / 16));
        let cached = places.filter(|at| table.is_cached(*at).unwrap()).count();
        assert!(cached > 12, "{cached} of 16 places of a table of {len} bytes");
    }
}
