//! [`Blocks`]: the memory an arena took from the system, newest first.
//!
//! Invariants: every block begins with a [`Block`] header and is freed with the layout recorded there. A piece
//! handed out lies inside one block, is aligned to [`ALIGN`] and is never handed out again.
//! Threads: none; the arena accesses it under its lock.
//!
//! Small blocks come from the process heap. Blocks of 32 KiB and more are separate mappings, so their memory returns
//! to the system when the arena drops, whatever the allocator keeps. In an arena that expects to be large, blocks of
//! 2 MiB and more are aligned to huge pages and advised to use them. A page fault on fresh memory takes a quarter to
//! half a microsecond per 4 KiB; on a fresh huge page, a third of that per byte. When an arena drops, a few of these
//! mappings are kept for the next arena. They are marked so that the system can take their pages when it is short of
//! memory.
//!
//! The system takes 0.1-2 ms to clear a huge page. A thread that faulted one under the arena's lock would stop
//! all others, so the next block is populated in advance and without the lock: see [`Blocks::wants_ahead`] and
//! [`Ahead`].

use std::alloc::Layout;
use std::mem::{ManuallyDrop, size_of};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Alignment of blocks and of every piece: a cache line.
pub(super) const ALIGN: usize = 64;
/// Bytes before the first piece of a block.
pub(super) const HEADER: usize = ALIGN;

const SMALLEST: usize = 4 << 10;
/// Smallest block that is a separate mapping.
const MAPPED_FROM: usize = 32 << 10;
const HUGE_PAGE: usize = 2 << 20;
/// Largest block of an arena that expects to be large.
const LARGEST: usize = HUGE_PAGE;
/// Expected capacity from which on huge pages are used.
const HUGE_FROM: usize = 8 << 20;

/// The head of a block.
struct Block {
    /// The block taken before this one.
    previous: Option<NonNull<Block>>,
    layout: Layout,
    origin: Origin,
}

/// Where the memory of a block is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Heap,
    /// A separate mapping.
    Mapped,
    /// A separate mapping on huge pages.
    Huge,
}

const _: () = assert!(size_of::<Block>() <= HEADER);

/// The blocks of one arena; see the module documentation.
pub(super) struct Blocks {
    newest: Option<NonNull<Block>>,
    /// The unused rest of the block that pieces are taken from.
    rest: Option<(NonNull<u8>, usize)>,
    /// Largest size of an ordinary block.
    largest: usize,
    /// Blocks of [`LARGEST`] bytes are populated in advance until this many bytes are handed out; 0 means
    /// never.
    ahead_until: u64,
    ahead: AheadState,
    huge: bool,
    /// Whether `rest` is on huge pages, and charged already.
    rest_huge: bool,
    charge: Charge,
}

/// The resident bytes of one arena, which are part of sums over many arenas: blocks on huge pages as a whole, because a
/// fault makes all of a huge page resident, and the pieces taken from other blocks.
struct Charge {
    sums: Box<[Arc<AtomicU64>]>,
    bytes: u64,
}

impl Charge {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        for sum in &self.sums {
            sum.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for sum in &self.sums {
            sum.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A populated block that is not in use yet.
pub(super) struct Ahead(NonNull<u8>);

// SAFETY: the value owns its mapping.
unsafe impl Send for Ahead {}

impl Ahead {
    /// Maps and populates a block; `None` if the system has no memory. Takes 0.1-2 ms: call it without a lock.
    pub(super) fn prepare() -> Option<Ahead> {
        let block = Ahead(mapping::reserve(LARGEST)?);
        mapping::populate(block.0, LARGEST);
        Some(block)
    }

    /// Gives the mapping to the caller.
    fn into_inner(self) -> NonNull<u8> {
        ManuallyDrop::new(self).0
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // SAFETY: `reserve` made the mapping with this size, and the value is its only owner.
        unsafe { mapping::release(self.0, LARGEST) };
    }
}

/// State of the block after the current one.
enum AheadState {
    /// No thread prepares a block.
    Idle,
    /// A new block was started: the next caller of [`Blocks::wants_ahead`] prepares the one after it.
    Wanted,
    /// A thread is preparing the block.
    Asked,
    /// The block is ready.
    Ready(Ahead),
}

// SAFETY: this value alone owns the blocks; the pointers are moved and freed like a Vec's.
unsafe impl Send for Blocks {}

impl Blocks {
    pub(super) fn new(capacity_hint: usize, sums: Box<[Arc<AtomicU64>]>) -> Self {
        let huge = capacity_hint >= HUGE_FROM;
        let largest = if huge { LARGEST } else { (capacity_hint / 4).clamp(4 * SMALLEST, HUGE_PAGE / 2) };
        // The last block of a full arena needs no successor.
        let ahead = if huge && mapping::AVAILABLE { capacity_hint - 2 * LARGEST } else { 0 };
        let largest = largest.next_power_of_two();
        Blocks {
            newest: None,
            rest: None,
            largest,
            ahead_until: ahead as u64,
            ahead: AheadState::Idle,
            huge,
            rest_huge: false,
            charge: Charge { sums, bytes: 0 },
        }
    }

    /// Adds bytes outside of the blocks to the sums.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.charge.add(bytes);
    }

    /// Returns whether the caller should [prepare](Ahead::prepare) a block, without the arena's lock, and pass
    /// the result to [`put_ahead`](Self::put_ahead). Returns true to one caller at a time.
    pub(super) fn wants_ahead(&mut self) -> bool {
        let wanted = matches!(self.ahead, AheadState::Wanted);
        if wanted {
            self.ahead = AheadState::Asked;
        }
        wanted
    }

    /// Stores a prepared block for later.
    pub(super) fn put_ahead(&mut self, block: Option<Ahead>) {
        self.ahead = block.map_or(AheadState::Idle, AheadState::Ready);
    }

    /// Returns a mapping of `size` bytes: the prepared one if there is one. A mapping of the usual size
    /// requests the next.
    fn map(&mut self, size: usize, handed_out: u64) -> Option<NonNull<u8>> {
        if size != LARGEST {
            return mapping::reserve(size);
        }
        let next = if handed_out < self.ahead_until { AheadState::Wanted } else { AheadState::Idle };
        match std::mem::replace(&mut self.ahead, next) {
            AheadState::Ready(block) => Some(block.into_inner()),
            AheadState::Asked => {
                self.ahead = AheadState::Asked; // the preparing thread is too late for this block
                mapping::reserve(size)
            }
            AheadState::Idle | AheadState::Wanted => mapping::reserve(size),
        }
    }

    /// Returns a piece of at least `least` and at most `wish` bytes (both rounded up to [`ALIGN`]), and its
    /// length. `handed_out` determines the size of a new block.
    pub(super) fn take(
        &mut self,
        least: usize,
        wish: usize,
        handed_out: u64,
    ) -> Option<(NonNull<u8>, usize)> {
        let least = least.checked_next_multiple_of(ALIGN)?;
        let wish = wish.checked_next_multiple_of(ALIGN)?;
        if self.rest.is_none_or(|(_, left)| left < least) {
            if least > self.largest / 4 {
                // Gets a block of its own, so that the rest of the current one stays in use.
                let layout = Layout::from_size_align(least.checked_add(HEADER)?, ALIGN).ok()?;
                let (start, origin) = self.add_block(layout, handed_out)?;
                self.charge.add(if origin == Origin::Huge { layout.size() } else { least });
                return Some((start, least));
            }
            let size = usize::try_from(handed_out).unwrap_or(self.largest).next_power_of_two();
            let size = size.max(HEADER + least).next_power_of_two().clamp(SMALLEST, self.largest);
            let (start, origin) = self.add_block(Layout::from_size_align(size, ALIGN).ok()?, handed_out)?;
            self.rest = Some((start, size - HEADER));
            self.rest_huge = origin == Origin::Huge;
            self.charge.add(if self.rest_huge { size } else { 0 });
        }
        let (start, left) = self.rest?;
        let got = wish.min(left);
        debug_assert!(got >= least && got % ALIGN == 0);
        self.charge.add(if self.rest_huge { 0 } else { got });
        // SAFETY: got <= left, so the result is inside the block or one past its end.
        self.rest = Some((unsafe { start.add(got) }, left - got));
        Some((start, got))
    }

    /// Bytes of the blocks that are from the heap.
    #[cfg(all(test, not(loom)))]
    pub(super) fn heap_bytes(&self) -> usize {
        let (mut at, mut bytes) = (self.newest, 0);
        while let Some(block) = at {
            // SAFETY: the list holds initialized headers of blocks not yet freed.
            let block = unsafe { block.as_ref() };
            bytes += if block.origin == Origin::Heap { block.layout.size() } else { 0 };
            at = block.previous;
        }
        bytes
    }

    /// Takes a block from the system. Returns its first byte after the header, and where it is from.
    fn add_block(&mut self, layout: Layout, handed_out: u64) -> Option<(NonNull<u8>, Origin)> {
        let size = layout.size();
        let (start, origin) = if size >= HUGE_PAGE && self.huge && mapping::AVAILABLE {
            (self.map(size, handed_out)?, Origin::Huge)
        } else if size >= MAPPED_FROM
            && let Some(start) = mapping::map(size)
        {
            (start, Origin::Mapped)
        } else {
            // The system limits the number of mappings; the heap has room beyond it.
            (heap_block(layout)?, Origin::Heap)
        };
        let block = start.cast::<Block>();
        // SAFETY: the block is fresh, aligned to ALIGN and longer than HEADER >= size_of::<Block>().
        unsafe { block.write(Block { previous: self.newest, layout, origin }) };
        self.newest = Some(block);
        // SAFETY: every layout is longer than HEADER.
        Some((unsafe { start.add(HEADER) }, origin))
    }
}

/// Allocates a block from the heap.
fn heap_block(layout: Layout) -> Option<NonNull<u8>> {
    debug_assert!(layout.size() > 0);
    // SAFETY: the layout is not empty.
    let start = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
    if cfg!(loom) {
        // Models should detect memory that is read before it is written.
        // SAFETY: the block is layout.size() bytes long.
        unsafe { start.write_bytes(0xA5, layout.size()) };
    }
    Some(start)
}

/// Bytes of unused mappings that are kept for new arenas of this process.
pub fn spare_bytes() -> u64 {
    mapping::spare_bytes()
}

/// Returns these mappings to the system.
pub fn free_spare() {
    mapping::free_spare();
}

impl Drop for Blocks {
    fn drop(&mut self) {
        while let Some(newest) = self.newest {
            // SAFETY: the list holds initialized headers of blocks not yet freed.
            let block = unsafe { newest.read() };
            self.newest = block.previous;
            let (start, size) = (newest.cast(), block.layout.size());
            match block.origin {
                // SAFETY: `reserve` made the mapping with this size, and nothing refers to it any more.
                Origin::Huge => unsafe { mapping::release(start, size) },
                // SAFETY: `map` made the mapping with this size, and nothing refers to it any more.
                Origin::Mapped => unsafe { mapping::unmap(start, size) },
                // SAFETY: allocated with this layout, and nothing refers to it any more.
                Origin::Heap => unsafe { std::alloc::dealloc(start.as_ptr(), block.layout) },
            }
        }
    }
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod mapping {
    //! Anonymous mappings on huge pages, and a few spare ones of the usual size.

    use super::{HUGE_PAGE, LARGEST};
    use parking_lot::Mutex;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::{self, NonNull};

    pub(super) const AVAILABLE: bool = true;

    /// Upper limit of spare mappings: 64 MiB.
    const MAX_SPARE: usize = (64 << 20) / LARGEST;

    pub(super) fn spare_bytes() -> u64 {
        (SPARE.lock().len() * LARGEST) as u64
    }

    pub(super) fn free_spare() {
        let spare = std::mem::take(&mut *SPARE.lock());
        for Spare(start) in spare {
            // SAFETY: a whole mapping of this size that only the list owned.
            let _ = unsafe { munmap(start.as_ptr().cast(), LARGEST) };
        }
    }

    /// An unused mapping of [`LARGEST`] bytes. The system may take its pages until they are written again.
    struct Spare(NonNull<u8>);

    // SAFETY: the value owns its mapping.
    unsafe impl Send for Spare {}

    /// Mappings of dropped arenas, kept for new ones: their pages need no fault and no zeroing.
    static SPARE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

    /// Returns `size` bytes aligned to a huge page, with any contents; `None` if the system has no memory.
    pub(super) fn reserve(size: usize) -> Option<NonNull<u8>> {
        let size = size.checked_next_multiple_of(HUGE_PAGE)?;
        if size == LARGEST
            && let Some(Spare(start)) = SPARE.lock().pop()
        {
            return Some(start);
        }
        let padded = size.checked_add(HUGE_PAGE)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping touches no memory of ours.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), padded, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let start = start.ok()?;
        let skip = start.addr().next_multiple_of(HUGE_PAGE) - start.addr();
        // SAFETY: skip < HUGE_PAGE, so this is inside the mapping.
        let aligned = unsafe { start.byte_add(skip) };
        if skip > 0 {
            // SAFETY: the bytes before `aligned` are ours and unused. If this fails, they only stay mapped.
            let _ = unsafe { munmap(start, skip) };
        }
        if skip < HUGE_PAGE {
            // SAFETY: aligned + size is inside the mapping, and what follows is ours and unused.
            let _ = unsafe { munmap(aligned.byte_add(size), HUGE_PAGE - skip) };
        }
        // SAFETY: the range is a whole mapping of ours. The advice changes no contents; without it the pages
        // are small.
        let _ = unsafe { madvise(aligned, size, Advice::LinuxHugepage) };
        NonNull::new(aligned.cast())
    }

    /// Returns `size` fresh bytes, aligned to a page; `None` if the system has no memory.
    pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping touches no memory of ours.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags) };
        NonNull::new(start.ok()?.cast())
    }

    /// Frees what [`map`] returned.
    ///
    /// # Safety
    ///
    /// `start` came from `map(size)`, and nothing uses the memory any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
        // SAFETY: by contract the mapping is ours and unused.
        let _ = unsafe { munmap(start.as_ptr().cast(), size) };
    }

    /// Populates the pages of `size` bytes from `start` on, which [`reserve`] returned. If it fails, page
    /// faults do it later.
    pub(super) fn populate(start: NonNull<u8>, size: usize) {
        // SAFETY: a mapping of ours; populating changes no contents.
        let _ = unsafe { madvise(start.as_ptr().cast(), size, Advice::LinuxPopulateWrite) };
    }

    /// Frees what [`reserve`] returned.
    ///
    /// # Safety
    ///
    /// `start` came from `reserve(size)`, and nothing uses the memory any more.
    pub(super) unsafe fn release(start: NonNull<u8>, size: usize) {
        let size = size.next_multiple_of(HUGE_PAGE);
        if size == LARGEST {
            let mut spare = SPARE.lock();
            if spare.len() < MAX_SPARE {
                // SAFETY: by contract the mapping is ours and its contents are unused. If this fails, its pages
                // stay resident.
                let _ = unsafe { madvise(start.as_ptr().cast(), size, Advice::LinuxFree) };
                spare.push(Spare(start));
                return;
            }
        }
        // SAFETY: by contract the mapping is ours and unused.
        let _ = unsafe { munmap(start.as_ptr().cast(), size) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
mod mapping {
    //! No mappings on this platform: all memory comes from the heap.

    use std::ptr::NonNull;

    pub(super) const AVAILABLE: bool = false;

    pub(super) fn reserve(_size: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) fn map(_size: usize) -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    ///
    /// Never called: `map` returns nothing.
    pub(super) unsafe fn unmap(_start: NonNull<u8>, _size: usize) {}

    pub(super) fn populate(_start: NonNull<u8>, _size: usize) {}

    pub(super) fn spare_bytes() -> u64 {
        0
    }

    pub(super) fn free_spare() {}

    /// # Safety
    ///
    /// Never called: `reserve` returns nothing.
    pub(super) unsafe fn release(_start: NonNull<u8>, _size: usize) {}
}
