//! One segment file that is being written: allocated, salted, memory-mapped where the file system allows.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tidesdb_io::{Access, Dir, File, FileExt, SharedMap};
use tidesdb_sync::{RwLock, rank};

use super::layout::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::files;
use crate::types::WalId;
use crate::{Error, Result};

/// Longer records are written by a system call, which copies faster than page faults do.
const MAPPED_BYTES_MAX: usize = 4 * 1024;

/// First allocation of a log, and the smallest one in advance when the disk is nearly full. A log that needs no more than that may be one
/// of many idle databases: the system reads nothing ahead for it.
pub(super) const PIECE_BYTES_MIN: u64 = 64 << 10;

/// A segment open for writing. Writers use disjoint ranges.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) header: SegmentHeader,
    pub(super) name: String,
    /// `None` once nothing more is written to it, and all of it is durable: it takes no descriptor then.
    file: RwLock<Option<Arc<dyn File>>, { rank::LEAF }>,
    map: Option<Box<dyn SharedMap>>,
    /// Bytes from the start of the file that records may use: they have real blocks. Nothing beyond is written, by a call or through the map.
    backed: AtomicU64,
    /// Bytes from the start of the file that have real blocks. More than `backed` in a file that is used again.
    allocated: AtomicU64,
    /// Set if a record of this segment was written since the last sync began. Set after the bytes are written and cleared before the
    /// sync, so no write is missed.
    dirty: AtomicBool,
}

/// A file for a segment, complete under a temporary name.
#[derive(Debug)]
pub(super) struct Draft {
    header: SegmentHeader,
    temp: String,
    file: Arc<dyn File>,
    backed: u64,
    allocated: u64,
}

impl Draft {
    /// Prepares a file for `header`: the header is durable, and as many bytes have blocks as the disk allows, within
    /// `blocks`. A file left by an older segment of the same length (`reuse`) is taken over.
    pub(super) fn make(
        dir: &Arc<dyn Dir>,
        header: SegmentHeader,
        reuse: Option<String>,
        blocks: RangeInclusive<u64>,
    ) -> Result<Self> {
        let temp = files::free_wal(WalId(header.id));
        let bytes = header.file_bytes();
        let is_reused = reuse.is_some();
        let (file, allocated) = match reuse {
            Some(old) => {
                if old != temp {
                    dir.rename(&old, &temp).map_err(|e| Error::io("rename", &old, e))?;
                }
                let file = dir.open(&temp, Access::ReadWrite).map_err(|e| Error::io("open", &temp, e))?;
                (file, bytes)
            }
            None => Self::allocate(dir, &temp, bytes, blocks.clone())?,
        };
        let backed = allocated.min(*blocks.end());
        let draft = Self { header, temp, file, backed, allocated };
        draft.write_header(is_reused).inspect_err(|_| draft.discard(dir))?;
        Ok(draft)
    }

    /// Creates a file of `bytes` bytes. Returns it and how many of its first bytes have blocks, which is within `blocks`.
    fn allocate(
        dir: &Arc<dyn Dir>,
        temp: &str,
        bytes: u64,
        blocks: RangeInclusive<u64>,
    ) -> Result<(Arc<dyn File>, u64)> {
        // Left over from a preparation that was interrupted by a crash or a full disk.
        let left = |e: &std::io::Error| e.kind() == std::io::ErrorKind::AlreadyExists;
        let (file, backed) = as_many_as_fit(bytes.min(*blocks.end()), *blocks.start(), |backed| {
            let made = match dir.create_new(temp, backed) {
                Err(e) if left(&e) => {
                    dir.unlink(temp).map_err(|e| Error::io("unlink", temp, e))?;
                    dir.create_new(temp, backed)
                }
                other => other,
            };
            made.map_err(|e| Error::io("create", temp, e))
        })?;
        if backed < bytes {
            file.set_len(bytes).map_err(|e| {
                let _ = dir.unlink(temp); // the first error is returned
                Error::io("set the length", temp, e)
            })?;
        }
        Ok((file, backed))
    }

    /// Makes the header durable, and the length of the file.
    fn write_header(&self, is_reused: bool) -> Result<()> {
        let header = self.header.encode();
        if is_reused {
            // The length is durable already. The file may hold many records that were never synced; the device need not write them.
            let written = self.file.write_all_durably_at(&header, 0);
            return written.map_err(|e| Error::io("write", &self.temp, e));
        }
        write_all(&self.file, &self.temp, &header, 0)?;
        self.file.sync_all().map_err(|e| Error::io("sync", &self.temp, e))
    }

    /// Removes the file.
    pub(super) fn discard(&self, dir: &Arc<dyn Dir>) {
        files::remove(&**dir, &self.temp);
    }

    /// Gives the file its final name, or removes it. The name is durable only after the directory is synced.
    pub(super) fn finish(self, dir: &Arc<dyn Dir>, mapped: bool) -> Result<Segment> {
        let map = self.put_in_place(dir, mapped).inspect_err(|_| self.discard(dir))?;
        let (name, file) = (files::wal(WalId(self.header.id)), RwLock::new(Some(self.file)));
        let (backed, allocated) = (self.backed.into(), self.allocated.into());
        Ok(Segment { header: self.header, name, file, map, backed, allocated, dirty: AtomicBool::new(false) })
    }

    /// Maps the file, if requested and possible, and renames it.
    fn put_in_place(&self, dir: &Arc<dyn Dir>, mapped: bool) -> Result<Option<Box<dyn SharedMap>>> {
        let map =
            || self.file.map_shared(self.header.file_bytes()).map_err(|e| Error::io("map", &self.temp, e));
        let map = if mapped { map()? } else { None };
        if let Some(map) = map.as_ref().filter(|_| self.backed > PIECE_BYTES_MIN) {
            map.expect_order();
        }
        let name = files::wal(WalId(self.header.id));
        dir.rename(&self.temp, &name).map_err(|e| Error::io("rename", &self.temp, e))?;
        Ok(map)
    }
}

/// Calls `allocate` with `bytes`, and as long as the disk is full with half of that in whole pieces, but at least `needed`. Returns how
/// many bytes were allocated.
fn as_many_as_fit<R>(
    mut bytes: u64,
    needed: u64,
    mut allocate: impl FnMut(u64) -> Result<R>,
) -> Result<(R, u64)> {
    loop {
        let half = (bytes / 2).next_multiple_of(PIECE_BYTES_MIN).max(needed);
        match allocate(bytes) {
            Err(e) if e.is_full() && half < bytes => bytes = half,
            made => return made.map(|made| (made, bytes)),
        }
    }
}

impl Segment {
    /// Bytes from the start of the file that records may use.
    pub(super) fn backed(&self) -> u64 {
        self.backed.load(SeqCst)
    }

    /// Returns true if the next bytes that records may use have blocks already.
    pub(super) fn has_spare_blocks(&self) -> bool {
        self.backed() < self.allocated.load(SeqCst)
    }

    /// Lets records use the first `most` bytes of the file, or as many as the disk allows, but at least the first `needed` bytes: allocates
    /// the blocks that are missing. One caller at a time.
    pub(super) fn back(&self, needed: u64, most: u64) -> Result<()> {
        let (allocated, end) = (self.allocated.load(SeqCst), most.min(self.header.file_bytes()));
        if let Some(map) = &self.map {
            map.expect_order(); // the first piece is used up
        }
        if end <= allocated {
            self.backed.store(end, SeqCst);
            return Ok(());
        }
        let file = self.file()?;
        let allocate =
            |bytes| file.allocate(allocated, bytes).map_err(|e| Error::io("allocate", &self.name, e));
        let ((), more) = as_many_as_fit(end - allocated, needed.saturating_sub(allocated), allocate)?;
        self.allocated.store(allocated + more, SeqCst);
        self.backed.store(allocated + more, SeqCst);
        Ok(())
    }

    /// Returns true if the file can be reused for another segment: it has the usual length and all its blocks.
    pub(super) fn is_reusable(&self) -> bool {
        self.header.span == 1 && self.backed() == self.header.segment_bytes
    }

    /// Returns true if `id` is one of the segments that this file covers.
    pub(super) fn covers(&self, id: u64) -> bool {
        id >= self.header.id && id - self.header.id < u64::from(self.header.span)
    }

    /// Writes `bytes` at `offset` of the file. `mapped` asks for a write through the map, without a system call.
    #[inline]
    pub(super) fn write(&self, offset: u64, bytes: &[u8], mapped: bool) -> Result<()> {
        // Laws: a record overwrites no header and is written to allocated blocks only. Cost: two comparisons for each write.
        assert!(offset >= SEGMENT_HEADER_BYTES, "a record lies behind the header");
        assert!(offset + bytes.len() as u64 <= self.backed(), "a record is written to real blocks");
        match &self.map {
            Some(map) if mapped && bytes.len() < MAPPED_BYTES_MAX => {
                map.write(offset, bytes).map_err(|e| Error::io_at("write", &self.name, offset, e))?;
            }
            _ => write_all(&self.file()?, &self.name, bytes, offset)?,
        }
        if !self.dirty.load(SeqCst) {
            self.dirty.store(true, SeqCst);
        }
        Ok(())
    }

    /// Called when nothing more will be written: unmaps the pages from the process; they stay in the page cache.
    pub(super) fn release_pages(&self) {
        if let Some(map) = &self.map
            && let Err(error) = map.release()
        {
            tracing::debug!(name = %self.name, %error, "the pages of a log segment stay mapped");
        }
    }

    /// Makes everything durable that was written before the call. One caller at a time. Skips the system call if
    /// nothing was written.
    pub(super) fn sync(&self) -> Result<()> {
        if self.dirty.swap(false, SeqCst) {
            self.file()?.sync_data().map_err(|e| Error::io("sync", &self.name, e))?;
        }
        Ok(())
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        let file = self.file.read().clone();
        file.ok_or_else(|| Error::internal(format!("{} is used after its end was made durable", self.name)))
    }

    /// Closes the file. Nothing more is written to it, and all of it is durable.
    pub(super) fn close(&self) {
        let file = self.file.write().take();
        drop(file); // after the lock
    }
}

fn write_all(file: &Arc<dyn File>, name: &str, bytes: &[u8], offset: u64) -> Result<()> {
    file.write_all_at(bytes, offset).map_err(|e| Error::io_at("write", name, offset, e))
}
