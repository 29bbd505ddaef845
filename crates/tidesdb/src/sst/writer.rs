//! Writes a table from front to back: blocks as they fill, then filter, index, top level, properties and footer, then
//! one sync, which may be made later.
//!
//! The order of entries is always checked, because searches would miss keys in an unordered table. After any error the
//! caller can only abandon the writer.

use std::cmp::Ordering;
use std::sync::Arc;

use tidesdb_io::{Advice, Dir, File, FileExt};

use super::block::{BlockBuilder, BuiltBlock, LIMITS, padding};
use super::blocks::WHOLE_BYTES;
use super::filter::Filter;
use super::index::{IndexBuilder, PARTITION_BYTES};
use super::layout::{Footer, UNNUMBERED, begin_section, seal_section};
use super::{Built, TableContext, TableMeta};
use crate::codec::{Compression, FieldWriter, Salt, key_hash};
use crate::types::{Comparator, EntryRef, KEY_BYTES_MAX, SeqNo, TableId, VALUE_BYTES_MAX};
use crate::{Error, Result, files};

/// Number of buffered bytes that triggers a write. They are still in the processor's cache then.
const WRITE_BYTES: usize = 256 << 10;
/// With `drop_pages`: pages within this distance of the last write may still be on their way to the disk.
const DROP_BEHIND_BYTES: u64 = 8 << 20;
/// Without it: the device is asked to write each piece of this many bytes, so that the sync waits less.
const WRITE_AHEAD_BYTES: u64 = 4 << 20;

/// Settings for writing a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Compression of the blocks.
    pub compression: Compression,
    /// Filter bits per key; 0 means no filter.
    pub filter_bits_per_key: u32,
}

/// A table being written. Dropping the writer leaves a partial file that no manifest names.
pub struct TableWriter {
    dir: Arc<dyn Dir>,
    file: Arc<dyn File>,
    name: String,
    pub(super) comparator: Comparator,
    pub(super) options: TableOptions,
    /// What is known of the table so far; its largest key is the last one of the finished blocks.
    meta: TableMeta,
    pub(super) block: BlockBuilder,
    pub(super) index: IndexBuilder,
    /// Sequence number of the last entry.
    last_seq: SeqNo,
    /// Hash of each key, if the table gets a filter.
    hashes: Vec<u64>,
    /// Bytes written to the file.
    written: u64,
    /// Bytes of the file that the device was asked to write.
    started: u64,
    /// Bytes that follow those written to the file.
    out: Vec<u8>,
    /// True if written data is dropped from the system's page cache.
    drop_pages: bool,
    /// Whose block cache keeps the blocks.
    caches: Option<Arc<TableContext>>,
}

impl TableWriter {
    /// Creates the file of table `id` in `dir`. The salt must be new.
    ///
    /// # Errors
    /// `Io` if the file exists or cannot be created.
    pub fn create(
        dir: &Arc<dyn Dir>,
        id: TableId,
        salt: Salt,
        options: TableOptions,
        comparator: Comparator,
    ) -> Result<Self> {
        Self::create_named(dir, files::table(id), id, salt, options, comparator)
    }

    /// Creates the file `name` of a table that belongs to no database, see [`Built`]. The salt must be new.
    ///
    /// # Errors
    /// As [`TableWriter::create`].
    pub fn create_built(
        dir: &Arc<dyn Dir>,
        name: String,
        salt: Salt,
        options: TableOptions,
        comparator: Comparator,
    ) -> Result<Self> {
        Self::create_named(dir, name, UNNUMBERED, salt, options, comparator)
    }

    fn create_named(
        dir: &Arc<dyn Dir>,
        name: String,
        id: TableId,
        salt: Salt,
        options: TableOptions,
        comparator: Comparator,
    ) -> Result<Self> {
        let file = dir.create_new(&name, 0).map_err(|e| Error::io("create", &name, e))?;
        let meta = TableMeta { id, salt, compression: options.compression, ..TableMeta::default() };
        let bytewise = comparator.is_bytewise();
        Ok(Self {
            dir: Arc::clone(dir),
            file,
            name,
            comparator,
            options,
            meta,
            block: BlockBuilder::new(bytewise, options.compression, LIMITS),
            index: IndexBuilder::new(bytewise, PARTITION_BYTES),
            last_seq: 0,
            hashes: Vec::new(),
            written: 0,
            started: 0,
            out: Vec::with_capacity(WRITE_BYTES + (WRITE_BYTES >> 3)),
            drop_pages: false,
            caches: None,
        })
    }

    /// Drops the written data from the system's page cache.
    pub fn dropping_pages(mut self) -> Self {
        self.drop_pages = true;
        self
    }

    /// Keeps the blocks in the block cache of `context`, as long as it has room.
    pub fn caching(mut self, context: &Arc<TableContext>) -> Self {
        self.caches = Some(Arc::clone(context));
        self
    }

    /// Adds an entry: a key after the last one, or an older version of the last key.
    ///
    /// # Errors
    /// `Internal` if the entry is out of order or malformed; `Io` if a write fails.
    pub fn add(&mut self, e: EntryRef<'_>) -> Result<()> {
        let new_key = self.check_order(&e)?;
        self.meta.note(&e, new_key).map_err(Error::internal)?;
        if new_key && self.options.filter_bits_per_key > 0 && self.comparator.is_bytewise() {
            self.hashes.push(key_hash(e.key));
        }
        self.last_seq = e.seq;
        if e.value.len() > LIMITS.values {
            return self.add_long(&e);
        }
        while !self.block.has_room(e.key, e.value.len()) {
            if !self.block.measure_first() {
                self.finish_block()?;
            }
        }
        self.block.add(&e);
        Ok(())
    }

    /// Writes an entry with a long value as a block of its own, from where it is: a copy could take a large part of all memory.
    #[cold]
    fn add_long(&mut self, e: &EntryRef<'_>) -> Result<()> {
        while self.block.len() > 0 {
            self.finish_block()?;
        }
        let at = self.end();
        let compressed = self.block.compress_long(e.value);
        let value = compressed.as_deref().unwrap_or(e.value);
        let mut built = self.block.finish_long(e, value, &self.meta.salt, at, &mut self.out);
        if value.len() < WRITE_BYTES {
            self.out.extend_from_slice(value);
        } else {
            self.write_out()?;
            self.write(value)?;
        }
        drop(compressed);
        built.disk += self.pad();
        self.end_block(built)
    }

    /// Sets what the table states of itself, see [`Built`].
    pub fn set_built(&mut self, built: Built) {
        self.meta.built = Some(Arc::new(built));
    }

    /// Records that range tombstones with sequence numbers up to `seq` cover no entry.
    pub fn set_purged_to(&mut self, seq: SeqNo) {
        self.meta.purged_to = seq;
    }

    /// Returns the last key added; empty at the start.
    pub fn last_key(&self) -> &[u8] {
        if self.block.len() > 0 { self.block.last_key() } else { &self.meta.largest }
    }

    /// Returns the bytes written to the file.
    pub fn file_bytes(&self) -> u64 {
        self.written
    }

    /// Returns about how much memory the filter and the index take until the table is finished. They grow with the number of keys.
    pub fn growing_bytes(&self) -> u64 {
        (self.hashes.len() * size_of::<u64>() + self.index.len()) as u64
    }

    /// Returns about how much memory the writer uses.
    pub fn memory_bytes(&self) -> u64 {
        (self.out.capacity() + self.hashes.capacity() * size_of::<u64>() + self.index.len()) as u64
    }

    /// Returns about how long the file would be if it were finished now.
    pub fn file_bytes_estimate(&self) -> u64 {
        let filter = self.hashes.len() as u64 * u64::from(self.options.filter_bits_per_key) / 8;
        let pending = self.out.len() + self.block.raw_bytes() + self.index.len();
        self.written + pending as u64 + filter
    }

    /// Completes the file, and starts writing its last bytes to the device. They are durable only after
    /// [`UnsyncedTable::sync`], which waits less if some time passes before it. On failure the table is abandoned.
    ///
    /// # Errors
    /// `Internal` for a table without entries; `Io` if a write fails.
    pub fn complete(mut self) -> Result<(TableMeta, UnsyncedTable)> {
        match self.write_rest() {
            Ok(data_end) => {
                let Self { file, name, meta, drop_pages, .. } = self;
                Ok((
                    meta,
                    UnsyncedTable { file, name, drop_to: if drop_pages { data_end.max(1) } else { 0 } },
                ))
            }
            Err(e) => {
                self.abandon();
                Err(e)
            }
        }
    }

    /// Writes all that is not in the file yet. Returns where the blocks end.
    fn write_rest(&mut self) -> Result<u64> {
        if self.meta.entries == 0 {
            return Err(Error::internal("a table without entries"));
        }
        while self.block.len() > 0 {
            self.finish_block()?;
        }
        let salt = self.meta.salt;
        let (filter_at, blocks) = (self.end(), self.index.blocks());
        let filter = Filter::build(&std::mem::take(&mut self.hashes), self.options.filter_bits_per_key);
        let (mut bytes, mut top) = (Vec::new(), begin_section());
        filter.encode(&salt, filter_at, &mut bytes);
        self.append(&bytes)?;
        bytes.clear();
        filter.shape().encode(&mut top);
        std::mem::take(&mut self.index).finish(&salt, self.end(), &mut bytes, &mut top);
        self.append(&bytes)?;
        let index_at = self.end();
        seal_section(&salt, index_at, &mut top);
        self.append(&top)?;
        let props_at = self.end();
        let mut props = begin_section();
        self.meta.encode_props(FieldWriter::new(&mut props));
        seal_section(&salt, props_at, &mut props);
        self.append(&props)?;
        let footer = Footer { salt, id: self.meta.id, filter_at, index_at, props_at, blocks };
        let footer = footer.encode(self.end());
        self.append(&footer)?;
        self.write_out()?;
        if self.written > self.started {
            let _ = self.file.advise(Advice::SyncSoon, self.started, self.written - self.started);
        }
        self.meta.file_bytes = self.written;
        Ok(filter_at)
    }

    /// Abandons the table and removes its file. If the removal fails, the file is left behind; no manifest names it.
    pub fn abandon(self) {
        let Self { dir, file, name, caches, meta, .. } = self;
        if let Some(context) = caches {
            context.forget(meta.id);
        }
        drop(file);
        files::remove(&*dir, &name);
    }

    /// Checks the order and returns whether the entry starts a new key.
    ///
    /// Law: keys rise, and versions of a key are newest first. An error and no `assert!`, because a damaged input of a merge can
    /// break it. Cost: one comparison of keys for each entry, which tells new keys from old ones too.
    #[inline]
    fn check_order(&self, e: &EntryRef<'_>) -> Result<bool> {
        if e.key.len() > KEY_BYTES_MAX || e.value.len() > VALUE_BYTES_MAX {
            return Err(Error::internal("key or value longer than a table allows"));
        }
        if self.meta.entries == 0 {
            return Ok(true);
        }
        match self.comparator.compare(self.last_key(), e.key) {
            Ordering::Less => Ok(true),
            Ordering::Equal if e.seq < self.last_seq => Ok(false),
            _ => Err(Error::internal(format!("entries out of order while writing {}", self.name))),
        }
    }

    /// Writes a block of the buffered entries, or of the first of them.
    fn finish_block(&mut self) -> Result<()> {
        let at = self.end();
        let mut built = self.block.finish(&self.meta.salt, at, &mut self.out);
        built.disk += self.pad();
        if let Some(context) = &self.caches
            && built.disk as u64 <= WHOLE_BYTES
        {
            let disk = &self.out[(at - self.written) as usize..];
            let block = || self.block.decoded(built.entries, disk);
            context.keep(self.meta.id, self.index.blocks() as usize, block);
        }
        self.end_block(built)
    }

    /// Appends the padding behind a block and returns its length.
    fn pad(&mut self) -> usize {
        let padding = padding(self.end()) as usize;
        self.out.resize(self.out.len() + padding, 0);
        padding
    }

    /// Adds a written block to the index and removes its entries.
    fn end_block(&mut self, built: BuiltBlock) -> Result<()> {
        let (first, last) = (self.block.key(0), self.block.key(built.entries - 1));
        let before = (self.index.blocks() > 0).then_some(&*self.meta.largest);
        let same = before.is_some_and(|before| self.comparator.compare(before, first).is_eq());
        self.index.add(before, first, same.then(|| self.block.first_seq()), built);
        self.meta.largest.clear();
        self.meta.largest.extend_from_slice(last);
        self.block.remove_first(built.entries);
        if self.out.len() >= WRITE_BYTES { self.write_out() } else { Ok(()) }
    }

    /// Returns the offset of the next byte.
    fn end(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= WRITE_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<()> {
        let mut out = std::mem::take(&mut self.out);
        let written = self.write(&out);
        out.clear();
        self.out = out;
        written
    }

    /// Writes `bytes` to the file, and tells the system what happens to their pages.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, self.written)
            .map_err(|e| Error::io_at("write", &self.name, self.written, e))?;
        self.written += bytes.len() as u64;
        if self.drop_pages {
            // This starts writing the new pages to disk. Earlier pages are on the disk by then, so the sync waits less.
            let from = self.written.saturating_sub(DROP_BEHIND_BYTES);
            let _ = self.file.advise(Advice::DontNeed, from, self.written - from);
        } else if self.written - self.started >= WRITE_AHEAD_BYTES {
            let _ = self.file.advise(Advice::SyncSoon, self.started, self.written - self.started);
            self.started = self.written;
        }
        Ok(())
    }
}

/// The file of a complete table whose bytes are not durable yet.
#[derive(Debug)]
pub struct UnsyncedTable {
    file: Arc<dyn File>,
    name: String,
    /// The system's page cache need not keep the bytes before this offset. Filter and index stay, because opening the table reads them.
    drop_to: u64,
}

impl UnsyncedTable {
    /// Makes the bytes durable. After a failure the table must be removed: a second sync may succeed although bytes were lost.
    ///
    /// # Errors
    /// `Io`.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync", &self.name, e))?;
        if self.drop_to > 0 {
            let _ = self.file.advise(Advice::DontNeed, 0, self.drop_to);
        }
        Ok(())
    }
}
