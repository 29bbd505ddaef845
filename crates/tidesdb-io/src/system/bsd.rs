//! FreeBSD.

use std::io;
use std::num::NonZeroU64;

use rustix::fd::OwnedFd;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, retry_on_intr};

use super::sysctl;
use super::unix::{self, Handle, Mapping};

pub(crate) use super::sysctl::random;

pub(super) const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Disables the read-ahead of a file. Best effort: a file system may not support it.
pub(super) fn disable_read_ahead(file: &OwnedFd) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
}

/// Returns nothing: the system does not tell whether bytes are in the page cache.
pub(crate) fn read_cached_at(_file: &Handle, _buf: &mut [u8], _offset: u64) -> io::Result<Option<usize>> {
    Ok(None)
}

/// Returns true: the system does not tell.
pub(crate) fn is_cached(_file: &Handle, _offset: u64) -> io::Result<bool> {
    Ok(true)
}

/// Writes at `offset` and syncs the file. May be short.
pub(crate) fn write_durably_at(file: &Handle, buf: &[u8], offset: u64) -> io::Result<usize> {
    let written = unix::write_at(file, buf, offset)?;
    sync_all(file)?;
    Ok(written)
}

/// Reserves blocks for a range that is not empty, and makes the file at least that long. Returns false if the file system cannot: ZFS.
pub(crate) fn allocate(file: &Handle, offset: u64, len: u64) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Makes the bytes durable, and the length.
pub(crate) fn sync_data(file: &Handle) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

/// Makes the bytes and all metadata durable.
pub(crate) fn sync_all(file: &Handle) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

/// Starts loading a range into the page cache; `len` 0 means up to the end of the file.
pub(crate) fn will_need(file: &Handle, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::WillNeed)?)
}

/// Drops a range from the page cache; `len` 0 means up to the end of the file.
pub(crate) fn dont_need(file: &Handle, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed)?)
}

/// Does nothing: the system has no call that starts writing and does not wait.
pub(crate) fn start_writing(_file: &Handle, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

/// Returns whether a page fault of a read in a map of this file never ends in a signal: UFS, ZFS and tmpfs.
pub(crate) fn may_map(file: &Handle) -> io::Result<bool> {
    Ok(sysctl::is_one_of(&rustix::fs::fstatfs(file)?.f_fstypename, &["ufs", "zfs", "tmpfs"]))
}

/// Returns false: ZFS needs a new block for each page that is written, and UFS for a page that a snapshot has, so a write to a map can find
/// the disk full.
pub(crate) fn may_map_shared(_file: &Handle) -> io::Result<bool> {
    Ok(false)
}

/// Returns the free bytes and all bytes of the file system.
pub(super) fn space(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let vfs = rustix::fs::fstatvfs(folder)?;
    Ok((vfs.f_bavail.saturating_mul(vfs.f_frsize), vfs.f_blocks.saturating_mul(vfs.f_frsize)))
}

/// Returns false: maps are never writable here.
pub(super) fn populate(_map: &Mapping, _start: usize, _len: usize) -> io::Result<bool> {
    Ok(false)
}

/// Does nothing: maps are never writable here.
pub(super) fn release(_map: &Mapping) -> io::Result<()> {
    Ok(())
}

/// Does nothing: the system chooses the size of pages.
pub(crate) fn advise_huge(_buffer: &mut [u8]) {}

/// Returns the number that the kernel draws at each boot, from FreeBSD 13 on.
pub(crate) fn boot_id() -> Option<[u8; 16]> {
    sysctl::bytes(c"kern.boot_id")
}

/// Does nothing: `setpriority` would change the whole process, and the idle class could starve.
pub(crate) fn lower_priority() {}

/// Does nothing: the allocator returns memory by itself.
pub(crate) fn trim_heap() {}

/// Returns nothing: the allocator is not asked.
pub(crate) fn heap() -> Option<(u64, u64)> {
    None
}

/// Returns nothing: the system is not asked.
pub(crate) fn anonymous_bytes() -> Option<u64> {
    None
}

/// Returns all bytes of memory, and those that are free or hold clean pages. If the kernel does not say: 4 GiB and half of the memory.
pub(crate) fn memory() -> (u64, u64) {
    let total = sysctl::number(c"hw.physmem").unwrap_or(4 << 30);
    let pages = |name| sysctl::number(name).unwrap_or(0);
    let pages = pages(c"vm.stats.vm.v_free_count") + pages(c"vm.stats.vm.v_inactive_count");
    let free = if pages == 0 { total / 2 } else { pages * unix::page_bytes() as u64 };
    (total, free.min(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked() {
        let (total, free) = memory();
        assert!(total > 16 << 20 && free > 0 && free <= total, "{total} {free}");
        let mut bytes = [[0; 8]; 2];
        assert!(bytes.iter_mut().all(random) && bytes[0] != bytes[1]);
    }
}
