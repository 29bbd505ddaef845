//! Opens a table: reads the footer, the properties and the data needed to find the rest.
//!
//! The index and the filter of a table are either resident (completely in memory) or partitioned (the top level is in
//! memory; partitions are read into the block cache when needed). Resident are: tables of format 1, which have no
//! partitions; mapped tables, because mapping implies that they fit in memory; and tables for which there is enough
//! memory when they are opened.

use std::sync::Arc;

use tidesdb_io::Access;

use super::filter::{Filter, FilterPartition, FilterShape};
use super::index::{BlockIndex, BlockIndexReader, Index, Partition, TopIndex};
use super::layout::{FOOTER_BYTES, Footer, open_section};
use super::memory::TableShare;
use super::source::Source;
use super::{Table, TableContext, TableMeta};
use crate::codec::Decoder;
use crate::types::Comparator;
use crate::{Error, Result, files};

/// Bytes read first, from the end of the file: footer, properties and, for most tables, the top level.
const TAIL_BYTES: u64 = 4 << 10;
/// Estimated memory of a block in a resident index, without its fence: location, fence head and fence end.
const BLOCK_INDEX_BYTES: u64 = 24;

/// Index and filter of a table: finds blocks and rejects absent keys.
pub(super) struct IndexAndFilter {
    pub(super) index: Index,
    /// Accepts every key unless it is resident.
    pub(super) filter: Filter,
    pub(super) shape: FilterShape,
    /// Memory taken from the cache. `None` for a mapped table, whose blocks take no cache memory either.
    pub(super) _share: Option<TableShare>,
}

/// A table file that is being opened.
pub(super) struct Opening<'a> {
    pub(super) source: &'a Source,
    pub(super) meta: &'a TableMeta,
    pub(super) name: &'a str,
    pub(super) bytewise: bool,
}

impl Table {
    /// Opens the table that `meta` describes, and refuses any other file.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged or does not match `meta`; `FormatTooNew`; `Io`.
    pub fn open(context: &TableContext, comparator: &Comparator, meta: Arc<TableMeta>) -> Result<Arc<Self>> {
        let name = files::table(meta.id);
        let file = context.dir.open(&name, Access::Random).map_err(|e| Error::io("open", &name, e))?;
        let source = Source::open(file, context.use_mmap, meta.file_bytes, &name)?;
        let bytewise = comparator.is_bytewise();
        let opening = Opening { source: &source, meta: &meta, name: &name, bytewise };
        let (footer, guide) = opening.run(context)?;
        Ok(Arc::new(Self::new(context, comparator.clone(), (name, source), meta, footer, guide)))
    }
}

impl Opening<'_> {
    fn run(&self, context: &TableContext) -> Result<(Footer, IndexAndFilter)> {
        let tail = self.read(self.meta.file_bytes.saturating_sub(TAIL_BYTES), self.meta.file_bytes)?;
        let footer = self.footer(&tail)?;
        let end = self.read_to_end(&footer, &tail)?;
        let (front, props) = end.split_at((footer.props_at - footer.index_at) as usize);
        self.check_props(&props[..props.len() - FOOTER_BYTES], &footer)?;
        let guide = self.partitioned(context, &footer, front)?;
        Ok((footer, guide))
    }

    /// Returns the file content from the index or top level to the end; `tail` was already read.
    fn read_to_end(&self, footer: &Footer, tail: &[u8]) -> Result<Vec<u8>> {
        let tail_at = self.meta.file_bytes - tail.len() as u64;
        match footer.index_at.checked_sub(tail_at) {
            Some(skip) => Ok(tail[skip as usize..].to_vec()),
            None => Ok([&self.read(footer.index_at, tail_at)?, tail].concat()),
        }
    }

    fn partitioned(&self, context: &TableContext, footer: &Footer, top: &[u8]) -> Result<IndexAndFilter> {
        let (top, shape) = self.top(footer, top)?;
        let share = match self.source.map() {
            Some(_) => None,
            None => context.memory.try_take(self.resident_estimate(footer, shape)),
        };
        if share.is_some() || self.source.map().is_some() {
            let filter = shape.join(&self.filter_partitions(footer, shape)?);
            let index = self.whole_index(&top)?;
            let bytes = (index.bytes() + filter.bytes()) as u64;
            let mut share = share;
            if share.as_mut().is_none_or(|share| share.try_resize(bytes)) {
                return Ok(IndexAndFilter { index: Index::Resident(index), shape, filter, _share: share });
            }
        }
        let share = Some(context.memory.take(top.bytes() as u64));
        Ok(IndexAndFilter {
            index: Index::Partitioned(Box::new(top)),
            filter: Filter::empty(),
            shape,
            _share: share,
        })
    }

    /// Estimates the memory of a resident index and filter. Fences that share long prefixes with their neighbours take
    /// more.
    fn resident_estimate(&self, footer: &Footer, shape: FilterShape) -> u64 {
        let index = footer.index_at - footer.filter_at - shape.disk_bytes();
        shape.bytes() as u64 + index + u64::from(footer.blocks) * BLOCK_INDEX_BYTES
    }

    /// Decodes the top level from its section.
    pub(super) fn top(&self, footer: &Footer, section: &[u8]) -> Result<(TopIndex, FilterShape)> {
        let body = open_section(&self.meta.salt, footer.index_at, section, self.name, "top level")?;
        let mut d = Decoder::new(body, self.name, footer.index_at);
        let shape = FilterShape::read(&mut d, footer.index_at - footer.filter_at)?;
        let at = footer.filter_at + shape.disk_bytes();
        let top = TopIndex::read(&mut d, at, footer, (self.bytewise, self.meta.compression))?;
        d.finish()?;
        Ok((top, shape))
    }

    /// Reads all partitions of the filter with one read.
    pub(super) fn filter_partitions(
        &self,
        footer: &Footer,
        shape: FilterShape,
    ) -> Result<Vec<FilterPartition>> {
        let bytes = self.read(footer.filter_at, footer.filter_at + shape.disk_bytes())?;
        let decode = |n: usize| {
            let (at, len) = shape.place(n);
            let section = bytes.get(at as usize..at as usize + len).unwrap_or_default();
            FilterPartition::decode(section, &self.meta.salt, self.name, footer.filter_at + at)
        };
        (0..shape.partitions()).map(decode).collect()
    }

    /// Reads the index of all blocks with one read.
    fn whole_index(&self, top: &TopIndex) -> Result<BlockIndex> {
        let mut reader = BlockIndexReader::new(0, 0);
        let (Some(first), Some(last)) = (top.partitions().next(), top.partitions().last()) else {
            return Err(Error::internal("an index without partitions"));
        };
        let bytes = self.read(first.at, last.at + last.len)?;
        for partition in top.partitions() {
            let at = (partition.at - first.at) as usize;
            let section = bytes.get(at..at + partition.len as usize).unwrap_or_default();
            self.index_partition(&mut reader, top, partition, section)?;
        }
        Ok(reader.finish(self.bytewise))
    }

    /// Reads the index of the blocks of one partition.
    pub(super) fn partition_index(&self, top: &TopIndex, partition: Partition) -> Result<BlockIndex> {
        let bytes = self.read(partition.at, partition.at + partition.len)?;
        let mut reader = BlockIndexReader::new(partition.block, partition.data.0);
        self.index_partition(&mut reader, top, partition, &bytes)?;
        Ok(reader.finish(self.bytewise))
    }

    fn index_partition(
        &self,
        reader: &mut BlockIndexReader,
        top: &TopIndex,
        partition: Partition,
        section: &[u8],
    ) -> Result<()> {
        let body = open_section(&self.meta.salt, partition.at, section, self.name, "index")?;
        let mut d = Decoder::new(body, self.name, partition.at);
        let border = top.border(partition.number);
        let extent = (partition.blocks, partition.data.1);
        reader.read(&mut d, border.as_ref(), extent, self.meta.compression)
    }

    /// Reads the bytes from `start` to `end`.
    pub(super) fn read(&self, start: u64, end: u64) -> Result<Vec<u8>> {
        let len =
            usize::try_from(end - start).map_err(|_| Error::corrupt(self.name, start, "section too long"))?;
        let mut buf = Vec::new();
        match self.source {
            Source::Map(_) => self.source.read(start, len, &mut buf, self.name).map(<[u8]>::to_vec),
            Source::File(_) => self.source.read(start, len, &mut buf, self.name).map(drop).map(|()| buf),
        }
    }

    /// Decodes the footer at the end of `tail` and checks that it belongs to the described table.
    pub(super) fn footer(&self, tail: &[u8]) -> Result<Footer> {
        let (meta, name) = (self.meta, self.name);
        let Some(at) = meta.file_bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Err(Error::corrupt(name, 0, "file shorter than a footer"));
        };
        let bytes = tail.last_chunk().ok_or_else(|| Error::corrupt(name, at, "unexpected end of file"))?;
        let footer = Footer::decode(bytes, &meta.salt, name, at)?;
        if footer.id == meta.id {
            Ok(footer)
        } else {
            Err(Error::corrupt(name, at, "the file contains another table"))
        }
    }

    /// Checks that the properties in the file match the description.
    pub(super) fn check_props(&self, section: &[u8], footer: &Footer) -> Result<()> {
        let (meta, name, at) = (self.meta, self.name, footer.props_at);
        let body = open_section(&meta.salt, at, section, name, "properties")?;
        let mut d = Decoder::new(body, name, at);
        let found = TableMeta::decode_props(&mut d)?;
        d.finish()?;
        let found = TableMeta { id: footer.id, salt: footer.salt, file_bytes: meta.file_bytes, ..found };
        match found.difference(meta) {
            None => Ok(()),
            Some(what) => {
                Err(Error::corrupt(name, at, format!("the {what} of the table differ from the manifest")))
            }
        }
    }
}
