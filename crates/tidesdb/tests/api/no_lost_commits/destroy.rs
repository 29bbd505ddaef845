//! Removing a database: all of it, nothing else, and never a part that would be opened.

use std::fs;

use tidesdb::{Db, Error};
use tidesdb_io::sim::{Fault, Image, OpKind, errno};

use crate::common::{DB, Sim, contents, fill, noise, small};

#[test]
fn only_the_files_of_the_database_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let db = Db::open(&path).unwrap();
    db.create_family("two", small()).unwrap().put("k", noise(1, 100_000)).unwrap();
    fill(db.default_family(), 1000, b"value");
    db.flush().unwrap();
    assert!(matches!(Db::destroy(&path), Err(Error::Locked { .. })));
    assert_eq!(contents(db.default_family()).len(), 1000);
    db.close().unwrap();
    fs::write(path.join("000001.klog.orphan"), "set aside").unwrap();
    fs::write(path.join("LOG"), "of the C library").unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    fs::create_dir(path.join("000009.wal")).unwrap(); // no file, so not of the engine
    Db::destroy(&path).unwrap();
    let left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter().all(|name| ["notes.txt", "LOCK", "000009.wal"].iter().any(|kept| name == kept)),
        "{left:?}"
    );
    fs::remove_dir(path.join("000009.wal")).unwrap();
    assert_eq!(fs::read(path.join("notes.txt")).unwrap(), b"mine");
    assert!(matches!(Db::destroy(&path), Err(Error::NotFound { .. })));
    let db = Db::open(&path).unwrap();
    assert!(db.families() == ["default"] && db.get("key000001").unwrap().is_none());
    db.close().unwrap();
    fs::remove_file(path.join("notes.txt")).unwrap();
    Db::destroy(&path).unwrap();
    assert!(!path.exists());
}

#[test]
fn what_is_no_database_stays() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Db::destroy(""), Err(Error::InvalidArgument { .. })));
    assert!(matches!(Db::destroy(dir.path().join("missing")), Err(Error::NotFound { .. })));
    // An empty folder, and a database of LevelDB.
    assert!(matches!(Db::destroy(dir.path()), Err(Error::NotFound { .. })));
    let foreign =
        [("CURRENT", "MANIFEST-000004\n"), ("LOCK", ""), ("MANIFEST-000004", "x"), ("000003.log", "y")];
    for (name, text) in foreign {
        fs::write(dir.path().join(name), text).unwrap();
    }
    assert!(matches!(Db::destroy(dir.path()), Err(Error::Corrupt { .. })));
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    assert!(matches!(Db::destroy(dir.path()), Err(Error::NotFound { .. })));
    for (name, text) in &foreign[1..] {
        assert_eq!(fs::read(dir.path().join(name)).unwrap(), text.as_bytes());
    }
}

/// A part of the files without those that show that there was a database was found by nobody: orphans may take gigabytes.
#[test]
fn a_second_call_removes_what_the_first_one_has_left() {
    for name in ["RESERVE", "EVENTS", "000009.klog.orphan", "000001.manifest", "CURRENT"] {
        let sim = Sim::new();
        sim.open().close().unwrap();
        sim.disk.write_file(format!("{DB}/000009.klog.orphan"), b"set aside").unwrap();
        sim.disk.inject(Fault::errno(errno::EIO).on(OpKind::Unlink).path_ends(name));
        let first = sim.options().destroy();
        let is_there = sim.disk.file_names(DB).is_ok_and(|names| names.iter().any(|n| n != "LOCK"));
        assert!(matches!(first, Err(Error::Io { .. })) && is_there, "{name}: {first:?}");
        sim.options().destroy().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(sim.disk.file_names(DB).unwrap_or_default(), [""; 0], "{name}");
    }
}

#[test]
fn a_crash_leaves_the_whole_database_or_none() {
    let sim = Sim::new();
    let db = sim.open();
    db.create_family("two", small()).unwrap().put("k", noise(1, 3000)).unwrap();
    fill(db.default_family(), 50, &noise(2, 800));
    db.flush().unwrap();
    fill(db.default_family(), 60, b"newer");
    let expected = contents(db.default_family());
    db.close().unwrap();
    let states = sim.before_each_change(|| sim.options().destroy().unwrap());
    assert!(states.len() > 8, "{}", states.len());
    assert_eq!(sim.disk.file_names(DB).unwrap(), [""; 0]);
    let (mut whole, mut refused) = (0, 0);
    for (n, state) in states.iter().enumerate() {
        for lost in [state.fork(), state.crash_image(&Image::STANDARD[n % Image::STANDARD.len()], n as u64)] {
            let sim = Sim::on(lost);
            match sim.options_as_stored(DB).create_if_missing(false).open() {
                Ok(db) => {
                    whole += 1;
                    assert!(contents(db.default_family()) == expected, "before change {n}");
                    db.close().unwrap();
                }
                Err(Error::NotFound { .. }) => {}
                Err(Error::Corrupt { what, .. }) => {
                    refused += 1;
                    assert!(what.contains("missing, yet"), "before change {n}: {what}");
                }
                Err(e) => panic!("before change {n}: {e}"),
            }
            let again = sim.options_as_stored(DB).destroy();
            assert!(matches!(again, Ok(()) | Err(Error::NotFound { .. })), "before change {n}: {again:?}");
            let db = sim.open();
            assert!(db.families() == ["default"] && contents(db.default_family()).is_empty());
        }
    }
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
}
