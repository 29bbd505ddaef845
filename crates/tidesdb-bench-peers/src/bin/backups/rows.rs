//! The rows of the databases: each states its number and its version, and does not compress.

/// Size of a key and its value.
pub(crate) const ROW_BYTES: u64 = 256;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = ROW_BYTES as usize - KEY_BYTES;
/// One of this many rows is overwritten between two generations.
const CHANGED: u64 = 50;
/// A prime: a step by it meets each row once, in no order.
const STRIDE: u64 = 2_654_435_761;

/// Which rows are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// Those of one range.
    Range,
    /// Rows everywhere.
    Everywhere,
}

/// The version of each row.
#[derive(Clone, Debug)]
pub(crate) struct Versions(pub(crate) Vec<u8>);

impl Versions {
    /// All rows are to be put for the first time.
    pub(crate) fn new(rows: u64) -> Self {
        Self(vec![0; rows as usize])
    }

    /// Calls `put` with all rows, in no order.
    pub(crate) fn fill<E>(&self, mut put: impl FnMut(&[u8], &[u8]) -> Result<(), E>) -> Result<(), E> {
        let count = self.0.len() as u64;
        (0..count).try_for_each(|n| {
            let number = n.wrapping_mul(STRIDE) % count;
            put(&key(number), &value(number, 0))
        })
    }

    /// Overwrites the rows of round `round` by the next version. Returns their bytes.
    pub(crate) fn change<E>(
        &mut self,
        round: u64,
        changes: Changes,
        mut put: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let count = self.0.len() as u64;
        let (first, changed) = (mixed(round) % count, count / CHANGED);
        for n in 0..changed {
            let number = match changes {
                Changes::Range => (first + n) % count,
                Changes::Everywhere => (first + n).wrapping_mul(STRIDE) % count,
            };
            let version = &mut self.0[number as usize];
            *version += 1;
            put(&key(number), &value(number, *version))?;
        }
        Ok(changed * ROW_BYTES)
    }

    /// Compares the rows of a database, in the order of their keys.
    pub(crate) fn compare(
        &self,
        rows: impl Iterator<Item = crate::Result<(Vec<u8>, Vec<u8>)>>,
    ) -> crate::Result<()> {
        let mut next = 0;
        for row in rows {
            let (found, content) = row?;
            let version = self.0.get(next as usize).ok_or("there are rows too many")?;
            if found != key(next) || content != value(next, *version) {
                return Err(format!("row {next} is not what it was").into());
            }
            next += 1;
        }
        if next == self.0.len() as u64 {
            Ok(())
        } else {
            Err(format!("{next} rows of {}", self.0.len()).into())
        }
    }
}

pub(crate) fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A value that states its version, followed by noise.
pub(crate) fn value(number: u64, version: u8) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    let mut state = mixed(number << 8 | u64::from(version));
    for word in value.chunks_exact_mut(8) {
        state = mixed(state);
        word.copy_from_slice(&state.to_le_bytes());
    }
    value[0] = version;
    value
}

/// The finalizer of SplitMix64.
pub(crate) fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}
