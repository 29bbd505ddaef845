//! An open table: index and filter in memory, blocks read and checked as they are needed.
//!
//! A block is read as a whole, verified and decoded into the block cache (`load.rs`). Of a mapped file, a block and each of its
//! frames are verified once per open (a bit each), and key sections stored raw are used in place. All methods may be
//! called by any number of threads.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tidesdb_cache::{Cache, CacheKey};
use tidesdb_io::{Access, Dir};
use tidesdb_sync::{Guard, ShardedCounters};

use super::TableMeta;
use super::block::{CachedBlock, Find};
use super::filter::Filter;
use super::index::{Fence, Index};
use super::layout::{FOOTER_BYTES, Footer, open_section};
use super::source::Source;
use super::values::TableValue;
use crate::codec::Decoder;
use crate::types::{Comparator, Kind, SeqNo};
use crate::{Error, Result, files};

/// What the block cache holds of tables.
#[derive(Debug)]
pub enum CachedPart {
    /// A block (part 0).
    Block(CachedBlock),
    /// The values of a frame (part 1 + number of the frame) of a long block, or of one whose keys are mapped.
    Values(Box<[u8]>),
}

/// What tables are opened with.
#[derive(Clone, Debug)]
pub struct TableContext {
    /// Where the files are.
    pub dir: Arc<dyn Dir>,
    /// Decoded parts of blocks.
    pub cache: Arc<Cache<CachedPart>>,
    /// Whether to map files into memory.
    pub use_mmap: bool,
    /// What lookups read.
    pub reads: Arc<BlockReads>,
}

/// Reads of files by lookups that did not find a block, or the values of a long one, in the cache. Maps are not counted.
#[derive(Debug, Default)]
pub struct BlockReads(ShardedCounters<2>);

impl BlockReads {
    pub(super) fn add(&self, bytes: usize) {
        self.0.add(0, 1);
        self.0.add(1, bytes as u64);
    }

    /// Number of reads.
    pub fn reads(&self) -> u64 {
        self.0.sum(0)
    }

    /// Bytes read.
    pub fn bytes(&self) -> u64 {
        self.0.sum(1)
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
    pub(super) index: Index,
    pub(super) filter: Filter,
    pub(super) footer: Footer,
    pub(super) cache: Arc<Cache<CachedPart>>,
    pub(super) reads: Arc<BlockReads>,
    /// Of a mapped file: what was verified of each block. Bit 0 is the key section, bit 1 + f is frame f.
    pub(super) verified: Box<[AtomicU16]>,
}

/// Frames beyond this number have no bit and are verified at each use.
pub(super) const FRAME_BITS: usize = 15;

impl Table {
    /// Opens the table that `meta` describes, and refuses any other file.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged or not the one described, `FormatTooNew`, `Io`.
    pub fn open(context: &TableContext, comparator: &Comparator, meta: Arc<TableMeta>) -> Result<Arc<Self>> {
        let name = files::table(meta.id);
        let file = context.dir.open(&name, Access::Random).map_err(|e| Error::io("open", &name, e))?;
        let source = Source::open(file, context.use_mmap, meta.file_bytes, &name)?;
        let footer = read_footer(&source, &meta, &name)?;
        let footer_at = meta.file_bytes - FOOTER_BYTES as u64;
        let mut buf = Vec::new();
        let mut section = |start: u64, end: u64| -> Result<Vec<u8>> {
            let len =
                usize::try_from(end - start).map_err(|_| Error::corrupt(&name, start, "section too long"))?;
            source.read(start, len, &mut buf, &name).map(<[u8]>::to_vec)
        };
        let props = section(footer.props_at, footer_at)?;
        check_props(&props, &footer, &meta, &name)?;
        let filter = section(footer.filter_at, footer.index_at)?;
        let filter = Filter::decode(&filter, &meta.salt, &name, footer.filter_at)?;
        let index = section(footer.index_at, footer.props_at)?;
        let index = Index::decode(
            &index,
            (&meta.salt, &name, footer.index_at),
            (footer.blocks, footer.filter_at),
            (comparator.is_bytewise(), meta.compression),
        )?;
        let bits = if source.map().is_some() { index.blocks() } else { 0 };
        Ok(Arc::new(Self {
            comparator: comparator.clone(),
            source,
            footer,
            filter,
            verified: (0..bits).map(|_| AtomicU16::new(0)).collect(),
            index,
            cache: Arc::clone(&context.cache),
            reads: Arc::clone(&context.reads),
            name,
            meta,
        }))
    }

    /// What the manifest knows of the table.
    pub fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// Whether the table may hold a key with this hash ([`codec::key_hash`](crate::codec::key_hash)); false is certain.
    /// Only for byte order: other orders have no filter, as their equal keys may differ in bytes.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Whether at least half of the blocks lie between these keys (`None` = no border).
    pub fn is_half_of(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        let order = &self.comparator;
        let first = start.map_or(0, |key| self.index.first_block(order, key));
        let last = end.map_or(self.index.blocks(), |key| self.index.first_block(order, key));
        let inside = |key: &[u8]| {
            start.is_none_or(|start| order.compare(start, key).is_le())
                && end.is_none_or(|end| order.compare(key, end).is_lt())
        };
        let covered = last.saturating_sub(first) * 2 >= self.index.blocks();
        covered && (inside(&self.meta.smallest) || inside(&self.meta.largest) || last > first + 1)
    }

    /// How many blocks may hold keys between these bounds, how many there are, and the bytes on disk of the former.
    pub fn blocks_within(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> (u64, u64, u64) {
        let order = &self.comparator;
        let all = self.index.blocks();
        let first = match start {
            Bound::Included(key) | Bound::Excluded(key) => self.index.first_block(order, key),
            Bound::Unbounded => 0,
        };
        let last = match end {
            Bound::Included(key) | Bound::Excluded(key) => self.index.last_block(order, key),
            Bound::Unbounded => all,
        };
        let within = first..(last.saturating_add(1)).min(all);
        let bytes = within.clone().filter_map(|b| self.index.place(b)).map(|fence| fence.disk).sum();
        (within.len() as u64, all as u64, bytes)
    }

    /// Begins to load what [`Table::get`] looks at first, so that the filters of several tables load at once.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.filter.prefetch(hash);
    }

    /// Bytes of index and filter in memory.
    pub fn resident_bytes(&self) -> u64 {
        (self.index.bytes() + self.filter.bytes() + size_of_val(&*self.verified)) as u64
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
        if self.filter.may_contain(hash) { self.find(key, snapshot, want_value, guard) } else { Ok(None) }
    }

    fn find<'g>(
        &'g self,
        key: &[u8],
        snapshot: SeqNo,
        want_value: bool,
        guard: &'g Guard,
    ) -> Result<Option<Found<'g>>> {
        let mut b = self.index.block_of(&self.comparator, key, snapshot);
        loop {
            let keys = self.keys(b, guard)?;
            let block = keys.block().ok_or_else(|| self.wrong_part(b))?;
            match block.find(&self.comparator, key, snapshot) {
                Find::At(i) => {
                    let value = match want_value {
                        true => self.value(b, &keys, i, guard)?,
                        false => TableValue::InPlace(&[]),
                    };
                    let (seq, kind, expiry) = (block.seq(i), block.kind(i), block.expiry(i));
                    return Ok(Some(Found { seq, kind, expiry, value }));
                }
                Find::Beyond if self.index.goes_on(b + 1).is_some() => b += 1,
                Find::Beyond | Find::Absent => return Ok(None),
            }
        }
    }

    /// Notes that the key section (0) or frame `bit - 1` of a mapped block was verified.
    pub(super) fn mark_verified(&self, b: usize, bit: usize) {
        if let (Some(bits), true) = (self.verified.get(b), bit <= FRAME_BITS) {
            bits.fetch_or(1 << bit, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn fence(&self, b: usize) -> Result<Fence> {
        self.index.place(b).ok_or_else(|| self.wrong_part(b))
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

/// Reads the footer and checks that it is that of the table described.
pub(super) fn read_footer(source: &Source, meta: &TableMeta, name: &str) -> Result<Footer> {
    let Some(at) = meta.file_bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Err(Error::corrupt(name, 0, "file shorter than a footer"));
    };
    let mut buf = Vec::new();
    let bytes = source.read(at, FOOTER_BYTES, &mut buf, name)?;
    let bytes = bytes.first_chunk().ok_or_else(|| Error::corrupt(name, at, "file ends too early"))?;
    let footer = Footer::decode(bytes, &meta.salt, name, at)?;
    if footer.id == meta.id {
        Ok(footer)
    } else {
        Err(Error::corrupt(name, at, "another table under this name"))
    }
}

/// Checks the properties in the file against the description.
pub(super) fn check_props(section: &[u8], footer: &Footer, meta: &TableMeta, name: &str) -> Result<()> {
    let body = open_section(&meta.salt, footer.props_at, section, name, "properties")?;
    let mut d = Decoder::new(body, name, footer.props_at);
    let found = TableMeta::decode_props(&mut d)?;
    d.finish()?;
    let found = TableMeta { id: footer.id, salt: footer.salt, file_bytes: meta.file_bytes, ..found };
    match found.difference(meta) {
        None => Ok(()),
        Some(what) => Err(Error::corrupt(
            name,
            footer.props_at,
            format!("{what} of the table differ from the manifest"),
        )),
    }
}
