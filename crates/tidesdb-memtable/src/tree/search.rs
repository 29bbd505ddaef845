//! Searching inside a node: prefix, heads, and the records of tied heads.
//!
//! Threads: reads race with writers of the node. Nothing here trusts what it read beyond array bounds, and a
//! record is touched only after the node's version was validated.

use std::cmp::Ordering as Order;

use super::lock::Seen;
use super::node::{FANOUT, INLINE, Meta, Node, NodeRef};
use crate::record::RecordRef;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// Where a key belongs in a node.
pub(super) struct Place<'a> {
    /// Number of keys less than it.
    pub(super) index: usize,
    /// The record of the key itself, if the node has it: then it is in slot `index`.
    pub(super) found: Option<RecordRef<'a>>,
}

impl<'a> NodeRef<'a> {
    /// Where `key` belongs; `None` if the node is not what it was when `seen` was read. A place without a record
    /// is not validated yet.
    #[inline]
    pub(super) fn locate(self, key: &[u8], seen: Seen) -> Option<Place<'a>> {
        let meta = self.meta();
        let count = meta.count.min(FANOUT);
        let index = match compare_prefix(self.node(), key, meta) {
            Order::Less => 0,
            Order::Greater => count,
            Order::Equal => {
                let head = head_of(key, meta.plen);
                let index = lower_bound(&self.node().heads, count, head);
                if index < count && self.node().heads[index].load(Ordering::Relaxed) == head {
                    return self.locate_among_ties(key, meta, index, seen);
                }
                index
            }
        };
        Some(Place { index, found: None })
    }

    /// The same where the head of `key` equals that of slot `first` and perhaps of some after it.
    fn locate_among_ties(self, key: &[u8], meta: Meta, first: usize, seen: Seen) -> Option<Place<'a>> {
        let count = meta.count.min(FANOUT);
        let head = head_of(key, meta.plen);
        let (mut low, mut high) = (first, first + 1);
        if high < count && self.node().heads[high].load(Ordering::Relaxed) == head {
            high = head.checked_add(1).map_or(count, |above| lower_bound(&self.node().heads, count, above));
        }
        let rest = key.get(meta.plen..)?;
        while low < high {
            let middle = low.midpoint(high);
            let record = self.key(middle, seen)?;
            match record.key().get(meta.plen..)?.cmp(rest) {
                Order::Equal => return Some(Place { index: middle, found: Some(record) }),
                Order::Less => low = middle + 1,
                Order::Greater => high = middle,
            }
        }
        Some(Place { index: low, found: None })
    }
}

/// How `key` compares with the prefix of the node's keys, given that it shares the fences' part. `Equal` means
/// that it has the whole prefix.
#[inline]
fn compare_prefix(node: &Node, key: &[u8], meta: Meta) -> Order {
    let inline = meta.plen.saturating_sub(meta.flen).min(INLINE);
    let mut done = 0;
    while done < inline {
        let left = inline - done;
        let mask = if left < 8 { !(u64::MAX >> (8 * left)) } else { u64::MAX };
        let ours = head_of(key, meta.flen + done) & mask;
        let theirs = node.prefix_word(done / 8) & mask;
        if ours != theirs {
            return ours.cmp(&theirs);
        }
        done += 8;
    }
    // Its padding may have matched zeros of the prefix.
    if key.len() < meta.plen { Order::Less } else { Order::Equal }
}

/// The 8 bytes of `key` from `at` on as a number whose order is theirs, padded with zeros.
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

/// Length of the longest common prefix.
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

/// Number of the first `count` heads that are less than `head`. If the heads change meanwhile, some number not
/// above `count`.
#[inline]
pub(super) fn lower_bound(heads: &[AtomicU64; FANOUT], count: usize, head: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    if simd::available() {
        return simd::lower_bound(heads, head).min(count);
    }
    bisect(heads, count, head)
}

/// [`lower_bound`] without special instructions: halves the range without a branch on the comparison.
#[inline]
pub(super) fn bisect(heads: &[AtomicU64; FANOUT], count: usize, head: u64) -> usize {
    let mut low = 0;
    let mut length = count;
    while length > 0 {
        let half = length / 2;
        let less = heads[low + half].load(Ordering::Relaxed) < head;
        low = if less { low + half + 1 } else { low };
        length = if less { length - half - 1 } else { half };
    }
    low
}

/// A word that can be moved to another slot: an atomic of 8 bytes (in a model, whatever stands for it).
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
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    let count = simd::copy_up(slots, from, count);
    for i in (from..count).rev() {
        slots[i].copy_to(&slots[i + 1]);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
pub(super) mod simd {
    //! All heads of a node compared at once, on processors with AVX-512, and slots moved in pairs.

    use super::{AtomicU64, FANOUT, Ordering, Slot};
    use std::arch::asm;
    use std::sync::atomic::AtomicU8;

    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;

    /// Whether [`lower_bound`] may be called.
    #[inline]
    pub(in crate::tree) fn available() -> bool {
        static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
        match KNOWN.load(Ordering::Relaxed) {
            UNKNOWN => {
                let yes = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl");
                KNOWN.store(if yes { YES } else { NO }, Ordering::Relaxed);
                yes
            }
            known => known == YES,
        }
    }

    const _: () = assert!(FANOUT == 60, "seven vectors of eight heads and one of four");

    /// Number of leading heads less than `head`, those in unused slots included.
    ///
    /// The loads are in assembly because they race with writers: to the language an assembly block is whatever
    /// code could do the same, here 60 relaxed loads. (Lanes of 8 aligned bytes are not torn on any processor
    /// with these instructions, and the caller validates what it concludes from them anyway.)
    #[inline]
    pub(in crate::tree) fn lower_bound(heads: &[AtomicU64; FANOUT], head: u64) -> usize {
        let less: u64;
        debug_assert!(available());
        // SAFETY: 1. the caller checked `available`; 2. the block reads exactly the 480 bytes of `heads` and
        // writes nothing but the registers it names.
        unsafe {
            asm!(
                "vpbroadcastq zmm16, {head}",
                // Predicate 6: broadcast head > memory.
                "vpcmpuq k1, zmm16, [{at}], 6",
                "vpcmpuq k2, zmm16, [{at} + 64], 6",
                "vpcmpuq k3, zmm16, [{at} + 128], 6",
                "vpcmpuq k4, zmm16, [{at} + 192], 6",
                "kunpckbw k1, k2, k1",
                "vpcmpuq k2, zmm16, [{at} + 256], 6",
                "kunpckbw k3, k4, k3",
                "vpcmpuq k4, zmm16, [{at} + 320], 6",
                "kunpckwd k1, k3, k1",
                "vpcmpuq k5, zmm16, [{at} + 384], 6",
                "kunpckbw k2, k4, k2",
                "vpcmpuq k6, ymm16, [{at} + 448], 6",
                "kunpckbw k5, k6, k5",
                "kunpckwd k2, k5, k2",
                "kunpckdq k1, k2, k1",
                "kmovq {less}, k1",
                head = in(reg) head,
                at = in(reg) heads.as_ptr(),
                less = lateout(reg) less,
                out("xmm16") _,
                out("k1") _, out("k2") _, out("k3") _, out("k4") _, out("k5") _, out("k6") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        less.trailing_ones() as usize
    }
    /// Moves slots up by one, from the last down, four at a time; what is left to move is `from..` the result.
    ///
    /// In assembly because readers race with the stores; every processor of this architecture has the
    /// instructions.
    #[inline]
    pub(in crate::tree) fn copy_up<T: Slot>(slots: &[T], from: usize, count: usize) -> usize {
        const { assert!(size_of::<T>() == 8) };
        assert!(count < slots.len());
        let mut end = count;
        while end >= from + 4 {
            end -= 4;
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
        }
        end
    }
}
