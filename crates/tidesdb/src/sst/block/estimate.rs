//! How long a block will be on disk, told before it is compressed: from what keys and values of the blocks before came to.
//!
//! Keys and values have a ratio each, as they differ and their shares may change from block to block. A block is aimed below the
//! limit by twice the mean error of the estimates (Jacobson's rule for timeouts), so that few blocks are too long.

use super::{FRAME_BYTES, HEADER_BYTES};

/// The entries of a block before compression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    keys: usize,
    values: usize,
}

impl Raw {
    /// Of so many entries, with so many bytes of keys and of values.
    #[inline]
    pub(super) fn of(entries: usize, keys: usize, values: usize) -> Self {
        // Ends, kinds and sequence numbers grow with the entries, not with their keys.
        Self { keys: keys + 4 * entries, values }
    }
}

/// A ratio of 1.
const ONE: usize = 1 << 12;
/// A new block counts for so much of an average.
const WEIGHT: usize = 8;

/// What blocks came to so far.
#[derive(Debug)]
pub(super) struct Estimate {
    /// Length on disk that no block may exceed.
    limit: usize,
    /// Bytes on disk of `ONE` raw bytes of keys, and of values.
    keys: usize,
    values: usize,
    /// Mean error of the estimates, in bytes.
    error: usize,
    learned: bool,
}

impl Estimate {
    /// Of blocks of up to `limit` bytes. Nothing is known: keys and values are taken as incompressible.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, keys: ONE, values: ONE, error: 0, learned: false }
    }

    /// Whether a block of `raw` is likely to be within the limit.
    #[inline]
    pub(super) fn fits(&self, raw: Raw) -> bool {
        self.disk(raw) + 2 * self.error <= self.limit
    }

    #[inline]
    fn disk(&self, raw: Raw) -> usize {
        HEADER_BYTES + FRAME_BYTES + (raw.keys * self.keys + raw.values * self.values) / ONE
    }

    /// Learns that a block of `raw` has so many bytes of keys and values on disk.
    pub(super) fn learn(&mut self, raw: Raw, keys: usize, values: usize) {
        let known = std::mem::replace(&mut self.learned, true);
        let mix = |average: usize, seen: usize| {
            if known { (average * (WEIGHT - 1) + seen).div_ceil(WEIGHT) } else { seen }
        };
        if known {
            let found = HEADER_BYTES + FRAME_BYTES + keys + values;
            self.error = mix(self.error, found.abs_diff(self.disk(raw)).min(self.limit / 8));
        }
        self.keys = mix(self.keys, keys * ONE / raw.keys);
        if raw.values > 0 {
            self.values = mix(self.values, values * ONE / raw.values);
        }
    }
}
