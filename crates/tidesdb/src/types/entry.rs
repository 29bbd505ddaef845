//! An entry: one version of one key.

use super::{EXPIRY_MAX, SeqNo};

/// What a version says about its key. The numbers are stored on disk: never change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The entry holds the value.
    Put = 1,
    /// The value is in the value log; the entry holds an encoded pointer.
    PutPointer = 2,
    /// The key is deleted.
    Delete = 3,
    /// The key is deleted, and was put at most once since the last delete.
    SingleDelete = 4,
    /// All keys from this one up to the one stored as the value are deleted. Found only in batches and in the log: no
    /// version of a key has this kind.
    RangeDelete = 5,
    /// The value is an operand: the family's merge operator combines it with what older versions say.
    Merge = 6,
}

impl Kind {
    /// Returns the kind with the number `n`, if a version may have it.
    #[inline]
    pub fn from_u8(n: u8) -> Option<Self> {
        match n {
            1 => Some(Self::Put),
            2 => Some(Self::PutPointer),
            3 => Some(Self::Delete),
            4 => Some(Self::SingleDelete),
            6 => Some(Self::Merge),
            _ => None,
        }
    }

    /// Returns the kind with the number `n`, which [`Kind::from_u8`] has accepted before.
    #[inline(always)]
    pub fn of_checked(n: u8) -> Self {
        const KINDS: [Kind; 8] = [
            Kind::Put,
            Kind::Put,
            Kind::PutPointer,
            Kind::Delete,
            Kind::SingleDelete,
            Kind::Delete,
            Kind::Merge,
            Kind::Put,
        ];
        KINDS[usize::from(n & 7)]
    }

    /// Returns true if an operation of this kind has a rank: a sequence number above those of all earlier operations of
    /// its batch.
    #[inline]
    pub fn is_ranked(self) -> bool {
        matches!(self, Self::RangeDelete | Self::Merge)
    }

    /// Returns true if the version deletes its key.
    #[inline]
    pub fn is_tombstone(self) -> bool {
        matches!(self, Self::Delete | Self::SingleDelete | Self::RangeDelete)
    }
}

/// One version of a key, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The user's key.
    pub key: &'a [u8],
    /// The commit that wrote it.
    pub seq: SeqNo,
    /// Its kind.
    pub kind: Kind,
    /// Expiry in milliseconds since the UNIX epoch, at most [`EXPIRY_MAX`](super::EXPIRY_MAX); 0 = never.
    pub expiry: u64,
    /// The value, an encoded pointer (`PutPointer`), an operand (`Merge`), or nothing (tombstones).
    pub value: &'a [u8],
}

/// Metadata of a version: sequence number, kind and expiry. Two words, so that calls return it in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryMeta {
    /// Its sequence number.
    pub seq: SeqNo,
    /// expiry << 8 | kind
    expiry_kind: u64,
}

impl EntryMeta {
    /// Metadata of a version that a key can have.
    #[inline(always)]
    pub fn new(seq: SeqNo, kind: Kind, expiry: u64) -> Self {
        debug_assert!(expiry <= EXPIRY_MAX && kind != Kind::RangeDelete);
        Self { seq, expiry_kind: expiry << 8 | kind as u64 }
    }

    /// Returns the metadata with another sequence number.
    #[inline(always)]
    pub fn at(self, seq: SeqNo) -> Self {
        Self { seq, ..self }
    }

    /// Its kind.
    #[inline(always)]
    pub fn kind(self) -> Kind {
        Kind::of_checked(self.expiry_kind as u8)
    }

    /// Expiry in milliseconds since the UNIX epoch; 0 = never.
    #[inline(always)]
    pub fn expiry(self) -> u64 {
        self.expiry_kind >> 8
    }

    /// Sequence number, kind and expiry.
    #[inline(always)]
    pub fn parts(self) -> (SeqNo, Kind, u64) {
        (self.seq, self.kind(), self.expiry())
    }
}

impl Default for EntryMeta {
    fn default() -> Self {
        Self::new(0, Kind::Put, 0)
    }
}
