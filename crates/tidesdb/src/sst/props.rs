//! [`TableMeta`]: the description of a table. The manifest stores it and the file repeats it; opening a table compares
//! the two.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::Result;
use crate::codec::FieldClass::Required;
use crate::codec::{
    Compression, Decoder, FieldWriter, Salt, UnknownFields, put_bytes, put_varint, read_fields,
};
use crate::options::COMPARATOR_NAME_BYTES_MAX;
use crate::ranges::{BORDER_BYTES_MAX, RangeTombstone};
use crate::types::{
    Comparator, EXPIRY_MAX, EntryRef, FILE_BYTES_MAX, FILE_NUMBER_MAX, ID_MAX, KEY_BYTES_MAX, Kind, SEQ_MAX,
    SeqNo, TableId, VlogId,
};
use crate::vlog::{PlaceBytes, RECORD_HEADER_BYTES, ValuePlace};

/// The references of a table to one value log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlogRef {
    /// The value log.
    pub vlog: VlogId,
    /// Stored bytes of the values referred to. For a chunked value: the bytes of its records there, less one record
    /// header.
    pub bytes: u64,
    /// Number of values referred to. A chunked value is counted once in each of its files.
    pub count: u64,
}

/// The description of a table, as stored in the manifest. The default has no entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableMeta {
    /// Number of the table, from which its file name is derived.
    pub id: TableId,
    /// Salt of this file.
    pub salt: Salt,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of entries, counting all versions and kinds.
    pub entries: u64,
    /// Number of distinct keys.
    pub keys: u64,
    /// Entries that are deletes or single deletes.
    pub tombstones: u64,
    /// Entries that are single deletes.
    pub single_deletes: u64,
    /// First key.
    pub smallest: Vec<u8>,
    /// Last key.
    pub largest: Vec<u8>,
    /// Smallest sequence number.
    pub min_seq: SeqNo,
    /// Largest sequence number.
    pub max_seq: SeqNo,
    /// Smallest expiry among entries that have one; 0 if none has.
    pub oldest_expiry: u64,
    /// Largest expiry among entries that have one; 0 if none has.
    pub newest_expiry: u64,
    /// True if at least one entry never expires.
    pub has_eternal: bool,
    /// Bytes of all keys, uncompressed.
    pub raw_key_bytes: u64,
    /// Bytes of all values (pointers for values in a value log), uncompressed.
    pub raw_value_bytes: u64,
    /// Range tombstones with sequence numbers up to this one cover no entry of the table.
    pub purged_to: SeqNo,
    /// Compression of the blocks.
    pub compression: Compression,
    /// References to value logs, in ascending file number order.
    pub vlog_refs: Vec<VlogRef>,
    /// How the table, which was built outside of the database, was taken; `None` for one that the database wrote.
    pub taken: Option<Taken>,
    /// What a table states of itself that was built outside of a database. Only its file has it, not the manifest.
    pub built: Option<Arc<Built>>,
    /// Unknown fields of a newer version, kept unchanged.
    pub unknown: UnknownFields,
}

/// How the database numbers what is in a table that was built outside of it: all its entries have the sequence number of the table's
/// description, and its pointers, which know only one value log, mean this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The value log of the table, if it has one.
    pub vlog: Option<VlogId>,
}

/// Maximum number of ranges that a table deletes which was built outside of a database.
pub const BUILT_RANGES_MAX: usize = 1 << 16;

/// What a table states of itself that was built outside of a database, and belongs to none yet. Its rows have the sequence number 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Name of the key order.
    pub comparator: String,
    /// Name of the merge operator of its operands; empty without operands.
    pub operator: String,
    /// Identity of the builder: of all tables that it wrote, the range deletes cover no row.
    pub set: Salt,
    /// Salt and length of its value log; `None` if it has none.
    pub values: Option<(Salt, u64)>,
    /// Ranges that it deletes in older tables: the first key, and the first key not deleted; empty for no bound.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Field ids. An id is never reused.
mod field {
    pub(super) const ID: u64 = 1;
    pub(super) const SALT: u64 = 2;
    pub(super) const FILE_BYTES: u64 = 3;
    pub(super) const ENTRIES: u64 = 4;
    pub(super) const KEYS: u64 = 5;
    pub(super) const TOMBSTONES: u64 = 6;
    pub(super) const SINGLE_DELETES: u64 = 7;
    pub(super) const MIN_SEQ: u64 = 8;
    pub(super) const MAX_SEQ: u64 = 9;
    pub(super) const OLDEST_EXPIRY: u64 = 10;
    pub(super) const NEWEST_EXPIRY: u64 = 11;
    pub(super) const HAS_ETERNAL: u64 = 12;
    pub(super) const COMPRESSION: u64 = 13;
    pub(super) const RAW_KEY_BYTES: u64 = 14;
    pub(super) const RAW_VALUE_BYTES: u64 = 15;
    pub(super) const PURGED_TO: u64 = 16;
    pub(super) const SMALLEST: u64 = 17;
    pub(super) const LARGEST: u64 = 18;
    pub(super) const VLOG_REFS: u64 = 19;
    pub(super) const TAKEN: u64 = 20;
    pub(super) const BUILT: u64 = 21;
}

impl TableMeta {
    /// Bytes of the records in the value logs `files` that the table refers to.
    pub fn value_bytes_in(&self, files: &BTreeSet<VlogId>) -> u64 {
        let refs = self.vlog_refs.iter().filter(|r| files.contains(&r.vlog));
        refs.map(|r| r.bytes.saturating_add(r.count.saturating_mul(RECORD_HEADER_BYTES as u64)))
            .fold(0, u64::saturating_add)
    }

    /// Bytes that the description takes in memory, with its place in a version and the names of its file.
    pub fn memory_bytes(&self) -> u64 {
        const PLACE_BYTES: usize = 256;
        let refs = self.vlog_refs.capacity() * size_of::<VlogRef>();
        (size_of::<Self>() + self.smallest.capacity() + self.largest.capacity() + refs + PLACE_BYTES) as u64
    }

    /// The time from which on all its entries have expired; `None` if one never does.
    pub fn expires(&self) -> Option<u64> {
        (!self.has_eternal && self.newest_expiry > 0).then_some(self.newest_expiry)
    }

    /// Returns whether `range` may cover an older entry of the table.
    pub fn may_be_hidden(&self, order: &Comparator, range: &RangeTombstone) -> bool {
        range.seq > self.min_seq
            && range.seq > self.purged_to
            && range.meets(order, &self.smallest, &self.largest)
    }

    /// Appends the description as fields, in the manifest's form. The fields extend to the end of the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = FieldWriter::new(out);
        fields.number(field::ID, Required, self.id.0);
        fields.bytes(field::SALT, Required, &self.salt);
        fields.number(field::FILE_BYTES, Required, self.file_bytes);
        self.encode_props(fields);
    }

    /// Decodes what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not an encoded description; `FormatTooNew`.
    pub fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let meta = Self::decode_fields(d, field::ID)?;
        match &meta.built {
            None => Ok(meta),
            Some(_) => Err(d.corrupt("a table of the manifest belongs to no database")),
        }
    }

    /// Appends the properties that the file itself repeats, up to the end of a section. Number, salt and length are
    /// omitted: the footer and the file size provide them.
    pub(super) fn encode_props(&self, mut fields: FieldWriter<'_>) {
        for (id, n) in [
            (field::ENTRIES, self.entries),
            (field::KEYS, self.keys),
            (field::TOMBSTONES, self.tombstones),
            (field::SINGLE_DELETES, self.single_deletes),
            (field::MIN_SEQ, self.min_seq),
            (field::MAX_SEQ, self.max_seq),
            (field::OLDEST_EXPIRY, self.oldest_expiry),
            (field::NEWEST_EXPIRY, self.newest_expiry),
            (field::HAS_ETERNAL, self.has_eternal.into()),
            (field::COMPRESSION, self.compression as u64),
            (field::RAW_KEY_BYTES, self.raw_key_bytes),
            (field::RAW_VALUE_BYTES, self.raw_value_bytes),
            (field::PURGED_TO, self.purged_to),
        ] {
            fields.number(id, Required, n);
        }
        fields.bytes(field::SMALLEST, Required, &self.smallest);
        fields.bytes(field::LARGEST, Required, &self.largest);
        let mut refs = Vec::new();
        put_varint(&mut refs, self.vlog_refs.len() as u64);
        for r in &self.vlog_refs {
            put_varint(&mut refs, u64::from(r.vlog.0));
            put_varint(&mut refs, r.bytes);
            put_varint(&mut refs, r.count);
        }
        fields.bytes(field::VLOG_REFS, Required, &refs);
        if let Some(taken) = &self.taken {
            fields.number(field::TAKEN, Required, taken.vlog.map_or(0, |vlog| vlog.0.into()));
        }
        if let Some(built) = &self.built {
            fields.bytes(field::BUILT, Required, &built.encode());
        }
        fields.finish(&self.unknown);
    }

    /// Reads the remaining fields. All known fields from `first` on must be present.
    fn decode_fields(d: &mut Decoder<'_>, first: u64) -> Result<Self> {
        let (mut meta, mut next) = (Self::default(), first);
        let unknown = read_fields(d, |id, d| {
            match id {
                field::TAKEN => meta.taken = Some(Taken::decode(d)?),
                field::BUILT => meta.built = Some(Arc::new(Built::decode(d)?)),
                _ => {}
            }
            if id > field::VLOG_REFS {
                return Ok(id <= field::BUILT);
            }
            if id != next {
                return Err(d.corrupt("a field of a table is missing"));
            }
            next += 1;
            match id {
                field::ID => meta.id = TableId(d.number(1..=FILE_NUMBER_MAX, "number of a table")?),
                field::SALT => meta.salt = d.array()?,
                field::FILE_BYTES => meta.file_bytes = count(d)?,
                field::ENTRIES => meta.entries = count(d)?,
                field::KEYS => meta.keys = count(d)?,
                field::TOMBSTONES => meta.tombstones = count(d)?,
                field::SINGLE_DELETES => meta.single_deletes = count(d)?,
                field::MIN_SEQ => meta.min_seq = seq(d)?,
                field::MAX_SEQ => meta.max_seq = seq(d)?,
                field::OLDEST_EXPIRY => meta.oldest_expiry = expiry(d)?,
                field::NEWEST_EXPIRY => meta.newest_expiry = expiry(d)?,
                field::HAS_ETERNAL => meta.has_eternal = flag(d)?,
                field::COMPRESSION => meta.compression = compression(d)?,
                field::RAW_KEY_BYTES => meta.raw_key_bytes = count(d)?,
                field::RAW_VALUE_BYTES => meta.raw_value_bytes = count(d)?,
                field::PURGED_TO => meta.purged_to = seq(d)?,
                field::SMALLEST => meta.smallest = bounded(d)?,
                field::LARGEST => meta.largest = bounded(d)?,
                _ => meta.read_vlog_refs(d)?,
            }
            Ok(true)
        })?;
        if next != field::VLOG_REFS + 1 {
            return Err(d.corrupt("a field of a table is missing"));
        }
        match meta.is_consistent() {
            true => Ok(Self { unknown, ..meta }),
            false => Err(d.corrupt("counts of a table contradict each other")),
        }
    }

    /// Decodes the properties that the file itself repeats.
    pub(super) fn decode_props(d: &mut Decoder<'_>) -> Result<Self> {
        Self::decode_fields(d, field::ENTRIES)
    }

    fn read_vlog_refs(&mut self, d: &mut Decoder<'_>) -> Result<()> {
        // Each reference takes at least three bytes, so the remaining bytes bound the allocation.
        let refs = d.length(d.remaining() / 3)?;
        self.vlog_refs.reserve_exact(refs);
        for _ in 0..refs {
            let vlog = d.number(1..=ID_MAX.into(), "number of a value log")?;
            let r = VlogRef { vlog: VlogId(vlog as u32), bytes: count(d)?, count: count(d)? };
            if self.vlog_refs.last().is_some_and(|last| last.vlog >= r.vlog) {
                return Err(d.corrupt("value logs out of order"));
            }
            self.vlog_refs.push(r);
        }
        Ok(())
    }

    /// Returns the description that the file of a table has, as the database that took the table numbers it: as `meta`, its description in
    /// the manifest.
    pub(super) fn taken_as(self, meta: &Self) -> Self {
        let Some(taken) = meta.taken else { return self };
        let name = |r: VlogRef| VlogRef { vlog: taken.vlog.unwrap_or(r.vlog), ..r };
        let (min_seq, max_seq) = (self.min_seq + meta.min_seq, self.max_seq + meta.max_seq);
        let vlog_refs = self.vlog_refs.into_iter().map(name).collect();
        Self { vlog_refs, min_seq, max_seq, taken: meta.taken, built: None, ..self }
    }

    /// Returns the place in a value log that an entry of the table stores as `value`, if it is not `value` itself: that of a table which was
    /// built outside of the database.
    #[inline]
    pub(super) fn place_of(&self, kind: Kind, value: &[u8]) -> Option<PlaceBytes> {
        match self.taken {
            Some(Taken { vlog: Some(vlog) }) if kind.holds_pointer() => Some(renumbered(value, vlog)),
            _ => None,
        }
    }

    /// Returns whether every count is at most the count that includes it.
    fn is_consistent(&self) -> bool {
        self.keys <= self.entries
            && self.tombstones <= self.entries
            && self.single_deletes <= self.tombstones
            && self.min_seq <= self.max_seq
            && (self.taken.is_none() || self.min_seq == self.max_seq && self.entries == self.keys)
            && self.oldest_expiry <= self.newest_expiry
    }

    /// Counts an entry. Returns what is wrong with it.
    #[inline]
    pub(super) fn note(&mut self, e: &EntryRef<'_>, new_key: bool) -> std::result::Result<(), &'static str> {
        if self.entries == 0 {
            self.smallest = e.key.to_vec();
            self.min_seq = e.seq;
        }
        self.entries += 1;
        self.keys += u64::from(new_key);
        self.min_seq = self.min_seq.min(e.seq);
        self.max_seq = self.max_seq.max(e.seq);
        self.raw_key_bytes += e.key.len() as u64;
        self.raw_value_bytes += e.value.len() as u64;
        self.note_expiry(e.expiry);
        match e.kind {
            Kind::Put | Kind::Merge => Ok(()),
            Kind::PutPointer => self.note_pointer(e.value),
            Kind::Delete | Kind::SingleDelete if e.value.is_empty() => {
                self.tombstones += 1;
                self.single_deletes += u64::from(e.kind.is_single_delete());
                Ok(())
            }
            Kind::Delete | Kind::SingleDelete => Err("tombstone with a value"),
            Kind::RangeDelete => Err("range tombstone as a version of a key"),
        }
    }

    #[inline]
    fn note_expiry(&mut self, expiry: u64) {
        if expiry == 0 {
            self.has_eternal = true;
            return;
        }
        self.oldest_expiry = if self.oldest_expiry == 0 { expiry } else { self.oldest_expiry.min(expiry) };
        self.newest_expiry = self.newest_expiry.max(expiry);
    }

    /// Adds the value that an encoded pointer refers to.
    fn note_pointer(&mut self, pointer: &[u8]) -> std::result::Result<(), &'static str> {
        let place = ValuePlace::decode(pointer).ok_or("malformed pointer into a value log")?;
        place.each_part(|vlog, bytes| match self.vlog_refs.binary_search_by_key(&vlog, |r| r.vlog) {
            Ok(i) => {
                self.vlog_refs[i].bytes += bytes;
                self.vlog_refs[i].count += 1;
            }
            Err(i) => self.vlog_refs.insert(i, VlogRef { vlog, bytes, count: 1 }),
        });
        Ok(())
    }

    /// Returns its references to value logs without counts, for a count that begins anew. Each pointer finds its log among them: a count that
    /// adds the logs as they come takes a step for each pair of them.
    pub(super) fn uncounted_refs(&self) -> Vec<VlogRef> {
        self.vlog_refs.iter().map(|r| VlogRef { bytes: 0, count: 0, ..*r }).collect()
    }

    /// Returns the name of the first field in which `self`, read from the file, differs from `expected`.
    pub(super) fn difference(&self, expected: &Self) -> Option<&'static str> {
        let same = [
            (self.entries == expected.entries, "number of entries"),
            (self.smallest == expected.smallest, "smallest key"),
            (self.largest == expected.largest, "largest key"),
            (self.min_seq == expected.min_seq, "smallest sequence number"),
            (self.max_seq == expected.max_seq, "largest sequence number"),
            (self.vlog_refs == expected.vlog_refs, "references to value logs"),
            (self == expected, "properties"),
        ];
        same.iter().find(|(same, _)| !same).map(|(_, what)| *what)
    }
}

impl Taken {
    fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let vlog = d.number(0..=ID_MAX.into(), "number of a value log")?;
        Ok(Self { vlog: (vlog > 0).then_some(VlogId(vlog as u32)) })
    }
}

impl Built {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, self.comparator.as_bytes());
        put_bytes(&mut out, self.operator.as_bytes());
        out.extend_from_slice(&self.set);
        let (salt, bytes) = self.values.unwrap_or_default();
        put_varint(&mut out, bytes);
        out.extend_from_slice(&salt);
        put_varint(&mut out, self.ranges.len() as u64);
        for (start, end) in &self.ranges {
            put_bytes(&mut out, start);
            put_bytes(&mut out, end);
        }
        out
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let mut this = Self { comparator: name(d)?, operator: name(d)?, set: d.array()?, ..Self::default() };
        let (bytes, salt) = (count(d)?, d.array()?);
        this.values = (bytes > 0).then_some((salt, bytes));
        // Each range takes at least two bytes, so the remaining bytes bound the allocation, too.
        let ranges = d.length((d.remaining() / 2).min(BUILT_RANGES_MAX))?;
        this.ranges.reserve_exact(ranges);
        for _ in 0..ranges {
            let (start, end) = (border(d)?, border(d)?);
            this.ranges.push((start, end));
        }
        Ok(this)
    }
}

/// Returns the encoded place `value` in the value log `vlog`. Bytes that are no place stay as they are, for who decodes them to refuse.
#[cold]
fn renumbered(value: &[u8], vlog: VlogId) -> PlaceBytes {
    match ValuePlace::decode(value) {
        Some(place) => place.encode_in(vlog),
        None => PlaceBytes::from_slice(value),
    }
}

/// Reads the name of a key order or of a merge operator.
fn name(d: &mut Decoder<'_>) -> Result<String> {
    let len = d.length(COMPARATOR_NAME_BYTES_MAX)?;
    let bytes = d.take(len)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| d.corrupt("a name is not UTF-8"))
}

/// Reads a border of a range.
fn border(d: &mut Decoder<'_>) -> Result<Vec<u8>> {
    let len = d.length(BORDER_BYTES_MAX)?;
    Ok(d.take(len)?.to_vec())
}

fn flag(d: &mut Decoder<'_>) -> Result<bool> {
    match d.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(d.corrupt("flag is neither 0 nor 1")),
    }
}

fn compression(d: &mut Decoder<'_>) -> Result<Compression> {
    Compression::from_u8(d.u8()?).ok_or_else(|| d.corrupt("unknown compression"))
}

/// Reads a key that fills the rest of a field.
fn bounded(d: &mut Decoder<'_>) -> Result<Vec<u8>> {
    let key = d.rest();
    if key.len() <= KEY_BYTES_MAX { Ok(key.to_vec()) } else { Err(d.corrupt("key longer than its limit")) }
}

/// Reads a length, or a count of items in one file.
fn count(d: &mut Decoder<'_>) -> Result<u64> {
    d.number(0..=FILE_BYTES_MAX, "length or count")
}

fn seq(d: &mut Decoder<'_>) -> Result<SeqNo> {
    d.number(0..=SEQ_MAX, "sequence number")
}

fn expiry(d: &mut Decoder<'_>) -> Result<u64> {
    d.number(0..=EXPIRY_MAX, "expiry")
}
