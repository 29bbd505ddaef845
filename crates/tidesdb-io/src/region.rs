//! Memory for the bytes of a file.
//!
//! The unsafe code of this crate is in `buffer.rs`, in `disk/mmap.rs`, which writes through a map, and in `system`.

use std::collections::TryReserveError;

use crate::system;

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
