//! [`Node`] and [`Inner`]: the nodes of the tree, and how a node changes under its lock.
//!
//! ```text
//! leaf  (1 KiB) = lock | meta | link | high | low | prefix[3] | heads[60] | keys[60]
//! inner (1.5 KiB) = the same, keys being separators | children[61]
//! ```
//!
//! Slot `i` holds a key (`keys[i]`: in a leaf the newest version, in an inner node any version of the
//! separator) and its *head*. The head is the 8 bytes of the key after the node's prefix, big-endian, padded
//! with zeros. Comparing heads compares keys, except on ties.
//!
//! Prefix: all keys of the node share their first `plen` bytes. The first `flen` of these are common to both
//! fences (`low <= key < high`), so every key that is routed here has them. The rest, at most 24 bytes, is kept
//! in `prefix`, where a search compares it without accessing a record. A new key that does not share the prefix
//! shortens it. `flen` may be less than the length that the fences share, never more.
//!
//! Invariants: the keys ascend strictly; a null `high` or `low` means no fence; `low` never changes once
//! published; a leaf with a low fence holds that very key; `link` of a leaf is the leaf that begins at `high`;
//! `level` never changes; `count <= FANOUT`.
//!
//! Threads: all fields are atomics, so a racing read is defined behaviour; its result is used only after
//! [`VersionLock::validate`]. Changes need the lock, or a node that no other thread can see.

use std::marker::PhantomData;
use std::mem::align_of;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use super::lock::{Seen, VersionLock};
use super::words::{copy_up, head_of, shared_prefix};
use crate::arena::Arena;
use crate::record::{MemtableFull, Record, RecordRef};
use crate::sync::{AtomicPtr, AtomicU64, Born, Ordering, fetch};

/// Keys per node. A model needs small nodes to see splits at all.
pub(super) const FANOUT: usize = if cfg!(loom) { 4 } else { 60 };
/// Words of the inline prefix.
const PREFIX_WORDS: usize = 3;
/// Longest part of the prefix that is kept inline.
pub(super) const INLINE: usize = 8 * PREFIX_WORDS;
/// Lengths in `meta` have 16 bits.
const MAX_FENCE_PREFIX: usize = u16::MAX as usize - INLINE;
/// Minimum number of bytes that a longer prefix must gain after a split. Below that, the heads still
/// distinguish keys, and lengthening the prefix has to access every record.
const REHEAD_GAIN: usize = 4;

/// A leaf, or the common part of an inner node.
#[repr(C, align(64))]
pub(super) struct Node {
    born: Born,
    pub(super) lock: VersionLock,
    meta: AtomicU64,
    /// In a leaf, the next leaf. Unused in an inner node.
    link: AtomicPtr<Node>,
    high: AtomicPtr<Record>,
    low: AtomicPtr<Record>,
    prefix: [AtomicU64; PREFIX_WORDS],
    pub(super) heads: [AtomicU64; FANOUT],
    keys: [AtomicPtr<Record>; FANOUT],
}

/// A node whose keys separate children: child `i` holds the keys from separator `i - 1` (inclusive) to
/// separator `i` (exclusive).
#[repr(C, align(64))]
struct Inner {
    node: Node,
    children: [AtomicPtr<Node>; FANOUT + 1],
}

/// The numbers of a node, packed into one word so that they are consistent with each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) count: usize,
    pub(super) level: usize,
    pub(super) plen: usize,
    pub(super) flen: usize,
}

impl Meta {
    #[inline]
    fn unpack(word: u64) -> Meta {
        let field = |shift: u32| (word >> shift) as usize & 0xFFFF;
        Meta { count: field(0), level: field(16), plen: field(32), flen: field(48) }
    }

    #[inline]
    fn pack(self) -> u64 {
        debug_assert!(self.count <= FANOUT && self.flen <= self.plen && self.plen - self.flen <= INLINE);
        self.count as u64 | (self.level as u64) << 16 | (self.plen as u64) << 32 | (self.flen as u64) << 48
    }
}

impl Node {
    pub(super) fn new(level: usize) -> Node {
        let meta = Meta { count: 0, level, plen: 0, flen: 0 };
        Node {
            born: Born::new(),
            lock: VersionLock::new(),
            meta: AtomicU64::new(meta.pack()),
            link: AtomicPtr::new(ptr::null_mut()),
            high: AtomicPtr::new(ptr::null_mut()),
            low: AtomicPtr::new(ptr::null_mut()),
            prefix: std::array::from_fn(|_| AtomicU64::new(0)),
            heads: std::array::from_fn(|_| AtomicU64::new(0)),
            keys: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    #[inline]
    pub(super) fn meta(&self) -> Meta {
        Meta::unpack(self.meta.load(Ordering::Relaxed))
    }

    fn set_meta(&self, meta: Meta) {
        self.meta.store(meta.pack(), Ordering::Relaxed);
    }

    /// Returns word `i` of the inline prefix.
    #[inline]
    pub(super) fn prefix_word(&self, i: usize) -> u64 {
        self.prefix[i].load(Ordering::Relaxed)
    }
}

/// A node that lives for `'a`, with provenance over its whole allocation.
#[derive(Clone, Copy)]
pub(super) struct NodeRef<'a> {
    ptr: NonNull<Node>,
    _life: PhantomData<&'a Node>,
}

impl Deref for NodeRef<'_> {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        self.node()
    }
}

impl<'a> NodeRef<'a> {
    /// Allocates an empty leaf.
    pub(super) fn leaf(arena: &'a Arena) -> Result<NodeRef<'a>, MemtableFull> {
        let ptr = arena.alloc(size_of::<Node>(), align_of::<Node>()).ok_or(MemtableFull)?.cast::<Node>();
        // SAFETY: fresh bytes of the right size and alignment.
        unsafe { ptr.write(Node::new(0)) };
        Ok(NodeRef { ptr, _life: PhantomData })
    }

    /// Allocates an inner node without children.
    pub(super) fn inner(arena: &'a Arena, level: usize) -> Result<NodeRef<'a>, MemtableFull> {
        debug_assert!(level > 0);
        let ptr = arena.alloc(size_of::<Inner>(), align_of::<Inner>()).ok_or(MemtableFull)?.cast::<Inner>();
        let children = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        // SAFETY: fresh bytes of the right size and alignment.
        unsafe { ptr.write(Inner { node: Node::new(level), children }) };
        Ok(NodeRef { ptr: ptr.cast(), _life: PhantomData })
    }

    /// Returns the node at `ptr`, or `None` if `ptr` is null.
    ///
    /// # Safety
    ///
    /// A non-null `ptr` came from [`as_ptr`](Self::as_ptr) or is a leaf's own allocation, the node lives for
    /// `'a`, and its creation happens before this call.
    #[inline]
    pub(super) unsafe fn from_ptr(ptr: *mut Node) -> Option<NodeRef<'a>> {
        NonNull::new(ptr).map(|ptr| NodeRef { ptr, _life: PhantomData })
    }

    #[inline]
    pub(super) fn as_ptr(self) -> *mut Node {
        self.ptr.as_ptr()
    }

    #[inline]
    pub(super) fn node(self) -> &'a Node {
        // SAFETY: initialized when created, alive for 'a, and all its fields are atomics.
        let node = unsafe { self.ptr.as_ref() };
        node.born.check();
        node
    }

    #[inline]
    fn children(self) -> &'a [AtomicPtr<Node>; FANOUT + 1] {
        assert!(self.meta().level > 0);
        // SAFETY: 1. a node above level 0 was created as an Inner, and levels never change; 2. as in `node`;
        // 3. the pointer spans the whole Inner.
        unsafe { &(*self.ptr.cast::<Inner>().as_ptr()).children }
    }

    /// Returns child `i`, or `None` if the node changed since `seen` was read.
    #[inline]
    pub(super) fn child(self, i: usize, seen: Seen) -> Option<NodeRef<'a>> {
        let child = self.children()[i.min(FANOUT)].load(Ordering::Relaxed);
        if !self.lock.validate(seen) {
            return None;
        }
        // SAFETY: the version did not change, so this is a node that a writer stored here, initialized before
        // it was stored.
        unsafe { NodeRef::from_ptr(child) }
    }

    /// Returns the record in slot `i`, or `None` if the node changed since `seen` was read.
    #[inline]
    pub(super) fn key(self, i: usize, seen: Seen) -> Option<RecordRef<'a>> {
        let record = self.node().keys[i].load(Ordering::Relaxed);
        if !self.lock.validate(seen) {
            return None;
        }
        // SAFETY: the version did not change, so this is a record that a writer stored here, written before it
        // was stored.
        unsafe { RecordRef::from_ptr(record) }
    }

    /// Returns the next leaf, or `None` if there is none or the node changed since `seen` was read.
    #[inline]
    pub(super) fn next_leaf(self, seen: Seen) -> Option<NodeRef<'a>> {
        let next = self.link.load(Ordering::Relaxed);
        if !self.lock.validate(seen) {
            return None;
        }
        // SAFETY: the version did not change, so this is a leaf that a writer stored here, initialized before
        // it was stored.
        unsafe { NodeRef::from_ptr(next) }
    }

    /// Prefetches all cache lines of a leaf.
    #[inline]
    pub(super) fn fetch(self) {
        for line in 0..size_of::<Node>() / 64 {
            fetch(self.ptr.as_ptr().cast::<u8>().wrapping_add(64 * line));
        }
    }

    /// Returns the unvalidated content of slot `i`, to be used for prefetching only.
    #[inline]
    pub(super) fn hint_of_key(self, i: usize) -> *const Record {
        self.node().keys.get(i).map_or(ptr::null(), |key| key.load(Ordering::Relaxed))
    }

    /// Copies the records of all slots. Returns their number, or `None` if the node changed since `seen` was
    /// read.
    #[inline]
    pub(super) fn copy_keys(self, into: &mut [Option<RecordRef<'a>>; FANOUT], seen: Seen) -> Option<usize> {
        let count = self.meta().count.min(FANOUT);
        let mut raw = [ptr::null_mut(); FANOUT];
        for (to, from) in raw[..count].iter_mut().zip(&self.node().keys) {
            *to = from.load(Ordering::Relaxed);
        }
        if !self.lock.validate(seen) {
            return None;
        }
        for (to, from) in into[..count].iter_mut().zip(&raw) {
            // SAFETY: the version did not change, so these are records that writers stored here, written before
            // they were stored.
            *to = unsafe { RecordRef::from_ptr(*from) };
        }
        Some(count)
    }

    /// Returns the high fence, or `Err` if the node changed since `seen` was read.
    #[inline]
    pub(super) fn high(self, seen: Seen) -> Result<Option<RecordRef<'a>>, ()> {
        let high = self.high.load(Ordering::Relaxed);
        if !self.lock.validate(seen) {
            return Err(());
        }
        // SAFETY: the version did not change, so this is a record that a writer stored here, written before it
        // was stored.
        Ok(unsafe { RecordRef::from_ptr(high) })
    }
}

/// Modifications. The caller holds the lock, or the node is still private.
impl<'a> NodeRef<'a> {
    /// Reads a record without validation, which only the holder of the lock may do.
    fn own_record(self, slot: &AtomicPtr<Record>) -> Option<RecordRef<'a>> {
        // SAFETY: the caller holds the lock, so the slot holds what the last writer stored, and taking the lock
        // acquired that writer's work.
        unsafe { RecordRef::from_ptr(slot.load(Ordering::Relaxed)) }
    }

    fn own_key(self, i: usize) -> RecordRef<'a> {
        self.own_record(&self.keys[i]).expect("slots below the count are filled")
    }

    /// Stores another version of the same key in slot `i`.
    pub(super) fn replace_key(self, i: usize, record: RecordRef<'a>) {
        self.keys[i].store(record.as_ptr(), Ordering::Relaxed);
    }

    /// Inserts a new key at slot `i` and moves the later slots up. The node must not be full.
    pub(super) fn insert_key(self, i: usize, record: RecordRef<'a>) {
        self.fit_prefix(record.key());
        let meta = self.meta();
        assert!(i <= meta.count && meta.count < FANOUT);
        copy_up(&self.heads, i, meta.count);
        copy_up(&self.keys, i, meta.count);
        self.heads[i].store(head_of(record.key(), meta.plen), Ordering::Relaxed);
        self.keys[i].store(record.as_ptr(), Ordering::Relaxed);
        self.set_meta(Meta { count: meta.count + 1, ..meta });
    }

    /// Inserts a separator and its right child after child `i`.
    pub(super) fn insert_child(self, i: usize, separator: RecordRef<'a>, right: NodeRef<'a>) {
        let count = self.meta().count;
        self.insert_key(i, separator);
        copy_up(self.children(), i + 1, count + 1);
        self.children()[i + 1].store(right.as_ptr(), Ordering::Relaxed);
    }

    /// Sets the leftmost child of a node that has none.
    pub(super) fn set_first_child(self, child: NodeRef<'a>) {
        self.children()[0].store(child.as_ptr(), Ordering::Relaxed);
    }

    /// Moves the slots from `at` on into the empty node `right` and makes it the right neighbour. In an inner
    /// node, neither half keeps the separator at `at`. Returns the key that separates the two.
    pub(super) fn split(self, right: NodeRef<'a>, at: usize) -> RecordRef<'a> {
        let meta = self.meta();
        assert!(0 < at && at < meta.count);
        let separator = self.own_key(at);
        let from = if meta.level == 0 { at } else { at + 1 };
        for (to, i) in (from..meta.count).enumerate() {
            right.heads[to].store(self.heads[i].load(Ordering::Relaxed), Ordering::Relaxed);
            right.keys[to].store(self.keys[i].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if meta.level == 0 {
            right.link.store(self.link.load(Ordering::Relaxed), Ordering::Relaxed);
            self.link.store(right.as_ptr(), Ordering::Relaxed);
        } else {
            for (to, i) in (from..=meta.count).enumerate() {
                let child = self.children()[i].load(Ordering::Relaxed);
                right.children()[to].store(child, Ordering::Relaxed);
            }
        }
        right.high.store(self.high.load(Ordering::Relaxed), Ordering::Relaxed);
        right.low.store(separator.as_ptr(), Ordering::Relaxed);
        self.high.store(separator.as_ptr(), Ordering::Relaxed);
        right.set_meta(Meta { count: meta.count - from, ..meta });
        self.set_meta(Meta { count: at, ..meta });
        right.refit_prefix();
        self.refit_prefix();
        separator
    }

    /// Shortens the prefix to the part that `key` shares with it. The new heads are computed from the old ones
    /// and the inline prefix, so no record is accessed.
    fn fit_prefix(self, key: &[u8]) {
        let mut meta = self.meta();
        if meta.count == 0 {
            meta.plen = key.len().min(meta.flen + INLINE);
            self.set_prefix(key, meta);
            return;
        }
        let shared = self.shared_inline(key, meta);
        if shared == meta.plen {
            return;
        }
        let cut = meta.plen - shared;
        let front = self.inline_from(shared - meta.flen);
        for head in &self.heads[..meta.count] {
            // The bytes cut off the prefix, followed by as much of the old head as fits.
            let old = head.load(Ordering::Relaxed);
            let new = if cut < 8 { (front & !(u64::MAX >> (8 * cut))) | old >> (8 * cut) } else { front };
            head.store(new, Ordering::Relaxed);
        }
        meta.plen = shared;
        self.set_meta(meta);
    }

    /// Returns how much of the node's prefix `key` shares, given that it shares the fences' part.
    fn shared_inline(self, key: &[u8], meta: Meta) -> usize {
        for word in 0..PREFIX_WORDS {
            let differ = head_of(key, meta.flen + 8 * word) ^ self.prefix_word(word);
            if differ != 0 {
                let same = meta.flen + 8 * word + differ.leading_zeros() as usize / 8;
                return same.min(meta.plen).min(key.len());
            }
        }
        meta.plen.min(key.len())
    }

    /// Returns the 8 bytes of the inline prefix from offset `at` on, with zeros after its end.
    fn inline_from(self, at: usize) -> u64 {
        let word = |i: usize| if i < PREFIX_WORDS { self.prefix_word(i) } else { 0 };
        let shift = 8 * (at % 8) as u32;
        let low = word(at / 8 + 1).checked_shr(64 - shift).unwrap_or(0);
        word(at / 8) << shift | low
    }

    /// Recomputes the shared part of the fences after a split, and lengthens the prefix if that gains enough.
    fn refit_prefix(self) {
        let mut meta = self.meta();
        let first = self.own_key(0).key();
        let fences = match (self.own_record(&self.low), self.own_record(&self.high)) {
            (Some(low), Some(high)) => shared_prefix(low.key(), high.key()).min(MAX_FENCE_PREFIX),
            _ => 0,
        };
        let longest = if meta.count == 1 {
            meta.plen
        } else {
            shared_prefix(first, self.own_key(meta.count - 1).key()).min(fences + INLINE)
        };
        let longer = longest >= meta.plen + REHEAD_GAIN;
        if longer {
            meta.plen = longest;
        }
        meta.flen = fences.min(meta.plen);
        self.set_prefix(first, meta);
        if longer {
            for i in 0..meta.count {
                let head = head_of(self.own_key(i).key(), meta.plen);
                self.heads[i].store(head, Ordering::Relaxed);
            }
        }
    }

    /// Sets the prefix lengths from `meta` and the inline bytes from `key`, which has the prefix.
    fn set_prefix(self, key: &[u8], meta: Meta) {
        for word in 0..PREFIX_WORDS {
            self.prefix[word].store(head_of(key, meta.flen + 8 * word), Ordering::Relaxed);
        }
        self.set_meta(meta);
    }
}
