//! Loading of blocks: reads, verifies, decodes and caches them.
//!
//! A block of up to [`WHOLE_BYTES`] is read as a whole, and its keys and values form one cache entry. For a longer
//! block, only the key section is read and cached here; `values.rs` reads the frame of a requested value. Such blocks
//! contain a long value, or were written when blocks were longer.

use std::sync::atomic::Ordering;

use tidesdb_cache::{CacheKey, Handle};
use tidesdb_sync::{Guard, Kept, prefetch};

use super::Table;
use super::block::{Block, CachedBlock, LIMITS, Shape};
use super::gate::ReadGate;
use super::index::{Fence, VersionKey, encloses};
use super::layout::CRC_BYTES;
use super::partitions::CurrentPartition;
use super::reader::CachedPart;
use super::source::slice;
use crate::Result;
use crate::codec::{Compression, bound_crc, decompress_into};

/// Blocks up to this length on disk, two pages, are read as a whole. Writers close blocks at one page, so a single
/// entry of up to two pages needs no second read.
pub(super) const WHOLE_BYTES: u64 = 8 << 10;
/// Number of prefetches in a mapped block before it is searched, and their distance in bytes.
const PREFETCH_LINES: usize = 10;
const PREFETCH_STRIDE: usize = 256;

/// Where the bytes of a block come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    PageCache,
    /// The page cache or the device.
    Unknown,
}

/// Decoded key section and values of a block.
#[derive(Default)]
struct DecodeBuffers {
    keys: Vec<u8>,
    values: Vec<u8>,
}

thread_local! {
    /// Bytes read.
    static READ: Kept<Vec<u8>> = Kept::new();
    static DECODED: Kept<DecodeBuffers> = Kept::new();
}

/// The keys of a block, kept readable, and its values if they are cached with them.
pub(super) enum Keys<'a> {
    /// Used in place in the mapped file.
    Mapped(Shape, &'a [u8]),
    /// In the cache, kept alive by the epoch guard.
    Pinned(&'a CachedBlock),
    /// In the cache, kept alive by the handle.
    Held(Handle<CachedPart>),
    /// Decoded for this lookup, and not cached.
    Passing(PassingBlock),
}

/// A block in the buffers of this thread, which get them back when it is dropped.
pub(super) struct PassingBlock {
    shape: Shape,
    /// `None` only while it is dropped.
    buffers: Option<Box<DecodeBuffers>>,
}

impl PassingBlock {
    #[inline]
    fn buffers(&self) -> &DecodeBuffers {
        static NONE: DecodeBuffers = DecodeBuffers { keys: Vec::new(), values: Vec::new() };
        self.buffers.as_deref().unwrap_or(&NONE)
    }

    /// Returns all values of the block, concatenated; empty if they are read separately.
    #[inline]
    pub(super) fn values(&self) -> &[u8] {
        &self.buffers().values
    }
}

impl Drop for PassingBlock {
    fn drop(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            Kept::put(&DECODED, buffers);
        }
    }
}

impl Keys<'_> {
    #[inline]
    pub(super) fn block(&self) -> Option<Block<'_>> {
        match self {
            Self::Mapped(shape, bytes) => Some(Block { shape, bytes }),
            Self::Pinned(cached) => Some(cached.block()),
            Self::Held(part) => part.block().map(CachedBlock::block),
            Self::Passing(block) => Some(Block { shape: &block.shape, bytes: &block.buffers().keys }),
        }
    }
}

impl CachedPart {
    /// Returns the block, if this part is one.
    #[inline]
    pub(super) fn block(&self) -> Option<&CachedBlock> {
        match self {
            Self::Block(block) => Some(block),
            _ => None,
        }
    }
}

impl Fence {
    /// Returns how many bytes of the block are read at once.
    pub(super) fn first_read(&self) -> usize {
        if self.disk <= WHOLE_BYTES { self.disk as usize } else { self.key_part }
    }
}

impl Table {
    /// Returns the keys of block `b`: in place, or from the cache, or read. A full cache takes a block that the page cache has only
    /// at the second look within a while: to read it again takes less time than to evict others for it. Returns `None` if `gate` refuses the
    /// read.
    #[inline]
    pub(super) fn keys<'a>(
        &'a self,
        b: usize,
        guard: &'a Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<Keys<'a>>> {
        if self.source.map().is_some()
            && let Some(keys) = self.mapped_keys(self.fence(&mut CurrentPartition::default(), b)?)?
        {
            return Ok(Some(keys));
        }
        match self.cache.get_pinned(self.cache_key(b, 0), guard) {
            Some(CachedPart::Block(cached)) => Ok(Some(Keys::Pinned(cached))),
            _ => self.load_block(b, gate),
        }
    }

    /// Returns the verified key section of a mapped block, if the file is mapped and the section is stored raw.
    #[inline]
    pub(super) fn mapped_keys(&self, fence: Fence) -> Result<Option<Keys<'_>>> {
        let Some(map) = self.source.map() else { return Ok(None) };
        let bytes = slice(map, fence.at, fence.key_part)
            .ok_or_else(|| self.corrupt(fence.at, "block extends beyond the end of the file"))?;
        // The header, and the positions that a search of the heads reads first: one wait instead of several.
        (0..PREFETCH_LINES).for_each(|line| prefetch(bytes, line * PREFETCH_STRIDE));
        if self.verified.get(fence.block).is_none_or(|bits| bits.load(Ordering::Relaxed) & 1 == 0) {
            self.check_keys(fence, bytes)?;
        }
        let shape = Shape::parse(bytes).map_err(|what| self.corrupt(fence.at, what))?;
        Ok(if shape.is_compressed() { None } else { Some(Keys::Mapped(shape, bytes)) })
    }

    /// Verifies the key part of a mapped block, and validates it if it is used in place.
    #[cold]
    fn check_keys(&self, fence: Fence, bytes: &[u8]) -> Result<()> {
        let shape = self.shape(fence, bytes)?;
        if !shape.is_compressed() {
            self.validate(fence, &mut CurrentPartition::default(), Block { shape: &shape, bytes })?;
        }
        self.mark_verified(fence.block, 0);
        Ok(())
    }

    /// Reads a block, into the cache if that takes it.
    #[cold]
    fn load_block(&self, b: usize, gate: &mut impl ReadGate) -> Result<Option<Keys<'_>>> {
        let mut near = CurrentPartition::default();
        let fence = self.fence(&mut near, b)?;
        let mut disk = Kept::take(&READ).unwrap_or_default();
        let loaded = self.read_block(fence, gate, &mut disk).and_then(|read| match read {
            Some((read, Origin::PageCache)) if self.passes(b) => {
                self.decode_block(fence, &mut near, read).map(|block| Some(Keys::Passing(block)))
            }
            Some((read, _)) => self.cache_block(fence, &mut near, read).map(|part| Some(Keys::Held(part))),
            None => Ok(None),
        });
        Kept::put(&READ, disk);
        loaded
    }

    /// Returns whether block `b`, which the page cache has, is not worth a place in the block cache yet. A block that takes long to decode or to
    /// check is.
    fn passes(&self, b: usize) -> bool {
        self.comparator.is_bytewise() && !self.is_worth_caching(self.cache_key(b, 0))
    }

    /// Returns whether the cache takes the part of the table with this key: one that takes long to decompress, or one that was looked up lately.
    pub(super) fn is_worth_caching(&self, key: CacheKey) -> bool {
        self.meta.compression == Compression::Zstd || self.cache.admits(key)
    }

    /// Reads a block, or the key section of a long one. `None` if `gate` refuses the read.
    fn read_block<'a>(
        &'a self,
        fence: Fence,
        gate: &mut impl ReadGate,
        disk: &'a mut Vec<u8>,
    ) -> Result<Option<(&'a [u8], Origin)>> {
        let (at, len) = (fence.at, fence.first_read());
        let mut is_read = false;
        let admitted = self.admits_or_reads(gate, at, len, || {
            is_read = self.source.read_cached(at, len, disk);
            is_read
        });
        if !admitted {
            return Ok(None);
        }
        self.count_read(len);
        // Where the bytes come from matters only if the block may not be cached.
        if is_read || self.cache.is_full() && self.source.read_cached(at, len, disk) {
            return Ok(Some((disk, Origin::PageCache)));
        }
        self.source.read(at, len, disk, &self.name).map(|read| Some((read, Origin::Unknown)))
    }

    /// Counts the bytes that a lookup read.
    pub(super) fn count_read(&self, bytes: usize) {
        if self.source.map().is_none() {
            self.reads.add(bytes);
        }
    }

    /// Verifies, decodes and caches the bytes read of a block ([`Fence::first_read`]). Values that fail verification
    /// are omitted: a reader that needs one reads its frame again and gets the error.
    pub(super) fn cache_block(
        &self,
        fence: Fence,
        near: &mut CurrentPartition,
        read: &[u8],
    ) -> Result<Handle<CachedPart>> {
        let block = self.decode_block(fence, near, read)?;
        let cached = CachedBlock::new(block.shape, &block.buffers().keys, &block.buffers().values);
        drop(block);
        let charge = cached.charge();
        self.memory.settle();
        Ok(self.cache.insert(self.cache_key(fence.block, 0), CachedPart::Block(cached), charge))
    }

    /// Verifies and decodes the bytes read of a block as [`Table::cache_block`] does, and does not cache it.
    fn decode_block(&self, fence: Fence, near: &mut CurrentPartition, read: &[u8]) -> Result<PassingBlock> {
        // Taken out, because a comparator may read, and its reads load blocks in this thread.
        let mut buffers = Kept::take(&DECODED).unwrap_or_default();
        match self.decode_into(fence, near, read, &mut buffers) {
            Ok(shape) => Ok(PassingBlock { shape, buffers: Some(buffers) }),
            Err(e) => {
                Kept::put(&DECODED, buffers);
                Err(e)
            }
        }
    }

    /// Like [`Table::decode_block`], into these buffers.
    fn decode_into(
        &self,
        fence: Fence,
        near: &mut CurrentPartition,
        read: &[u8],
        buffers: &mut DecodeBuffers,
    ) -> Result<Shape> {
        let DecodeBuffers { keys, values } = buffers;
        let shape = self.decode_keys(fence, near, read, keys)?;
        let block = Block { shape: &shape, bytes: keys };
        let is_whole = read.len() as u64 == fence.disk && block.values_len() <= LIMITS.values;
        let has_values =
            is_whole && self.decode_values(fence, block, &read[fence.key_part..], values).is_ok();
        if !has_values {
            values.clear();
        }
        Ok(shape)
    }

    /// Returns a handle to the cached block `b`, if it is cached.
    pub(super) fn cached_block(&self, b: usize) -> Option<Handle<CachedPart>> {
        self.cache.get(self.cache_key(b, 0)).filter(|part| part.block().is_some())
    }

    /// Verifies the key part of a block, which is a prefix of `read`, and stores header, frame table and raw key
    /// section in `bytes`.
    pub(super) fn decode_keys(
        &self,
        fence: Fence,
        near: &mut CurrentPartition,
        read: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<Shape> {
        let read = read.get(..fence.key_part).unwrap_or(read);
        let shape = self.shape(fence, read)?;
        let (front, keys) = read.split_at(shape.prefix_at as usize);
        bytes.clear();
        bytes.extend_from_slice(front);
        if shape.is_compressed() {
            bytes.resize(shape.end as usize, 0);
            let raw = &mut bytes[shape.prefix_at as usize..];
            shape.decode_keys(self.meta.compression, keys, raw, |what| self.corrupt(fence.at, what))?;
        } else {
            bytes.extend_from_slice(keys);
        }
        self.validate(fence, near, Block { shape: &shape, bytes })?;
        Ok(shape)
    }

    /// Verifies all frames of a block, with which `disk` begins, and stores their values in `values`. Returns where the last frame ends.
    pub(super) fn decode_values(
        &self,
        fence: Fence,
        block: Block<'_>,
        disk: &[u8],
        values: &mut Vec<u8>,
    ) -> Result<usize> {
        let mut rest = Vec::new();
        // The old content of `values` is not cleared first, because that would be an extra pass per block.
        let (mut len, mut end) = (0, 0);
        for frame in block.frames() {
            let at = fence.at + fence.key_part as u64 + frame.at;
            let bytes = slice(disk, frame.at, frame.disk)
                .ok_or_else(|| self.corrupt(at, "frame extends beyond its block"))?;
            if bound_crc(&self.meta.salt, at, &[bytes]) != frame.crc {
                return Err(self.corrupt(at, "checksum mismatch in values"));
            }
            if frame.disk == frame.raw {
                values.truncate(len);
                values.extend_from_slice(bytes);
            } else {
                let first = len == 0;
                let to = if first { &mut *values } else { &mut rest };
                decompress_into(self.meta.compression, bytes, frame.raw, to, |what| self.corrupt(at, what))?;
                if !first {
                    values.extend_from_slice(&rest);
                }
            }
            len = values.len();
            end = frame.at as usize + frame.disk;
        }
        values.truncate(len);
        Ok(end)
    }

    /// Checks that a block has only zeros after its frames, which end at `end` of `disk`. Lookups and scans do not need the padding
    /// and do not check it.
    pub(super) fn check_padding(&self, fence: Fence, end: usize, disk: &[u8]) -> Result<()> {
        match disk.get(end..) {
            Some(padding) if padding.iter().all(|&byte| byte == 0) => Ok(()),
            _ => Err(self.corrupt(fence.at + (fence.key_part + end) as u64, "padding of a block")),
        }
    }

    /// Returns the shape of a block. Checks the checksum of its key part and that its length matches the index.
    fn shape(&self, fence: Fence, key_part: &[u8]) -> Result<Shape> {
        match key_part.split_first_chunk::<CRC_BYTES>() {
            Some((crc, rest)) if bound_crc(&self.meta.salt, fence.at, &[rest]).to_le_bytes() == *crc => {}
            _ => return Err(self.corrupt(fence.at, "checksum mismatch in a block")),
        }
        let shape = Shape::parse(key_part).map_err(|what| self.corrupt(fence.at, what))?;
        if shape.disk_bytes() != fence.key_part {
            return Err(self.corrupt(fence.at, "length of the key section differs from the index"));
        }
        if shape.has_heads() != self.comparator.is_bytewise() {
            return Err(self.corrupt(fence.at, "block written for another key order"));
        }
        Ok(shape)
    }

    fn validate(&self, fence: Fence, near: &mut CurrentPartition, block: Block<'_>) -> Result<()> {
        let values_disk = fence.disk - fence.key_part as u64;
        let seqs = self.meta.min_seq..=self.meta.max_seq;
        block
            .validate(values_disk, self.meta.compression, seqs)
            .map_err(|what| self.corrupt(fence.at, what))?;
        self.validate_order(fence, near, block)
    }

    /// Checks the order of the entries and that they lie between the fences. Otherwise scans and searches of unordered
    /// entries could return to the same position forever. Without the comparator, a table is only verified, from its first
    /// entry to its last.
    fn validate_order(&self, fence: Fence, near: &mut CurrentPartition, block: Block<'_>) -> Result<()> {
        if self.comparator.is_unresolved() {
            return Ok(());
        }
        if !block.is_sorted(&self.comparator) {
            return Err(self.corrupt(fence.at, "entries out of order"));
        }
        let last_at = block.len() - 1;
        let (first, last) = (block.key_at(0), block.key_at(last_at));
        let first = VersionKey { key: &first, seq: block.seq(0) };
        let last = VersionKey { key: &last, seq: block.seq(last_at) };
        let (lower, upper) = (self.border(near, fence.block)?, self.border(near, fence.block + 1)?);
        if encloses(&self.comparator, lower, upper, first, last) {
            Ok(())
        } else {
            Err(self.corrupt(fence.at, "index does not match the block"))
        }
    }
}
