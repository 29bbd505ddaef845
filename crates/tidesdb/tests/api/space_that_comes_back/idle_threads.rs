//! Threads that stop calling: what they did before holds no space and no memory, and what they have open holds what it shows.

use std::any::Any;
use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use tidesdb::{
    Db, DbOptions, Error, FamilyOptions, HealthState, Isolation, OpenOptions, SyncMode, WriteBatch,
};
use tidesdb_io::{JoinHandle, Priority, RealThreads, Threads as _};

use crate::common::{DB, Sim, noise};
use crate::large_values::streams::quiet;

const MIB: usize = 1 << 20;

/// A thread that has done its work and is alive, but makes no more calls until this is dropped.
struct Idle {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle>,
}

impl Idle {
    /// Runs `work` in a thread, which keeps the result, and returns when it is done.
    fn after<R>(work: impl FnOnce() -> R + Send + 'static) -> Self {
        let (done, is_done) = mpsc::channel();
        let (end, is_end) = mpsc::channel();
        let body = move || {
            let _held = work();
            done.send(()).unwrap();
            let _ = is_end.recv();
        };
        let thread = RealThreads::new().spawn("idle", Priority::Normal, Box::new(body)).unwrap();
        is_done.recv().unwrap();
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// Bytes of the value logs on disk.
fn value_bytes(sim: &Sim) -> usize {
    let names = sim.disk.file_names(DB).unwrap();
    let logs = names.iter().filter(|name| name.contains(".vlog"));
    logs.map(|name| sim.disk.read_file(format!("{DB}/{name}")).map_or(0, |bytes| bytes.len())).sum()
}

/// Waits until `done` returns true: readers of other tests may keep a file for a while. Databases here have at most one worker: of
/// several, some have a low priority, and may not run for minutes on a busy machine.
fn until(mut done: impl FnMut() -> bool) -> bool {
    (0..12_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        done()
    })
}

fn put_long(db: &Db, key: u8, len: usize) -> tidesdb::Result<u64> {
    db.put_stream([key], &*noise(u64::from(key), len))
}

/// Puts five long values in a thread and deletes them in another one. Both are idle then.
fn put_and_delete(db: &Db) -> [Idle; 2] {
    let (putting, deleting) = (db.clone(), db.clone());
    let put = Idle::after(move || (0..5).for_each(|key| assert!(put_long(&putting, key, 5 * MIB).is_ok())));
    let delete = Idle::after(move || (0..5).for_each(|key| assert!(deleting.delete([key]).is_ok())));
    [put, delete]
}

/// Value logs of a few chunks, whose names replace the view, and memtables that the values do not fill.
fn options(sim: &Sim) -> OpenOptions {
    sim.options().default_family(quiet().write_buffer_bytes(64 << 20)).sync(SyncMode::None)
}

/// The thread once kept the last views that it had replaced, with the files that they name.
#[test]
fn the_space_of_deleted_values_comes_back_without_the_thread_that_put_them() {
    let sim = Sim::new();
    let db = options(&sim).background_threads(1).open().unwrap();
    let _idle = put_and_delete(&db);
    // A file that is not full may stay, and a little garbage is tolerated.
    assert!(until(|| value_bytes(&sim) < 5 * MIB), "{:?}", sim.disk.file_names(DB).unwrap());
}

/// Without threads, the operations that free space reclaim what other threads left.
#[test]
fn the_space_comes_back_without_background_threads() {
    let sim = Sim::new();
    let db = options(&sim).open().unwrap();
    let _idle = put_and_delete(&db);
    assert!(value_bytes(&sim) > 25 * MIB);
    let freed = until(|| {
        db.compact().unwrap();
        value_bytes(&sim) < 5 * MIB
    });
    assert!(freed, "{:?}", sim.disk.file_names(DB).unwrap());
}

fn nearly_full(o: &mut DbOptions) {
    o.disk_reserve_bytes = Some(0);
}

/// Large puts are refused while the disk is full of values that only the memtable knows to be deleted.
#[test]
fn a_full_disk_gets_the_space_of_deleted_values_back_for_the_next_long_put() {
    for threads in [0, 1] {
        let sim = Sim::new();
        let db = options(&sim).background_threads(threads).with(nearly_full).open().unwrap();
        sim.disk.limit_space(Some(48 << 20));
        let writer = db.clone();
        let _idle = Idle::after(move || {
            for key in 0..8 {
                put_long(&writer, key, 5 * MIB).unwrap();
            }
        });
        let long = noise(100, 20 * MIB);
        let refused = db.put_stream([100], &*long);
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        let other = db.clone();
        let _also_idle = Idle::after(move || (0..8).for_each(|key| assert!(other.delete([key]).is_ok())));
        let stored = until(|| match db.put_stream([101], &*long) {
            Ok(_) => true,
            Err(Error::NoSpace { .. }) => false,
            Err(e) => panic!("{e}"),
        });
        assert!(stored, "{threads} threads: {:?} {}", sim.disk.file_names(DB).unwrap(), db.health());
        assert_eq!(db.get([101]).unwrap().unwrap().len(), 20 * MIB);
    }
}

/// Small commits have room, long values have not: health once looked at the former alone.
#[test]
fn a_database_that_refuses_long_values_is_degraded_until_they_fit() {
    for len in [20 * MIB, 4 * MIB] {
        let sim = Sim::new();
        let db = options(&sim).with(nearly_full).open().unwrap();
        put_long(&db, 0, 30 * MIB).unwrap();
        let value = noise(7, len);
        let puts: [&dyn Fn() -> tidesdb::Result<u64>; 3] =
            [&|| db.put_stream(b"stream", &*value), &|| db.put(b"one", &value), &|| {
                let mut tx = db.begin(Isolation::Snapshot);
                tx.put(db.default_family(), b"transaction", &value)?;
                tx.commit()
            }];
        for (n, put) in puts.into_iter().enumerate() {
            assert_eq!(db.health().state, HealthState::Healthy, "{n}");
            sim.disk.limit_space(Some(3 * MIB as u64));
            let refused = put();
            assert!(matches!(refused, Err(Error::NoSpace { .. })), "{n}: {refused:?}");
            let health = db.health();
            assert_eq!(health.state, HealthState::Degraded, "{n} of {len}");
            assert!(health.causes[0].starts_with("commits are refused: no space in /db: "), "{health}");
            db.put(b"small", b"commits have room").unwrap();
            assert_eq!(db.health().state, HealthState::Degraded, "{n} of {len}");
            sim.disk.limit_space(None);
            put().unwrap();
            assert_eq!(db.health().state, HealthState::Healthy, "{n} of {len}");
        }
    }
}

/// Makes something in an idle thread, which keeps it.
type Make = fn(&Db) -> Box<dyn Any>;

/// What an idle thread did: name, whether it may keep the deleted values, and what it has.
const HOLDERS: [(&str, bool, Make); 14] = [
    ("a get", false, |db| Box::new(db.get([1]).unwrap())),
    ("a cursor that is gone", false, |db| {
        db.default_family().cursor().unwrap().seek_to_first().unwrap();
        Box::new(())
    }),
    ("a snapshot that is gone", false, |db| {
        drop(db.snapshot());
        Box::new(())
    }),
    ("a transaction that reads the latest commits", false, |db| {
        let mut tx = db.begin(Isolation::ReadCommitted);
        tx.get(db.default_family(), [1]).unwrap();
        tx.put(db.default_family(), b"key", b"value").unwrap();
        Box::new(tx)
    }),
    ("a transaction that was rolled back", false, |db| {
        let mut tx = db.begin(Isolation::Serializable);
        tx.get(db.default_family(), [1]).unwrap();
        tx.rollback();
        Box::new(tx)
    }),
    ("a transaction that was committed", false, |db| {
        let mut tx = db.begin(Isolation::Serializable);
        tx.get(db.default_family(), [1]).unwrap();
        tx.put(db.default_family(), b"key", b"value").unwrap();
        tx.commit().unwrap();
        Box::new(tx)
    }),
    ("a batch", false, |db| {
        let mut batch = WriteBatch::new();
        batch.put(db.default_family(), b"key", b"value").unwrap();
        Box::new(batch)
    }),
    ("a writer of a short value", false, |db| {
        let mut writer = db.value_writer(b"key").unwrap();
        writer.write_all(&noise(1, MIB / 2)).unwrap();
        Box::new(writer)
    }),
    ("a family", false, |db| Box::new(db.default_family().clone())),
    ("a cursor", true, |db| {
        let mut cursor = db.default_family().cursor().unwrap();
        cursor.seek_to_first().unwrap();
        Box::new(cursor)
    }),
    ("an iterator", true, |db| Box::new(db.iter().unwrap())),
    ("a snapshot", true, |db| Box::new(db.snapshot())),
    ("a reader of a value", true, |db| Box::new(db.value_reader([1]).unwrap())),
    ("a transaction at a snapshot", true, |db| {
        let tx = db.begin(Isolation::Snapshot);
        tx.get(db.default_family(), [1]).unwrap();
        Box::new(tx)
    }),
];

#[test]
fn idle_holders_hold_what_they_show_and_nothing_else() {
    for (what, may_hold, make) in HOLDERS {
        let sim = Sim::new();
        let db = options(&sim).open().unwrap();
        let own = db.clone();
        let idle = Idle::after(move || {
            for key in 0..4 {
                put_long(&own, key, 4 * MIB).unwrap();
            }
            make(&own)
        });
        (0..4).for_each(|key| assert!(db.delete([key]).is_ok()));
        let is_freed = || {
            db.compact().unwrap();
            value_bytes(&sim) < 5 * MIB
        };
        if may_hold {
            for _ in 0..3 {
                assert!(!is_freed(), "{what} needs the values");
            }
            drop(idle);
        }
        assert!(until(is_freed), "{what}: {:?}", sim.disk.file_names(DB).unwrap());
    }
}

/// The batches that threads keep for their next put once took the share of transactions.
#[test]
fn idle_threads_leave_the_memory_of_what_they_put_to_others() {
    let sim = Sim::new();
    let family = FamilyOptions::default().write_buffer_bytes(1 << 20).value_threshold(usize::MAX);
    let options = sim.options().default_family(family).memory_limit(16 << 20).sync(SyncMode::None);
    for threads in [0, 1] {
        let db = options.clone().background_threads(threads).open().unwrap();
        let held = || db.stats().memory_transactions_bytes;
        let idle: Vec<_> = (0..100u32)
            .map(|n| {
                let db = db.clone();
                Idle::after(move || drop(db.put(n.to_be_bytes(), vec![7; 40_000]).map(|_| ())))
            })
            .collect();
        let mut tx = db.begin(Isolation::Snapshot);
        tx.put(db.default_family(), b"key", vec![7; 4_500_000]).unwrap();
        drop(tx);
        assert!(until(|| held() == 0 || threads == 0), "{}", held());
        drop(idle);
        db.close().unwrap();
    }
}
