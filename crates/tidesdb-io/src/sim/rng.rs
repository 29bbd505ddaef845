//! A small seeded generator. One generator makes every random choice of the simulator, so a seed reproduces a
//! run.

use crate::entropy::mix;

#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        let out = mix(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        out
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. The bias is below 2^-32 for the small bounds used
    /// here.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Returns true with probability `p`.
    pub(super) fn chance(&mut self, p: f64) -> bool {
        // A double holds 53 bits.
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }
}
