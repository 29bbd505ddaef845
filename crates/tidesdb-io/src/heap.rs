//! The allocator of the process.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::system::{self, since_boot};

/// An answer of the allocator serves [`Heap::recent`] for this many times as long as it took.
const RECENT: u32 = 100;

/// Returns free memory of the heap to the system, where the allocator can. Freed memory otherwise stays with the process, which then
/// takes more than it uses. Takes about a millisecond for each 100 MiB of heap; other threads may allocate meanwhile.
pub fn trim_heap() {
    system::trim_heap();
}

/// What the allocator of the C library has taken from the system for this process, as it counts itself. Memory that another global
/// allocator of a Rust program takes is not part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// Bytes that the program has allocated and not freed.
    pub used: u64,
    /// Bytes that were freed and stay with the process. The system may have their pages back already, see [`trim_heap`].
    pub free: u64,
}

impl Heap {
    /// Asks the allocator; `None` where it does not count: glibc before 2.33, other C libraries, other systems. Locks one heap after the other
    /// and walks its free blocks: about a millisecond as a rule, 30 to 300 ms if there are a million. Do not call it on a hot path.
    pub fn now() -> Option<Self> {
        system::heap().map(|(used, free)| Self { used, free })
    }

    /// Returns what [`now`](Self::now) returns, or an earlier answer if the call takes long: all calls together spend at most a hundredth of the
    /// time in the allocator.
    pub fn recent() -> Option<Self> {
        static LAST: Mutex<Option<Asked>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = *last
            && since_boot() < asked.good_until
        {
            return asked.heap;
        }
        let begun = since_boot();
        let heap = Self::now();
        *last = Some(Asked::new(heap, begun, since_boot()));
        heap
    }

    /// Returns how many of the free bytes are resident, if the process has `anonymous` bytes resident and `mapped` of these are in no heap.
    ///
    /// The result is `anonymous`, less `mapped` and all that the program has allocated, and at most the free bytes. Allocated memory that was
    /// never written makes it too small. A mapping of the program around the database makes it too large, up to the free bytes.
    pub fn free_resident(&self, anonymous: u64, mapped: u64) -> u64 {
        anonymous.saturating_sub(mapped).saturating_sub(self.used).min(self.free)
    }
}

/// What the allocator answered last.
#[derive(Clone, Copy)]
struct Asked {
    heap: Option<Heap>,
    /// Since the system started.
    good_until: Duration,
}

impl Asked {
    /// The answer to a call that took from `begun` to `ended`.
    fn new(heap: Option<Heap>, begun: Duration, ended: Duration) -> Self {
        Self { heap, good_until: ended + ended.saturating_sub(begun) * RECENT }
    }
}

/// Returns the bytes of RAM that this process takes beside pages of files and shared memory; `None` where the system does not say.
pub fn anonymous_bytes() -> Option<u64> {
    system::anonymous_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_and_mapped_memory_is_not_free() {
        let heap = Heap { used: 300, free: 50 };
        assert_eq!(heap.free_resident(1000, 680), 20);
        assert_eq!(heap.free_resident(1000, 0), 50, "at most what is free");
        assert_eq!(heap.free_resident(1000, 700), 0);
        assert_eq!(heap.free_resident(1000, 5000), 0);
        assert_eq!(Heap { used: 5000, free: 50 }.free_resident(1000, 0), 0);
    }

    #[test]
    fn the_allocator_is_asked_for_at_most_a_hundredth_of_the_time() {
        let [begun, ended] = [1000, 1300].map(Duration::from_millis);
        let asked = Asked::new(None, begun, ended);
        assert!(asked.good_until - ended >= 100 * (ended - begun));
        assert_eq!(
            Asked::new(None, ended, begun).good_until,
            begun,
            "a clock that jumps back is no reason to wait"
        );
    }

    #[test]
    fn the_allocator_is_asked_again_after_a_while() {
        crate::sim::alone(|| {
            let Some(first) = Heap::now() else { return assert_eq!(Heap::recent(), None) };
            let block = vec![1_u8; 100 << 20];
            let grows = (0..3000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                Heap::recent().is_some_and(|heap| heap.used >= first.used + (50 << 20))
            });
            drop(block);
            assert!(grows);
        });
    }

    /// Freed blocks that lie between allocated ones cannot leave the process: the heap counts them as free, and they stay resident.
    #[test]
    fn the_heap_counts_what_was_freed() {
        crate::sim::alone(|| {
            const BLOCK: usize = 1000;
            let Some(_) = Heap::now() else { return };
            let heap = || Heap::now().unwrap_or_default();
            let blocks: Vec<Box<[u8]>> = (0..64_000).map(|n| vec![n as u8; BLOCK].into()).collect();
            let full = heap();
            assert!(full.used >= 64_000_000, "{full:?}");
            let resident = anonymous_bytes().expect("proc is mounted");
            assert!(resident >= 64_000_000, "{resident}");

            let kept: Vec<Box<[u8]>> =
                blocks.into_iter().enumerate().filter(|(n, _)| n % 2 == 0).map(|(_, block)| block).collect();
            let half = heap();
            assert!(
                half.free >= full.free + 25_000_000 && half.used + 25_000_000 <= full.used,
                "{full:?} {half:?}"
            );
            let shown = half.free_resident(anonymous_bytes().expect("proc is mounted"), 0);
            assert!(shown >= 25_000_000, "{shown} of {half:?}");
            drop(kept);
            trim_heap();
        });
    }
}
