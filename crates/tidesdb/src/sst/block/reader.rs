//! [`Block`]: access to the fields of the entries of a block whose key section is in memory.
//!
//! A block is validated once, when its bytes come from disk. After that no accessor fails: if its bytes change
//! all the same, an accessor returns empty or zero fields instead of panicking.

use std::ops::{Range, RangeInclusive};

use super::{
    ENTRIES_MAX, EXPIRES, EXPIRY_BASE_BYTES, EXPIRY_UNIFORM, FRAME_BYTES, HEADER_BYTES, HEADS, KIND_UNIFORM,
    PADDING_MAX, SUFFIX_UNIFORM, Shape, ShortKey, VALUE_UNIFORM,
};
use crate::codec::{Compression, longest_raw};
use crate::types::{Comparator, EXPIRY_MAX, EntryMeta, Kind, SEQ_MAX, SeqNo, append_short};
use crate::vlog::ValuePlace;

/// A view of a block: its shape, and its header, frame table and raw key section as bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::sst) struct Block<'a> {
    pub(in crate::sst) shape: &'a Shape,
    pub(in crate::sst) bytes: &'a [u8],
}

/// A frame: values of consecutive entries, compressed together.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sst) struct Frame {
    /// Number of the frame in its block.
    pub(in crate::sst) number: usize,
    /// The first entry.
    pub(in crate::sst) first: usize,
    /// The entry after the last one.
    pub(in crate::sst) end: usize,
    /// Start of the frame, counted from the end of the key section on disk.
    pub(in crate::sst) at: u64,
    /// Length on disk.
    pub(in crate::sst) disk: usize,
    /// Decompressed length.
    pub(in crate::sst) raw: usize,
    /// Start of its first value among the value bytes of the block.
    pub(in crate::sst) base: usize,
    /// Checksum.
    pub(in crate::sst) crc: u32,
}

impl Frame {
    /// Returns the numbers of its entries.
    #[inline]
    pub(in crate::sst) fn entries(&self) -> Range<usize> {
        self.first..self.end
    }

    /// Converts a span among the value bytes of the block to one among those of this frame. A span outside of the frame
    /// is outside of its bytes.
    #[inline]
    pub(in crate::sst) fn place_of(&self, span: Range<usize>) -> Range<usize> {
        span.start.wrapping_sub(self.base)..span.end.wrapping_sub(self.base)
    }
}

impl<'a> Block<'a> {
    /// Returns the number of entries.
    #[inline]
    pub(in crate::sst) fn len(&self) -> usize {
        self.shape.header.entries as usize
    }

    /// Returns the common prefix of all keys.
    #[inline]
    pub(in crate::sst) fn prefix(&self) -> &'a [u8] {
        self.part(self.shape.prefix_at as usize, self.shape.heads_at as usize)
    }

    /// Returns the head of each key: the eight bytes after the prefix, zero-padded, as little-endian forms of
    /// big-endian numbers.
    #[inline]
    pub(in crate::sst) fn heads(&self) -> &'a [[u8; 8]] {
        self.part(self.shape.heads_at as usize, self.shape.shorts_at as usize).as_chunks().0
    }

    /// Returns the head of key `i` as a number with the order of the keys; 0 if it has none.
    #[inline]
    pub(in crate::sst) fn head(&self, i: usize) -> u64 {
        self.heads().get(i).map_or(0, |head| u64::from_le_bytes(*head))
    }

    /// Returns the number of key bytes in the head of key `i`.
    #[inline]
    pub(in crate::sst) fn head_len(&self, i: usize) -> usize {
        let len = match self.shape.has(SUFFIX_UNIFORM) {
            true => self.shape.header.suffix as usize,
            false => self.bytes.get(self.shape.shorts_at as usize + i).map_or(0, |&b| usize::from(b)),
        };
        len.min(8)
    }

    /// Returns the bytes of key `i` after prefix and head.
    #[inline]
    pub(in crate::sst) fn tail(&self, i: usize) -> &'a [u8] {
        let s = self.shape;
        let span = match s.has(SUFFIX_UNIFORM) {
            true => {
                let len = self.uniform_tail();
                i * len..i * len + len
            }
            false => self.ends(s.tail_ends_at, i),
        };
        let tails = s.tails_at as usize;
        self.part(tails + span.start, tails + span.end)
    }

    /// Returns the length of every tail of a block whose keys have one length.
    #[inline]
    fn uniform_tail(&self) -> usize {
        let suffix = self.shape.header.suffix as usize;
        if self.shape.has(HEADS) { suffix.saturating_sub(8) } else { suffix }
    }

    /// Returns the span of value `i` among the value bytes of the block.
    #[inline]
    pub(in crate::sst) fn value_span(&self, i: usize) -> Range<usize> {
        let s = self.shape;
        match s.has(VALUE_UNIFORM) {
            // With addresses of 32 bits this may wrap around in a damaged block, before `validate` refuses it.
            true => {
                let len = s.header.value as usize;
                i.wrapping_mul(len)..(i + 1).wrapping_mul(len)
            }
            false => self.ends(s.value_ends_at, i),
        }
    }

    /// Returns the total bytes of all values.
    pub(in crate::sst) fn values_len(&self) -> usize {
        self.value_span(self.len() - 1).end
    }

    /// Returns the kind of entry `i`.
    #[inline]
    pub(in crate::sst) fn kind(&self, i: usize) -> Kind {
        let kind = match self.shape.has(KIND_UNIFORM) {
            true => self.shape.header.kind,
            false => self.bytes.get(self.shape.kinds_at as usize + i).map_or(0, |&b| b),
        };
        Kind::of_checked(kind)
    }

    /// Returns the sequence number of entry `i`.
    #[inline]
    pub(in crate::sst) fn seq(&self, i: usize) -> SeqNo {
        let s = self.shape;
        if s.header.seq_width == 0 {
            return s.header.base_seq;
        }
        s.header.base_seq.wrapping_add(self.number(s.seqs_at as usize, s.header.seq_width, i))
    }

    /// Returns the expiry of entry `i`.
    #[inline]
    pub(in crate::sst) fn expiry(&self, i: usize) -> u64 {
        if self.shape.has(EXPIRES) { self.stored_expiry(i) } else { 0 }
    }

    /// Returns the expiry of entry `i` of a block in which an entry expires.
    #[cold]
    fn stored_expiry(&self, i: usize) -> u64 {
        let (s, at) = (self.shape, self.shape.expiries_at as usize);
        let base = u64::from_le_bytes(self.array(at));
        if s.has(EXPIRY_UNIFORM) {
            return base;
        }
        match self.number(at + EXPIRY_BASE_BYTES, s.header.expiry_width, i) {
            0 => 0,
            code => base.wrapping_add(code - 1),
        }
    }

    /// Returns number `i` of a column of numbers of `width` bytes.
    #[inline(always)]
    fn number(&self, column: usize, width: u8, i: usize) -> u64 {
        let at = column + i * usize::from(width);
        match width {
            1 => u64::from(self.array::<1>(at)[0]),
            2 => u64::from(u16::from_le_bytes(self.array(at))),
            4 => u64::from(u32::from_le_bytes(self.array(at))),
            _ => u64::from_le_bytes(self.array(at)),
        }
    }

    /// Returns sequence number, kind and expiry of entry `i`.
    #[inline]
    pub(in crate::sst) fn entry_meta(&self, i: usize) -> EntryMeta {
        EntryMeta::new(self.seq(i), self.kind(i), self.expiry(i))
    }

    /// Completes `key`, which contains this block's prefix, to key `i`.
    #[inline]
    pub(in crate::sst) fn append_suffix(&self, i: usize, key: &mut Vec<u8>) {
        if self.shape.has(HEADS) {
            let prefix = key.len();
            key.extend_from_slice(&self.head_bytes(i));
            let head_len = self.head_len(i);
            if head_len < 8 {
                key.truncate(prefix + head_len);
                return;
            }
        }
        append_short(key, self.tail(i));
    }

    /// Returns the head of key `i` as bytes of the key, with zeros behind a shorter one.
    #[inline]
    fn head_bytes(&self, i: usize) -> [u8; 8] {
        self.head(i).swap_bytes().to_le_bytes()
    }

    /// Sets `key` to key `i`.
    pub(in crate::sst) fn key_into(&self, i: usize, key: &mut ShortKey) {
        key.clear();
        key.extend_from_slice(self.prefix());
        if self.shape.has(HEADS) {
            key.extend_from_slice(&self.head_bytes(i)[..self.head_len(i)]);
        }
        key.extend_from_slice(self.tail(i));
    }

    /// Returns key `i`.
    pub(in crate::sst) fn key_at(&self, i: usize) -> ShortKey {
        let mut key = ShortKey::new();
        self.key_into(i, &mut key);
        key
    }

    /// Returns the frame that contains value `i`, and its number. `None` if the block has no values.
    #[inline]
    pub(in crate::sst) fn frame_of(&self, i: usize) -> Option<Frame> {
        self.frames().find(|frame| i < frame.end)
    }

    /// Returns the frames in order.
    #[inline]
    pub(in crate::sst) fn frames(&self) -> impl Iterator<Item = Frame> + use<'a> {
        let block = *self;
        let (mut first, mut at, mut base) = (0, 0, 0);
        let table = self.part(HEADER_BYTES, self.shape.prefix_at as usize).as_chunks::<FRAME_BYTES>().0;
        table.iter().enumerate().map(move |(number, t)| {
            let end = usize::from(u16::from_le_bytes([t[0], t[1]]));
            let disk = u32::from_le_bytes([t[2], t[3], t[4], t[5]]) as usize;
            let crc = u32::from_le_bytes([t[6], t[7], t[8], t[9]]);
            let value_end = end.checked_sub(1).map_or(0, |last| block.value_span(last).end);
            let frame =
                Frame { number, first, end, at, disk, raw: value_end.saturating_sub(base), base, crc };
            (first, at, base) = (end, at + disk as u64, value_end);
            frame
        })
    }

    /// Checks everything that accessors rely on. `values_disk` is the length of all frames; `seqs` is the range of
    /// sequence numbers in the table's description.
    pub(in crate::sst) fn validate(
        &self,
        values_disk: u64,
        compression: Compression,
        seqs: RangeInclusive<SeqNo>,
    ) -> Result<(), &'static str> {
        let s = self.shape;
        let n = self.len();
        if self.bytes.len() != s.end as usize {
            return Err("wrong length of the key section");
        }
        self.validate_tails()?;
        let kinds = self.part(s.kinds_at as usize, s.seqs_at as usize);
        if kinds.iter().any(|&k| Kind::of_version(k).is_none()) {
            return Err("unknown kind of an entry");
        }
        if s.header.base_seq > SEQ_MAX || !self.are_seqs_in(&seqs) {
            return Err("invalid sequence number of an entry");
        }
        if !self.are_expiries_valid() {
            return Err("invalid expiry of an entry");
        }
        let are_lengths_valid = match s.has(VALUE_UNIFORM) {
            true => usize::try_from(n as u64 * u64::from(s.header.value)).is_ok(),
            false => (0..n).map(|i| self.value_span(i)).all(|span| span.start <= span.end),
        };
        if !are_lengths_valid {
            return Err("invalid lengths of values");
        }
        let all_are_puts = s.has(KIND_UNIFORM) && self.kind(0).holds_value();
        if !all_are_puts && !(0..n).all(|i| self.value_fits(i)) {
            return Err("invalid length of a pointer or of the value of a tombstone");
        }
        self.validate_frames(values_disk, compression)
    }

    /// Returns whether all sequence numbers are within `seqs`.
    fn are_seqs_in(&self, seqs: &RangeInclusive<SeqNo>) -> bool {
        let s = self.shape;
        let (least, most) = self.extremes(s.seqs_at as usize, s.header.seq_width);
        let in_range = |delta| s.header.base_seq.checked_add(delta).is_some_and(|seq| seqs.contains(&seq));
        in_range(least) && in_range(most)
    }

    /// Returns whether all expiries are ones that a writer writes.
    fn are_expiries_valid(&self) -> bool {
        let s = self.shape;
        if !s.has(EXPIRES) {
            return s.has(EXPIRY_UNIFORM) && s.header.expiry_width == 0;
        }
        let at = s.expiries_at as usize;
        let base = u64::from_le_bytes(self.array(at));
        let width_fits = match s.has(EXPIRY_UNIFORM) {
            true => s.header.expiry_width == 0,
            false => matches!(s.header.expiry_width, 1 | 2 | 4 | 8),
        };
        let (_, most) = self.extremes(at + EXPIRY_BASE_BYTES, s.header.expiry_width);
        width_fits
            && base > 0
            && base.checked_add(most.saturating_sub(1)).is_some_and(|last| last <= EXPIRY_MAX)
    }

    /// Returns the smallest and the largest number of a column of numbers of `width` bytes; 0 if they have no bytes.
    fn extremes(&self, column: usize, width: u8) -> (u64, u64) {
        fn ends<const N: usize, T: Ord + Into<u64>>(column: &[u8], number: fn([u8; N]) -> T) -> (u64, u64) {
            let numbers = || column.as_chunks().0.iter().map(|bytes| number(*bytes));
            (numbers().min().map_or(0, T::into), numbers().max().map_or(0, T::into))
        }
        let column = self.part(column, column + self.len() * usize::from(width));
        match width {
            0 => (0, 0),
            1 => ends(column, u8::from_le_bytes),
            2 => ends(column, u16::from_le_bytes),
            4 => ends(column, u32::from_le_bytes),
            _ => ends(column, u64::from_le_bytes),
        }
    }

    /// Returns whether value `i` has a length that its kind allows.
    fn value_fits(&self, i: usize) -> bool {
        let span = self.value_span(i);
        match self.kind(i) {
            Kind::Put | Kind::Merge => true,
            Kind::PutPointer => ValuePlace::is_length(span.len()),
            Kind::Delete | Kind::SingleDelete | Kind::RangeDelete => span.is_empty(),
        }
    }

    fn validate_tails(&self) -> Result<(), &'static str> {
        let (s, n) = (self.shape, self.len());
        let tails = (s.end - s.tails_at) as usize;
        let good = match s.has(SUFFIX_UNIFORM) {
            true => n * self.uniform_tail() == tails,
            false => {
                let shorts = self.part(s.shorts_at as usize, s.tail_ends_at as usize);
                let spans = || (0..n).map(|i| self.ends(s.tail_ends_at, i));
                spans().all(|span| span.start <= span.end)
                    && spans().next_back().is_some_and(|span| span.end == tails)
                    && shorts
                        .iter()
                        .zip(spans())
                        .all(|(&short, span)| short == 8 || (short < 8 && span.is_empty()))
            }
        };
        if good { Ok(()) } else { Err("invalid lengths of keys") }
    }

    /// Returns whether keys ascend, versions of a key descend, and heads are padded with zeros.
    pub(in crate::sst) fn is_sorted(&self, order: &Comparator) -> bool {
        let (heads, has_heads) = (self.heads(), self.shape.has(HEADS));
        let is_padded = |i: usize| self.head(i).checked_shl(8 * self.head_len(i) as u32).unwrap_or(0) == 0;
        let has_full_heads = self.shape.has(SUFFIX_UNIFORM) && self.shape.header.suffix >= 8;
        if has_heads && !has_full_heads && !(0..self.len()).all(is_padded) {
            return false;
        }
        let ascends = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) < u64::from_le_bytes(*b);
        let pairs = heads.iter().zip(heads.get(1..).unwrap_or_default());
        if heads.len() == self.len() && pairs.fold(true, |all, pair| all & ascends(pair)) {
            return true; // most blocks
        }
        (1..self.len()).all(|i| {
            let keys = if has_heads {
                let lengths = || self.head_len(i - 1).cmp(&self.head_len(i));
                self.head(i - 1)
                    .cmp(&self.head(i))
                    .then_with(lengths)
                    .then_with(|| self.tail(i - 1).cmp(self.tail(i)))
            } else {
                order.compare(self.tail(i - 1), self.tail(i))
            };
            keys.is_lt() || (keys.is_eq() && self.seq(i) < self.seq(i - 1))
        })
    }

    fn validate_frames(&self, values_disk: u64, compression: Compression) -> Result<(), &'static str> {
        let n = self.len();
        let total = self.values_len();
        let mut seen = (0, 0);
        for f in self.frames() {
            if f.end <= f.first
                || f.end > n
                || f.raw == 0
                || f.disk > f.raw
                || f.raw > longest_raw(compression, f.disk)
            {
                return Err("invalid frame table");
            }
            seen = (f.end, f.at + f.disk as u64);
        }
        let covered = if total == 0 { seen == (0, 0) } else { seen.0 == n };
        let padded = values_disk.checked_sub(seen.1).is_some_and(|padding| padding <= PADDING_MAX);
        if n <= ENTRIES_MAX && covered && padded { Ok(()) } else { Err("frames do not cover the values") }
    }

    /// Returns the span of item `i` of a column of ends.
    #[inline]
    fn ends(&self, column: u32, i: usize) -> Range<usize> {
        let end = |i: usize| usize::from(u16::from_le_bytes(self.array(column as usize + 2 * i)));
        (if i == 0 { 0 } else { end(i - 1) })..end(i)
    }

    #[inline]
    fn part(&self, start: usize, end: usize) -> &'a [u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    #[inline]
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes.get(at..).and_then(|b| b.first_chunk::<N>()).map_or([0; N], |b| *b)
    }
}
