//! [`Rows`]: a few rows copied from their sources, to be returned one by one.

use super::{EntryMeta, Kind, SeqNo};

/// Keys and values longer than this together are not copied: returning them in place costs less.
const ROW_BYTES_MAX: usize = 512;

/// Where a row lies in the bytes of [buffered rows](crate::Cursor::buffered): its key, followed by its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSpan(u64);

impl RowSpan {
    #[doc(hidden)]
    /// The span of a key of `key` bytes at `start` and a value of `value` bytes after it; `None` if a length does not
    /// fit.
    #[inline]
    pub fn new(start: usize, key: usize, value: usize) -> Option<Self> {
        let fits = start <= u32::MAX as usize && key <= u16::MAX as usize && value <= u16::MAX as usize;
        fits.then_some(Self((start as u64) << 32 | (key as u64) << 16 | value as u64))
    }

    #[doc(hidden)]
    /// Inverse of [`RowSpan::to_bits`].
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[doc(hidden)]
    /// The span as a number.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Offset of the key.
    #[inline]
    pub fn start(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Bytes of its key.
    #[inline]
    pub fn key_len(self) -> usize {
        (self.0 >> 16) as u16 as usize
    }

    /// Bytes of its value.
    #[inline]
    pub fn value_len(self) -> usize {
        self.0 as u16 as usize
    }
}

/// Rows in key order, up to a limit: puts that hold their value. The memory is reused.
#[derive(Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    spans: Vec<RowSpan>,
    /// Sequence number and expiry of each row.
    stamps: Vec<(SeqNo, u64)>,
    room: usize,
}

impl Rows {
    /// Memory of the rows that a cursor copies in advance.
    pub const BYTES_MAX: usize = 16 * (ROW_BYTES_MAX + 32);

    /// Removes all rows and sets the limit to `room` rows.
    #[inline]
    pub fn clear(&mut self, room: usize) {
        self.bytes.clear();
        self.spans.clear();
        self.stamps.clear();
        self.room = room;
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there are no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns true if no more rows fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.spans.len() >= self.room
    }

    /// Copies a row; returns `false` if it is too long or no more rows fit.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8], entry_meta: EntryMeta) -> bool {
        self.push_built(|bytes| bytes.extend_from_slice(key), value, entry_meta, None)
    }

    /// Like [`Rows::push`], for a key that `build` appends to the buffer. Also returns `false` if the key is not less
    /// than `until` (bytewise).
    #[inline(always)]
    pub fn push_built(
        &mut self,
        build: impl FnOnce(&mut Vec<u8>),
        value: &[u8],
        entry_meta: EntryMeta,
        until: Option<&[u8]>,
    ) -> bool {
        if self.is_full() || value.len() > ROW_BYTES_MAX {
            return false;
        }
        let start = self.bytes.len();
        build(&mut self.bytes);
        let key = self.bytes.get(start..).unwrap_or_default();
        let short = key.len() + value.len() <= ROW_BYTES_MAX && until.is_none_or(|until| key < until);
        let Some(span) = RowSpan::new(start, key.len(), value.len()).filter(|_| short) else {
            self.bytes.truncate(start);
            return false;
        };
        self.spans.push(span);
        self.stamps.push((entry_meta.seq, entry_meta.expiry()));
        self.bytes.extend_from_slice(value);
        true
    }

    /// Forgets the first row whose key is not kept and all after it. Returns true if there is one.
    pub fn truncate(&mut self, keeps: impl Fn(&[u8]) -> bool) -> bool {
        let Some(end) = (0..self.len()).find(|&i| !keeps(self.get(i).0)) else { return false };
        self.spans.truncate(end);
        self.stamps.truncate(end);
        true
    }

    /// The bytes of all rows, and the span of each.
    #[inline]
    pub fn parts(&self) -> (&[u8], &[RowSpan]) {
        (&self.bytes, &self.spans)
    }

    /// Key and value of row `i`; empty if there is no such row.
    #[inline]
    pub fn get(&self, i: usize) -> (&[u8], &[u8]) {
        let Some(&span) = self.spans.get(i) else { return Default::default() };
        let row = self.bytes.get(span.start()..).unwrap_or_default();
        let Some((key, rest)) = row.split_at_checked(span.key_len()) else { return Default::default() };
        (key, rest.get(..span.value_len()).unwrap_or_default())
    }

    /// Metadata of row `i`; the default (sequence number 0, put, no expiry) if there is no such row.
    pub fn entry_meta(&self, i: usize) -> EntryMeta {
        let stamp = self.stamps.get(i);
        stamp.map_or_else(EntryMeta::default, |&(seq, expiry)| EntryMeta::new(seq, Kind::Put, expiry))
    }
}
