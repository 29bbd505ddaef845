//! Where a value lies.

use super::format::RECORD_HEADER_BYTES;
use crate::types::{FILE_BYTES_MAX, ID_MAX, VlogId};

/// Names one record of a value log. Stored in the WAL and in tables in place of the value.
///
/// ```
/// use tidesdb::types::VlogId;
/// use tidesdb::vlog::VlogPointer;
/// let p = VlogPointer { vlog: VlogId(7), disk_len: 100, offset: 40, raw_len: 200, crc: 5 };
/// assert_eq!(VlogPointer::decode(&p.encode()), Some(p));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlogPointer {
    /// The file.
    pub vlog: VlogId,
    /// Bytes of the payload as stored, without the header of its record.
    pub disk_len: u32,
    /// Where the record begins.
    pub offset: u64,
    /// Bytes of the value.
    pub raw_len: u32,
    /// The checksum in the header of the record; ties the pointer to this very record.
    pub crc: u32,
}

impl VlogPointer {
    /// Bytes of an encoded pointer.
    pub const BYTES: usize = 24;

    /// The fields in order, little-endian.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.vlog.0.to_le_bytes());
        out[4..8].copy_from_slice(&self.disk_len.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.raw_len.to_le_bytes());
        out[20..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// The pointer that these bytes encode; `None` unless there are exactly 24.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (vlog, rest) = bytes.split_first_chunk()?;
        let (disk_len, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (raw_len, rest) = rest.split_first_chunk()?;
        let (crc, _) = rest.split_first_chunk()?;
        Some(Self {
            vlog: VlogId(u32::from_le_bytes(*vlog)),
            disk_len: u32::from_le_bytes(*disk_len),
            offset: u64::from_le_bytes(*offset),
            raw_len: u32::from_le_bytes(*raw_len),
            crc: u32::from_le_bytes(*crc),
        })
    }

    /// Whether the fields are within their domains: the number of a file, and a record that a file can hold. Tables and the
    /// log may hold others, which no file answers to; a read checks the record that it finds.
    pub(crate) fn is_plausible(&self) -> bool {
        let end = self.offset.checked_add(self.record_bytes());
        (1..=ID_MAX).contains(&self.vlog.0) && end.is_some_and(|end| end <= FILE_BYTES_MAX)
    }

    /// Bytes that the record takes in its file, header included.
    pub fn record_bytes(&self) -> u64 {
        RECORD_HEADER_BYTES as u64 + u64::from(self.disk_len)
    }
}
