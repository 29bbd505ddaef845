//! Conditional puts, tags and ranges, of a directory and of a store of the other crate; backups in both.

use std::sync::Arc;

use tidesdb::backup::Backups;
use tidesdb::store::{Body, Condition, ObjectStore, Tag};
use tidesdb::{Db, SyncMode};

use super::stores;

fn tag(store: &dyn ObjectStore, name: &str) -> Tag {
    store.get_tagged(name, &mut |_| Ok(())).unwrap()
}

#[test]
fn a_put_with_a_condition_changes_nothing_unless_it_holds() {
    let temp = tempfile::tempdir().unwrap();
    stores(temp.path()).iter().for_each(|store| conditional_puts(&**store));
}

/// Puts with conditions that hold and that do not, in an empty store.
pub(super) fn conditional_puts(store: &dyn ObjectStore) {
    let put =
        |bytes: &[u8], condition: Condition<'_>| store.put_if("one", &Body::bytes(bytes), condition).unwrap();
    let first = put(b"first", Condition::Absent).unwrap();
    assert_eq!(tag(store, "one"), first);
    assert!(put(b"other", Condition::Absent).is_none());
    let second = put(b"second", Condition::Tagged(&first)).unwrap();
    assert!(put(b"other", Condition::Tagged(&first)).is_none());
    store.put("one", &Body::bytes(b"third")).unwrap();
    assert!(put(b"other", Condition::Tagged(&second)).is_none(), "a plain put changes the tag");
    let mut bytes = Vec::new();
    store
        .get("one", &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
    assert_eq!(bytes, b"third");
    let third = tag(store, "one");
    store.delete("one").unwrap();
    assert!(put(b"other", Condition::Tagged(&third)).is_none());
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn a_range_is_exact() {
    let temp = tempfile::tempdir().unwrap();
    stores(temp.path()).iter().for_each(|store| ranges(&**store));
}

/// Reads ranges within an object and beyond it.
pub(super) fn ranges(store: &dyn ObjectStore) {
    store.put("one", &Body::bytes(b"0123456789")).unwrap();
    let read = |range: std::ops::Range<u64>| {
        let mut bytes = Vec::new();
        store.get_range("one", range, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        std::io::Result::Ok(bytes)
    };
    assert_eq!(read(3..7).unwrap(), b"3456");
    assert_eq!(read(0..10).unwrap(), b"0123456789");
    assert!(read(5..5).unwrap().is_empty());
    assert!(read(5..11).is_err() && read(10..12).is_err());
}

#[test]
fn backups_are_kept_in_both() {
    let temp = tempfile::tempdir().unwrap();
    stores(temp.path()).into_iter().for_each(backups);
}

/// Makes a generation in an empty store, and restores it.
pub(super) fn backups(store: Arc<dyn ObjectStore>) {
    let temp = tempfile::tempdir().unwrap();
    let db = Db::options(temp.path().join("db")).sync(SyncMode::None).open().unwrap();
    let long = vec![7; 20 << 20];
    db.put("long", &long).unwrap();
    let backups = Backups::new(store);
    let made = backups.create(&db).unwrap();
    assert!(backups.verify(made.number).unwrap().is_ok());
    let path = temp.path().join("restored");
    backups.restore(made.number, &path).unwrap();
    assert!(*Db::open(path).unwrap().get("long").unwrap().unwrap() == long[..]);
    assert_eq!(backups.create(&db).unwrap().bytes_copied, 0);
}
