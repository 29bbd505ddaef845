//! Write buffers of the least size: memtables that wait for a flush are few, and one flush takes them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::{Db, SyncMode};
use tidesdb_io::sim::OpKind;

use crate::common::{Sim, small};

const PUTS: u32 = 4000;

/// A database with write buffers of one byte. Counts the syncs of tables, which take a while, so that flushes fall far behind.
fn tiny(sim: &Sim) -> (Db, Arc<AtomicU64>) {
    let family = small().write_buffer_bytes(1).l1_tables_trigger(1000);
    let options = sim.options().background_threads(1).sync(SyncMode::None).default_family(family);
    let db = options.with(|o| o.wal_segment_bytes = 1 << 20).open().unwrap();
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    sim.disk.observe(OpKind::SyncData, move |op, _| {
        if op.path.ends_with(".klog") {
            counted.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    (db, syncs)
}

/// Each put filled a memtable, and each memtable was flushed to a table of its own: thousands waited, a get looked into each of
/// them, and a close took minutes.
#[test]
fn memtables_that_wait_are_few_whatever_their_size() {
    let sim = Sim::new();
    let (db, syncs) = tiny(&sim);
    let mut most = 0;
    for i in 0..PUTS {
        db.put(&(i % 1000).to_be_bytes(), &i.to_be_bytes()).unwrap();
        most = most.max(db.default_family().stats().immutables);
    }
    assert!(most <= 8, "{most} memtables waited");
    for i in 0..1000u32 {
        let newest = (PUTS - 1000 + i).to_be_bytes();
        assert_eq!(db.get(&i.to_be_bytes()).unwrap().unwrap(), newest);
    }
    let before = syncs.load(SeqCst);
    db.close().unwrap();
    let at_close = syncs.load(SeqCst) - before;
    assert!(at_close <= 4, "{at_close} tables were synced by the close");
    sim.disk.stop_observing();
    assert_eq!(sim.open_as_stored().iter().unwrap().keys().count(), 1000);
}

/// A user may ask for the flush of every row: writers wait before the memtables become too many.
#[test]
fn memtables_that_a_user_rotates_are_bounded() {
    let sim = Sim::new();
    let (db, _) = tiny(&sim);
    let mut most = 0;
    for i in 0..1000u32 {
        db.put(&i.to_be_bytes(), b"v").unwrap();
        db.default_family().start_flush().unwrap();
        most = most.max(db.default_family().stats().immutables);
    }
    assert!(most <= 65, "{most} memtables waited");
    db.close().unwrap();
    sim.disk.stop_observing();
    assert_eq!(sim.open_as_stored().iter().unwrap().keys().count(), 1000);
}

/// While memtables wait, the active one grows. It is flushed after them, although no commit comes.
#[test]
fn a_memtable_that_grew_meanwhile_is_flushed_without_another_commit() {
    let sim = Sim::new();
    let (db, _) = tiny(&sim);
    for i in 0..100u32 {
        db.put(&i.to_be_bytes(), b"v").unwrap();
    }
    while db.default_family().stats().memtable_entries > 0 {
        std::thread::yield_now(); // it would never end
    }
    assert_eq!(db.default_family().stats().table_entries, 100);
}
