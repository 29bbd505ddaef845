//! Families whose comparator is not registered when the database is opened. Crashes are in `unresolved_crashes.rs`.

use std::time::Duration;

use tidesdb::{Comparator, Db, Error, Family, OpenOptions, SyncMode};
use tidesdb_io::sim::{Fault, Image, OpKind, errno};

use crate::common::{Pair, Sim, contents, fill, noise, small, value};

pub(crate) const NAME: &str = "ordered";

pub(crate) fn mine() -> Comparator {
    Comparator::custom("mine", |a, b| b.cmp(a))
}

pub(crate) fn awaiting(sim: &Sim) -> OpenOptions {
    sim.options().await_comparators(true)
}

pub(crate) fn key(i: u32) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Creates a database whose family with a user comparator has data in tables and in the log: small and large values, deletes,
/// range deletes, expiry, and commits that touch both families.
pub(crate) fn sample(sim: &Sim) -> (Db, Family) {
    sample_in(sim, SyncMode::Full)
}

fn sample_in(sim: &Sim, mode: SyncMode) -> (Db, Family) {
    let db = sim.options().sync(mode).comparator(mine()).open().unwrap();
    let f = db.create_family(NAME, small().comparator(mine())).unwrap();
    fill(&f, 200, b"in a table");
    for i in 0..20 {
        f.put(&key(i * 10), &noise(u64::from(i), 2000)).unwrap();
    }
    db.flush().unwrap();
    fill(db.default_family(), 100, b"v");
    for i in 0..20 {
        f.put(&key(i * 10 + 5), &noise(1000 + u64::from(i), 1500)).unwrap();
        f.delete(&key(i * 10 + 6)).unwrap();
    }
    f.delete_range(key(150)..key(120)).unwrap();
    f.put(&key(130), b"after the range").unwrap();
    f.put_with_ttl(&key(131), b"for an hour", Duration::from_secs(3600)).unwrap();
    f.put(&key(300), b"gone with a single delete").unwrap();
    both(&db, &f);
    let mut batch = db.batch();
    batch.single_delete(&f, &key(300)).unwrap();
    db.write(&mut batch).unwrap();
    (db, f)
}

/// Commits one batch to both families, in which the position of range deletes among the other operations matters.
fn both(db: &Db, f: &Family) {
    let mut batch = db.batch();
    batch.put(f, &key(80), b"before both ranges").unwrap();
    batch.delete_range(db.default_family(), key(10)..key(20)).unwrap();
    batch.put(f, &key(79), b"before both ranges").unwrap();
    batch.delete_range(f, key(85)..key(75)).unwrap();
    batch.put(f, &key(78), b"between the ranges").unwrap();
    batch.put(f, &key(72), b"between the ranges").unwrap();
    batch.delete_range(db.default_family(), key(30)..key(40)).unwrap();
    batch.delete_range(f, key(74)..key(70)).unwrap();
    batch.put(f, &key(71), &noise(71, 900)).unwrap();
    batch.put(db.default_family(), &key(35), b"after the range").unwrap();
    db.write(&mut batch).unwrap();
}

#[track_caller]
fn assert_holds(db: &Db, expected: &[Pair]) {
    let f = db.family(NAME).unwrap();
    assert!(contents(&f) == expected, "other contents");
    for (k, v) in expected.iter().step_by(7) {
        assert!(value(&f, k).as_ref() == Some(v));
    }
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{report}");
}

fn wait(sim: &Sim) -> Db {
    let db = awaiting(sim).open().unwrap();
    assert_eq!(db.unresolved_families(), [(NAME.to_owned(), "mine".to_owned())]);
    db
}

#[test]
fn registering_the_comparator_resolves_the_family() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    let others = contents(db.default_family());
    db.abandon();
    let db = wait(&sim);
    assert_eq!(db.families(), ["default"]);
    assert_eq!((db.stats().families.len(), db.stats().trees.len()), (1, 1));
    assert!(contents(db.default_family()) == others);
    fill(db.default_family(), 50, b"meanwhile");
    db.register_comparator(mine()).unwrap();
    assert_holds(&db, &expected);
    assert_eq!(db.families(), ["default", NAME]);
    assert!(db.unresolved_families().is_empty());
    let f = db.family(NAME).unwrap();
    f.put(&key(999), b"new").unwrap();
    f.delete(&key(999)).unwrap();
    db.compact().unwrap();
    assert_holds(&db, &expected);
    db.close().unwrap();
    let db = sim.options().comparator(mine()).open().unwrap();
    assert!(db.recovery_report().clean);
    assert_holds(&db, &expected);
}

#[test]
fn without_the_option_the_open_fails_and_the_default_family_is_never_unresolved() {
    let sim = Sim::new();
    let (db, _) = sample(&sim);
    db.abandon();
    let e = sim.options().open().unwrap_err();
    assert!(matches!(e, Error::InvalidArgument { .. }) && e.to_string().contains("mine"), "{e}");
    let sim = Sim::new();
    let options = sim.options().comparator(mine()).default_family(small().comparator(mine()));
    options.open().unwrap().put(b"k", b"v").unwrap();
    let e = awaiting(&sim).open().unwrap_err();
    assert!(matches!(e, Error::InvalidArgument { .. }) && e.to_string().contains("default"), "{e}");
}

#[test]
fn the_open_determines_the_default_family() {
    let sim = Sim::new();
    let named = |sim: &Sim| sim.options_as_stored("/db").default_family_name("main");
    let db = named(&sim).default_family(small().comparator(mine())).open().unwrap();
    fill(db.default_family(), 10, b"v");
    db.close().unwrap();
    let e = named(&sim).await_comparators(true).open().unwrap_err();
    assert!(matches!(e, Error::InvalidArgument { .. }) && e.to_string().contains("main"), "{e}");
    // If another family is the default one, it may be unresolved.
    let db = awaiting(&sim).default_family_name("other").open().unwrap();
    assert_eq!(db.families(), ["other"]);
    db.register_comparator(mine()).unwrap();
    assert_eq!(contents(&db.family("main").unwrap()).len(), 10);
}

#[test]
fn an_unresolved_family_keeps_its_name_and_errors_name_the_comparator() {
    let sim = Sim::new();
    let (db, _) = sample(&sim);
    db.create_family("other", small()).unwrap();
    db.abandon();
    let db = wait(&sim);
    let told = |e: Error| {
        let text = e.to_string();
        assert!(matches!(e, Error::InvalidArgument { .. }), "{text}");
        assert!(text.contains(NAME) && text.contains("\"mine\""), "{text}");
    };
    told(db.family(NAME).unwrap_err());
    told(db.family_or_create(NAME, small()).unwrap_err());
    told(db.rename_family(NAME, "new").unwrap_err());
    told(db.clone_family(NAME, "new").unwrap_err());
    let taken = |e: Error| assert!(matches!(e, Error::Exists { .. }), "{e}");
    taken(db.create_family(NAME, small()).unwrap_err());
    taken(db.rename_family("other", NAME).unwrap_err());
    taken(db.clone_family("other", NAME).unwrap_err());
}

#[test]
fn a_comparator_is_registered_once() {
    let sim = Sim::new();
    let db = sim.options().comparator(mine()).open().unwrap();
    let twice = |order| assert!(matches!(db.register_comparator(order), Err(Error::Exists { .. })));
    twice(mine());
    twice(Comparator::u64_le());
    assert!(db.comparator("new").is_none());
    db.register_comparator(Comparator::custom("new", |a, b| a.cmp(b))).unwrap();
    twice(Comparator::custom("new", |a, b| a.cmp(b)));
    assert_eq!(db.comparator("new").unwrap().name(), "new");
    assert_eq!(db.comparator("bytewise").unwrap().name(), "bytewise");
}

#[test]
fn one_comparator_resolves_two_families_and_not_a_third() {
    let sim = Sim::new();
    let db = sim.open();
    let other = || Comparator::custom("other", |a, b| b.cmp(a));
    for (name, order) in [("a", mine()), ("b", mine()), ("c", other())] {
        let f = db.create_family(name, small().comparator(order)).unwrap();
        fill(&f, 10, name.as_bytes());
    }
    db.abandon();
    let db = awaiting(&sim).open().unwrap();
    let name = |s: &str| s.to_owned();
    let (a, b, c) = ((name("a"), name("mine")), (name("b"), name("mine")), (name("c"), name("other")));
    assert_eq!(db.unresolved_families(), [a, b, c.clone()]);
    db.register_comparator(mine()).unwrap();
    assert_eq!(db.unresolved_families(), [c]);
    for name in ["a", "b"] {
        assert_eq!(value(&db.family(name).unwrap(), &key(3)).unwrap(), name.as_bytes());
    }
    db.close().unwrap();
    let db = awaiting(&sim).comparator(mine()).open().unwrap();
    assert_eq!(db.families(), ["a", "b", "default"]);
    db.register_comparator(other()).unwrap();
    assert_eq!(contents(&db.family("c").unwrap()).len(), 10);
}

#[test]
fn many_opens_before_the_registration() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    db.abandon();
    for n in 0..8 {
        let db = wait(&sim);
        fill(db.default_family(), 300, &noise(n, 300));
        match n % 4 {
            0 => db.abandon(),
            1 => db.close().unwrap(),
            2 => {
                db.compact().unwrap();
                db.abandon();
            }
            _ => drop(db),
        }
    }
    let by_open = sim.killed();
    let db = by_open.options().comparator(mine()).open().unwrap();
    assert_holds(&db, &expected);
    db.close().unwrap();
    let db = by_open.options().comparator(mine()).open().unwrap();
    assert_holds(&db, &expected);
    let db = wait(&sim);
    db.register_comparator(mine()).unwrap();
    assert_holds(&db, &expected);
}

#[test]
fn the_log_is_not_retained_for_unresolved_families() {
    let sim = Sim::new();
    let (db, _) = sample(&sim);
    db.abandon();
    let db = wait(&sim);
    for n in 0..20 {
        fill(db.default_family(), 300, &noise(n, 400));
        db.flush().unwrap();
    }
    let segments = |sim: &Sim| {
        let names = sim.disk.file_names(crate::common::DB).unwrap();
        names.iter().filter(|name| name.ends_with(".wal")).count()
    };
    assert!(segments(&sim) < 5, "{} segments", segments(&sim));
    db.close().unwrap();
    assert_eq!(segments(&sim), 0);
    assert!(wait(&sim).recovery_report().clean);
}

#[test]
fn more_operations_than_a_memtable_holds_are_deferred() {
    let sim = Sim::new();
    let db = sim.open();
    let options = small().write_buffer_bytes(4 << 20).comparator(mine());
    let f = db.create_family(NAME, options).unwrap();
    fill(&f, 6000, &noise(1, 400));
    f.delete_range(key(3000)..key(2000)).unwrap();
    for i in (0..6000).step_by(5) {
        f.put(&key(i), &noise(u64::from(i), 300)).unwrap();
    }
    let expected = contents(&f);
    db.abandon();
    let db = wait(&sim);
    db.close().unwrap();
    let fork = sim.killed();
    let db = wait(&sim);
    db.register_comparator(mine()).unwrap();
    assert_holds(&db, &expected);
    db.compact().unwrap();
    assert_holds(&db, &expected);
    let db = fork.options().comparator(mine()).open().unwrap();
    assert_holds(&db, &expected);
}

#[test]
fn deferred_operations_are_durable() {
    let sim = Sim::new();
    let (db, f) = sample_in(&sim, SyncMode::None);
    let expected = contents(&f);
    db.abandon();
    let db = wait(&sim);
    for (i, image) in Image::STANDARD.iter().enumerate() {
        let after = sim.power_lost(image, i as u64);
        let db = wait(&after);
        db.register_comparator(mine()).unwrap();
        assert_holds(&db, &expected);
        drop(db);
        let after = sim.power_lost(image, i as u64);
        assert_holds(&after.options().comparator(mine()).open().unwrap(), &expected);
    }
    db.register_comparator(mine()).unwrap();
    for (i, image) in Image::STANDARD.iter().enumerate() {
        let after = sim.power_lost(image, i as u64);
        assert_holds(&after.options().comparator(mine()).open().unwrap(), &expected);
    }
}

#[test]
fn a_read_only_open_changes_nothing_on_disk() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    db.abandon();
    let look = |sim: &Sim| {
        let files = || {
            let names = sim.disk.file_names(crate::common::DB).unwrap();
            let read = |name: &String| sim.disk.read_file(format!("{}/{name}", crate::common::DB)).unwrap();
            names.iter().map(|name| (name.clone(), read(name))).collect::<Vec<_>>()
        };
        let before = files();
        let db = awaiting(sim).read_only(true).open().unwrap();
        assert!(matches!(db.drop_family(NAME), Err(Error::ReadOnly)));
        db.register_comparator(mine()).unwrap();
        assert_holds(&db, &expected);
        drop(db);
        assert!(files() == before);
    };
    look(&sim); // in the log
    wait(&sim).abandon();
    look(&sim); // deferred
    let db = sim.options().read_only(true).comparator(mine()).open().unwrap();
    assert_holds(&db, &expected);
}

#[test]
fn an_unresolved_family_can_be_dropped() {
    let sim = Sim::new();
    let (db, _) = sample(&sim);
    db.compact().unwrap();
    db.family(NAME).unwrap().put(b"k", &noise(1, 3000)).unwrap();
    db.abandon();
    let db = wait(&sim);
    db.drop_family(NAME).unwrap();
    assert!(db.unresolved_families().is_empty());
    assert!(matches!(db.family(NAME), Err(Error::NotFound { .. })));
    // The close would leave files that a thread of another test still holds.
    sim.eventually(&db, |names| {
        let tables = names.iter().filter(|name| name.ends_with(".klog")).count();
        tables == 1 && !names.iter().any(|name| name.ends_with(".vlog"))
    });
    db.register_comparator(mine()).unwrap();
    db.create_family(NAME, small()).unwrap().put(b"k", b"v").unwrap();
    db.close().unwrap();
    let db = sim.open();
    assert_eq!(value(&db.family(NAME).unwrap(), b"k").unwrap(), b"v");
    let names = sim.disk.file_names(crate::common::DB).unwrap();
    assert!(!names.iter().any(|name| name.ends_with(".vlog") || name.ends_with(".orphan")), "{names:?}");
    assert_eq!(names.iter().filter(|name| name.ends_with(".klog")).count(), 2, "{names:?}");
}

#[test]
fn dead_value_logs_of_unresolved_families_are_removed() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family(NAME, small().comparator(mine())).unwrap();
    fill(&f, 20, &noise(1, 3000));
    db.flush().unwrap();
    fill(&f, 20, b"small");
    db.compact().unwrap();
    drop(f);
    db.close().unwrap();
    let value_logs = |sim: &Sim| {
        let names = sim.disk.file_names(crate::common::DB).unwrap();
        names.iter().filter(|name| name.contains(".vlog")).count()
    };
    assert_eq!(value_logs(&sim), 1);
    // A reader of another test can delay the removal to the next open.
    let removed = |_| {
        wait(&sim).close().unwrap();
        value_logs(&sim) == 0
    };
    assert!((0..5).any(removed));
}

#[test]
fn copies_contain_unresolved_families() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    db.abandon();
    let db = wait(&sim);
    db.checkpoint("/one").unwrap();
    db.checkpoint("/two").unwrap();
    db.backup("/three").unwrap();
    db.register_comparator(mine()).unwrap();
    db.drop_family(NAME).unwrap();
    db.close().unwrap();
    for path in ["/one", "/three"] {
        let copy = sim.options_at(path).comparator(mine()).open().unwrap();
        assert!(copy.recovery_report().clean);
        assert_holds(&copy, &expected);
    }
    let copy = sim.options_at("/two").await_comparators(true).open().unwrap();
    copy.register_comparator(mine()).unwrap();
    assert_holds(&copy, &expected);
}

#[test]
fn damage_fails_the_registration_and_the_family_stays_unresolved() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    db.abandon();
    wait(&sim).close().unwrap();
    let damaged = |file: &str| {
        let sim = sim.killed();
        let path = format!("{}/{file}", crate::common::DB);
        let len = sim.disk.read_file(&path).unwrap().len() as u64;
        for at in (0..len).step_by(64) {
            sim.disk.corrupt(&path, at, |b| b ^ 0x40).unwrap();
        }
        (sim, path)
    };
    let names = sim.disk.file_names(crate::common::DB).unwrap();
    let held = names.iter().filter(|name| name.ends_with(".vlog")).max();
    let table = names.iter().filter(|name| name.ends_with(".klog")).min();
    for file in [held, table].map(Option::unwrap) {
        let whole = sim.disk.read_file(format!("{}/{file}", crate::common::DB)).unwrap();
        let (sim, path) = damaged(file);
        let db = wait(&sim);
        for _ in 0..2 {
            let e = db.register_comparator(mine()).unwrap_err();
            assert!(e.is_corruption(), "{file}: {e}");
            assert_eq!(db.unresolved_families().len(), 1);
        }
        db.put(b"others", b"go on").unwrap();
        db.close().unwrap();
        sim.disk.write_file(&path, &whole).unwrap();
        let db = wait(&sim);
        db.register_comparator(mine()).unwrap();
        assert_holds(&db, &expected);
    }
}

#[test]
fn a_registration_during_writes() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    db.abandon();
    let db = awaiting(&sim).sync(SyncMode::None).background_threads(2).open().unwrap();
    std::thread::scope(|s| {
        for n in 0..2 {
            let db = &db;
            s.spawn(move || fill(db.default_family(), 3000, &noise(n, 600)));
        }
        s.spawn(|| {
            for _ in 0..5000 {
                let found = db.family(NAME);
                assert!(
                    !matches!(found, Err(Error::NotFound { .. })),
                    "the family must be unresolved or open"
                );
            }
        });
        db.register_comparator(mine()).unwrap();
        let f = db.family(NAME).unwrap();
        f.put(&key(999), b"v").unwrap();
        f.compact().unwrap();
        f.delete(&key(999)).unwrap();
    });
    assert_holds(&db, &expected);
    db.close().unwrap();
    assert_holds(&sim.options().comparator(mine()).open().unwrap(), &expected);
}

#[test]
fn a_failed_registration_may_be_repeated() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    db.abandon();
    let db = wait(&sim);
    let full = sim.disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Create).path_ends(".klog").forever());
    assert!(db.register_comparator(mine()).is_err());
    assert_eq!(db.unresolved_families().len(), 1);
    assert!(matches!(db.family(NAME), Err(Error::InvalidArgument { .. })));
    sim.disk.remove_fault(full);
    db.register_comparator(mine()).unwrap();
    assert_holds(&db, &expected);
    db.close().unwrap();
    assert_holds(&sim.options().comparator(mine()).open().unwrap(), &expected);
}
