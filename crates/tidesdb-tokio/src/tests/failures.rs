//! What tasks get, and what is in the database, when futures are dropped, functions panic, syncs fail, or the database is closed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tidesdb::{
    Comparator, Db, Error, Family, FamilyOptions, OpenOptions, Result, SeqNo, SyncMode, WriteBatch,
};
use tidesdb_io::sim::{self, Fault, Image, OpSet, SimDisk, errno};

use crate::Committer;

/// A simulated machine.
struct Machine {
    disk: Arc<SimDisk>,
    options: OpenOptions,
}

impl Machine {
    fn new() -> Self {
        Self::on(SimDisk::new(7))
    }

    fn on(disk: SimDisk) -> Self {
        let (env, disk, _) = sim::env_on(disk, 7);
        let options = Db::options("/db").env(env).sync(SyncMode::None).background_threads(0);
        Self { disk, options }
    }

    fn open(&self) -> Db {
        self.options.clone().open().unwrap()
    }

    /// Returns the keys that a power failure leaves of the synced bytes only.
    fn kept(&self) -> Vec<String> {
        keys(&Self::on(self.disk.crash_image(&Image::SYNCED, 1)).open())
    }
}

fn keys(db: &Db) -> Vec<String> {
    db.iter().unwrap().map(|row| String::from_utf8(row.unwrap().0.to_vec()).unwrap()).collect()
}

fn put(family: &Family, key: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(family, key, "v").unwrap();
    batch
}

/// Holds the committer in the hook of a commit of `key`, so that all later requests are one group.
struct Gate {
    reached: Receiver<()>,
    open: SyncSender<()>,
}

impl Gate {
    fn at(family: &Family, key: &'static str) -> Self {
        let ((reached, is_reached), (open, opened)) = (sync_channel(1), sync_channel(1));
        let opened = Mutex::new(opened);
        family.set_commit_hook(Some(Arc::new(move |commit: &tidesdb::Committed<'_>| {
            if matches!(commit.ops, [tidesdb::CommittedOp::Put { key: k, .. }] if *k == key.as_bytes()) {
                reached.send(()).unwrap();
                opened.lock().unwrap().recv().unwrap();
            }
        })));
        Self { reached: is_reached, open }
    }
}

/// Commits a first batch, then hands over `batches` as one group. Returns their results.
async fn as_one_group(db: &Db, committer: &Committer, batches: Vec<WriteBatch>) -> Vec<Result<SeqNo>> {
    let gate = Gate::at(db.default_family(), "first");
    let first = committer.commit(put(db.default_family(), "first"));
    gate.reached.recv().unwrap();
    let futures: Vec<_> = batches.into_iter().map(|batch| committer.commit(batch)).collect();
    gate.open.send(()).unwrap();
    first.await.unwrap();
    let mut results = Vec::new();
    for future in futures {
        results.push(future.await);
    }
    results
}

/// A group whose last batch was empty was acknowledged without a sync.
#[tokio::test]
async fn a_group_is_durable_wherever_it_has_empty_batches() {
    for empty in [vec![9], vec![0], vec![0, 5, 9], vec![8, 9], (0..10).collect()] {
        let machine = Machine::new();
        let db = machine.open();
        let committer = Committer::new(&db).unwrap();
        let batch =
            |n| if empty.contains(&n) { WriteBatch::new() } else { put(db.default_family(), &n.to_string()) };
        let results = as_one_group(&db, &committer, (0..10).map(batch).collect()).await;
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(machine.kept(), keys(&db), "empty: {empty:?}");
        assert_eq!(keys(&db).len(), 11 - empty.len());
    }
}

#[tokio::test]
async fn an_empty_batch_alone_waits_for_commits_of_others() {
    let machine = Machine::new();
    let db = machine.open();
    let committer = Committer::new(&db).unwrap();
    db.put("a", "v").unwrap();
    assert!(machine.kept().is_empty());
    committer.commit(WriteBatch::new()).await.unwrap();
    assert_eq!(machine.kept(), ["a"]);
    let syncs = db.stats().syncs.count;
    for _ in 0..10 {
        committer.commit(WriteBatch::new()).await.unwrap();
    }
    assert_eq!(db.stats().syncs.count, syncs, "nothing was left to sync");
}

/// Polls `future` once.
fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_commit_whose_future_is_dropped_happens_in_its_order_and_is_durable() {
    let machine = Machine::new();
    let db = machine.open();
    let committer = Committer::new(&db).unwrap();
    for n in 0..300 {
        let mut batch = put(db.default_family(), &format!("{n:03}"));
        batch.put(db.default_family(), "last", n.to_string()).unwrap();
        let future = committer.commit(batch);
        match n % 3 {
            0 => drop(future), // never polled
            1 => drop(poll_once(future)),
            _ => tokio::spawn(future).abort(),
        }
    }
    // An empty commit comes after them all.
    committer.commit(WriteBatch::new()).await.unwrap();
    assert_eq!(keys(&db).len(), 301);
    assert_eq!(machine.kept(), keys(&db));
    assert_eq!(db.get("last").unwrap().as_deref(), Some(&b"299"[..]));
}

#[test]
fn what_was_handed_over_is_committed_when_every_handle_is_dropped() {
    let machine = Machine::new();
    let db = machine.open();
    let committer = Committer::new(&db).unwrap();
    for n in 0..100 {
        drop(committer.commit(put(db.default_family(), &n.to_string())));
    }
    drop((db, committer)); // the thread of the committer drops the last `Db`
    assert_eq!(keys(&machine.open()).len(), 100);
}

/// A waker with the last handle of a committer; says whether its drop returned.
struct Last {
    committer: Mutex<Option<Committer>>,
    is_dropped: SyncSender<bool>,
}

impl Wake for Last {
    fn wake(self: Arc<Self>) {
        let committer = self.committer.lock().unwrap().take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(committer)));
        self.is_dropped.send(dropped.is_ok()).unwrap();
    }
}

#[tokio::test]
async fn a_committer_can_be_dropped_on_its_own_thread() {
    let machine = Machine::new();
    let db = machine.open();
    let committer = Committer::new(&db).unwrap();
    let gate = Gate::at(db.default_family(), "k");
    let mut commit = Box::pin(committer.commit(put(db.default_family(), "k")));
    gate.reached.recv().unwrap();
    let (is_dropped, dropped) = sync_channel(1);
    let waker = Waker::from(Arc::new(Last { committer: Mutex::new(Some(committer)), is_dropped }));
    assert!(commit.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open.send(()).unwrap();
    assert!(dropped.recv().unwrap(), "the thread cannot wait for itself");
    commit.await.unwrap();
    assert_eq!(machine.kept(), ["k"]);
}

/// One panic used to end the thread: the commit was visible and reported as `Closed`, as were all later ones.
#[tokio::test]
async fn a_hook_that_panics_takes_no_commit_with_it() {
    let machine = Machine::new();
    let db = machine.open();
    let hooked = db.create_family("hooked", FamilyOptions::default()).unwrap();
    hooked.set_commit_hook(Some(Arc::new(|_: &_| panic!("planted"))));
    let committer = Committer::new(&db).unwrap();
    for round in 0..3 {
        let family = |n| if n % 2 == 0 { &hooked } else { db.default_family() };
        let batches = (0..6).map(|n| put(family(n), &format!("{round}{n}"))).collect();
        let results = as_one_group(&db, &committer, batches).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    assert_eq!((keys(&db).len(), hooked.iter().unwrap().count()), (10, 9));
    let after = Machine::on(machine.disk.crash_image(&Image::SYNCED, 1)).open();
    assert_eq!((keys(&after).len(), after.family("hooked").unwrap().iter().unwrap().count()), (10, 9));
}

/// A panic in the middle of an insert poisons the database. What was in the log before is durable or `CommitUnknown`, and what came after
/// had no effect.
#[tokio::test]
async fn a_comparator_that_panics_is_reported_to_each_task_as_it_concerns_it() {
    let angry = Arc::new(AtomicBool::new(false));
    let moods = Arc::clone(&angry);
    let order = Comparator::custom("moody", move |a, b| {
        assert!(!moods.load(SeqCst), "planted");
        a.cmp(b)
    });
    let mut machine = Machine::new();
    machine.options = machine.options.comparator(order.clone());
    let db = machine.open();
    let ordered = db.create_family("ordered", FamilyOptions::default().comparator(order.clone())).unwrap();
    for key in ["a", "c"] {
        ordered.put(key, "v").unwrap();
    }
    let committer = Committer::new(&db).unwrap();
    let batches =
        vec![put(db.default_family(), "before"), put(&ordered, "b"), put(db.default_family(), "after")];
    let gate = Gate::at(db.default_family(), "before");
    let futures: Vec<_> = batches.into_iter().map(|batch| committer.commit(batch)).collect();
    gate.reached.recv().unwrap();
    angry.store(true, SeqCst);
    gate.open.send(()).unwrap();
    let mut results = Vec::new();
    for future in futures {
        results.push(future.await);
    }
    angry.store(false, SeqCst);
    // The first commit may be a group of its own.
    assert!(matches!(results[0], Ok(_) | Err(Error::CommitUnknown { .. })), "{results:?}");
    assert!(matches!(results[1], Err(Error::CommitUnknown { seq: 1.., .. })), "{results:?}");
    assert!(matches!(results[2], Err(Error::Poisoned { .. })), "{results:?}");
    let late = committer.commit(put(db.default_family(), "late")).await;
    assert!(matches!(late, Err(Error::Poisoned { .. })), "{late:?}");
    let after = Machine::on(machine.disk.fork()).options.comparator(order).open().unwrap();
    assert_eq!(keys(&after), ["before"]);
    assert!(after.family("ordered").unwrap().iter().unwrap().count() >= 2);
}

#[tokio::test]
async fn a_group_whose_sync_fails_is_unknown() {
    let machine = Machine::new();
    let db = machine.open();
    let committer = Committer::new(&db).unwrap();
    committer.commit(put(db.default_family(), "durable")).await.unwrap();
    machine.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS));
    let futures: Vec<_> =
        (0..5).map(|n| committer.commit(put(db.default_family(), &n.to_string()))).collect();
    for (n, future) in futures.into_iter().enumerate() {
        match future.await {
            Err(Error::CommitUnknown { seq: 1.., cause }) => {
                assert!(matches!(*cause, Error::Io { .. }), "{cause}")
            }
            Err(Error::Poisoned { .. }) => assert!(n > 0 && !db.contains(n.to_string()).unwrap()), // a later group
            other => panic!("{n}: {other:?}"),
        }
    }
    assert_eq!(machine.kept(), ["durable"]);
}

/// Commits that are done used to be reported as `Closed` if the database was closed before the last of their group.
#[tokio::test]
async fn a_close_in_the_middle_of_a_group_tells_each_task_what_happened() {
    let machine = Machine::new();
    let db = machine.open();
    let committer = Committer::new(&db).unwrap();
    let gate = Gate::at(db.default_family(), "two");
    let keys_of_group = ["one", "two", "three"];
    let futures = keys_of_group.map(|key| committer.commit(put(db.default_family(), key)));
    gate.reached.recv().unwrap();
    db.clone().close().unwrap();
    gate.open.send(()).unwrap();
    let [one, two, three] = futures;
    assert!(one.await.is_ok() && two.await.is_ok(), "the close made them durable");
    assert!(matches!(three.await, Err(Error::Closed)));
    assert!(matches!(committer.commit(WriteBatch::new()).await, Err(Error::Closed)));
    assert_eq!(machine.kept(), ["one", "two"]);
}

/// A waker that panics.
struct Alarm;

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        panic!("planted");
    }
}

#[tokio::test]
async fn a_waker_that_panics_stops_no_other_task() {
    let machine = Machine::new();
    let db = machine.open();
    let committer = Committer::new(&db).unwrap();
    let gate = Gate::at(db.default_family(), "first");
    let mut first = Box::pin(committer.commit(put(db.default_family(), "first")));
    gate.reached.recv().unwrap();
    let alarm = Waker::from(Arc::new(Alarm));
    assert!(first.as_mut().poll(&mut Context::from_waker(&alarm)).is_pending());
    let second = committer.commit(put(db.default_family(), "second"));
    gate.open.send(()).unwrap();
    second.await.unwrap();
    first.await.unwrap();
    assert_eq!(machine.kept(), ["first", "second"]);
}
