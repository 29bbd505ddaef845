//! Locations of blocks, in eight bytes each.

/// Offset and key part length of each block, in eight bytes. The upper half of the offsets, which changes every 4 GiB,
/// is stored separately.
#[derive(Debug, Default)]
pub(super) struct BlockLocations {
    /// Lower half of the offset, and length of the key part.
    low: Vec<(u32, u32)>,
    /// Block numbers from which on the upper half has a new value, and that value.
    carries: Vec<(u32, u32)>,
}

impl BlockLocations {
    #[inline]
    pub(super) fn get(&self, b: usize) -> Option<(u64, u32)> {
        let &(low, key_part) = self.low.get(b)?;
        let high = if self.carries.is_empty() { 0 } else { self.high(b) };
        Some((high | u64::from(low), key_part))
    }

    /// Returns the upper half of the offset of block `b`.
    #[cold]
    fn high(&self, b: usize) -> u64 {
        let after = self.carries.partition_point(|&(first, _)| first as usize <= b);
        let high = after.checked_sub(1).and_then(|i| self.carries.get(i)).map_or(0, |&(_, high)| high);
        u64::from(high) << 32
    }

    pub(super) fn bytes(&self) -> usize {
        (self.low.capacity() + self.carries.capacity()) * size_of::<(u32, u32)>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.low.is_empty()
    }

    pub(super) fn reserve(&mut self, blocks: usize) {
        self.low.reserve_exact(blocks);
    }

    /// Adds a block after the ones added before.
    pub(super) fn push(&mut self, at: u64, key_part: u32) {
        let high = (at >> 32) as u32;
        if high != self.carries.last().map_or(0, |&(_, high)| high) {
            self.carries.push((self.low.len() as u32, high));
        }
        self.low.push((at as u32, key_part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_4_gib_are_found() {
        let lengths = [100, 0xFFFF_FFFF, 1, 50, 3 << 32, 7, 0xFFFF_FFFF, 2];
        let mut places = BlockLocations::default();
        let mut offsets = Vec::new();
        let mut at = 0;
        for (i, length) in lengths.iter().enumerate() {
            places.push(at, i as u32);
            offsets.push((at, i as u32));
            at += length;
        }
        assert_eq!(places.carries.len(), 3);
        assert_eq!((0..lengths.len()).filter_map(|b| places.get(b)).collect::<Vec<_>>(), offsets);
        assert_eq!(places.get(lengths.len()), None);
    }
}
