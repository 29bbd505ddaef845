//! A small database is small: what it takes of the disk, and what it can do on a full one.

use std::path::Path;

use tidesdb::{Db, Error, FamilyOptions, OpenOptions};
use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, errno};

use crate::common::{DB, Pair, Sim, contents, noise};

const MIB: u64 = 1 << 20;

/// The default settings, without threads.
fn options(sim: &Sim) -> OpenOptions {
    Db::options(DB).env(sim.env.clone()).background_threads(0).with(|o| o.disk_free_min = 0)
}

/// Bytes of the disk that all files take.
fn used(sim: &Sim) -> u64 {
    let space = sim.env.disk.open_dir(Path::new(DB), false).unwrap().space().unwrap();
    space.total - space.free
}

#[test]
fn a_small_database_takes_less_than_a_mebibyte() {
    let sim = Sim::new();
    for round in 0..5u8 {
        let db = options(&sim).open().unwrap();
        assert!(used(&sim) < MIB, "{} bytes after open {round}", used(&sim));
        db.put([round], b"v").unwrap();
        assert!(used(&sim) < MIB, "{} bytes after put {round}", used(&sim));
        db.close().unwrap();
        assert!(used(&sim) < MIB, "{} bytes after close {round}", used(&sim));
    }
}

/// It takes more as it holds more: at most six times its rows, besides what an empty one takes.
#[test]
fn a_database_grows_with_its_rows() {
    let sim = Sim::new();
    let db = options(&sim).open().unwrap();
    let mut bytes = 0;
    for n in 0..2000u32 {
        bytes += db.put(n.to_be_bytes(), noise(n.into(), 500)).map(|_| 500).unwrap();
        let most = MIB + 6 * bytes;
        assert!(used(&sim) <= most, "{} bytes for {bytes} of rows", used(&sim));
    }
    assert!(used(&sim) > 2 * MIB, "the log and the reserve grow");
}

#[cfg(unix)] // on Windows the standard library does not say what a file takes
#[test]
fn a_small_database_takes_less_than_a_mebibyte_of_a_real_disk() {
    use std::os::unix::fs::MetadataExt;

    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("db");
    let used = || -> u64 {
        let entries = std::fs::read_dir(&path).unwrap().map(Result::unwrap);
        entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * 512).sum()
    };
    for round in 0..3u8 {
        let db = Db::open(&path).unwrap();
        db.put([round], b"v").unwrap();
        assert!(used() < MIB, "{} bytes in round {round}", used());
        db.close().unwrap();
        assert!(used() < MIB, "{} bytes after close {round}", used());
    }
}

/// What a database on a full disk went through.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Past {
    Open,
    /// Closed and opened while the disk was full.
    Closed,
    Killed,
    /// Closed and opened before the disk was full.
    Opened,
}

/// Fills a database on a disk with `limit` bytes by at most `rows` rows. Then something else takes the rest of the disk. Whatever was
/// acknowledged can be deleted, flushed, dropped, closed and opened again. Returns the number of rows.
fn on_a_full_disk(limit: u64, rows: u32, past: Past) -> u32 {
    let mut sim = Sim::new();
    sim.disk.limit_space(Some(limit));
    let case = format!("a disk of {limit} bytes, {rows} rows, {past:?}");
    let mut db = match options(&sim).open() {
        Ok(db) => db,
        Err(Error::NoSpace { .. }) => {
            sim.disk.limit_space(None);
            options(&sim).open().unwrap().close().unwrap();
            return 0;
        }
        Err(e) => panic!("{case}: {e}"),
    };
    let side = db.create_family("side", FamilyOptions::default()).ok();
    let mut stored: Vec<Pair> = Vec::new();
    for n in 0..rows {
        let pair = (n.to_be_bytes().to_vec(), noise(n.into(), 400));
        match db.put(&pair.0, &pair.1) {
            Ok(_) => stored.push(pair),
            Err(Error::NoSpace { .. }) => break,
            Err(e) => panic!("{case}: {e}"),
        }
        if let Some(side) = &side {
            let _ = side.put(n.to_be_bytes(), b"aside");
        }
    }
    if stored.is_empty() {
        return 0;
    }
    if past == Past::Opened {
        must(&case, "the close", db.close());
        db = must(&case, "the open", options(&sim).open());
    }
    sim.disk.limit_space(Some(0));
    if past == Past::Closed {
        must(&case, "the first close", db.close());
        db = must(&case, "the first open", options(&sim).open());
    } else if past == Past::Killed {
        sim = sim.killed();
        sim.disk.limit_space(Some(0));
        db = must(&case, "the open after a kill", options(&sim).open());
    }
    assert!(contents(db.default_family()) == stored, "{case}");
    for (key, _) in stored.drain(..stored.len().min(20)) {
        must(&case, "delete", db.delete(key));
    }
    must(&case, "flush", db.flush());
    if side.is_some() {
        must(&case, "drop", db.drop_family("side"));
    }
    assert!(contents(db.default_family()) == stored, "{case}");
    must(&case, "close", db.close());
    let db = must(&case, "open", options(&sim).open());
    assert!(contents(db.default_family()) == stored, "{case}");
    must(&case, "the last delete", db.delete(b"key"));
    must(&case, "the last flush", db.flush());
    sim.disk.limit_space(None);
    must(&case, "put with room", db.put(b"key", b"v"));
    must(&case, "the last close", db.close());
    stored.len() as u32
}

fn must<T>(case: &str, what: &str, result: Result<T, Error>) -> T {
    result.unwrap_or_else(|e| panic!("{case}: {what}: {e}"))
}

#[test]
fn a_small_database_works_on_a_disk_that_is_full_at_any_byte() {
    let mut with_rows = 0;
    for (n, limit) in (0..3 * MIB).step_by(9_973).enumerate() {
        let past = [Past::Open, Past::Closed, Past::Killed, Past::Opened][n % 4];
        with_rows += u32::from(on_a_full_disk(limit, 60, past) > 0);
    }
    assert!(with_rows > 100, "{with_rows} disks had room for rows");
}

/// The longer the log, the longer the reserve: all that is only in memory can be flushed.
#[test]
fn what_a_growing_database_has_in_its_log_can_be_flushed_on_a_full_disk() {
    for rows in [100, 500, 2000, 6000] {
        for past in [Past::Open, Past::Closed, Past::Killed, Past::Opened] {
            assert_eq!(on_a_full_disk(64 * MIB, rows, past), rows - 20, "{past:?}");
        }
    }
}

/// Calls since `from` that make something durable, and those that change a file other than the event log.
fn calls(sim: &Sim, from: u64) -> (usize, usize) {
    let ops = sim.disk.ops();
    let later = ops.iter().filter(|op| op.index >= from && !op.path.ends_with("EVENTS"));
    let syncs = later.clone().filter(|op| OpSet::SYNCS.has(op.kind) || op.kind == OpKind::SyncDir);
    (syncs.count(), later.filter(|op| OpSet::CHANGES.has(op.kind) && op.kind != OpKind::Lock).count())
}

/// An open that is followed by no write changes nothing, and neither does its close. A write after an open begins the session.
#[test]
fn an_open_that_only_reads_syncs_nothing() {
    let sim = Sim::new();
    sim.disk.log_ops(true);
    let syncs = |work: &dyn Fn()| {
        let from = sim.disk.op_count();
        work();
        calls(&sim, from)
    };
    let session = |value: u8| {
        let db = options(&sim).open().unwrap();
        db.put(b"key", [value]).unwrap();
        db.close().unwrap();
    };
    let created = syncs(&|| session(1)).0;
    assert!(created <= 17, "{created} syncs to create a database, put a row and close");
    let read = || {
        let db = options(&sim).open().unwrap();
        assert!(db.recovery_report().clean);
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&[1][..]));
        assert_eq!(db.iter().unwrap().count(), 1);
        db.close().unwrap();
    };
    for _ in 0..3 {
        assert_eq!(syncs(&read), (0, 0));
    }
    let written = syncs(&|| session(2)).0;
    assert!(written <= 13, "{written} syncs to open, put a row and close");
    assert_eq!(contents(options(&sim).open().unwrap().default_family()), [(b"key".to_vec(), vec![2])]);
}

/// The session begins at its first write, which may fail and be tried again, and no crash loses what was there or what was acknowledged.
#[test]
fn a_session_that_begins_late_survives_failures_and_crashes() {
    let sim = Sim::new();
    let db = options(&sim).open().unwrap();
    db.put(b"old", b"row").unwrap();
    db.close().unwrap();
    let old = [(b"old".to_vec(), b"row".to_vec())];
    for kind in [OpKind::Create, OpKind::Write, OpKind::SyncAll, OpKind::SyncDir, OpKind::Rename] {
        for skip in 0..6 {
            let sim = sim.killed();
            let db = options(&sim).open().unwrap();
            let fault = sim.disk.inject(Fault::errno(errno::EIO).on(kind).skip(skip));
            let first = db.put(b"new", b"row");
            let struck = sim.disk.struck(fault) > 0;
            assert!(first.is_ok() || struck, "{kind:?} {skip}: {first:?}");
            sim.disk.clear_faults();
            let second = db.put(b"second", b"row");
            let mut expected = old.to_vec();
            if second.is_ok() {
                expected.push((b"second".to_vec(), b"row".to_vec()));
            }
            if first.is_ok() {
                expected.insert(0, (b"new".to_vec(), b"row".to_vec()));
            }
            assert_eq!(contents(db.default_family()), expected, "{kind:?} {skip}: {first:?} {second:?}");
            for image in Image::STANDARD {
                let after = sim.power_lost(&image, skip);
                let found = contents(options(&after).open().unwrap().default_family());
                let may_be_there = |pair: &Pair| expected.contains(pair) || pair.0 == b"new";
                let what = format!("{kind:?} {skip} {image:?}: {first:?} {second:?}");
                assert!(found.iter().all(may_be_there), "{what}: {found:?}");
                assert!(expected.iter().all(|pair| found.contains(pair)), "{what}: {found:?}");
            }
        }
    }
    // Nothing was written: a crash is as harmless as a close.
    let again = sim.killed();
    let db = options(&again).open().unwrap();
    let after = again.power_lost(&Image::SYNCED, 1);
    drop(db);
    assert!(options(&after).open().unwrap().recovery_report().clean);
    // Each crash while the first write begins the session.
    let again = sim.killed();
    let db = options(&again).open().unwrap();
    let disks = again.before_each_change(|| assert!(db.put(b"new", b"row").is_ok()));
    assert!(disks.len() > 10);
    for (n, disk) in disks.into_iter().enumerate() {
        for image in Image::STANDARD {
            let after = Sim::on(disk.crash_image(&image, n as u64));
            let db = options(&after).open().unwrap();
            assert_eq!(db.get(b"old").unwrap().as_deref(), Some(&b"row"[..]), "{n} {image:?}");
            db.put(b"later", b"row").unwrap();
            db.close().unwrap();
        }
    }
}
