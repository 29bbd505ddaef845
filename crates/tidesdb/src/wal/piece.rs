//! Commits of the log as recovery passes them on: many short ones in a [`Piece`], or a [`LargeCommit`] that is read in parts.

use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::{Buffer, File, FileExt, crc32c};

use super::layout::{RECORD_HEADER_BYTES, RecordHeader, UNIT, record_bytes};
use crate::codec::Salt;
use crate::types::SeqNo;
use crate::{Error, Result};

/// Consecutive commits of one segment.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Name of the segment file.
    pub file: Arc<str>,
    bytes: Arc<Buffer>,
    /// Where `bytes` begin in the file.
    base: u64,
    commits: Vec<Place>,
}

/// Where a commit, or a part of one, lies.
#[derive(Clone, Debug)]
struct Place {
    seq: SeqNo,
    /// As [`LoggedCommit::is_ingest`].
    is_ingest: bool,
    /// As [`LoggedCommit::rank`].
    rank: u32,
    /// Its operations in the bytes of the piece.
    at: Range<usize>,
}

/// One commit of the log, or a part of a large one.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCommit<'a> {
    /// Its sequence number.
    pub seq: SeqNo,
    /// True if it takes tables: its body names these in place of operations.
    pub is_ingest: bool,
    /// Number of operations with a rank in earlier parts of the commit.
    pub rank: u32,
    /// Its operations.
    pub body: &'a [u8],
    /// The file that it is in.
    pub file: &'a str,
    /// Where the body begins in the file.
    pub offset: u64,
}

impl LoggedCommit<'_> {
    /// The first sequence number after the whole commit, of which this is not a part.
    pub fn end(&self) -> SeqNo {
        self.seq + record_bytes(self.body.len() as u64) / UNIT
    }
}

impl Piece {
    /// A piece without commits. These lie in `bytes`, which begin at `base` of `file`.
    pub(super) fn new(file: &Arc<str>, bytes: &Arc<Buffer>, base: u64) -> Self {
        Self { file: Arc::clone(file), bytes: Arc::clone(bytes), base, commits: Vec::new() }
    }

    /// Adds the commit `record`, whose body lies at `at` of the bytes.
    pub(super) fn push(&mut self, record: &RecordHeader, at: Range<usize>) {
        let is_ingest = record.kind.takes_tables();
        self.commits.push(Place { seq: record.seq, is_ingest, rank: 0, at });
    }

    /// The commits in order.
    pub fn commits(&self) -> impl ExactSizeIterator<Item = LoggedCommit<'_>> {
        self.commits.iter().map(|Place { seq, is_ingest, rank, at }| LoggedCommit {
            seq: *seq,
            is_ingest: *is_ingest,
            rank: *rank,
            body: &self.bytes[at.clone()],
            file: &self.file,
            offset: self.base + at.start as u64,
        })
    }

    /// Bytes of the commits, with what lies between them.
    pub fn bytes(&self) -> usize {
        match (self.commits.first(), self.commits.last()) {
            (Some(first), Some(last)) => last.at.end - first.at.start,
            _ => 0,
        }
    }

    /// Cuts the piece into at most `parts` of about the same size, in order.
    pub fn split(&self, parts: usize) -> Vec<Self> {
        let mut out = Vec::new();
        let mut rest = &self.commits[..];
        for left in (1..=parts.max(1)).rev() {
            let (Some(first), Some(last)) = (rest.first(), rest.last()) else {
                break;
            };
            let end = first.at.start + (last.at.end - first.at.start).div_ceil(left);
            let n = rest.partition_point(|commit| commit.at.end <= end).max(1);
            let (commits, later) = rest.split_at(n);
            out.push(Self { commits: commits.to_vec(), ..Self::new(&self.file, &self.bytes, self.base) });
            rest = later;
        }
        out
    }

    /// The commits from `seq` on.
    #[must_use]
    pub fn from(&self, seq: SeqNo) -> Self {
        let at = self.commits.partition_point(|commit| commit.seq < seq);
        Self { commits: self.commits[at..].to_vec(), ..Self::new(&self.file, &self.bytes, self.base) }
    }

    /// The first `bytes` bytes of a piece with one commit.
    #[must_use]
    pub fn prefix(&self, bytes: usize) -> Self {
        let mut this = self.clone();
        if let [place] = &mut this.commits[..] {
            place.at.end = place.at.end.min(place.at.start + bytes);
        }
        this
    }

    /// Number of the first commit that takes tables.
    pub fn first_ingest(&self) -> Option<SeqNo> {
        self.commits.iter().find(|commit| commit.is_ingest).map(|commit| commit.seq)
    }

    /// Removes the commits from `seq` on.
    pub fn truncate(&mut self, seq: SeqNo) {
        self.commits.truncate(self.commits.partition_point(|commit| commit.seq < seq));
    }
}

/// A valid commit that is too long to be kept in memory as a whole.
#[derive(Clone, Debug)]
pub struct LargeCommit {
    /// Its sequence number.
    pub seq: SeqNo,
    /// As [`LoggedCommit::is_ingest`].
    pub is_ingest: bool,
    /// Bytes of its operations.
    pub body_bytes: u64,
    /// The file that it is in.
    pub name: Arc<str>,
    pub(super) file: Arc<dyn File>,
    pub(super) salt: Salt,
    /// Where its record begins in the file.
    pub(super) at: u64,
}

/// The result of passing on a part of a large commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The first operations were used: their bytes, and how many of them have a rank. The next part begins after them. If the bytes
    /// are 0, the next part is longer.
    Operations(usize, u32),
    /// Nothing more is wanted.
    Enough,
}

impl LargeCommit {
    /// Where its operations begin in the file.
    pub fn offset(&self) -> u64 {
        self.at + RECORD_HEADER_BYTES as u64
    }

    /// Passes the operations to `take` in order, in parts of about `part_bytes`, each a piece with one commit. A part may end within an
    /// operation; the last part, which must be used as a whole, does not.
    ///
    /// # Errors
    /// Errors of `take`; `Io`; `MemoryLimit`; `Corrupt` if the bytes are not those of the valid record that was found: then what was taken
    /// must not be used.
    pub fn read(&self, part_bytes: usize, mut take: impl FnMut(&Piece, bool) -> Result<Taken>) -> Result<()> {
        let mut head = [0; RECORD_HEADER_BYTES];
        self.fill(&mut head, self.at)?;
        let mut crc = RecordHeader::begin_crc(&head, self.seq, &self.salt);
        let (mut done, mut rank) = (0, 0);
        let (mut buffer, mut want) = (Arc::<Buffer>::default(), part_bytes.max(1));
        while done < self.body_bytes {
            let bytes = want.min((self.body_bytes - done) as usize);
            let part = self.part(&mut buffer, done, bytes)?;
            let piece = Piece {
                commits: vec![Place { seq: self.seq, is_ingest: self.is_ingest, rank, at: 0..bytes }],
                ..part
            };
            let is_last = done + bytes as u64 == self.body_bytes;
            match take(&piece, is_last)? {
                Taken::Enough => return Ok(()),
                Taken::Operations(0, _) => want = want.saturating_mul(2),
                Taken::Operations(used, ranks) => {
                    crc = crc32c(crc, &buffer[..used]);
                    (done, rank, want) = (done + used as u64, rank + ranks, part_bytes.max(1));
                }
            }
        }
        let padding = self.body_bytes.next_multiple_of(UNIT) - self.body_bytes;
        let part = self.part(&mut buffer, done, padding as usize)?;
        crc = crc32c(crc, &part.bytes[..padding as usize]);
        if crc == RecordHeader::crc_of(&head) {
            return Ok(());
        }
        Err(Error::corrupt(&self.name, self.at, "the record changed while the log was read"))
    }

    /// Reads `bytes` bytes of the body into `buffer`, from `done` on.
    fn part(&self, buffer: &mut Arc<Buffer>, done: u64, bytes: usize) -> Result<Piece> {
        let at = self.offset() + done;
        self.fill(&mut fresh(buffer, bytes)?[..bytes], at)?;
        Ok(Piece::new(&self.name, buffer, at))
    }

    fn fill(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.file.read_exact_at(bytes, at).map_err(|e| Error::io_at("read", &self.name, at, e))
    }
}

/// Returns a buffer of at least `bytes` bytes to be overwritten: that of `buffer`, if it is long enough and no piece uses it.
pub(super) fn fresh(buffer: &mut Arc<Buffer>, bytes: usize) -> Result<&mut Buffer> {
    if Arc::get_mut(buffer).is_none_or(|known| known.len() < bytes) {
        let new = Buffer::zeroed(bytes);
        *buffer = Arc::new(new.ok_or_else(|| Error::MemoryLimit { what: "reading the log".into() })?);
    }
    Ok(Arc::get_mut(buffer).expect("nothing else uses a new buffer"))
}
