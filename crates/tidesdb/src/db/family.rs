//! The verbs of one column family.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use super::estimate::is_empty;
use super::stats::FamilyStats;
use crate::family::CommitHook;
use crate::options::{ReadOptions, WriteOptions};
use crate::read::{self, Cursor, Iter};
use crate::shared::Family;
use crate::types::{SeqNo, Slice};
use crate::write::WriteBatch;
use crate::{Error, Result, compact, flush};

impl Family {
    /// Sets `key` to `value`; returns the commit's sequence number.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<SeqNo> {
        self.one(|batch| batch.put(self, key, value))
    }

    /// Sets `key` to `value` for `ttl`, in whole seconds: see [`WriteBatch::put_ttl`](crate::WriteBatch::put_ttl).
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

    /// Deletes all keys in `range`, in the order of the family, at the cost of one put: see [`WriteBatch::delete_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let users = db.default_family();
    /// for n in 0..1000u32 { users.put(format!("user:{n:03}").as_bytes(), b"...")?; }
    /// users.delete_range("user:100".."user:900")?;
    /// users.delete_prefix(b"user:9")?;
    /// assert_eq!(users.iter()?.count(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`WriteBatch::delete_range`] and [`crate::Db::write`].
    pub fn delete_range<B: AsRef<[u8]>>(&self, range: impl RangeBounds<B>) -> Result<SeqNo> {
        self.one(|batch| batch.delete_range(self, range))
    }

    /// Deletes all keys that begin with `prefix`, at the cost of one put.
    ///
    /// # Errors
    /// As [`WriteBatch::delete_prefix`] and [`crate::Db::write`].
    pub fn delete_prefix(&self, prefix: &[u8]) -> Result<SeqNo> {
        self.one(|batch| batch.delete_prefix(self, prefix))
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

    /// The keys that begin with `prefix`, with their values, as of now. An order of your own may scatter
    /// them: then all keys are looked at.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Iter> {
        Ok(Iter::with_prefix(self.cursor()?, prefix))
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

    /// Has everything committed so far written to tables by the background, and returns at once. Without threads the next commit
    /// does it. A family with nothing to flush is left as it is.
    ///
    /// # Errors
    /// `NotFound` (dropped family), `Poisoned`, `ReadOnly`, `Closed`.
    pub fn start_flush(&self) -> Result<()> {
        self.shared.check_writable()?;
        if self.core.is_dropped() {
            return Err(Error::NotFound { what: format!("column family {}", self.core.name()).into() });
        }
        self.shared.rotate(&self.core);
        Ok(())
    }

    /// Flushes and merges all tables into one sorted run without deleted, expired or hidden versions.
    ///
    /// # Errors
    /// As [`Family::flush`]; `Corrupt`, `Busy` if [`Db::cancel_compactions`](crate::Db::cancel_compactions) stopped it.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        compact::everything(&self.shared, &self.core)?;
        self.shared.remove_obsolete();
        Ok(())
    }

    /// Flushes, and merges the tables that meet `range`: in it no deleted, expired or hidden versions are left, except what a
    /// snapshot needs. Other tables stay as they are, but for those that must go along: older ones of level 1 that overlap one
    /// that goes, and those of level 2 between the first and the last key of all. Waits for another merge of the family to end.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let logs = db.default_family();
    /// logs.delete_range("2024-01".."2024-07")?;
    /// logs.compact_range("2024-01".."2024-07")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Family::compact`].
    pub fn compact_range<B: AsRef<[u8]>>(&self, range: impl RangeBounds<B>) -> Result<()> {
        let range = (range.start_bound().map(B::as_ref), range.end_bound().map(B::as_ref));
        self.flush()?;
        if !is_empty(&self.core.options.comparator, range) {
            compact::within(&self.shared, &self.core, &range)?;
            self.shared.remove_obsolete();
        }
        Ok(())
    }

    /// Has `hook` called after each commit to the family, once the commit is visible, in the thread that committed and before
    /// its call returns. `None`: no longer. Commits of several threads are told as they end: sort by sequence number what must be
    /// in order. The hook must not commit to the same family without end, and a panic in it is the committer's.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use std::sync::Arc;
    /// let told = Arc::new(AtomicUsize::new(0));
    /// let seen = Arc::clone(&told);
    /// db.default_family().set_commit_hook(Some(Arc::new(move |commit: &tidesdb::Committed<'_>| {
    ///     seen.fetch_add(commit.ops.len(), Ordering::Relaxed);
    /// })));
    /// db.put(b"k", b"v")?;
    /// assert_eq!(told.load(Ordering::Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_commit_hook(&self, hook: Option<Arc<CommitHook>>) {
        self.core.hook.set(hook);
    }

    /// Figures about the family.
    pub fn stats(&self) -> FamilyStats {
        FamilyStats::of(&self.core)
    }
}
