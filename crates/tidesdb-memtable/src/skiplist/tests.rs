//! Unit tests of the skip list's shape. Its contents are tested through the memtable.

use super::*;

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn heights_fall_off_by_four_and_depend_on_the_seed() {
    let lists = [1, 2].map(|seed| SkipList::new(Arc::new(<[u8]>::cmp), seed));
    let mut counts = [0_usize; MAX_HEIGHT + 1];
    let mut same = 0;
    for i in 0..40_000_u64 {
        let key = format!("{i:016}");
        let heights = [0, 1].map(|n: usize| lists[n].height_of(key.as_bytes()));
        assert!(heights[0] == lists[0].height_of(key.as_bytes()), "the same key has the same height");
        counts[heights[0]] += 1;
        same += usize::from(heights[0] == heights[1]);
    }
    assert!((29_000..31_000).contains(&counts[1]), "{counts:?}");
    assert!((7_000..8_000).contains(&counts[2]), "{counts:?}");
    assert!((1_650..2_100).contains(&counts[3]), "{counts:?}");
    assert!(same < 26_500, "{same}");
}
