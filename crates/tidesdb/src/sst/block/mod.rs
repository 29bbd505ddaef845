//! Data blocks: up to 256 entries, stored as columns. The header and the key section contain everything but the values.
//! The values follow in separate frames, which are decoded only when needed.
//!
//! ```text
//! header | frame table | key section (raw, or compressed) | frame 0 | frame 1 | ...
//! key section: prefix | heads | lengths of heads | tail ends | value ends | kinds | seqs | expiries | tails
//! ```
//!
//! In byte order, a key is split into three parts: the prefix that all keys of the block share, the head (the next
//! eight bytes as one number) and the tail. In other orders keys are stored whole, as tails.

mod attempts;
mod builder;
mod estimate;
mod packing;
mod reader;
mod search;

use crate::codec::{Compression, decompress};
use crate::types::{KEY_BYTES_MAX, Kind, SeqNo};
use crate::{Error, Result};

use packing::{PackedParts, unpack};

#[cfg(test)]
pub(super) use packing::SYMBOLS_MAX;

pub(super) use builder::{BlockBuilder, BuiltBlock, common_prefix};
pub(super) use reader::{Block, Frame};
pub(super) use search::{Find, partition};

/// A copy of a key, in place unless it is long.
pub(super) type ShortKey = smallvec::SmallVec<[u8; 64]>;

/// Length of a block header in bytes.
pub(super) const HEADER_BYTES: usize = 44;
/// Length of a frame table entry in bytes.
pub(super) const FRAME_BYTES: usize = 10;
/// Maximum number of entries of a block.
pub(super) const ENTRIES_MAX: usize = 256;
/// Maximum length of a raw key section in bytes: the longest key next to a full block of long keys, and the columns.
pub(super) const KEY_SECTION_MAX: usize = 256 << 10;
/// Limits of a block: it is closed before the entry that would exceed one of them. A single longer entry gets a block
/// of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Length on disk: header, frame table, key section and frames.
    pub(super) disk: usize,
    /// Bytes of keys. Like the limit for values it is below 64 KiB, because the ends of tails and of values are u16
    /// columns. A block with a single entry has no such columns.
    pub(super) keys: usize,
    /// Bytes of values in a block.
    pub(super) values: usize,
    /// Bytes of values in a frame.
    pub(super) frame: usize,
}

/// The limits of blocks written today. A lookup reads a whole block, and a block of one page touches at most two pages
/// of the device. The other limits bound the memory that a block of very compressible entries takes.
pub(super) const LIMITS: Limits = Limits { disk: 4 << 10, keys: 32 << 10, values: 16 << 10, frame: 16 << 10 };

/// Device page. A block that begins and ends at a page boundary costs one page of the device and of the page cache.
pub(super) const PAGE_BYTES: u64 = 4 << 10;
/// Longest padding behind a block, in bytes: an eighth of a page.
pub(super) const PADDING_MAX: u64 = PAGE_BYTES / 8;

/// Returns how many zeros follow a block that ends at offset `end`, so that the next one begins at a page boundary. Returns 0 if that
/// would take more than [`PADDING_MAX`].
pub(super) fn padding(end: u64) -> u64 {
    let gap = end.wrapping_neg() % PAGE_BYTES;
    if gap <= PADDING_MAX { gap } else { 0 }
}

/// All suffixes (keys without the prefix) have the length stored in the header; otherwise there are length columns.
pub(super) const SUFFIX_UNIFORM: u8 = 1;
/// All values have the same length.
pub(super) const VALUE_UNIFORM: u8 = 2;
/// All entries have the same kind.
pub(super) const KIND_UNIFORM: u8 = 4;
/// All entries have the same expiry, or none has one.
pub(super) const EXPIRY_UNIFORM: u8 = 8;
/// Keys are split into prefix, head and tail: the order is byte order.
pub(super) const HEADS: u8 = 16;
/// Heads and tails are packed on disk.
pub(super) const PACKED: u8 = 32;
/// An entry expires: there is a base of expiries, and codes relative to it unless all entries have the same expiry.
pub(super) const EXPIRES: u8 = 64;
const FLAGS: u8 = 127;

/// Length of the base of expiries in bytes.
pub(super) const EXPIRY_BASE_BYTES: usize = 8;

/// A checked block header, and the locations of the columns. Offsets count from the start of the block, with its key
/// section decompressed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    pub(super) header: Header,
    pub(super) prefix_at: u32,
    pub(super) heads_at: u32,
    pub(super) shorts_at: u32,
    pub(super) tail_ends_at: u32,
    pub(super) value_ends_at: u32,
    pub(super) kinds_at: u32,
    pub(super) seqs_at: u32,
    pub(super) expiries_at: u32,
    pub(super) tails_at: u32,
    pub(super) end: u32,
}

/// The header fields as stored on disk, without the checksum that precedes them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub(super) key_raw: u32,
    pub(super) key_disk: u32,
    pub(super) base_seq: u64,
    pub(super) prefix: u32,
    pub(super) suffix: u32,
    pub(super) value: u32,
    pub(super) entries: u32,
    pub(super) frames: u32,
    pub(super) flags: u8,
    pub(super) kind: u8,
    pub(super) seq_width: u8,
    pub(super) expiry_width: u8,
}

impl Header {
    /// Appends the encoded fields, which follow the checksum.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key_raw.to_le_bytes());
        out.extend_from_slice(&self.key_disk.to_le_bytes());
        out.extend_from_slice(&self.base_seq.to_le_bytes());
        for n in [self.prefix, self.suffix, self.value, 0] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&(self.entries as u16).to_le_bytes());
        out.extend_from_slice(&(self.frames as u16).to_le_bytes());
        out.extend_from_slice(&[self.flags, self.kind, self.seq_width, self.expiry_width]);
    }

    /// Decodes the fields without checking them.
    #[inline]
    fn decode(b: &[u8; HEADER_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Self {
            key_raw: u32_at(4),
            key_disk: u32_at(8),
            base_seq: u64::from(u32_at(12)) | u64::from(u32_at(16)) << 32,
            prefix: u32_at(20),
            suffix: u32_at(24),
            value: u32_at(28),
            entries: u32::from(u16::from_le_bytes([b[36], b[37]])),
            frames: u32::from(u16::from_le_bytes([b[38], b[39]])),
            flags: b[40],
            kind: b[41],
            seq_width: b[42],
            expiry_width: b[43],
        }
    }
}

impl Shape {
    /// Parses the header of `block`. Checks only the header and the total length of the columns.
    #[inline]
    pub(super) fn parse(block: &[u8]) -> std::result::Result<Self, &'static str> {
        let bytes = block.first_chunk::<HEADER_BYTES>().ok_or("block shorter than its header")?;
        if bytes[32..36] != [0; 4] {
            return Err("invalid header of a block");
        }
        Self::new(&Header::decode(bytes))
    }

    /// Computes the locations of the columns of a block with this header.
    #[inline]
    pub(super) fn new(h: &Header) -> std::result::Result<Self, &'static str> {
        let bad_kind =
            if h.flags & KIND_UNIFORM != 0 { Kind::of_version(h.kind).is_none() } else { h.kind != 0 };
        if h.entries == 0
            || h.entries > ENTRIES_MAX as u32
            || h.frames > h.entries
            || h.flags & !FLAGS != 0
            || bad_kind
        {
            return Err("invalid header of a block");
        }
        let prefix_limit = if h.flags & HEADS != 0 { KEY_BYTES_MAX as u32 } else { 0 };
        if h.key_raw > KEY_SECTION_MAX as u32
            || h.key_disk > h.key_raw
            || (h.flags & PACKED != 0 && h.key_disk == h.key_raw)
            || h.prefix > prefix_limit
            || h.suffix > KEY_BYTES_MAX as u32
            || !matches!(h.seq_width, 0 | 1 | 2 | 4 | 8)
            || h.expiry_width > 8
        {
            return Err("invalid lengths in the header of a block");
        }
        let shape = Self::place(h);
        if shape.tails_at > shape.end { Err("columns longer than the key section") } else { Ok(shape) }
    }

    #[inline]
    fn place(h: &Header) -> Self {
        let (entries, frames) = (h.entries, h.frames);
        let has = |flag: u8| u32::from(h.flags & flag != 0);
        let varying = |flag: u8| entries * (1 - has(flag));
        let prefix_at = (HEADER_BYTES + FRAME_BYTES * frames as usize) as u32;
        let heads_at = prefix_at + h.prefix;
        let shorts_at = heads_at + 8 * entries * has(HEADS);
        let tail_ends_at = shorts_at + varying(SUFFIX_UNIFORM) * has(HEADS);
        let value_ends_at = tail_ends_at + 2 * varying(SUFFIX_UNIFORM);
        let kinds_at = value_ends_at + 2 * varying(VALUE_UNIFORM);
        let seqs_at = kinds_at + varying(KIND_UNIFORM);
        let expiries_at = seqs_at + entries * u32::from(h.seq_width);
        let expiry_bytes = EXPIRY_BASE_BYTES as u32 + entries * u32::from(h.expiry_width);
        let tails_at = expiries_at + expiry_bytes * has(EXPIRES);
        Self {
            header: *h,
            prefix_at,
            heads_at,
            shorts_at,
            tail_ends_at,
            value_ends_at,
            kinds_at,
            seqs_at,
            expiries_at,
            tails_at,
            end: prefix_at + h.key_raw,
        }
    }

    /// Gives all entries, which have no sequence number of their own, the number `seq`; `None` if one has.
    pub(super) fn number_all(mut self, seq: SeqNo) -> Option<Self> {
        if self.header.base_seq != 0 || self.header.seq_width != 0 {
            return None;
        }
        self.header.base_seq = seq;
        Some(self)
    }

    /// Returns whether a flag is set.
    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.header.flags & flag != 0
    }

    /// Returns whether keys are split into prefix, head and tail.
    pub(super) fn has_heads(&self) -> bool {
        self.has(HEADS)
    }

    /// Returns whether the key section is packed or compressed on disk.
    #[inline]
    pub(super) fn is_compressed(&self) -> bool {
        self.header.key_disk != self.header.key_raw
    }

    /// Returns the parts of the raw key section that are packed.
    fn packed_parts(&self) -> PackedParts {
        let part = |start: u32, end: u32| (start - self.prefix_at) as usize..(end - self.prefix_at) as usize;
        PackedParts { heads: part(self.heads_at, self.shorts_at), tails: part(self.tails_at, self.end) }
    }

    /// Decodes the stored key section `disk`, which is packed or compressed, into `raw`, which has its raw length.
    ///
    /// # Errors
    /// The error made by `corrupt` from a description of what no writer produces.
    pub(super) fn decode_keys(
        &self,
        compression: Compression,
        disk: &[u8],
        raw: &mut [u8],
        corrupt: impl Fn(&str) -> Error,
    ) -> Result<()> {
        if self.has(PACKED) {
            unpack(disk, &self.packed_parts(), raw).map_err(corrupt)
        } else {
            decompress(compression, disk, raw, corrupt)
        }
    }

    /// Returns the length on disk of header, frame table and key section.
    #[inline]
    pub(super) fn disk_bytes(&self) -> usize {
        self.prefix_at as usize + self.header.key_disk as usize
    }
}

/// A block in the cache: header, frame table and raw key section, then all values, raw. The values are omitted if they
/// are long.
#[derive(Debug)]
pub struct CachedBlock {
    shape: Shape,
    bytes: Box<[u8]>,
}

impl CachedBlock {
    /// Creates a cached block; `parts` one after another are the header, frame table and raw key section, and then the values.
    pub(super) fn new<const N: usize>(shape: Shape, parts: [&[u8]; N]) -> Self {
        Self { shape, bytes: parts.concat().into() }
    }

    /// Returns the bytes that it takes on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn block(&self) -> Block<'_> {
        Block { shape: &self.shape, bytes: &self.bytes }
    }

    /// Returns all values of the block, concatenated; empty if they are read separately.
    #[inline]
    pub(super) fn values(&self) -> &[u8] {
        self.bytes.get(self.shape.end as usize..).unwrap_or_default()
    }
}
