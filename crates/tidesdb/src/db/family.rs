//! The verbs of one column family.

use std::ops::RangeBounds;
use std::time::Duration;

use super::stats::FamilyStats;
use crate::options::{ReadOptions, WriteOptions};
use crate::read::{self, Cursor, Iter, prefix_range};
use crate::shared::Family;
use crate::types::{SeqNo, Slice};
use crate::write::WriteBatch;
use crate::{Result, compact, flush};

impl Family {
    /// Sets `key` to `value`; returns the commit's sequence number.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<SeqNo> {
        self.one(|batch| batch.put(self, key, value))
    }

    /// Sets `key` to `value` for `ttl`, in whole seconds.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn put_with_ttl(&self, key: &[u8], value: &[u8], ttl: Duration) -> Result<SeqNo> {
        self.one(|batch| batch.put_ttl(self, key, value, ttl))
    }

    /// Deletes `key`, whether it exists or not.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn delete(&self, key: &[u8]) -> Result<SeqNo> {
        self.one(|batch| batch.delete(self, key))
    }

    /// Deletes `key`, which was put at most once since it was last deleted.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn single_delete(&self, key: &[u8]) -> Result<SeqNo> {
        self.one(|batch| batch.single_delete(self, key))
    }

    /// A put is a batch of one. The buffer is kept for the thread's next.
    fn one(&self, fill: impl FnOnce(&mut WriteBatch) -> Result<()>) -> Result<SeqNo> {
        thread_local! {
            static SPARE: std::cell::RefCell<Option<WriteBatch>> = const { std::cell::RefCell::new(None) };
        }
        /// A spare buffer larger than this goes back to the allocator.
        const SPARE_BYTES_MAX: usize = 64 << 10;
        let mut batch = SPARE.with(|s| s.borrow_mut().take()).unwrap_or_default();
        let result =
            fill(&mut batch).and_then(|()| super::write(&self.shared, &mut batch, &WriteOptions::default()));
        if batch.bytes() <= SPARE_BYTES_MAX {
            batch.clear();
            SPARE.with(|s| *s.borrow_mut() = Some(batch));
        }
        result
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// `Corrupt`, `Io`, `NotFound` (dropped family), `Closed`. So for all reads.
    pub fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        read::get(&self.shared, &self.core, key, None)
    }

    /// Hands the value of `key` to `read` without copying it.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        read::get_with(&self.shared, &self.core, key, None, read)
    }

    /// The values of many keys at one moment, in the order asked for.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        read::multi_get(&self.shared, &self.core, keys, None)
    }

    /// Whether `key` exists; never reads its value.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        read::contains(&self.shared, &self.core, key, None)
    }

    /// All keys and values, in order, as of now.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn iter(&self) -> Result<Iter> {
        Ok(Iter::new::<&[u8]>(self.cursor()?, ..))
    }

    /// The keys in `range`, with their values, as of now.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn range<B: AsRef<[u8]>>(&self, range: impl RangeBounds<B>) -> Result<Iter> {
        Ok(Iter::new(self.cursor()?, range))
    }

    /// The keys that begin with `prefix`, with their values, as of now. For byte-wise orders.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Iter> {
        Ok(Iter::new(self.cursor()?, prefix_range(prefix)))
    }

    /// A cursor over the keys as of now.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn cursor(&self) -> Result<Cursor> {
        self.cursor_with(&ReadOptions::default())
    }

    /// A cursor with options.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn cursor_with(&self, options: &ReadOptions) -> Result<Cursor> {
        Cursor::new(&self.shared, &self.core, None, *options)
    }

    /// Writes everything committed so far to tables.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`.
    pub fn flush(&self) -> Result<()> {
        self.shared.check_writable()?;
        flush::all(&self.shared, &self.core)
    }

    /// Flushes and merges all tables into one sorted run without deleted, expired or hidden versions.
    ///
    /// # Errors
    /// As [`Family::flush`]; `Corrupt`.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        compact::everything(&self.shared, &self.core)?;
        self.shared.remove_obsolete();
        Ok(())
    }

    /// Figures about the family.
    pub fn stats(&self) -> FamilyStats {
        FamilyStats::of(&self.core)
    }
}
