//! No commit waits for a file of the log to be made durable, while a thread keeps up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidesdb_io::sim::{Fault, errno};

use super::*;
use crate::waits::StallCause;

/// How a commit of one segment after another meets a thread that prepares the log.
struct Prepared {
    rig: Rig,
    log: Log,
    asked: AtomicU64,
    ends: AtomicBool,
}

impl Prepared {
    fn new() -> Arc<Self> {
        let rig = Rig::new();
        let log = rig.log(false);
        let this = Arc::new(Self { rig, log, asked: AtomicU64::new(0), ends: AtomicBool::new(false) });
        let weak = Arc::downgrade(&this);
        this.log.prepared_by(move || {
            let this = weak.upgrade();
            this.is_some_and(|this| this.asked.fetch_add(1, SeqCst) < u64::MAX && !this.ends.load(SeqCst))
        });
        this
    }

    /// Runs `body` beside a thread that prepares the log when it is asked.
    fn beside_thread(self: &Arc<Self>, body: impl FnOnce()) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut served = 0;
                while !self.ends.load(SeqCst) {
                    let asked = self.asked.load(SeqCst);
                    if asked == served {
                        std::thread::yield_now();
                        continue;
                    }
                    served = asked;
                    let _ = self.log.prepare_next(); // the test looks at what commits see
                }
            });
            body();
            self.ends.store(true, SeqCst);
        });
    }

    fn put(&self, n: u64) -> Commit {
        let commit = put(&self.log, &body(n, 3000));
        if self.log.wants_next(&commit) && self.log.wants_piece(&commit) {
            self.asked.fetch_add(1, SeqCst);
        }
        commit
    }
}

/// Syncs of the thread of a commit, after the first file of the session.
#[test]
fn a_commit_makes_no_file_while_a_thread_does() {
    let at = Prepared::new();
    at.put(0);
    let mine = std::thread::current().id();
    let synced_here = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&synced_here);
    at.rig.disk.observe(OpKind::SyncDir, move |_, _| {
        count.fetch_add(u64::from(std::thread::current().id() == mine), SeqCst);
    });
    at.beside_thread(|| {
        for n in 1..400 {
            at.put(n);
        }
    });
    assert!(at.log.segment_of(at.log.sequencer().tail()) > WalId(20));
    assert_eq!(synced_here.load(SeqCst), 0, "the thread of the commits made files");
    let (_, read) = at.rig.reopened().read().unwrap();
    assert_eq!(read.len(), 400);
}

/// A preparation that fails leaves the commit to itself: it makes the file, or gets the error.
#[test]
fn a_commit_makes_the_file_that_a_thread_could_not_make() {
    let at = Prepared::new();
    at.put(0);
    at.rig.disk.inject(Fault::errno(errno::EIO).on(OpKind::SyncDir).times(1));
    at.beside_thread(|| {
        for n in 1..40 {
            at.put(n);
        }
    });
    assert_eq!(at.rig.reopened().read().unwrap().1.len(), 40);
}

/// Without an answer within its patience the thread is asked again; a thread that is gone is not waited for.
#[test]
fn no_commit_waits_for_a_thread_that_has_ended() {
    let at = Prepared::new();
    at.put(0);
    at.ends.store(true, SeqCst);
    for n in 1..20 {
        at.put(n);
    }
    assert_eq!(at.rig.reopened().read().unwrap().1.len(), 20);
}

/// What writers use while a preparation is due decides how much is ready the next time, up to a bound.
#[test]
fn more_is_ready_if_writers_are_fast() {
    for (segments, ready) in [(0, 1..=1), (2, 3..=4), (30, 4..=4)] {
        let rig = Rig::new();
        let log = rig.log(false);
        let ask = (0..).map(|n| put(&log, &body(n, 3000))).find(|commit| log.wants_next(commit));
        assert!(log.wants_piece(&ask.unwrap()), "the first one that is asked");
        let from = log.segment_of(log.sequencer().tail()).0;
        while log.segment_of(log.sequencer().tail()).0 < from + segments {
            assert!(!log.wants_piece(&put(&log, &body(1, 3000))), "it is asked already");
        }
        log.prepare_next().unwrap();
        let ahead = last_segment(&rig) - log.segment_of(log.sequencer().tail()).0;
        assert!(ready.contains(&ahead), "{segments} segments were used: {ahead} are ready");
    }
}

fn last_segment(rig: &Rig) -> u64 {
    let names = rig.disk.file_names(DB).unwrap();
    names.iter().filter_map(|name| name.strip_suffix(".wal")?.parse::<u64>().ok()).max().unwrap_or(0)
}

/// A wait for the log has a name.
#[test]
fn a_long_wait_for_a_file_is_counted() {
    let at = Prepared::new();
    at.put(0);
    let clock = Arc::clone(&at.rig.env.clock);
    at.rig.disk.observe(OpKind::SyncDir, move |_, _| clock.sleep(Duration::from_millis(3)));
    at.beside_thread(|| {
        for n in 1..100 {
            put(&at.log, &body(n, 3000)); // nobody asks ahead
        }
    });
    let waits = at.log.waits().of(StallCause::Log).stats(Duration::ZERO);
    assert!(waits.stopped > 0 && waits.longest >= Duration::from_millis(1), "{waits:?}");
}
