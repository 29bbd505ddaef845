//! Memory that callers receive and free: from libc, or from the functions they installed.
//!
//! The functions are in a data symbol of the interface, `tidesdb_allocator`, which programs may read and write.
//! A program that was linked against the symbol holds it in its own data (a copy relocation). So all code here
//! goes through the symbol and keeps no second copy of the functions.
//!
//! While no other functions are installed, libc's `free` must work on returned memory, so nothing here comes
//! from Rust's allocator. On Windows each C library has its own memory: only a program that uses the same one may call `free`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use tidesdb_sync::Mutex;

use crate::abi::ERR_MEMORY;
use crate::failure::{Answer, told};

/// The caller's `malloc`.
pub(crate) type MallocFn = unsafe extern "C" fn(usize) -> *mut c_void;
/// The caller's `calloc`.
pub(crate) type CallocFn = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// The caller's `realloc`.
pub(crate) type ReallocFn = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
/// The caller's `free`.
pub(crate) type FreeFn = unsafe extern "C" fn(*mut c_void);

/// The four functions that a caller installs together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocator {
    pub(crate) malloc: MallocFn,
    pub(crate) calloc: CallocFn,
    pub(crate) realloc: ReallocFn,
    pub(crate) free: FreeFn,
}

// Of the C library that is linked.
unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn calloc(count: usize, bytes: usize) -> *mut c_void;
    fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void;
    #[link_name = "free"]
    fn libc_free(memory: *mut c_void);
}

/// The functions of the C library that this one is linked with.
pub(crate) const LIBC: Allocator = Allocator { malloc, calloc, realloc, free: libc_free };

/// `tidesdb_allocator_t`: four function pointers, each read and written on its own. No code needs a consistent
/// pair of them.
#[repr(C)]
pub(crate) struct Functions {
    malloc: AtomicPtr<()>,
    calloc: AtomicPtr<()>,
    realloc: AtomicPtr<()>,
    free: AtomicPtr<()>,
}

const _: () = assert!(size_of::<Functions>() == 4 * size_of::<usize>());

/// The functions in use. They are libc's from load time on, because programs allocate through the symbol before
/// any call.
#[unsafe(export_name = "tidesdb_allocator")]
pub(crate) static FUNCTIONS: Functions = Functions {
    malloc: AtomicPtr::new(LIBC.malloc as *mut ()),
    calloc: AtomicPtr::new(LIBC.calloc as *mut ()),
    realloc: AtomicPtr::new(LIBC.realloc as *mut ()),
    free: AtomicPtr::new(LIBC.free as *mut ()),
};

/// 1 once the functions are chosen, by `tidesdb_init` or by the first use.
#[unsafe(export_name = "tidesdb_initialized")]
pub(crate) static INITIALIZED: AtomicI32 = AtomicI32::new(0);

const _: () = assert!(size_of::<AtomicI32>() == size_of::<c_int>());

/// Held while the functions are changed.
static CHOOSING: Mutex<()> = Mutex::new(());

impl Functions {
    fn set(&self, to: &Allocator) {
        self.malloc.store(to.malloc as *mut (), Ordering::Release);
        self.calloc.store(to.calloc as *mut (), Ordering::Release);
        self.realloc.store(to.realloc as *mut (), Ordering::Release);
        self.free.store(to.free as *mut (), Ordering::Release);
    }

    #[inline]
    fn malloc(&self) -> MallocFn {
        let function = self.malloc.load(Ordering::Acquire);
        // SAFETY: null or a function of this type: set here, or written by the caller, who guarantees it. Null
        // becomes `None`.
        unsafe { std::mem::transmute::<*mut (), Option<MallocFn>>(function) }.unwrap_or(LIBC.malloc)
    }

    #[inline]
    fn free(&self) -> FreeFn {
        let function = self.free.load(Ordering::Acquire);
        // SAFETY: as in `malloc`.
        unsafe { std::mem::transmute::<*mut (), Option<FreeFn>>(function) }.unwrap_or(LIBC.free)
    }
}

/// Sets the functions to use from now on; `None` selects libc's.
///
/// # Errors
/// `ERR_MEMORY` if they were set already.
pub(crate) fn choose(allocator: Option<Allocator>) -> Answer {
    let _choosing = CHOOSING.lock();
    if INITIALIZED.load(Ordering::Acquire) != 0 {
        return Err(told!(ERR_MEMORY, "the allocator is already set: call tidesdb_finalize first",));
    }
    FUNCTIONS.set(&allocator.unwrap_or(LIBC));
    INITIALIZED.store(1, Ordering::Release);
    Ok(())
}

/// Fixes the current functions: libc's, or those that the program wrote into the symbol.
pub(crate) fn settle() {
    let _choosing = CHOOSING.lock();
    INITIALIZED.store(1, Ordering::Release);
}

/// Restores libc's functions and allows another choice.
pub(crate) fn forget() {
    let _choosing = CHOOSING.lock();
    FUNCTIONS.set(&LIBC);
    INITIALIZED.store(0, Ordering::Release);
}

/// Returns the function that frees what is allocated now.
pub(crate) fn current_free() -> FreeFn {
    FUNCTIONS.free()
}

/// Allocates `n` bytes, at least one.
fn allocate(n: usize) -> Answer<NonNull<u8>> {
    // SAFETY: `malloc` may be called with any size; its result is checked.
    let memory = unsafe { FUNCTIONS.malloc()(n.max(1)) };
    NonNull::new(memory.cast()).ok_or(told!(ERR_MEMORY, "out of memory"))
}

/// Copies `bytes` into memory that the caller frees.
#[inline]
pub(crate) fn copy(bytes: &[u8]) -> Answer<*mut u8> {
    let memory = allocate(bytes.len())?.as_ptr();
    // SAFETY: it was just allocated with at least this many bytes, so it cannot overlap `bytes`.
    unsafe { memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(memory)
}

/// Copies `items` into memory that the caller frees. Returns null if there are none.
pub(crate) fn copy_all<T: Copy>(items: &[T]) -> Answer<*mut T> {
    if items.is_empty() {
        return Ok(null_mut());
    }
    let memory: *mut T = allocate(size_of_val(items))?.as_ptr().cast();
    // SAFETY: it was just allocated with this many bytes; malloc aligns memory for every C type, and `T` is
    // one.
    unsafe { memory.copy_from_nonoverlapping(items.as_ptr(), items.len()) };
    Ok(memory)
}

/// Allocates one piece of memory that the caller frees: an array of `count` items, and after it `texts`, to which the items point. `item`
/// makes an item from its number and the address of the texts.
pub(crate) fn copy_packed<T: Copy>(
    count: usize,
    texts: &[u8],
    item: impl Fn(usize, *const c_char) -> T,
) -> Answer<*mut T> {
    let array = count.checked_mul(size_of::<T>()).and_then(|array| array.checked_add(texts.len()));
    let memory = allocate(array.unwrap_or(usize::MAX))?.as_ptr();
    let items: *mut T = memory.cast();
    // SAFETY: it was just allocated with room for the items and for the texts after them; malloc aligns memory for every C type, and `T`
    // is one.
    unsafe {
        let to = items.add(count).cast::<u8>();
        to.copy_from_nonoverlapping(texts.as_ptr(), texts.len());
        for n in 0..count {
            items.add(n).write(item(n, to.cast()));
        }
    }
    Ok(items)
}

/// Copies a text with its terminating zero into memory that the caller frees.
pub(crate) fn copy_text(text: &CStr) -> Answer<*mut c_char> {
    copy(text.to_bytes_with_nul()).map(<*mut u8>::cast)
}

/// Frees memory that this module returned. Null is allowed.
pub(crate) fn free<T>(memory: *mut T) {
    if !memory.is_null() {
        // SAFETY: the interface requires a pointer that came from this library and was not freed yet. It cannot
        // be checked.
        unsafe { FUNCTIONS.free()(memory.cast()) };
    }
}
