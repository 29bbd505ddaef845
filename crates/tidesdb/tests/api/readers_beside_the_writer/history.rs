//! Reads of the past, and commit hooks.

use std::sync::{Arc, Mutex};

use tidesdb::{Committed, CommittedOp, Error, Isolation, WriteBatch};

use crate::common::{Sim, contents, keys, letters, pairs, small, value};

/// Sequence number of a commit, and the operations passed to the hook.
type Told = (u64, Vec<String>);

#[test]
fn the_past_can_be_read_within_the_kept_history() {
    let sim = Sim::new();
    let db = sim.options().history_bytes(1 << 20).open().unwrap();
    let f = db.default_family();
    let seqs: Vec<u64> = (0..50u8).map(|i| f.put(b"k", &[i]).unwrap()).collect();
    let deleted = f.delete_range(..).unwrap();
    for round in 0..2 {
        for (i, seq) in seqs.iter().enumerate() {
            let past = db.snapshot_at(*seq).unwrap();
            assert_eq!(past.get(f, b"k").unwrap().as_deref(), Some(&[i as u8][..]), "round {round}");
            assert_eq!(pairs(past.iter(f).unwrap()).len(), 1);
        }
        assert_eq!(db.snapshot_at(deleted).unwrap().get(f, b"k").unwrap(), None);
        f.compact().unwrap();
    }
    assert!(matches!(db.snapshot_at(deleted + 1000), Err(Error::InvalidArgument { .. })), "not reached yet");
    // So many commits that the first ones are too old.
    for i in 0..4000u32 {
        f.put(&i.to_be_bytes(), &[0; 400]).unwrap();
    }
    f.compact().unwrap();
    let e = db.snapshot_at(seqs[0]).unwrap_err();
    assert!(e.to_string().contains("no longer kept"), "{e}");
}

#[test]
fn without_history_the_past_ends_at_the_next_merge_except_for_snapshots() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let first = f.put(b"k", b"1").unwrap();
    let second = f.put(b"k", b"2").unwrap();
    let held = db.snapshot_at(first).unwrap();
    f.put(b"k", b"3").unwrap();
    f.flush().unwrap();
    assert!(db.snapshot_at(second).is_err());
    assert_eq!(db.snapshot_at(held.seq()).unwrap().get(f, b"k").unwrap().unwrap(), b"1");
    drop(held);
    assert!(db.snapshot_at(first).is_err());
    let now = db.snapshot().seq();
    assert_eq!(db.snapshot_at(now).unwrap().get(f, b"k").unwrap().unwrap(), b"3");
    drop(db);
    let db = sim.open();
    assert!(db.snapshot_at(first).is_err(), "it is unknown which versions were kept before the open");
    assert!(db.snapshot_at(db.snapshot().seq()).is_ok());
}

#[test]
fn a_hook_receives_the_operations_of_its_family_once_they_are_visible() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    let other = db.create_family("other", small()).unwrap();
    let told: Arc<Mutex<Vec<Told>>> = Arc::default();
    let (told_by_hook, reader) = (Arc::clone(&told), f.clone());
    f.set_commit_hook(Some(Arc::new(move |commit: &Committed<'_>| {
        let shown = |op: &CommittedOp<'_>| match op {
            CommittedOp::Put { key, value, expiry } => {
                assert!(reader.contains(key).unwrap(), "not visible when the hook is called");
                format!("put {key:?} {} {}", value.len(), u8::from(expiry.is_some()))
            }
            CommittedOp::Delete { key } => format!("delete {key:?}"),
            CommittedOp::DeleteRange { start, end } => format!("range {start:?} {end:?}"),
            _ => String::new(),
        };
        told_by_hook.lock().unwrap().push((commit.seq, commit.ops.iter().map(shown).collect()));
    })));
    let mut batch = WriteBatch::new();
    batch.delete_range(&f, [b'a']..[b'c']).unwrap();
    batch.put(&f, b"k", &[1; 5000]).unwrap(); // goes to the value log
    batch.put(&other, b"not reported", b"v").unwrap();
    batch.delete(&f, b"x").unwrap();
    let first = db.write(&mut batch).unwrap();
    other.put(b"not reported", b"v").unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    tx.get(&f, b"k").unwrap();
    tx.put(&f, b"t", b"v").unwrap();
    let second = tx.commit().unwrap();
    let mut refused = db.begin(Isolation::Serializable);
    refused.get(&f, b"k").unwrap();
    refused.put(&f, b"never", b"v").unwrap();
    let third = f.put(b"k", b"v").unwrap();
    assert!(matches!(refused.commit(), Err(Error::Conflict { .. })));
    f.set_commit_hook(None);
    f.put(b"late", b"v").unwrap();
    let expected = [
        (first, vec!["range [97] [99]".to_owned(), "put [107] 5000 0".into(), "delete [120]".into()]),
        (second, vec!["put [116] 1 0".into()]),
        (third, vec!["put [107] 1 0".into()]),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn a_hook_may_write_to_another_family() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    let index = db.create_family("index", small()).unwrap();
    let to = index.clone();
    f.set_commit_hook(Some(Arc::new(move |commit: &Committed<'_>| {
        for op in commit.ops {
            if let CommittedOp::Put { key, value, .. } = op {
                to.put(value, key).unwrap();
            }
        }
    })));
    letters(&f, "abc");
    f.put(b"d", b"z").unwrap();
    assert_eq!(keys(index.iter()), ["a", "b", "c", "z"]);
    assert_eq!(value(&index, b"z").unwrap(), b"d");
    assert_eq!(contents(&f).len(), 4);
}
