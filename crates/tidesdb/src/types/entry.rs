//! An entry: one version of one key.

use super::{EXPIRY_MAX, SeqNo, numbered};

numbered! {
    /// What an operation does, and what a version says about its key. The numbers are stored on disk: never change them, and
    /// never use one again.
    ///
    /// A new kind does not compile until each of the questions below and each `match` elsewhere has an answer for it; code
    /// elsewhere compares no kinds and has no `_` beside them (`cargo xtask tidy`). `docs/internals/extend.md` lists these
    /// places, and what the compiler cannot know.
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
}

/// Kinds by number; as many as a power of two, so that [`Kind::of_checked`] needs no comparison.
const BY_NUMBER: [Kind; BY_NUMBER_LEN] = {
    let mut kinds = [Kind::Put; BY_NUMBER_LEN];
    let mut i = 0;
    while i < Kind::ALL.len() {
        let kind = Kind::ALL[i];
        assert!(kind as u8 != 0, "0 marks what a transaction has undone");
        let (put, operand, tombstone) = (kind.is_put(), kind.is_operand(), kind.is_tombstone());
        assert!(
            put as u8 + operand as u8 + tombstone as u8 == 1,
            "a kind is a put, an operand or a tombstone"
        );
        assert!(put == (kind.holds_value() || kind.holds_pointer()), "a put holds a value or a pointer");
        kinds[kind as usize] = kind;
        i += 1;
    }
    kinds
};

const BY_NUMBER_LEN: usize = {
    let (mut i, mut largest) = (0, 0);
    while i < Kind::ALL.len() {
        let n = Kind::ALL[i] as usize;
        largest = if n > largest { n } else { largest };
        i += 1;
    }
    (largest + 1).next_power_of_two()
};

/// The questions that code has about a kind. Each names all kinds.
impl Kind {
    /// Returns the kind with the number `n`, if a version of a key may have it.
    #[inline]
    pub const fn of_version(n: u8) -> Option<Self> {
        match Self::of_number(n) {
            Some(kind) if !kind.is_range() => Some(kind),
            _ => None,
        }
    }

    /// Returns the kind with the number `n`, which [`Kind::of_version`] has accepted before.
    #[inline(always)]
    pub const fn of_checked(n: u8) -> Self {
        BY_NUMBER[n as usize & (BY_NUMBER_LEN - 1)]
    }

    /// Returns true if an operation of this kind has a rank: a sequence number above those of all earlier operations of
    /// its batch.
    #[inline]
    pub const fn is_ranked(self) -> bool {
        match self {
            Kind::RangeDelete | Kind::Merge => true,
            Kind::Put | Kind::PutPointer | Kind::Delete | Kind::SingleDelete => false,
        }
    }

    /// Returns true if the operation is about all keys of an interval, so that no version of a key has this kind.
    #[inline]
    pub const fn is_range(self) -> bool {
        match self {
            Kind::RangeDelete => true,
            Kind::Put | Kind::PutPointer | Kind::Delete | Kind::SingleDelete | Kind::Merge => false,
        }
    }

    /// Returns true if the version says, until it expires, what the value of its key is, whatever older versions say. Each
    /// kind is either a put, an operand or a tombstone.
    #[inline]
    pub const fn is_put(self) -> bool {
        match self {
            Kind::Put | Kind::PutPointer => true,
            Kind::Delete | Kind::SingleDelete | Kind::RangeDelete | Kind::Merge => false,
        }
    }

    /// Returns true if the version is an operand: what it says depends on older versions.
    #[inline]
    pub const fn is_operand(self) -> bool {
        match self {
            Kind::Merge => true,
            Kind::Put | Kind::PutPointer | Kind::Delete | Kind::SingleDelete | Kind::RangeDelete => false,
        }
    }

    /// Returns true if the version deletes its key.
    #[inline]
    pub const fn is_tombstone(self) -> bool {
        match self {
            Kind::Delete | Kind::SingleDelete | Kind::RangeDelete => true,
            Kind::Put | Kind::PutPointer | Kind::Merge => false,
        }
    }

    /// Returns true if the tombstone hides at most one put, with which it may disappear.
    #[inline]
    pub const fn is_single_delete(self) -> bool {
        match self {
            Kind::SingleDelete => true,
            Kind::Put | Kind::PutPointer | Kind::Delete | Kind::RangeDelete | Kind::Merge => false,
        }
    }

    /// Returns true if the entry holds the whole value, which a commit may move to the value log.
    #[inline]
    pub const fn holds_value(self) -> bool {
        match self {
            Kind::Put => true,
            Kind::PutPointer | Kind::Delete | Kind::SingleDelete | Kind::RangeDelete | Kind::Merge => false,
        }
    }

    /// Returns true if the entry holds the place of a value in value logs: the files that it names must be kept.
    #[inline]
    pub const fn holds_pointer(self) -> bool {
        match self {
            Kind::PutPointer => true,
            Kind::Put | Kind::Delete | Kind::SingleDelete | Kind::RangeDelete | Kind::Merge => false,
        }
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
        debug_assert!(expiry <= EXPIRY_MAX && !kind.is_range());
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

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn each_number_is_the_same_kind_wherever_it_is_decoded() {
        for n in 0..=u8::MAX {
            let listed = Kind::ALL.iter().copied().find(|kind| *kind as u8 == n);
            assert_eq!(Kind::of_number(n), listed, "{n}");
            let of_version = listed.filter(|kind| !kind.is_range());
            assert_eq!(Kind::of_version(n), of_version, "{n}");
            if let Some(kind) = of_version {
                assert_eq!(Kind::of_checked(n), kind, "{n}");
            }
        }
    }
}
