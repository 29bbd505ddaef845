//! The order in which one thread uses the indexes.

use std::sync::Arc;

use super::Zipf;
use crate::rng::{GOLDEN, Rng, scale};

/// An endless sequence of indexes.
#[derive(Clone, Debug)]
pub enum Stream {
    /// `first`, `first + 1`, ... up to `end`, repeated.
    Ascending {
        /// First index of the range.
        first: u64,
        /// Next index.
        next: u64,
        /// End of the range, exclusive.
        end: u64,
    },
    /// All of `0..n`, each once per round, in steps so wide that successive indexes are far apart.
    Sweep {
        /// Next index.
        next: u64,
        /// Step; coprime to `n`.
        step: u64,
        /// Number of indexes.
        n: u64,
    },
    /// Drawn uniformly from `0..n`.
    Uniform {
        /// Random number generator.
        rng: Rng,
        /// Number of indexes.
        n: u64,
    },
    /// Drawn by Zipf's law; index 0 is the most frequent.
    Zipf {
        /// Random number generator.
        rng: Rng,
        /// Distribution; all threads share one table.
        zipf: Arc<Zipf>,
    },
    /// The first `period` indexes of another stream, repeated.
    Again {
        /// Initial state of the stream.
        origin: Box<Self>,
        /// Current state of the stream.
        stream: Box<Self>,
        /// Indexes left until the stream restarts.
        left: u64,
        /// Indexes per round.
        period: u64,
    },
}

impl Stream {
    /// Returns the stream of `first..end`, in order.
    pub fn ascending(first: u64, end: u64) -> Self {
        Self::Ascending { first, next: first, end: end.max(first + 1) }
    }

    /// Returns the stream of all of `0..n`, starting after `skip` steps.
    pub fn sweep(n: u64, skip: u64) -> Self {
        let n = n.max(1);
        let mut step = scale(GOLDEN, n).max(1);
        while divisor(step, n) != 1 {
            step += 1;
        }
        Self::Sweep { next: (u128::from(skip) * u128::from(step) % u128::from(n)) as u64, step: step % n, n }
    }

    /// Returns the stream of all of `0..n`, each once per round, in an order that depends on `rng`.
    pub fn shuffled(n: u64, rng: &mut Rng) -> Self {
        let n = n.max(1);
        let mut step = 1 + rng.below(n);
        while divisor(step, n) != 1 {
            step += 1;
        }
        Self::Sweep { next: rng.below(n), step: step % n, n }
    }

    /// Returns the stream of the first `period` indexes of `self`, repeated.
    pub fn again(self, period: u64) -> Self {
        let stream = Box::new(self);
        Self::Again { origin: stream.clone(), stream, left: period, period: period.max(1) }
    }

    /// Returns the next index.
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
