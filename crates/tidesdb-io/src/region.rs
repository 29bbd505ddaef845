//! Memory that holds the bytes of a file: mapped from it, or copied.
//!
//! The unsafe code of this crate is here, in `buffer.rs`, in `disk/mmap.rs`, which writes through a map, and in `system`.

use std::collections::TryReserveError;
use std::io;

use crate::system::{self, Handle, Mapping};

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
    pub(crate) fn map(file: &Handle, len: u64) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::owned(Vec::new()));
        }
        let map = Mapping::new(file, len, false)?;
        map.advise_random()?;
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
                unsafe { std::slice::from_raw_parts(map.base().as_ptr(), map.len()) }
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
    if len >= HUGE_BYTES {
        system::advise_huge(&mut buffer);
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
