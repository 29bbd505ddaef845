//! Scans a value log from start to end, for verification and inspection.
//!
//! A crash may leave a gap: appenders write in parallel, and one of them may not have written its record. So the scan
//! does not stop at bytes that are not a header. It continues byte by byte until it finds a header whose checksum is
//! valid at its offset. Every byte is read a few times at most, whatever lengths the headers state.

use std::ops::Range;

use super::VlogPointer;
use super::file::VlogFile;
use super::format::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES, VlogRecordHeader};
use crate::codec::Compression;
use crate::{Error, Result};

const GAPS_MAX: usize = 1000;
const CHUNK_BYTES: u64 = 256 << 10;

/// One record found by a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// The pointer to the record.
    pub pointer: VlogPointer,
    /// How its payload is stored.
    pub codec: Compression,
}

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlogReport {
    /// Length of the file in bytes.
    pub len: u64,
    /// Number of valid records.
    pub records: u64,
    /// Where the last valid record ends. If the file was being written during a crash, the bytes from here on are a
    /// torn tail.
    pub valid_len: u64,
    /// Byte ranges before `valid_len` that are not valid records: damage, or values that were being written during a
    /// crash. At most 1000 ranges are kept.
    pub gaps: Vec<Range<u64>>,
    /// Total length in bytes of all such ranges, including those not kept.
    pub gap_bytes: u64,
}

impl VlogReport {
    /// Returns whether every byte belongs to a valid record.
    pub fn is_whole(&self) -> bool {
        self.gap_bytes == 0 && self.valid_len == self.len
    }

    /// Returns the number of bytes after the last valid record.
    pub fn tail_bytes(&self) -> u64 {
        self.len - self.valid_len
    }
}

/// The part of the file in memory; it moves forward during the scan.
struct Window<'a> {
    file: &'a VlogFile,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Returns the header at `offset` if it is valid and its payload fits the file.
    fn header(&mut self, offset: u64) -> Result<Option<VlogRecordHeader>> {
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
        let header =
            VlogRecordHeader::decode(&self.bytes[at..at + RECORD_HEADER_BYTES], &self.file.salt, offset);
        let room = self.len - offset - RECORD_HEADER_BYTES as u64;
        Ok(header.filter(|h| u64::from(h.disk_len) <= room))
    }
}

/// Scans the first `len` bytes of `file` and passes every valid record to `visit`. Uses memory for the largest record.
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
                // The header is valid, so the next record starts after the damaged payload.
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
