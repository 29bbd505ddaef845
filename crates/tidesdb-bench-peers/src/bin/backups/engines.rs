//! Two engines with the same settings, and their backups.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rocksdb::backup::{BackupEngine, BackupEngineOptions, RestoreOptions};
use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Env, IteratorMode, Options, WriteBatch};
use tidesdb::backup::{Backups, PrunePolicy};
use tidesdb::store::DirectoryStore;
use tidesdb::{Db, FamilyOptions, SyncMode};

use crate::Result;

const CACHE: u64 = 64 << 20;
const MEMTABLE: usize = 64 << 20;
/// Bytes of a batch.
const BATCH: usize = 256 << 10;

/// Opens databases and stores of backups.
pub(crate) type Open = fn(&Path) -> Result<Box<dyn Database>>;

/// An engine.
#[derive(Clone, Copy)]
pub(crate) struct Engine {
    /// Opens a database.
    pub(crate) open: Open,
    /// Opens a store of backups in a folder.
    pub(crate) store: fn(&Path) -> Result<Box<dyn Store>>,
}

pub(crate) type Row = Result<(Vec<u8>, Vec<u8>)>;

/// An open database.
pub(crate) trait Database: Send + Sync {
    /// Puts a row, in a batch or at once.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Commits the batch.
    fn commit(&mut self) -> Result<()>;
    /// Commits one row.
    fn put_now(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Flushes, and waits until merges have ended.
    fn settle(&self) -> Result<()>;
    fn rows(&self) -> Result<Box<dyn Iterator<Item = Row> + '_>>;
    /// Makes a generation.
    fn back_up(&self, store: &mut dyn Store) -> Result<()>;
    fn close(self: Box<Self>) -> Result<()>;
}

/// Generations of backups.
pub(crate) trait Store: Send {
    fn of_tidesdb(&mut self) -> Option<&Backups> {
        None
    }
    fn of_rocksdb(&mut self) -> Option<&mut BackupEngine> {
        None
    }
    /// Numbers of the generations.
    fn list(&self) -> Result<Vec<u64>>;
    /// Checks a generation as far as the engine does.
    fn verify(&self, number: u64) -> Result<()>;
    fn restore(&mut self, number: u64, dir: &Path) -> Result<()>;
    fn keep_last(&mut self, count: usize) -> Result<()>;
}

/// Returns the engine with this name.
pub(crate) fn of(name: &str) -> Result<Engine> {
    match name {
        "tidesdb" => Ok(Engine { open: open_tides, store: store_of_tides }),
        "rocksdb" => Ok(Engine { open: open_rocks, store: store_of_rocks }),
        _ => Err(format!("there is no engine {name:?}").into()),
    }
}

struct Tides {
    db: Db,
    batch: tidesdb::WriteBatch,
}

fn open_tides(dir: &Path) -> Result<Box<dyn Database>> {
    let family = FamilyOptions::default().write_buffer_bytes(MEMTABLE);
    let db = Db::options(dir).sync(SyncMode::None).cache_bytes(CACHE).default_family(family).open()?;
    Ok(Box::new(Tides { db, batch: tidesdb::WriteBatch::new() }))
}

impl Database for Tides {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(self.db.default_family(), key, value)?;
        if self.batch.bytes() < BATCH { Ok(()) } else { self.commit() }
    }

    fn commit(&mut self) -> Result<()> {
        self.db.write(&mut self.batch)?;
        Ok(())
    }

    fn put_now(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put(key, value)?;
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        while self.db.stats().jobs_pending > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn rows(&self) -> Result<Box<dyn Iterator<Item = Row> + '_>> {
        let rows = self.db.default_family().iter()?;
        Ok(Box::new(
            rows.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).map_err(Into::into)),
        ))
    }

    fn back_up(&self, store: &mut dyn Store) -> Result<()> {
        store.of_tidesdb().ok_or("another engine's store")?.create(&self.db)?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

fn store_of_tides(dir: &Path) -> Result<Box<dyn Store>> {
    Ok(Box::new(Backups::new(Arc::new(DirectoryStore::open(dir)?))))
}

impl Store for Backups {
    fn of_tidesdb(&mut self) -> Option<&Backups> {
        Some(self)
    }

    fn list(&self) -> Result<Vec<u64>> {
        Ok(Self::list(self)?.iter().map(|generation| generation.number).collect())
    }

    fn verify(&self, number: u64) -> Result<()> {
        match Self::verify(self, number)?.damage.into_iter().next() {
            Some(damage) => Err(damage.into()),
            None => Ok(()),
        }
    }

    fn restore(&mut self, number: u64, dir: &Path) -> Result<()> {
        Ok(Self::restore(self, number, dir)?)
    }

    fn keep_last(&mut self, count: usize) -> Result<()> {
        self.prune(&PrunePolicy::default().keep_last(count as u64))?;
        Ok(())
    }
}

struct Rocks {
    db: DB,
    /// In a lock because it cannot be shared.
    batch: Mutex<WriteBatch>,
}

impl Rocks {
    fn batch(&mut self) -> &mut WriteBatch {
        self.batch.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_rocks(dir: &Path) -> Result<Box<dyn Database>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(CACHE as usize));
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(MEMTABLE);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.increase_parallelism(2);
    Ok(Box::new(Rocks { db: DB::open(&options, dir)?, batch: Mutex::default() }))
}

impl Database for Rocks {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch().put(key, value);
        if self.batch().size_in_bytes() < BATCH { Ok(()) } else { self.commit() }
    }

    fn commit(&mut self) -> Result<()> {
        let batch = std::mem::take(self.batch());
        Ok(self.db.write(batch)?)
    }

    fn put_now(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.wait_for_compact(&rocksdb::WaitForCompactOptions::default())?)
    }

    fn rows(&self) -> Result<Box<dyn Iterator<Item = Row> + '_>> {
        let rows = self.db.iterator(IteratorMode::Start);
        Ok(Box::new(rows.map(|row| row.map(|(key, value)| (key.into(), value.into())).map_err(Into::into))))
    }

    fn back_up(&self, store: &mut dyn Store) -> Result<()> {
        let engine = store.of_rocksdb().ok_or("another engine's store")?;
        Ok(engine.create_new_backup_flush(&self.db, true)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct RocksStore(BackupEngine);

fn store_of_rocks(dir: &Path) -> Result<Box<dyn Store>> {
    let mut options = BackupEngineOptions::new(dir)?;
    options.set_sync(true);
    Ok(Box::new(RocksStore(BackupEngine::open(&options, &Env::new()?)?)))
}

impl Store for RocksStore {
    fn of_rocksdb(&mut self) -> Option<&mut BackupEngine> {
        Some(&mut self.0)
    }

    fn list(&self) -> Result<Vec<u64>> {
        Ok(self.0.get_backup_info().iter().map(|info| info.backup_id.into()).collect())
    }

    fn verify(&self, number: u64) -> Result<()> {
        Ok(self.0.verify_backup(u32::try_from(number)?)?)
    }

    fn restore(&mut self, number: u64, dir: &Path) -> Result<()> {
        Ok(self.0.restore_from_backup(dir, dir, &RestoreOptions::default(), u32::try_from(number)?)?)
    }

    fn keep_last(&mut self, count: usize) -> Result<()> {
        Ok(self.0.purge_old_backups(count)?)
    }
}
