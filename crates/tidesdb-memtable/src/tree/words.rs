//! Words: the heads of keys, and array slots that are moved up.
//!
//! Threads: slots are atomics. Moving them races with readers, which validate the node's version afterwards.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
use std::arch::asm;

use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// Returns the 8 bytes of `key` from `at` on as a number that orders like them, padded with zeros.
#[inline]
pub(super) fn head_of(key: &[u8], at: usize) -> u64 {
    let word = |from: usize| {
        let bytes: &[u8; 8] = key[from..from + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(*bytes).swap_bytes()
    };
    let rest = key.len().saturating_sub(at);
    if rest >= 8 {
        word(at)
    } else if rest == 0 {
        0
    } else if key.len() >= 8 {
        word(key.len() - 8) << (8 * (8 - rest))
    } else {
        key[at..].iter().fold(0, |head, byte| head << 8 | u64::from(*byte)) << (8 * (8 - rest))
    }
}

/// Returns the length of the longest common prefix.
pub(super) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let length = a.len().min(b.len());
    let mut at = 0;
    while at < length {
        let differ = head_of(a, at) ^ head_of(b, at);
        if differ != 0 {
            return (at + differ.leading_zeros() as usize / 8).min(length);
        }
        at += 8;
    }
    length
}

/// A word that can be copied to another slot: an 8-byte atomic, or its counterpart in a model.
pub(super) trait Slot {
    fn copy_to(&self, to: &Self);
}

impl Slot for AtomicU64 {
    #[inline]
    fn copy_to(&self, to: &Self) {
        to.store(self.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl<T> Slot for AtomicPtr<T> {
    #[inline]
    fn copy_to(&self, to: &Self) {
        to.store(self.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Moves slots `from..count` up by one; slot `count` must exist.
#[inline]
pub(super) fn copy_up<T: Slot>(slots: &[T], from: usize, count: usize) {
    assert!(count < slots.len());
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
    let count = copy_up_by_fours(slots, from, count);
    for i in (from..count).rev() {
        slots[i].copy_to(&slots[i + 1]);
    }
}

/// Moves slots up by one, four at a time from the last down. The slots `from..result` remain to be moved.
///
/// Written in assembly because readers race with the stores. Every processor of these architectures has the
/// instructions.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
#[inline]
fn copy_up_by_fours<T: Slot>(slots: &[T], from: usize, count: usize) -> usize {
    const { assert!(size_of::<T>() == 8) };
    assert!(count < slots.len());
    let mut end = count;
    while end >= from + 4 {
        end -= 4;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: 1. slots end..end + 5 exist, as end + 4 <= count < slots.len(); 2. they are atomics, so
        // storing through a shared reference is allowed; 3. the block touches nothing but these 40 bytes and
        // the registers it names; both loads come before the stores that overlap them.
        unsafe {
            asm!(
                "movdqu {low}, [{at}]",
                "movdqu {high}, [{at} + 16]",
                "movdqu [{at} + 24], {high}",
                "movdqu [{at} + 8], {low}",
                at = in(reg) slots.as_ptr().add(end),
                low = out(xmm_reg) _,
                high = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above, with both pairs loaded before the stores.
        unsafe {
            asm!(
                "ldp {a}, {b}, [{at}]",
                "ldp {c}, {d}, [{at}, #16]",
                "stp {c}, {d}, [{at}, #24]",
                "stp {a}, {b}, [{at}, #8]",
                at = in(reg) slots.as_ptr().add(end),
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                d = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
    }
    end
}
