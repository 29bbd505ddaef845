use std::sync::Mutex;

use tidesdb_io::RealDisk;
use tidesdb_io::sim::{Fault, OpKind, errno};

use super::*;
use crate::Error;
use crate::vlog::Appended;
use crate::vlog::budget::WriteBudget;
use crate::vlog::file::{RecordGroup, VlogFile};
use crate::vlog::format::{FileHeader, VlogRecordHeader};

#[test]
fn pointers_encode_their_fields_in_order() {
    let p = VlogPointer { vlog: VlogId(0x0403_0201), disk_len: 5, offset: 6, raw_len: 7, crc: 0x0B0A_0908 };
    let bytes = p.encode();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 9, 10, 11]);
    assert_eq!(VlogPointer::decode(&bytes), Some(p));
    assert_eq!(VlogPointer::decode(&bytes[..23]), None);
    assert_eq!(VlogPointer::decode(&[0; 25]), None);
}

#[test]
fn every_compression_and_size_round_trips() {
    let (env, _) = world();
    let set = set(&env, 1, 1 << 20);
    let mut written = Vec::new();
    for compression in COMPRESSIONS {
        for len in [0, 1, 15, 16, 17, 500, 4096, 65_535, 65_536, 65_537, 300_000] {
            for value in [noise(len as u64, len), text(len as u64, len)] {
                let pointer = set.append(&value, compression).unwrap();
                assert_eq!(pointer.raw_len as usize, len);
                written.push((pointer, value));
            }
        }
    }
    assert!(written.iter().any(|(p, _)| p.disk_len < p.raw_len), "at least one value must be compressed");
    for (pointer, value) in &written {
        assert!(set.read(pointer).unwrap() == *value);
        assert!(set.read(pointer).is_ok());
    }
    set.rotate();
    let files = set.open.infos();
    let records: u64 = files.iter().map(|f| set.scan(f.id, |_| {}).unwrap().records).sum();
    assert_eq!(records, written.len() as u64);
    let bytes: u64 = written.iter().map(|(p, _)| p.record_bytes()).sum();
    assert_eq!(bytes + 40 * files.len() as u64, files.iter().map(|f| f.bytes).sum::<u64>());
    for file in &files {
        assert!(file.sealed);
        let report = set.scan(file.id, |_| {}).unwrap();
        assert!(report.is_whole());
        assert_eq!(report.len, file.bytes);
    }
}

#[test]
fn grouped_appends_equal_single_appends() {
    for compression in COMPRESSIONS {
        let (env, disk) = world();
        let set = set(&env, 1, 300 << 10);
        let value = |i: usize| match i % 50 {
            0 => Vec::new(),
            1 => noise(i as u64, 70_000),
            2 => text(i as u64, 70_000),
            n if n % 2 == 0 => noise(i as u64, n * 83),
            n => text(i as u64, n * 83),
        };
        let values: Vec<_> = (0..500).map(value).collect();
        let mut out = Appended::default();
        set.append_all(values.iter().map(Vec::as_slice), compression, &mut out).unwrap();
        assert_eq!(out.pointers.len(), values.len());
        for (pointer, value) in out.pointers.iter().zip(&values) {
            assert_eq!(set.read(pointer).unwrap(), *value);
        }
        set.rotate();
        let reports: Vec<_> = set.open.infos().iter().map(|f| set.scan(f.id, |_| {}).unwrap()).collect();
        assert!(reports.len() > 1 && reports.iter().all(|r| r.is_whole()));
        assert_eq!(reports.iter().map(|r| r.records).sum::<u64>(), 500);
        let writes = disk.ops().iter().filter(|op| op.kind == OpKind::Write).count();
        assert!(writes < 80, "{writes} writes");

        disk.inject(Fault::errno(errno::EIO).on(OpKind::Write).skip(1));
        let more = set.append_all(values.iter().map(Vec::as_slice), compression, &mut out);
        assert!(matches!(more, Err(Error::Io { .. })));
        assert!(out.pointers.iter().all(|p| set.read(p).is_ok()));
        set.append_all([], compression, &mut out).unwrap();
    }
}

#[test]
fn files_of_a_small_set_are_small() {
    let (env, _) = world();
    let large = set(&env, 10, 256 << 20);
    let sizes = [0u64, 100 << 20, 1 << 30, 1 << 40].map(|live| {
        large.sizes.set_live(live);
        large.sizes.of_new() >> 20
    });
    assert_eq!(sizes, [8, 8, 64, 256]);
    let small = set(&env, 20, 4096);
    small.sizes.set_live(1 << 30);
    assert_eq!(small.sizes.of_new(), 4096, "never more than the setting");
    let value = noise(1, 3000);
    for _ in 0..4 {
        small.append(&value, Compression::None).unwrap();
    }
    assert_eq!(small.sizes.filled(), 40 + 2 * 3018, "the second file is not full");
    small.rotate();
    assert_eq!(small.sizes.filled(), 2 * (40 + 2 * 3018));
}

#[test]
fn a_full_file_is_replaced_by_a_new_one() {
    let (env, _) = world();
    let set = set(&env, 10, 4096);
    let value = noise(1, 1000);
    let pointers: Vec<_> = (0..50).map(|_| set.append(&value, Compression::None).unwrap()).collect();
    // 40 + 4 * 1018 = 4112: the fourth record of each file reaches the limit.
    let ids: Vec<_> = pointers.iter().map(|p| p.vlog.0).collect();
    assert_eq!(ids, (0..50).map(|i| 10 + i / 4).collect::<Vec<_>>());
    let files = set.open.infos();
    assert!(files[..12].iter().all(|f| f.sealed && f.bytes == 4112));
    assert_eq!((files[12].sealed, files[12].bytes), (false, 40 + 2 * 1018));
    // A value larger than a file is still stored as one record.
    let large = set.append(&noise(2, 100_000), Compression::None).unwrap();
    assert_eq!(set.read(&large).unwrap(), noise(2, 100_000));
    assert!(set.open.infos()[12].sealed);
    // Rotating a full file changes nothing about it.
    let full = *set.open.infos().last().unwrap();
    set.rotate();
    assert_eq!((full.sealed, Some(&full)), (true, set.open.infos().last()));
}

#[test]
fn an_append_to_a_full_file_does_not_change_its_end() {
    let (env, _) = world();
    let header = FileHeader { family: FAMILY, vlog: VlogId(1), salt: [1; 16] };
    let file = VlogFile::create(&*directory(&env), header, 4096, None).unwrap();
    assert!(file.append(&noise(1, 5000), Compression::None).unwrap().is_some());
    let (mut buf, mut out) = (Vec::new(), Vec::new());
    let mut late = RecordGroup::new(&mut buf);
    assert!(late.add(b"late", Compression::None));
    assert!(!file.append_group(&mut late, &mut out).unwrap());
    assert_eq!((late.bytes(), out.len()), (18 + 4, 0), "the group must keep its records for the next file");
    file.close();
    assert_eq!(file.sealed_len(), Some(40 + 18 + 5000));
}

#[test]
fn later_sessions_read_old_files_and_append_only_to_new_ones() {
    let (env, _) = world();
    let old = set(&env, 1, 1 << 20);
    let pointer = old.append(b"first", Compression::None).unwrap();
    let salt = old.info(VlogId(1)).unwrap().salt;
    drop(old);
    let new = set(&env, 2, 1 << 20);
    assert!(new.open.infos().is_empty());
    assert_eq!(new.append(b"second", Compression::None).unwrap().vlog, VlogId(2));
    assert_eq!(new.info(VlogId(1)).unwrap().salt, salt);
    assert_eq!(new.read(&pointer).unwrap(), b"first");
    let info = new.info(VlogId(1)).unwrap();
    assert!(info.sealed);
    assert_eq!(info.bytes, 40 + 18 + 5);
    new.open.close(VlogId(1));
    assert_eq!(new.read(&pointer).unwrap(), b"first");
    let mut seen = Vec::new();
    new.scan(VlogId(2), |r| seen.push(r.pointer)).unwrap();
    assert_eq!(seen.iter().map(|p| new.read(p).unwrap()).collect::<Vec<_>>(), [b"second"]);
}

#[test]
fn many_threads_append_sync_rotate_and_read() {
    let tmp = tempfile::tempdir().unwrap();
    let env = Env { disk: Arc::new(RealDisk::new()), ..Env::real() };
    let dir = env.disk.open_dir(&tmp.path().join("db"), true).unwrap();
    let next = AtomicU32::new(1);
    let new_id = move || Ok(VlogId(next.fetch_add(1, Ordering::SeqCst)));
    let set = VlogSet::new(dir, Arc::clone(&env.entropy), FAMILY, 64 << 10, new_id);
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (set, all) = (&set, &all);
            scope.spawn(move || {
                let mut mine = Vec::new();
                for i in 0..400_u64 {
                    let seed = thread * 1000 + i;
                    let len = (seed * 37 % 3000) as usize;
                    let value = if i % 2 == 0 { noise(seed, len) } else { text(seed, len) };
                    let pointer = set.append(&value, COMPRESSIONS[(seed % 5) as usize]).unwrap();
                    assert_eq!(set.read(&pointer).unwrap(), value);
                    mine.push((pointer, value));
                    match i % 100 {
                        0 => set.sync().unwrap(),
                        50 => set.rotate(),
                        _ => {}
                    }
                }
                all.lock().unwrap().append(&mut mine);
            });
        }
    });
    set.rotate();
    set.sync().unwrap();
    let mut all = all.into_inner().unwrap();
    all.sort_by_key(|(p, _)| (p.vlog, p.offset));
    for (pointer, value) in &all {
        assert_eq!(set.read(pointer).unwrap(), *value);
    }
    for pair in all.windows(2).filter(|pair| pair[0].0.vlog == pair[1].0.vlog) {
        assert_eq!(
            pair[0].0.offset + pair[0].0.record_bytes(),
            pair[1].0.offset,
            "records must be contiguous and not overlap"
        );
    }
    let mut records = 0;
    for file in set.open.infos() {
        let report = set.scan(file.id, |_| {}).unwrap();
        assert!(file.sealed && report.is_whole() && report.len == file.bytes, "{file:?} {report:?}");
        records += report.records;
    }
    assert_eq!(records, 3200);
}

#[test]
fn append_returns_the_error_of_new_id() {
    let (env, _) = world();
    let set = VlogSet::new(directory(&env), Arc::clone(&env.entropy), FAMILY, 1 << 20, || Err(Error::Closed));
    assert!(matches!(set.append(b"x", Compression::None), Err(Error::Closed)));
}

/// Regression: a full file kept its descriptor until the next log sync. Small files and rare syncs used up all
/// descriptors of the process, and writes failed.
#[test]
fn full_files_release_their_descriptors() {
    let (env, _) = world();
    let budget = WriteBudget::new(4);
    let others = Arc::new(AtomicU32::new(0));
    let asked = Arc::clone(&others);
    let set = set(&env, 1, 4096).limited(Arc::clone(&budget), move || {
        asked.fetch_add(1, Ordering::SeqCst);
    });
    let values: Vec<_> = (0..50).map(|n| noise(n, 5000)).collect();
    let pointers: Vec<_> = values
        .iter()
        .map(|value| {
            let pointer = set.append(value, Compression::None).unwrap();
            assert!(budget.open() <= 4, "{} files are open for writing", budget.open());
            pointer
        })
        .collect();
    assert!(others.load(Ordering::SeqCst) > 0, "other sets that share the budget must be asked too");
    for (pointer, value) in pointers.iter().zip(&values) {
        assert_eq!(set.read(pointer).unwrap(), *value);
    }
    assert_eq!(set.open.infos().len(), 50, "all files must be listed");
}

#[test]
fn a_file_is_sealable_once_it_is_durable_and_no_lease_is_left() {
    let (env, _) = world();
    let set = set(&env, 1, 4096);
    let mut out = Appended::default();
    set.append_all([&noise(1, 5000)[..]], Compression::None, &mut out).unwrap();
    let sealable = || set.begun.facts().first().map(|file| file.sealable);
    assert_eq!(sealable(), Some(None), "it is not durable");
    set.sync().unwrap();
    assert_eq!(sealable(), Some(None), "a commit may still refer to it");
    let kept = out.leases.clone();
    drop(out);
    assert_eq!(sealable(), Some(None), "one of two leases is left");
    drop(kept);
    set.rotate();
    assert_eq!(sealable(), Some(Some(40 + 18 + 5000)));
    set.begun.sealed(VlogId(1));
    assert_eq!(sealable(), None);
}

#[test]
fn a_copied_record_keeps_its_compressed_bytes() {
    let (env, disk) = world();
    let set = set(&env, 1, 4096);
    let value = text(1, 9000);
    let old = set.append(&value, Compression::Zstd).unwrap();
    let mut leases = Vec::new();
    let new = set.copy_from(&set, &old, &mut leases).unwrap();
    assert_eq!((new.disk_len, new.raw_len, leases.len()), (old.disk_len, old.raw_len, 1));
    assert!(new != old && set.read(&new).unwrap() == value);
    let name = format!("/db/{}", crate::files::vlog(old.vlog));
    disk.corrupt(name, old.offset + 18 + 7, |byte| byte ^ 1).unwrap();
    assert!(set.copy_from(&set, &old, &mut leases).unwrap_err().is_corruption());
    assert_eq!(set.read(&new).unwrap(), value);
}

#[test]
fn a_file_that_another_process_has_grown_and_removed_is_not_opened_anew() {
    let temp = tempfile::tempdir().unwrap();
    let plain = tidesdb_io::Disk::open_dir(&RealDisk::new(), temp.path(), false).unwrap();
    let entropy = world().0.entropy;
    let over = |dir: Arc<dyn Dir>| VlogSet::new(dir, Arc::clone(&entropy), FAMILY, 1 << 20, || Ok(VlogId(1)));
    let writer = over(Arc::clone(&plain));
    let first = writer.append(b"first", Compression::None).unwrap();
    let descriptors = Arc::new(tidesdb_io::Descriptors::new(1));
    let kept = tidesdb_io::PooledDir::keeping(Arc::clone(&plain), &descriptors);
    let reader = over(Arc::clone(&kept));
    reader.open.open_anew(VlogId(1)).unwrap();
    if plain.create_new("other", 1).unwrap().without_descriptor().unwrap().is_none() {
        return; // the file system does not allow maps
    }
    // Takes the only descriptor, so the value log is mapped.
    (0..2).for_each(|_| drop(kept.open("other", Access::Read).unwrap()));
    let second = writer.append(&noise(1, 3000), Compression::None).unwrap();
    plain.unlink("000001.vlog").unwrap();
    assert_eq!(reader.read(&first).unwrap(), b"first");
    assert!(reader.read(&second).is_err(), "the map has the length of the time of its making");
    assert!(reader.open.open_anew(VlogId(1)).unwrap_err().is_corruption());
}

#[test]
fn records_beyond_addresses_of_32_bits_are_read() {
    let (env, _) = world();
    let salt = [3; 16];
    write_file(&env, "000001.vlog", &FileHeader { family: FAMILY, vlog: VlogId(1), salt }.encode());
    let file = directory(&env).open("000001.vlog", Access::ReadWrite).unwrap();
    let (mut at, mut pointers, mut values) = ((5 << 30) + 7, Vec::new(), Vec::new());
    for seed in 0..3 {
        let value = text(seed, 5000);
        let mut record = VlogRecordHeader::new(&value, 5000, Compression::None);
        record.bind(&salt, at);
        file.write_all_at(&[&record.encode()[..], &value].concat(), at).unwrap();
        pointers.push(record.pointer(VlogId(1), at));
        values.push(value);
        at += pointers[0].record_bytes();
    }
    let vlogs = set(&env, 9, 8 << 30);
    let read: Vec<_> = pointers.iter().map(|pointer| vlogs.read(pointer).unwrap()).collect();
    assert_eq!(read, values);
    let mut read = vec![Vec::new(); 3];
    vlogs.read_many(&pointers, |i, value| read[i] = value.unwrap()); // with one call
    assert_eq!(read, values);
}

/// A compressed record of 2 GiB for which there was no memory aborted the process, instead of failing the read.
#[cfg(target_pointer_width = "32")]
#[test]
fn a_record_without_memory_for_it_is_an_error() {
    sim::alone(|| {
        let (env, _) = world();
        let salt = [3; 16];
        let head = FileHeader { family: FAMILY, vlog: VlogId(1), salt }.encode();
        write_file(&env, "000001.vlog", &head);
        let disk_len = (1 << 31) - 100;
        let record =
            VlogRecordHeader { disk_len, ..VlogRecordHeader::new(b"", disk_len + 1, Compression::Lz4) };
        let pointer = record.pointer(VlogId(1), head.len() as u64);
        let file = directory(&env).open("000001.vlog", Access::ReadWrite).unwrap();
        file.write_all_at(&[0], pointer.offset + pointer.record_bytes() - 1).unwrap();
        let taken = [(); 2].map(|()| Vec::<u8>::with_capacity(1 << 30));
        let error = set(&env, 9, 8 << 30).read(&pointer).unwrap_err();
        assert!(matches!(error, Error::MemoryLimit { .. }), "{error}, besides {}", taken.len());
    });
}
