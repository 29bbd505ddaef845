//! Methods of one column family.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidesdb_sync::Kept;

use super::estimate::is_empty;
use crate::Result;
use crate::family::{CommitHook, FamilyStats};
use crate::options::{FamilyOptions, ReadOptions, WriteOptions};
use crate::read::{self, Cursor, Iter};
use crate::types::{CompactionFilter, FamilyId, KeyBounds, KeyRange, SeqNo, Slice, moment_of, prefix_range};
use crate::write::{Family, WriteBatch};

impl Family {
    /// The id, which is never reused.
    pub fn id(&self) -> FamilyId {
        self.core.id
    }

    /// The current name.
    pub fn name(&self) -> String {
        self.core.name().to_string()
    }

    /// Returns the moment at which a row expires that is put now without an expiry: the end of the family's default TTL, or `None`
    /// if it has none. At the latest in the year 10889.
    ///
    /// # Errors
    /// `None` if the default would end after that year: then it ends in that year.
    pub fn default_expiry(&self) -> Result<Option<SystemTime>> {
        self.stored_default_expiry().map(moment_of)
    }

    /// Returns the moment at which a row expires that is put with `ttl` now, in whole milliseconds, rounded up. Rows that are put with the
    /// same expiry ([`Family::put_expiring`]) expire together.
    ///
    /// # Errors
    /// `InvalidArgument` if `ttl` ends after the year 10889.
    pub fn expiry_after(&self, ttl: Duration) -> Result<SystemTime> {
        self.stored_expiry_after(ttl).map(|expiry| moment_of(expiry).unwrap_or(SystemTime::UNIX_EPOCH))
    }

    /// Returns the current settings.
    pub fn current_options(&self) -> FamilyOptions {
        self.core.options.now()
    }

    /// Sets `key` to `value`, for the default TTL of the family if it has one; returns the commit's sequence number.
    ///
    /// Keys have 1 byte to 64 KiB ([`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX)), values at most 4 GiB
    /// ([`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX)); [`Family::value_writer`] takes values of any length.
    ///
    /// # Errors
    /// As [`WriteBatch::put`] and [`crate::Db::write`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.one(&WriteOptions::default(), |batch| batch.put(self, key, value))
    }

    /// Like [`Family::put`], with options for this commit.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::{SyncMode, WriteOptions};
    /// db.default_family().put_with("whale", "blue", &WriteOptions::default().sync(SyncMode::Full))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<SeqNo> {
        self.one(options, |batch| batch.put(self, key, value))
    }

    /// Sets `key` to `value` for `ttl`: see [`WriteBatch::put_with_ttl`].
    ///
    /// # Errors
    /// As [`WriteBatch::put_with_ttl`] and [`crate::Db::write`].
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<SeqNo> {
        self.one(&WriteOptions::default(), |batch| batch.put_with_ttl(self, key, value, ttl))
    }

    /// Sets `key` to `value` until `expiry` (`None` = forever): see [`WriteBatch::put_expiring`].
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Option<SystemTime>>,
    ) -> Result<SeqNo> {
        self.one(&WriteOptions::default(), |batch| batch.put_expiring(self, key, value, expiry))
    }

    /// Combines `operand` with the value of `key` by the merge operator of the family, without reading the value: see
    /// [`WriteBatch::merge`].
    ///
    /// # Errors
    /// As [`WriteBatch::merge`] and [`crate::Db::write`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.one(&WriteOptions::default(), |batch| batch.merge(self, key, operand))
    }

    /// Like [`Family::merge`], with options for this commit.
    ///
    /// # Errors
    /// As [`Family::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<SeqNo> {
        self.one(options, |batch| batch.merge(self, key, operand))
    }

    /// Deletes `key`, whether it exists or not.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.one(&WriteOptions::default(), |batch| batch.delete(self, key))
    }

    /// Like [`Family::delete`], with options for this commit.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<SeqNo> {
        self.one(options, |batch| batch.delete(self, key))
    }

    /// Deletes `key`, which must have been put at most once since its last delete.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.one(&WriteOptions::default(), |batch| batch.single_delete(self, key))
    }

    /// Like [`Family::single_delete`], with options for this commit.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn single_delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<SeqNo> {
        self.one(options, |batch| batch.single_delete(self, key))
    }

    /// Deletes all keys in `range`, in the family's key order, at the cost of one put: see
    /// [`WriteBatch::delete_range`].
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
    pub fn delete_range(&self, range: impl KeyRange) -> Result<SeqNo> {
        self.one(&WriteOptions::default(), |batch| batch.delete_range(self, range))
    }

    /// Like [`Family::delete_range`], with options for this commit.
    ///
    /// # Errors
    /// As [`Family::delete_range`].
    pub fn delete_range_with(&self, range: impl KeyRange, options: &WriteOptions) -> Result<SeqNo> {
        self.one(options, |batch| batch.delete_range(self, range))
    }

    /// Deletes all keys that begin with `prefix`, at the cost of one put: see [`WriteBatch::delete_prefix`].
    ///
    /// # Errors
    /// As [`WriteBatch::delete_prefix`] and [`crate::Db::write`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.one(&WriteOptions::default(), |batch| batch.delete_prefix(self, prefix))
    }

    /// Like [`Family::delete_prefix`], with options for this commit.
    ///
    /// # Errors
    /// As [`Family::delete_prefix`].
    pub fn delete_prefix_with(&self, prefix: impl AsRef<[u8]>, options: &WriteOptions) -> Result<SeqNo> {
        self.one(options, |batch| batch.delete_prefix(self, prefix))
    }

    /// Commits a batch of one operation. The buffer is kept for the next call of this thread.
    fn one(&self, options: &WriteOptions, fill: impl FnOnce(&mut WriteBatch) -> Result<()>) -> Result<SeqNo> {
        thread_local! {
            static SPARE: Kept<WriteBatch> = Kept::new();
        }
        let reads = &self.ctx.reads;
        let _timer = reads.sample(&reads.times.puts);
        let mut batch = Kept::take(&SPARE).unwrap_or_else(WriteBatch::of_thread);
        let filled = fill(&mut batch);
        if filled.is_err() {
            super::work_here(&self.ctx, &filled);
        }
        filled?;
        let seq = super::write(&self.ctx, &mut batch, options)?;
        batch.trim(); // the commit has cleared it
        Kept::put(&SPARE, batch);
        Ok(seq)
    }

    /// Returns the value of `key`; `None` if there is none, also for an empty or too long key, which cannot be put.
    ///
    /// # Errors
    /// `Corrupt`, `Io`, `NotFound` (dropped family), `Closed`. The same holds for all reads.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        read::get(&self.ctx.reads, &self.core, key.as_ref(), None)
    }

    /// Returns the result of `read` for the value of `key`, which is not copied: `get(key)?.map(read)` without the copy.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn get_map<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        read::get_map(&self.ctx.reads, &self.core, key.as_ref(), None, read)
    }

    /// Returns the values of many keys, all at one read timestamp, in the order of `keys`.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        read::multi_get(&self.ctx.reads, &self.core, keys, None)
    }

    /// Returns whether each of many keys exists, all at one read timestamp, in the order of `keys`, without reading a value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let users = db.default_family();
    /// users.put("ann", "1")?;
    /// assert_eq!(users.multi_contains(&["ann", "ben"])?, [true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn multi_contains<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
        read::multi_contains(&self.ctx.reads, &self.core, keys, None)
    }

    /// Returns whether `key` exists, without reading its value.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        read::contains(&self.ctx.reads, &self.core, key.as_ref(), None)
    }

    /// Iterates over all keys and values in order, as of now.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn iter(&self) -> Result<Iter> {
        Ok(Iter::new(self.cursor()?, ..))
    }

    /// Iterates over the keys in `range` and their values, as of now.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn range(&self, range: impl KeyRange) -> Result<Iter> {
        Ok(Iter::new(self.cursor()?, range))
    }

    /// Iterates over the keys that begin with `prefix` and their values, as of now.
    ///
    /// # Errors
    /// As [`Family::get`] and [`Family::prefix_range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Iter::with_prefix(self.cursor()?, prefix.as_ref())
    }

    /// Returns the range of the keys that begin with `prefix`, for every call that takes a range. Each of its bounds can be replaced by
    /// another one within it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use std::ops::Bound;
    /// let users = db.default_family();
    /// for key in ["mail:ann", "user:ann", "user:ben", "user:cid"] { users.put(key, "v")?; }
    /// let (first, end) = users.prefix_range("user:")?;
    /// assert_eq!(users.range((first.clone(), end.clone()))?.count(), 3);
    /// let mut from_ben = users.cursor()?;
    /// from_ben.set_range((Bound::Included(b"user:ben".to_vec()), end));
    /// from_ben.seek_to_first()?;
    /// assert_eq!(from_ben.key(), b"user:ben");
    /// users.compact_range(users.prefix_range("user:")?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` in a family whose key order may put other keys between these: any but byte order and reverse byte order. The same
    /// holds for [`Family::prefix`] and [`Family::delete_prefix`]: no call reads all keys in order to find those with a prefix. The empty
    /// prefix, which begins every key, is a range in every order.
    pub fn prefix_range(&self, prefix: impl AsRef<[u8]>) -> Result<KeyBounds> {
        prefix_range(&self.core.options.comparator, prefix.as_ref())
    }

    /// Returns a cursor over the keys as of now.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn cursor(&self) -> Result<Cursor> {
        self.cursor_with(&ReadOptions::default())
    }

    /// Returns a cursor with options.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn cursor_with(&self, options: &ReadOptions) -> Result<Cursor> {
        Cursor::new(&self.ctx.reads, &self.core, None, *options)
    }

    /// Writes everything committed so far to tables.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`.
    pub fn flush(&self) -> Result<()> {
        let _call = self.ctx.begin_call()?;
        self.ctx.database()?.flush(&self.core)
    }

    /// Schedules a background flush of everything committed so far and returns at once. Without background threads, the
    /// next commit runs it. Does nothing for a family without unflushed data.
    ///
    /// # Errors
    /// `NotFound` (dropped family), `Poisoned`, `ReadOnly`, `Closed`.
    pub fn start_flush(&self) -> Result<()> {
        self.ctx.check_writable()?;
        self.core.check_usable()?;
        self.ctx.rotate(&self.core);
        Ok(())
    }

    /// Flushes, then merges all tables into one sorted run without deleted, expired or hidden versions.
    ///
    /// # Errors
    /// As [`Family::flush`]; `Corrupt`; `Busy` if [`Db::cancel_compactions`](crate::Db::cancel_compactions) stopped it.
    pub fn compact(&self) -> Result<()> {
        let _call = self.ctx.begin_call()?;
        self.ctx.database()?.compact(&self.core, None)
    }

    /// Flushes, then merges the tables that overlap `range`. Afterwards `range` has no deleted, expired or hidden
    /// versions, except those a snapshot needs. Some other tables must be merged too: older level 1 tables that overlap
    /// a merged one, and level 2 tables between the smallest and largest merged key. The rest stay as they are. Waits
    /// for another merge of the family to end.
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
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        let range = range.bounds();
        match is_empty(&self.core.options.comparator, range) {
            true => self.flush(),
            false => {
                let _call = self.ctx.begin_call()?;
                self.ctx.database()?.compact(&self.core, Some(range))
            }
        }
    }

    /// Sets a hook that runs after each commit to the family; `None` removes it. The hook runs once the commit is
    /// visible, in the committing thread, before the commit call returns. Hooks of concurrent commits may run in any
    /// order: sort by sequence number if order matters. The hook must not commit to the same family without end. If it
    /// panics, the commit stands, its call succeeds, the hooks of other families are called, and a line in the log says so.
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

    /// Sets a filter that decides about the rows that merges of tables rewrite from now on; `None` removes it. It is not
    /// stored: set it after each open. Merges that begin before see every row stay.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::{CompactionFilter, Decision};
    /// let sessions = db.default_family();
    /// sessions.set_compaction_filter(Some(CompactionFilter::new("closed sessions", |row| match row.value {
    ///     Some(b"closed") => Decision::Remove,
    ///     _ => Decision::Keep,
    /// })));
    /// sessions.put("ann", "open")?;
    /// sessions.put("ben", "closed")?;
    /// sessions.compact()?;
    /// assert!(sessions.contains("ann")? && !sessions.contains("ben")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_compaction_filter(&self, filter: Option<CompactionFilter>) {
        *self.core.filter.lock() = filter;
    }

    /// Returns statistics of the family.
    pub fn stats(&self) -> FamilyStats {
        self.core.stats()
    }
}
