//! A small database is small: what it takes of the disk, and what it can do on a full one.

use std::path::Path;

use tidesdb::{Db, Error, FamilyOptions, OpenOptions};

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

/// It takes more as it holds more: at most nine times its rows, besides what an empty one takes.
#[test]
fn a_database_grows_with_its_rows() {
    let sim = Sim::new();
    let db = options(&sim).open().unwrap();
    let mut bytes = 0;
    for n in 0..2000u32 {
        bytes += db.put(n.to_be_bytes(), noise(n.into(), 500)).map(|_| 500).unwrap();
        let most = MIB + 9 * bytes;
        assert!(used(&sim) <= most, "{} bytes for {bytes} of rows", used(&sim));
    }
    assert!(used(&sim) > 2 * MIB, "the log and the reserve grow");
}

#[cfg(unix)]
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
    Closed,
    Killed,
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
        let past = [Past::Open, Past::Closed, Past::Killed][n % 3];
        with_rows += u32::from(on_a_full_disk(limit, 60, past) > 0);
    }
    assert!(with_rows > 100, "{with_rows} disks had room for rows");
}

/// The longer the log, the longer the reserve: all that is only in memory can be flushed.
#[test]
fn what_a_growing_database_has_in_its_log_can_be_flushed_on_a_full_disk() {
    for rows in [100, 500, 2000, 6000] {
        for past in [Past::Open, Past::Closed, Past::Killed] {
            assert_eq!(on_a_full_disk(64 * MIB, rows, past), rows - 20, "{past:?}");
        }
    }
}
