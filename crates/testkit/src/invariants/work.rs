//! The two workloads: initial contents, the reads and writes of a transaction, and the invariant.

use tidesdb::{Family, Transaction};

use super::{Commit, Contents, FamilyKey};
use crate::rng::Rng;

/// Number of accounts or nodes.
const SIZE: u64 = 24;
/// Initial balance of an account.
const DEPOSIT: u64 = 100;
/// Size of a small value in bytes; large ones go to the value log.
const VALUE_BYTES: usize = 16;
const LARGE_BYTES: usize = 900;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Transfers between accounts.
    Bank,
    /// One ring of nodes.
    Ring,
}

/// The two families, in the order of [`FamilyKey`].
pub(super) type Families<'a> = [&'a Family; 2];

/// Returns the key of account or node `n`; every other one is in the second family.
fn place(n: u64) -> FamilyKey {
    (n % 2 == 1, format!("n{n:04}").into_bytes())
}

fn value(n: u64, rng: &mut Rng) -> Vec<u8> {
    let len = if rng.one_in(8) { LARGE_BYTES } else { VALUE_BYTES };
    let mut value = rng.bytes(len);
    value[..8].copy_from_slice(&n.to_le_bytes());
    value
}

fn number(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

impl Work {
    /// Returns the first commit.
    pub fn start(self, rng: &mut Rng) -> Commit {
        let first = |n| match self {
            Self::Bank => DEPOSIT,
            Self::Ring => (n + 1) % SIZE,
        };
        (0..SIZE).map(|n| (place(n), value(first(n), rng))).collect()
    }

    /// Makes the reads of a transaction and returns its planned writes.
    pub(super) fn plan(
        self,
        tx: &Transaction,
        families: &Families<'_>,
        rng: &mut Rng,
    ) -> tidesdb::Result<Commit> {
        let get = |n: u64| {
            let (second, key) = place(n);
            let value = tx.get(families[usize::from(second)], &key)?;
            Ok::<u64, tidesdb::Error>(value.and_then(|value| number(&value)).unwrap_or(u64::MAX))
        };
        let a = rng.below(SIZE);
        match self {
            Self::Bank => {
                let b = (a + 1 + rng.below(SIZE - 1)) % SIZE;
                let (from, to) = (get(a)?, get(b)?);
                let amount = rng.below(from.min(DEPOSIT) + 1);
                let (from, to) = (from - amount, to.wrapping_add(amount));
                Ok(vec![(place(a), value(from, rng)), (place(b), value(to, rng))])
            }
            Self::Ring => {
                let b = get(a)?;
                let c = get(b)?;
                let d = get(c)?;
                // The order a b c d becomes a c b d.
                Ok(vec![(place(a), value(c, rng)), (place(b), value(d, rng)), (place(c), value(b, rng))])
            }
        }
    }

    /// Returns a write that would violate the invariant; the caller always undoes it.
    pub(super) fn nonsense(self, rng: &mut Rng) -> (FamilyKey, Vec<u8>) {
        (place(rng.below(SIZE + 2)), value(1_000_000, rng))
    }

    /// Checks the invariant.
    ///
    /// # Errors
    /// Returns a description of the violation.
    pub fn holds(self, contents: &Contents) -> Result<(), String> {
        let rows: Vec<(&FamilyKey, u64)> = contents
            .iter()
            .filter(|(place, _)| place.1.starts_with(b"n"))
            .map(|(place, value)| (place, number(value).unwrap_or(u64::MAX)))
            .collect();
        if rows.len() as u64 != SIZE {
            return Err(format!("found {} accounts or nodes, expected {SIZE}", rows.len()));
        }
        match self {
            Self::Bank => {
                let total = rows.iter().fold(0_u64, |sum, (_, n)| sum.wrapping_add(*n));
                let right = SIZE * DEPOSIT;
                if total == right { Ok(()) } else { Err(format!("the total is {total}, not {right}")) }
            }
            Self::Ring => whole(SIZE, |n| {
                rows.iter().find(|(place_of, _)| **place_of == place(n)).map(|(_, next)| *next)
            }),
        }
    }
}

/// Checks that `size` nodes form one ring: starting from the first node, each node is visited once before the first is
/// reached again.
///
/// # Errors
/// Returns a description of the violation.
pub fn whole(size: u64, next: impl Fn(u64) -> Option<u64>) -> Result<(), String> {
    let mut met = vec![false; size as usize];
    let mut at = 0;
    for step in 0..size {
        if std::mem::replace(&mut met[at as usize], true) {
            return Err(format!("node {at} is reached again after {step} of {size} steps"));
        }
        at = match next(at) {
            Some(next) if next < size => next,
            other => return Err(format!("node {at} has the invalid successor {other:?}")),
        };
    }
    if at == 0 { Ok(()) } else { Err(format!("after {size} steps comes node {at}, not node 0")) }
}
