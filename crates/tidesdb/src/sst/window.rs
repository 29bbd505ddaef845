//! Read-ahead for scans of a table.
//!
//! A scan consumes block after block, in one direction. Its window reads several blocks with one call, and asks the
//! system to load the following blocks while the scan consumes these. In total it never loads more than twice the bytes
//! that the scan has consumed. So a short scan costs little, and the pieces of a long scan grow to 256 KiB. A
//! scan of a whole table (merge, verification) reads such pieces from the start, and prefetches a mebibyte.
//!
//! The bytes read are stored only in the window. The cursor decides what goes into the block cache.

use std::ops::Range;

use super::blocks::Blocks;
use super::file::slice;
use super::index::{CurrentPartition, Fence};
use crate::Result;
use crate::stats::counts;
use crate::types::{Readahead, Scope};

/// Number of consecutive blocks that a scan reads one by one before read-ahead starts.
const SINGLE_BLOCKS: u32 = 2;
/// Maximum bytes to read with one call, and maximum bytes to prefetch after them. A piece stays in the processor's cache until it is
/// decoded.
const PIECE_BYTES: u64 = 256 << 10;
/// Maximum bytes that a merge reads with one call while merges take much memory: each input has a piece.
const SMALL_PIECE_BYTES: u64 = 32 << 10;
/// Read-ahead of a scan that may end anywhere, in bytes of blocks that were not cached: one piece is read, the next one is loading.
type BlockReadahead = Readahead<SINGLE_BLOCKS, { 2 * PIECE_BYTES }>;
/// Bytes that scans of whole tables prefetch, as soon as less than half of that is left.
const WHOLE_AHEAD_BYTES: u64 = 1 << 20;

/// A piece of a table file in memory, and the progress of the scan that reads it.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Limits of the walk: no block out of scope is read.
    pub(super) scope: Scope,
    /// Whether all of the table is out of scope.
    pub(super) outside: bool,
    at: u64,
    bytes: Vec<u8>,
    /// Blocks that the system was asked to load.
    loading: Range<usize>,
    /// Where the last of them ends.
    loading_to: u64,
    /// Blocks that could not be read together. Each is read separately.
    unreadable: Range<usize>,
    /// True if the scan covers the whole table.
    whole: bool,
    /// True if the scan drops the pages it read from the system's page cache.
    drop_behind: bool,
    backwards: bool,
    readahead: BlockReadahead,
}

impl Window {
    /// Creates a window for a forward scan of a whole table. With `drop_behind`, the bytes read are dropped from the
    /// system's page cache.
    pub(super) fn whole(drop_behind: bool) -> Self {
        Self { whole: true, drop_behind, ..Self::default() }
    }

    /// Returns whether the scan is long enough for read-ahead.
    pub(super) fn is_long(&self) -> bool {
        self.whole || self.readahead.is_long()
    }

    /// Limits the walk over these blocks.
    pub(super) fn set_scope(&mut self, blocks: &Blocks, scope: &Scope) {
        let (order, meta) = (blocks.order(), blocks.file().meta());
        self.outside = scope.is_above(order, &meta.smallest) || scope.is_below(order, &meta.largest);
        self.scope = scope.clone();
    }

    /// Whether a walk that reaches block `b` may still find keys in scope.
    #[inline]
    pub(super) fn is_in_scope(
        &self,
        blocks: &Blocks,
        near: &mut CurrentPartition,
        b: usize,
        backwards: bool,
    ) -> Result<bool> {
        if !self.scope.is_bounded() {
            return Ok(true);
        }
        Ok(!self.outside && blocks.index().is_in_scope(near, b, &self.scope, backwards)?)
    }

    /// Returns the first `len` bytes of the block at `fence`. The scan must have [stepped](Self::step) to that block.
    pub(super) fn block<'a>(
        &'a mut self,
        blocks: &'a Blocks,
        near: &mut CurrentPartition,
        fence: Fence,
        len: usize,
    ) -> Result<&'a [u8]> {
        self.readahead.consume(len as u64);
        if self.get(fence.at, len).is_none() {
            self.fill(blocks, near, fence, len)?;
        }
        self.get(fence.at, len).ok_or_else(|| blocks.file().ends_early(fence.at))
    }

    /// Returns `len` bytes at offset `at` within the block at `fence`, from the window or read into `buf`.
    pub(super) fn frame<'a>(
        &'a mut self,
        blocks: &'a Blocks,
        fence: Fence,
        (at, len): (u64, usize),
        buf: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let is_here = self.has(at, len);
        if fence.first_read() as u64 != fence.disk {
            self.readahead.consume(len as u64);
            self.readahead.load(if is_here { 0 } else { len as u64 });
        }
        if is_here {
            return self
                .get(at, len)
                .ok_or_else(|| blocks.file().corrupt(at, "frame extends beyond its block"));
        }
        if !self.whole {
            counts::add_read(len);
        }
        blocks.file().read(at, len, buf)
    }

    /// Returns whether a scan of the whole table has read the block at `fence`.
    pub(super) fn holds(&self, fence: Fence) -> bool {
        self.whole && self.get(fence.at, fence.first_read()).is_some()
    }

    /// Returns whether the window has `len` bytes at offset `at`.
    pub(super) fn has(&self, at: u64, len: usize) -> bool {
        self.get(at, len).is_some()
    }

    /// Returns `len` bytes at offset `at` if they are in the window.
    fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        slice(&self.bytes, at.checked_sub(self.at)?, len)
    }

    /// Records that the scan moves from block `from` to block `to`, which is not cached.
    pub(super) fn step(&mut self, from: usize, to: usize) {
        let backwards = to.wrapping_add(1) == from;
        if backwards != self.backwards || (!backwards && to != from.wrapping_add(1)) {
            (self.readahead, self.loading) = (Readahead::default(), 0..0);
        }
        self.backwards = backwards;
        self.readahead.step();
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns how many more bytes may be loaded now.
    fn allowance(&self) -> u64 {
        if self.whole { WHOLE_AHEAD_BYTES } else { self.readahead.allowance() }
    }

    /// Reads a piece that starts (in a backward scan: ends) with the block at `fence`: at least `len` bytes of that
    /// block.
    #[cold]
    fn fill(&mut self, blocks: &Blocks, near: &mut CurrentPartition, fence: Fence, len: usize) -> Result<()> {
        let piece = self.next_piece(blocks, near, fence.block);
        if let Some(bytes) = bytes_of(blocks, near, &piece) {
            self.load_behind(blocks, near, &piece, bytes.end);
            let piece_len = (bytes.end - bytes.start) as usize;
            match self.read(blocks, bytes.start, piece_len) {
                // One of the blocks cannot be read. The scan still gets the blocks before it, and then the error.
                Err(_) if piece_len > len => self.unreadable = piece,
                result => return result,
            }
        }
        self.readahead.load(len as u64);
        self.read(blocks, fence.at, len)
    }

    /// Reads `len` bytes at offset `at` into the window.
    fn read(&mut self, blocks: &Blocks, at: u64, len: usize) -> Result<()> {
        // Invalidates the old content in case the read fails.
        self.at = u64::MAX;
        blocks.file().read(at, len, &mut self.bytes)?;
        self.at = at;
        if !self.whole {
            counts::add_read(len);
        }
        if self.drop_behind {
            blocks.file().drop_cached(at, len);
        }
        Ok(())
    }

    /// Returns the blocks to read together; the scan needs `b` now. Empty if only `b` is needed.
    fn next_piece(&mut self, blocks: &Blocks, near: &mut CurrentPartition, b: usize) -> Range<usize> {
        let was_loading = std::mem::take(&mut self.loading);
        let is_small = self.whole && !blocks.parts().whole_memory().has_room_for_jobs();
        let piece_bytes = if is_small { SMALL_PIECE_BYTES } else { PIECE_BYTES };
        match (was_loading.contains(&b), self.backwards) {
            _ if self.unreadable.contains(&b) => b..b,
            (true, false) => {
                let piece = self.piece(blocks, near, b, piece_bytes);
                self.loading = piece.end.min(was_loading.end)..was_loading.end;
                b..self.loading.start
            }
            (true, true) => was_loading.start..b + 1,
            (false, _) => {
                // The other half is for the blocks that `load_behind` prefetches.
                let bytes = match self.whole {
                    true => piece_bytes,
                    false if blocks.parts().whole_memory().has_room_for_cursors() => self.allowance() / 2,
                    false => 0,
                };
                let piece = self.piece(blocks, near, b, bytes);
                self.readahead
                    .load(bytes_of(blocks, near, &piece).map_or(0, |bytes| bytes.end - bytes.start));
                piece
            }
        }
    }

    /// Starts loading the blocks that follow `piece`, which ends at offset `end`, unless enough of them are being loaded.
    fn load_behind(&mut self, blocks: &Blocks, near: &mut CurrentPartition, piece: &Range<usize>, end: u64) {
        let is_ahead = !self.loading.is_empty();
        if is_ahead && self.loading_to.saturating_sub(end) >= WHOLE_AHEAD_BYTES / 2 {
            return;
        }
        let next = match (self.backwards, is_ahead) {
            (true, _) => piece.start.checked_sub(1),
            (false, true) => Some(self.loading.end),
            (false, false) => Some(piece.end),
        };
        let Some(next) = next else { return };
        let more = self.piece(blocks, near, next, self.allowance());
        if let Some(bytes) = bytes_of(blocks, near, &more) {
            let len = bytes.end - bytes.start;
            blocks.file().load_ahead(bytes.start, len as usize);
            self.readahead.load(len);
            self.loading_to = bytes.end;
        }
        self.loading = if is_ahead { self.loading.start..more.end } else { more };
    }

    /// Returns the blocks from `b` on, in scan direction, that together take at most `bytes` and at most one piece.
    fn piece(&self, blocks: &Blocks, near: &mut CurrentPartition, b: usize, bytes: u64) -> Range<usize> {
        let mut room = bytes.min(if self.whole { WHOLE_AHEAD_BYTES } else { PIECE_BYTES });
        let (mut start, mut end) = if self.backwards { (b + 1, b + 1) } else { (b, b) };
        loop {
            let next = if self.backwards { start.checked_sub(1) } else { Some(end) };
            let Some(next) = next.filter(|next| *next < blocks.count()) else { break };
            // A scan that reaches this block gets the error.
            let Ok(fence) = blocks.index().fence(near, next) else { break };
            if fence.disk > room || !self.is_in_scope(blocks, near, next, self.backwards).unwrap_or(false) {
                break;
            }
            room -= fence.disk;
            if self.backwards {
                start -= 1;
            } else {
                end += 1;
            }
        }
        start..end
    }
}

/// Returns the byte range of these blocks; `None` if there are none or the index cannot be read there.
fn bytes_of(blocks: &Blocks, near: &mut CurrentPartition, range: &Range<usize>) -> Option<Range<u64>> {
    if range.is_empty() {
        return None;
    }
    let first = blocks.index().fence(near, range.start).ok()?;
    let last = blocks.index().fence(near, range.end - 1).ok()?;
    Some(first.at..last.at + last.disk)
}
