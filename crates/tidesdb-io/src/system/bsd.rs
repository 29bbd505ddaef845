//! FreeBSD.

use std::io;

use rustix::fd::OwnedFd;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

use super::boot::Boot;
use super::sysctl;
use super::unix::{self, Handle};

pub(crate) use super::absent::{
    advise_huge, anonymous_bytes, heap, is_cached, process, process_now, read_cached_at, start_writing,
    trim_heap,
};
pub(super) use super::absent::{expect_order, release};
pub(super) use super::posix::{disable_read_ahead, space};
pub(crate) use super::posix::{dont_need, sync_all, sync_data, will_need};
pub(crate) use super::sysctl::random;
pub(crate) use super::write_then_sync as write_durably_at;

pub(super) const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Reserves blocks for a range that is not empty, and makes the file at least that long. Returns false if the file system cannot: ZFS.
pub(crate) fn allocate(file: &Handle, offset: u64, len: u64) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Returns whether a page fault of a read in a map of this file never ends in a signal: UFS, ZFS and tmpfs.
pub(crate) fn may_map(file: &Handle) -> io::Result<bool> {
    Ok(sysctl::is_one_of(
        &retry_on_intr(|| rustix::fs::fstatfs(file))?.f_fstypename,
        &["ufs", "zfs", "tmpfs"],
    ))
}

/// Returns false: ZFS needs a new block for each page that is written, and UFS for a page that a snapshot has, so a write to a map can find
/// the disk full.
pub(crate) fn may_map_shared(_file: &Handle) -> io::Result<bool> {
    Ok(false)
}

/// Returns the time of the machine, by the number that the kernel draws at each boot, from FreeBSD 13 on. The system does not say which
/// mount of a file system this is.
pub(super) fn boot(_folder: &OwnedFd) -> Boot {
    Boot::of_machine(sysctl::bytes(c"kern.boot_id"))
}

/// Does nothing: `setpriority` would change the whole process, and the idle class could starve.
pub(crate) fn lower_priority() {}

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
