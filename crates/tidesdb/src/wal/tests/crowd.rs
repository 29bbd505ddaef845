//! Many threads use the sequencer and the log.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::*;
use crate::wal::Sequencer;

const THREADS: u64 = 4;

/// A commit of one thread, and the time just before it was published.
type Seen = (Commit, u64);

/// Every reservation begins where the previous one ended, or in the next segment after an exact pad.
fn assert_dense(seen: &[Seen]) {
    for (a, b) in seen.iter().zip(&seen[1..]) {
        let (a, b) = (a.0, b.0);
        assert_eq!(b.begin, a.end);
        if b.seq != b.begin {
            let next = (a.end * UNIT / SEGMENT + 1) * SEGMENT;
            assert_eq!(next + SEGMENT_HEADER_BYTES, b.seq * UNIT);
        }
    }
}

#[test]
fn addresses_are_dense_and_the_prefix_never_passes_an_unfinished_commit() {
    const COMMITS: u64 = 20_000;
    let s = Sequencer::new(SEGMENT, 1);
    let (time, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let worker = |thread: u64| {
        let mut out: Vec<Seen> = Vec::new();
        for i in 0..COMMITS {
            let bytes = 32 + 8 * ((i * 7 + thread * 13) % 40) + if i % 997 == 0 { 2 * SEGMENT } else { 0 };
            let c = s.reserve(bytes, Purpose::Store).unwrap();
            if i % 3 == 0 {
                s.written(&c);
            }
            if i % 64 == thread {
                std::thread::yield_now();
            }
            let at = time.fetch_add(1, SeqCst);
            s.done(&c);
            assert!(s.snapshot() >= c.seq, "a reader after the return misses the commit");
            out.push((c, at));
        }
        out
    };
    let observer = || {
        let mut out: Vec<(u64, u64)> = Vec::new();
        while !stop.load(SeqCst) {
            let (end, now) = (s.visible_end(), time.load(SeqCst));
            // The first time of each end says most, and all of them would not fit into addresses of 32 bits.
            if out.last().is_none_or(|(last, _)| *last != end) {
                out.push((end, now));
            }
        }
        out
    };
    let (mut seen, observed) = std::thread::scope(|scope| {
        let observer = scope.spawn(observer);
        let workers: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || worker(t))).collect();
        let seen: Vec<Seen> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        stop.store(true, SeqCst);
        (seen, observer.join().unwrap())
    });
    seen.sort_by_key(|(c, _)| c.seq);
    assert_dense(&seen);
    assert_eq!(s.visible_end(), seen.last().unwrap().0.end);
    // For each `n`, the time at which the last of the first `n` commits was published.
    let mut finished = vec![0];
    finished.extend(seen.iter().map(|(_, at)| *at).scan(0, |latest, at| {
        *latest = at.max(*latest);
        Some(*latest)
    }));
    for (end, now) in observed {
        let visible = seen.partition_point(|(c, _)| c.end <= end);
        assert!(visible == 0 || finished[visible] < now, "a commit was visible too early");
    }
}

#[test]
fn a_rotation_splits_the_commits_at_its_boundary() {
    let s = Sequencer::new(SEGMENT, 1);
    let boundaries = Mutex::new(vec![s.tail()]);
    let stop = AtomicBool::new(false);
    let all: Vec<Commit> = std::thread::scope(|scope| {
        let rotator = scope.spawn(|| {
            while !stop.load(SeqCst) {
                let held = s.hold();
                assert_eq!(s.tail(), held.boundary, "a commit was ordered while the tail was held");
                boundaries.lock().unwrap().push(held.boundary);
                drop(held);
                std::thread::yield_now();
            }
        });
        let worker = || {
            let commits = (0..20_000).map(|_| {
                let c = s.reserve(48, Purpose::Store).unwrap();
                s.done(&c);
                c
            });
            commits.collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        let all = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        stop.store(true, SeqCst);
        rotator.join().unwrap();
        all
    });
    let boundaries = boundaries.into_inner().unwrap();
    assert!(boundaries.is_sorted());
    for c in &all {
        let later = boundaries.partition_point(|b| *b <= c.seq);
        let crossed = boundaries.get(later).is_some_and(|b| *b < c.end);
        assert!(!crossed, "a boundary lies inside a commit");
    }
    assert_eq!(s.visible_end(), all.iter().map(|c| c.end).max().unwrap());
}

#[test]
fn concurrent_writes_are_all_read_back() {
    let rig = Rig::on(SimDisk::new(1), 64 << 10);
    rig.disk.log_ops(false);
    let log = rig.log(true);
    let write = |thread: u64| {
        let one = |i: u64| {
            let mut body = body(thread * 1000 + i, 8 + (i * 37 % 900) as usize);
            body[0] = thread as u8;
            (put_by(&log, &body, i.is_multiple_of(2)).seq, body)
        };
        (0..500).map(one).collect::<Vec<Read>>()
    };
    let mut written: Vec<Read> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || write(t))).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    written.sort();
    let (found, read) = rig.reopened().read().unwrap();
    assert_eq!(read, written);
    assert!(found.unfinished.is_empty() && found.cut.is_none());
}

#[test]
fn a_synced_commit_survives_a_power_failure() {
    let rig = Rig::on(SimDisk::new(1), 32 << 10);
    rig.disk.log_ops(false);
    let log = rig.log(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, rig) = (&log, &rig);
            scope.spawn(move || {
                for i in 0..40 {
                    let body = body(thread * 100 + i, 300);
                    let commit = log.append(&mut record(&body), 1, false, Purpose::Store).unwrap();
                    log.sequencer().ready(&commit);
                    log.sync_to(commit.end, &no_values).unwrap();
                    // Another thread may not have marked its commit, which is before this one: readers wait for that.
                    log.sequencer().acknowledge(&commit);
                    assert!(log.sequencer().snapshot() >= commit.seq);
                    if i % 10 != 0 {
                        continue;
                    }
                    let after = Rig::on(rig.disk.crash_image(&sim::Image::SYNCED, i), 32 << 10);
                    let config = ScanConfig { boot_id: OTHER_BOOT, ..after.config() };
                    let (_, read) = after.read_with(&config).unwrap();
                    assert!(read.contains(&(commit.seq, body)), "thread {thread}, commit {i}");
                }
            });
        }
    });
}

/// The next segment is prepared in the background while a record that needs a longer one takes its place.
#[test]
fn preparing_never_replaces_a_segment_in_use() {
    let rig = Rig::on(SimDisk::new(1), SEGMENT);
    rig.disk.log_ops(false);
    let log = rig.log(false);
    let stop = AtomicBool::new(false);
    let written: Vec<Read> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    log.prepare_next().unwrap();
                }
            });
        }
        let one = |i: u64| {
            let body = body(i, if i.is_multiple_of(2) { SEGMENT as usize } else { 100 });
            (put(&log, &body).seq, body)
        };
        let written = (0..600).map(one).collect();
        stop.store(true, SeqCst);
        written
    });
    let (_, read) = rig.reopened().read().unwrap();
    assert!(read == written, "{} of {} commits are left", read.len(), written.len());
}
