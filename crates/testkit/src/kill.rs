//! T04: a child process commits on a real directory and is killed at a random time. The parent opens the database and
//! compares it with every acknowledgement received through the pipe.
//!
//! Each thread of the child counts its commits. Commit `n` of thread `t` puts `t:n` and the counter into two families
//! and deletes `t:(n - WINDOW)`. So the counter alone determines the expected contents exactly. Some commits write each key twice: the last
//! write wins.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidesdb::{Compression, Db, Family, FamilyOptions, SyncMode, WriteBatch};
use tidesdb_io::{Clock, RealClock};

use crate::process;
use crate::rng::Rng;

/// Number of threads of the child.
pub const THREADS: usize = 8;
/// Number of commits per thread whose keys are kept.
const WINDOW: u64 = 120;
/// Size of a message in bytes: thread, then counter.
const MESSAGE_BYTES: usize = 16;
/// Thread number of the message that the database is open and the commits begin.
const READY: u64 = u64::MAX;
const SECOND: &str = "second";

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of children killed.
    pub kills: u64,
    /// Number of children killed before they had opened the database.
    pub early: u64,
    /// Number of acknowledgements received through the pipe.
    pub acked: u64,
    /// Number of keys compared.
    pub keys: u64,
    /// Number of directories checked with `verify`.
    pub verified: u64,
    /// Number of broken promises.
    pub violations: u64,
}

/// Returns the sync mode of child `n`.
fn sync_mode(n: u64) -> SyncMode {
    [SyncMode::None, SyncMode::Interval(Duration::from_millis(20)), SyncMode::Full][(n % 3) as usize]
}

fn open(path: &Path, mode: SyncMode) -> tidesdb::Result<(Db, Family)> {
    let family = FamilyOptions::default().write_buffer_bytes(64 << 10).compression(Compression::Lz4);
    let db = Db::options(path)
        .sync(mode)
        .background_threads(2)
        .default_family(family.clone())
        .with(|o| {
            o.wal_segment_bytes = 128 << 10;
            o.disk_free_min = 0;
            o.forced.saves_behind = mode != SyncMode::Full;
        })
        .open()?;
    let second = db.family_or_create(SECOND, family)?;
    Ok((db, second))
}

fn key(thread: usize, n: u64) -> Vec<u8> {
    format!("{thread}:{n:010}").into_bytes()
}

fn counter_key(thread: usize) -> Vec<u8> {
    format!("counter{thread}").into_bytes()
}

fn value(thread: usize, n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n * THREADS as u64 + thread as u64);
    let len = if rng.one_in(16) { 600 + rng.below(5000) } else { rng.below(200) };
    rng.bytes(len as usize)
}

fn counter(family: &Family, thread: usize) -> tidesdb::Result<u64> {
    let bytes = family.get(&counter_key(thread))?;
    Ok(bytes.and_then(|b| <[u8; 8]>::try_from(&b[..]).ok()).map_or(0, u64::from_le_bytes))
}

/// Runs the child until it is killed.
///
/// # Errors
/// Returns an unexpected error.
pub fn child(path: &Path, n: u64) -> Result<(), String> {
    let (db, second) = open(path, sync_mode(n)).map_err(|e| e.to_string())?;
    tell(READY, 0)?;
    let first_error = std::thread::scope(|scope| {
        let mut threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (db, second) = (&db, &second);
                scope.spawn(move || commit_for_ever(db, second, t))
            })
            .collect();
        if n.is_multiple_of(4) {
            threads.push(scope.spawn(|| {
                loop {
                    db.compact().map_err(|e| format!("compact: {e}"))?;
                }
            }));
        }
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .find(Result::is_err)
    });
    first_error.unwrap_or(Ok(()))
}

fn commit_for_ever(db: &Db, second: &Family, thread: usize) -> Result<(), String> {
    let mut n = counter(second, thread).map_err(|e| e.to_string())?;
    let mut batch = WriteBatch::new();
    loop {
        n += 1;
        for family in [db.default_family(), second] {
            if n.is_multiple_of(3) {
                write_first(&mut batch, family, thread, n).map_err(|e| e.to_string())?;
            }
            let filled = batch
                .put(family, &key(thread, n), &value(thread, n))
                .and_then(|()| batch.put(family, &counter_key(thread), &n.to_le_bytes()));
            filled.map_err(|e| e.to_string())?;
            if n > WINDOW {
                batch.delete(family, &key(thread, n - WINDOW)).map_err(|e| e.to_string())?;
            }
        }
        db.write(&mut batch).map_err(|e| format!("commit: {e}"))?;
        tell(thread as u64, n)?;
    }
}

/// Writes the keys of commit `n` otherwise than the commit will.
fn write_first(batch: &mut WriteBatch, family: &Family, thread: usize, n: u64) -> tidesdb::Result<()> {
    match n % 2 {
        0 => batch.put(family, key(thread, n), b"first")?,
        _ => batch.delete(family, key(thread, n))?,
    }
    batch.put(family, counter_key(thread), 0u64.to_le_bytes())?;
    if n > WINDOW {
        batch.put(family, key(thread, n - WINDOW), b"deleted by the same commit")?;
    }
    Ok(())
}

/// Sends a message to the parent. When this returns, the pipe has the message.
fn tell(thread: u64, n: u64) -> Result<(), String> {
    let mut message = [0; MESSAGE_BYTES];
    message[..8].copy_from_slice(&thread.to_le_bytes());
    message[8..].copy_from_slice(&n.to_le_bytes());
    let mut pipe = std::io::stdout().lock();
    pipe.write_all(&message).and_then(|()| pipe.flush()).map_err(|e| format!("pipe: {e}"))
}

/// Messages received from one child.
struct Heard {
    acked: [u64; THREADS],
    messages: u64,
    ready: bool,
}

/// The parent, which kills children one after the other.
pub struct Killer {
    path: PathBuf,
    rng: Rng,
    acked: [u64; THREADS],
    clock: RealClock,
    /// Figures so far.
    pub totals: Totals,
}

impl Killer {
    /// Creates a killer of children that are this program with `--child PATH NUMBER` on the directory `path`.
    pub fn new(path: &Path, seed: u64) -> Self {
        Self {
            path: path.to_owned(),
            rng: Rng::new(seed),
            acked: [0; THREADS],
            clock: RealClock::new(),
            totals: Totals::default(),
        }
    }

    /// Starts child `n`, kills it and checks the database.
    ///
    /// # Errors
    /// Returns the first broken promise.
    pub fn once(&mut self, n: u64) -> Result<(), String> {
        let heard = self.run_and_kill(n)?;
        self.totals.kills += 1;
        self.totals.early += u64::from(!heard.ready);
        self.totals.acked += heard.messages;
        for (known, new) in self.acked.iter_mut().zip(heard.acked) {
            *known = new.max(*known);
        }
        let (db, second) =
            open(&self.path, SyncMode::None).map_err(|e| format!("open after the kill: {e}"))?;
        let result = self.look(&db, &second, n);
        drop(second);
        // Usually the next child recovers again; sometimes it finds a cleanly closed database.
        if n.is_multiple_of(7) {
            db.close().map_err(|e| format!("close: {e}"))?
        } else {
            db.abandon()
        }
        result
    }

    fn run_and_kill(&mut self, n: u64) -> Result<Heard, String> {
        let mut child = process::itself()?
            .arg("--child")
            .arg(&self.path)
            .arg(n.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("spawn: {e}"))?;
        let mut pipe = child.stdout.take().ok_or("no pipe")?;
        let pause = Duration::from_millis(5 + self.rng.below(196));
        let in_recovery = self.rng.one_in(6);
        let ready = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let listener = scope.spawn(|| listen(&mut pipe, &ready));
            if in_recovery {
                self.clock.sleep(pause / 10);
            } else {
                self.wait_ready(&ready, &mut child);
                self.clock.sleep(pause);
            }
            let ended = child.try_wait();
            let killed = child.kill();
            let waited = child.wait();
            let heard = listener.join().map_err(|_| "the listener panicked")?;
            match (ended, killed, waited) {
                (Ok(None), Ok(()), Ok(_)) => Ok(heard),
                other => Err(format!("the child ended before it was killed: {other:?}")),
            }
        })
    }

    fn wait_ready(&self, ready: &AtomicU64, child: &mut Child) {
        for _ in 0..10_000 {
            if ready.load(Relaxed) != 0 || !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            self.clock.sleep(Duration::from_millis(1));
        }
    }

    fn look(&mut self, db: &Db, second: &Family, n: u64) -> Result<(), String> {
        for thread in 0..THREADS {
            let at = counter(second, thread).map_err(|e| e.to_string())?;
            if at < self.acked[thread] {
                return Err(format!(
                    "thread {thread}: commit {} was acknowledged, but the last one is {at}",
                    self.acked[thread]
                ));
            }
            self.acked[thread] = at;
            for family in [db.default_family(), second] {
                if counter(family, thread).map_err(|e| e.to_string())? != at {
                    return Err(format!("thread {thread}: commit {at} is torn"));
                }
                self.totals.keys += window(family, thread, at)?;
            }
        }
        if n.is_multiple_of(5) {
            let report = db.verify().map_err(|e| e.to_string())?;
            self.totals.verified += 1;
            if !report.is_ok() {
                return Err(format!("verify: {report}"));
            }
        }
        Ok(())
    }
}

/// Checks that a thread's keys in one family are exactly those of its last commits, with their values.
fn window(family: &Family, thread: usize, at: u64) -> Result<u64, String> {
    let first = at.saturating_sub(WINDOW) + 1;
    let mut expected = first..=at;
    let mut keys = 0;
    for item in family.prefix(format!("{thread}:").as_bytes()).map_err(|e| e.to_string())? {
        let (k, v) = item.map_err(|e| e.to_string())?;
        let n = expected.next().ok_or_else(|| format!("thread {thread}: more keys than commits"))?;
        if *k != *key(thread, n) {
            return Err(format!("thread {thread}: hole at commit {n} of {at}"));
        }
        if *v != *value(thread, n) {
            return Err(format!("thread {thread}: commit {n} has a wrong value"));
        }
        keys += 1;
    }
    match expected.next() {
        Some(n) => Err(format!("thread {thread}: commits {n} to {at} are missing")),
        None => Ok(keys),
    }
}

fn listen(pipe: &mut impl Read, ready: &AtomicU64) -> Heard {
    let mut heard = Heard { acked: [0; THREADS], messages: 0, ready: false };
    let mut message = [0; MESSAGE_BYTES];
    while pipe.read_exact(&mut message).is_ok() {
        let word = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().unwrap_or_default());
        let (thread, n) = (word(0), word(8));
        if thread == READY {
            heard.ready = true;
            ready.store(1, Relaxed);
        } else if let Some(acked) = heard.acked.get_mut(thread as usize) {
            *acked = n;
            heard.messages += 1;
        }
    }
    heard
}
