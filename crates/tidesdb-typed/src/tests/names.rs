//! Names of families: a definition takes no family that it did not make, and finds out when one of its own was dropped or renamed.

use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tidesdb::{Comparator, Db, FamilyOptions, SyncMode};
use tidesdb_io::sim::{self, OpSet, SimDisk};

use crate::{Error, IndexDefinition, Key, Table, TableDefinition, Value, encode};

const BY_MAIL: IndexDefinition<String, String> = IndexDefinition::unique("mail", |mail, keys| keys.add(mail));
const BY_DOTTED: IndexDefinition<String, String> = IndexDefinition::new("b.c", |mail, keys| keys.add(mail));
const BY_C: IndexDefinition<String, String> = IndexDefinition::new("c", |mail, keys| keys.add(mail));
const USERS: TableDefinition<u32, String> = TableDefinition::new("users").indexes(&[&BY_MAIL]);
const PLAIN: TableDefinition<u32, String> = TableDefinition::new("users");
const DOTTED: TableDefinition<u32, String> = TableDefinition::new("users.mail");

fn open() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path()).sync(SyncMode::None).open().unwrap();
    (dir, db)
}

/// Returns what the open says.
fn refusal<K: Key, V: Value>(definition: &TableDefinition<K, V>, db: &Db) -> String {
    definition.open(db).map(|table| format!("{table:?}")).unwrap_err().to_string()
}

fn count(db: &Db, family: &str) -> usize {
    db.family(family).unwrap().iter().unwrap().count()
}

fn fill(table: &Table<u32, String>, ids: std::ops::Range<u32>) {
    ids.for_each(|id| table.put(id, &format!("{id}@x")).unwrap());
}

/// An index is the family `TABLE.INDEX`. Its build emptied the family of that name, whoever had made it.
#[test]
fn an_index_does_not_take_the_family_of_a_table() {
    let (_dir, db) = open();
    let dotted = DOTTED.open(&db).unwrap();
    fill(&dotted, 0..1000);
    let said = refusal(&USERS, &db);
    assert!(said.contains("index mail of table users") && said.contains("table users.mail"), "{said}");
    assert_eq!((dotted.iter().unwrap().count(), db.has_family("users")), (1000, false));
    fill(&PLAIN.open(&db).unwrap(), 0..3);
    assert_eq!(refusal(&USERS, &db), said);
    assert_eq!((count(&db, "users"), count(&db, "users.mail")), (3, 1000));
    drop(PLAIN.open(&db).unwrap()); // drops indexes that it does not list
    assert_eq!(count(&db, "users.mail"), 1000);
}

#[test]
fn an_index_does_not_take_a_plain_family() {
    let (_dir, db) = open();
    let plain = db.create_family("users.mail", FamilyOptions::default()).unwrap();
    plain.put("k", "v").unwrap();
    let said = refusal(&USERS, &db);
    assert!(said.contains("index mail of table users") && said.contains("\"users.mail\""), "{said}");
    assert_eq!(plain.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    plain.delete("k").unwrap();
    fill(&USERS.open(&db).unwrap(), 0..3); // it is empty: the index has it now
    assert_eq!((plain.iter().unwrap().count(), USERS.open(&db).unwrap().check_indexes().unwrap()), (3, 3));
}

/// Entries of an index sort bytewise.
#[test]
fn an_index_does_not_take_a_family_of_another_key_order() {
    let (_dir, db) = open();
    let order = FamilyOptions::default().comparator(Comparator::reverse_bytewise());
    db.create_family("users.mail", order.clone()).unwrap();
    assert!(refusal(&USERS, &db).contains("key order"), "{}", refusal(&USERS, &db));
    assert!(matches!(PLAIN.open_with(&db, order), Err(Error::Mismatch { .. })));
    assert!(!db.has_family("users"), "no family is created in an order that no table has");
    PLAIN.open(&db).unwrap();
}

#[test]
fn a_table_does_not_take_the_family_of_an_index() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    fill(&users, 0..9);
    let said = refusal(&DOTTED, &db);
    assert!(said.contains("table users.mail") && said.contains("index mail of table users"), "{said}");
    assert_eq!(users.check_indexes().unwrap(), 9);
}

#[test]
fn an_index_does_not_take_the_family_of_another_index() {
    let (_dir, db) = open();
    let one = TableDefinition::<u32, String>::new("a").indexes(&[&BY_DOTTED]);
    let two = TableDefinition::<u32, String>::new("a.b").indexes(&[&BY_C]);
    let a = one.open(&db).unwrap();
    fill(&a, 0..9);
    let said = refusal(&two, &db);
    assert!(said.contains("index c of table a.b") && said.contains("index b.c of table a"), "{said}");
    assert_eq!(a.check_indexes().unwrap(), 9);
}

/// What a definition says twice, or what belongs to the library.
#[test]
fn names_that_no_table_can_have_are_refused() {
    let (_dir, db) = open();
    USERS.open(&db).unwrap();
    for name in ["tidesdb-typed", "tidesdb:settings"] {
        let said = refusal(&TableDefinition::<u32, String>::new(name), &db);
        assert!(said.contains(name) && said.contains("TidesDB"), "{said}");
    }
    const AGAIN: IndexDefinition<String, u8> = IndexDefinition::new("mail", |_, keys| keys.add(1));
    const NO_NAME: IndexDefinition<String, u8> = IndexDefinition::new("", |_, keys| keys.add(1));
    let twice = TableDefinition::<u32, String>::new("twice").indexes(&[&BY_MAIL, &AGAIN]);
    assert!(refusal(&twice, &db).contains("twice.mail"), "{}", refusal(&twice, &db));
    let unnamed = TableDefinition::<u32, String>::new("unnamed").indexes(&[&NO_NAME]);
    assert!(refusal(&unnamed, &db).contains("unnamed"));
    assert_eq!(db.families(), ["default", "tidesdb-typed", "users", "users.mail"]);
}

/// The catalogue is a family too. A program may have one of that name, with rows that look like anything.
#[test]
fn rows_that_are_no_catalogue_are_not_read_as_one() {
    let (_dir, db) = open();
    let plain = db.create_family("tidesdb-typed", FamilyOptions::default()).unwrap();
    let mails = db.create_family("users.mail", FamilyOptions::default()).unwrap();
    mails.put("k", "v").unwrap();
    plain.put(encode::<(String, String)>(("users", "mail")), "mine").unwrap();
    let said = refusal(&PLAIN, &db);
    assert!(said.contains("catalogue") && said.contains("tidesdb-typed"), "{said}");
    assert_eq!((count(&db, "tidesdb-typed"), count(&db, "users.mail")), (1, 1));
}

/// Dropping the family of a table left its indexes, and their rows in the catalogue.
#[test]
fn a_dropped_table_begins_anew() {
    let (_dir, db) = open();
    let users = USERS.open(&db).unwrap();
    fill(&users, 0..9);
    db.drop_family("users").unwrap();
    let users = USERS.open(&db).unwrap();
    assert_eq!((users.iter().unwrap().count(), users.check_indexes().unwrap()), (0, 0));
    users.put(20, "0@x").unwrap(); // a key that a row of the dropped table had
    assert_eq!(users.by(&BY_MAIL).get("0@x").unwrap(), Some((20, "0@x".to_owned())));

    db.drop_family("users").unwrap();
    const OTHER: TableDefinition<u64, u8> = TableDefinition::new("users");
    OTHER.open(&db).unwrap().put(1, 1).unwrap();
    assert!(!db.has_family("users.mail"), "the new table lists no index");
    assert!(refusal(&USERS, &db).contains("created as u64 -> u8"), "{}", refusal(&USERS, &db));
}

#[test]
fn a_renamed_table_is_another_one() {
    let (_dir, db) = open();
    let old = USERS.open(&db).unwrap();
    fill(&old, 0..9);
    db.rename_family("users", "people").unwrap();
    let users = USERS.open(&db).unwrap();
    assert_eq!(users.check_indexes().unwrap(), 0);
    fill(&users, 5..7);
    let people = TableDefinition::<u32, String>::new("people").indexes(&[&BY_MAIL]).open(&db).unwrap();
    assert_eq!((people.check_indexes().unwrap(), users.check_indexes().unwrap()), (9, 2));
    assert!(old.put(99, "99@x").is_err(), "the index of the handle is gone");
    assert_eq!(people.check_indexes().unwrap(), 9);

    // Back, with an index of other rows under the same name.
    db.drop_family("users").unwrap();
    db.rename_family("people", "users").unwrap();
    let users = USERS.open(&db).unwrap();
    assert_eq!(users.check_indexes().unwrap(), 9);
    assert_eq!(users.by(&BY_MAIL).get("8@x").unwrap(), Some((8, "8@x".to_owned())));
}

/// A family of other rows under the name of a table opened, and failed at the first read.
#[test]
fn a_family_of_other_rows_is_refused() {
    let (_dir, db) = open();
    fill(&USERS.open(&db).unwrap(), 0..3);
    const ORDERS: TableDefinition<i32, u32> = TableDefinition::new("orders");
    ORDERS.open(&db).unwrap().put(1, 2).unwrap();
    db.drop_family("users").unwrap();
    db.rename_family("orders", "users").unwrap();
    let said = refusal(&TableDefinition::<u32, u32>::new("users"), &db);
    assert!(said.contains("users") && said.contains("i32 -> u32"), "{said}");
    let error = USERS.open(&db).unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    assert_eq!(count(&db, "users"), 1);
    assert!(TableDefinition::<i32, u32>::new("users").open(&db).unwrap().get(1).unwrap() == Some(2));

    // A family that no table made: its first and its last row tell.
    let plain = db.create_family("plain", FamilyOptions::default()).unwrap();
    plain.put(encode::<u32>(7), "seven").unwrap();
    let table = TableDefinition::<u32, String>::new("plain");
    assert_eq!(table.open(&db).unwrap().get(7).unwrap().as_deref(), Some("seven"));
    let other = db.create_family("other", FamilyOptions::default()).unwrap();
    other.put(encode::<u32>(7), "seven").unwrap();
    other.put("z", "any").unwrap();
    let said = refusal(&TableDefinition::<u32, String>::new("other"), &db);
    assert!(said.contains("other") && said.contains("u32"), "{said}");
    assert_eq!(count(&db, "other"), 2);
}

/// A family that took the name of a dropped index is not dropped with the index.
#[test]
fn an_index_that_is_no_longer_listed_is_dropped_by_its_identity() {
    let (_dir, db) = open();
    fill(&USERS.open(&db).unwrap(), 0..9);
    db.rename_family("users.mail", "kept").unwrap();
    let plain = db.create_family("users.mail", FamilyOptions::default()).unwrap();
    plain.put("k", "v").unwrap();
    assert!(refusal(&USERS, &db).contains("users.mail"));
    let said = refusal(&TableDefinition::<String, Vec<u8>>::new("kept"), &db);
    assert!(said.contains("entries of index mail of table users"), "{said}");
    drop(PLAIN.open(&db).unwrap());
    assert_eq!((count(&db, "users.mail"), count(&db, "kept")), (1, 9));
    db.drop_family("users.mail").unwrap();
    assert_eq!(USERS.open(&db).unwrap().check_indexes().unwrap(), 9);
    assert_eq!(count(&db, "kept"), 9);
}

/// Writes the catalogue as it was before families had a number in it, or as a dump of another database has it.
fn by_names(db: &Db, rows: &[(&str, &str, &str)]) {
    let catalogue = db.family_or_create("tidesdb-typed", FamilyOptions::default()).unwrap();
    catalogue.delete_range(..).unwrap();
    for (table, index, text) in rows {
        catalogue.put(encode::<(String, String)>((*table, *index)), text).unwrap();
    }
}

#[test]
fn a_catalogue_of_names_alone_is_taken_over() {
    let (dir, db) = open();
    let users = USERS.open(&db).unwrap();
    fill(&users, 0..9);
    let first = db.family("users.mail").unwrap().id();
    by_names(&db, &[("users", "", "u32 -> String"), ("users", "mail", "unique String")]);
    let view = Db::options(dir.path()).open_reader().unwrap().view();
    assert_eq!(USERS.open(&view).unwrap().check_indexes().unwrap(), 9, "a reader cannot change it");
    assert!(refusal(&DOTTED, &db).contains("index mail of table users"));
    assert_eq!(USERS.open(&db).unwrap().check_indexes().unwrap(), 9);
    assert_eq!(db.family("users.mail").unwrap().id(), first, "it is not built again");
    drop(PLAIN.open(&db).unwrap());
    assert!(!db.has_family("users.mail"), "the catalogue named it");
}

/// Two rows of the old catalogue name one family: it is the table's, and nothing of it is deleted.
#[test]
fn a_clash_in_a_catalogue_of_names_deletes_nothing() {
    let (_dir, db) = open();
    fill(&PLAIN.open(&db).unwrap(), 0..3);
    let dotted = DOTTED.open(&db).unwrap();
    fill(&dotted, 0..1000);
    let string = "u32 -> String";
    by_names(&db, &[("users", "", string), ("users", "mail", "unique String"), ("users.mail", "", string)]);
    assert!(refusal(&USERS, &db).contains("table users.mail"), "{}", refusal(&USERS, &db));
    drop(PLAIN.open(&db).unwrap());
    assert_eq!(DOTTED.open(&db).unwrap().iter().unwrap().count(), 1000);
}

/// Each file of a database can be dumped and loaded elsewhere: then no family has the number that the catalogue names.
#[test]
fn a_catalogue_of_another_database_is_taken_over_by_names() {
    let (_dir, db) = open();
    TableDefinition::<u32, String>::new("zoo").open(&db).unwrap().put(1, "ape").unwrap();
    fill(&USERS.open(&db).unwrap(), 0..9);
    let (_other, copy) = open();
    for name in ["users.mail", "zoo", "users", "tidesdb-typed"] {
        let to = copy.create_family(name, FamilyOptions::default()).unwrap();
        for row in db.family(name).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            to.put(&key, &value).unwrap();
        }
    }
    assert_eq!(USERS.open(&copy).unwrap().check_indexes().unwrap(), 9);
    assert_eq!(count(&copy, "zoo"), 1);
    assert!(refusal(&TableDefinition::<u32, u8>::new("zoo"), &copy).contains("created as u32 -> String"));
}

/// Runs `work` on a copy of `disk`, and returns the disk as it was before each change.
fn before_each_change(disk: &SimDisk, work: impl FnOnce(&Db)) -> Vec<SimDisk> {
    let forks: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
    let taken = Arc::clone(&forks);
    let (db, disk) = open_on(disk.fork());
    disk.observe(OpSet::CHANGES, move |_, fork| taken.lock().unwrap().push(fork));
    work(&db);
    disk.stop_observing();
    let mut forks = std::mem::take(&mut *forks.lock().unwrap());
    forks.push(disk.fork());
    forks
}

fn open_on(disk: SimDisk) -> (Db, Arc<SimDisk>) {
    let (env, disk, _clock) = sim::env_on(disk, 7);
    disk.log_ops(false);
    let with = |o: &mut tidesdb::DbOptions| (o.disk_free_min, o.wal_segment_bytes) = (0, 64 << 10);
    (Db::options("/db").env(env).background_threads(0).with(with).open().unwrap(), disk)
}

/// A crash at any moment of an open that builds or drops an index leaves a state from which each definition opens.
#[test]
fn a_crash_within_an_open_leaves_rows_and_names_as_they_were() {
    let (db, disk) = open_on(SimDisk::new(7));
    fill(&PLAIN.open(&db).unwrap(), 0..20);
    db.create_family("other", FamilyOptions::default()).unwrap().put("k", "v").unwrap();
    drop(db);
    let built = before_each_change(&disk, |db| drop(USERS.open(db).unwrap()));
    let dropped = before_each_change(built.last().unwrap(), |db| drop(PLAIN.open(db).unwrap()));
    let anew = before_each_change(built.last().unwrap(), |db| {
        db.drop_family("users").unwrap();
        drop(USERS.open(db).unwrap());
    });
    assert!(built.len() > 4 && dropped.len() > 4 && anew.len() > 4);
    for (disks, rows) in [(built, &[20][..]), (dropped, &[20]), (anew, &[20, 0])] {
        for disk in disks {
            for with_index in [true, false] {
                let (db, _disk) = open_on(disk.fork());
                let definition = if with_index { USERS } else { PLAIN };
                let users = definition.open(&db).unwrap();
                let found = users.check_indexes().unwrap();
                assert!(rows.contains(&(found as usize)), "{found}");
                assert_eq!(count(&db, "other"), 1);
                // Before the catalogue names it, the family of an index is empty, and stays until an index takes it.
                assert!(with_index || !db.has_family("users.mail") || count(&db, "users.mail") == 0);
                users.put(7, "new").unwrap();
                drop(PLAIN.open(&db).unwrap());
                USERS.open(&db).unwrap().check_indexes().unwrap();
            }
        }
    }
}
