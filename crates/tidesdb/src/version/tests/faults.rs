//! Every call fails once, with each errno that applies. A failed install is not published, nothing acknowledged is
//! lost, the unknown state persists, and reopening resolves it.

use super::*;
use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, SyncModel, errno};

/// Runs installs, each of which may fail. Returns the last acknowledged state and, if a failed install left the durable
/// state unknown, the state it would have produced.
fn run(set: &Set, steps: std::ops::Range<u64>) -> (Vec<u8>, Option<Vec<u8>>, bool) {
    let mut doubt = None;
    let mut failed = false;
    for n in steps {
        let changes = step(set, n);
        let mut next = set.state();
        next.apply(&edit(changes.iter().cloned())).unwrap();
        let before = facts(&set.state());
        let mut published = false;
        let done = set.install(&edit(changes), |_| published = true);
        assert_eq!(done.is_ok(), published);
        match done {
            Ok(()) => assert!(!failed || !set.is_poisoned(), "an install on a poisoned set"),
            Err(e) => {
                assert_eq!(facts(&set.state()), before, "a failed install changed the state: {e}");
                if doubt.is_some() {
                    assert!(matches!(e, Error::Poisoned { .. }), "{e}");
                } else if set.is_poisoned() {
                    assert!(matches!(e, Error::Io { .. }), "{e}");
                    doubt = Some(facts(&next));
                }
                failed = true;
            }
        }
    }
    (facts(&set.state()), doubt, failed)
}

#[test]
fn a_failure_of_any_call_during_installs_loses_nothing() {
    let mut struck = 0;
    for (kinds, errnos) in [
        (OpSet::SYNCS | OpSet::of(OpKind::SyncDir), [errno::EIO, errno::ENOSPC]),
        (OpSet::WRITES, [errno::EIO, errno::ENOSPC]),
        (OpSet::of(OpKind::Allocate) | OpSet::of(OpKind::Create), [errno::ENOSPC, errno::EMFILE]),
        (OpSet::of(OpKind::Rename) | OpSet::of(OpKind::Unlink), [errno::EIO, errno::EACCES]),
    ] {
        for errno in errnos {
            for model in [SyncModel::Linux, SyncModel::Btrfs, SyncModel::Bsd] {
                for skip in 0.. {
                    for forever in [false, true] {
                        let (_env, disk, set) = disk_with(5, 2);
                        disk.set_sync_model(model);
                        let fault = Fault::errno(errno).on(kinds).skip(skip);
                        let id = disk.inject(if forever { fault.forever() } else { fault });
                        let (acked, doubt, _failed) = run(&set, 2..22);
                        let hits = disk.struck(id);
                        struck += hits;
                        disk.clear_faults();
                        for (i, image) in [Image::EVERYTHING, Image::SYNCED].into_iter().enumerate() {
                            let what = format!(
                                "errno {errno}, {model:?}, call {skip}, forever {forever}, {image:?}"
                            );
                            let (env, _, _) = sim::env_on(disk.crash_image(&image, i as u64), 6);
                            let (again, _) = try_open(&env).unwrap_or_else(|e| panic!("{what}: {e}"));
                            let found = facts(&again.state());
                            assert!(
                                found == acked || Some(&found) == doubt.as_ref(),
                                "{what}: a state that never existed"
                            );
                        }
                        if !forever && hits == 0 {
                            break;
                        }
                    }
                    if disk_is_past(skip, kinds) {
                        break;
                    }
                }
            }
        }
    }
    println!("faults that struck: {struck}");
    assert!(struck > 500);
}

/// Returns whether the script makes at most `skip` calls of `kinds`.
fn disk_is_past(skip: u64, kinds: OpSet) -> bool {
    let (_env, disk, set) = disk_with(5, 2);
    let id = disk.inject(Fault::errno(errno::EIO).on(kinds).skip(skip));
    run(&set, 2..22);
    disk.struck(id) == 0
}

#[test]
fn a_failure_of_any_call_during_open_or_create_loses_nothing() {
    for skip in 0..60 {
        for errno in [errno::EIO, errno::ENOSPC, errno::EMFILE] {
            // Creating: without the fault, creating or opening works again.
            let (env, disk, _) = sim::env(7);
            let id = disk.inject(Fault::errno(errno).on(OpSet::ALL).skip(skip));
            let made = open_or_create(&env);
            assert!(made.is_ok() || disk.struck(id) > 0);
            disk.clear_faults();
            drop(made);
            let set = open_or_create(&env).unwrap_or_else(|e| panic!("call {skip}, errno {errno}: {e}"));
            assert!(set.state().families.is_empty());

            // Opening: the fault is reported, and the state survives.
            let (env, disk, set) = disk_with(8, 5);
            let acked = facts(&set.state());
            drop(set);
            disk.inject(Fault::errno(errno).on(OpSet::ALL).skip(skip));
            if let Err(e) = try_open(&env) {
                assert!(!e.is_corruption(), "call {skip}, errno {errno}: reported as damage: {e}");
            }
            disk.clear_faults();
            for image in [Image::EVERYTHING, Image::SYNCED] {
                let (env, _, _) = sim::env_on(disk.crash_image(&image, skip), 9);
                let (again, _) = try_open(&env).unwrap_or_else(|e| panic!("call {skip}, errno {errno}: {e}"));
                assert_eq!(facts(&again.state()), acked, "call {skip}, errno {errno}");
            }
        }
    }
}

#[test]
fn short_reads_and_writes_and_interruptions_are_tolerated() {
    let (env, disk, set) = disk_with(9, 0);
    disk.inject(Fault::short().on(OpSet::ALL).every(2).forever());
    // Windows interrupts no call of a file, and has no kind of error for it.
    if cfg!(unix) {
        disk.inject(
            Fault::errno(errno::EINTR).on(OpSet::WRITES | OpSet::of(OpKind::Read)).every(3).forever(),
        );
    }
    let (acked, doubt, failed) = run(&set, 0..12);
    assert!(!failed && doubt.is_none());
    drop(set);
    assert_eq!(facts(&open(&env).0.state()), acked);
}

#[test]
fn a_full_disk_accepts_some_more_edits_and_recovers() {
    let (env, disk, set) = disk_with(10, 4);
    disk.limit_space(Some(0));
    let mut taken = 0;
    let full = loop {
        match install(&set, step(&set, 100 + taken)) {
            Ok(()) => taken += 1,
            Err(e) => break e,
        }
    };
    assert!(taken >= 8, "the reserve took {taken} edits");
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    assert!(!set.is_poisoned());
    let acked = facts(&set.state());
    let (copy, _, _) = sim::env_on(disk.fork(), 1);
    assert_eq!(facts(&open(&copy).0.state()), acked);
    disk.limit_space(None);
    install(&set, step(&set, 200)).unwrap();
    let acked = facts(&set.state());
    drop(set);
    assert_eq!(facts(&open(&env).0.state()), acked);
}

#[test]
fn lost_writes_are_detected_or_harmless() {
    // A write that never reached the disk: a record is missing although its mark exists, or a mark is missing.
    for skip in 0..24 {
        let (_env, disk, set) = disk_with(11, 3);
        let id = disk.inject(Fault::lose_write().on(OpSet::WRITES).skip(skip));
        let (acked, _, failed) = run(&set, 3..15);
        assert!(!failed && disk.struck(id) == 1);
        let (env, _, _) = sim::env_on(disk.crash_image(&Image::SYNCED, 1), 1);
        match try_open(&env) {
            Ok((again, _)) => assert_eq!(facts(&again.state()), acked, "write {skip} was lost unnoticed"),
            Err(e) => assert!(e.is_corruption(), "write {skip}: {e}"),
        }
    }
}
