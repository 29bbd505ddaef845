//! Values borrowed in place, and reused transactions.

use std::ops::Deref;

use tidesdb::{Compression, Db, Error, Isolation, SyncMode, Transaction, WriteOptions};

use crate::common::{Sim, fill, noise, small, value};

/// Returns whether two nested reads see the same bytes at the same address.
fn in_place(tx: &Transaction, db: &Db, key: &[u8]) -> bool {
    let f = db.default_family();
    let read = || {
        tx.get_map(f, key, |outer| {
            tx.get_untracked_map(f, key, |inner| outer == inner && outer.as_ptr() == inner.as_ptr())
        })
    };
    read().unwrap(); // the first call may have to load it
    read().unwrap().unwrap().unwrap().unwrap()
}

#[test]
fn values_are_borrowed_from_memtable_block_and_own_writes() {
    for compression in [Compression::None, Compression::Lz4] {
        let sim = Sim::new();
        let db = sim.options().default_family(small().compression(compression)).open().unwrap();
        let mut tx = db.begin(Isolation::Serializable);
        fill(db.default_family(), 100, b"a value of some length, the same for each");
        tx.reset();
        assert!(in_place(&tx, &db, b"key000007"), "memtable");
        db.flush().unwrap();
        assert!(in_place(&tx, &db, b"key000007"), "block, {compression:?}");
        tx.put(db.default_family(), b"key000007", b"own").unwrap();
        assert!(in_place(&tx, &db, b"key000007"), "a short batch");
        for i in 0..50u8 {
            tx.put(db.default_family(), &[i], b"v").unwrap();
        }
        assert!(in_place(&tx, &db, b"key000007"), "a sorted batch");
        assert_eq!(tx.get_map(db.default_family(), b"key000007", <[u8]>::to_vec).unwrap().unwrap(), b"own");
    }
}

#[test]
fn a_get_with_callback_may_use_the_transaction() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut tx = db.begin(Isolation::Serializable);
    for n in [1u8, 40] {
        for i in 0..n {
            tx.put(f, &[b'k', i], &[i]).unwrap();
        }
        let seen = tx.get_map(f, b"k\0", |value| {
            assert_eq!(tx.get(f, b"k\0").unwrap().as_deref(), Some(value));
            assert_eq!(tx.get(f, b"other").unwrap(), None);
            tx.iter(f).unwrap().count()
        });
        assert_eq!(seen.unwrap(), Some(usize::from(n)));
    }
}

#[test]
fn all_ways_to_read_agree() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let large = noise(5, 3000);
    for (key, value) in [(b"a", &b"table"[..]), (b"l", &large), (b"d", b"gone"), (b"o", b"old")] {
        f.put(key, value).unwrap();
    }
    f.flush().unwrap();
    f.delete(b"d").unwrap();
    let mut tx = db.begin(Isolation::RepeatableRead);
    tx.put(f, b"o", b"own").unwrap();
    tx.delete(f, b"l").unwrap();
    tx.delete_range(f, "x".."z").unwrap();
    let agree = |tx: &Transaction, key: &[u8], expected: Option<&[u8]>| {
        assert_eq!(tx.get(f, key).unwrap().as_deref(), expected);
        assert_eq!(tx.get_untracked(f, key).unwrap().as_deref(), expected);
        assert_eq!(tx.get_map(f, key, <[u8]>::to_vec).unwrap().as_deref(), expected);
        assert_eq!(tx.get_untracked_map(f, key, <[u8]>::to_vec).unwrap().as_deref(), expected);
        assert_eq!(tx.contains(f, key).unwrap(), expected.is_some());
        assert_eq!(tx.contains_untracked(f, key).unwrap(), expected.is_some());
    };
    for more in 0..2 {
        agree(&tx, b"a", Some(b"table"));
        agree(&tx, b"d", None);
        agree(&tx, b"o", Some(b"own"));
        agree(&tx, b"l", None);
        agree(&tx, b"y", None);
        agree(&tx, b"absent", None);
        (0..more * 20 + 20).for_each(|i: u8| tx.put(f, &[i], b"").unwrap()); // then the batch is sorted
    }
    tx.rollback();
    assert!(matches!(tx.get_map(f, b"a", <[u8]>::len), Err(Error::InvalidArgument { .. })));
    tx.reset();
    agree(&tx, b"l", Some(&large));
}

/// A row equals key and value read one by one, whether it is an own write, in memory, in a table or in a value log, and in both
/// directions.
#[test]
fn an_entry_equals_its_key_and_its_value() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let large = noise(5, 3000);
    f.put(b"a", &large).unwrap();
    f.put(b"b", b"table").unwrap();
    f.flush().unwrap();
    f.put(b"c", b"memory").unwrap();
    let mut tx = db.begin(Isolation::ReadCommitted);
    tx.put(f, b"d", &large).unwrap();
    tx.put(f, b"e", b"").unwrap();
    let rows: [(&[u8], &[u8]); 5] =
        [(b"a", &large), (b"b", b"table"), (b"c", b"memory"), (b"d", &large), (b"e", b"")];
    let mut cursor = tx.cursor(f).unwrap();
    assert!(matches!(cursor.entry(), Err(Error::InvalidArgument { .. })), "the cursor is not on an entry");
    cursor.seek_to_first().unwrap();
    for row in rows {
        assert_eq!(cursor.entry().unwrap(), row);
        assert_eq!(cursor.entry().unwrap(), row, "and again");
        assert_eq!(cursor.value().unwrap(), row.1);
        cursor.next().unwrap();
    }
    assert!(!cursor.valid() && cursor.entry().is_err());
    cursor.seek_to_last().unwrap();
    for row in rows.into_iter().rev() {
        assert_eq!(cursor.entry().unwrap(), row);
        cursor.prev().unwrap();
    }
}

#[test]
fn only_tracked_reads_cause_conflicts() {
    type Read = fn(&Transaction, &tidesdb::Family) -> bool;
    let reads: [(bool, Read); 5] = [
        (true, |tx, f| tx.get_map(f, b"k", <[u8]>::len).unwrap().is_some()),
        (true, |tx, f| tx.contains(f, b"k").unwrap()),
        (false, |tx, f| tx.get_untracked_map(f, b"k", <[u8]>::len).unwrap().is_some()),
        (false, |tx, f| tx.contains_untracked(f, b"k").unwrap()),
        (false, |tx, f| tx.get_untracked(f, b"k").unwrap().is_some()),
    ];
    for (i, (tracked, read)) in reads.into_iter().enumerate() {
        let sim = Sim::new();
        let db = sim.open();
        let mut tx = db.begin(Isolation::Serializable);
        assert!(!read(&tx, db.default_family()));
        assert_eq!(tx.reads_tracked() > 0, tracked, "{i}");
        db.put(b"k", b"another commit").unwrap();
        tx.put(db.default_family(), b"mine", b"v").unwrap();
        assert_eq!(matches!(tx.commit(), Err(Error::Conflict { .. })), tracked, "{i}");
    }
}

#[test]
fn reset_at_restarts_a_transaction_at_another_level() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut tx = db.begin(Isolation::ReadCommitted);
    tx.put(f, b"never", b"committed").unwrap();
    let _ = tx.savepoint();
    assert_eq!(tx.snapshot_seq(), None);
    tx.reset_at(Isolation::Serializable);
    assert_eq!((tx.isolation(), tx.len()), (Isolation::Serializable, 0));
    assert!(tx.snapshot_seq().is_some());
    assert_eq!(tx.get(f, b"k").unwrap(), None);
    db.put(b"k", b"1").unwrap();
    assert_eq!(tx.get(f, b"k").unwrap(), None, "it reads at its snapshot");
    tx.put(f, b"x", b"1").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    tx.reset_at(Isolation::ReadCommitted);
    assert_eq!(tx.get(f, b"k").unwrap().unwrap().deref(), b"1");
    db.put(b"k", b"2").unwrap();
    assert_eq!(tx.get(f, b"k").unwrap().unwrap().deref(), b"2");
    tx.put(f, b"x", b"1").unwrap();
    tx.commit_with(&WriteOptions::default().sync(SyncMode::None)).unwrap();
    assert_eq!((value(f, b"x"), value(f, b"never")), (Some(b"1".to_vec()), None));
}
