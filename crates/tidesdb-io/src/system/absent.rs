//! Calls that only Linux has, and what takes their place on the other systems.

use std::io;
use std::path::Path;

use super::Handle;
#[cfg(unix)]
use super::Mapping;
use crate::surroundings::Surroundings;

/// Returns nothing: the system does not tell whether bytes are in the page cache.
pub(crate) fn read_cached_at(_file: &Handle, _buf: &mut [u8], _offset: u64) -> io::Result<Option<usize>> {
    Ok(None)
}

/// Returns true: the system does not tell.
pub(crate) fn is_cached(_file: &Handle, _offset: u64) -> io::Result<bool> {
    Ok(true)
}

/// Does nothing: the system has no call that starts writing and does not wait.
pub(crate) fn start_writing(_file: &Handle, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

/// Does nothing: maps are never writable here.
#[cfg(unix)]
pub(super) fn expect_order(_map: &Mapping, _in_order: bool) {}

/// Does nothing: maps are never writable here.
#[cfg(unix)]
pub(super) fn release(_map: &Mapping) -> io::Result<()> {
    Ok(())
}

/// Does nothing: the system chooses the size of pages. On Windows huge ones need a privilege.
pub(crate) fn advise_huge(_buffer: &mut [u8]) {}

/// Does nothing: the allocator returns long blocks by itself.
pub(crate) fn trim_heap() {}

/// Returns nothing: the allocator is not asked.
pub(crate) fn heap() -> Option<(u64, u64)> {
    None
}

/// Returns nothing: the system is not asked.
pub(crate) fn anonymous_bytes() -> Option<u64> {
    None
}

/// Returns nothing that is known of this process.
pub(crate) fn process() -> (u64, [u8; 16], u64) {
    Default::default()
}

/// Returns nothing: the system is not asked.
pub(crate) fn process_now(_number: u32) -> Option<(u64, Option<bool>)> {
    None
}

/// Returns nothing: the system is not asked.
pub(crate) fn surroundings(_dir: &Path, _process: Option<u32>) -> Surroundings {
    Surroundings::default()
}

/// Returns 0: the number of a file takes a call that nothing else on Windows needs.
#[cfg(windows)]
pub(crate) fn file_identity(_file: &Handle) -> u64 {
    0
}
