//! TidesDB 10 in C, through its crate. Reads run in a transaction that is reset for each read. A cursor is kept for all
//! seeks of a session until the session is refreshed.
//!
//! This interface always returns keys and values as new vectors.
#![expect(clippy::mem_forget, reason = "the expansion of `self_cell!` forgets a guard on purpose")]

use std::process::ExitCode;
use std::time::Duration;

use self_cell::self_cell;
use tidesdb_bench::engine::{Cause, Config, Ended, Engine, Result, Session, Stats, Transactions};
use tidesdb_bench::measure::now;
use tidesdb_bench::spec::{Durability, Isolation};
use tidesdb_c::{
    ColumnFamily, ColumnFamilyConfig, CompressionAlgorithm, Error, IsolationLevel, Iterator, LogLevel,
    SyncMode, TidesDB, Transaction,
};

fn main() -> ExitCode {
    tidesdb_bench_peers::serve(open)
}

const FAMILY: &str = "default";
/// Values of at least this size are stored separately.
const BLOB: usize = 4096;
/// Background work that takes longer after the writes is a failure.
const SETTLE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(2);
/// Sufficient for reads and writes of one key at a time.
const ISOLATION: IsolationLevel = IsolationLevel::ReadCommitted;

struct Tides {
    db: TidesDB,
    settings: String,
}

fn said(error: Error) -> String {
    error.to_string()
}

fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let spec = &config.spec;
    let sync = match spec.durability {
        Durability::None => SyncMode::None,
        Durability::Os => SyncMode::Interval,
        Durability::Device => SyncMode::Full,
    };
    // The engine creates only the last directory of its path.
    std::fs::create_dir_all(&config.dir).map_err(|e| e.to_string())?;
    let size = |n: u64| usize::try_from(n).map_err(|e| e.to_string());
    let options = tidesdb_c::Config::new(&config.dir)
        .num_flush_threads(1)
        .num_compaction_threads(1)
        .log_level(LogLevel::None)
        .block_cache_size(size(spec.cache)?)
        .memtable_write_buffer_size(size(spec.memtable)?)
        .memtable_l0_queue_stall_threshold(4)
        .memtable_sync_mode(sync)
        .value_separation_threshold(BLOB);
    let db = TidesDB::open(options).map_err(said)?;
    if db.get_column_family(FAMILY).is_err() {
        let family = ColumnFamilyConfig::new()
            .btree_klog_block_size(4096)
            .compression_algorithm(CompressionAlgorithm::Lz4)
            .enable_bloom_filter(true)
            .bloom_fpr(0.0082)
            .default_isolation_level(ISOLATION);
        db.create_column_family(FAMILY, family).map_err(said)?;
    }
    let settings = format!(
        "TidesDB (C) {}: sync {sync:?}, cache {} B, memtable {} B (4 at most), 4 KiB blocks, LZ4, filter 10 bits/key, values separated \
         from {BLOB} B, 1 flush and 1 compaction thread, read committed, a transaction reset for each read; transactions reset for \
         each of them, at its levels of the same names",
        tidesdb_c::TIDESDB_LINKED_VERSION,
        spec.cache,
        spec.memtable,
    );
    Ok(Box::new(Tides { db, settings }))
}

impl Engine for Tides {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let family = self.db.get_column_family(FAMILY).map_err(said)?;
        Ok(Box::new(TidesSession {
            db: &self.db,
            family,
            write: Reused::new(&self.db),
            read: Reused::new(&self.db),
            transaction: Reused::new(&self.db),
            cursor: None,
        }))
    }

    fn sync(&self) -> Result<()> {
        self.db.sync_wal().map_err(said)
    }

    fn settle(&self) -> Result<()> {
        let start = now();
        let family = self.db.get_column_family(FAMILY).map_err(said)?;
        self.db.flush_memtable().map_err(said)?;
        let mut quiet = 0;
        while quiet < 5 {
            let stats = self.db.get_db_stats().map_err(said)?;
            let busy = self.db.is_flushing()
                || family.is_compacting()
                || stats.immutable_memtable_count > 0
                || stats.compaction_pending_count > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            if start.elapsed() > SETTLE {
                return Err(format!("background work did not finish within {SETTLE:?}"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }

    fn stats(&self) -> Stats {
        let cache = self.db.get_cache_stats().map(|c| (c.hits, c.misses)).unwrap_or_default();
        let causes = self.causes();
        Stats {
            stalls: causes.iter().map(|c| c.count).sum(),
            stalled: causes.iter().map(|c| c.seconds).sum(),
            cache_hits: cache.0,
            cache_misses: cache.1,
            ..Stats::default()
        }
    }

    fn causes(&self) -> Vec<Cause> {
        let Ok(stats) = self.db.get_stall_stats() else { return Vec::new() };
        let told = stats.iter().filter(|(_, stat)| stat.count > 0);
        told.map(|(cause, stat)| Cause {
            cause: cause.to_owned(),
            count: stat.count,
            seconds: stat.total_us as f64 / 1e6,
        })
        .collect()
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

/// A transaction that is reused.
struct Reused<'a> {
    db: &'a TidesDB,
    transaction: Option<Transaction<'a>>,
    level: IsolationLevel,
    /// True between begin and commit or rollback.
    active: bool,
}

impl<'a> Reused<'a> {
    fn new(db: &'a TidesDB) -> Self {
        Self { db, transaction: None, level: ISOLATION, active: false }
    }

    /// Returns the transaction, starting it if necessary.
    fn begun(&mut self) -> Result<&mut Transaction<'a>> {
        let transaction = match &mut self.transaction {
            Some(transaction) => {
                if !self.active {
                    transaction.reset(self.level).map_err(said)?;
                }
                transaction
            }
            empty => empty.insert(self.db.begin_transaction_with_isolation(self.level).map_err(said)?),
        };
        self.active = true;
        Ok(transaction)
    }

    fn commit(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.active) {
            return Ok(());
        }
        self.transaction.as_mut().map_or(Ok(()), |t| t.commit().map_err(said))
    }
}

self_cell!(
    /// A cursor, and the transaction it reads in.
    struct Kept<'db> {
        owner: Transaction<'db>,
        #[not_covariant]
        dependent: Iterator,
    }
);

struct TidesSession<'a> {
    db: &'a TidesDB,
    family: ColumnFamily<'a>,
    write: Reused<'a>,
    read: Reused<'a>,
    /// For workloads with transactions.
    transaction: Reused<'a>,
    cursor: Option<Kept<'a>>,
}

impl<'a> TidesSession<'a> {
    fn fresh(&self) -> Result<Kept<'a>> {
        let transaction = self.db.begin_transaction_with_isolation(ISOLATION).map_err(said)?;
        Kept::try_new(transaction, |t| t.new_iterator(&self.family)).map_err(said)
    }

    fn cursor(&mut self) -> Result<&mut Kept<'a>> {
        if self.cursor.is_none() {
            self.cursor = Some(self.fresh()?);
        }
        self.cursor.as_mut().ok_or_else(|| "no cursor".to_owned())
    }
}

/// Converts the result of a cursor move. This engine may report a move past the last row as an error; then the cursor
/// is at no row.
fn moved(result: std::result::Result<(), Error>) -> Result<()> {
    match result {
        Err(error) if !error.is_not_found() => Err(said(error)),
        _ => Ok(()),
    }
}

fn rows(cursor: &mut Iterator<'_>, limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
    let mut n = 0;
    while n < limit && cursor.is_valid() {
        let (key, value) = cursor.key_value().map_err(said)?;
        row(&key, &value);
        n += 1;
        if n < limit {
            moved(cursor.next())?;
        }
    }
    Ok(n)
}

impl Session for TidesSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write.begun()?.put(&self.family, key, value).map_err(said)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write.begun()?.delete(&self.family, key).map_err(said)
    }

    fn commit(&mut self) -> Result<()> {
        self.write.commit()
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.read.begun()?.get(&self.family, key);
        // Ends the transaction, so that the next read sees all commits up to then.
        self.read.commit()?;
        match found {
            Ok(found) => {
                value(&found);
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(said(error)),
        }
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.cursor()?.with_dependent_mut(|_, cursor| {
            moved(cursor.seek(key))?;
            if cursor.is_valid() {
                found(&cursor.key().map_err(said)?);
            }
            Ok(cursor.is_valid())
        })
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.cursor()?.with_dependent_mut(|_, cursor| {
            moved(cursor.seek(key))?;
            rows(cursor, limit, row)
        })
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.fresh()?.with_dependent_mut(|_, cursor| {
            moved(cursor.seek_to_first())?;
            rows(cursor, u64::MAX, row)
        })
    }

    fn refresh(&mut self) -> Result<()> {
        self.cursor = None;
        Ok(())
    }

    fn transactions(&mut self) -> Option<&mut dyn Transactions> {
        Some(self)
    }
}

/// Maps a level to this engine's level of the same name.
fn level_of(level: Isolation) -> IsolationLevel {
    match level {
        Isolation::ReadUncommitted => IsolationLevel::ReadUncommitted,
        Isolation::ReadCommitted => IsolationLevel::ReadCommitted,
        Isolation::RepeatableRead => IsolationLevel::RepeatableRead,
        Isolation::Snapshot => IsolationLevel::Snapshot,
        Isolation::Serializable => IsolationLevel::Serializable,
    }
}

impl Transactions for TidesSession<'_> {
    fn begin(&mut self, level: Isolation) -> Result<()> {
        self.transaction.level = level_of(level);
        self.transaction.begun().map(drop)
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.transaction.begun()?.get(&self.family, key) {
            Ok(found) => {
                value(&found);
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(said(error)),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.transaction.begun()?.put(&self.family, key, value).map_err(said)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.transaction.begun()?.delete(&self.family, key).map_err(said)
    }

    fn commit(&mut self) -> Result<Ended> {
        let done = self.transaction.begun()?.commit();
        self.transaction.active = false;
        match done {
            Ok(()) => Ok(Ended::Committed),
            Err(error) if error.is_conflict() || error.is_locked() => Ok(Ended::Conflict),
            Err(error) => Err(said(error)),
        }
    }

    fn rollback(&mut self) -> Result<()> {
        let done = self.transaction.begun()?.rollback();
        self.transaction.active = false;
        done.map_err(said)
    }
}
