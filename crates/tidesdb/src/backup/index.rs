//! The index of a store: which generations count, and which writer may change that. Each change replaces it, if it is still what the writer
//! has read or written last.

use super::codec::{seal, unseal};
use super::names::{INDEX, ObjectId, ObjectKind};
use crate::codec::FieldClass::{Optional, Required};
use crate::codec::{Decoder, FieldWriter, Salt, UnknownFields, put_bytes, put_varint, read_fields};
use crate::types::{EXPIRY_MAX, FILE_NUMBER_MAX, SEQ_MAX, SeqNo};
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"TDBBIDX\n";

/// The index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Random for each change, so that no two indexes are the same, and a writer knows its own.
    pub(super) salt: Salt,
    /// The writer that may change the index. Writers are numbered from 1.
    pub(super) writer: u64,
    /// Number of the next generation.
    pub(super) next: u64,
    /// By number.
    pub(super) generations: Vec<Entry>,
    pub(super) unknown: UnknownFields,
}

/// A generation in the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) number: u64,
    /// The writer of its object, and the number of that object.
    pub(super) writer: u64,
    pub(super) object: u64,
    /// Length and checksum of its object.
    pub(super) object_bytes: u64,
    pub(super) object_crc: u32,
    /// The database.
    pub(super) uuid: [u8; 16],
    /// Milliseconds since the UNIX epoch.
    pub(super) created: u64,
    pub(super) sequence: SeqNo,
    pub(super) files: u64,
    /// Bytes of its files, and how many of them were new in the store.
    pub(super) bytes: u64,
    pub(super) copied: u64,
    /// When it was proven, in milliseconds since the UNIX epoch; 0 = it was not.
    pub(super) proven: u64,
    /// When a proof failed; 0 = none did since it was proven.
    pub(super) failed: u64,
    pub(super) unknown: UnknownFields,
}

mod field {
    pub(super) const SALT: u64 = 1;
    pub(super) const WRITER: u64 = 2;
    pub(super) const NEXT: u64 = 3;
    pub(super) const GENERATIONS: u64 = 4;
}

mod entry_field {
    pub(super) const NUMBER: u64 = 1;
    pub(super) const WRITER: u64 = 2;
    pub(super) const OBJECT: u64 = 3;
    pub(super) const OBJECT_BYTES: u64 = 4;
    pub(super) const OBJECT_CRC: u64 = 5;
    pub(super) const UUID: u64 = 6;
    pub(super) const CREATED: u64 = 7;
    pub(super) const SEQUENCE: u64 = 8;
    pub(super) const FILES: u64 = 9;
    pub(super) const BYTES: u64 = 10;
    pub(super) const COPIED: u64 = 11;
    pub(super) const PROVEN: u64 = 12;
    pub(super) const FAILED: u64 = 13;
}

impl Entry {
    /// The object that describes the generation.
    pub(super) fn object_id(&self) -> ObjectId {
        ObjectId { writer: self.writer, number: self.object, kind: ObjectKind::Generation }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut f = FieldWriter::new(out);
        f.number(entry_field::NUMBER, Required, self.number);
        f.number(entry_field::WRITER, Required, self.writer);
        f.number(entry_field::OBJECT, Required, self.object);
        f.number(entry_field::OBJECT_BYTES, Required, self.object_bytes);
        f.number(entry_field::OBJECT_CRC, Required, self.object_crc.into());
        f.bytes(entry_field::UUID, Required, &self.uuid);
        f.number(entry_field::CREATED, Required, self.created);
        f.number(entry_field::SEQUENCE, Optional, self.sequence);
        f.number(entry_field::FILES, Optional, self.files);
        f.number(entry_field::BYTES, Optional, self.bytes);
        f.number(entry_field::COPIED, Optional, self.copied);
        f.number(entry_field::PROVEN, Optional, self.proven);
        f.number(entry_field::FAILED, Optional, self.failed);
        f.finish(&self.unknown);
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        use entry_field::*;
        let mut this = Self::default();
        let unknown = read_fields(d, |id, d| {
            match id {
                NUMBER => this.number = d.number(1..=FILE_NUMBER_MAX, "number of the generation")?,
                WRITER => this.writer = d.number(1..=FILE_NUMBER_MAX, "number of the writer")?,
                OBJECT => this.object = d.number(0..=FILE_NUMBER_MAX, "number of the object")?,
                OBJECT_BYTES => this.object_bytes = d.varint()?,
                OBJECT_CRC => this.object_crc = d.number(0..=u32::MAX.into(), "checksum")? as u32,
                UUID => this.uuid = d.array()?,
                CREATED => this.created = d.number(0..=EXPIRY_MAX, "time")?,
                SEQUENCE => this.sequence = d.number(0..=SEQ_MAX, "sequence number")?,
                FILES => this.files = d.varint()?,
                BYTES => this.bytes = d.varint()?,
                COPIED => this.copied = d.varint()?,
                PROVEN => this.proven = d.number(0..=EXPIRY_MAX, "time")?,
                FAILED => this.failed = d.number(0..=EXPIRY_MAX, "time")?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { unknown, ..this })
    }
}

impl Index {
    /// The generation `number`.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn find(&self, number: u64) -> Result<&Entry> {
        let found = self.generations.iter().find(|entry| entry.number == number);
        found.ok_or_else(|| Error::NotFound { what: format!("generation {number}").into() })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut list = Vec::new();
        put_varint(&mut list, self.generations.len() as u64);
        for entry in &self.generations {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            put_bytes(&mut list, &bytes);
        }
        let mut fields = Vec::new();
        let mut f = FieldWriter::new(&mut fields);
        f.bytes(field::SALT, Required, &self.salt);
        f.number(field::WRITER, Required, self.writer);
        f.number(field::NEXT, Required, self.next);
        f.bytes(field::GENERATIONS, Required, &list);
        f.finish(&self.unknown);
        seal(&MAGIC, &fields)
    }

    /// Decodes what [`Index::encode`] wrote.
    ///
    /// # Errors
    /// `Corrupt`, `FormatTooNew`.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        use field::*;
        let mut this = Self::default();
        let mut d = unseal(&MAGIC, bytes, INDEX)?;
        let unknown = read_fields(&mut d, |id, d| {
            match id {
                SALT => this.salt = d.array()?,
                WRITER => this.writer = d.number(1..=FILE_NUMBER_MAX, "number of the writer")?,
                NEXT => this.next = d.number(1..=FILE_NUMBER_MAX, "number of the next generation")?,
                GENERATIONS => {
                    for _ in 0..d.length(d.remaining())? {
                        this.generations.push(Entry::decode(&mut d.sub()?)?);
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let rises = this.generations.is_sorted_by(|a, b| a.number < b.number);
        let is_below = |entry: &Entry| {
            (1..this.next).contains(&entry.number) && (1..=this.writer).contains(&entry.writer)
        };
        if this.writer == 0 || this.next == 0 || !rises || !this.generations.iter().all(is_below) {
            return Err(Error::corrupt(
                INDEX,
                12,
                "numbers of generations or writers that no version writes",
            ));
        }
        Ok(Self { unknown, ..this })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sample() -> Index {
        let entry = |number| Entry {
            number,
            writer: 2,
            object: 9,
            object_bytes: 100,
            object_crc: u32::MAX,
            uuid: [7; 16],
            created: 1_700_000_000_000,
            sequence: 44,
            files: 3,
            bytes: 1 << 40,
            copied: 5,
            proven: number,
            ..Entry::default()
        };
        Index { salt: [3; 16], writer: 4, next: 9, generations: vec![entry(5), entry(8)], ..Index::default() }
    }

    #[test]
    fn an_index_is_decoded_as_it_was_written() {
        for index in [sample(), Index { generations: Vec::new(), ..sample() }] {
            assert_eq!(Index::decode(&index.encode()).unwrap(), index);
        }
    }

    #[test]
    fn each_flip_and_each_cut_is_damage() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            assert!(Index::decode(&bytes[..at]).unwrap_err().is_corruption(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(Index::decode(&flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    /// Valid checksums around absurd numbers.
    #[test]
    fn numbers_that_no_version_writes_are_damage() {
        let same = |change: fn(&mut Index)| {
            let mut index = sample();
            change(&mut index);
            Index::decode(&index.encode()).unwrap_err()
        };
        for change in [
            (|index| index.generations[1].number = 5) as fn(&mut Index),
            |index| index.generations[1].number = 9,
            |index| index.generations[0].number = 0,
            |index| index.generations[0].writer = 5,
            |index| index.writer = 0,
            |index| index.next = u64::MAX,
            |index| index.generations[0].created = u64::MAX,
        ] {
            assert!(same(change).is_corruption());
        }
        let mut many = Vec::new();
        let mut f = FieldWriter::new(&mut many);
        f.bytes(field::GENERATIONS, Required, &[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]);
        assert!(Index::decode(&seal(&MAGIC, &many)).unwrap_err().is_corruption());
    }
}
