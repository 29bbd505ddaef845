//! Sorting with one copy of the code for all types, where a call for each comparison does not matter. `sort_by` of a slice, and `collect` to a
//! tree, which sorts first, are compiled for each type and comparison, in six kilobytes each.

use std::cmp::Ordering;

/// Sorts items; the order of equal ones stays.
pub(crate) fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let mut places: Vec<usize> = (0..items.len()).collect();
    sort_places(&mut places, &mut |a, b| compare(&items[a], &items[b]));
    for start in 0..items.len() {
        // Along the cycle of `start`: each item goes to its place, and the place is marked as done.
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut places[at], at);
            if from == start || from == at {
                break;
            }
            items.swap(at, from);
            at = from;
        }
    }
}

/// Like [`sort_by`], by a key.
pub(crate) fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// Sorts the numbers of items; the order of equal ones stays.
pub(crate) fn sort_places(places: &mut [usize], compare: &mut dyn FnMut(usize, usize) -> Ordering) {
    places.sort_by(|a, b| compare(*a, *b));
}

/// Collects to a tree, one element after the other.
pub(crate) trait Gather: Iterator {
    /// Like [`Iterator::collect`].
    fn gather<C: Default + Extend<Self::Item>>(self) -> C;
}

impl<I: Iterator> Gather for I {
    fn gather<C: Default + Extend<Self::Item>>(self) -> C {
        let mut all = C::default();
        all.extend(self);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_order_of_the_library(items: Vec<(u8, u16)>) {
            let (mut ours, mut theirs) = (items.clone(), items);
            sort_by_key(&mut ours, |item| item.0);
            theirs.sort_by_key(|item| item.0);
            prop_assert_eq!(&ours, &theirs);
            sort_by_key(&mut ours, |item| std::cmp::Reverse(item.1));
            theirs.sort_by_key(|item| std::cmp::Reverse(item.1));
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn the_last_value_of_a_key_is_gathered() {
        let map: std::collections::BTreeMap<u8, char> = [(2, 'a'), (1, 'b'), (2, 'c')].into_iter().gather();
        assert_eq!(map.into_iter().collect::<Vec<_>>(), [(1, 'b'), (2, 'c')]);
    }
}
