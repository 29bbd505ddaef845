//! A database on a file system where an open file keeps its name, as on Windows without POSIX semantics: the engine removes and replaces
//! files that iterators, readers and a reader beside the writer have open.

use tidesdb::{Db, SyncMode, WriteBatch};
use tidesdb_io::sim::{Habits, Image};

use crate::common::{DB, Pair, Sim, contents, fill, noise, small};

fn sim() -> Sim {
    let sim = Sim::new();
    sim.disk.set_habits(Habits::WINDOWS);
    sim
}

fn everything(db: &Db) -> Vec<Vec<Pair>> {
    db.families().iter().map(|name| contents(&db.family(name).unwrap())).collect()
}

/// Writes, flushes and merges while iterators and a reader beside hold files. Returns what the database has.
fn work(sim: &Sim, db: &Db) -> Vec<Vec<Pair>> {
    let family = db.family_or_create("f", small()).unwrap();
    let reader = sim.options().open_reader().unwrap();
    let mut held = Vec::new();
    for round in 0..6 {
        fill(db.default_family(), 200, &noise(round, 700));
        fill(&family, 100, &noise(round, 20));
        db.flush().unwrap();
        for family in [db.default_family(), &family] {
            let mut iter = family.iter().unwrap();
            assert!(iter.next().unwrap().is_ok());
            held.push(iter);
        }
        db.compact().unwrap();
        assert_eq!(everything(&reader.refresh().unwrap()), everything(db));
    }
    assert!(held.iter_mut().all(|iter| iter.all(|pair| pair.is_ok())));
    everything(db)
}

#[test]
fn work_goes_on_while_readers_hold_files() {
    let sim = sim();
    let db = sim.open();
    let expected = work(&sim, &db);
    db.checkpoint("/linked").unwrap();
    db.backup("/copied").unwrap();
    for copy in ["/linked", "/copied"] {
        assert_eq!(everything(&sim.options_at(copy).open().unwrap()), expected);
    }
    db.drop_family("f").unwrap();
    db.close().unwrap();
    let db = sim.open();
    assert_eq!(everything(&db), expected[..1]);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_killed_process_and_a_lost_machine_leave_a_database() {
    let sim = sim();
    let db = sim.open();
    let expected = work(&sim, &db);
    db.sync().unwrap();
    for after in [sim.killed(), sim.power_lost(&Image::SYNCED, 3), sim.power_lost(&Image::EVERYTHING, 4)] {
        let again = after.open();
        assert_eq!(everything(&again), expected);
        assert!(again.verify().unwrap().is_ok());
        again.put(b"k", b"v").unwrap();
        again.compact().unwrap();
    }
    assert!(sim.disk.file_names(DB).unwrap().len() > 3);
}

/// The segment that was prepared is open. A commit that is longer than a segment was renamed over it.
#[test]
fn a_long_commit_takes_the_place_of_a_prepared_segment() {
    let sim = sim();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let f = db.default_family();
    for round in 0..12_u32 {
        fill(f, 40 * round, &noise(round.into(), 100));
        let mut batch = WriteBatch::new();
        (0..1000).for_each(|n: u32| batch.put(f, (n % 300).to_be_bytes(), noise(n.into(), 100)).unwrap());
        db.write(&mut batch).unwrap();
        let expected = everything(&db);
        assert_eq!(everything(&sim.killed().open()), expected, "round {round}");
        db.sync().unwrap();
        assert_eq!(everything(&sim.power_lost(&Image::SYNCED, 1).open()), expected, "round {round}");
    }
    let names = sim.disk.fork().file_names(DB).unwrap(); // a kill closes the files that other threads have not closed yet
    assert!(!names.iter().any(|name| name.ends_with(".wal.free")), "{names:?}");
}

/// A handle of the last session keeps the files of its log open, which keep their names after the close.
#[test]
fn a_database_is_opened_again_while_a_handle_of_the_last_session_lives() {
    let sim = sim();
    let mut handles = Vec::new();
    for round in 1..20_u32 {
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        fill(db.default_family(), 30 * round, &noise(round.into(), 100));
        handles.push(db.default_family().clone());
        let expected = everything(&db);
        db.close().unwrap();
        assert_eq!(everything(&sim.open()), expected, "round {round}");
    }
}
