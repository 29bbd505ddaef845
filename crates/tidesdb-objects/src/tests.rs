//! Tests of the bridge, alone and with a database.

mod conditions;
mod directory;
mod features;
#[cfg(feature = "s3")]
mod s3;

use super::*;

/// The store of the other crate syncs names on Unix only.
#[test]
fn names_are_synced_where_the_store_does_not() {
    let temp = tempfile::tempdir().unwrap();
    let store = directory(temp.path()).unwrap();
    assert_eq!(store.unsynced.is_some(), cfg!(windows));
    let of = |dir: PathBuf| Bridge { unsynced: Some(dir), ..store.clone() };
    for len in [1, PART_BYTES + 1] {
        let bytes = vec![7; len];
        of(temp.path().to_owned()).put("one", &Body::bytes(&bytes)).unwrap();
        assert!(
            of(temp.path().join("none")).put("one", &Body::bytes(&bytes)).is_err(),
            "it is synced: {len}"
        );
    }
}
