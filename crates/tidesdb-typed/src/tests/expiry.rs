//! Rows with a time to live: their index entries expire with them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidesdb::{Db, FamilyOptions, Isolation};
use tidesdb_io::{Clock as _, ManualClock, sim};

use crate::{Error, IndexDefinition, Table, TableDefinition, encode};

/// A name, which one row has, and a group. Equal bytes of the value are equal names and groups.
type Row = (u8, u8);

const BY_NAME: IndexDefinition<Row, u8> = IndexDefinition::unique("name", |(name, _), keys| keys.add(name));
const BY_GROUP: IndexDefinition<Row, u8> = IndexDefinition::new("group", |(_, group), keys| keys.add(group));
const ROWS: TableDefinition<u32, Row> = TableDefinition::new("rows").indexes(&[&BY_NAME]);
const WITH_GROUPS: TableDefinition<u32, Row> = TableDefinition::new("rows").indexes(&[&BY_NAME, &BY_GROUP]);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn open() -> (Db, Arc<ManualClock>) {
    let (env, _disk, clock) = sim::env(7);
    let with = |o: &mut tidesdb::DbOptions| o.disk_free_min = 0;
    (Db::options("/db").env(env).background_threads(0).with(with).open().unwrap(), clock)
}

fn entries(db: &Db, index: &str) -> usize {
    db.family(&format!("rows.{index}")).unwrap().iter().unwrap().count()
}

#[test]
fn a_row_and_its_entries_expire_together() {
    let (db, clock) = open();
    let rows = WITH_GROUPS.open(&db).unwrap();
    rows.put_with_ttl(1, (1, 1), secs(10)).unwrap();
    let begin = clock.wall();
    clock.set_wall(begin + Duration::from_millis(600));
    db.transact(|tx| {
        rows.within(tx).put_with_ttl(2, (2, 1), secs(10))?;
        rows.within(tx).put(3, (3, 1))
    })
    .unwrap();
    assert_eq!((entries(&db, "name"), entries(&db, "group")), (3, 3));
    let duplicate = rows.put(4, (1, 1));
    assert!(matches!(duplicate, Err(Error::Duplicate { .. })));
    for (millis, left) in [(9_999, 3), (10_000, 2), (10_599, 2), (10_600, 1)] {
        clock.set_wall(begin + Duration::from_millis(millis));
        assert_eq!(rows.iter().unwrap().count(), left);
        assert_eq!(rows.by(&BY_GROUP).all(1).unwrap().filter(|row| row.is_ok()).count(), left);
        assert_eq!((entries(&db, "name"), entries(&db, "group")), (left, left));
    }
    rows.put(4, (1, 1)).unwrap();
    assert_eq!(rows.by(&BY_NAME).get(1).unwrap(), Some((4, (1, 1))), "the name is free again");
}

#[test]
fn a_new_expiry_reaches_entries_that_do_not_change() {
    let (db, clock) = open();
    let rows = WITH_GROUPS.open(&db).unwrap();
    rows.put_with_ttl(1, (1, 1), secs(5)).unwrap();
    rows.put(1, (1, 1)).unwrap(); // for ever
    rows.put(2, (2, 2)).unwrap();
    rows.put_with_ttl(2, (2, 2), secs(5)).unwrap();
    rows.put_with_ttl(3, (3, 3), secs(5)).unwrap();
    rows.update(3, |old| old).unwrap(); // an update takes the default
    rows.put_with_ttl(4, (4, 4), secs(5)).unwrap();
    rows.put_with_ttl(4, (4, 4), secs(50)).unwrap();
    clock.advance(secs(5));
    let keys: Vec<u32> = rows.by(&BY_GROUP).iter().unwrap().map(|row| row.unwrap().1).collect();
    assert_eq!(keys, [1, 3, 4]);
    assert_eq!((entries(&db, "name"), entries(&db, "group")), (3, 3));
    clock.advance(secs(50));
    assert_eq!((entries(&db, "name"), entries(&db, "group")), (2, 2));
}

#[test]
fn the_default_ttl_of_the_family_counts_for_entries_too() {
    let (db, clock) = open();
    let rows = WITH_GROUPS.open_with(&db, FamilyOptions::default().default_ttl(secs(5))).unwrap();
    rows.put(1, (1, 1)).unwrap();
    rows.update(2, |_| Some((2, 1))).unwrap();
    rows.put_expiring(3, (3, 1), None).unwrap();
    rows.put_with_ttl(4, (4, 1), secs(9)).unwrap();
    clock.advance(secs(5));
    assert_eq!((entries(&db, "name"), entries(&db, "group"), rows.iter().unwrap().count()), (2, 2, 2));
}

#[test]
fn an_index_that_is_built_later_expires_too() {
    let (db, clock) = open();
    let rows = ROWS.open(&db).unwrap();
    for n in 0..50 {
        rows.put_with_ttl(n, (n as u8, 1), secs(u64::from(n % 5) + 1)).unwrap();
    }
    clock.advance(secs(2));
    let rows = WITH_GROUPS.open(&db).unwrap();
    assert_eq!(entries(&db, "group"), 30);
    clock.advance(secs(2));
    assert_eq!((entries(&db, "group"), rows.by(&BY_GROUP).all(1).unwrap().count()), (10, 10));
}

#[test]
fn rows_that_expire_under_an_iterator_are_left_out() {
    let (db, clock) = open();
    let rows = WITH_GROUPS.open(&db).unwrap();
    for n in 0..10 {
        rows.put_with_ttl(n, (n as u8, 1), secs(if n % 2 == 0 { 5 } else { 50 })).unwrap();
    }
    let mut tx = db.begin(Isolation::Serializable);
    let within = rows.within(&mut tx);
    let (mut there, mut back) = (rows.by(&BY_GROUP).iter().unwrap(), within.by(&BY_NAME));
    assert_eq!(there.next().unwrap().unwrap().1, 0);
    clock.advance(secs(5));
    assert_eq!(there.map(|row| row.unwrap().1).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    assert_eq!(back.iter().unwrap().rev().map(|row| row.unwrap().1).collect::<Vec<_>>(), [9, 7, 5, 3, 1]);
    back = within.by(&BY_NAME);
    assert_eq!(back.get(1).unwrap().unwrap().0, 1);
    // An entry without a row is still reported.
    rows.family().delete(encode::<u32>(1)).unwrap();
    assert!(matches!(rows.by(&BY_NAME).get(1), Err(Error::MissingRow { index: "name", .. })));
}

thread_local! {
    /// A clock that index functions advance: at which row, and by how much.
    static PASSING: RefCell<Option<(Arc<ManualClock>, u8, Duration)>> = const { RefCell::new(None) };
}

const SLOWLY: IndexDefinition<Row, u8> = IndexDefinition::new("slowly", |(name, _), keys| {
    if let Some((clock, at, time)) = PASSING.with_borrow(Clone::clone)
        && at == name
    {
        clock.advance(time);
    }
    keys.add(name);
});
const SLOW: TableDefinition<u32, Row> = TableDefinition::new("slow").indexes(&[&SLOWLY]);

/// A row that expired between the read of it and that of its entry was taken for one without an entry, and so were entries that expired
/// before they were counted.
#[test]
fn rows_that_expire_during_a_check_of_indexes_are_no_damage() {
    for (at, seconds) in [(1, 20), (2, 20), (3, 20), (1, 600), (3, 5000)] {
        let (db, clock) = open();
        let rows = SLOW.open(&db).unwrap();
        rows.put_with_ttl(1, (1, 1), secs(seconds / 2)).unwrap();
        rows.put(2, (2, 1)).unwrap();
        rows.put_with_ttl(3, (3, 1), secs(1_000_000)).unwrap();
        PASSING.set(Some((clock, at, secs(seconds))));
        let checked = rows.check_indexes();
        PASSING.set(None);
        assert!(checked.as_ref().is_ok_and(|rows| (2..=3).contains(rows)), "{at}, {seconds}: {checked:?}");
        // What is wrong with rows that stay is still found.
        rows.family().put(encode::<u32>(4), encode::<Row>((4, 4))).unwrap();
        assert!(matches!(rows.check_indexes(), Err(Error::MissingEntry { index: "slowly", .. })));
        rows.family().delete(encode::<u32>(4)).unwrap();
        rows.family().delete(encode::<u32>(3)).unwrap();
        assert!(matches!(rows.check_indexes(), Err(Error::MissingRow { index: "slowly", .. })));
    }
}

/// Compares rows and indexes with the rows of `model` that live at `now`.
fn check(rows: &Table<u32, Row>, model: &BTreeMap<u32, (Row, u64)>, now: u64) {
    let live = model.iter().filter(|(_, (_, end))| *end > now).map(|(key, (row, _))| (*key, *row));
    let live: BTreeMap<u32, Row> = live.collect();
    assert_eq!(rows.iter().unwrap().collect::<Result<BTreeMap<_, _>, _>>().unwrap(), live);
    let names: Vec<_> = rows.by(&BY_NAME).iter().unwrap().map(|row| row.unwrap()).collect();
    let wanted: BTreeSet<_> = live.iter().map(|(key, row)| (row.0, *key)).collect();
    assert!(names.iter().map(|(name, key, _)| (*name, *key)).eq(wanted), "{names:?}, {live:?}");
    let groups: Vec<_> = rows.by(&BY_GROUP).iter().unwrap().rev().map(|row| row.unwrap()).collect();
    let wanted: BTreeSet<_> = live.iter().map(|(key, row)| (row.1, *key)).collect();
    assert!(groups.iter().map(|(group, key, _)| (*group, *key)).eq(wanted.into_iter().rev()), "{groups:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Random writes with and without a TTL, while time passes, against a map.
    #[test]
    fn random_ttls_keep_table_and_indexes_equal_to_a_model(
        steps in prop::collection::vec((0u32..6, 0u8..5, 0u8..3, 0u64..5, 0u8..12), 1..60)
    ) {
        let (db, clock) = open();
        let rows = WITH_GROUPS.open(&db).unwrap();
        let (mut model, mut now): (BTreeMap<u32, (Row, u64)>, u64) = (BTreeMap::new(), 0);
        for (key, name, group, ttl, what) in steps {
            let row = (name, group);
            let is_live = |end: u64| end > now;
            let taken = model.iter().any(|(other, (r, end))| *other != key && r.0 == name && is_live(*end));
            let end = if ttl == 0 { u64::MAX } else { now + ttl };
            let put = || match ttl {
                0 => rows.put(key, row),
                _ => rows.put_with_ttl(key, row, secs(ttl)),
            };
            match what {
                0 => { rows.delete(key).unwrap(); model.remove(&key); }
                1 => db.flush().unwrap(),
                2 => db.compact().unwrap(),
                3..=5 => { clock.advance(secs(ttl)); now += ttl; }
                6 => {
                    let mut tx = db.begin(Isolation::RepeatableRead);
                    let _ = rows.within(&mut tx).put_with_ttl(key, row, secs(1));
                    tx.rollback();
                }
                _ => match put() {
                    Ok(()) => { prop_assert!(!taken); model.insert(key, (row, end)); }
                    Err(Error::Duplicate { .. }) => prop_assert!(taken),
                    Err(e) => return Err(TestCaseError::fail(e.to_string())),
                },
            }
            check(&rows, &model, now);
        }
    }
}

/// Between the read of a row and the commit of its change the row may expire, and its unique key may be given to another one.
#[test]
fn a_row_that_expires_does_not_take_the_unique_key_of_another() {
    for isolation in [Isolation::RepeatableRead, Isolation::Snapshot, Isolation::Serializable] {
        for is_change in [false, true] {
            let (db, clock) = open();
            let rows = ROWS.open(&db).unwrap();
            rows.put_with_ttl(1, (1, 0), secs(10)).unwrap();
            let mut tx = db.begin(isolation);
            match is_change {
                true => rows.within(&mut tx).put(1, (2, 0)).unwrap(),
                false => rows.within(&mut tx).delete(1).unwrap(),
            }
            clock.set_wall(clock.wall() + secs(20));
            rows.put(3, (1, 0)).unwrap();
            let _ = tx.commit(); // a conflict is one answer
            rows.check_indexes().unwrap();
            assert_eq!(rows.by(&BY_NAME).get(1).unwrap(), Some((3, (1, 0))), "{isolation:?}");
            assert!(matches!(rows.put(4, (1, 0)), Err(Error::Duplicate { .. })));
        }
    }
}
