//! Keys: a pattern determines the order of the indexes, and the key of each index.
//!
//! An index is mapped to an *identity*, a number that is equal for equal keys and ordered as the keys are. The identity is
//! written as fixed-width digits, so a key that an engine returns can be parsed back and its value is known. A generator
//! belongs to one thread and shares nothing; a key costs a few nanoseconds.

mod digits;
mod stream;
mod zipf;

#[cfg(test)]
mod tests;

pub use stream::Stream;
pub use zipf::Zipf;

use serde::{Deserialize, Serialize};

use crate::rng::{GOLDEN, mix, unmix};

/// Pattern and order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Ascending decimal numbers; each thread has its own range.
    Seq,
    /// The "random" of the reference tool: the index with its bytes reversed, in hexadecimal. Steps of 1/256 of all keys.
    /// Some keys of 16 bytes are equal, because the reference tool cuts the last digit.
    Stride,
    /// Random: every index is a distinct hexadecimal number, spread over all 64 bits.
    Random,
    /// Decimal numbers drawn by Zipf's law; frequent keys are neighbours.
    Zipfian,
    /// Drawn by Zipf's law; frequent keys are spread as in `Random`.
    Scrambled,
    /// Drawn uniformly, spread as in `Random`.
    Uniform,
    /// Seconds and a counter in hexadecimal, like arriving events: a million per second.
    Timestamp,
    /// Descending decimal numbers.
    Reverse,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Self; 8] = [
        Self::Seq,
        Self::Stride,
        Self::Random,
        Self::Zipfian,
        Self::Scrambled,
        Self::Uniform,
        Self::Timestamp,
        Self::Reverse,
    ];

    /// Returns its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seq => "seq",
            Self::Stride => "stride",
            Self::Random => "random",
            Self::Zipfian => "zipfian",
            Self::Scrambled => "scrambled",
            Self::Uniform => "uniform",
            Self::Timestamp => "timestamp",
            Self::Reverse => "reverse",
        }
    }

    /// Returns the pattern with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Returns whether indexes are drawn, so that some occur twice and some never.
    pub fn is_drawn(self) -> bool {
        matches!(self, Self::Zipfian | Self::Scrambled | Self::Uniform)
    }
}

/// A key before it is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Equal for equal keys, ordered as the keys are.
    pub id: u64,
    /// Low byte of the index, where the values of the reference tool begin.
    pub low: u8,
}

/// Minimum and maximum length of a key in bytes.
pub const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;
/// Upper bound of indexes: fifteen decimal digits.
pub const INDEX_MAX: u64 = 1_000_000_000_000_000;

const DIGITS: usize = 16;
const SECOND: u64 = 1_000_000;
const EPOCH: u64 = 1_700_000_000;
/// Prevents small indexes from having small identities.
const SHIFT: u64 = GOLDEN;

/// Maps indexes to keys.
#[derive(Clone, Debug)]
pub struct Keys {
    pattern: Pattern,
    bytes: usize,
    /// Upper bound of indexes; `Reverse` counts down from it.
    span: u64,
}

impl Keys {
    /// Creates keys of `bytes` bytes for indexes below `span`.
    ///
    /// # Errors
    /// If the size or the span is out of range.
    pub fn new(pattern: Pattern, bytes: usize, span: u64) -> Result<Self, String> {
        if !KEY_BYTES.contains(&bytes) {
            return Err(format!(
                "keys of {bytes} bytes: from {} to {} are possible",
                KEY_BYTES.start(),
                KEY_BYTES.end()
            ));
        }
        if span > INDEX_MAX {
            return Err(format!("{span} keys: at most {INDEX_MAX} are possible"));
        }
        Ok(Self { pattern, bytes, span })
    }

    /// Returns a reusable buffer for [`Keys::write`].
    pub fn buffer(&self) -> Vec<u8> {
        let mut buffer = vec![b'0'; self.bytes];
        if self.ends_with_nul() {
            buffer[self.bytes - 1] = 0;
        }
        buffer
    }

    /// Returns the key of an index.
    #[inline]
    pub fn item(&self, index: u64) -> Item {
        let id = match self.pattern {
            Pattern::Seq | Pattern::Zipfian => index,
            Pattern::Reverse => self.span - index,
            Pattern::Stride => self.stride(index),
            Pattern::Random | Pattern::Scrambled | Pattern::Uniform => mix(index.wrapping_add(SHIFT)),
            Pattern::Timestamp => ((EPOCH + index / SECOND) << 32) | (index % SECOND),
        };
        Item { id, low: index as u8 }
    }

    /// Writes the key of an identity into a buffer made by [`Keys::buffer`].
    #[inline]
    pub fn write(&self, id: u64, buffer: &mut [u8]) {
        let (text, width) = self.text(id);
        let end = self.bytes - usize::from(self.ends_with_nul());
        buffer[end - width..end].copy_from_slice(&text[DIGITS - width..]);
    }

    /// Returns the identity of a key, or `None` if this generator does not write such a key.
    #[inline]
    pub fn read(&self, key: &[u8]) -> Option<u64> {
        if key.len() != self.bytes {
            return None;
        }
        let nul = usize::from(self.ends_with_nul());
        let end = self.bytes - nul;
        let width = DIGITS.min(end);
        let mut text = [b'0'; DIGITS];
        text[DIGITS - width..].copy_from_slice(&key[end - width..end]);
        let id = if self.is_decimal() { digits::from_decimal(text) } else { digits::from_hex(text) };
        let padded = key[..end - width].iter().all(|b| *b == b'0');
        (padded && self.text(id).0 == text && (nul == 0 || key[end] == 0)).then_some(id)
    }

    /// Returns the low bytes of the indexes with this identity: two where keys of the reference tool can be equal.
    pub fn lows(&self, id: u64) -> [u8; 2] {
        let index = match self.pattern {
            Pattern::Seq | Pattern::Zipfian => id,
            Pattern::Reverse => self.span.wrapping_sub(id),
            Pattern::Stride if self.is_cut() => return [id.swap_bytes() as u8, (id << 4).swap_bytes() as u8],
            Pattern::Stride => id.swap_bytes(),
            Pattern::Random | Pattern::Scrambled | Pattern::Uniform => unmix(id).wrapping_sub(SHIFT),
            Pattern::Timestamp => {
                (id >> 32).wrapping_sub(EPOCH).wrapping_mul(SECOND).wrapping_add(id & 0xFFFF_FFFF)
            }
        };
        [index as u8; 2]
    }

    /// Returns a smaller index with the same key, if there can be one because the reference tool cuts a digit.
    pub(crate) fn twin(&self, index: u64) -> Option<u64> {
        let cut = self.pattern == Pattern::Stride && self.is_cut() && index.swap_bytes() >= 1 << 60;
        cut.then(|| self.stride(index).swap_bytes()).filter(|twin| *twin != index)
    }

    /// The reference tool prints with a minimum number of digits and cuts the rest.
    fn stride(&self, index: u64) -> u64 {
        let reversed = index.swap_bytes();
        if self.is_cut() && reversed >= 1 << 60 { reversed >> 4 } else { reversed }
    }

    fn is_cut(&self) -> bool {
        self.bytes == DIGITS
    }

    fn is_decimal(&self) -> bool {
        matches!(self.pattern, Pattern::Seq | Pattern::Zipfian | Pattern::Reverse)
    }

    fn ends_with_nul(&self) -> bool {
        self.is_decimal() || self.pattern == Pattern::Stride
    }

    /// Returns the digits, and how many of them belong to the key.
    #[inline]
    fn text(&self, id: u64) -> ([u8; DIGITS], usize) {
        if self.is_decimal() {
            return (digits::decimal(id), DIGITS - 1);
        }
        (digits::hex(id), if self.pattern == Pattern::Stride && self.is_cut() { DIGITS - 1 } else { DIGITS })
    }
}
