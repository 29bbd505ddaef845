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

use tidesdb_io::{Access, Dir};

use super::candidates::PartInMemory;
use super::layout::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT,
};
use super::piece::Piece;
use super::window::{SegmentReader, Unusable, Window};
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
    /// Identity of this boot of the machine, with the mount of the file system.
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

/// What follows the records of a read.
enum Next {
    /// More bytes of the segment are needed: at least this many from the place reached.
    More(u64),
    /// The segment ends.
    Segment,
    /// No valid record begins here. A later record, or the manifest, says whether one was written.
    Hole { written: bool },
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
        let mut window = Window::new(0);
        let Some(mut segment) = self.open(dir, &mut window)? else { return Ok(false) };
        let head = segment.load(self.offset, RECORD_HEADER_BYTES as u64)?;
        let is_at_end = head.len() < RECORD_HEADER_BYTES; // then there may be a next segment
        Ok(is_at_end || RecordHeader::looks_like(head, self.end()))
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
        let mut window = Window::new(0);
        while let Some(mut segment) = self.open(dir, &mut window)? {
            self.salt = Some(segment.header.salt);
            let same_boot = segment.header.is_of_boot(&self.config.boot_id) && !sync_has_failed(dir)?;
            self.may_have_lost = !same_boot;
            if !self.read_segment(&mut segment, durable, &mut |piece| apply(piece, same_boot))? {
                return Ok(());
            }
            self.restart(WalId(self.segment + u64::from(segment.header.span)));
            self.may_have_lost = !same_boot;
        }
        Ok(())
    }

    /// Reads one segment. Returns whether its end was reached.
    fn read_segment(
        &mut self,
        segment: &mut SegmentReader<'_>,
        durable: SeqNo,
        apply: &mut dyn FnMut(&Piece) -> Result<Option<SeqNo>>,
    ) -> Result<bool> {
        let mut want = READ_BYTES_MIN;
        let mut read_again = None;
        loop {
            segment.load(self.offset, want)?;
            let (piece, used, next) = self.parse(segment, durable)?;
            if piece.commits().len() > 0
                && let Some(stop) = apply(&piece)?
            {
                self.offset = stop * UNIT - self.segment * self.config.segment_bytes;
                return Ok(false);
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
                    return Err(Error::corrupt(&segment.name, self.offset, what));
                }
            };
        }
    }

    /// Returns the commits that `segment` has loaded from the next record on, and how many bytes the records take.
    fn parse(&self, segment: &SegmentReader<'_>, durable: SeqNo) -> Result<(Piece, u64, Next)> {
        let (mut piece, mut pos) = (segment.piece(), 0);
        let bytes = segment.loaded();
        let (segment, len) = (&segment.header, segment.header.file_bytes());
        let next = loop {
            let (at, rest) = (self.offset + pos as u64, &bytes[pos..]);
            if len - at < RECORD_HEADER_BYTES as u64 {
                break Next::Segment;
            }
            if let Some(needed) = segment.bytes_missing(rest, at) {
                break Next::More(needed);
            }
            let seq = segment.seq_at(at);
            let Some(record) = segment.record_at(rest, at) else {
                let written = seq < durable || is_stated(segment, at, rest, !self.may_have_lost)?;
                break Next::Hole { written };
            };
            match record.kind {
                RecordKind::Pad => break Next::Segment,
                RecordKind::Commit | RecordKind::Ingest => {
                    let body = pos + RECORD_HEADER_BYTES;
                    piece.push(&record, body..body + record.body_len as usize);
                }
                RecordKind::Seal | RecordKind::Refused => {}
            }
            pos += record.record_bytes() as usize;
            if segment.span > 1 {
                break Next::Segment; // the file of an oversized record holds only that record
            }
        };
        Ok((piece, pos as u64, next))
    }

    /// Opens the segment of the next record; `None` if there is none under its name.
    fn open<'w>(&self, dir: &dyn Dir, window: &'w mut Window) -> Result<Option<SegmentReader<'w>>> {
        let TailConfig { segment_bytes, db_uuid, .. } = &self.config;
        let segment = match SegmentReader::open(dir, self.segment(), db_uuid, *segment_bytes, window) {
            Err(Unusable::Failed(e)) if e.io_kind() == Some(ErrorKind::NotFound) => return Ok(None),
            opened => opened?,
        };
        // A segment that was prepared and is empty may be replaced by one for an oversized record.
        if self.offset > SEGMENT_HEADER_BYTES && self.salt != Some(segment.header.salt) {
            return Err(Error::corrupt(&segment.name, 0, "the segment was replaced by another one"));
        }
        Ok(Some(segment))
    }
}

/// Returns whether a record in `rest`, which begins at the hole at offset `at`, states that the log was written beyond the
/// hole. Without the same boot, only a statement that it was synced is trusted.
fn is_stated(segment: &SegmentHeader, at: u64, rest: &[u8], same_boot: bool) -> Result<bool> {
    let mut part = PartInMemory::new(segment, rest, at);
    let mut place = at + UNIT;
    while let Some((next, record)) = part.next_record(place)? {
        let stated = if same_boot { record.complete.max(record.synced) } else { record.synced };
        if stated > segment.seq_at(at) {
            return Ok(true);
        }
        place = next + record.record_bytes();
    }
    Ok(false)
}

/// Returns whether a sync failed, after which the system may have dropped bytes that were written.
fn sync_has_failed(dir: &dyn Dir) -> Result<bool> {
    match dir.open(files::SYNC_FAILED, Access::Read) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("open", files::SYNC_FAILED, e)),
    }
}
