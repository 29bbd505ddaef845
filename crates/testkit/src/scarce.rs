//! T49, scarce space: more data than free space. Rows are overwritten at random for a while; commits may be refused, and merges that do
//! not fit must wait. No acknowledged commit may be lost, the disk must keep its minimum of free space, and merges must not write again
//! and again in vain.

use std::path::Path;
use std::time::Duration;

use tidesdb::{Db, Error, SyncMode, WriteBatch};
use tidesdb_io::{Clock as _, Disk as _, RealClock, RealDisk};

use crate::rng::Rng;

/// Bytes of data.
const DATA: u64 = 160 << 20;
/// Bytes of the disk that are free when the overwrites begin.
const FREE: u64 = 90 << 20;
/// Bytes that commits, flushes and merges leave free.
const FLOOR: u64 = 32 << 20;
const SEGMENT: u64 = 16 << 20;
/// Bytes of a row.
const ROW: u64 = 120;
/// Rows of a commit.
const ROWS: u64 = 100;

/// Bytes that the file system needs.
pub const DISK: u64 = 480 << 20;

/// Figures of a run.
#[derive(Debug, Default)]
pub struct Seen {
    /// Commits that succeeded, after the data was there.
    pub acked: u64,
    /// Commits that were refused.
    pub refused: u64,
    /// MiB that flushes and merges wrote meanwhile.
    pub written_mib: u64,
    /// The least MiB that were free.
    pub free_mib: u64,
}

struct Run {
    db: Db,
    /// How often each row was written.
    rounds: Vec<u32>,
    rng: Rng,
    seen: Seen,
}

/// Fills the file system at `path` and overwrites for `time`.
///
/// # Errors
/// A lost commit, less free space than the minimum, or another error of the database.
pub fn run(path: &Path, seed: u64, time: Duration) -> Result<Seen, String> {
    let dir = path.join("db");
    let open = || {
        let options = Db::options(&dir).sync(SyncMode::None).background_threads(2);
        options.with(|o| (o.disk_free_min, o.wal_segment_bytes) = (FLOOR, SEGMENT)).open()
    };
    let db = open().map_err(|e| format!("open: {e}"))?;
    let rows = (DATA / ROW / ROWS * ROWS) as usize;
    let mut run = Run { db, rounds: vec![0; rows], rng: Rng::new(seed), seen: Seen::default() };
    for from in (0..rows as u64).step_by(ROWS as usize) {
        run.commit(|i| (from + i) * 7919 % rows as u64).map_err(|e| format!("load: {e}"))?;
    }
    run.db.flush().map_err(|e| format!("flush: {e}"))?;
    let is_merging = || run.db.default_family().stats().compacting;
    let clock = RealClock::new();
    while is_merging() {
        clock.sleep(Duration::from_millis(20));
    }
    leave(path, FREE)?;
    let before = run.written();
    let clock = RealClock::new();
    run.seen = Seen { free_mib: u64::MAX, ..Seen::default() };
    while clock.mono() < time {
        let picks: Vec<u64> = (0..ROWS).map(|_| run.rng.below(rows as u64)).collect();
        match run.commit(|i| picks[i as usize]) {
            Ok(()) => run.seen.acked += 1,
            Err(Error::NoSpace { .. } | Error::Busy { .. }) => {
                run.seen.refused += 1;
                clock.sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(format!("commit: {e}")),
        }
        run.seen.free_mib = run.seen.free_mib.min(free(path)? >> 20);
    }
    run.seen.written_mib = (run.written() - before) >> 20;
    run.check("after the overwrites")?;
    run.db.close().map_err(|e| format!("close: {e}"))?;
    run.db = open().map_err(|e| format!("open again: {e}"))?;
    run.check("after a reopen")?;
    if run.seen.free_mib < FLOOR >> 20 {
        return Err(format!("the disk was below its minimum: {:?}", run.seen));
    }
    Ok(run.seen)
}

impl Run {
    /// Writes some rows, each with its next round.
    fn commit(&mut self, row: impl Fn(u64) -> u64) -> tidesdb::Result<()> {
        let mut batch = WriteBatch::new();
        let mut rows: Vec<u64> = (0..ROWS).map(row).collect();
        rows.sort_unstable();
        rows.dedup();
        for row in &rows {
            batch.put(self.db.default_family(), &key(*row), &value(*row, self.rounds[*row as usize] + 1))?;
        }
        self.db.write(&mut batch)?;
        rows.iter().for_each(|row| self.rounds[*row as usize] += 1);
        Ok(())
    }

    fn written(&self) -> u64 {
        let stats = self.db.default_family().stats();
        stats.flush_bytes + stats.compaction_written
    }

    fn check(&self, when: &str) -> Result<(), String> {
        let mut n = 0;
        for row in self.db.iter().map_err(|e| e.to_string())? {
            let (k, v) = row.map_err(|e| format!("{when}: {e}"))?;
            if *k != *key(n) || *v != *value(n, self.rounds[n as usize]) {
                return Err(format!("{when}: row {n} is wrong"));
            }
            n += 1;
        }
        let wanted = self.rounds.len() as u64;
        if n == wanted { Ok(()) } else { Err(format!("{when}: {n} rows of {wanted}")) }
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:010}").into_bytes()
}

fn value(n: u64, round: u32) -> Vec<u8> {
    Rng::new(n << 20 | u64::from(round)).bytes(ROW as usize - 20)
}

fn free(path: &Path) -> Result<u64, String> {
    let dir = RealDisk::new().open_dir(path, false).map_err(|e| e.to_string())?;
    Ok(dir.space().map_err(|e| e.to_string())?.free)
}

/// Takes all of the disk but `bytes`.
fn leave(path: &Path, bytes: u64) -> Result<(), String> {
    let take = free(path)?.checked_sub(bytes).ok_or("the disk is too small")?;
    let file = std::fs::File::create(path.join("ballast")).map_err(|e| e.to_string())?;
    let piece = vec![1; 1 << 20];
    for _ in 0..take >> 20 {
        std::io::Write::write_all(&mut &file, &piece).map_err(|e| e.to_string())?;
    }
    Ok(())
}
