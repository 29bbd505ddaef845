//! Operands are checked when they are written.

use tidesdb::{Error, Family, Isolation, MergeOperator, WriteBatch};

use crate::common::{Sim, contents, joins, small, value};

/// Asserts that `result` refuses an operand of `bytes` bytes for a family of numbers.
#[track_caller]
fn refused<T>(result: Result<T, Error>, family: &Family, bytes: usize) {
    let Err(error @ Error::InvalidArgument { .. }) = result else { panic!("not refused as an argument") };
    let text = error.to_string();
    for part in
        [&format!("family {:?}", family.name()), "tidesdb.add", &format!("of {bytes} bytes"), "has 8 bytes"]
    {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

/// An operator that joins letters and refuses all other operands.
fn letters() -> MergeOperator {
    MergeOperator::custom("letters", joins).check_operands(|operand| {
        match operand.iter().all(u8::is_ascii_alphabetic) {
            true => Ok(()),
            false => Err("letters only".into()),
        }
    })
}

#[test]
fn every_way_to_write_refuses_a_wrong_operand_and_writes_nothing() {
    let sim = Sim::new();
    let options = || small().merge_operator(MergeOperator::add());
    let db = sim.options().default_family(options()).open().unwrap();
    let f = db.create_family("visits", options()).unwrap();
    f.merge("k", 5u64.to_le_bytes()).unwrap();
    let before = db.stats().visible_seq;
    for bytes in [0, 3, 7, 9, 700] {
        let wrong = vec![1; bytes];
        refused(db.merge("k", &wrong), db.default_family(), bytes);
        refused(f.merge("k", &wrong), &f, bytes);
        refused(WriteBatch::new().merge(&f, "k", &wrong), &f, bytes);
        for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
            refused(db.begin(isolation).merge(&f, "k", &wrong), &f, bytes);
        }
        let body = |tx: &mut tidesdb::Transaction| {
            tx.put(&f, "other", "v")?;
            tx.merge(&f, "k", &wrong)
        };
        refused(db.transact(body), &f, bytes);
        let fill = || {
            let mut batch = WriteBatch::new();
            batch.put(&f, "other", "v")?;
            batch.merge(&f, "k", &wrong)?;
            db.write(&mut batch)
        };
        refused(fill(), &f, bytes);
    }
    assert_eq!(db.stats().visible_seq, before, "nothing was written");
    assert_eq!(contents(&f), [(b"k".to_vec(), 5u64.to_le_bytes().to_vec())]);
    assert!(contents(db.default_family()).is_empty());
}

#[test]
fn a_batch_is_as_before_after_a_refused_operand() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().merge_operator(MergeOperator::add())).open().unwrap();
    let f = db.default_family();
    let mut batch = WriteBatch::new();
    batch.merge(f, "k", 1u64.to_le_bytes()).unwrap();
    let (operations, bytes) = (batch.len(), batch.bytes());
    refused(batch.merge(f, "k", "1"), f, 1);
    assert_eq!((batch.len(), batch.bytes()), (operations, bytes));
    batch.merge(f, "k", 2u64.to_le_bytes()).unwrap();
    db.write(&mut batch).unwrap();
    assert_eq!(value(f, b"k").unwrap(), 3u64.to_le_bytes());
}

#[test]
fn a_custom_operator_checks_operands_after_a_reopen() {
    let sim = Sim::new();
    let options =
        || sim.options().merge_operator(letters()).default_family(small().merge_operator(letters()));
    for part in ["a", "b"] {
        let db = options().open().unwrap();
        db.merge("k", part).unwrap();
        let error = db.merge("k", "1").unwrap_err().to_string();
        assert!(error.contains("\"letters\"") && error.contains("letters only"), "{error}");
        db.close().unwrap();
    }
    // What is stored names the operator only; the one that was given with the open checks.
    let db = sim.options_as_stored(crate::common::DB).merge_operator(letters()).open().unwrap();
    assert!(db.merge("k", "1").is_err());
    assert_eq!(value(db.default_family(), b"k").unwrap(), b"ab");
}

/// Operands that an earlier check let pass stay readable, also from the log.
#[test]
fn stored_operands_are_not_checked() {
    let unchecked = || MergeOperator::custom("letters", joins);
    let sim = Sim::new();
    let db = sim.options().default_family(small().merge_operator(unchecked())).open().unwrap();
    db.merge("k", "1").unwrap();
    db.flush().unwrap();
    db.merge("k", "2").unwrap();
    let sim = sim.killed();
    let options = sim.options().merge_operator(letters()).default_family(small().merge_operator(letters()));
    let db = options.open().unwrap();
    assert!(db.merge("k", "3").is_err());
    db.merge("k", "c").unwrap();
    assert_eq!(value(db.default_family(), b"k").unwrap(), b"12c");
    db.compact().unwrap();
    assert_eq!(value(db.default_family(), b"k").unwrap(), b"12c");
}
