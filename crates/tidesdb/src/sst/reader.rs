//! An open table: blocks are read and checked as they are needed, and so are partitions of its index and filter.
//!
//! Of a mapped file, a block and each of its frames are verified once per open (a bit each), and key sections stored
//! raw are used in place. Otherwise key sections are verified and decoded into the block cache, and every frame is
//! verified at each read. All methods may be called by any number of threads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tidesdb_cache::{Cache, CacheKey, Handle};
use tidesdb_io::Dir;
use tidesdb_sync::{Guard, prefetch};

use super::TableMeta;
use super::block::{Block, Find, KeyBlock, Shape};
use super::filter::FilterPartition;
use super::index::{BlockIndex, Fence, Index, encloses};
use super::layout::{CRC_BYTES, Footer};
use super::memory::TableMemory;
use super::open::Guide;
use super::partitions::HeldPartition;
use super::source::{Source, slice};
use super::values::TableValue;
use crate::codec::{bound_crc, decompress};
use crate::types::{Comparator, Kind, SeqNo};
use crate::{Error, Result};

/// What the block cache holds of tables.
#[derive(Debug)]
pub enum CachedPart {
    /// A key section (part 0).
    Keys(KeyBlock),
    /// The values of a frame (part 1 + number of the frame), where decoding is dear.
    Values(Box<[u8]>),
    /// A partition of an index.
    Index(Box<BlockIndex>),
    /// A partition of a filter.
    Filter(FilterPartition),
}

/// What tables are opened with.
#[derive(Clone, Debug)]
pub struct TableContext {
    /// Where the files are.
    pub dir: Arc<dyn Dir>,
    /// Decoded parts of blocks, and partitions of indexes and filters.
    pub cache: Arc<Cache<CachedPart>>,
    /// What the tables may hold of the memory of the cache.
    pub memory: Arc<TableMemory>,
    /// Whether to map files into memory.
    pub use_mmap: bool,
}

impl TableContext {
    /// Tables in `dir`, with `cache_bytes` for all that is kept of them in memory.
    pub fn new(dir: &Arc<dyn Dir>, cache_bytes: u64, use_mmap: bool) -> Self {
        let cache = Arc::new(Cache::new(cache_bytes));
        let memory = TableMemory::new(&cache, cache_bytes);
        Self { dir: Arc::clone(dir), cache, memory, use_mmap }
    }
}

/// A version that a lookup found.
#[derive(Clone, Debug)]
pub struct Found<'g> {
    /// The commit that wrote it.
    pub seq: SeqNo,
    /// What it says.
    pub kind: Kind,
    /// Expiry in UNIX seconds, 0 = never.
    pub expiry: u32,
    /// The value as stored; empty if it was not wanted.
    pub value: TableValue<'g>,
}

/// An open table.
pub struct Table {
    pub(super) meta: Arc<TableMeta>,
    pub(super) name: String,
    pub(super) comparator: Comparator,
    pub(super) source: Source,
    pub(super) guide: Guide,
    pub(super) footer: Footer,
    pub(super) cache: Arc<Cache<CachedPart>>,
    /// Of a mapped file: what was verified of each block. Bit 0 is the key section, bit 1 + f is frame f.
    pub(super) verified: Box<[AtomicU16]>,
}

/// How much of a mapped block is asked for before it is searched.
const PREFETCH_LINES: usize = 10;
const PREFETCH_STRIDE: usize = 256;
/// Frames beyond this number have no bit and are verified at each use.
pub(super) const FRAME_BITS: usize = 15;

/// The key section of a block, held for reading.
pub(super) enum Keys<'a> {
    /// In place, in the map.
    Mapped(Shape, &'a [u8]),
    /// In the cache, while the guard lives.
    Pinned(&'a KeyBlock),
    /// In the cache, while the handle lives.
    Held(Handle<CachedPart>),
}

impl Keys<'_> {
    #[inline]
    pub(super) fn block(&self) -> Option<Block<'_>> {
        match self {
            Self::Mapped(shape, bytes) => Some(Block { shape, bytes }),
            Self::Pinned(keys) => Some(keys.block()),
            Self::Held(part) => part.keys(),
        }
    }
}

impl CachedPart {
    /// The block, if this is a key section.
    #[inline]
    pub(super) fn keys(&self) -> Option<Block<'_>> {
        match self {
            Self::Keys(keys) => Some(keys.block()),
            _ => None,
        }
    }
}

impl KeyBlock {
    #[inline]
    pub(super) fn block(&self) -> Block<'_> {
        Block { shape: &self.shape, bytes: &self.bytes }
    }
}

impl Table {
    pub(super) fn new(
        context: &TableContext,
        comparator: Comparator,
        (name, source): (String, Source),
        meta: Arc<TableMeta>,
        footer: Footer,
        guide: Guide,
    ) -> Self {
        let bits = if source.map().is_some() { footer.blocks as usize } else { 0 };
        Self {
            comparator,
            source,
            footer,
            guide,
            verified: (0..bits).map(|_| AtomicU16::new(0)).collect(),
            cache: Arc::clone(&context.cache),
            name,
            meta,
        }
    }

    /// What the manifest knows of the table.
    pub fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// Whether the table may hold a key with this hash ([`codec::key_hash`](crate::codec::key_hash)); false is certain.
    /// Only for byte order: other orders have no filter, as their equal keys may differ in bytes.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.guide.filter.may_contain(hash) && self.partition_may_contain(hash)
    }

    /// Begins to load what [`Table::get`] looks at first, so that the filters of several tables load at once.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.guide.filter.prefetch(hash);
    }

    /// Bytes of index and filter in memory for as long as the table is open.
    pub fn resident_bytes(&self) -> u64 {
        let index = match &self.guide.index {
            Index::Resident(index) => index.bytes(),
            Index::Partitioned(top) => top.bytes(),
        };
        (index + self.guide.filter.bytes() + size_of_val(&*self.verified)) as u64
    }

    /// The newest version of `key`, whose hash is `hash`, at or below `snapshot`. With `want_value` false, the value is
    /// neither read nor decoded, and comes back empty.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    #[inline]
    pub fn get<'g>(
        &'g self,
        key: &[u8],
        hash: u64,
        snapshot: SeqNo,
        want_value: bool,
        guard: &'g Guard,
    ) -> Result<Option<Found<'g>>> {
        if !self.guide.filter.may_contain(hash) {
            return Ok(None);
        }
        match &self.guide.index {
            Index::Resident(index) => self.find(index, key, snapshot, want_value, guard),
            Index::Partitioned(top) => self.find_by_partition(top, (key, hash), snapshot, want_value, guard),
        }
    }

    fn find<'g>(
        &'g self,
        index: &'g BlockIndex,
        key: &[u8],
        snapshot: SeqNo,
        want_value: bool,
        guard: &'g Guard,
    ) -> Result<Option<Found<'g>>> {
        let mut b = index.block_of(&self.comparator, key, snapshot);
        loop {
            let fence = index.place(b).ok_or_else(|| self.wrong_part(b))?;
            let mut beyond = false;
            match self.find_in(fence, (key, snapshot), want_value, guard, &mut beyond) {
                Ok(None) if beyond && index.goes_on(b + 1).is_some() => b += 1,
                found => return found,
            }
        }
    }

    /// Looks a version up in one block. Sets `beyond` if it may be in the next one, should versions of the key go on there.
    #[inline(always)]
    pub(super) fn find_in<'g>(
        &'g self,
        fence: Fence,
        (key, snapshot): (&[u8], SeqNo),
        want_value: bool,
        guard: &'g Guard,
        beyond: &mut bool,
    ) -> Result<Option<Found<'g>>> {
        let keys = self.keys(fence, guard)?;
        let block = keys.block().ok_or_else(|| self.wrong_part(fence.block))?;
        match block.find(&self.comparator, key, snapshot) {
            Find::At(i) => {
                let value = match want_value {
                    true => self.value(fence, block, i, guard)?,
                    false => TableValue::InPlace(&[]),
                };
                let (seq, kind, expiry) = (block.seq(i), block.kind(i), block.expiry(i));
                Ok(Some(Found { seq, kind, expiry, value }))
            }
            Find::Beyond => {
                *beyond = true;
                Ok(None)
            }
            Find::Absent => Ok(None),
        }
    }

    /// The key section of a block: in place, or from the cache, read into it if need be.
    #[inline]
    pub(super) fn keys<'a>(&'a self, fence: Fence, guard: &'a Guard) -> Result<Keys<'a>> {
        let b = fence.block;
        if let Some(keys) = self.mapped_keys(b, fence)? {
            return Ok(keys);
        }
        let cache_key = self.cache_key(b, 0);
        match self.cache.get_pinned(cache_key, guard) {
            Some(CachedPart::Keys(keys)) => Ok(Keys::Pinned(keys)),
            _ => self.load_keys(b, fence).map(Keys::Held),
        }
    }

    /// The key section of block `b` in the map, verified, if the file is mapped and the section is stored raw.
    #[inline]
    pub(super) fn mapped_keys(&self, b: usize, fence: Fence) -> Result<Option<Keys<'_>>> {
        let Some(map) = self.source.map() else { return Ok(None) };
        let bytes = slice(map, fence.at, fence.key_part)
            .ok_or_else(|| self.corrupt(fence.at, "block out of file"))?;
        // The header, and where a search of the heads will look first: one wait instead of several.
        (0..PREFETCH_LINES).for_each(|line| prefetch(bytes, line * PREFETCH_STRIDE));
        if self.verified.get(b).is_none_or(|bits| bits.load(Ordering::Relaxed) & 1 == 0) {
            self.check_keys(b, fence, bytes)?;
        }
        let shape = Shape::parse(bytes).map_err(|what| self.corrupt(fence.at, what))?;
        Ok(if shape.is_compressed() { None } else { Some(Keys::Mapped(shape, bytes)) })
    }

    /// Verifies the key part of a mapped block, and validates it if it is used in place.
    #[cold]
    fn check_keys(&self, b: usize, fence: Fence, bytes: &[u8]) -> Result<()> {
        self.check_crc(fence, bytes)?;
        let shape = self.shape(fence, bytes)?;
        if !shape.is_compressed() {
            self.validate(fence, &mut HeldPartition::default(), Block { shape: &shape, bytes })?;
        }
        self.mark_verified(b, 0);
        Ok(())
    }

    /// Reads, verifies and decodes a key section into the cache.
    #[cold]
    pub(super) fn load_keys(&self, b: usize, fence: Fence) -> Result<Handle<CachedPart>> {
        let keys = self.read_keys(fence, &mut HeldPartition::default())?;
        let charge = keys.charge();
        Ok(self.cache.insert(self.cache_key(b, 0), CachedPart::Keys(keys), charge))
    }

    /// The cached key section of block `b`, held, if there is one.
    pub(super) fn cached_keys(&self, b: usize) -> Option<Handle<CachedPart>> {
        self.cache.get(self.cache_key(b, 0)).filter(|part| part.keys().is_some())
    }

    /// Reads, verifies and decodes a key section.
    pub(super) fn read_keys(&self, fence: Fence, near: &mut HeldPartition) -> Result<KeyBlock> {
        let (mut disk, mut bytes) = (Vec::new(), Vec::new());
        let shape = self.read_keys_into(fence, near, &mut disk, &mut bytes)?;
        Ok(KeyBlock { shape, bytes: bytes.into() })
    }

    /// Reads a key section with the help of `disk` and leaves header, frame table and raw key section in `bytes`.
    pub(super) fn read_keys_into(
        &self,
        fence: Fence,
        near: &mut HeldPartition,
        disk: &mut Vec<u8>,
        bytes: &mut Vec<u8>,
    ) -> Result<Shape> {
        let read = self.source.read(fence.at, fence.key_part, disk, &self.name)?;
        self.check_crc(fence, read)?;
        let shape = self.shape(fence, read)?;
        let (front, keys) = read.split_at(shape.prefix_at as usize);
        bytes.clear();
        bytes.extend_from_slice(front);
        if shape.is_compressed() {
            bytes.resize(shape.end as usize, 0);
            let raw = &mut bytes[shape.prefix_at as usize..];
            decompress(self.meta.compression, keys, raw, |what| self.corrupt(fence.at, what))?;
        } else {
            bytes.extend_from_slice(keys);
        }
        self.validate(fence, near, Block { shape: &shape, bytes })?;
        Ok(shape)
    }

    fn check_crc(&self, fence: Fence, key_part: &[u8]) -> Result<()> {
        match key_part.split_first_chunk::<CRC_BYTES>() {
            Some((crc, rest)) if bound_crc(&self.meta.salt, fence.at, &[rest]).to_le_bytes() == *crc => {
                Ok(())
            }
            _ => Err(self.corrupt(fence.at, "checksum of a block")),
        }
    }

    /// The shape of a block whose key part is as long as the index says.
    fn shape(&self, fence: Fence, key_part: &[u8]) -> Result<Shape> {
        let shape = Shape::parse(key_part).map_err(|what| self.corrupt(fence.at, what))?;
        if shape.disk_bytes() != fence.key_part {
            return Err(self.corrupt(fence.at, "length of a key section differs from the index"));
        }
        if shape.has_heads() != self.comparator.is_bytewise() {
            return Err(self.corrupt(fence.at, "block written for another key order"));
        }
        Ok(shape)
    }

    fn validate(&self, fence: Fence, near: &mut HeldPartition, block: Block<'_>) -> Result<()> {
        let values_disk = fence.disk - fence.key_part as u64;
        let seqs = self.meta.min_seq..=self.meta.max_seq;
        block
            .validate(values_disk, self.meta.compression, seqs)
            .map_err(|what| self.corrupt(fence.at, what))?;
        self.validate_order(fence, near, block)
    }

    /// Checks the order of the entries and their place between the fences: walks and searches that meet entries out of order
    /// may come to the same place again and again.
    fn validate_order(&self, fence: Fence, near: &mut HeldPartition, block: Block<'_>) -> Result<()> {
        if !block.is_sorted(&self.comparator) {
            return Err(self.corrupt(fence.at, "entries out of order"));
        }
        let (mut first, mut last) = (Vec::new(), Vec::new());
        block.key_into(0, &mut first);
        block.key_into(block.len() - 1, &mut last);
        let (first, last) = ((&first[..], block.seq(0)), (&last[..], block.seq(block.len() - 1)));
        let borders = (self.border(near, fence.block)?, self.border(near, fence.block + 1)?);
        if encloses(&self.comparator, borders, first, last) {
            Ok(())
        } else {
            Err(self.corrupt(fence.at, "index does not fit the block"))
        }
    }

    /// Notes that the key section (0) or frame `bit - 1` of a mapped block was verified.
    pub(super) fn mark_verified(&self, b: usize, bit: usize) {
        if let (Some(bits), true) = (self.verified.get(b), bit <= FRAME_BITS) {
            bits.fetch_or(1 << bit, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn cache_key(&self, b: usize, part: u8) -> CacheKey {
        CacheKey { file: self.meta.id.0, block: b as u32, part }
    }

    #[cold]
    pub(super) fn corrupt(&self, at: u64, what: &str) -> Error {
        Error::corrupt(&self.name, at, what)
    }

    #[cold]
    pub(super) fn wrong_part(&self, b: usize) -> Error {
        Error::internal(format!("no key section of block {b} of {}", self.name))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.name)
            .field("entries", &self.meta.entries)
            .finish_non_exhaustive()
    }
}
