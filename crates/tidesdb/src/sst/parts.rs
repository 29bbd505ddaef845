//! [`Parts`]: the decoded parts of a table file (blocks, values, partitions of index and filter) in the block cache, and the reads
//! that bring them there.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidesdb_cache::{Cache, CacheKey, Handle};
use tidesdb_io::Dir;
use tidesdb_sync::{Guard, ShardedCounters};

use super::block::CachedBlock;
use super::file::TableFile;
use super::filter::FilterPartition;
use super::gate::{ReadGate, ReadPlace};
use super::index::BlockIndex;
use super::memory::{CacheMemory, TableMemory};
use super::steps::{ReadOrigin, ReadStep};
use crate::Result;
use crate::codec::Compression;
use crate::memory::Memory;
use crate::stats::counts;
use crate::types::TableId;

/// Offset of partition numbers in cache keys; block numbers are smaller.
const PARTITIONS: usize = 1 << 31;
/// Maximum bytes of a block or frame to prefetch. A longer read keeps the disk busy on its own.
const AHEAD_BYTES_MAX: usize = 128 << 10;

/// An entry of the block cache.
#[derive(Debug)]
pub enum CachedPart {
    /// A block (part 0).
    Block(CachedBlock),
    /// The values of a frame (part 1 + number of the frame), for a long block.
    Values(Box<[u8]>),
    /// A partition of an index.
    Index(Box<BlockIndex>),
    /// A partition of a filter.
    Filter(FilterPartition),
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

    /// Returns the size in memory, in bytes.
    pub(super) fn charge(&self) -> u64 {
        let heap = match self {
            Self::Block(block) => block.bytes(),
            Self::Values(values) => values.len(),
            Self::Index(index) => size_of::<BlockIndex>() + index.bytes(),
            Self::Filter(filter) => filter.bytes(),
        };
        (size_of::<Self>() + heap) as u64
    }
}

/// Shared resources for opening tables.
#[derive(Clone, Debug)]
pub struct TableContext {
    /// Directory of the table files.
    pub dir: Arc<dyn Dir>,
    /// Cache of decoded parts of blocks, and of partitions of indexes and filters.
    pub cache: Arc<Cache<CachedPart>>,
    /// Memory that tables may take from the cache.
    pub memory: Arc<TableMemory>,
    /// Counts the reads of lookups.
    pub reads: Arc<BlockReads>,
    /// Set before the directory is unlocked: another open may then remove any file.
    pub closed: Arc<AtomicBool>,
}

impl TableContext {
    /// Creates a context for tables in `dir`, with `cache_bytes` of `memory` for all their data in memory.
    pub fn new(dir: &Arc<dyn Dir>, memory: &Arc<Memory>, cache_bytes: u64) -> Self {
        Self::with(dir, TableMemory::alone(memory, cache_bytes))
    }

    /// As [`TableContext::new`], with a cache that several databases share.
    ///
    /// # Errors
    /// `Exhausted` if too many databases share it.
    pub fn sharing(dir: &Arc<dyn Dir>, memory: &Arc<Memory>, shared: &Arc<CacheMemory>) -> Result<Self> {
        Ok(Self::with(dir, TableMemory::among(memory, shared)?))
    }

    fn with(dir: &Arc<dyn Dir>, memory: Arc<TableMemory>) -> Self {
        let cache = Arc::clone(memory.shared.cache());
        Self { dir: Arc::clone(dir), cache, memory, reads: Arc::default(), closed: Arc::default() }
    }

    /// Caches block `b` of table `id`, which is being written, unless the cache is full. `None` from `block` caches nothing.
    pub(super) fn keep(&self, id: TableId, b: usize, block: impl FnOnce() -> Option<CachedBlock>) {
        self.memory.settle();
        if self.memory.capacity() == 0 || self.cache.is_full() {
            return;
        }
        if let Some(block) = block() {
            let part = CachedPart::Block(block);
            let charge = part.charge();
            self.cache.insert(block_key(self.memory.number, id, b, 0), part, charge);
        }
    }

    /// Removes what is cached of table `id`, which was not completed or not installed.
    pub fn forget(&self, id: TableId) {
        self.cache.erase_file(self.memory.number, id.0);
    }
}

/// Returns the key of block `b` of a table of `database` (part 0), or of its frame `part - 1`.
#[inline]
fn block_key(database: u16, id: TableId, b: usize, part: u8) -> CacheKey {
    CacheKey { file: id.0, database, block: b as u32, part }
}

/// Counts file reads by lookups that missed the cache: for a block, or for the values of a long block.
#[derive(Debug, Default)]
pub struct BlockReads(ShardedCounters<3>);

impl BlockReads {
    /// Returns the number of reads.
    pub fn reads(&self) -> u64 {
        self.0.sum(0)
    }

    /// Returns the number of bytes read.
    pub fn bytes(&self) -> u64 {
        self.0.sum(1)
    }

    /// Returns the number of look-ups of keys in tables that had no version of them, although no filter had ended them.
    pub fn in_vain(&self) -> u64 {
        self.0.sum(2)
    }
}

/// A partition, kept alive for one lookup.
pub(super) enum PartitionRef<'g> {
    Pinned(&'g CachedPart),
    Held(Handle<CachedPart>),
    /// Read for one lookup, and not cached.
    Own(Box<CachedPart>),
}

impl PartitionRef<'_> {
    pub(super) fn part(&self) -> &CachedPart {
        match self {
            Self::Pinned(part) => part,
            Self::Held(part) => part,
            Self::Own(part) => part,
        }
    }
}

/// Key of a partition in the cache, and its location in the file.
#[derive(Clone, Copy)]
pub(super) struct PartitionPlace {
    pub(super) key: CacheKey,
    pub(super) at: u64,
    pub(super) len: usize,
}

/// The parts of one table.
pub(super) struct Parts {
    file: TableFile,
    cache: Arc<Cache<CachedPart>>,
    memory: Arc<TableMemory>,
    reads: Arc<BlockReads>,
}

impl Parts {
    pub(super) fn new(context: &TableContext, file: TableFile) -> Self {
        let TableContext { cache, memory, reads, .. } = context.clone();
        Self { file, cache, memory, reads }
    }

    #[inline]
    pub(super) fn file(&self) -> &TableFile {
        &self.file
    }

    pub(super) fn file_mut(&mut self) -> &mut TableFile {
        &mut self.file
    }

    pub(super) fn cache(&self) -> &Cache<CachedPart> {
        &self.cache
    }

    /// Returns the memory of the database.
    pub(super) fn whole_memory(&self) -> &Arc<Memory> {
        &self.memory.whole
    }

    /// Returns the key of block `b` (part 0), or of its frame `part - 1`.
    #[inline]
    pub(super) fn key(&self, b: usize, part: u8) -> CacheKey {
        block_key(self.memory.number, self.file.meta().id, b, part)
    }

    /// Returns the key of partition `n` of the index.
    pub(super) fn index_key(&self, n: usize) -> CacheKey {
        self.key(n | PARTITIONS, 0)
    }

    /// Returns the key of partition `n` of the filter.
    pub(super) fn filter_key(&self, n: usize) -> CacheKey {
        self.key(n | PARTITIONS, 1)
    }

    /// Returns a cached part, kept alive by `guard`.
    #[inline]
    pub(super) fn pinned<'g>(&'g self, key: CacheKey, guard: &'g Guard) -> Option<&'g CachedPart> {
        self.cache.get_pinned(key, guard)
    }

    /// Caches a part.
    pub(super) fn insert(&self, key: CacheKey, part: CachedPart) -> Handle<CachedPart> {
        self.memory.settle();
        let charge = part.charge();
        self.cache.insert(key, part, charge)
    }

    /// Returns whether the cache takes the part with this key: one that takes long to decompress, or one that was looked up lately.
    pub(super) fn is_worth_caching(&self, key: CacheKey) -> bool {
        self.file.meta().compression == Compression::Zstd || self.cache.admits(key)
    }

    /// Returns a partition: pinned in the cache, or read into it, unless the lookup explains itself. Returns `None` if `gate` refuses the
    /// read. `step` is what `gate` sees of it.
    pub(super) fn partition<'g>(
        &'g self,
        place: PartitionPlace,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
        (decode, step): (impl FnOnce(&[u8]) -> Result<CachedPart>, impl FnOnce(ReadOrigin, u64) -> ReadStep),
    ) -> Result<Option<PartitionRef<'g>>> {
        let bytes = place.len as u64;
        match self.pinned(place.key, guard) {
            Some(part) => {
                gate.note(|| step(ReadOrigin::Cache, bytes));
                Ok(Some(PartitionRef::Pinned(part)))
            }
            None if !self.admits(gate, place.at, place.len) => Ok(None),
            None if gate.explains() => {
                let mut read = Vec::new();
                let from = self.file.read_from(place.at, place.len, &mut read)?;
                counts::add_read(place.len);
                gate.note(|| step(from, bytes));
                decode(&read).map(|part| Some(PartitionRef::Own(Box::new(part))))
            }
            None => {
                gate.note(|| step(ReadOrigin::Device, bytes));
                self.load(place, decode).map(|part| Some(PartitionRef::Held(part)))
            }
        }
    }

    /// Reads a partition into the cache.
    #[cold]
    pub(super) fn load(
        &self,
        place: PartitionPlace,
        decode: impl FnOnce(&[u8]) -> Result<CachedPart>,
    ) -> Result<Handle<CachedPart>> {
        let bytes = self.file.read_range(place.at..place.at + place.len as u64)?;
        self.count_read(place.len);
        Ok(self.insert(place.key, decode(&bytes)?))
    }

    /// Returns whether `gate` allows a read of `len` bytes at offset `at` now.
    #[inline]
    pub(super) fn admits(&self, gate: &mut impl ReadGate, at: u64, len: usize) -> bool {
        self.admits_or_reads(gate, at, len, || false)
    }

    /// Like [`Parts::admits`], but tries `read` before it starts loading: it reads the bytes if that needs no wait. If it returns
    /// true, the lookup goes on.
    #[inline]
    pub(super) fn admits_or_reads(
        &self,
        gate: &mut impl ReadGate,
        at: u64,
        len: usize,
        read: impl FnOnce() -> bool,
    ) -> bool {
        let load_ahead = || {
            let is_read = read();
            if !is_read {
                self.file.load_ahead(at, len.min(AHEAD_BYTES_MAX));
            }
            is_read
        };
        gate.admits(ReadPlace { table: self.file.meta().id, offset: at }, load_ahead)
    }

    /// Counts the bytes that a lookup read.
    pub(super) fn count_read(&self, bytes: usize) {
        self.reads.0.add(0, 1);
        self.reads.0.add(1, bytes as u64);
        counts::add_read(bytes);
    }

    /// Counts a lookup of a key of which the table has no version, although no filter had ended it.
    pub(super) fn count_in_vain(&self) {
        self.reads.0.add(2, 1);
    }
}
