//! [`Entry`]: a version as readers see it, and [`ValueHandle`], which outlives the borrow.
//!
//! Invariant: the bytes of both are in the arena of one memtable, which never changes or moves them. An entry
//! borrows that memtable; a handle shares its ownership. Threads: both may be used by and sent to any thread.

use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::Memtable;
use crate::record::RecordRef;

/// One version, borrowed from its memtable. It does not change while the memtable lives.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Sequence number.
    pub seq: u64,
    /// Kind, as inserted.
    pub kind: u8,
    /// Expiry, as inserted.
    pub expiry: u64,
    /// The value, possibly empty.
    pub value: &'a [u8],
    /// Private, so that only this crate can create an entry or change its record.
    record: RecordRef<'a>,
    owner: *const Memtable,
}

// SAFETY: an entry is a shared borrow of a memtable, which is Sync; the raw pointer is only compared.
unsafe impl Send for Entry<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for Entry<'_> {}

impl<'a> Entry<'a> {
    #[inline]
    pub(super) fn new(record: RecordRef<'a>, owner: &'a Memtable) -> Self {
        Entry {
            key: record.key(),
            seq: record.seq() + owner.base,
            kind: record.kind(),
            expiry: record.expiry(),
            value: record.value(),
            record,
            owner,
        }
    }

    /// Creates a handle to the value. The entry must belong to `memtable`.
    pub(super) fn handle(&self, memtable: &Arc<Memtable>) -> ValueHandle {
        assert!(ptr::eq(self.owner, Arc::as_ptr(memtable)), "the entry belongs to another memtable");
        let value = NonNull::from(self.record.value());
        ValueHandle { value, _memtable: Arc::clone(memtable) }
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key.escape_ascii().to_string())
            .field("seq", &self.seq)
            .field("kind", &self.kind)
            .field("expiry", &self.expiry)
            .field("value_len", &self.value.len())
            .finish()
    }
}

/// A value that keeps its memtable alive. Clones share it.
#[derive(Clone)]
pub struct ValueHandle {
    value: NonNull<[u8]>,
    _memtable: Arc<Memtable>,
}

// SAFETY: the bytes never change and live as long as the Arc; a Memtable is Send and Sync.
unsafe impl Send for ValueHandle {}
// SAFETY: as for Send.
unsafe impl Sync for ValueHandle {}

impl Deref for ValueHandle {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the value of a published record, in the memtable that the Arc keeps alive.
        unsafe { self.value.as_ref() }
    }
}

impl AsRef<[u8]> for ValueHandle {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for ValueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueHandle").field("len", &self.len()).finish()
    }
}
