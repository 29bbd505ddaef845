//! The operations of a batch, as a log record stores them.
//!
//! One operation: `kind u8 (bit 0x40: has an expiry) | family varint | key length varint | value length varint |
//! [expiry: 6 bytes] | key | value`. The layout is part of `docs/formats/wal.md`.
//!
//! A range delete stores the first deleted key as its key and the first key not deleted as its value; either is empty
//! for no bound. In the place of an expiry, range deletes and merges always have their rank, counted from 1 among the range
//! deletes and merges of the batch. The rank raises the sequence number of the operation and of all later operations of
//! the batch above those of earlier operations. It also makes every such operation at least as long as the eight bytes
//! that one sequence number stands for.

use tidesdb_memtable::Version;

use crate::Result;
use crate::codec::{Decoder, Sink, put_varint};
use crate::ranges::{BORDER_BYTES_MAX, RangeTombstone};
use crate::types::{FamilyId, KEY_BYTES_MAX, Kind, SeqNo, VALUE_BYTES_MAX};
use crate::vlog::ValuePlace;
use crate::wal::LoggedCommit;

/// Set in the kind of an operation with an expiry in milliseconds, in [`EXPIRY_BYTES`].
const HAS_EXPIRY: u8 = 0x40;
const _: () = {
    let mut i = 0;
    while i < Kind::ALL.len() {
        assert!(
            (Kind::ALL[i] as u8) < HAS_EXPIRY,
            "the number of a kind has no bit in common with the mark of an expiry"
        );
        i += 1;
    }
};
/// Bytes of an expiry, which is at most [`EXPIRY_MAX`](crate::types::EXPIRY_MAX).
const EXPIRY_BYTES: usize = 6;
/// Bytes of an operation besides its key and value, at most.
pub(super) const OP_BYTES: usize = 24;

/// One decoded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op<'a> {
    /// The family of the operation.
    pub family: FamilyId,
    /// What the operation does.
    pub kind: Kind,
    /// Expiry in milliseconds since the UNIX epoch; 0 = none.
    pub expiry: u64,
    /// The key. For a range delete: the first key deleted, empty = from the first key of all.
    pub key: &'a [u8],
    /// The value or pointer. For a range delete: the first key not deleted, empty = to the last key of all.
    pub value: &'a [u8],
    /// Number of range deletes and merges of the batch up to and including this operation; the operation's sequence
    /// number is `commit.seq + rank`.
    pub rank: u32,
}

impl Op<'_> {
    /// The version of a key that the operation writes, with sequence number `seq`.
    #[inline]
    pub fn version(&self, seq: SeqNo) -> Version {
        Version { seq, kind: self.kind as u8, expiry: self.expiry }
    }

    /// The range tombstone of a range delete, with sequence number `seq`.
    pub fn range_tombstone(&self, seq: SeqNo) -> RangeTombstone {
        let border = |key: &[u8]| (!key.is_empty()).then(|| key.into());
        RangeTombstone::new(seq, border(self.key), border(self.value))
    }
}

/// Appends an operation.
pub fn encode_op(out: &mut impl Sink, op: &Op<'_>) {
    out.reserve(op.key.len() + op.value.len() + OP_BYTES);
    out.push(op.kind as u8 | if op.expiry != 0 { HAS_EXPIRY } else { 0 });
    put_varint(out, u64::from(op.family.0));
    put_varint(out, op.key.len() as u64);
    put_varint(out, op.value.len() as u64);
    if op.kind.is_ranked() {
        out.extend_from_slice(&op.rank.to_le_bytes());
    } else if op.expiry != 0 {
        out.extend_from_slice(&op.expiry.to_le_bytes()[..EXPIRY_BYTES]);
    }
    out.extend_from_slice(op.key);
    out.extend_from_slice(op.value);
}

/// The operations of a record's body at offset `base` of `file`. Ranks count from 1.
pub fn ops<'a>(body: &'a [u8], file: &'a str, base: u64) -> impl Iterator<Item = Result<Op<'a>>> {
    decode_ops(body, file, base, Some(0))
}

/// The operations of a logged commit, or of a part of one.
pub fn logged_ops<'a>(commit: &LoggedCommit<'a>) -> impl Iterator<Item = Result<Op<'a>>> {
    decode_ops(commit.body, commit.file, commit.offset, Some(commit.rank))
}

/// Bytes of the operations that are whole at the beginning of `body`, and how many of them have a rank.
pub fn whole_ops(body: &[u8]) -> (usize, u32) {
    let mut d = Decoder::new(body, "", 0);
    let mut whole = (0, 0);
    while d.remaining() > 0
        && let Ok(op) = decode_op(&mut d, &mut None)
    {
        whole = (d.position(), whole.1 + u32::from(op.kind.is_ranked()));
    }
    whole
}

/// The operations of `body`. `rank` is the number of range deletes and merges before `body` in the batch; `None` = unknown.
pub(super) fn decode_ops<'a>(body: &'a [u8], file: &'a str, base: u64, rank: Option<u32>) -> Ops<'a> {
    Ops { decoder: Decoder::new(body, file, base), rank }
}

/// Decodes operations one after the other.
pub(super) struct Ops<'a> {
    decoder: Decoder<'a>,
    /// Number of operations with a rank so far.
    rank: Option<u32>,
}

impl Ops<'_> {
    /// Bytes decoded, and the number of operations with a rank so far.
    #[inline]
    pub(super) fn position(&self) -> (usize, Option<u32>) {
        (self.decoder.position(), self.rank)
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (self.decoder.remaining() > 0).then(|| decode_op(&mut self.decoder, &mut self.rank))
    }
}

#[inline]
fn decode_op<'a>(d: &mut Decoder<'a>, rank: &mut Option<u32>) -> Result<Op<'a>> {
    let first = d.u8()?;
    let kind = Kind::of_number(first & !HAS_EXPIRY).ok_or_else(|| d.corrupt("unknown kind of operation"))?;
    if kind.is_ranked() {
        return decode_ranked(d, rank, kind, first >= HAS_EXPIRY);
    }
    let family = decode_family(d)?;
    let key_len = d.length(KEY_BYTES_MAX)?;
    let value_len = d.length(VALUE_BYTES_MAX)?;
    let expiry = if first < HAS_EXPIRY { 0 } else { decode_expiry(d)? };
    if key_len == 0 {
        return Err(d.corrupt("empty key"));
    }
    let fits = match kind {
        Kind::PutPointer => ValuePlace::is_length(value_len),
        Kind::Delete | Kind::SingleDelete => value_len == 0,
        Kind::Put => true,
        Kind::RangeDelete | Kind::Merge => false, // these have a rank
    };
    if !fits {
        return Err(d.corrupt("length of a pointer, or a delete with a value"));
    }
    let (key, value) = (d.take(key_len)?, d.take(value_len)?);
    Ok(Op { family, kind, expiry, key, value, rank: rank.unwrap_or(0) })
}

/// Decodes the expiry field of an operation that has one.
#[cold]
fn decode_expiry(d: &mut Decoder<'_>) -> Result<u64> {
    let mut bytes = [0; size_of::<u64>()];
    bytes[..EXPIRY_BYTES].copy_from_slice(d.take(EXPIRY_BYTES)?);
    match u64::from_le_bytes(bytes) {
        0 => Err(d.corrupt("expiry of zero")),
        expiry => Ok(expiry),
    }
}

/// Decodes an operation that has a rank.
fn decode_ranked<'a>(
    d: &mut Decoder<'a>,
    rank: &mut Option<u32>,
    kind: Kind,
    expires: bool,
) -> Result<Op<'a>> {
    let (longest, has_key) = match kind {
        Kind::RangeDelete => ([BORDER_BYTES_MAX; 2], false),
        Kind::Merge => ([KEY_BYTES_MAX, VALUE_BYTES_MAX], true),
        Kind::Put | Kind::PutPointer | Kind::Delete | Kind::SingleDelete => {
            return Err(d.corrupt("an operation without a rank"));
        }
    };
    if expires {
        return Err(d.corrupt("an expiry of a range delete or of a merge"));
    }
    let family = decode_family(d)?;
    let (key_len, value_len) = (d.length(longest[0])?, d.length(longest[1])?);
    let told = check_rank(d, rank)?;
    if key_len == 0 && has_key {
        return Err(d.corrupt("empty key"));
    }
    Ok(Op { family, kind, expiry: 0, key: d.take(key_len)?, value: d.take(value_len)?, rank: told })
}

#[inline]
fn decode_family(d: &mut Decoder<'_>) -> Result<FamilyId> {
    u32::try_from(d.varint()?).map(FamilyId).map_err(|_| d.corrupt("family number too large"))
}

/// Reads the rank of an operation and checks that it follows the previous one.
fn check_rank(d: &mut Decoder<'_>, rank: &mut Option<u32>) -> Result<u32> {
    let told = d.u32()?;
    if told == 0 || rank.is_some_and(|rank| told - 1 != rank) {
        return Err(d.corrupt("rank of an operation"));
    }
    *rank = Some(told);
    Ok(told)
}
