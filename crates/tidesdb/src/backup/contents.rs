//! What a generation consists of: the object that describes it.

use std::collections::{BTreeMap, BTreeSet};

use super::codec::{seal, unseal};
use super::index::Entry;
use super::names::{ObjectId, ObjectKind};
use crate::codec::FieldClass::{Optional, Required};
use crate::codec::{Decoder, FieldWriter, Salt, UnknownFields, put_bytes, put_varint, read_fields};
use crate::files::{self, FileKind};
use crate::order::Gather;
use crate::types::{
    EXPIRY_MAX, FAMILY_NAME_BYTES_MAX, FILE_BYTES_MAX, FILE_NUMBER_MAX, ID_MAX, SEQ_MAX, SeqNo, TableId,
    VlogId, is_segment_bytes,
};
use crate::version::{FamilyState, Identity, State, VersionEdit};
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"TDBBGEN\n";

/// A file of a database: its number and the salt in its header. No two files of one database have both, nor have two databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId {
    pub(super) kind: FileKind,
    pub(super) salt: Salt,
}

impl FileId {
    /// The kind of the objects that hold its bytes.
    pub(super) fn object_kind(&self) -> ObjectKind {
        match self.kind {
            FileKind::Vlog(_) => ObjectKind::Vlog,
            _ => ObjectKind::Table,
        }
    }

    /// Its name in the folder of a database.
    pub(super) fn name(&self) -> String {
        match self.kind {
            FileKind::Vlog(id) => files::vlog(id),
            FileKind::Table(id) => files::table(id),
            other => unreachable!("{other:?} is in no generation"),
        }
    }
}

/// Consecutive bytes of a file, in an object of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) object: ObjectId,
    pub(super) bytes: u64,
    pub(super) crc: u32,
}

/// A file and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredFile {
    pub(super) id: FileId,
    /// In order, without gaps.
    pub(super) parts: Vec<Part>,
}

impl StoredFile {
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.parts.iter().map(|part| part.object)
    }
}

/// What the rows of a family were when the generation was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FamilyRows {
    pub(super) name: String,
    pub(super) rows: u64,
    /// Of all keys and values, in order.
    pub(super) crc: u32,
}

/// The rows of all families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// What had expired at this time was not counted; milliseconds since the UNIX epoch.
    pub(super) at: u64,
    pub(super) families: Vec<FamilyRows>,
}

/// What a generation consists of.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    pub(super) number: u64,
    pub(super) identity: Identity,
    pub(super) created: u64,
    /// Bytes that were new in the store.
    pub(super) copied: u64,
    /// All commits below it are in the files, and no others.
    pub(super) boundary: SeqNo,
    /// The state of the manifest.
    pub(super) state: State,
    pub(super) files: Vec<StoredFile>,
    /// `None` if the rows were not counted.
    pub(super) counted: Option<Counted>,
    pub(super) unknown: UnknownFields,
}

mod field {
    pub(super) const NUMBER: u64 = 1;
    pub(super) const UUID: u64 = 2;
    pub(super) const SEGMENT_BYTES: u64 = 3;
    pub(super) const CREATED: u64 = 4;
    pub(super) const BOUNDARY: u64 = 5;
    pub(super) const STATE: u64 = 6;
    pub(super) const FILES: u64 = 7;
    pub(super) const COUNTED: u64 = 8;
    pub(super) const COPIED: u64 = 9;
}

/// The files of a family, and the length of each that is never written again.
pub(super) fn files_of(family: &FamilyState) -> impl Iterator<Item = (FileId, Option<u64>)> {
    let tables = family.tables.iter().map(|table| {
        let id = FileId { kind: FileKind::Table(table.meta.id), salt: table.meta.salt };
        (id, Some(table.meta.file_bytes))
    });
    let vlogs = family.vlogs.iter().map(|(id, vlog)| {
        let bytes = vlog.sealed_at.is_some().then_some(vlog.bytes);
        (FileId { kind: FileKind::Vlog(*id), salt: vlog.salt }, bytes)
    });
    tables.chain(vlogs)
}

impl Contents {
    pub(super) fn new(number: u64, identity: Identity, created: u64, boundary: SeqNo, state: State) -> Self {
        let unknown = UnknownFields::default();
        Self {
            number,
            identity,
            created,
            copied: 0,
            boundary,
            state,
            files: Vec::new(),
            counted: None,
            unknown,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(StoredFile::bytes).fold(0, u64::saturating_add)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (mut state, mut fields) = (Vec::new(), Vec::new());
        self.state.snapshot().encode(&mut state);
        let mut f = FieldWriter::new(&mut fields);
        f.number(field::NUMBER, Required, self.number);
        f.bytes(field::UUID, Required, &self.identity.uuid);
        f.number(field::SEGMENT_BYTES, Required, self.identity.wal_segment_bytes);
        f.number(field::CREATED, Required, self.created);
        f.number(field::BOUNDARY, Required, self.boundary);
        f.bytes(field::STATE, Required, &state);
        f.bytes(field::FILES, Required, &encode_files(&self.files));
        if let Some(counted) = &self.counted {
            f.bytes(field::COUNTED, Optional, &counted.encode());
        }
        f.number(field::COPIED, Optional, self.copied);
        f.finish(&self.unknown);
        seal(&MAGIC, &fields)
    }

    /// Decodes the object `name`, and checks that it is whole: its files are those that its state names.
    ///
    /// # Errors
    /// `Corrupt`, `FormatTooNew`.
    pub(super) fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        use field::*;
        let mut d = unseal(&MAGIC, bytes, name)?;
        let identity = Identity { uuid: [0; 16], wal_segment_bytes: 0 };
        let mut this = Self::new(0, identity, 0, 0, State::default());
        let unknown = read_fields(&mut d, |id, d| {
            match id {
                NUMBER => this.number = d.number(1..=FILE_NUMBER_MAX, "number of the generation")?,
                UUID => this.identity.uuid = d.array()?,
                SEGMENT_BYTES => this.identity.wal_segment_bytes = d.varint()?,
                CREATED => this.created = d.number(0..=EXPIRY_MAX, "time")?,
                BOUNDARY => this.boundary = d.number(0..=SEQ_MAX, "sequence number")?,
                STATE => {
                    let edit = VersionEdit::decode(d.rest(), name, 0)?;
                    let applied = this.state.apply(&edit).and_then(|()| this.state.check());
                    applied.map_err(|e| Error::corrupt(name, 0, format!("its state is invalid: {e}")))?;
                }
                FILES => this.files = decode_files(d)?,
                COUNTED => this.counted = Some(Counted::decode(d)?),
                COPIED => this.copied = d.varint()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        this.check().map_err(|what| Error::corrupt(name, 0, what))?;
        Ok(Self { unknown, ..this })
    }

    fn check(&self) -> Result<(), String> {
        if self.number == 0 || !is_segment_bytes(self.identity.wal_segment_bytes) {
            return Err("a number that no version writes".into());
        }
        let named: Vec<(FileId, Option<u64>)> =
            self.state.families.values().flat_map(|family| files_of(family)).collect();
        let stored: BTreeSet<FileId> = self.files.iter().map(|file| file.id).gather();
        if stored.len() != self.files.len() || stored != named.iter().map(|(id, _)| *id).collect() {
            return Err("its files are not those of its state".into());
        }
        let bytes: BTreeMap<FileId, u64> = self.files.iter().map(|file| (file.id, file.bytes())).gather();
        let wrong =
            named.iter().find(|(id, wanted)| wanted.is_some_and(|wanted| bytes.get(id) != Some(&wanted)));
        if bytes.values().any(|bytes| *bytes > FILE_BYTES_MAX) {
            return Err("a file is longer than any".into());
        }
        match wrong {
            Some((id, _)) => Err(format!("the parts of {} have not its length", id.name())),
            None => Ok(()),
        }
    }

    /// What the index says of a generation whose object has the number `object` of `writer`, and these bytes.
    pub(super) fn entry(&self, id: ObjectId, bytes: &[u8]) -> Entry {
        Entry {
            number: self.number,
            writer: id.writer,
            object: id.number,
            object_bytes: bytes.len() as u64,
            object_crc: tidesdb_io::crc32c(0, bytes),
            uuid: self.identity.uuid,
            created: self.created,
            sequence: self.boundary.saturating_sub(1),
            files: self.files.len() as u64,
            bytes: self.bytes(),
            copied: self.copied,
            ..Entry::default()
        }
    }
}

/// `count`, then for each file: kind u8, number, salt 16, parts; for each part: writer, object, bytes, crc u32. Numbers are varints.
fn encode_files(all: &[StoredFile]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, all.len() as u64);
    for file in all {
        let (kind, number) = match file.id.kind {
            FileKind::Vlog(id) => (1, id.0.into()),
            FileKind::Table(id) => (0, id.0),
            other => unreachable!("{other:?} is in no generation"),
        };
        out.push(kind);
        put_varint(&mut out, number);
        out.extend_from_slice(&file.id.salt);
        put_varint(&mut out, file.parts.len() as u64);
        for part in &file.parts {
            put_varint(&mut out, part.object.writer);
            put_varint(&mut out, part.object.number);
            put_varint(&mut out, part.bytes);
            out.extend_from_slice(&part.crc.to_le_bytes());
        }
    }
    out
}

fn decode_files(d: &mut Decoder<'_>) -> Result<Vec<StoredFile>> {
    let mut all = Vec::new();
    for _ in 0..d.length(d.remaining())? {
        let kind = match d.u8()? {
            0 => FileKind::Table(TableId(d.number(0..=FILE_NUMBER_MAX, "number of a table")?)),
            1 => FileKind::Vlog(VlogId(d.number(0..=ID_MAX.into(), "number of a value log")? as u32)),
            _ => return Err(d.corrupt("unknown kind of a file")),
        };
        let id = FileId { kind, salt: d.array()? };
        let mut parts = Vec::new();
        for _ in 0..d.length(d.remaining())? {
            let writer = d.number(1..=FILE_NUMBER_MAX, "number of a writer")?;
            let number = d.number(0..=FILE_NUMBER_MAX, "number of an object")?;
            let object = ObjectId { writer, number, kind: id.object_kind() };
            parts.push(Part { object, bytes: d.varint()?, crc: d.u32()? });
        }
        all.push(StoredFile { id, parts });
    }
    Ok(all)
}

impl Counted {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.at);
        put_varint(&mut out, self.families.len() as u64);
        for family in &self.families {
            put_bytes(&mut out, family.name.as_bytes());
            put_varint(&mut out, family.rows);
            out.extend_from_slice(&family.crc.to_le_bytes());
        }
        out
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let at = d.number(0..=EXPIRY_MAX, "time")?;
        let mut families = Vec::new();
        for _ in 0..d.length(d.remaining())? {
            let name = std::str::from_utf8(d.bytes(FAMILY_NAME_BYTES_MAX)?);
            let name = name.map_err(|_| d.corrupt("the name of a family is not UTF-8"))?.to_owned();
            families.push(FamilyRows { name, rows: d.varint()?, crc: d.u32()? });
        }
        Ok(Self { at, families })
    }
}
