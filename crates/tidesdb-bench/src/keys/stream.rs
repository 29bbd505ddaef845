//! The order in which one thread meets the indexes.

use std::sync::Arc;

use super::Zipf;
use crate::rng::{GOLDEN, Rng, scale};

/// An endless sequence of indexes.
#[derive(Clone, Debug)]
pub enum Stream {
    /// `first`, `first + 1`, ... to `end`, and again.
    Ascending {
        /// First of the range.
        first: u64,
        /// The next one.
        next: u64,
        /// End of the range, not part of it.
        end: u64,
    },
    /// All of `0..n` in steps so wide that neighbours in time are far apart, each once before any comes twice.
    Sweep {
        /// The next one.
        next: u64,
        /// The step, without a common divisor with `n`.
        step: u64,
        /// How many there are.
        n: u64,
    },
    /// Drawn evenly from `0..n`.
    Uniform {
        /// Chance.
        rng: Rng,
        /// How many there are.
        n: u64,
    },
    /// Drawn by Zipf's law: the most frequent is 0.
    Zipf {
        /// Chance.
        rng: Rng,
        /// The shape, one table for all threads.
        zipf: Arc<Zipf>,
    },
    /// The first `period` of another stream, over and over.
    Again {
        /// How it begins.
        origin: Box<Self>,
        /// Where it is.
        stream: Box<Self>,
        /// Indexes until it begins anew.
        left: u64,
        /// Indexes from beginning to beginning.
        period: u64,
    },
}

impl Stream {
    /// `first..end` in order.
    pub fn ascending(first: u64, end: u64) -> Self {
        Self::Ascending { first, next: first, end: end.max(first + 1) }
    }

    /// All of `0..n`, beginning where `skip` steps lead.
    pub fn sweep(n: u64, skip: u64) -> Self {
        let n = n.max(1);
        let mut step = scale(GOLDEN, n).max(1);
        while divisor(step, n) != 1 {
            step += 1;
        }
        Self::Sweep { next: (u128::from(skip) * u128::from(step) % u128::from(n)) as u64, step: step % n, n }
    }

    /// The first `period` indexes of `self`, over and over.
    pub fn again(self, period: u64) -> Self {
        let stream = Box::new(self);
        Self::Again { origin: stream.clone(), stream, left: period, period: period.max(1) }
    }

    /// The next index.
    #[inline]
    pub fn advance(&mut self) -> u64 {
        match self {
            Self::Ascending { first, next, end } => {
                let index = *next;
                *next = if index + 1 == *end { *first } else { index + 1 };
                index
            }
            Self::Sweep { next, step, n } => {
                let index = *next;
                let far = index + *step;
                *next = if far >= *n { far - *n } else { far };
                index
            }
            Self::Uniform { rng, n } => rng.below(*n),
            Self::Zipf { rng, zipf } => zipf.draw(rng) - 1,
            Self::Again { origin, stream, left, period } => {
                if *left == 0 {
                    (**stream).clone_from(origin);
                    *left = *period;
                }
                *left -= 1;
                stream.advance()
            }
        }
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
