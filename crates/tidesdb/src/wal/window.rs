//! Reads the records of a segment through a window of bounded length, whatever the length of the segment and of its records.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::{Access, Buffer, Dir, File, FileExt, crc32c};

use super::candidates::Candidates;
use super::layout::{RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT};
use super::piece::{LargeCommit, Piece, fresh};
use crate::types::WalId;
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

impl From<Error> for Unusable {
    fn from(e: Error) -> Self {
        if e.is_corruption() { Self::Damaged(e) } else { Self::Failed(e) }
    }
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
    /// An empty window that reads about `len_max` bytes at once, unless [`SegmentReader::load`] wants another length.
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
    pub(super) name: Arc<str>,
    file: Arc<dyn File>,
    window: &'w mut Window,
    candidates: Candidates,
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
        let file = dir.open(&name, Access::Read).map_err(|e| Error::io("open", &name, e))?;
        let mut head = vec![0; SEGMENT_HEADER_BYTES as usize];
        read(&*file, &name, &mut head, 0)?;
        let header = SegmentHeader::decode(&head, &name)?;
        header.check_place(id, db_uuid, segment_bytes, &name).map_err(Unusable::Foreign)?;
        window.len = 0;
        Ok(Self { header, name: name.into(), file, window, candidates: Candidates::default() })
    }

    /// Checks that the file is as long as its header says.
    pub(super) fn check_len(&self) -> Result<()> {
        let len = self.file.len().map_err(|e| Error::io("read length", &self.name, e))?;
        match self.header.segment_bytes.checked_mul(u64::from(self.header.span)) {
            Some(expected) if expected == len => Ok(()),
            _ => Err(wrong_length(&self.name, len)),
        }
    }

    /// Reads `want` bytes at `at`, or what the file has. Returns them.
    pub(super) fn load(&mut self, at: u64, want: u64) -> Result<&[u8]> {
        self.window.len_max = usize::try_from(want).unwrap_or(usize::MAX);
        self.move_to(at)?;
        Ok(self.loaded())
    }

    /// The bytes that were read last.
    pub(super) fn loaded(&self) -> &[u8] {
        self.window.from(self.window.base)
    }

    /// Returns whether the window need not move to look for a record at `at`.
    pub(super) fn has(&self, at: u64) -> bool {
        self.header.bytes_missing(self.window.from(at), at).is_none()
    }

    /// The valid record at `at`, if one begins there. Calls must be in order of `at`.
    ///
    /// # Errors
    /// `Io`, `MemoryLimit`.
    pub(super) fn record_at(&mut self, at: u64) -> Result<Option<RecordHeader>> {
        if !self.candidates.are_few() && !self.may_be_valid(at)? {
            return Ok(None);
        }
        if !self.has(at) {
            self.move_to(at)?;
        }
        let rest = self.window.from(at);
        let seq = self.header.seq_at(at);
        let head = rest.first_chunk::<RECORD_HEADER_BYTES>().copied();
        let found = match self.header.bytes_missing(rest, at) {
            None => self.header.record_at(rest, at),
            Some(needed) => self.check_large(at, needed)?,
        };
        if let Some(head) = head.filter(|head| found.is_none() && RecordHeader::looks_like(head, seq)) {
            self.candidates.note_invalid(&head, self.header.file_bytes() - at);
        }
        Ok(found)
    }

    /// Returns false if no valid record begins at `at`, after some work that does not depend on the length of the record.
    fn may_be_valid(&mut self, at: u64) -> Result<bool> {
        if self.window.from(at).len() < RECORD_HEADER_BYTES {
            self.move_to(at)?;
        }
        let Self { header, name, file, window, candidates } = self;
        let head = window.from(at);
        if !RecordHeader::looks_like(head, header.seq_at(at)) {
            return Ok(false);
        }
        candidates
            .may_be_valid(header, head, at, header.file_bytes(), |bytes, at| read(&**file, name, bytes, at))
    }

    /// The first offset from `at` to `end` at which a valid record begins.
    ///
    /// # Errors
    /// `Io`, `MemoryLimit`.
    pub(super) fn next_record(&mut self, mut at: u64, end: u64) -> Result<Option<u64>> {
        if self.header.span > 1 {
            return Ok(None); // the file of an oversized record holds only that record
        }
        while at + RECORD_HEADER_BYTES as u64 <= end {
            if self.window.from(at).len() < RECORD_HEADER_BYTES {
                self.move_to(at)?;
            }
            let blank = leading_zeros(self.window.from(at));
            if blank > RECORD_HEADER_BYTES {
                at += (blank - RECORD_HEADER_BYTES) as u64; // no sequence number is 0
                continue;
            }
            let (seq, rest) = (self.header.seq_at(at), self.window.from(at));
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
        let (seq, head) = (self.header.seq_at(at), &self.window.from(at)[..RECORD_HEADER_BYTES]);
        let Some(record) = RecordHeader::decode_unchecked(head, seq) else { return Ok(None) };
        let expected = RecordHeader::crc_of(head);
        let mut crc = RecordHeader::begin_crc(head, seq, &self.header.salt);
        let (mut done, end) = (at + RECORD_HEADER_BYTES as u64, at + bytes);
        while done < end {
            self.move_to(done)?;
            let part = self.window.from(done);
            let part = &part[..(part.len() as u64).min(end - done) as usize];
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
        read(&*self.file, &self.name, &mut bytes[..len], at)?;
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
        let end = begin.checked_add(record.body_len as usize)?;
        (end <= self.window.len).then_some(begin..end)
    }

    /// The valid `record` at `at`, to be read in parts.
    pub(super) fn large(&self, record: &RecordHeader, at: u64) -> LargeCommit {
        LargeCommit {
            seq: record.seq,
            is_ingest: record.kind.takes_tables(),
            body_bytes: u64::from(record.body_len),
            name: Arc::clone(&self.name),
            file: Arc::clone(&self.file),
            salt: self.header.salt,
            at,
        }
    }
}

fn read(file: &dyn File, name: &str, bytes: &mut [u8], at: u64) -> Result<()> {
    file.read_exact_at(bytes, at).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => wrong_length(name, at),
        _ => Error::io_at("read", name, at, e),
    })
}

fn wrong_length(name: &str, at: u64) -> Error {
    Error::corrupt(name, at, "the file is not as long as its header says")
}

/// Zero bytes at the beginning of `bytes`, in whole blocks: most of a segment may never have been written.
fn leading_zeros(bytes: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    // In lines: what is not zero ends the search at once, and each candidate for a record is followed by one.
    let is_blank = |line: &[u8; 64]| {
        let words = line.as_chunks::<8>().0.iter();
        words.fold(0, |all, word| all | u64::from_le_bytes(*word)) == 0
    };
    let is_zero = |block: &&[u8; BLOCK]| block.as_chunks::<64>().0.iter().all(is_blank);
    bytes.as_chunks::<BLOCK>().0.iter().take_while(is_zero).count() * BLOCK
}
