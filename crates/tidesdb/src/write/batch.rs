//! A batch of operations that are committed together. Its buffer is the body of a log record.
//!
//! One operation: `kind u8 (high bit: has expiry) | family varint | key length varint | value length varint |
//! [expiry u32] | key | value`. The layout is part of `docs/formats/wal.md`.

use std::sync::Arc;
use std::time::Duration;

use crate::codec::{Decoder, put_varint};
use crate::family::FamilyCore;
use crate::shared::Family;
use crate::types::{FamilyId, KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX};
use crate::wal::layout::RECORD_HEADER_BYTES;
use crate::{Error, Result};

const HAS_EXPIRY: u8 = 0x80;
/// Longest body of a record, with room for pointers to take the place of values.
const BATCH_BYTES_MAX: usize = (1 << 32) - (1 << 20);

/// Operations over any families of one database, committed all or none.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// let users = db.family_or_create("users", Default::default())?;
/// let mails = db.family_or_create("mails", Default::default())?;
/// let mut batch = db.batch();
/// batch.put(&users, b"ann", b"ann@example.org")?;
/// batch.put(&mails, b"ann@example.org", b"ann")?;
/// db.write(&mut batch)?;
/// assert!(batch.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WriteBatch {
    /// Room for the record's header, then the operations.
    pub(super) record: Vec<u8>,
    pub(super) ops: u32,
    pub(super) value_bytes_max: usize,
    pub(super) families: Vec<Arc<FamilyCore>>,
    /// Bytes of keys and values for each of them.
    pub(super) user_bytes: Vec<u64>,
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
            record: vec![0; RECORD_HEADER_BYTES],
            ops: 0,
            value_bytes_max: 0,
            families: Vec::new(),
            user_bytes: Vec::new(),
        }
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty or too long key, a too long value or batch. The batch is as before.
    pub fn put(&mut self, family: &Family, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(family, Kind::Put, 0, key, value)
    }

    /// Sets `key` to `value` for `ttl`, counted from now in whole seconds (at least one).
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn put_ttl(&mut self, family: &Family, key: &[u8], value: &[u8], ttl: Duration) -> Result<()> {
        let expiry = family.shared.env.clock.wall_secs().saturating_add(ttl.as_secs().max(1));
        self.put_expiring(family, key, value, u32::try_from(expiry).unwrap_or(u32::MAX))
    }

    /// Sets `key` to `value` until `expiry`, in seconds since the UNIX epoch; 0 = for ever.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn put_expiring(&mut self, family: &Family, key: &[u8], value: &[u8], expiry: u32) -> Result<()> {
        self.push(family, Kind::Put, expiry, key, value)
    }

    /// Deletes `key`, whether it exists or not.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, family: &Family, key: &[u8]) -> Result<()> {
        self.push(family, Kind::Delete, 0, key, &[])
    }

    /// Deletes `key`, which was put at most once since it was last deleted; cheaper to forget than [`WriteBatch::delete`].
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn single_delete(&mut self, family: &Family, key: &[u8]) -> Result<()> {
        self.push(family, Kind::SingleDelete, 0, key, &[])
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops as usize
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// Bytes the batch takes in the log.
    pub fn bytes(&self) -> usize {
        self.record.len()
    }

    /// Forgets all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.record.truncate(RECORD_HEADER_BYTES);
        self.ops = 0;
        self.value_bytes_max = 0;
        self.families.clear();
        self.user_bytes.clear();
    }

    /// Whether an operation is for `family`.
    pub(crate) fn has_family(&self, family: &Arc<FamilyCore>) -> bool {
        self.families.iter().any(|f| Arc::ptr_eq(f, family))
    }

    /// The family of that number, if an operation is for it.
    pub(crate) fn family(&self, id: FamilyId) -> Option<&Arc<FamilyCore>> {
        self.families.iter().find(|f| f.id == id)
    }

    /// Bytes of all operations.
    pub(crate) fn body_bytes(&self) -> usize {
        self.record.len() - RECORD_HEADER_BYTES
    }

    /// The operations after the first `bytes` bytes of them.
    pub(crate) fn ops_from(&self, bytes: usize) -> impl Iterator<Item = Result<Op<'_>>> {
        ops(&self.record[RECORD_HEADER_BYTES + bytes..], "a batch in memory", bytes as u64)
    }

    /// Where the batch is now, to come back to.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            bytes: self.record.len(),
            ops: self.ops,
            value_bytes_max: self.value_bytes_max,
            user_bytes: self.user_bytes.clone(),
        }
    }

    /// Forgets what came after `mark`.
    pub(crate) fn cut_back(&mut self, mark: &Mark) {
        self.record.truncate(mark.bytes);
        self.ops = mark.ops;
        self.value_bytes_max = mark.value_bytes_max;
        self.families.truncate(mark.user_bytes.len());
        self.user_bytes.clone_from(&mark.user_bytes);
    }

    fn push(&mut self, family: &Family, kind: Kind, expiry: u32, key: &[u8], value: &[u8]) -> Result<()> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a key has 1 to {KEY_BYTES_MAX} bytes, this one {}",
                key.len()
            )));
        }
        if value.len() > VALUE_BYTES_MAX || self.record.len() + key.len() + value.len() > BATCH_BYTES_MAX {
            return Err(Error::invalid("a value or batch is limited to 4 GiB; split it"));
        }
        let known = self.families.iter().rposition(|f| Arc::ptr_eq(f, &family.core));
        let at = known.unwrap_or_else(|| {
            self.families.push(Arc::clone(&family.core));
            self.user_bytes.push(0);
            self.families.len() - 1
        });
        encode_op(&mut self.record, &Op { family: family.core.id, kind, expiry, key, value });
        self.ops += 1;
        self.value_bytes_max = self.value_bytes_max.max(value.len());
        self.user_bytes[at] += (key.len() + value.len()) as u64;
        Ok(())
    }
}

/// A place in a batch.
#[derive(Clone, Debug)]
pub struct Mark {
    bytes: usize,
    ops: u32,
    value_bytes_max: usize,
    user_bytes: Vec<u64>,
}

/// One decoded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op<'a> {
    /// The family it is for.
    pub family: FamilyId,
    /// What it does.
    pub kind: Kind,
    /// Expiry in UNIX seconds; 0 = none.
    pub expiry: u32,
    /// The key.
    pub key: &'a [u8],
    /// The value or pointer.
    pub value: &'a [u8],
}

/// Appends an operation.
pub(super) fn encode_op(out: &mut Vec<u8>, op: &Op<'_>) {
    out.reserve(op.key.len() + op.value.len() + 24);
    out.push(op.kind as u8 | if op.expiry != 0 { HAS_EXPIRY } else { 0 });
    put_varint(out, u64::from(op.family.0));
    put_varint(out, op.key.len() as u64);
    put_varint(out, op.value.len() as u64);
    if op.expiry != 0 {
        out.extend_from_slice(&op.expiry.to_le_bytes());
    }
    out.extend_from_slice(op.key);
    out.extend_from_slice(op.value);
}

/// The operations of a record's body, which lies at `base` of `file`.
pub fn ops<'a>(body: &'a [u8], file: &'a str, base: u64) -> impl Iterator<Item = Result<Op<'a>>> {
    let mut d = Decoder::new(body, file, base);
    std::iter::from_fn(move || (d.remaining() > 0).then(|| decode_op(&mut d)))
}

#[inline]
fn decode_op<'a>(d: &mut Decoder<'a>) -> Result<Op<'a>> {
    let first = d.u8()?;
    let kind = Kind::from_u8(first & !HAS_EXPIRY).ok_or_else(|| d.corrupt("unknown kind of operation"))?;
    let family = u32::try_from(d.varint()?).map_err(|_| d.corrupt("family number too large"))?;
    let key_len = d.length(KEY_BYTES_MAX)?;
    let value_len = d.length(VALUE_BYTES_MAX)?;
    let expiry = if first & HAS_EXPIRY != 0 { d.u32()? } else { 0 };
    if key_len == 0 {
        return Err(d.corrupt("empty key"));
    }
    Ok(Op { family: FamilyId(family), kind, expiry, key: d.take(key_len)?, value: d.take(value_len)? })
}
