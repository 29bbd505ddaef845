//! A [`Snapshot`]: all families at one moment.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::mvcc::SnapshotPin;
use crate::options::ReadOptions;
use crate::read::{self, Cursor, Iter};
use crate::shared::{Family, ReadCtx};
use crate::types::{SeqNo, Slice};
use crate::{Error, Result};

/// A view of the whole database as it was when the snapshot was taken. Cheap to clone; keeps old versions alive.
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
#[derive(Clone, Debug)]
pub struct Snapshot {
    reads: Arc<ReadCtx>,
    pin: SnapshotPin,
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
        match reads.snapshots.register_at(seq) {
            Ok(pin) => Ok(Self { pin, reads: Arc::clone(reads) }),
            Err(floor) => Err(Error::invalid(format!(
                "sequence number {seq} is no longer kept; the oldest is {floor}; see history_bytes"
            ))),
        }
    }

    /// Sequence numbers of one database mean nothing in another.
    fn check(&self, family: &Family) -> Result<()> {
        if Arc::ptr_eq(&self.reads, &family.shared.reads) {
            return Ok(());
        }
        Err(Error::invalid("a snapshot reads families of its own database only"))
    }

    /// The newest sequence number it sees.
    pub fn seq(&self) -> SeqNo {
        self.pin.seq()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Family::get`]. So for all reads.
    pub fn get(&self, family: &Family, key: &[u8]) -> Result<Option<Slice>> {
        self.check(family)?;
        read::get(&self.reads, &family.core, key, Some(self.seq()))
    }

    /// Whether `key` exists.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn contains(&self, family: &Family, key: &[u8]) -> Result<bool> {
        self.check(family)?;
        read::contains(&self.reads, &family.core, key, Some(self.seq()))
    }

    /// The values of many keys, in the order asked for.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, family: &Family, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.check(family)?;
        read::multi_get(&self.reads, &family.core, keys, Some(self.seq()))
    }

    /// All keys and values, in order.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        Ok(Iter::new::<&[u8]>(self.cursor(family)?, ..))
    }

    /// The keys in `range`, with their values.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn range<B: AsRef<[u8]>>(&self, family: &Family, range: impl RangeBounds<B>) -> Result<Iter> {
        Ok(Iter::new(self.cursor(family)?, range))
    }

    /// The keys that begin with `prefix`, with their values.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn prefix(&self, family: &Family, prefix: &[u8]) -> Result<Iter> {
        Ok(Iter::with_prefix(self.cursor(family)?, prefix))
    }

    /// A cursor over the keys.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.cursor_with(family, &ReadOptions::default())
    }

    /// A cursor with options.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn cursor_with(&self, family: &Family, options: &ReadOptions) -> Result<Cursor> {
        self.check(family)?;
        Cursor::new(&self.reads, &family.core, Some(self.pin.clone()), *options)
    }
}
