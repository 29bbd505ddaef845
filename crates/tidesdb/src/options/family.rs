//! Settings of one column family. They are stored with the family; the comparator by name.

use crate::codec::Compression;
use crate::types::Comparator;

/// Which concurrent map buffers the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum MemtableKind {
    /// Optimistic-lock-coupled B+tree for byte-wise orders, skip list for all others.
    #[default]
    Auto = 0,
    /// Lock-free skip list for every order.
    SkipList = 1,
}

/// Settings of a family.
///
/// ```
/// use tidesdb::{Compression, FamilyOptions};
/// let opts = FamilyOptions::default().compression(Compression::Zstd).value_threshold(4096);
/// assert_eq!(opts.write_buffer_bytes, 64 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct FamilyOptions {
    /// Order of the keys. Fixed for the life of the family. Default: bytewise.
    pub comparator: Comparator,
    /// Bytes of memtable after which it is flushed. Default 64 MiB.
    pub write_buffer_bytes: usize,
    /// Values of at least this many bytes go to the value log. Default 512.
    pub value_threshold: usize,
    /// Compression of blocks and of values in the value log. Default LZ4.
    pub compression: Compression,
    /// Bits of bloom filter for each key, at most 32; 0 = no filter. Default 10 (about 1 % false positives).
    pub filter_bits_per_key: u32,
    /// Size a table of the largest level aims at, in bytes. Default 128 MiB.
    pub table_bytes: u64,
    /// Number of tables in level 1 that starts a compaction. Default 4.
    pub l1_tables_trigger: usize,
    /// Which map the memtable uses.
    pub memtable: MemtableKind,
    /// Bytes of a value log file after which a new one is begun. Default 256 MiB.
    pub vlog_file_bytes: u64,
}

impl Default for FamilyOptions {
    fn default() -> Self {
        Self {
            comparator: Comparator::bytewise(),
            write_buffer_bytes: 64 << 20,
            value_threshold: 512,
            compression: Compression::Lz4,
            filter_bits_per_key: 10,
            table_bytes: 128 << 20,
            l1_tables_trigger: 4,
            memtable: MemtableKind::Auto,
            vlog_file_bytes: 256 << 20,
        }
    }
}

/// Most bits of filter for each key.
pub(super) const FILTER_BITS_MAX: u32 = 32;

impl FamilyOptions {
    /// Which setting is outside of its domain, if one is. Buffers and tables have at least one byte, a filter at most
    /// [`FILTER_BITS_MAX`] bits for each key; the other numbers may be any.
    pub(crate) fn outside(&self) -> Option<&'static str> {
        let checks = [
            (self.write_buffer_bytes == 0, "write_buffer_bytes must be above 0"),
            (self.table_bytes == 0, "table_bytes must be above 0"),
            (self.filter_bits_per_key > FILTER_BITS_MAX, "filter_bits_per_key must be at most 32"),
        ];
        checks.iter().find(|(bad, _)| *bad).map(|(_, what)| *what)
    }

    /// Sets the key order.
    #[must_use]
    pub fn comparator(mut self, comparator: Comparator) -> Self {
        self.comparator = comparator;
        self
    }

    /// Sets the memtable size in bytes.
    #[must_use]
    pub fn write_buffer(mut self, bytes: usize) -> Self {
        self.write_buffer_bytes = bytes.max(4096);
        self
    }

    /// Sets from which size on values go to the value log.
    #[must_use]
    pub fn value_threshold(mut self, bytes: usize) -> Self {
        self.value_threshold = bytes.max(1);
        self
    }

    /// Sets the compression.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets the bits of filter for each key.
    #[must_use]
    pub fn filter_bits_per_key(mut self, bits: u32) -> Self {
        self.filter_bits_per_key = bits.min(FILTER_BITS_MAX);
        self
    }

    /// Sets which map the memtable uses.
    #[must_use]
    pub fn memtable(mut self, kind: MemtableKind) -> Self {
        self.memtable = kind;
        self
    }
}
