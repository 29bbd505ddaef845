//! Crashes, failing calls and full disks while generations are made, pruned, proven and restored.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb::backup::{Backups, CreateOptions, PrunePolicy};
use tidesdb::store::DirectoryStore;
use tidesdb::{Db, Error};
use tidesdb_io::sim::{self, Fault, Image, OpSet, SimDisk, errno};

use crate::common::{Pair, Sim, contents, fill, noise, small};
use crate::no_lost_commits::generations::{assert_same, backups, sample};
use crate::readers_beside_the_writer::beside_steps::{Call, Hooked};

/// All rows of all families.
type Rows = BTreeMap<String, Vec<Pair>>;

fn rows(db: &Db) -> Rows {
    db.families().into_iter().map(|name| (name.clone(), contents(&db.family(&name).unwrap()))).collect()
}

/// A machine whose random numbers differ from those of the one before the crash.
fn machine(disk: SimDisk, seed: u64) -> Sim {
    let (env, disk, clock) = sim::env_on(disk, 1000 + seed);
    disk.log_ops(false);
    Sim { env, disk, clock }
}

/// Round `n` of a script: some rows, a merge, a generation.
fn round(db: &Db, backups: &Backups, n: u64, history: &mut BTreeMap<u64, Rows>) {
    db.put([n as u8], noise(n, 700)).unwrap();
    db.family("two").unwrap().put("k", [n as u8; 40]).unwrap();
    if n == 3 {
        db.delete_range([0]..[2]).unwrap();
        db.compact().unwrap();
    }
    let options = CreateOptions::default();
    let options = if n == 2 { options.prove("/scratch") } else { options };
    let expected = rows(db);
    history.insert(n, expected);
    let made = backups.create_with(db, &options).unwrap();
    assert_eq!(made.number, n);
}

/// Checks a store after a crash: the generations of `at_least` are in it, and each in it is whole; the next writer finds nothing amiss, and leaves
/// nothing that no generation needs.
fn check(sim: &Sim, at_least: &[u64], history: &BTreeMap<u64, Rows>, what: &str) {
    let store = backups(sim);
    let numbers = |store: &Backups| store.list().unwrap().iter().map(|made| made.number).collect::<Vec<_>>();
    let found = numbers(&store);
    assert!(at_least.iter().all(|number| found.contains(number)), "{what}: {found:?} of {at_least:?}");
    for number in &found {
        assert!(store.verify(*number).unwrap().is_ok(), "{what}: {number}");
        let path = format!("/restored{number}");
        store.restore(*number, &path).unwrap();
        let copy = sim.options_as_stored(&path).open().unwrap();
        assert!(Some(&rows(&copy)) == history.get(number), "{what}: {number}");
    }
    let db = sim.open_as_stored();
    db.put("after", noise(99, 600)).unwrap();
    let next = store.create(&db).unwrap();
    assert!(found.iter().all(|number| *number < next.number), "{what}");
    store.prune(&PrunePolicy::default().keep_last(1)).unwrap();
    let left = numbers(&store);
    assert!(left.contains(&next.number));
    left.iter().for_each(|number| assert!(store.verify(*number).unwrap().is_ok(), "{what}: {number}"));
    store.restore(next.number, "/last").unwrap();
    assert_same(&sim.options_as_stored("/last").open().unwrap(), &db);
    // Everything that is left belongs to the generations that are left.
    left.iter().for_each(|number| store.delete(*number).unwrap());
    assert_eq!(sim.disk.file_names("/backups").unwrap(), ["backup.index", "backup.probe"], "{what}");
}

#[test]
fn a_crash_at_any_change_leaves_whole_generations() {
    let sim = Sim::new();
    let db = sim.open();
    db.create_family("two", small()).unwrap();
    let store = backups(&sim);
    let mut history = BTreeMap::new();
    // For each change of the disk: which generations had been made, and were not deleted.
    let mut states: Vec<(SimDisk, Vec<u64>)> = Vec::new();
    let mut promised = Vec::new();
    for n in 1..=4 {
        let forks = sim.before_each_change(|| round(&db, &store, n, &mut history));
        states.extend(forks.into_iter().map(|fork| (fork, promised.clone())));
        promised.push(n);
    }
    let kept = vec![2, 3, 4]; // 2 is proven
    let forks = sim.before_each_change(|| {
        assert_eq!(store.prune(&PrunePolicy::default().keep_last(2)).unwrap().generations, [1]);
    });
    states.extend(forks.into_iter().map(|fork| (fork, kept.clone())));
    let forks = sim.before_each_change(|| store.delete(3).unwrap());
    states.extend(forks.into_iter().map(|fork| (fork, vec![2, 4])));
    assert!(states.len() > 150, "{}", states.len());
    for (n, (state, promised)) in states.iter().enumerate() {
        check(&machine(state.fork(), n as u64), promised, &history, &format!("killed before change {n}"));
        let image = &Image::STANDARD[n % Image::STANDARD.len()];
        let lost = state.crash_image(image, n as u64);
        check(
            &machine(lost, n as u64),
            promised,
            &history,
            &format!("power lost before change {n}, {image:?}"),
        );
    }
}

#[test]
fn a_crash_at_any_change_of_a_restore_leaves_no_half_database() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 20, &noise(1, 800));
    let store = backups(&sim);
    store.create(&db).unwrap();
    let expected = rows(&db);
    let states = sim.before_each_change(|| store.restore(1, "/restored").unwrap());
    assert!(states.len() > 15, "{}", states.len());
    let mut whole = 0;
    for (n, state) in states.iter().enumerate() {
        for (seed, lost) in [(0, state.fork()), (1, state.crash_image(&Image::STANDARD[n % 10], n as u64))] {
            let sim = machine(lost, seed);
            match sim.options_as_stored("/restored").create_if_missing(false).open() {
                Ok(db) => {
                    whole += 1;
                    assert!(rows(&db) == expected, "before change {n}");
                    drop(db);
                    let again = backups(&sim).restore(1, "/restored");
                    assert!(matches!(again, Err(Error::Exists { .. })), "before change {n}: {again:?}");
                }
                Err(Error::NotFound { .. }) => backups(&sim).restore(1, "/restored").unwrap(),
                Err(Error::Corrupt { what, .. }) => {
                    assert!(what.contains("restore it again"), "before change {n}: {what}");
                    backups(&sim).restore(1, "/restored").unwrap();
                }
                Err(e) => panic!("before change {n}: {e}"),
            }
            assert!(rows(&sim.options_as_stored("/restored").open().unwrap()) == expected);
        }
    }
    assert!(whole > 0, "the note is removed last");
}

/// Each call for the store fails once: the generation is made or not, and nothing else changes.
#[test]
fn a_failing_call_for_the_store_leaves_whole_generations() {
    let make = |skip: u64| {
        let sim = Sim::new();
        let db = sim.open();
        db.create_family("two", small()).unwrap();
        let store = backups(&sim);
        let mut history = BTreeMap::new();
        round(&db, &store, 1, &mut history);
        db.put("more", noise(5, 900)).unwrap();
        history.insert(2, rows(&db));
        let calls = OpSet::CHANGES;
        let fault = Fault::errno(errno::EIO).on(calls).path_if(|path| path.starts_with("/backups"));
        let id = sim.disk.inject(fault.skip(skip).times(1));
        let made = store.create(&db);
        let struck = sim.disk.struck(id) > 0;
        sim.disk.clear_faults();
        // The same handle goes on.
        let again = store.create(&db).unwrap();
        history.insert(again.number, rows(&db));
        store.prune(&PrunePolicy::default().keep_last(5)).unwrap();
        let mut promised = vec![1, again.number];
        promised.extend(made.ok().map(|made| made.number));
        db.close().unwrap();
        check(&machine(sim.disk.fork(), skip), &promised, &history, &format!("call {skip}"));
        struck
    };
    let calls = (0..).take_while(|skip| make(*skip)).count();
    assert!(calls > 10, "{calls}");
}

#[test]
fn a_full_disk_of_the_store_leaves_whole_generations() {
    let sim = Sim::new();
    let db = sim.open();
    db.create_family("two", small()).unwrap();
    let store = backups(&sim);
    let mut history = BTreeMap::new();
    round(&db, &store, 1, &mut history);
    for n in 0..20 {
        db.put([n], noise(n.into(), 3000)).unwrap();
    }
    db.flush().unwrap();
    history.insert(2, rows(&db));
    let mut failed = 0;
    for free in (0..100).map(|n| n * 1024) {
        sim.disk.limit_space(Some(free));
        let made = store.create(&db);
        sim.disk.limit_space(None);
        match made {
            Ok(_) => break,
            Err(e) => {
                failed += 1;
                let is_full = matches!(&e, Error::NoSpace { .. } | Error::Io { .. });
                assert!(is_full && std::io::Error::from(e).kind() == std::io::ErrorKind::StorageFull);
            }
        }
        assert_eq!(store.list().unwrap().len(), 1);
    }
    assert!(failed > 3, "{failed}");
    assert_eq!(store.list().unwrap().len(), 2);
    // A restore without room says so, and leaves nothing.
    sim.disk.limit_space(Some(20 << 10));
    assert!(matches!(store.restore(2, "/small"), Err(Error::NoSpace { .. })));
    sim.disk.limit_space(None);
    assert!(sim.disk.file_names("/small").unwrap().iter().all(|name| name == "LOCK"));
    db.close().unwrap();
    check(&machine(sim.disk.fork(), 1), &[1, 2], &history, "after a full disk");
}

/// Regression test: of two restores into one folder, the slower one removed what the other one had finished.
#[test]
fn a_restore_leaves_what_another_one_has_restored_meanwhile() {
    for left in [None, Some("UNFINISHED")] {
        let sim = Sim::new();
        let (db, store) = (sample(&sim), backups(&sim));
        store.create(&db).unwrap();
        if let Some(name) = left {
            sim.env.disk.open_dir("/copy".as_ref(), true).unwrap().create_new(name, 0).unwrap();
        }
        let other = std::sync::Mutex::new(Some(store.clone()));
        let env = Hooked::env(&sim.env, move |call, name| {
            let is_lock = call == Call::Change && name == "LOCK";
            if let Some(other) = is_lock.then(|| other.lock().unwrap().take()).flatten() {
                let restored = std::thread::scope(|s| s.spawn(|| other.restore(1, "/copy")).join());
                assert!(restored.unwrap().is_ok());
            }
            Ok(())
        });
        let kept = Arc::new(DirectoryStore::open_in(&sim.env, "/backups").unwrap());
        let refused = Backups::with_env(kept, env).restore(1, "/copy").unwrap_err();
        assert!(matches!(refused, Error::Exists { .. }), "{refused}");
        assert_same(&sim.options_as_stored("/copy").open().unwrap(), &db);
    }
}
