//! A call on a batch or a transaction that fails leaves it exactly as it was: each call, for each reason that it can have.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidesdb::{
    Committed, CommittedOp, Comparator, Db, Error, Family, FamilyOptions, Isolation, KEY_BYTES_MAX,
    MergeOperator, Result, SyncMode, Transaction, WriteBatch,
};
use tidesdb_io::sim::{Fault, OpSet, errno};

use crate::common::{Pair, Random, Sim, contents, pairs, small};

/// What takes writes.
#[expect(clippy::large_enum_variant, reason = "a test has one at a time")]
enum Target {
    Batch(WriteBatch),
    Transaction(Transaction),
}

macro_rules! each {
    ($target:expr, $t:ident => $call:expr) => {
        match $target {
            Target::Batch($t) => $call,
            Target::Transaction($t) => $call,
        }
    };
}

type Call = fn(&mut Target, &Family) -> Result<()>;

/// What can be seen of a batch or a transaction.
#[derive(Debug, PartialEq)]
struct State {
    operations: usize,
    bytes: usize,
    text: String,
    reads: usize,
    is_open: bool,
    rows: Vec<Option<Vec<Pair>>>,
}

/// Each kind of target.
const KINDS: [fn(&Db) -> Target; 2] =
    [|_| Target::Batch(WriteBatch::new()), |db| Target::Transaction(db.begin(Isolation::Snapshot))];

impl Target {
    fn state(&self, families: &[&Family]) -> State {
        let rows = |f: &&Family| match self {
            Self::Batch(_) => None,
            Self::Transaction(tx) => tx.iter(f).ok().map(pairs),
        };
        State {
            operations: each!(self, t => t.len()),
            bytes: each!(self, t => t.bytes()),
            text: each!(self, t => format!("{t:?}")),
            reads: if let Self::Transaction(tx) = self { tx.reads_tracked() } else { 0 },
            is_open: if let Self::Transaction(tx) = self { tx.is_open() } else { true },
            rows: families.iter().map(rows).collect(),
        }
    }

    /// Makes a call that must fail, and compares.
    fn refuses(&mut self, what: &str, families: &[&Family], call: impl FnOnce(&mut Self) -> Result<()>) {
        let before = self.state(families);
        let done = call(self);
        assert!(done.is_err(), "{what} did not fail");
        assert_eq!(self.state(families), before, "{what}: {done:?}");
    }

    /// Adds operations of each kind.
    fn fill(&mut self, family: &Family) {
        each!(self, t => {
            t.put(family, "a", "1").unwrap();
            t.put(family, "b", "2").unwrap();
            t.delete(family, "a").unwrap();
            t.delete_range(family, "c".."e").unwrap();
            t.put(family, "d", "3").unwrap();
            t.single_delete(family, "f").unwrap();
        });
    }

    fn commit(&mut self, db: &Db) -> Result<()> {
        match self {
            Self::Batch(batch) => db.write(batch).map(drop),
            Self::Transaction(tx) => tx.commit().map(drop),
        }
    }
}

/// Notes what is committed to `family`.
fn watch(family: &Family) -> Arc<Mutex<Vec<String>>> {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&seen);
    family.set_commit_hook(Some(Arc::new(move |commit: &Committed<'_>| {
        told.lock().unwrap().extend(commit.ops.iter().map(|op| format!("{op:?}")));
    })));
    seen
}

/// The operations of [`Target::fill`].
fn filled() -> Vec<String> {
    let put = |key, value| CommittedOp::Put { key, value, expiry: None };
    [
        put(b"a", b"1"),
        put(b"b", b"2"),
        CommittedOp::Delete { key: b"a" },
        CommittedOp::DeleteRange { start: b"c", end: b"e" },
        put(b"d", b"3"),
        CommittedOp::Delete { key: b"f" },
    ]
    .map(|op| format!("{op:?}"))
    .into()
}

fn far() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1 << 39) // the clock of Windows ends in the year 30828
}

fn long() -> Vec<u8> {
    vec![b'k'; KEY_BYTES_MAX + 1]
}

/// Calls that fail in each family.
const WRONG: [(&str, Call); 17] = [
    ("put of an empty key", |t, f| each!(t, t => t.put(f, "", "v"))),
    ("put of a long key", |t, f| each!(t, t => t.put(f, long(), "v"))),
    ("put of a long value of an empty key", |t, f| each!(t, t => t.put(f, "", vec![1; 9 << 20]))),
    (
        "put with a TTL of an empty key",
        |t, f| each!(t, t => t.put_with_ttl(f, "", "v", Duration::from_secs(1))),
    ),
    (
        "put with a TTL of a long key",
        |t, f| each!(t, t => t.put_with_ttl(f, long(), "v", Duration::from_secs(1))),
    ),
    ("put with too long a TTL", |t, f| each!(t, t => t.put_with_ttl(f, "k", "v", Duration::MAX))),
    (
        "put until an empty key expires",
        |t, f| each!(t, t => t.put_expiring(f, "", "v", UNIX_EPOCH + Duration::from_secs(1 << 30))),
    ),
    ("put until too far a moment", |t, f| each!(t, t => t.put_expiring(f, "k", "v", far()))),
    (
        "put of a long value until too far a moment",
        |t, f| each!(t, t => t.put_expiring(f, "k", vec![1; 9 << 20], far())),
    ),
    ("delete of an empty key", |t, f| each!(t, t => t.delete(f, ""))),
    ("delete of a long key", |t, f| each!(t, t => t.delete(f, long()))),
    ("single delete of an empty key", |t, f| each!(t, t => t.single_delete(f, ""))),
    ("single delete of a long key", |t, f| each!(t, t => t.single_delete(f, long()))),
    ("merge of a long key", |t, f| each!(t, t => t.merge(f, long(), "12345678"))),
    ("merge of an empty key", |t, f| each!(t, t => t.merge(f, "", "12345678"))),
    ("merge of a wrong operand, or without an operator", |t, f| each!(t, t => t.merge(f, "k", "12"))),
    ("writing a stream whose source fails", |t, f| match t {
        Target::Batch(_) => Err(Error::Closed),
        Target::Transaction(tx) => tx.put_stream(f, "k", Broken(0)),
    }),
];

/// Calls that fail in a family with a custom order.
const DISORDERED: [(&str, Call); 8] = [
    ("empty start", |t, f| each!(t, t => t.delete_range(f, ""..="k"))),
    ("empty end", |t, f| each!(t, t => t.delete_range(f, "k"..""))),
    ("excluded start", |t, f| each!(t, t => t.delete_range(f, (Excluded("a"), Unbounded)))),
    ("excluded start, included end", |t, f| each!(t, t => t.delete_range(f, (Excluded("a"), Included("z"))))),
    ("long start", |t, f| each!(t, t => t.delete_range(f, long()..=vec![b'z']))),
    ("long end", |t, f| each!(t, t => t.delete_range(f, vec![b'a']..=long()))),
    ("prefix", |t, f| each!(t, t => t.delete_prefix(f, "a"))),
    ("long prefix", |t, f| each!(t, t => t.delete_prefix(f, long()))),
];

/// A source that fails after some chunks.
struct Broken(usize);

impl std::io::Read for Broken {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0 += buf.len();
        if self.0 > 5 << 20 { Err(std::io::Error::other("broken")) } else { Ok(buf.len()) }
    }
}

fn families(db: &Db) -> [Family; 3] {
    let add = |name: &str, options: FamilyOptions| db.create_family(name, options).unwrap();
    [
        add("plain", small()),
        add("disordered", small().comparator(Comparator::case_insensitive())),
        add("numbers", small().merge_operator(MergeOperator::add())),
    ]
}

#[test]
fn wrong_arguments_change_nothing() {
    let db = Sim::new().open();
    let families = families(&db);
    let seen = watch(&families[1]);
    for begin in KINDS {
        let mut target = begin(&db);
        let all = [&families[0], &families[1], &families[2]];
        for begun in [false, true] {
            for (what, call) in WRONG {
                for family in &families {
                    target.refuses(what, &all, |t| call(t, family));
                }
            }
            for (what, call) in DISORDERED {
                target.refuses(what, &all, |t| call(t, &families[1]));
            }
            if !begun {
                target.fill(&families[1]);
            }
        }
        target.commit(&db).unwrap();
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), filled());
        assert_eq!(contents(&families[1]).len(), 2);
        assert_eq!(contents(&families[0]).len() + contents(&families[2]).len(), 0);
    }
}

/// Batches that leave no memory for another one that grows. The last one is short and grows by a few bytes.
fn hogs(db: &Db) -> Vec<WriteBatch> {
    let put = |hog: &mut WriteBatch, len: usize| {
        db.stats(); // makes the sums exact
        hog.put(db.default_family(), "k", vec![0; len])
    };
    let (mut hogs, mut last) = (Vec::new(), WriteBatch::new());
    put(&mut last, 500).unwrap();
    loop {
        let mut hog = WriteBatch::new();
        while put(&mut hog, 500).is_ok() {}
        if hog.is_empty() {
            break;
        }
        hogs.push(hog);
    }
    while put(&mut last, 1).is_ok() {}
    hogs.push(last);
    hogs
}

/// A range delete with a last key is two operations, of which the first may fit and the second may not.
#[test]
fn a_call_without_memory_changes_nothing() {
    let calls: [Call; 8] = [
        |t, f| each!(t, t => t.delete_range(f, "k"..="l")),
        |t, f| each!(t, t => t.delete_range(f, ..=[b'l'; 30])),
        |t, f| each!(t, t => t.delete_range(f, "k"..)),
        |t, f| each!(t, t => t.put(f, "k", "v")),
        |t, f| each!(t, t => t.put_with_ttl(f, "k", "v", Duration::from_secs(5))),
        |t, f| each!(t, t => t.delete(f, "k")),
        |t, f| each!(t, t => t.single_delete(f, "k")),
        |t, f| each!(t, t => t.merge(f, "k", "v")),
    ];
    let db = Sim::new().options().memory_limit(16 << 20).open().unwrap();
    let order = Comparator::case_insensitive();
    let options = small().comparator(order).merge_operator(MergeOperator::append(","));
    let family = db.create_family("f", options).unwrap();
    // The first record has 256 bytes and counts 24 besides key and value for an operation before it is added.
    let fill = |begin: fn(&Db) -> Target, left: usize| {
        let mut target = begin(&db);
        each!(&mut target, t => t.put(&family, "a", "1").unwrap());
        let used = each!(&target, t => t.bytes());
        each!(&mut target, t => t.put(&family, "b", vec![1; 256 - 25 - used - left]).unwrap());
        db.stats();
        target
    };
    let (mut refused, mut fit) = (0, 0);
    for begin in KINDS {
        let room = fill(begin, 0);
        let hogs = hogs(&db);
        drop(room);
        for call in calls {
            for left in 0..130 {
                db.stats();
                let mut target = fill(begin, left);
                let before = target.state(&[&family]);
                match call(&mut target, &family) {
                    Ok(()) => fit += 1,
                    Err(e) => {
                        assert!(matches!(e, Error::MemoryLimit { .. }), "{e}");
                        assert_eq!(target.state(&[&family]), before, "{left} bytes left");
                        refused += 1;
                    }
                }
            }
        }
        drop(hogs);
    }
    assert!(refused > 200 && fit > 1000, "{refused} {fit}");
}

/// Says what the commit failed for.
fn refuses_commit(db: &Db, target: &mut Target, family: &Family, reason: fn(&Error) -> bool) {
    let Target::Batch(_) = target else {
        assert!(target.commit(db).is_err_and(|e| reason(&e)));
        return; // a transaction ends with its commit
    };
    for _ in 0..2 {
        target.refuses("commit", &[family], |t| t.commit(db).inspect_err(|e| assert!(reason(e), "{e}")));
    }
}

#[test]
fn a_family_of_another_database_changes_nothing() {
    let (db, other) = (Sim::new().open(), Sim::new().open());
    let seen = watch(db.default_family());
    let mut tx = Target::Transaction(db.begin(Isolation::Serializable));
    tx.fill(db.default_family());
    let calls: [Call; 6] = [
        |t, f| each!(t, t => t.put(f, "k", "v")),
        |t, f| each!(t, t => t.put(f, "k", vec![1; 9 << 20])),
        |t, f| each!(t, t => t.put_with_ttl(f, "k", "v", Duration::from_secs(1))),
        |t, f| each!(t, t => t.delete(f, "k")),
        |t, f| each!(t, t => t.delete_range(f, "k"..="l")),
        |t, f| each!(t, t => t.delete_prefix(f, "k")),
    ];
    for call in calls {
        tx.refuses("a call", &[], |t| call(t, other.default_family()));
    }
    tx.commit(&db).unwrap();
    assert_eq!(*seen.lock().unwrap(), filled());
    let mut batch = Target::Batch(WriteBatch::new());
    batch.fill(db.default_family());
    batch.fill(other.default_family());
    refuses_commit(&db, &mut batch, db.default_family(), |e| matches!(e, Error::InvalidArgument { .. }));
    assert_eq!((contents(db.default_family()).len(), contents(other.default_family()).len()), (2, 0));
}

#[test]
fn calls_of_an_ended_transaction_change_nothing() {
    let db = Sim::new().open();
    let f = db.default_family();
    let mut tx = Target::Transaction(db.begin(Isolation::Snapshot));
    tx.fill(f);
    let Target::Transaction(inner) = &mut tx else { unreachable!() };
    let savepoint = inner.savepoint();
    inner.rollback();
    for (what, call) in WRONG {
        tx.refuses(what, &[], |t| call(t, f));
    }
    let right: [Call; 6] = [
        |t, f| each!(t, t => t.put(f, "k", "v")),
        |t, f| each!(t, t => t.put(f, "k", vec![1; 9 << 20])),
        |t, f| each!(t, t => t.delete(f, "k")),
        |t, f| each!(t, t => t.delete_range(f, "k"..="l")),
        |t, f| each!(t, t => t.delete_prefix(f, "k")),
        |t, _| if let Target::Transaction(tx) = t { tx.commit().map(drop) } else { Ok(()) },
    ];
    for call in right {
        tx.refuses("a call", &[], |t| call(t, f));
    }
    let Target::Transaction(inner) = &mut tx else { unreachable!() };
    assert!(inner.rollback_to(savepoint).is_err() && inner.release(savepoint).is_err());
    assert!(!inner.is_open() && inner.is_empty());
    inner.reset();
    tx.fill(f);
    tx.commit(&db).unwrap();
    assert_eq!(contents(f).len(), 2);
}

/// Savepoints that are gone leave the writes and the other savepoints.
#[test]
fn a_savepoint_that_is_gone_changes_nothing() {
    let db = Sim::new().open();
    let f = db.default_family();
    let mut tx = db.begin(Isolation::Snapshot);
    let other = db.begin(Isolation::Snapshot).savepoint();
    let kept = tx.savepoint();
    tx.put(f, "k", "v").unwrap();
    let gone = tx.savepoint();
    tx.put(f, "l", "v").unwrap();
    tx.release(gone).unwrap();
    let mut target = Target::Transaction(tx);
    for _ in 0..2 {
        target.refuses("rollback", &[f], |t| match t {
            Target::Transaction(tx) => tx.rollback_to(gone),
            Target::Batch(_) => Ok(()),
        });
        target.refuses("release", &[f], |t| match t {
            Target::Transaction(tx) => tx.release(gone),
            Target::Batch(_) => Ok(()),
        });
    }
    assert_eq!(
        other, kept,
        "the savepoints of two transactions have equal numbers, so this test takes those of one"
    );
    let Target::Transaction(mut tx) = target else { unreachable!() };
    tx.rollback_to(kept).unwrap();
    assert!(tx.is_empty());
}

/// Calls that reach the disk, and a commit, on a database that takes no writes.
fn refuses_writes(db: &Db, f: &Family, reason: fn(&Error) -> bool) {
    let on_disk: [Call; 3] = [
        |t, f| each!(t, t => t.put(f, "k", vec![1; 9 << 20])),
        |t, f| each!(t, t => t.put_with_ttl(f, "k", vec![1; 9 << 20], Duration::from_secs(1))),
        |t, f| match t {
            Target::Batch(batch) => batch.put(f, "k", vec![1; 10 << 20]),
            Target::Transaction(tx) => {
                tx.put_stream(f, "k", std::io::Read::take(std::io::repeat(1), 9 << 20))
            }
        },
    ];
    for begin in KINDS {
        let mut target = begin(db);
        each!(&mut target, t => t.put(f, "a", "1").unwrap());
        for call in on_disk {
            target.refuses("a call", &[f], |t| call(t, f).inspect_err(|e| assert!(reason(e), "{e}")));
        }
        refuses_commit(db, &mut target, f, reason);
    }
}

#[test]
fn a_database_that_takes_no_writes_changes_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    let other = db.create_family("other", small()).unwrap();
    db.drop_family("other").unwrap();
    refuses_writes(&db, &other, |e| matches!(e, Error::NotFound { .. }));
    db.put("k", "v").unwrap();
    sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS));
    assert!(db.sync().is_err());
    refuses_writes(&db, db.default_family(), |e| matches!(e, Error::Poisoned { .. }));
    let again = sim.killed();
    drop(again.open());
    let read_only = again.options().read_only(true).open().unwrap();
    refuses_writes(&read_only, read_only.default_family(), |e| matches!(e, Error::ReadOnly));
    drop(read_only);
    let db = again.open();
    let closed = Db::clone(&db);
    db.close().unwrap();
    refuses_writes(&closed, closed.default_family(), |e| matches!(e, Error::Closed));
}

#[test]
fn a_full_disk_changes_nothing() {
    let sim = Sim::new();
    let options = sim.options().background_threads(0).sync(SyncMode::None);
    let db = options.with(|o| o.disk_reserve_bytes = Some(1 << 20)).open().unwrap();
    let f = db.default_family();
    db.put("a", vec![1; 600]).unwrap();
    sim.disk.limit_space(Some(24 << 20));
    let noise: Vec<u8> = {
        let mut random = Random::new(1);
        (0..32 << 20).map(|_| random.below(256) as u8).collect()
    };
    for begin in KINDS {
        let mut target = begin(&db);
        each!(&mut target, t => t.put(f, "b", "2").unwrap());
        target.refuses("a long put", &[f], |t| each!(t, t => t.put(f, "k", &noise)));
        if let Target::Transaction(_) = target {
            target.refuses("a stream", &[f], |t| match t {
                Target::Transaction(tx) => tx.put_stream(f, "k", &noise[..]),
                Target::Batch(_) => Ok(()),
            });
        }
        target.commit(&db).unwrap();
        assert_eq!(contents(f).len(), 2);
    }
}
