//! Commits that are longer than the pieces in which an open reads the log.

use tidesdb::{Db, FamilyOptions, OpenOptions, RecoveryMode, SyncMode, WriteBatch};
use tidesdb_io::sim::Image;

use crate::common::{Pair, Sim, contents, joined, noise, small};

/// Longer than a piece.
const LONG: usize = 6 << 20;

fn options(sim: &Sim) -> OpenOptions {
    sim.options()
        .sync(SyncMode::None)
        .default_family(joined().write_buffer_bytes(64 << 20))
        .with(|o| o.wal_segment_bytes = 1 << 20)
}

fn open(sim: &Sim) -> Db {
    options(sim).open().unwrap()
}

fn inline() -> FamilyOptions {
    small().write_buffer_bytes(64 << 20).value_threshold(usize::MAX)
}

fn key(n: u32) -> Vec<u8> {
    format!("key{:07}", n.wrapping_mul(7919) % 1_000_003).into_bytes()
}

/// A batch with operations of every kind, of which later ones change the effect of earlier ones.
fn long_batch(db: &Db) -> WriteBatch {
    let (family, plain) = (db.default_family(), db.family("inline").unwrap());
    let mut batch = WriteBatch::new();
    batch.put(family, b"twice", b"first").unwrap();
    batch.put(&plain, b"long", noise(1, LONG)).unwrap();
    let mut n = 0;
    while batch.bytes() < 2 * LONG {
        n += 1;
        batch.put(if n % 3 == 0 { &plain } else { family }, key(n), noise(n.into(), 60)).unwrap();
        match n % 1000 {
            1 => batch.delete_range(family, key(n)..).unwrap(),
            2 => batch.merge(family, b"sum", n.to_string()).unwrap(),
            3 => batch.put(family, key(n), noise(n.into(), 3000)).unwrap(),
            4 => batch.delete(family, key(n)).unwrap(),
            _ => {}
        }
    }
    batch.put(family, b"twice", b"last").unwrap();
    batch
}

fn all(db: &Db) -> [Vec<Pair>; 2] {
    [contents(db.default_family()), contents(&db.family("inline").unwrap())]
}

#[test]
fn a_commit_longer_than_a_piece_is_replayed_as_a_whole() {
    let sim = Sim::new();
    let db = open(&sim);
    db.create_family("inline", inline()).unwrap();
    db.put(b"twice", b"before").unwrap();
    let operations = {
        let mut batch = long_batch(&db);
        db.write(&mut batch).unwrap();
        long_batch(&db).len() as u64
    };
    db.put(b"later", b"row").unwrap();
    let expected = all(&db);
    assert!(expected.iter().all(|rows| rows.len() > 50), "{:?}", expected.each_ref().map(Vec::len));
    let twice = db.get(b"twice").unwrap();
    assert_eq!(twice.as_deref(), Some(&b"last"[..]));
    // After a power failure the log is scanned before it is replayed.
    for after in [sim.killed(), sim.power_lost(&Image::EVERYTHING, 1)] {
        let again = open(&after);
        let report = again.recovery_report();
        assert_eq!((report.commits, report.operations), (3, operations + 2));
        assert!(all(&again) == expected);
        assert!(again.verify().unwrap().is_ok());
    }
}

#[test]
fn a_long_commit_without_one_of_its_values_leaves_nothing() {
    let sim = Sim::new();
    let db = open(&sim);
    db.create_family("inline", inline()).unwrap();
    db.put(b"before", b"row").unwrap();
    let mut batch = long_batch(&db);
    batch.put(db.default_family(), b"value", noise(3, 3000)).unwrap(); // the last one of the value log
    db.write(&mut batch).unwrap();
    for after in [sim.killed(), sim.power_lost(&Image::EVERYTHING, 1)] {
        let names = after.disk.file_names("/db").unwrap();
        let vlog = names.iter().find(|name| name.ends_with(".vlog")).unwrap();
        let len = after.disk.read_file(format!("/db/{vlog}")).unwrap().len() as u64;
        after.disk.truncate_file(format!("/db/{vlog}"), len - 1000).unwrap();
        // After a kill a missing value is damage.
        let again = options(&after).recovery(RecoveryMode::PointInTime).open().unwrap();
        assert_eq!(all(&again), [vec![(b"before".to_vec(), b"row".to_vec())], Vec::new()]);
        assert_eq!((again.recovery_report().commits, again.recovery_report().discarded), (1, 1));
    }
}

/// The replay writes memtables as tables before a long commit takes their place.
#[test]
fn a_long_commit_is_replayed_within_the_memory_limit() {
    let sim = Sim::new();
    let options = |sim: &Sim| {
        let options = sim.options().sync(SyncMode::None).default_family(inline());
        options.with(|o| o.wal_segment_bytes = 1 << 20)
    };
    let db = options(&sim).open().unwrap();
    for n in 0..1500 {
        db.put(key(n), noise(n.into(), 1000)).unwrap();
    }
    let mut batch = WriteBatch::new();
    while batch.bytes() < LONG {
        let n = batch.len() as u32;
        batch.put(db.default_family(), key(n), noise(n.into(), 1000)).unwrap();
    }
    db.write(&mut batch).unwrap();
    let expected = contents(db.default_family());
    let tables = |limit| {
        let again = options(&sim.killed()).memory_limit(limit).open().unwrap();
        assert!(contents(again.default_family()) == expected);
        assert_eq!(again.recovery_report().commits, 1501);
        again.default_family().stats().level_tables.iter().sum::<usize>()
    };
    assert_eq!((tables(1 << 30), tables(16 << 20)), (1, 2));
}
