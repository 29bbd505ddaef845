//! An open table. Blocks, and partitions of the index and filter, are read and checked when needed.
//!
//! A block is read as a whole, verified and decoded into the block cache (`load.rs`). In a mapped file, a block and
//! each of its frames are verified once per open (one bit each), and key sections stored raw are used in place. All
//! methods may be called by any number of threads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tidesdb_cache::{Cache, CacheKey};
use tidesdb_io::Dir;
use tidesdb_sync::{Guard, ShardedCounters};

use super::TableMeta;
use super::block::{CachedBlock, Find};
use super::filter::FilterPartition;
use super::gate::{AllowAllReads, ReadGate, ReadPlace};
use super::index::{BlockIndex, Index};
use super::layout::Footer;
use super::memory::{TableMemory, TableShare};
use super::open::IndexAndFilter;
use super::partitions::CurrentPartition;
use super::source::Source;
use super::value::TableValue;
use crate::memory::Memory;
use crate::types::{Comparator, Kind, SeqNo};
use crate::{Error, Result};

/// An entry of the block cache.
#[derive(Debug)]
pub enum CachedPart {
    /// A block (part 0).
    Block(CachedBlock),
    /// The values of a frame (part 1 + number of the frame), for a long block or a block whose keys are mapped.
    Values(Box<[u8]>),
    /// A partition of an index.
    Index(Box<BlockIndex>),
    /// A partition of a filter.
    Filter(FilterPartition),
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
    /// Whether to map files into memory.
    pub use_mmap: bool,
    /// Counts the reads of lookups.
    pub reads: Arc<BlockReads>,
}

/// Counts file reads by lookups that missed the cache: for a block, or for the values of a long block. Reads of mapped
/// files are not counted.
#[derive(Debug, Default)]
pub struct BlockReads(ShardedCounters<2>);

impl BlockReads {
    pub(super) fn add(&self, bytes: usize) {
        self.0.add(0, 1);
        self.0.add(1, bytes as u64);
    }

    /// Returns the number of reads.
    pub fn reads(&self) -> u64 {
        self.0.sum(0)
    }

    /// Returns the number of bytes read.
    pub fn bytes(&self) -> u64 {
        self.0.sum(1)
    }
}

impl TableContext {
    /// Creates a context for tables in `dir`, with `cache_bytes` of `memory` for all their data in memory.
    pub fn new(dir: &Arc<dyn Dir>, memory: &Arc<Memory>, cache_bytes: u64, use_mmap: bool) -> Self {
        let cache = Arc::new(Cache::new(cache_bytes));
        let memory = TableMemory::new(memory, &cache, cache_bytes);
        Self { dir: Arc::clone(dir), cache, memory, use_mmap, reads: Arc::default() }
    }
}

/// A version of a key, found by a lookup.
#[derive(Clone, Debug)]
pub struct FoundVersion<'g> {
    /// Sequence number of the commit that wrote it.
    pub seq: SeqNo,
    /// Kind of the entry.
    pub kind: Kind,
    /// Expiry in milliseconds since the UNIX epoch; 0 = never.
    pub expiry: u64,
    /// The value as stored; empty if it was not requested.
    pub value: TableValue<'g>,
}

/// An open table.
pub struct Table {
    pub(super) meta: Arc<TableMeta>,
    pub(super) name: String,
    pub(super) comparator: Comparator,
    pub(super) source: Source,
    pub(super) guide: IndexAndFilter,
    pub(super) footer: Footer,
    pub(super) cache: Arc<Cache<CachedPart>>,
    pub(super) memory: Arc<TableMemory>,
    /// Memory of its description and of this structure.
    _described: TableShare,
    pub(super) reads: Arc<BlockReads>,
    /// For a mapped file: which parts of each block were verified. Bit 0 is the key section, bit 1 + f is frame f.
    pub(super) verified: Box<[AtomicU16]>,
}

/// Maximum bytes of a block or frame to prefetch. A longer read keeps the disk busy on its own.
const AHEAD_BYTES_MAX: usize = 128 << 10;
/// Number of frames that have a bit. Later frames are verified at each use.
pub(super) const FRAME_BITS: usize = 15;

impl Table {
    pub(super) fn new(
        context: &TableContext,
        comparator: Comparator,
        (name, source): (String, Source),
        meta: Arc<TableMeta>,
        footer: Footer,
        guide: IndexAndFilter,
    ) -> Self {
        let bits = if source.map().is_some() { footer.blocks as usize } else { 0 };
        Self {
            comparator,
            source,
            footer,
            guide,
            verified: (0..bits).map(|_| AtomicU16::new(0)).collect(),
            cache: Arc::clone(&context.cache),
            _described: context.memory.take(size_of::<Self>() as u64 + meta.memory_bytes()),
            memory: Arc::clone(&context.memory),
            reads: Arc::clone(&context.reads),
            name,
            meta,
        }
    }

    /// Returns the table's description in the manifest.
    pub fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// Returns whether the table may contain a key with this hash ([`codec::key_hash`](crate::codec::key_hash)); false
    /// is certain. Use it only for byte order: tables in other orders have no filter, because equal keys may differ in
    /// bytes.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.guide.filter.may_contain(hash) && self.partition_may_contain(hash)
    }

    /// Starts loading the filter line that [`Table::get`] reads first, so that the filters of several tables load in
    /// parallel.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.guide.filter.prefetch(hash);
    }

    /// Returns the bytes of index and filter that stay in memory while the table is open.
    pub fn resident_bytes(&self) -> u64 {
        let index = match &self.guide.index {
            Index::Resident(index) => index.bytes(),
            Index::Partitioned(top) => top.bytes(),
        };
        (index + self.guide.filter.bytes() + size_of_val(&*self.verified)) as u64
    }

    /// Returns the newest version of `key` at or below `snapshot`; `hash` must be the hash of `key`. With `want_value`
    /// false, the value is neither read nor decoded, and is empty.
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
    ) -> Result<Option<FoundVersion<'g>>> {
        self.get_through((key, hash), snapshot, want_value, guard, &mut AllowAllReads)
    }

    /// Like [`Table::get`], but asks `gate` before each read. If the gate is shut afterwards, the result is
    /// meaningless.
    ///
    /// # Errors
    /// As [`Table::get`].
    #[inline]
    pub fn get_through<'g>(
        &'g self,
        (key, hash): (&[u8], u64),
        snapshot: SeqNo,
        want_value: bool,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<FoundVersion<'g>>> {
        if self.guide.filter.may_contain(hash) {
            self.find((key, hash), snapshot, want_value, guard, gate)
        } else {
            Ok(None)
        }
    }

    /// Not inlined: a lookup that the filter ends does not pay for it.
    #[inline(never)]
    fn find<'g>(
        &'g self,
        (key, hash): (&[u8], u64),
        snapshot: SeqNo,
        want_value: bool,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<FoundVersion<'g>>> {
        let mut b = match &self.guide.index {
            Index::Resident(index) => index.block_of(&self.comparator, key, snapshot),
            Index::Partitioned(top) => match self.find_block(top, (key, hash), snapshot, guard, gate)? {
                Some(b) => b,
                None => return Ok(None),
            },
        };
        loop {
            let Some(keys) = self.keys(b, guard, gate)? else { return Ok(None) };
            let block = keys.block().ok_or_else(|| self.wrong_part(b))?;
            match block.find(&self.comparator, key, snapshot) {
                Find::At(i) => {
                    let value = match want_value {
                        true => self.value(b, &keys, i, guard, gate)?,
                        false => TableValue::InPlace(&[]),
                    };
                    let (seq, kind, expiry) = (block.seq(i), block.kind(i), block.expiry(i));
                    return Ok(Some(FoundVersion { seq, kind, expiry, value }));
                }
                Find::Beyond if self.goes_on(&mut CurrentPartition::default(), b + 1)?.is_some() => b += 1,
                Find::Beyond | Find::Absent => return Ok(None),
            }
        }
    }

    /// Returns whether `gate` allows a read of `len` bytes at offset `at` now.
    #[inline]
    pub(super) fn admits(&self, gate: &mut impl ReadGate, at: u64, len: usize) -> bool {
        self.admits_or_reads(gate, at, len, || false)
    }

    /// Like [`Table::admits`], but tries `read` before it starts loading: it reads the bytes if that needs no wait. If it returns
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
                self.source.load_ahead(at, len.min(AHEAD_BYTES_MAX));
            }
            is_read
        };
        self.source.map().is_some() || gate.admits(ReadPlace { table: self.meta.id, offset: at }, load_ahead)
    }

    /// Records that the key section (bit 0) or frame `bit - 1` of a mapped block was verified.
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
