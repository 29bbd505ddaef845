//! No private mappings on this system: all memory comes from the heap.

use std::ptr::NonNull;

pub(crate) const AVAILABLE: bool = false;

pub(crate) fn new(_wanted: usize) -> Option<NonNull<u8>> {
    None
}

/// # Safety
///
/// Never called.
pub(crate) unsafe fn resize(_start: NonNull<u8>, _capacity: usize, _wanted: usize) -> Option<NonNull<u8>> {
    unreachable!("no capacity is mapped")
}

/// # Safety
///
/// Never called.
pub(crate) unsafe fn clear(_start: NonNull<u8>, _bytes: usize) -> bool {
    false
}

/// # Safety
///
/// Never called.
pub(crate) unsafe fn free(_start: NonNull<u8>, _capacity: usize) {
    unreachable!("no capacity is mapped")
}
