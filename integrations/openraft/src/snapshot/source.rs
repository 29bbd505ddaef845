//! A snapshot that is sent: its bytes are made from a snapshot of the database when they are read, a block at a time. Nothing is written to
//! the disk for it, so a node whose disk is full can still bring another one up to date.
//!
//! The first use reads everything once, because openraft asks for the length first. That pass keeps where each block begins, so that a
//! chunk can be read again after a failure.

use crate::keys::{DATA_PREFIX, Group};
use crate::snapshot::format::{self, BLOCK_BYTES, Block};
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use tidesdb::{Family, Result, Snapshot};

/// What a snapshot is made from.
pub(crate) struct Source {
    view: Snapshot,
    family: Family,
    group: Group,
    header: Vec<u8>,
    /// Sum of the header.
    sum: u64,
    map: Mutex<Option<Arc<Map>>>,
}

/// Where the parts of a snapshot are.
struct Map {
    blocks: Vec<Place>,
    end: Vec<u8>,
    /// Offset of the end.
    end_at: u64,
}

struct Place {
    offset: u64,
    /// Full key of its first row.
    first: Vec<u8>,
    /// Sum of the part before it.
    sum: u64,
}

impl Map {
    fn length(&self) -> u64 {
        self.end_at + self.end.len() as u64
    }
}

/// A part of a snapshot.
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Part {
    /// Returns what the part has from `position` on.
    pub(crate) fn from(&self, position: u64) -> &[u8] {
        let skip = position.checked_sub(self.offset).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.bytes.get(skip..)).unwrap_or_default()
    }
}

impl Source {
    /// Returns the snapshot of what `group` has in `view`, with `meta` in its header.
    pub(crate) fn new(view: Snapshot, family: Family, group: Group, meta: &[u8]) -> Result<Self> {
        let (header, sum) = format::header(meta)?;
        Ok(Self { view, family, group, header, sum, map: Mutex::new(None) })
    }

    /// Makes the block whose first row is at `first` or behind it. Returns also the full key of the first row that it does not have.
    fn block(&self, first: &[u8]) -> Result<(Block, Option<Vec<u8>>)> {
        let mut rows = self.view.range(&self.family, self.group.data_from(first.to_vec()))?;
        let mut block = Block::new();
        while let Some((key, value)) = rows.next_ref()? {
            if block.bytes() >= BLOCK_BYTES {
                return Ok((block, Some(key.to_vec())));
            }
            block.put(&key[DATA_PREFIX..], value)?;
        }
        Ok((block, None))
    }

    /// Returns where the parts are; the first call reads everything.
    fn map(&self) -> Result<Arc<Map>> {
        let mut known = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = &*known {
            return Ok(Arc::clone(map));
        }
        let (mut blocks, mut offset, mut sum) = (Vec::new(), self.header.len() as u64, self.sum);
        let (mut rows, mut bytes) = (0, 0);
        let mut first = Some(self.group.data(&[]));
        while let Some(key) = first {
            let (block, next) = self.block(&key)?;
            if block.rows() == 0 {
                break;
            }
            (rows, bytes) = (rows + u64::from(block.rows()), bytes + block.bytes() as u64);
            blocks.push(Place { offset, first: key, sum });
            let (part, next_sum) = block.finish(sum)?;
            (offset, sum) = (offset + part.len() as u64, next_sum);
            first = next;
        }
        let map = Arc::new(Map { blocks, end: format::end(rows, bytes, sum), end_at: offset });
        *known = Some(Arc::clone(&map));
        Ok(map)
    }

    /// Returns the length of the snapshot in bytes.
    pub(crate) fn length(&self) -> Result<u64> {
        Ok(self.map()?.length())
    }

    /// Returns the part with the byte at `position`; an empty one behind the end.
    pub(crate) fn part(&self, position: u64) -> Result<Part> {
        let map = self.map()?;
        if position < self.header.len() as u64 {
            return Ok(Part { offset: 0, bytes: self.header.clone() });
        }
        if position >= map.end_at {
            return Ok(Part { offset: map.end_at, bytes: map.end.clone() });
        }
        let at = map.blocks.partition_point(|place| place.offset <= position).saturating_sub(1);
        let place = &map.blocks[at];
        let (block, _) = self.block(&place.first)?;
        Ok(Part { offset: place.offset, bytes: block.finish(place.sum)?.0 })
    }
}

/// Reads a snapshot from its source.
pub(crate) struct Reading {
    source: Arc<Source>,
    part: Part,
    position: u64,
}

impl Reading {
    pub(crate) fn new(source: Arc<Source>) -> Self {
        Self { source, part: Part { offset: 0, bytes: Vec::new() }, position: 0 }
    }
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.part.from(self.position).is_empty() {
            self.part = self.source.part(self.position)?;
        }
        let mut rest = self.part.from(self.position);
        let read = rest.read(buffer)?;
        self.position += read as u64;
        Ok(read)
    }
}
