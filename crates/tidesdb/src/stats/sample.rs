//! Chooses at random which operations of a thread are measured.
//!
//! A get takes less time than two reads of the clock and the update of a histogram, so only a sample is measured. The choice
//! is made before the operation begins, and each operation has the same chance, whatever the operations before it were: the
//! distances between the chosen ones have a geometric distribution, as in the sampling heap profilers. So waits for a device, a lock or
//! a delay have the share in a histogram that they have among the operations, also if operations follow each other in a pattern.
//!
//! An operation that is not chosen decrements one number of its thread. While a profile runs in the thread (`counts.rs`), each operation is
//! chosen, so that it can be counted, and [`is_recorded`] says which of them belong to the sample.

use std::cell::Cell;

/// One operation in so many is measured, on average.
pub const SAMPLED_ONE_IN: u64 = 256;

thread_local! {
    static SAMPLER: Sampler = const { Sampler::new() };
}

/// Returns true if the operation that begins now in this thread is to be measured or counted.
#[inline]
pub fn is_chosen() -> bool {
    SAMPLER.with(Sampler::is_chosen)
}

/// Returns true if the operation that was chosen last in this thread belongs to the sample.
pub fn is_recorded() -> bool {
    SAMPLER.with(|sampler| sampler.is_recorded.get())
}

/// Chooses each operation of this thread from now on. The sample stays as it would be.
pub(super) fn choose_all() {
    SAMPLER.with(|sampler| {
        sampler.withheld.set(Some(sampler.left.get()));
        sampler.left.set(1);
    });
}

/// Chooses only the sample again.
pub(super) fn choose_some() {
    SAMPLER.with(|sampler| {
        if let Some(left) = sampler.withheld.take() {
            sampler.left.set(left);
        }
    });
}

struct Sampler {
    /// Operations up to the next choice, that one included.
    left: Cell<u64>,
    /// State of the random numbers; 0 before the first operation.
    random: Cell<u64>,
    /// While each operation is chosen: operations up to the next one of the sample.
    withheld: Cell<Option<u64>>,
    /// Whether the operation that was chosen last belongs to the sample.
    is_recorded: Cell<bool>,
}

impl Sampler {
    const fn new() -> Self {
        let (left, random) = (Cell::new(1), Cell::new(0));
        Self { left, random, withheld: Cell::new(None), is_recorded: Cell::new(false) }
    }

    #[inline]
    fn is_chosen(&self) -> bool {
        let left = self.left.get().wrapping_sub(1);
        self.left.set(left);
        left == 0 && self.choose()
    }

    #[cold]
    #[inline(never)]
    fn choose(&self) -> bool {
        let Some(withheld) = self.withheld.get() else {
            let is_recorded = self.choose_next();
            self.is_recorded.set(is_recorded);
            return is_recorded;
        };
        self.left.set(withheld.wrapping_sub(1));
        self.is_recorded.set(self.left.get() == 0 && self.choose_next());
        self.withheld.set(Some(self.left.replace(1)));
        true
    }

    /// Draws the next distance.
    fn choose_next(&self) -> bool {
        if self.random.get() == 0 {
            return self.begin(tidesdb_sync::thread_index() as u64);
        }
        self.left.set(self.distance());
        true
    }

    /// Decides about the first operation of a thread.
    fn begin(&self, thread: u64) -> bool {
        self.seed(thread);
        let first = self.distance();
        self.left.set(if first > 1 { first - 1 } else { self.distance() });
        first == 1
    }

    /// Threads get different sequences of random numbers.
    fn seed(&self, thread: u64) {
        let mut x = (thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.random.set((x ^ (x >> 31)) | 1);
    }

    /// Returns the distance to the next chosen operation, 1 or more.
    fn distance(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        let uniform = ((x >> 11) + 1) as f64 / (1_u64 << 53) as f64; // above 0, at most 1
        let not_chosen = 1.0 - 1.0 / SAMPLED_ONE_IN as f64;
        1 + (uniform.ln() / not_chosen.ln()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many operations are chosen of each residue modulo `period`.
    fn chosen_by_residue(thread: u64, period: usize, per_residue: u64) -> Vec<u64> {
        let sampler = Sampler::new();
        sampler.begin(thread);
        let mut chosen = vec![0; period];
        for _ in 0..per_residue {
            for count in &mut chosen {
                *count += u64::from(sampler.is_chosen());
            }
        }
        chosen
    }

    /// Asserts that `count` is within five standard deviations of the number expected for `operations`.
    fn check(count: u64, operations: u64, what: &str) {
        let expected = operations as f64 / SAMPLED_ONE_IN as f64;
        let off = (count as f64 - expected).abs() / expected.sqrt();
        assert!(off < 5.0, "{what}: {count} of {operations} chosen");
    }

    #[test]
    fn every_operation_of_a_pattern_has_the_same_chance() {
        for (thread, period) in
            [1, 2, 3, SAMPLED_ONE_IN as usize, 2 * SAMPLED_ONE_IN as usize].into_iter().enumerate()
        {
            for (residue, count) in chosen_by_residue(thread as u64, period, 20_000).into_iter().enumerate() {
                check(count, 20_000, &format!("operation {residue} of each {period}"));
            }
        }
    }

    #[test]
    fn the_first_operations_of_a_thread_have_the_same_chance_as_later_ones() {
        const THREADS: u64 = 100_000;
        let mut chosen = [0; 8];
        for thread in 0..THREADS {
            let sampler = Sampler::new();
            chosen[0] += u64::from(sampler.begin(thread));
            chosen[1..].iter_mut().for_each(|count| *count += u64::from(sampler.is_chosen()));
        }
        for (at, count) in chosen.into_iter().enumerate() {
            check(count, THREADS, &format!("operation {at}"));
        }
    }

    #[test]
    fn a_new_thread_chooses_about_one_in_so_many() {
        let sampler = Sampler::new();
        let chosen = (0..100_000).filter(|_| sampler.is_chosen()).count() as u64;
        check(chosen, 100_000, "a new thread");
    }
}
