//! T46: a child process writes a real directory, another one reads it beside the writer, and both are killed at random
//! times. No view of the reader may be wrong.
//!
//! Each thread of the writer counts its commits. Commit `n` of thread `t` puts the row `t:n` and the counter into two
//! families, and removes the row that is `WINDOW` older with a delete or a range delete. Every `BIG_EVERY`-th commit
//! also replaces rows that take more than a log segment. So the counter alone determines the rows of a thread, in both
//! families. Meanwhile families are created, filled and dropped, and rows merged. The counters that one reader has seen
//! are lower bounds for the next one. Some commits write each key twice: the last write wins.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tidesdb::{Db, Error, Family, FamilyOptions, Reader, SyncMode, WriteBatch};
use tidesdb_io::{Clock, Priority, RealClock, RealThreads, Threads};

use crate::process::{self, limit_descriptors};
use crate::rng::Rng;

/// Threads of the writer.
pub const THREADS: usize = 3;
/// Rows of a thread that are kept.
const WINDOW: u64 = 60;
const BIG_EVERY: u64 = 150;
const BIG_ROWS: u64 = 400;
const SECOND: &str = "second";
const EXTRA: &str = "extra";
/// Every so many refreshes all rows are compared; otherwise only the counters.
const FULL_EVERY: u64 = 4;
/// Refreshes for which an older view is kept.
const KEPT: u64 = 12;
/// Descriptor limit of the reader: half of it is for tables and value logs, so many are read through maps.
const DESCRIPTORS: u64 = 64;

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Refreshes of all readers.
    pub refreshes: u64,
    /// Refreshes that showed something new.
    pub changed: u64,
    /// Rows compared.
    pub rows: u64,
    /// Writers killed.
    pub writers_killed: u64,
    /// Writers that closed the database.
    pub writers_closed: u64,
    /// Readers killed.
    pub readers_killed: u64,
    /// Broken promises.
    pub violations: u64,
}

pub(crate) type Done<T = ()> = Result<T, String>;

pub(crate) fn text(e: Error) -> String {
    e.to_string()
}

fn row_key(thread: usize, n: u64) -> Vec<u8> {
    format!("{thread}:{n:010}").into_bytes()
}

fn big_key(thread: usize, i: u64) -> Vec<u8> {
    format!("{thread}:big{i:04}").into_bytes()
}

fn counter_key(thread: usize) -> Vec<u8> {
    format!("counter{thread}").into_bytes()
}

fn row(thread: usize, n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n * THREADS as u64 + thread as u64);
    let len = if rng.one_in(8) { 600 + rng.below(9000) } else { rng.below(200) };
    rng.bytes(len as usize)
}

fn big_row(thread: usize, n: u64, i: u64) -> Vec<u8> {
    Rng::new((n * BIG_ROWS + i) * THREADS as u64 + thread as u64).bytes(400)
}

fn counter(family: &Family, thread: usize) -> Done<u64> {
    let bytes = family.get(counter_key(thread)).map_err(text)?;
    Ok(bytes.and_then(|b| <[u8; 8]>::try_from(&b[..]).ok()).map_or(0, u64::from_le_bytes))
}

/// Writes until the process is killed. Every fifth writer closes the database after a moment instead.
///
/// # Errors
/// Returns an unexpected error.
pub fn write(path: &Path, n: u64) -> Done {
    let mode =
        [SyncMode::None, SyncMode::Interval(Duration::from_millis(20)), SyncMode::Full][(n % 3) as usize];
    let family = FamilyOptions::default().vlog_file_bytes(64 << 10);
    let family = family.write_buffer_bytes(96 << 10);
    let options = Db::options(path).sync(mode).background_threads(2).default_family(family.clone());
    let options = options.with(|o| {
        o.wal_segment_bytes = 128 << 10;
        o.disk_free_min = 0;
        o.forced.saves_behind = n.is_multiple_of(2);
    });
    let db = options.open().map_err(text)?;
    let second = db.family_or_create(SECOND, family).map_err(text)?;
    println!("ready");
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, second, end) = (&db, &second, &end);
        let mut threads: Vec<_> =
            (0..THREADS).map(|t| scope.spawn(move || commit_rows(db, second, t, end))).collect();
        threads.push(scope.spawn(move || change_families(db, end)));
        if n.is_multiple_of(5) {
            RealClock::new().sleep(Duration::from_millis(400));
            end.store(true, Relaxed);
        }
        let results =
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        results.collect::<Done<Vec<()>>>().map(drop)
    })?;
    drop(second);
    db.close().map_err(text)
}

fn commit_rows(db: &Db, second: &Family, thread: usize, end: &AtomicBool) -> Done {
    let mut n = counter(second, thread)?;
    let mut batch = WriteBatch::new();
    while !end.load(Relaxed) {
        n += 1;
        for family in [db.default_family(), second] {
            if n.is_multiple_of(3) {
                batch.put(family, row_key(thread, n), b"first").map_err(text)?;
                batch.put(family, counter_key(thread), 0u64.to_le_bytes()).map_err(text)?;
                let old = row_key(thread, n.saturating_sub(WINDOW));
                batch.put(family, &old, b"deleted by the same commit").map_err(text)?;
                batch.delete(family, &old).map_err(text)?;
            }
            batch.put(family, row_key(thread, n), row(thread, n)).map_err(text)?;
            batch.put(family, counter_key(thread), n.to_le_bytes()).map_err(text)?;
            if n > WINDOW {
                let (old, next) = (row_key(thread, n - WINDOW), row_key(thread, n - WINDOW + 1));
                match n.is_multiple_of(8) {
                    true => batch.delete_range(family, old..next).map_err(text)?,
                    false => batch.delete(family, old).map_err(text)?,
                };
            }
            for i in (0..BIG_ROWS).filter(|_| n.is_multiple_of(BIG_EVERY)) {
                batch.put(family, big_key(thread, i), big_row(thread, n, i)).map_err(text)?;
            }
        }
        db.write(&mut batch).map_err(|e| format!("commit: {e}"))?;
    }
    Ok(())
}

/// Creates, fills, renames and drops a family; merges now and then. An earlier writer may have left the family.
fn change_families(db: &Db, end: &AtomicBool) -> Done {
    let mut n = 0u64;
    while !end.load(Relaxed) {
        n += 1;
        for name in [EXTRA, "renamed"] {
            match db.drop_family(name) {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(e) => return Err(format!("drop: {e}")),
            }
        }
        let family = db.create_family(EXTRA, FamilyOptions::default()).map_err(text)?;
        for i in 0..20 {
            family.put(row_key(0, i), row(0, i)).map_err(text)?;
        }
        db.rename_family(EXTRA, "renamed").map_err(text)?;
        if n.is_multiple_of(4) {
            db.compact().map_err(|e| format!("compact: {e}"))?;
        }
    }
    Ok(())
}

/// One view and what it must show for ever.
struct Seen {
    view: Db,
    counters: [u64; THREADS],
}

impl Seen {
    fn of(view: Db) -> Done<Self> {
        let second = view.family(SECOND).map_err(text)?;
        let mut counters = [0; THREADS];
        for (thread, n) in counters.iter_mut().enumerate() {
            *n = counter(view.default_family(), thread)?;
            let other = counter(&second, thread)?;
            if *n != other {
                return Err(format!("thread {thread}: one family is at {n}, the other one at {other}"));
            }
        }
        Ok(Self { view, counters })
    }

    /// Compares all rows.
    fn check(&self) -> Done<u64> {
        let second = self.view.family(SECOND).map_err(text)?;
        let mut rows = 0;
        for family in [self.view.default_family(), &second] {
            for (thread, n) in self.counters.into_iter().enumerate() {
                let place = || format!("family {:?}, thread {thread}, counter {n}", family.name());
                let mut expected: Vec<_> = (n.saturating_sub(WINDOW) + 1..=n)
                    .map(|i| (row_key(thread, i), row(thread, i)))
                    .collect();
                let big = n - n % BIG_EVERY;
                let big_rows = (0..BIG_ROWS).filter(|_| big > 0);
                expected.extend(big_rows.map(|i| (big_key(thread, i), big_row(thread, big, i))));
                let mut found = family.prefix(format!("{thread}:")).map_err(text)?;
                for (key, value) in expected {
                    match found.next().transpose().map_err(|e| format!("{}: {e}", place()))? {
                        Some((k, v)) if k[..] == key[..] && v[..] == value[..] => rows += 1,
                        other => {
                            let other = other.map(|(k, _)| String::from_utf8_lossy(&k).into_owned());
                            let key = String::from_utf8_lossy(&key).into_owned();
                            return Err(format!("{}: {key} is missing or wrong; found {other:?}", place()));
                        }
                    }
                }
                if found.next().is_some() {
                    return Err(format!("{}: a row too many", place()));
                }
            }
        }
        Ok(rows)
    }
}

/// Reads beside the writer until the process is killed. `least` are the counters that an earlier reader has seen.
///
/// # Errors
/// Returns the first broken promise.
pub fn read(path: &Path, seed: u64, least: [u64; THREADS]) -> Done {
    limit_descriptors(DESCRIPTORS)?; // Windows has no limit: all tables stay open there
    let mut rng = Rng::new(seed);
    let reader = Db::options(path).cache_bytes(1 << 20).open_reader().map_err(|e| format!("open: {e}"))?;
    let mut counters = least;
    let mut kept: Option<(u64, Seen)> = None;
    let (mut seq, mut refreshes, mut rows, mut changed) = (0, 0u64, 0, 0u64);
    loop {
        let view = refresh(&reader)?;
        refreshes += 1;
        changed += u64::from(reader.seq() != seq);
        if reader.seq() < seq {
            return Err(format!("a refresh went back from {seq} to {}", reader.seq()));
        }
        seq = reader.seq();
        let seen = Seen::of(view)?;
        if let Some(thread) = (0..THREADS).find(|t| seen.counters[*t] < counters[*t]) {
            let (now, before) = (seen.counters[thread], counters[thread]);
            return Err(format!("thread {thread}: the counter went back from {before} to {now}"));
        }
        counters = seen.counters;
        if refreshes.is_multiple_of(FULL_EVERY) {
            rows += seen.check()?;
        }
        match &kept {
            Some((since, old)) if refreshes - since >= KEPT => {
                rows += old.check().map_err(|e| format!("an older view: {e}"))?;
                kept = None;
            }
            Some(_) => {}
            None => kept = Some((refreshes, seen)),
        }
        let all = counters.map(|n| n.to_string()).join(" ");
        println!("{refreshes} {changed} {rows} {all}");
        std::io::stdout().flush().map_err(|e| e.to_string())?;
        RealClock::new().sleep(Duration::from_millis(rng.below(12)));
    }
}

fn refresh(reader: &Reader) -> Done<Db> {
    loop {
        match reader.refresh() {
            Err(Error::Busy { .. }) => {}
            other => return other.map_err(|e| format!("refresh: {e}")),
        }
    }
}

/// A child and the lines it prints.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Done<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("spawn: {e}"))?;
        let pipe = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let (send, lines) = channel();
        let listen = move || {
            let _ = pipe.lines().map_while(Result::ok).try_for_each(|line| send.send(line)); // until nobody listens
        };
        let started = RealThreads::new().spawn("listener", Priority::Normal, Box::new(listen));
        started.map(drop).map_err(|e| e.to_string())?;
        Ok(Self { child, lines })
    }

    /// Waits until the child prints `line`.
    pub(crate) fn wait_for(&self, line: &str) -> Done {
        let said = self.lines.recv_timeout(Duration::from_secs(60));
        let said = said.map_err(|e| format!("a child does not get ready: {e}"))?;
        if said == line { Ok(()) } else { Err(format!("a child prints {said}")) }
    }

    /// Returns whether the child has ended, and without an error.
    pub(crate) fn ended(&mut self) -> Done<bool> {
        match self.child.try_wait().map_err(|e| e.to_string())? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(format!("a child failed: {status}")),
        }
    }

    pub(crate) fn kill(&mut self) -> Done {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|e| e.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill(); // it may have ended
    }
}

/// The parent, which starts and kills both.
pub struct Parent {
    path: PathBuf,
    rng: Rng,
    clock: RealClock,
    started: u64,
    counters: [u64; THREADS],
    /// Figures so far.
    pub totals: Totals,
}

impl Parent {
    /// Creates a parent of children that are this program with `--write PATH N` and `--read PATH SEED COUNTER...`.
    pub fn new(path: &Path, seed: u64) -> Self {
        let (path, rng, clock) = (path.to_owned(), Rng::new(seed), RealClock::new());
        Self { path, rng, clock, started: seed, counters: [0; THREADS], totals: Totals::default() }
    }

    fn writer(&mut self) -> Done<Running> {
        self.started += 1;
        let path = self.path.display().to_string();
        Running::start(process::itself()?.args(["--write", &path, &self.started.to_string()]))
    }

    fn reader(&mut self) -> Done<Running> {
        let mut args =
            vec!["--read".into(), self.path.display().to_string(), self.rng.next_u64().to_string()];
        args.extend(self.counters.map(|n| n.to_string()));
        Running::start(process::itself()?.args(args))
    }

    /// Runs until `refreshes` of all readers together have shown something new.
    ///
    /// # Errors
    /// Returns the first broken promise.
    pub fn run(&mut self, refreshes: u64) -> Done {
        let mut writer = self.writer()?;
        writer.wait_for("ready")?;
        let mut reader = self.reader()?;
        while self.totals.changed < refreshes {
            self.clock.sleep(Duration::from_millis(20 + self.rng.below(300)));
            if reader.ended()? {
                return Err("the reader ended by itself".into());
            }
            if writer.ended()? {
                self.totals.writers_closed += 1;
                writer = self.writer()?;
            } else if self.rng.one_in(2) {
                writer.kill()?;
                self.totals.writers_killed += 1;
                writer = self.writer()?;
            } else if self.rng.one_in(3) {
                reader.kill()?;
                self.totals.readers_killed += 1;
                self.hear(&reader)?;
                reader = self.reader()?;
            }
        }
        reader.kill()?;
        self.hear(&reader)
    }

    /// Adds the figures of a reader that was killed.
    fn hear(&mut self, reader: &Running) -> Done {
        let Some(last) = reader.lines.iter().last() else { return Ok(()) };
        let numbers: Vec<u64> = last.split(' ').map_while(|n| n.parse().ok()).collect();
        let [refreshes, changed, rows, counters @ ..] = numbers.as_slice() else { return Ok(()) };
        let Ok(counters) = counters.try_into() else { return Ok(()) };
        self.counters = counters;
        self.totals.refreshes += refreshes;
        self.totals.changed += changed;
        self.totals.rows += rows;
        Ok(())
    }
}
