//! Random numbers: one generator per thread, a nanosecond per number, the same sequence for the same seed.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates the generator of `lane` (a thread, a purpose) for `seed`.
    pub fn new(seed: u64, lane: u64) -> Self {
        Self(mix(seed) ^ mix(lane.wrapping_add(0x5851_F42D_4C95_7F2D)))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Returns a number below `n`; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        scale(self.bits(), n)
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// 2^64 divided by the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const FIRST: u64 = 0xBF58_476D_1CE4_E5B9;
const SECOND: u64 = 0x94D0_49BB_1331_11EB;

/// Returns `bits` as a fraction of 2^64, times `n`.
#[inline]
pub(crate) fn scale(bits: u64, n: u64) -> u64 {
    ((u128::from(bits) * u128::from(n)) >> 64) as u64
}

/// A bijection on 64-bit numbers that maps neighbours far apart.
#[inline]
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(FIRST);
    let n = (n ^ (n >> 27)).wrapping_mul(SECOND);
    n ^ (n >> 31)
}

/// The inverse of [`mix`].
pub fn unmix(n: u64) -> u64 {
    let n = (n ^ (n >> 31) ^ (n >> 62)).wrapping_mul(inverse(SECOND));
    let n = (n ^ (n >> 27) ^ (n >> 54)).wrapping_mul(inverse(FIRST));
    n ^ (n >> 30) ^ (n >> 60)
}

/// Returns the inverse of an odd number modulo 2^64. Each Newton step doubles the number of correct bits, starting with 3.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut steps = 0;
    while steps < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        steps += 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixing_is_a_bijection() {
        for n in (0..64).map(|bit| 1u64 << bit).chain(0..1000).chain([u64::MAX, GOLDEN]) {
            assert_eq!(unmix(mix(n)), n);
        }
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        let mut rng = Rng::new(1, 0);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[rng.below(10) as usize] += 1);
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
    }

    #[test]
    fn lanes_differ_and_repeat() {
        let first = |seed, lane| Rng::new(seed, lane).bits();
        assert_eq!(first(7, 1), first(7, 1));
        assert_ne!(first(7, 1), first(7, 2));
        assert_ne!(first(7, 1), first(8, 1));
    }
}
