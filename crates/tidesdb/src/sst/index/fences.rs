//! Fences: sorted keys that separate neighbours, stored in a form suited for searching.
//!
//! The neighbours are the blocks of a table, or the partitions of its index; the search is the same. Fence `i`
//! separates neighbour `i` from neighbour `i + 1`.

use std::cmp::Ordering;

use super::tree::Tree;
use crate::Result;
use crate::codec::Decoder;
use crate::sst::block::{ShortKey, common_prefix, partition};
use crate::types::{Comparator, KEY_BYTES_MAX, SEQ_MAX, SeqNo, head_of};

/// The separator between a block or a partition and its predecessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sst) struct Border {
    /// Above all keys before the border and not above the first key after it. If versions of that key continue over the
    /// border, exactly that key.
    pub(in crate::sst) fence: ShortKey,
    /// If versions of one key continue over the border: the sequence number of the first version after it.
    pub(in crate::sst) goes_on: Option<SeqNo>,
}

/// Key and sequence number of a version.
#[derive(Clone, Copy)]
pub(in crate::sst) struct VersionKey<'a> {
    pub(in crate::sst) key: &'a [u8],
    pub(in crate::sst) seq: SeqNo,
}

/// Returns whether a block with these first and last versions lies between these borders (`None` means an end of the
/// table). If so, a search of the index finds the block for each of its keys and for no others.
pub(in crate::sst) fn encloses(
    order: &Comparator,
    lower: Option<Border>,
    upper: Option<Border>,
    first: VersionKey<'_>,
    last: VersionKey<'_>,
) -> bool {
    let above = lower.is_none_or(|border| {
        let at = order.compare(&border.fence, first.key);
        border.goes_on.map_or(at.is_le(), |seq| at.is_eq() && seq == first.seq)
    });
    let below = upper.is_none_or(|border| {
        let at = order.compare(last.key, &border.fence);
        border.goes_on.map_or(at.is_lt(), |seq| at.is_eq() && seq < last.seq)
    });
    above && below
}

/// Fences in memory.
#[derive(Debug)]
pub(in crate::sst) struct Fences {
    bytewise: bool,
    /// Common prefix of all fences; empty unless the order is byte order.
    prefix: Box<[u8]>,
    /// In byte order, the eight bytes of each fence after the prefix, zero-padded; otherwise empty.
    heads: Tree,
    /// Fences without the prefix.
    suffixes: Box<[u8]>,
    ends: Box<[u32]>,
    /// Neighbours into which versions of their predecessor's last key continue, and their first sequence number.
    going_on: Box<[(u32, SeqNo)]>,
}

impl Fences {
    /// Returns the first neighbour that can contain `target` or a later key.
    #[inline]
    pub(super) fn first(&self, order: &Comparator, target: &[u8]) -> usize {
        let (fence, equal) = self.search(order, target, false);
        // A fence that equals the target is above all keys before it, unless versions of the target continue over it.
        if equal && (self.going_on.is_empty() || self.goes_on(fence + 1).is_none()) {
            fence + 1
        } else {
            fence
        }
    }

    /// Returns the last neighbour that can contain `target` or an earlier key.
    pub(super) fn last(&self, order: &Comparator, target: &[u8]) -> usize {
        self.search(order, target, true).0
    }

    /// Returns the neighbour that contains the newest version of `target` at or below `snapshot`, if any does.
    #[inline]
    pub(in crate::sst) fn of(&self, order: &Comparator, target: &[u8], snapshot: SeqNo) -> usize {
        let first = self.first(order, target);
        if self.going_on.is_empty() { first } else { self.skip_newer(order, target, snapshot, first) }
    }

    /// Among the neighbours into which versions of `target` continue after `first`, returns the last one that starts at
    /// or above `snapshot`. Any neighbour before it ends above the snapshot.
    fn skip_newer(&self, order: &Comparator, target: &[u8], snapshot: SeqNo, first: usize) -> usize {
        let last = self.last(order, target);
        partition(first + 1, last + 1, |i| self.goes_on(i).is_some_and(|seq| seq >= snapshot)) - 1
    }

    /// Returns the first sequence number of neighbour `i` if versions of a key continue into it from its predecessor.
    pub(super) fn goes_on(&self, i: usize) -> Option<SeqNo> {
        let at = self.going_on.binary_search_by_key(&i, |&(i, _)| i as usize).ok()?;
        self.going_on.get(at).map(|&(_, seq)| seq)
    }

    /// Returns the border before neighbour `i`; `None` before the first and after the last.
    pub(super) fn border(&self, i: usize) -> Option<Border> {
        let at = i.checked_sub(1).filter(|at| *at < self.ends.len())?;
        let mut fence = ShortKey::from_slice(&self.prefix);
        fence.extend_from_slice(self.suffix(at));
        Some(Border { fence, goes_on: self.goes_on(i) })
    }

    /// Returns the number of fences.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the order is byte order.
    pub(super) fn is_bytewise(&self) -> bool {
        self.bytewise
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.heads.bytes()
            + self.prefix.len()
            + self.suffixes.len()
            + size_of_val(&*self.ends)
            + size_of_val(&*self.going_on)
    }

    /// Returns fence `i` without the prefix.
    #[inline]
    fn suffix(&self, i: usize) -> &[u8] {
        let end = |i: usize| self.ends.get(i).map_or(0, |e| *e as usize);
        self.suffixes.get(if i == 0 { 0 } else { end(i - 1) }..end(i)).unwrap_or_default()
    }

    /// Returns the number of fences before `target` (or at it, with `after_equal`), and whether the next fence equals
    /// it.
    #[inline]
    fn search(&self, order: &Comparator, target: &[u8], after_equal: bool) -> (usize, bool) {
        let before = |ordering: Ordering| match ordering {
            Ordering::Less => true,
            Ordering::Equal => after_equal,
            Ordering::Greater => false,
        };
        let n = self.ends.len();
        if !self.bytewise {
            let at = partition(0, n, |i| before(order.compare(self.suffix(i), target)));
            return (at, at < n && order.compare(self.suffix(at), target).is_eq());
        }
        let Some(suffix) = target.strip_prefix(&*self.prefix) else {
            return (if target < &*self.prefix { 0 } else { n }, false);
        };
        let head = head_of(suffix);
        let start = self.heads.below(head).min(n);
        if start == n || self.heads.get(start) != head {
            return (start, false);
        }
        let end = partition(start + 1, n, |i| self.heads.get(i) == head);
        let at = partition(start, end, |i| before(self.suffix(i).cmp(suffix)));
        (at, at < end && self.suffix(at) == suffix)
    }
}

/// Maximum total length of the fences of an index that is read, in bytes. With addresses of 32 bits they take twice that for a moment.
const READ_BYTES_MAX: usize = if usize::BITS > 32 { u32::MAX as usize } else { 1 << 28 };

/// Fences as read from disk, in full.
#[derive(Default)]
pub(super) struct FenceReader {
    /// The last fence read, with which the next one shares bytes.
    fence: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    common: Option<Vec<u8>>,
    going_on: Vec<(u32, SeqNo)>,
}

impl FenceReader {
    /// Reads the fence of entry `i` of a partition or of the top level, and returns its length. Entry 0 has an empty
    /// fence.
    pub(super) fn read_entry(&mut self, d: &mut Decoder<'_>, i: usize) -> Result<usize> {
        if i == 0 { self.begin(d).map(|()| 0) } else { self.read(d) }
    }

    /// Reads the first sequence number of entry `i`, whose fence was read last and into which versions of a key
    /// continue.
    pub(super) fn read_going_on(&mut self, d: &mut Decoder<'_>, i: usize) -> Result<()> {
        let seq = d.number(0..=SEQ_MAX, "sequence number")?;
        if i == 0 {
            return Err(d.corrupt("first entry continues versions of a key"));
        }
        self.push_going_on(seq);
        Ok(())
    }

    /// Reads an empty fence.
    fn begin(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        self.fence.clear();
        if d.length(0)? == 0 && d.length(0)? == 0 {
            Ok(())
        } else {
            Err(d.corrupt("first fence is not empty"))
        }
    }

    fn read(&mut self, d: &mut Decoder<'_>) -> Result<usize> {
        let shared = d.length(self.fence.len())?;
        self.fence.truncate(shared);
        self.fence.extend_from_slice(d.bytes(KEY_BYTES_MAX - shared)?);
        // Shared prefixes can describe more bytes than the index has; no table is that long.
        if self.bytes.len() + self.fence.len() > READ_BYTES_MAX {
            return Err(d.corrupt("fences too long"));
        }
        let fence = std::mem::take(&mut self.fence);
        self.push(&fence);
        self.fence = fence;
        Ok(self.fence.len())
    }

    /// Adds a border that was read elsewhere.
    pub(super) fn push_border(&mut self, border: &Border) {
        self.push(&border.fence);
        if let Some(seq) = border.goes_on {
            self.push_going_on(seq);
        }
    }

    /// Records that versions of a key continue over the last fence added.
    fn push_going_on(&mut self, seq: SeqNo) {
        self.going_on.push((self.ends.len() as u32, seq));
    }

    fn push(&mut self, fence: &[u8]) {
        self.bytes.extend_from_slice(fence);
        self.ends.push(self.bytes.len());
        let common = self.common.get_or_insert_with(|| fence.to_vec());
        common.truncate(common_prefix(common, fence));
    }

    /// Builds the fences, without their common prefix.
    pub(super) fn finish(self, bytewise: bool) -> Fences {
        let prefix = if bytewise { self.common.unwrap_or_default() } else { Vec::new() };
        let mut suffixes = Vec::with_capacity(self.bytes.len() - prefix.len() * self.ends.len());
        let mut ends = Vec::with_capacity(self.ends.len());
        let mut heads = Vec::new();
        let mut start = 0;
        for &end in &self.ends {
            let suffix = self.bytes.get(start + prefix.len()..end).unwrap_or_default();
            suffixes.extend_from_slice(suffix);
            ends.push(suffixes.len() as u32);
            if bytewise {
                heads.push(head_of(suffix));
            }
            start = end;
        }
        Fences {
            bytewise,
            prefix: prefix.into(),
            heads: Tree::new(&heads),
            suffixes: suffixes.into(),
            ends: ends.into(),
            going_on: self.going_on.into(),
        }
    }
}

#[cfg(all(test, target_pointer_width = "32"))]
mod tests {
    use super::*;
    use crate::codec::put_varint;

    /// Shared prefixes described so many bytes that the buffer for them was longer than addresses of 32 bits allow, which aborted the
    /// process.
    #[test]
    fn a_short_index_cannot_take_all_addresses() {
        let mut index = vec![0, 0]; // an empty fence, then a long one, then the same again and again
        for shared in [0, KEY_BYTES_MAX] {
            put_varint(&mut index, shared as u64);
            put_varint(&mut index, (KEY_BYTES_MAX - shared) as u64);
            index.resize(index.len() + KEY_BYTES_MAX - shared, b'k');
        }
        let again = index.split_off(index.len() - 4);
        (0..40_000).for_each(|_| index.extend_from_slice(&again));
        let (mut d, mut reader) = (Decoder::new(&index, "index", 0), FenceReader::default());
        let read = (0..40_001).try_for_each(|i| reader.read_entry(&mut d, i).map(drop));
        assert!(read.unwrap_err().is_corruption());
        assert_eq!(reader.ends.len(), READ_BYTES_MAX / KEY_BYTES_MAX);
    }
}
