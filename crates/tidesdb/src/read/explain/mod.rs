//! Explanations of reads: which sources a read looks into, what it meets there, and why it shows what it shows.
//!
//! An explanation is not a second way to read: a lookup is the one of `get` with a gate that takes note of its steps, and a scan is the
//! cursor of every scan over sources that count. What is added is a look at the versions that a lookup does not need.

mod key;
mod range;
mod text;

use std::time::SystemTime;

pub use key::explain_key;
pub use range::explain_range;

use crate::Error;
use crate::sst::{ReadOrigin, ReadStep};
use crate::types::{Kind, SeqNo, Slice, TableId};

/// Why a `get` returns what it returns, and what it does for it: see [`Family::explain`](crate::Family::explain). Its `Display` is a text
/// that explains itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The key.
    pub key: Slice,
    /// The newest sequence number that the reader sees.
    pub seq: SeqNo,
    /// The time at which expiry was judged.
    pub now: SystemTime,
    /// What the get returns.
    pub outcome: Outcome,
    /// All sources that may have the key, in the order in which a get looks into them: memtables, newest first; tables of level 1, newest first;
    /// of each deeper level the one table of each sorted run. A get ends at the first version that it may see.
    pub sources: Vec<ExplainedSource>,
    /// The levels of the tree that have a table, level 1 first.
    pub levels: Vec<ExplainedLevel>,
    /// The newest range tombstone of the tables over the key that the reader sees. A get compares it with the version that it finds in a table.
    pub range_tombstone: Option<ExplainedRangeTombstone>,
    /// True if some source has more than [`Explanation::VERSIONS_MAX`] versions of the key: the older ones are left out.
    pub has_more_versions: bool,
    /// Reads of table files that the explanation made beyond those of the get, to see the versions that the get does not need.
    pub extra_reads: u64,
    /// Bytes of these reads.
    pub extra_bytes: u64,
}

/// The result of a get, with its reason.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The key has this value.
    Found {
        /// The value.
        value: Slice,
        /// When the row expires; `None` = never.
        expiry: Option<SystemTime>,
    },
    /// No source has a version that the reader sees.
    NoVersion,
    /// The newest version that the reader sees deletes the key.
    Deleted {
        /// Its sequence number.
        seq: SeqNo,
    },
    /// A range tombstone hides each version that the reader sees.
    DeletedByRange {
        /// The sequence number of the newest one over the key.
        seq: SeqNo,
    },
    /// The newest version that the reader sees has expired.
    Expired {
        /// Its sequence number.
        seq: SeqNo,
        /// When it expired.
        at: Option<SystemTime>,
    },
    /// The key exists, and the get fails: its operands cannot be combined, or its value is too long to be read whole.
    Failed {
        /// What the get fails with.
        error: Error,
    },
}

impl Outcome {
    /// Returns the value that the get returns.
    pub fn value(&self) -> Option<&Slice> {
        match self {
            Self::Found { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Returns its name: lower-case words with underscores between.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Found { .. } => "found",
            Self::NoVersion => "no_version",
            Self::Deleted { .. } => "deleted",
            Self::DeletedByRange { .. } => "deleted_by_range",
            Self::Expired { .. } => "expired",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Which source of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceName {
    /// A memtable.
    Memtable {
        /// Its number, 0 for the newest.
        number: u64,
        /// True for the one that receives the commits of now; the others wait for their flush.
        is_active: bool,
    },
    /// A table.
    Table {
        /// Its level.
        level: u8,
        /// The number of its file.
        table: TableId,
    },
    /// A sorted run of a level below the first: tables that do not overlap, read as one source.
    Run {
        /// Its level.
        level: u8,
        /// Number of its tables.
        tables: u64,
    },
}

/// What the filter of a table says about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterAnswer {
    /// There is no filter: the source is a memtable, or the table has none.
    None,
    /// The table may have the key.
    Passed,
    /// The table certainly does not have the key.
    Excluded,
}

impl FilterAnswer {
    /// Returns its name: one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Passed => "passed",
            Self::Excluded => "excluded",
        }
    }
}

/// A source that may have the key: a memtable, or a table whose range of keys contains it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExplainedSource {
    /// Which one.
    pub name: SourceName,
    /// True if the get looked into it; otherwise it had its answer before.
    pub is_searched: bool,
    /// What the get did there, in order. A get that combines operands looks into a source once for each.
    pub steps: Vec<ReadStep>,
    /// What the filter says. If the get did not ask it, the explanation did.
    pub filter: FilterAnswer,
    /// Bytes of a memtable in memory, or of a table on disk.
    pub bytes: u64,
    /// Entries of all keys in it.
    pub entries: u64,
    /// The newest range tombstone over the key beside the memtable that the reader sees; tables have theirs in common:
    /// [`Explanation::range_tombstone`].
    pub range_tombstone: Option<ExplainedRangeTombstone>,
    /// The versions of the key, newest first.
    pub versions: Vec<ExplainedVersion>,
}

impl ExplainedSource {
    /// Returns what the get read and found in memory there.
    pub fn work(&self) -> ReadWork {
        let mut work = ReadWork::default();
        self.steps.iter().for_each(|step| work.add(step));
        work
    }
}

/// A range tombstone over the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedRangeTombstone {
    /// Its sequence number: it hides all versions with a smaller one.
    pub seq: SeqNo,
    /// The first key that it hides; `None` = no bound.
    pub start: Option<Slice>,
    /// The first key after those that it hides; `None` = no bound.
    pub end: Option<Slice>,
}

/// What a version says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionKind {
    /// It holds the value.
    Put,
    /// The value is in a value log.
    PutInValueLog,
    /// It deletes the key.
    Delete,
    /// It deletes the key, which was put at most once.
    SingleDelete,
    /// It holds an operand of the merge operator.
    Operand,
}

impl VersionKind {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Put => Self::Put,
            Kind::PutPointer => Self::PutInValueLog,
            Kind::Delete | Kind::RangeDelete => Self::Delete,
            Kind::SingleDelete => Self::SingleDelete,
            Kind::Merge => Self::Operand,
        }
    }

    /// Returns its name: lower-case words with underscores between.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::PutInValueLog => "put_in_value_log",
            Self::Delete => "delete",
            Self::SingleDelete => "single_delete",
            Self::Operand => "operand",
        }
    }
}

/// A version of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedVersion {
    /// Its sequence number: that of the commit that wrote it, or 0 once a merge has moved it to the largest level and each reader sees it.
    pub seq: SeqNo,
    /// What it is.
    pub kind: VersionKind,
    /// When it expires; `None` = never.
    pub expiry: Option<SystemTime>,
    /// Bytes of its value or operand.
    pub value_bytes: u64,
    /// Whether the get shows it, and why.
    pub verdict: Verdict,
}

/// Whether a version is shown, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Its value is what the get returns.
    Shown,
    /// It is combined with others to what the get returns: an operand, or the value below the operands.
    Combined,
    /// It is newer than the reader.
    TooNew,
    /// It is the newest version that matters, and deletes the key.
    Deletes,
    /// It is the newest version that matters, and has expired.
    Expired,
    /// A range tombstone that the reader sees hides it.
    HiddenByRange {
        /// The sequence number of the tombstone.
        by: SeqNo,
    },
    /// A newer version that the reader sees replaces it.
    Overwritten {
        /// The sequence number of that version.
        by: SeqNo,
    },
}

impl Verdict {
    /// Returns its name: lower-case words with underscores between.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Combined => "combined",
            Self::TooNew => "too_new",
            Self::Deletes => "deletes",
            Self::Expired => "expired",
            Self::HiddenByRange { .. } => "hidden_by_range",
            Self::Overwritten { .. } => "overwritten",
        }
    }

    /// Returns whether a merge of everything drops the version, unless a snapshot or a cursor needs it.
    fn is_dead(self) -> bool {
        !matches!(self, Self::Shown | Self::Combined | Self::TooNew)
    }
}

/// A level of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedLevel {
    /// Its number.
    pub level: u8,
    /// Number of its tables.
    pub tables: u64,
    /// Number of its sorted runs, of level 1: of its tables.
    pub runs: u64,
    /// Tables whose range of keys contains the key.
    pub covering: u64,
}

/// What was read, and what was in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadWork {
    /// Blocks, and parts of indexes and filters, that took no read of a file.
    pub in_memory: u64,
    /// Reads of table files that the page cache of the system answered, as far as the system tells.
    pub from_page_cache: u64,
    /// The other reads of table files.
    pub from_device: u64,
    /// Bytes of all reads of table files.
    pub table_bytes: u64,
    /// Values read from value logs.
    pub log_values: u64,
    /// Bytes that these values take in the files.
    pub log_value_bytes: u64,
}

impl ReadWork {
    /// Returns the number of reads of table files.
    pub fn table_reads(&self) -> u64 {
        self.from_page_cache + self.from_device
    }

    fn add(&mut self, step: &ReadStep) {
        let (from, bytes) = match *step {
            ReadStep::FilterPart { from, bytes } | ReadStep::IndexPart { from, bytes } => (from, bytes),
            ReadStep::Block { from, bytes, .. } | ReadStep::Values { from, bytes } => (from, bytes),
            ReadStep::Stored { bytes, .. } => {
                self.log_values += 1;
                self.log_value_bytes += bytes;
                return;
            }
            _ => return,
        };
        match from {
            ReadOrigin::PageCache => self.from_page_cache += 1,
            ReadOrigin::Device => self.from_device += 1,
            _ => self.in_memory += 1,
        }
        self.table_bytes += if from.is_read() { bytes } else { 0 };
    }

    fn plus(self, other: Self) -> Self {
        Self {
            in_memory: self.in_memory + other.in_memory,
            from_page_cache: self.from_page_cache + other.from_page_cache,
            from_device: self.from_device + other.from_device,
            table_bytes: self.table_bytes + other.table_bytes,
            log_values: self.log_values + other.log_values,
            log_value_bytes: self.log_value_bytes + other.log_value_bytes,
        }
    }
}

impl Explanation {
    /// Versions of one source that an explanation has.
    pub const VERSIONS_MAX: usize = 1000;

    /// Returns the number of sources that the get looked into.
    pub fn sources_searched(&self) -> u64 {
        self.sources.iter().filter(|source| source.is_searched).count() as u64
    }

    /// Returns what the get read, and what it found in memory.
    pub fn work(&self) -> ReadWork {
        self.sources.iter().map(ExplainedSource::work).fold(ReadWork::default(), ReadWork::plus)
    }

    /// Returns the number of versions that a merge of everything drops, unless a snapshot or a cursor needs them.
    pub fn dead_versions(&self) -> u64 {
        self.sources.iter().flat_map(|source| &source.versions).filter(|v| v.verdict.is_dead()).count() as u64
    }
}

/// What a scan does, and what it meets: see [`Family::explain_range`](crate::Family::explain_range). Its `Display` is a text that explains
/// itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RangeExplanation {
    /// The newest sequence number that the reader sees.
    pub seq: SeqNo,
    /// The time at which expiry was judged.
    pub now: SystemTime,
    /// The keys of the rows that the scan shows, in order.
    pub keys: Vec<Slice>,
    /// Bytes of their keys and of their values, without values in value logs.
    pub row_bytes: u64,
    /// Rows whose value is in a value log. The explanation does not read these values.
    pub log_values: u64,
    /// Bytes that these values take in the files.
    pub log_value_bytes: u64,
    /// Rows whose value cannot be had, because the merge operator fails.
    pub failed_values: u64,
    /// False if there may be more rows than were asked for.
    pub is_complete: bool,
    /// The sources that the scan merges, newest first.
    pub sources: Vec<ScannedSource>,
    /// Range tombstones that the reader sees in the family.
    pub range_tombstones: u64,
}

/// What a scan does in one source. The entries are those within the range, each counted once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScannedSource {
    /// Which one.
    pub name: SourceName,
    /// How often the scan positioned it by a search.
    pub seeks: u64,
    /// Entries that it came to.
    pub entries: u64,
    /// Entries whose value the scan shows.
    pub shown: u64,
    /// Operands, which are combined with older versions to a row.
    pub operands: u64,
    /// Values that a newer version replaces, or that operands are combined with.
    pub older: u64,
    /// Entries newer than the reader.
    pub too_new: u64,
    /// Tombstones of single keys.
    pub tombstones: u64,
    /// Entries that have expired.
    pub expired: u64,
    /// Entries that a range tombstone hides.
    pub hidden_by_range: u64,
    /// Blocks that took no read of a file.
    pub blocks_in_memory: u64,
    /// Reads of table files, each of one or more blocks.
    pub table_reads: u64,
    /// Bytes of these reads.
    pub table_bytes: u64,
}

impl ScannedSource {
    fn new(name: SourceName) -> Self {
        Self {
            name,
            seeks: 0,
            entries: 0,
            shown: 0,
            operands: 0,
            older: 0,
            too_new: 0,
            tombstones: 0,
            expired: 0,
            hidden_by_range: 0,
            blocks_in_memory: 0,
            table_reads: 0,
            table_bytes: 0,
        }
    }
}

impl RangeExplanation {
    /// Returns the sum of a count over all sources.
    pub fn total(&self, count: impl Fn(&ScannedSource) -> u64) -> u64 {
        self.sources.iter().map(count).sum()
    }
}
