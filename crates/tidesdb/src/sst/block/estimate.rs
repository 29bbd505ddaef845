//! Estimates how long a block will be on disk before it is compressed, from the compression ratios of earlier blocks.
//!
//! Keys and values have separate ratios, because they compress differently and their shares change between blocks. The
//! target is below the limit by the mean error of the estimates, so that few blocks turn out too long.

use super::{FRAME_BYTES, HEADER_BYTES};

/// Raw sizes of the entries of a block, before compression.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSizes {
    keys: usize,
    values: usize,
}

impl RawSizes {
    /// Computes the raw sizes of `entries` entries with `keys` bytes of keys, all of which begin with the same `prefix`
    /// bytes, and `values` bytes of values.
    #[inline]
    pub(super) fn of(entries: usize, keys: usize, prefix: usize, values: usize) -> Self {
        // A block stores the prefix once. Ends, kinds and sequence numbers grow with the number of entries, not with
        // the length of their keys.
        Self { keys: keys - prefix * entries.saturating_sub(1) + 4 * entries, values }
    }
}

/// Fixed-point representation of a ratio of 1.
const ONE: usize = 1 << 12;
/// Averaging weight: a new block contributes 1/8.
const WEIGHT: usize = 8;

/// Running averages over the blocks so far.
#[derive(Debug)]
pub(super) struct Estimate {
    /// Maximum length of a block on disk.
    limit: usize,
    /// Bytes on disk per `ONE` raw bytes of keys, and of values.
    keys: usize,
    values: usize,
    /// Mean error of the estimates in bytes.
    error: usize,
    learned: bool,
}

impl Estimate {
    /// Creates an estimate for blocks of up to `limit` bytes. Without samples, it assumes that nothing compresses.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, keys: ONE, values: ONE, error: 0, learned: false }
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
    fn disk(&self, raw: RawSizes) -> usize {
        HEADER_BYTES + FRAME_BYTES + (raw.keys * self.keys + raw.values * self.values) / ONE
    }

    /// Adds a sample: a block of `raw` sizes has `keys` bytes of keys and `values` bytes of values on disk.
    pub(super) fn learn(&mut self, raw: RawSizes, keys: usize, values: usize) {
        let known = std::mem::replace(&mut self.learned, true);
        let mix = |average: usize, seen: usize| {
            if known { (average * (WEIGHT - 1) + seen).div_ceil(WEIGHT) } else { seen }
        };
        if known {
            let found = HEADER_BYTES + FRAME_BYTES + keys + values;
            self.error = mix(self.error, found.abs_diff(self.disk(raw)).min(self.limit / 8));
        }
        self.keys = mix(self.keys, keys * ONE / raw.keys);
        if let Some(ratio) = (values * ONE).checked_div(raw.values) {
            self.values = mix(self.values, ratio);
        }
    }
}
