//! What flushes learn about the values that newer tables hide.

use super::Rig;
use crate::codec::Compression;
use crate::types::Kind;

/// Flushes a memtable with these keys, whose values are in a value log.
fn flush(rig: &Rig, keys: std::ops::Range<u32>) {
    for key in keys {
        let pointer = rig.family.vlog.append(&[7; 4096], Compression::None).unwrap();
        rig.commit(format!("{key:04}").as_bytes(), Kind::PutPointer, &pointer.encode());
    }
    rig.flush().unwrap();
}

fn hides_many(rig: &Rig) -> bool {
    rig.family.hides_many_values(&rig.family.owned_view().version)
}

/// Regression: while new keys were loaded, all tables of level 1 but the oldest counted as if they hid values. Merges looked for these, and
/// writers waited for garbage that did not exist.
#[test]
fn new_keys_hide_no_values_and_old_ones_do_at_once() {
    let rig = Rig::new();
    for n in 0..3 {
        flush(&rig, 60 * n..60 * (n + 1));
    }
    assert!(!hides_many(&rig));
    flush(&rig, 0..60);
    assert!(hides_many(&rig));
}

/// As after an open: nobody knows what the tables hide.
#[test]
fn tables_of_unknown_flushes_may_hide_values() {
    let rig = Rig::new();
    for n in 0..3 {
        flush(&rig, 60 * n..60 * (n + 1));
    }
    rig.family.collection.note_new_keys(0.0);
    assert!(hides_many(&rig));
}
