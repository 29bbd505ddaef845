//! RocksDB, configured as an expert would; `rocksdb:blob` stores large values in blob files, `rocksdb:universal` uses
//! universal compaction.
//!
//! The iterator of a session is kept for all seeks, and refreshed. With the durability class `none` the log stays in
//! process memory until its buffer is full.
//!
//! Workloads with transactions open its optimistic transactional database, all others the plain one.

mod base;
mod tables;
mod transaction;

use std::path::PathBuf;
use std::process::ExitCode;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompactionStyle, DBCompressionType, DBRawIteratorWithThreadMode,
    OptimisticTransactionDB, Options, ReadOptions, WriteOptions,
};
use tidesdb_bench::engine::{Cause, Config, Engine, Result, Session, Stats, Transactions};
use tidesdb_bench::rivals;
use tidesdb_bench::spec::{Durability, Spec};

use base::Base;
use tables::Tables;

fn main() -> ExitCode {
    tidesdb_bench_peers::serve(open)
}

/// What follows the name of the engine and a colon.
#[derive(Clone, Copy, PartialEq)]
enum Variant {
    /// Leveled compaction; all values in tables.
    Plain,
    /// Leveled compaction; large values in blob files.
    Blob,
    /// Universal compaction.
    Universal,
}

impl Variant {
    fn of(engine: &str) -> Self {
        match rivals::split(engine).1 {
            Some("blob") => Self::Blob,
            Some("universal") => Self::Universal,
            _ => Self::Plain,
        }
    }
}

/// Values of at least this size go to blob files, if those are enabled.
const BLOB: u64 = 4096;

struct Rocks<D> {
    db: D,
    /// Where tables are built, and how, in rows whose batches go to tables.
    bulk: Option<(PathBuf, Options)>,
    settings: String,
    batch: u64,
    durability: Durability,
}

fn said(error: rocksdb::Error) -> String {
    error.to_string()
}

fn open(config: &Config) -> Result<Box<dyn Engine>> {
    match config.spec.level() {
        Some(level) => opened::<OptimisticTransactionDB>(config, transaction::words(level)),
        None => opened::<DB>(config, ""),
    }
}

fn opened<D: Base>(config: &Config, transactions: &str) -> Result<Box<dyn Engine>> {
    let spec = &config.spec;
    let variant = Variant::of(&config.engine);
    let db = D::at(&options(spec, variant)?, &config.dir).map_err(said)?;
    let settings = settings(spec, variant) + transactions;
    let bulk = match spec.bulk {
        true => Some((config.dir.clone(), options(spec, variant)?)),
        false => None,
    };
    Ok(Box::new(Rocks { db, bulk, settings, batch: spec.batch, durability: spec.durability }))
}

fn options(spec: &Spec, variant: Variant) -> Result<Options> {
    let size = |n: u64| usize::try_from(n).map_err(|e| e.to_string());
    let cache = Cache::new_hyper_clock_cache(size(spec.cache)?, 0);
    let mut table = BlockBasedOptions::default();
    table.set_block_size(4096);
    table.set_block_cache(&cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(size(spec.memtable)?);
    options.set_max_write_buffer_number(4);
    if variant == Variant::Universal {
        options.set_compaction_style(DBCompactionStyle::Universal);
    }
    // In the proportion of the defaults, so that a small tree has the shape of a large one.
    options.set_max_bytes_for_level_base(4 * spec.memtable);
    options.set_target_file_size_base(spec.memtable);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_enable_pipelined_write(true);
    options.set_recycle_log_file_num(4);
    options.set_bytes_per_sync(1 << 20);
    options.set_max_open_files(-1);
    options.increase_parallelism(2);
    options.set_max_subcompactions(2);
    options.set_manual_wal_flush(spec.durability == Durability::None);
    if variant == Variant::Blob {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(BLOB);
        // In the proportion of the defaults, as for tables.
        options.set_blob_file_size(4 * spec.memtable);
        options.set_blob_compression_type(DBCompressionType::Lz4);
        options.set_enable_blob_gc(true);
        options.set_blob_cache(&cache);
    }
    Ok(options)
}

fn settings(spec: &Spec, variant: Variant) -> String {
    format!(
        "RocksDB 11: log {}, hyper clock cache {} B with index and filters, memtable {} B (4 at most), 4 KiB blocks, LZ4, filter \
         10 bits/key, {}, pipelined writes, 2 jobs, MultiGet {}, blob files {}, checksums {}",
        match spec.durability {
            Durability::None => "in the process",
            Durability::Os => "in the system",
            Durability::Device => "synced",
        },
        spec.cache,
        spec.memtable,
        match variant {
            Variant::Universal => "universal compaction",
            _ => "dynamic levels from 4 memtables on, tables of one memtable",
        },
        if cfg!(feature = "rocksdb-uring") { "through io_uring" } else { "without io_uring" },
        if variant == Variant::Blob { "from 4 KiB" } else { "off" },
        if cfg!(target_feature = "sse4.2") {
            "by the processor"
        } else {
            "in software: build with target-cpu=native"
        },
    )
}

/// Property with the bytes that compactions must still write.
const PENDING: &std::ffi::CStr = c"rocksdb.estimate-pending-compaction-bytes";
/// Property with the size of each level.
const LEVELS: &std::ffi::CStr = c"rocksdb.levelstats";
/// Property with the number of stalls per cause.
const STALLS: &std::ffi::CStr = c"rocksdb.cf-write-stall-stats";

impl<D: Base> Engine for Rocks<D> {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let how = || {
            let mut how = WriteOptions::default();
            how.set_sync(self.durability == Durability::Device);
            how
        };
        let (transactions, how) = (self.db.transactions(how()), how());
        let (batch, direct) = (D::Batch::default(), self.batch == 1);
        let mut read = ReadOptions::default();
        read.set_async_io(true);
        let tables = self.bulk.as_ref().map(|(dir, options)| Tables::new(dir, options));
        Ok(Box::new(RocksSession {
            db: &self.db,
            how,
            read,
            batch,
            tables,
            cursor: None,
            direct,
            transactions,
        }))
    }

    fn sync(&self) -> Result<()> {
        self.db.flush_log(true).map_err(said)
    }

    fn settle(&self) -> Result<()> {
        self.db.settle().map_err(said)
    }

    fn close(self: Box<Self>) -> Result<()> {
        // The memtable stays in the log, which is how this engine always closes.
        let flushed = self.db.flush_log(false).map_err(said);
        self.db.end_background_work();
        drop(self);
        flushed
    }

    fn stats(&self) -> Stats {
        Stats { stalls: self.causes().iter().map(|cause| cause.count).sum(), ..Stats::default() }
    }

    fn causes(&self) -> Vec<Cause> {
        let Ok(Some(text)) = self.db.property(STALLS) else { return Vec::new() };
        let causes = text.lines().filter_map(|line| line.split_once(':'));
        let counted = causes.map(|(cause, count)| (cause.trim(), count.trim().parse().unwrap_or(0)));
        // The totals repeat the causes.
        let told = counted.filter(|(cause, count)| *count > 0 && !cause.contains("total"));
        told.map(|(cause, count)| Cause { cause: cause.to_owned(), count, seconds: 0.0 }).collect()
    }

    fn debt(&self) -> u64 {
        match self.db.property(PENDING) {
            Ok(Some(text)) => text.trim().parse().unwrap_or(0),
            _ => 0,
        }
    }

    fn levels(&self) -> Vec<u64> {
        let Ok(Some(text)) = self.db.property(LEVELS) else { return Vec::new() };
        // Lines of level, number of files, and size in MiB, after two lines of titles.
        let sizes = text.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
        let mut levels: Vec<u64> = sizes.map(|size| size << 20).collect();
        while levels.last() == Some(&0) {
            levels.pop();
        }
        levels
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

struct RocksSession<'a, D: Base> {
    db: &'a D,
    how: WriteOptions,
    read: ReadOptions,
    batch: D::Batch,
    tables: Option<Tables<'a>>,
    cursor: Option<DBRawIteratorWithThreadMode<'a, D>>,
    direct: bool,
    transactions: Option<Box<dyn Transactions + 'a>>,
}

impl<'a, D: Base> RocksSession<'a, D> {
    fn cursor(&mut self) -> &mut DBRawIteratorWithThreadMode<'a, D> {
        let db = self.db;
        self.cursor.get_or_insert_with(|| db.cursor())
    }
}

fn rows<D: Base>(
    cursor: &mut DBRawIteratorWithThreadMode<'_, D>,
    limit: u64,
    row: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<u64> {
    let mut n = 0;
    while let Some((key, value)) = cursor.item() {
        row(key, value);
        n += 1;
        if n == limit {
            return Ok(n);
        }
        cursor.next();
    }
    cursor.status().map(|()| n).map_err(said)
}

impl<D: Base> Session for RocksSession<'_, D> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(tables) = &mut self.tables {
            return tables.put(key, value).map_err(said);
        }
        if self.direct {
            return self.db.put_one(key, value, &self.how).map_err(said);
        }
        D::put(&mut self.batch, key, value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        if self.direct {
            return self.db.delete_one(key, &self.how).map_err(said);
        }
        D::delete(&mut self.batch, key);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if let Some(tables) = &mut self.tables {
            return tables.finish().and_then(|files| self.db.ingest(files)).map_err(said);
        }
        if self.direct || D::is_empty(&self.batch) {
            return Ok(());
        }
        self.db.commit(std::mem::take(&mut self.batch), &self.how).map_err(said)
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.db.value(key).map_err(said)?;
        if let Some(found) = &found {
            value(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], value: &mut dyn FnMut(usize, &[u8])) -> Result<u64> {
        let answers = self.db.values(keys, &self.read).map_err(said)?;
        let found = answers.iter().enumerate().filter_map(|(place, answer)| Some((place, answer.as_ref()?)));
        Ok(found.map(|(place, answer)| value(place, answer)).count() as u64)
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let cursor = self.cursor();
        cursor.seek(key);
        match cursor.key() {
            Some(key) => found(key),
            None => cursor.status().map_err(said)?,
        }
        Ok(cursor.valid())
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let cursor = self.cursor();
        cursor.seek(key);
        rows(cursor, limit, row)
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = self.db.cursor();
        cursor.seek_to_first();
        rows(&mut cursor, u64::MAX, row)
    }

    fn refresh(&mut self) -> Result<()> {
        self.cursor.as_mut().map_or(Ok(()), |cursor| cursor.refresh().map_err(said))
    }

    fn transactions(&mut self) -> Option<&mut dyn Transactions> {
        match &mut self.transactions {
            Some(transactions) => Some(&mut **transactions),
            None => None,
        }
    }
}
