//! Tables and their indexes, through the database, snapshots and transactions.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tidesdb::{Db, FamilyOptions, Isolation, SyncMode};

use crate::{Error, IndexDefinition, Postcard, TableDefinition, encode};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct User {
    mail: Option<String>,
    city: String,
    tags: Vec<u8>,
}

type Users = Postcard<User>;

const BY_MAIL: IndexDefinition<Users, String> = IndexDefinition::unique("mail", |user, keys| {
    user.mail.iter().for_each(|mail| keys.add(mail));
});
const BY_CITY: IndexDefinition<Users, String> =
    IndexDefinition::new("city", |user, keys| keys.add(&user.city));
const BY_TAG: IndexDefinition<Users, u8> =
    IndexDefinition::new("tag", |user, keys| user.tags.iter().for_each(|tag| keys.add(*tag)));
const USERS: TableDefinition<u32, Users> =
    TableDefinition::new("users").indexes(&[&BY_MAIL, &BY_CITY, &BY_TAG]);
const PLAIN: TableDefinition<u32, Users> = TableDefinition::new("users");

fn open() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path()).sync(SyncMode::None).open().unwrap();
    (dir, db)
}

fn user(mail: &str, city: &str, tags: &[u8]) -> User {
    let mail = (!mail.is_empty()).then(|| mail.to_owned());
    User { mail, city: city.to_owned(), tags: tags.to_vec() }
}

fn entries(db: &Db, index: &str) -> usize {
    db.family(&format!("users.{index}")).unwrap().iter().unwrap().count()
}

/// Inside an index key, the bytes 0 and 1 are escaped: a prefix has to be, too.
#[test]
fn rows_are_found_by_any_beginning_of_their_index_keys() {
    const BY_BYTES: IndexDefinition<Vec<u8>, Vec<u8>> = IndexDefinition::new("bytes", |v, keys| keys.add(v));
    const BY_BYTES_ONCE: IndexDefinition<Vec<u8>, Vec<u8>> =
        IndexDefinition::unique("once", |v, keys| keys.add(v));
    const BYTES: TableDefinition<u32, Vec<u8>> =
        TableDefinition::new("bytes").indexes(&[&BY_BYTES, &BY_BYTES_ONCE]);
    let (_dir, db) = open();
    let table = BYTES.open(&db).unwrap();
    let all: Vec<Vec<u8>> =
        (0..4u8).flat_map(|a| (0..4u8).map(move |b| vec![7, a, b])).chain([vec![7]]).collect();
    for (n, bytes) in (0..).zip(&all) {
        table.put(n, bytes).unwrap();
    }
    for prefix in all.iter().flat_map(|bytes| (0..=bytes.len()).map(|len| &bytes[..len])) {
        let wanted = all.iter().filter(|bytes| bytes.starts_with(prefix)).count();
        assert_eq!(table.by(&BY_BYTES).prefix(prefix).unwrap().count(), wanted, "{prefix:?}");
        assert_eq!(table.by(&BY_BYTES_ONCE).prefix(prefix).unwrap().count(), wanted, "{prefix:?}");
    }
}

/// An encoding that rounds, as that of the documentation of [`crate::Value`] does.
struct Rounded;

impl crate::Value for Rounded {
    type Owned = f32;
    type Ref<'a> = f32;

    fn name() -> String {
        "rounded".to_owned()
    }

    fn encode(value: f32, out: &mut Vec<u8>) -> Result<(), crate::Malformed> {
        out.push(value.round() as u8);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<f32, crate::Malformed> {
        match bytes {
            [255] => Err(crate::Malformed::new("not to be read")),
            [byte] => Ok(f32::from(*byte)),
            _ => Err(crate::Malformed::new("not one byte")),
        }
    }

    fn to_ref(value: &f32) -> f32 {
        *value
    }
}

/// The entry of a value that was not stored would stay for ever: a later change deletes those of the value that it reads.
#[test]
fn an_index_has_what_is_stored() {
    const BY_LEVEL: IndexDefinition<Rounded, f32> = IndexDefinition::unique("level", |v, keys| keys.add(v));
    const LEVELS: TableDefinition<u32, Rounded> = TableDefinition::new("levels").indexes(&[&BY_LEVEL]);
    let (_dir, db) = open();
    let levels = LEVELS.open(&db).unwrap();
    levels.put(1, 25.4).unwrap();
    levels.check_indexes().unwrap();
    assert_eq!(levels.replace(1, 9.6).unwrap(), Some(25.0));
    levels.check_indexes().unwrap();
    assert_eq!(levels.by(&BY_LEVEL).iter().unwrap().map(|row| row.unwrap().0).collect::<Vec<_>>(), [10.0]);
    levels.put(2, 25.0).unwrap();
    // A row that could not be read could not be changed any more.
    assert!(matches!(levels.put(3, 255.0), Err(Error::Encode { .. })));
    assert!(matches!(levels.replace(2, 255.0), Err(Error::Encode { .. })));
    levels.delete(1).unwrap();
    levels.delete(2).unwrap();
    levels.check_indexes().unwrap();
    assert_eq!(levels.by(&BY_LEVEL).iter().unwrap().count(), 0);
}

#[test]
fn an_index_follows_its_rows() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    users.put(1, &user("a@x", "Bonn", &[3, 3, 1])).unwrap();
    users.put(2, &user("b@x", "Bonn", &[255])).unwrap();
    assert_eq!((entries(&db, "mail"), entries(&db, "city"), entries(&db, "tag")), (2, 2, 3));
    users.put(1, &user("c@x", "Gent", &[1])).unwrap();
    assert_eq!(users.by(&BY_MAIL).get("a@x").unwrap(), None);
    assert_eq!(users.by(&BY_MAIL).get("c@x").unwrap().unwrap().0, 1);
    assert_eq!(users.by(&BY_CITY).all("Bonn").unwrap().count(), 1);
    users.update(2, |old| old.map(|old| User { mail: None, ..old })).unwrap();
    assert_eq!((entries(&db, "mail"), entries(&db, "tag")), (1, 2));
    users.delete(2).unwrap();
    users.delete_range(..).unwrap();
    assert_eq!((entries(&db, "mail"), entries(&db, "city"), entries(&db, "tag")), (0, 0, 0));
}

#[test]
fn the_bounds_of_an_index_hold_at_its_ends() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    for (id, tag) in [(1, 0), (2, 254), (3, 255), (u32::MAX, 255)] {
        users.put(id, &user("", "", &[tag])).unwrap();
    }
    let ids = |range: (std::ops::Bound<u8>, std::ops::Bound<u8>)| -> Vec<u32> {
        users.by(&BY_TAG).range(range).unwrap().map(|row| row.unwrap().1).collect()
    };
    use std::ops::Bound::{Excluded, Included, Unbounded};
    assert_eq!(ids((Included(255), Unbounded)), [3, u32::MAX]);
    assert_eq!(ids((Excluded(254), Included(255))), [3, u32::MAX]);
    assert_eq!(ids((Excluded(0), Excluded(255))), [2]);
    assert_eq!(ids((Unbounded, Included(254))), [1, 2]);
    assert!(ids((Excluded(255), Unbounded)).is_empty());
    assert_eq!(users.by(&BY_CITY).get("").unwrap().unwrap().0, 1);
}

#[test]
fn a_duplicate_leaves_the_transaction_as_it_was() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    users.put(1, &user("a@x", "Bonn", &[])).unwrap();
    let mut tx = db.begin(Isolation::Snapshot);
    users.within(&mut tx).put(2, &user("b@x", "Bonn", &[])).unwrap();
    let before = tx.len();
    let error = users.within(&mut tx).put(2, &user("a@x", "Gent", &[9])).unwrap_err();
    assert!(matches!(error, Error::Duplicate { table: "users", index: "mail" }), "{error}");
    assert_eq!(tx.len(), before);
    tx.commit().unwrap();
    assert_eq!(users.get(2).unwrap(), Some(user("b@x", "Bonn", &[])));
    assert_eq!((entries(&db, "mail"), entries(&db, "city"), entries(&db, "tag")), (2, 2, 0));
    users.put(1, &user("a@x", "Gent", &[])).unwrap(); // its own key is no duplicate
}

/// A call that writes many rows, and fails or panics at one of them, leaves the transaction as it was.
#[test]
fn a_failed_call_leaves_the_transaction_as_it_was() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    for id in [1, 2, 4] {
        users.put(id, &user(&format!("{id}@x"), "Bonn", &[])).unwrap();
    }
    let family = db.family("users").unwrap();
    let mut tx = db.begin(Isolation::Snapshot);
    users.within(&mut tx).put(5, &user("5@x", "Gent", &[1, 2])).unwrap();
    tx.put(&family, encode::<u32>(3), [0xff; 3]).unwrap(); // no user
    let state = |tx: &mut tidesdb::Transaction| {
        let rows = tx.iter(&family).unwrap().map(|row| row.unwrap().0.into_vec()).collect::<Vec<_>>();
        let cities = users.within(tx).by(&BY_CITY).iter().unwrap().count();
        (tx.len(), tx.bytes(), rows, cities)
    };
    let before = state(&mut tx);
    assert!(matches!(users.within(&mut tx).delete_range(..), Err(Error::Decode { .. })));
    assert_eq!(state(&mut tx), before);
    assert!(users.within(&mut tx).put(3, &User::default()).is_err());
    assert!(users.within(&mut tx).update(5, |_| Some(user("1@x", "Gent", &[1]))).is_err());
    assert!(users.within(&mut tx).put(6, &user("4@x", "Gent", &[1, 2])).is_err());
    assert_eq!(state(&mut tx), before);
    let other =
        TableDefinition::<u32, Users>::new("other").indexes(&[&BY_CITY, &BY_PANIC]).open(&db).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        other.within(&mut tx).put(7, &user("7@x", "panic", &[1])).unwrap();
    }));
    assert!(panicked.is_err());
    assert_eq!(state(&mut tx), before);
    tx.commit().unwrap();
    assert_eq!((entries(&db, "mail"), entries(&db, "city"), entries(&db, "tag")), (4, 4, 2));
}

/// Panics for rows of a city.
const BY_PANIC: IndexDefinition<Users, String> = IndexDefinition::new("panic", |user, keys| {
    assert_ne!(user.city, "panic");
    keys.add(&user.city);
});

/// Two transactions claim one unique key. At every level that a table with indexes accepts, one of them fails.
#[test]
fn two_transactions_cannot_claim_one_unique_key() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    for level in [Isolation::RepeatableRead, Isolation::Snapshot, Isolation::Serializable] {
        let (mut one, mut two) = (db.begin(level), db.begin(level));
        users.within(&mut one).put(1, &user("a@x", "Bonn", &[])).unwrap();
        users.within(&mut two).put(2, &user("a@x", "Gent", &[])).unwrap();
        one.commit().unwrap();
        assert!(matches!(two.commit(), Err(tidesdb::Error::Conflict { .. })), "{level:?}");
        users.delete(1).unwrap();
    }
    let mut weak = db.begin(Isolation::ReadCommitted);
    let error = users.within(&mut weak).put(1, &User::default()).unwrap_err();
    assert!(matches!(error, Error::WeakIsolation { .. }), "{error}");
    assert!(weak.is_empty());
}

#[test]
fn index_and_rows_are_read_at_one_timestamp() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    users.put(1, &user("", "Bonn", &[])).unwrap();
    users.put(2, &user("", "Bonn", &[])).unwrap();
    let mut rows = users.by(&BY_CITY).iter().unwrap();
    assert_eq!(rows.next().unwrap().unwrap().1, 1);
    users.delete(2).unwrap();
    assert_eq!(rows.next().unwrap().unwrap().1, 2);

    let before = db.snapshot();
    users.delete_range(..).unwrap();
    assert_eq!(users.at(&before).by(&BY_CITY).all("Bonn").unwrap().count(), 1);

    let mut tx = db.begin(Isolation::Serializable);
    let mine = users.within(&mut tx);
    mine.put(7, &user("", "Gent", &[])).unwrap();
    assert_eq!(mine.by(&BY_CITY).get("Gent").unwrap().unwrap().0, 7);
    assert_eq!(mine.pop_first().unwrap().unwrap().0, 7);
    assert_eq!(mine.by(&BY_CITY).get("Gent").unwrap(), None);
}

#[test]
fn an_index_is_built_when_it_is_listed_and_dropped_when_it_is_not() {
    let (dir, db) = open();
    let plain = PLAIN.open(&db).unwrap();
    for id in 0..2500 {
        plain.put(id, &user(&format!("{id}@x"), "Bonn", &[])).unwrap();
    }
    let users = USERS.open(&db).unwrap();
    assert_eq!(users.by(&BY_MAIL).get("2499@x").unwrap().unwrap().0, 2499);
    assert_eq!(users.by(&BY_CITY).all("Bonn").unwrap().count(), 2500);
    drop((plain, users));
    db.close().unwrap();

    let db = Db::open(dir.path()).unwrap();
    let plain = PLAIN.open(&db).unwrap();
    assert!(db.family("users.mail").is_err());
    let error = plain.by(&BY_MAIL).get("1@x").unwrap_err();
    assert!(matches!(error, Error::NoIndex { table: "users", index: "mail" }), "{error}");
    plain.put(2500, &user("7@x", "Bonn", &[])).unwrap();
    let error = USERS.open(&db).unwrap_err();
    assert!(matches!(error, Error::Duplicate { index: "mail", .. }), "{error}");
    plain.delete(2500).unwrap();
    let users = USERS.open(&db).unwrap(); // a build that failed is done again
    assert_eq!(users.by(&BY_MAIL).iter().unwrap().count(), 2500);
}

#[test]
fn a_view_beside_the_writer_opens_what_exists() {
    let (dir, db) = open();
    let users = USERS.open(&db).unwrap();
    users.put(1, &user("ann@x", "Gent", &[])).unwrap();
    let view = Db::options(dir.path()).open_reader().unwrap().view();
    assert_eq!(USERS.open(&view).unwrap().by(&BY_CITY).get("Gent").unwrap().unwrap().0, 1);
    let plain = PLAIN.open(&view).unwrap(); // lists fewer indexes than there are
    assert!(plain.get(1).unwrap().is_some() && plain.put(2, &user("", "", &[])).is_err());
    const NEW: IndexDefinition<Users, String> =
        IndexDefinition::new("new", |user, keys| keys.add(&user.city));
    const MORE: TableDefinition<u32, Users> = TableDefinition::new("users").indexes(&[&NEW]);
    const OTHER: TableDefinition<u32, Users> = TableDefinition::new("other");
    for (error, table) in
        [(MORE.open(&view).unwrap_err(), "users"), (OTHER.open(&view).unwrap_err(), "other")]
    {
        assert_eq!(error.to_string(), format!("table \"{table}\" or one of its indexes does not exist"));
    }
}

#[test]
fn pages_follow_each_other_in_both_directions() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    for id in 0..40 {
        users.put(id, &user(&format!("{id:02}@x"), ["Bonn", "Gent"][id as usize % 2], &[])).unwrap();
    }
    let by = users.by(&BY_CITY);
    let all: Vec<u32> = by.iter().unwrap().map(|row| row.unwrap().1).collect();
    let (mut forwards, mut at) = (vec![all[0]], ("Bonn".to_owned(), all[0]));
    while let Some(row) = by.after(&at.0, at.1).unwrap().take(7).last() {
        forwards.extend(by.after(&at.0, at.1).unwrap().take(7).map(|row| row.unwrap().1));
        let (city, id, _) = row.unwrap();
        at = (city, id);
    }
    assert_eq!(forwards, all);
    let mut backwards: Vec<u32> = by.before("Gent", 39).unwrap().rev().map(|row| row.unwrap().1).collect();
    backwards.insert(0, 39);
    backwards.reverse();
    assert_eq!(backwards, all);
    // Of a row that is gone, and through a unique index.
    users.delete(3).unwrap();
    assert_eq!(by.after("Gent", 3).unwrap().next().unwrap().unwrap().1, 5);
    let mails = users.by(&BY_MAIL);
    assert_eq!(mails.after("03@x", 3).unwrap().next().unwrap().unwrap().1, 4);
    assert_eq!(mails.before("03@x", 3).unwrap().next_back().unwrap().unwrap().1, 2);
    assert!(matches!(PLAIN.open(&db).unwrap().by(&BY_CITY).after("", 0), Err(Error::NoIndex { .. })));
}

#[test]
fn a_check_finds_entries_that_are_missing_and_entries_too_many() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    for id in 0..9 {
        users.put(id, &user(&format!("{id}@x"), "Bonn", &[1, 2])).unwrap();
    }
    assert_eq!(users.check_indexes().unwrap(), 9);
    let cities = db.family("users.city").unwrap();
    let (entry, _) = cities.last().unwrap().unwrap();
    cities.delete(&entry).unwrap();
    let error = users.check_indexes().unwrap_err();
    assert_eq!(error.to_string(), "table users: index city lacks the entry of a row");
    cities.put(&entry, "").unwrap();
    cities.put([&entry[..], b"x"].concat(), "").unwrap();
    let error = users.check_indexes().unwrap_err();
    assert!(matches!(error, Error::MissingRow { index: "city", .. }), "{error}");
    cities.delete([&entry[..], b"x"].concat()).unwrap();
    let mails = db.family("users.mail").unwrap();
    let (entry, _) = mails.first().unwrap().unwrap();
    mails.put(&entry, encode::<u32>(7)).unwrap(); // names another row
    assert!(matches!(users.check_indexes(), Err(Error::MissingEntry { index: "mail", .. })));
}

#[test]
fn another_type_is_refused_by_name() {
    let (_dir, db) = open();
    USERS.open(&db).unwrap();
    const SIGNED: TableDefinition<i32, Users> = TableDefinition::new("users");
    let error = SIGNED.open(&db).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table users was created as u32 -> postcard, but is opened as i32 -> postcard"
    );
    const ROWS: TableDefinition<u32, String> = TableDefinition::new("rows");
    let reversed = FamilyOptions::default().comparator(tidesdb::Comparator::reverse_bytewise());
    assert!(matches!(ROWS.open_with(&db, reversed), Err(Error::Mismatch { .. })));
}

#[test]
fn damage_is_reported_with_table_and_part() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    fn shown<T>(result: Result<T, Error>) -> String {
        result.map(drop).unwrap_err().to_string()
    }
    users.put(1, &user("a@x", "Bonn", &[])).unwrap();
    users.family().delete(encode::<u32>(1)).unwrap();
    assert_eq!(shown(users.by(&BY_MAIL).get("a@x")), "table users: index mail has an entry without its row");
    users.family().put("k", "v").unwrap();
    assert_eq!(shown(users.first()), "table users: a stored key is not of type u32: it ends too early");
    users.family().put(encode::<u32>(0), [9; 3]).unwrap();
    assert!(shown(users.get(0)).starts_with("table users: a stored value is not of type postcard: "));
    db.family("users.city").unwrap().put("Bonn", "").unwrap();
    assert_eq!(
        shown(users.by(&BY_CITY).iter().unwrap().next().unwrap()),
        "table users: a stored index entry is not of type String: a string has no end"
    );
}

#[test]
fn threads_share_a_table_and_its_indexes_stay_consistent() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4u32 {
            let users = users.clone();
            scope.spawn(move || {
                for n in 0..150u32 {
                    let id = (n * 7 + seed) % 10;
                    let city = ["Bonn", "Gent", "Metz"][((n + seed) % 3) as usize];
                    match users.put(id, &user(&format!("{}@x", n % 13), city, &[n as u8 % 5])) {
                        Ok(()) | Err(Error::Duplicate { .. }) => {}
                        Err(e) => panic!("{e}"),
                    }
                    if n % 9 == 0 {
                        users.delete(id).unwrap();
                    }
                }
            });
        }
    });
    let model = users.iter().unwrap().collect::<Result<BTreeMap<_, _>, _>>().unwrap();
    check(&users, &model);
}

/// Compares the indexes with those that the rows of `model` have.
fn check(users: &crate::Table<u32, Users>, model: &BTreeMap<u32, User>) {
    let rows: BTreeMap<u32, User> = users.iter().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(&rows, model);
    let mails: Vec<_> = users.by(&BY_MAIL).iter().unwrap().map(Result::unwrap).collect();
    let wanted: BTreeSet<_> = model.iter().filter_map(|(id, u)| Some((u.mail.clone()?, *id))).collect();
    assert!(mails.iter().map(|(mail, id, _)| (mail.clone(), *id)).eq(wanted));
    let tags: Vec<_> = users.by(&BY_TAG).iter().unwrap().rev().map(Result::unwrap).collect();
    let wanted: BTreeSet<_> = model.iter().flat_map(|(id, u)| u.tags.iter().map(|tag| (*tag, *id))).collect();
    assert!(tags.iter().map(|(tag, id, _)| (*tag, *id)).eq(wanted.into_iter().rev()));
    assert!(tags.iter().all(|(_, id, row)| model.get(id) == Some(row)));
    let cities = users.by(&BY_CITY).iter().unwrap().map(|row| row.unwrap().1);
    let mut wanted: Vec<_> = model.iter().map(|(id, u)| (&u.city, *id)).collect();
    wanted.sort_unstable();
    let by_city = users.by(&BY_CITY);
    let ends = [by_city.first(), by_city.last()].map(|end| end.unwrap().map(|(city, id, _)| (city, id)));
    let owned = |end: Option<&(&String, u32)>| end.map(|(city, id)| ((*city).clone(), *id));
    assert_eq!(ends, [owned(wanted.first()), owned(wanted.last())]);
    assert_eq!(by_city.contains("a").unwrap(), wanted.iter().any(|(city, _)| *city == "a"));
    assert!(cities.eq(wanted.into_iter().map(|(_, id)| id)));
    assert_eq!(users.last().unwrap(), model.last_key_value().map(|(id, user)| (*id, user.clone())));
    let ids: Vec<u32> = (0..7).rev().collect();
    let found = users.multi_get(&ids).unwrap();
    assert!(found.iter().map(Option::as_ref).eq(ids.iter().map(|id| model.get(id))));
}

/// Deletes by prefix also delete the index entries, and only those of the rows in it; in a transaction they wait for its commit.
#[test]
fn a_prefix_is_deleted_with_its_index_entries() {
    const BY_TEXT: IndexDefinition<String, String> =
        IndexDefinition::new("text", |text, keys| keys.add(text));
    const NOTES: TableDefinition<(u32, u32), String> = TableDefinition::new("notes").indexes(&[&BY_TEXT]);
    const BARE: TableDefinition<(u32, u32), String> = TableDefinition::new("bare");
    let (_dir, db) = open();
    for notes in [NOTES.open(&db).unwrap(), BARE.open(&db).unwrap()] {
        for (book, page) in [(0, 9), (1, 0), (1, u32::MAX), (2, 0)] {
            notes.put((book, page), "text").unwrap();
        }
        let before = db.snapshot();
        let mut tx = db.begin(Isolation::Serializable);
        notes.within(&mut tx).delete_prefix((1,)).unwrap();
        assert_eq!(notes.within(&mut tx).iter().unwrap().count(), 2);
        assert_eq!(notes.iter().unwrap().count(), 4);
        tx.rollback();
        notes.delete_prefix((1,)).unwrap();
        notes.delete_prefix((7,)).unwrap();
        let pages = [(0, 9), (1, 0), (2, 0)];
        let some = Some("text".to_owned());
        assert_eq!(notes.multi_get(&pages).unwrap(), [some.clone(), None, some.clone()]);
        assert_eq!(notes.at(&before).multi_get(&pages).unwrap(), [some.clone(), some.clone(), some]);
        notes.check_indexes().unwrap();
    }
    assert_eq!(db.family("notes.text").unwrap().iter().unwrap().count(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random writes, alone and in transactions of which some are rolled back, against a map.
    #[test]
    fn random_writes_keep_table_and_indexes_equal_to_a_model(
        steps in prop::collection::vec((0u32..6, 0u8..5, 0u8..3, prop::collection::vec(0u8..4, 0..3), 0u8..10), 1..40)
    ) {
        let (_dir, db) = open();
        let users = USERS.open(&db).unwrap();
        let mut model: BTreeMap<u32, User> = BTreeMap::new();
        for (id, mail, city, tags, what) in steps {
            let mail = if mail == 0 { String::new() } else { format!("{mail}\0@x") };
            let row = user(&mail, ["", "a\0", "a"][city as usize], &tags);
            let taken = model.iter().any(|(other, u)| *other != id && row.mail.is_some() && u.mail == row.mail);
            match what {
                0 => { users.delete(id).unwrap(); model.remove(&id); }
                1 => { users.delete_range(id..).unwrap(); model.retain(|key, _| *key < id); }
                2 => prop_assert_eq!(users.pop_first().unwrap(), model.pop_first()),
                4 => prop_assert_eq!(users.pop_last().unwrap(), model.pop_last()),
                3 => {
                    let mut tx = db.begin(Isolation::Snapshot);
                    let _ = users.within(&mut tx).put(id, &row);
                    users.within(&mut tx).delete_range(..3).unwrap();
                    tx.rollback();
                }
                // A transaction that writes one row twice: the last write counts, in the indexes too.
                5..=7 => {
                    let mut tx = db.begin(Isolation::Snapshot);
                    let first = user("", "first", &[1]);
                    let within = users.within(&mut tx);
                    match what {
                        5 => within.put(id, &first).unwrap(),
                        6 => within.delete(id).unwrap(),
                        _ => within.delete_range(id..=id).unwrap(),
                    }
                    match within.put(id, &row) {
                        Ok(()) if what == 7 && city == 0 => {
                            within.delete(id).unwrap();
                            model.remove(&id);
                        }
                        Ok(()) => { prop_assert!(!taken); model.insert(id, row); }
                        Err(Error::Duplicate { .. }) => {
                            prop_assert!(taken);
                            tx.rollback();
                            continue;
                        }
                        Err(e) => return Err(TestCaseError::fail(e.to_string())),
                    }
                    tx.commit().unwrap();
                }
                _ => match users.put(id, &row) {
                    Ok(()) => { prop_assert!(!taken); model.insert(id, row); }
                    Err(Error::Duplicate { .. }) => prop_assert!(taken),
                    Err(e) => return Err(TestCaseError::fail(e.to_string())),
                },
            }
            check(&users, &model);
        }
    }
}

/// `replace` and `take` return the old value, change the indexes, and do nothing to a row that does not exist.
#[test]
fn a_write_returns_the_old_value() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    let (ann, ben) = (user("a@x", "Bonn", &[1]), user("b@x", "Gent", &[2]));
    assert_eq!(users.replace(1, &ann).unwrap(), None);
    assert_eq!(users.replace(1, &ben).unwrap(), Some(ann.clone()));
    assert_eq!(users.by(&BY_MAIL).get("a@x").unwrap(), None);
    assert_eq!(users.by(&BY_MAIL).get("b@x").unwrap(), Some((1, ben.clone())));
    assert!(matches!(users.replace(2, &ben), Err(Error::Duplicate { index: "mail", .. })));
    assert_eq!(
        (users.multi_contains(&[2, 1]).unwrap(), users.check_indexes().unwrap()),
        (vec![false, true], 1)
    );
    db.transact(|tx| {
        let users = users.within(tx);
        assert_eq!(users.multi_contains(&[1, 2])?, [true, false]);
        assert_eq!(users.take(2)?, None);
        assert_eq!(users.take(1)?, Some(ben.clone()));
        assert_eq!((users.take(1)?, users.multi_contains(&[1])?), (None, vec![false]));
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(["mail", "city", "tag"].map(|index| entries(&db, index)), [0; 3]);
    assert_eq!(users.at(&db.snapshot()).multi_contains(&[1]).unwrap(), [false]);
    let mut tx = db.begin(Isolation::ReadCommitted);
    assert_eq!(users.within(&mut tx).take(1).unwrap(), None);
    assert!(tx.is_empty());
    assert!(matches!(users.within(&mut tx).replace(1, &ann), Err(Error::WeakIsolation { .. })));
    assert!(tx.is_empty());
}

/// A table keeps the database open; one at a snapshot does not, like the snapshot.
#[test]
fn a_table_keeps_the_database_open() {
    let (dir, db) = open();
    let users = PLAIN.open(&db).unwrap();
    let at = users.at(&db.snapshot());
    drop(db);
    users.put(1, &User::default()).unwrap();
    assert_eq!(at.get(1).unwrap(), None);
    assert!(matches!(Db::open(dir.path()), Err(tidesdb::Error::Locked { .. })));
    drop(users);
    assert!(matches!(at.get(1), Err(Error::Database(tidesdb::Error::Closed))));
    assert_eq!(PLAIN.open(&Db::open(dir.path()).unwrap()).unwrap().get(1).unwrap(), Some(User::default()));
}
