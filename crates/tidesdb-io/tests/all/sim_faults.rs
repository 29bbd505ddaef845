//! Tests of every fault of the simulated disk: which calls it strikes, and the state it leaves.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tidesdb_io::sim::{self, Fault, Image, OpKind, OpSet, SimDisk, SyncModel, errno};
use tidesdb_io::{Access, Advice, Dir, Disk, File, FileExt};

use crate::raw;

fn disk() -> (SimDisk, Arc<dyn Dir>) {
    let sim = SimDisk::new(11);
    let dir = sim.open_dir(Path::new("/db"), true).unwrap();
    (sim, dir)
}

/// Creates a disk with one durable file.
fn with_file(content: &[u8]) -> (SimDisk, Arc<dyn Dir>, Arc<dyn File>) {
    let (sim, dir) = disk();
    let file = dir.create_new("a", 0).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync_data().unwrap();
    dir.sync().unwrap();
    (sim, dir, file)
}

fn read(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn durable(sim: &SimDisk, name: &str) -> Vec<u8> {
    sim.crash_image(&Image::SYNCED, 1).read_file(format!("/db/{name}")).unwrap()
}

#[test]
fn a_crash_fails_its_call_and_all_later_ones() {
    let (sim, dir, file) = with_file(b"old");
    let lock = dir.lock("LOCK", true).unwrap();
    let map = file.map_shared(3).unwrap().unwrap();
    let count = sim.op_count();
    sim.crash_at(count + 1);
    file.write_all_at(b"new", 0).unwrap();
    assert!(!sim.crashed());
    assert!(sim::is_crash(&file.write_at(b"newer", 0).unwrap_err()));
    assert!(sim.crashed());
    let mut buf = [0; 3];
    let errors = [
        file.read_at(&mut buf, 0).map(drop),
        file.write_at(b"x", 0).map(drop),
        file.allocate(0, 9),
        file.set_len(0),
        file.sync_data(),
        file.sync_all(),
        file.len().map(drop),
        file.map_shared(1).map(drop),
        file.without_descriptor().map(drop),
        file.advise(Advice::DontNeed, 0, 0),
        map.write(0, b"x"),
        dir.create_new("b", 0).map(drop),
        dir.open("a", Access::Read).map(drop),
        dir.rename("a", "b"),
        dir.unlink("a"),
        dir.link("a", &*dir, "b"),
        dir.list().map(drop),
        dir.sync(),
        dir.lock("LOCK", false).map(drop),
        dir.space().map(drop),
        sim.open_dir(Path::new("/db"), false).map(drop),
        sim.open_dir(Path::new("/other"), true).map(drop),
    ];
    for (i, result) in errors.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(sim::is_crash(&error) && error.kind() == io::ErrorKind::Other, "call {i}: {error}");
        assert_eq!(error.to_string(), "simulated crash");
    }
    drop((lock, map));
    assert_eq!(sim.op_count(), count + 2, "calls after the crash are not counted");
    assert_eq!(sim.read_file("/db/a").unwrap(), b"new");
    assert!(!sim::is_crash(&io::Error::other("simulated crash")));
    let next = sim.fork();
    assert_eq!(next.op_count(), 0);
    let dir = next.open_dir(Path::new("/db"), false).unwrap();
    dir.lock("LOCK", true).unwrap();
    assert_eq!(durable(&next, "a"), b"old", "first the process crashed, then the machine");
}

#[test]
fn a_torn_crash_does_a_part_of_its_write() {
    let mut lens = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let sim = SimDisk::new(seed);
        let file = sim.open_dir(Path::new("/"), true).unwrap().create_new("a", 0).unwrap();
        sim.crash_at_torn(sim.op_count());
        assert!(sim::is_crash(&file.write_at(&[7; 10], 0).unwrap_err()));
        let bytes = sim.read_file("/a").unwrap();
        assert!(bytes.iter().all(|&b| b == 7));
        lens.insert(bytes.len());
    }
    assert_eq!(lens, (0..=10).collect(), "every cut occurs");
}

#[test]
fn each_call_can_fail_with_each_errno() {
    let kinds = [
        OpKind::Read,
        OpKind::Write,
        OpKind::Allocate,
        OpKind::SetLen,
        OpKind::SyncData,
        OpKind::SyncAll,
        OpKind::Len,
        OpKind::MapShared,
        OpKind::MapRead,
        OpKind::Advise,
        OpKind::Create,
        OpKind::Open,
        OpKind::Rename,
        OpKind::Unlink,
        OpKind::Link,
        OpKind::List,
        OpKind::SyncDir,
        OpKind::Lock,
        OpKind::Space,
        OpKind::OpenDir,
        OpKind::MakeDir,
        OpKind::MapWrite,
    ];
    for kind in kinds {
        for number in [errno::EIO, errno::ENOSPC, errno::EDQUOT, errno::EMFILE, errno::ENFILE, errno::EINTR] {
            let (sim, dir, file) = with_file(b"abc");
            let map = file.map_shared(3).unwrap().unwrap();
            let id = sim.inject(Fault::errno(number).on(kind));
            let run = || match kind {
                OpKind::Read => file.read_at(&mut [0], 0).map(drop),
                OpKind::Write => file.write_at(b"x", 0).map(drop),
                OpKind::Allocate => file.allocate(0, 1),
                OpKind::SetLen => file.set_len(3),
                OpKind::SyncData => file.sync_data(),
                OpKind::SyncAll => file.sync_all(),
                OpKind::Len => file.len().map(drop),
                OpKind::MapShared => file.map_shared(1).map(drop),
                OpKind::MapRead => file.without_descriptor().map(drop),
                OpKind::Advise => file.advise(Advice::DontNeed, 0, 0),
                OpKind::Create => dir.create_new("new", 0).map(drop),
                OpKind::Open => dir.open("a", Access::Read).map(drop),
                OpKind::Rename => dir.rename("a", "b"),
                OpKind::Unlink => dir.unlink("a"),
                OpKind::Link => dir.link("a", &*dir, "c"),
                OpKind::List => dir.list().map(drop),
                OpKind::SyncDir => dir.sync(),
                OpKind::Lock => dir.lock("LOCK", true).map(drop),
                OpKind::Space => dir.space().map(drop),
                OpKind::OpenDir => sim.open_dir(Path::new("/db"), false).map(drop),
                OpKind::MakeDir => sim.open_dir(Path::new("/made"), true).map(drop),
                OpKind::MapWrite => map.write(0, b"x"),
            };
            assert_eq!(raw(run()), Some(number), "{kind:?}");
            assert_eq!(sim.struck(id), 1);
            assert_eq!(sim.file_names("/db").unwrap(), ["a"], "{kind:?} did something");
            assert_eq!(sim.read_file("/db/a").unwrap(), b"abc", "{kind:?} did something");
            run().unwrap_or_else(|e| panic!("{kind:?} failed a second time: {e}"));
            let log = sim.ops();
            assert!(
                log.iter().any(|op| op.kind == kind && !op.ok)
                    && log.iter().any(|op| op.kind == kind && op.ok)
            );
        }
    }
}

#[test]
fn rules_choose_their_calls() {
    let (sim, dir) = disk();
    let (log, other) = (dir.create_new("1.log", 0).unwrap(), dir.create_new("1.sst", 0).unwrap());
    let id =
        sim.inject(Fault::errno(errno::EIO).on(OpKind::Write).path_ends(".log").skip(2).every(3).times(2));
    let failed = |file: &dyn File| (0..14).map(|_| file.write_at(b"x", 0).is_err()).collect::<Vec<_>>();
    assert!(!failed(&*other).contains(&true));
    let hits: Vec<usize> =
        failed(&*log).iter().enumerate().filter(|(_, hit)| **hit).map(|(i, _)| i).collect();
    assert_eq!(hits, [4, 7], "every third call after the first 2, twice");
    assert_eq!(sim.struck(id), 2);

    let forever = sim.inject(Fault::errno(errno::EMFILE).on(OpSet::OPENS).forever());
    for _ in 0..5 {
        assert_eq!(raw(dir.open("1.log", Access::Read)), Some(errno::EMFILE));
        assert_eq!(raw(dir.create_new("2.log", 0)), Some(errno::EMFILE));
    }
    sim.remove_fault(forever);
    dir.open("1.log", Access::Read).unwrap();
    sim.inject(Fault::errno(errno::EIO).path_if(|path| path == "/db/1.sst").forever());
    assert!(other.len().is_err() && log.len().is_ok());
    sim.clear_faults();
    other.len().unwrap();

    let id = sim.inject(Fault::errno(errno::EIO).on(OpKind::Len).chance(0.3).forever());
    let failed = (0..1_000).filter(|_| log.len().is_err()).count();
    assert!((220..380).contains(&failed), "{failed} of 1000");
    assert_eq!(sim.struck(id), failed as u64);
}

#[test]
fn loops_complete_short_reads_and_writes() {
    let (sim, _, file) = with_file(b"");
    sim.inject(Fault::short().forever());
    sim.inject(Fault::errno(errno::EINTR).on(OpSet::WRITES | OpKind::Read).every(3).forever());
    let data: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
    file.write_all_at(&data, 5).unwrap();
    let mut got = vec![0; data.len()];
    let before = sim.op_count();
    file.read_exact_at(&mut got, 5).unwrap();
    assert!(got == data);
    assert!(sim.op_count() - before > 3, "the reads were whole");
    assert_eq!(file.read_at(&mut got[..1], 5).unwrap(), 1, "one byte cannot be short");
}

#[test]
fn a_failed_sync_follows_its_model() {
    for model in [SyncModel::Linux, SyncModel::Btrfs, SyncModel::Bsd] {
        let (sim, _, file) = with_file(b"old!");
        sim.set_sync_model(model);
        file.write_all_at(b"new and longer", 0).unwrap();
        sim.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS));
        assert_eq!(raw(file.sync_data()), Some(errno::EIO));
        assert_eq!(durable(&sim, "a"), b"old!");
        file.sync_data().unwrap(); // The retry, which callers must not trust.
        let (cached, kept): (&[u8], &[u8]) = match model {
            SyncModel::Linux => (b"new and longer", b"old!"),
            SyncModel::Btrfs => (b"old!", b"old!"),
            SyncModel::Bsd => (b"new and longer", b"new and longer"),
        };
        assert_eq!(read(&*file), cached, "{model:?}");
        assert_eq!(durable(&sim, "a"), kept, "{model:?}");
        assert_eq!(sim.crash_image(&Image::EVERYTHING, 1).read_file("/db/a").unwrap(), kept, "{model:?}");
        // Pages written after the failure are durable after a successful sync.
        file.write_all_at(b"X", 0).unwrap();
        file.sync_all().unwrap();
        let mut want = cached.to_vec();
        want[0] = b'X';
        assert_eq!(durable(&sim, "a"), want, "{model:?}");
    }
}

#[test]
fn a_lying_sync_makes_nothing_durable() {
    let (sim, dir, file) = with_file(b"old");
    sim.inject(Fault::lie_sync().times(2));
    file.write_all_at(b"new", 0).unwrap();
    dir.rename("a", "b").unwrap();
    file.sync_data().unwrap();
    dir.sync().unwrap();
    assert_eq!(durable(&sim, "a"), b"old");
    file.sync_data().unwrap();
    dir.sync().unwrap();
    assert_eq!(durable(&sim, "b"), b"new");
}

#[test]
fn a_failed_sync_of_a_directory_leaves_its_names_at_risk() {
    let (sim, dir, _file) = with_file(b"x");
    dir.rename("a", "b").unwrap();
    sim.inject(Fault::errno(errno::EIO).on(OpKind::SyncDir));
    assert_eq!(raw(dir.sync()), Some(errno::EIO));
    assert_eq!(sim.crash_image(&Image::SYNCED, 1).file_names("/db").unwrap(), ["a"]);
    assert_eq!(dir.list().unwrap(), ["b"]);
}

#[test]
fn a_full_disk_writes_a_part_then_fails_until_space_is_freed() {
    let (sim, dir, file) = with_file(b"0123456789");
    let other = dir.create_new("other", 1_000).unwrap();
    sim.limit_space(Some(100));
    assert_eq!(dir.space().unwrap().free, 100);
    assert_eq!(file.write_at(&[1; 80], 10).unwrap(), 80);
    assert_eq!(file.write_at(&[2; 80], 90).unwrap(), 20, "the part that fits");
    let error = file.write_at(&[3; 80], 110).unwrap_err();
    assert_eq!((error.raw_os_error(), error.kind()), (Some(errno::ENOSPC), io::ErrorKind::StorageFull));
    sim.set_full_errno(errno::EDQUOT);
    assert_eq!(raw(file.write_all_at(&[3; 80], 110)), Some(errno::EDQUOT));
    assert_eq!(raw(file.allocate(0, 111)), Some(errno::EDQUOT));
    file.set_len(111).unwrap(); // A hole needs no space.
    assert_eq!(raw(file.write_at(&[3; 1], 110)), Some(errno::EDQUOT));
    file.set_len(110).unwrap();
    assert_eq!(raw(dir.create_new("b", 1)), Some(errno::EDQUOT));
    assert!(!sim.file_names("/db").unwrap().contains(&"b".to_owned()));
    file.write_all_at(&[4; 110], 0).unwrap(); // Overwriting needs no space.
    other.set_len(950).unwrap();
    assert_eq!(dir.space().unwrap().free, 50);
    file.write_all_at(&[5; 50], 110).unwrap();
    dir.unlink("other").unwrap();
    assert_eq!(dir.space().unwrap().free, 0, "still open");
    drop(other);
    dir.create_new("b", 950).unwrap();
    assert_eq!(raw(file.write_at(b"x", 160)), Some(errno::EDQUOT));
    sim.limit_space(None);
    file.write_all_at(&[6; 9_000], 160).unwrap();
}

#[test]
fn writes_can_be_lost_or_misdirected() {
    let (sim, dir, file) = with_file(b"..........");
    dir.create_new("b", 4).unwrap();
    sim.inject(Fault::lose_write().skip(1));
    file.write_all_at(b"a", 0).unwrap();
    file.write_all_at(b"b", 1).unwrap();
    file.sync_data().unwrap();
    assert_eq!(read(&*file), b"a.........");
    sim.inject(Fault::misdirect(3));
    file.write_all_at(b"cc", 2).unwrap();
    assert_eq!(read(&*file), b"a....cc...");
    sim.inject(Fault::misdirect(-3));
    file.write_all_at(b"d", 2).unwrap();
    assert_eq!(read(&*file), b"a....cc...", "before the start");
    sim.inject(Fault::misdirect_to("/db/b"));
    file.write_all_at(b"e", 2).unwrap();
    assert_eq!(sim.read_file("/db/b").unwrap(), b"\0\0e\0");
    sim.inject(Fault::misdirect_to("/db/none"));
    file.write_all_at(b"f", 2).unwrap();
    assert_eq!(read(&*file), b"a....cc...");
    let map = file.map_shared(10).unwrap().unwrap();
    sim.inject(Fault::lose_write());
    map.write(0, b"g").unwrap();
    map.write(9, b"h").unwrap();
    assert_eq!(read(&*file), b"a....cc..h");
}

#[test]
fn reads_may_be_stale() {
    let (sim, _, file) = with_file(b"one");
    file.write_all_at(b"two and more", 0).unwrap();
    file.sync_data().unwrap();
    sim.inject(Fault::stale_read());
    assert_eq!(read(&*file), b"one\0\0\0\0\0\0\0\0\0");
    assert_eq!(read(&*file), b"two and more");
}

#[test]
fn files_rot_at_rest() {
    let (sim, _, file) = with_file(b"0123456789");
    sim.corrupt("/db/a", 3, |b| b + 1).unwrap();
    sim.flip_bit("/db/a", 8 * 5 + 1).unwrap();
    sim.corrupt("/db/a", 10, |_| panic!("past the end")).unwrap();
    assert_eq!(read(&*file), b"0124476789");
    assert_eq!(durable(&sim, "a"), b"0124476789");
    sim.swap_ranges("/db/a", 0, 8, 2).unwrap();
    sim.swap_ranges("/db/a", 0, 1, 2).unwrap();
    sim.swap_ranges("/db/a", 0, 9, 2).unwrap();
    assert_eq!(read(&*file), b"8924476701");
    sim.truncate_file("/db/a", 4).unwrap();
    assert_eq!(durable(&sim, "a"), b"8924");
    sim.truncate_file("/db/a", 5).unwrap();
    assert_eq!(durable(&sim, "a"), b"8924\0");
    assert_eq!(sim.flip_bit("/db/none", 0).unwrap_err().kind(), io::ErrorKind::NotFound);
    sim.write_file("/db/new", b"raw").unwrap();
    sim.write_file("/db/a", b"over").unwrap();
    assert_eq!((durable(&sim, "new"), durable(&sim, "a")), (b"raw".to_vec(), b"over".to_vec()));
    sim.remove_file("/db/new").unwrap();
    assert_eq!(sim.file_names("/db").unwrap(), ["a"]);
    assert!(sim.file_names("/none").is_err() && sim.write_file("/none/a", b"").is_err());
}

#[test]
fn maps_can_be_switched_on_and_off() {
    let (sim, dir, file) = with_file(b"0123456789");
    let map = file.map_shared(10).unwrap().unwrap();
    file.set_len(5).unwrap();
    assert_eq!(map.write(4, b"xy").unwrap_err().kind(), io::ErrorKind::InvalidInput, "cut under the map");
    sim.enable_map_shared(false);
    assert!(file.map_shared(5).unwrap().is_none());
    let again = sim.fork().open_dir(Path::new("/db"), false).unwrap().open("a", Access::ReadWrite).unwrap();
    assert!(again.map_shared(5).unwrap().is_none(), "forks keep switches");
    drop(dir);
}

#[test]
fn the_log_records_every_call() {
    let (sim, dir) = disk();
    let file = dir.create_new("a", 64).unwrap();
    file.write_all_at(b"abc", 7).unwrap();
    assert!(dir.open("b", Access::Read).is_err());
    let log = sim.ops();
    assert!(log.iter().enumerate().all(|(i, op)| op.index == i as u64));
    assert_eq!(log.len() as u64, sim.op_count());
    let tail: Vec<_> =
        log.iter().rev().take(3).map(|op| (op.kind, &*op.path, op.offset, op.len, op.ok)).collect();
    let want = [
        (OpKind::Open, "/db/b", 0, 0, false),
        (OpKind::Write, "/db/a", 7, 3, true),
        (OpKind::Create, "/db/a", 0, 64, true),
    ];
    assert_eq!(tail, want);
    sim.log_ops(false);
    file.len().unwrap();
    assert!(sim.ops().is_empty());
    assert_eq!(sim.op_count(), log.len() as u64 + 1);
}

#[test]
fn an_observer_sees_the_state_that_a_crash_leaves() {
    let (sim, dir, file) = with_file(b"0");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    sim.observe(OpSet::CHANGES, move |op, snapshot| {
        sink.lock().unwrap().push((op.index, op.kind, snapshot));
    });
    let start = sim.op_count();
    file.write_all_at(b"1", 0).unwrap();
    file.len().unwrap();
    file.sync_data().unwrap();
    file.write_all_at(b"2", 0).unwrap();
    dir.rename("a", "b").unwrap();
    sim.stop_observing();
    dir.sync().unwrap();
    let seen = seen.lock().unwrap();
    let state = |i: usize| {
        let (index, kind, disk): &(u64, OpKind, SimDisk) = &seen[i];
        (*index - start, *kind, disk.read_file("/db/a").unwrap(), durable(disk, "a"))
    };
    assert_eq!(seen.len(), 4);
    assert_eq!(state(0), (0, OpKind::Write, b"0".to_vec(), b"0".to_vec()));
    assert_eq!(state(1), (2, OpKind::SyncData, b"1".to_vec(), b"0".to_vec()));
    assert_eq!(state(2), (3, OpKind::Write, b"1".to_vec(), b"1".to_vec()));
    assert_eq!(state(3), (4, OpKind::Rename, b"2".to_vec(), b"1".to_vec()));
}

#[test]
fn each_boot_has_its_own_id() {
    let (sim, _, _) = with_file(b"");
    let boot = |sim: &SimDisk| sim.open_dir("/".as_ref(), false).unwrap().boot();
    let first = boot(&sim);
    assert!(first.is_exact && first.id != [0; 16]);
    assert_eq!(boot(&sim.fork()), first, "only the process died");
    let (rebooted, mounted) = (sim.crash_image(&Image::SYNCED, 1), sim.lost_mount(&Image::SYNCED, 1));
    let later = [&rebooted, &mounted, &rebooted.lost_mount(&Image::SYNCED, 1), &mounted.fork()].map(boot);
    assert!(!later.contains(&first) && later[0] != later[1] && later[0] != later[2]);
    assert_eq!(later[1], later[3]);
}

#[test]
fn a_read_only_medium_is_read_and_locked_for_reading() {
    let (sim, dir, file) = with_file(b"bytes");
    sim.set_read_only(true);
    let refused = |result: io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(errno::EROFS));
    refused(dir.create_new("new", 0).map(drop));
    refused(dir.unlink("a"));
    refused(dir.rename("a", "b"));
    refused(dir.lock("LOCK", true).map(drop));
    refused(file.write_all_at(b"x", 0));
    refused(file.set_len(1));
    let (reader, _other) = (dir.lock("LOCK", false).unwrap(), dir.lock("LOCK", false).unwrap());
    assert!(dir.list().unwrap().iter().all(|name| name != "LOCK"));
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"bytes");
    sim.set_read_only(false);
    assert_eq!(dir.lock("LOCK", true).unwrap_err().kind(), io::ErrorKind::WouldBlock, "a reader has it");
    drop(reader);
}
