//! The allocator of the process.

/// Returns free memory of the heap to the system, where the allocator can. Freed memory otherwise stays with the process, which then
/// takes more than it uses. Takes about a millisecond for each 100 MiB of heap; other threads may allocate meanwhile.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: the call takes a number, may run on any thread, and frees only memory that no program part holds.
    unsafe {
        libc::malloc_trim(0);
    }
}
