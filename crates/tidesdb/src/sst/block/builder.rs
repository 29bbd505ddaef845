//! Gathers entries and lays them out as a block. Buffers are kept from block to block.

use super::search::head_of;
use super::{
    ENTRIES_MAX, EXPIRY_UNIFORM, FRAME_BYTES, FRAME_BYTES_TARGET, HEADER_BYTES, HEADS, Header,
    KEY_BYTES_TARGET, KIND_UNIFORM, SUFFIX_UNIFORM, VALUE_BYTES_TARGET, VALUE_UNIFORM,
};
use crate::codec::{Compression, Salt, bound_crc, compress};
use crate::types::{EntryRef, SeqNo};

/// Lengths of a finished block.
#[derive(Clone, Copy, Debug)]
pub(in crate::sst) struct BuiltBlock {
    /// The whole block.
    pub(in crate::sst) disk: usize,
    /// Header, frame table and key section.
    pub(in crate::sst) key_part: usize,
}

/// Entries of the block under construction.
pub(in crate::sst) struct BlockBuilder {
    heads: bool,
    compression: Compression,
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    values: Vec<u8>,
    value_ends: Vec<u32>,
    kinds: Vec<u8>,
    seqs: Vec<SeqNo>,
    expiries: Vec<u32>,
    section: Vec<u8>,
    frames: Vec<u8>,
    frame_table: Vec<FrameEnd>,
}

/// A frame that was compressed: its end among the entries and in the frame bytes.
struct FrameEnd {
    entries: usize,
    end: usize,
}

impl BlockBuilder {
    /// An empty block; `heads` when the order is byte order.
    pub(in crate::sst) fn new(heads: bool, compression: Compression) -> Self {
        Self {
            heads,
            compression,
            keys: Vec::new(),
            key_ends: Vec::with_capacity(ENTRIES_MAX),
            values: Vec::new(),
            value_ends: Vec::with_capacity(ENTRIES_MAX),
            kinds: Vec::with_capacity(ENTRIES_MAX),
            seqs: Vec::with_capacity(ENTRIES_MAX),
            expiries: Vec::with_capacity(ENTRIES_MAX),
            section: Vec::new(),
            frames: Vec::new(),
            frame_table: Vec::new(),
        }
    }

    /// Whether the entry still belongs into this block. An empty block takes anything.
    #[inline]
    pub(in crate::sst) fn has_room(&self, key: usize, value: usize) -> bool {
        self.kinds.is_empty()
            || (self.kinds.len() < ENTRIES_MAX
                && self.keys.len() + key <= KEY_BYTES_TARGET
                && self.values.len() + value <= VALUE_BYTES_TARGET)
    }

    /// Adds an entry; the caller checked the order and the room.
    #[inline]
    pub(in crate::sst) fn add(&mut self, e: &EntryRef<'_>) {
        self.keys.extend_from_slice(e.key);
        self.key_ends.push(self.keys.len() as u32);
        self.values.extend_from_slice(e.value);
        self.value_ends.push(self.values.len() as u32);
        self.kinds.push(e.kind as u8);
        self.seqs.push(e.seq);
        self.expiries.push(e.expiry);
    }

    /// Number of entries.
    pub(in crate::sst) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Bytes of keys and values so far.
    pub(in crate::sst) fn raw_bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    /// The first key; empty for an empty block.
    pub(in crate::sst) fn first_key(&self) -> &[u8] {
        self.key(0)
    }

    /// The last key; empty for an empty block.
    #[inline]
    pub(in crate::sst) fn last_key(&self) -> &[u8] {
        self.key(self.key_ends.len().saturating_sub(1))
    }

    /// The first sequence number.
    pub(in crate::sst) fn first_seq(&self) -> SeqNo {
        self.seqs.first().map_or(0, |s| *s)
    }

    /// The last sequence number.
    #[inline]
    pub(in crate::sst) fn last_seq(&self) -> SeqNo {
        self.seqs.last().map_or(0, |s| *s)
    }

    fn key(&self, i: usize) -> &[u8] {
        let end = self.key_ends.get(i).map_or(0, |e| *e as usize);
        let start = if i == 0 { 0 } else { self.key_ends.get(i - 1).map_or(0, |e| *e as usize) };
        self.keys.get(start..end).unwrap_or_default()
    }

    /// Appends the block, which will lie at `at` in its file, to `out` and begins the next. There must be an entry.
    pub(in crate::sst) fn finish(&mut self, salt: &Salt, at: u64, out: &mut Vec<u8>) -> BuiltBlock {
        let start = out.len();
        self.compress_frames();
        let mut header = self.lay_out_keys();
        header.frames = self.frame_table.len() as u16;
        let compressed = self.compress_keys(out, start);
        header.key_raw = self.section.len() as u32;
        header.key_disk = compressed.unwrap_or(self.section.len()) as u32;
        let key_part = HEADER_BYTES + FRAME_BYTES * self.frame_table.len() + header.key_disk as usize;
        self.fill_front(&header, salt, at, &mut out[start..]);
        out.extend_from_slice(&self.frames);
        self.clear();
        BuiltBlock { disk: out.len() - start, key_part }
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.value_ends.clear();
        self.kinds.clear();
        self.seqs.clear();
        self.expiries.clear();
    }

    /// Cuts the values into frames and compresses each.
    fn compress_frames(&mut self) {
        self.frames.clear();
        self.frame_table.clear();
        let mut start = 0;
        for (i, &end) in self.value_ends.iter().enumerate() {
            let end = end as usize;
            // A frame closes before the value that would make it too long, and takes the empty values behind it.
            let next = self.value_ends.get(i + 1).map(|e| *e as usize);
            if end == start || next.is_some_and(|next| next - start <= FRAME_BYTES_TARGET || next == end) {
                continue;
            }
            push_frame(&mut self.frames, self.compression, &self.values[start..end]);
            self.frame_table.push(FrameEnd { entries: i + 1, end: self.frames.len() });
            start = end;
        }
    }

    /// Writes the key section into `self.section`; the header lacks lengths and number of frames.
    fn lay_out_keys(&mut self) -> Header {
        let n = self.key_ends.len();
        let mut section = std::mem::take(&mut self.section);
        section.clear();
        let prefix = if self.heads { common_prefix(self.first_key(), self.last_key()) } else { 0 };
        let mut header = Header { entries: n as u16, prefix: prefix as u32, ..Header::default() };
        section.extend_from_slice(&self.first_key()[..prefix]);
        if self.heads {
            header.flags |= HEADS;
            for i in 0..n {
                section.extend_from_slice(&head_of(&self.key(i)[prefix..]).to_le_bytes());
            }
        }
        self.lay_out_lengths(&mut header, &mut section);
        self.lay_out_rest(&mut header, &mut section);
        let cut = prefix + if self.heads { 8 } else { 0 };
        for i in 0..n {
            section.extend_from_slice(self.key(i).get(cut..).unwrap_or_default());
        }
        self.section = section;
        header
    }

    /// Short lengths, tail ends and value ends.
    fn lay_out_lengths(&self, header: &mut Header, section: &mut Vec<u8>) {
        let n = self.key_ends.len();
        let suffix = |i: usize| self.key(i).len() - header.prefix as usize;
        let head = if self.heads { 8 } else { 0 };
        if (1..n).all(|i| suffix(i) == suffix(0)) {
            header.flags |= SUFFIX_UNIFORM;
            header.suffix = suffix(0) as u32;
        } else {
            if self.heads {
                section.extend((0..n).map(|i| suffix(i).min(8) as u8));
            }
            let ends = (0..n).scan(0, |sum, i| {
                *sum += suffix(i).saturating_sub(head);
                Some(*sum as u32)
            });
            put_ends(ends, section);
        }
        let ends = &self.value_ends;
        let value = ends.first().map_or(0, |e| *e);
        if ends.windows(2).all(|w| w[1] - w[0] == value) {
            header.flags |= VALUE_UNIFORM;
            header.value = value;
        } else {
            put_ends(ends.iter().copied(), section);
        }
    }

    /// Kinds, sequence numbers and expiries.
    fn lay_out_rest(&self, header: &mut Header, section: &mut Vec<u8>) {
        let kind = self.kinds.first().map_or(0, |k| *k);
        if self.kinds.iter().all(|&k| k == kind) {
            header.flags |= KIND_UNIFORM;
            header.kind = kind;
        } else {
            section.extend_from_slice(&self.kinds);
        }
        let (low, high) = self.seqs.iter().fold((SeqNo::MAX, 0), |(l, h), &s| (l.min(s), h.max(s)));
        header.base_seq = low;
        header.seq_width = match high - low {
            0 => 0,
            1..=0xFF => 1,
            0x100..=0xFFFF => 2,
            0x1_0000..=0xFFFF_FFFF => 4,
            _ => 8,
        };
        for seq in &self.seqs {
            section.extend_from_slice(&(seq - low).to_le_bytes()[..usize::from(header.seq_width)]);
        }
        let expiry = self.expiries.first().map_or(0, |e| *e);
        if self.expiries.iter().all(|&e| e == expiry) {
            header.flags |= EXPIRY_UNIFORM;
            header.expiry = expiry;
        } else {
            section.extend(self.expiries.iter().flat_map(|e| e.to_le_bytes()));
        }
    }

    /// Appends room for header and frame table, and the key section as it will lie on disk. Returns its length if it
    /// was compressed: that costs every reader time, so it must pay for the block as a whole.
    fn compress_keys(&self, out: &mut Vec<u8>, start: usize) -> Option<usize> {
        out.resize(start + HEADER_BYTES + FRAME_BYTES * self.frame_table.len(), 0);
        let (raw, block) = (self.section.len(), self.section.len() + self.frames.len());
        let worth = |saved: usize| saved >= block / 8;
        // Keys rarely shrink to less than a quarter: do not even try where that would not be enough.
        if worth(raw - raw / 4) {
            let at = out.len();
            match compress(self.compression, &self.section, out) {
                Some(n) if worth(raw - n) => return Some(n),
                _ => out.truncate(at),
            }
        }
        out.extend_from_slice(&self.section);
        None
    }

    /// Fills header and frame table of `block`, whose key section is in place.
    fn fill_front(&self, header: &Header, salt: &Salt, at: u64, block: &mut [u8]) {
        let mut front = Vec::with_capacity(HEADER_BYTES + FRAME_BYTES * self.frame_table.len());
        front.extend_from_slice(&[0; 4]);
        header.encode(&mut front);
        let frames_at = at + block.len() as u64;
        let mut begin = 0;
        for frame in &self.frame_table {
            let bytes = &self.frames[begin..frame.end];
            front.extend_from_slice(&(frame.entries as u16).to_le_bytes());
            front.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            front.extend_from_slice(&bound_crc(salt, frames_at + begin as u64, &[bytes]).to_le_bytes());
            begin = frame.end;
        }
        block[..front.len()].copy_from_slice(&front);
        let crc = bound_crc(salt, at, &[&block[4..]]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Appends a column of ends. A block of more than one entry has so few bytes that two suffice for each.
fn put_ends(ends: impl Iterator<Item = u32>, section: &mut Vec<u8>) {
    for end in ends {
        debug_assert!(end <= u32::from(u16::MAX));
        section.extend_from_slice(&(end as u16).to_le_bytes());
    }
}

fn push_frame(frames: &mut Vec<u8>, compression: Compression, raw: &[u8]) {
    if compress(compression, raw, frames).is_none() {
        frames.extend_from_slice(raw);
    }
}

/// How many bytes two keys have in common at their front.
pub(in crate::sst) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
