//! Memory that callers get and give back: from libc, or from the functions they installed.
//!
//! `free` of libc must work on what is returned while nothing else was installed, so nothing here comes from Rust's allocator.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use tidesdb_sync::Mutex;

use crate::abi::ERR_MEMORY;
use crate::failure::{Answer, told};

/// `malloc` of a caller.
pub(crate) type MallocFn = unsafe extern "C" fn(usize) -> *mut c_void;
/// `calloc` of a caller.
pub(crate) type CallocFn = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// `realloc` of a caller.
pub(crate) type ReallocFn = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
/// `free` of a caller.
pub(crate) type FreeFn = unsafe extern "C" fn(*mut c_void);

/// What a caller installed. `calloc` and `realloc` belong to the interface; nothing here needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocator {
    /// Gives memory.
    pub(crate) malloc: MallocFn,
    /// Takes it back.
    pub(crate) free: FreeFn,
}

static LIBC: Allocator = Allocator { malloc: libc::malloc, free: libc::free };

/// Nothing yet: the first use decides.
static CHOSEN: AtomicPtr<Allocator> = AtomicPtr::new(null_mut());
/// All that were ever chosen. None is freed: another thread may be calling through it. Each is two words.
static KEPT: Mutex<Vec<&'static Allocator>> = Mutex::new(Vec::new());

/// Chooses the functions to use from now on.
///
/// # Errors
/// `ERR_MEMORY` if they were chosen already.
pub(crate) fn choose(allocator: Option<Allocator>) -> Answer {
    let mut kept = KEPT.lock();
    if !CHOSEN.load(Ordering::Acquire).is_null() {
        return Err(told!(ERR_MEMORY, "the allocator is chosen already: call tidesdb_finalize first",));
    }
    let chosen: &'static Allocator = match allocator {
        None => &LIBC,
        Some(allocator) => {
            let chosen = Box::leak(Box::new(allocator));
            kept.push(chosen);
            chosen
        }
    };
    CHOSEN.store(std::ptr::from_ref(chosen).cast_mut(), Ordering::Release);
    Ok(())
}

/// Opening a database settles the choice.
pub(crate) fn settle() {
    let _ = choose(None); // refused if there is a choice, which is what is wanted
}

/// Back to the beginning.
pub(crate) fn forget() {
    CHOSEN.store(null_mut(), Ordering::Release);
}

fn current() -> Allocator {
    let chosen = CHOSEN.load(Ordering::Acquire);
    // SAFETY: it is null or was leaked by `choose`, and is never written again.
    *unsafe { chosen.as_ref() }.unwrap_or(&LIBC)
}

/// Memory of `n` bytes, at least one.
fn allocate(n: usize) -> Answer<NonNull<u8>> {
    // SAFETY: `malloc` may be called with any size; its result is checked.
    let memory = unsafe { (current().malloc)(n.max(1)) };
    NonNull::new(memory.cast()).ok_or(told!(ERR_MEMORY, "out of memory"))
}

/// A copy of `bytes` that the caller frees.
#[inline]
pub(crate) fn copy(bytes: &[u8]) -> Answer<*mut u8> {
    let memory = allocate(bytes.len())?.as_ptr();
    // SAFETY: it was allocated with at least this many bytes just now, so it cannot overlap `bytes`.
    unsafe { memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(memory)
}

/// A copy of `items` that the caller frees; null for none.
pub(crate) fn copy_all<T: Copy>(items: &[T]) -> Answer<*mut T> {
    if items.is_empty() {
        return Ok(null_mut());
    }
    let memory: *mut T = allocate(size_of_val(items))?.as_ptr().cast();
    // SAFETY: it was allocated with this many bytes just now; malloc's memory is aligned for every type of C, and `T` is one.
    unsafe { memory.copy_from_nonoverlapping(items.as_ptr(), items.len()) };
    Ok(memory)
}

/// A copy of a text, with its end, that the caller frees.
pub(crate) fn copy_text(text: &CStr) -> Answer<*mut c_char> {
    copy(text.to_bytes_with_nul()).map(<*mut u8>::cast)
}

/// Frees what came from here. Null is fine.
pub(crate) fn free<T>(memory: *mut T) {
    if !memory.is_null() {
        // SAFETY: the interface asks for a pointer that came from this library and was not freed yet; nobody can check it.
        unsafe { (current().free)(memory.cast()) };
    }
}
