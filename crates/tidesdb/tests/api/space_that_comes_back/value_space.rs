//! The space of large values comes back while the database is open.

use std::ops::Range;

use tidesdb::{Db, Error, Family, FamilyOptions, Isolation, StallCause, SyncMode};
use tidesdb_io::sim::{Op, OpKind};

use crate::common::{DB, Sim, contents, noise, small};

/// Small value logs, and no merges because of the number of tables.
fn quiet() -> FamilyOptions {
    small().vlog_file_bytes(16 << 10).l1_tables_trigger(1000)
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

/// Waits until `done` returns true: a thread of another test may keep a view, and thus a file, for a while.
fn until(mut done: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the files stay");
}

/// Merges until the value logs take at most `bytes`.
fn shrinks_to(sim: &Sim, db: &Db, bytes: u64) {
    until(|| {
        db.compact().unwrap();
        on_disk(sim).1 <= bytes
    });
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
    let options = small().vlog_file_bytes(4096);
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

/// Jobs run in the thread that commits, so the collection keeps up with it. Level 1 never has enough tables for a merge: only the values
/// that its tables may hide make one due.
#[test]
fn garbage_is_bounded_while_values_are_overwritten() {
    let sim = Sim::new();
    let family = quiet().write_buffer_bytes(16 << 10);
    let db = sim.options().background_threads(0).default_family(family).open().unwrap();
    let f = db.default_family();
    put(f, 0..400, 0);
    let live = 400 * 1018;
    let (mut newest, mut most, bound) = ([0; 400], 0, live * 9 / 4 + 8 * (16 << 10));
    for round in 1..4000u32 {
        let i = round.wrapping_mul(2_654_435_761) % 400;
        put(f, i..i + 1, round);
        newest[i as usize] = round;
        if round % 20 == 0 {
            // Threads of other tests may delay the collection; then it goes on with the next commits.
            for _ in 0..6000 {
                most = f.stats().value_log_file_bytes;
                if most <= bound {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
                put(f, i..i + 1, round);
            }
            assert!(most <= bound, "round {round}: {most} bytes, {live} of them live");
        }
    }
    let stats = db.stats();
    assert_eq!((stats.stalls(), stats.stalled_by(StallCause::Values).gave_up), (0, 0));
    assert!(f.stats().merges_values > 40 && f.stats().merges_level_1 == 0, "{:?}", f.stats());
    (0..400).for_each(|i| check(f, i..i + 1, newest[i as usize]));
    assert!(db.verify().unwrap().is_ok());
}

/// Puts 300 keys, then overwrites or deletes all but every tenth, so that each file holds a live value.
fn scatter(f: &Family, db: &Db) {
    put(f, 0..300, 0);
    db.flush().unwrap();
    scatter_more(f);
}

/// Overwrites or deletes all but every tenth key.
fn scatter_more(f: &Family) {
    for i in (0..300).filter(|i| i % 10 != 0) {
        if i % 2 == 0 {
            put(f, i..i + 1, 1);
        } else {
            f.delete(&key(i)).unwrap();
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
    // A collection in the background may move values beside the first merges. Later ones move nothing again for nothing.
    let mut moved = 0;
    until(|| {
        db.compact().unwrap();
        let before = std::mem::replace(&mut moved, f.stats().value_bytes_moved);
        moved == before && on_disk(&sim).1 <= bound(150)
    });
    check_scattered(f);
    let stats = f.stats();
    assert!(stats.value_bytes_moved > 0 && stats.value_bytes_moved < 300 * 1018, "{stats:?}");
    assert_eq!(stats.value_log_file_bytes, on_disk(&sim).1);
    assert_eq!(stats.value_log_files, on_disk(&sim).0);
    assert!(stats.value_files_removed >= 10 && stats.value_log_garbage_bytes < 100_000, "{stats:?}");
    assert!(db.verify().unwrap().is_ok());
    for sim in [sim.killed(), sim.power_lost(&tidesdb_io::sim::Image::SYNCED, 3)] {
        let db = sim.options().default_family(quiet()).open().unwrap();
        check_scattered(db.default_family());
        assert!(db.verify().unwrap().is_ok());
    }
}

/// A merge meets values in the order of their keys. Each read would wait for the device, so they are asked for in advance.
#[test]
fn values_are_loaded_before_they_are_moved() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    scatter(f, &db);
    db.flush().unwrap();
    sim.disk.log_ops(true);
    db.compact().unwrap();
    let moved = f.stats().value_bytes_moved;
    let ops = sim.disk.ops();
    let of_values = |op: &&Op| op.path.ends_with(".vlog");
    let (mut asked, mut ready, mut waited, mut read): (Vec<&Op>, usize, usize, u64) = Default::default();
    for op in ops.iter().filter(of_values) {
        let covers = |a: &&Op| a.path == op.path && a.offset <= op.offset && op.offset < a.offset + a.len;
        match op.kind {
            OpKind::Advise => asked.push(op),
            OpKind::Read if op.len >= 1000 => {
                read += op.len;
                *if asked.iter().any(covers) { &mut ready } else { &mut waited } += 1;
            }
            _ => {}
        }
    }
    assert!(moved >= 20_000 && read >= moved, "{moved} of {read} bytes");
    assert!(ready >= 20 && waited <= ready / 10, "{waited} reads waited, {ready} did not");
    assert!(asked.len() < ready, "whole blocks are loaded, each once");
    check_scattered(f);
}

/// A record in the log may point to a value log that was removed after its family was flushed. Recovery must not take
/// the value for lost and discard later commits.
#[test]
fn recovery_needs_no_values_of_flushed_commits() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).sync(SyncMode::None).open().unwrap();
    let other = db.create_family("other", quiet()).unwrap();
    other.put(b"first", b"keeps the log").unwrap();
    let f = db.default_family();
    for round in 0..3 {
        put(f, 0..100, round);
    }
    until(|| {
        f.compact().unwrap();
        on_disk(&sim).0 < 10
    });
    other.put(b"last", b"value").unwrap();
    let killed = sim.killed();
    let db = killed.options().default_family(quiet()).open().unwrap();
    assert_eq!(db.family("other").unwrap().get(b"last").unwrap().as_deref(), Some(&b"value"[..]));
    check(db.default_family(), 0..100, 2);
}

#[test]
fn snapshots_and_cursors_read_old_values_while_their_files_are_emptied() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    put(f, 0..300, 0);
    let snapshot = db.snapshot();
    db.flush().unwrap();
    let mut cursor = f.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    scatter_more(f);
    let transaction = db.begin(Isolation::Snapshot);
    put(f, 0..10, 2);
    for _ in 0..3 {
        db.compact().unwrap();
    }
    assert!(db.verify().unwrap().is_ok());
    for i in 0..300 {
        let old = noise(u64::from(i * 1000), 1000);
        assert_eq!(snapshot.get(f, &key(i)).unwrap().as_deref(), Some(&old[..]), "key {i}");
        assert_eq!(cursor.key(), key(i));
        assert_eq!(cursor.value().unwrap(), old);
        cursor.next().unwrap();
    }
    assert_eq!(*transaction.get(f, &key(0)).unwrap().unwrap(), noise(0, 1000));
    drop((snapshot, cursor, transaction));
    shrinks_to(&sim, &db, bound(159));
    check(f, 0..10, 2);
}

#[test]
fn clones_and_copies_made_while_files_are_emptied_are_complete() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    scatter(db.default_family(), &db);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..5).for_each(|_| db.compact().unwrap()));
        for n in 0..5 {
            let name = format!("clone{n}");
            check_scattered(&db.clone_family("default", &name).unwrap());
            let to = format!("/copy{n}");
            db.checkpoint(&to).unwrap();
            let copy = sim.options_at(&to).default_family(quiet()).open().unwrap();
            check_scattered(copy.default_family());
            assert!(copy.verify().unwrap().is_ok());
            db.drop_family(&name).unwrap();
        }
    });
    shrinks_to(&sim, &db, bound(150));
    check_scattered(db.default_family());
}

#[test]
fn a_family_may_be_dropped_while_its_files_are_emptied() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    for n in 0..10 {
        let f = db.create_family("dropped", quiet()).unwrap();
        scatter(&f, &db);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let result = f.compact();
                assert!(matches!(result, Ok(()) | Err(Error::NotFound { .. })), "round {n}: {result:?}");
            });
            std::thread::sleep(std::time::Duration::from_micros(n * 300));
            db.drop_family("dropped").unwrap();
        });
    }
    shrinks_to(&sim, &db, 0);
}

#[test]
fn a_damaged_value_stops_only_the_collection_of_its_file() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    scatter(f, &db);
    let damaged =
        sim.disk.file_names(DB).unwrap().into_iter().filter(|n| n.ends_with(".vlog")).min().unwrap();
    sim.disk.corrupt(format!("{DB}/{damaged}"), 40 + 18 + 100, |byte| byte ^ 1).unwrap(); // the value of key 0
    let result = db.compact();
    assert!(matches!(&result, Err(Error::Corrupt { file, .. }) if **file == *damaged), "{result:?}");
    assert!(f.get(&key(0)).unwrap_err().is_corruption());
    shrinks_to(&sim, &db, bound(150) + 20_000);
    assert!(sim.disk.file_names(DB).unwrap().contains(&damaged));
    check(f, 10..11, 0);
    check(f, 2..3, 1);
    assert_eq!(db.verify().unwrap().damage.len(), 1);
}

#[test]
fn collection_can_be_switched_off() {
    let sim = Sim::new();
    let off = quiet().value_garbage_percent(0);
    let db = sim.options().default_family(off).open().unwrap();
    scatter(db.default_family(), &db);
    db.compact().unwrap();
    assert_eq!(db.default_family().stats().value_bytes_moved, 0);
    db.default_family().change_options(quiet().value_garbage_percent(25)).unwrap();
    shrinks_to(&sim, &db, bound(150));
    check_scattered(db.default_family());
}

#[test]
fn a_full_disk_delays_the_collection_and_loses_nothing() {
    let sim = Sim::new();
    let no_reserve = |o: &mut tidesdb::DbOptions| o.disk_reserve_bytes = Some(0);
    let db = sim.options().default_family(quiet()).with(no_reserve).open().unwrap();
    let f = db.default_family();
    scatter(f, &db);
    db.flush().unwrap();
    let used = on_disk(&sim).1;
    sim.disk.limit_space(Some(1024));
    assert!(matches!(db.compact(), Err(Error::NoSpace { .. } | Error::Io { .. })));
    check_scattered(f);
    assert!(on_disk(&sim).1 <= used);
    assert!(db.verify().unwrap().is_ok());
    sim.disk.limit_space(None);
    shrinks_to(&sim, &db, bound(150));
    check_scattered(f);
}
