//! [`Arena`]: memory that many threads allocate concurrently and that is freed all at once.
//!
//! ```text
//! block (4 KiB .. 2 MiB, from the system) = header, chunk, chunk, large allocation, chunk, ...
//! chunk (512 B .. 64 KiB, leased to a lane) = header, entry, node, entry, ...
//! lane  = the chunk that some of the threads allocate from; 1 lane while small, 16 when large
//! ```
//!
//! Invariants: an address is handed out once and stays valid until the arena drops; addresses never move.
//! Blocks and chunks grow with the arena, so an empty arena takes no memory and a small one a few KiB.
//!
//! Threads: any thread may call `alloc` at any time. It advances the chunk of its lane by one compare-exchange
//! on a cache line that, with up to 16 threads, no other thread writes. The lock is taken once per chunk. No
//! page is faulted under it while threads use only the prepared blocks. Leases belong to the arena, not to the
//! thread. So a thread that writes to thousands of memtables in turn strands no memory in any of them, and no
//! thread keeps anything of a dropped arena.

mod block;
#[cfg(all(test, not(loom)))]
mod tests;

use std::mem::{align_of, size_of};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Sum;

use crate::sync::{AtomicPtr, AtomicU64, Mutex, Ordering, thread_index};
use block::{Ahead, Blocks};
pub use block::{free_spare, spare_bytes};

/// Lanes of a large arena.
const LANES: usize = 16;
/// The arena gets one lane for each of these many bytes, rounded down to a power of two.
const BYTES_PER_LANE: u64 = 128 << 10;
/// Smallest lease, including the header. A smaller rest of a block is wasted.
const MIN_CHUNK: usize = 512;
/// Preferred lease of a small arena: 4 KiB including the header of the block.
const SMALL_CHUNK: usize = 4096 - block::HEADER;
/// Largest lease.
const MAX_CHUNK: usize = 64 << 10;
/// Limit on the total allocations of one arena.
const MAX_BYTES: u64 = 32 << 30;

/// State of a retired chunk: allocations fail, because no end lies past this offset.
const CLOSED: u64 = u32::MAX as u64;

/// The head of a leased piece of a block. Its bytes follow.
struct Chunk {
    /// Offset of the first free byte from the start of the chunk, plus the counted allocations << 32.
    state: AtomicU64,
    /// Size in bytes, including this header.
    size: usize,
}

impl Chunk {
    /// Returns the offset of `size` fresh bytes, or `None` if they do not fit.
    #[inline]
    fn bump(&self, base: usize, size: usize, align: usize, count: u64) -> Option<usize> {
        // Sums of an address and `CLOSED` do not fit into addresses of 32 bits.
        let (base, align) = (base as u64, align as u64);
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let used = state & CLOSED;
            let at = ((base + used + align - 1) & !(align - 1)) - base;
            let end = at + size as u64;
            if end > self.size as u64 {
                return None;
            }
            let next = (((state >> 32) + count) << 32) | end;
            // Relaxed: the bytes belong to this thread alone, and the Acquire load of the lane made the chunk
            // visible.
            match self.state.compare_exchange_weak(state, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(at as usize),
                Err(now) => state = now,
            }
        }
    }

    /// Makes every later allocation fail. Returns the counted allocations so far.
    fn close(&self) -> u64 {
        self.state.swap(CLOSED, Ordering::Relaxed) >> 32
    }
}

/// The arena; see the module documentation.
pub(crate) struct Arena {
    lanes: [AtomicPtr<Chunk>; LANES],
    /// Lanes in use, minus one. A power of two minus one; only grows.
    lane_mask: AtomicU64,
    /// Allocations larger than this go directly to a block.
    large: AtomicU64,
    /// Bytes leased to lanes and allocated directly.
    handed_out: AtomicU64,
    /// Counted allocations that are not in the state of an open chunk.
    counted: AtomicU64,
    blocks: Mutex<Blocks>,
    limit: u64,
}

impl Arena {
    /// Creates an arena that expects about `capacity_hint` bytes. Takes no memory yet.
    pub(crate) fn new(capacity_hint: usize) -> Self {
        Self::with_limit(capacity_hint, MAX_BYTES)
    }

    /// Like `new`; adds its resident bytes to each of `sums` while it lives.
    pub(crate) fn charged(capacity_hint: usize, sums: &[Arc<Sum>]) -> Self {
        Arena { blocks: Mutex::new(Blocks::new(capacity_hint, sums.into())), ..Self::new(capacity_hint) }
    }

    /// Adds `bytes`, which its owner takes elsewhere, to its sums.
    pub(crate) fn charge(&self, bytes: usize) {
        self.blocks.lock().charge(bytes);
    }

    /// Like `new`, with its own limit on the bytes handed out.
    pub(crate) fn with_limit(capacity_hint: usize, limit: u64) -> Self {
        Arena {
            lanes: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            lane_mask: AtomicU64::new(0),
            large: AtomicU64::new(large_of(SMALL_CHUNK)),
            handed_out: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            blocks: Mutex::new(Blocks::new(capacity_hint, Box::default())),
            limit,
        }
    }

    /// Returns fresh uninitialized bytes; `None` if the limit is reached or the system has no memory.
    pub(crate) fn alloc(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        self.take(size, align, 0)
    }

    /// Like `alloc`, and counts one entry, see [`entries`](Self::entries).
    #[inline]
    pub(crate) fn alloc_entry(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        self.take(size, align, 1)
    }

    /// Undoes the count of an entry that was not inserted after all. Its bytes are not reused.
    pub(crate) fn uncount(&self) {
        self.counted.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of entries counted. Exact while no thread allocates.
    pub(crate) fn entries(&self) -> u64 {
        let _no_refill = self.blocks.lock();
        let mut sum = self.counted.load(Ordering::Relaxed);
        for lane in &self.lanes {
            // SAFETY: chunks are initialized before a lane shows them and live as long as the arena.
            if let Some(chunk) = unsafe { lane.load(Ordering::Acquire).as_ref() } {
                sum = sum.wrapping_add(chunk.state.load(Ordering::Relaxed) >> 32);
            }
        }
        sum
    }

    /// Bytes handed out: the whole of each leased chunk, and the large allocations.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.handed_out.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn take(&self, size: usize, align: usize, count: u64) -> Option<NonNull<u8>> {
        debug_assert!(align.is_power_of_two() && align <= block::ALIGN);
        if size as u64 > self.large.load(Ordering::Relaxed) {
            return self.take_large(size, count);
        }
        let lane = &self.lanes[thread_index() & self.lane_mask.load(Ordering::Relaxed) as usize];
        loop {
            let chunk = lane.load(Ordering::Acquire);
            // SAFETY: chunks are initialized before a lane shows them and live as long as the arena.
            if let Some(head) = unsafe { chunk.as_ref() }
                && let Some(at) = head.bump(chunk.addr(), size, align, count)
            {
                // SAFETY: `bump` proved at + size <= head.size, and the chunk's pointer spans those bytes.
                return NonNull::new(unsafe { chunk.cast::<u8>().add(at) });
            }
            self.refill(lane, chunk, size)?;
        }
    }

    /// Allocates directly from a block, because the allocation would waste too much of a chunk.
    #[cold]
    fn take_large(&self, size: usize, count: u64) -> Option<NonNull<u8>> {
        let mut blocks = self.blocks.lock();
        let handed_out = self.handed_out.load(Ordering::Relaxed);
        if size as u64 > self.limit.saturating_sub(handed_out) {
            return None;
        }
        let (start, got) = blocks.take(size, size, handed_out)?;
        self.handed_out.store(handed_out + got as u64, Ordering::Relaxed);
        self.counted.fetch_add(count, Ordering::Relaxed);
        Some(start)
    }

    /// Gives `lane` a new chunk with room for `size` bytes, unless another thread did since `seen` was read.
    #[cold]
    fn refill(&self, lane: &AtomicPtr<Chunk>, seen: *mut Chunk, size: usize) -> Option<()> {
        let mut blocks = self.blocks.lock();
        if lane.load(Ordering::Acquire) != seen {
            return Some(());
        }
        let handed_out = self.handed_out.load(Ordering::Relaxed);
        let left = usize::try_from(self.limit.saturating_sub(handed_out)).unwrap_or(usize::MAX);
        // Room for the header and the worst alignment.
        let least = (size + size_of::<Chunk>() + block::ALIGN).max(MIN_CHUNK);
        if least > left {
            return None;
        }
        let wish = chunk_size(handed_out).max(least).min(left);
        let (start, got) = blocks.take(least, wish, handed_out)?;
        debug_assert!(block::ALIGN >= align_of::<Chunk>());
        let chunk = start.cast::<Chunk>();
        let head = Chunk { state: AtomicU64::new(size_of::<Chunk>() as u64), size: got };
        // SAFETY: `take` gave `got` >= size_of::<Chunk>() fresh bytes, aligned to block::ALIGN.
        unsafe { chunk.write(head) };
        // SAFETY: chunks are initialized before a lane shows them and live as long as the arena.
        if let Some(old) = unsafe { seen.as_ref() } {
            self.counted.fetch_add(old.close(), Ordering::Relaxed);
        }
        // Release: a thread that sees the chunk sees its header.
        lane.store(chunk.as_ptr(), Ordering::Release);
        self.grown(handed_out + got as u64);
        let ahead = blocks.wants_ahead();
        drop(blocks);
        if ahead {
            self.populate_ahead();
        }
        Some(())
    }

    /// Prepares the next block while other threads use the current one.
    #[cold]
    fn populate_ahead(&self) {
        let block = Ahead::prepare();
        self.blocks.lock().put_ahead(block);
    }

    /// Updates the sizes for `handed_out` bytes. The caller holds the lock.
    fn grown(&self, handed_out: u64) {
        self.handed_out.store(handed_out, Ordering::Relaxed);
        self.large.store(large_of(chunk_size(handed_out)), Ordering::Relaxed);
        let lanes = (handed_out / BYTES_PER_LANE).clamp(1, LANES as u64);
        self.lane_mask.store((1 << lanes.ilog2()) - 1, Ordering::Relaxed);
    }
}

/// Preferred size of the next chunk: an eighth of the bytes handed out so far.
fn chunk_size(handed_out: u64) -> usize {
    let eighth = usize::try_from(handed_out / 8).unwrap_or(MAX_CHUNK);
    eighth.clamp(SMALL_CHUNK, MAX_CHUNK) & !(block::ALIGN - 1)
}

/// Largest allocation from a chunk: a quarter of it, so that refills waste little.
fn large_of(chunk: usize) -> u64 {
    chunk as u64 / 4
}
