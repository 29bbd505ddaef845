//! Generations of backups in an object store: what they copy, share, restore and prove.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::backup::{Backups, CreateOptions, Progress, PrunePolicy, RestoreOptions};
use tidesdb::store::DirectoryStore;
use tidesdb::{Comparator, Db, Error, MemoryStore, MergeOperator, ObjectStore, RemoteOptions, SyncMode};

use crate::common::{DB, Sim, contents, fill, joined, noise, put_twice, small, value};

/// The backups of this machine, in the folder `/backups`.
pub(crate) fn backups(sim: &Sim) -> Backups {
    Backups::with_env(Arc::new(DirectoryStore::open_in(&sim.env, "/backups").unwrap()), sim.env.clone())
}

/// A database with two families, tables, value logs and rows in memtables.
pub(crate) fn sample(sim: &Sim) -> Db {
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    fill(db.default_family(), 200, b"small");
    fill(&a, 30, &noise(1, 2000));
    db.compact().unwrap();
    fill(&a, 10, b"in the memtable");
    db.delete(b"key000001").unwrap();
    db
}

pub(crate) fn assert_same(a: &Db, b: &Db) {
    assert_eq!(a.families(), b.families());
    for name in a.families() {
        assert!(contents(&a.family(&name).unwrap()) == contents(&b.family(&name).unwrap()), "family {name}");
    }
}

/// Restores a generation and opens it.
pub(crate) fn restored(sim: &Sim, backups: &Backups, number: u64) -> Db {
    let path = format!("/restored{number}");
    backups.restore(number, &path).unwrap();
    sim.options_as_stored(path).open().unwrap()
}

#[test]
fn each_generation_restores_what_the_database_was() {
    let sim = Sim::new();
    let (db, backups) = (sample(&sim), backups(&sim));
    assert!(backups.list().unwrap().is_empty());
    let first = backups.create(&db).unwrap();
    let before: Vec<_> = ["a", "default"].map(|name| contents(&db.family(name).unwrap())).into();
    fill(&db.family("a").unwrap(), 20, &noise(2, 3000));
    db.create_family("b", small()).unwrap().put("k", "v").unwrap();
    db.delete_range("key000010".."key000020").unwrap();
    let second = backups.create_with(&db, &CreateOptions::default().prove("/scratch")).unwrap();
    assert_eq!((first.number, second.number), (1, 2));
    assert_eq!(backups.list().unwrap(), [first.clone(), second.clone()]);
    assert!(first.proof.is_none() && second.proof.unwrap().passed);
    assert!(first.bytes_copied == first.bytes && second.bytes_copied < second.bytes, "{first:?} {second:?}");
    assert_eq!(first.database, second.database);
    assert!(first.sequence < second.sequence);
    for number in [1, 2] {
        assert!(backups.verify(number).unwrap().is_ok());
    }
    let old = restored(&sim, &backups, 1);
    assert_eq!(old.families(), ["a", "default"]);
    for (name, rows) in ["a", "default"].iter().zip(before) {
        assert!(contents(&old.family(name).unwrap()) == rows);
    }
    backups.restore(2, "/read").unwrap();
    assert_same(&sim.options_as_stored("/read").open_reader().unwrap().view(), &db);
    let new = restored(&sim, &backups, 2);
    assert_same(&new, &db);
    assert!(old.verify().unwrap().is_ok() && new.verify().unwrap().is_ok());
    assert!(sim.disk.file_names("/scratch").unwrap().is_empty(), "the scratch folder is cleared");
    // The restored database goes on.
    let last = db.put("k", "v").unwrap();
    assert!(new.put("k", "w").unwrap() >= last);
    new.close().unwrap();
    assert_eq!(
        value(sim.options_as_stored("/restored2").open().unwrap().default_family(), b"k").unwrap(),
        b"w"
    );
}

/// A generation without a change copies its description only; one with a change copies what is new, and of a value log that grows only
/// what was appended.
#[test]
fn only_what_is_new_is_copied() {
    let sim = Sim::new();
    let (db, backups) = (sample(&sim), backups(&sim));
    let a = db.family("a").unwrap();
    backups.create(&db).unwrap();
    let again = backups.create(&db).unwrap();
    assert_eq!(again.bytes_copied, 0, "{again:?}");
    a.put("long", noise(9, 50_000)).unwrap();
    let third = backups.create(&db).unwrap();
    assert!((50_000..60_000).contains(&third.bytes_copied), "{third:?}");
    assert_same(&restored(&sim, &backups, third.number), &db);
    db.close().unwrap();
    let db = sim.open();
    let fourth = backups.create(&db).unwrap();
    assert_eq!(fourth.bytes_copied, 0, "after a new open: {fourth:?}");
}

#[test]
fn everything_that_a_family_can_have_survives() {
    let sim = Sim::new();
    let order = Comparator::custom("mine", |a, b| b.cmp(a));
    let options = |path: &str| {
        sim.options_as_stored(path).comparator(order.clone()).merge_operator(joined().merge_operator.unwrap())
    };
    let db = options(DB).open().unwrap();
    let reversed = db.create_family("reversed", small().comparator(order.clone())).unwrap();
    fill(&reversed, 10, b"v");
    let merged = db.create_family("merged", joined()).unwrap();
    merged.put("k", "a").unwrap();
    db.flush().unwrap();
    merged.merge("k", "b").unwrap();
    fill(db.default_family(), 50, &noise(1, 700));
    db.flush().unwrap();
    db.delete_range("key000020".."key000030").unwrap();
    db.put_with_ttl("soon", "gone", Duration::from_secs(60)).unwrap();
    db.put_with_ttl("later", "gone", Duration::from_secs(6000)).unwrap();
    let mut writer = db.value_writer("chunked").unwrap();
    std::io::Write::write_all(&mut writer, &noise(3, 9 << 20)).unwrap();
    writer.commit().unwrap();
    let backups = backups(&sim);
    let made = backups.create_with(&db, &CreateOptions::default().prove("/scratch")).unwrap();
    assert!(made.proof.unwrap().passed);
    // A row that has expired since counts as it did.
    sim.clock.advance(Duration::from_secs(100));
    let again = backups.prove(made.number, options("/scratch")).unwrap();
    assert!(again.proof.unwrap().passed);
    // Without its order a family cannot be opened: that says nothing about the generation.
    let refused = backups.prove(made.number, sim.options_as_stored("/scratch")).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    assert!(sim.disk.file_names("/scratch").unwrap().is_empty());
    assert!(backups.list().unwrap()[0].proof.unwrap().passed);
    backups.restore(made.number, "/restored").unwrap();
    let copy = options("/restored").open().unwrap();
    assert_same(&copy, &db);
    assert_eq!(value(&copy.family("merged").unwrap(), b"k").unwrap(), b"a.b");
    assert!(copy.get("soon").unwrap().is_none() && copy.get("later").unwrap().is_some());
    assert_eq!(copy.get("chunked").unwrap().unwrap().len(), 9 << 20);
}

#[test]
fn a_restored_database_is_backed_up_into_the_same_store() {
    let sim = Sim::new();
    let (db, backups) = (sample(&sim), backups(&sim));
    backups.create(&db).unwrap();
    let copy = restored(&sim, &backups, 1);
    // Both go on with the same numbers for different files.
    fill(db.default_family(), 100, &noise(5, 900));
    fill(copy.default_family(), 100, &noise(6, 900));
    db.compact().unwrap();
    copy.compact().unwrap();
    let of_copy = backups.create(&copy).unwrap();
    assert_eq!(of_copy.bytes_copied, of_copy.bytes, "nothing of another database is taken");
    let of_db = backups.create(&db).unwrap();
    assert_ne!(of_copy.database, of_db.database);
    assert_same(&restored(&sim, &backups, of_copy.number), &copy);
    assert_same(&restored(&sim, &backups, of_db.number), &db);
    // Each of the two keeps its own generations.
    let pruned = backups.prune(&PrunePolicy::default().keep_last(1)).unwrap();
    assert_eq!(pruned.generations, [1]);
}

/// A folder that was copied by other means has the identity of the original and the same numbers for other files.
#[test]
fn a_folder_copied_by_hand_takes_nothing_of_another_history() {
    let sim = Sim::new();
    let (db, backups) = (sample(&sim), backups(&sim));
    backups.create(&db).unwrap();
    db.close().unwrap();
    let twin = sim.killed();
    let grow = |sim: &Sim, seed| {
        let db = sim.open();
        fill(&db.family("a").unwrap(), 40, &noise(seed, 1500));
        db.flush().unwrap();
        db
    };
    let db = grow(&sim, 7);
    let names = |sim: &Sim| sim.disk.file_names(DB).unwrap();
    let of_db = backups.create(&db).unwrap();
    let other = grow(&twin, 8);
    assert!(names(&twin).iter().any(|name| name.ends_with(".klog") && names(&sim).contains(name)));
    let of_other = backups.create(&other).unwrap();
    assert_eq!(of_db.database, of_other.database);
    assert_same(&restored(&sim, &backups, of_other.number), &other);
    assert_same(&restored(&sim, &backups, of_db.number), &db);
}

#[test]
fn prune_keeps_what_its_policy_and_the_last_proof_say() {
    let sim = Sim::new();
    let (db, backups) = (sample(&sim), backups(&sim));
    for n in 0..5u8 {
        db.put([n], noise(n.into(), 3000)).unwrap();
        db.compact().unwrap();
        let options = CreateOptions::default();
        let options = if n == 1 { options.prove("/scratch") } else { options };
        backups.create_with(&db, &options).unwrap();
        sim.clock.advance(Duration::from_secs(3600));
    }
    let numbers = || backups.list().unwrap().iter().map(|made| made.number).collect::<Vec<_>>();
    let objects = || sim.disk.file_names("/backups").unwrap().len();
    assert!(matches!(backups.prune(&PrunePolicy::default()), Err(Error::InvalidArgument { .. })));
    let before = objects();
    let young = PrunePolicy::default().keep_younger(Duration::from_secs(4 * 3600));
    assert_eq!(backups.prune(&young).unwrap().generations, [1]);
    assert_eq!(backups.prune(&PrunePolicy::default().keep_last(2)).unwrap().generations, [3]);
    assert_eq!(numbers(), [2, 4, 5], "2 is the newest that was proven");
    assert!(objects() < before);
    assert_eq!(backups.prune(&PrunePolicy::default().keep_last(9)).unwrap(), Default::default());
    for number in numbers() {
        assert!(backups.verify(number).unwrap().is_ok());
        let copy = restored(&sim, &backups, number);
        assert!((0..5u8).all(|n| copy.contains([n]).unwrap() == (u64::from(n) < number)));
    }
    backups.delete(2).unwrap();
    assert!(matches!(backups.delete(2), Err(Error::NotFound { .. })));
    assert!(matches!(backups.restore(2, "/none"), Err(Error::NotFound { .. })));
    assert_same(&restored(&sim, &backups, backups.create(&db).unwrap().number), &db);
}

/// Each commit writes the same data to two families: every generation must hold the same prefix of both.
#[test]
fn a_generation_beside_writers_and_merges_has_one_state() {
    let sim = Sim::new();
    let small = small().write_buffer_bytes(32 << 10);
    let options = |path: &str| sim.options_at(path).sync(SyncMode::None).default_family(small.clone());
    let db = options(DB).background_threads(2).open().unwrap();
    let [a, b] = ["a", "b"].map(|name| db.create_family(name, small.clone()).unwrap());
    let backups = backups(&sim);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for thread in 0..2 {
            let (db, a, b, stop) = (&db, &a, &b, &stop);
            s.spawn(move || {
                for i in (0..).take_while(|_| !stop.load(SeqCst)) {
                    put_twice(db, [a, b], thread, i).unwrap();
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
        }
        s.spawn(|| {
            for n in (0..).take_while(|_| !stop.load(SeqCst)) {
                let name = format!("f{n}");
                let family = db.create_family(&name, small.clone()).unwrap();
                fill(&family, 20, &noise(n, 1000));
                db.rename_family(&name, &format!("g{n}")).unwrap();
                db.drop_family(&format!("g{n}")).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        s.spawn(|| {
            while !stop.load(SeqCst) {
                backups.prune(&PrunePolicy::default().keep_last(2)).unwrap();
            }
        });
        for n in 0..12 {
            let scratch = format!("/scratch{n}");
            let made = backups.create_with(&db, &CreateOptions::default().prove(scratch)).unwrap();
            assert!(made.proof.unwrap().passed);
            let copy = restored(&sim, &backups, made.number);
            let [a, b] = ["a", "b"].map(|name| contents(&copy.family(name).unwrap()));
            assert!(a == b, "generation {n}: {} and {} keys, or other values", a.len(), b.len());
        }
        stop.store(true, SeqCst);
    });
    assert!(backups.list().unwrap().len() >= 2);
}

#[test]
fn a_close_ends_a_copy_within_one_file() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("long", noise(3, 7 << 20)).unwrap(); // one record of one file
    let backups = backups(&sim);
    let (seen, closer) = (Arc::new(AtomicU64::new(0)), db.clone());
    let shown = Arc::clone(&seen);
    let closing = Arc::new(std::sync::Mutex::new(Some(closer)));
    let threads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let started = Arc::clone(&threads);
    let options = CreateOptions::default().progress(move |progress| {
        shown.store(progress.bytes_done, SeqCst);
        if progress.bytes_done < 1 << 20 {
            return; // the table
        }
        if let Some(db) = closing.lock().unwrap().take() {
            let handle = db.clone();
            started.lock().unwrap().push(std::thread::spawn(move || db.close()));
            while !matches!(handle.put("k", "v"), Err(Error::Closed)) {
                std::thread::yield_now();
            }
        }
    });
    let ended = backups.create_with(&db, &options);
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    assert!(seen.load(SeqCst) < 3 << 20, "{}", seen.load(SeqCst));
    threads.lock().unwrap().drain(..).for_each(|thread| thread.join().unwrap().unwrap());
    assert!(backups.list().unwrap().is_empty());
    let db = sim.open();
    let made = backups.create(&db).unwrap();
    assert_same(&restored(&sim, &backups, made.number), &db);
    assert_eq!(sim.disk.file_names("/backups").unwrap().iter().filter(|name| name.contains('+')).count(), 0);
}

/// A progress that sets the flag as soon as `is_due`, and the last one that it saw.
type Seen = Arc<std::sync::Mutex<Option<Progress>>>;
fn stopping(
    is_due: impl Fn(&Progress) -> bool + Send + Sync + 'static,
) -> (Arc<AtomicBool>, Seen, impl Fn(&Progress) + Send + Sync + 'static) {
    let (stop, seen) = (Arc::new(AtomicBool::new(false)), Seen::default());
    let (setter, shown) = (Arc::clone(&stop), Arc::clone(&seen));
    let progress = move |progress: &Progress| {
        *shown.lock().unwrap() = Some(*progress);
        if is_due(progress) {
            setter.store(true, SeqCst);
        }
    };
    (stop, seen, progress)
}

/// One long file, in a store that passes an object on as a whole, and in one that does so in pieces.
#[test]
fn each_call_is_stopped_within_one_file() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("long", noise(3, 7 << 20)).unwrap();
    let memory = Backups::with_env(Arc::new(MemoryStore::default()), sim.env.clone());
    for (n, backups) in [backups(&sim), memory].iter().enumerate() {
        let is_due = |progress: &Progress| progress.bytes_done >= 2 << 20;
        let (stop, seen, progress) = stopping(is_due);
        let ended = backups.create_with(&db, &CreateOptions::default().stop(&stop).progress(progress));
        assert!(matches!(ended, Err(Error::Busy { .. })), "{ended:?}");
        assert!(seen.lock().unwrap().unwrap().bytes_done < 4 << 20 && backups.list().unwrap().is_empty());

        let made = backups.create(&db).unwrap();
        let folder = format!("/stopped{n}");
        let scratch = || sim.options_as_stored(&folder);
        type Call<'a> = &'a dyn Fn(&RestoreOptions) -> Result<(), Error>;
        let calls: [Call<'_>; 3] = [
            &|options| backups.verify_with(1, options).map(|report| assert!(report.is_ok())),
            &|options| backups.prove_with(1, scratch(), options).map(drop),
            &|options| backups.restore_with(1, &folder, options),
        ];
        for call in calls {
            let before = backups.list().unwrap();
            let (stop, seen, progress) = stopping(is_due);
            let ended = call(&RestoreOptions::default().stop(&stop).progress(progress));
            assert!(matches!(ended, Err(Error::Busy { .. })), "{ended:?}");
            let last = seen.lock().unwrap().unwrap();
            assert!(last.bytes_done < 4 << 20 && last.bytes_total == made.bytes, "{last:?}");
            assert!(sim.disk.file_names(&folder).unwrap_or_default().is_empty());
            assert_eq!(backups.list().unwrap(), before, "a proof that was stopped says nothing");
            // What was stopped is not in the way.
            let (_, seen, progress) = stopping(|_| false);
            call(&RestoreOptions::default().progress(progress)).unwrap();
            let last = seen.lock().unwrap().unwrap();
            assert_eq!((last.bytes_done, last.bytes_total), (made.bytes, made.bytes));
        }
        assert_same(&sim.options_as_stored(&folder).open().unwrap(), &db);
        let before = RestoreOptions::default().stop(&Arc::new(AtomicBool::new(true)));
        assert!(matches!(backups.restore_with(1, "/never", &before), Err(Error::Busy { .. })));
        assert!(sim.disk.file_names("/never").is_err(), "no folder was made");
        let panics = RestoreOptions::default().progress(|_| panic!("in the progress"));
        assert!(matches!(backups.verify_with(1, &panics), Err(Error::InvalidArgument { .. })));
    }
}

/// The copy ended, and its proof is stopped: while it restores, and while it compares.
#[test]
fn a_proof_is_stopped_and_the_generation_stays() {
    let sim = Sim::new();
    let db = sample(&sim);
    for compares in [false, true] {
        db.put("k", noise(compares.into(), 5000)).unwrap();
        let store = Backups::with_env(Arc::new(MemoryStore::default()), sim.env.clone());
        let whole = AtomicU64::new(0);
        let (stop, _, progress) = stopping(move |progress| match compares {
            false => progress.bytes_done > progress.bytes_total / 2,
            // The first time is the last piece of the restore.
            true => progress.bytes_done == progress.bytes_total && whole.fetch_add(1, SeqCst) == 1,
        });
        let options = CreateOptions::default().prove("/scratch").stop(&stop).progress(progress);
        let ended = store.create_with(&db, &options);
        assert!(matches!(ended, Err(Error::Busy { .. })), "{ended:?}");
        assert!(sim.disk.file_names("/scratch").unwrap().is_empty());
        let list = store.list().unwrap();
        assert!(list.len() == 1 && list[0].proof.is_none(), "{list:?}");
        let (_, seen, progress) = stopping(|_| false);
        store.create_with(&db, &CreateOptions::default().prove("/scratch").progress(progress)).unwrap();
        let (last, made) = (seen.lock().unwrap().unwrap(), store.list().unwrap().pop().unwrap());
        assert!(made.proof.unwrap().passed && made.bytes_copied == 0, "{made:?}");
        assert_eq!((last.bytes_done, last.bytes_total), (made.bytes, made.bytes));
    }
}

#[test]
fn a_restore_keeps_to_its_rate() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, &noise(1, 10_000));
    let backups = backups(&sim);
    let made = backups.create(&db).unwrap();
    let options = RestoreOptions::default().bytes_per_second(100_000);
    let mono = || tidesdb_io::Clock::mono(&*sim.clock);
    for verifies in [true, false] {
        let began = mono();
        match verifies {
            true => assert!(backups.verify_with(1, &options).unwrap().is_ok()),
            false => backups.restore_with(1, "/restored", &options).unwrap(),
        }
        let (took, wanted) = (mono() - began, Duration::from_secs_f64(made.bytes as f64 / 100_000.0));
        assert!(took >= wanted && took < wanted * 2, "{took:?} for {wanted:?}");
    }
}

/// Regression test: the proof took the key orders of the families that were left after the copy, and failed.
#[test]
fn a_family_that_is_dropped_during_a_copy_is_proven() {
    let sim = Sim::new();
    let db = sim.open();
    let order = Comparator::custom("backwards", |a, b| b.cmp(a));
    let options = small().comparator(order).merge_operator(MergeOperator::append(","));
    let family = db.create_family("gone", options).unwrap();
    fill(&family, 20, &noise(1, 2000));
    family.merge("k", "operand").unwrap();
    let (backups, dropper) = (backups(&sim), db.clone());
    let drop_it = move |_: &Progress| drop(dropper.drop_family("gone"));
    let made =
        backups.create_with(&db, &CreateOptions::default().prove("/scratch").progress(drop_it)).unwrap();
    assert!(made.proof.unwrap().passed && db.families() == ["default"]);
}

#[test]
fn a_rate_limit_takes_its_time_and_progress_reaches_the_end() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, &noise(1, 10_000));
    let backups = backups(&sim);
    let last = Arc::new(std::sync::Mutex::new((0, 0)));
    let shown = Arc::clone(&last);
    let began = tidesdb_io::Clock::mono(&*sim.clock);
    let options = CreateOptions::default().bytes_per_second(100_000).progress(move |progress| {
        *shown.lock().unwrap() = (progress.bytes_done, progress.bytes_total);
    });
    let made = backups.create_with(&db, &options).unwrap();
    let took = tidesdb_io::Clock::mono(&*sim.clock) - began;
    let wanted = Duration::from_secs_f64(made.bytes_copied as f64 / 100_000.0);
    assert!(took >= wanted && took < wanted * 2, "{took:?} for {wanted:?}");
    assert_eq!(*last.lock().unwrap(), (made.bytes_copied, made.bytes_copied));
    let panics = CreateOptions::default().progress(|_| panic!("in the progress"));
    db.put("k", noise(2, 5000)).unwrap();
    assert!(matches!(backups.create_with(&db, &panics), Err(Error::InvalidArgument { .. })));
    assert_same(&restored(&sim, &backups, backups.create(&db).unwrap().number), &db);
}

/// Regression test: the database of the object store was restored before the open was refused.
#[test]
fn an_open_that_must_not_find_a_database_finds_that_of_the_object_store() {
    let (store, sim) = (MemoryStore::default(), Sim::new());
    let remote = || RemoteOptions::new(Arc::new(store.clone()));
    let db = sim.options().remote(remote()).open().unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    let other = Sim::new();
    let refused = other.options().remote(remote()).error_if_exists(true).open();
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    assert!(!other.disk.file_names(DB).unwrap().iter().any(|name| name == "CURRENT"));
    assert!(other.options().remote(remote()).open().unwrap().contains("k").unwrap());
}

/// Files that are in an object store only are fetched for the copy.
#[test]
fn a_database_with_an_object_store_is_backed_up() {
    let sim = Sim::new();
    let mut remote = RemoteOptions::new(Arc::new(MemoryStore::default()));
    remote.local_bytes_max = 100_000;
    let db = sim.options().remote(remote).open().unwrap();
    for n in 0..8u8 {
        db.put([n], noise(n.into(), 100_000)).unwrap();
        db.flush().unwrap();
        db.upload().unwrap();
    }
    let backups = backups(&sim);
    let made = backups.create_with(&db, &CreateOptions::default().prove("/scratch")).unwrap();
    assert!(made.bytes > 800_000 && made.proof.unwrap().passed, "{made:?}");
    assert_same(&restored(&sim, &backups, made.number), &db);
}

#[test]
fn an_empty_database_and_one_in_memory_store() {
    let sim = Sim::new();
    let db = sim.open();
    let store = MemoryStore::default();
    let backups = Backups::with_env(Arc::new(store.clone()), sim.env.clone());
    let made = backups.create_with(&db, &CreateOptions::default().prove("/scratch")).unwrap();
    assert!(made.proof.unwrap().passed && made.files == 0);
    assert!(contents(restored(&sim, &backups, made.number).default_family()).is_empty());
    assert!(store.list().unwrap().iter().all(|object| object.name.starts_with("backup.")));
    let reader = sim.options_as_stored("/restored1").read_only(true).open();
    drop(reader);
}

/// Later generations shared the damaged object for as long as one named it.
#[test]
fn what_a_proof_has_refuted_is_copied_again() {
    let sim = Sim::new();
    let (db, backups) = (sample(&sim), backups(&sim));
    backups.create(&db).unwrap();
    let name =
        sim.disk.file_names("/backups").unwrap().into_iter().find(|name| name.ends_with(".klog")).unwrap();
    sim.disk.corrupt(format!("/backups/{name}"), 100, |byte| byte ^ 1).unwrap();
    let shared = backups.create(&db).unwrap();
    let _ = backups.prove(shared.number, sim.options_as_stored("/scratch"));
    assert!(backups.list().unwrap()[1].proof.as_ref().is_some_and(|proof| !proof.passed));
    let again = backups.create_with(&db, &CreateOptions::default().prove("/scratch")).unwrap();
    assert!(again.proof.unwrap().passed, "{again:?}");
    assert_eq!(again.bytes_copied, again.bytes);
    let next = backups.create(&db).unwrap();
    assert_eq!(next.bytes_copied, 0, "what was proven is shared");
    assert_same(&restored(&sim, &backups, next.number), &db);
}

/// The last backup of a database whose backups have stopped went with its age.
#[test]
fn a_prune_by_age_keeps_one_generation_of_each_database() {
    let sim = Sim::new();
    let (db, backups) = (sample(&sim), backups(&sim));
    for _ in 0..3 {
        backups.create(&db).unwrap();
    }
    sim.clock.advance(Duration::from_secs(1_000_000));
    let policy = PrunePolicy::default().keep_younger(Duration::from_secs(1000));
    assert_eq!(backups.prune(&policy).unwrap().generations, [1, 2]);
    assert_same(&restored(&sim, &backups, 3), &db);
}
