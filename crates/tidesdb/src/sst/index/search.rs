//! The index in memory: which block a key belongs to, and where the block lies.

use std::cmp::Ordering;

use super::tree::Tree;
use crate::Result;
use crate::codec::{Compression, Decoder, Salt, longest_raw};
use crate::sst::block::{HEADER_BYTES, common_prefix, head_of, partition};
use crate::sst::layout::open_section;
use crate::types::{Comparator, KEY_BYTES_MAX, SEQ_MAX, SeqNo};

/// Where a block lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sst) struct Fence {
    /// Number of the block.
    pub(in crate::sst) block: usize,
    /// Offset in the file.
    pub(in crate::sst) at: u64,
    /// Length of header, frame table and key section.
    pub(in crate::sst) key_part: usize,
    /// Length of all.
    pub(in crate::sst) disk: u64,
}

/// The index of an open table. Fence `i` separates block `i` from block `i + 1`.
#[derive(Debug)]
pub(in crate::sst) struct Index {
    bytewise: bool,
    fences: Fences,
    places: Places,
    /// End of the last block.
    data_end: u64,
    /// Blocks that go on with versions of the key their predecessor ended with, and their first sequence number.
    going_on: Box<[(u32, SeqNo)]>,
}

impl Index {
    /// Reads a section that lies at `at` and describes `blocks` blocks that fill the file up to `data_end`.
    pub(in crate::sst) fn decode(
        section: &[u8],
        (salt, file, at): (&Salt, &str, u64),
        (blocks, data_end): (u32, u64),
        (bytewise, compression): (bool, Compression),
    ) -> Result<Self> {
        let body = open_section(salt, at, section, file, "index")?;
        let mut d = Decoder::new(body, file, at);
        // Each block takes four bytes at least, which bounds the allocations by the bytes at hand.
        if blocks == 0 || blocks as usize > body.len() / 4 {
            return Err(d.corrupt("number of blocks"));
        }
        let mut fences = WholeFences::default();
        let mut places = PlacesBuilder::with_capacity(blocks as usize);
        let mut going_on = Vec::new();
        let mut offset = 0u64;
        for block in 0..blocks {
            fences.read(&mut d, block)?;
            let length = d.varint()?;
            let key_part = d.length(u32::MAX as usize)?;
            let disk = length >> 1;
            // A fence is no longer than the first key behind it, which bounds what sharing can make of few bytes.
            let too_long = fences.fence.len() > longest_raw(compression, key_part);
            if key_part < HEADER_BYTES || disk < key_part as u64 || disk > data_end - offset || too_long {
                return Err(d.corrupt("length of a block"));
            }
            if length & 1 == 1 {
                going_on.push((block, d.number(0..=SEQ_MAX, "sequence number")?));
            }
            places.push(offset, key_part as u32);
            offset += disk;
        }
        d.finish()?;
        if offset != data_end {
            return Err(d.corrupt("blocks do not fill the data"));
        }
        Ok(Self {
            bytewise,
            fences: fences.cut(bytewise),
            places: places.finish(),
            data_end,
            going_on: going_on.into(),
        })
    }

    /// Number of blocks.
    #[inline]
    pub(in crate::sst) fn blocks(&self) -> usize {
        self.places.low.len()
    }

    /// Where block `b` lies.
    #[inline]
    pub(in crate::sst) fn place(&self, b: usize) -> Option<Fence> {
        let (at, key_part) = self.places.get(b)?;
        let end = self.places.get(b + 1).map_or(self.data_end, |next| next.0);
        Some(Fence { block: b, at, key_part: key_part as usize, disk: end - at })
    }

    /// The first block that can hold `target` or something after it.
    #[inline]
    pub(in crate::sst) fn first_block(&self, order: &Comparator, target: &[u8]) -> usize {
        let (fence, equal) = self.search(order, target, false);
        // A fence that equals the target lies above all before it, unless versions of the target go on over it.
        if equal && (self.going_on.is_empty() || self.goes_on(fence + 1).is_none()) {
            fence + 1
        } else {
            fence
        }
    }

    /// The last block that can hold `target` or something before it.
    pub(in crate::sst) fn last_block(&self, order: &Comparator, target: &[u8]) -> usize {
        self.search(order, target, true).0
    }

    /// The block that holds the newest version of `target` at or below `snapshot`, if any does.
    #[inline]
    pub(in crate::sst) fn block_of(&self, order: &Comparator, target: &[u8], snapshot: SeqNo) -> usize {
        let first = self.first_block(order, target);
        if self.going_on.is_empty() { first } else { self.skip_newer(order, target, snapshot, first) }
    }

    /// Among blocks that go on with versions of `target` after `first`: the last one that begins above `snapshot`, or at
    /// it; the block before it otherwise ends above the snapshot.
    fn skip_newer(&self, order: &Comparator, target: &[u8], snapshot: SeqNo, first: usize) -> usize {
        let last = self.last_block(order, target);
        partition(first + 1, last + 1, |b| self.goes_on(b).is_some_and(|seq| seq >= snapshot)) - 1
    }

    /// If versions go on from the block before into block `b`: its first sequence number.
    pub(in crate::sst) fn goes_on(&self, b: usize) -> Option<SeqNo> {
        let i = self.going_on.binary_search_by_key(&b, |&(block, _)| block as usize).ok()?;
        self.going_on.get(i).map(|&(_, seq)| seq)
    }

    /// Whether a block that begins and ends with these versions lies between the fences around block `b`: a search of the
    /// index comes to it for each of its keys, and for no others.
    pub(in crate::sst) fn encloses(
        &self,
        order: &Comparator,
        b: usize,
        first: (&[u8], SeqNo),
        last: (&[u8], SeqNo),
    ) -> bool {
        let above = b.checked_sub(1).is_none_or(|i| {
            let at = order.compare(&self.fence(i), first.0);
            self.goes_on(b).map_or(at.is_le(), |seq| at.is_eq() && seq == first.1)
        });
        let below = b >= self.fences.len() || {
            let at = order.compare(last.0, &self.fence(b));
            self.goes_on(b + 1).map_or(at.is_lt(), |seq| at.is_eq() && seq < last.1)
        };
        above && below
    }

    /// Fence `i` as a whole key.
    pub(in crate::sst) fn fence(&self, i: usize) -> Vec<u8> {
        [&self.fences.prefix, self.fences.suffix(i)].concat()
    }

    /// Bytes in memory.
    pub(in crate::sst) fn bytes(&self) -> usize {
        self.fences.heads.bytes()
            + self.fences.prefix.len()
            + self.fences.suffixes.len()
            + size_of_val(&*self.fences.ends)
            + self.places.bytes()
            + size_of_val(&*self.going_on)
    }

    /// How many fences lie before `target` (or at it, with `after_equal`), and whether the next one equals it.
    #[inline]
    fn search(&self, order: &Comparator, target: &[u8], after_equal: bool) -> (usize, bool) {
        let before = |ordering: Ordering| match ordering {
            Ordering::Less => true,
            Ordering::Equal => after_equal,
            Ordering::Greater => false,
        };
        let fences = &self.fences;
        let n = fences.len();
        if !self.bytewise {
            let at = partition(0, n, |i| before(order.compare(fences.suffix(i), target)));
            return (at, at < n && order.compare(fences.suffix(at), target).is_eq());
        }
        let Some(suffix) = target.strip_prefix(&*fences.prefix) else {
            return (if target < &*fences.prefix { 0 } else { n }, false);
        };
        let head = head_of(suffix);
        let start = fences.heads.below(head).min(n);
        if start == n || fences.heads.get(start) != head {
            return (start, false);
        }
        let end = partition(start + 1, n, |i| fences.heads.get(i) == head);
        let at = partition(start, end, |i| before(fences.suffix(i).cmp(suffix)));
        (at, at < end && fences.suffix(at) == suffix)
    }
}

/// Offset and length of the key part of each block, in eight bytes: the upper half of offsets, which changes every 4 GiB, is
/// kept apart.
#[derive(Debug)]
struct Places {
    /// Lower half of the offset, length of the key part.
    low: Box<[(u32, u32)]>,
    /// Blocks from which on the upper half is another, and that half.
    carries: Box<[(u32, u32)]>,
}

impl Places {
    #[inline]
    fn get(&self, b: usize) -> Option<(u64, u32)> {
        let &(low, key_part) = self.low.get(b)?;
        let high = if self.carries.is_empty() { 0 } else { self.high(b) };
        Some((high | u64::from(low), key_part))
    }

    /// The upper half of the offset of block `b`.
    #[cold]
    fn high(&self, b: usize) -> u64 {
        let after = self.carries.partition_point(|&(first, _)| first as usize <= b);
        let high = after.checked_sub(1).and_then(|i| self.carries.get(i)).map_or(0, |&(_, high)| high);
        u64::from(high) << 32
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.low) + size_of_val(&*self.carries)
    }
}

/// [`Places`] as they are read.
struct PlacesBuilder {
    low: Vec<(u32, u32)>,
    carries: Vec<(u32, u32)>,
}

impl PlacesBuilder {
    fn with_capacity(blocks: usize) -> Self {
        Self { low: Vec::with_capacity(blocks), carries: Vec::new() }
    }

    /// Adds a block behind those before.
    fn push(&mut self, at: u64, key_part: u32) {
        let high = (at >> 32) as u32;
        if high != self.carries.last().map_or(0, |&(_, high)| high) {
            self.carries.push((self.low.len() as u32, high));
        }
        self.low.push((at as u32, key_part));
    }

    fn finish(self) -> Places {
        Places { low: self.low.into(), carries: self.carries.into() }
    }
}

/// The fences, cut for searching.
#[derive(Debug)]
struct Fences {
    /// What all fences begin with; empty unless the order is byte order.
    prefix: Box<[u8]>,
    /// In byte order, the eight bytes of each fence after the prefix, zero-padded; else nothing.
    heads: Tree,
    /// Fences without the prefix.
    suffixes: Box<[u8]>,
    ends: Box<[u32]>,
}

impl Fences {
    #[inline]
    fn len(&self) -> usize {
        self.ends.len()
    }

    /// Fence `i` without the prefix.
    #[inline]
    fn suffix(&self, i: usize) -> &[u8] {
        let end = |i: usize| self.ends.get(i).map_or(0, |e| *e as usize);
        self.suffixes.get(if i == 0 { 0 } else { end(i - 1) }..end(i)).unwrap_or_default()
    }
}

/// Fences as read, whole.
#[derive(Default)]
struct WholeFences {
    fence: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    common: Option<Vec<u8>>,
}

impl WholeFences {
    fn read(&mut self, d: &mut Decoder<'_>, block: u32) -> Result<()> {
        let shared = d.length(self.fence.len())?;
        self.fence.truncate(shared);
        let rest = d.bytes(KEY_BYTES_MAX - shared)?;
        if block == 0 {
            return if rest.is_empty() { Ok(()) } else { Err(d.corrupt("fence before the first block")) };
        }
        self.fence.extend_from_slice(rest);
        // Sharing can describe more bytes than the index has; a table that long does not exist.
        if self.bytes.len() + self.fence.len() > u32::MAX as usize {
            return Err(d.corrupt("fences too long"));
        }
        self.bytes.extend_from_slice(&self.fence);
        self.ends.push(self.bytes.len());
        let fence = &self.fence;
        let common = self.common.get_or_insert_with(|| fence.clone());
        common.truncate(common_prefix(common, fence));
        Ok(())
    }

    /// Takes off what all have in common.
    fn cut(self, bytewise: bool) -> Fences {
        let prefix = if bytewise { self.common.unwrap_or_default() } else { Vec::new() };
        let mut suffixes = Vec::new();
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
            prefix: prefix.into(),
            heads: Tree::new(&heads),
            suffixes: suffixes.into(),
            ends: ends.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_4_gib_are_found() {
        let lengths = [100, 0xFFFF_FFFF, 1, 50, 3 << 32, 7, 0xFFFF_FFFF, 2];
        let mut builder = PlacesBuilder::with_capacity(lengths.len());
        let mut offsets = Vec::new();
        let mut at = 0;
        for (i, length) in lengths.iter().enumerate() {
            builder.push(at, i as u32);
            offsets.push((at, i as u32));
            at += length;
        }
        let places = builder.finish();
        assert_eq!(places.carries.len(), 3);
        assert_eq!((0..lengths.len()).filter_map(|b| places.get(b)).collect::<Vec<_>>(), offsets);
        assert_eq!(places.get(lengths.len()), None);
    }
}
