//! Appending and reading back; group commit; seals.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::*;
use crate::Error;
use crate::wal::layout::record_bytes;
use crate::wal::space::FLUSH_OVERHEAD_BYTES;

/// Checks that bodies of these lengths are read back, written through the map and through system calls.
fn round_trip(segment: u64, lengths: &[usize]) {
    for mapped in [false, true] {
        let rig = Rig::on(SimDisk::new(1), segment);
        let log = rig.log(mapped);
        let bodies: Vec<_> = lengths.iter().enumerate().map(|(i, n)| body(i as u64, *n)).collect();
        let written: Vec<Read> = bodies.iter().map(|b| (put_by(&log, b, mapped).seq, b.clone())).collect();
        let (found, read) = rig.reopened().read().unwrap();
        assert!(read == written, "mapped: {mapped}, lengths {lengths:?}");
        assert!(found.end > written[written.len() - 1].0 && found.end <= log.sequencer().tail());
        assert_eq!(log.bytes_written(), lengths.iter().map(|n| record_bytes(*n as u64)).sum());
        assert!(found.unfinished.is_empty() && found.cut.is_none() && !found.sealed);
    }
}

#[test]
fn small_records() {
    round_trip(SEGMENT, &(0..70).collect::<Vec<_>>());
}

#[test]
fn records_around_the_limit_of_the_map() {
    let limit = (16 << 10) - RECORD_HEADER_BYTES;
    round_trip(64 << 10, &(limit - 17..limit + 17).collect::<Vec<_>>());
}

#[test]
fn records_around_the_length_of_a_segment() {
    let full = (SEGMENT - SEGMENT_HEADER_BYTES) as usize - RECORD_HEADER_BYTES;
    for len in full - 9..=full + 9 {
        round_trip(SEGMENT, &[1, len, 2, len, len, 3]);
    }
}

#[test]
fn records_longer_than_segments() {
    let two = (2 * SEGMENT - SEGMENT_HEADER_BYTES) as usize - RECORD_HEADER_BYTES;
    for len in [two - 8, two, two + 1, 5 * SEGMENT as usize + 77] {
        round_trip(SEGMENT, &[len, 9, len, len, 9]);
    }
}

#[test]
fn segments_with_every_length_of_unused_rest() {
    let room = (SEGMENT - SEGMENT_HEADER_BYTES) as usize - RECORD_HEADER_BYTES;
    for rest in (0..=96).step_by(8) {
        for next in [0, 8, 24, 40, 64, 72] {
            round_trip(SEGMENT, &[room - rest, next, 5]);
        }
    }
}

#[test]
fn an_empty_log_is_read_as_empty() {
    let rig = Rig::new();
    let config = ScanConfig { first_existed: false, ..rig.config() };
    assert_eq!(rig.read_with(&config).unwrap().1, []);
    drop(rig.log(false));
    let (found, read) = rig.reopened().read().unwrap();
    assert_eq!((read.len(), found.cut), (0, None));
}

#[test]
fn padding_is_not_part_of_the_body() {
    let rig = Rig::new();
    let log = rig.log(false);
    let mut buffer = record(b"abc");
    log.sequencer().done(&log.append(&mut buffer, 1, false, Purpose::Store).unwrap());
    assert_eq!(rig.reopened().read().unwrap().1[0].1, b"abc");
}

#[test]
fn one_sync_covers_all_that_is_written() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits: Vec<_> =
        (0..10).map(|i| log.append(&mut record(&body(i, 50)), 1, false, Purpose::Store).unwrap()).collect();
    commits.iter().for_each(|c| log.sequencer().ready(c));
    let before = rig.count(OpKind::SyncData);
    log.sync_to(commits[3].end, &no_values).unwrap();
    assert_eq!(rig.count(OpKind::SyncData) - before, 1);
    assert_eq!(log.sequencer().durable(), commits[9].end, "the leader syncs everything written");
    log.sync_to(commits[9].end, &no_values).unwrap();
    assert_eq!(rig.count(OpKind::SyncData) - before, 1, "nothing was left to sync");
}

#[test]
fn a_sync_covers_every_segment_since_the_last_sync() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits: Vec<_> = (0..8).map(|i| put(&log, &body(i, 9000))).collect();
    assert!(log.segment_of(commits[7].seq).0 >= 8);
    log.sync_to(commits[7].end, &no_values).unwrap();
    assert_eq!(rig.disk.pending_writes(), 0, "an earlier segment was not synced");
}

#[test]
fn values_are_durable_before_the_records_that_refer_to_them() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commit = put(&log, b"refers");
    let before = rig.count(OpKind::SyncData);
    let calls = AtomicUsize::new(0);
    let values = || {
        assert_eq!(rig.count(OpKind::SyncData), before, "the log was synced before the values");
        calls.fetch_add(1, SeqCst);
        Ok(())
    };
    log.sync_to(commit.end, &values).unwrap();
    assert_eq!(calls.load(SeqCst), 1);
}

/// While one thread syncs, others queue up; one further sync serves them all.
#[test]
fn waiters_share_a_sync() {
    let rig = Rig::new();
    let log = rig.log(false);
    let (syncing, go_on) = (Barrier::new(2), Barrier::new(2));
    let leads = AtomicUsize::new(0);
    let first = put(&log, b"first");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let values = || {
                leads.fetch_add(1, SeqCst);
                syncing.wait();
                go_on.wait();
                Ok(())
            };
            log.sync_to(first.end, &values).unwrap();
        });
        syncing.wait();
        let later: Vec<_> = (0..5).map(|i| put(&log, &body(i, 20))).collect();
        for commit in later {
            let (log, leads) = (&log, &leads);
            scope.spawn(move || {
                let values = || {
                    leads.fetch_add(1, SeqCst);
                    Ok(())
                };
                log.sync_to(commit.end, &values).unwrap();
                assert!(log.sequencer().durable() >= commit.end);
            });
        }
        go_on.wait();
    });
    assert_eq!(
        leads.load(SeqCst),
        2,
        "one sync at a time, and one for all waiters that came during the first"
    );
}

#[test]
fn a_sync_waits_for_a_commit_that_is_still_being_written() {
    let rig = Rig::new();
    let log = rig.log(false);
    let slow = log.sequencer().reserve(40, Purpose::Store).unwrap();
    let commit = log.append(&mut record(b"later"), 1, false, Purpose::Store).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.sync_to(commit.end, &no_values));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiter.is_finished(), "a commit was durable with a hole before it");
        log.sequencer().written(&slow);
        waiter.join().unwrap().unwrap();
    });
}

/// An open that cannot tell a kill from a loss of the machine ends the log at a hole, so nothing after it may be acknowledged.
#[test]
fn where_the_boot_is_unknown_a_commit_waits_for_those_before_it() {
    let rig = Rig::new();
    let config = |boot| LogConfig { boot, ..rig.log_config(false, 0..=0) };
    let other_mount = Boot { id: BOOT, is_exact: false };
    for (boot, waits) in [(KNOWN, false), (other_mount, true), (Boot::default(), true)] {
        let log = Log::new(&rig.env, &rig.dir, config(boot), &rig.health, WalId(1));
        log.begin(Vec::new()).unwrap();
        let slow = log.sequencer().reserve(40, Purpose::Store).unwrap();
        let mine = put(&log, b"mine");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| log.wait_safe_from_kill(&mine));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits || !waiter.is_finished(), "a kill would lose an acknowledged commit");
            if waits {
                log.sequencer().written(&slow);
            }
            waiter.join().unwrap().unwrap();
        });
        log.remove_all();
    }
}

/// The earlier commit fails and leaves a hole: the later one may be lost with it.
#[test]
fn where_the_boot_is_unknown_a_failure_before_a_commit_is_its_failure_too() {
    let rig = Rig::new();
    let config = LogConfig { boot: Boot::default(), ..rig.log_config(false, 0..=0) };
    let log = Log::new(&rig.env, &rig.dir, config, &rig.health, WalId(1));
    log.begin(Vec::new()).unwrap();
    let _never_written = log.sequencer().reserve(40, Purpose::Store).unwrap();
    let mine = put(&log, b"mine");
    log.poison(Error::internal("a write has failed"));
    assert!(matches!(log.wait_safe_from_kill(&mine), Err(Error::Poisoned { .. })));
}

#[test]
fn a_refused_record_is_valid_and_ignored_by_replay() {
    for mapped in [false, true] {
        let rig = Rig::new();
        let log = rig.log(mapped);
        let before = put(&log, b"before");
        let mut refused = record(b"refused");
        let place = log.reserve(&mut refused, Purpose::Store).unwrap();
        let after = put(&log, b"after");
        assert!(!log.sequencer().visible_end() > place.seq);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| log.sequencer().wait_for_earlier(&after));
            std::thread::sleep(std::time::Duration::from_millis(10));
            assert!(!next.is_finished(), "a later commit was decided first");
            log.write_at(&place, RecordKind::Refused, 1, &mut refused, mapped).unwrap();
            log.sequencer().done(&place);
            assert!(next.join().unwrap());
        });
        assert_eq!(log.sequencer().visible_end(), after.end);
        log.seal(&no_values).unwrap();
        let strict = ScanConfig { mode: RecoveryMode::Strict, ..rig.config() };
        let (found, read) = rig.reopened().read_with(&strict).unwrap();
        assert_eq!(read.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [before.seq, after.seq]);
        assert!(found.unfinished.is_empty() && found.damage.is_none());
    }
}

#[test]
fn a_seal_waits_for_an_earlier_commit_that_is_still_being_written() {
    let rig = Rig::new();
    let log = rig.log(false);
    let slow = log.sequencer().reserve(40, Purpose::Store).unwrap();
    let mine = put(&log, b"mine");
    std::thread::scope(|scope| {
        let sealing = scope.spawn(|| log.seal(&no_values));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!sealing.is_finished(), "the commit of the caller is not durable");
        log.sequencer().done(&slow);
        assert!(sealing.join().unwrap().unwrap() >= mine.end);
    });
}

#[test]
fn seals_come_in_pairs_a_page_apart() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commit = put(&log, b"x");
    let end = log.seal(&no_values).unwrap();
    assert_eq!(end, commit.end, "durable up to the last commit");
    assert_eq!(rig.disk.pending_writes(), 0, "the seals are durable too");
    let (found, read) = rig.reopened().read().unwrap();
    assert!(found.sealed && found.synced >= commit.end);
    assert_eq!(read.len(), 1);
    // The seal with a page of zeros, and the last seal.
    assert_eq!((found.end - commit.end) * UNIT, 32 + 4096 + 32);
    assert_eq!(log.sequencer().visible_end(), found.end);
}

#[test]
fn a_sealed_log_is_sealed_again_only_after_a_write() {
    let rig = Rig::new();
    let log = rig.log(false);
    put(&log, b"x");
    log.seal(&no_values).unwrap();
    let tail = log.sequencer().tail();
    log.seal(&no_values).unwrap();
    assert_eq!(log.sequencer().tail(), tail);
    put(&log, b"y");
    assert!(!rig.reopened().read().unwrap().0.sealed, "a commit after the seals makes the log unsealed");
    log.seal(&no_values).unwrap();
    assert!(log.sequencer().tail() > tail);
    let strict = ScanConfig { mode: RecoveryMode::Strict, ..rig.config() };
    let (found, read) = rig.reopened().read_with(&strict).unwrap();
    assert!(found.sealed && read.len() == 2);
}

#[test]
fn seals_cross_segments() {
    let room = (SEGMENT - SEGMENT_HEADER_BYTES) as usize - RECORD_HEADER_BYTES;
    for rest in [0, 32, 64, 4096, 4128, 4160] {
        let rig = Rig::new();
        let log = rig.log(false);
        put(&log, &body(1, room - rest));
        log.seal(&no_values).unwrap();
        let (found, read) = rig.reopened().read().unwrap();
        assert!(found.sealed && read.len() == 1, "rest of {rest}");
    }
}

/// Near the end of the sequence numbers, a record too long for the remaining ones was once refused only after its file
/// had replaced the segment prepared for the next records. These went to a file without a name, and were lost.
#[test]
fn an_oversized_record_refused_at_the_end_of_numbers_leaves_the_log_unchanged() {
    let rig = Rig::new();
    let address_max = (crate::types::SEQ_MAX - (1 << 32)) * UNIT;
    let first = address_max / SEGMENT - 2;
    let log = rig.log_at(WalId(first), false);
    log.begin(Vec::new()).unwrap();
    put(&log, &body(1, 100));
    log.prepare_next().unwrap();
    let refused = log.append(&mut record(&body(2, 5 * SEGMENT as usize)), 1, false, Purpose::Store);
    assert!(matches!(refused, Err((None, Error::Exhausted { .. }))), "{refused:?}");
    let wanted = [body(3, SEGMENT as usize - 6000), body(4, SEGMENT as usize - 6000)];
    let commits = wanted.each_ref().map(|body| put(&log, body));
    assert_eq!(log.segment_of(commits[0].seq).0, first);
    assert_eq!(log.segment_of(commits[1].seq).0, first + 1);
    log.sync_to(commits[1].end, &no_values).unwrap();
    let again = rig.reopened();
    let config = ScanConfig { first: WalId(first), ..again.config() };
    let (_, read) = again.read_with(&config).unwrap();
    assert_eq!(read.len(), 3);
    assert!(read[1..].iter().zip(&wanted).all(|((_, read), wanted)| read == wanted));
}

/// On a nearly full disk, a segment got blocks only up to the end of a record. If the few bytes after it could not hold
/// another record, the segment was skipped and released, but was needed later: every commit then failed.
#[test]
fn a_segment_with_nearly_all_blocks_can_be_released() {
    let rig = Rig::new();
    let log = rig.log_at(WalId(1), false);
    let rest = 8;
    let length = SEGMENT - SEGMENT_HEADER_BYTES - rest;
    rig.disk.limit_space(Some(FLUSH_OVERHEAD_BYTES));
    log.begin(Vec::new()).unwrap();
    assert!(!log.has_begun(), "there is no room for a segment");
    rig.disk.limit_space(Some(2 * SEGMENT + SEGMENT_HEADER_BYTES + FLUSH_OVERHEAD_BYTES));
    let first = put(&log, &body(1, length as usize - RECORD_HEADER_BYTES));
    assert_eq!(log.segment_of(first.end), WalId(2));
    log.set_needed_from(first.end);
    log.release_before(WalId(2));
    rig.disk.limit_space(None);
    put(&log, &body(2, 100));
}

/// The file of an oversized record is ready under a temporary name when another commit fills the segment of the tail.
/// The next segment was once created under the same name, and the oversized commit failed.
#[test]
fn an_oversized_record_succeeds_when_the_tail_moves_to_the_next_segment() {
    let rig = Rig::new();
    let log = Arc::new(rig.log(false));
    put(&log, &body(1, 100));
    let filling = Arc::new(std::sync::Mutex::new(None));
    let (seen, theirs) = (Arc::clone(&filling), Arc::clone(&log));
    rig.disk.observe(OpKind::Create, move |op, _| {
        if op.path.ends_with(".free") && seen.lock().unwrap().is_none() {
            let s = theirs.sequencer();
            let rest = SEGMENT - s.tail() * UNIT % SEGMENT;
            *seen.lock().unwrap() = Some(s.reserve(rest, Purpose::Store).unwrap());
        }
    });
    let commit = log.append(&mut record(&body(2, 2 * SEGMENT as usize)), 1, false, Purpose::Store).unwrap();
    rig.disk.stop_observing();
    let filled = filling.lock().unwrap().take().unwrap();
    assert_eq!(log.segment_of(filled.end), WalId(2));
    assert_eq!(log.segment_of(commit.seq), WalId(3));
    log.sequencer().done(&filled);
    log.sequencer().done(&commit);
    put(&log, &body(3, 100));
}
