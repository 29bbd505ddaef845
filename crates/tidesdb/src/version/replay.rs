//! Reads a manifest back, and decides whether its content is complete, torn by a crash, or damaged.
//!
//! 1. The newest complete mark says which records are durable and where they end. Without a complete mark the manifest
//!    is damaged.
//! 2. All durable records must be complete, numbered and chained, and agree with every other mark. Otherwise the
//!    manifest is damaged.
//! 3. One more record may follow: its append was synced but its marks were not. It counts.
//! 4. Anything else after it is the torn remainder of an append that was never acknowledged; it is reported. A complete
//!    record there, or any remainder after a clean close, is damage.
//!
//! Reading changes nothing. A failed read is reported as such and never taken for the end of the file.

use std::io::ErrorKind;
use std::sync::Arc;

use tidesdb_io::{Access, Dir, File, FileExt};

use super::current::{self, Current, manifests_of};
use super::edit::VersionEdit;
use super::format::{
    Header, ManifestRecordHeader, Mark, PAGE, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, RECORDS_AT,
    first_nonzero, page_up,
};
use super::state::State;
use crate::codec::{PartSums, Salt, bound_crc};
use crate::files::{self, CURRENT, FileKind, UNFINISHED};
use crate::types::wal_id_max;
use crate::{Error, Result};

const CHUNK_BYTES: usize = 16 * PAGE as usize;
/// More than any append leaves after the last record.
const TAIL_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64 + (1 << 20);

/// Findings from reading the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestReport {
    /// Name of the file.
    pub file: String,
    /// Records that count.
    pub records: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Whether the database was closed cleanly.
    pub clean: bool,
    /// Bytes after the last record that contain remains of an unfinished append.
    pub torn_bytes: u64,
    /// The last record was complete but not marked: its install was not acknowledged, or its marks are damaged.
    pub unmarked_record: bool,
    /// The last record was marked once instead of twice: its install was not acknowledged, or one mark is damaged.
    pub half_marked: bool,
    /// A mark is damaged in a way that no crash explains. The other marks and the records agree.
    pub repaired_mark: bool,
}

/// A manifest that was read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) state: State,
    pub(super) header: Header,
    pub(super) report: ManifestReport,
}

/// Whether a directory holds a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nothing, or the remains of an unfinished creation.
    Absent,
    /// A database.
    Present,
}

/// Returns whether there is a database in `dir`.
///
/// # Errors
/// `Corrupt` if there are files of a database but no `CURRENT`; `Io` if the directory cannot be read.
pub fn presence(dir: &dyn Dir) -> Result<Presence> {
    let names = list(dir)?;
    if names.iter().any(|n| n == CURRENT) {
        return Ok(Presence::Present);
    }
    if names.iter().any(|n| n == UNFINISHED) {
        let what = "missing, because a restore of a backup into this folder did not end; restore it again";
        return Err(Error::corrupt(CURRENT, 0, what));
    }
    for name in &names {
        let lost = match files::parse(name) {
            Some(FileKind::Table(_) | FileKind::Vlog(_) | FileKind::Wal(_)) => true,
            Some(FileKind::Manifest(n)) => was_in_force(dir, n)?,
            _ => false,
        };
        if lost {
            let what = format!("missing, yet {name} exists; manifests here: {}", manifests_of(&names));
            return Err(Error::corrupt(CURRENT, 0, what));
        }
    }
    Ok(Presence::Absent)
}

/// Returns whether a manifest holds more than an unfinished creation leaves.
fn was_in_force(dir: &dyn Dir, number: u64) -> Result<bool> {
    match load_file(dir, number, None, &mut |_, _| {}) {
        Ok(found) => Ok(found.report.records > 1 || !found.state.families.is_empty()),
        Err(Error::Corrupt { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns all names in the directory.
pub(super) fn list(dir: &dyn Dir) -> Result<Vec<String>> {
    dir.list().map_err(|e| Error::io("list", &dir.path().display().to_string(), e))
}

/// Reads the manifest in force. Calls `visit` with each edit and the offset of its record.
pub(super) fn load(dir: &dyn Dir, visit: &mut dyn FnMut(u64, &VersionEdit)) -> Result<Loaded> {
    let current = current::in_force(dir).map_err(|e| with_manifests(dir, e))?;
    load_file(dir, current.number, Some(&current), visit).map_err(|e| with_manifests(dir, e))
}

/// Adds the names of the manifests to an error, for the person who must repair the database.
fn with_manifests(dir: &dyn Dir, e: Error) -> Error {
    match (e, list(dir)) {
        (Error::Corrupt { file, offset, what }, Ok(names)) => {
            let what = format!("{what}; manifests here: {}", manifests_of(&names));
            Error::Corrupt { file, offset, what: what.into() }
        }
        (e, _) => e,
    }
}

fn load_file(
    dir: &dyn Dir,
    number: u64,
    current: Option<&Current>,
    visit: &mut dyn FnMut(u64, &VersionEdit),
) -> Result<Loaded> {
    let name = files::manifest(number);
    let (file, header) = open_file(dir, &name, number, current)?;
    let file_bytes = file.len().map_err(|e| Error::io("length", &name, e))?;
    let source = ManifestFile { file: &*file, name: &name, file_bytes };
    let mut reader = Reader { source, header, replayed: Replayed::new(&header), visit };
    let (mark, marks) = reader.read_marks()?;
    reader.replay(&mark, &marks)?;
    let mut report = ManifestReport::default();
    reader.read_tail(&mark, &mut report)?;
    judge_marks(&marks, mark.number, &mut report);
    let Replayed { records, next, state, .. } = reader.replayed;
    (report.records, report.bytes, report.clean) = (records, next, state.clean);
    check_state(&state, &header, &name)?;
    report.file = name;
    Ok(Loaded { state, header, report })
}

/// Opens manifest `number`, which is called `name`, and checks that it is the one that `current` names.
pub(super) fn open_file(
    dir: &dyn Dir,
    name: &str,
    number: u64,
    current: Option<&Current>,
) -> Result<(Arc<dyn File>, Header)> {
    let file = dir.open(name, Access::Read).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::corrupt(CURRENT, 16, format!("names {name}, which is missing")),
        _ => Error::io("open", name, e),
    })?;
    let file_bytes = file.len().map_err(|e| Error::io("length", name, e))?;
    let page = ManifestFile { file: &*file, name, file_bytes }.bytes(0, PAGE as usize)?;
    let header = Header::decode(&page, name)?;
    let meant = current.is_none_or(|c| c.salt == header.salt && c.uuid == header.identity.uuid);
    if header.number != number || !meant {
        return Err(Error::corrupt(name, 0, "this is not the manifest that CURRENT names"));
    }
    Ok((file, header))
}

/// Checks a state as a whole, after the records of the manifest `name` were applied.
pub(super) fn check_state(state: &State, header: &Header, name: &str) -> Result<()> {
    if state.log_start.0 > wal_id_max(header.identity.wal_segment_bytes) {
        return Err(Error::corrupt(
            name,
            RECORDS_AT,
            "the log begins after the last possible sequence number",
        ));
    }
    state.check().map_err(|e| Error::corrupt(name, RECORDS_AT, e.to_string()))
}

/// Reports which marks are missing. The marks of the next record overwrite the older pair, and only after that record
/// is durable. So unless that record exists, the older pair must be complete.
fn judge_marks(marks: &[Mark], newest: u64, report: &mut ManifestReport) {
    let count = |number| marks.iter().filter(|m| m.number == number).count();
    report.half_marked = !report.unmarked_record && count(newest) < 2;
    report.repaired_mark =
        !report.unmarked_record && if newest == 1 { count(1) < 4 } else { count(newest - 1) < 2 };
}

/// The file, with its length at the time of opening.
pub(super) struct ManifestFile<'a> {
    pub(super) file: &'a dyn File,
    pub(super) name: &'a str,
    pub(super) file_bytes: u64,
}

impl ManifestFile<'_> {
    /// Returns all complete marks.
    pub(super) fn marks(&self, salt: &Salt) -> Result<Vec<Mark>> {
        let pages = self.bytes(PAGE, (RECORDS_AT - PAGE) as usize)?;
        let pages = pages.chunks(PAGE as usize).zip((PAGE..RECORDS_AT).step_by(PAGE as usize));
        Ok(pages.filter_map(|(page, at)| Mark::decode(page, salt, at)).collect())
    }

    /// Checks that the file can hold what `mark` says.
    pub(super) fn check_mark(&self, mark: &Mark) -> Result<()> {
        if self.file_bytes < mark.file_bytes {
            return Err(Error::corrupt(self.name, self.file_bytes, "the file is truncated"));
        }
        if mark.end > mark.file_bytes || mark.end < RECORDS_AT {
            return Err(Error::corrupt(self.name, PAGE, "a mark names an impossible end"));
        }
        Ok(())
    }

    /// Reads `n` bytes at offset `at`.
    fn bytes(&self, at: u64, n: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.append(&mut out, at, n)?;
        Ok(out)
    }

    /// Appends `n` bytes at offset `at` to `out`.
    fn append(&self, out: &mut Vec<u8>, at: u64, n: usize) -> Result<()> {
        if at.checked_add(n as u64).is_none_or(|end| end > self.file_bytes) {
            return Err(Error::corrupt(self.name, self.file_bytes, "the file is truncated"));
        }
        out.try_reserve_exact(n).map_err(|_| Error::MemoryLimit { what: "reading the manifest".into() })?;
        let begin = out.len();
        out.resize(begin + n, 0);
        self.file.read_exact_at(&mut out[begin..], at).map_err(|e| Error::io_at("read", self.name, at, e))
    }

    /// Reads the record at `at` with its padding, all of it below `limit`; `None` if there is no complete one.
    fn record(&self, salt: &Salt, at: u64, limit: u64) -> Result<Option<Record>> {
        if at.saturating_add(PAGE) > limit {
            return Ok(None);
        }
        let mut bytes = self.bytes(at, PAGE as usize)?;
        let header = ManifestRecordHeader::decode(&bytes, self.name, at)?;
        if header.length > PAYLOAD_BYTES_MAX {
            return Ok(None);
        }
        let used = RECORD_HEADER_BYTES + header.length;
        let next = page_up(at + used as u64);
        if next > limit {
            return Ok(None);
        }
        self.append(&mut bytes, at + PAGE, (next - at - PAGE) as usize)?;
        let (body, padding) = bytes.split_at(used);
        if !header.matches(salt, at, &body[4..]) || first_nonzero(padding).is_some() {
            return Ok(None);
        }
        // A record may have a GiB: it is not held twice.
        bytes.truncate(used);
        bytes.drain(..RECORD_HEADER_BYTES);
        Ok(Some(Record { at, header, payload: bytes, next }))
    }
}

/// A complete record.
pub(super) struct Record {
    at: u64,
    header: ManifestRecordHeader,
    payload: Vec<u8>,
    next: u64,
}

impl Record {
    /// The error for an edit that the state before it does not allow.
    pub(super) fn impossible(&self, file: &str, why: &Error) -> Error {
        Error::corrupt(file, self.at, format!("impossible edit: {why}"))
    }

    /// Decodes the edit.
    fn edit(&self, file: &str) -> Result<VersionEdit> {
        VersionEdit::decode(&self.payload, file, self.at + RECORD_HEADER_BYTES as u64)
    }

    /// Returns where the record ends, without its padding.
    fn end(&self) -> u64 {
        self.at + (RECORD_HEADER_BYTES + self.payload.len()) as u64
    }
}

/// The records read so far, and what they make.
#[derive(Clone, Debug)]
pub(super) struct Replayed {
    pub(super) records: u64,
    /// Checksum of the last record.
    pub(super) chain: u32,
    /// Where the next record begins.
    pub(super) next: u64,
    pub(super) state: State,
}

impl Replayed {
    pub(super) fn new(header: &Header) -> Self {
        Self { records: 0, chain: header.chain(), next: RECORDS_AT, state: State::default() }
    }

    fn is_continued_by(&self, record: &Record) -> bool {
        record.header.number == self.records + 1 && record.header.prev == self.chain
    }

    /// Reads the next record, which is durable, below `limit`.
    pub(super) fn durable_record(
        &self,
        source: &ManifestFile<'_>,
        salt: &Salt,
        limit: u64,
    ) -> Result<Record> {
        let record = source.record(salt, self.next, limit)?.filter(|record| self.is_continued_by(record));
        record.ok_or_else(|| Error::corrupt(source.name, self.next, "a durable record is damaged"))
    }

    /// Applies the next record of `file`. Calls `visit` with its edit before it is applied.
    pub(super) fn apply(
        &mut self,
        record: &Record,
        file: &str,
        visit: &mut dyn FnMut(u64, &VersionEdit),
    ) -> Result<()> {
        let edit = record.edit(file)?;
        if self.state.clean {
            return Err(Error::corrupt(file, record.at, "a record follows the clean shutdown"));
        }
        visit(record.at, &edit);
        self.state.apply(&edit).map_err(|e| record.impossible(file, &e))?;
        (self.records, self.chain, self.next) = (record.header.number, record.header.crc, record.next);
        Ok(())
    }
}

struct Reader<'a> {
    source: ManifestFile<'a>,
    header: Header,
    replayed: Replayed,
    visit: &'a mut dyn FnMut(u64, &VersionEdit),
}

impl Reader<'_> {
    fn corrupt(&self, at: u64, what: &str) -> Error {
        Error::corrupt(self.source.name, at, what)
    }

    /// Returns the newest mark and all complete marks.
    fn read_marks(&self) -> Result<(Mark, Vec<Mark>)> {
        let found = self.source.marks(&self.header.salt)?;
        let newest = found.iter().max_by_key(|m| m.number).copied();
        let newest = newest.ok_or_else(|| self.corrupt(PAGE, "no mark is complete"))?;
        self.source.check_mark(&newest)?;
        Ok((newest, found))
    }

    /// Applies the records covered by the newest mark.
    fn replay(&mut self, newest: &Mark, marks: &[Mark]) -> Result<()> {
        let limit = page_up(newest.end);
        for number in 1..=newest.number {
            let record = self.replayed.durable_record(&self.source, &self.header.salt, limit)?;
            self.apply(&record)?;
            for m in marks.iter().filter(|m| m.number == number) {
                if m.end != record.end() || m.chain != record.header.crc {
                    return Err(self.corrupt(record.at, "a record does not match its mark"));
                }
            }
        }
        match self.replayed.next {
            at if at == limit => Ok(()),
            at => Err(self.corrupt(at, "the records do not end where their mark says")),
        }
    }

    fn apply(&mut self, record: &Record) -> Result<()> {
        self.replayed.apply(record, self.source.name, self.visit)
    }

    /// Checks what follows the marked records.
    fn read_tail(&mut self, mark: &Mark, report: &mut ManifestReport) -> Result<()> {
        let file_bytes = self.source.file_bytes;
        let at = self.replayed.next;
        if file_bytes - at > TAIL_BYTES_MAX || (self.replayed.state.clean && file_bytes != mark.file_bytes) {
            return Err(self.corrupt(file_bytes, "the file is too long"));
        }
        if let Some(record) = self.source.record(&self.header.salt, at, file_bytes)? {
            if !self.replayed.is_continued_by(&record) {
                return Err(self.corrupt(at, "a record does not continue the sequence"));
            }
            self.apply(&record)?;
            report.unmarked_record = true;
        }
        let at = self.replayed.next;
        report.torn_bytes = self.scan_torn(at)?;
        if report.torn_bytes > 0 && (report.unmarked_record || self.replayed.state.clean) {
            return Err(self.corrupt(at, "bytes after the last record that no append explains"));
        }
        Ok(())
    }

    /// Returns the number of bytes from `start` to the last nonzero byte. A complete record among them is damage.
    ///
    /// A torn record may hold keys and bounds that users chose, each of which may look like the header of a long record. So the checksum
    /// of each is known from sums, and only what has the right one is read as a record.
    fn scan_torn(&self, start: u64) -> Result<u64> {
        let (mut torn_to, mut sums) = (start, None);
        let mut at = start;
        while at < self.source.file_bytes {
            let n = (self.source.file_bytes - at).min(CHUNK_BYTES as u64) as usize;
            let chunk = self.source.bytes(at, n)?;
            for (i, page) in chunk.chunks(PAGE as usize).enumerate() {
                let page_at = at + i as u64 * PAGE;
                let Some(last) = page.iter().rposition(|b| *b != 0) else { continue };
                torn_to = page_at + last as u64 + 1;
                if self.may_be_record(page, page_at, start, &mut sums)?
                    && self.source.record(&self.header.salt, page_at, self.source.file_bytes)?.is_some()
                {
                    return Err(self.corrupt(start, "a record is damaged, and a complete one follows"));
                }
            }
            at += n as u64;
        }
        Ok(torn_to - start)
    }

    /// Returns false if no complete record begins with `page`, at `at`. `sums` are those of the file from `start` on, once they are needed.
    fn may_be_record(&self, page: &[u8], at: u64, start: u64, sums: &mut Option<PartSums>) -> Result<bool> {
        let (source, salt) = (&self.source, &self.header.salt);
        if page.len() < PAGE as usize {
            return Ok(false); // the end of the file, where no record begins
        }
        let header = ManifestRecordHeader::decode(page, source.name, at)?;
        let payload = at + RECORD_HEADER_BYTES as u64;
        let end = payload + header.length as u64;
        if header.length > PAYLOAD_BYTES_MAX || page_up(end) > source.file_bytes {
            return Ok(false);
        }
        let read = |bytes: &mut [u8], at: u64| {
            source.file.read_exact_at(bytes, at).map_err(|e| Error::io_at("read", source.name, at, e))
        };
        let sums = match sums {
            Some(sums) => sums,
            none => none.insert(PartSums::of(start..source.file_bytes, read)?),
        };
        let crc = bound_crc(salt, at, &[&page[4..RECORD_HEADER_BYTES]]);
        Ok(sums.crc(crc, payload..end, read)? == header.crc)
    }
}
