//! Belady's MIN with sizes, as an upper bound: evicts the key whose next use is farthest in the future,
//! including the new one, until the rest fits.
//!
//! This is optimal if all sizes are equal. With different sizes the optimum is hard to compute; this is the
//! usual heuristic, and no policy without knowledge of the future is close to it.

use std::collections::BTreeSet;

/// Hits after the first `warm_up` lookups.
pub(crate) fn hits(keys: &[u32], sizes: &[u32], capacity: u64, warm_up: usize) -> u64 {
    let next = next_uses(keys, sizes.len());
    let mut cached = BTreeSet::new();
    let (mut bytes, mut hits) = (0, 0);
    for (at, &key) in keys.iter().enumerate() {
        let size = u64::from(sizes[key as usize]);
        if cached.remove(&(at as u32, key)) {
            hits += u64::from(at >= warm_up);
        } else {
            bytes += size;
        }
        cached.insert((next[at], key));
        while bytes > capacity
            && let Some((_, victim)) = cached.pop_last()
        {
            bytes -= u64::from(sizes[victim as usize]);
        }
    }
    hits
}

/// Returns for each lookup the time at which its key is looked up again.
fn next_uses(keys: &[u32], distinct: usize) -> Vec<u32> {
    let mut next = vec![u32::MAX; keys.len()];
    let mut later = vec![u32::MAX; distinct];
    for (at, &key) in keys.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut later[key as usize], at as u32);
    }
    next
}
