//! Where tables that are taken go, and who sees them: levels, readers in other processes, copies, dropped families, writers meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidesdb::{Db, Family, Ingest};

use super::ingest::build;
use crate::common::{DB, Sim, Stop, contents, fill, noise, small};

/// Number of tables in each level, from level 1 on.
fn levels(family: &Family) -> Vec<usize> {
    family.tree().levels.iter().map(|level| level.tables).collect()
}

#[test]
fn tables_that_overlap_nothing_go_to_the_largest_level_and_others_above_what_they_overlap() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    let tables = build(&sim, family, "first", 0..1000, &noise(1, 100));
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    db.flush().unwrap();
    assert_eq!(levels(family), [0, 1], "an empty tree");
    let tables = build(&sim, family, "second", 1000..2000, &noise(2, 100));
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    db.flush().unwrap();
    assert_eq!(levels(family), [0, 2], "beside it");
    let tables = build(&sim, family, "third", 500..1500, &noise(3, 100));
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    db.flush().unwrap();
    assert_eq!(levels(family), [1, 2], "over it");
    db.put("key000700", "newer").unwrap();
    db.flush().unwrap();
    let tables = build(&sim, family, "fourth", 5000..6000, &noise(4, 100));
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    db.flush().unwrap();
    assert_eq!(levels(family)[1], 3, "nothing is in its way");
    assert_eq!(db.get("key000700").unwrap().unwrap(), b"newer");
    assert_eq!(db.get("key000701").unwrap().unwrap(), noise(3, 100));
    assert_eq!(db.get("key000100").unwrap().unwrap(), noise(1, 100));
    let written = family.stats().flush_bytes + family.stats().compaction_written;
    assert!(written < 1000, "taken tables are not written again: {written}");
    db.compact().unwrap();
    assert_eq!(contents(family).len(), 3000);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_reader_in_another_process_sees_them_before_and_after_the_flush() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    fill(family, 10, b"old");
    let reader = sim.options().open_reader().unwrap();
    let tables = build(&sim, family, "t", 5..20, &noise(1, 700));
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    db.put("later", "x").unwrap();
    let check = |reader: &tidesdb::Reader| {
        let view = reader.refresh().unwrap();
        let family = view.default_family();
        assert_eq!(family.get("key000004").unwrap().unwrap(), b"old");
        assert_eq!(family.get("key000005").unwrap().unwrap(), noise(1, 700));
        assert_eq!(family.iter().unwrap().count(), 21);
    };
    check(&reader);
    check(&sim.options().open_reader().unwrap());
    db.flush().unwrap();
    check(&reader);
    db.compact().unwrap();
    check(&reader);
    check(&sim.options().open_reader().unwrap());
}

#[test]
fn a_dropped_family_takes_its_files_along() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.create_family("gone", small()).unwrap();
    let before = sim.disk.file_names(DB).unwrap();
    let tables = build(&sim, &family, "t", 0..20, &noise(1, 700));
    db.ingest(&Ingest::new().tables(&family, &tables)).unwrap();
    let files = |sim: &Sim| {
        let names = sim.disk.file_names(DB).unwrap().into_iter();
        names.filter(|name| name.ends_with("log") && !before.contains(name)).collect::<Vec<_>>()
    };
    assert_eq!(files(&sim).len(), 2);
    db.drop_family("gone").unwrap();
    drop(family);
    sim.eventually(&db, |names| !names.iter().any(|name| name.ends_with("log") && !before.contains(name)));
    let killed = sim.killed();
    assert!(killed.open().recovery_report().commits > 0);
}

/// The version that gets the tables has its own hold on their files: a reader of an older view lost them, where a file is opened again by its
/// name.
#[test]
fn a_reader_keeps_the_files_that_it_saw_before_the_flush() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    let tables = build(&sim, family, "t", 0..2000, &noise(1, 100));
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    let mut rows = family.iter().unwrap();
    rows.next().unwrap().unwrap();
    let table = sim.disk.file_names(DB).unwrap().into_iter().find(|name| name.ends_with(".klog")).unwrap();
    db.flush().unwrap();
    db.put("key000000", "newer").unwrap();
    db.compact().unwrap();
    assert!(!family.tree().levels.is_empty());
    assert!(sim.disk.file_names(DB).unwrap().contains(&table), "the iterator needs it");
    assert_eq!(rows.map(Result::unwrap).count(), 1999);
    sim.eventually(&db, |names| !names.contains(&table));
}

#[test]
fn copies_have_what_was_taken_before() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    fill(family, 10, b"old");
    let tables = build(&sim, family, "t", 5..20, &noise(1, 700));
    db.ingest(&Ingest::new().tables(family, &tables)).unwrap();
    db.checkpoint("/link").unwrap();
    db.backup("/copy").unwrap();
    let clone = db.clone_family("default", "clone").unwrap();
    let rows = contents(family);
    assert_eq!(rows.len(), 20);
    assert_eq!(contents(&clone), rows);
    for path in ["/link", "/copy"] {
        let copy = sim.options_at(path).open().unwrap();
        assert_eq!(contents(copy.default_family()), rows);
        copy.compact().unwrap();
        assert_eq!(contents(copy.default_family()), rows);
    }
}

/// Puts, reads, flushes and merges of other threads while tables are taken one after the other.
#[test]
fn writers_and_readers_go_on_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path().join("db"))
        .default_family(small().write_buffer_bytes(256 << 10))
        .with(|o| o.sync = tidesdb::SyncMode::None)
        .open()
        .unwrap();
    let family = db.default_family().clone();
    let end = AtomicBool::new(false);
    std::thread::scope(|s| {
        let _stop = Stop(&end);
        for thread in 0..2u32 {
            let (family, end) = (&family, &end);
            s.spawn(move || {
                for n in 0u32.. {
                    if end.load(Ordering::SeqCst) {
                        break;
                    }
                    family.put(format!("own{thread}-{:06}", n % 5000), noise(n.into(), 60)).unwrap();
                }
            });
        }
        let (reads, ended) = (&family, &end);
        s.spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                let snapshot_rows: Vec<_> = reads.range("key".."kez").unwrap().map(Result::unwrap).collect();
                let first = snapshot_rows.first().map(|(_, value)| value.clone());
                assert!(
                    snapshot_rows.iter().all(|(_, value)| Some(value) == first.as_ref()),
                    "all or nothing"
                );
            }
        });
        for round in 0..40u64 {
            let value = noise(round, 40);
            let rows = (0..2000u32).map(|n| (format!("key{n:06}"), &value));
            assert_eq!(family.ingest_sorted(rows).unwrap().rows, 2000);
            assert_eq!(family.get("key000007").unwrap().unwrap(), value);
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(family.range("key".."kez").unwrap().count(), 2000);
    db.compact().unwrap();
    assert!(db.verify().unwrap().is_ok());
    assert_eq!(family.get("key001999").unwrap().unwrap(), noise(39, 40));
    db.close().unwrap();
}
