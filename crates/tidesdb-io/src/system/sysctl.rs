//! Reads one number or name of the kernel of macOS and FreeBSD.

use std::ffi::CStr;
use std::ptr;

/// Returns the value of `name` if it has exactly `N` bytes.
pub(super) fn bytes<const N: usize>(name: &CStr) -> Option<[u8; N]> {
    let mut value = [0_u8; N];
    let mut len = N;
    // SAFETY: the name ends with 0; the call writes at most `len` bytes to `value`, and to `len` how many these are. It sets nothing,
    // because it gets no new value.
    let result = unsafe {
        libc::sysctlbyname(name.as_ptr(), value.as_mut_ptr().cast(), &raw mut len, ptr::null_mut(), 0)
    };
    (result == 0 && len == N).then_some(value)
}

/// Returns the value of `name` if it is a number of 32 or 64 bits.
pub(super) fn number(name: &CStr) -> Option<u64> {
    bytes(name).map(u64::from_ne_bytes).or_else(|| bytes(name).map(u32::from_ne_bytes).map(u64::from))
}

/// Fills `out` with random bytes. Returns false if the system has none.
pub(crate) fn random(out: &mut [u8; 8]) -> bool {
    // SAFETY: the call writes 8 bytes, the length of `out`.
    unsafe { libc::getentropy(out.as_mut_ptr().cast(), out.len()) == 0 }
}

/// Returns whether the name of a file system, which ends with 0, is one of `names`.
pub(super) fn is_one_of(name: &[libc::c_char], names: &[&str]) -> bool {
    let name = name.iter().take_while(|c| **c != 0).map(|c| *c as u8);
    names.iter().any(|known| name.clone().eq(known.bytes()))
}
