//! Walking a value log from end to end, for verification and inspection.
//!
//! A crash may leave a hole: appenders write side by side, and one of them may not have come to it. So the walk does not stop
//! at bytes that are no header; it looks on, byte by byte, for a header whose checksum holds where it lies. So every byte is
//! read a few times at most, whatever the headers claim.

use std::ops::Range;

use super::VlogPointer;
use super::file::VlogFile;
use super::format::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader};
use crate::codec::Compression;
use crate::{Error, Result};

const GAPS_MAX: usize = 1000;
const CHUNK_BYTES: u64 = 256 << 10;

/// One record met by the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// What a pointer to it looks like.
    pub pointer: VlogPointer,
    /// How its payload is stored.
    pub codec: Compression,
}

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlogReport {
    /// Bytes of the file.
    pub len: u64,
    /// Records that are whole.
    pub records: u64,
    /// Where the last whole record ends. Of a file that was being written in a crash, the bytes from here on are a torn tail.
    pub valid_len: u64,
    /// Stretches before `valid_len` that are no record: damage, or values that were being written in a crash. At
    /// most 1000 are kept.
    pub gaps: Vec<Range<u64>>,
    /// Bytes of all such stretches.
    pub gap_bytes: u64,
}

impl VlogReport {
    /// Whether every byte belongs to a whole record.
    pub fn is_whole(&self) -> bool {
        self.gap_bytes == 0 && self.valid_len == self.len
    }

    /// Bytes behind the last whole record.
    pub fn tail_bytes(&self) -> u64 {
        self.len - self.valid_len
    }
}

/// A window of the file, moved forward as it is read.
struct Window<'a> {
    file: &'a VlogFile,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// The header at `offset`, if there is one and its payload fits the file.
    fn header(&mut self, offset: u64) -> Result<Option<RecordHeader>> {
        if self.len - offset < RECORD_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let held = self.start..self.start + self.bytes.len() as u64;
        if offset < held.start || offset + RECORD_HEADER_BYTES as u64 > held.end {
            self.bytes.resize((self.len - offset).min(CHUNK_BYTES) as usize, 0);
            self.start = offset;
            self.file.read_exact(&mut self.bytes, offset)?;
        }
        let at = (offset - self.start) as usize;
        let header = RecordHeader::decode(&self.bytes[at..at + RECORD_HEADER_BYTES], &self.file.salt, offset);
        let room = self.len - offset - RECORD_HEADER_BYTES as u64;
        Ok(header.filter(|h| u64::from(h.disk_len) <= room))
    }
}

/// Walks the first `len` bytes of `file` and shows every whole record to `visit`. Memory: the largest record.
pub(super) fn scan(file: &VlogFile, len: u64, mut visit: impl FnMut(&RecordInfo)) -> Result<VlogReport> {
    let mut window = Window { file, len, start: 0, bytes: Vec::new() };
    let start = FILE_HEADER_BYTES as u64;
    let mut report = VlogReport { len, valid_len: start, ..VlogReport::default() };
    let mut at = start;
    while at < len {
        let Some(header) = window.header(at)? else {
            at += 1;
            continue;
        };
        let info = RecordInfo { pointer: header.pointer(file.id, at), codec: header.codec };
        match file.check(&info.pointer) {
            Ok(()) => {}
            Err(Error::Corrupt { .. }) => {
                // The header holds, so the next record begins behind the payload, damaged as it is.
                at += info.pointer.record_bytes();
                continue;
            }
            Err(e) => return Err(e),
        }
        if at > report.valid_len {
            report.gap_bytes += at - report.valid_len;
            if report.gaps.len() < GAPS_MAX {
                report.gaps.push(report.valid_len..at);
            }
        }
        visit(&info);
        report.records += 1;
        at += info.pointer.record_bytes();
        report.valid_len = at;
    }
    Ok(report)
}
