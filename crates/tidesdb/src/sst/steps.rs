//! The steps of a lookup, as a gate and an explanation see them.

use crate::types::{SeqNo, TableId, VlogId};

/// Where the bytes of a step came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadOrigin {
    /// The memory that the open table takes.
    Memory,
    /// The block cache of the database.
    Cache,
    /// A read of the file that the page cache of the system answered.
    PageCache,
    /// A read of the file that the page cache of the system did not answer, as far as the system tells: Linux does, on most file systems.
    Device,
}

impl ReadOrigin {
    /// Returns its name: one lower-case word, or two with an underscore.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cache => "cache",
            Self::PageCache => "page_cache",
            Self::Device => "device",
        }
    }

    /// Returns true for a read of a file.
    pub fn is_read(self) -> bool {
        matches!(self, Self::PageCache | Self::Device)
    }
}

/// A step of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadStep {
    /// A memtable was searched. It has a version that the reader may see, or not.
    Memtable {
        /// Its number, 0 for the newest.
        number: u64,
        /// Whether there is one.
        has_version: bool,
    },
    /// The lookup begins with a table: the following steps are in it.
    Table(TableId),
    /// The filter of the table was asked. A table without a filter lets each key pass.
    Filter {
        /// False: the table certainly does not have the key.
        passes: bool,
    },
    /// A part of the filter that does not stay in memory.
    FilterPart {
        /// Where it came from.
        from: ReadOrigin,
        /// Its length in the file.
        bytes: u64,
    },
    /// A part of the index that does not stay in memory.
    IndexPart {
        /// Where it came from.
        from: ReadOrigin,
        /// Its length in the file.
        bytes: u64,
    },
    /// The index was searched.
    Index {
        /// Number of the block that may have the key, from 0.
        block: u64,
        /// Number of blocks of the table.
        of: u64,
    },
    /// A block, or its keys if the block is long.
    Block {
        /// Its number, from 0.
        block: u64,
        /// Where it came from.
        from: ReadOrigin,
        /// Bytes that were read of the file; 0 if none were.
        bytes: u64,
    },
    /// Values that lie apart from the keys of their block.
    Values {
        /// Where they came from.
        from: ReadOrigin,
        /// Bytes that were read of the file; 0 if none were.
        bytes: u64,
    },
    /// The table has a version that the reader may see, or not.
    Answer {
        /// Its sequence number; `None`: the table has none.
        found: Option<SeqNo>,
    },
    /// A value in a value log.
    Stored {
        /// The number of the file, of the first one if there are several.
        vlog: VlogId,
        /// Bytes that the value takes in the files.
        bytes: u64,
    },
}
