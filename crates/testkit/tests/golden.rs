//! Databases of every released format open with this version, return every row, accept writes, and do so again after a reopen.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::golden::{FAMILIES, Rows, by_length, configured, expected, options_of};
use tidesdb::{Db, OpenOptions};
use tidesdb_io::{Env, FileExt, sim};

/// Returns the folders of all formats, each with its two databases.
fn databases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let formats = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<_> = formats.flat_map(|format| ["closed", "killed"].map(|name| format.join(name))).collect();
    assert!(all.len() >= 2);
    all
}

/// Creates a simulated machine with the files of `from` in its folder `db`. It was never booted before, so no boot identity in the
/// log matches.
fn machine(from: &Path) -> Env {
    let (env, ..) = sim::env(1);
    let dir = env.disk.open_dir(Path::new("db"), true).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let file = dir.create_new(&name, 0).unwrap();
        file.write_all_at(&fs::read(entry.path()).unwrap(), 0).unwrap();
        file.sync_all().unwrap();
    }
    dir.sync().unwrap();
    env
}

fn options(env: &Env) -> OpenOptions {
    configured(Db::options("db")).env(env.clone())
}

/// Returns the rows of a family in its order.
fn in_order(family: usize, rows: &Rows) -> Vec<(Vec<u8>, Vec<u8>)> {
    let order = options_of(family).comparator;
    let mut rows: Vec<_> = rows.clone().into_iter().collect();
    rows.sort_by(|a, b| order.compare(&a.0, &b.0));
    rows
}

/// Checks scans in both directions, every get, and the settings, except for families that `skip` names.
fn check(db: &Db, rows: &[Rows], skip: &[&str]) {
    for (number, name) in FAMILIES.iter().enumerate().filter(|(_, name)| !skip.contains(name)) {
        let family = db.family(name).unwrap();
        let wanted = in_order(number, &rows[number]);
        let row = |row: tidesdb::Result<(tidesdb::Slice, tidesdb::Slice)>| {
            row.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
        };
        let found: Vec<_> = family.iter().unwrap().map(row).collect();
        assert_eq!(found, wanted, "{name}, forwards");
        let mut back: Vec<_> = family.iter().unwrap().rev().map(row).collect();
        back.reverse();
        assert_eq!(back, wanted, "{name}, backwards");
        for (key, value) in &rows[number] {
            assert_eq!(family.get(key).unwrap().as_deref(), Some(&**value), "{name}: {key:?}");
        }
        let (stored, given) = (family.options(), options_of(number));
        assert_eq!(stored.comparator.name(), given.comparator.name(), "{name}");
        assert_eq!(format!("{stored:?}"), format!("{given:?}"), "{name}");
    }
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn every_row_is_there_and_survives_a_reopen() {
    for database in databases() {
        let env = machine(&database);
        let mut rows = expected();
        let db = options(&env).comparator(by_length()).open().unwrap();
        check(&db, &rows, &[]);
        for (family, name) in FAMILIES.iter().enumerate() {
            db.family(name).unwrap().put(b"new", b"row").unwrap();
            rows[family].insert(b"new".to_vec(), b"row".to_vec());
        }
        db.flush().unwrap();
        check(&db, &rows, &[]);
        db.compact().unwrap();
        check(&db, &rows, &[]);
        db.close().unwrap();
        let db = options(&env).comparator(by_length()).open().unwrap();
        check(&db, &rows, &[]);
    }
}

#[test]
fn a_reader_changes_no_file() {
    for database in databases() {
        let env = machine(&database);
        let dir = env.disk.open_dir(Path::new("db"), false).unwrap();
        let names = |dir: &dyn tidesdb_io::Dir| {
            let mut names = dir.list().unwrap();
            names.sort();
            names
        };
        let before = names(&*dir);
        let db = options(&env).comparator(by_length()).read_only(true).open().unwrap();
        check(&db, &expected(), &[]);
        drop(db);
        assert_eq!(names(&*dir), before);
    }
}

/// The log of the killed database holds operations of a family whose comparator is not registered at first.
#[test]
fn an_unresolved_family_is_resolved_by_its_comparator() {
    for database in databases() {
        let env = machine(&database);
        let rows = expected();
        let db = options(&env).await_comparators(true).open().unwrap();
        assert_eq!(db.waiting_families(), [("by length".to_owned(), "golden.by-length".to_owned())]);
        check(&db, &rows, &["by length"]);
        db.close().unwrap();
        let db = options(&env).await_comparators(true).open().unwrap();
        db.register_comparator(by_length()).unwrap();
        check(&db, &rows, &[]);
    }
}

/// Checks the expected rows: some are old, some new, and deleted ones are not among them.
#[test]
fn the_expected_rows_follow_from_the_steps() {
    for (family, rows) in expected().iter().enumerate() {
        assert!(rows.len() > 60, "{family}");
        assert!(!rows.keys().any(|key| key.starts_with(b"once")));
        assert_eq!(rows.keys().filter(|key| key.starts_with(b"far")).count(), 4);
        assert!(rows.keys().is_sorted_by(|a, b| a.cmp(b) == Ordering::Less));
    }
}
