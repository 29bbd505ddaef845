//! A regular file held by handle.

use std::io;
use std::sync::Arc;

use super::mmap::{self, MappedFile, RealSharedMap};
use crate::system::{self, Errno, Handle};
use crate::{Advice, File, FileExt, SharedMap};

/// The unit in which a file system may leave a hole.
const BLOCK: u64 = 4096;

/// How many bytes are read and written at once to fill holes.
const PIECE: u64 = 16 * BLOCK;

/// An open file of the system.
#[derive(Debug)]
pub(super) struct RealFile(Handle);

impl RealFile {
    pub(super) fn new(file: Handle) -> Self {
        Self(file)
    }

    /// Reserves blocks where the system cannot: writes zeros past the end, and rewrites every zero
    /// block before it, because such a block may be a hole. No other thread may write to the range meanwhile.
    pub(super) fn allocate_by_writing(&self, offset: u64, end: u64) -> io::Result<()> {
        let this: &dyn File = self;
        let (old_len, mut at) = (self.len()?, offset);
        // On the heap: this may be inlined into calls of threads with a small stack.
        let mut bytes = vec![0; PIECE as usize];
        while at < end {
            let (base, piece_end) = (at, ((at / PIECE + 1) * PIECE).min(end));
            bytes.fill(0);
            let place = |address: u64| (address - base) as usize;
            this.read_exact_at(&mut bytes[..place(old_len.clamp(base, piece_end))], base)?;
            // The blocks that need a write are written together.
            let mut from = at;
            while at < piece_end {
                let block_end = ((at / BLOCK + 1) * BLOCK).min(piece_end);
                if block_end <= old_len && bytes[place(at)..place(block_end)].iter().any(|byte| *byte != 0) {
                    this.write_all_at(&bytes[place(from)..place(at)], from)?;
                    from = block_end;
                }
                at = block_end;
            }
            this.write_all_at(&bytes[place(from)..place(at)], from)?;
        }
        Ok(())
    }
}

/// Returns `None` for a map for which addresses of 32 bits leave no room: the caller uses system calls then.
fn if_it_fits<M>(map: io::Result<M>) -> io::Result<Option<M>> {
    match map {
        Err(e) if usize::BITS < 64 && e.kind() == io::ErrorKind::OutOfMemory => Ok(None),
        made => made.map(Some),
    }
}

impl File for RealFile {
    fn identity(&self) -> u64 {
        system::file_identity(&self.0)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        system::read_at(&self.0, buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        system::read_cached_at(&self.0, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        system::write_at(&self.0, buf, offset)
    }

    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        system::write_durably_at(&self.0, buf, offset)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
        if system::allocate(&self.0, offset, len)? { Ok(()) } else { self.allocate_by_writing(offset, end) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        system::set_len(&self.0, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        system::sync_data(&self.0)
    }

    fn sync_all(&self) -> io::Result<()> {
        system::sync_all(&self.0)
    }

    fn len(&self) -> io::Result<u64> {
        system::file_len(&self.0)
    }

    fn map_shared(&self, len: u64) -> io::Result<Option<Box<dyn SharedMap>>> {
        if len == 0 || len > self.len()? {
            return Err(mmap::outside());
        }
        if !system::may_map_shared(&self.0)? {
            return Ok(None);
        }
        Ok(if_it_fits(RealSharedMap::new(&self.0, len))?.map(|map| Box::new(map) as Box<dyn SharedMap>))
    }

    fn without_descriptor(&self) -> io::Result<Option<Arc<dyn File>>> {
        let len = self.len()?;
        if len == 0 || !system::may_map(&self.0)? {
            return Ok(None);
        }
        Ok(if_it_fits(MappedFile::new(&self.0, len))?.map(|map| Arc::new(map) as Arc<dyn File>))
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> io::Result<()> {
        match advice {
            Advice::WillNeed => system::will_need(&self.0, offset, len),
            Advice::DontNeed => system::dont_need(&self.0, offset, len),
            Advice::SyncSoon => system::start_writing(&self.0, offset, len),
        }
    }

    fn is_cached(&self, offset: u64) -> io::Result<bool> {
        system::is_cached(&self.0, offset)
    }
}
