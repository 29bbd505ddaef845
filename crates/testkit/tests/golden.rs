//! Databases in the format of the first release can be opened by this version, return every row, accept writes, and can be
//! reopened.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::golden::{FAMILIES, Rows, by_length, configured, expected, expiry_of, options_of};
use tidesdb::{Db, OpenOptions};
use tidesdb_io::{Env, FileExt, sim};

/// Returns the two databases.
fn databases() -> [PathBuf; 2] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/1");
    ["closed", "killed"].map(|name| root.join(name))
}

/// Returns a simulated machine with the files of `from` in its folder `db`. The machine has another boot identity, so
/// nothing that the log records about earlier boots applies.
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

/// Returns the rows of a family in its key order.
fn in_order(family: usize, rows: &Rows) -> Vec<(Vec<u8>, Vec<u8>)> {
    let order = options_of(family).comparator;
    let mut rows: Vec<_> = rows.clone().into_iter().collect();
    rows.sort_by(|a, b| order.compare(&a.0, &b.0));
    rows
}

/// Checks scans in both directions, every get, and the settings, except for the families in `skip`.
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
            if key.starts_with(b"far ") {
                let mut cursor = family.cursor().unwrap();
                cursor.seek(key).unwrap();
                assert_eq!((cursor.key(), cursor.expiry()), (&**key, expiry_of(key)), "{name}");
            }
        }
        let (stored, given) = (family.current_options(), options_of(number));
        assert_eq!(stored.comparator.name(), given.comparator.name(), "{name}");
        assert_eq!(format!("{stored:?}"), format!("{given:?}"), "{name}");
    }
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn all_rows_are_kept_through_writes_and_reopens() {
    for path in databases() {
        let env = machine(&path);
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
    for path in databases() {
        let env = machine(&path);
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

/// A tool reads the families whose comparators it knows; the log of the killed database has operations of the other one.
#[test]
fn a_family_is_left_out_without_its_comparator() {
    for path in databases() {
        let env = machine(&path);
        let rows = expected();
        let locked = options(&env).lock().unwrap();
        let missing = locked.missing_comparators().unwrap();
        assert_eq!(missing, [("by length".to_owned(), "golden.by-length".to_owned())]);
        drop(locked);
        let db = options(&env).allow_unknown(true).read_only(true).open().unwrap();
        check(&db, &rows, &["by length"]);
        drop(db);
        let db = options(&env).lock().unwrap().open([by_length()]).unwrap();
        check(&db, &rows, &[]);
    }
}

/// Plausibility of the expected rows: some are old, some new, and deleted ones are not among them.
#[test]
fn the_expected_rows_are_plausible() {
    for (family, rows) in expected().iter().enumerate() {
        assert!(rows.len() > 15, "{family}");
        assert!(!rows.keys().any(|key| key.starts_with(b"once")));
        let far = rows.keys().filter(|key| key.starts_with(b"far")).count();
        assert_eq!(far, if FAMILIES[family] == "levels" { 1 } else { 4 });
        assert!(rows.keys().is_sorted_by(|a, b| a.cmp(b) == Ordering::Less));
    }
}

/// The databases have tables of several padded blocks in three levels, range tombstones over them,
/// expiries in milliseconds in tables and in the log, and a default TTL.
#[test]
fn the_databases_cover_the_format() {
    for path in databases() {
        let bytes: u64 =
            fs::read_dir(&path).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes < 200 << 10, "{}: {bytes} bytes", path.display());
        let mut manifest = String::new();
        let damage = tidesdb::inspect::manifest(&path, &mut |line| manifest.push_str(line)).unwrap();
        assert!(damage.is_empty(), "{damage:?}");
        let db = options(&machine(&path)).comparator(by_length()).read_only(true).open().unwrap();
        let stats = db.family("levels").unwrap().stats();
        assert!(stats.level_tables.len() >= 3 && stats.level_tables.iter().all(|n| *n > 0), "{stats:?}");
        assert!(stats.range_tombstones > 0, "{stats:?}");
        assert_eq!(db.family("levels").unwrap().current_options().default_ttl.subsec_millis(), 250);
        let mut shown = String::new();
        for file in fs::read_dir(&path).unwrap() {
            let file = file.unwrap().file_name().into_string().unwrap();
            if file.ends_with(".klog") {
                // One family has its own order, which `inspect` does not know.
                let _ = tidesdb::inspect::table(&path, &file, true, &mut |line| shown.push_str(line));
            }
        }
        assert!(shown.contains("expires 4102444800.250"), "{shown}");
    }
}
