//! The space of large values comes back while the database is open.

use std::ops::Range;

use tidesdb::{Db, Family, FamilyOptions};

use crate::common::{DB, Sim, contents, noise, small};

/// Small value logs, and no automatic merges.
fn quiet() -> FamilyOptions {
    FamilyOptions { vlog_file_bytes: 16 << 10, l1_tables_trigger: 1000, ..small() }
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn put(f: &Family, keys: Range<u32>, round: u32) {
    for i in keys {
        f.put(&key(i), &noise(u64::from(i * 1000 + round), 1000)).unwrap();
    }
}

fn check(f: &Family, keys: Range<u32>, round: u32) {
    for i in keys {
        let value = f.get(&key(i)).unwrap().unwrap();
        assert_eq!(*value, noise(u64::from(i * 1000 + round), 1000), "key {i}");
    }
}

/// Number and bytes of the value logs on disk.
fn on_disk(sim: &Sim) -> (usize, u64) {
    let names = sim.disk.file_names(DB).unwrap();
    let logs: Vec<_> = names.iter().filter(|name| name.ends_with(".vlog")).collect();
    let bytes = |name: &&String| sim.disk.read_file(format!("{DB}/{name}")).unwrap().len() as u64;
    (logs.len(), logs.iter().map(bytes).sum())
}

/// Merges until the value logs take at most `bytes`: a thread of another test may keep a view, and thus a file, for a while.
fn shrinks_to(sim: &Sim, db: &Db, bytes: u64) {
    for _ in 0..1000 {
        db.compact().unwrap();
        if on_disk(sim).1 <= bytes {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{:?}", on_disk(sim));
}

#[test]
fn overwritten_values_leave_the_disk_while_the_database_is_open() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    for round in 0..10 {
        put(f, 0..200, round);
        check(f, 0..200, round);
        db.flush().unwrap();
    }
    assert!(on_disk(&sim).1 > 2_000_000);
    shrinks_to(&sim, &db, 300_000);
    check(f, 0..200, 9);
    assert!(db.verify().unwrap().is_ok());
    db.close().unwrap();
    let db = sim.open();
    check(db.default_family(), 0..200, 9);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn values_that_no_table_ever_referred_to_leave_the_disk() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    for round in 0..10 {
        put(db.default_family(), 0..100, round); // all in one memtable
    }
    shrinks_to(&sim, &db, 150_000);
    check(db.default_family(), 0..100, 9);
}

#[test]
fn a_cursor_reads_values_whose_files_have_left_the_manifest() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    put(f, 0..100, 0);
    db.flush().unwrap();
    put(f, 100..200, 0); // in a memtable that the cursor uses, in files that its version does not name
    let mut cursor = f.cursor().unwrap();
    put(f, 0..200, 1);
    for _ in 0..3 {
        db.compact().unwrap();
    }
    cursor.seek_to_first().unwrap();
    for i in 0..200 {
        assert_eq!(cursor.key(), key(i));
        assert_eq!(cursor.value().unwrap(), noise(u64::from(i * 1000), 1000), "key {i}");
        cursor.next().unwrap();
    }
    assert!(on_disk(&sim).1 > 380_000);
    drop(cursor);
    shrinks_to(&sim, &db, 250_000);
    check(f, 0..200, 1);
}

#[test]
fn a_killed_database_keeps_what_it_needs_and_removes_the_rest() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    for round in 0..4 {
        put(db.default_family(), 0..100, round);
        db.flush().unwrap();
        if round == 2 {
            db.compact().unwrap();
        }
    }
    put(db.default_family(), 0..50, 4);
    let killed = sim.killed();
    let again = killed.options().default_family(quiet()).open().unwrap();
    check(again.default_family(), 0..50, 4);
    check(again.default_family(), 50..100, 3);
    shrinks_to(&killed, &again, 150_000);
    assert_eq!(contents(again.default_family()).len(), 100);
    assert!(again.verify().unwrap().is_ok());
}

/// A value log is sealed and removed long before the process would run out of descriptors.
#[test]
fn many_small_files_come_and_go() {
    let sim = Sim::new();
    let options = FamilyOptions { vlog_file_bytes: 4096, ..small() };
    let db = sim.options().default_family(options).open().unwrap();
    for round in 0..200 {
        put(db.default_family(), 0..40, round); // ten files
        if round % 4 == 3 {
            db.flush().unwrap();
        }
    }
    shrinks_to(&sim, &db, 60_000);
    check(db.default_family(), 0..40, 199);
    assert!(db.verify().unwrap().is_ok());
}

/// Bytes of the values of `live` keys as `put` stores them, with the bound on what they may take: a third more, and
/// some files.
fn bound(live: u64) -> u64 {
    live * 1018 * 135 / 100 + 4 * (16 << 10)
}

/// Puts 300 keys, then overwrites or deletes all but every tenth, so that each file holds a live value.
fn scatter(f: &Family, db: &Db) {
    put(f, 0..300, 0);
    db.flush().unwrap();
    for i in (0..300).filter(|i| i % 10 != 0) {
        match i % 2 {
            0 => put(f, i..i + 1, 1),
            _ => drop(f.delete(&key(i)).unwrap()),
        }
    }
}

fn check_scattered(f: &Family) {
    for i in 0..300 {
        match (i % 10, i % 2) {
            (0, _) => check(f, i..i + 1, 0),
            (_, 0) => check(f, i..i + 1, 1),
            _ => assert_eq!(f.get(&key(i)).unwrap(), None, "key {i}"),
        }
    }
}

#[test]
fn live_values_leave_files_that_are_mostly_garbage() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    scatter(f, &db);
    shrinks_to(&sim, &db, bound(150));
    check_scattered(f);
    let stats = f.stats();
    assert!(stats.value_bytes_moved > 0 && stats.value_bytes_moved < 300 * 1018, "{stats:?}");
    assert_eq!(stats.value_log_file_bytes, on_disk(&sim).1);
    assert_eq!(stats.value_log_files, on_disk(&sim).0);
    assert!(stats.value_files_removed >= 10 && stats.value_log_garbage_bytes < 100_000, "{stats:?}");
    // Nothing is moved again for nothing.
    db.compact().unwrap();
    assert_eq!(f.stats().value_bytes_moved, stats.value_bytes_moved);
    assert!(db.verify().unwrap().is_ok());
    for sim in [sim.killed(), sim.power_lost(&tidesdb_io::sim::Image::SYNCED, 3)] {
        let db = sim.options().default_family(quiet()).open().unwrap();
        check_scattered(db.default_family());
        assert!(db.verify().unwrap().is_ok());
    }
}
