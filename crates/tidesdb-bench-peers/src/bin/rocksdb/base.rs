//! The interface that the plain and the transactional database share. The `rocksdb` crate has the same methods for
//! both, but no trait.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use rocksdb::{
    ColumnFamilyDescriptor, DB, DBAccess, DBPinnableSlice, DBRawIteratorWithThreadMode, Error, FlushOptions,
    IngestExternalFileOptions, OptimisticTransactionDB, Options, ReadOptions, WaitForCompactOptions,
    WriteBatchWithTransaction, WriteOptions,
};
use tidesdb_bench::engine::Transactions;

use crate::transaction::RocksTransactions;

type Result<T> = std::result::Result<T, Error>;

/// The column family that always exists.
const DEFAULT: &str = "default";

/// A RocksDB database, plain or transactional.
pub(crate) trait Base: DBAccess + Send + Sync + Sized + 'static {
    /// Operations that are committed together.
    type Batch: Default;

    fn at(options: &Options, dir: &Path) -> Result<Self>;
    fn put(batch: &mut Self::Batch, key: &[u8], value: &[u8]);
    fn delete(batch: &mut Self::Batch, key: &[u8]);
    fn is_empty(batch: &Self::Batch) -> bool;
    fn commit(&self, batch: Self::Batch, how: &WriteOptions) -> Result<()>;
    fn put_one(&self, key: &[u8], value: &[u8], how: &WriteOptions) -> Result<()>;
    fn delete_one(&self, key: &[u8], how: &WriteOptions) -> Result<()>;
    fn value(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>>;
    /// Returns the values of `keys` with one call that reads blocks in parallel.
    fn values(&self, keys: &[Vec<u8>], how: &ReadOptions) -> Result<Vec<Option<DBPinnableSlice<'_>>>>;
    fn cursor(&self) -> DBRawIteratorWithThreadMode<'_, Self>;
    /// Takes sorted tables, whose files are moved.
    fn ingest(&self, files: Vec<PathBuf>) -> Result<()>;
    fn flush_log(&self, sync: bool) -> Result<()>;
    /// Flushes memtables and waits for background work to finish.
    fn settle(&self) -> Result<()>;
    fn end_background_work(&self);
    fn property(&self, name: &CStr) -> Result<Option<String>>;
    /// Returns the transactions of a session, if the database supports them.
    fn transactions<'a>(&'a self, how: WriteOptions) -> Option<Box<dyn Transactions + 'a>>;
}

macro_rules! base {
    ($db:ty, $in_transactions:literal, $transactions:expr) => {
        impl Base for $db {
            type Batch = WriteBatchWithTransaction<$in_transactions>;

            fn at(options: &Options, dir: &Path) -> Result<Self> {
                // Opened by name, because the batched get needs a handle.
                let default = ColumnFamilyDescriptor::new(DEFAULT, options.clone());
                Self::open_cf_descriptors(options, dir, [default])
            }

            fn put(batch: &mut Self::Batch, key: &[u8], value: &[u8]) {
                batch.put(key, value);
            }

            fn delete(batch: &mut Self::Batch, key: &[u8]) {
                batch.delete(key);
            }

            fn is_empty(batch: &Self::Batch) -> bool {
                batch.is_empty()
            }

            fn commit(&self, batch: Self::Batch, how: &WriteOptions) -> Result<()> {
                self.write_opt(batch, how)
            }

            fn put_one(&self, key: &[u8], value: &[u8], how: &WriteOptions) -> Result<()> {
                self.put_opt(key, value, how)
            }

            fn delete_one(&self, key: &[u8], how: &WriteOptions) -> Result<()> {
                self.delete_opt(key, how)
            }

            fn value(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>> {
                self.get_pinned(key)
            }

            fn values(
                &self,
                keys: &[Vec<u8>],
                how: &ReadOptions,
            ) -> Result<Vec<Option<DBPinnableSlice<'_>>>> {
                match self.cf_handle(DEFAULT) {
                    Some(family) => {
                        self.batched_multi_get_cf_opt(family, keys, false, how).into_iter().collect()
                    }
                    None => keys.iter().map(|key| self.get_pinned(key)).collect(),
                }
            }

            fn cursor(&self) -> DBRawIteratorWithThreadMode<'_, Self> {
                self.raw_iterator()
            }

            fn ingest(&self, files: Vec<PathBuf>) -> Result<()> {
                let mut how = IngestExternalFileOptions::default();
                how.set_move_files(true);
                self.ingest_external_file_opts(&how, files)
            }

            fn flush_log(&self, sync: bool) -> Result<()> {
                self.flush_wal(sync)
            }

            fn settle(&self) -> Result<()> {
                let mut flush = FlushOptions::default();
                flush.set_wait(true);
                self.flush_opt(&flush)?;
                self.wait_for_compact(&WaitForCompactOptions::default())
            }

            fn end_background_work(&self) {
                self.cancel_all_background_work(true);
            }

            fn property(&self, name: &CStr) -> Result<Option<String>> {
                self.property_value(name)
            }

            fn transactions<'a>(&'a self, how: WriteOptions) -> Option<Box<dyn Transactions + 'a>> {
                $transactions(self, how)
            }
        }
    };
}

base!(DB, false, |_, _| None);
base!(OptimisticTransactionDB, true, RocksTransactions::of);
