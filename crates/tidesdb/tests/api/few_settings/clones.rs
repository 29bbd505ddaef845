//! Clones: what readers at each read timestamp see of a clone, and what a failed clone leaves behind.

use std::time::Duration;

use tidesdb::{Db, Error, FamilyOptions, Isolation, Iter, MergeOperator, SyncMode};
use tidesdb_io::sim::{Fault, Op, OpKind, OpSet, errno};

use crate::common::{DB, Pair, Sim, contents, fill, letters, noise, pairs, small, value};

fn pair(key: &str, value: &str) -> Pair {
    (key.into(), value.into())
}

/// A snapshot older than a clone used to see a mixture: only those rows of the source that were as old as the snapshot.
#[test]
fn a_clone_is_empty_for_older_snapshots_and_complete_for_all_others() {
    for compacted in [false, true] {
        let sim = Sim::new();
        let db = sim.options().history_bytes(1 << 30).open().unwrap();
        let f = db.default_family();
        f.put(b"a", b"1").unwrap();
        f.put(b"b", b"1").unwrap();
        let old = db.snapshot();
        f.put(b"b", b"2").unwrap();
        f.put(b"c", b"2").unwrap();
        let same = db.snapshot();
        let copy = db.clone_family("default", "copy").unwrap();
        let after = db.snapshot();
        assert_eq!(same.seq(), after.seq(), "a clone is no commit");
        copy.put(b"d", b"3").unwrap();
        copy.delete(b"a").unwrap();
        f.put(b"a", b"4").unwrap();
        if compacted {
            db.compact().unwrap();
        }
        let whole = [pair("a", "1"), pair("b", "2"), pair("c", "2")];
        assert_eq!(pairs(old.iter(&copy).unwrap()), []);
        assert_eq!(pairs(old.iter(&copy).unwrap().rev()), []);
        assert!(old.get(&copy, b"a").unwrap().is_none() && !old.contains(&copy, b"b").unwrap());
        assert_eq!(old.multi_get(&copy, &["a", "c"]).unwrap(), [None, None]);
        assert_eq!(pairs(same.iter(&copy).unwrap()), whole, "a snapshot at the number of the clone");
        assert_eq!(pairs(after.iter(&copy).unwrap()), whole);
        assert_eq!(contents(&copy), [pair("b", "2"), pair("c", "2"), pair("d", "3")]);
        let moments = (old.seq(), same.seq());
        drop((old, same, after, copy));
        let sim = sim.killed();
        let db = sim.options().history_bytes(1 << 30).open().unwrap();
        let copy = db.family("copy").unwrap();
        assert_eq!(contents(&copy), [pair("b", "2"), pair("c", "2"), pair("d", "3")]);
        if let Ok(then) = db.snapshot_at(moments.0) {
            assert_eq!(pairs(then.iter(&copy).unwrap()), []);
        }
        if let Ok(then) = db.snapshot_at(moments.1) {
            assert_eq!(pairs(then.iter(&copy).unwrap()), whole);
        }
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn the_history_of_a_clone_begins_with_the_clone() {
    let sim = Sim::new();
    let db = sim.options().history_bytes(1 << 30).open().unwrap();
    letters(db.default_family(), "ab");
    let before = db.snapshot().seq();
    letters(db.default_family(), "c");
    let copy = db.clone_family("default", "copy").unwrap();
    let made = db.snapshot().seq();
    letters(&copy, "d");
    for compacted in [false, true] {
        assert_eq!(pairs(db.snapshot_at(before).unwrap().iter(&copy).unwrap()), [], "compacted: {compacted}");
        assert_eq!(
            pairs(db.snapshot_at(made).unwrap().iter(&copy).unwrap()).len(),
            3,
            "compacted: {compacted}"
        );
        db.compact().unwrap();
    }
    let mut cursor = copy.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.version_seq(), made, "all rows are as old as the clone");
}

/// A transaction older than a clone sees nothing in it, so the rows of the clone are newer than what it read.
#[test]
fn an_older_transaction_conflicts_with_a_clone_as_with_a_commit() {
    type Read = fn(&tidesdb::Transaction, &tidesdb::Family);
    let reads: [(&str, Read); 4] = [
        ("a row", |tx, copy| assert!(tx.get(copy, b"a").unwrap().is_none())),
        ("a gap", |tx, copy| assert!(tx.get(copy, b"aa").unwrap().is_none())),
        ("all", |tx, copy| assert_eq!(tx.iter(copy).unwrap().count(), 0)),
        ("an adjacent range", |tx, copy| assert_eq!(tx.range(copy, "x"..).unwrap().count(), 0)),
    ];
    use Isolation::{ReadCommitted, RepeatableRead, Serializable, Snapshot};
    for level in [ReadCommitted, RepeatableRead, Snapshot, Serializable] {
        for (n, (what, read)) in reads.iter().enumerate() {
            for newer in [false, true] {
                let sim = Sim::new();
                let db = sim.open();
                letters(db.default_family(), "ab");
                let mut tx = db.begin(level);
                letters(db.default_family(), "c");
                let copy = db.clone_family("default", "copy").unwrap();
                if newer || level == ReadCommitted {
                    tx.reset();
                    assert_eq!(tx.iter(&copy).unwrap().count(), 3);
                    tx.reset();
                } else {
                    read(&tx, &copy);
                }
                tx.put(db.default_family(), b"k", b"v").unwrap();
                if level == Snapshot && n == 0 {
                    tx.put(&copy, b"a", b"mine").unwrap();
                }
                let refused = !newer
                    && match level {
                        // Of a scan only the rows count that the transaction saw, and it saw none.
                        RepeatableRead => n == 0,
                        Snapshot => n == 0,
                        Serializable => n == 0 || n == 2,
                        _ => false,
                    };
                let conflict = matches!(tx.commit(), Err(Error::Conflict { .. }));
                assert_eq!(conflict, refused, "{level:?}, {what}, newer: {newer}");
            }
        }
    }
}

#[test]
fn a_clone_keeps_expiry_times() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put_with_ttl(b"a", b"v", Duration::from_secs(10)).unwrap();
    f.put_with_ttl(b"gone", b"v", Duration::from_secs(1)).unwrap();
    f.put(b"b", b"v").unwrap();
    sim.clock.advance(Duration::from_secs(5));
    let copy = db.clone_family("default", "copy").unwrap();
    assert_eq!(contents(&copy).len(), 2);
    sim.clock.advance(Duration::from_secs(5));
    for family in [f, &copy] {
        assert_eq!(contents(family), [pair("b", "v")]);
    }
}

/// Families are created, renamed or dropped while a snapshot is open: it shows a family as it was, or not at all.
#[test]
fn a_snapshot_never_mixes_families_that_shared_a_name() {
    let sim = Sim::new();
    let db = sim.open();
    let first = db.create_family("name", small()).unwrap();
    letters(&first, "ab");
    let snapshot = db.snapshot();
    letters(&first, "c");
    let cursor = snapshot.iter(&first).unwrap();
    db.rename_family("name", "other").unwrap();
    let second = db.create_family("name", small()).unwrap();
    letters(&second, "bx");
    for compacted in [false, true] {
        assert_eq!(pairs(snapshot.iter(&db.family("other").unwrap()).unwrap()).len(), 2);
        assert_eq!(pairs(snapshot.iter(&first).unwrap()).len(), 2);
        assert_eq!(pairs(snapshot.iter(&second).unwrap()), []);
        assert_eq!(pairs(snapshot.iter(&db.family("name").unwrap()).unwrap()), [], "compacted: {compacted}");
        db.compact().unwrap();
    }
    db.drop_family("other").unwrap();
    assert!(matches!(snapshot.get(&first, b"a"), Err(Error::NotFound { .. })));
    assert!(matches!(snapshot.iter(&first), Err(Error::NotFound { .. })));
    assert_eq!(pairs(cursor).len(), 2, "an existing cursor continues");
    let third = db.create_family("other", small()).unwrap();
    letters(&third, "a");
    assert_eq!(pairs(snapshot.iter(&third).unwrap()), []);
}

/// Returns the tables and value logs of the database, sorted.
fn data_files(sim: &Sim) -> Vec<String> {
    let mut names = sim.disk.file_names("/db").unwrap();
    names.retain(|name| name.contains(".klog") || name.contains(".vlog"));
    names.sort();
    names
}

/// Data files that are not among `before`. Some of those may be gone: a thread of another test can keep what a merge has replaced for a while.
fn left_behind(sim: &Sim, before: &[String]) -> Vec<String> {
    data_files(sim).into_iter().filter(|name| !before.contains(name)).collect()
}

/// Creates a database whose clone needs several tables and value logs.
fn source(sim: &Sim) -> Db {
    let db = sim.open();
    let options = FamilyOptions::default().vlog_file_bytes(8 << 10);
    let options = options.write_buffer_bytes(64 << 10);
    let f = db.create_family("f", options).unwrap();
    fill(&f, 2400, &[7; 40]);
    for n in 0..20u8 {
        f.put(&[b'l', n], &noise(n.into(), 3000)).unwrap();
    }
    db.flush().unwrap();
    db.put(b"k", b"runs the merges that are due").unwrap();
    db.flush().unwrap();
    db
}

/// Returns the calls of a successful clone.
fn rehearsed() -> Vec<Op> {
    let sim = Sim::new();
    let db = source(&sim);
    sim.disk.log_ops(true);
    let before = sim.disk.ops().len();
    db.clone_family("f", "copy").unwrap();
    sim.disk.ops().split_off(before)
}

/// A clone that failed halfway used to leave value logs, and tables that were finished before, until the next open.
#[test]
fn a_clone_that_fails_at_any_call_leaves_no_file_behind() {
    let ops = rehearsed();
    let created = |end: &str| {
        let made = ops.iter().filter(|op| op.kind == OpKind::Create && op.path.ends_with(end));
        made.count()
    };
    assert!(created(".klog") >= 3 && created(".vlog") >= 3, "{ops:?}");
    let (mut failed, mut poisoned) = (0, 0);
    for (k, op) in ops.iter().enumerate() {
        for (errno, for_ever) in
            [(errno::EIO, false), (errno::EIO, true), (errno::ENOSPC, false), (errno::ENOSPC, true)]
        {
            if errno == errno::ENOSPC && !(OpSet::WRITES.has(op.kind) || op.kind == OpKind::Create) {
                continue;
            }
            let what =
                format!("errno {errno}, for ever: {for_ever}, from call {k}: {:?} {}", op.kind, op.path);
            let sim = Sim::new();
            let db = source(&sim);
            let before = data_files(&sim);
            let alike = ops[..k].iter().filter(|other| other.kind == op.kind).count() as u64;
            let fault = Fault::errno(errno).on(op.kind).skip(alike);
            sim.disk.inject(if for_ever { fault.forever() } else { fault });
            let cloned = db.clone_family("f", "copy");
            sim.disk.clear_faults();
            let Err(e) = cloned else { continue };
            failed += 1;
            assert!(matches!(db.family("copy"), Err(Error::NotFound { .. })), "{what}: {e}");
            if db.put(b"k", b"v").is_err() {
                // The manifest may name the files: only the next open can decide.
                poisoned += 1;
            } else {
                assert_eq!(left_behind(&sim, &before), [""; 0], "{what}: {e}");
                let copy = db.clone_family("f", "copy").unwrap();
                assert_eq!(contents(&copy), contents(&db.family("f").unwrap()), "{what}");
            }
            drop(db);
            let sim = sim.killed();
            let db = sim.open();
            assert!(db.verify().unwrap().is_ok(), "{what}");
            if let Ok(copy) = db.family("copy") {
                assert_eq!(contents(&copy), contents(&db.family("f").unwrap()), "{what}");
            }
        }
    }
    assert!(failed > 60 && poisoned < failed / 2, "{failed} failed, {poisoned} poisoned");
}

/// A row that cannot be read also fails a clone.
#[test]
fn a_clone_of_damaged_values_leaves_no_file_behind() {
    let sim = Sim::new();
    let db = source(&sim);
    let last = data_files(&sim).into_iter().rfind(|name| name.ends_with(".vlog")).unwrap();
    db.close().unwrap();
    let bytes = sim.disk.read_file(format!("/db/{last}")).unwrap().len() as u64;
    sim.disk.corrupt(format!("/db/{last}"), bytes - 100, |byte| byte ^ 1).unwrap();
    let db = sim.open();
    let before = data_files(&sim);
    assert!(matches!(db.clone_family("f", "copy"), Err(Error::Corrupt { .. })));
    assert_eq!(left_behind(&sim, &before), [""; 0]);
    assert!(value(&db.family("f").unwrap(), b"key000000").is_some());
}

/// The rows of a clone have the number at which it was made. A transaction that begins before the next commit reads at the same number, and
/// the scans of this one showed what it had deleted by range.
#[test]
fn a_transaction_that_begins_at_a_clone_deletes_its_rows_by_range() {
    let sim = Sim::new();
    let db = sim.open();
    let family = small().merge_operator(MergeOperator::append("|"));
    let source = db.create_family("source", family).unwrap();
    for key in ["a", "b", "c"] {
        source.put(key, key).unwrap();
    }
    let copy = db.clone_family("source", "copy").unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    tx.delete_range(&copy, "b"..).unwrap();
    tx.merge(&copy, "c", "new").unwrap();
    let rows = |rows: Iter| -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        rows.map(|row| row.map(|(key, value)| (text(&key), text(&value))).unwrap()).collect()
    };
    let expected = [("a", "a"), ("c", "new")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(rows(tx.range(&copy, ..).unwrap()), expected);
    assert_eq!(
        (tx.get(&copy, "b").unwrap(), tx.get(&copy, "c").unwrap().as_deref()),
        (None, Some(&b"new"[..]))
    );
    let mut cursor = tx.cursor(&copy).unwrap();
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.entry().unwrap(), (&b"c"[..], &b"new"[..]));
    cursor.prev().unwrap();
    assert_eq!(cursor.key(), b"a");
    drop(cursor);
    tx.commit().unwrap();
    assert_eq!(rows(copy.iter().unwrap()), expected);
}

/// A clone filled the disk, with the room that flushes of acknowledged commits need.
#[test]
fn a_clone_leaves_free_what_merges_leave_free() {
    const MIB: u64 = 1 << 20;
    let sim = Sim::new();
    let options = sim.options().sync(SyncMode::None).default_family(small());
    let db = options.with(|o| o.disk_free_min = 20 * MIB).open().unwrap();
    for n in 0..60u64 {
        db.put(n.to_be_bytes(), noise(n, MIB as usize)).unwrap();
    }
    db.flush().unwrap();
    sim.disk.limit_space(Some(50 * MIB));
    let failed = db.clone_family("default", "copy").err();
    let free = sim.env.disk.open_dir(DB.as_ref(), false).unwrap().space().unwrap().free;
    assert!(matches!(failed, Some(Error::NoSpace { .. })), "{failed:?}");
    assert!(free >= 20 * MIB, "{free} bytes are left");
    assert!(db.family("copy").is_err());
    sim.disk.limit_space(None);
    assert_eq!(contents(&db.clone_family("default", "copy").unwrap()).len(), 60);
}
