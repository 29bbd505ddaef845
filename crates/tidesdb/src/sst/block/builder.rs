//! Collects entries and encodes them as a block. The buffers are reused from block to block.

use std::ops::Range;

use tidesdb_io::Buffer;

use super::attempts::Attempts;
use super::estimate::{Estimate, RawSizes};
use super::packing::pack;
use super::{
    CachedBlock, ENTRIES_MAX, EXPIRES, EXPIRY_UNIFORM, FRAME_BYTES, HEADER_BYTES, HEADS, Header,
    KIND_UNIFORM, Limits, PACKED, SUFFIX_UNIFORM, Shape, VALUE_UNIFORM,
};

/// Keys are packed if that saves at least the block divided by this.
const PACKING_WORTH: usize = 32;
use crate::codec::{Compression, Salt, bound_crc, compress, compress_bound, compress_to};
use crate::types::{EntryRef, SeqNo, append_short, head_of};

/// Sizes of a finished block.
#[derive(Clone, Copy, Debug)]
pub(in crate::sst) struct BuiltBlock {
    /// Number of entries in the block: the first ones of the builder.
    pub(in crate::sst) entries: usize,
    /// Length of the whole block.
    pub(in crate::sst) disk: usize,
    /// Length of header, frame table and key section.
    pub(in crate::sst) key_part: usize,
}

/// Entries of the block under construction.
pub(in crate::sst) struct BlockBuilder {
    heads: bool,
    compression: Compression,
    limits: Limits,
    estimate: Estimate,
    /// Attempts to compress key sections, and frames.
    key_attempts: Attempts,
    frame_attempts: Attempts,
    keys: Vec<u8>,
    values: Vec<u8>,
    rows: Vec<Row>,
    section: Vec<u8>,
    /// The frames that were compressed.
    compressed: Vec<u8>,
    frame_table: Vec<BuiltFrame>,
    /// Header and frame table.
    front: Vec<u8>,
}

/// The fields of an entry besides the bytes of its key and value: where these bytes end among those of all entries, and
/// the rest.
#[derive(Clone, Copy)]
struct Row {
    key_end: u32,
    value_end: u32,
    seq: SeqNo,
    expiry: u64,
    kind: u8,
}

/// A frame: its end among the entries, and where its bytes are.
struct BuiltFrame {
    entries: usize,
    bytes: Range<usize>,
    /// Whether these are bytes of `compressed`, not of `values`.
    shrank: bool,
}

impl BlockBuilder {
    /// Creates an empty block; `heads` is set if the order is byte order.
    pub(in crate::sst) fn new(heads: bool, compression: Compression, limits: Limits) -> Self {
        Self {
            heads,
            compression,
            limits,
            estimate: Estimate::new(limits.disk),
            key_attempts: Attempts::default(),
            frame_attempts: Attempts::default(),
            keys: Vec::new(),
            values: Vec::new(),
            rows: Vec::with_capacity(ENTRIES_MAX),
            section: Vec::new(),
            compressed: Vec::new(),
            frame_table: Vec::new(),
            front: Vec::new(),
        }
    }

    /// Returns whether an entry with this key and a value of `value` bytes is expected to fit this block. The estimate
    /// is made before compression. An empty block accepts any entry.
    #[inline]
    pub(in crate::sst) fn has_room(&self, key: &[u8], value: usize) -> bool {
        let (entries, keys, values) =
            (self.rows.len(), self.keys.len() + key.len(), self.values.len() + value);
        let fits = |prefix| self.estimate.fits(RawSizes::of(entries + 1, keys, prefix, values));
        entries == 0
            || (entries < ENTRIES_MAX
                && keys <= self.limits.keys
                && values <= self.limits.values
                // A common prefix only makes the block shorter.
                && (fits(0) || fits(self.prefix_with(key))))
    }

    /// Measures how well the entries compress if no block was measured yet, and returns whether it did. The first block
    /// of a table then also fills its page.
    pub(in crate::sst) fn measure_first(&mut self) -> bool {
        let first = !self.estimate.is_learned();
        if first {
            self.build(self.len(), &Salt::default(), 0, &mut Vec::new());
        }
        first
    }

    /// Returns the length of the prefix that the keys would share if `key` were the last one.
    #[inline]
    fn prefix_with(&self, key: &[u8]) -> usize {
        if self.heads { common_prefix(self.key(0), key) } else { 0 }
    }

    /// Adds an entry. The caller has checked the order and the space.
    #[inline]
    pub(in crate::sst) fn add(&mut self, e: &EntryRef<'_>) {
        append_short(&mut self.keys, e.key);
        self.values.extend_from_slice(e.value);
        let (key_end, value_end) = (self.keys.len() as u32, self.values.len() as u32);
        self.rows.push(Row { key_end, value_end, seq: e.seq, expiry: e.expiry, kind: e.kind as u8 });
    }

    /// Returns the number of entries.
    pub(in crate::sst) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the bytes of keys and values so far.
    pub(in crate::sst) fn raw_bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    /// Returns the last key; empty for an empty block.
    #[inline]
    pub(in crate::sst) fn last_key(&self) -> &[u8] {
        self.key(self.rows.len().saturating_sub(1))
    }

    /// Returns the first sequence number.
    pub(in crate::sst) fn first_seq(&self) -> SeqNo {
        self.rows.first().map_or(0, |row| row.seq)
    }

    /// Returns key `i`; empty if there is no such key.
    pub(in crate::sst) fn key(&self, i: usize) -> &[u8] {
        self.keys.get(self.key_end(i)..self.key_end(i + 1)).unwrap_or_default()
    }

    /// Returns the first `n` keys.
    fn first_keys(&self, n: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.rows[..n].iter().map(move |row| {
            let end = row.key_end as usize;
            &self.keys[std::mem::replace(&mut start, end)..end]
        })
    }

    /// Appends a block for offset `at` to `out`. The block contains all entries, or only the first ones if all together
    /// are too long. There must be at least one entry. The caller then removes the written entries with
    /// [`Self::remove_first`].
    pub(in crate::sst) fn finish(&mut self, salt: &Salt, at: u64, out: &mut Vec<u8>) -> BuiltBlock {
        let start = out.len();
        let mut entries = self.len();
        loop {
            let built = self.build(entries, salt, at, out);
            if built.disk <= self.limits.disk || entries == 1 {
                return built;
            }
            out.truncate(start);
            // Reduce in proportion, and a little more, so that the next attempt is unlikely to be too long again.
            let share = entries * self.limits.disk / built.disk;
            entries = (share - share / 32).clamp(1, entries - 1);
        }
    }

    /// Returns the compressed form of a value that gets a block of its own, if that is worth it. Its memory goes back to the system when it
    /// is dropped.
    pub(in crate::sst) fn compress_long(&mut self, value: &[u8]) -> Option<Buffer> {
        let bound = compress_bound(self.compression, value.len());
        let is_tried = bound > 0 && self.frame_attempts.is_due();
        let compressed = is_tried.then(|| Buffer::zeroed(bound)).flatten().and_then(|mut room| {
            let len = compress_to(self.compression, value, &mut room)?;
            room.truncate(len);
            Some(room)
        });
        self.frame_attempts.note(compressed.is_some());
        compressed
    }

    /// Like [`Self::finish`], for a block of only the entry `e`, whose value is `disk` on disk. Appends all of the block but the value, so
    /// that a long value is not copied. There must be no other entry.
    pub(in crate::sst) fn finish_long(
        &mut self,
        e: &EntryRef<'_>,
        disk: &[u8],
        salt: &Salt,
        at: u64,
        out: &mut Vec<u8>,
    ) -> BuiltBlock {
        self.add(&EntryRef { value: &[], ..*e });
        self.rows.iter_mut().for_each(|row| row.value_end = e.value.len() as u32);
        self.frame_table.clear();
        self.frame_table.push(BuiltFrame { entries: 1, bytes: 0..disk.len(), shrank: false });
        let built = self.build_front(1, disk, salt, at, out);
        self.rows.iter_mut().for_each(|row| row.value_end = 0);
        built
    }

    /// Appends a block of the first `n` entries to `out`.
    fn build(&mut self, n: usize, salt: &Salt, at: u64, out: &mut Vec<u8>) -> BuiltBlock {
        self.compress_frames(n);
        let values = std::mem::take(&mut self.values);
        let built = self.build_front(n, &values, salt, at, out);
        self.frame_table.iter().for_each(|frame| out.extend_from_slice(self.frame(frame, &values)));
        self.values = values;
        built
    }

    /// Appends header, frame table and keys of a block of the first `n` entries to `out`. Its frames are made; those that did not shrink are
    /// parts of `values`.
    fn build_front(
        &mut self,
        n: usize,
        values: &[u8],
        salt: &Salt,
        at: u64,
        out: &mut Vec<u8>,
    ) -> BuiltBlock {
        let start = out.len();
        let mut header = self.lay_out_keys(n);
        header.frames = self.frame_table.len() as u32;
        header.key_raw = self.section.len() as u32;
        let compressed = self.compress_keys(&mut header, out, start);
        header.key_disk = compressed.unwrap_or(self.section.len()) as u32;
        let key_part = HEADER_BYTES + FRAME_BYTES * self.frame_table.len() + header.key_disk as usize;
        self.fill_front(&header, values, salt, at, &mut out[start..]);
        let raw = RawSizes::of(n, self.key_end(n), header.prefix as usize, self.value_end(n));
        self.estimate.learn(raw, header.key_disk as usize, self.frame_bytes());
        BuiltBlock { entries: n, disk: key_part + self.frame_bytes(), key_part }
    }

    /// Returns the block of the first `n` entries that was built last, whose bytes on disk are `disk`, as a reader would cache it. `None` if
    /// a reader would not cache its values.
    pub(in crate::sst) fn decoded(&self, n: usize, disk: &[u8]) -> Option<CachedBlock> {
        let values =
            self.values.get(..self.value_end(n)).filter(|values| values.len() <= self.limits.values)?;
        let shape = Shape::parse(disk).ok()?;
        let front = disk.get(..shape.prefix_at as usize)?;
        Some(CachedBlock::new(shape, [front, &self.section, values]))
    }

    /// Removes the first `n` entries; the next block starts with the remaining ones.
    pub(in crate::sst) fn remove_first(&mut self, n: usize) {
        let (key, value) = (self.key_end(n), self.value_end(n));
        self.keys.drain(..key);
        self.values.drain(..value);
        self.rows.drain(..n);
        for row in &mut self.rows {
            row.key_end -= key as u32;
            row.value_end -= value as u32;
        }
    }

    /// Returns the total bytes of the first `n` keys.
    fn key_end(&self, n: usize) -> usize {
        n.checked_sub(1).and_then(|last| self.rows.get(last)).map_or(0, |row| row.key_end as usize)
    }

    /// Returns the total bytes of the first `n` values.
    fn value_end(&self, n: usize) -> usize {
        n.checked_sub(1).and_then(|last| self.rows.get(last)).map_or(0, |row| row.value_end as usize)
    }

    /// Splits the values of the first `n` entries into frames and compresses each.
    fn compress_frames(&mut self, n: usize) {
        self.compressed.clear();
        self.frame_table.clear();
        let mut start = 0;
        let rows = &self.rows[..n];
        for (i, row) in rows.iter().enumerate() {
            let end = row.value_end as usize;
            // A frame ends before the value that would make it too long, and includes the empty values that follow it.
            let next = rows.get(i + 1).map(|next| next.value_end as usize);
            if end == start || next.is_some_and(|next| next - start <= self.limits.frame || next == end) {
                continue;
            }
            let (raw, compressed) = (&self.values[start..end], &mut self.compressed);
            let at = compressed.len();
            let shrank =
                self.frame_attempts.is_due() && compress(self.compression, raw, compressed).is_some();
            self.frame_attempts.note(shrank);
            let bytes = if shrank { at..compressed.len() } else { start..end };
            self.frame_table.push(BuiltFrame { entries: i + 1, bytes, shrank });
            start = end;
        }
    }

    /// Returns the bytes of a frame; if it did not shrink, they are part of `values`.
    fn frame<'a>(&'a self, frame: &BuiltFrame, values: &'a [u8]) -> &'a [u8] {
        let from = if frame.shrank { &self.compressed } else { values };
        &from[frame.bytes.clone()]
    }

    /// Returns the bytes of all frames.
    fn frame_bytes(&self) -> usize {
        self.frame_table.iter().map(|frame| frame.bytes.len()).sum()
    }

    /// Writes the key section of the first `n` entries to `self.section`. The returned header lacks lengths and the
    /// number of frames.
    fn lay_out_keys(&mut self, n: usize) -> Header {
        let mut section = std::mem::take(&mut self.section);
        section.clear();
        let prefix = self.prefix_with(self.key(n - 1));
        let mut header = Header { entries: n as u32, prefix: prefix as u32, ..Header::default() };
        section.extend_from_slice(&self.key(0)[..prefix]);
        if self.heads {
            header.flags |= HEADS;
            let heads = self.first_keys(n).map(|key| head_of(&key[prefix..]).to_le_bytes());
            put_column(heads, &mut section);
        }
        self.lay_out_lengths(n, &mut header, &mut section);
        self.lay_out_rest(n, &mut header, &mut section);
        let cut = prefix + if self.heads { 8 } else { 0 };
        for key in self.first_keys(n) {
            section.extend_from_slice(key.get(cut..).unwrap_or_default());
        }
        self.section = section;
        header
    }

    /// Appends short lengths, tail ends and value ends.
    fn lay_out_lengths(&self, n: usize, header: &mut Header, section: &mut Vec<u8>) {
        let prefix = header.prefix as usize;
        let suffixes = || self.first_keys(n).map(|key| key.len() - prefix);
        let head = if self.heads { 8 } else { 0 };
        let first = self.key(0).len() - prefix;
        if suffixes().all(|suffix| suffix == first) {
            header.flags |= SUFFIX_UNIFORM;
            header.suffix = first as u32;
        } else {
            if self.heads {
                section.extend(suffixes().map(|suffix| suffix.min(8) as u8));
            }
            let mut sum = 0;
            let ends = suffixes().map(|suffix| {
                sum += suffix.saturating_sub(head);
                sum as u32
            });
            put_ends(ends, section);
        }
        let rows = &self.rows[..n];
        let value = self.value_end(1) as u32;
        if rows.windows(2).all(|w| w[1].value_end - w[0].value_end == value) {
            header.flags |= VALUE_UNIFORM;
            header.value = value;
        } else {
            put_ends(rows.iter().map(|row| row.value_end), section);
        }
    }

    /// Appends kinds, sequence numbers and expiries.
    fn lay_out_rest(&self, n: usize, header: &mut Header, section: &mut Vec<u8>) {
        let rows = &self.rows[..n];
        let (kind, expiry) = rows.first().map_or((0, 0), |row| (row.kind, row.expiry));
        if rows.iter().all(|row| row.kind == kind) {
            header.flags |= KIND_UNIFORM;
            header.kind = kind;
        } else {
            section.extend(rows.iter().map(|row| row.kind));
        }
        let (low, high) =
            rows.iter().fold((SeqNo::MAX, 0), |(low, high), row| (low.min(row.seq), high.max(row.seq)));
        header.base_seq = low;
        header.seq_width = width_of(high - low);
        put_numbers(rows.iter().map(|row| row.seq - low), header.seq_width, section);
        let is_uniform = rows.iter().all(|row| row.expiry == expiry);
        header.flags |= if is_uniform { EXPIRY_UNIFORM } else { 0 };
        if !is_uniform || expiry != 0 {
            lay_out_expiries(rows, header, section);
        }
    }

    /// Appends space for header and frame table, and the key section as stored on disk. Returns its length if it was
    /// packed or compressed. Both cost every reader time, so they must make the block as a whole shorter; packed keys
    /// are faster to read.
    fn compress_keys(&mut self, header: &mut Header, out: &mut Vec<u8>, start: usize) -> Option<usize> {
        out.resize(start + HEADER_BYTES + FRAME_BYTES * self.frame_table.len(), 0);
        let (at, raw) = (out.len(), self.section.len());
        let block = raw + self.frame_bytes();
        let worth = |saved: usize| saved >= block / 8;
        // Keys rarely shrink to less than a quarter. Skip the attempt if that would not be enough.
        let may_shrink = worth(raw - raw / 4);
        let compressed = if may_shrink && self.key_attempts.is_due() {
            compress(self.compression, &self.section, out).filter(|&n| worth(raw - n))
        } else {
            None
        };
        let packed_worth = compressed.map_or(block / PACKING_WORTH, |n| raw - n);
        let packed_at = out.len();
        let packed = self.pack_keys(header, packed_worth.max(1), out);
        if may_shrink {
            self.key_attempts.note(compressed.is_some() && packed.is_none());
        }
        if packed.is_some() {
            out.drain(at..packed_at);
            header.flags |= PACKED;
            return packed;
        }
        if compressed.is_none() {
            out.truncate(at);
            out.extend_from_slice(&self.section);
        }
        compressed
    }

    /// Appends the packed key section if that saves at least `worth` bytes, and returns its length.
    fn pack_keys(&self, header: &Header, worth: usize, out: &mut Vec<u8>) -> Option<usize> {
        if self.compression == Compression::None {
            return None;
        }
        let shape = Shape::new(header).ok()?;
        pack(&self.section, &shape.packed_parts(), worth, out)
    }

    /// Fills in header and frame table of `block`, whose key section is already in place.
    fn fill_front(&mut self, header: &Header, values: &[u8], salt: &Salt, at: u64, block: &mut [u8]) {
        let mut front = std::mem::take(&mut self.front);
        front.clear();
        front.extend_from_slice(&[0; 4]);
        header.encode(&mut front);
        let mut frame_at = at + block.len() as u64;
        for frame in &self.frame_table {
            let bytes = self.frame(frame, values);
            front.extend_from_slice(&(frame.entries as u16).to_le_bytes());
            front.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            front.extend_from_slice(&bound_crc(salt, frame_at, &[bytes]).to_le_bytes());
            frame_at += bytes.len() as u64;
        }
        block[..front.len()].copy_from_slice(&front);
        self.front = front;
        let crc = bound_crc(salt, at, &[&block[4..]]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Appends a column of ends. A block of more than one entry is so short that two bytes suffice for each end.
fn put_ends(ends: impl ExactSizeIterator<Item = u32>, section: &mut Vec<u8>) {
    let bytes = |end: u32| {
        debug_assert!(end <= u32::from(u16::MAX));
        (end as u16).to_le_bytes()
    };
    put_column(ends.map(bytes), section);
}

/// Appends a column of fields.
#[inline]
fn put_column<const N: usize>(fields: impl ExactSizeIterator<Item = [u8; N]>, section: &mut Vec<u8>) {
    // Space for all at once is faster than for each.
    let at = section.len();
    section.resize(at + N * fields.len(), 0);
    section[at..].as_chunks_mut().0.iter_mut().zip(fields).for_each(|(to, field)| *to = field);
}

/// Appends the expiries of a block in which an entry expires.
fn lay_out_expiries(rows: &[Row], header: &mut Header, section: &mut Vec<u8>) {
    let expiries = || rows.iter().map(|row| row.expiry);
    let some = || expiries().filter(|&e| e != 0);
    let (base, last) = (some().min().unwrap_or(0), some().max().unwrap_or(0));
    header.flags |= EXPIRES;
    section.extend_from_slice(&base.to_le_bytes());
    if header.flags & EXPIRY_UNIFORM == 0 {
        header.expiry_width = width_of(last - base + 1);
        let codes = expiries().map(|expiry| if expiry == 0 { 0 } else { expiry - base + 1 });
        put_numbers(codes, header.expiry_width, section);
    }
}

/// Appends a column of numbers of `width` bytes, as [`width_of`] returns them.
fn put_numbers(numbers: impl ExactSizeIterator<Item = u64>, width: u8, section: &mut Vec<u8>) {
    fn put<const N: usize>(numbers: impl ExactSizeIterator<Item = u64>, section: &mut Vec<u8>) {
        let bytes = |number: u64| number.to_le_bytes().first_chunk().copied().unwrap_or([0; N]);
        put_column(numbers.map(bytes), section);
    }
    match width {
        0 => {}
        1 => put::<1>(numbers, section),
        2 => put::<2>(numbers, section),
        4 => put::<4>(numbers, section),
        _ => put::<8>(numbers, section),
    }
}

/// Returns the width in bytes of a column whose largest number is `most`; 0 if all are 0.
fn width_of(most: u64) -> u8 {
    match most {
        0 => 0,
        1..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    }
}

/// Returns the length of the common prefix of two keys.
pub(in crate::sst) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let same = words.take_while(|(a, b)| a == b).count() * 8;
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}
