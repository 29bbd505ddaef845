//! The manifest: an append-only file of version edits, and its writer.
//!
//! An append has two steps, each synced: the record goes to fresh pages, then the two mark pages of its parity record
//! that it is valid. An edit is acknowledged after the second step. So at any time one pair of marks is complete and
//! names a durable prefix. The record after that prefix, if complete, was complete before its marks were begun.
//!
//! Space is allocated ahead, zeroed and kept in reserve, so an edit can be written on a full disk. A failed allocation
//! changes nothing. After a failed write or sync the manifest accepts no more appends.

use std::io;
use std::sync::Arc;

use tidesdb_io::{Dir, File, FileExt};

use super::edit::VersionEdit;
use super::format::{
    Header, Mark, PAGE, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, RECORDS_AT, SNAPSHOT_BYTES, encode_record,
    marks_at, page_up,
};
use crate::files;
use crate::{Error, Result};

/// Bytes kept allocated after the last record.
const RESERVE_BYTES: u64 = 64 << 10;
/// The reserve is refilled when it falls below this.
const RESERVE_LOW_BYTES: u64 = 32 << 10;
/// A manifest smaller than this is never replaced.
const ROLL_BYTES_MIN: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };
/// A larger manifest is replaced when it reaches this multiple of its initial snapshot.
const ROLL_FACTOR: u64 = 4;

/// Why an edit or a new manifest is not in force, and whether that is unknown: then it may be in force at the next open.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) unknown: bool,
}

impl Failure {
    /// A failure that leaves it unknown what is in force.
    pub(super) fn unknown(error: Error) -> Self {
        Self { error, unknown: true }
    }
}

/// A failure that changed nothing. A failure after the first write is [`Failure::unknown`].
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, unknown: false }
    }
}

/// Encodes the initial content of a manifest: the records of a snapshot, of which most need but one, and then the pages before them.
pub(super) struct Beginning<'a> {
    header: &'a Header,
    pieces: Box<dyn Iterator<Item = Vec<u8>> + 'a>,
    /// Of the last record and of the one before it.
    marks: [Mark; 2],
    next: u64,
}

impl<'a> Beginning<'a> {
    /// Begins a manifest with `snapshot`.
    pub(super) fn new(header: &'a Header, snapshot: &'a VersionEdit) -> Self {
        let none = Mark { number: 0, end: RECORDS_AT, file_bytes: 0, chain: header.chain() };
        let pieces = Box::new(snapshot.encode_in_pieces(SNAPSHOT_BYTES, PAYLOAD_BYTES_MAX));
        Self { header, pieces, marks: [none; 2], next: RECORDS_AT }
    }

    /// Encodes the next record. Returns its offset and its bytes.
    pub(super) fn record(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        let Some(payload) = self.pieces.next() else { return Ok(None) };
        let ([last, _], at) = (self.marks, self.next);
        let number = last.number + 1;
        let (record, chain) = encode_record(&self.header.salt, at, number, last.chain, &payload)?;
        let mark = Mark { number, end: at + (RECORD_HEADER_BYTES + payload.len()) as u64, chain, ..last };
        self.marks = [mark, if number == 1 { mark } else { last }];
        self.next = at + record.len() as u64;
        Ok(Some((at, record)))
    }

    /// Encodes the pages before the records, once all records are encoded, for a file of `file_bytes`.
    pub(super) fn front(&self, file_bytes: u64) -> Vec<u8> {
        let mut bytes = self.header.encode();
        for at in (PAGE..RECORDS_AT).step_by(PAGE as usize) {
            let [last, before] = self.marks.map(|mark| Mark { file_bytes, ..mark });
            let mark = if marks_at(last.number).contains(&at) { last } else { before };
            bytes.extend_from_slice(&mark.encode(&self.header.salt, at));
        }
        bytes
    }
}

/// The manifest in force, open for appending.
#[derive(Debug)]
pub(super) struct Manifest {
    file: Arc<dyn File>,
    name: Arc<str>,
    header: Header,
    records: u64,
    chain: u32,
    next: u64,
    file_bytes: u64,
    roll_at: u64,
}

impl Manifest {
    /// Writes and syncs a manifest that begins with `snapshot`. Does not sync the directory.
    pub(super) fn create(dir: &dyn Dir, header: Header, snapshot: &VersionEdit) -> Result<Self> {
        let name: Arc<str> = files::manifest(header.number).into();
        let mut file_bytes = RECORDS_AT + RESERVE_BYTES;
        let fails = |op, needed| {
            let name = Arc::clone(&name);
            move |e| disk_error(dir, op, &name, needed, e)
        };
        let file = dir.create_new(&name, file_bytes).map_err(fails("create", file_bytes))?;
        let mut beginning = Beginning::new(&header, snapshot);
        while let Some((at, record)) = beginning.record()? {
            let more = record.len() as u64;
            file.allocate(file_bytes, more).map_err(fails("allocate", more))?;
            file_bytes += more;
            file.write_all_at(&record, at).map_err(fails("write", file_bytes))?;
        }
        file.write_all_at(&beginning.front(file_bytes), 0).map_err(fails("write", file_bytes))?;
        file.sync_all().map_err(fails("sync", file_bytes))?;
        let ([Mark { number: records, chain, .. }, _], next) = (beginning.marks, beginning.next);
        let roll_at = ROLL_BYTES_MIN.max((next - RECORDS_AT) * ROLL_FACTOR);
        Ok(Self { file, name, header, records, chain, next, file_bytes, roll_at })
    }

    pub(super) fn number(&self) -> u64 {
        self.header.number
    }

    /// Returns the number of bytes in use.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.next
    }

    /// Returns whether the file has grown so much that a new manifest should replace it.
    pub(super) fn wants_roll(&self) -> bool {
        self.next >= self.roll_at
    }

    /// Delays the next attempt to begin a new manifest, after a failed one.
    pub(super) fn postpone_roll(&mut self) {
        self.roll_at = self.next + ROLL_BYTES_MIN / 4;
    }

    /// Makes an edit durable.
    pub(super) fn append(&mut self, dir: &dyn Dir, payload: &[u8]) -> Result<(), Failure> {
        let (number, at) = (self.records + 1, self.next);
        let (record, chain) = encode_record(&self.header.salt, at, number, self.chain, payload)?;
        let next = at + record.len() as u64;
        let grown = self.reserve(dir, next)?;
        let mark = Mark {
            number,
            end: at + (RECORD_HEADER_BYTES + payload.len()) as u64,
            file_bytes: self.file_bytes,
            chain,
        };
        debug_assert_eq!(page_up(mark.end), next);
        self.write(&record, at).map_err(Failure::unknown)?;
        self.sync(grown).map_err(Failure::unknown)?;
        for slot in marks_at(number) {
            self.write(&mark.encode(&self.header.salt, slot), slot).map_err(Failure::unknown)?;
        }
        self.sync(false).map_err(Failure::unknown)?;
        (self.records, self.chain, self.next) = (number, chain, next);
        Ok(())
    }

    /// Allocates space up to `next` and, if the disk allows, a reserve beyond it. Returns whether the file grew.
    fn reserve(&mut self, dir: &dyn Dir, next: u64) -> Result<bool> {
        if next + RESERVE_LOW_BYTES <= self.file_bytes {
            return Ok(false);
        }
        let to = page_up(next) + RESERVE_BYTES;
        match self.file.allocate(self.file_bytes, to - self.file_bytes) {
            Ok(()) => {
                self.file_bytes = to;
                Ok(true)
            }
            Err(_) if next <= self.file_bytes => Ok(false), // the reserve covers this append
            Err(e) => Err(disk_error(dir, "allocate", &self.name, to - self.file_bytes, e)),
        }
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        debug_assert!(at.is_multiple_of(PAGE) && (bytes.len() as u64).is_multiple_of(PAGE));
        self.file.write_all_at(bytes, at).map_err(|e| Error::io_at("write", &self.name, at, e))
    }

    fn sync(&self, grown: bool) -> Result<()> {
        let synced = if grown { self.file.sync_all() } else { self.file.sync_data() };
        synced.map_err(|e| Error::io("sync", &self.name, e))
    }
}

/// Converts a failed call to an error: `NoSpace` if the disk or the quota is full.
fn disk_error(dir: &dyn Dir, op: &'static str, file: &str, needed: u64, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace {
            dir: dir.path().display().to_string().into(),
            free: dir.space().map_or(0, |s| s.free),
            needed,
        },
        _ => Error::io(op, file, e),
    }
}
