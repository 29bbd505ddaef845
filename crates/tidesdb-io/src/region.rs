//! Memory that holds the bytes of a file: mapped from it, or copied.
//!
//! Invariants: a [`Mapping`] owns `[base, base + len)`. The range stays mapped for the whole life of the value
//! and is unmapped once, on drop. `base` is page-aligned. Threads: both types are `Send + Sync`; the memory
//! belongs to the process, not to a thread.
//!
//! The unsafe code of this crate is here, in `buffer.rs`, and in `disk/mmap.rs`, which writes through a map.

use std::collections::TryReserveError;
use std::io;
use std::ptr::{self, NonNull};

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A live mapping of the first `len` bytes of a file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is process-wide memory; unmapping it on another thread than the mapping one is allowed.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives only the address and the length; each user proves its own accesses.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `[0, len)` of `fd`, shared. `len` must not be zero.
    pub(crate) fn new(fd: impl AsFd, len: u64, prot: ProtFlags) -> io::Result<Self> {
        // No object may be larger than `isize::MAX`, or slices of it would be unsound.
        let len = isize::try_from(len).map_err(|_| Errno::NOMEM)?.unsigned_abs();
        // SAFETY: a null hint lets the kernel choose an address, so no existing mapping is replaced.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    /// Returns the first byte; its address is page-aligned.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of a successful mmap, unmapped here only, and `&mut self` proves
        // that no borrow of the memory is left.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

/// The bytes behind a [`crate::ReadMap`].
#[derive(Debug)]
pub(crate) struct MapRegion(Region);

#[derive(Debug)]
enum Region {
    Mapped(Mapping),
    Owned(Vec<u8>),
}

impl MapRegion {
    /// Maps `[0, len)` of a file for reading. A page fault reads only its own page, not its neighbours.
    pub(crate) fn map(fd: impl AsFd, len: u64) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::owned(Vec::new()));
        }
        let map = Mapping::new(fd, len, ProtFlags::READ)?;
        // SAFETY: the range is a live mapping, and this advice changes no byte of it.
        unsafe { rustix::mm::madvise(map.base.as_ptr().cast(), map.len, Advice::Random) }?;
        Ok(Self(Region::Mapped(map)))
    }

    /// A region in ordinary memory, for disks that have no pages to map.
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        Self(Region::Owned(bytes))
    }

    /// Returns all bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Region::Owned(bytes) => bytes,
            Region::Mapped(map) => {
                // SAFETY: the range is mapped readable while `map` lives and is shorter than `isize::MAX`. Its
                // bytes do not change: `File::map_read` is only called on complete files, which have no
                // writable map and no writer, and the directory lock keeps other processes from writing.
                unsafe { std::slice::from_raw_parts(map.base.as_ptr(), map.len) }
            }
        }
    }
}

/// Buffers from this length on ask for huge pages.
const HUGE_BYTES: usize = 4 << 20;

/// Allocates `len` zero bytes. A long buffer asks the system for huge pages: filling it then takes one page fault for each
/// 2 MiB instead of one for each 4 KiB.
///
/// # Errors
/// There is not enough memory.
pub fn zeroed(len: usize) -> Result<Vec<u8>, TryReserveError> {
    Vec::<u8>::new().try_reserve_exact(len)?; // `vec!` aborts without memory
    let mut buffer = vec![0; len];
    #[cfg(target_os = "linux")]
    if len >= HUGE_BYTES {
        const PAGE: usize = 4096;
        let skip = buffer.as_ptr().align_offset(PAGE);
        let whole = buffer.get_mut(skip..).map_or(0, |pages| pages.len()) / PAGE * PAGE;
        // SAFETY: the pages lie within `buffer`, which is borrowed exclusively, and this advice never changes the content
        // of pages. A refusal is harmless.
        let _ = unsafe {
            rustix::mm::madvise(buffer.as_mut_ptr().add(skip).cast(), whole, Advice::LinuxHugepage)
        };
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_buffers_of_all_lengths() {
        for len in [0, 1, 4095, HUGE_BYTES - 1, HUGE_BYTES, HUGE_BYTES + 4097] {
            let mut buffer = zeroed(len).unwrap();
            assert!(buffer.len() == len && buffer.iter().all(|b| *b == 0));
            buffer.fill(7);
        }
        assert!(zeroed(usize::MAX).is_err());
    }
}
