//! Values of any length: written and read piece by piece.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::Duration;

use tidesdb::{CommittedOp, Db, Error, Family, FamilyOptions, Isolation, SyncMode, ValueReader};
use tidesdb_io::sim::{Fault, OpKind, OpSet, errno};

use crate::common::{DB, Sim, contents, noise, small};

/// Longest value that is stored in one piece.
pub(crate) const CHUNK: usize = 1 << 20;

/// Value logs that hold a few chunks, and no automatic merges.
pub(crate) fn quiet() -> FamilyOptions {
    small().vlog_file_bytes(5 << 19).l1_tables_trigger(1000)
}

pub(crate) fn open(sim: &Sim) -> Db {
    sim.options().default_family(quiet()).open().unwrap()
}

/// Returns bytes of which half can be compressed.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = noise(seed, len);
    for half in bytes.chunks_mut(2048) {
        let (_, zeros) = half.split_at_mut(half.len() / 2);
        zeros.fill(seed as u8);
    }
    bytes
}

fn read_all(reader: &mut ValueReader) -> Vec<u8> {
    let mut out = Vec::new();
    reader.read_to_end(&mut out).unwrap();
    out
}

/// Asserts that every way of reading returns `want`.
pub(crate) fn check(f: &Family, key: &str, want: &[u8]) {
    let mut reader = f.value_reader(key).unwrap().unwrap_or_else(|| panic!("{key} is gone"));
    assert_eq!((reader.len(), reader.is_empty()), (want.len() as u64, want.is_empty()));
    assert!(read_all(&mut reader) == want, "{key}: read in order");
    assert!(f.get(key).unwrap().as_deref() == Some(want), "{key}: get");
    assert!(f.get_map(key, |value| value == want).unwrap() == Some(true), "{key}: get_map");
    assert!(f.multi_get(&[key]).unwrap()[0].as_deref() == Some(want), "{key}: multi_get");
    assert!(f.contains(key).unwrap());
    let half = want.len() as u64 / 2;
    let range = f.get_part(key, half..half + 100).unwrap().unwrap();
    assert!(*range == want[half as usize..want.len().min(half as usize + 100)], "{key}: get_part");
}

/// Names and bytes of the value logs on disk, without those that a background thread removes meanwhile.
pub(crate) fn vlogs(sim: &Sim) -> Vec<(String, u64)> {
    let names = sim.disk.file_names(DB).unwrap().into_iter().filter(|name| name.contains(".vlog"));
    let bytes = |name: &str| sim.disk.read_file(format!("{DB}/{name}")).ok().map(|bytes| bytes.len() as u64);
    names.filter_map(|name| bytes(&name).map(|bytes| (name, bytes))).collect()
}

pub(crate) fn vlog_bytes(sim: &Sim) -> u64 {
    vlogs(sim).iter().map(|(_, bytes)| bytes).sum()
}

/// Merges until the value logs take at most `bytes`: a thread of another test may keep a view, and thus a file, for a while.
pub(crate) fn shrinks_to(sim: &Sim, db: &Db, bytes: u64) {
    for _ in 0..3000 {
        db.compact().unwrap();
        if vlog_bytes(sim) <= bytes {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{:?}", vlogs(sim));
}

fn sizes() -> Vec<usize> {
    vec![0, 1, 511, 512, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1, 5 * CHUNK + 77]
}

#[test]
fn values_of_all_sizes_are_read_as_they_were_written() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    for (n, size) in sizes().into_iter().enumerate() {
        let bytes = content(n as u64, size);
        f.put_stream(format!("r{n}"), &bytes[..]).unwrap();
        let mut writer = f.value_writer(format!("w{n}")).unwrap();
        for piece in bytes.chunks(300_007) {
            writer.write_all(piece).unwrap();
        }
        writer.flush().unwrap();
        assert_eq!((writer.len(), writer.is_empty()), (size as u64, size == 0));
        assert!(!f.contains(format!("w{n}")).unwrap());
        writer.commit().unwrap();
    }
    let check_all = |db: &Db| {
        for (n, size) in sizes().into_iter().enumerate() {
            check(db.default_family(), &format!("r{n}"), &content(n as u64, size));
            check(db.default_family(), &format!("w{n}"), &content(n as u64, size));
        }
        assert_eq!(contents(db.default_family()).len(), 2 * sizes().len());
    };
    check_all(&db);
    db.flush().unwrap();
    check_all(&db);
    db.compact().unwrap();
    check_all(&db);
    let report = db.verify().unwrap();
    assert!(report.is_ok() && report.pointers == 14, "{report}");
    db.close().unwrap();
    let db = sim.open_as_stored();
    check_all(&db);
    db.abandon();
    check_all(&sim.killed().open_as_stored());
}

#[test]
fn seeks_find_the_same_bytes_as_a_model() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let bytes = content(1, 4 * CHUNK + 1000);
    f.put_stream("film", &bytes[..]).unwrap();
    f.put("short", b"plain").unwrap();
    let mut reader = f.value_reader("film").unwrap().unwrap();
    let mut model = io::Cursor::new(&bytes);
    let draws = noise(9, 12 * 300);
    for draw in draws.chunks(12) {
        let at = u64::from(u32::from_le_bytes(draw[..4].try_into().unwrap())) % (bytes.len() as u64 + 2000);
        let by = i64::from(i32::from_le_bytes(draw[4..8].try_into().unwrap())) % 2_000_000;
        let to = match draw[8] % 3 {
            0 => SeekFrom::Start(at),
            1 => SeekFrom::Current(by),
            _ => SeekFrom::End(by),
        };
        match (reader.seek(to), model.seek(to)) {
            (Ok(a), Ok(b)) => assert_eq!(a, b),
            (a, b) => assert!(a.is_err() && b.is_err(), "{to:?}"),
        }
        let len = u64::from(draw[9]) * 1021;
        let (mut got, mut want) = (Vec::new(), Vec::new());
        reader.by_ref().take(len).read_to_end(&mut got).unwrap();
        model.by_ref().take(len).read_to_end(&mut want).unwrap();
        assert!(got == want, "{to:?}, {len} bytes");
        let slice = f.get_part("film", at..at + len).unwrap().unwrap();
        let end = bytes.len().min((at + len) as usize);
        assert!(*slice == *bytes.get(at as usize..end).unwrap_or_default(), "{at}, {len} bytes");
    }
    assert_eq!(f.get_part("short", 1..=2).unwrap().as_deref(), Some(&b"la"[..]));
    assert_eq!(f.get_part("short", 9..).unwrap().as_deref(), Some(&b""[..]));
    assert!(f.get_part("none", ..).unwrap().is_none() && f.value_reader("none").unwrap().is_none());
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing_and_its_space_comes_back() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let small = content(3, 700);
    f.put("small", &small).unwrap();
    f.put_stream("film", &content(1, 3 * CHUNK)[..]).unwrap();
    for seed in 0..4 {
        let mut writer = f.value_writer("film").unwrap();
        writer.write_all(&noise(seed, 6 * CHUNK)).unwrap();
        assert!(vlog_bytes(&sim) > 5 << 20);
    }
    check(f, "film", &content(1, 3 * CHUNK));
    shrinks_to(&sim, &db, 4 << 20);
    check(f, "film", &content(1, 3 * CHUNK));
    f.delete("film").unwrap();
    shrinks_to(&sim, &db, 1 << 20);
    check(f, "small", &small);
    assert!(f.value_reader("film").unwrap().is_none());
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_source_that_fails_commits_nothing() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.0.min(out.len());
            self.0 -= n;
            if n == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(n) }
        }
    }
    let sim = Sim::new();
    let db = open(&sim);
    for len in [0, 10, CHUNK, 3 * CHUNK] {
        let error = db.put_stream("film", Broken(len)).unwrap_err();
        assert!(matches!(error, Error::Io { op: "read", .. }), "{error}");
    }
    assert!(db.value_writer("").is_err() && db.value_writer([0; 70_000]).is_err());
    assert!(contents(db.default_family()).is_empty());
}

#[test]
fn a_reader_keeps_its_value_whatever_happens_to_the_key() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let bytes = content(1, 4 * CHUNK);
    f.put_stream("film", &bytes[..]).unwrap();
    let snapshot = db.snapshot();
    let mut readers = vec![f.value_reader("film").unwrap().unwrap()];
    f.put_stream("film", &content(2, 3 * CHUNK)[..]).unwrap();
    readers.push(snapshot.value_reader(f, "film").unwrap().unwrap());
    assert!(*snapshot.get_part(f, "film", 5..9).unwrap().unwrap() == bytes[5..9]);
    db.flush().unwrap();
    readers.push(snapshot.value_reader(f, "film").unwrap().unwrap());
    drop(snapshot);
    check(f, "film", &content(2, 3 * CHUNK));
    f.delete_range(..).unwrap();
    for _ in 0..3 {
        db.compact().unwrap();
    }
    assert!(contents(f).is_empty());
    assert!(readers.iter_mut().all(|reader| read_all(reader) == bytes));
    drop(readers);
    shrinks_to(&sim, &db, 1 << 20);
}

#[test]
fn a_transaction_reads_and_commits_streamed_values() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let bytes = content(1, 2 * CHUNK + 5);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        f.delete("film").unwrap();
        let mut tx = db.begin(isolation);
        tx.put(f, "title", "one").unwrap();
        let point = tx.savepoint();
        tx.put_stream(f, "film", &bytes[..]).unwrap();
        for more in 0..20 {
            assert!(tx.get(f, "film").unwrap().as_deref() == Some(&bytes[..]));
            assert!(*tx.get_part(f, "film", 7..CHUNK as u64 + 7).unwrap().unwrap() == bytes[7..CHUNK + 7]);
            assert!(tx.get_map(f, "film", |v| v == bytes).unwrap() == Some(true));
            assert!(tx.multi_get(f, &["film"]).unwrap()[0].as_deref() == Some(&bytes[..]));
            assert!(tx.contains(f, "film").unwrap() && !f.contains("film").unwrap());
            tx.put(f, format!("more{more}"), "x").unwrap(); // a longer batch is sorted
        }
        assert!(tx.iter(f).unwrap().any(|kv| *kv.unwrap().1 == bytes));
        let mut early = tx.value_reader(f, "film").unwrap().unwrap();
        tx.rollback_to(point).unwrap();
        assert!(!tx.contains(f, "film").unwrap() && tx.value_reader(f, "film").unwrap().is_none());
        let mut writer = f.value_writer("film").unwrap();
        writer.write_all(&bytes[1..]).unwrap();
        writer.join(&mut tx).unwrap();
        assert!(tx.value_reader(f, "title").unwrap().unwrap().len() == 3);
        tx.commit().unwrap();
        check(f, "film", &bytes[1..]);
        db.compact().unwrap();
        assert!(read_all(&mut early) == bytes, "a reader of a value that was rolled back");
    }
    let mut tx = db.begin(Isolation::Snapshot);
    tx.put_stream(f, "film", &bytes[..]).unwrap();
    f.put("film", "other").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    check(f, "film", b"other");
    drop(tx);
    shrinks_to(&sim, &db, 1 << 20);
}

#[test]
fn options_of_a_writer_and_what_a_hook_sees() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&told);
    f.set_commit_hook(Some(std::sync::Arc::new(move |commit: &tidesdb::Committed<'_>| {
        for op in commit.ops {
            if let CommittedOp::PutStream { key, len, expiry } = op {
                seen.lock().unwrap().push((key.to_vec(), *len, expiry.is_some()));
            }
        }
    })));
    let mut writer = f.value_writer("film").unwrap().ttl(Duration::from_secs(60)).sync(SyncMode::Full);
    writer.write_all(&content(1, 3 * CHUNK)).unwrap();
    writer.commit().unwrap();
    assert_eq!(*told.lock().unwrap(), [(b"film".to_vec(), 3 << 20, true)]);
    let lost = Sim::on(sim.disk.crash_image(&tidesdb_io::sim::Image::SYNCED, 1));
    check(open(&lost).default_family(), "film", &content(1, 3 * CHUNK));
    sim.clock.advance(Duration::from_secs(61));
    assert!(f.value_reader("film").unwrap().is_none() && f.get_part("film", ..).unwrap().is_none());
    shrinks_to(&sim, &db, 1 << 20);
}

#[test]
fn a_clone_and_a_checkpoint_copy_chunked_values() {
    let sim = Sim::new();
    let db = open(&sim);
    let bytes = content(1, 3 * CHUNK + 9);
    db.put_stream("film", &bytes[..]).unwrap();
    db.put("small", content(2, 900)).unwrap();
    let copy = db.clone_family("default", "copy").unwrap();
    db.delete_range(..).unwrap();
    shrinks_to(&sim, &db, 8 << 20);
    check(&copy, "film", &bytes);
    check(&copy, "small", &content(2, 900));
    db.checkpoint("/copy").unwrap();
    let other = sim.options_at("/copy").open().unwrap();
    check(&other.family("copy").unwrap(), "film", &bytes);
    assert!(db.verify().unwrap().is_ok() && other.verify().unwrap().is_ok());
}

#[test]
fn chunks_are_moved_out_of_files_that_are_mostly_garbage() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet().value_garbage_percent(0)).open().unwrap();
    let f = db.default_family();
    // Each film shares its files with the garbage of others.
    for n in 0..24u64 {
        let mut kept = f.value_writer(format!("film{n:02}")).unwrap();
        let mut gone = f.value_writer("gone").unwrap();
        for part in 0..3 {
            kept.write_all(&noise(n * 10 + part, CHUNK / 2 + 1)).unwrap();
            gone.write_all(&noise(n, CHUNK)).unwrap();
        }
        kept.commit().unwrap();
        drop(gone);
    }
    let want = |n: u64| (0..3).flat_map(|part| noise(n * 10 + part, CHUNK / 2 + 1)).collect::<Vec<u8>>();
    let live = 24 * (3 * CHUNK as u64 / 2);
    assert!(vlog_bytes(&sim) > live * 3 / 2);
    f.change_options(quiet().value_garbage_percent(25)).unwrap();
    shrinks_to(&sim, &db, live * 135 / 100 + (8 << 20));
    (0..24).for_each(|n| check(f, &format!("film{n:02}"), &want(n)));
    assert!(db.verify().unwrap().is_ok());
    db.close().unwrap();
    let db = sim.open_as_stored();
    (0..24).for_each(|n| check(db.default_family(), &format!("film{n:02}"), &want(n)));
}

#[test]
fn a_full_disk_in_the_middle_leaves_nothing_and_the_database_goes_on() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    f.put_stream("film", &content(1, 2 * CHUNK)[..]).unwrap();
    for (skip, kind) in (0..12).flat_map(|skip| [(skip, OpKind::Write), (skip, OpKind::Create)]) {
        let full = Fault::errno(errno::ENOSPC).on(kind).path_ends(".vlog").skip(skip).forever();
        let full = sim.disk.inject(full);
        let result = f.put_stream("film", &noise(skip, 6 * CHUNK)[..]);
        let struck = sim.disk.struck(full) > 0;
        sim.disk.remove_fault(full);
        assert_eq!(result.is_err(), struck, "{kind:?} {skip}: {result:?}");
        if struck {
            check(f, "film", &content(1, 2 * CHUNK));
        } else {
            f.put_stream("film", &content(1, 2 * CHUNK)[..]).unwrap();
        }
    }
    shrinks_to(&sim, &db, 4 << 20);
    check(f, "film", &content(1, 2 * CHUNK));
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn several_threads_stream_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for n in 0..6 {
            let f = db.default_family().clone();
            scope.spawn(move || {
                for round in 0..3 {
                    f.put_stream(format!("film{n}"), &content(n * 10 + round, 9 * CHUNK + 3)[..]).unwrap();
                    check(&f, &format!("film{n}"), &content(n * 10 + round, 9 * CHUNK + 3));
                }
                let mut dropped = f.value_writer(format!("film{n}")).unwrap();
                dropped.write_all(&content(1, 7 * CHUNK)).unwrap();
            });
        }
    });
    (0..6).for_each(|n| check(db.default_family(), &format!("film{n}"), &content(n * 10 + 2, 9 * CHUNK + 3)));
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn nothing_is_written_after_a_close() {
    let bytes = noise(1, 8 * CHUNK);
    for round in 0..60 {
        let sim = Sim::new();
        sim.disk.log_ops(true);
        let db = sim.options().default_family(quiet()).background_threads(2).open().unwrap();
        let f = db.default_family().clone();
        std::thread::scope(|scope| {
            let writers = [0, 1].map(|t| {
                let (f, bytes) = (&f, &bytes);
                scope.spawn(move || {
                    (0..20).try_for_each(|i| f.put_stream(format!("{t}{i}"), &bytes[..]).map(drop))
                })
            });
            std::thread::sleep(Duration::from_micros(2000 + round * 100));
            db.close().unwrap();
            let before = sim.disk.ops().len();
            assert!(writers.map(|w| w.join().unwrap().is_err()).iter().any(|ended| *ended));
            let changes = |op: &&tidesdb_io::sim::Op| OpSet::CHANGES.has(op.kind);
            let late = sim.disk.ops()[before..].iter().find(changes).cloned();
            assert!(late.is_none(), "another process may have the directory open: {late:?}");
        });
    }
}
