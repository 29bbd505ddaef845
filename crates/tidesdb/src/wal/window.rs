//! Reads the records of a segment through a window of bounded length, whatever the length of the segment and of its records.

use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::{Access, Buffer, Dir, File, FileExt, crc32c};

use super::layout::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT,
};
use super::piece::{LargeCommit, Piece, fresh};
use crate::types::{SeqNo, WalId};
use crate::{Error, Result, files};

/// Shortest window.
const WINDOW_BYTES_MIN: usize = 4096;

/// Why a segment cannot be read.
pub(super) enum Unusable {
    /// Its header or its length is damaged.
    Damaged(Error),
    /// It is valid but does not match its name: files were moved.
    Foreign(Error),
    /// It could not be read.
    Failed(Error),
}

impl From<Unusable> for Error {
    fn from(e: Unusable) -> Self {
        match e {
            Unusable::Damaged(e) | Unusable::Foreign(e) | Unusable::Failed(e) => e,
        }
    }
}

/// A part of one segment file in memory.
pub(super) struct Window {
    bytes: Arc<Buffer>,
    /// Used for the next read, instead of `bytes`, while a piece still uses `bytes`.
    spare: Arc<Buffer>,
    /// Where it begins in the file.
    base: u64,
    /// Bytes that were read.
    len: usize,
    len_max: usize,
}

impl Window {
    /// An empty window that reads about `len_max` bytes at once.
    pub(super) fn new(len_max: usize) -> Self {
        Self {
            bytes: Arc::default(),
            spare: Arc::default(),
            base: 0,
            len: 0,
            len_max: len_max.max(WINDOW_BYTES_MIN),
        }
    }

    /// Returns the bytes of the window from offset `at` of the file on.
    #[inline]
    fn from(&self, at: u64) -> &[u8] {
        match at.checked_sub(self.base) {
            Some(skip) if skip < self.len as u64 => &self.bytes[skip as usize..self.len],
            _ => &[],
        }
    }
}

/// An open segment. Its window moves forward with the records that are asked for.
pub(super) struct SegmentReader<'w> {
    pub(super) header: SegmentHeader,
    name: Arc<str>,
    file: Arc<dyn File>,
    window: &'w mut Window,
}

impl<'w> SegmentReader<'w> {
    /// Opens segment `id` and checks its header.
    pub(super) fn open(
        dir: &dyn Dir,
        id: WalId,
        db_uuid: &[u8; 16],
        segment_bytes: u64,
        window: &'w mut Window,
    ) -> std::result::Result<Self, Unusable> {
        let name = files::wal(id);
        let io = |op| move |e| Unusable::Failed(Error::io(op, &files::wal(id), e));
        let file = dir.open(&name, Access::Read).map_err(io("open"))?;
        let len = file.len().map_err(io("read length"))?;
        let mut head = vec![0; len.min(SEGMENT_HEADER_BYTES) as usize];
        file.read_exact_at(&mut head, 0).map_err(|e| Unusable::Failed(Error::io_at("read", &name, 0, e)))?;
        let header = SegmentHeader::decode(&head, &name)
            .map_err(|e| if e.is_corruption() { Unusable::Damaged(e) } else { Unusable::Failed(e) })?;
        header.check_place(id, db_uuid, segment_bytes, &name).map_err(Unusable::Foreign)?;
        if header.segment_bytes.checked_mul(u64::from(header.span)) != Some(len) {
            let what = "the file is not as long as its header says";
            return Err(Unusable::Damaged(Error::corrupt(&name, len, what)));
        }
        window.len = 0;
        Ok(Self { header, name: name.into(), file, window })
    }

    /// The sequence number of a record at `at` of the file.
    pub(super) fn seq_at(&self, at: u64) -> SeqNo {
        (self.header.id * self.header.segment_bytes + at) / UNIT
    }

    /// Returns whether the window need not move to look for a record at `at`.
    pub(super) fn has(&self, at: u64) -> bool {
        let rest = self.window.from(at);
        if rest.len() < RECORD_HEADER_BYTES {
            return false;
        }
        let needed = RecordHeader::bytes_needed(rest);
        needed <= rest.len() as u64
            || !RecordHeader::looks_like(rest, self.seq_at(at))
            || needed > self.header.file_bytes() - at
    }

    /// The valid record at `at`, if one begins there.
    ///
    /// # Errors
    /// `Io`, `MemoryLimit`.
    pub(super) fn record_at(&mut self, at: u64) -> Result<Option<RecordHeader>> {
        if !self.has(at) {
            self.move_to(at)?;
        }
        let (seq, left) = (self.seq_at(at), self.header.file_bytes() - at);
        let rest = self.window.from(at);
        if !RecordHeader::looks_like(rest, seq) {
            return Ok(None);
        }
        let needed = RecordHeader::bytes_needed(rest);
        let record = if needed > left {
            None
        } else if needed <= rest.len() as u64 {
            RecordHeader::decode(rest, seq, &self.header.salt).map(|(record, _)| record)
        } else {
            self.check_large(at, needed)?
        };
        Ok(record.filter(|record| record.kind != RecordKind::Pad || record.record_bytes() == left))
    }

    /// The first offset from `at` to `end` at which a valid record begins.
    ///
    /// # Errors
    /// `Io`, `MemoryLimit`.
    pub(super) fn next_record(&mut self, mut at: u64, end: u64) -> Result<Option<u64>> {
        while at + RECORD_HEADER_BYTES as u64 <= end {
            if self.window.from(at).len() < RECORD_HEADER_BYTES {
                self.move_to(at)?;
            }
            let blank = leading_zeros(self.window.from(at));
            if blank > RECORD_HEADER_BYTES {
                at += (blank - RECORD_HEADER_BYTES) as u64; // no sequence number is 0
                continue;
            }
            let (seq, rest) = (self.seq_at(at), self.window.from(at));
            let headers = rest.windows(RECORD_HEADER_BYTES).step_by(UNIT as usize);
            let places = headers.len() as u64;
            match headers.zip(seq..).position(|(head, seq)| RecordHeader::looks_like(head, seq)) {
                None => at += places * UNIT,
                Some(n) => {
                    at += n as u64 * UNIT;
                    if self.record_at(at)?.is_some() {
                        return Ok(Some(at));
                    }
                    at += UNIT;
                }
            }
        }
        Ok(None)
    }

    /// Checks a record of `bytes` bytes that is longer than the window.
    fn check_large(&mut self, at: u64, bytes: u64) -> Result<Option<RecordHeader>> {
        let (seq, head) = (self.seq_at(at), &self.window.from(at)[..RECORD_HEADER_BYTES]);
        let Some(record) = RecordHeader::decode_unchecked(head, seq) else { return Ok(None) };
        let expected = RecordHeader::crc_of(head);
        let mut crc = RecordHeader::begin_crc(head, seq, &self.header.salt);
        let (mut done, end) = (at + RECORD_HEADER_BYTES as u64, at + bytes);
        while done < end {
            self.move_to(done)?;
            let part = self.window.from(done);
            let part = &part[..part.len().min((end - done) as usize)];
            crc = crc32c(crc, part);
            done += part.len() as u64;
        }
        Ok((crc == expected).then_some(record))
    }

    /// Fills the window again, from `at` on.
    fn move_to(&mut self, at: u64) -> Result<()> {
        let len = (self.header.file_bytes() - at).min(self.window.len_max as u64) as usize;
        self.window.len = 0;
        if Arc::get_mut(&mut self.window.bytes).is_none() {
            std::mem::swap(&mut self.window.bytes, &mut self.window.spare);
        }
        let bytes = fresh(&mut self.window.bytes, len)?;
        self.file
            .read_exact_at(&mut bytes[..len], at)
            .map_err(|e| Error::io_at("read", &self.name, at, e))?;
        (self.window.base, self.window.len) = (at, len);
        Ok(())
    }

    /// A piece without commits, for those in the window.
    pub(super) fn piece(&self) -> Piece {
        Piece::new(&self.name, &self.window.bytes, self.window.base)
    }

    /// Where the body of the valid `record` at `at` lies in the window; `None` if the record is longer than the window.
    pub(super) fn body_of(&self, record: &RecordHeader, at: u64) -> Option<Range<usize>> {
        let begin = at.checked_sub(self.window.base)? as usize + RECORD_HEADER_BYTES;
        let end = begin + record.body_len as usize;
        (end <= self.window.len).then_some(begin..end)
    }

    /// The valid `record` at `at`, to be read in parts.
    pub(super) fn large(&self, record: &RecordHeader, at: u64) -> LargeCommit {
        LargeCommit {
            seq: record.seq,
            body_bytes: u64::from(record.body_len),
            name: Arc::clone(&self.name),
            file: Arc::clone(&self.file),
            salt: self.header.salt,
            at,
        }
    }
}

/// Zero bytes at the beginning of `bytes`, in whole blocks: most of a segment may never have been written.
fn leading_zeros(bytes: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    let is_zero = |block: &&[u8; BLOCK]| {
        let words = block.as_chunks::<8>().0.iter();
        words.fold(0, |all, word| all | u64::from_le_bytes(*word)) == 0
    };
    bytes.as_chunks::<BLOCK>().0.iter().take_while(is_zero).count() * BLOCK
}
