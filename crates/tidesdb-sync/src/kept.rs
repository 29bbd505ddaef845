//! [`Kept`]: memory that a thread keeps for its next call, and that others free if the thread makes none.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::LocalKey;
use std::time::Duration;

use crate::raw::Mutex;

/// Kept memory that was not used for this long is freed.
const PERIOD_MILLIS: u64 = 1000;

/// The places of all threads.
static PLACES: Mutex<Vec<Weak<dyn Place>>> = Mutex::new(Vec::new());

/// The place of one thread, as other threads use it.
trait Place: Send + Sync {
    /// Frees what is kept, if it was not used since the last call or if `all` is freed.
    fn release(&self, all: bool);
}

/// The place of one thread for a value that it uses again: a buffer, a context. Belongs into a `thread_local`.
///
/// A thread may stop calling at any time. [`release_idle`] and [`release_kept`], called by any thread, free what it keeps then.
///
/// ```
/// use tidesdb_sync::{Kept, release_kept};
///
/// thread_local! {
///     static BUFFER: Kept<Vec<u8>> = Kept::new();
/// }
/// let mut buffer = Kept::take(&BUFFER).unwrap_or_default();
/// buffer.extend_from_slice(b"scratch");
/// Kept::put(&BUFFER, buffer);
/// release_kept();
/// assert!(Kept::take(&BUFFER).is_none());
/// ```
pub struct Kept<T: Send + 'static> {
    slot: Arc<Slot<T>>,
}

struct Slot<T> {
    /// Null, or a value from `Box::into_raw` that the slot owns.
    value: AtomicPtr<T>,
    /// Set when the thread takes the value.
    used: AtomicBool,
}

impl<T> Slot<T> {
    /// Replaces the value by `new`: null, or from `Box::into_raw`.
    #[inline]
    fn swap(&self, new: *mut T) -> Option<Box<T>> {
        let former = self.value.swap(new, Ordering::AcqRel);
        // SAFETY: a pointer in the slot came from `Box::into_raw`, and the exchange took it out, so this call alone owns it.
        (!former.is_null()).then(|| unsafe { Box::from_raw(former) })
    }
}

impl<T: Send> Place for Slot<T> {
    fn release(&self, all: bool) {
        if !self.used.swap(false, Ordering::Relaxed) || all {
            drop(self.swap(ptr::null_mut()));
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.swap(ptr::null_mut()));
    }
}

impl<T: Send + 'static> Kept<T> {
    /// An empty place of the current thread.
    pub fn new() -> Self {
        let slot = Arc::new(Slot { value: AtomicPtr::new(ptr::null_mut()), used: AtomicBool::new(false) });
        let mut places = PLACES.lock();
        // The places of threads that have ended make room for new ones.
        if places.len() == places.capacity() {
            places.retain(|place| place.strong_count() > 0);
        }
        places.push(Arc::downgrade(&slot) as Weak<dyn Place>);
        Self { slot }
    }

    /// Takes the value that this thread keeps at `place`, if there is one.
    #[inline]
    pub fn take(place: &'static LocalKey<Self>) -> Option<Box<T>> {
        let take = |kept: &Self| {
            kept.slot.used.store(true, Ordering::Relaxed);
            kept.slot.swap(ptr::null_mut())
        };
        place.try_with(take).ok().flatten() // there is none while the thread ends
    }

    /// Keeps `value` at `place` for the next call of this thread, instead of one that is kept there.
    #[inline]
    pub fn put(place: &'static LocalKey<Self>, value: Box<T>) {
        let _ = place.try_with(|kept| drop(kept.slot.swap(Box::into_raw(value))));
    }
}

impl<T: Send + 'static> Default for Kept<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

/// Frees what threads keep that they did not use since the last call; `now` is monotonic time. Does nothing within a second of the last
/// call, whoever made it: each database of a process calls it.
pub fn release_idle(now: Duration) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let (now, last) = (now.as_millis() as u64, LAST.load(Ordering::Relaxed));
    if now.abs_diff(last) >= PERIOD_MILLIS
        && LAST.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        release(false);
    }
}

/// Frees what threads keep, except what they are using.
pub fn release_kept() {
    release(true);
}

fn release(all: bool) {
    // Freed after the lock: a value that is dropped may start or end a use of another place.
    let places: Vec<Arc<dyn Place>> = PLACES.lock().iter().filter_map(Weak::upgrade).collect();
    places.iter().for_each(|place| place.release(all));
}
