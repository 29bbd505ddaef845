//! Reads a log that another process may be writing.
//!
//! Records are written concurrently, so a valid record may follow one that is still being written. A [`LogTail`] reads
//! the gap-free prefix: it stops at the first place where no valid record begins, and the next read continues there. A
//! record is valid if its checksum, which is bound to the salt of the segment and to the address, matches. So a record
//! that is half written, and a stale one in a file that was used before, are never taken for a record.
//!
//! The writer may remove or reuse a segment at any time, after its manifest has moved the start of the log past it. The
//! records that were read are still a prefix of the commits, but the place where the read stopped may not be the end of
//! that prefix. So the caller reads the manifest after the log, and reads again if the log begins above
//! [`LogTail::segment`] by then.
//!
//! If some record or the manifest states that a place was written, and no valid record begins there even when read
//! again, that is damage. After a reboot of the machine or a failed sync, only statements about what was synced are
//! trusted.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::{Access, Buffer, Dir, File, FileExt};

use super::layout::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT,
};
use super::piece::Piece;
use crate::types::{SeqNo, WalId};
use crate::{Error, Result, files};

/// First and largest length of a read.
const READ_BYTES_MIN: u64 = 4 << 10;
const READ_BYTES_MAX: u64 = 1 << 20;

/// Properties of the log.
#[derive(Clone, Copy, Debug)]
pub struct TailConfig {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Identity of the database.
    pub db_uuid: [u8; 16],
    /// Identity of this boot of the machine.
    pub boot_id: [u8; 16],
}

/// A log and how far it was read.
#[derive(Clone, Debug)]
pub struct LogTail {
    config: TailConfig,
    /// Number of the segment file of the next record, and its offset there.
    segment: u64,
    offset: u64,
    /// Salt of that file, if a record of it was read.
    salt: Option<[u8; 16]>,
    /// Whether the last file that was opened was written before the machine started, or before a sync failed.
    may_have_lost: bool,
}

/// What is known of the records that were written.
#[derive(Clone, Copy)]
struct Bound {
    /// All records below were written.
    durable: SeqNo,
    /// Whether nothing that was written can be lost.
    same_boot: bool,
}

/// What follows the records of a read.
enum Next {
    /// More bytes of the segment are needed: at least this many from the place reached.
    More(u64),
    /// The segment ends.
    Segment,
    /// No valid record begins here. A later record, or the manifest, says whether one was written.
    Hole { written: bool },
}

/// A segment that is open.
struct OpenSegment {
    name: Arc<str>,
    file: Arc<dyn File>,
    header: SegmentHeader,
}

impl LogTail {
    /// A log whose first record is the first one of segment `first`.
    pub fn new(config: TailConfig, first: WalId) -> Self {
        Self { config, segment: first.0, offset: SEGMENT_HEADER_BYTES, salt: None, may_have_lost: false }
    }

    /// Returns whether records that were never synced may be gone: the machine was restarted since, or a sync failed.
    pub fn may_have_lost_records(&self) -> bool {
        self.may_have_lost
    }

    /// The segment of the next record.
    pub fn segment(&self) -> WalId {
        WalId(self.segment)
    }

    /// First sequence number that was not read.
    pub fn end(&self) -> SeqNo {
        (self.segment * self.config.segment_bytes + self.offset) / UNIT
    }

    /// Continues with the first record of segment `first`.
    pub fn restart(&mut self, first: WalId) {
        *self = Self::new(self.config, first);
    }

    /// Returns whether there may be a record to read.
    ///
    /// # Errors
    /// `Io`; `Corrupt` also if the segment was reused.
    pub fn has_more(&self, dir: &dyn Dir) -> Result<bool> {
        let Some(open) = self.open(dir)? else { return Ok(false) };
        let mut head = [0; RECORD_HEADER_BYTES];
        let left = open.header.file_bytes() - self.offset;
        if left < head.len() as u64 {
            return Ok(true); // the next segment
        }
        open.read(&mut head, self.offset)?;
        Ok(RecordHeader::looks_like(&head, self.end()))
    }

    /// Passes the next commits to `apply`, in order, in pieces, with whether nothing that was written before them can be
    /// lost because the machine still runs. All records below `durable` were written. `apply` returns the first commit
    /// that it did not apply, if any; the read ends there.
    ///
    /// # Errors
    /// Errors of `apply`, which then has applied nothing of the piece; `Corrupt`, also if the segment was reused; `Io`.
    pub fn read(
        &mut self,
        dir: &dyn Dir,
        durable: SeqNo,
        mut apply: impl FnMut(&Piece, bool) -> Result<Option<SeqNo>>,
    ) -> Result<()> {
        while let Some(open) = self.open(dir)? {
            self.salt = Some(open.header.salt);
            let same_boot = open.header.is_of_boot(&self.config.boot_id) && !sync_has_failed(dir)?;
            self.may_have_lost = !same_boot;
            let bound = Bound { durable, same_boot };
            if !self.read_segment(&open, bound, &mut |piece| apply(piece, same_boot))? {
                return Ok(());
            }
            self.restart(WalId(self.segment + u64::from(open.header.span)));
            self.may_have_lost = !same_boot;
        }
        Ok(())
    }

    /// Reads one segment. Returns whether its end was reached.
    fn read_segment(
        &mut self,
        open: &OpenSegment,
        bound: Bound,
        apply: &mut dyn FnMut(&Piece) -> Result<Option<SeqNo>>,
    ) -> Result<bool> {
        let mut want = READ_BYTES_MIN;
        let mut read_again = None;
        loop {
            let bytes = open.bytes(self.offset, want)?;
            let (commits, used, next) = self.parse(&open.header, &bytes, bound);
            if !commits.is_empty() {
                let mut piece = Piece::new(&open.name, &Arc::new(bytes), self.offset);
                commits.into_iter().for_each(|(seq, at)| piece.push(seq, at));
                if let Some(stop) = apply(&piece)? {
                    self.offset = stop * UNIT - self.segment * self.config.segment_bytes;
                    return Ok(false);
                }
            }
            self.offset += used;
            want = match next {
                Next::More(needed) => needed.max((want * 2).min(READ_BYTES_MAX)),
                Next::Segment => return Ok(true),
                Next::Hole { written: false } => return Ok(false),
                // The bytes of one read may be of different times. Those of a second read are later than the statement.
                Next::Hole { written: true } if read_again != Some(self.offset) => {
                    read_again = Some(self.offset);
                    READ_BYTES_MIN
                }
                Next::Hole { written: true } => {
                    let what = "a record that was complete is damaged";
                    return Err(Error::corrupt(&open.name, self.offset, what));
                }
            };
        }
    }

    /// Returns the commits in `bytes`, which begin at the next record, and how many bytes the records take.
    fn parse(
        &self,
        segment: &SegmentHeader,
        bytes: &[u8],
        bound: Bound,
    ) -> (Vec<(SeqNo, Range<usize>)>, u64, Next) {
        let len = segment.file_bytes();
        let (mut commits, mut pos) = (Vec::new(), 0);
        let next = loop {
            let (at, rest) = (self.offset + pos as u64, &bytes[pos..]);
            if len - at < RECORD_HEADER_BYTES as u64 {
                break Next::Segment;
            }
            if rest.len() < RECORD_HEADER_BYTES {
                break Next::More(RECORD_HEADER_BYTES as u64);
            }
            let seq = (segment.id * segment.segment_bytes + at) / UNIT;
            let needed = RecordHeader::bytes_needed(rest);
            if RecordHeader::looks_like(rest, seq) && needed <= len - at && needed > rest.len() as u64 {
                break Next::More(needed);
            }
            let record = RecordHeader::decode(rest, seq, &segment.salt).map(|(record, _)| record);
            let record = record.filter(|r| r.kind != RecordKind::Pad || r.record_bytes() == len - at);
            let Some(record) = record else {
                let written = seq < bound.durable || is_stated(segment, seq, at, rest, bound.same_boot);
                break Next::Hole { written };
            };
            if record.kind == RecordKind::Pad {
                break Next::Segment;
            }
            if record.kind == RecordKind::Commit {
                let body = pos + RECORD_HEADER_BYTES;
                commits.push((seq, body..body + record.body_len as usize));
            }
            pos += record.record_bytes() as usize;
            if segment.span > 1 {
                break Next::Segment; // the file of an oversized record holds only that record
            }
        };
        (commits, pos as u64, next)
    }

    /// Opens the segment of the next record; `None` if there is none under its name.
    fn open(&self, dir: &dyn Dir) -> Result<Option<OpenSegment>> {
        let name = files::wal(WalId(self.segment));
        let file = match dir.open(&name, Access::Read) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|e| Error::io("open", &name, e))?,
        };
        let mut head = vec![0; SEGMENT_HEADER_BYTES as usize];
        file.read_exact_at(&mut head, 0).map_err(|e| Error::io_at("read", &name, 0, e))?;
        let header = SegmentHeader::decode(&head, &name)?;
        header.check_place(self.segment(), &self.config.db_uuid, self.config.segment_bytes, &name)?;
        // A segment that was prepared and is empty may be replaced by one for an oversized record.
        if self.offset > SEGMENT_HEADER_BYTES && self.salt != Some(header.salt) {
            return Err(Error::corrupt(&name, 0, "the segment was replaced by another one"));
        }
        Ok(Some(OpenSegment { name: name.into(), file, header }))
    }
}

/// Returns whether a record in `rest`, which begins at the hole `seq` at offset `at`, states that the log was written
/// beyond the hole. Without the same boot, only a statement that it was synced is trusted.
fn is_stated(segment: &SegmentHeader, seq: SeqNo, at: u64, rest: &[u8], same_boot: bool) -> bool {
    let stated = |record: RecordHeader| match same_boot {
        true => record.complete.max(record.synced),
        false => record.synced,
    };
    let places = (UNIT as usize..rest.len()).step_by(UNIT as usize);
    places.map(|place| (place, (segment.id * segment.segment_bytes + at + place as u64) / UNIT)).any(
        |(place, later)| {
            RecordHeader::looks_like(&rest[place..], later)
                && RecordHeader::decode(&rest[place..], later, &segment.salt)
                    .is_some_and(|(record, _)| stated(record) > seq)
        },
    )
}

/// Returns whether a sync failed, after which the system may have dropped bytes that were written.
fn sync_has_failed(dir: &dyn Dir) -> Result<bool> {
    match dir.open(files::SYNC_FAILED, Access::Read) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("open", files::SYNC_FAILED, e)),
    }
}

impl OpenSegment {
    /// Reads `want` bytes at `offset`, or what the segment has.
    fn bytes(&self, offset: u64, want: u64) -> Result<Buffer> {
        let left = self.header.file_bytes().saturating_sub(offset);
        let mut bytes = Buffer::zeroed(want.min(left) as usize)
            .ok_or_else(|| Error::MemoryLimit { what: "reading the log".into() })?;
        self.read(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(bytes, offset).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => {
                Error::corrupt(&self.name, offset, "the file is not as long as its header says")
            }
            _ => Error::io_at("read", &self.name, offset, e),
        })
    }
}
