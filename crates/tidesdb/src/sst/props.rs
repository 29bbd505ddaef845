//! [`TableMeta`]: what is known of a table without reading its entries. The manifest stores it, the file repeats it, and
//! opening a table compares the two.

use crate::Result;
use crate::codec::{Compression, Decoder, Salt, put_bytes, put_varint};
use crate::ranges::RangeTombstone;
use crate::types::{
    Comparator, FILE_BYTES_MAX, FILE_NUMBER_MAX, ID_MAX, KEY_BYTES_MAX, SEQ_MAX, SeqNo, TableId, VlogId,
};

/// What a table refers to in one value log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlogRef {
    /// The value log.
    pub vlog: VlogId,
    /// Bytes on disk of the values referred to.
    pub bytes: u64,
    /// How many values.
    pub count: u64,
}

/// What the manifest knows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// Number of the table; its file is called after it.
    pub id: TableId,
    /// Drawn for this file alone.
    pub salt: Salt,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of entries, all versions and kinds.
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
    /// Smallest expiry among entries that have one, 0 = none has.
    pub oldest_expiry: u32,
    /// Largest expiry among entries that have one, 0 = none has.
    pub newest_expiry: u32,
    /// Whether some entry never expires.
    pub has_eternal: bool,
    /// Bytes of all keys, uncompressed.
    pub raw_key_bytes: u64,
    /// Bytes of all values (pointers for values in a value log), uncompressed.
    pub raw_value_bytes: u64,
    /// No entry is covered by a range tombstone of a sequence number up to this one.
    pub purged_to: SeqNo,
    /// Compression of the blocks.
    pub compression: Compression,
    /// The value logs referred to, by ascending number.
    pub vlog_refs: Vec<VlogRef>,
}

impl TableMeta {
    /// Whether `range` may cover an older entry of the table.
    pub fn may_be_hidden(&self, order: &Comparator, range: &RangeTombstone) -> bool {
        range.seq > self.min_seq
            && range.seq > self.purged_to
            && range.meets(order, &self.smallest, &self.largest)
    }

    /// Appends the encoded form, as stored in the manifest.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.id.0);
        out.extend_from_slice(&self.salt);
        put_varint(out, self.file_bytes);
        self.encode_props(out);
    }

    /// Reads the encoded form.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not an encoded description.
    pub fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        let id = TableId(d.number(1..=FILE_NUMBER_MAX, "number of a table")?);
        let salt = d.array()?;
        let file_bytes = count(d)?;
        Ok(Self { id, salt, file_bytes, ..Self::decode_props(d)? })
    }

    /// Appends what the file itself repeats: all but number, salt and length, which its footer and size tell.
    pub(super) fn encode_props(&self, out: &mut Vec<u8>) {
        for n in [self.entries, self.keys, self.tombstones, self.single_deletes, self.min_seq, self.max_seq] {
            put_varint(out, n);
        }
        put_varint(out, u64::from(self.oldest_expiry));
        put_varint(out, u64::from(self.newest_expiry));
        out.extend_from_slice(&[u8::from(self.has_eternal), self.compression as u8]);
        put_varint(out, self.raw_key_bytes);
        put_varint(out, self.raw_value_bytes);
        put_varint(out, self.purged_to);
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        put_varint(out, self.vlog_refs.len() as u64);
        for r in &self.vlog_refs {
            put_varint(out, u64::from(r.vlog.0));
            put_varint(out, r.bytes);
            put_varint(out, r.count);
        }
    }

    /// Reads what [`encode_props`](Self::encode_props) wrote.
    pub(super) fn decode_props(d: &mut Decoder<'_>) -> Result<Self> {
        let mut meta = Self {
            entries: count(d)?,
            keys: count(d)?,
            tombstones: count(d)?,
            single_deletes: count(d)?,
            min_seq: seq(d)?,
            max_seq: seq(d)?,
            oldest_expiry: expiry(d)?,
            newest_expiry: expiry(d)?,
            has_eternal: match d.u8()? {
                0 => false,
                1 => true,
                _ => return Err(d.corrupt("flag is neither 0 nor 1")),
            },
            compression: match Compression::from_u8(d.u8()?) {
                Some(c) => c,
                None => return Err(d.corrupt("unknown compression")),
            },
            raw_key_bytes: count(d)?,
            raw_value_bytes: count(d)?,
            purged_to: seq(d)?,
            smallest: d.bytes(KEY_BYTES_MAX)?.to_vec(),
            largest: d.bytes(KEY_BYTES_MAX)?.to_vec(),
            ..Self::default()
        };
        // Each reference takes three bytes at least, which bounds the allocation by the bytes at hand.
        let refs = d.length(d.remaining() / 3)?;
        meta.vlog_refs.reserve_exact(refs);
        for _ in 0..refs {
            let vlog = d.number(1..=ID_MAX.into(), "number of a value log")?;
            let r = VlogRef { vlog: VlogId(vlog as u32), bytes: count(d)?, count: count(d)? };
            if meta.vlog_refs.last().is_some_and(|last| last.vlog >= r.vlog) {
                return Err(d.corrupt("value logs out of order"));
            }
            meta.vlog_refs.push(r);
        }
        if meta.is_consistent() {
            Ok(meta)
        } else {
            Err(d.corrupt("counts of a table contradict each other"))
        }
    }

    /// Whether no count is above the one that it is a part of.
    fn is_consistent(&self) -> bool {
        self.keys <= self.entries
            && self.tombstones <= self.entries
            && self.single_deletes <= self.tombstones
            && self.min_seq <= self.max_seq
            && self.oldest_expiry <= self.newest_expiry
    }

    /// The first field in which `self`, read from the file, differs from `expected`, if any.
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

impl Default for TableMeta {
    /// The description of a table without entries.
    fn default() -> Self {
        Self {
            id: TableId(0),
            salt: [0; 16],
            file_bytes: 0,
            entries: 0,
            keys: 0,
            tombstones: 0,
            single_deletes: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            min_seq: 0,
            max_seq: 0,
            oldest_expiry: 0,
            newest_expiry: 0,
            has_eternal: false,
            raw_key_bytes: 0,
            raw_value_bytes: 0,
            purged_to: 0,
            compression: Compression::None,
            vlog_refs: Vec::new(),
        }
    }
}

/// A length, or a count of things in one file.
fn count(d: &mut Decoder<'_>) -> Result<u64> {
    d.number(0..=FILE_BYTES_MAX, "length or count")
}

fn seq(d: &mut Decoder<'_>) -> Result<SeqNo> {
    d.number(0..=SEQ_MAX, "sequence number")
}

fn expiry(d: &mut Decoder<'_>) -> Result<u32> {
    d.number(0..=u32::MAX.into(), "expiry").map(|n| n as u32)
}
