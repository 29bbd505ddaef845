//! Records: the layout of one version of a key in the arena.
//!
//! ```text
//! [expiry: u64] | next: ptr | seq: u64 | value_len: u32 | key_len: 17 bits, run: 6, expires: 1, kind: 8 | key | value
//! ```
//!
//! A record that expires has its expiry before the head, so that the key is at the same place in all records.
//! Invariants: a record is written completely before it is published; only `next` changes afterwards.
//! `chain.rs` explains how the versions of a key are linked, and what `run` counts.
//! Threads: all fields but `next` are plain memory. The publishing store releases them, and every path to a
//! record acquires them (a validated node or an Acquire load of a link).

mod chain;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, offset_of, size_of};
use std::ptr::{self, NonNull};

use crate::arena::Arena;
use crate::sync::{AtomicPtr, Born, Ordering, fetch};

/// Metadata of an inserted version. This crate interprets only `seq`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// Sequence number. Higher is newer.
    pub seq: u64,
    /// Kind of the version (a put, a tombstone, ...).
    pub kind: u8,
    /// Expiry time of the version, in the caller's unit. Any time but 0 takes eight bytes.
    pub expiry: u64,
}

/// The memtable's memory is exhausted; nothing was inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemtableFull;

impl fmt::Display for MemtableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the memtable has no memory left")
    }
}

impl std::error::Error for MemtableFull {}

/// The head of a version in the arena. Key and value follow at [`KEY_AT`].
#[repr(C)]
pub(crate) struct Record {
    born: Born,
    /// The next older version of the key, or a marked pointer to a skip, see `chain.rs`.
    next: AtomicPtr<Record>,
    seq: u64,
    value_len: u32,
    /// key_len << 15 | run << 9 | expires << 8 | kind
    key_len_run_kind: u32,
}

/// Offset of the key: it follows the head.
const KEY_AT: usize = offset_of!(Record, key_len_run_kind) + size_of::<u32>();
/// Length of the expiry before the head, which has the alignment of the head.
const EXPIRY_BYTES: usize = size_of::<u64>();
const _: () =
    assert!(EXPIRY_BYTES.is_multiple_of(align_of::<Record>()) && align_of::<Record>() >= align_of::<u64>());
/// Bytes of a record that are prefetched at most: of a long one, the processor itself fetches what follows.
const FETCHED_MAX: usize = 512;
/// Set in `key_len_run_kind` of a record that expires.
const EXPIRES: u32 = 1 << 8;
/// Bits of `key_len_run_kind` that hold the kind and [`EXPIRES`].
const KIND_BITS: u32 = 9;
/// Bits of `key_len_run_kind` that hold the kind, [`EXPIRES`] and the run.
const KIND_RUN_BITS: u32 = KIND_BITS + 6;
/// Longest key: its length has the remaining 17 bits.
const MAX_KEY: usize = (1 << (u32::BITS - KIND_RUN_BITS)) - 1;

/// A published or private record that lives for `'a`, with provenance over all its bytes, also those before the head.
#[derive(Clone, Copy)]
pub(crate) struct RecordRef<'a> {
    ptr: NonNull<Record>,
    _life: PhantomData<&'a Record>,
}

impl<'a> RecordRef<'a> {
    /// Copies a version into the arena. It is private until its pointer is published.
    pub(crate) fn create(
        arena: &'a Arena,
        key: &[u8],
        version: Version,
        value: &[u8],
    ) -> Result<RecordRef<'a>, MemtableFull> {
        if key.len() > MAX_KEY {
            return Err(MemtableFull);
        }
        let value_len = u32::try_from(value.len()).map_err(|_| MemtableFull)?;
        let before = if version.expiry == 0 { 0 } else { EXPIRY_BYTES };
        let size = before + (KEY_AT + key.len() + value.len()).max(size_of::<Record>());
        let mut start = arena.alloc_entry(size, align_of::<Record>()).ok_or(MemtableFull)?;
        let mut kind = u32::from(version.kind);
        if before > 0 {
            kind |= EXPIRES;
            // SAFETY: `start` has `size` fresh bytes, of which the first eight are for the expiry, aligned for a record.
            unsafe { start.cast::<u64>().write(version.expiry) };
            // SAFETY: the head follows within the same bytes, as aligned as they are.
            start = unsafe { start.add(EXPIRY_BYTES) };
        }
        let head = Record {
            born: Born::new(),
            next: AtomicPtr::new(ptr::null_mut()),
            seq: version.seq,
            value_len,
            key_len_run_kind: (key.len() as u32) << KIND_RUN_BITS | kind,
        };
        let ptr = start.cast::<Record>();
        // SAFETY: `start` has at least size_of::<Record>() fresh bytes of its alignment.
        unsafe { ptr.write(head) };
        // SAFETY: KEY_AT + key.len() + value.len() <= size.
        let key_at = unsafe { start.as_ptr().add(KEY_AT) };
        // SAFETY: as above, and the fresh bytes overlap no borrowed slice.
        unsafe { ptr::copy_nonoverlapping(key.as_ptr(), key_at, key.len()) };
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), key_at.add(key.len()), value.len()) };
        Ok(RecordRef { ptr, _life: PhantomData })
    }

    /// Returns the record at `ptr`, or `None` if `ptr` is null.
    ///
    /// # Safety
    ///
    /// A non-null `ptr` came from [`as_ptr`](Self::as_ptr), its record lives for `'a`, and everything written
    /// by the publisher happens before this call.
    #[inline]
    pub(crate) unsafe fn from_ptr(ptr: *mut Record) -> Option<RecordRef<'a>> {
        NonNull::new(ptr).map(|ptr| RecordRef { ptr, _life: PhantomData })
    }

    /// Prefetches the head and the key of the record at `ptr`, which may be any address. They usually span two cache lines.
    #[inline]
    pub(crate) fn fetch_head(ptr: *const Record) {
        fetch(ptr);
        fetch(ptr.wrapping_byte_add(64));
    }

    /// Prefetches the rest of the record, and the head of the next older version. Reads the head, so it should be prefetched already.
    #[inline]
    pub(crate) fn fetch_rest(self) {
        let len = (KEY_AT + self.key_len() + self.head().value_len as usize).min(FETCHED_MAX);
        let at = |at: usize| self.ptr.as_ptr().cast_const().wrapping_byte_add(at);
        for line in (128..len).step_by(64) {
            fetch(at(line));
        }
        fetch(at(len - 1));
        fetch(self.head().next.load(Ordering::Relaxed));
    }

    /// Returns the pointer, for publication in an atomic.
    #[inline]
    pub(crate) fn as_ptr(self) -> *mut Record {
        self.ptr.as_ptr()
    }

    #[inline]
    fn head(self) -> &'a Record {
        // SAFETY: initialized in `create`, alive for 'a, and only its atomic field ever changes.
        let head = unsafe { self.ptr.as_ref() };
        head.born.check();
        head
    }

    #[inline]
    fn key_len(self) -> usize {
        (self.head().key_len_run_kind >> KIND_RUN_BITS) as usize
    }

    #[inline]
    fn bytes(self, at: usize, len: usize) -> &'a [u8] {
        debug_assert!(at + len <= self.key_len() + self.head().value_len as usize);
        // SAFETY: 1. `create` initialized key_len + value_len bytes from KEY_AT on, and the callers stay
        // inside; 2. they never change; 3. the pointer spans the whole allocation.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr().cast::<u8>().add(KEY_AT + at), len) }
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        self.bytes(0, self.key_len())
    }

    #[inline]
    pub(crate) fn value(self) -> &'a [u8] {
        self.bytes(self.key_len(), self.head().value_len as usize)
    }

    #[inline]
    pub(crate) fn seq(self) -> u64 {
        self.head().seq
    }

    #[inline]
    pub(crate) fn kind(self) -> u8 {
        (self.head().key_len_run_kind & 0xFF) as u8
    }

    #[inline]
    pub(crate) fn expiry(self) -> u64 {
        if self.head().key_len_run_kind & EXPIRES == 0 { 0 } else { self.stored_expiry() }
    }

    /// Returns the expiry of a record that has one.
    #[cold]
    fn stored_expiry(self) -> u64 {
        debug_assert!(self.head().key_len_run_kind & EXPIRES != 0);
        // SAFETY: `create` wrote the expiry there if `EXPIRES` is set; it never changes, and the pointer spans it.
        unsafe { self.ptr.as_ptr().cast::<u64>().sub(1).read() }
    }
}
