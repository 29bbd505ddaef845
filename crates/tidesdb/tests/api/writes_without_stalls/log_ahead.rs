//! The log is prepared in advance, by a thread of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

use tidesdb::{Db, StallCause, SyncMode, WriteBatch};

use crate::common::{Sim, noise, small};

/// Holds the syncs of some files until it is opened.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set_shut(&self, yes: bool) {
        *self.is_shut.lock().unwrap() = yes;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut is_shut = self.is_shut.lock().unwrap();
        while *is_shut {
            is_shut = self.opened.wait(is_shut).unwrap();
        }
    }
}

/// A database on a disk whose syncs of tables pass a gate. Counts the syncs that `writer` makes.
struct Held {
    gate: Arc<Gate>,
    writer: Arc<Mutex<Option<ThreadId>>>,
    synced: Arc<AtomicU64>,
    db: Db,
}

fn held(sim: &Sim) -> Held {
    let (gate, writer) = (Arc::new(Gate::default()), Arc::new(Mutex::new(None)));
    let synced = Arc::new(AtomicU64::new(0));
    let (gate_of_disk, writer_of_disk, counted) =
        (Arc::clone(&gate), Arc::clone(&writer), Arc::clone(&synced));
    sim.disk.before_syncs(move |path| {
        if *writer_of_disk.lock().unwrap() == Some(std::thread::current().id()) {
            counted.fetch_add(1, SeqCst);
        }
        if path.ends_with(".klog") {
            gate_of_disk.pass();
        }
    });
    let options = sim.options().background_threads(2).sync(SyncMode::None);
    let family = small().write_buffer_bytes(256 << 20);
    let db = options.default_family(family).with(|o| o.wal_segment_bytes = 1 << 20).open().unwrap();
    Held { gate, writer, synced, db }
}

fn put_rows(db: &Db, rows: std::ops::Range<u32>) {
    for n in rows {
        db.put(n.to_be_bytes(), noise(n.into(), 400)).unwrap();
    }
}

/// The thread that flushes also prepared the log. While a flush waited for the device, commits made the files of the log themselves, and
/// synced each twice.
#[test]
fn no_commit_makes_a_file_of_the_log_while_a_flush_hangs() {
    let sim = Sim::new();
    let Held { gate, writer, synced, db } = held(&sim);
    put_rows(&db, 0..6_000); // two segments, so the thread of the log has started
    gate.set_shut(true);
    let (ended, end) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| db.flush().unwrap());
        while db.stats().jobs.is_empty() {
            std::thread::yield_now();
        }
        let (writer, db) = (&writer, &db);
        scope.spawn(move || {
            *writer.lock().unwrap() = Some(std::thread::current().id());
            put_rows(db, 6_000..26_000);
            *writer.lock().unwrap() = None;
            ended.send(()).unwrap();
        });
        let done = end.recv_timeout(Duration::from_secs(120));
        gate.set_shut(false);
        done.expect("the writer ends while the flush hangs");
    });
    assert_eq!(synced.load(SeqCst), 0, "the committing thread synced");
    db.close().unwrap();
}

/// The first write of a session makes the first file, and a record that is longer than a segment its own: these waits have a name.
#[test]
fn waits_for_the_log_are_counted_by_their_cause() {
    let sim = Sim::new();
    let (clock, is_slow) = (Arc::clone(&sim.clock), Arc::new(AtomicBool::new(true)));
    let slow = Arc::clone(&is_slow);
    sim.disk.before_syncs(move |path| {
        if path.contains(".wal") && slow.load(SeqCst) {
            clock.advance(Duration::from_millis(200));
        }
    });
    let options = || sim.options().sync(SyncMode::None).with(|o| o.wal_segment_bytes = 1 << 20);
    options().open().unwrap().close().unwrap();
    let db = options().open().unwrap();
    let waits = || db.stats().stalled_by(StallCause::Log);
    db.put(b"first", b"").unwrap();
    let first = waits();
    assert!(first.stopped > 0 && first.longest >= Duration::from_millis(200), "{first:?}");
    let mut long = WriteBatch::new();
    (0..4_000u32).for_each(|n| long.put(db.default_family(), n.to_be_bytes(), noise(n.into(), 400)).unwrap());
    db.write(&mut long).unwrap();
    let long = waits();
    assert!(long.stopped > first.stopped, "{long:?}");
    is_slow.store(false, SeqCst);
    put_rows(&db, 0..100);
    assert_eq!(waits().stopped, long.stopped, "short waits are not counted");
    assert_eq!(db.stats().stalled_by(StallCause::Device).stopped, 0);
    db.close().unwrap();
}
