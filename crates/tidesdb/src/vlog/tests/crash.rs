use std::sync::Mutex;

use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, errno};

use super::*;
use crate::Error;

/// The values appended so far, and how many of them a sync covered.
#[derive(Default)]
struct Promised {
    values: Vec<(VlogPointer, Vec<u8>)>,
    synced: usize,
}

#[test]
fn synced_values_survive_a_crash_at_any_call() {
    let (env, disk) = world();
    let promised = Arc::new(Mutex::new(Promised::default()));
    let points = Arc::new(Mutex::new(Vec::new()));
    let (p, q) = (Arc::clone(&promised), Arc::clone(&points));
    disk.observe(OpSet::ALL, move |_, fork| {
        let p = p.lock().unwrap();
        q.lock().unwrap().push((fork, p.values.clone(), p.synced));
    });
    let vlogs = set(&env, 1, 4096);
    for i in 0..30_u64 {
        let value = noise(i, 100 + (i as usize * 331) % 900);
        let pointer = vlogs.append(&value, Compression::None).unwrap();
        promised.lock().unwrap().values.push((pointer, value));
        if i % 4 == 3 {
            vlogs.sync().unwrap();
            let mut p = promised.lock().unwrap();
            p.synced = p.values.len();
        }
    }
    disk.stop_observing();
    let points = std::mem::take(&mut *points.lock().unwrap());
    assert!(points.len() > 50);
    for (at, (fork, values, synced)) in points.into_iter().enumerate() {
        for (i, image) in Image::STANDARD.iter().enumerate() {
            let (env, _, _) = sim::env_on(fork.crash_image(image, i as u64), 9);
            let after = set(&env, 100, 4096);
            for (n, (pointer, value)) in values.iter().enumerate() {
                match after.read(pointer) {
                    Ok(found) => assert_eq!(found, *value),
                    Err(e) => {
                        assert!(n >= synced && e.is_corruption(), "call {at}, {image:?}: value {n}: {e}")
                    }
                }
            }
        }
    }
}

#[test]
fn a_torn_tail_is_distinguished_from_valid_records() {
    let (env, _) = world();
    let vlogs = set(&env, 1, 1 << 20);
    let ends: Vec<_> = (0..5)
        .map(|i| {
            let p = vlogs.append(&noise(i, 200), Compression::None).unwrap();
            p.offset + p.record_bytes()
        })
        .collect();
    drop(vlogs);
    let whole = read_file(&env, "000001.vlog");
    for len in 40..=whole.len() {
        write_file(&env, "000001.vlog", &whole[..len]);
        let report = set(&env, 2, 4096).scan(VlogId(1), |_| {}).unwrap();
        let kept = ends.iter().filter(|end| **end <= len as u64).count();
        assert_eq!(report.records, kept as u64);
        assert_eq!(report.valid_len, kept.checked_sub(1).map_or(40, |i| ends[i]));
        assert_eq!((report.len, report.gap_bytes), (len as u64, 0));
        assert_eq!(report.is_whole(), report.tail_bytes() == 0);
    }
    for len in 0..40 {
        write_file(&env, "000001.vlog", &whole[..len]);
        assert!(set(&env, 2, 4096).scan(VlogId(1), |_| {}).unwrap_err().is_corruption());
    }
}

#[test]
fn a_failed_write_leaves_a_gap_and_other_records_stay_valid() {
    let (env, disk) = world();
    let vlogs = set(&env, 1, 1 << 20);
    let before = vlogs.append(b"before", Compression::None).unwrap();
    disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Write));
    assert!(matches!(vlogs.append(&noise(1, 100), Compression::None), Err(Error::Io { op: "write", .. })));
    let after = vlogs.append(b"after", Compression::None).unwrap();
    vlogs.sync().unwrap();
    assert_eq!(vlogs.read(&before).unwrap(), b"before");
    assert_eq!(vlogs.read(&after).unwrap(), b"after");
    let report = vlogs.scan(VlogId(1), |_| {}).unwrap();
    assert_eq!(report.records, 2);
    assert_eq!((report.gaps.len(), report.gaps[0].clone()), (1, 40 + 24..40 + 24 + 118));
    assert_eq!((report.gap_bytes, report.tail_bytes()), (118, 0));
    assert!(!report.is_whole());
    vlogs.rotate();
    assert!(vlogs.open.infos()[0].sealed);
}

#[test]
fn short_writes_and_reads_are_completed() {
    let (env, disk) = world();
    disk.inject(Fault::short().every(2).forever());
    let vlogs = set(&env, 1, 1 << 20);
    for len in [10, 5000, 200_000] {
        let p = vlogs.append(&noise(7, len), Compression::None).unwrap();
        assert_eq!(vlogs.read(&p).unwrap(), noise(7, len));
    }
    assert!(vlogs.scan(VlogId(1), |_| {}).unwrap().is_whole());
}

#[test]
fn every_sync_after_a_failed_one_fails() {
    let (env, disk) = world();
    let vlogs = set(&env, 1, 1 << 20);
    vlogs.append(b"x", Compression::None).unwrap();
    disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS));
    assert!(matches!(vlogs.sync(), Err(Error::Io { op: "sync", .. })));
    // The kernel would now return Ok, although the bytes are still not on disk.
    assert!(vlogs.sync().is_err());
    vlogs.append(b"y", Compression::None).unwrap();
    assert!(vlogs.sync().is_err());
}

#[test]
fn a_failed_file_creation_leaves_no_file() {
    let (env, disk) = world();
    let vlogs = set(&env, 1, 1 << 20);
    disk.inject(Fault::errno(errno::EIO).on(OpKind::Write));
    assert!(vlogs.append(b"x", Compression::None).is_err());
    assert!(directory(&env).list().unwrap().is_empty());
    assert_eq!(vlogs.append(b"x", Compression::None).unwrap().vlog, VlogId(2));
    vlogs.sync().unwrap();
}

/// The manifest may not name a file that a power failure can take away.
#[test]
fn a_file_is_durable_once_it_and_its_name_were_synced() {
    let (env, disk) = world();
    let vlogs = set(&env, 1, 4096);
    let durable = |vlogs: &VlogSet| vlogs.begun.facts().iter().map(|f| f.is_durable).collect::<Vec<_>>();
    let all = || disk.ops().iter().filter(|op| op.kind == OpKind::SyncDir).count();
    let before = all();
    let names = || all() - before;
    vlogs.append(b"x", Compression::None).unwrap();
    assert_eq!((durable(&vlogs), names()), (vec![false], 0), "beginning a file waits for no sync");
    vlogs.sync_begun().unwrap();
    assert_eq!((durable(&vlogs), names()), (vec![true], 1));
    for i in 0..8 {
        vlogs.append(&noise(i, 3000), Compression::None).unwrap();
    }
    assert!(durable(&vlogs)[0] && durable(&vlogs)[1..].iter().all(|durable| !durable));
    vlogs.sync().unwrap();
    assert!(durable(&vlogs).iter().all(|durable| *durable));
    assert_eq!(names(), 2, "one sync for all names");
    vlogs.sync().unwrap();
    assert_eq!(names(), 2, "no name is new");
}

#[test]
fn a_name_that_could_not_be_synced_fails_every_later_sync() {
    let (env, disk) = world();
    let vlogs = set(&env, 1, 1 << 20);
    vlogs.append(b"x", Compression::None).unwrap();
    disk.inject(Fault::errno(errno::EIO).on(OpKind::SyncDir));
    assert!(matches!(vlogs.sync_begun(), Err(Error::Io { op: "sync", .. })));
    assert!(vlogs.sync().is_err() && vlogs.sync_begun().is_err());
    assert!(!vlogs.begun.facts()[0].is_durable);
}

#[test]
fn only_files_with_new_bytes_are_synced() {
    let (env, disk) = world();
    let vlogs = set(&env, 1, 4096);
    let syncs = || disk.ops().iter().filter(|op| op.kind == OpKind::SyncData).count();
    for i in 0..20 {
        vlogs.append(&noise(i, 1000), Compression::None).unwrap();
    }
    let created = syncs();
    vlogs.sync().unwrap();
    assert_eq!(syncs() - created, 5);
    vlogs.sync().unwrap();
    assert_eq!(syncs() - created, 5);
    vlogs.append(b"z", Compression::None).unwrap();
    vlogs.sync().unwrap();
    assert_eq!(syncs() - created, 6);
}

#[test]
fn read_errors_are_not_reported_as_corruption() {
    let (env, disk) = world();
    let vlogs = set(&env, 1, 4096);
    let p = vlogs.append(b"x", Compression::None).unwrap();
    disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).forever());
    assert!(matches!(vlogs.read(&p), Err(Error::Io { op: "read", .. })));
    assert!(matches!(vlogs.scan(VlogId(1), |_| {}), Err(Error::Io { .. })));
}
