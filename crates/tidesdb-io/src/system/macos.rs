//! macOS, and the other systems of Apple.
//!
//! `fsync` hands bytes to the device and does not ask it to write them: only `F_FULLFSYNC` makes them durable. `F_BARRIERFSYNC`, which only
//! keeps an order, suffices nowhere: each sync of this crate is a promise that the bytes are on the device. The call is chosen in `reach.rs`,
//! by which the simulated disk goes too.

use std::io;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};

use super::boot::Boot;
use super::reach::{self, Reach};
use super::unix::{self, Handle, checked, uninterrupted};
use super::{sysctl, uuid};

pub(crate) use super::absent::{
    advise_huge, anonymous_bytes, heap, is_cached, process, process_now, read_cached_at, start_writing,
    trim_heap,
};
pub(super) use super::absent::{expect_order, release};
pub(crate) use super::sysctl::random;
pub(crate) use super::write_then_sync as write_durably_at;

/// The clock that stands still while the machine sleeps, as `CLOCK_MONOTONIC` of Linux does.
pub(super) const MONOTONIC: libc::clockid_t = libc::CLOCK_UPTIME_RAW;

/// Disables the read-ahead of a file. Best effort.
pub(super) fn disable_read_ahead(file: &OwnedFd) {
    // SAFETY: the call takes an open descriptor and numbers; it touches no memory.
    let _ = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_RDAHEAD, 0) };
}

/// Reserves blocks for a range that is not empty, and makes the file at least that long. Returns false if the range begins before the end
/// of the file, where `F_PREALLOCATE` fills no holes, or if the file system cannot.
pub(crate) fn allocate(file: &Handle, offset: u64, len: u64) -> io::Result<bool> {
    let old = unix::file_len(file)?;
    if offset < old {
        return Ok(false);
    }
    let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
    let mut wanted = libc::fstore_t {
        fst_flags: libc::F_ALLOCATEALL,
        fst_posmode: libc::F_PEOFPOSMODE,
        fst_offset: 0,
        fst_length: libc::off_t::try_from(end - old).map_err(|_| Errno::FBIG)?,
        fst_bytesalloc: 0,
    };
    let mut reserve = || {
        // SAFETY: the descriptor is open, and this command reads and writes one `fstore_t` at the given place.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PREALLOCATE, &raw mut wanted) }
    };
    if let Err(error) = uninterrupted(|| checked(reserve())) {
        return if lacks_call(&error) { Ok(false) } else { Err(error) };
    }
    unix::set_len(file, end)?;
    Ok(true)
}

/// Returns whether the file system does not have a call at all.
fn lacks_call(error: &io::Error) -> bool {
    let lacking = [Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOTTY, Errno::INVAL];
    lacking.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Like [`sync_all`]: the system does not sync less.
pub(crate) fn sync_data(file: &Handle) -> io::Result<()> {
    sync_all(file)
}

/// Makes the bytes and all metadata durable. A file system without `F_FULLFSYNC`, such as one in the network, gets `fsync`.
pub(crate) fn sync_all(file: &Handle) -> io::Result<()> {
    let command = match reach::MACOS {
        Reach::Device | Reach::DeviceAndNames => libc::F_FULLFSYNC,
        Reach::Barrier => libc::F_BARRIERFSYNC,
        Reach::Cache | Reach::Memory => return Ok(retry_on_intr(|| rustix::fs::fsync(file))?),
    };
    // SAFETY: the descriptor is open, and the command takes nothing else.
    match uninterrupted(|| checked(unsafe { libc::fcntl(file.as_raw_fd(), command) })) {
        Err(e) if lacks_call(&e) => Ok(retry_on_intr(|| rustix::fs::fsync(file))?),
        synced => synced,
    }
}

/// Starts loading a range into the page cache; `len` 0 means up to the end of the file.
pub(crate) fn will_need(file: &Handle, offset: u64, len: u64) -> io::Result<()> {
    let len = if len == 0 { unix::file_len(file)?.saturating_sub(offset) } else { len };
    Ok(retry_on_intr(|| rustix::fs::fcntl_rdadvise(file, offset, len))?)
}

/// Does nothing: the system has no call that drops pages of a file from the page cache.
pub(crate) fn dont_need(_file: &Handle, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

/// Returns whether a page fault of a read in a map of this file never ends in a signal: APFS and HFS+.
pub(crate) fn may_map(file: &Handle) -> io::Result<bool> {
    Ok(sysctl::is_one_of(&retry_on_intr(|| rustix::fs::fstatfs(file))?.f_fstypename, &["apfs", "hfs"]))
}

/// Returns false: APFS may need a new block for a page that has one (a snapshot, a clone), so a write to a map can find the disk full.
pub(crate) fn may_map_shared(_file: &Handle) -> io::Result<bool> {
    Ok(false)
}

/// Returns the free bytes and all bytes of the file system. `statvfs` counts blocks with 32 bits here.
pub(super) fn space(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let fs = retry_on_intr(|| rustix::fs::fstatfs(folder))?;
    let block = u64::from(fs.f_bsize);
    Ok((fs.f_bavail.saturating_mul(block), fs.f_blocks.saturating_mul(block)))
}

/// Returns the time of the machine: the system does not say which mount of a file system this is.
pub(super) fn boot(_folder: &OwnedFd) -> Boot {
    Boot::of_machine(boot_id())
}

/// Returns the UUID that the kernel draws at each boot.
fn boot_id() -> Option<[u8; 16]> {
    let text: [u8; 37] = sysctl::bytes(c"kern.bootsessionuuid")?; // ends with 0
    uuid::parse(&text[..36])
}

/// Lowers the priority of the calling thread by its quality of service. `setpriority` would change the whole process.
pub(crate) fn lower_priority() {
    // SAFETY: the call takes two numbers and changes the calling thread only.
    let _ = unsafe { libc::pthread_set_qos_class_self_np(libc::qos_class_t::QOS_CLASS_UTILITY, 0) };
}

/// Returns all bytes of memory, and those that the kernel can free without pressure. If the kernel does not say: 4 GiB and half of the
/// memory.
pub(crate) fn memory() -> (u64, u64) {
    let total = sysctl::number(c"hw.memsize").unwrap_or(4 << 30);
    let percent = sysctl::number(c"kern.memorystatus_level").unwrap_or(50).min(100);
    (total, total / 100 * percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked() {
        let (total, free) = memory();
        assert!(total > 16 << 20 && free > 0 && free <= total, "{total} {free}");
        assert!(boot_id().is_some_and(|id| id == boot_id().unwrap_or_default()));
        let mut bytes = [[0; 8]; 2];
        assert!(bytes.iter_mut().all(random) && bytes[0] != bytes[1]);
    }
}
