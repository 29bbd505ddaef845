//! [`Scope`]: the limits of a scan, known to every layer of a cursor, so that no layer reads more than the scan needs.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::Comparator;

/// Limits of a scan. Cheap to clone: the layers of a cursor share the keys.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    range: Option<Arc<Range>>,
    /// True if values are never requested.
    pub keys_only: bool,
    /// True if the cursor lives as long as one call of the program, which cannot hold many: it is not refused memory.
    pub one_call: bool,
}

#[derive(Debug)]
struct Range {
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
}

impl Scope {
    /// Limits the scope to the keys between `low` and `high`.
    pub fn set_range(&mut self, order: &Comparator, low: Bound<&[u8]>, high: Bound<&[u8]>) {
        // In byte order the next possible key is the key and a zero, so every bound becomes an inclusive lower or an exclusive upper one.
        let next = |key: &[u8]| [key, &[0]].concat();
        let low = match low {
            Bound::Excluded(key) if order.is_bytewise() => Bound::Included(next(key)),
            low => low.map(<[u8]>::to_vec),
        };
        let high = match high {
            Bound::Included(key) if order.is_bytewise() => Bound::Excluded(next(key)),
            high => high.map(<[u8]>::to_vec),
        };
        let is_all = low == Bound::Unbounded && high == Bound::Unbounded;
        self.range = (!is_all).then(|| Arc::new(Range { low, high }));
    }

    /// Bytes of memory that the bounds take.
    pub fn memory_bytes(&self) -> usize {
        let end = |end: &Bound<Vec<u8>>| match end {
            Bound::Included(key) | Bound::Excluded(key) => key.capacity(),
            Bound::Unbounded => 0,
        };
        self.range.as_ref().map_or(0, |range| size_of::<Range>() + end(&range.low) + end(&range.high))
    }

    /// Returns true if there is a bound.
    #[inline]
    pub fn is_bounded(&self) -> bool {
        self.range.is_some()
    }

    /// The lower bound.
    #[inline]
    pub fn low(&self) -> Bound<&[u8]> {
        self.range.as_ref().map_or(Bound::Unbounded, |range| range.low.as_ref().map(Vec::as_slice))
    }

    /// The upper bound.
    #[inline]
    pub fn high(&self) -> Bound<&[u8]> {
        self.range.as_ref().map_or(Bound::Unbounded, |range| range.high.as_ref().map(Vec::as_slice))
    }

    /// The first key above the range, if it is known: always where there is an upper bound in byte order.
    #[inline]
    pub fn end(&self) -> Option<&[u8]> {
        match self.high() {
            Bound::Excluded(key) => Some(key),
            _ => None,
        }
    }

    /// Returns true if `key` is above the range.
    #[inline]
    pub fn is_above(&self, order: &Comparator, key: &[u8]) -> bool {
        match self.high() {
            Bound::Unbounded => false,
            Bound::Included(high) => order.compare(key, high).is_gt(),
            Bound::Excluded(high) => order.compare(key, high).is_ge(),
        }
    }

    /// Returns true if `key` is below the range.
    #[inline]
    pub fn is_below(&self, order: &Comparator, key: &[u8]) -> bool {
        match self.low() {
            Bound::Unbounded => false,
            Bound::Included(low) => order.compare(key, low).is_lt(),
            Bound::Excluded(low) => order.compare(key, low).is_le(),
        }
    }

    /// Returns true if all keys before `end` are below the range.
    pub fn is_below_until(&self, order: &Comparator, end: &[u8]) -> bool {
        match self.low() {
            Bound::Unbounded => false,
            Bound::Included(low) | Bound::Excluded(low) => order.compare(end, low) != Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(order: &Comparator, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Scope {
        let mut scope = Scope::default();
        scope.set_range(order, low, high);
        scope
    }

    #[test]
    fn each_kind_of_bound_holds_in_each_order() {
        let custom = Comparator::custom("bytes", <[u8]>::cmp);
        for order in [Comparator::bytewise(), custom] {
            let all = scope(&order, Bound::Unbounded, Bound::Unbounded);
            assert!(!all.is_bounded() && !all.is_above(&order, b"z") && !all.is_below(&order, b""));
            let from = scope(&order, Bound::Excluded(b"b"), Bound::Excluded(b"d"));
            let below = [&b"a"[..], b"b"].map(|key| from.is_below(&order, key));
            assert_eq!((below, from.is_below(&order, b"b\0")), ([true; 2], false));
            assert!(from.is_above(&order, b"d") && !from.is_above(&order, b"c\xff"));
            let to = scope(&order, Bound::Included(b"b"), Bound::Included(b"d"));
            assert!(to.is_below(&order, b"a") && !to.is_below(&order, b"b"));
            assert!(!to.is_above(&order, b"d") && to.is_above(&order, b"d\0"));
            assert!(to.is_below_until(&order, b"b") && !to.is_below_until(&order, b"b\0"));
        }
    }
}
