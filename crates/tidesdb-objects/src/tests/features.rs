//! What a build lacks: built alone, this crate has the engine's default features only.

use std::path::Path;

use tidesdb::{Compression, Db, Error, FamilyOptions};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotBuiltIn { feature: "zstd" }) && !error.is_corruption() && !error.is_retryable()
}

#[test]
fn a_family_with_an_algorithm_that_is_not_built_in_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    let small = FamilyOptions::default().compression(Compression::Zstd);
    let made = db.create_family("small", small);
    match made {
        Ok(_) => assert!(Compression::Zstd.is_built_in()),
        Err(error) => {
            assert!(is_missing(&error), "{error}");
            assert!(db.family("small").is_err());
        }
    }
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Returns the files that hold rows, with their contents.
fn rows(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut all: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| [".klog", ".vlog", ".wal"].iter().any(|end| name.ends_with(end)))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_stored_database_with_an_algorithm_that_is_not_built_in_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidesdb/tests/golden/1/closed"), dir.path());
    let before = rows(dir.path());
    assert!(before.iter().any(|(name, _)| name.ends_with(".klog")));
    match Db::options(dir.path()).allow_unknown(true).read_only(true).open() {
        Ok(_) => assert!(Compression::Zstd.is_built_in()),
        Err(error) => {
            assert!(matches!(error, Error::NotBuiltIn { .. }), "{error}");
            assert!(rows(dir.path()) == before, "a refused open changed files");
        }
    }
}
