//! [`Buffer`]: growable bytes that leave the process when they are freed.
//!
//! An allocator keeps much of what is freed, for each thread that allocated: glibc keeps blocks of up to 32 MiB once a block of that size
//! was freed. A program with large batches then takes a multiple of what it uses. So a long buffer is a mapping of its own, which the
//! system takes back at once. Growing it moves page table entries and copies no bytes.
//!
//! Invariants: `start` has `capacity` bytes, of which the first `len` are initialized. With at least [`MAPPED_MIN`] bytes it is a
//! private mapping, otherwise a heap allocation, or dangling if it is empty. Threads: like a `Vec<u8>`.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::system::{page_bytes, pages};

/// Smallest capacity that is a mapping.
const MAPPED_MIN: usize = 256 << 10;
/// Capacities of mappings are multiples of this; the system rounds them up to its own pages.
const PAGE: usize = 4096;

/// Bytes that grow like those of a `Vec<u8>`.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: the value owns its memory, and no thread-local state belongs to it.
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` gives only `&[u8]` and numbers.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// An empty buffer, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: NonNull::dangling(), len: 0, capacity: 0 }
    }

    /// Returns `len` zero bytes; `None` if there is not enough memory. A very long buffer asks for huge pages.
    #[must_use]
    pub fn zeroed(len: usize) -> Option<Self> {
        if !is_mapped(len) {
            Vec::<u8>::new().try_reserve_exact(len).ok()?;
            let mut this = Self::new();
            this.reserve_exact(len);
            this.resize(len, 0);
            return Some(this);
        }
        let capacity = len.checked_next_multiple_of(PAGE).filter(|bytes| *bytes <= isize::MAX as usize)?;
        Some(Self { start: pages::new(capacity)?, len, capacity }) // a fresh mapping is zero
    }

    /// Bytes that fit without more memory.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends a byte.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.reserve(1);
        // SAFETY: `reserve` made room for one byte after `len`.
        unsafe { self.start.add(self.len).write(byte) };
        self.len += 1;
    }

    /// Appends `bytes`.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        // SAFETY: `reserve` made room for these bytes after `len`; a borrowed slice does not overlap memory that is borrowed exclusively.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(self.len).as_ptr(), bytes.len()) };
        self.len += bytes.len();
    }

    /// Changes the length to `len`; new bytes are `byte`.
    pub fn resize(&mut self, len: usize, byte: u8) {
        if let Some(more) = len.checked_sub(self.len) {
            self.reserve(more);
            // SAFETY: `reserve` made room for these bytes after the initialized ones.
            unsafe { self.start.add(self.len).write_bytes(byte, more) };
        }
        self.len = len;
    }

    /// Shortens the buffer to `len` bytes, if it is longer. Keeps the memory.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes room for `more` bytes: at least a quarter more than there was, so that repeated calls copy each byte a few times at most.
    #[inline]
    pub fn reserve(&mut self, more: usize) {
        if self.capacity - self.len < more {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let room = if self.capacity < MAPPED_MIN { self.capacity } else { self.capacity / 4 };
        self.set_capacity(needed(self.len, more).max(self.capacity.saturating_add(room)).max(8));
    }

    /// Makes room for `more` bytes, and for no more than the system gives at least.
    pub fn reserve_exact(&mut self, more: usize) {
        if self.capacity - self.len < more {
            self.set_capacity(needed(self.len, more));
        }
    }

    /// Frees memory beyond `capacity` bytes and the bytes in use.
    pub fn shrink_to(&mut self, capacity: usize) {
        let capacity = capacity.max(self.len);
        if capacity < self.capacity {
            self.set_capacity(capacity);
        }
    }

    /// Returns the memory of the first `bytes` bytes to the system, in whole pages, if the buffer is a mapping. They are zero afterwards.
    /// Returns how many bytes these are.
    pub fn free_front(&mut self, bytes: usize) -> usize {
        if !is_mapped(self.capacity) {
            return 0;
        }
        // The system would clear all of a page that the range ends in, and its pages may have 16 or 64 KiB.
        let page = page_bytes();
        let bytes = bytes.min(self.len) / page * page;
        // SAFETY: a mapping of ours of at least `bytes` bytes, which `&mut self` keeps from being read meanwhile.
        if unsafe { pages::clear(self.start, bytes) } { bytes } else { 0 }
    }

    /// Changes the capacity to `wanted` bytes, at least the length; a mapping has whole pages.
    fn set_capacity(&mut self, wanted: usize) {
        debug_assert!(wanted >= self.len, "bytes in use stay");
        let wanted = if is_mapped(wanted) { wanted.next_multiple_of(PAGE) } else { wanted };
        let (start, capacity) = (self.start, self.capacity);
        // SAFETY: `start` has `capacity` bytes of the kind that the capacity says, which nothing borrows, and the first `len` fit in either
        // place. The old memory is not used afterwards.
        self.start = unsafe {
            match (is_mapped(capacity), is_mapped(wanted)) {
                (false, false) => heap::resize(start, capacity, wanted),
                (true, true) => pages::resize(start, capacity, wanted).unwrap_or_else(|| no_memory(wanted)),
                (from_map, _) => {
                    let new = match from_map {
                        true => heap::resize(NonNull::dangling(), 0, wanted),
                        false => pages::new(wanted).unwrap_or_else(|| no_memory(wanted)),
                    };
                    ptr::copy_nonoverlapping(start.as_ptr(), new.as_ptr(), self.len);
                    free(start, capacity);
                    new
                }
            }
        };
        self.capacity = wanted;
    }
}

/// Returns `len + more`.
fn needed(len: usize, more: usize) -> usize {
    let sum = len.checked_add(more).filter(|sum| *sum <= isize::MAX as usize - PAGE);
    sum.expect("a buffer is shorter than the address space")
}

/// Ends the process as a failed allocation does.
#[cold]
fn no_memory(bytes: usize) -> ! {
    handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>()))
}

fn is_mapped(capacity: usize) -> bool {
    pages::AVAILABLE && capacity >= MAPPED_MIN
}

/// Frees the memory of a buffer.
///
/// # Safety
///
/// `start` has `capacity` bytes, of the kind that the capacity says, and is not used any more.
unsafe fn free(start: NonNull<u8>, capacity: usize) {
    if is_mapped(capacity) {
        // SAFETY: by contract.
        unsafe { pages::free(start, capacity) };
    } else {
        // SAFETY: by contract.
        unsafe { heap::resize(start, capacity, 0) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `start` has `capacity` bytes of the kind that the capacity says, and the value ends here.
        unsafe { free(self.start, self.capacity) };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialized, and `&self` keeps them from changing.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the first `len` bytes are initialized, and `&mut self` borrows them exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        let mut this = Self::new();
        this.reserve_exact(bytes.len());
        this.extend_from_slice(bytes);
        this
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer {{ len: {}, capacity: {} }}", self.len, self.capacity)
    }
}

mod heap {
    use std::alloc::{Layout, alloc, dealloc, realloc};
    use std::ptr::NonNull;

    /// Returns `wanted` bytes that begin with those of `start`, as many as fit.
    ///
    /// # Safety
    ///
    /// `start` came from this function for `capacity` bytes, or these are 0. It is not used any more.
    pub(super) unsafe fn resize(start: NonNull<u8>, capacity: usize, wanted: usize) -> NonNull<u8> {
        let layout = |bytes| Layout::array::<u8>(bytes).expect("a buffer is shorter than the address space");
        let new = match (capacity, wanted) {
            (0, 0) => return start,
            // SAFETY: the size is not zero.
            (0, _) => unsafe { alloc(layout(wanted)) },
            (_, 0) => {
                // SAFETY: by contract, `start` was allocated with this layout.
                unsafe { dealloc(start.as_ptr(), layout(capacity)) };
                return NonNull::dangling();
            }
            // SAFETY: by contract, `start` was allocated with this layout; the new size is not zero and was checked by `layout`.
            _ => unsafe { realloc(start.as_ptr(), layout(capacity), layout(wanted).size()) },
        };
        NonNull::new(new).unwrap_or_else(|| super::no_memory(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does what a `Vec<u8>` does, around the size from which on memory is mapped.
    #[test]
    fn a_buffer_is_a_vector() {
        let lens = [0, 1, 7, 100, MAPPED_MIN - 1, MAPPED_MIN, MAPPED_MIN + 1, 3 * MAPPED_MIN + 5];
        for from in lens {
            for to in lens {
                let bytes: Vec<u8> = (0..from).map(|n| (n * 7 + n / 256) as u8).collect();
                let (mut buffer, mut vector) = (Buffer::from(&bytes[..]), bytes);
                buffer.resize(to, 9);
                vector.resize(to, 9);
                buffer.push(1);
                vector.push(1);
                assert_eq!(buffer.clone()[..], vector[..]);
                buffer.extend_from_slice(&vector);
                buffer.truncate(to);
                buffer.reserve_exact(from);
                assert!(buffer.capacity() >= to + from);
                buffer.shrink_to(0);
                assert!(buffer.capacity() < to + PAGE);
                buffer[..].reverse();
                vector.truncate(to);
                vector.reverse();
                assert_eq!(buffer[..], vector[..], "from {from} to {to}");
            }
        }
    }

    #[test]
    fn the_front_of_a_mapping_is_freed_and_zero() {
        let freed = if pages::AVAILABLE { 8 << 20 } else { 0 };
        let mut buffer = Buffer::from(&vec![7; 10 << 20][..]);
        assert_eq!(buffer.free_front((8 << 20) + 5), freed);
        assert!(buffer[..freed].iter().all(|byte| *byte == 0), "the freed front is zero");
        assert!(buffer[freed..].iter().all(|byte| *byte == 7), "the rest is kept");
        let mut short = Buffer::from(&[7; 2 * PAGE][..]);
        assert_eq!((short.free_front(PAGE), short[0]), (0, 7), "a heap allocation is kept");
    }

    #[test]
    fn zeroed_buffers_of_all_lengths() {
        for len in [0, 1, MAPPED_MIN - 1, MAPPED_MIN, (4 << 20) + 5] {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert!(buffer.len() == len && buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
        }
        assert!(Buffer::zeroed(usize::MAX).is_none() && Buffer::zeroed(isize::MAX as usize).is_none());
    }

    #[test]
    fn single_bytes_are_copied_a_few_times_at_most() {
        let (mut buffer, mut grown, mut capacity) = (Buffer::new(), 0, 0);
        for n in 0..4 * MAPPED_MIN {
            buffer.push(n as u8);
            grown += usize::from(buffer.capacity() != capacity);
            capacity = buffer.capacity();
        }
        assert!(grown < 40 && capacity <= buffer.len() / 4 * 5 + PAGE, "{grown} steps to {capacity}");
        assert!(buffer.iter().enumerate().all(|(n, byte)| *byte == n as u8));
    }
}
