//! Byte layout of segment headers and record headers. Documented in `docs/formats/wal.md`; fixed by golden tests.

use tidesdb_io::{Buffer, crc32c};

use crate::codec::{Decoder, Salt, bound_crc};
use crate::types::{SeqNo, WalId, is_segment_bytes, numbered, wal_id_max};
use crate::{Error, Result};

/// First bytes of a segment.
pub const SEGMENT_MAGIC: u64 = 0x314C_4157_5344_4954; // "TIDSWAL1"
/// Format of segments that this code writes, and the newest it reads.
pub const SEGMENT_FORMAT: u32 = 1;
/// Bytes before the first record of a segment.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;
/// Bytes of the header in use; zeros follow.
const HEADER_USED: usize = 96;
/// Bytes before a record's body.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Longest body.
pub const BODY_BYTES_MAX: u64 = u32::MAX as u64;
/// Addresses are multiples of this many bytes; sequence numbers count in this unit.
pub const UNIT: u64 = 8;
/// Bytes that a new record has room for without asking for memory again: an operation of a common size.
pub const BLANK_ROOM: usize = 224;

numbered! {
    /// The kind of a record. The numbers are stored: never change them, and never use one again.
    ///
    /// An unknown number is no record at all, so an older version takes a record of a new kind for a torn tail and cuts it off
    /// with all that follows. So a database whose log may hold one says so in the manifest first, in a change that an older version refuses,
    /// or its segments have a format above the one that the older version reads ([`SEGMENT_FORMAT`]).
    ///
    /// What a kind means is decided in [`RecordKind::is_pad`], `Findings::add` and `Sink::add` (`wal/reader.rs`), `Tail::parse`
    /// (`wal/tail.rs`) and `inspect/wal.rs`. A new kind does not compile until each of them names it.
    pub enum RecordKind {
        /// A commit: its body is a batch.
        Commit = 1,
        /// Fills the rest of a segment; its body is not written and not covered by the checksum.
        Pad = 2,
        /// Written when the log becomes idle after a sync. Repeats how far the log is synced, so that later damage is not
        /// mistaken for a torn tail.
        Seal = 3,
        /// A commit that was refused after it got its place. Laid out like a commit, but ignored by replay.
        Refused = 4,
        /// A commit that takes tables which were built outside of the database: its body names them. Before the first one is written, the manifest
        /// says that the log may have some.
        Ingest = 5,
    }
}

impl RecordKind {
    /// Returns true for a commit whose body names tables in place of operations.
    #[inline]
    pub fn takes_tables(self) -> bool {
        match self {
            RecordKind::Ingest => true,
            RecordKind::Commit | RecordKind::Pad | RecordKind::Seal | RecordKind::Refused => false,
        }
    }

    /// Returns true if the record fills the rest of its segment: it has a length, but no body on disk, and nothing follows it.
    #[inline]
    pub fn is_pad(self) -> bool {
        match self {
            RecordKind::Pad => true,
            RecordKind::Commit | RecordKind::Seal | RecordKind::Refused | RecordKind::Ingest => false,
        }
    }
}

/// The header of a segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Number of the segment: its first address divided by `segment_bytes`.
    pub id: u64,
    /// Length of one segment of this database.
    pub segment_bytes: u64,
    /// Number of segments whose addresses this file covers: 1, or more for one oversized record.
    pub span: u32,
    /// Random; a new one is drawn each time the file is used.
    pub salt: Salt,
    /// Identity of the database.
    pub db_uuid: [u8; 16],
    /// Identity of the boot of the machine and the mount of the file system when the segment was written.
    pub boot_id: [u8; 16],
}

impl SegmentHeader {
    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.segment_bytes * u64::from(self.span)
    }

    /// The sequence number of a record at `at` of the file.
    pub fn seq_at(&self, at: u64) -> SeqNo {
        (self.id * self.segment_bytes + at) / UNIT
    }

    /// How many bytes from `at` of the file on are needed to look for a record there, if `bytes`, which begin there, are too few.
    pub fn bytes_missing(&self, bytes: &[u8], at: u64) -> Option<u64> {
        if bytes.len() < RECORD_HEADER_BYTES {
            return Some(RECORD_HEADER_BYTES as u64);
        }
        let needed = RecordHeader::bytes_needed(bytes);
        let is_short = needed > bytes.len() as u64 && needed <= self.file_bytes() - at;
        (is_short && RecordHeader::looks_like(bytes, self.seq_at(at))).then_some(needed)
    }

    /// The valid record at `at` of the file, where `bytes` begin, if there is one.
    pub fn record_at(&self, bytes: &[u8], at: u64) -> Option<RecordHeader> {
        let (record, _) = RecordHeader::decode(bytes, self.seq_at(at), &self.salt)?;
        let fits = !record.kind.is_pad() || at + record.record_bytes() == self.file_bytes();
        fits.then_some(record) // a pad fills the rest of the file
    }

    /// Returns whether the segment was written in the boot `boot_id` of the machine. All zeros are an unknown boot.
    pub fn is_of_boot(&self, boot_id: &[u8; 16]) -> bool {
        self.boot_id == *boot_id && self.boot_id != [0; 16]
    }

    /// Checks that this is segment `id` of the database `db_uuid`; `file` is its name.
    ///
    /// # Errors
    /// `Corrupt`: files were moved.
    pub fn check_place(&self, id: WalId, db_uuid: &[u8; 16], segment_bytes: u64, file: &str) -> Result<()> {
        if self.id == id.0 && self.db_uuid == *db_uuid && self.segment_bytes == segment_bytes {
            return Ok(());
        }
        Err(Error::corrupt(file, 0, "the segment belongs to another database or place"))
    }

    /// The 4096 bytes of the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES as usize);
        out.extend_from_slice(&SEGMENT_MAGIC.to_le_bytes());
        out.extend_from_slice(&SEGMENT_FORMAT.to_le_bytes());
        out.extend_from_slice(&self.span.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.segment_bytes.to_le_bytes());
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.db_uuid);
        out.extend_from_slice(&self.boot_id);
        out.resize(HEADER_USED - 4, 0);
        let crc = bound_crc(&self.salt, 0, &[&out]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.resize(SEGMENT_HEADER_BYTES as usize, 0);
        out
    }

    /// Checks that every number is in its domain.
    fn check(&self, file: &str) -> Result<()> {
        if !is_segment_bytes(self.segment_bytes) {
            return Err(Error::corrupt(file, 24, format!("segments of {} bytes", self.segment_bytes)));
        }
        let span_max = (SEGMENT_HEADER_BYTES + record_bytes(BODY_BYTES_MAX)).div_ceil(self.segment_bytes);
        if self.span == 0 || u64::from(self.span) > span_max {
            return Err(Error::corrupt(file, 12, format!("a span of {} segments", self.span)));
        }
        let last = self.id.checked_add(u64::from(self.span) - 1);
        if last.is_none_or(|last| last > wal_id_max(self.segment_bytes)) {
            return Err(Error::corrupt(file, 16, format!("number of the segment is {}", self.id)));
        }
        Ok(())
    }

    /// Decodes a header and checks every byte of it, including the zeros.
    ///
    /// # Errors
    /// `Corrupt`, `FormatTooNew`.
    pub fn decode(bytes: &[u8], file: &str) -> Result<Self> {
        let mut d = Decoder::new(bytes, file, 0);
        if d.u64()? != SEGMENT_MAGIC {
            return Err(Error::corrupt(file, 0, "not a WAL segment: bad magic"));
        }
        let format = d.u32()?;
        let span = d.u32()?;
        let header = Self {
            id: d.u64()?,
            segment_bytes: d.u64()?,
            span,
            salt: d.array()?,
            db_uuid: d.array()?,
            boot_id: d.array()?,
        };
        let rest = d.take(HEADER_USED - 4 - d.position())?;
        let crc = d.u32()?;
        if crc != bound_crc(&header.salt, 0, &[&bytes[..HEADER_USED - 4]]) {
            return Err(Error::corrupt(file, 0, "checksum of the segment header does not match"));
        }
        if format > SEGMENT_FORMAT {
            return Err(Error::FormatTooNew { file: file.into(), found: format, supported: SEGMENT_FORMAT });
        }
        if format != SEGMENT_FORMAT {
            return Err(Error::corrupt(file, 8, "unknown format number"));
        }
        let padding = d.take(SEGMENT_HEADER_BYTES as usize - HEADER_USED)?;
        if rest.iter().chain(padding).any(|b| *b != 0) {
            return Err(Error::corrupt(file, 0, "padding of the segment header is not zero"));
        }
        header.check(file)?;
        Ok(header)
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Address of the record divided by [`UNIT`].
    pub seq: SeqNo,
    /// Bytes of the body.
    pub body_len: u32,
    /// Kind of the record.
    pub kind: RecordKind,
    /// Operations in the body; saturates.
    pub ops: u32,
    /// Every record that begins before this sequence number was in the log when this record was built.
    pub complete: SeqNo,
    /// Every record that begins before this sequence number was durable when this record was built.
    pub synced: SeqNo,
}

const OPS_MAX: u32 = (1 << 24) - 1;
/// A distance that means "nothing is stated".
const NOT_STATED: u32 = u32::MAX;

impl RecordHeader {
    /// Writes the header to the front of `record`, whose body follows with its zero padding up to the next [`UNIT`]. The
    /// record goes to a segment with this salt.
    pub fn write(&self, salt: &Salt, record: &mut [u8]) {
        let head = &mut record[..RECORD_HEADER_BYTES];
        head[4..8].copy_from_slice(&self.body_len.to_le_bytes());
        head[8..16].copy_from_slice(&self.seq.to_le_bytes());
        head[16..20].copy_from_slice(&distance(self.seq, self.complete).to_le_bytes());
        head[20..24].copy_from_slice(&distance(self.seq, self.synced).to_le_bytes());
        let ops_and_kind = self.ops.min(OPS_MAX) | (self.kind as u32) << 24;
        head[24..28].copy_from_slice(&ops_and_kind.to_le_bytes());
        head[28..].fill(0);
        let crc = bound_crc(salt, self.seq * UNIT, &[&record[4..]]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns true if `bytes` begin like a record with this sequence number: a cheap test before the checksum.
    #[inline]
    pub fn looks_like(bytes: &[u8], seq: SeqNo) -> bool {
        bytes.len() >= RECORD_HEADER_BYTES && bytes[8..16] == seq.to_le_bytes()
    }

    /// Bytes that the record at the start of `bytes`, whose header is whole, takes in the log if it is valid; for a pad,
    /// those of its header.
    pub fn bytes_needed(bytes: &[u8]) -> u64 {
        let kind = bytes.get(27).and_then(|kind| RecordKind::of_number(*kind));
        match kind.is_some_and(RecordKind::is_pad) {
            true => RECORD_HEADER_BYTES as u64,
            false => record_bytes(u64::from(u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))),
        }
    }

    /// Decodes the record at the start of `bytes` with sequence number `seq`; `None` if no valid record begins there. The
    /// body of a pad is not looked at and is returned as empty.
    #[inline]
    pub fn decode<'a>(bytes: &'a [u8], seq: SeqNo, salt: &Salt) -> Option<(Self, &'a [u8])> {
        let header = Self::decode_unchecked(bytes, seq)?;
        let rest = &bytes[RECORD_HEADER_BYTES..];
        let (covered, body) = match header.kind.is_pad() {
            true => (&[][..], &[][..]),
            false => (rest.get(..header.covered_bytes()?)?, rest.get(..header.body_len as usize)?),
        };
        let crc = crc32c(Self::begin_crc(bytes, seq, salt), covered);
        (crc == Self::crc_of(bytes)).then_some((header, body))
    }

    /// Decodes the header at the start of `bytes`, if it may be that of record `seq`. Its checksum is not checked.
    #[inline]
    pub fn decode_unchecked(bytes: &[u8], seq: SeqNo) -> Option<Self> {
        if !Self::looks_like(bytes, seq) || word(bytes, 28) != 0 {
            return None;
        }
        let (ops_and_kind, body_len) = (word(bytes, 24), word(bytes, 4));
        let stated = |d: u32| if d == NOT_STATED { 0 } else { seq.saturating_sub(u64::from(d)) };
        Some(Self {
            seq,
            body_len,
            kind: RecordKind::of_number((ops_and_kind >> 24) as u8)?,
            ops: ops_and_kind & OPS_MAX,
            complete: stated(word(bytes, 16)),
            synced: stated(word(bytes, 20)),
        })
    }

    /// The checksum of the header at the start of `bytes`, to be continued with the body and its padding; for a pad, complete.
    #[inline]
    pub fn begin_crc(bytes: &[u8], seq: SeqNo, salt: &Salt) -> u32 {
        bound_crc(salt, seq * UNIT, &[&bytes[4..RECORD_HEADER_BYTES]])
    }

    /// The checksum that the header at the start of `bytes` demands.
    #[inline]
    pub fn crc_of(bytes: &[u8]) -> u32 {
        word(bytes, 0)
    }

    /// Bytes of the body and its padding.
    fn covered_bytes(&self) -> Option<usize> {
        (self.body_len as usize).checked_next_multiple_of(UNIT as usize)
    }

    /// Bytes of the whole record in the log, rounded up to [`UNIT`].
    pub fn record_bytes(&self) -> u64 {
        record_bytes(u64::from(self.body_len))
    }
}

/// A record to be filled: space for its header, then `body_bytes` zeros.
pub fn blank_record(body_bytes: usize) -> Buffer {
    let mut record = Buffer::new();
    record.reserve_exact(RECORD_HEADER_BYTES + body_bytes.max(BLANK_ROOM));
    record.resize(RECORD_HEADER_BYTES + body_bytes, 0);
    record
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Bytes in the log of a record with a body of `body_len` bytes, rounded up to [`UNIT`].
pub fn record_bytes(body_len: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64 + body_len).next_multiple_of(UNIT)
}

fn distance(seq: SeqNo, stated: SeqNo) -> u32 {
    if stated == 0 || stated > seq {
        return NOT_STATED;
    }
    u32::try_from(seq - stated).unwrap_or(NOT_STATED)
}
