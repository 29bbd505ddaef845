//! Calls of POSIX that Linux and FreeBSD have, and macOS has not or with a weaker promise.

use std::io;
use std::num::NonZeroU64;

use rustix::fd::OwnedFd;
use rustix::fs::Advice;
use rustix::io::retry_on_intr;

use super::Handle;

/// Disables the read-ahead of a file. Best effort: a file system may not support it.
pub(super) fn disable_read_ahead(file: &OwnedFd) {
    let _ = retry_on_intr(|| rustix::fs::fadvise(file, 0, None, Advice::Random));
}

/// Makes the bytes durable, and the length.
pub(crate) fn sync_data(file: &Handle) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Makes the bytes and all metadata durable.
pub(crate) fn sync_all(file: &Handle) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fsync(file))?)
}

/// Starts loading a range into the page cache; `len` 0 means up to the end of the file.
pub(crate) fn will_need(file: &Handle, offset: u64, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::WillNeed))?)
}

/// Drops a range from the page cache; `len` 0 means up to the end of the file.
pub(crate) fn dont_need(file: &Handle, offset: u64, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed))?)
}

/// Returns the free bytes and all bytes of the file system.
pub(super) fn space(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let vfs = retry_on_intr(|| rustix::fs::fstatvfs(folder))?;
    Ok((vfs.f_bavail.saturating_mul(vfs.f_frsize), vfs.f_blocks.saturating_mul(vfs.f_frsize)))
}
