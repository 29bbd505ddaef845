//! [`Entry`]: how a reader sees a version, and [`ValueHandle`], which outlives the borrow.
//!
//! Invariant: the bytes of both lie in the arena of one memtable, which never changes or moves them; an entry
//! borrows that memtable, a handle shares it. Threads: both may be used and sent anywhere.

use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::Memtable;
use crate::record::RecordRef;

/// One version, borrowed from the memtable, which keeps it unchanged until it drops.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Sequence number.
    pub seq: u64,
    /// Kind, as inserted.
    pub kind: u8,
    /// Expiry, as inserted.
    pub expiry: u32,
    /// The value, possibly empty.
    pub value: &'a [u8],
    /// Private, so that nobody else can make an entry or change where it lies.
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

    /// A handle on the value. The entry must be one of `memtable`'s own.
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

/// A value that keeps its memtable alive. Cloning shares it.
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
        // SAFETY: the value of a published record of the memtable that the Arc keeps.
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
