//! After the first failure nothing is acknowledged.

use tidesdb_io::sim::{Fault, OpSet, errno};

use super::*;
use crate::Error;

fn is_errno(e: &Error, errno: i32) -> bool {
    match e {
        Error::Io { cause, .. } => cause.raw_os_error() == Some(errno),
        Error::Poisoned { cause } => is_errno(cause, errno),
        _ => false,
    }
}

#[test]
fn a_failed_sync_poisons_and_is_never_repeated() {
    for errno in [errno::EIO, errno::ENOSPC] {
        let rig = Rig::new();
        let log = rig.log(false);
        let commit = log.append(&mut record(b"doubtful"), 1, false, Purpose::Store).unwrap();
        log.sequencer().ready(&commit);
        rig.disk.inject(Fault::errno(errno).on(OpSet::SYNCS));
        let e = log.sync_to(commit.end, &no_values).unwrap_err();
        assert!(matches!(e, Error::Poisoned { .. }) && is_errno(&e, errno), "{e}");
        assert!(rig.health.is_poisoned());
        let syncs = rig.disk.ops().iter().filter(|op| op.kind == OpKind::SyncData).count();
        for _ in 0..2 {
            assert!(is_errno(&log.sync_to(commit.end, &no_values).unwrap_err(), errno), "the first cause");
            assert!(is_errno(&log.seal(&no_values).unwrap_err(), errno));
        }
        let again = rig.disk.ops().iter().filter(|op| op.kind == OpKind::SyncData).count();
        assert_eq!(syncs, again, "a sync was repeated: its success would prove nothing");
        assert!(log.sequencer().visible_end() <= commit.seq, "the commit is visible");
        assert!(log.sequencer().durable() <= commit.seq);
        assert!(rig.disk.file_names(DB).unwrap().contains(&files::SYNC_FAILED.to_owned()));
    }
}

#[test]
fn commits_durable_before_the_failure_stay_acknowledged() {
    let rig = Rig::new();
    let log = rig.log(false);
    let [a, b] = [b"a", b"b"].map(|body| put(&log, body));
    log.sync_to(b.end, &no_values).unwrap();
    let c = put(&log, b"c");
    rig.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS));
    assert!(log.sync_to(c.end, &no_values).is_err());
    assert!(log.sync_to(a.end, &no_values).is_ok() && log.sync_to(b.end, &no_values).is_ok());
}

#[test]
fn every_waiter_gets_the_failure() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits: Vec<_> = (0..8).map(|i| put(&log, &body(i, 20))).collect();
    let values = || {
        std::thread::sleep(std::time::Duration::from_millis(20)); // the other waiters arrive
        Err(Error::io("sync", "000001.vlog", std::io::Error::from_raw_os_error(errno::EIO)))
    };
    std::thread::scope(|scope| {
        let waiters: Vec<_> = commits.iter().map(|c| scope.spawn(|| log.sync_to(c.end, &values))).collect();
        for waiter in waiters {
            assert!(is_errno(&waiter.join().unwrap().unwrap_err(), errno::EIO));
        }
    });
    assert_eq!(rig.count(OpKind::SyncData), 0, "records were synced although their values were not");
}

#[test]
fn a_failed_write_returns_its_commit_and_no_sync_passes_the_hole() {
    for errno in [errno::EIO, errno::ENOSPC] {
        let rig = Rig::new();
        let log = rig.log(false);
        let a = put(&log, b"before");
        rig.disk.inject(Fault::errno(errno).on(OpSet::WRITES));
        let (lost, e) = log.append(&mut record(b"lost"), 1, false, Purpose::Store).unwrap_err();
        let lost = lost.unwrap();
        assert_eq!(lost.seq, a.end);
        assert!(is_errno(&e, errno), "{e}");
        let b = log.append(&mut record(b"after"), 1, false, Purpose::Store).unwrap();
        rig.health.poison(e); // as the caller must
        log.wake_waiters();
        assert!(is_errno(&log.sync_to(b.end, &no_values).unwrap_err(), errno));
        assert!(log.sequencer().visible_end() <= lost.seq);
        let (found, read) = rig.reopened().read().unwrap();
        assert_eq!(read.len(), 2, "the later commit may stay in the log: it was never acknowledged");
        assert_eq!(found.unfinished, [lost.seq]);
    }
}

#[test]
fn waiters_behind_a_hole_are_woken_by_the_failure() {
    let rig = Rig::new();
    let log = rig.log(false);
    let _never_written = log.sequencer().reserve(40, Purpose::Store).unwrap();
    let commit = log.append(&mut record(b"after"), 1, false, Purpose::Store).unwrap();
    std::thread::scope(|scope| {
        let waiters = [(); 3].map(|()| scope.spawn(|| log.sync_to(commit.end, &no_values)));
        std::thread::sleep(std::time::Duration::from_millis(10));
        rig.health.poison(Error::internal("elsewhere"));
        log.wake_waiters();
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(Error::Poisoned { .. })));
        }
    });
}

#[test]
fn preparing_a_segment_survives_a_failure_of_each_step() {
    let steps = [OpKind::Create, OpKind::Write, OpKind::SyncAll, OpKind::Rename, OpKind::SyncDir];
    for (kind, errno) in steps.iter().flat_map(|kind| [(*kind, errno::EIO), (*kind, errno::ENOSPC)]) {
        let rig = Rig::new();
        let log = rig.log(false);
        put(&log, &body(1, 8000));
        let id = rig.disk.inject(Fault::errno(errno).on(kind));
        match log.prepare_next() {
            Ok(()) => assert_eq!(errno, errno::ENOSPC, "{kind:?}: only a full disk is not an error"),
            Err(e) => assert!(is_errno(&e, errno), "{kind:?}: {e}"),
        }
        assert_eq!(rig.disk.struck(id), 1);
        // In the background the failure does no harm, and the next try works.
        log.prepare_next().unwrap();
        let commits = [2, 3].map(|i| put(&log, &body(i, 8000)));
        let (_, read) = rig.reopened().read().unwrap();
        assert_eq!(read.len(), 3, "{kind:?}");
        assert_eq!(read[2].0, commits[1].seq);
    }
}

#[test]
fn a_disk_full_at_a_segment_switch_fails_only_the_commit() {
    let rig = Rig::new();
    let log = rig.log(false);
    let a = put(&log, &body(1, 8000));
    rig.disk.limit_space(Some(0));
    let (commit, e) = log.append(&mut record(&body(2, 8000)), 1, false, Purpose::Store).unwrap_err();
    assert!(commit.is_none() && matches!(e, Error::NoSpace { .. }), "{e}");
    assert_eq!(log.sequencer().tail(), a.end, "nothing happened");
    rig.disk.limit_space(None);
    let (found, read) = rig.reopened().read().unwrap();
    assert_eq!(read, [(a.seq, body(1, 8000))]);
    assert!(found.cut.is_none());
}

#[test]
fn a_failed_seal_poisons() {
    for faults in
        [Fault::errno(errno::EIO).on(OpSet::WRITES), Fault::errno(errno::EIO).on(OpSet::SYNCS).skip(1)]
    {
        let rig = Rig::new();
        let log = rig.log(false);
        put(&log, b"x");
        rig.disk.inject(faults);
        assert!(is_errno(&log.seal(&no_values).unwrap_err(), errno::EIO));
        assert!(rig.health.is_poisoned());
        assert!(matches!(log.seal(&no_values), Err(Error::Poisoned { .. })));
    }
}

#[test]
fn short_writes_are_completed() {
    let rig = Rig::new();
    let log = rig.log(false);
    rig.disk.inject(Fault::short().on(OpKind::Write).forever());
    let commit = put(&log, &body(1, 9000));
    rig.disk.clear_faults();
    assert_eq!(rig.reopened().read().unwrap().1, [(commit.seq, body(1, 9000))]);
}

#[test]
fn a_stopped_sequencer_reserves_nothing() {
    let rig = Rig::on(SimDisk::new(1), 1 << 20);
    let log = rig.log(false);
    log.make_room(600 << 10, Purpose::Store).unwrap();
    // No commit ever finishes: the ring fills up.
    for _ in 1..1 << 14 {
        log.sequencer().reserve(32, Purpose::Store).unwrap();
    }
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.append(&mut record(b"no place"), 1, false, Purpose::Store));
        std::thread::sleep(std::time::Duration::from_millis(10));
        assert!(!waiter.is_finished(), "a full ring accepted another commit");
        rig.health.poison(Error::internal("elsewhere"));
        log.sequencer().stop();
        let (commit, e) = waiter.join().unwrap().unwrap_err();
        assert!(commit.is_none() && matches!(e, Error::Poisoned { .. }), "{e}");
    });
}

#[test]
fn make_room_allocates_before_a_place_is_drawn() {
    let rig = Rig::new();
    let log = rig.log(false);
    let a = put(&log, &body(1, 8000));
    rig.disk.limit_space(Some(0));
    for bytes in [8000, 100_000] {
        assert!(matches!(log.make_room(bytes, Purpose::Store), Err(Error::NoSpace { .. })), "{bytes}");
    }
    assert_eq!(log.sequencer().tail(), a.end, "nothing happened");
    rig.disk.limit_space(None);
    log.make_room(8000, Purpose::Store).unwrap();
    rig.disk.limit_space(Some(0));
    let b = put(&log, &body(2, 8000));
    assert!(log.segment_of(b.seq) > log.segment_of(a.seq), "the segment was prepared");
}
