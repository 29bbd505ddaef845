//! Panics in the user's functions: what the call returns, and the state afterwards.
//!
//! | function | its panic |
//! | --- | --- |
//! | commit hook | changes nothing: the commit stands, the other hooks are called |
//! | comparator, in a commit | before the commit has a place in the log: `InvalidArgument`, no effect; after it: `CommitUnknown`, and the database is poisoned |
//! | comparator, in a read, an open, or a flush or merge by hand | reaches the caller, who may repeat the call |
//! | comparator, in the background | poisons the database |
//! | merge operator, its check, compaction filter | tests in `merge_operators`, `merge_checks` and `filters` |
//! | object store | an error of that call |
//! | log subscriber | never hides that the database is poisoned |
//! | bodies of `transact`, `update`, `get_map` | reach the caller; nothing was done |

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidesdb::store::{Body, Object};
use tidesdb::{
    Committed, CommittedOp, Comparator, Db, Error, Family, FamilyOptions, HealthState, Isolation,
    MemoryStore, ObjectStore, RemoteOptions, Result, SyncMode, TransactOptions, WriteBatch,
};
use tidesdb_io::sim::{Fault, Image, OpSet, errno};

use crate::common::{Pair, Sim, contents, joined, keys, noise, small};

/// Commits in one of many ways.
type Write = fn(&Family, &Db) -> Result<()>;

const WRITES: [(&str, Write); 9] = [
    ("put", |f, _| f.put("k", "v").map(drop)),
    ("long put", |f, _| f.put("k", noise(1, 9 << 20)).map(drop)),
    ("delete", |f, _| f.delete("k").map(drop)),
    ("merge", |f, _| f.merge("k", "v").map(drop)),
    ("delete of a range", |f, _| f.delete_range("a".."z").map(drop)),
    ("stream", |f, _| {
        let mut writer = f.value_writer("k")?;
        io::Write::write_all(&mut writer, b"value").unwrap();
        writer.commit().map(drop)
    }),
    ("transaction", |f, db| {
        let mut tx = db.begin(Isolation::Serializable);
        tx.get(f, "k")?;
        tx.put(f, "k", "v")?;
        tx.commit().map(drop)
    }),
    ("transact", |f, db| db.transact(|tx| tx.put(f, "k", "v"))),
    ("update", |f, _| f.update("k", |_| Some(b"v".to_vec())).map(drop)),
];

/// The panic used to reach the caller of the commit, with the batch still full and queued jobs not run.
#[test]
fn a_commit_stands_whatever_its_hook_does() {
    for mode in [SyncMode::Full, SyncMode::None] {
        for (name, write) in WRITES {
            let sim = Sim::new();
            let db = sim.options().sync(mode).open().unwrap();
            let f = db.create_family("hooked", joined()).unwrap();
            f.set_commit_hook(Some(Arc::new(|_: &_| panic!("planted"))));
            write(&f, &db).unwrap_or_else(|e| panic!("{name}: {e}"));
            let after = contents(&f);
            assert_eq!(after.is_empty(), name.starts_with("delete"), "{name}");
            assert_eq!(db.health().state, HealthState::Healthy, "{name}");
            f.set_commit_hook(None);
            f.put("next", "v").unwrap();
            if mode == SyncMode::Full {
                let lost = sim.power_lost(&Image::SYNCED, 1);
                let db = lost.options().open().unwrap();
                assert_eq!(contents(&db.family("hooked").unwrap()).len(), after.len() + 1, "{name}");
            }
        }
    }
}

#[test]
fn a_batch_is_cleared_and_the_other_hooks_are_called_when_one_panics() {
    let sim = Sim::new();
    let db = sim.open();
    let families: Vec<Family> = ["a", "b", "c"].map(|name| db.create_family(name, small()).unwrap()).into();
    let called = Arc::new(AtomicUsize::new(0));
    for f in &families {
        let called = Arc::clone(&called);
        let panics = f.name() == "b";
        f.set_commit_hook(Some(Arc::new(move |_: &_| {
            assert!(!panics, "planted");
            called.fetch_add(1, SeqCst);
        })));
    }
    let mut batch = WriteBatch::new();
    families.iter().for_each(|f| batch.put(f, "k", "v").unwrap());
    db.write(&mut batch).unwrap();
    assert!(batch.is_empty());
    assert_eq!(called.load(SeqCst), 2);
    assert!(families.iter().all(|f| f.contains("k").unwrap()));
}

/// A batch whose values had moved to the value log before its commit was refused told hooks, at the next try, only what it had held at
/// the first.
#[test]
fn a_hook_sees_all_of_a_batch_that_was_refused_before() {
    let sim = Sim::new();
    let moody = Moody::new();
    let db = sim.options().comparator(moody.order()).open().unwrap();
    let f = db.create_family("ordered", small().value_threshold(1 << 10).comparator(moody.order())).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&seen);
    f.set_commit_hook(Some(Arc::new(move |commit: &Committed<'_>| {
        for op in commit.ops {
            let CommittedOp::Put { key, value, .. } = op else { panic!("{op:?}") };
            keeps.lock().unwrap().push((key.to_vec(), value.len()));
        }
    })));
    let mut batch = WriteBatch::new();
    batch.put(&f, "long", [7; 4 << 10]).unwrap();
    // Enough for memtables of its own: the order is called before the commit draws its place.
    let small_rows = (0..4000).map(|n| (format!("{n:04}").into_bytes(), 500));
    small_rows.clone().for_each(|(key, len)| batch.put(&f, key, vec![8; len]).unwrap());
    let (result, panicked) = moody.panics_at(9, || db.write(&mut batch));
    assert!(panicked && matches!(result, Ok(Err(Error::InvalidArgument { .. }))), "{result:?}");
    batch.put(&f, "late", "v").unwrap();
    db.write(&mut batch).unwrap();
    let all: Vec<_> =
        [(b"long".to_vec(), 4 << 10)].into_iter().chain(small_rows).chain([(b"late".to_vec(), 1)]).collect();
    assert!(*seen.lock().unwrap() == all);
    assert_eq!(f.get("long").unwrap().as_deref(), Some(&[7; 4 << 10][..]));
}

/// An order that panics at a chosen comparison.
#[derive(Clone)]
struct Moody(Arc<AtomicI64>);

impl Moody {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MAX)))
    }

    fn order(&self) -> Comparator {
        let left = Arc::clone(&self.0);
        Comparator::custom("moody", move |a, b| {
            assert!(left.load(SeqCst) == i64::MAX || left.fetch_sub(1, SeqCst) != 1, "planted");
            a.cmp(b)
        })
    }

    /// Runs `call`, in which the `n`th comparison panics. Returns whether it did.
    fn panics_at<R>(&self, n: i64, call: impl FnOnce() -> R) -> (std::thread::Result<R>, bool) {
        self.0.store(n, SeqCst);
        let result = catch_unwind(AssertUnwindSafe(call));
        let left = self.0.swap(i64::MAX, SeqCst);
        (result, left <= 0)
    }
}

/// A database whose family `ordered` has rows in a table and in the memtable.
fn filled(moody: &Moody) -> (Sim, Db, Family) {
    let sim = Sim::new();
    let db = sim.options().comparator(moody.order()).open().unwrap();
    let f = db.create_family("ordered", ordered(moody)).unwrap();
    for n in 0..40 {
        f.put(format!("{n:03}"), noise(n, 20)).unwrap();
    }
    f.flush().unwrap();
    for n in (0..40).step_by(3) {
        f.put(format!("{n:03}"), noise(n + 1, 20)).unwrap();
    }
    (sim, db, f)
}

fn ordered(moody: &Moody) -> FamilyOptions {
    small().comparator(moody.order()).value_threshold(1 << 20)
}

/// Each `n` of a few hundred, then fewer.
fn next(n: i64) -> i64 {
    n + 1 + n / 24
}

const ORDERED: [(&str, Write); 8] = [
    ("put", |f, _| f.put("0135", "v").map(drop)),
    ("batch", |f, db| {
        let mut batch = WriteBatch::new();
        (0..40).try_for_each(|n| batch.put(f, format!("{n:03}5"), "v"))?;
        db.write(&mut batch).map(drop)
    }),
    ("batch with a range delete", |f, db| {
        let mut batch = WriteBatch::new();
        batch.put(f, "0135", "v")?;
        batch.delete_range(f, "010".."020")?;
        batch.put(f, "0155", "v")?;
        db.write(&mut batch).map(drop)
    }),
    ("batch that is sorted first", |f, db| {
        let mut batch = WriteBatch::new();
        (0..3000).try_for_each(|n| batch.put(f, format!("{:05}", n * 7919 % 3000), noise(n, 400)))?;
        db.write(&mut batch).map(drop)
    }),
    ("transaction", |f, db| {
        let mut tx = db.begin(Isolation::Serializable);
        tx.get(f, "007")?;
        assert!(tx.range(f, "010".."015")?.all(|row| row.is_ok()));
        f.put("030", "of another commit")?;
        tx.put(f, "0135", "v")?;
        tx.delete(f, "014")?;
        tx.get(f, "014")?;
        tx.commit().map(drop)
    }),
    ("transaction of snapshot isolation", |f, db| {
        let mut tx = db.begin(Isolation::Snapshot);
        f.put("030", "of another commit")?;
        (0..30).try_for_each(|n| tx.put(f, format!("{n:03}5"), "v"))?;
        tx.delete_range(f, "01".."02")?;
        tx.commit().map(drop)
    }),
    ("transact", |f, db| {
        db.transact_with(&TransactOptions::default(), |tx| {
            let row = tx.iter(f)?.next().transpose()?;
            tx.put(f, "0135", row.map_or_else(Vec::new, |(key, _)| key.to_vec()))
        })
    }),
    ("pop_last", |f, _| f.pop_last().map(drop)),
];

/// What must hold after `result`, of a call that changes `before` to `after` when it is done.
fn check(
    what: &str,
    moody: &Moody,
    (sim, db, f): (Sim, Db, Family),
    result: &std::thread::Result<Result<()>>,
    states: &[Vec<Pair>],
) {
    let poisoned = db.health().state == HealthState::Poisoned;
    let shown = contents(&f);
    assert!(states.contains(&shown), "{what}: the rows are those of no step");
    match result {
        Ok(Ok(())) => assert_eq!(&shown, states.last().unwrap(), "{what}: done, and not shown"),
        Ok(Err(Error::CommitUnknown { .. })) => assert!(poisoned, "{what}"),
        Ok(Err(Error::InvalidArgument { .. })) | Err(_) => {
            assert!(!poisoned, "{what}: refused, and poisoned")
        }
        Ok(Err(e)) => panic!("{what}: {e}"),
    }
    let killed = sim.killed();
    assert_eq!(f.put("zzz", "v").is_err(), poisoned, "{what}");
    drop(f);
    assert_eq!(db.close().is_err(), poisoned, "{what}");
    let db = killed.options().comparator(moody.order()).open().unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = contents(&db.family("ordered").unwrap());
    assert!(states.contains(&found), "{what}: the rows after a kill are those of no step");
    if !poisoned {
        assert_eq!(found, shown, "{what}");
    }
    assert!(db.verify().unwrap().is_ok(), "{what}");
}

/// A panic used to leave through the commit.
#[test]
fn a_comparator_that_panics_in_a_commit_leaves_one_of_its_steps() {
    for (name, write) in ORDERED {
        let calm = Moody::new();
        let (_sim, db, f) = filled(&calm);
        let before = contents(&f);
        write(&f, &db).unwrap();
        let mut states = vec![before.clone()];
        if name.starts_with("transaction") {
            let (_sim, _db, f) = filled(&calm);
            f.put("030", "of another commit").unwrap();
            states.push(contents(&f));
        }
        states.push(contents(&f));
        let (mut n, mut unknown) = (1, 0);
        loop {
            let moody = Moody::new();
            let (sim, db, f) = filled(&moody);
            let (result, panicked) = moody.panics_at(n, || write(&f, &db));
            unknown += u32::from(matches!(&result, Ok(Err(Error::CommitUnknown { .. }))));
            check(&format!("{name}, comparison {n}"), &moody, (sim, db, f), &result, &states);
            if !panicked {
                break;
            }
            n = next(n);
        }
        assert!(n > 4, "{name}: {n} comparisons");
        let before_its_place = ["batch that is sorted first", "pop_last"].contains(&name);
        assert!(unknown > 0 || before_its_place, "{name}: no panic while it was inserted");
    }
}

/// Every read, and every call that rewrites tables.
const READS: [(&str, Write); 9] = [
    ("get", |f, _| f.get("013").map(drop)),
    ("multi_get", |f, _| f.multi_get(&["003", "013", "014", "x"]).map(drop)),
    ("iteration", |f, _| {
        f.iter()?.try_for_each(|row| row.map(drop))?;
        f.iter()?.rev().try_for_each(|row| row.map(drop))
    }),
    ("range", |f, _| f.range("004".."035")?.try_for_each(|row| row.map(drop))),
    ("cursor", |f, _| {
        let mut cursor = f.cursor()?;
        cursor.seek("020")?;
        cursor.next()?;
        cursor.prev()?;
        cursor.seek_to_last()
    }),
    ("snapshot", |f, db| db.snapshot().get(f, "013").map(drop)),
    ("flush", |f, _| f.flush()),
    ("merge", |f, _| f.compact()),
    ("clone", |_, db| {
        let _ = db.drop_family("copy");
        db.clone_family("ordered", "copy").map(drop)
    }),
];

#[test]
fn a_comparator_that_panics_in_a_read_or_a_rewrite_changes_nothing() {
    for (name, read) in READS {
        let mut n = 1;
        loop {
            let moody = Moody::new();
            let (sim, db, f) = filled(&moody);
            let rows = contents(&f);
            let (result, panicked) = moody.panics_at(n, || read(&f, &db));
            let what = format!("{name}, comparison {n}");
            assert_eq!(panicked, !matches!(result, Ok(Ok(()))), "{what}");
            assert_eq!(db.health().state, HealthState::Healthy, "{what}");
            read(&f, &db).unwrap_or_else(|e| panic!("{what}, repeated: {e}"));
            check(&what, &moody, (sim, db, f), &Ok(Ok(())), &[rows]);
            if !panicked {
                break;
            }
            n = next(n);
        }
        assert!(n > 3, "{name}: {n} comparisons");
    }
}

#[test]
fn an_open_whose_comparator_panics_may_be_repeated() {
    let moody = Moody::new();
    let (sim, db, f) = filled(&moody);
    let rows = contents(&f);
    let left = sim.killed();
    drop((db, f));
    let mut n = 1;
    loop {
        let sim = left.killed();
        let open = || sim.options().comparator(moody.order()).open();
        let (result, panicked) = moody.panics_at(n, open);
        if let Ok(Ok(db)) = result {
            assert_eq!(contents(&db.family("ordered").unwrap()), rows, "comparison {n}");
        }
        let db = open().unwrap_or_else(|e| panic!("comparison {n}, repeated: {e}"));
        assert_eq!(contents(&db.family("ordered").unwrap()), rows, "comparison {n}");
        if !panicked {
            break;
        }
        n = next(n);
    }
    assert!(n > 3, "{n} comparisons");
}

/// A store that panics in a chosen call.
#[derive(Debug, Default)]
struct Panicking {
    inner: MemoryStore,
    left: AtomicI64,
}

impl Panicking {
    fn call(&self) {
        assert!(self.left.fetch_sub(1, SeqCst) != 1, "planted");
    }
}

impl ObjectStore for Panicking {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        self.call();
        self.inner.put(name, body)
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.call();
        self.inner.get(name, sink)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        self.call();
        self.inner.list()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.call();
        self.inner.delete(name)
    }
}

/// A panic used to poison the database, or to leave an open through its caller.
#[test]
fn an_object_store_that_panics_fails_one_call() {
    let mut n = 1;
    loop {
        let store = Arc::new(Panicking { left: AtomicI64::new(n), ..Panicking::default() });
        let open = |sim: &Sim| sim.options().remote(RemoteOptions::new(Arc::clone(&store) as _)).open();
        let again = |result: Result<()>, call: &dyn Fn() -> Result<()>| match result {
            Err(Error::Io { .. }) => call().unwrap_or_else(|e| panic!("call {n}, repeated: {e}")),
            other => other.unwrap_or_else(|e| panic!("call {n}: {e}")),
        };
        let sim = Sim::new();
        let db = open(&sim).or_else(|_| open(&sim)).unwrap();
        for round in 0..3u8 {
            for key in 0..20u8 {
                db.put([key], noise(u64::from(round), 600)).unwrap();
            }
            again(db.upload(), &|| db.upload());
            again(db.compact(), &|| db.compact());
            again(db.upload(), &|| db.upload());
            assert_eq!(db.health().state, HealthState::Healthy, "call {n}");
        }
        let rows = contents(db.default_family());
        db.close().unwrap();
        let elsewhere = Sim::new();
        let db = open(&elsewhere).or_else(|_| open(&elsewhere)).unwrap();
        assert_eq!(contents(db.default_family()), rows, "call {n}");
        db.close().unwrap();
        if store.left.load(SeqCst) > 0 {
            break;
        }
        n += 1;
    }
    assert!(n > 20, "{n} calls");
}

/// A subscriber that panics at each error.
struct Angry;

impl tracing::Subscriber for Angry {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("planted");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A subscriber that panicked when the database was poisoned kept it from being poisoned, and other threads waiting.
#[test]
fn a_log_subscriber_that_panics_does_not_hide_a_failure() {
    type Call = fn(&Db) -> Result<()>;
    let calls: [(&str, Call); 3] = [
        ("put", |db| db.put("k", "v").map(drop)),
        ("sync", |db| db.sync().map(drop)),
        ("empty commit", |db| db.write(&mut WriteBatch::new()).map(drop)),
    ];
    for (name, call) in calls {
        let sim = Sim::new();
        let db = sim.open();
        db.put_with("a", "v", &tidesdb::WriteOptions::default().sync(SyncMode::None)).unwrap();
        sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS));
        let result =
            tracing::subscriber::with_default(Angry, || catch_unwind(AssertUnwindSafe(|| call(&db))));
        let result = result.unwrap_or_else(|_| panic!("{name}: the panic reached the caller"));
        assert!(matches!(result, Err(Error::Poisoned { .. } | Error::CommitUnknown { .. })), "{name}");
        let other = std::thread::scope(|scope| scope.spawn(|| db.put("b", "v")).join().unwrap());
        assert!(matches!(other, Err(Error::Poisoned { .. })), "{name}");
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"v"[..]));
    }
    let sim = Sim::new();
    let db = sim.open();
    db.default_family().set_commit_hook(Some(Arc::new(|_: &_| panic!("planted"))));
    tracing::subscriber::with_default(Angry, || db.put("k", "v")).unwrap();
}

#[test]
fn a_panic_of_a_body_reaches_the_caller_and_nothing_was_done() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put("k", "v").unwrap();
    let bodies: [(&str, &dyn Fn()); 4] = [
        ("transact", &|| {
            let _ = db.transact(|tx| -> Result<()> {
                tx.put(f, "k", "other")?;
                tx.get(f, "k")?;
                panic!("planted")
            });
        }),
        ("update", &|| drop(f.update("k", |_| panic!("planted")))),
        ("get_map", &|| drop(f.get_map("k", |_| -> () { panic!("planted") }))),
        ("value_writer", &|| {
            let mut writer = f.value_writer("k").unwrap();
            io::Write::write_all(&mut writer, &noise(1, 1 << 20)).unwrap();
            panic!("planted")
        }),
    ];
    for (name, body) in bodies {
        assert!(catch_unwind(AssertUnwindSafe(body)).is_err(), "{name}");
        assert_eq!(keys(f.iter()), ["k"]);
        assert_eq!(f.get("k").unwrap().as_deref(), Some(&b"v"[..]), "{name}");
        assert_eq!(db.stats().snapshots, 0, "{name}: a snapshot stays");
    }
    f.put("k", "w").unwrap();
    f.compact().unwrap();
    db.close().unwrap();
}
