//! A regular file held by descriptor.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::mmap::{self, MappedFile, RealSharedMap};
use crate::region::MapRegion;
use crate::{Advice, File, FileExt, ReadMap, SharedMap};

/// The unit in which a file system may leave a hole.
const BLOCK: usize = 4096;

/// Magic numbers of file systems on which a page fault inside a preallocated file never ends in a signal:
/// ext2/3/4, XFS, tmpfs.
const MAPPABLE: [u64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// An open file of the system.
#[derive(Debug)]
pub(super) struct RealFile {
    fd: OwnedFd,
}

impl RealFile {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Returns whether mapped access to this file is safe.
    fn mappable(&self) -> io::Result<bool> {
        // The type of `f_type` differs between platforms; the magic numbers fit in 32 bits on all of them.
        #[allow(clippy::useless_conversion, reason = "the field is signed on some platforms")]
        let magic = u64::try_from(rustix::fs::fstatfs(&self.fd)?.f_type).unwrap_or(0) & 0xFFFF_FFFF;
        Ok(MAPPABLE.contains(&magic))
    }

    /// Disables the system's read-ahead for this file. Best effort: a file system may not support it.
    pub(super) fn advise_random(&self) {
        let _ = rustix::fs::fadvise(&self.fd, 0, None, rustix::fs::Advice::Random);
    }

    /// Starts writing the dirty pages of a range, up to the end of the file if `len` is 0. Does not wait until they are written.
    fn start_writing(&self, offset: u64, len: u64) -> io::Result<()> {
        let to_offset = |n| libc::off64_t::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
        let (offset, len) = (to_offset(offset)?, to_offset(len)?);
        // SAFETY: the call takes a descriptor, which is open as long as `self` lives, and three numbers; it touches no memory.
        match unsafe { libc::sync_file_range(self.fd.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) }
        {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Reads at `offset` without waiting for the device. `EAGAIN` if the first byte is not in the page cache.
    fn read_nowait(&self, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        let mut bufs = [io::IoSliceMut::new(buf)];
        retry_on_intr(|| rustix::io::preadv2(&self.fd, &mut bufs, offset, ReadWriteFlags::NOWAIT))
    }

    /// Emulates `fallocate` on file systems that lack it: writes zeros past the end, and rewrites every zero
    /// block before it, because such a block may be a hole. No other thread may write to the range meanwhile.
    pub(super) fn allocate_by_writing(&self, offset: u64, end: u64) -> io::Result<()> {
        const ZEROS: [u8; BLOCK] = [0; BLOCK];
        let this: &dyn File = self;
        let old_len = self.len()?;
        let mut at = offset;
        while at < end {
            let block_end = (at / BLOCK as u64 + 1) * BLOCK as u64;
            let n = usize::try_from(block_end.min(end) - at).unwrap_or(BLOCK);
            if at >= old_len {
                this.write_all_at(&ZEROS[..n], at)?;
            } else {
                let inside = usize::try_from(old_len - at).unwrap_or(BLOCK).min(n);
                let mut old = [0; BLOCK];
                this.read_exact_at(&mut old[..inside], at)?;
                if old == ZEROS || inside < n {
                    this.write_all_at(&old[..n], at)?;
                }
            }
            at += n as u64;
        }
        Ok(())
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.fd, buf, offset)?)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        match self.read_nowait(buf, offset) {
            Ok(read) => Ok(Some(read)),
            // File systems that cannot report this refuse the flag.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&self.fd, buf, offset)?)
    }

    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        match rustix::io::pwritev2(&self.fd, &[io::IoSlice::new(buf)], offset, ReadWriteFlags::SYNC) {
            // Old systems, and some file systems.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                let written = self.write_at(buf, offset)?;
                self.sync_all()?;
                Ok(written)
            }
            other => Ok(other?),
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
        match retry_on_intr(|| rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), offset, len)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.allocate_by_writing(offset, end),
            Err(e) => Err(e.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.fd, len))?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn len(&self) -> io::Result<u64> {
        u64::try_from(rustix::fs::fstat(&self.fd)?.st_size).map_err(|_| Errno::OVERFLOW.into())
    }

    fn map_shared(&self, len: u64) -> io::Result<Option<Box<dyn SharedMap>>> {
        if len == 0 || len > self.len()? {
            return Err(mmap::outside());
        }
        if !self.mappable()? {
            return Ok(None);
        }
        Ok(Some(Box::new(RealSharedMap::new(&self.fd, len)?)))
    }

    fn map_read(&self) -> io::Result<Option<ReadMap>> {
        if !self.mappable()? {
            return Ok(None);
        }
        let region = MapRegion::map(&self.fd, self.len()?)?;
        Ok(Some(ReadMap { inner: Arc::new(region) }))
    }

    fn without_descriptor(&self) -> io::Result<Option<Arc<dyn File>>> {
        let len = self.len()?;
        if len == 0 || !self.mappable()? {
            return Ok(None);
        }
        Ok(Some(Arc::new(MappedFile::new(&self.fd, len)?)))
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> io::Result<()> {
        let advice = match advice {
            Advice::WillNeed => rustix::fs::Advice::WillNeed,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
            Advice::SyncSoon => return self.start_writing(offset, len),
        };
        Ok(rustix::fs::fadvise(&self.fd, offset, NonZeroU64::new(len), advice)?)
    }

    fn is_cached(&self, offset: u64) -> io::Result<bool> {
        match self.read_nowait(&mut [0], offset) {
            Err(Errno::AGAIN) => Ok(false),
            // File systems that cannot report this refuse the flag.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }
}
