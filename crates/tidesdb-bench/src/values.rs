//! Values: bytes that follow from a key's identity and a version, so that a reader detects every wrong value.
//!
//! An ordinary value begins with its version (four bytes, little-endian), continues with incompressible bytes,
//! and ends with one repeated byte; the given compressibility is the share of the repeated part. A value of the reference tool
//! is a sawtooth: byte `i` is the index plus `i`, modulo 256; it has no version.

use serde::{Deserialize, Serialize};

use crate::keys::{Item, Keys};
use crate::rng::{GOLDEN, mix};

/// Contents of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filling {
    /// This many percent of the bytes repeat, the others are random.
    Percent(u8),
    /// The 256-byte sawtooth of the reference tool, which is extremely compressible.
    Sawtooth,
}

/// Minimum length of a value; shorter values could not be distinguished.
pub const VALUE_BYTES_MIN: usize = 8;

const VERSION_BYTES: usize = 4;
const FILL: u8 = b'v';

/// Generates and checks values of one size; each thread has its own.
#[derive(Clone, Debug)]
pub struct Values {
    bytes: usize,
    /// Bytes at the front that differ from value to value.
    fresh: usize,
    /// The sawtooth, long enough to start at any offset.
    saw: Option<Vec<u8>>,
    scratch: Vec<u8>,
}

impl Values {
    /// Creates a generator of values of `bytes` bytes.
    ///
    /// # Errors
    /// If they are too short, or the filling is invalid.
    pub fn new(bytes: usize, filling: Filling) -> Result<Self, String> {
        if bytes < VALUE_BYTES_MIN {
            return Err(format!(
                "values of {bytes} bytes: at least {VALUE_BYTES_MIN} are needed to check them"
            ));
        }
        let (fresh, saw) = match filling {
            Filling::Percent(percent @ 0..=100) => {
                ((bytes * (100 - usize::from(percent)) / 100).max(VALUE_BYTES_MIN), None)
            }
            Filling::Percent(percent) => {
                return Err(format!("{percent} % of a value cannot be compressible"));
            }
            Filling::Sawtooth => (bytes, Some((0..bytes + 256).map(|i| i as u8).collect())),
        };
        let mut values = Self { bytes, fresh, saw, scratch: Vec::new() };
        values.scratch = values.buffer();
        Ok(values)
    }

    /// Returns a reusable buffer for [`Values::fill`].
    pub fn buffer(&self) -> Vec<u8> {
        vec![FILL; self.bytes]
    }

    /// Generates the value of an item.
    #[inline]
    pub fn fill(&self, item: Item, version: u32, value: &mut [u8]) {
        match &self.saw {
            Some(saw) => {
                let first = usize::from(item.low);
                value.copy_from_slice(&saw[first..first + self.bytes]);
            }
            None => fresh(item.id, version, &mut value[..self.fresh]),
        }
    }

    /// Returns the version of a value that was read for the key `id`, after comparing every byte.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check(&mut self, keys: &Keys, id: u64, value: &[u8]) -> Result<u32, String> {
        if value.len() != self.bytes {
            return Err(format!("a value of {} bytes instead of {}", value.len(), self.bytes));
        }
        let (version, right) = match &self.saw {
            Some(saw) => {
                let first = usize::from(value[0]);
                (0, keys.lows(id).contains(&value[0]) && *value == saw[first..first + self.bytes])
            }
            None => {
                let version = self.version(value);
                fresh(id, version, &mut self.scratch[..self.fresh]);
                (version, *value == self.scratch)
            }
        };
        if right { Ok(version) } else { Err("a value that was never written for this key".to_owned()) }
    }

    /// Returns the version stored in a value.
    #[inline]
    pub fn version(&self, value: &[u8]) -> u32 {
        match value.first_chunk::<VERSION_BYTES>() {
            Some(bytes) if self.saw.is_none() => u32::from_le_bytes(*bytes),
            _ => 0,
        }
    }

    /// Returns whether values contain their version.
    pub fn has_versions(&self) -> bool {
        self.saw.is_none()
    }
}

/// The version, then a counter under a multiplicative hash: independent words, so the processor computes several at a time.
#[inline]
fn fresh(id: u64, version: u32, out: &mut [u8]) {
    let seed = mix(id ^ u64::from(version).wrapping_mul(GOLDEN));
    let mut n = seed;
    let mut words = out.chunks_exact_mut(8);
    for word in &mut words {
        n = n.wrapping_add(GOLDEN);
        word.copy_from_slice(&spread(n).to_le_bytes());
    }
    let rest = words.into_remainder();
    let last = spread(n.wrapping_add(GOLDEN)).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
    out[..VERSION_BYTES].copy_from_slice(&version.to_le_bytes());
}

#[inline]
fn spread(n: u64) -> u64 {
    let n = (n ^ (n >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    n ^ (n >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Pattern;

    fn parts(bytes: usize, filling: Filling) -> (Keys, Values) {
        (Keys::new(Pattern::Random, 16, 100_000).unwrap(), Values::new(bytes, filling).unwrap())
    }

    fn value(keys: &Keys, values: &Values, index: u64, version: u32) -> Vec<u8> {
        let mut out = values.buffer();
        values.fill(keys.item(index), version, &mut out);
        out
    }

    #[test]
    fn correct_values_pass_and_every_flipped_bit_fails() {
        for bytes in [8, 9, 64, 100] {
            for filling in
                [Filling::Percent(0), Filling::Percent(50), Filling::Percent(100), Filling::Sawtooth]
            {
                let (keys, mut values) = parts(bytes, filling);
                let id = keys.item(5).id;
                let good = value(&keys, &values, 5, 9);
                let version = if filling == Filling::Sawtooth { 0 } else { 9 };
                assert_eq!(values.check(&keys, id, &good), Ok(version));
                for bit in 0..bytes * 8 {
                    let mut bad = good.clone();
                    bad[bit / 8] ^= 1 << (bit % 8);
                    assert!(values.check(&keys, id, &bad).is_err(), "{filling:?}, bit {bit}");
                }
                assert!(values.check(&keys, keys.item(6).id, &good).is_err());
                assert!(values.check(&keys, id, &good[1..]).is_err());
            }
        }
    }

    #[test]
    fn the_sawtooth_is_the_references() {
        let (keys, values) = parts(300, Filling::Sawtooth);
        let out = value(&keys, &values, 1000, 0);
        assert!(out.iter().enumerate().all(|(i, b)| usize::from(*b) == (1000 + i) % 256));
    }

    #[test]
    fn values_compress_as_stated() {
        for (bytes, percent) in [(100, 0), (100, 50), (1000, 25), (4096, 50), (4096, 80)] {
            let (keys, values) = parts(bytes, Filling::Percent(percent));
            let block: Vec<u8> =
                (0..(256 << 10) / bytes as u64).flat_map(|i| value(&keys, &values, i, 0)).collect();
            let mut packed = Vec::new();
            lzzzz::lz4::compress_to_vec(&block, &mut packed, 1).unwrap();
            let saved = 100.0 - packed.len() as f64 * 100.0 / block.len() as f64;
            assert!(
                (saved - f64::from(percent)).abs() < 6.0,
                "{bytes} bytes: {saved} %, expected {percent} %"
            );
        }
    }

    #[test]
    fn invalid_values_are_rejected() {
        assert!(Values::new(7, Filling::Percent(0)).is_err());
        assert!(Values::new(8, Filling::Percent(101)).is_err());
    }
}
