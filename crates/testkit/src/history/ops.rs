//! Random operations. They refer to the n-th existing family, snapshot or cursor, so a list of operations stays
//! meaningful when some are removed.

use std::ops::Bound;

use crate::rng::Rng;

/// Number of distinct keys in a family.
pub(super) const KEYS: u64 = 48;

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Selects one of the live families.
    pub family: u64,
    /// Number of the key.
    pub key: u64,
    /// Kind of change.
    pub what: What,
}

/// Kind of change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Puts a value of this length, generated from this seed.
    Put(u64, u64),
    /// Puts a value that expires after this number of seconds.
    PutTtl(u64, u64, u64),
    /// Merges an operand of this length, generated from this seed, in a family with a merge operator; otherwise puts it.
    Merge(u64, u64),
    /// Deletes the key.
    Delete,
    /// Deletes the key by a single delete if its precondition holds; otherwise by a delete.
    SingleDelete,
    /// Deletes all keys between this key and the key of another number, in key order; the greater key is excluded.
    DeleteRange(u64),
}

/// A move of a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Moves to the first key at or after a key.
    Seek(u64),
    /// Moves to the last key at or before a key.
    SeekForPrev(u64),
    /// Moves to the first key.
    First,
    /// Moves to the last key.
    Last,
    /// Moves one key forwards.
    Next,
    /// Moves one key backwards.
    Prev,
}

/// Bounds of a range, as key numbers.
pub(super) type Bounds = (Bound<u64>, Bound<u64>);

/// Selects a snapshot to read through, or `None` to read the newest state.
pub(super) type Reader = Option<u64>;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// One change by a method of the family.
    One(Change),
    /// Changes in one commit; durable if set.
    Batch(Vec<Change>, bool),
    /// `get`, and `get_map` without a snapshot.
    Get(Reader, u64, u64),
    /// `contains`.
    Contains(Reader, u64, u64),
    /// `multi_get`.
    MultiGet(Reader, u64, Vec<u64>),
    /// A new cursor, its moves, and whether to keep it.
    Walk(Reader, u64, Vec<Move>, bool),
    /// Moves of a kept cursor.
    WalkOn(u64, Vec<Move>),
    /// A range, read from the front (`true`) and the back (`false`).
    Range(Reader, u64, Bounds, Vec<bool>),
    /// All keys with a prefix: at most this number of bytes of a key; from the back if set.
    Prefix(Reader, u64, u64, u64, bool),
    /// All keys, without values.
    KeysOnly(Reader, u64),
    /// Takes a snapshot.
    Snapshot,
    /// Drops a snapshot.
    DropSnapshot(u64),
    /// Creates a family.
    Create(u64),
    /// Drops a family.
    Drop(u64),
    /// Renames a family.
    Rename(u64, u64),
    /// Clones a family.
    Clone(u64, u64),
    /// Flushes one family, or all.
    Flush(Option<u64>),
    /// Compacts one family, or all.
    Compact(Option<u64>),
    /// Makes everything durable.
    Sync,
    /// Closes the database if set, otherwise abandons it; then reopens it.
    Reopen(bool),
    /// Makes a checkpoint, opens it and compares its contents.
    Checkpoint,
    /// `verify`.
    Verify,
    /// Advances the clock by this number of seconds.
    Advance(u64),
}

/// Returns the key of a number: short and long keys, keys that are prefixes of others, and keys of 0x00 or 0xFF bytes.
pub(super) fn key(n: u64) -> Vec<u8> {
    match n % KEYS {
        0 => vec![0],
        1 => vec![0, 0],
        2 => vec![0xFF],
        3 => vec![0xFF; 3],
        4 => vec![b'k'; 300],
        5 => vec![b'k'; 301],
        6 => b"k".to_vec(),
        n if n < 12 => format!("k1\0{n}").into_bytes(),
        n => format!("k{n:03}").into_bytes(),
    }
}

/// Returns the value of a length and seed.
pub(super) fn value(len: u64, seed: u64) -> Vec<u8> {
    Rng::new(seed).bytes(len as usize)
}

/// Returns a list of `count` operations.
pub fn make(rng: &mut Rng, count: usize) -> Vec<Op> {
    (0..count).map(|_| op(rng)).collect()
}

fn op(rng: &mut Rng) -> Op {
    let family = rng.below(8);
    let key = rng.below(KEYS);
    let reader = if rng.one_in(3) { Some(rng.below(8)) } else { None };
    match rng.below(1000) {
        0..300 => Op::One(change(rng)),
        300..380 => {
            let count = 1 + rng.below(6);
            Op::Batch(changes(rng, count), rng.one_in(4))
        }
        380..540 => Op::Get(reader, family, key),
        540..600 => Op::Contains(reader, family, key),
        600..650 => {
            let count = rng.below(12);
            Op::MultiGet(reader, family, (0..count).map(|_| rng.below(KEYS)).collect())
        }
        650..720 => {
            let kept = rng.one_in(8);
            Op::Walk(reader, family, moves(rng), kept)
        }
        720..760 => Op::WalkOn(rng.below(8), moves(rng)),
        760..830 => {
            let bounds = (bound(rng), bound(rng));
            let pulls = rng.below(40);
            let mood = rng.below(3);
            let front = |rng: &mut Rng| if mood == 2 { rng.one_in(2) } else { mood == 0 };
            Op::Range(reader, family, bounds, (0..pulls).map(|_| front(rng)).collect())
        }
        830..860 => Op::Prefix(reader, family, key, 1 + rng.below(4), rng.one_in(2)),
        860..875 => Op::KeysOnly(reader, family),
        875..895 => Op::Snapshot,
        895..912 => Op::DropSnapshot(rng.below(8)),
        n => care(rng, n),
    }
}

fn care(rng: &mut Rng, n: u64) -> Op {
    let family = rng.below(8);
    let one = if rng.one_in(2) { Some(family) } else { None };
    match n {
        912..918 => Op::Create(rng.below(40)),
        918..922 => Op::Drop(family),
        922..926 => Op::Rename(family, rng.below(40)),
        926..929 => Op::Clone(family, rng.below(40)),
        929..945 => Op::Flush(one),
        945..955 => Op::Compact(one),
        955..965 => Op::Sync,
        965..971 => Op::Reopen(rng.one_in(2)),
        971..973 => Op::Checkpoint,
        973..977 => Op::Verify,
        _ => Op::Advance(1 + rng.below(30)),
    }
}

/// Changes of a batch; a third of them change the key of the one before.
fn changes(rng: &mut Rng, count: u64) -> Vec<Change> {
    let mut all: Vec<Change> = (0..count).map(|_| change(rng)).collect();
    for n in 1..all.len() {
        if rng.one_in(3) {
            (all[n].family, all[n].key) = (all[n - 1].family, all[n - 1].key);
        }
    }
    all
}

fn change(rng: &mut Rng) -> Change {
    let len = match rng.below(10) {
        0 => 0,
        1 | 2 => 500 + rng.below(2500),
        _ => rng.below(120),
    };
    let seed = rng.next_u64();
    let what = match rng.below(10) {
        0..3 => What::Put(len, seed),
        3 | 4 => What::Merge(len.min(60), seed),
        5 => What::PutTtl(len, seed, rng.below(60)),
        6 => What::Delete,
        7 if rng.one_in(4) => What::DeleteRange(rng.below(KEYS)),
        7 => What::Delete,
        _ => What::SingleDelete,
    };
    Change { family: rng.below(8), key: rng.below(KEYS), what }
}

fn moves(rng: &mut Rng) -> Vec<Move> {
    let count = 1 + rng.below(12);
    let one = |rng: &mut Rng| match rng.below(12) {
        0 | 1 => Move::Seek(rng.below(KEYS)),
        2 | 3 => Move::SeekForPrev(rng.below(KEYS)),
        4 => Move::First,
        5 => Move::Last,
        6..9 => Move::Next,
        _ => Move::Prev,
    };
    (0..count).map(|_| one(rng)).collect()
}

fn bound(rng: &mut Rng) -> Bound<u64> {
    match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(rng.below(KEYS)),
        _ => Bound::Excluded(rng.below(KEYS)),
    }
}
