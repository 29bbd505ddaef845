//! [`Blocks`]: finds, reads, verifies and caches the blocks of a table and their values.
//!
//! A block of up to [`WHOLE_BYTES`] is read as a whole, and its keys and values form one cache entry. If a block is longer,
//! only its key section is read and cached, and the frame of a requested value is read when it is needed. Such blocks
//! contain a long value, or were written when blocks were longer.
//!
//! Frames that are read separately are verified at each use, and some of them are cached. Long values never enter the cache.

use std::borrow::Cow;
use std::ops::Range;

use tidesdb_cache::{CacheKey, Handle};
use tidesdb_sync::{Guard, Kept};

use super::block::{Block, CachedBlock, LIMITS, Shape};
use super::decode::FramePlace;
use super::file::TableFile;
use super::gate::ReadGate;
use super::index::{CurrentPartition, Fence, Index, IndexReader};
use super::parts::{CachedPart, Parts};
use super::steps::{ReadOrigin, ReadStep};
use crate::types::Comparator;
use crate::{Error, Result};

/// Blocks up to this length on disk, two pages, are read as a whole. Writers close blocks at one page, so a single
/// entry of up to two pages needs no second read.
pub(super) const WHOLE_BYTES: u64 = 8 << 10;
/// An explanation asks the system about this many bytes of values.
const ASKED_BYTES: usize = 4096;
/// Result of reading a value if the gate refuses a read.
const REFUSED: Cow<'static, [u8]> = Cow::Borrowed(&[]);

/// Decoded key section and values of a block.
#[derive(Default)]
struct DecodeBuffers {
    keys: Vec<u8>,
    values: Vec<u8>,
}

/// Bytes read of a frame, and decoded.
#[derive(Default)]
struct FrameBuffers {
    disk: Vec<u8>,
    raw: Vec<u8>,
}

thread_local! {
    /// Bytes read of a block.
    static READ: Kept<Vec<u8>> = Kept::new();
    static DECODED: Kept<DecodeBuffers> = Kept::new();
    static FRAME: Kept<FrameBuffers> = Kept::new();
}

/// The keys of a block, kept readable, and its values if they are cached with them.
pub(super) enum Keys<'a> {
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
            Self::Pinned(cached) => Some(cached.block()),
            Self::Held(part) => part.block().map(CachedBlock::block),
            Self::Passing(block) => Some(Block { shape: &block.shape, bytes: &block.buffers().keys }),
        }
    }
}

impl Fence {
    /// Returns how many bytes of the block are read at once.
    pub(super) fn first_read(&self) -> usize {
        if self.disk <= WHOLE_BYTES { self.disk as usize } else { self.key_part }
    }
}

/// The blocks of a table.
pub(super) struct Blocks {
    parts: Parts,
    index: Index,
}

impl Blocks {
    pub(super) fn new(parts: Parts, index: Index) -> Self {
        Self { parts, index }
    }

    #[inline]
    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    #[inline]
    pub(super) fn file(&self) -> &TableFile {
        self.parts.file()
    }

    pub(super) fn file_mut(&mut self) -> &mut TableFile {
        self.parts.file_mut()
    }

    #[inline]
    pub(super) fn order(&self) -> &Comparator {
        self.index.order()
    }

    /// Returns the index for searches.
    #[inline(always)]
    pub(super) fn index(&self) -> IndexReader<'_> {
        IndexReader { index: &self.index, parts: &self.parts }
    }

    /// Returns whether the whole index is in memory, and with it the filter.
    #[inline]
    pub(super) fn is_resident(&self) -> bool {
        self.index.is_resident()
    }

    /// Returns the number of blocks.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.index.blocks()
    }

    /// Returns the bytes that stay in memory while the table is open.
    pub(super) fn resident_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Returns the keys of block `b`: from the cache, or read. If the cache is full, a block that the page cache has is cached
    /// only when it is looked up again within a while: reading it again takes less time than evicting others for it. Returns `None` if
    /// `gate` refuses the read.
    #[inline]
    pub(super) fn keys<'a>(
        &'a self,
        b: usize,
        guard: &'a Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<Keys<'a>>> {
        match self.parts.pinned(self.parts.key(b, 0), guard) {
            Some(CachedPart::Block(cached)) => {
                gate.note(|| ReadStep::Block { block: b as u64, from: ReadOrigin::Cache, bytes: 0 });
                Ok(Some(Keys::Pinned(cached)))
            }
            _ => self.load(b, gate),
        }
    }

    /// Reads a block, into the cache if that takes it.
    #[cold]
    fn load(&self, b: usize, gate: &mut impl ReadGate) -> Result<Option<Keys<'_>>> {
        let mut near = CurrentPartition::of_lookup(gate.explains());
        let fence = self.index().fence(&mut near, b)?;
        let mut disk = Kept::take(&READ).unwrap_or_default();
        let loaded = self.read(fence, gate, &mut disk).and_then(|read| match read {
            Some((read, is_cached)) if gate.explains() || is_cached && self.passes(b) => {
                self.decode(fence, &mut near, read).map(|block| Some(Keys::Passing(block)))
            }
            Some((read, _)) => self.cache(fence, &mut near, read).map(|part| Some(Keys::Held(part))),
            None => Ok(None),
        });
        Kept::put(&READ, disk);
        loaded
    }

    /// Returns whether block `b`, which the page cache has, is not worth a place in the block cache yet. A block that takes long to decode or to
    /// check is.
    fn passes(&self, b: usize) -> bool {
        self.order().is_bytewise() && !self.parts.is_worth_caching(self.parts.key(b, 0))
    }

    /// Reads a block, or the key section of a long one, and returns whether the page cache is known to have it. `None` if `gate` refuses the
    /// read.
    fn read<'a>(
        &'a self,
        fence: Fence,
        gate: &mut impl ReadGate,
        disk: &'a mut Vec<u8>,
    ) -> Result<Option<(&'a [u8], bool)>> {
        let (at, len, file) = (fence.at, fence.first_read(), self.file());
        if gate.explains() {
            let from = file.read_from(at, len, disk)?;
            gate.note(|| ReadStep::Block { block: fence.block as u64, from, bytes: len as u64 });
            return Ok(Some((disk, true)));
        }
        let mut is_read = false;
        let admitted = self.parts.admits_or_reads(gate, at, len, || {
            is_read = file.read_cached(at, len, disk);
            is_read
        });
        if !admitted {
            return Ok(None);
        }
        self.parts.count_read(len);
        gate.note(|| ReadStep::Block {
            block: fence.block as u64,
            from: ReadOrigin::Device,
            bytes: len as u64,
        });
        // Where the bytes come from matters only if the block may not be cached.
        if is_read || self.parts.cache().is_full() && file.read_cached(at, len, disk) {
            return Ok(Some((disk, true)));
        }
        file.read(at, len, disk).map(|read| Some((read, false)))
    }

    /// Returns a handle to the cached block `b`, if it is cached.
    pub(super) fn cached(&self, b: usize) -> Option<Handle<CachedPart>> {
        self.parts.cache().get(self.parts.key(b, 0)).filter(|part| part.block().is_some())
    }

    /// Verifies, decodes and caches the bytes read of a block ([`Fence::first_read`]). Values that fail verification
    /// are omitted: a reader that needs one reads its frame again and gets the error.
    pub(super) fn cache(
        &self,
        fence: Fence,
        near: &mut CurrentPartition,
        read: &[u8],
    ) -> Result<Handle<CachedPart>> {
        let block = self.decode(fence, near, read)?;
        let cached = CachedBlock::new(block.shape, [&block.buffers().keys, &block.buffers().values]);
        drop(block);
        Ok(self.parts.insert(self.parts.key(fence.block, 0), CachedPart::Block(cached)))
    }

    /// Verifies and decodes the bytes read of a block as [`Blocks::cache`] does, and does not cache it.
    fn decode(&self, fence: Fence, near: &mut CurrentPartition, read: &[u8]) -> Result<PassingBlock> {
        // Taken out, because a comparator may read, and its reads load blocks in this thread.
        let buffers = Kept::take(&DECODED).unwrap_or_default();
        let mut passing = PassingBlock { shape: Shape::default(), buffers: Some(buffers) };
        let Some(DecodeBuffers { keys, values }) = passing.buffers.as_deref_mut() else { return Ok(passing) };
        let shape = self.decode_keys(fence, near, read, keys)?;
        let block = Block { shape: &shape, bytes: keys };
        let is_whole = read.len() as u64 == fence.disk && block.values_len() <= LIMITS.values;
        if !is_whole || self.decode_values(fence, block, &read[fence.key_part..], values).is_err() {
            values.clear();
        }
        passing.shape = shape;
        Ok(passing)
    }

    #[cold]
    pub(super) fn wrong_part(&self, b: usize) -> Error {
        Error::internal(format!("no key section of block {b} of {}", self.file().name()))
    }

    /// Returns value `i` of block `b`. The result is meaningless if `gate` is shut afterwards.
    #[inline]
    pub(super) fn value<'g>(
        &'g self,
        b: usize,
        keys: &Keys<'g>,
        i: usize,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Cow<'g, [u8]>> {
        let block = keys.block().ok_or_else(|| self.wrong_part(b))?;
        let span = block.value_span(i);
        if span.is_empty() {
            return Ok(Cow::Borrowed(&[]));
        }
        if let Keys::Pinned(cached) = keys
            && let Some(value) = cached.values().get(span.clone())
        {
            return Ok(Cow::Borrowed(value));
        }
        let values = match keys {
            Keys::Held(part) => part.block().map_or(&[][..], CachedBlock::values),
            Keys::Passing(block) => &block.buffers().values,
            Keys::Pinned(_) => &[],
        };
        match values.get(span) {
            Some(value) => Ok(Cow::Owned(value.to_vec())),
            None => self.value_of_frame(b, block, i, guard, gate),
        }
    }

    /// Returns value `i` of block `b`, from its frame.
    fn value_of_frame<'g>(
        &'g self,
        b: usize,
        block: Block<'_>,
        i: usize,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Cow<'g, [u8]>> {
        let file = self.file();
        let fence = self.index().fence(&mut CurrentPartition::of_lookup(gate.explains()), b)?;
        let frame = block.frame_of(i).ok_or_else(|| file.corrupt(fence.at, "value without a frame"))?;
        let place = FramePlace { fence, frame };
        let span = frame.place_of(block.value_span(i));
        let key = (frame.raw <= LIMITS.frame && frame.number < usize::from(u8::MAX))
            .then(|| self.parts.key(b, frame.number as u8 + 1));
        if let Some(CachedPart::Values(values)) = key.and_then(|key| self.parts.pinned(key, guard)) {
            gate.note(|| ReadStep::Values { from: ReadOrigin::Cache, bytes: 0 });
            return self.part_of(&place, values, span).map(Cow::Borrowed);
        }
        if !self.parts.admits(gate, place.at(), frame.disk) {
            return Ok(REFUSED);
        }
        let explains = gate.explains();
        gate.note(|| self.step_of(&place, explains));
        let key = key.filter(|_| !explains);
        if frame.raw > LIMITS.frame {
            self.long_value(&place, span)
        } else {
            self.short_value(&place, span, key)
        }
        .map(Cow::Owned)
    }

    /// Returns the step of a read of a frame. Asks the system about its first bytes if it `asks`.
    #[cold]
    fn step_of(&self, place: &FramePlace, asks: bool) -> ReadStep {
        let (file, len) = (self.file(), place.frame.disk);
        let is_cached = asks && file.read_cached(place.at(), len.min(ASKED_BYTES), &mut Vec::new());
        let from = if is_cached { ReadOrigin::PageCache } else { ReadOrigin::Device };
        ReadStep::Values { from, bytes: len as u64 }
    }

    /// Returns a value of a frame with several, and caches the frame with `key` if that is worth it.
    fn short_value(&self, place: &FramePlace, span: Range<usize>, key: Option<CacheKey>) -> Result<Vec<u8>> {
        let key = key.filter(|key| self.parts.is_worth_caching(*key));
        let mut buffers = Kept::take(&FRAME).unwrap_or_default();
        let want = if key.is_some() { usize::MAX } else { span.end };
        let value = self.frame_values(place, want, &mut buffers).and_then(|values| {
            if let Some(key) = key {
                self.parts.insert(key, CachedPart::Values(values.into()));
            }
            self.part_of(place, values, span).map(<[u8]>::to_vec)
        });
        Kept::put(&FRAME, buffers);
        value
    }

    /// Returns the value of a frame with a single value: decoded into the returned memory, with no other copy kept.
    fn long_value(&self, place: &FramePlace, span: Range<usize>) -> Result<Vec<u8>> {
        let mut buffers = FrameBuffers::default();
        let values = self.frame_values(place, usize::MAX, &mut buffers)?;
        if span != (0..values.len()) {
            return self.part_of(place, values, span).map(<[u8]>::to_vec);
        }
        Ok(if place.frame.disk == place.frame.raw { buffers.disk } else { buffers.raw })
    }

    fn part_of<'v>(&self, place: &FramePlace, values: &'v [u8], span: Range<usize>) -> Result<&'v [u8]> {
        values.get(span).ok_or_else(|| self.file().corrupt(place.fence.at, "value extends beyond its frame"))
    }

    /// Returns the verified values of a frame, in one of the buffers. Only the first `want` bytes are
    /// guaranteed to be decoded.
    fn frame_values<'a>(
        &'a self,
        place: &FramePlace,
        want: usize,
        buffers: &'a mut FrameBuffers,
    ) -> Result<&'a [u8]> {
        let bytes = self.file().read(place.at(), place.frame.disk, &mut buffers.disk)?;
        self.parts.count_read(bytes.len());
        place.check(self.file(), bytes)?;
        place.decode(self.file(), bytes, want, &mut buffers.raw)
    }
}
