//! Basic types that every layer uses: keys and their order, entries, sequence numbers, ids, slices, cursors.

mod border;
mod cursor;
mod entry;
mod expiry;
mod filter;
mod ids;
mod limits;
mod numbered;
mod operator;
mod order;
mod range;
mod readahead;
mod rows;
mod scope;
mod slice;
mod words;

pub use border::KeyBorder;
pub use cursor::{EntryCursor, Stored};
pub use entry::{EntryMeta, EntryRef, Kind};
pub use expiry::{EXPIRY_MAX, ShownExpiry, expiry_after, expiry_at, has_passed, millis_up, moment_of};
pub use filter::{CompactionFilter, Decision, FilterRow};
pub use ids::{FamilyId, TableId, VlogId, WalId};
pub use limits::{
    FILE_BYTES_MAX, FILE_NUMBER_MAX, ID_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, WAL_ID_MAX,
    is_segment_bytes, wal_id_max,
};
pub(crate) use numbered::numbered;
pub use operator::{MergeOperator, Operands};
pub use order::{Comparator, KeyCompare, PrefixLayout};
pub use range::{KeyBounds, KeyRange, KeySpan, prefix_range};
pub use readahead::Readahead;
pub use rows::{RowSpan, Rows};
pub use scope::Scope;
pub use slice::Slice;
pub use words::{append_short, head_of};

/// A sequence number: the position of a commit's record in the log, in units of eight bytes. Larger is newer;
/// all entries of one commit share it.
pub type SeqNo = u64;

/// When a reader reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadPoint {
    /// It sees the versions up to this sequence number.
    pub seq: SeqNo,
    /// Time at which it decides what has expired, in milliseconds since the UNIX epoch.
    pub now: u64,
}

impl ReadPoint {
    /// Returns true if the reader sees the newest version of a key and its entry holds the value itself.
    #[inline]
    pub fn shows(&self, version: EntryMeta) -> bool {
        version.kind().holds_value() && version.seq <= self.seq && !has_passed(version.expiry(), self.now)
    }
}

/// Sequence numbers after one and before another, both excluded.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// The numbers are above this.
    pub after: SeqNo,
    /// The numbers are below this.
    pub before: SeqNo,
}

impl Between {
    /// Whether `seq` is one of them.
    pub fn contains(self, seq: SeqNo) -> bool {
        self.after < seq && seq < self.before
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.before <= self.after.saturating_add(1)
    }
}

/// Largest sequence number; a reader that reads at it sees everything. It allows 8 EiB of log, 292 years at 1 GB/s.
pub const SEQ_MAX: SeqNo = (1 << 60) - 1;
/// Longest key in bytes. The shortest has 1: an empty or longer key is refused by every write, and found by no read.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Longest value passed in one call, in bytes.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize - 1;
/// Longest name of a family in bytes of UTF-8.
pub const FAMILY_NAME_BYTES_MAX: usize = 127;

#[cfg(test)]
mod tests {
    use super::Between;

    #[test]
    fn a_range_of_sequence_numbers_is_empty_if_it_contains_none() {
        for after in 0..6 {
            for before in 0..6 {
                let range = Between { after, before };
                assert_eq!(range.is_empty(), !(0..6).any(|seq| range.contains(seq)), "{range:?}");
            }
        }
    }
}
