//! The atomics, locks and thread-local state of this crate: the standard ones, or loom's in a model.
//!
//! No other file of the crate uses `std::sync::atomic`, so a model sees every shared access.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

#[cfg(not(any(loom, simulated)))]
use parking_lot as raw;
#[cfg(simulated)]
use tidesdb_sync::scheduler::lock as raw;

/// Spin-loop pauses per wait before the thread yields its core: the awaited thread may itself not be running.
#[cfg(not(any(loom, simulated)))]
const MAX_PAUSES: u32 = 64;

/// Waits for another running thread: spins a few times, then yields the core each time.
#[derive(Default)]
pub(crate) struct Spin {
    #[cfg(not(any(loom, simulated)))]
    pauses: u32,
}

impl Spin {
    #[inline]
    pub(crate) fn wait(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(simulated)]
        tidesdb_sync::scheduler::yield_now("memtable");
        #[cfg(not(any(loom, simulated)))]
        if self.pauses < MAX_PAUSES {
            self.pauses += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// A lock that does not poison.
#[derive(Default)]
pub(crate) struct Mutex<T> {
    #[cfg(not(loom))]
    inner: raw::Mutex<T>,
    #[cfg(loom)]
    inner: loom::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        #[cfg(not(loom))]
        let inner = raw::Mutex::new(value);
        #[cfg(loom)]
        let inner = loom::sync::Mutex::new(value);
        Mutex { inner }
    }

    #[cfg(not(loom))]
    pub(crate) fn lock(&self) -> impl std::ops::DerefMut<Target = T> + '_ {
        self.inner.lock()
    }

    #[cfg(loom)]
    pub(crate) fn lock(&self) -> impl std::ops::DerefMut<Target = T> + '_ {
        self.inner.lock().expect("no model panics under the lock")
    }
}

/// Part of a published structure: stands for its plain fields in a loom model, which fails if they are not
/// written before [`check`](Self::check). Does nothing otherwise.
#[cfg(not(loom))]
pub(crate) struct Born;

#[cfg(not(loom))]
impl Born {
    #[inline]
    pub(crate) fn new() -> Self {
        Born
    }

    #[inline]
    pub(crate) fn check(&self) {}
}

#[cfg(loom)]
pub(crate) struct Born(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Born {
    pub(crate) fn new() -> Self {
        let cell = loom::cell::UnsafeCell::new(());
        cell.with_mut(|_| ());
        Born(cell)
    }

    pub(crate) fn check(&self) {
        self.0.with(|_| ());
    }
}

/// Prefetches the cache line at `at`, which may be any address. Does nothing on processors other than x86-64 and ARM64.
#[inline]
pub(crate) fn fetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch of any address is harmless, and the block does nothing else.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = at;
}

/// Returns a number that is unique among the memtables of this process. Not part of any protocol, so it never
/// uses loom's atomics.
pub(crate) fn unique_id() -> u64 {
    use std::sync::atomic::AtomicU64 as Counter;
    static NEXT: Counter = Counter::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the small number of this thread, assigned in order of first use.
#[cfg(not(loom))]
#[inline]
pub(crate) fn thread_index() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static INDEX: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
    }
    INDEX.with(|index| {
        if index.get() == usize::MAX {
            index.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        index.get()
    })
}

/// All threads of a model share one lane of the arena, which is the harder case.
#[cfg(loom)]
pub(crate) fn thread_index() -> usize {
    0
}

/// A cached address, valid only together with the [`unique_id`] it was stored under.
pub(crate) type Hint = (u64, *mut ());

/// Address of a node and the index of a slot in it. Only compared, never dereferenced: the node may be freed.
pub(crate) type SlotAddress = (usize, usize);

#[cfg(not(loom))]
thread_local! {
    static HINT: std::cell::Cell<Hint> = const { std::cell::Cell::new((0, std::ptr::null_mut())) };
    static PLACE: std::cell::Cell<SlotAddress> = const { std::cell::Cell::new((0, 0)) };
}

#[cfg(loom)]
loom::thread_local! {
    static HINT: std::cell::Cell<Hint> = std::cell::Cell::new((0, std::ptr::null_mut()));
    static PLACE: std::cell::Cell<SlotAddress> = std::cell::Cell::new((0, 0));
}

/// Returns the hint that this thread stored last.
#[inline]
pub(crate) fn hint() -> Hint {
    HINT.with(std::cell::Cell::get)
}

/// Replaces the hint of this thread.
#[inline]
pub(crate) fn set_hint(hint: Hint) {
    HINT.with(|cell| cell.set(hint));
}

/// Returns the place that this thread stored last.
pub(crate) fn last_place() -> SlotAddress {
    PLACE.with(std::cell::Cell::get)
}

/// Replaces the place of this thread.
#[inline]
pub(crate) fn set_last_place(place: SlotAddress) {
    PLACE.with(|cell| cell.set(place));
}
