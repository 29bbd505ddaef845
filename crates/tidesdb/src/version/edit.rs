//! A version edit: a list of changes that become durable and visible together.
//!
//! On disk an edit is a sequence of changes, each `tag u8 | length varint | body`. Family settings and table
//! descriptions are fields (`codec/fields.rs`). Every body may end with additional fields; unknown optional ones are
//! skipped. New facts get new tags. A version that does not know a tag may skip it if [`IGNORABLE`] is set. Such a tag
//! states one fact, so the newest body of each such tag is copied into later snapshots of the state. Any other unknown
//! tag means that a newer version wrote the file, and the file is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codec::{Decoder, Salt, put_bytes, put_varint, read_fields};
use crate::ranges::{BORDER_BYTES_MAX, RangeTombstone};
use crate::sst::TableMeta;
use crate::types::{
    FAMILY_NAME_BYTES_MAX, FILE_BYTES_MAX, FILE_NUMBER_MAX, FamilyId, ID_MAX, SEQ_MAX, SeqNo, TableId,
    VlogId, WAL_ID_MAX, WalId,
};
use crate::{Error, FamilyOptions, Result};

/// The manifest format that this version writes and reads.
pub const MANIFEST_FORMAT: u32 = 2;
/// Tag bit: an older reader may skip the change.
pub const IGNORABLE: u8 = 0x80;
/// Deepest level a table can be in.
pub const LEVEL_MAX: u8 = 64;

/// One change of the state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// Creates a family. Its id must not have been used before.
    CreateFamily {
        /// The new family.
        family: FamilyId,
        /// Its name.
        name: Arc<str>,
        /// Its options.
        options: FamilyOptions,
    },
    /// Drops a family with all its tables and value logs.
    DropFamily {
        /// The family.
        family: FamilyId,
    },
    /// Renames a family.
    RenameFamily {
        /// The family.
        family: FamilyId,
        /// Its new name.
        name: Arc<str>,
    },
    /// Changes the options of a family. The key order must stay the same.
    SetOptions {
        /// The family.
        family: FamilyId,
        /// Its new options.
        options: FamilyOptions,
    },
    /// Adds a table to a level. The file and its name are durable.
    AddTable {
        /// The family.
        family: FamilyId,
        /// Level, 1 for L1.
        level: u8,
        /// If two tables of a deeper level overlap, the one with the higher generation has the newer data. Tables of one generation are
        /// disjoint. 0 in L1, whose tables are in the order of their commits.
        generation: u32,
        /// Description of the table.
        meta: Arc<TableMeta>,
    },
    /// Removes a table from its level.
    RemoveTable {
        /// The family.
        family: FamilyId,
        /// Level, 1 for L1.
        level: u8,
        /// The table.
        table: TableId,
    },
    /// Adds a value log. The file and its name are durable.
    AddVlog {
        /// The family.
        family: FamilyId,
        /// The value log.
        vlog: VlogId,
        /// Salt of its file.
        salt: Salt,
    },
    /// Seals a value log: it is complete.
    SealVlog {
        /// The family.
        family: FamilyId,
        /// The value log.
        vlog: VlogId,
        /// Its final length in bytes.
        bytes: u64,
        /// No commit after this one refers to it.
        sealed_at: SeqNo,
    },
    /// Removes a value log without live values.
    RemoveVlog {
        /// The family.
        family: FamilyId,
        /// The value log.
        vlog: VlogId,
    },
    /// Marks all numbers below these as used. Counters never decrease.
    NextIds {
        /// Next table.
        table: TableId,
        /// Next value log.
        vlog: VlogId,
        /// Next family.
        family: FamilyId,
    },
    /// Makes log segments below this one obsolete.
    LogStart {
        /// First segment still needed.
        wal: WalId,
    },
    /// All commits of the family up to this one are in tables.
    FlushedTo {
        /// The family.
        family: FamilyId,
        /// The last commit covered.
        seq: SeqNo,
    },
    /// Adds a range tombstone over data in tables.
    AddRange {
        /// The family.
        family: FamilyId,
        /// The tombstone.
        range: Arc<RangeTombstone>,
    },
    /// Removes a range tombstone that hides nothing any more.
    RemoveRange {
        /// The family.
        family: FamilyId,
        /// The tombstone's sequence number.
        seq: SeqNo,
    },
    /// A commit at least this new exists.
    LastSeq {
        /// The commit.
        seq: SeqNo,
    },
    /// The log was durable up to this commit.
    DurableMark {
        /// The commit.
        seq: SeqNo,
    },
    /// The wall clock at the time of the edit, to notice a clock that was set back.
    ClockMark {
        /// Seconds since the UNIX epoch.
        wall_secs: u64,
    },
    /// The log may have commits that take tables. An older version, which would take one for the end of the log, refuses the manifest.
    LogTakesTables,
    /// The database was closed cleanly. No record may follow in this manifest.
    CleanShutdown,
    /// A change written by a newer version that this version may ignore.
    Unknown {
        /// Its tag; [`IGNORABLE`] is set.
        tag: u8,
        /// Its body.
        body: Arc<[u8]>,
    },
}

mod tag {
    pub(super) const CREATE_FAMILY: u8 = 1;
    pub(super) const DROP_FAMILY: u8 = 2;
    pub(super) const RENAME_FAMILY: u8 = 3;
    pub(super) const SET_OPTIONS: u8 = 4;
    pub(super) const ADD_TABLE: u8 = 5;
    pub(super) const REMOVE_TABLE: u8 = 6;
    pub(super) const ADD_VLOG: u8 = 7;
    pub(super) const SEAL_VLOG: u8 = 8;
    pub(super) const REMOVE_VLOG: u8 = 9;
    pub(super) const NEXT_IDS: u8 = 10;
    pub(super) const LOG_START: u8 = 11;
    pub(super) const FLUSHED_TO: u8 = 12;
    pub(super) const LAST_SEQ: u8 = 13;
    pub(super) const DURABLE_MARK: u8 = 14;
    pub(super) const CLEAN_SHUTDOWN: u8 = 15;
    pub(super) const ADD_RANGE: u8 = 16;
    pub(super) const REMOVE_RANGE: u8 = 17;
    pub(super) const LOG_TAKES_TABLES: u8 = 18;
    pub(super) const CLOCK_MARK: u8 = super::IGNORABLE | 1;
}

impl Change {
    fn tag(&self) -> u8 {
        match self {
            Self::CreateFamily { .. } => tag::CREATE_FAMILY,
            Self::DropFamily { .. } => tag::DROP_FAMILY,
            Self::RenameFamily { .. } => tag::RENAME_FAMILY,
            Self::SetOptions { .. } => tag::SET_OPTIONS,
            Self::AddTable { .. } => tag::ADD_TABLE,
            Self::RemoveTable { .. } => tag::REMOVE_TABLE,
            Self::AddVlog { .. } => tag::ADD_VLOG,
            Self::SealVlog { .. } => tag::SEAL_VLOG,
            Self::RemoveVlog { .. } => tag::REMOVE_VLOG,
            Self::NextIds { .. } => tag::NEXT_IDS,
            Self::LogStart { .. } => tag::LOG_START,
            Self::FlushedTo { .. } => tag::FLUSHED_TO,
            Self::AddRange { .. } => tag::ADD_RANGE,
            Self::RemoveRange { .. } => tag::REMOVE_RANGE,
            Self::LastSeq { .. } => tag::LAST_SEQ,
            Self::DurableMark { .. } => tag::DURABLE_MARK,
            Self::CleanShutdown => tag::CLEAN_SHUTDOWN,
            Self::LogTakesTables => tag::LOG_TAKES_TABLES,
            Self::ClockMark { .. } => tag::CLOCK_MARK,
            Self::Unknown { tag, .. } => *tag,
        }
    }

    /// Returns the family that the change concerns, if any.
    pub fn family(&self) -> Option<FamilyId> {
        match self {
            Self::CreateFamily { family, .. }
            | Self::DropFamily { family }
            | Self::RenameFamily { family, .. }
            | Self::SetOptions { family, .. }
            | Self::AddTable { family, .. }
            | Self::RemoveTable { family, .. }
            | Self::AddVlog { family, .. }
            | Self::SealVlog { family, .. }
            | Self::RemoveVlog { family, .. }
            | Self::AddRange { family, .. }
            | Self::RemoveRange { family, .. }
            | Self::FlushedTo { family, .. } => Some(*family),
            Self::NextIds { .. }
            | Self::LogStart { .. }
            | Self::LastSeq { .. }
            | Self::DurableMark { .. }
            | Self::ClockMark { .. }
            | Self::CleanShutdown
            | Self::LogTakesTables
            | Self::Unknown { .. } => None,
        }
    }

    /// Appends the encoded change; `body` is a buffer.
    fn encode(&self, body: &mut Vec<u8>, out: &mut Vec<u8>) {
        body.clear();
        self.put_body(body);
        out.push(self.tag());
        put_bytes(out, body);
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        if let Some(family) = self.family() {
            put_varint(out, u64::from(family.0));
        }
        match self {
            Self::CreateFamily { name, options, .. } => {
                put_bytes(out, name.as_bytes());
                options.write(out);
            }
            Self::RenameFamily { name, .. } => put_bytes(out, name.as_bytes()),
            Self::SetOptions { options, .. } => options.write(out),
            Self::AddTable { level, generation, meta, .. } => {
                out.push(*level);
                put_varint(out, u64::from(*generation));
                meta.encode(out);
            }
            Self::RemoveTable { level, table, .. } => {
                out.push(*level);
                put_varint(out, table.0);
            }
            Self::AddVlog { vlog, salt, .. } => {
                put_varint(out, u64::from(vlog.0));
                out.extend_from_slice(salt);
            }
            Self::SealVlog { vlog, bytes, sealed_at, .. } => {
                put_varint(out, u64::from(vlog.0));
                put_varint(out, *bytes);
                put_varint(out, *sealed_at);
            }
            Self::RemoveVlog { vlog, .. } => put_varint(out, u64::from(vlog.0)),
            Self::NextIds { table, vlog, family } => {
                put_varint(out, table.0);
                put_varint(out, u64::from(vlog.0));
                put_varint(out, u64::from(family.0));
            }
            Self::LogStart { wal } => put_varint(out, wal.0),
            Self::AddRange { range, .. } => {
                put_varint(out, range.seq);
                put_bytes(out, range.start.as_deref().unwrap_or_default());
                put_bytes(out, range.end.as_deref().unwrap_or_default());
            }
            Self::FlushedTo { seq, .. }
            | Self::RemoveRange { seq, .. }
            | Self::LastSeq { seq }
            | Self::DurableMark { seq } => put_varint(out, *seq),
            Self::ClockMark { wall_secs } => put_varint(out, *wall_secs),
            Self::Unknown { body, .. } => out.extend_from_slice(body),
            Self::DropFamily { .. } | Self::CleanShutdown | Self::LogTakesTables => {}
        }
    }

    fn decode(tag: u8, d: &mut Decoder<'_>) -> Result<Option<Self>> {
        let change = match tag {
            tag::CREATE_FAMILY => {
                Self::CreateFamily { family: family(d)?, name: name(d)?, options: FamilyOptions::read(d)? }
            }
            tag::DROP_FAMILY => Self::DropFamily { family: family(d)? },
            tag::RENAME_FAMILY => Self::RenameFamily { family: family(d)?, name: name(d)? },
            tag::SET_OPTIONS => Self::SetOptions { family: family(d)?, options: FamilyOptions::read(d)? },
            tag::ADD_TABLE => Self::AddTable {
                family: family(d)?,
                level: level(d)?,
                generation: small(d)?,
                meta: Arc::new(TableMeta::decode(d)?),
            },
            tag::REMOVE_TABLE => {
                Self::RemoveTable { family: family(d)?, level: level(d)?, table: TableId(table(d, 0)?) }
            }
            tag::ADD_VLOG => Self::AddVlog { family: family(d)?, vlog: vlog(d)?, salt: d.array()? },
            tag::SEAL_VLOG => Self::SealVlog {
                family: family(d)?,
                vlog: vlog(d)?,
                bytes: d.number(0..=FILE_BYTES_MAX, "length of a value log")?,
                sealed_at: seq(d)?,
            },
            tag::REMOVE_VLOG => Self::RemoveVlog { family: family(d)?, vlog: vlog(d)? },
            tag::NEXT_IDS => Self::NextIds {
                table: TableId(table(d, 1)?),
                vlog: VlogId(small(d)?),
                family: FamilyId(small(d)?),
            },
            tag::LOG_START => {
                Self::LogStart { wal: WalId(d.number(0..=WAL_ID_MAX, "number of a log segment")?) }
            }
            tag::FLUSHED_TO => Self::FlushedTo { family: family(d)?, seq: seq(d)? },
            tag::ADD_RANGE => Self::AddRange { family: family(d)?, range: Arc::new(range(d)?) },
            tag::REMOVE_RANGE => Self::RemoveRange { family: family(d)?, seq: seq(d)? },
            tag::LAST_SEQ => Self::LastSeq { seq: seq(d)? },
            tag::DURABLE_MARK => Self::DurableMark { seq: seq(d)? },
            tag::CLEAN_SHUTDOWN => Self::CleanShutdown,
            tag::LOG_TAKES_TABLES => Self::LogTakesTables,
            tag::CLOCK_MARK => Self::ClockMark { wall_secs: d.varint()? },
            _ if tag & IGNORABLE != 0 => Self::Unknown { tag, body: d.take(d.remaining())?.into() },
            _ => return Ok(None),
        };
        Ok(Some(change))
    }
}

/// Changes that are applied in order, all or none.
#[derive(Clone, Debug, Default)]
pub struct VersionEdit {
    /// The changes in order.
    pub changes: Vec<Change>,
}

impl VersionEdit {
    /// Creates an empty edit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a change.
    pub fn push(&mut self, change: Change) -> &mut Self {
        self.changes.push(change);
        self
    }

    /// Returns the changes of each family, in order.
    pub(super) fn by_family(&self) -> BTreeMap<FamilyId, Self> {
        let mut edits = BTreeMap::<FamilyId, Self>::new();
        for change in &self.changes {
            if let Some(family) = change.family() {
                edits.entry(family).or_default().push(change.clone());
            }
        }
        edits
    }

    /// Appends the encoded edit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        self.changes.iter().for_each(|change| change.encode(&mut body, out));
    }

    /// Returns the encoded edit; `None` if it has more than `max` bytes.
    pub(super) fn encode_within(&self, max: usize) -> Option<Vec<u8>> {
        let (mut body, mut out) = (Vec::new(), Vec::new());
        for change in &self.changes {
            change.encode(&mut body, &mut out);
            if out.len() > max {
                return None;
            }
        }
        Some(out)
    }

    /// Returns the edit as encoded edits to apply one after the other. Each ends with the change that makes it as long as `wanted`, or before
    /// the one that would make it longer than `max`.
    pub(super) fn encode_in_pieces(&self, wanted: usize, max: usize) -> impl Iterator<Item = Vec<u8>> {
        let mut changes = self.changes.iter();
        let (mut body, mut next) = (Vec::new(), Vec::new());
        std::iter::from_fn(move || {
            let mut piece = std::mem::take(&mut next);
            while piece.len() < wanted
                && let Some(change) = changes.next()
            {
                let end = piece.len();
                change.encode(&mut body, &mut piece);
                if piece.len() > max && end > 0 {
                    next = piece.split_off(end);
                    break;
                }
            }
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Decodes an edit from all of `bytes`, which begin at byte `base` of `file`. Key orders are not resolved: a custom
    /// one keeps its name and uses byte order until the state is complete.
    ///
    /// # Errors
    /// `Corrupt` for bytes that no version writes, `FormatTooNew` for a change that this version must not ignore.
    pub fn decode(bytes: &[u8], file: &str, base: u64) -> Result<Self> {
        let mut edit = Self::new();
        let mut d = Decoder::new(bytes, file, base);
        while d.remaining() > 0 {
            let tag = d.u8()?;
            let length = d.length(d.remaining())?;
            let at = base + d.position() as u64;
            let mut body = Decoder::new(d.take(length)?, file, at);
            match Change::decode(tag, &mut body)? {
                Some(change) => {
                    read_fields(&mut body, |_, _| Ok(false))?;
                    edit.changes.push(change);
                }
                None if tag == 0 => return Err(body.corrupt("change with tag 0")),
                None => return Err(too_new(file)),
            }
        }
        Ok(edit)
    }
}

impl FromIterator<Change> for VersionEdit {
    fn from_iter<I: IntoIterator<Item = Change>>(changes: I) -> Self {
        Self { changes: changes.into_iter().collect() }
    }
}

fn family(d: &mut Decoder<'_>) -> Result<FamilyId> {
    d.number(1..=ID_MAX.into(), "number of a family").map(|n| FamilyId(n as u32))
}

fn vlog(d: &mut Decoder<'_>) -> Result<VlogId> {
    d.number(1..=ID_MAX.into(), "number of a value log").map(|n| VlogId(n as u32))
}

/// Decodes the number of a table; a counter may exceed the maximum by `further`.
fn table(d: &mut Decoder<'_>, further: u64) -> Result<u64> {
    d.number(1..=FILE_NUMBER_MAX + further, "number of a table")
}

fn seq(d: &mut Decoder<'_>) -> Result<SeqNo> {
    d.number(0..=SEQ_MAX, "sequence number")
}

fn too_new(file: &str) -> Error {
    Error::FormatTooNew { file: file.into(), found: MANIFEST_FORMAT + 1, supported: MANIFEST_FORMAT }
}

fn level(d: &mut Decoder<'_>) -> Result<u8> {
    match d.u8()? {
        level @ 1..=LEVEL_MAX => Ok(level),
        _ => Err(d.corrupt("no such level")),
    }
}

fn small(d: &mut Decoder<'_>) -> Result<u32> {
    let n = d.varint()?;
    u32::try_from(n).map_err(|_| d.corrupt("number beyond 32 bits"))
}

fn name(d: &mut Decoder<'_>) -> Result<Arc<str>> {
    let bytes = d.bytes(FAMILY_NAME_BYTES_MAX)?;
    std::str::from_utf8(bytes).map(Arc::from).map_err(|_| d.corrupt("name is not UTF-8"))
}

fn range(d: &mut Decoder<'_>) -> Result<RangeTombstone> {
    let seq = seq(d)?;
    let mut border = || d.bytes(BORDER_BYTES_MAX).map(|key| (!key.is_empty()).then(|| key.into()));
    Ok(RangeTombstone::new(seq, border()?, border()?))
}
