//! Merges and disk space: what they need, what they do without it, and how fast they write.

use std::time::Duration;

use tidesdb::{Db, Error, Family, FamilyOptions, HealthState, SyncMode};
use tidesdb_io::Clock as _;
use tidesdb_io::sim::{Fault, OpKind, errno};

use crate::common::{Pair, Sim, contents, noise, small};

/// Settings with many levels of small tables.
fn deep() -> FamilyOptions {
    small().write_buffer_bytes(32 << 10).table_bytes(8 << 10).l1_tables_trigger(2).level_size_ratio(4)
}

fn open(sim: &Sim) -> Db {
    let no_reserve = |o: &mut tidesdb::DbOptions| o.disk_reserve_bytes = Some(0);
    sim.options().default_family(deep()).sync(SyncMode::None).with(no_reserve).open().unwrap()
}

/// Puts `count` rows in an order without a pattern, among 16,000 keys.
fn put(f: &Family, count: u64, round: u64) {
    for i in 0..count {
        let n = (i * 7919 + round) % 16_000;
        f.put(format!("key{n:06}").as_bytes(), &noise(n + round, 100)).unwrap();
    }
}

fn table_bytes(f: &Family) -> u64 {
    f.stats().level_bytes.iter().sum()
}

/// A tree of several levels with overwritten rows in the upper ones, and what it holds.
fn tree(sim: &Sim) -> (Db, Vec<Pair>) {
    let db = open(sim);
    let f = db.default_family();
    put(f, 16_000, 0);
    f.compact().unwrap();
    put(f, 1000, 1);
    f.flush().unwrap();
    let stats = f.stats();
    assert!(stats.level_tables.len() > 3, "{:?}", stats.level_tables);
    let rows = contents(f);
    (db, rows)
}

#[test]
fn a_merge_of_all_tables_takes_the_space_of_one_piece() {
    let sim = Sim::new();
    let (db, rows) = tree(&sim);
    let f = db.default_family();
    // More than half a mebibyte of it stays free for flushes.
    let free = table_bytes(f) / 3 * 2;
    sim.disk.limit_space(Some(free));
    // Threads of other tests may keep files of pieces that are done. The limit never allows a merge in one piece.
    let merged = (0..1500).any(|_| match f.compact() {
        Ok(()) => true,
        Err(Error::NoSpace { .. }) => {
            std::thread::sleep(Duration::from_millis(20));
            false
        }
        Err(e) => panic!("{e}"),
    });
    assert!(merged, "no space");
    let stats = f.stats();
    assert_eq!(stats.level_tables.iter().filter(|n| **n > 0).count(), 1, "{:?}", stats.level_tables);
    assert_eq!((stats.table_entries, contents(f) == rows), (16_000, true));
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn pieces_that_are_done_stay_when_a_merge_fails_or_the_process_is_killed() {
    let sim = Sim::new();
    let (db, rows) = tree(&sim);
    let f = db.default_family();
    let before = f.stats().compactions;
    sim.disk.inject(Fault::errno(errno::EIO).on(OpKind::SyncData).path_ends(".klog").skip(60).forever());
    assert!(matches!(f.compact(), Err(Error::Io { .. })));
    let done = f.stats().compactions - before;
    assert!(done > 1, "{done} pieces");
    assert!(contents(f) == rows && db.verify().unwrap().is_ok());
    let killed = sim.killed();
    drop(db);
    let db = open(&killed);
    let f = db.default_family();
    assert!(contents(f) == rows && db.verify().unwrap().is_ok());
    f.compact().unwrap();
    assert_eq!((f.stats().table_entries, contents(f) == rows), (16_000, true));
}

#[test]
fn a_disk_that_is_full_half_way_through_a_merge_loses_nothing() {
    for kind in [OpKind::Write, OpKind::SyncData, OpKind::Create] {
        let sim = Sim::new();
        let (db, rows) = tree(&sim);
        let f = db.default_family();
        let full = sim.disk.inject(Fault::errno(errno::ENOSPC).on(kind).path_ends(".klog").skip(5).forever());
        let names = || sim.disk.file_names("/db").unwrap();
        let e = f.compact().unwrap_err();
        assert!(matches!(e, Error::NoSpace { .. }), "{kind:?}: {e}");
        let after = names();
        assert!(f.compact().is_err());
        // Inputs of pieces that are done go once no thread of another test holds them.
        let mut left = names();
        left.retain(|name| !after.contains(name));
        assert!(left.is_empty(), "{kind:?}: a failed merge left files: {left:?}");
        assert!(contents(f) == rows && db.verify().unwrap().is_ok(), "{kind:?}");
        db.put(b"more", b"rows").unwrap();
        sim.disk.remove_fault(full);
        f.compact().unwrap();
        assert_eq!(contents(f).len(), rows.len() + 1, "{kind:?}");
    }
}

/// Merges in the background, on a disk with less free space than data: what does not fit waits, what fits is merged.
#[test]
fn merges_on_a_scarce_disk_write_little_and_never_fill_it() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let dir = sim.env.disk.open_dir(std::path::Path::new("/db"), false).unwrap();
    let floor = 64 << 10;
    sim.disk.limit_space(Some(2 << 20));
    let mut acked = 0u64;
    let mut refused = 0;
    while refused < 200 {
        match f.put(format!("key{:06}", acked * 7919 % 16_001).as_bytes(), &noise(acked, 100)) {
            Ok(_) => acked += 1,
            Err(Error::NoSpace { .. }) => refused += 1,
            Err(e) => panic!("{e}"),
        }
        assert!(dir.space().unwrap().free > floor, "the disk is full after {acked} rows");
    }
    let written = f.stats().compaction_written;
    assert!(acked > 3000 && written < 8 << 20, "{acked} rows, {written} bytes written");
    assert_eq!(contents(f).len() as u64, acked);
    assert!(db.verify().unwrap().is_ok());
    sim.disk.limit_space(None);
    f.compact().unwrap();
    assert_eq!(contents(f).len() as u64, acked);
}

/// The message named the bytes of the commit alone: more bytes were free than it said were needed.
#[test]
fn a_full_disk_is_named_with_what_must_be_free_and_degrades_the_database() {
    let sim = Sim::new();
    let db = open(&sim);
    sim.disk.limit_space(Some(2 << 20));
    let (mut refused, mut n) = (0, 0);
    while refused < 50 {
        n += 1;
        match db.put(u64::to_be_bytes(n), noise(n, 4000)) {
            Ok(_) => {}
            Err(e @ Error::NoSpace { free, needed, .. }) => {
                assert!(free < needed, "{e}");
                assert!(e.to_string().contains(&format!("{needed} bytes must be free, {free} are")), "{e}");
                refused += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    let health = db.health();
    assert_eq!(health.state, HealthState::Degraded, "{health}");
    assert!(health.to_string().starts_with("degraded: commits are refused: no space in /db: "), "{health}");
    sim.disk.limit_space(None);
    assert_eq!(db.health().state, HealthState::Healthy);
    db.put(b"more", b"rows").unwrap();
}

#[test]
fn merges_keep_to_their_rate() {
    let sim = Sim::new();
    let (db, rows) = tree(&sim);
    let f = db.default_family();
    let merge = |rate: u64| {
        db.set_compaction_rate(rate);
        f.put(b"key000000", &rows[0].1).unwrap();
        let (from, written) = (sim.clock.mono(), f.stats().compaction_written);
        f.compact().unwrap();
        (sim.clock.mono() - from, f.stats().compaction_written - written)
    };
    let (took, bytes) = merge(100 << 10);
    let wanted = bytes as f64 / f64::from(100 << 10);
    assert!((wanted * 0.9..wanted * 1.1).contains(&took.as_secs_f64()), "{took:?} for {bytes} bytes");
    assert!(merge(0).0 < Duration::from_secs(1));
    assert_eq!(contents(f), rows);
}
