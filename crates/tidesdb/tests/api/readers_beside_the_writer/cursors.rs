//! Cursors: seek, step, change of direction, refresh.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb::{Comparator, Cursor, Db, Error, FamilyOptions, ReadOptions};
use tidesdb_io::sim::OpKind;

use crate::common::{Sim, fill, letters, noise};

/// Creates a database with the letters b, d, f, h: two in a table, two in the memtable.
fn four(sim: &Sim) -> Db {
    let db = sim.open();
    letters(db.default_family(), "bfx");
    db.flush().unwrap();
    letters(db.default_family(), "dh");
    db.delete(b"x").unwrap();
    db
}

fn at(cursor: &Cursor) -> &str {
    if cursor.valid() { std::str::from_utf8(cursor.key()).unwrap() } else { "-" }
}

#[test]
fn seek_and_seek_for_prev() {
    let sim = Sim::new();
    let db = four(&sim);
    let mut c = db.cursor().unwrap();
    assert!(!c.valid(), "a new cursor has no position");
    for (target, forth, back) in [
        ("a", "b", "-"),
        ("b", "b", "b"),
        ("c", "d", "b"),
        ("d", "d", "d"),
        ("g", "h", "f"),
        ("h", "h", "h"),
        ("i", "-", "h"),
        ("x", "-", "h"),
        ("", "b", "-"),
    ] {
        c.seek(target.as_bytes()).unwrap();
        assert_eq!(at(&c), forth, "seek {target}");
        c.seek_for_prev(target.as_bytes()).unwrap();
        assert_eq!(at(&c), back, "seek_for_prev {target}");
    }
}

#[test]
fn a_cursor_changes_direction_at_every_position() {
    let sim = Sim::new();
    let db = four(&sim);
    let mut c = db.cursor().unwrap();
    c.seek_to_first().unwrap();
    let mut path = String::new();
    // n = next, p = prev
    for step in "nnppnnnpppnnn".chars() {
        path.push_str(at(&c));
        if step == 'n' { c.next().unwrap() } else { c.prev().unwrap() }
    }
    assert_eq!(path, "bdfdbdfhfdbdf");
    assert_eq!(at(&c), "h");
}

#[test]
fn a_cursor_changes_direction_after_a_seek() {
    let sim = Sim::new();
    let db = four(&sim);
    let mut c = db.cursor().unwrap();
    for (target, next, prev) in [("c", "f", "b"), ("d", "f", "b"), ("e", "h", "d")] {
        c.seek(target.as_bytes()).unwrap();
        c.next().unwrap();
        assert_eq!(at(&c), next);
        c.seek(target.as_bytes()).unwrap();
        c.prev().unwrap();
        assert_eq!(at(&c), prev);
        c.seek_for_prev(target.as_bytes()).unwrap();
        let here = at(&c).to_owned();
        c.next().unwrap();
        c.prev().unwrap();
        assert_eq!(at(&c), here);
    }
}

#[test]
fn past_the_ends() {
    let sim = Sim::new();
    let db = four(&sim);
    let mut c = db.cursor().unwrap();
    c.seek_to_last().unwrap();
    assert_eq!(at(&c), "h");
    c.next().unwrap();
    assert!(!c.valid());
    c.next().unwrap();
    c.prev().unwrap();
    assert!(!c.valid(), "past an end only a seek makes the cursor valid");
    assert!(matches!(c.value(), Err(Error::InvalidArgument { .. })));
    c.seek_to_first().unwrap();
    c.prev().unwrap();
    assert!(!c.valid());
    c.seek(b"d").unwrap();
    assert_eq!(at(&c), "d");
    assert_eq!(c.value().unwrap(), b"d");
}

#[test]
fn a_cursor_over_a_deleted_key_is_invalid() {
    let sim = Sim::new();
    let db = sim.open();
    db.put(b"k", b"v").unwrap();
    db.delete(b"k").unwrap();
    let mut c = db.cursor().unwrap();
    c.seek_to_first().unwrap();
    assert!(!c.valid());
    c.seek_to_last().unwrap();
    assert!(!c.valid());
    c.seek(b"k").unwrap();
    assert!(!c.valid());
    c.seek_for_prev(b"k").unwrap();
    assert!(!c.valid());
}

#[test]
fn refresh_sees_later_commits() {
    let sim = Sim::new();
    let db = four(&sim);
    let mut c = db.cursor().unwrap();
    let seq = c.seq();
    db.put(b"e", b"new").unwrap();
    db.delete(b"b").unwrap();
    c.seek(b"e").unwrap();
    assert_eq!(at(&c), "f");
    c.refresh().unwrap();
    assert!(!c.valid() && c.seq() > seq);
    c.seek_to_first().unwrap();
    assert_eq!(at(&c), "d");
    c.next().unwrap();
    assert_eq!(at(&c), "e");
}

#[test]
fn refresh_keeps_a_cursor_at_its_snapshot() {
    let sim = Sim::new();
    let db = four(&sim);
    let snapshot = db.snapshot();
    let mut c = snapshot.cursor(db.default_family()).unwrap();
    drop(snapshot);
    db.delete(b"b").unwrap();
    db.compact().unwrap();
    c.refresh().unwrap();
    c.seek_to_first().unwrap();
    assert_eq!(at(&c), "b");
}

#[test]
fn refresh_of_a_dropped_family_and_a_closed_database_fails() {
    let sim = Sim::new();
    let db = sim.open();
    let a = db.create_family("a", FamilyOptions::default()).unwrap();
    let (mut gone, mut closed) = (a.cursor().unwrap(), db.cursor().unwrap());
    db.drop_family("a").unwrap();
    assert!(matches!(gone.refresh(), Err(Error::NotFound { .. })));
    db.close().unwrap();
    assert!(matches!(closed.refresh(), Err(Error::Closed)));
}

#[test]
fn keys_only_has_no_values() {
    let sim = Sim::new();
    let db = four(&sim);
    let mut c = db.default_family().cursor_with(&ReadOptions::default().keys_only(true)).unwrap();
    c.seek_to_first().unwrap();
    assert_eq!(at(&c), "b");
    assert!(matches!(c.value(), Err(Error::InvalidArgument { .. })));
}

#[test]
fn values_are_read_when_asked_for_and_again_after_a_move() {
    let sim = Sim::new();
    let db = sim.open();
    for i in 0..50u8 {
        db.put(&[i], &noise(u64::from(i), if i % 2 == 0 { 3000 } else { 10 })).unwrap();
    }
    db.flush().unwrap();
    let mut c = db.cursor().unwrap();
    c.seek_to_last().unwrap();
    for i in (0..50u8).rev() {
        let expected = noise(u64::from(i), if i % 2 == 0 { 3000 } else { 10 });
        assert!(c.value().unwrap() == expected && c.value().unwrap() == expected);
        c.prev().unwrap();
    }
}

#[test]
fn many_seeks_over_many_tables() {
    let sim = Sim::new();
    let family = crate::common::small().write_buffer_bytes(32 << 10);
    let db = sim.options().default_family(family).open().unwrap();
    for i in 0..4000u32 {
        db.put(&(i.wrapping_mul(2_654_435_761) % 4000).to_be_bytes(), &i.to_be_bytes()).unwrap();
    }
    let exists: Vec<u32> =
        db.iter().unwrap().map(|kv| u32::from_be_bytes(kv.unwrap().0[..].try_into().unwrap())).collect();
    assert!(exists.is_sorted() && exists.len() > 1000);
    let mut c = db.cursor().unwrap();
    for target in (0..4100u32).step_by(7) {
        c.seek(&target.to_be_bytes()).unwrap();
        let i = exists.partition_point(|k| *k < target);
        let here = c.valid().then(|| u32::from_be_bytes(c.key().try_into().unwrap()));
        assert_eq!(here, exists.get(i).copied());
        c.seek_for_prev(&target.to_be_bytes()).unwrap();
        let here = c.valid().then(|| u32::from_be_bytes(c.key().try_into().unwrap()));
        let i = exists.partition_point(|k| *k <= target);
        assert_eq!(here, i.checked_sub(1).map(|i| exists[i]));
    }
}

#[test]
fn a_cursor_returns_the_version_of_its_entry() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 3, b"v");
    let seq = db.put(b"key000001", b"w").unwrap();
    let version = || {
        let mut c = db.cursor().unwrap();
        c.seek(b"key000001").unwrap();
        (c.version_seq(), c.expiry())
    };
    assert_eq!(version(), (seq, None));
    let snapshot = db.snapshot();
    let newer = db.put(b"key000001", b"x").unwrap();
    db.compact().unwrap();
    assert_eq!(version(), (newer, None), "a reader of the older version is left");
    drop(snapshot);
    db.put(b"key000009", b"x").unwrap();
    db.compact().unwrap();
    assert_eq!(version(), (0, None), "nobody needs the number any more");
}

#[test]
#[should_panic(expected = "the cursor is not on a row")]
fn the_key_of_a_cursor_past_the_end_panics_with_a_message() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("a", "v").unwrap();
    let mut cursor = db.cursor().unwrap();
    cursor.seek("b").unwrap();
    assert!(!cursor.valid());
    cursor.key();
}

/// A cursor that ran past the end of a table once forgot the values of its last block, and read them from the file when it came back.
#[test]
fn a_cursor_that_comes_back_from_the_end_reads_no_cached_block_again() {
    let sim = Sim::new();
    let db = sim.open();
    letters(db.default_family(), "bdfh");
    db.flush().unwrap();
    let mut first = db.cursor().unwrap();
    first.seek("f").unwrap(); // puts the block into the cache, and keeps the bytes that it has read
    assert!(!first.value().unwrap().is_empty());
    let mut cursor = db.cursor().unwrap();
    cursor.seek("f").unwrap();
    assert!(!cursor.value().unwrap().is_empty());
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    sim.disk.observe(OpKind::Read, move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    for key in ["f", "b", "h"] {
        cursor.seek("z").unwrap();
        assert!(!cursor.valid());
        cursor.seek(key).unwrap();
        assert_eq!(at(&cursor), key);
        assert!(!cursor.value().unwrap().is_empty());
    }
    assert_eq!(reads.load(Ordering::Relaxed), 0, "the block is in the cache");
}

/// Sources leave entries above the range of a cursor out. What it then found to be deleted must not include them.
#[test]
fn a_cursor_whose_range_was_widened_shows_what_lay_beyond_it() {
    let db = Sim::new().open();
    for n in 0..200 {
        db.put(format!("k{n:03}"), "deleted").unwrap();
    }
    db.put("p", "deleted").unwrap();
    db.flush().unwrap();
    let _keeps = db.snapshot();
    db.delete_range("k".."z").unwrap();
    db.flush().unwrap();
    db.put("n", "lives").unwrap();
    db.flush().unwrap();
    let mut cursor = db.cursor().unwrap();
    cursor.set_range(.."m");
    cursor.seek("k000").unwrap();
    assert!(!cursor.valid());
    cursor.set_range(..);
    for key in ["k050", "k100", "k000"] {
        cursor.seek(key).unwrap();
        assert_eq!(at(&cursor), "n");
    }
}

/// A custom order may rely on what keys a family has: it is never asked about others.
#[test]
fn an_order_is_asked_about_keys_of_the_family_only() {
    let number = |key: &[u8]| u64::from_be_bytes(key.try_into().expect("a key of 8 bytes"));
    let order = Comparator::custom("numbers", move |a, b| number(a).cmp(&number(b)));
    let db = Sim::new().open();
    let family = db.create_family("numbers", FamilyOptions::default().comparator(order)).unwrap();
    for n in 0..500u64 {
        family.put(n.to_be_bytes(), "").unwrap();
    }
    let _keeps = db.snapshot();
    for n in 0..250u64 {
        family.delete(n.to_be_bytes()).unwrap();
    }
    family.delete_range(250u64.to_be_bytes()..499u64.to_be_bytes()).unwrap();
    db.flush().unwrap();
    let mut cursor = family.cursor().unwrap();
    for _ in 0..3 {
        cursor.seek_to_first().unwrap();
        assert_eq!(cursor.key(), 499u64.to_be_bytes());
        cursor.prev().unwrap();
        assert!(!cursor.valid());
        cursor.seek_for_prev(400u64.to_be_bytes()).unwrap();
        assert!(!cursor.valid());
    }
}
