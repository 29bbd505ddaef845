//! Adapter for this engine. `tidesdb:runs=N` has up to `N` sorted runs in its tiered level instead of the default.
//!
//! A batch of one operation is a plain put or delete. The session keeps its cursor over all seeks; `refresh` moves it
//! to the newest commit. In every sync mode the engine hands a commit to the system before it returns, so the class
//! `none` runs as `os`.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::tidesdb::{Cursor, Db, Error, Family, FamilyOptions, SortedWriter, SyncMode, Transaction, WriteBatch};

use crate::engine::{Cause, Config, Ended, Engine, Result, Session, Stats, Transactions, Wait};
use crate::measure::now;
use crate::rivals;
use crate::spec::{Durability, Isolation};

/// Background work that takes longer than this after the writes is a failure.
const SETTLE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(2);
/// Interval at which the families of a row are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Segments of the log are multiples of this size.
const PAGE: u64 = 4096;

struct Tides {
    db: Arc<Db>,
    /// Families of a `Families` row.
    families: Vec<Family>,
    lookout: Option<Lookout>,
    settings: String,
    way: Way,
    /// If set, commits that are refused with `Busy` are retried.
    retries: bool,
}

/// How puts reach the database.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Each by itself.
    Direct,
    /// In batches.
    Batches,
    /// In sorted tables.
    Tables,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let spec = &config.spec;
    let sync = if spec.durability == Durability::Device { SyncMode::Full } else { SyncMode::None };
    let memtable = usize::try_from(spec.memtable).map_err(|e| e.to_string())?;
    // In the proportion of the defaults, so that a small tree has the shape of a large one.
    let segment = (spec.memtable / 2).clamp(1 << 20, 32 << 20).next_multiple_of(PAGE);
    let (table, values) = (2 * spec.memtable, 4 * spec.memtable);
    let mut family =
        FamilyOptions::default().write_buffer_bytes(memtable).table_bytes(table).vlog_file_bytes(values);
    if let (_, Some(argument)) = rivals::split(&config.engine) {
        let runs = argument.strip_prefix("runs=").and_then(|n| n.parse().ok());
        family.tiered_runs_max =
            runs.ok_or_else(|| format!("expected tidesdb:runs=N, not tidesdb:{argument}"))?;
    }
    // Where memory is limited, one immutable memtable: as much as RocksDB is seen to hold.
    let waiting = match spec.families.len() as u64 {
        0 if spec.memory > 0 => spec.memtable,
        0 => spec.memtable * 5 / 2,
        n => spec.memtable * n * 5 / 2,
    };
    let settings = format!(
        "tidesdb {}: sync {sync:?}, cache {} B, memtable {memtable} B, memtables at most {waiting} B, tables {table} B, files of values {values} B, log segments {segment} B, \
         compression {:?}, filter {} \
         bits/key, values in the log from {} B, {} runs in the tiered level, other settings at their defaults",
        env!("CARGO_PKG_VERSION"),
        spec.cache,
        family.compression,
        family.filter_bits_per_key,
        family.value_threshold,
        family.tiered_runs_max,
    );
    let db = Db::options(&config.dir)
        .sync(sync)
        .cache_bytes(spec.cache)
        .with(|o| (o.memtables_bytes_max, o.wal_segment_bytes) = (waiting, segment))
        .default_family(family.clone())
        .open()
        .map_err(said)?;
    let create = |n: usize| db.family_or_create(&format!("family{n}"), family.clone()).map_err(said);
    let families = (0..spec.families.len()).map(create).collect::<Result<Vec<_>>>()?;
    let db = Arc::new(db);
    let lookout = if families.is_empty() { None } else { Some(Lookout::start(&db, families.len())?) };
    let way = match spec.batch {
        _ if spec.bulk => Way::Tables,
        1 => Way::Direct,
        _ => Way::Batches,
    };
    Ok(Box::new(Tides { db, families, lookout, settings, way, retries: spec.watched }))
}

fn said(error: ::tidesdb::Error) -> String {
    error.to_string()
}

impl Engine for Tides {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self.session_in(self.db.default_family())))
    }

    fn session_of(&self, family: usize) -> Result<Box<dyn Session + '_>> {
        let family = self.families.get(family).ok_or("the row has no such family")?;
        Ok(Box::new(self.session_in(family)))
    }

    fn sync(&self) -> Result<()> {
        self.db.sync().map(drop).map_err(said)
    }

    fn settle(&self) -> Result<()> {
        let start = now();
        self.db.flush().map_err(said)?;
        while self.db.stats().jobs_pending > 0 {
            if start.elapsed() > SETTLE {
                return Err(format!("background work did not finish within {SETTLE:?}"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { db, families, lookout, .. } = *self;
        if let Some(lookout) = lookout {
            lookout.end();
        }
        drop(families);
        let db = Arc::into_inner(db).ok_or("the database is still in use")?;
        db.close().map_err(said)
    }

    fn waits(&self) -> Vec<Wait> {
        self.lookout.as_ref().map_or_else(Vec::new, Lookout::waits)
    }

    fn stats(&self) -> Stats {
        let stats = self.db.stats();
        Stats {
            stalls: stats.stalls(),
            stalled: stats.stall_time().as_secs_f64(),
            cache_hits: stats.cache_hits,
            cache_misses: stats.cache_misses,
            tables_written: stats.families.iter().map(|f| f.flush_bytes + f.compaction_written).sum(),
            busy: stats.stalls_by_cause().iter().map(|(_, stall)| stall.gave_up).sum(),
        }
    }

    fn causes(&self) -> Vec<Cause> {
        let stats = self.db.stats();
        stats
            .stalls_by_cause()
            .into_iter()
            .filter(|(_, held)| held.slowed + held.stopped > 0)
            .map(|(cause, held)| Cause {
                cause: cause.name().to_owned(),
                count: held.slowed + held.stopped,
                seconds: held.time.as_secs_f64(),
            })
            .collect()
    }

    fn debt(&self) -> u64 {
        let stats = self.db.stats();
        stats.flush_debt_bytes + stats.merge_debt_bytes
    }

    fn levels(&self) -> Vec<u64> {
        let levels = self.db.stats().families.into_iter().map(|family| family.level_bytes);
        levels.max_by_key(|levels| levels.iter().sum::<u64>()).unwrap_or_default()
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

impl Tides {
    fn session_in<'a>(&'a self, family: &'a Family) -> TidesSession<'a> {
        let (db, way, retries) = (&*self.db, self.way, self.retries);
        let transactions = TidesTransactions { db, family, open: None };
        let (batch, tables) = (WriteBatch::new(), None);
        TidesSession { db, family, batch, tables, cursor: None, way, retries, transactions }
    }
}

/// Thread that measures how long due merges of each family wait: it looks at the statistics again and again.
struct Lookout {
    state: Arc<Mutex<Vec<Looked>>>,
    thread: JoinHandle<()>,
}

/// What is known of one family.
#[derive(Clone, Copy, Default)]
struct Looked {
    /// When a merge became due, if none runs.
    due: Option<Instant>,
    wait: Wait,
}

impl Looked {
    fn look(&mut self, waits: bool) {
        match (self.due, waits) {
            (None, true) => self.due = Some(now()),
            (Some(since), false) => {
                let seconds = since.elapsed().as_secs_f64();
                self.wait.count += 1;
                self.wait.seconds += seconds;
                self.wait.longest = self.wait.longest.max(seconds);
                self.due = None;
            }
            _ => {}
        }
    }
}

impl Lookout {
    fn start(db: &Arc<Db>, families: usize) -> Result<Self> {
        let state = Arc::new(Mutex::new(vec![Looked::default(); families]));
        let (seen, db) = (state.clone(), Arc::downgrade(db));
        let work = move || {
            while let (Some(db), true) = (db.upgrade(), Arc::strong_count(&seen) > 1) {
                let stats = db.stats();
                drop(db);
                for (n, looked) in seen.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().enumerate()
                {
                    let name = format!("family{n}");
                    let debt = stats.trees.iter().any(|tree| tree.family == name && tree.debt_bytes > 0);
                    let idle = stats.families.iter().any(|family| family.name == name && !family.compacting);
                    looked.look(debt && idle);
                }
                std::thread::sleep(LOOK);
            }
        };
        let thread = std::thread::Builder::new().spawn(work).map_err(|e| format!("no thread: {e}"))?;
        Ok(Self { state, thread })
    }

    fn waits(&self) -> Vec<Wait> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.iter().map(|looked| looked.wait).collect()
    }

    /// Ends the thread, so that it does not use the database any more.
    fn end(self) {
        drop(self.state);
        // A panic has been reported by the thread.
        let _ = self.thread.join();
    }
}

struct TidesSession<'a> {
    db: &'a Db,
    family: &'a Family,
    batch: WriteBatch,
    /// The open batch of rows that go to tables.
    tables: Option<SortedWriter>,
    cursor: Option<Cursor>,
    way: Way,
    retries: bool,
    transactions: TidesTransactions<'a>,
}

impl TidesSession<'_> {
    fn cursor(&mut self) -> Result<&mut Cursor> {
        match &mut self.cursor {
            Some(cursor) => Ok(cursor),
            empty => Ok(empty.insert(self.family.cursor().map_err(said)?)),
        }
    }

    fn tables(&mut self) -> Result<&mut SortedWriter> {
        match &mut self.tables {
            Some(tables) => Ok(tables),
            empty => Ok(empty.insert(self.family.sorted_writer().map_err(said)?)),
        }
    }

    /// Repeats an operation that is refused with `Busy`, in rows that retry.
    fn until_taken(&self, operation: impl Fn() -> ::tidesdb::Result<()>) -> Result<()> {
        loop {
            match operation() {
                Err(Error::Busy { .. }) if self.retries => {}
                done => return done.map_err(said),
            }
        }
    }
}

impl Session for TidesSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.way {
            Way::Direct => self.until_taken(|| self.family.put(key, value).map(drop)),
            Way::Batches => self.batch.put(self.family, key, value).map_err(said),
            Way::Tables => self.tables()?.rows().put(key, value).map_err(said),
        }
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        match self.way {
            Way::Direct => self.until_taken(|| self.family.delete(key).map(drop)),
            Way::Batches => self.batch.delete(self.family, key).map_err(said),
            Way::Tables => self.tables()?.rows().delete(key).map_err(said),
        }
    }

    fn commit(&mut self) -> Result<()> {
        if self.way == Way::Direct {
            return Ok(());
        }
        if let Some(tables) = self.tables.take() {
            return tables.commit().map(drop).map_err(said);
        }
        loop {
            match self.db.write(&mut self.batch) {
                // Nothing was written, and the batch is kept.
                Err(Error::Busy { .. }) if self.retries => {}
                done => return done.map(drop).map_err(said),
            }
        }
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.family.get_map(key, value).map_err(said)?.is_some())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], value: &mut dyn FnMut(usize, &[u8])) -> Result<u64> {
        let answers = self.family.multi_get(keys).map_err(said)?;
        let found = answers.iter().enumerate().filter_map(|(place, answer)| Some((place, answer.as_ref()?)));
        Ok(found.map(|(place, answer)| value(place, answer)).count() as u64)
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let cursor = self.cursor()?;
        cursor.seek(key).map_err(said)?;
        if cursor.valid() {
            found(cursor.key());
        }
        Ok(cursor.valid())
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let cursor = self.cursor()?;
        cursor.seek(key).map_err(said)?;
        rows(cursor, limit, row)
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = self.family.cursor().map_err(said)?;
        cursor.seek_to_first().map_err(said)?;
        rows(&mut cursor, u64::MAX, row)
    }

    fn refresh(&mut self) -> Result<()> {
        match &mut self.cursor {
            Some(cursor) => cursor.refresh().map_err(said),
            None => Ok(()),
        }
    }

    fn transactions(&mut self) -> Option<&mut dyn Transactions> {
        Some(&mut self.transactions)
    }
}

/// Reuses one transaction object.
struct TidesTransactions<'a> {
    db: &'a Db,
    family: &'a Family,
    open: Option<Transaction>,
}

impl TidesTransactions<'_> {
    fn open(&mut self) -> Result<&mut Transaction> {
        self.open.as_mut().ok_or_else(|| "no transaction has begun".to_owned())
    }
}

fn level_of(level: Isolation) -> ::tidesdb::Isolation {
    match level {
        Isolation::ReadUncommitted => ::tidesdb::Isolation::ReadUncommitted,
        Isolation::ReadCommitted => ::tidesdb::Isolation::ReadCommitted,
        Isolation::RepeatableRead => ::tidesdb::Isolation::RepeatableRead,
        Isolation::Snapshot => ::tidesdb::Isolation::Snapshot,
        Isolation::Serializable => ::tidesdb::Isolation::Serializable,
    }
}

impl Transactions for TidesTransactions<'_> {
    fn begin(&mut self, level: Isolation) -> Result<()> {
        let level = level_of(level);
        match &mut self.open {
            Some(open) if open.isolation() == level => open.reset(),
            other => *other = Some(self.db.begin(level)),
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let family = self.family;
        let found = self.open()?.get(family, key).map_err(said)?;
        if let Some(found) = &found {
            value(found);
        }
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let family = self.family;
        self.open()?.put(family, key, value).map_err(said)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let family = self.family;
        self.open()?.delete(family, key).map_err(said)
    }

    fn commit(&mut self) -> Result<Ended> {
        match self.open()?.commit() {
            Ok(_) => Ok(Ended::Committed),
            Err(Error::Conflict { .. }) => Ok(Ended::Conflict),
            Err(error) => Err(said(error)),
        }
    }

    fn rollback(&mut self) -> Result<()> {
        self.open()?.rollback();
        Ok(())
    }
}

fn rows(cursor: &mut Cursor, limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
    let mut n = 0;
    while n < limit && cursor.valid() {
        let (key, value) = cursor.entry().map_err(said)?;
        row(key, value);
        n += 1;
        if n < limit {
            cursor.next().map_err(said)?;
        }
    }
    Ok(n)
}
