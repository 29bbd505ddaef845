//! [`Snapshot`]: a view of all families at one read timestamp.

use std::fmt;
use std::sync::Arc;

use crate::context::ReadCtx;
use crate::mvcc::SnapshotPin;
use crate::options::ReadOptions;
use crate::read::{self, Cursor, Iter};
use crate::types::{KeyRange, SeqNo, Slice};
use crate::write::Family;
use crate::{Error, Result};

/// A view of the whole database as of the time it was taken. Cheap to clone; retains the old versions it can see.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// db.put(b"k", b"old")?;
/// let before = db.snapshot();
/// db.put(b"k", b"new")?;
/// assert_eq!(before.get(db.default_family(), b"k")?.as_deref(), Some(&b"old"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    reads: Arc<ReadCtx>,
    pin: SnapshotPin,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seq", &self.seq()).finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(super) fn new(reads: &Arc<ReadCtx>) -> Self {
        Self { pin: reads.register_snapshot(), reads: Arc::clone(reads) }
    }

    pub(super) fn at(reads: &Arc<ReadCtx>, seq: SeqNo) -> Result<Self> {
        reads.check_open()?;
        let newest = reads.visible();
        if seq > newest {
            return Err(Error::invalid(format!(
                "sequence number {seq} is not reached yet; the newest is {newest}"
            )));
        }
        match reads.snapshots.register_at(seq, reads.now()) {
            Ok(pin) => Ok(Self { pin, reads: Arc::clone(reads) }),
            Err(floor) => Err(Error::invalid(format!(
                "sequence number {seq} is no longer kept; the oldest is {floor}; see history_bytes"
            ))),
        }
    }

    /// Rejects families of another database: sequence numbers of one database mean nothing in another.
    pub(super) fn check(&self, family: &Family) -> Result<()> {
        if Arc::ptr_eq(&self.reads, &family.ctx.reads) {
            return Ok(());
        }
        Err(Error::invalid("a snapshot reads families of its own database only"))
    }

    /// Returns the newest sequence number that the snapshot sees.
    pub fn seq(&self) -> SeqNo {
        self.pin.seq()
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// As [`Family::get`]. The same holds for all reads.
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.check(family)?;
        read::get(&self.reads, &family.core, key.as_ref(), Some(self.seq()))
    }

    /// Returns the result of `read` for the value of `key`, which is not copied: `get(family, key)?.map(read)` without the copy.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn get_map<R>(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.check(family)?;
        read::get_map(&self.reads, &family.core, key.as_ref(), Some(self.seq()), read)
    }

    /// Returns whether `key` exists.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn contains(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check(family)?;
        read::contains(&self.reads, &family.core, key.as_ref(), Some(self.seq()))
    }

    /// Returns the values of many keys, in the order of `keys`.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, family: &Family, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.check(family)?;
        read::multi_get(&self.reads, &family.core, keys, Some(self.seq()))
    }

    /// Returns whether each of many keys exists, in the order of `keys`, without reading a value.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn multi_contains<K: AsRef<[u8]>>(&self, family: &Family, keys: &[K]) -> Result<Vec<bool>> {
        self.check(family)?;
        read::multi_contains(&self.reads, &family.core, keys, Some(self.seq()))
    }

    /// Returns the first key and its value.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn first(&self, family: &Family) -> Result<Option<(Slice, Slice)>> {
        self.ends(family)?.next().transpose()
    }

    /// Returns the last key and its value.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn last(&self, family: &Family) -> Result<Option<(Slice, Slice)>> {
        self.ends(family)?.next_back().transpose()
    }

    /// Iterates over all rows within one call.
    fn ends(&self, family: &Family) -> Result<Iter> {
        self.check(family)?;
        Ok(Iter::new(Cursor::of_call(&self.reads, &family.core, Some(&self.pin))?, ..))
    }

    /// Iterates over all keys and values in order.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        Ok(Iter::new(self.cursor(family)?, ..))
    }

    /// Iterates over the keys in `range` and their values.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn range(&self, family: &Family, range: impl KeyRange) -> Result<Iter> {
        Ok(Iter::new(self.cursor(family)?, range))
    }

    /// Iterates over the keys that begin with `prefix` and their values.
    ///
    /// # Errors
    /// As [`Family::prefix`].
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Iter::with_prefix(self.cursor(family)?, prefix.as_ref())
    }

    /// Returns a cursor over the keys.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.cursor_with(family, &ReadOptions::default())
    }

    /// Returns a cursor with options.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn cursor_with(&self, family: &Family, options: &ReadOptions) -> Result<Cursor> {
        self.check(family)?;
        Cursor::new(&self.reads, &family.core, Some(&self.pin), *options)
    }
}
