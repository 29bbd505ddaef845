//! Divides records to read into groups of neighbours, each of which is read with one call.

use super::VlogPointer;

/// Longest record that is read together with its neighbours.
const NEAR_BYTES_MAX: u64 = 80 << 10;
/// Maximum bytes between two records that are read together.
const GAP_BYTES_MAX: u64 = 8 << 10;

/// Returns the indexes of `wanted` in the order in which the records lie in the files.
pub(super) fn order_in_files(wanted: &[VlogPointer]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_unstable_by_key(|&i| (wanted[i].vlog, wanted[i].offset));
    order
}

/// Divides `order`, indexes of `wanted`, into groups of records that are near each other.
pub(super) fn groups<'o>(wanted: &[VlogPointer], order: &'o [usize]) -> impl Iterator<Item = &'o [usize]> {
    order.chunk_by(|&a, &b| is_near(&wanted[a], &wanted[b]))
}

/// Returns whether the record `b` begins so soon after `a`, and both are so short, that they are read with one call.
fn is_near(a: &VlogPointer, b: &VlogPointer) -> bool {
    let gap = b.offset.checked_sub(a.offset.saturating_add(a.record_bytes()));
    let short = |p: &VlogPointer| p.record_bytes() <= NEAR_BYTES_MAX;
    a.vlog == b.vlog && gap.is_some_and(|gap| gap <= GAP_BYTES_MAX) && short(a) && short(b)
}
