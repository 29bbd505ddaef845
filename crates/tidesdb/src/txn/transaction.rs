//! The transaction handle.

use std::cell::{Ref, RefCell};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::footprint::Footprint;
use super::own::{Own, OwnWrite, OwnWrites, search_batch};
use super::validate::Depends;
use crate::context::{ReadCtx, WriteCtx};
use crate::family::ReadView;
use crate::memory::{Charge, Use};
use crate::options::{Isolation, ReadOptions, WriteOptions};
use crate::read::{self, Cursor, Iter, Located, OwnReads, ReadTimestamp, Track};
use crate::types::{KeyRange, ReadPoint, SeqNo, Slice};
use crate::write::{self, Family, Mark, WriteBatch};
use crate::{Error, Result};

/// Reads and writes at one [`Isolation`] level, committed all or none. Belongs to one thread at a time. Dropping it
/// without a commit undoes it. While it is open, from `RepeatableRead` up, it keeps old versions alive.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb::Isolation;
/// let accounts = db.default_family();
/// db.put(b"ann", b"10")?;
/// let mut tx = db.begin(Isolation::Serializable);
/// assert_eq!(tx.get(accounts, b"ann")?.as_deref(), Some(&b"10"[..]));
/// tx.put(accounts, b"ann", b"7")?;
/// tx.put(accounts, b"ben", b"3")?;
/// assert_eq!(tx.get(accounts, b"ben")?.as_deref(), Some(&b"3"[..])); // its own write
/// assert!(!db.contains(b"ben")?); // not visible to others yet
/// tx.commit()?;
/// assert!(db.contains(b"ben")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction {
    ctx: Arc<WriteCtx>,
    isolation: Isolation,
    moment: ReadTimestamp,
    batch: WriteBatch,
    own: RefCell<OwnWrites>,
    reads: RefCell<Footprint>,
    savepoints: Vec<(u64, Mark)>,
    savepoints_made: u64,
    /// Savepoints among which there are some for which there was no memory.
    savepoints_lost: Range<u64>,
    open: bool,
    /// Nothing was committed since [`Transaction::set_repeatable`].
    repeatable: bool,
    /// Memory of the transaction without its writes and reads.
    charge: Charge,
}

/// Memory of a transaction without writes, reads and savepoints: this structure, and what it keeps on the heap.
const BASE_BYTES: usize = size_of::<Transaction>() + 192;

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("isolation", &self.isolation)
            .field("open", &self.open)
            .field("seq", &self.snapshot_seq())
            .field("writes", &self.len())
            .finish_non_exhaustive()
    }
}

/// A position in a transaction to roll back to; made by [`Transaction::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(u64);

impl Transaction {
    pub(crate) fn new(ctx: &Arc<WriteCtx>, isolation: Isolation) -> Self {
        let mut charge = Charge::new(Use::Transactions);
        charge.set(&ctx.memory, BASE_BYTES as u64);
        Self {
            moment: moment(&ctx.reads, isolation),
            ctx: Arc::clone(ctx),
            isolation,
            batch: WriteBatch::new(),
            own: RefCell::default(),
            reads: RefCell::default(),
            savepoints: Vec::new(),
            savepoints_made: 0,
            savepoints_lost: 0..0,
            open: true,
            repeatable: false,
            charge,
        }
    }

    /// Begins to watch for commits, before a closure runs that may be repeated if it makes none.
    pub(crate) fn set_repeatable(&mut self) {
        self.repeatable = true;
    }

    /// Returns whether nothing was committed since [`Transaction::set_repeatable`].
    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The sequence number it reads at; `None` if each call reads at a timestamp of its own.
    pub fn snapshot_seq(&self) -> Option<SeqNo> {
        match &self.moment {
            ReadTimestamp::Snapshot(pin) => Some(pin.seq()),
            ReadTimestamp::Now | ReadTimestamp::Uncommitted => None,
        }
    }

    /// Number of writes so far.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Returns true if nothing has been written so far.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Bytes that the writes so far will take in the log.
    pub fn bytes(&self) -> usize {
        if self.batch.is_empty() { 0 } else { self.batch.bytes() }
    }

    /// As [`WriteBatch::has_room`].
    #[doc(hidden)]
    #[inline]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.batch.has_room(bytes)
    }

    /// Number of keys and intervals that the commit depends on. A key that is read often and intervals that overlap may
    /// count more than once; duplicates are merged whenever the number has doubled.
    pub fn reads_tracked(&self) -> usize {
        self.reads.borrow().len()
    }

    /// Sets `key` to `value`, for the default TTL of the family if it has one. Limits are those of [`WriteBatch::put`]. Nothing is written
    /// to the disk before the commit, except a value of 8 MiB or more: the call writes it to the value log of the family at once, which takes
    /// as long as the device does. An async program makes such a call on a blocking thread.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty or too long key, a too long value or transaction, or after the transaction has
    /// ended: nothing was done. The same holds for all writes. For a value of 8 MiB or more also those of [`WriteBatch::put`].
    pub fn put(&mut self, family: &Family, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.for_writing(family)?.put(family, key, value)
    }

    /// Sets `key` to `value` for `ttl`: see [`WriteBatch::put_with_ttl`].
    ///
    /// # Errors
    /// As [`Transaction::put`]; `InvalidArgument` if `ttl` ends after the year 10889.
    pub fn put_with_ttl(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.for_writing(family)?.put_with_ttl(family, key, value, ttl)
    }

    /// Sets `key` to `value` until `expiry` (`None` = forever): see [`WriteBatch::put_expiring`].
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_expiring(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Option<SystemTime>>,
    ) -> Result<()> {
        self.for_writing(family)?.put_expiring(family, key, value, expiry)
    }

    /// Combines `operand` with the value of `key`, without reading the value: see [`WriteBatch::merge`]. For conflicts it
    /// is a write like any other.
    ///
    /// # Errors
    /// As [`WriteBatch::merge`].
    pub fn merge(&mut self, family: &Family, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.for_writing(family)?.merge(family, key, operand)
    }

    /// Deletes `key`, whether it exists or not.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        self.for_writing(family)?.delete(family, key)
    }

    /// Deletes `key`, which was put at most once since it was last deleted.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn single_delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        self.for_writing(family)?.single_delete(family, key)
    }

    /// Deletes all keys in `range`, in the order of the family, at the cost of one write: see
    /// [`WriteBatch::delete_range`]. At `Snapshot`, another commit's write into the range is a conflict.
    ///
    /// # Errors
    /// As [`WriteBatch::delete_range`].
    pub fn delete_range(&mut self, family: &Family, range: impl KeyRange) -> Result<()> {
        self.for_writing(family)?.delete_range(family, range)
    }

    /// Deletes all keys that begin with `prefix`, at the cost of one write.
    ///
    /// # Errors
    /// As [`WriteBatch::delete_prefix`].
    pub fn delete_prefix(&mut self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.for_writing(family)?.delete_prefix(family, prefix)
    }

    /// Returns the value of `key`, including the transaction's own writes.
    ///
    /// # Errors
    /// As [`Family::get`]. `InvalidArgument` after the transaction has ended, or for a family of another database. The
    /// same holds for all reads.
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.read(family, key.as_ref(), true)
    }

    /// Passes the value of `key` to `read`, including the transaction's own writes. A value in memory is not copied.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let mut tx = db.begin(tidesdb::Isolation::Snapshot);
    /// tx.put(db.default_family(), b"k", b"value")?;
    /// assert_eq!(tx.get_map(db.default_family(), b"k", |value| value.len())?, Some(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_map<R>(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.read_with(family, key.as_ref(), true, read)
    }

    /// Like [`Transaction::get`], without making the commit depend on it.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.read(family, key.as_ref(), false)
    }

    /// Like [`Transaction::get_map`], without making the commit depend on it.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_untracked_map<R>(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.read_with(family, key.as_ref(), false, read)
    }

    /// Returns true if `key` exists, including the transaction's own writes. The commit may depend on it as on a read.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.exists(family, key.as_ref(), true)
    }

    /// Like [`Transaction::contains`], without making the commit depend on it.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.exists(family, key.as_ref(), false)
    }

    /// The values of many keys, in the order of `keys`.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, family: &Family, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let own = |key: &[u8], own: OwnWrite<'_>| self.value_of(family, key, own, |value| Slice::from(value));
        let others = |keys: &[&[u8]]| read::multi_get(&self.ctx.reads, &family.core, keys, self.read_seq());
        self.ask_all(family, keys, own, others)
    }

    /// Returns whether each of many keys exists, in the order of `keys`, without reading a value.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn multi_contains<K: AsRef<[u8]>>(&self, family: &Family, keys: &[K]) -> Result<Vec<bool>> {
        let own = |_: &[u8], own: OwnWrite<'_>| Ok(exists(&own));
        let others = |keys: &[&[u8]]| {
            let found = read::multi_contains(&self.ctx.reads, &family.core, keys, self.read_seq())?;
            Ok(found.into_iter().map(|found| found.then_some(())).collect())
        };
        Ok(self.ask_all(family, keys, own, others)?.iter().map(Option::is_some).collect())
    }

    /// All keys and values in key order, own writes included.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        Ok(Iter::new(self.cursor(family)?, ..))
    }

    /// The keys in `range` with their values, own writes included.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn range(&self, family: &Family, range: impl KeyRange) -> Result<Iter> {
        Ok(Iter::new(self.cursor(family)?, range))
    }

    /// The keys that begin with `prefix` with their values, own writes included.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Family::prefix_range`].
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Iter::with_prefix(self.cursor(family)?, prefix.as_ref())
    }

    /// A cursor over the data with the transaction's own writes merged in. It may or may not show writes made after it, and writes
    /// undone after it by [`Transaction::rollback_to`], key by key: make a new cursor to be sure.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.cursor_with(family, &ReadOptions::default())
    }

    /// Like [`Transaction::cursor`], with options.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn cursor_with(&self, family: &Family, options: &ReadOptions) -> Result<Cursor> {
        self.check(family)?;
        let own = self.own_reads(family)?;
        let tracked = self.isolation.depends_on_reads();
        let track = tracked.then(|| Track::new(&self.reads.borrow().spans, &family.core));
        Cursor::in_transaction(&self.ctx.reads, &family.core, &self.moment, own, track, *options)
    }

    /// Marks the current position. Savepoints nest. If batches and transactions hold their share of `memory_limit`, the savepoint
    /// cannot be kept: a rollback to it or its release then fails with `MemoryLimit`.
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints_made += 1;
        match self.make_room_for_savepoint() {
            Ok(()) => self.savepoints.push((self.savepoints_made, self.batch.mark())),
            Err(_) if self.savepoints_lost.is_empty() => {
                self.savepoints_lost = self.savepoints_made..self.savepoints_made + 1;
            }
            Err(_) => self.savepoints_lost.end = self.savepoints_made + 1,
        }
        Savepoint(self.savepoints_made)
    }

    fn make_room_for_savepoint(&mut self) -> Result<()> {
        let has = self.savepoints.capacity();
        if self.savepoints.len() == has {
            let room = has + (has / 4).max(4);
            let bytes = BASE_BYTES + room * size_of::<(u64, Mark)>();
            self.charge.grow(&self.ctx.memory, bytes as u64)?;
            self.savepoints.reserve_exact(room - has);
        }
        Ok(())
    }

    /// Undoes all writes since `savepoint`, which stays valid; savepoints made after it are removed. The commit still
    /// depends on reads made since then. Costs as much as the writes that it undoes, on average.
    ///
    /// # Errors
    /// `NotFound` if the savepoint is gone.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at + 1);
        let (_, mark) = self.savepoints[at];
        self.own.get_mut().cut_back(&self.batch, mark);
        self.batch.cut_back(mark);
        Ok(())
    }

    /// Removes `savepoint` and those made after it; the writes stay.
    ///
    /// # Errors
    /// `NotFound` if the savepoint is gone.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<()> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Like [`Transaction::commit_with`], but leaves follow-up work (rotation, flush) to the caller.
    pub(crate) fn commit_only(&mut self, options: &WriteOptions) -> Result<SeqNo> {
        self.check_open()?;
        self.open = false;
        self.repeatable = false;
        self.own.get_mut().clear(); // nothing reads them any more, and the commit needs memory for its memtables
        let reads = self.reads.borrow();
        let spans = reads.spans.lock().take_merged();
        let depends = Depends {
            reads: self.isolation.depends_on_reads().then_some(&*reads),
            spans: &spans,
            seen_only: self.isolation == Isolation::RepeatableRead,
        };
        let checks_writes = self.isolation == Isolation::Snapshot;
        let done = match &self.moment {
            ReadTimestamp::Snapshot(pin) if checks_writes || depends.on_reads() => {
                write::commit_if(&self.ctx, &mut self.batch, options, pin.seq(), |batch, during| {
                    let writes = checks_writes.then_some(batch);
                    depends.check_unchanged(
                        writes,
                        ReadPoint { seq: pin.seq(), now: pin.began().unwrap_or(0) },
                        during,
                    )
                })
            }
            _ => write::commit(&self.ctx, &mut self.batch, options),
        };
        drop(reads);
        self.moment = ReadTimestamp::Now; // releases the snapshot: old versions are no longer needed
        done
    }

    /// The write path that it commits to.
    pub(crate) fn ctx(&self) -> &Arc<WriteCtx> {
        &self.ctx
    }

    /// Returns false once the transaction was committed or rolled back.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Undoes everything and ends the transaction.
    pub fn rollback(&mut self) {
        self.open = false;
        self.forget();
        self.moment = ReadTimestamp::Now;
    }

    /// Restarts the transaction at the same isolation level with a new snapshot, reusing its buffers. Uncommitted
    /// writes are undone.
    pub fn reset(&mut self) {
        self.forget();
        self.moment = moment(&self.ctx.reads, self.isolation);
        self.open = true;
    }

    /// Like [`Transaction::reset`], at another level.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::Isolation;
    /// let mut tx = db.begin(Isolation::Serializable);
    /// tx.put(db.default_family(), b"k", b"v")?;
    /// tx.commit()?;
    /// tx.reset_at(Isolation::ReadCommitted);
    /// assert_eq!((tx.isolation(), tx.len()), (Isolation::ReadCommitted, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset_at(&mut self, isolation: Isolation) {
        self.isolation = isolation;
        self.reset();
    }

    #[inline]
    fn forget(&mut self) {
        self.batch.clear();
        self.own.get_mut().clear();
        self.reads.get_mut().clear();
        self.savepoints.clear();
        if self.charge.bytes() > BASE_BYTES as u64 {
            self.savepoints = Vec::new();
            self.charge.set(&self.ctx.memory, BASE_BYTES as u64);
        }
    }

    fn read(&self, family: &Family, key: &[u8], tracked: bool) -> Result<Option<Slice>> {
        let read = |own: OwnWrite<'_>| self.value_of(family, key, own, |value| Slice::from(value));
        match self.ask_own(family, key, tracked, read)? {
            Own::Written(said) => Ok(said),
            Own::Unwritten(_) => read::get(&self.ctx.reads, &family.core, key, self.read_seq()),
        }
    }

    fn read_with<R>(
        &self,
        family: &Family,
        key: &[u8],
        tracked: bool,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        match self.ask_own(family, key, tracked, |own| self.value_of(family, key, own, read))? {
            Own::Written(said) => Ok(said),
            Own::Unwritten(read) => {
                let read = |value: &[u8]| read(OwnWrite::Value(value));
                let found = read::get_map(&self.ctx.reads, &family.core, key, self.read_seq(), read)?;
                Ok(found.transpose()?.flatten())
            }
        }
    }

    /// Returns the result of `read` for the value that the own write `own` gives to `key`: a chunked one is read into memory, and an
    /// operand combined with older own writes and the data.
    #[inline]
    fn value_of<R>(
        &self,
        family: &Family,
        key: &[u8],
        own: OwnWrite<'_>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        match own {
            OwnWrite::Value(value) => Ok(Some(read(value))),
            OwnWrite::Chunks(place) => read::resolve(&family.core, place).map(|value| Some(read(&value))),
            OwnWrite::Operand => Ok(self.combined(family, key)?.map(|value| read(&value))),
            OwnWrite::Deleted => Ok(None),
        }
    }

    fn exists(&self, family: &Family, key: &[u8], tracked: bool) -> Result<bool> {
        match self.ask_own(family, key, tracked, |own| Ok(exists(&own)))? {
            Own::Written(said) => Ok(said.is_some()),
            Own::Unwritten(_) => read::contains(&self.ctx.reads, &family.core, key, self.read_seq()),
        }
    }

    /// Answers for each of `keys`: by `own` if the transaction wrote it, the others together by `others`.
    fn ask_all<K: AsRef<[u8]>, R>(
        &self,
        family: &Family,
        keys: &[K],
        own: impl Fn(&[u8], OwnWrite<'_>) -> Result<Option<R>>,
        others: impl FnOnce(&[&[u8]]) -> Result<Vec<Option<R>>>,
    ) -> Result<Vec<Option<R>>> {
        let mut answers = Vec::with_capacity(keys.len());
        let (mut asked, mut places) = (Vec::new(), Vec::new());
        for (place, key) in keys.iter().map(AsRef::as_ref).enumerate() {
            answers.push(match self.ask_own(family, key, true, |written| own(key, written))? {
                Own::Written(said) => said,
                Own::Unwritten(_) => {
                    asked.push(key);
                    places.push(place);
                    None
                }
            });
        }
        for (place, answer) in places.into_iter().zip(others(&asked)?) {
            answers[place] = answer;
        }
        Ok(answers)
    }

    /// Looks up `key` in the transaction's own writes. If they do not contain it, the read is recorded if it is
    /// tracked, and the caller must read the database. `read` may call the transaction again: nothing is mutably
    /// borrowed meanwhile.
    fn ask_own<R, F: FnOnce(OwnWrite<'_>) -> Result<Option<R>>>(
        &self,
        family: &Family,
        key: &[u8],
        tracked: bool,
        read: F,
    ) -> Result<Own<R, F>> {
        self.check(family)?;
        let (mut sorted, mut written) = (None, None);
        if self.batch.has_family(&family.core) {
            written = if self.own.borrow().is_short(&self.batch) {
                search_batch(&self.ctx.reads, &self.batch, &family.core, key)?
            } else {
                sorted.insert(self.sorted_writes()?).get(&self.ctx.reads, &family.core, key)
            };
        }
        // The value that an operand is combined with is read, too.
        if tracked && matches!(written, None | Some(OwnWrite::Operand)) && self.isolation.depends_on_reads() {
            self.reads.borrow_mut().read(&family.core, key)?;
        }
        Ok(match written {
            Some(own) => Own::Written(read(own)?),
            None => Own::Unwritten(read),
        })
    }

    /// The value of `key`, whose last own write is an operand: older own writes and the data may matter.
    fn combined(&self, family: &Family, key: &[u8]) -> Result<Option<Slice>> {
        let own = self.own_reads(family)?;
        let mut cursor = Cursor::for_one_call(&self.ctx.reads, &family.core, &self.moment, own)?;
        cursor.seek(key)?;
        let found = cursor.valid() && family.core.options.comparator.compare(cursor.key(), key).is_eq();
        if found { cursor.value().map(|value| Some(value.into())) } else { Ok(None) }
    }

    /// The transaction's own writes to `family` for a cursor; `None` if there are none.
    fn own_reads(&self, family: &Family) -> Result<Option<OwnReads>> {
        if !self.batch.has_family(&family.core) {
            return Ok(None);
        }
        Ok(self.sorted_writes()?.of(&family.core))
    }

    /// All own writes, sorted.
    fn sorted_writes(&self) -> Result<Ref<'_, OwnWrites>> {
        if !self.own.borrow().is_caught_up(&self.batch) {
            self.own.borrow_mut().catch_up(&self.batch)?;
        }
        Ok(self.own.borrow())
    }

    /// Returns where the value of `key` lies, including the transaction's own writes.
    pub(crate) fn locate(
        &self,
        family: &Family,
        key: &[u8],
        view: &Arc<ReadView>,
    ) -> Result<Option<Located>> {
        let own = |own: OwnWrite<'_>| match own {
            OwnWrite::Chunks(place) => Located::stored(place).map(Some),
            own => self.value_of(family, key, own, |value| Located::Inline(value.into())),
        };
        match self.ask_own(family, key, true, own)? {
            Own::Written(said) => Ok(said),
            Own::Unwritten(_) => read::locate(&self.ctx.reads, &family.core, view, key, self.read_seq()),
        }
    }

    /// The sequence number to read at; `None` = the newest.
    fn read_seq(&self) -> Option<SeqNo> {
        match &self.moment {
            ReadTimestamp::Now => None,
            other => Some(other.seq(&self.ctx.reads)),
        }
    }

    fn find(&self, savepoint: Savepoint) -> Result<usize> {
        let at = self.savepoints.binary_search_by_key(&savepoint.0, |(id, _)| *id);
        at.map_err(|_| match self.savepoints_lost.contains(&savepoint.0) {
            true => Error::MemoryLimit { what: "there was no memory to keep the savepoint".into() },
            false => Error::NotFound { what: "the savepoint".into() },
        })
    }

    /// The batch that commits, to add a write to `family`.
    pub(crate) fn for_writing(&mut self, family: &Family) -> Result<&mut WriteBatch> {
        self.check(family)?;
        Ok(&mut self.batch)
    }

    fn check(&self, family: &Family) -> Result<()> {
        self.check_open()?;
        if Arc::ptr_eq(&self.ctx, &family.ctx) {
            return Ok(());
        }
        Err(Error::invalid("a transaction can use only families of its own database"))
    }

    fn check_open(&self) -> Result<()> {
        if self.open {
            Ok(())
        } else {
            Err(Error::invalid("the transaction has ended; reset it to start again"))
        }
    }
}

/// Returns whether a key whose last own write is `own` exists.
fn exists(own: &OwnWrite<'_>) -> Option<()> {
    (!matches!(own, OwnWrite::Deleted)).then_some(())
}

fn moment(ctx: &ReadCtx, isolation: Isolation) -> ReadTimestamp {
    match isolation {
        Isolation::ReadUncommitted => ReadTimestamp::Uncommitted,
        Isolation::ReadCommitted => ReadTimestamp::Now,
        _ => ReadTimestamp::Snapshot(ctx.register_validating()),
    }
}
