//! Encoding of value log files. `docs/formats/vlog.md` describes the layout.
//!
//! ```text
//! file header  magic 8 | format u32 | family u32 | vlog u32 | salt 16 | crc u32                       40 bytes
//! record       crc u32 | payload_crc u32 | raw_len u32 | disk_len u32 | codec u8 | mark u8 | payload     18 + n bytes
//! ```
//!
//! A record's `crc` covers the rest of its header and is bound to the salt and the offset. `payload_crc` covers the
//! payload. Integers are little-endian, there is no padding, and every byte is covered by a checksum. All later formats
//! keep this file header.

use super::VlogPointer;
use crate::codec::{Compression, Decoder, Salt, bound_crc, longest_raw};
use crate::types::{FamilyId, VlogId};
use crate::{Error, Result};

/// Length of the file header, in bytes.
pub const FILE_HEADER_BYTES: usize = 40;
/// Length of a record header, in bytes.
pub const RECORD_HEADER_BYTES: usize = 18;

const MAGIC: [u8; 8] = *b"TDBVLOG\n";
const FORMAT: u32 = 1;
const NO_SALT: Salt = [0; 16];
/// Last byte of every record header, so that a range of zeros is never taken for a header.
pub(super) const MARK: u8 = 0xB5;

/// The header of a value log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) family: FamilyId,
    pub(super) vlog: VlogId,
    pub(super) salt: Salt,
}

/// The number by which the pointers into a file know it that was written outside of a database.
pub(super) const UNNUMBERED: VlogId = VlogId(1);

impl FileHeader {
    /// The header of a file that is written outside of a database.
    pub(super) fn unnumbered(salt: Salt) -> Self {
        Self { family: FamilyId(0), vlog: VlogId(0), salt }
    }

    /// Returns whether the file was written outside of a database.
    pub(super) fn is_unnumbered(&self) -> bool {
        (self.family, self.vlog) == (FamilyId(0), VlogId(0))
    }

    pub(super) fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut out = [0; FILE_HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..16].copy_from_slice(&self.family.0.to_le_bytes());
        out[16..20].copy_from_slice(&self.vlog.0.to_le_bytes());
        out[20..36].copy_from_slice(&self.salt);
        let crc = bound_crc(&NO_SALT, 0, &[&out[..36]]);
        out[36..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; FILE_HEADER_BYTES], file: &str) -> Result<Self> {
        let mut d = Decoder::new(bytes, file, 0);
        if d.array::<8>()? != MAGIC {
            return Err(Error::corrupt(file, 0, "not a value log"));
        }
        let format = d.u32()?;
        let header = Self { family: FamilyId(d.u32()?), vlog: VlogId(d.u32()?), salt: d.array()? };
        if d.u32()? != bound_crc(&NO_SALT, 0, &[&bytes[..36]]) {
            return Err(Error::corrupt(file, 0, "checksum mismatch in the file header"));
        }
        if format > FORMAT {
            return Err(Error::FormatTooNew { file: file.into(), found: format, supported: FORMAT });
        }
        if format != FORMAT {
            return Err(Error::corrupt(file, 8, "unknown format number"));
        }
        Ok(header)
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VlogRecordHeader {
    pub(super) crc: u32,
    pub(super) payload_crc: u32,
    pub(super) raw_len: u32,
    pub(super) disk_len: u32,
    pub(super) codec: Compression,
}

impl VlogRecordHeader {
    /// Creates the header of a record whose offset is not known yet.
    pub(super) fn new(payload: &[u8], raw_len: u32, codec: Compression) -> Self {
        let disk_len = u32::try_from(payload.len()).expect("a payload is never longer than its value");
        Self { crc: 0, payload_crc: tidesdb_io::crc32c(0, payload), raw_len, disk_len, codec }
    }

    /// Computes the header checksum for a record at `offset`.
    pub(super) fn bind(&mut self, salt: &Salt, offset: u64) {
        self.crc = bound_crc(salt, offset, &[&self.encode()[4..]]);
    }

    /// Returns a pointer to the record.
    pub(super) fn pointer(&self, vlog: VlogId, offset: u64) -> VlogPointer {
        VlogPointer { vlog, disk_len: self.disk_len, offset, raw_len: self.raw_len, crc: self.crc }
    }

    pub(super) fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        out[..4].copy_from_slice(&self.crc.to_le_bytes());
        out[4..8].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[8..12].copy_from_slice(&self.raw_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.disk_len.to_le_bytes());
        out[16] = self.codec as u8;
        out[17] = MARK;
        out
    }

    /// Decodes the record header at `offset`; `None` if the bytes are not a valid header.
    pub(super) fn decode(bytes: &[u8], salt: &Salt, offset: u64) -> Option<Self> {
        let bytes: &[u8; RECORD_HEADER_BYTES] = bytes.try_into().ok()?;
        if bytes[17] != MARK {
            return None;
        }
        let codec = Compression::from_u8(bytes[16])?;
        let mut d = Decoder::new(bytes, "", 0);
        let (crc, payload_crc) = (d.u32().ok()?, d.u32().ok()?);
        let (raw_len, disk_len) = (d.u32().ok()?, d.u32().ok()?);
        let header = Self { crc, payload_crc, raw_len, disk_len, codec };
        (header.is_plausible() && bound_crc(salt, offset, &[&bytes[4..]]) == crc).then_some(header)
    }

    /// Returns whether the value is as long as the payload or, if it is compressed, longer and no longer than can be decoded from it.
    fn is_plausible(&self) -> bool {
        let longest = longest_raw(self.codec, self.disk_len as usize);
        match self.codec {
            Compression::None => self.raw_len == self.disk_len,
            _ => self.disk_len < self.raw_len && self.raw_len as usize <= longest,
        }
    }

    pub(super) fn payload_matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.disk_len as usize && tidesdb_io::crc32c(0, payload) == self.payload_crc
    }
}
