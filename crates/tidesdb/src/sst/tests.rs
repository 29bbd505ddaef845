//! Tests of tables on the simulated disk, and their shared helpers: random numbers, a test rig, a model.

mod corruption;
mod expiries;
mod faults;
mod golden;
mod model;
mod partitions;
mod parts;
mod sizes;
mod walks;
mod work;

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use tidesdb_io::Dir;
use tidesdb_io::sim::{self, SimDisk};

use super::block::{BlockBuilder, Limits};
use super::index::IndexBuilder;
use super::memory::TableShare;
use super::{Table, TableContext, TableMeta, TableOptions, TableWriter};
use crate::Result;
use crate::codec::{Compression, Salt, key_hash};
use crate::memory::Memory;
use crate::types::{Comparator, EntryCursor, EntryRef, Kind, SeqNo, TableId};

pub(super) const ALL: [Compression; 5] =
    [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd, Compression::Lz4Fast];

impl TableWriter {
    /// Closes partitions of the index at `bytes`, so that small tables have several.
    pub(super) fn with_partitions_of(mut self, bytes: usize) -> Self {
        self.index = IndexBuilder::new(self.comparator.is_bytewise(), bytes);
        self
    }

    /// Replaces the limits of blocks. Call it before the first entry.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.block = BlockBuilder::new(self.comparator.is_bytewise(), self.options.compression, limits);
    }

    /// Completes the table and makes it durable.
    pub(super) fn finish(self) -> Result<TableMeta> {
        let (meta, file) = self.complete()?;
        file.sync().map(|()| meta)
    }
}

/// A reproducible random number generator.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// An owned entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) seq: SeqNo,
    pub(super) kind: Kind,
    pub(super) expiry: u64,
    pub(super) value: Vec<u8>,
}

impl Entry {
    pub(super) fn put(key: impl AsRef<[u8]>, seq: SeqNo, value: impl AsRef<[u8]>) -> Self {
        Self { key: key.as_ref().into(), seq, kind: Kind::Put, expiry: 0, value: value.as_ref().into() }
    }

    pub(super) fn borrow(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, seq: self.seq, kind: self.kind, expiry: self.expiry, value: &self.value }
    }
}

/// A directory on a simulated disk.
pub(super) struct Rig {
    pub(super) disk: Arc<SimDisk>,
    pub(super) dir: Arc<dyn Dir>,
    /// Length that closes an index partition; small, so that small tables have several.
    pub(super) partition_bytes: usize,
}

pub(super) const DB: &str = "/db";

impl Rig {
    pub(super) fn new() -> Self {
        let (env, disk, _clock) = sim::env(1);
        let dir = env.disk.open_dir(Path::new(DB), true).unwrap();
        Self { disk, dir, partition_bytes: 40 }
    }

    pub(super) fn path(&self, id: u64) -> String {
        format!("{DB}/{}", crate::files::table(TableId(id)))
    }

    pub(super) fn write(
        &self,
        id: u64,
        entries: &[Entry],
        options: TableOptions,
        order: &Comparator,
    ) -> Arc<TableMeta> {
        let w = TableWriter::create(&self.dir, TableId(id), salt(id), options, order.clone()).unwrap();
        let mut w = w.with_partitions_of(self.partition_bytes);
        for e in entries {
            w.add(e.borrow()).unwrap();
        }
        Arc::new(w.finish().unwrap())
    }

    pub(super) fn context(&self, cache_bytes: u64) -> TableContext {
        TableContext::new(&self.dir, &Memory::new(0), cache_bytes)
    }

    /// Returns a context in which no table gets memory to be resident, but partitions may be cached.
    pub(super) fn crowded(&self, cache_bytes: u64) -> (TableContext, TableShare) {
        let context = self.context(cache_bytes);
        let share = context.memory.take(cache_bytes / 2);
        (context, share)
    }

    /// Opens a table with its index and filter in memory, or with no memory at all.
    pub(super) fn open(
        &self,
        meta: &Arc<TableMeta>,
        order: &Comparator,
        is_resident: bool,
    ) -> Result<Arc<Table>> {
        Table::open(&self.context(if is_resident { 1 << 24 } else { 0 }), order, Arc::clone(meta))
    }
}

pub(super) fn salt(id: u64) -> Salt {
    let mut rng = Rng::new(id);
    let mut salt = [0; 16];
    salt.copy_from_slice(&rng.bytes(16));
    salt
}

/// The limits that older versions used.
pub(super) const OLD_LIMITS: Limits =
    Limits { disk: usize::MAX, keys: 32 << 10, values: 16 << 10, frame: 4 << 10 };

pub(super) fn options(compression: Compression) -> TableOptions {
    TableOptions { compression, filter_bits_per_key: 10 }
}

/// Returns the entry at the cursor, owned.
pub(super) fn at(cursor: &mut impl EntryCursor) -> Result<Entry> {
    let (key, (seq, kind, expiry)) = (cursor.key().to_vec(), cursor.entry_meta().parts());
    Ok(Entry { key, seq, kind, expiry, value: cursor.value()?.to_vec() })
}

/// Looks up a key.
pub(super) fn get(table: &Table, key: &[u8], snapshot: SeqNo) -> Result<Option<Entry>> {
    let guard = tidesdb_sync::pin();
    let found = table.get(key, key_hash(key), snapshot, true, &guard)?;
    Ok(found.map(|f| Entry {
        key: key.into(),
        seq: f.seq,
        kind: f.kind,
        expiry: f.expiry,
        value: f.value.to_vec(),
    }))
}

/// Returns what a lookup among sorted entries must find. The key is the requested one; some orders treat different keys
/// as equal.
pub(super) fn expect_get(
    entries: &[Entry],
    order: &Comparator,
    key: &[u8],
    snapshot: SeqNo,
) -> Option<Entry> {
    let start = entries.partition_point(|e| order.compare(&e.key, key) == Ordering::Less);
    let found = entries[start..]
        .iter()
        .take_while(|e| order.compare(&e.key, key).is_eq())
        .find(|e| e.seq <= snapshot)?;
    Some(Entry { key: key.into(), ..found.clone() })
}

/// Returns all entries in forward order. An error ends the scan and is returned.
pub(super) fn scan(table: &Arc<Table>) -> (Vec<Entry>, Result<()>) {
    let mut out = Vec::new();
    let mut cursor = super::TableCursor::new(Arc::clone(table));
    let mut step = cursor.seek_to_first();
    while step.is_ok() && cursor.valid() {
        match at(&mut cursor) {
            Ok(e) => out.push(e),
            Err(e) => return (out, Err(e)),
        }
        step = cursor.next();
    }
    assert!(step.is_ok() || !cursor.valid());
    (out, step)
}
