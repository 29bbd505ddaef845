//! Segments of the write-ahead log.

use std::path::Path;

use tidesdb_io::{Access, FileExt};

use super::{no_such, open, shown, shown_expiry};
use crate::codec::hex;
use crate::files::{self, FileKind};
use crate::ingest::{IngestRecord, Taking};
use crate::wal::layout::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT,
};
use crate::wal::{LoggedCommit, PartInMemory};
use crate::write::ops;
use crate::{Error, Result};

/// Shows the segment `file` (such as `000007.wal`) of the database in `path`: its header and its records; with
/// `entries`, also the operations in them. Returns the damage that can be proved from this segment alone.
///
/// # Errors
/// `NotFound` if it is not a segment, `Io`, `FormatTooNew`, `MemoryLimit`.
pub fn wal(
    path: impl AsRef<Path>,
    file: &str,
    entries: bool,
    show: &mut dyn FnMut(&str),
) -> Result<Vec<Error>> {
    let Some(FileKind::Wal(id)) = files::parse(file) else { return Err(no_such(file)) };
    let (_, dir) = open(path.as_ref())?;
    let handle = dir.open(file, Access::Read).map_err(|e| Error::io("open", file, e))?;
    let len = handle.len().map_err(|e| Error::io("stat", file, e))?;
    let mut bytes = Vec::new();
    let room = usize::try_from(len).is_ok_and(|len| bytes.try_reserve_exact(len).is_ok());
    if !room {
        return Err(Error::MemoryLimit { what: format!("reading {file}").into() });
    }
    bytes.resize(len as usize, 0);
    handle.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", file, e))?;

    let header = match SegmentHeader::decode(&bytes, file) {
        Err(e) if e.is_corruption() => return Ok(vec![e]),
        other => other?,
    };
    show(&format!("{file}: segment {} of {} bytes, file of {len} bytes", header.id, header.segment_bytes));
    show(&format!("  salt      {}", hex(&header.salt)));
    show(&format!("  database  {}", hex(&header.db_uuid)));
    show(&format!("  boot      {}", hex(&header.boot_id)));
    let mut damage = Vec::new();
    if header.id != id.0 {
        damage.push(Error::corrupt(file, 0, format!("the header is that of segment {}", header.id)));
    }
    if header.segment_bytes.checked_mul(u64::from(header.span)) != Some(len) {
        damage.push(Error::corrupt(file, len, "the file is not as long as its header says"));
    }
    match header.id.checked_mul(header.segment_bytes).filter(|base| base.checked_add(len).is_some()) {
        Some(_) => Segment { file, header: &header, bytes: &bytes }.walk(entries, show, &mut damage)?,
        None => damage.push(Error::corrupt(file, 0, "the number of the segment is too large")),
    }
    Ok(damage)
}

/// A segment in memory.
struct Segment<'a> {
    file: &'a str,
    header: &'a SegmentHeader,
    bytes: &'a [u8],
}

impl Segment<'_> {
    /// Shows all records. A gap without records is damage if a record states that it was durable.
    fn walk(&self, entries: bool, show: &mut dyn FnMut(&str), damage: &mut Vec<Error>) -> Result<()> {
        let mut part = PartInMemory::new(self.header, self.bytes, 0);
        let mut pos = SEGMENT_HEADER_BYTES;
        let mut holes: Vec<u64> = Vec::new();
        let (mut records, mut synced) = (0u64, 0);
        while pos + RECORD_HEADER_BYTES as u64 <= self.bytes.len() as u64 {
            let Some(record) = part.record_at(pos)? else {
                let Some((next, _)) = part.next_record(pos + UNIT)? else { break };
                show(&format!("  @{pos:<10} {} bytes that are not a record", next - pos));
                holes.push(pos);
                pos = next;
                continue;
            };
            show(&describe(pos, &record));
            match record.kind {
                RecordKind::Commit if entries => {
                    let body = &self.bytes[pos as usize + RECORD_HEADER_BYTES..][..record.body_len as usize];
                    self.show_ops(pos, body, show, damage);
                }
                RecordKind::Ingest if entries => {
                    let body = &self.bytes[pos as usize + RECORD_HEADER_BYTES..][..record.body_len as usize];
                    self.show_taken(pos, &record, body, show, damage);
                }
                RecordKind::Commit
                | RecordKind::Refused
                | RecordKind::Pad
                | RecordKind::Seal
                | RecordKind::Ingest => {}
            }
            records += 1;
            synced = synced.max(record.synced);
            pos += record.record_bytes();
        }
        let rest = usize::try_from(pos).ok().and_then(|pos| self.bytes.get(pos..)).unwrap_or_default();
        if !rest.is_empty() {
            let what = if rest.iter().all(|b| *b == 0) {
                "zeros"
            } else {
                "not records: torn, or from an earlier use"
            };
            show(&format!("  @{pos:<10} {} bytes left, {what}", rest.len()));
        }
        show(&format!("  {records} records"));
        for hole in holes.into_iter().filter(|hole| self.header.seq_at(*hole) < synced) {
            damage.push(Error::corrupt(self.file, hole, "a record that was durable is damaged"));
        }
        Ok(())
    }

    fn show_taken(
        &self,
        pos: u64,
        record: &RecordHeader,
        body: &[u8],
        show: &mut dyn FnMut(&str),
        damage: &mut Vec<Error>,
    ) {
        let offset = pos + RECORD_HEADER_BYTES as u64;
        let commit =
            LoggedCommit { seq: record.seq, is_ingest: true, rank: 0, body, file: self.file, offset };
        let record = match IngestRecord::decode(&commit) {
            Ok(record) => record,
            Err(e) => return damage.push(e),
        };
        for (family, taking) in record.parts() {
            let border = |key: &[u8]| if key.is_empty() { "no end".to_owned() } else { shown(key) };
            show(&match taking {
                Taking::Range(start, end) => {
                    format!("      family {}: deletes {} .. {}", family.0, border(start), border(end))
                }
                Taking::Table(meta) => format!(
                    "      family {}: takes table {:06}, {} entries, {} .. {}",
                    family.0,
                    meta.id.0,
                    meta.entries,
                    shown(&meta.smallest),
                    shown(&meta.largest)
                ),
            });
        }
    }

    fn show_ops(&self, pos: u64, body: &[u8], show: &mut dyn FnMut(&str), damage: &mut Vec<Error>) {
        for op in ops(body, self.file, pos + RECORD_HEADER_BYTES as u64) {
            match op {
                Ok(op) => {
                    let (kind, family, key) = (op.kind, op.family.0, shown(op.key));
                    let expiry = shown_expiry(op.expiry);
                    show(&format!("      {kind:?} family {family} {key}, {} bytes{expiry}", op.value.len()));
                }
                Err(e) => {
                    damage.push(e);
                    return;
                }
            }
        }
    }
}

fn describe(pos: u64, record: &RecordHeader) -> String {
    let RecordHeader { seq, body_len, kind, ops, complete, synced } = record;
    format!(
        "  @{pos:<10} {kind:?} seqno {seq}, {ops} operations, {body_len} bytes; complete {complete}, synced {synced}"
    )
}
