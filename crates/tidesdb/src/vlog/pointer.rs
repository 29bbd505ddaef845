//! The location of a value in a value log.

use super::format::RECORD_HEADER_BYTES;
use crate::codec::Decoder;
use crate::types::{FILE_BYTES_MAX, ID_MAX, VlogId};

/// Address of one record in a value log. The WAL and the tables store it in place of the value.
///
/// ```
/// use tidesdb::internals::types::VlogId;
/// use tidesdb::internals::vlog::VlogPointer;
/// let p = VlogPointer { vlog: VlogId(7), disk_len: 100, offset: 40, raw_len: 200, crc: 5 };
/// assert_eq!(VlogPointer::decode(&p.encode()), Some(p));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlogPointer {
    /// The value log file.
    pub vlog: VlogId,
    /// Length of the stored payload in bytes, without the record header.
    pub disk_len: u32,
    /// Offset of the record in the file.
    pub offset: u64,
    /// Length of the value in bytes.
    pub raw_len: u32,
    /// The checksum in the record header; it ties the pointer to exactly this record.
    pub crc: u32,
}

impl VlogPointer {
    /// Length of an encoded pointer, in bytes.
    pub const BYTES: usize = 24;

    /// Encodes the fields in declaration order, little-endian.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.vlog.0.to_le_bytes());
        out[4..8].copy_from_slice(&self.disk_len.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.raw_len.to_le_bytes());
        out[20..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// Decodes a pointer; `None` unless `bytes` has exactly 24 bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let mut d = Decoder::new(bytes, "", 0);
        let (vlog, disk_len) = (VlogId(d.u32().ok()?), d.u32().ok()?);
        let (offset, raw_len, crc) = (d.u64().ok()?, d.u32().ok()?, d.u32().ok()?);
        Some(Self { vlog, disk_len, offset, raw_len, crc })
    }

    /// Returns whether the fields are in their domains: a valid file number, and a record that fits the largest
    /// possible file. Tables and the log may contain other pointers, which match no file; a read checks the record that
    /// it finds.
    pub(crate) fn is_plausible(&self) -> bool {
        let end = self.offset.checked_add(self.record_bytes());
        (1..=ID_MAX).contains(&self.vlog.0) && end.is_some_and(|end| end <= FILE_BYTES_MAX)
    }

    /// Returns the length of the record in its file, header included.
    pub fn record_bytes(&self) -> u64 {
        RECORD_HEADER_BYTES as u64 + u64::from(self.disk_len)
    }
}
