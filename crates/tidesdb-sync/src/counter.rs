//! Counters for statistics: each thread adds to a slot on its own cache line; a reader sums the slots.
//!
//! A sum is exact while no thread adds. Otherwise, each slot contributes some value that it had during the
//! call. Counts wrap at 2^64, so adding and subtracting on different threads cancels out.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

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

/// After this many additions, each thread gets a slot of its own.
const FEW: u32 = 256;

/// `N` counters that are updated together: they share the cache line of their thread's slot.
///
/// They take 8 bytes each until they are used often; from then on, 2 KiB more for up to 16 counters.
pub struct ShardedCounters<const N: usize> {
    slots: OnceLock<Box<Slots<N>>>,
    /// The sums that were added before there were slots.
    few: [AtomicU64; N],
    added: AtomicU32,
}

type Slots<const N: usize> = [CachePadded<[AtomicU64; N]>; SLOTS];

impl<const N: usize> ShardedCounters<N> {
    /// Creates `N` counters at zero.
    #[must_use]
    pub fn new() -> Self {
        ShardedCounters { slots: OnceLock::new(), few: zeros(), added: AtomicU32::new(0) }
    }

    /// Adds `n` to counter `which`.
    ///
    /// # Panics
    ///
    /// If `which >= N`.
    #[inline]
    pub fn add(&self, which: usize, n: u64) {
        match self.slots.get() {
            Some(slots) => slots[thread_index() % SLOTS][which].fetch_add(n, Ordering::Relaxed),
            None => self.add_first(which, n),
        };
    }

    #[cold]
    fn add_first(&self, which: usize, n: u64) -> u64 {
        if self.added.fetch_add(1, Ordering::Relaxed) >= FEW {
            self.slots.get_or_init(|| Box::new(std::array::from_fn(|_| CachePadded::new(zeros()))));
        }
        self.few[which].fetch_add(n, Ordering::Relaxed)
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
        let slots = self.slots.get().into_iter().flat_map(|slots| slots.iter());
        let values = slots.map(|slot| slot[which].load(Ordering::Relaxed));
        values.fold(self.few[which].load(Ordering::Relaxed), u64::wrapping_add)
    }
}

fn zeros<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
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

/// One counter. Takes 2 KiB once it is used often.
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
