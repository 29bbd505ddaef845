//! Statistics are consistent.

use std::time::Duration;

use tidesdb::{Error, FamilyStats, Isolation, WriteBatch};
use tidesdb_io::sim::OpSet;

use crate::common::{Sim, fill, noise, small};

fn of(db: &tidesdb::Db) -> FamilyStats {
    db.default_family().stats()
}

#[test]
fn counters_of_a_new_database_are_zero() {
    let sim = Sim::new();
    let db = sim.open();
    let (all, f) = (db.stats(), of(&db));
    assert_eq!((all.snapshots, all.stalls(), all.families.len()), (0, 0, 1));
    assert_eq!((f.name.as_str(), f.memtable_bytes, f.user_bytes, f.table_entries), ("default", 0, 0, 0));
    assert_eq!((f.flushes, f.compactions, f.immutables), (0, 0, 0));
}

#[test]
fn bytes_of_users_are_counted_once() {
    let sim = Sim::new();
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    db.put(b"four", &[1; 96]).unwrap();
    assert_eq!(of(&db).user_bytes, 100);
    db.put(b"four", &[1; 996]).unwrap();
    assert_eq!(of(&db).user_bytes, 1100, "with a value in the value log");
    let mut batch = WriteBatch::new();
    batch.put(&a, b"0123456789", &[0; 90]).unwrap();
    batch.put(db.default_family(), b"0123456789", &[0; 890]).unwrap();
    db.write(&mut batch).unwrap();
    assert_eq!(of(&db).user_bytes + a.stats().user_bytes, 1100 + 1000);
    assert_eq!((of(&db).user_bytes, a.stats().user_bytes), (2000, 100), "each family has its own counters");
}

#[test]
fn entries_and_tables_follow_flush_and_compaction() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, b"v");
    db.flush().unwrap();
    db.delete(b"key000000").unwrap();
    db.flush().unwrap();
    let f = of(&db);
    assert_eq!((f.table_entries, f.tombstones, f.level_tables[0], f.flushes), (101, 1, 2, 2));
    assert_eq!(f.memtable_bytes, 0);
    db.compact().unwrap();
    let f = of(&db);
    assert_eq!((f.table_entries, f.tombstones, f.compactions), (99, 0, 1));
    assert_eq!((f.level_tables[0], f.level_tables.iter().sum::<usize>()), (0, 1));
    assert!(f.dropped >= 2, "{}", f.dropped);
}

#[test]
fn level_bytes_are_the_bytes_of_the_files() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().write_buffer_bytes(64 << 10)).open().unwrap();
    for i in 0..3000u32 {
        db.put(&i.to_be_bytes(), &noise(u64::from(i), 100)).unwrap();
    }
    db.flush().unwrap();
    let is_whole = |names: &[String]| {
        let tables = names.iter().filter(|n| n.ends_with(".klog"));
        let on_disk: usize = tables.map(|n| sim.disk.read_file(format!("/db/{n}")).unwrap().len()).sum();
        of(&db).level_bytes.iter().sum::<u64>() == on_disk as u64
    };
    sim.eventually(&db, is_whole);
    let f = of(&db);
    assert!(
        f.flush_bytes > 300_000 && f.compaction_written >= f.level_bytes.iter().sum() && f.resident_bytes > 0
    );
}

/// The maximum density over the tables of a level is returned, not the average of the level.
#[test]
fn the_tombstone_density_is_that_of_the_densest_table() {
    let sim = Sim::new();
    let db = sim.open();
    assert_eq!((of(&db).tombstone_share_max, of(&db).tombstone_share_level), (0.0, 0));
    fill(db.default_family(), 96, b"v");
    db.flush().unwrap();
    assert_eq!((of(&db).tombstone_share_max, of(&db).tombstone_share_level), (0.0, 0));
    db.delete(b"key000000").unwrap();
    for i in 0..3_u8 {
        db.put(&[i], b"v").unwrap();
    }
    db.flush().unwrap();
    let f = of(&db);
    assert_eq!((f.level_entries[0], f.level_tombstones[0]), (100, 1));
    assert_eq!((f.tombstone_share_max, f.tombstone_share_level), (0.25, 1));
}

#[test]
fn values_in_value_logs_are_counted_by_level() {
    let sim = Sim::new();
    let db = sim.open();
    for i in 0..10_u8 {
        db.put(&[i], &noise(u64::from(i), 10_000)).unwrap();
    }
    db.flush().unwrap();
    let flushed = of(&db);
    assert!((100_000..102_000).contains(&flushed.level_value_log_bytes[0]), "{flushed:?}");
    db.compact().unwrap();
    let merged = of(&db);
    assert_eq!(merged.level_value_log_bytes.iter().sum::<u64>(), flushed.level_value_log_bytes[0]);
    assert_eq!(merged.level_value_log_bytes[0], 0);
}

#[test]
fn a_transaction_knows_the_bytes_of_its_writes() {
    let sim = Sim::new();
    let db = sim.open();
    let mut txn = db.begin(Isolation::Snapshot);
    assert_eq!(txn.bytes(), 0);
    txn.put(db.default_family(), b"key", &[7; 1000]).unwrap();
    assert!((1003..1064).contains(&txn.bytes()), "{}", txn.bytes());
    txn.rollback();
    assert_eq!(txn.bytes(), 0);
}

#[test]
fn memtable_bytes_grow_and_drop_to_zero() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 500, &[1; 100]);
    let held = of(&db).memtable_bytes;
    assert!((50_000..2_000_000).contains(&held), "{held}");
    db.flush().unwrap();
    assert_eq!(of(&db).memtable_bytes, 0);
}

#[test]
fn log_bytes_are_counted_and_released_by_a_flush() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 1000, &[1; 100]);
    let stats = db.stats();
    assert!(stats.wal_bytes > 100_000 && stats.wal_live_bytes >= stats.wal_bytes);
    db.flush().unwrap();
    let after = db.stats();
    assert!(after.wal_live_bytes < 64 << 10, "{}", after.wal_live_bytes);
    assert!(after.wal_bytes >= stats.wal_bytes);
}

#[test]
fn sequence_numbers_are_reported() {
    let sim = Sim::new();
    let db = sim.options().sync(tidesdb::SyncMode::None).open().unwrap();
    let seq = db.put(b"k", b"v").unwrap();
    let stats = db.stats();
    assert!(stats.visible_seq >= seq && stats.durable_end <= seq);
    db.sync().unwrap();
    assert!(db.stats().durable_end > seq);
}

#[test]
fn the_cache_counts_and_stays_within_its_capacity() {
    let sim = Sim::new();
    let db = sim.options().cache_bytes(256 << 10).open().unwrap();
    for i in 0..5000u32 {
        db.put(&i.to_be_bytes(), &noise(u64::from(i), 200)).unwrap();
    }
    db.compact().unwrap();
    for _ in 0..2 {
        for i in 0..5000u32 {
            db.get(&i.to_be_bytes()).unwrap().unwrap();
        }
    }
    let stats = db.stats();
    assert!(stats.cache_hits > 1000 && stats.cache_misses > 100, "{stats}");
    assert!(stats.cache_bytes > 0 && stats.cache_bytes <= 256 << 10, "{}", stats.cache_bytes);
    // A miss is one read of a block of at most one page.
    assert!(stats.lookup_reads > 100 && stats.lookup_reads <= stats.cache_misses, "{stats}");
    assert!(stats.lookup_read_bytes <= stats.lookup_reads * 4096, "{stats}");
    assert!(stats.lookup_read_bytes > stats.lookup_reads * 3000, "{stats}");
}

#[test]
fn statistics_print_as_text() {
    let sim = Sim::new();
    let db = sim.open();
    db.create_family("whales", small()).unwrap();
    fill(db.default_family(), 10, b"v");
    db.flush().unwrap();
    let text = db.stats().to_string();
    for word in ["whales", "level tables", "memory limit bytes", "flushes"] {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
    assert!(!text.contains("compactions"), "a figure that is 0:\n{text}");
    assert!(db.default_family().stats().to_string().starts_with("family \"default\"\n  "));
}

/// Times below a millisecond were printed as 0.000 s.
#[test]
fn times_print_in_the_unit_that_suits_them() {
    let sim = Sim::new();
    let db = sim.open();
    for (nanos, shown) in [(12_300, "12.3 us"), (4_560_000, "4.56 ms"), (2_000_000_000, "2.00 s")] {
        let clock = std::sync::Arc::clone(&sim.clock);
        sim.disk.observe(OpSet::SYNCS, move |_, _| clock.advance(Duration::from_nanos(nanos)));
        db.put(b"k", b"v").unwrap();
        sim.disk.stop_observing();
        let text = db.stats().to_string();
        let longest = format!("  {:<25} {shown}\n", "longest");
        assert!(text.contains(&longest), "{longest} is not in:\n{text}");
    }
}

#[test]
fn conflicts_are_counted_in_the_family_of_the_key() {
    let sim = Sim::new();
    let db = sim.open();
    let other = db.create_family("other", small()).unwrap();
    for n in 1..=2 {
        let mut tx = db.begin(Isolation::Snapshot);
        tx.put(&other, b"k", b"mine").unwrap();
        other.put(b"k", b"theirs").unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
        assert_eq!((of(&db).conflicts, other.stats().conflicts), (0, n));
    }
}
