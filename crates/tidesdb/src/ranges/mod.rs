//! Range tombstones: one entry deletes all keys of an interval.
//!
//! ```text
//! write: memtable slot (RangeSet in an epoch cell) --flush--> manifest; resident in the family's version
//! read:  a version of a key is dead if a tombstone covers the key, is newer than it and not newer than the reader
//! merge: versions dead for every reader are dropped; a tombstone that hides nothing any more leaves the manifest
//! ```
//!
//! Tables do not store them, so they need not be cut at table or file borders. Every range tombstone has its own
//! sequence number, above everything written before it, also within its own batch. So it covers exactly the versions
//! with smaller numbers.

mod hidden;
mod index;
mod set;
mod stack;
#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use crate::memory::{Charge, Memory, Use, block_bytes};
use crate::types::{Comparator, KEY_BYTES_MAX, PrefixLayout, SeqNo};
use crate::{Error, Result};

pub use hidden::{Covered, Hidden};
pub use index::{Around, tighter};
pub use set::{RangeSet, SharedRanges};
pub use stack::{Cover, RangeStack};

/// Deletes every version older than `seq` of the keys from `start` (inclusive) to `end` (exclusive).
#[derive(Debug)]
pub struct RangeTombstone {
    /// Position in the order of commits.
    pub seq: SeqNo,
    /// First key covered; `None` = no lower bound.
    pub start: Option<Box<[u8]>>,
    /// First key after those covered; `None` = no upper bound.
    pub end: Option<Box<[u8]>>,
    /// Memory of the tombstone, for as long as a memtable, a version or a reader shares it.
    charge: OnceLock<Charge>,
}

/// A copy is not charged.
impl Clone for RangeTombstone {
    fn clone(&self) -> Self {
        Self::new(self.seq, self.start.clone(), self.end.clone())
    }
}

impl PartialEq for RangeTombstone {
    fn eq(&self, other: &Self) -> bool {
        (self.seq, &self.start, &self.end) == (other.seq, &other.start, &other.end)
    }
}

impl Eq for RangeTombstone {}

impl RangeTombstone {
    /// Memory of a tombstone besides its keys: its own, its place in the state, and in the indexes of a memtable and of a version.
    const OWN_BYTES: usize = 2 * size_of::<usize>() + size_of::<Self>() + 160;

    /// A tombstone that is not charged yet.
    pub fn new(seq: SeqNo, start: Option<Box<[u8]>>, end: Option<Box<[u8]>>) -> Self {
        Self { seq, start, end, charge: OnceLock::new() }
    }

    /// Charges the memory of the tombstone, unless that was done before.
    pub fn charge_to(&self, memory: &Arc<Memory>) {
        self.charge.get_or_init(|| {
            let mut charge = Charge::new(Use::Ranges);
            charge.set(memory, self.bytes() as u64);
            charge
        });
    }

    /// Returns the approximate memory of a tombstone with bounds of these lengths.
    pub fn bytes_of(start: usize, end: usize) -> usize {
        Self::OWN_BYTES + block_bytes(start) + block_bytes(end)
    }

    /// Returns whether `key` lies in the interval.
    pub fn covers(&self, order: &Comparator, key: &[u8]) -> bool {
        self.start.as_ref().is_none_or(|start| order.compare(start, key).is_le())
            && self.end.as_ref().is_none_or(|end| order.compare(key, end).is_lt())
    }

    /// Returns whether some key from `smallest` to `largest`, both inclusive, may lie in the interval.
    pub fn meets(&self, order: &Comparator, smallest: &[u8], largest: &[u8]) -> bool {
        self.start.as_ref().is_none_or(|start| order.compare(start, largest).is_le())
            && self.end.as_ref().is_none_or(|end| order.compare(smallest, end).is_lt())
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let length = |key: &Option<Box<[u8]>>| key.as_ref().map_or(0, |key| key.len());
        Self::bytes_of(length(&self.start), length(&self.end))
    }
}

/// Maximum length of a border: the successor of the longest key is one byte longer.
pub const BORDER_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// A range of keys in the form of a range tombstone.
#[derive(Debug)]
pub struct Interval {
    /// First key; `None` = no lower bound.
    pub start: Option<Vec<u8>>,
    /// First key after the range; `None` = no upper bound.
    pub end: Option<Vec<u8>>,
    /// A key that also belongs to the range, because a custom order cannot name the key after it.
    pub last: Option<Vec<u8>>,
}

impl Interval {
    /// Converts a range of standard bounds; returns `None` if it is empty.
    ///
    /// # Errors
    /// `InvalidArgument` for a bound that cannot be expressed in the key order.
    pub fn new(order: &Comparator, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Result<Option<Self>> {
        let mut this = Self { start: None, end: None, last: None };
        let (start, end) = (shorten(order, start, false)?, shorten(order, end, true)?);
        this.start = match start {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(key),
            Bound::Excluded(key) => match order.prefix_layout() {
                PrefixLayout::Ascending => Some(next_key(key)),
                PrefixLayout::Descending => match previous_key(key) {
                    Some(key) => Some(key),
                    None => return Ok(None),
                },
                PrefixLayout::Anywhere => {
                    return Err(Error::invalid(
                        "with this key order, the start of a range to delete must be inclusive",
                    ));
                }
            },
        };
        this.end = match end {
            Bound::Unbounded => None,
            Bound::Excluded(key) => Some(key),
            Bound::Included(key) if order.is_bytewise() => Some(next_key(key)),
            Bound::Included(key) => {
                let inside = this.start.as_ref().is_none_or(|start| order.compare(start, &key).is_le());
                this.last = inside.then(|| key.clone());
                Some(key)
            }
        };
        this.start = this.start.filter(|key| !key.is_empty());
        let empty = match (&this.start, &this.end) {
            (_, Some(end)) if end.is_empty() => true,
            (Some(start), Some(end)) => order.compare(start, end).is_ge(),
            _ => false,
        };
        Ok((!empty || this.last.is_some()).then_some(this))
    }
}

/// Replaces a bound that is longer than any key by its first bytes: no key lies between. They are before the bound in byte order, and
/// after it in reverse byte order.
fn shorten(order: &Comparator, mut bound: Bound<Vec<u8>>, is_end: bool) -> Result<Bound<Vec<u8>>> {
    let (Bound::Included(key) | Bound::Excluded(key)) = &mut bound else { return Ok(bound) };
    if key.is_empty() && !order.is_bytewise() {
        let what = "with this key order, a bound of a range to delete cannot be empty; use an unbounded end";
        return Err(Error::invalid(what));
    }
    let len = key.len();
    if len <= KEY_BYTES_MAX {
        return Ok(bound);
    }
    let mut key = std::mem::take(key);
    key.truncate(KEY_BYTES_MAX);
    match (order.prefix_layout(), is_end) {
        (PrefixLayout::Ascending, false) | (PrefixLayout::Descending, true) => Ok(Bound::Excluded(key)),
        (PrefixLayout::Ascending, true) | (PrefixLayout::Descending, false) => Ok(Bound::Included(key)),
        (PrefixLayout::Anywhere, _) => Err(Error::invalid(format!(
            "with this key order, a bound of a range to delete has at most {KEY_BYTES_MAX} bytes, this one {len}"
        ))),
    }
}

/// Returns the first key after `key` in byte order.
fn next_key(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// Returns the last key before `key` in byte order: the longest one, unless `key` ends with a zero. `None` if there is none.
fn previous_key(mut key: Vec<u8>) -> Option<Vec<u8>> {
    let last = key.pop()?;
    if let Some(last) = last.checked_sub(1) {
        key.push(last);
        key.resize(KEY_BYTES_MAX, u8::MAX);
    }
    (!key.is_empty()).then_some(key)
}
