//! Places that look like the beginning of a record: a check of any number of them takes work that is linear in the log.
//!
//! A record is valid if the checksum over its header and its body matches, which takes as long as the body. After a hole, every place may
//! be the next record, and a reused file holds old bytes, among them values that users have chosen: nothing keeps a value from looking
//! like the headers of a thousand records that all reach to the end of the segment. So once some candidates were checked in vain, each
//! further one is first looked up in the [`PartSums`] of the rest of the segment. That takes the same time for a body of any length, and
//! only a valid record passes it, unless the file is being written.

use super::layout::{RECORD_HEADER_BYTES, RecordHeader, SegmentHeader, UNIT};
use crate::Result;
use crate::codec::PartSums;

/// Bytes of candidates that are checked in vain before a sum of the rest of the segment is worth its cost: more than a record that was cut
/// off has, in most logs.
const VAIN_BYTES_MAX: u64 = 64 << 10;

/// The candidates of one segment, which are checked in order of their offsets.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Bytes of the candidates that were not valid.
    vain_bytes: u64,
    sums: Option<PartSums>,
}

impl Candidates {
    /// Returns true if candidates are cheap to check: not much was checked in vain.
    #[inline]
    pub(super) fn are_few(&self) -> bool {
        self.vain_bytes <= VAIN_BYTES_MAX
    }

    /// Notes that no valid record begins where `head` does, of which at most `room` bytes were checked.
    pub(super) fn note_invalid(&mut self, head: &[u8], room: u64) {
        self.vain_bytes = self.vain_bytes.saturating_add(RecordHeader::bytes_needed(head).min(room));
    }

    /// Returns false if no valid record begins at `at` of `segment`, where `head` is, and ends at `end` or before. `read` fills a buffer
    /// with the bytes at an offset.
    ///
    /// # Errors
    /// Errors of `read`; `MemoryLimit`.
    pub(super) fn may_be_valid(
        &mut self,
        segment: &SegmentHeader,
        head: &[u8],
        at: u64,
        end: u64,
        mut read: impl FnMut(&mut [u8], u64) -> Result<()>,
    ) -> Result<bool> {
        let seq = segment.seq_at(at);
        let Some(record) = RecordHeader::decode_unchecked(head, seq) else { return Ok(false) };
        let body = at + RECORD_HEADER_BYTES as u64;
        let body_end = if record.kind.is_pad() { body } else { at + record.record_bytes() };
        if body_end > end {
            return Ok(false);
        }
        let sums = match &mut self.sums {
            Some(sums) => sums,
            none => none.insert(PartSums::of(at..end, &mut read)?),
        };
        let crc = RecordHeader::begin_crc(head, seq, &segment.salt);
        Ok(sums.crc(crc, body..body_end, read)? == RecordHeader::crc_of(head))
    }
}

/// A part of a segment that is in memory as a whole.
#[derive(Debug)]
pub struct PartInMemory<'a> {
    segment: &'a SegmentHeader,
    bytes: &'a [u8],
    /// Where `bytes` begin in the file.
    base: u64,
    candidates: Candidates,
}

impl<'a> PartInMemory<'a> {
    /// The part of `segment` whose `bytes` begin at `base` of the file.
    pub fn new(segment: &'a SegmentHeader, bytes: &'a [u8], base: u64) -> Self {
        Self { segment, bytes, base, candidates: Candidates::default() }
    }

    /// Returns the valid record at `at` of the file, if one begins there and ends in this part. Calls must be in order of `at`.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub fn record_at(&mut self, at: u64) -> Result<Option<RecordHeader>> {
        let Self { segment, bytes, base, candidates } = self;
        let rest = at.checked_sub(*base).and_then(|skip| bytes.get(usize::try_from(skip).ok()?..));
        let Some(rest) = rest.filter(|rest| RecordHeader::looks_like(rest, segment.seq_at(at))) else {
            return Ok(None);
        };
        let read = |out: &mut [u8], from: u64| {
            out.copy_from_slice(&bytes[(from - *base) as usize..][..out.len()]);
            Ok(())
        };
        let end = *base + bytes.len() as u64;
        if !candidates.are_few() && !candidates.may_be_valid(segment, rest, at, end, read)? {
            return Ok(None);
        }
        let found = segment.record_at(rest, at);
        if found.is_none() {
            candidates.note_invalid(rest, rest.len() as u64);
        }
        Ok(found)
    }

    /// Returns the first offset from `at` on at which a valid record begins that ends in this part, and the record.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub fn next_record(&mut self, at: u64) -> Result<Option<(u64, RecordHeader)>> {
        if self.segment.span > 1 {
            return Ok(None); // the file of an oversized record holds only that record
        }
        let end = self.base + self.bytes.len() as u64;
        for at in (at..end).step_by(UNIT as usize) {
            if let Some(record) = self.record_at(at)? {
                return Ok(Some((at, record)));
            }
        }
        Ok(None)
    }
}
