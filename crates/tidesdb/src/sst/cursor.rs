//! Iterates over a table in both directions, with one block loaded. Buffers are reused: after warm-up, steps and seeks
//! do not allocate as long as blocks are cached.
//!
//! Scans over uncached blocks use read-ahead; see `window.rs`.

use std::ops::Bound;
use std::sync::Arc;

use tidesdb_cache::Handle;

use super::Table;
use super::block::{Block, CachedBlock, Frame, Shape};
use super::blocks::Blocks;
use super::decode::FramePlace;
use super::index::{CurrentPartition, Fence};
use super::parts::CachedPart;
use super::window::Window;
use crate::memory::{Charge, Use};
use crate::stats::counts::{self, Counter};
use crate::types::{EntryCursor, EntryMeta, ReadPoint, Rows, Scope, SeqNo, Stored};
use crate::vlog::PlaceBytes;
use crate::{Error, Result};

/// A buffer that grew larger than this for a long value is freed before the next value.
const KEPT_BYTES: usize = 1 << 20;
/// The same for a merge, which has a cursor for each input, as soon as the cursor leaves the block.
const KEPT_BY_MERGES_BYTES: usize = 64 << 10;

/// Location of the current block.
enum LoadedBlock {
    /// No block is loaded.
    None,
    /// In the cache.
    Cached(Handle<CachedPart>),
    /// In the cursor's own buffer.
    Own,
}

/// The decoded values.
#[derive(Default)]
struct Values {
    /// The frame whose values are decoded; without entries if none are.
    frame: Frame,
    place: ValuesPlace,
}

/// Location of the decoded values.
#[derive(Default)]
enum ValuesPlace {
    /// In the cursor's own buffer.
    #[default]
    Own,
    /// Part of the cached block.
    Cached,
}

/// A cursor over one table.
pub struct TableCursor {
    table: Arc<Table>,
    fill_cache: bool,
    /// The index partition used last.
    near: CurrentPartition,
    held: LoadedBlock,
    shape: Shape,
    /// Location of the block that was loaded last.
    fence: Fence,
    /// The current entry in the block; meaningless if not `valid`.
    slot: usize,
    valid: bool,
    key: Vec<u8>,
    /// A key whose remaining versions are being skipped.
    passed: Vec<u8>,
    prefix: usize,
    values: Values,
    own: Vec<u8>,
    disk: Vec<u8>,
    raw: Vec<u8>,
    /// The current value, if it is a place in the value log of a table that was built outside of the database.
    place: PlaceBytes,
    window: Window,
    /// Bytes of the largest block of the cache that it has kept there.
    kept_block: u64,
    /// The most that it has taken; for a merge, what it takes.
    charge: Charge,
}

impl TableCursor {
    /// Creates a cursor for readers. Blocks it decodes go into the block cache.
    pub fn new(table: Arc<Table>) -> Self {
        Self {
            table,
            fill_cache: true,
            near: CurrentPartition::default(),
            held: LoadedBlock::None,
            shape: Shape::default(),
            fence: Fence::default(),
            slot: 0,
            valid: false,
            key: Vec::new(),
            passed: Vec::new(),
            prefix: 0,
            values: Values::default(),
            own: Vec::new(),
            disk: Vec::new(),
            raw: Vec::new(),
            place: PlaceBytes::new(),
            window: Window::default(),
            kept_block: 0,
            charge: Charge::new(Use::Cursors),
        }
    }

    /// Creates a cursor for scans of a whole table (compaction, verification), which does not fill the block cache.
    pub fn bypassing_cache(table: Arc<Table>) -> Self {
        let (window, charge) = (Window::whole(false), Charge::new(Use::Jobs));
        Self { fill_cache: false, near: CurrentPartition::bypassing(), window, charge, ..Self::new(table) }
    }

    /// Creates a cursor that reads as one of a reader does, and leaves the block cache as it is.
    pub fn peeking(table: Arc<Table>) -> Self {
        Self { fill_cache: false, near: CurrentPartition::bypassing(), ..Self::new(table) }
    }

    /// Drops the pages that the cursor reads from now on from the system's page cache.
    pub fn dropping_pages(mut self) -> Self {
        self.window = Window::whole(true);
        self
    }

    /// Returns the table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    #[inline]
    fn blocks(&self) -> &Blocks {
        self.table.blocks()
    }

    #[inline]
    fn block(&self) -> Option<Block<'_>> {
        let bytes = match &self.held {
            LoadedBlock::None => return None,
            LoadedBlock::Cached(part) => return part.block().map(CachedBlock::block),
            LoadedBlock::Own => &self.own,
        };
        Some(Block { shape: &self.shape, bytes })
    }

    /// Loads block `b`, unless it is already loaded.
    fn load(&mut self, b: usize) -> Result<()> {
        if b == self.fence.block && !matches!(self.held, LoadedBlock::None) {
            return Ok(());
        }
        self.held = LoadedBlock::None;
        self.forget_values();
        let fence = self.table.blocks().index().fence(&mut self.near, b)?;
        // A merge that has read the piece need not look for each of its blocks.
        let is_read = self.window.holds(fence);
        self.held = match (!is_read).then(|| self.table.blocks().cached(b)).flatten() {
            Some(part) => {
                counts::add(Counter::BlocksInMemory, 1);
                LoadedBlock::Cached(part)
            }
            None => self.read(fence)?,
        };
        if let LoadedBlock::Cached(part) = &self.held {
            let cached = part.block().ok_or_else(|| self.table.blocks().wrong_part(b))?;
            self.shape = *cached.block().shape;
            if !cached.values().is_empty() {
                let end = self.shape.header.entries as usize;
                self.values = Values { frame: Frame { end, ..Frame::default() }, place: ValuesPlace::Cached };
            }
            let bytes = part.charge();
            if bytes > self.kept_block {
                self.kept_block = bytes;
                self.charge_more()?;
            }
        }
        self.fence = fence;
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.extend_from_slice(self.block().map_or(&[][..], |block| block.prefix()));
        (self.prefix, self.key) = (key.len(), key);
        Ok(())
    }

    /// Reads the block at `fence`, with read-ahead if the scan is long. Blocks are cached unless the scan is long and
    /// the cache is full. So a long scan does not evict blocks that other readers use repeatedly.
    #[cold]
    fn read(&mut self, fence: Fence) -> Result<LoadedBlock> {
        let blocks = self.table.blocks();
        self.window.step(self.fence.block, fence.block);
        let no_use =
            self.window.is_long() && (self.window.scope.keys_only || blocks.parts().cache().is_full());
        let to_cache = self.fill_cache && !no_use;
        let read = self.window.block(blocks, &mut self.near, fence, fence.first_read())?;
        if to_cache {
            return blocks.cache(fence, &mut self.near, read).map(LoadedBlock::Cached);
        }
        self.shape = blocks.decode_keys(fence, &mut self.near, read, &mut self.own)?;
        self.charge_more()?;
        Ok(LoadedBlock::Own)
    }

    /// Charges the memory of the block and the buffers, if it is more than before. A cursor that is refused releases its block.
    #[cold]
    fn charge_more(&mut self) -> Result<()> {
        let bytes = self.memory_bytes();
        if bytes <= self.charge.bytes() {
            return Ok(());
        }
        let whole = self.table.blocks().parts().whole_memory();
        if self.window.scope.one_call {
            self.charge.set(whole, bytes);
            return Ok(());
        }
        let grown = self.charge.grow(whole, bytes).map(drop);
        grown.inspect_err(|_| {
            let (table, fill_cache) = (Arc::clone(&self.table), self.fill_cache);
            let window = std::mem::take(&mut self.window);
            *self = Self { fill_cache, ..Self::new(table) };
            self.window.scope = window.scope;
            self.window.outside = window.outside;
        })
    }

    /// Moves to entry `slot` of the loaded block.
    #[inline]
    fn stand(&mut self, slot: usize) {
        let mut key = std::mem::take(&mut self.key);
        key.truncate(self.prefix);
        if let Some(block) = self.block() {
            block.append_suffix(slot, &mut key);
        }
        self.key = key;
        self.slot = slot;
        self.valid = true;
    }

    /// Moves to the first entry of block `b`, backwards to the last. Not valid if there is no such block.
    fn enter(&mut self, b: Option<usize>, backwards: bool) -> Result<()> {
        self.valid = false;
        if !self.fill_cache {
            self.forget_values(); // also at the end of a merge; a reader may come back to the block
        }
        if let Some(b) = b.filter(|b| *b < self.table.blocks().count())
            && self.window.is_in_scope(self.table.blocks(), &mut self.near, b, backwards)?
        {
            self.load(b)?;
            self.stand(if backwards { self.shape.header.entries as usize - 1 } else { 0 });
        }
        Ok(())
    }

    /// Moves from the last entry of the loaded block to the first version of the next key.
    #[cold]
    fn leave_block(&mut self) -> Result<()> {
        self.valid = false;
        if self.table.blocks().index().goes_on(&mut self.near, self.fence.block + 1)?.is_none() {
            return self.enter(Some(self.fence.block + 1), false);
        }
        std::mem::swap(&mut self.key, &mut self.passed);
        let b = self.table.blocks().index().last_block(&mut self.near, &self.passed)?;
        self.load(b)?;
        let slot =
            self.block().map_or(0, |block| block.search(self.table.blocks().order(), &self.passed, true).0);
        self.stand_from(slot)
    }

    /// Moves to entry `slot` of the loaded block, or to the first entry of the next block if there is no such entry.
    #[inline]
    fn stand_from(&mut self, slot: usize) -> Result<()> {
        if slot < self.shape.header.entries as usize {
            self.stand(slot);
            Ok(())
        } else {
            self.enter(Some(self.fence.block + 1), false)
        }
    }

    /// Returns the bytes of the decoded values.
    #[inline]
    fn value_bytes(&self) -> Option<&[u8]> {
        match (&self.values.place, &self.held) {
            (ValuesPlace::Own, _) => Some(&self.raw),
            (ValuesPlace::Cached, LoadedBlock::Cached(part)) => part.block().map(CachedBlock::values),
            (ValuesPlace::Cached, _) => None,
        }
    }

    /// Returns whether the current value needs no decoding.
    fn value_is_at_hand(&self) -> bool {
        let span = self.block().map_or(0..0, |block| block.value_span(self.slot));
        span.is_empty() || self.values.frame.entries().contains(&self.slot)
    }

    /// Copies rows from the current entry on, until a value is not decoded or the block ends. Returns the first entry
    /// not copied.
    fn copy_from_block(&self, reader: ReadPoint, until: Option<&[u8]>, rows: &mut Rows) -> usize {
        let Some(block) = self.block() else { return self.slot };
        let (order, prefix) = (self.table.blocks().order(), block.prefix());
        let values = self.value_bytes().unwrap_or_default();
        let has_own_log = self.table.has_own_value_log();
        let mut slot = self.slot;
        while slot < block.len() {
            let entry_meta = block.entry_meta(slot);
            let value = match block.value_span(slot) {
                span if span.is_empty() => &[],
                span if self.values.frame.entries().contains(&slot) => {
                    let Some(value) = values.get(self.values.frame.place_of(span)) else { break };
                    value
                }
                _ => break,
            };
            let key = |bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(prefix);
                block.append_suffix(slot, bytes);
            };
            if has_own_log && entry_meta.kind().holds_pointer() {
                break; // its place has another number here
            }
            if !reader.shows(entry_meta) || !rows.push_built(key, value, entry_meta, until) {
                break;
            }
            slot += 1;
            while slot < block.len() && block.goes_on(order, slot) {
                slot += 1;
            }
        }
        slot
    }

    /// Forgets the decoded values. A merge frees the memory of a long value.
    #[inline]
    fn forget_values(&mut self) {
        self.values = Values::default();
        if !self.fill_cache && self.disk.capacity().max(self.raw.capacity()) > KEPT_BY_MERGES_BYTES {
            self.free_long_value();
            let bytes = self.memory_bytes();
            self.charge.set(self.table.blocks().parts().whole_memory(), bytes);
        }
    }

    /// Frees the buffers that grew for a long value.
    #[cold]
    fn free_long_value(&mut self) {
        let kept = if self.fill_cache { KEPT_BYTES } else { KEPT_BY_MERGES_BYTES };
        for buffer in [&mut self.disk, &mut self.raw] {
            if buffer.capacity() > kept {
                *buffer = Vec::new();
            }
        }
    }

    /// Returns the bytes of the block and the buffers.
    fn memory_bytes(&self) -> u64 {
        let buffers = [&self.key, &self.passed, &self.own, &self.disk, &self.raw].map(Vec::capacity);
        self.kept_block + (buffers.iter().sum::<usize>() + self.window.memory_bytes()) as u64
    }

    /// Decodes the frame of the current value.
    #[cold]
    fn decode_frame(&mut self) -> Result<()> {
        let Some(frame) = self.block().and_then(|block| block.frame_of(self.slot)) else {
            return Err(self.blocks().file().corrupt(self.fence.at, "value without a frame"));
        };
        self.values = Values::default();
        self.free_long_value();
        let place = FramePlace { fence: self.fence, frame };
        let at = place.at();
        let (blocks, file) = (self.table.blocks(), self.table.blocks().file());
        let is_in_window = self.window.has(at, frame.disk);
        let bytes = self.window.frame(blocks, self.fence, (at, frame.disk), &mut self.disk)?;
        place.check(file, bytes)?;
        place.decode(file, bytes, usize::MAX, &mut self.raw)?;
        if frame.disk == frame.raw {
            if is_in_window {
                self.raw.clear();
                self.raw.extend_from_slice(bytes);
            } else {
                std::mem::swap(&mut self.disk, &mut self.raw);
            }
        }
        if !self.fill_cache && self.disk.capacity() > KEPT_BY_MERGES_BYTES {
            self.disk = Vec::new();
        }
        self.values = Values { frame, place: ValuesPlace::Own };
        self.charge_more()
    }
}

impl EntryCursor for TableCursor {
    fn skip_older(&mut self, below: SeqNo, until: Option<&[u8]>) -> Result<()> {
        if !self.valid || self.table.meta().max_seq >= below {
            return Ok(());
        }
        match until {
            Some(key) if self.table.blocks().order().compare(&self.key, key).is_lt() => self.seek(key),
            Some(_) => Ok(()),
            None => {
                self.valid = false;
                Ok(())
            }
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    fn set_scope(&mut self, scope: &Scope) {
        self.window.set_scope(self.table.blocks(), scope);
        self.valid = false;
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.enter(Some(0), false)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        match self.window.scope.clone().high() {
            Bound::Unbounded => self.enter(self.table.blocks().count().checked_sub(1), true),
            Bound::Included(high) | Bound::Excluded(high) => self.seek_for_prev(high),
        }
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.valid = false;
        if self.window.outside {
            return Ok(());
        }
        let order = self.table.blocks().order();
        if !self.block().is_some_and(|block| block.covers(order, target)) {
            let b = self.table.blocks().index().first_block(&mut self.near, target)?;
            self.load(b)?;
        }
        let order = self.table.blocks().order();
        let slot = self.block().map_or(0, |block| block.search(order, target, false).0);
        self.stand_from(slot)
    }

    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        self.valid = false;
        if self.window.outside {
            return Ok(());
        }
        let b = self.table.blocks().index().block_of(&mut self.near, target, seq)?;
        self.load(b)?;
        let order = self.table.blocks().order();
        let slot = self.block().map_or(0, |block| block.search_version(order, target, seq));
        self.stand_from(slot)
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.valid = false;
        if self.window.outside {
            return Ok(());
        }
        let b = self.table.blocks().index().last_block(&mut self.near, target)?;
        self.load(b)?;
        let order = self.table.blocks().order();
        match self.block().map_or(0, |block| block.search(order, target, true).0) {
            0 => self.enter(b.checked_sub(1), true),
            after => {
                self.stand(after - 1);
                Ok(())
            }
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        self.stand_from(self.slot + 1)
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        let order = self.table.blocks().order();
        let entries = self.shape.header.entries as usize;
        let mut slot = self.slot + 1;
        if let Some(block) = self.block() {
            while slot < entries && block.goes_on(order, slot) {
                slot += 1;
            }
        }
        if slot == entries {
            return self.leave_block();
        }
        self.stand(slot);
        Ok(())
    }

    fn copy_rows(&mut self, reader: ReadPoint, until: Option<&[u8]>, rows: &mut Rows) -> Result<()> {
        while self.valid && !rows.is_full() {
            let slot = self.copy_from_block(reader, until, rows);
            if slot == self.shape.header.entries as usize {
                self.stand(slot - 1);
                self.leave_block()?;
                continue;
            }
            if slot != self.slot {
                self.stand(slot);
            }
            if rows.is_full() || self.value_is_at_hand() {
                break;
            }
            match self.decode_frame() {
                Ok(()) => {}
                // It was refused memory and stands nowhere: the rows that follow are not at their end.
                Err(e) if !self.valid => return Err(e),
                // The error is left to the caller that requests the value.
                Err(_) => break,
            }
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        if self.slot > 0 {
            self.stand(self.slot - 1);
            Ok(())
        } else {
            self.enter(self.fence.block.checked_sub(1), true)
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn entry_meta(&self) -> EntryMeta {
        let Some(block) = self.block() else { return EntryMeta::default() };
        block.entry_meta(self.slot)
    }

    #[inline]
    fn value_len(&self) -> usize {
        self.block().map_or(0, |block| block.value_span(self.slot).len())
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<Stored<'_>> {
        let Some(block) = self.block() else { return Err(Error::internal("value without an entry")) };
        let kind = block.kind(self.slot);
        let span = block.value_span(self.slot);
        if span.is_empty() {
            return Ok((&self.key, kind, &[]));
        }
        if !self.values.frame.entries().contains(&self.slot) {
            self.decode_frame()?;
        }
        let span = self.values.frame.place_of(span);
        if kind.holds_pointer() && self.table.has_own_value_log() {
            let value = self.value_bytes().and_then(|values| values.get(span)).unwrap_or_default();
            self.place = self.table.meta().place_of(kind, value).unwrap_or_default();
            return Ok((&self.key, kind, &self.place));
        }
        match self.value_bytes().and_then(|values| values.get(span)) {
            Some(value) => Ok((&self.key, kind, value)),
            None => Err(self.blocks().file().corrupt(self.fence.at, "value extends beyond its frame")),
        }
    }
}
