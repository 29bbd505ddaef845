//! What a reader of a value keeps: the value logs of its value, and nothing else.

use std::io::Read;
use std::time::Duration;

use tidesdb::{Db, Family, FamilyOptions, Isolation, ValueReader};

use crate::common::{Sim, noise, small};
use crate::large_values::streams::{CHUNK, content, open, quiet, shrinks_to, vlog_bytes};

fn reader(f: &Family, key: &str) -> ValueReader {
    f.value_reader(key).unwrap().unwrap()
}

fn check(mut reader: ValueReader, want: &[u8]) {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert!(bytes == want);
}

/// Flushes until `wanted` holds: a thread of another test may keep a view for a while.
fn settles(db: &Db, wanted: impl Fn() -> bool) {
    for _ in 0..3000 {
        db.flush().unwrap();
        if wanted() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{}", db.stats());
}

/// Fills a memtable.
fn fill(f: &Family, seed: u64) {
    for n in 0..500u64 {
        f.put(format!("fill{n:03}"), noise(seed * 1000 + n, 400)).unwrap();
    }
}

/// 20 readers used to keep 20 memtables.
#[test]
fn readers_keep_no_memtable() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let bytes = content(1, 2 * CHUNK + 9);
    f.put_stream("film", &bytes[..]).unwrap();
    let mut readers = Vec::new();
    for seed in 0..20 {
        fill(f, seed);
        readers.push(reader(f, "film"));
        db.flush().unwrap();
    }
    settles(&db, || db.stats().memory_memtables_bytes < 1 << 20);
    readers.into_iter().for_each(|reader| check(reader, &bytes));
}

/// A value in a memtable is copied, and the copy is counted.
#[test]
fn a_reader_of_a_value_in_a_memtable_keeps_no_memtable() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.create_family("inline", small().value_threshold(1 << 30)).unwrap();
    let mut readers = Vec::new();
    let before = db.stats().memory_cursors_bytes;
    for seed in 0..20 {
        fill(&f, seed);
        f.put("film", content(seed, 50_000)).unwrap();
        readers.push(reader(&f, "film"));
        db.flush().unwrap();
    }
    settles(&db, || db.stats().memory_memtables_bytes < 1 << 20);
    let counted = db.stats().memory_cursors_bytes - before;
    assert!((20 * 50_000..20 * 51_000).contains(&counted), "{counted}");
    (0..).zip(readers).for_each(|(seed, reader)| check(reader, &content(seed, 50_000)));
    assert_eq!(db.stats().memory_cursors_bytes, before);
}

#[test]
fn a_reader_keeps_no_table_and_no_value_log_of_other_values() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let film = noise(1, 2 * CHUNK);
    f.put_stream("film", &film[..]).unwrap();
    f.put_stream("others", &noise(2, 12 * CHUNK)[..]).unwrap();
    fill(f, 1);
    db.flush().unwrap();
    let held = reader(f, "film");
    fill(f, 2);
    let mut tables: Vec<String> = sim.disk.file_names(crate::common::DB).unwrap();
    tables.retain(|name| name.ends_with(".klog"));
    assert!(!tables.is_empty());
    f.delete("others").unwrap();
    f.delete("film").unwrap();
    sim.eventually(&db, |names| tables.iter().all(|table| !names.contains(table)));
    shrinks_to(&sim, &db, 6 << 20);
    assert!(vlog_bytes(&sim) >= 2 << 20, "the files of the value are kept");
    check(held, &film);
    shrinks_to(&sim, &db, 1 << 20);
}

/// Ways in which a value is stored before a reader of it is made.
#[derive(Clone, Copy, Debug)]
enum Stored {
    Streamed,
    Put,
    Flushed,
    Uncommitted,
    RolledBack,
}

/// The files of the value may have no name in the manifest yet when the reader is made. They get one, are sealed, and leave the manifest,
/// but not the disk.
#[test]
fn a_reader_keeps_files_that_the_manifest_did_not_name_yet() {
    for stored in [Stored::Streamed, Stored::Put, Stored::Flushed, Stored::Uncommitted, Stored::RolledBack] {
        let sim = Sim::new();
        let db = sim.options().default_family(quiet().vlog_file_bytes(64 << 20)).open().unwrap();
        let f = db.default_family();
        let film = noise(7, 9 * CHUNK);
        let mut tx = db.begin(Isolation::Snapshot);
        let held = match stored {
            Stored::Uncommitted | Stored::RolledBack => {
                tx.put(f, "film", &film).unwrap();
                tx.value_reader(f, "film").unwrap().unwrap()
            }
            Stored::Streamed => {
                f.put_stream("film", &film[..]).unwrap();
                reader(f, "film")
            }
            _ => {
                f.put("film", &film).unwrap();
                if matches!(stored, Stored::Flushed) {
                    db.flush().unwrap();
                }
                reader(f, "film")
            }
        };
        match stored {
            Stored::Uncommitted => drop(tx.commit().unwrap()),
            _ => drop(tx),
        }
        f.put("film", "short").unwrap();
        let removed = || f.stats().value_files_removed;
        for n in 0..3000 {
            fill(f, n);
            db.compact().unwrap();
            if removed() > 0 {
                break;
            }
        }
        assert!(removed() > 0, "{stored:?}: the file leaves the manifest");
        for _ in 0..3 {
            db.compact().unwrap();
        }
        assert!(vlog_bytes(&sim) > 9 << 20, "{stored:?}");
        check(held, &film);
        shrinks_to(&sim, &db, 2 << 20);
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn a_reader_outlives_its_family_and_its_database() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.create_family("films", quiet()).unwrap();
    let film = noise(3, 3 * CHUNK);
    f.put_stream("film", &film[..]).unwrap();
    let first = reader(&f, "film");
    db.flush().unwrap();
    let (second, third) = (reader(&f, "film"), reader(&f, "film"));
    drop(f);
    db.drop_family("films").unwrap();
    check(first, &film);
    assert!(vlog_bytes(&sim) > 3 << 20);
    check(second, &film);
    drop(db);
    check(third, &film);
}

/// Its view had kept all memtables and files of its time.
#[test]
fn a_reader_from_a_view_beside_the_writer_keeps_no_view() {
    let sim = Sim::new();
    let db = sim.options().default_family(FamilyOptions::default()).open().unwrap();
    let f = db.default_family();
    let film = noise(1, 2 * CHUNK);
    f.put_stream("film", &film[..]).unwrap();
    let beside = sim.options().open_reader().unwrap();
    let mut readers = Vec::new();
    for seed in 0..10 {
        fill(f, seed);
        f.put(format!("long{seed}"), noise(seed, 600)).unwrap();
        let view = beside.refresh().unwrap();
        readers.push(reader(view.default_family(), "film"));
        db.flush().unwrap();
    }
    let now = || beside.refresh().unwrap().stats();
    for _ in 0..3000 {
        fill(f, 99);
        db.flush().unwrap();
        if now().memory_memtables_bytes < 1 << 20 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let stats = now();
    assert!(stats.memory_memtables_bytes < 1 << 20, "{stats}");
    assert!(stats.memory_fixed_bytes < (4 << 20) + 4 * (3 << 10), "families of old views: {stats}");
    f.delete("film").unwrap();
    for _ in 0..3 {
        db.compact().unwrap();
    }
    beside.refresh().unwrap();
    readers.into_iter().for_each(|reader| check(reader, &film));
}
