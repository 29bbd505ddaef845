//! The record of the log by which a commit takes tables. `docs/formats/wal.md` has its layout.
//!
//! ```text
//! count varint, then for each range tombstone and each table: tag u8 | family varint | length varint | body
//! zeros, so that the record has eight bytes for each of them: one sequence number
//! ```
//!
//! The n-th of them has the n-th sequence number of the commit. So what comes later is newer, and range tombstones, which come before the
//! tables of their builder, cover only what is older than these.

use std::sync::Arc;

use tidesdb_io::Buffer;

use crate::Result;
use crate::codec::{Decoder, put_bytes, put_varint};
use crate::ranges::{BORDER_BYTES_MAX, RangeTombstone};
use crate::sst::{TableMeta, Taken};
use crate::types::{FamilyId, SeqNo};
use crate::wal::LoggedCommit;
use crate::wal::layout::{RECORD_HEADER_BYTES, UNIT, blank_record};

mod tag {
    pub(super) const RANGE: u8 = 1;
    pub(super) const TABLE: u8 = 2;
}

/// What a commit takes.
#[derive(Clone, Debug)]
pub(crate) enum Taking {
    /// A range tombstone: the first key, and the first key not deleted; empty for no bound.
    Range(Vec<u8>, Vec<u8>),
    /// A table.
    Table(Arc<TableMeta>),
}

/// All that a commit takes, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct IngestRecord {
    parts: Vec<(FamilyId, Taking)>,
}

impl IngestRecord {
    /// Adds what is newer than all before.
    pub(crate) fn push(&mut self, family: FamilyId, taking: Taking) {
        self.parts.push((family, taking));
    }

    /// All parts with their families, oldest first. Each part has the sequence number of the commit plus its position.
    pub(crate) fn parts(&self) -> impl ExactSizeIterator<Item = (FamilyId, &Taking)> {
        self.parts.iter().map(|(family, taking)| (*family, taking))
    }

    /// The record, with room for its header.
    pub(crate) fn encode(&self) -> Buffer {
        let mut body = Vec::new();
        put_varint(&mut body, self.parts.len() as u64);
        let mut part = Vec::new();
        for (family, taking) in &self.parts {
            part.clear();
            let tag = match taking {
                Taking::Range(start, end) => {
                    put_bytes(&mut part, start);
                    put_bytes(&mut part, end);
                    tag::RANGE
                }
                Taking::Table(meta) => {
                    meta.encode(&mut part);
                    tag::TABLE
                }
            };
            body.push(tag);
            put_varint(&mut body, u64::from(family.0));
            put_bytes(&mut body, &part);
        }
        body.resize(body.len().max(self.parts.len() * UNIT as usize), 0);
        let mut record = blank_record(0);
        debug_assert_eq!(record.len(), RECORD_HEADER_BYTES);
        record.extend_from_slice(&body);
        record
    }

    /// Decodes the body of `commit`. Its tables get their sequence numbers.
    ///
    /// # Errors
    /// `Corrupt`; `FormatTooNew`.
    pub(crate) fn decode(commit: &LoggedCommit<'_>) -> Result<Self> {
        let mut d = Decoder::new(commit.body, commit.file, commit.offset);
        // Each part takes at least eight bytes, which bounds the allocation.
        let count = d.length(d.remaining() / UNIT as usize)?;
        let mut parts = Vec::with_capacity(count);
        for position in 0..count as u64 {
            let tag = d.u8()?;
            let family = FamilyId(d.number(0..=u32::MAX.into(), "number of a family")? as u32);
            let mut part = d.sub()?;
            let taking = match tag {
                tag::RANGE => Taking::Range(border(&mut part)?, border(&mut part)?),
                tag::TABLE => Taking::Table(table(&mut part, commit.seq + position)?),
                _ => return Err(d.corrupt("unknown part of a record that takes tables")),
            };
            part.finish()?;
            parts.push((family, taking));
        }
        match d.rest().iter().all(|byte| *byte == 0) {
            true => Ok(Self { parts }),
            false => Err(d.corrupt("padding of a record that takes tables")),
        }
    }
}

impl Taking {
    /// Memory of the range tombstone, if it is one.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Range(start, end) => RangeTombstone::bytes_of(start.len(), end.len()),
            Self::Table(_) => 0,
        }
    }

    /// The range tombstone with the sequence number `seq`, if it is one.
    pub(crate) fn range(&self, seq: SeqNo) -> Option<RangeTombstone> {
        let border = |key: &[u8]| (!key.is_empty()).then(|| key.into());
        match self {
            Self::Range(start, end) => Some(RangeTombstone::new(seq, border(start), border(end))),
            Self::Table(_) => None,
        }
    }
}

fn table(d: &mut Decoder<'_>, seq: SeqNo) -> Result<Arc<TableMeta>> {
    let meta = TableMeta::decode(d)?;
    let names_other = |Taken { vlog }: Taken| meta.vlog_refs.iter().any(|r| Some(r.vlog) != vlog);
    if meta.taken.is_none_or(names_other) || (meta.max_seq, meta.purged_to) != (0, 0) {
        return Err(d.corrupt("a record takes a table that was not built outside of the database"));
    }
    Ok(Arc::new(TableMeta { min_seq: seq, max_seq: seq, ..meta }))
}

fn border(d: &mut Decoder<'_>) -> Result<Vec<u8>> {
    let len = d.length(BORDER_BYTES_MAX)?;
    Ok(d.take(len)?.to_vec())
}
