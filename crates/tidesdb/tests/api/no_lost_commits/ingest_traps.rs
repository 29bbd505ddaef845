//! What has gone wrong in other stores while they took tables: snapshots taken meanwhile, flushes and merges that wait for each other,
//! sequence numbers, range deletes, and disks that fail.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidesdb::{
    Db, Error, Family, Ingest, Isolation, ObjectStore, RemoteOptions, Snapshot, SyncMode, WriteOptions,
};
use tidesdb_io::sim::{Fault, OpKind, OpSet, env, errno};

use super::ingest::{build, builder};
use super::remote::{Watched, cold, options as with_store, rows};
use crate::common::{DB, LEVELS, Pair, Sim, contents, fill, joined, noise, small, value};

fn taking(family: &Family, tables: &[PathBuf]) -> Ingest {
    Ingest::new().tables(family, tables)
}

/// The calls of the disk that change something or make it durable.
fn changes() -> OpSet {
    OpSet::CHANGES | OpSet::SYNCS
}

/// Files of the database beside its log, its manifest, and what belongs to the process.
fn tables_and_values(sim: &Sim) -> Vec<String> {
    let mut names = sim.disk.file_names(DB).unwrap();
    names.retain(|name| name.ends_with(".klog") || name.ends_with(".vlog") || name.starts_with("INGEST"));
    names
}

#[test]
fn a_snapshot_taken_at_any_step_of_an_ingest_shows_all_of_it_or_nothing_for_ever() {
    let sim = Sim::new();
    let db = sim.open();
    let (a, b) = (db.default_family().clone(), db.create_family("b", small()).unwrap());
    fill(&a, 30, b"old");
    fill(&b, 30, b"old");
    let tables = [build(&sim, &a, "a", 10..50, b"new"), build(&sim, &b, "b", 10..50, &noise(1, 700))];
    let (old, before) = ((contents(&a), contents(&b)), db.snapshot());
    let taken: Arc<Mutex<Vec<Snapshot>>> = Arc::default();
    let (kept, reads) = (Arc::clone(&taken), db.clone());
    sim.disk.before_calls(changes(), move |_| kept.lock().unwrap().push(reads.snapshot()));
    let ingest = Ingest::new().tables(&a, &tables[0]).tables(&b, &tables[1]);
    db.ingest(&ingest.options(WriteOptions::default().sync(SyncMode::Full))).unwrap();
    sim.disk.before_calls(changes(), |_| {});
    let new = (contents(&a), contents(&b));
    assert_eq!((new.0.len(), new.1.len()), (50, 50));
    let snapshots = std::mem::take(&mut *taken.lock().unwrap());
    assert!(snapshots.len() > 6, "{}", snapshots.len());
    let shown = |snapshot: &Snapshot| {
        let rows = |family: &Family| -> Vec<Pair> {
            let rows = snapshot.iter(family).unwrap().map(Result::unwrap);
            rows.map(|(key, value)| (key.into_vec(), value.into_vec())).collect()
        };
        (rows(&a), rows(&b))
    };
    let check = |when: &str| {
        assert!(shown(&before) == old, "{when}: a snapshot from before");
        for (n, snapshot) in snapshots.iter().enumerate() {
            assert!(shown(snapshot) == old, "{when}: the snapshot of step {n}, at {}", snapshot.seq());
        }
    };
    check("at once");
    db.put("key000011", "later").unwrap();
    db.flush().unwrap();
    check("after the flush");
    db.compact().unwrap();
    check("after the merge");
    assert_eq!(value(&a, b"key000012").unwrap(), b"new");
}

#[test]
fn flushes_and_merges_beside_tables_that_wait_do_not_wait_for_each_other() {
    for step in 0..3 {
        let sim = Sim::new();
        let db = sim.open();
        let family = db.default_family().clone();
        fill(&family, 200, b"first");
        db.flush().unwrap();
        fill(&family, 100, b"older");
        // Three commits that take tables, with memtables below and between them.
        for n in 0..3u32 {
            let tables = build(&sim, &family, &format!("t{n}"), n * 20..n * 20 + 60, &[b'0' + n as u8]);
            db.ingest(&taking(&family, &tables)).unwrap();
            family.put(format!("key{:06}", n * 20 + 1), format!("after {n}")).unwrap();
        }
        let rows = contents(&family);
        let (end, ended) = channel();
        let other = db.clone();
        let work = std::thread::spawn(move || {
            std::thread::scope(|s| {
                let both = || {
                    other.compact().unwrap();
                    other.flush().unwrap();
                };
                match step {
                    0 => both(),
                    1 => other.default_family().compact_range("key000010"..).unwrap(),
                    _ => {
                        s.spawn(both);
                        s.spawn(both);
                        s.spawn(|| other.default_family().flush().unwrap());
                    }
                }
            });
            end.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(120)).expect("flushes and merges wait for each other");
        work.join().unwrap();
        assert!(contents(&family) == rows, "{step}");
        db.close().unwrap();
        assert!(contents(sim.open().default_family()) == rows, "{step}");
    }
}

#[test]
fn a_flush_and_a_merge_at_any_step_of_an_ingest_change_no_row() {
    for merges in [false, true] {
        let sim = Sim::new();
        let db = sim.open();
        let family = db.default_family().clone();
        fill(&family, 100, b"flushed");
        db.flush().unwrap();
        fill(&family, 60, b"older");
        let tables = build(&sim, &family, "t", 40..80, &noise(3, 600));
        let (other, inside, steps) = (db.clone(), AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&steps);
        // Only before the commit: the record is written while the order of commits is held.
        sim.disk.before_calls(OpSet::of(OpKind::Create) | OpKind::SyncAll, move |path| {
            if path.ends_with(".wal") || path.ends_with(".manifest") || inside.swap(true, Ordering::SeqCst) {
                return;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            other.put("key000041", "between").unwrap();
            let done = if merges { other.compact() } else { other.flush() };
            done.unwrap();
            inside.store(false, Ordering::SeqCst);
        });
        db.ingest(&taking(&family, &tables)).unwrap();
        sim.disk.before_calls(OpSet::of(OpKind::Create), |_| {});
        assert!(steps.load(Ordering::SeqCst) >= 4, "{steps:?}");
        let check = |family: &Family| {
            assert_eq!(value(family, b"key000039").unwrap(), b"older");
            assert!(
                (40..80).all(|n| value(family, format!("key{n:06}").as_bytes()).unwrap() == noise(3, 600))
            );
            assert_eq!(contents(family).len(), 100);
        };
        check(&family);
        db.compact().unwrap();
        check(&family);
        check(sim.killed().open().default_family());
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn each_sequence_number_shows_an_ingest_as_a_whole_between_its_neighbours() {
    let sim = Sim::new();
    let db = sim.options().with(|o| o.history_bytes = 8 << 20).open().unwrap();
    let (a, b) = (db.default_family().clone(), db.create_family("b", small()).unwrap());
    fill(&a, 10, b"old");
    let mut rows = builder(&sim, &a, "a");
    rows.delete_range("key000007".."key000009").unwrap();
    rows.put("key000001", "taken").unwrap();
    let first = rows.finish().unwrap();
    let second = build(&sim, &a, "second", 2..4, b"taken");
    let third = build(&sim, &b, "third", 0..3, b"taken");
    let before = db.put("key000001", "before").unwrap();
    let ingest = Ingest::new().tables(&a, &first).tables(&b, &third).tables(&a, &second);
    let taken = db.ingest(&ingest).unwrap();
    let after = db.put("key000002", "after").unwrap();
    assert!(before < taken.seq && taken.seq < after, "{before} {} {after}", taken.seq);
    let seen = |seq: u64| {
        let snapshot = db.snapshot_at(seq).unwrap();
        let get = |family: &Family, key: &str| {
            let value = snapshot.get(family, key).unwrap().map(tidesdb::Slice::into_vec);
            value.map(|value| String::from_utf8(value).unwrap())
        };
        let rows = (get(&a, "key000001"), get(&a, "key000002"), get(&a, "key000003"));
        (rows, get(&a, "key000007"), get(&b, "key000002"))
    };
    let is = |value: &str| Some(value.to_owned());
    let old = ((is("before"), is("old"), is("old")), is("old"), None);
    let new = ((is("taken"), is("taken"), is("taken")), None, is("taken"));
    for when in ["at once", "after the flush", "after the merge"] {
        assert_eq!(seen(before), old, "{when}");
        assert_eq!(seen(taken.seq), new, "{when}: a snapshot at the number of the commit");
        let after = seen(after);
        assert_eq!(((after.0).1, (after.0).0), (is("after"), is("taken")), "{when}");
        if when == "at once" {
            db.flush().unwrap();
        } else {
            db.compact().unwrap();
        }
    }
}

/// The keys that are there after puts, range deletes and an ingest, in an order that `what` decides.
fn with_ranges(what: u32) -> (Sim, Db, Vec<&'static str>) {
    let sim = Sim::new();
    let db = sim.options().default_family(joined()).open().unwrap();
    let family = db.default_family().clone();
    let bit = |n: u32| what >> n & 1 == 1;
    let mut keys = std::collections::BTreeSet::new();
    for key in ["a", "b", "c", "d", "e"] {
        family.put(key, "old").unwrap();
        keys.insert(key);
    }
    if bit(0) {
        db.flush().unwrap();
    }
    if bit(1) {
        family.delete_range("b".."d").unwrap(); // below the tables
        keys.retain(|key| !("b".."d").contains(key));
    }
    if bit(2) {
        db.flush().unwrap();
    }
    let mut rows = builder(&sim, &family, "t");
    if bit(3) {
        rows.delete_range("a".."e").unwrap();
        keys.retain(|key| !("a".."e").contains(key));
    }
    for key in ["b", "d", "f"] {
        rows.put(key, "taken").unwrap();
        keys.insert(key);
    }
    let tables = rows.finish().unwrap();
    db.ingest(&taking(&family, &tables)).unwrap();
    if bit(4) {
        family.delete_range("c".."e").unwrap(); // above them
        keys.retain(|key| !("c".."e").contains(key));
    }
    if bit(5) {
        let mut again = builder(&sim, &family, "again");
        again.delete_range("b".."c").unwrap();
        again.put("g", "taken").unwrap();
        db.ingest(&taking(&family, &again.finish().unwrap())).unwrap();
        keys.retain(|key| *key != "b");
        keys.insert("g");
    }
    (sim, db, keys.into_iter().collect())
}

#[test]
fn range_deletes_in_memtables_in_tables_and_in_built_tables_cover_what_is_older() {
    for what in 0..64 {
        let (sim, db, keys) = with_ranges(what);
        let check = |db: &Db, when: &str| {
            let found = contents(db.default_family());
            let found: Vec<_> = found.iter().map(|(key, _)| std::str::from_utf8(key).unwrap()).collect();
            assert_eq!(found, keys, "{what:06b} {when}");
            let back = db.iter().unwrap().rev().map(|row| row.unwrap().0.into_vec());
            let mut back: Vec<_> = back.map(|key| String::from_utf8(key).unwrap()).collect();
            back.reverse();
            assert_eq!(back, keys, "{what:06b} {when}, backwards");
            for key in ["a", "b", "c", "d", "e", "f", "g"] {
                assert_eq!(db.contains(key).unwrap(), keys.contains(&key), "{what:06b} {when}: {key}");
            }
        };
        let open = |sim: &Sim| sim.options().default_family(joined()).open().unwrap();
        check(&db, "at once");
        check(&open(&sim.killed()), "after a kill");
        db.flush().unwrap();
        check(&db, "after the flush");
        check(&open(&sim.killed()), "after the flush and a kill");
        db.put("0", "").unwrap();
        db.delete("0").unwrap();
        db.compact().unwrap();
        check(&db, "after the merge");
        db.close().unwrap();
        check(&open(&sim), "opened again");
    }
}

#[test]
fn a_family_that_is_dropped_or_renamed_at_any_step_of_an_ingest_leaves_no_file() {
    for (drops, step) in [true, false].into_iter().flat_map(|drops| (0..8).map(move |step| (drops, step))) {
        let sim = Sim::new();
        let db = sim.open();
        let family = db.create_family("f", small()).unwrap();
        family.put("key000001", "old").unwrap();
        let tables = build(&sim, &family, "t", 0..30, &noise(4, 600));
        let (other, calls) = (db.clone(), AtomicU64::new(0));
        sim.disk.before_calls(OpSet::of(OpKind::Create) | OpKind::Write | OpKind::SyncAll, move |path| {
            if !path.ends_with(".klog") && !path.ends_with(".vlog") {
                return;
            }
            if calls.fetch_add(1, Ordering::SeqCst) == step {
                match drops {
                    true => other.drop_family("f").unwrap(),
                    false => other.rename_family("f", "g").unwrap(),
                }
            }
        });
        let taken = db.ingest(&taking(&family, &tables));
        sim.disk.before_calls(OpSet::of(OpKind::Create), |_| {});
        let is_there = db.families().iter().any(|name| name == "f");
        let what = format!("drops: {drops}, step {step}: {taken:?}");
        match drops && !is_there {
            true => assert!(matches!(taken, Err(Error::NotFound { .. })), "{what}"),
            false => assert_eq!((taken.unwrap().rows, contents(&family).len()), (30, 30)),
        }
        db.put("x", "y").unwrap();
        db.flush().unwrap();
        drop(family);
        db.compact().unwrap();
        if drops && !is_there {
            sim.eventually(&db, |names| names.iter().filter(|name| name.ends_with(".klog")).count() <= 1);
            assert_eq!(
                tables_and_values(&sim).iter().filter(|name| name.ends_with(".vlog")).count(),
                0,
                "{what}"
            );
        }
        db.close().unwrap();
        let db = sim.open();
        assert_eq!(db.recovery_report().orphans, 0, "{what}");
        assert_eq!(sim.disk.file_names("/built").unwrap().len(), 2, "{what}: the files of the caller stay");
    }
}

#[test]
fn a_close_during_the_copy_ends_it_and_leaves_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family().clone();
    family.put("old", "row").unwrap();
    let mut rows = builder(&sim, &family, "t");
    (0..4000u32).for_each(|n| rows.put(format!("key{n:06}"), noise(n.into(), 2000)).unwrap());
    let tables = rows.finish().unwrap();
    let (closes, calls) = (db.clone(), AtomicU64::new(0));
    let closer: Arc<Mutex<Option<std::thread::JoinHandle<_>>>> = Arc::default();
    let started = Arc::clone(&closer);
    sim.disk.before_calls(OpSet::of(OpKind::Write), move |path| {
        if path.ends_with(".vlog") && calls.fetch_add(1, Ordering::SeqCst) == 1 {
            let db = closes.clone();
            *started.lock().unwrap() = Some(std::thread::spawn(move || db.close()));
            std::thread::sleep(Duration::from_millis(500)); // the close waits for the ingest from now on
        }
    });
    assert!(matches!(db.ingest(&taking(&family, &tables)), Err(Error::Closed)));
    sim.disk.before_calls(OpSet::of(OpKind::Create), |_| {});
    let closer = closer.lock().unwrap().take().unwrap();
    closer.join().unwrap().unwrap();
    drop((db, family));
    let db = sim.open();
    assert_eq!((db.recovery_report().orphans, db.recovery_report().clean), (0, true));
    assert_eq!(contents(db.default_family()).len(), 1);
}

#[test]
fn a_disk_that_is_full_or_fails_at_any_step_changes_nothing_or_takes_all() {
    let mut refused = 0;
    for (step, sync) in (0u64..400).flat_map(|step| [SyncMode::Full, SyncMode::None].map(|sync| (step, sync)))
    {
        let sim = Sim::new();
        let db = sim.open();
        let (a, b) = (db.default_family().clone(), db.create_family("b", small()).unwrap());
        fill(&a, 20, b"old");
        db.flush().unwrap();
        let tables = [build(&sim, &a, "a", 10..40, &noise(5, 700)), build(&sim, &b, "b", 0..200, b"new")];
        let (old, files) = (contents(&a), tables_and_values(&sim));
        match step {
            0..40 => sim.disk.limit_space(Some(step * 1000)),
            _ => drop(sim.disk.inject(Fault::errno(errno::EIO).skip(step - 40).times(1))),
        }
        let ingest = Ingest::new().tables(&a, &tables[0]).tables(&b, &tables[1]);
        let ingest = match step % 3 {
            0 => ingest,
            1 => ingest.linking(),
            _ => ingest.moving(),
        };
        let taken = db.ingest(&ingest.clone().options(WriteOptions::default().sync(sync)));
        sim.disk.limit_space(None);
        sim.disk.clear_faults();
        if let Err(e) = &taken {
            refused += 1;
            assert!(!e.to_string().contains("internal"), "step {step}: {e}");
        }
        let is_usable = db.put("zzz", "later").is_ok();
        match &taken {
            Err(Error::CommitUnknown { .. }) => assert!(!is_usable, "step {step}"),
            Err(e) => {
                assert_eq!(
                    (contents(&a).len(), contents(&b).len()),
                    (20 + usize::from(is_usable), 0),
                    "step {step}: {e}"
                );
                if is_usable {
                    assert_eq!(tables_and_values(&sim), files, "step {step}: {e}");
                    assert_eq!(db.ingest(&ingest).unwrap().rows, 230, "step {step}: {e}");
                }
            }
            Ok(taken) => assert_eq!((taken.rows, contents(&b).len()), (230, 200), "step {step}"),
        }
        if (393..).contains(&step) {
            assert!(taken.is_ok(), "step {step}: the last steps are behind the end");
        }
        if is_usable {
            db.clone().close().unwrap();
        }
        drop((a, b, db));
        let db = Sim::on(sim.disk.fork());
        let db = db.open();
        let (mut now, others) = (contents(db.default_family()), contents(&db.family("b").unwrap()).len());
        now.retain(|(key, _)| key != b"zzz");
        match others {
            0 => assert!(now == old, "step {step}"),
            _ => assert_eq!((others, now.len()), (200, 40), "step {step}"),
        }
        assert!(db.verify().unwrap().is_ok(), "step {step}");
    }
    assert!(refused > 30, "{refused}");
}

#[test]
fn ten_thousand_tables_are_one_commit() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let family = db.default_family().clone();
    let mut rows = builder(&sim, &family, "t").memory_limit(1);
    (0..10_000u32).for_each(|n| rows.put(n.to_be_bytes(), n.to_le_bytes()).unwrap());
    let tables = rows.finish().unwrap();
    assert_eq!(tables.len(), 10_000);
    let taken = db.ingest(&taking(&family, &tables).linking()).unwrap();
    assert_eq!((taken.tables, taken.rows), (10_000, 10_000));
    let check = |db: &Db| {
        assert_eq!(db.iter().unwrap().count(), 10_000);
        assert_eq!(db.get(9_999u32.to_be_bytes()).unwrap().unwrap(), 9_999u32.to_le_bytes());
    };
    check(&db);
    check(&sim.killed().open());
    db.flush().unwrap();
    check(&db);
}

#[test]
fn tables_that_all_overlap_are_one_commit_in_their_order() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let family = db.default_family().clone();
    let mut ingest = Ingest::new().linking();
    for n in 0..300u32 {
        ingest = ingest.tables(&family, build(&sim, &family, &format!("t{n}"), n..n + 50, &n.to_le_bytes()));
    }
    db.ingest(&ingest).unwrap();
    let check = |db: &Db| {
        let rows = contents(db.default_family());
        assert_eq!(rows.len(), 349);
        for (n, (_, value)) in (0u32..).zip(rows) {
            assert_eq!(value, n.min(299).to_le_bytes());
        }
    };
    check(&db);
    check(&sim.killed().open());
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
}

#[test]
fn the_longest_keys_and_bounds_are_taken() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family().clone();
    let key = |first: u8| [vec![first], vec![0xff; (64 << 10) - 1]].concat();
    family.put(key(b'a'), "old").unwrap();
    let mut rows = builder(&sim, &family, "t");
    assert!(rows.put([&key(b'a')[..], b"x"].concat(), "").is_err(), "one byte more");
    rows.delete_range(key(b'a')..key(b'b')).unwrap();
    for first in b"bcde" {
        rows.put(key(*first), noise((*first).into(), 2000)).unwrap();
    }
    rows.delete_range(key(b'x')..key(b'z')).unwrap();
    let tables = rows.finish().unwrap();
    db.ingest(&taking(&family, &tables)).unwrap();
    let check = |db: &Db| {
        let rows = contents(db.default_family());
        let expected: Vec<Pair> = b"bcde".iter().map(|c| (key(*c), noise((*c).into(), 2000))).collect();
        assert!(rows == expected, "{}", rows.len());
    };
    check(&db);
    check(&sim.killed().open());
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    db.close().unwrap();
    check(&sim.open());
}

#[test]
fn a_folder_lost_at_any_moment_of_the_uploads_is_restored_as_a_prefix() {
    for log in [true, false] {
        let store = Arc::new(Watched::default());
        let (env, disk, _clock) = env(13);
        disk.log_ops(false);
        let mut remote = RemoteOptions::new(Arc::<Watched>::clone(&store));
        remote.replicate_log = log;
        let db = with_store(&env, remote).open().unwrap();
        let family = db.default_family().clone();
        env.disk.open_dir("/built".as_ref(), true).unwrap();
        let mut states = vec![rows(&family)];
        let mut step = |done: tidesdb::Result<()>| {
            done.unwrap();
            states.push(rows(&family));
        };
        for n in 0..12u32 {
            step(family.put(format!("own{:03}", n % 5), noise(n.into(), 300)).map(drop));
            let mut built = family.table_builder(format!("/built/{n}")).unwrap();
            built.delete_range(format!("own{:03}", n % 3)..format!("own{:03}", n % 3 + 1)).unwrap();
            for row in 0..10 {
                built.put(format!("row{:03}", n + row), noise(n.into(), 100 * row as usize + 30)).unwrap();
            }
            let tables = built.finish().unwrap();
            step(db.ingest(&taking(&family, &tables)).map(drop));
            step(family.put(format!("row{:03}", n + 5), "after").map(drop));
            match n % 4 {
                0 => db.upload().unwrap(),
                1 => db.flush().unwrap(),
                2 => db.compact().unwrap(),
                _ => {}
            }
        }
        db.upload().unwrap();
        drop((family, db));
        let moments = std::mem::take(&mut *store.states.lock().unwrap());
        assert!(moments.len() > 20, "{}", moments.len());
        let mut reached = 0;
        for (n, moment) in moments.iter().enumerate() {
            if !moment.list().unwrap().iter().any(|object| object.name == "CURRENT") {
                continue;
            }
            let (db, _env, _disk) = cold(Arc::new(moment.clone()));
            let found = rows(db.default_family());
            let at = states.iter().rposition(|state| *state == found);
            let at = at.unwrap_or_else(|| panic!("log {log}, change {n}: {} rows of no moment", found.len()));
            assert!(at >= reached, "log {log}, change {n}: {at} after {reached}");
            reached = at;
            assert!(db.verify().unwrap().is_ok(), "log {log}, change {n}");
        }
        assert_eq!(reached, states.len() - 1, "log {log}");
    }
}

#[test]
fn transactions_of_all_levels_meet_an_ingest_as_they_meet_a_commit() {
    for level in LEVELS {
        for waits in [true, false] {
            let sim = Sim::new();
            let db = sim.open();
            let family = db.default_family().clone();
            fill(&family, 10, b"old");
            let tables = build(&sim, &family, "t", 5..15, b"taken");
            let begin = || db.begin(level);
            let (mut reads, mut writes, mut beside, mut ranges) = (begin(), begin(), begin(), begin());
            assert_eq!(&reads.get(&family, "key000005").unwrap().unwrap()[..], b"old");
            assert_eq!(reads.get(&family, "key000012").unwrap(), None);
            beside.get(&family, "key000001").unwrap();
            for (tx, key) in [(&mut reads, "x"), (&mut writes, "key000005"), (&mut beside, "y")] {
                tx.put(&family, key, "mine").unwrap();
            }
            ranges.delete_range(&family, "key000003".."key000006").unwrap();
            db.ingest(&taking(&family, &tables)).unwrap();
            if !waits {
                db.compact().unwrap();
            }
            let is_fixed =
                matches!(level, Isolation::RepeatableRead | Isolation::Snapshot | Isolation::Serializable);
            let shown = reads.get(&family, "key000005").unwrap().unwrap().to_vec();
            assert_eq!(shown, if is_fixed { &b"old"[..] } else { b"taken" }, "{level:?}");
            let new = reads.get(&family, "key000012").unwrap();
            assert_eq!(new.is_some(), !is_fixed, "{level:?}: a row that the ingest added");
            // A transaction that meets a put in place of the ingest says what is right.
            let expected = by_a_batch(level);
            let found = [reads.commit(), writes.commit(), beside.commit(), ranges.commit()];
            let found = found.map(|done| matches!(done, Err(Error::Conflict { .. })));
            assert_eq!(found, expected, "{level:?}, waits: {waits}");
        }
    }
}

/// Which of the transactions conflict if a batch wrote the same rows.
fn by_a_batch(level: Isolation) -> [bool; 4] {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family().clone();
    fill(&family, 10, b"old");
    let begin = || db.begin(level);
    let (mut reads, mut writes, mut beside, mut ranges) = (begin(), begin(), begin(), begin());
    reads.get(&family, "key000005").unwrap();
    reads.get(&family, "key000012").unwrap();
    beside.get(&family, "key000001").unwrap();
    for (tx, key) in [(&mut reads, "x"), (&mut writes, "key000005"), (&mut beside, "y")] {
        tx.put(&family, key, "mine").unwrap();
    }
    ranges.delete_range(&family, "key000003".."key000006").unwrap();
    for n in 5..15 {
        family.put(format!("key{n:06}"), "taken").unwrap();
    }
    reads.get(&family, "key000005").unwrap();
    reads.get(&family, "key000012").unwrap();
    [reads.commit(), writes.commit(), beside.commit(), ranges.commit()]
        .map(|done| matches!(done, Err(Error::Conflict { .. })))
}

#[test]
fn a_reader_beside_the_writer_keeps_the_values_of_tables_that_it_saw_in_the_log() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family().clone();
    let tables = build(&sim, &family, "t", 0..20, &noise(6, 700));
    db.ingest(&taking(&family, &tables)).unwrap();
    let reader = sim.options().open_reader().unwrap();
    let view = reader.view();
    family.delete_range("key000000"..).unwrap();
    db.flush().unwrap();
    sim.eventually(&db, |names| !names.iter().any(|name| name.ends_with(".vlog")));
    assert_eq!(contents(&family), []);
    for n in 0..20 {
        assert_eq!(view.get(format!("key{n:06}")).unwrap().unwrap(), noise(6, 700));
    }
}
