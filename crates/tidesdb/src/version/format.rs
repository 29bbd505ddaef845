//! Bytes of a manifest. `docs/formats/manifest.md` describes the layout and proves what damage is detected.
//!
//! ```text
//! page 0     header          identity, format, salt
//! page 1, 3  mark of even records, two copies: how many records are durable, and where they end
//! page 2, 4  mark of odd records, two copies
//! page 5...  records         each begins on a new page; the rest of its last page is zeros
//! ...        reserve         zeros
//! ```
//!
//! A page is 4096 bytes. A page that holds synced bytes is never written again, except the mark pages; of these, the
//! newer pair is never overwritten. Every byte is covered, either by a checksum bound to salt and offset or by being
//! zero.

use crate::codec::{Decoder, Salt, bound_crc};
use crate::types::{FILE_NUMBER_MAX, is_segment_bytes};
use crate::{Error, Result};

use super::edit::MANIFEST_FORMAT;

/// Unit of placement, in bytes.
pub(super) const PAGE: u64 = 4096;
/// Offset of the first record.
pub(super) const RECORDS_AT: u64 = 5 * PAGE;
/// Bytes of a record before its payload.
pub(super) const RECORD_HEADER_BYTES: usize = 20;
/// Maximum payload of a record, in bytes.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// An edit that is longer is not appended as a record: it begins a new manifest.
pub(super) const EDIT_BYTES_MAX: usize = if cfg!(test) { 256 << 10 } else { PAYLOAD_BYTES_MAX };
/// A snapshot that is longer takes several records, each of about this payload.
pub(super) const SNAPSHOT_BYTES: usize = if cfg!(test) { 128 << 10 } else { 64 << 20 };

const HEADER_BYTES: usize = 96;
const MARK_BYTES: usize = 64;
const HEADER_MAGIC: [u8; 8] = *b"TDBMANI\n";
const MARK_MAGIC: [u8; 8] = *b"TDBMARK\n";
const CHECKSUM_CRC32C: u8 = 1;

/// Properties fixed when a database is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random number of the database.
    pub uuid: [u8; 16],
    /// Bytes of one WAL segment.
    pub wal_segment_bytes: u64,
}

/// Page 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) salt: Salt,
    pub(super) identity: Identity,
    pub(super) number: u64,
}

/// Pages 1 to 4: the first `number` records are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Count of records.
    pub(super) number: u64,
    /// End of the last record, without its padding.
    pub(super) end: u64,
    /// Length of the file; never decreases.
    pub(super) file_bytes: u64,
    /// Checksum of the last record.
    pub(super) chain: u32,
}

/// Returns the first page boundary at or after `offset`.
pub(super) fn page_up(offset: u64) -> u64 {
    offset.next_multiple_of(PAGE)
}

/// Returns the offsets of the two pages that hold the mark of record `number`.
pub(super) fn marks_at(number: u64) -> [u64; 2] {
    let first = PAGE + (number % 2) * PAGE;
    [first, first + 2 * PAGE]
}

/// Returns the offset of the first byte that is not zero.
pub(super) fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|b| *b != 0)
}

/// Pads `out` with zeros to `bytes` bytes, of which the last four are the checksum.
pub(super) fn seal(out: &mut Vec<u8>, bytes: usize, salt: &Salt, at: u64) {
    out.resize(bytes - 4, 0);
    let crc = bound_crc(salt, at, &[out]);
    out.extend_from_slice(&crc.to_le_bytes());
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE as usize);
        out.extend_from_slice(&HEADER_MAGIC);
        out.extend_from_slice(&MANIFEST_FORMAT.to_le_bytes());
        out.extend_from_slice(&[CHECKSUM_CRC32C, 0, 0, 0]);
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.identity.uuid);
        out.extend_from_slice(&self.identity.wal_segment_bytes.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        seal(&mut out, HEADER_BYTES, &self.salt, 0);
        out.resize(PAGE as usize, 0);
        out
    }

    /// Decodes page 0. The checksum has the same place in every format, so damage can be distinguished from a newer
    /// format.
    pub(super) fn decode(page: &[u8], file: &str) -> Result<Self> {
        let mut d = Decoder::new(page, file, 0);
        let magic: [u8; 8] = d.array()?;
        let format = d.u32()?;
        let kinds: [u8; 4] = d.array()?;
        let salt: Salt = d.array()?;
        let uuid = d.array()?;
        let wal_segment_bytes = d.u64()?;
        let number = d.u64()?;
        let reserved = d.take(HEADER_BYTES - 4 - d.position())?;
        let covered = page.get(..d.position()).unwrap_or_default();
        let crc = d.u32()?;
        if magic != HEADER_MAGIC {
            return Err(Error::corrupt(file, 0, "not a manifest"));
        }
        if crc != bound_crc(&salt, 0, &[covered]) {
            return Err(Error::corrupt(file, 0, "header checksum mismatch"));
        }
        if format > MANIFEST_FORMAT {
            return Err(Error::FormatTooNew { file: file.into(), found: format, supported: MANIFEST_FORMAT });
        }
        if (1..MANIFEST_FORMAT).contains(&format) {
            return Err(Error::FormatTooOld { file: file.into(), found: format, supported: MANIFEST_FORMAT });
        }
        let rest = d.take(d.remaining())?;
        let plain = first_nonzero(reserved).or(first_nonzero(rest)).is_none();
        if format == 0 || kinds != [CHECKSUM_CRC32C, 0, 0, 0] || !plain {
            return Err(Error::corrupt(file, 8, "the header has values that no version writes"));
        }
        if !is_segment_bytes(wal_segment_bytes) {
            return Err(Error::corrupt(
                file,
                48,
                format!("log segment size of {wal_segment_bytes} bytes is invalid"),
            ));
        }
        if number > FILE_NUMBER_MAX {
            return Err(Error::corrupt(
                file,
                56,
                format!("number of the manifest is {number}, which is out of range"),
            ));
        }
        Ok(Self { salt, identity: Identity { uuid, wal_segment_bytes }, number })
    }

    /// Returns the value that the first record uses as the checksum of its predecessor.
    pub(super) fn chain(&self) -> u32 {
        bound_crc(&self.salt, self.number, &[&self.identity.uuid])
    }
}

impl Mark {
    pub(super) fn encode(&self, salt: &Salt, at: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE as usize);
        out.extend_from_slice(&MARK_MAGIC);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.end.to_le_bytes());
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        out.extend_from_slice(&self.chain.to_le_bytes());
        seal(&mut out, MARK_BYTES, salt, at);
        out.resize(PAGE as usize, 0);
        out
    }

    /// Decodes the mark in the page at `at`. Returns `None` if the page holds no complete mark: a crash may tear it.
    pub(super) fn decode(page: &[u8], salt: &Salt, at: u64) -> Option<Self> {
        let mut d = Decoder::new(page, "", at);
        let magic: [u8; 8] = d.array().ok()?;
        let number = d.u64().ok()?;
        let end = d.u64().ok()?;
        let file_bytes = d.u64().ok()?;
        let chain = d.u32().ok()?;
        let reserved = d.take(MARK_BYTES - 4 - d.position()).ok()?;
        let crc = bound_crc(salt, at, &[page.get(..d.position())?]);
        let whole = d.u32().ok()? == crc && magic == MARK_MAGIC && first_nonzero(reserved).is_none();
        let plain = first_nonzero(d.take(d.remaining()).ok()?).is_none();
        let placed = number == 1 || (number > 1 && marks_at(number).contains(&at));
        (whole && plain && placed).then_some(Self { number, end, file_bytes, chain })
    }
}

/// Encodes record `number` at offset `at`, padded with zeros to whole pages. Returns the bytes and the checksum.
pub(super) fn encode_record(
    salt: &Salt,
    at: u64,
    number: u64,
    prev: u32,
    payload: &[u8],
) -> Result<(Vec<u8>, u32)> {
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= PAYLOAD_BYTES_MAX);
    let length = length.ok_or_else(|| Error::internal("a record of the manifest exceeds its limit"))?;
    let mut head = [0; RECORD_HEADER_BYTES - 4];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..12].copy_from_slice(&number.to_le_bytes());
    head[12..].copy_from_slice(&prev.to_le_bytes());
    let crc = bound_crc(salt, at, &[&head, payload]);
    let padded = (RECORD_HEADER_BYTES + payload.len()).next_multiple_of(PAGE as usize);
    let mut out = Vec::with_capacity(padded);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(payload);
    out.resize(padded, 0);
    Ok((out, crc))
}

/// Header fields of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManifestRecordHeader {
    pub(super) crc: u32,
    pub(super) length: usize,
    pub(super) number: u64,
    pub(super) prev: u32,
}

impl ManifestRecordHeader {
    /// Decodes the fields without checking their values.
    pub(super) fn decode(bytes: &[u8], file: &str, at: u64) -> Result<Self> {
        let mut d = Decoder::new(bytes, file, at);
        Ok(Self { crc: d.u32()?, length: d.u32()? as usize, number: d.u64()?, prev: d.u32()? })
    }

    /// Returns whether the checksum matches `rest`, the bytes of the record after the checksum.
    pub(super) fn matches(&self, salt: &Salt, at: u64, rest: &[u8]) -> bool {
        self.crc == bound_crc(salt, at, &[rest])
    }
}
