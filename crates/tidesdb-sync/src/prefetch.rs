//! Prefetching of memory that will be read soon, so that independent cache misses overlap.

/// Starts loading the cache line at which `value` begins.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    fetch(std::ptr::from_ref(value).cast());
}

/// Starts loading the cache line at an address. Does nothing on processors other than x86-64 and ARM64.
#[inline(always)]
fn fetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address has no visible effect.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch of any address has no visible effect, and the block does nothing else.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = at;
}
