//! Search inside a node: by prefix, by heads, and by the records of tied heads.
//!
//! Threads: reads race with writers of the node. Nothing here trusts the data read beyond array bounds, and a
//! record is accessed only after the node's version was validated.

use std::cmp::Ordering as Order;

use super::lock::Seen;
use super::node::{FANOUT, INLINE, Meta, Node, NodeRef};
use super::words::head_of;
use crate::record::RecordRef;
use crate::sync::{AtomicU64, Ordering};

/// The position of a key in a node.
pub(super) struct Position<'a> {
    /// Number of keys less than the searched key.
    pub(super) index: usize,
    /// The record of the key itself, if the node has it; it is in slot `index` then.
    pub(super) found: Option<RecordRef<'a>>,
}

impl<'a> NodeRef<'a> {
    /// Returns the position of `key`; `None` if the node changed since `seen` was read. A position without a
    /// record is not validated yet.
    #[inline]
    pub(super) fn locate(self, key: &[u8], seen: Seen) -> Option<Position<'a>> {
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
        Some(Position { index, found: None })
    }

    /// Like `locate`, if the head of `key` equals that of slot `first` and perhaps of some slots after it.
    fn locate_among_ties(self, key: &[u8], meta: Meta, first: usize, seen: Seen) -> Option<Position<'a>> {
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
                Order::Equal => return Some(Position { index: middle, found: Some(record) }),
                Order::Less => low = middle + 1,
                Order::Greater => high = middle,
            }
        }
        Some(Position { index: low, found: None })
    }
}

/// Compares `key` with the prefix of the node's keys, given that it shares the fences' part. `Equal` means that
/// it has the whole prefix.
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
    // The padding of a short key may have matched zeros of the prefix.
    if key.len() < meta.plen { Order::Less } else { Order::Equal }
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

/// [`lower_bound`] without special instructions.
#[inline]
pub(super) fn bisect(heads: &[AtomicU64; FANOUT], count: usize, head: u64) -> usize {
    heads[..count].partition_point(|slot| slot.load(Ordering::Relaxed) < head)
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
pub(super) mod simd {
    //! Compares all heads of a node at once, on processors with AVX-512.

    use super::{AtomicU64, FANOUT, Ordering};
    use std::arch::asm;
    use std::sync::atomic::AtomicU8;

    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Returns whether [`lower_bound`] may be called.
    #[inline]
    pub(in crate::tree) fn available() -> bool {
        match KNOWN.load(Ordering::Relaxed) {
            UNKNOWN => detect(),
            known => known == YES,
        }
    }

    /// Not part of `available`, so that searches stay short.
    #[cold]
    fn detect() -> bool {
        let yes = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        KNOWN.store(if yes { YES } else { NO }, Ordering::Relaxed);
        yes
    }

    const _: () = assert!(FANOUT == 60, "seven vectors of eight heads and one of four");

    /// Number of leading heads less than `head`. Unused slots are compared too.
    ///
    /// The loads are in assembly because they race with writers. To the language, an assembly block is
    /// equivalent to any code that does the same, here 60 relaxed loads. Lanes of 8 aligned bytes are not torn
    /// on any processor with these instructions, and the caller validates its conclusions anyway.
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
}
