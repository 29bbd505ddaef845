//! Estimates how long a block will be on disk before it is compressed, from the compression ratios of earlier blocks.
//!
//! Keys and values have separate ratios, because they compress differently and their shares change between blocks. The
//! target is below the limit by the mean error of the estimates, so that few blocks turn out too long. A value multiplied by a ratio may be
//! longer than the addresses of 32 bits, so all numbers here have 64.

use super::{FRAME_BYTES, HEADER_BYTES};

/// Raw sizes of the entries of a block, before compression.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSizes {
    keys: u64,
    values: u64,
}

impl RawSizes {
    /// Computes the raw sizes of `entries` entries with `keys` bytes of keys, all of which begin with the same `prefix`
    /// bytes, and `values` bytes of values.
    #[inline]
    pub(super) fn of(entries: usize, keys: usize, prefix: usize, values: usize) -> Self {
        // A block stores the prefix once. Ends, kinds and sequence numbers grow with the number of entries, not with
        // the length of their keys.
        let keys = keys - prefix * entries.saturating_sub(1) + 4 * entries;
        Self { keys: keys as u64, values: values as u64 }
    }
}

/// Fixed-point representation of a ratio of 1.
const ONE: u64 = 1 << 12;
/// Bytes of a block besides its keys and values.
const OVERHEAD: u64 = (HEADER_BYTES + FRAME_BYTES) as u64;
/// Averaging weight: a new block contributes 1/8.
const WEIGHT: u64 = 8;

/// Running averages over the blocks so far.
#[derive(Debug)]
pub(super) struct Estimate {
    /// Maximum length of a block on disk.
    limit: u64,
    /// Bytes on disk per `ONE` raw bytes of keys, and of values.
    keys: u64,
    values: u64,
    /// Mean error of the estimates in bytes.
    error: u64,
    learned: bool,
}

impl Estimate {
    /// Creates an estimate for blocks of up to `limit` bytes. Without samples, it assumes that nothing compresses.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit as u64, keys: ONE, values: ONE, error: 0, learned: false }
    }

    /// Returns whether there was a sample.
    pub(super) fn is_learned(&self) -> bool {
        self.learned
    }

    /// Returns whether a block of `raw` sizes is likely to stay within the limit.
    #[inline]
    pub(super) fn fits(&self, raw: RawSizes) -> bool {
        self.disk(raw) + self.error <= self.limit
    }

    #[inline]
    fn disk(&self, raw: RawSizes) -> u64 {
        OVERHEAD + (raw.keys * self.keys + raw.values * self.values) / ONE
    }

    /// Adds a sample: a block of `raw` sizes has `keys` bytes of keys and `values` bytes of values on disk.
    pub(super) fn learn(&mut self, raw: RawSizes, keys: usize, values: usize) {
        let (keys, values) = (keys as u64, values as u64);
        let known = std::mem::replace(&mut self.learned, true);
        let mix = |average: u64, seen: u64| {
            if known { (average * (WEIGHT - 1) + seen).div_ceil(WEIGHT) } else { seen }
        };
        if known {
            let found = OVERHEAD + keys + values;
            self.error = mix(self.error, found.abs_diff(self.disk(raw)).min(self.limit / 8));
        }
        self.keys = mix(self.keys, keys * ONE / raw.keys);
        if let Some(ratio) = (values * ONE).checked_div(raw.values) {
            self.values = mix(self.values, ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On processors of 32 bits a mebibyte multiplied by a ratio was longer than a number: long values looked short, and a build with overflow
    /// checks panicked in a flush.
    #[test]
    fn long_values_are_estimated_alike_on_every_processor() {
        let mut estimate = Estimate::new(64 << 10);
        let raw = RawSizes::of(1, 8, 0, 100 << 20);
        assert!(!estimate.fits(raw));
        for _ in 0..2 {
            estimate.learn(raw, 12, 50 << 20);
        }
        assert_eq!(estimate.disk(raw), OVERHEAD + 12 + (50 << 20));
        assert!(!estimate.fits(raw) && estimate.fits(RawSizes::of(1, 8, 0, 100 << 10)));
    }
}
