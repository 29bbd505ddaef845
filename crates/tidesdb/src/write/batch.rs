//! A batch of operations that are committed together. Its buffer is the body of a log record.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidesdb_io::Buffer;

use super::chunks;
use super::family::Family;
use super::ops::{OP_BYTES, Op, Ops, decode_ops, encode_op};
use crate::family::FamilyCore;
use crate::memory::{Charge, Memory, Use};
use crate::ranges::{Interval, RangeTombstone};
use crate::types::{FamilyId, KEY_BYTES_MAX, KeyRange, Kind, VALUE_BYTES_MAX, expiry_at, prefix_range};
use crate::vlog::{ChunkedPlace, Lease};
use crate::wal::Purpose;
use crate::wal::layout::{BLANK_ROOM, RECORD_HEADER_BYTES, blank_record};
use crate::{Error, Result};

/// Length of a large batch, see [`WriteBatch::is_large`], and memory of one that needs much.
const LARGE_BYTES_MIN: usize = 1 << 20;

/// Longest body of a record; leaves room for pointers that replace values. With addresses of 32 bits, half of that: nothing in memory is
/// longer.
const BATCH_BYTES_MAX: usize =
    (if usize::BITS > 32 { u32::MAX as usize } else { isize::MAX as usize }) - ((1 << 20) - 1);

/// Memory that an operation takes in a memtable beyond its length in the record, about.
const INSERTED_BYTES: u64 = 40;
/// Up to so many operations, that is looked at only when the record grows.
const OPS_FREE: usize = 4096;

/// The batch of a thread is not charged to the memory limit up to this length.
const THREAD_ROOM: usize = 4 << 10;
/// Records up to this length double when they grow.
const DOUBLING_MAX: usize = 4 << 10;
/// A longer record grows by one part in this many, and by [`ROOM_MAX`] at most: memory is charged before it is used.
const ROOM_PART: usize = 4;
const ROOM_MAX: usize = 4 << 20;
/// Used instead of [`ROOM_PART`] if the share of transactions has no room for that.
const SCANT_ROOM_PART: usize = 1024;
/// Memory that a batch keeps when it is cleared.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Memory that the batch of a thread keeps, which the next put or delete uses.
const KEPT_BY_THREAD_MAX: usize = 64 << 10;
/// Memory that it keeps after a commit if there is ample memory: faulting in each page again takes longer than to copy the next batch there.
pub(super) const KEPT_AFTER_COMMIT: usize = 8 << 20;

/// Operations over any families of one database, committed all or none.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// let users = db.family_or_create("users", Default::default())?;
/// let mails = db.family_or_create("mails", Default::default())?;
/// let mut batch = tidesdb::WriteBatch::new();
/// batch.put(&users, b"ann", b"ann@example.org")?;
/// batch.put(&mails, b"ann@example.org", b"ann")?;
/// db.write(&mut batch)?;
/// assert!(batch.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WriteBatch {
    /// Space for the record's header, then the operations.
    pub(super) record: Buffer,
    pub(super) counts: Counts,
    pub(super) families: Vec<Arc<FamilyCore>>,
    /// Bytes of keys and values of each family.
    pub(super) user_bytes: Vec<u64>,
    /// The operations before values were moved to the value log: for commit hooks, and its memory is used again.
    pub(super) whole: Option<Buffer>,
    /// Leases on the value logs that the operations refer to.
    pub(super) leases: Vec<Lease>,
    /// Length up to which the record may grow before more memory is charged.
    room: usize,
    /// Number of operations up to which the memory of their memtables was admitted.
    ops_room: usize,
    /// Length up to which it is not charged: 0, or [`THREAD_ROOM`].
    free_room: usize,
    /// Bytes at the beginning of the record whose memory was returned to the system.
    freed: usize,
    charge: Charge,
}

/// Sums over the operations of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) ops: u32,
    /// Number of operations with a rank.
    pub(super) ranks: u32,
    /// Number of puts and merges.
    pub(super) puts: u32,
    /// Length of the longest value that may go to the value log.
    pub(super) value_bytes_max: usize,
    /// Bytes of the values that are in the value log already.
    pub(super) chunked_bytes: u64,
    /// Memory of the range tombstones.
    pub(super) range_bytes: u64,
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteBatch {{ operations: {}, bytes: {} }}", self.len(), self.bytes())
    }
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self {
            record: blank_record(0),
            counts: Counts::default(),
            families: Vec::new(),
            user_bytes: Vec::new(),
            whole: None,
            leases: Vec::new(),
            room: 0,
            ops_room: OPS_FREE,
            free_room: 0,
            freed: 0,
            charge: Charge::new(Use::Transactions),
        }
    }

    /// An empty batch for the single writes of a thread, which keeps some memory that is not charged.
    pub(crate) fn of_thread() -> Box<Self> {
        Box::new(Self { room: THREAD_ROOM, free_room: THREAD_ROOM, ..Self::new() })
    }

    /// Sets `key` to `value`, for the default TTL of the family if it has one.
    ///
    /// Keys have 1 byte to 64 KiB ([`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX)), values at most 4 GiB
    /// ([`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX)); [`Family::value_writer`] takes values of any length.
    /// A batch has at most 4 GiB. A value of 8 MiB or more is not part of these bytes: the put writes it to the value log of the family at
    /// once, which takes as long as the device does, so an async program makes the call on a blocking thread. The value is visible, and as
    /// durable as the rest, with the commit.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty or too long key, a too long value or batch. `NoSpace`, `Io` and those of
    /// [`Db::write`](crate::Db::write) for a value of 8 MiB or more. `MemoryLimit` if all batches and transactions
    /// would take more than their share of `memory_limit`; `Busy` if memory stays scarce for ten seconds. The batch is as before.
    pub fn put(&mut self, family: &Family, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_until(family, key.as_ref(), value.as_ref(), family.stored_default_expiry()?)
    }

    /// Sets `key` to `value` for `ttl`, counted from now. A row stores its expiry in milliseconds, rounded up. The key can be read for at
    /// least `ttl`, and is gone at most about 10 ms later, or 100 ms on a database without commits for a second (1 s if it is one of a
    /// thousand): reads use a clock that is read that often. Time is that of the wall clock, except that it never goes back while the database is open: an expired key stays
    /// expired if the wall clock is set back.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; `InvalidArgument` if `ttl` ends after the year 10889.
    pub fn put_with_ttl(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_until(family, key.as_ref(), value.as_ref(), family.ctx.reads.expiry_after(ttl)?)
    }

    /// Sets `key` to `value` until `expiry`, in milliseconds, rounded up. `None` = forever, whatever the default TTL of the family.
    ///
    /// # Errors
    /// As [`WriteBatch::put_with_ttl`]; `InvalidArgument` for a moment after the year 10889.
    pub fn put_expiring(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Option<SystemTime>>,
    ) -> Result<()> {
        self.put_until(family, key.as_ref(), value.as_ref(), expiry_at(expiry.into())?)
    }

    /// Sets `key` to `value` until `expiry`, as it is stored.
    #[inline]
    pub(crate) fn put_until(&mut self, family: &Family, key: &[u8], value: &[u8], expiry: u64) -> Result<()> {
        match chunks::is_long(family, value) {
            false => self.push(family, Kind::Put, expiry, key, value),
            true => self.put_long(family, expiry, key, value),
        }
    }

    /// Stores the value in the value log now, so that memory does not hold a copy until the commit.
    #[cold]
    fn put_long(&mut self, family: &Family, expiry: u64, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        let (place, leases) = chunks::store(family, value)?;
        self.put_chunks(family, key, &place, leases, expiry)
    }

    /// Deletes `key`, whether it exists or not.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(family, Kind::Delete, 0, key.as_ref(), &[])
    }

    /// Deletes `key`, which was put at most once since it was last deleted. Its tombstone can be dropped earlier than
    /// that of [`WriteBatch::delete`]. In a family with a merge operator it is a [`WriteBatch::delete`].
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn single_delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        let merges = family.core.options.merge_operator().is_some();
        let kind = if merges { Kind::Delete } else { Kind::SingleDelete };
        self.push(family, kind, 0, key.as_ref(), &[])
    }

    /// Combines `operand` with the value of `key` by the merge operator of the family, without reading the value. If the
    /// key does not exist, the operand becomes its value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::{FamilyOptions, MergeOperator};
    /// let options = FamilyOptions::default().merge_operator(MergeOperator::add());
    /// let visits = db.create_family("visits", options)?;
    /// let mut batch = tidesdb::WriteBatch::new();
    /// batch.merge(&visits, "page", 2u64.to_le_bytes())?;
    /// batch.merge(&visits, "page", 3u64.to_le_bytes())?;
    /// db.write(&mut batch)?;
    /// assert_eq!(visits.get("page")?.as_deref(), Some(&5u64.to_le_bytes()[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; `InvalidArgument` if the family has no merge operator, or if the operator refuses the operand
    /// ([`MergeOperator::check_operands`](crate::MergeOperator::check_operands)). `Merge` if the operator is not known here. The batch is as
    /// before.
    pub fn merge(&mut self, family: &Family, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        check_key(key)?;
        check_value(operand)?;
        family.core.check_merge(operand)?;
        self.push(family, Kind::Merge, 0, key, operand)
    }

    /// Deletes all keys in `range`, in the order of the family, at the cost of one operation. Covers existing keys and keys put earlier in
    /// this batch: those that [`Family::range`](crate::Family::range) would show. An empty range deletes nothing. A bound may be longer
    /// than a key in byte order and reverse byte order. In reverse byte order an excluded start takes 64 KiB of the log: it is stored as the
    /// key after it, which is that long.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for n in 0..9u8 { db.put(&[n], b"v")?; }
    /// let mut batch = tidesdb::WriteBatch::new();
    /// batch.delete_range(db.default_family(), [2u8]..[7])?;
    /// batch.put(db.default_family(), &[4], b"new")?;
    /// db.write(&mut batch)?;
    /// let keys: Vec<u8> = db.iter()?.map(|kv| kv.map(|(k, _)| k[0])).collect::<Result<_, _>>()?;
    /// assert_eq!(keys, [0, 1, 4, 7, 8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for too long a batch, for an empty bound in an order other than byte order, and for bounds that a custom key order
    /// cannot represent: an excluded start, and a bound longer than a key. The batch is as before.
    pub fn delete_range(&mut self, family: &Family, range: impl KeyRange) -> Result<()> {
        let order = &family.core.options.comparator;
        let (start, end) = range.bounds();
        let (start, end) = (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
        let Some(interval) = Interval::new(order, start, end)? else { return Ok(()) };
        let (start, end) = (interval.start.unwrap_or_default(), interval.end.unwrap_or_default());
        let range = (Kind::RangeDelete, &*start, &*end);
        match interval.last {
            None => self.add(family, 0, [range]),
            Some(last) => self.add(family, 0, [range, (Kind::Delete, &*last, &[])]),
        }
    }

    /// Deletes all keys that begin with `prefix`, at the cost of one operation: those that [`Family::prefix`](crate::Family::prefix) would
    /// show, in the same key orders. A prefix longer than a key deletes nothing.
    ///
    /// # Errors
    /// As [`Family::prefix_range`](crate::Family::prefix_range) and [`WriteBatch::delete_range`].
    pub fn delete_prefix(&mut self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range(family, prefix_range(&family.core.options.comparator, prefix.as_ref())?)
    }

    /// Appends the operations of `other`, of the same database, behind those of this batch. `other` keeps them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::WriteBatch;
    /// let (mut first, mut second) = (WriteBatch::new(), WriteBatch::new());
    /// first.put(db.default_family(), "apple", "3")?;
    /// second.delete_prefix(db.default_family(), "a")?;
    /// second.put(db.default_family(), "avocado", "1")?;
    /// first.append(&second)?;
    /// db.write(&mut first)?;
    /// assert!(db.get("apple")?.is_none() && db.get("avocado")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a batch of another database, for too long a batch, and if a commit of `other` failed so late that its operations
    /// are gone; `MemoryLimit`, as [`WriteBatch::put`]. The batch is as before.
    pub fn append(&mut self, other: &Self) -> Result<()> {
        let Some(core) = other.families.first() else { return Ok(()) };
        if self.families.first().is_some_and(|own| !Arc::ptr_eq(&own.memory, &core.memory)) {
            return Err(Error::invalid("the batches are of different databases"));
        }
        if self.is_freed() || other.is_freed() {
            return Err(Error::invalid(
                "a commit of this batch failed, and its operations are gone: clear it",
            ));
        }
        let (wanted, ops) = (self.record.len() + other.body_bytes(), self.len() + other.len());
        if wanted > self.room || ops > self.ops_room {
            let room = self.charge_room(&core.memory, wanted, ops)?;
            self.record.reserve_exact(room.saturating_sub(self.record.len()));
            self.room = room;
        }
        for op in other.ops_from(0) {
            let op = op?; // other has only what this type has encoded
            if let Some(family) = other.family(op.family) {
                self.append_op(family, op.kind, op.expiry, op.key, op.value);
            }
        }
        self.leases.extend(other.leases.iter().cloned());
        self.counts.chunked_bytes += other.counts.chunked_bytes;
        for (family, bytes) in other.chunked_bytes() {
            if let Some(at) = self.families.iter().position(|own| own.id == family) {
                self.user_bytes[at] += bytes;
            }
        }
        Ok(())
    }

    /// The bytes of values in chunks, each with its family.
    fn chunked_bytes(&self) -> impl Iterator<Item = (FamilyId, u64)> {
        let chunked = |op: Op<'_>| {
            let place = if op.kind.holds_pointer() { ChunkedPlace::decode(op.value) } else { None };
            place.map(|place| (op.family, place.len))
        };
        self.ops_from(0).flatten().filter_map(chunked)
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.counts.ops as usize
    }

    /// Returns true if there is no operation.
    pub fn is_empty(&self) -> bool {
        self.counts.ops == 0
    }

    /// Bytes that the batch takes in memory and in the log. Values of 8 MiB and more are not part of it: they are in value logs.
    pub fn bytes(&self) -> usize {
        self.record.len()
    }

    /// Returns true if one operation with keys and a value of `bytes` is added without more memory, so without a wait for it.
    #[doc(hidden)]
    #[inline]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.record.len() + bytes + OP_BYTES <= self.room && self.len() < self.ops_room
    }

    /// Removes all operations. Keeps the memory, up to 1 MiB.
    pub fn clear(&mut self) {
        self.clear_but(KEPT_BYTES_MAX);
    }

    /// Removes all operations after a commit. Keeps the memory for the next ones: up to 8 MiB if there is `ample` memory, otherwise 1 MiB.
    pub(super) fn recycle(&mut self, ample: impl FnOnce() -> bool) {
        let is_kept = self.room > KEPT_BYTES_MAX && ample();
        self.clear_but(if is_kept { KEPT_AFTER_COMMIT } else { KEPT_BYTES_MAX });
    }

    /// Frees the memory of an empty batch beyond 64 KiB, which its next use may not need.
    #[inline]
    pub(crate) fn trim(&mut self) {
        if self.room > KEPT_BY_THREAD_MAX {
            self.clear_but(KEPT_BY_THREAD_MAX);
        }
    }

    /// Removes all operations. Keeps the memory, up to `kept` bytes.
    fn clear_but(&mut self, kept: usize) {
        self.restore_values();
        self.record.truncate(RECORD_HEADER_BYTES);
        if self.room > kept || self.is_freed() {
            self.record.shrink_to(self.free_room);
            self.room = self.free_room;
            self.charge.release();
        }
        (self.freed, self.ops_room) = (0, OPS_FREE);
        self.counts = Counts::default();
        self.families.clear();
        self.user_bytes.clear();
        self.leases.clear();
    }

    /// Takes back the values that a commit moved to the value log, because it was refused: the next commit of the batch and its hooks
    /// find all operations in the record.
    pub(super) fn restore_values(&mut self) {
        if let Some(whole) = self.whole.take() {
            self.record = whole;
        }
    }

    /// Returns true if an operation is for `family`.
    pub(crate) fn has_family(&self, family: &Arc<FamilyCore>) -> bool {
        self.families.iter().any(|f| Arc::ptr_eq(f, family))
    }

    /// The family with this id, if an operation is for it.
    pub(crate) fn family(&self, id: FamilyId) -> Option<&Arc<FamilyCore>> {
        self.families.iter().find(|f| f.id == id)
    }

    /// How much of a nearly full disk the batch may use.
    pub(super) fn purpose(&self) -> Purpose {
        if self.counts.puts == 0 { Purpose::Relief } else { Purpose::Store }
    }

    /// Returns true if the writers behind it wait while it is inserted.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.record.len() >= LARGE_BYTES_MIN
    }

    /// Memory that the operations will take in memtables, about.
    pub(super) fn inserted_bytes(&self) -> u64 {
        self.record.len() as u64 + u64::from(self.counts.ops) * INSERTED_BYTES
    }

    /// Returns whether this memory is kept for the commit before it begins.
    #[inline]
    pub(super) fn needs_much(&self) -> bool {
        self.inserted_bytes() >= LARGE_BYTES_MIN as u64
    }

    /// Bytes of all operations.
    pub(crate) fn body_bytes(&self) -> usize {
        self.record.len() - RECORD_HEADER_BYTES
    }

    /// The operations after the first `bytes` bytes of the body.
    pub(crate) fn ops_from(&self, bytes: usize) -> impl Iterator<Item = Result<Op<'_>>> {
        self.ops_after(bytes, None)
    }

    /// The operations after the first `bytes` bytes of the body; `rank` of those have a rank.
    pub(super) fn ops_after(&self, bytes: usize, rank: Option<u32>) -> Ops<'_> {
        decode_ops(&self.record[RECORD_HEADER_BYTES + bytes..], "a batch in memory", bytes as u64, rank)
    }

    /// Returns the memory of the first `bytes` bytes of the body to the system. These operations are then lost.
    #[cold]
    pub(super) fn free_front(&mut self, bytes: usize) {
        self.freed = self.record.free_front(RECORD_HEADER_BYTES + bytes);
        if let Some(family) = self.families.first() {
            self.charge.set(&family.memory, self.room.saturating_sub(self.freed) as u64);
        }
    }

    /// Returns true if operations were lost, see [`WriteBatch::free_front`].
    pub(super) fn is_freed(&self) -> bool {
        self.freed > 0
    }

    /// The current position, for [`WriteBatch::cut_back`].
    pub(crate) fn mark(&self) -> Mark {
        Mark { body_bytes: self.body_bytes(), counts: self.counts, families: self.families.len() }
    }

    /// Removes all operations added after `mark`.
    pub(crate) fn cut_back(&mut self, mark: Mark) {
        let mut user_bytes = std::mem::take(&mut self.user_bytes);
        for op in self.ops_from(mark.body_bytes).flatten() {
            if let Some(at) = self.families.iter().position(|family| family.id == op.family) {
                user_bytes[at] -= user_bytes_of(&op);
            }
        }
        self.user_bytes = user_bytes;
        self.user_bytes.truncate(mark.families);
        self.families.truncate(mark.families);
        self.record.truncate(RECORD_HEADER_BYTES + mark.body_bytes);
        self.counts = mark.counts;
    }

    /// Sets `key` to the chunked value at `place`, whose files `leases` keep.
    pub(crate) fn put_chunks(
        &mut self,
        family: &Family,
        key: &[u8],
        place: &ChunkedPlace,
        leases: Vec<Lease>,
        expiry: u64,
    ) -> Result<()> {
        self.push(family, Kind::PutPointer, expiry, key, &place.encode())?;
        self.leases.extend(leases);
        self.counts.chunked_bytes += place.len;
        if let Some(at) = self.families.iter().position(|f| Arc::ptr_eq(f, &family.core)) {
            self.user_bytes[at] += place.len;
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, family: &Family, kind: Kind, expiry: u64, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(family, expiry, [(kind, key, value)])
    }

    /// Adds operations, all or none: everything that can fail is done before the first of them is added. There is no other way into a
    /// batch.
    #[inline]
    fn add<const N: usize>(
        &mut self,
        family: &Family,
        expiry: u64,
        ops: [(Kind, &[u8], &[u8]); N],
    ) -> Result<()> {
        let mut wanted = self.record.len();
        for (kind, key, value) in ops {
            if !kind.is_range() {
                check_key(key)?;
                check_value(value)?;
            }
            wanted += key.len() + value.len() + OP_BYTES;
        }
        let count = self.len() + N;
        if wanted > self.room || count > self.ops_room {
            self.grow(family, wanted, count)?;
        }
        for (kind, key, value) in ops {
            self.append_op(&family.core, kind, expiry, key, value);
        }
        Ok(())
    }

    /// Charges the memory of a record of `wanted` bytes and more, with `ops` operations, and gets it.
    #[cold]
    fn grow(&mut self, family: &Family, wanted: usize, ops: usize) -> Result<()> {
        let memory = &family.core.memory;
        let (before, ops_before) = (self.charge.bytes(), self.ops_room);
        let room = self.charge_room(memory, wanted, ops)?;
        family.ctx.wait_for_memory().inspect_err(|_| {
            self.charge.set(memory, before);
            self.ops_room = ops_before;
        })?;
        self.record.reserve_exact(room.saturating_sub(self.record.len()));
        self.room = room;
        Ok(())
    }

    /// Charges the memory of a record of `wanted` bytes and more, and finds room for what its commit will take beside it. Returns its length.
    fn charge_room(&mut self, memory: &Arc<Memory>, wanted: usize, ops: usize) -> Result<usize> {
        if wanted > BATCH_BYTES_MAX {
            let gib = BATCH_BYTES_MAX.div_ceil(1 << 30);
            return Err(Error::invalid(format!("a batch is limited to {gib} GiB; split it")));
        }
        let least = self.room;
        let room_of = |part: usize| (wanted + (wanted / part).min(ROOM_MAX)).min(BATCH_BYTES_MAX).max(least);
        let ample = match wanted {
            ..BLANK_ROOM => self.record.capacity(),
            BLANK_ROOM..=DOUBLING_MAX => room_of(1),
            _ => room_of(ROOM_PART),
        };
        // The room may be filled by rows as long as those before. If they are shorter, this is called again.
        let filled = (ops as u128 * ample as u128 / wanted.max(1) as u128) as usize;
        let tries = [(ample, filled.min(2 * ops)), (room_of(SCANT_ROOM_PART), ops)];
        let mut grow = |(room, ops): (usize, usize)| {
            let later = (ops as u64).saturating_mul(INSERTED_BYTES);
            self.charge.grow_beside(memory, (room + size_of::<Self>()) as u64, later)
        };
        let mut done = tries[0];
        let mut grown = grow(done);
        if grown.is_err() {
            tidesdb_sync::release_kept(); // batches that threads keep for their next call count, too
            grown = grow(done);
        }
        if grown.is_err() {
            done = tries[1];
            grown = grow(done);
        }
        grown?;
        self.ops_room = done.1.max(OPS_FREE);
        Ok(done.0)
    }

    fn append_op(&mut self, family: &Arc<FamilyCore>, kind: Kind, expiry: u64, key: &[u8], value: &[u8]) {
        let known = self.families.iter().rposition(|f| Arc::ptr_eq(f, family));
        let at = known.unwrap_or_else(|| {
            self.families.push(Arc::clone(family));
            self.user_bytes.push(0);
            self.families.len() - 1
        });
        self.counts.ranks += u32::from(kind.is_ranked());
        let op = Op { family: family.id, kind, expiry, key, value, rank: self.counts.ranks };
        encode_op(&mut self.record, &op);
        self.counts.ops += 1;
        self.counts.puts += u32::from(!kind.is_tombstone());
        if kind.is_range() {
            self.counts.range_bytes += RangeTombstone::bytes_of(key.len(), value.len()) as u64;
        }
        if kind.holds_value() {
            self.counts.value_bytes_max = self.counts.value_bytes_max.max(value.len()); // others do not go to the value log
        }
        self.user_bytes[at] += (key.len() + value.len()) as u64;
    }
}

/// Checks the length of a key.
///
/// # Errors
/// `InvalidArgument`.
#[inline]
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one {}", key.len())));
    }
    Ok(())
}

#[inline]
fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::invalid("a value is limited to 4 GiB"));
    }
    Ok(())
}

/// Bytes of the key and the value of `op`, wherever the value lies.
fn user_bytes_of(op: &Op<'_>) -> u64 {
    let chunked = if op.kind.holds_pointer() { ChunkedPlace::decode(op.value) } else { None };
    (op.key.len() + op.value.len()) as u64 + chunked.map_or(0, |place| place.len)
}

/// A position in a batch: what is before it.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Bytes of the operations.
    pub(crate) body_bytes: usize,
    pub(crate) counts: Counts,
    /// Number of their families.
    pub(crate) families: usize,
}
