//! Counters for statistics: each thread adds to a slot on its own cache line; a reader sums the slots.
//!
//! A sum is exact while no thread adds. Otherwise, each slot contributes some value that it had during the
//! call. Counts wrap at 2^64, so adding and subtracting on different threads cancels out.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Slots per counter. If there are more threads, they share slots, which costs speed but not correctness.
const SLOTS: usize = 16;

/// Returns the small number of this thread, assigned in order of first use. Useful to choose a shard.
#[inline]
#[must_use]
pub fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    INDEX.with(|index| {
        if index.get() == usize::MAX {
            index.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        index.get()
    })
}

/// `N` counters that are updated together: they share the cache line of their thread's slot.
///
/// Takes 2 KiB for up to 16 counters.
pub struct ShardedCounters<const N: usize> {
    slots: Box<[CachePadded<[AtomicU64; N]>; SLOTS]>,
}

impl<const N: usize> ShardedCounters<N> {
    /// Creates `N` counters at zero.
    #[must_use]
    pub fn new() -> Self {
        let slot = || CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
        ShardedCounters { slots: Box::new(std::array::from_fn(|_| slot())) }
    }

    /// Adds `n` to counter `which`.
    ///
    /// # Panics
    ///
    /// If `which >= N`.
    #[inline]
    pub fn add(&self, which: usize, n: u64) {
        self.slots[thread_index() % SLOTS][which].fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts `n` from counter `which`.
    ///
    /// # Panics
    ///
    /// If `which >= N`.
    #[inline]
    pub fn sub(&self, which: usize, n: u64) {
        self.add(which, n.wrapping_neg());
    }

    /// Returns the value of counter `which`.
    ///
    /// # Panics
    ///
    /// If `which >= N`.
    #[must_use]
    pub fn sum(&self, which: usize) -> u64 {
        let values = self.slots.iter().map(|slot| slot[which].load(Ordering::Relaxed));
        values.fold(0, u64::wrapping_add)
    }
}

impl<const N: usize> Default for ShardedCounters<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for ShardedCounters<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..N).map(|which| self.sum(which))).finish()
    }
}

/// One counter. Takes 2 KiB.
///
/// ```
/// let reads = tidesdb_sync::ShardedCounter::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| reads.add(2));
///     scope.spawn(|| reads.add(3));
/// });
/// assert_eq!(reads.sum(), 5);
/// ```
#[derive(Default, Debug)]
pub struct ShardedCounter(ShardedCounters<1>);

impl ShardedCounter {
    /// Creates a counter at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.add(0, n);
    }

    /// Subtracts `n`.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.sub(0, n);
    }

    /// Returns the sum over all threads.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.sum(0)
    }
}
