//! The outer structure of a table file: sections, their checksums, and the footer. See `docs/formats/klog.md`.
//!
//! The length of the footer, the position of its fields and its checksum algorithm are the same in every format
//! version. So every version can tell a damaged file from a newer one.

use crate::codec::{Decoder, Salt, bound_crc};
use crate::types::TableId;
use crate::{Error, Result};

/// Last bytes of every table file.
pub(super) const MAGIC: [u8; 4] = *b"TKLG";
/// The format version that is written and read.
pub(super) const VERSION: u16 = 3;
/// Checksums of blocks and sections: CRC32C bound to salt and offset.
pub(super) const CHECKSUM_CRC32C: u8 = 1;
/// Length of the footer in bytes.
pub(super) const FOOTER_BYTES: usize = 64;
/// The number in the footer of a table that was built outside of a database.
pub(super) const UNNUMBERED: TableId = TableId(0);
/// Length of a checksum in bytes.
pub(super) const CRC_BYTES: usize = 4;
/// Offset of the checksum in the footer; the magic bytes follow it.
const FOOTER_CRC_AT: usize = 56;

/// Locations of the sections of a table. Data starts at offset 0; each section ends where the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    /// Salt of this file.
    pub(super) salt: Salt,
    /// Number of the table.
    pub(super) id: TableId,
    /// End of the data blocks and start of the filter. The partitions of the index follow the filter.
    pub(super) filter_at: u64,
    /// Start of the top level.
    pub(super) index_at: u64,
    /// Start of the properties, which end at the footer.
    pub(super) props_at: u64,
    /// Number of data blocks.
    pub(super) blocks: u32,
}

impl Footer {
    /// Encodes the footer for offset `at`.
    pub(super) fn encode(&self, at: u64) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(&self.filter_at.to_le_bytes());
        out.extend_from_slice(&self.index_at.to_le_bytes());
        out.extend_from_slice(&self.props_at.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[CHECKSUM_CRC32C, 0]);
        let crc = bound_crc(&self.salt, at, &[&out, &MAGIC]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        let mut bytes = [0; FOOTER_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Decodes the footer at offset `at`. Its salt must be `salt`.
    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES], salt: &Salt, file: &str, at: u64) -> Result<Self> {
        let (body, rest) = bytes.split_at(FOOTER_CRC_AT);
        let (crc, magic) = rest.split_at(CRC_BYTES);
        if magic != MAGIC {
            return Err(Error::corrupt(
                file,
                at + (FOOTER_CRC_AT + CRC_BYTES) as u64,
                "not the end of a table",
            ));
        }
        if bound_crc(salt, at, &[body, magic]).to_le_bytes() != crc {
            return Err(Error::corrupt(file, at, "checksum mismatch in the footer, or a foreign file"));
        }
        let mut d = Decoder::new(body, file, at);
        let footer = Self {
            salt: d.array()?,
            id: TableId(d.u64()?),
            filter_at: d.u64()?,
            index_at: d.u64()?,
            props_at: d.u64()?,
            blocks: d.u32()?,
        };
        let (found, supported) = (u32::from(d.u16()?), u32::from(VERSION));
        if found > supported {
            return Err(Error::FormatTooNew { file: file.into(), found, supported });
        }
        if (1..supported).contains(&found) {
            return Err(Error::FormatTooOld { file: file.into(), found, supported });
        }
        if found == 0 || d.u8()? != CHECKSUM_CRC32C || d.u8()? != 0 || footer.salt != *salt {
            return Err(d.corrupt("invalid field in the footer"));
        }
        let ordered = footer.filter_at <= footer.index_at
            && footer.index_at <= footer.props_at
            && footer.props_at <= at;
        if ordered { Ok(footer) } else { Err(d.corrupt("sections of the footer out of order")) }
    }
}

/// Completes a section for offset `at`: fills in the checksum of the body that follows [`begin_section`].
pub(super) fn seal_section(salt: &Salt, at: u64, section: &mut [u8]) {
    let (crc, body) = section.split_at_mut(CRC_BYTES);
    crc.copy_from_slice(&bound_crc(salt, at, &[body]).to_le_bytes());
}

/// Starts a section: reserves space for the checksum; the caller appends the body.
pub(super) fn begin_section() -> Vec<u8> {
    vec![0; CRC_BYTES]
}

/// Verifies the section at offset `at` and returns its body.
pub(super) fn open_section<'a>(
    salt: &Salt,
    at: u64,
    section: &'a [u8],
    file: &str,
    what: &str,
) -> Result<&'a [u8]> {
    match section.split_first_chunk::<CRC_BYTES>() {
        Some((crc, body)) if bound_crc(salt, at, &[body]).to_le_bytes() == *crc => Ok(body),
        _ => Err(Error::corrupt(file, at, format!("checksum mismatch in the {what}"))),
    }
}
