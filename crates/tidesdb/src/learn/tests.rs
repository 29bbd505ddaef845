//! What is learned, what a walk costs in steps, and that nobody's keys are hidden by it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidesdb_io::sim::{self, SimDisk};

use super::{LOOK_EVERY, ask, run};
use crate::background::run_waiting;
use crate::family::FamilyCore;
use crate::merge::VisibleCursor;
use crate::options::SyncMode;
use crate::read::{moment, versions};
use crate::shared::{Family, Shared};
use crate::types::EntryCursor;
use crate::{Comparator, Db, FamilyOptions};

fn open(options: FamilyOptions) -> Db {
    let (env, ..) = sim::env_on(SimDisk::new(7), 7);
    let db = Db::options("/db").env(env).background_threads(0).sync(SyncMode::None).default_family(options);
    db.with(|o| o.disk_free_min = 0).open().unwrap()
}

fn key(n: u64) -> String {
    format!("key{n:08}")
}

/// Does `each` to a batch for each of `numbers`.
fn write(db: &Db, numbers: impl IntoIterator<Item = u64>, each: fn(&mut crate::WriteBatch, &Family, &[u8])) {
    let mut batch = db.batch();
    for n in numbers {
        each(&mut batch, db.default_family(), key(n).as_bytes());
        if batch.len() == 1000 {
            db.write(&mut batch).unwrap();
        }
    }
    db.write(&mut batch).unwrap();
}

fn put(batch: &mut crate::WriteBatch, family: &Family, key: &[u8]) {
    batch.put(family, key, b"value").unwrap();
}

fn delete(batch: &mut crate::WriteBatch, family: &Family, key: &[u8]) {
    batch.delete(family, key).unwrap();
}

fn parts(db: &Db) -> (&Arc<Shared>, &Arc<FamilyCore>) {
    (&db.inner.shared, &db.default_family().core)
}

/// Live keys, and deleted ones that a whole scan steps over.
fn scan(db: &Db) -> (u64, u64) {
    let (shared, family) = parts(db);
    let (view, seq, complete) = moment(&shared.reads, family);
    assert!(complete);
    let inner = versions(family, &view, seq);
    let mut cursor = VisibleCursor::new(inner, family.options.comparator.clone(), seq, 0);
    let mut live = 0;
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        live += 1;
        cursor.next().unwrap();
    }
    (live, cursor.hidden())
}

fn steps(db: &Db) -> u64 {
    parts(db).1.learning.steps.load(Ordering::Relaxed)
}

fn deserts(db: &Db) -> usize {
    parts(db).1.deserts.to_owned().len()
}

#[test]
fn the_first_scan_after_a_flush_leaps() {
    for order in [Comparator::bytewise(), Comparator::reverse_bytewise()] {
        let db = open(FamilyOptions::default().comparator(order));
        write(&db, 0..30_000, put);
        db.compact().unwrap();
        write(&db, 5000..25_000, delete);
        assert_eq!(scan(&db), (10_000, 20_000), "nobody has looked yet");
        db.flush().unwrap();
        let (live, stepped) = scan(&db);
        assert_eq!(live, 10_000);
        assert!(stepped <= 8, "{stepped}");
        assert!(steps(&db) <= 20_100, "{}", steps(&db));
    }
}

#[test]
fn a_run_that_goes_on_is_joined_and_walked_once() {
    let db = open(FamilyOptions::default());
    write(&db, 0..60_000, put);
    db.compact().unwrap();
    for part in 0..5 {
        write(&db, part * 10_000..(part + 1) * 10_000, delete);
        db.flush().unwrap();
    }
    assert!(deserts(&db) <= 2, "the last part is joined to the others with the next flush");
    assert!(
        steps(&db) <= 55_000,
        "each deleted key is met once or twice, not with each part: {}",
        steps(&db)
    );
    let (live, stepped) = scan(&db);
    assert!(live == 10_000 && stepped <= 8, "{stepped}");
}

#[test]
fn random_deletes_cost_a_few_steps() {
    let db = open(FamilyOptions::default());
    write(&db, 0..200_000, put);
    db.compact().unwrap();
    write(&db, (0..200_000).step_by(20), delete);
    db.flush().unwrap();
    assert_eq!(deserts(&db), 0);
    assert!(steps(&db) > 0, "10,000 tombstones in a row, as far as the memtable knows: they are looked at");
    assert!(steps(&db) < 500, "{}", steps(&db));
}

#[test]
fn a_desert_behind_random_deletes_is_found() {
    let db = open(FamilyOptions::default());
    write(&db, 0..400_000, put);
    db.compact().unwrap();
    write(&db, (0..200_000).step_by(20).chain(250_000..350_000), delete);
    db.flush().unwrap();
    let (live, stepped) = scan(&db);
    assert_eq!(live, 290_000);
    assert!(stepped < 10_000 + 20_000, "{stepped}");
    assert!(steps(&db) < 105_000, "{}", steps(&db));
}

#[test]
fn a_desert_grows_with_the_deletes() {
    let db = open(FamilyOptions::default());
    write(&db, 0..500_000, put);
    db.compact().unwrap();
    let (shared, family) = parts(&db);
    for part in 0..4 {
        let from = part * LOOK_EVERY;
        write(&db, from..from + LOOK_EVERY, delete);
        ask(&shared.write);
        run_waiting(shared).unwrap();
        assert!(scan(&db).1 <= 8 * (part + 1), "learned before the flush");
        ask(&shared.write);
        assert!(shared.write.jobs.is_idle(), "nothing was deleted since");
    }
    assert!(family.owned_view().active.is_some(), "nothing was flushed");
    assert!(deserts(&db) == 4 && steps(&db) < 4 * LOOK_EVERY + 1000, "{}", steps(&db));
    let walked = steps(&db);
    db.flush().unwrap();
    assert_eq!((deserts(&db), steps(&db) - walked < 100), (1, true), "the flush joins them without a walk");
    let (live, stepped) = scan(&db);
    assert!(live == 500_000 - 4 * LOOK_EVERY && stepped <= 8);
}

/// What is put into a desert between the learning and the flush is not covered by what the flush makes of it.
#[test]
fn what_comes_back_cuts_a_desert() {
    let db = open(FamilyOptions::default());
    write(&db, 0..200_000, put);
    db.compact().unwrap();
    write(&db, 0..LOOK_EVERY, delete);
    let (shared, _) = parts(&db);
    ask(&shared.write);
    run_waiting(shared).unwrap();
    assert_eq!(deserts(&db), 1);
    let back = [7, 30_000, 30_001, 65_000];
    write(&db, back, put);
    for _ in 0..3 {
        assert_eq!(scan(&db).0, 200_000 - LOOK_EVERY + 4);
        db.flush().unwrap();
        db.put(b"other", b"").unwrap();
        db.delete(b"other").unwrap();
    }
    for n in back {
        assert_eq!(db.range(key(n)..key(n + 1)).unwrap().count(), 1, "{n}");
    }
    // And what was live between the memtables is not covered by what the later one deletes around it.
    write(&db, [70_000, 80_000], delete);
    write(&db, 90_000..100_000, delete);
    db.flush().unwrap();
    assert_eq!(scan(&db).0, 200_000 - LOOK_EVERY + 4 - 2 - 10_000);
}

#[test]
fn nothing_is_learned_of_what_has_expired_or_is_kept_for_others() {
    let db = open(FamilyOptions::default());
    write(&db, 0..20_000, put);
    let before = db.snapshot();
    db.compact().unwrap();
    write(&db, 0..20_000, delete);
    db.flush().unwrap();
    assert_eq!((scan(&db).0, before.iter(db.default_family()).unwrap().count()), (0, 20_000));
    assert_eq!(deserts(&db), 1);
    let other = open(FamilyOptions::default());
    write(&other, 0..20_000, |batch, family, key| batch.put_expiring(family, key, b"v", 1).unwrap());
    other.flush().unwrap();
    run(&parts(&other).0.write, parts(&other).1);
    assert_eq!((deserts(&other), other.iter().unwrap().count()), (0, 0));
}

#[test]
fn a_dropped_family_and_a_closed_database_are_left_alone() {
    let db = open(FamilyOptions::default());
    write(&db, 0..20_000, put);
    db.compact().unwrap();
    write(&db, 0..20_000, delete);
    let (shared, family) = parts(&db);
    family.learning.add([crate::family::Run { marks: vec![key(0).into()], last: key(20_000).into() }]);
    shared.write.poison(crate::Error::internal("planted"));
    run(&shared.write, family);
    assert!(deserts(&db) <= 1 && steps(&db) <= 2 * super::STEPS, "it ends soon: {}", steps(&db));
    assert!(!family.learning.is_waiting());
}
