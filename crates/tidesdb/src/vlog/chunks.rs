//! Values that are stored in chunks. `docs/formats/vlog.md` describes the layout.
//!
//! Each chunk is a record of a value log, and so is the chunk index, which lists the chunks. The entry holds the place of
//! the index, the length of the value, and how many bytes the value takes in each file: merges count live bytes without
//! reading the index.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::VlogPointer;
use super::format::RECORD_HEADER_BYTES;
use crate::codec::Decoder;
use crate::types::{FILE_BYTES_MAX, ID_MAX, VlogId};

/// Length of every chunk but the last, before compression. A reader accepts other lengths.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Longest chunk that a reader accepts.
const CHUNK_BYTES_MAX: u32 = 16 << 20;
/// Longest value that can be stored in chunks: 16 TiB.
pub const CHUNKED_BYTES_MAX: u64 = 1 << 44;

/// Bytes of an encoded place before its parts.
const HEAD_BYTES: usize = VlogPointer::BYTES + 8;
const PART_BYTES: usize = 12;
const INDEX_HEAD_BYTES: usize = 16;

/// An encoded place, in place unless the value has parts in many files.
pub type PlaceBytes = SmallVec<[u8; 64]>;

/// Where a value lies: the content of an entry that refers to the value log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// In one record.
    Record(VlogPointer),
    /// In chunks.
    Chunks(ChunkedPlace),
}

impl ValuePlace {
    /// Returns the length of the value.
    pub fn value_bytes(&self) -> u64 {
        match self {
            Self::Record(pointer) => u64::from(pointer.raw_len),
            Self::Chunks(place) => place.len,
        }
    }

    /// Returns the bytes that the value takes in value logs.
    pub fn stored_bytes(&self) -> u64 {
        match self {
            Self::Record(pointer) => pointer.record_bytes(),
            Self::Chunks(place) => place.parts.iter().map(|part| part.bytes).sum(),
        }
    }

    /// Returns the encoded place if all of the value lies in `vlog`.
    pub fn encode_in(self, vlog: VlogId) -> PlaceBytes {
        match self {
            Self::Record(pointer) => PlaceBytes::from_slice(&VlogPointer { vlog, ..pointer }.encode()),
            Self::Chunks(place) => PlaceBytes::from_vec(place.in_file(vlog).encode()),
        }
    }

    /// Returns whether an encoded place may have `len` bytes.
    #[inline]
    pub fn is_length(len: usize) -> bool {
        len == VlogPointer::BYTES || len > HEAD_BYTES && (len - HEAD_BYTES).is_multiple_of(PART_BYTES)
    }

    /// Decodes a place; `None` for bytes that no version writes.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match VlogPointer::decode(bytes) {
            Some(pointer) => Some(Self::Record(pointer)),
            None => ChunkedPlace::decode(bytes).map(Self::Chunks),
        }
    }

    /// Calls `visit` for each file that holds a part of the value, with the bytes to count there: those of its records
    /// less one record header.
    pub fn each_part(&self, mut visit: impl FnMut(VlogId, u64)) {
        match self {
            Self::Record(p) => visit(p.vlog, u64::from(p.disk_len)),
            Self::Chunks(place) => {
                place.parts.iter().for_each(|p| visit(p.vlog, p.bytes - RECORD_HEADER_BYTES as u64));
            }
        }
    }
}

/// The bytes that a chunked value takes in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The value log file.
    pub vlog: VlogId,
    /// Bytes of the records, headers included.
    pub bytes: u64,
}

/// Where a chunked value lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkedPlace {
    /// The chunk index.
    pub index: VlogPointer,
    /// Length of the value in bytes.
    pub len: u64,
    /// What the index and the chunks take in each file, in ascending order of file numbers.
    pub parts: Vec<Part>,
}

impl ChunkedPlace {
    /// Returns the place of the same value if all of it lies in `vlog`.
    pub(super) fn in_file(self, vlog: VlogId) -> Self {
        let parts = self.parts.into_iter().map(|part| Part { vlog, ..part }).collect();
        Self { index: VlogPointer { vlog, ..self.index }, parts, ..self }
    }

    /// Encodes the place: the pointer, the length, and number and bytes of each part.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.parts.len() * PART_BYTES);
        out.extend_from_slice(&self.index.encode());
        out.extend_from_slice(&self.len.to_le_bytes());
        for part in &self.parts {
            out.extend_from_slice(&part.vlog.0.to_le_bytes());
            out.extend_from_slice(&part.bytes.to_le_bytes());
        }
        out
    }

    /// Decodes what [`encode`](Self::encode) wrote; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (index, rest) = bytes.split_at_checked(VlogPointer::BYTES)?;
        let index = VlogPointer::decode(index)?;
        let mut d = Decoder::new(rest, "", 0);
        let len = d.u64().ok()?;
        let mut parts: Vec<Part> = Vec::with_capacity(d.remaining() / PART_BYTES);
        while d.remaining() > 0 {
            let part = Part { vlog: VlogId(d.u32().ok()?), bytes: d.u64().ok()? };
            let ascends = parts.last().is_none_or(|last| last.vlog < part.vlog);
            let bytes = RECORD_HEADER_BYTES as u64..=FILE_BYTES_MAX;
            if !ascends || !(1..=ID_MAX).contains(&part.vlog.0) || !bytes.contains(&part.bytes) {
                return None;
            }
            parts.push(part);
        }
        let place = Self { index, len, parts };
        let has_index = place.parts.iter().any(|p| p.vlog == index.vlog && p.bytes >= index.record_bytes());
        (has_index && (1..=CHUNKED_BYTES_MAX).contains(&len)).then_some(place)
    }
}

/// The chunks of a value, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkIndex {
    /// Length of every chunk but the last, before compression.
    chunk_bytes: u32,
    len: u64,
    chunks: Vec<VlogPointer>,
}

impl ChunkIndex {
    /// An index without chunks, whose chunks have `chunk_bytes` bytes except for the last.
    pub fn new(chunk_bytes: u32) -> Self {
        Self { chunk_bytes, len: 0, chunks: Vec::new() }
    }

    /// Bytes that the index of a value of `len` bytes takes in memory, with the reader that holds it.
    pub fn bytes_of(len: u64) -> u64 {
        const READER_BYTES: usize = 512;
        len.div_ceil(CHUNK_BYTES as u64) * size_of::<VlogPointer>() as u64 + READER_BYTES as u64
    }

    /// Bytes that it takes in memory, with the reader that holds it.
    pub fn memory_bytes(&self) -> u64 {
        Self::bytes_of(self.chunks.capacity() as u64 * CHUNK_BYTES as u64)
    }

    /// Appends a chunk.
    pub fn push(&mut self, chunk: VlogPointer) {
        self.len += u64::from(chunk.raw_len);
        self.chunks.push(chunk);
    }

    /// Length of every chunk but the last, before compression.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes as usize
    }

    /// The chunks in order.
    pub fn chunks(&self) -> &[VlogPointer] {
        &self.chunks
    }

    /// The chunks in order, to be replaced by copies.
    pub fn chunks_mut(&mut self) -> &mut [VlogPointer] {
        &mut self.chunks
    }

    /// Returns the index if all chunks lie in `vlog`.
    pub(super) fn in_file(mut self, vlog: VlogId) -> Self {
        self.chunks.iter_mut().for_each(|chunk| chunk.vlog = vlog);
        self
    }

    /// Number and start of the chunk that contains byte `at` of the value.
    pub fn find(&self, at: u64) -> Option<(usize, u64)> {
        let size = u64::from(self.chunk_bytes);
        (at < self.len).then(|| ((at / size) as usize, at / size * size))
    }

    /// Length of the encoded index in bytes.
    pub fn encoded_bytes(&self) -> u64 {
        (INDEX_HEAD_BYTES + self.chunks.len() * VlogPointer::BYTES) as u64
    }

    /// Encodes the index: `chunk bytes u32 | chunks u32 | length u64`, then the pointers.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_bytes() as usize);
        out.extend_from_slice(&self.chunk_bytes.to_le_bytes());
        out.extend_from_slice(&(self.chunks.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        self.chunks.iter().for_each(|chunk| out.extend_from_slice(&chunk.encode()));
        out
    }

    /// Decodes the index of the value at `place`.
    ///
    /// # Errors
    /// Says what is wrong with bytes that do not fit `place`.
    pub fn decode(bytes: &[u8], place: &ChunkedPlace) -> Result<Self, &'static str> {
        let short = "a chunk index is too short";
        let mut d = Decoder::new(bytes, "", 0);
        let chunk_bytes = d.u32().map_err(|_| short)?;
        let count = d.u32().map_err(|_| short)?;
        let len = d.u64().map_err(|_| short)?;
        if !(1..=CHUNK_BYTES_MAX).contains(&chunk_bytes) {
            return Err("impossible length of chunks in a chunk index");
        }
        if len != place.len || u64::from(count) != len.div_ceil(chunk_bytes.into()) {
            return Err("a chunk index disagrees with its entry about the length of the value");
        }
        if d.remaining() as u64 != u64::from(count) * VlogPointer::BYTES as u64 {
            return Err("a chunk index has another length than its chunks need");
        }
        let mut index = Self { chunk_bytes, len: 0, chunks: Vec::with_capacity(count as usize) };
        while let Ok(chunk) = d.array::<{ VlogPointer::BYTES }>() {
            let chunk = VlogPointer::decode(&chunk).filter(VlogPointer::is_plausible);
            let chunk = chunk.ok_or("a chunk index holds an impossible pointer")?;
            let want = (len - index.len).min(chunk_bytes.into());
            if u64::from(chunk.raw_len) != want {
                return Err("a chunk has another length than the chunk index allows");
            }
            index.push(chunk);
        }
        if index.parts(&place.index) == place.parts {
            Ok(index)
        } else {
            Err("a chunk index disagrees with its entry about the files of the value")
        }
    }

    /// Where the value lies if the index is stored at `index`.
    pub fn place(&self, index: VlogPointer) -> ChunkedPlace {
        ChunkedPlace { parts: self.parts(&index), index, len: self.len }
    }

    fn parts(&self, index: &VlogPointer) -> Vec<Part> {
        let mut parts = BTreeMap::new();
        for p in self.chunks.iter().chain([index]) {
            *parts.entry(p.vlog).or_insert(0) += p.record_bytes();
        }
        parts.into_iter().map(|(vlog, bytes)| Part { vlog, bytes }).collect()
    }
}
