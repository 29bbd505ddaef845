//! Stores of the other crate and in a directory, on their own and with a database.

#![expect(clippy::disallowed_methods, reason = "the test starts its own threads")]

use std::io;
use std::sync::Arc;

use tidesdb::store::{Body, DirectoryStore};
use tidesdb::{Db, ObjectStore, RemoteOptions};

use super::stores;

fn bytes_of(store: &dyn ObjectStore, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    store.get(name, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

#[test]
fn objects_are_stored_replaced_listed_and_deleted() {
    let temp = tempfile::tempdir().unwrap();
    stores(temp.path()).iter().for_each(|store| each_call(&**store));
}

/// Stores, replaces, lists and deletes objects of an empty store.
pub(super) fn each_call(store: &dyn ObjectStore) {
    assert!(store.list().unwrap().is_empty());
    let long: Vec<u8> = (0..20 << 20).map(|i: u32| (i >> 10) as u8).collect();
    store.put("000001.klog", &Body::bytes(&long)).unwrap();
    store.put("CURRENT", &Body::bytes(b"one")).unwrap();
    store.put("CURRENT", &Body::bytes(b"two")).unwrap();
    store.put("000003.vlog.000000000000", &Body::bytes(b"")).unwrap();
    assert!(bytes_of(store, "000001.klog").unwrap() == long);
    assert_eq!(bytes_of(store, "CURRENT").unwrap(), b"two");
    let mut list: Vec<(String, u64)> =
        store.list().unwrap().into_iter().map(|object| (object.name, object.bytes)).collect();
    list.sort();
    let wanted = [("000001.klog", 20 << 20), ("000003.vlog.000000000000", 0), ("CURRENT", 3)];
    assert_eq!(list, wanted.map(|(name, bytes)| (name.to_owned(), bytes)));
    store.delete("CURRENT").unwrap();
    store.delete("CURRENT").unwrap();
    assert_eq!(bytes_of(store, "CURRENT").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_body_that_cannot_be_read_leaves_the_object_as_it_was() {
    let temp = tempfile::tempdir().unwrap();
    stores(temp.path()).iter().for_each(|store| an_unreadable_body(&**store));
}

/// Puts a file that is shorter than it is said to be.
pub(super) fn an_unreadable_body(store: &dyn ObjectStore) {
    let temp = tempfile::tempdir().unwrap();
    store.put("000001.klog", &Body::bytes(b"whole")).unwrap();
    let short = tidesdb_io_file(temp.path());
    assert!(store.put("000001.klog", &Body::file(&*short, 0, 20 << 20)).is_err());
    assert_eq!(bytes_of(store, "000001.klog").unwrap(), b"whole");
    assert_eq!(store.list().unwrap().len(), 1);
}

/// A file of 9 MiB.
fn tidesdb_io_file(dir: &std::path::Path) -> Arc<dyn tidesdb_io::File> {
    use tidesdb_io::{Disk, RealDisk};
    RealDisk::new().open_dir(dir, false).unwrap().create_new("short", 9 << 20).unwrap()
}

#[test]
fn a_database_with_threads_comes_back_after_its_folder_is_removed() {
    let temp = tempfile::tempdir().unwrap();
    stores(temp.path()).iter().for_each(|store| comes_back(&|| Arc::clone(store)));
    comes_back(&|| Arc::new(DirectoryStore::open(temp.path().join("again")).unwrap()));
}

/// Writes a database with threads, removes its folder, and opens it again. Each open gets a new handle of the store.
pub(super) fn comes_back(store: &dyn Fn() -> Arc<dyn ObjectStore>) {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("db");
    let open = || Db::options(&folder).remote(RemoteOptions::new(store())).open().unwrap();
    let value = |i: u32, n: usize| i.to_le_bytes().repeat(n);
    let db = open();
    let writers: Vec<_> = (0..4u32)
        .map(|t| {
            let db = db.clone();
            std::thread::spawn(move || {
                for i in 0..2000 {
                    let i = t * 2000 + i;
                    db.put(&i.to_le_bytes(), &i.to_le_bytes().repeat(1 + 300 * (i as usize % 2))).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..10 {
        db.upload().unwrap(); // while threads write
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    db.upload().unwrap();
    db.clone().abandon(); // closes without another upload
    drop(db);
    std::fs::remove_dir_all(&folder).unwrap();
    let db = open();
    for i in 0..8000u32 {
        let wanted = value(i, 1 + 300 * (i as usize % 2));
        assert_eq!(db.get(&i.to_le_bytes()).unwrap().as_deref(), Some(&*wanted), "{i}");
    }
    db.close().unwrap();
}
