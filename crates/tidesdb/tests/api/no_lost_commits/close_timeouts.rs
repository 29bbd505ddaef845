//! `Db::close_timeout`: a close that cannot end in time says what it waits for, and loses nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tidesdb::{CompactionFilter, Db, Decision, Error, MergeOperator, SyncMode};
use tidesdb_io::sim::{Fault, OpSet, errno};
use tidesdb_io::{Clock as _, RealClock};

use crate::common::{Sim, contents, fill, small};

/// More than any step of these tests takes.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Threads wait at a gate until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
    reached: AtomicBool,
}

impl Gate {
    pub(crate) fn pass(&self) {
        self.reached.store(true, SeqCst);
        let is_open = self.is_open.lock().unwrap();
        drop(self.changed.wait_while(is_open, |is_open| !*is_open).unwrap());
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub(crate) fn wait_until_reached(&self) {
        while !self.reached.load(SeqCst) {
            std::thread::yield_now();
        }
    }
}

/// A database in `dir` whose background merges 500 rows and waits in the compaction filter until the gate is opened.
fn stuck_in_a_merge(dir: &std::path::Path) -> (Db, Arc<Gate>) {
    let options = small().l1_tables_trigger(2);
    let db = Db::options(dir).sync(SyncMode::None).default_family(options).background_threads(2);
    let db = db.open().unwrap();
    let gate = Arc::new(Gate::default());
    let stuck = Arc::clone(&gate);
    db.default_family().set_compaction_filter(Some(CompactionFilter::new("stuck", move |_| {
        stuck.pass();
        Decision::Keep
    })));
    for value in [b"1", b"2", b"3"] {
        fill(db.default_family(), 500, value);
        db.flush().unwrap();
    }
    gate.wait_until_reached();
    (db, gate)
}

fn waits_for(result: Result<(), Error>) -> String {
    match result {
        Err(e @ Error::Closing { .. }) if e.is_retryable() => e.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Begins a close beside a flush or merge that waits at `gate`, and opens the gate.
fn close_that_waits_at(gate: &Gate, db: &Db) {
    gate.wait_until_reached();
    let text = waits_for(db.close_timeout(Duration::from_millis(200)));
    assert!(text.contains(" of family \"default\" runs for "), "{text}");
    gate.open();
}

#[test]
fn a_close_with_a_stuck_merge_ends_in_time_and_goes_on_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let (db, gate) = stuck_in_a_merge(dir.path());
    db.put("last", "v").unwrap();
    let clock = RealClock::new();
    let text = waits_for(db.close_timeout(Duration::from_millis(300)));
    assert!((Duration::from_millis(300)..LONG).contains(&clock.mono()), "{:?}", clock.mono());
    assert!(
        text.contains(
            "background jobs, and calls that read or write files; a merge of family \"default\" runs for "
        ),
        "{text}"
    );
    assert!(matches!(db.put("later", "v"), Err(Error::Closed)));
    assert!(matches!(db.flush(), Err(Error::Closed)));
    assert_eq!(format!("{db:?}"), format!("Db {{ path: {:?}, closing }}", dir.path()));
    assert!(matches!(Db::open(dir.path()), Err(Error::Locked { .. })));
    waits_for(db.close_timeout(Duration::ZERO));
    gate.open();
    db.close_timeout(LONG).unwrap();
    db.clone().close().unwrap();
    assert!(matches!(db.get("last"), Err(Error::Closed)));

    let db = Db::open(dir.path()).unwrap();
    assert!(db.recovery_report().clean);
    assert_eq!(contents(db.default_family()).len(), 501);
    assert!(db.contains("last").unwrap() && !db.contains("later").unwrap());
}

/// The drop of the last handle used to wait for the merge.
#[test]
fn a_drop_after_the_timeout_does_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (db, gate) = stuck_in_a_merge(dir.path());
    waits_for(db.close_timeout(Duration::from_millis(1)));
    drop(db); // would never return
    gate.open();
    let clock = RealClock::new();
    let db = loop {
        match Db::open(dir.path()) {
            Err(Error::Locked { .. }) if clock.mono() < LONG => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    assert!(db.recovery_report().clean);
    assert_eq!(contents(db.default_family()).len(), 500);
}

/// A close that stopped admitting writes only after the merge let writers stall for ten seconds and fail with `Busy`.
#[test]
fn writers_fail_with_closed_while_a_close_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (db, gate) = stuck_in_a_merge(dir.path());
    let (written, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        for thread in 0..8u32 {
            let (db, written, ended) = (&db, &written, &ended);
            s.spawn(move || {
                for n in 0u32.. {
                    match db.put(format!("w {thread} {n}"), [7; 100]) {
                        Ok(_) => written.fetch_add(1, SeqCst),
                        Err(Error::Closed) => break,
                        Err(e) => panic!("{e}"),
                    };
                }
                ended.fetch_add(1, SeqCst);
            });
        }
        while written.load(SeqCst) < 1000 {
            std::thread::yield_now();
        }
        waits_for(db.close_timeout(Duration::from_millis(1)));
        while ended.load(SeqCst) < 8 {
            std::thread::yield_now(); // every writer ends although the close does not
        }
        waits_for(db.close_timeout(Duration::ZERO));
        gate.open();
    });
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert!(db.recovery_report().clean);
    assert_eq!(db.prefix("w ").unwrap().count() as u32, written.load(SeqCst));
}

/// A long merge ends early: a close in time is worth more than what it wrote.
#[test]
fn a_timed_close_stops_merges() {
    let dir = tempfile::tempdir().unwrap();
    let rows = 100_000;
    let db = Db::options(dir.path()).sync(SyncMode::None).background_threads(2).open().unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let slow = Arc::clone(&seen);
    db.default_family().set_compaction_filter(Some(CompactionFilter::new("slow", move |_| {
        slow.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_micros(50));
        Decision::Keep
    })));
    fill(db.default_family(), rows, b"v");
    std::thread::scope(|s| {
        let merging = s.spawn(|| db.compact());
        while seen.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        db.close_timeout(LONG).unwrap();
        assert!(matches!(merging.join().unwrap(), Err(Error::Busy { .. } | Error::Closed)));
    });
    assert!(seen.load(SeqCst) < rows, "the merge was not stopped");
    drop(db);
    assert_eq!(contents(Db::open(dir.path()).unwrap().default_family()).len(), rows as usize);
}

#[test]
fn a_close_waits_for_a_slow_device() {
    let sim = Sim::new();
    let db = sim.options().background_threads(1).open().unwrap();
    fill(db.default_family(), 100, b"v");
    let gate = Arc::new(Gate::default());
    let (stuck, clock) = (Arc::clone(&gate), Arc::clone(&sim.clock));
    sim.disk.observe(OpSet::SYNCS, move |_, _| {
        clock.advance(Duration::from_secs(60));
        stuck.pass();
    });
    let text = waits_for(db.close_timeout(Duration::from_secs(30)));
    assert!(text.contains("the database is still closing: it waits for "), "{text}");
    gate.open();
    db.close().unwrap();
    sim.disk.stop_observing();
    let db = sim.open();
    assert!(db.recovery_report().clean);
    assert_eq!(contents(db.default_family()).len(), 100);
}

/// The failure of a close behind the caller is not lost: it is the result of the next call.
#[test]
fn a_failed_close_has_one_result() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, b"v");
    sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::WRITES).forever());
    let first = db.close_timeout(LONG).unwrap_err().to_string();
    sim.disk.clear_faults();
    for result in [db.close_timeout(LONG), db.close_timeout(Duration::ZERO), db.clone().close(), db.close()] {
        assert_eq!(result.unwrap_err().to_string(), first);
    }
    let db = sim.open();
    assert!(!db.recovery_report().clean);
    assert_eq!(contents(db.default_family()).len(), 100);
}

/// A merge operator that never returns belongs to the program: the close can only say so.
#[test]
fn a_close_with_a_stuck_merge_operator_names_the_flush_or_merge() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let stuck = Arc::clone(&gate);
    let operator = MergeOperator::custom("stuck", move |value, operand| {
        stuck.pass();
        value.extend_from_slice(operand);
        Ok(())
    });
    let options = small().merge_operator(operator).l1_tables_trigger(1000);
    let open =
        || Db::options(dir.path()).default_family(options.clone()).background_threads(2).open().unwrap();
    let db = open();
    for _ in 0..3 {
        db.merge("k", "x").unwrap();
    }
    std::thread::scope(|s| {
        let compacting = s.spawn(|| db.compact());
        close_that_waits_at(&gate, &db);
        let _ = compacting.join().unwrap(); // it may have been stopped
    });
    db.close().unwrap();
    assert_eq!(open().get("k").unwrap().unwrap(), b"xxx");
}

/// A commit that had ended began a merge after the close, when another process may use the same file numbers.
#[test]
fn no_merge_begins_in_the_thread_of_a_commit_after_the_close() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::options(dir.path()).default_family(small().l1_tables_trigger(2)).background_threads(0);
    let db = open().open().unwrap();
    let (gate, merges) = (Arc::new(Gate::default()), Arc::new(AtomicU32::new(0)));
    let (held, merged) = (Arc::clone(&gate), Arc::clone(&merges));
    for value in [b"1", b"2"] {
        fill(db.default_family(), 100, value);
        db.flush().unwrap(); // asks for a merge
    }
    db.default_family().set_commit_hook(Some(Arc::new(move |_| held.pass())));
    db.default_family().set_compaction_filter(Some(CompactionFilter::new("seen", move |_| {
        merged.fetch_add(1, SeqCst);
        Decision::Keep
    })));
    std::thread::scope(|s| {
        s.spawn(|| db.put("late", "v").unwrap());
        gate.wait_until_reached();
        db.clone().close().unwrap();
        merges.store(0, SeqCst); // the close flushes
        gate.open();
    });
    assert_eq!(merges.load(SeqCst), 0);
    let report = open().open().unwrap().recovery_report().clone();
    assert!(report.clean && report.orphans == 0, "{report}");
}

/// Neither the directory nor its file numbers are free while a caller merges.
#[test]
fn a_close_waits_for_merges_in_the_threads_of_callers() {
    for by_commit in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open =
            || Db::options(dir.path()).default_family(small().l1_tables_trigger(2)).background_threads(0);
        let db = open().open().unwrap();
        let gate = Arc::new(Gate::default());
        let stuck = Arc::clone(&gate);
        let filter = CompactionFilter::new("stuck", move |_| {
            stuck.pass();
            Decision::Keep
        });
        db.default_family().set_compaction_filter(Some(filter));
        std::thread::scope(|s| {
            let caller = s.spawn(|| {
                for value in [b"1", b"2"] {
                    fill(db.default_family(), 100, value);
                    db.flush().unwrap();
                }
                if by_commit { db.put("late", "v").map(drop) } else { db.compact() }
            });
            close_that_waits_at(&gate, &db);
            let _ = caller.join().unwrap(); // it may have been stopped
        });
        db.close().unwrap();
        let report = open().open().unwrap().recovery_report().clone();
        assert!(report.clean && report.orphans == 0, "{report}");
    }
}
