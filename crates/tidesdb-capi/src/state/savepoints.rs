//! The named savepoints of a transaction.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::sync::Arc;

/// Savepoints of the engine with their names. All calls take logarithmic time, except that [`Savepoints::cut`] takes it for each
/// savepoint that it removes.
#[derive(Debug)]
pub(super) struct Savepoints<S> {
    /// By the order in which they were set.
    by_age: BTreeMap<u64, (Arc<CStr>, S)>,
    ages: HashMap<Arc<CStr>, u64>,
    next: u64,
}

impl<S> Default for Savepoints<S> {
    fn default() -> Self {
        Self { by_age: BTreeMap::new(), ages: HashMap::new(), next: 0 }
    }
}

impl<S: Copy> Savepoints<S> {
    /// Removes all.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.by_age.is_empty() {
            *self = Self::default();
        }
    }

    /// Adds a savepoint, the newest. There is none of this name.
    pub(super) fn add(&mut self, name: &CStr, savepoint: S) {
        let name: Arc<CStr> = name.into();
        self.ages.insert(Arc::clone(&name), self.next);
        self.by_age.insert(self.next, (name, savepoint));
        self.next += 1;
    }

    /// Returns the savepoint called `name`.
    pub(super) fn find(&self, name: &CStr) -> Option<S> {
        Some(self.by_age.get(self.ages.get(name)?)?.1)
    }

    /// Removes one savepoint. Returns it if it was the newest.
    pub(super) fn remove(&mut self, name: &CStr) -> Option<S> {
        let age = self.ages.remove(name)?;
        let is_newest = self.by_age.last_key_value().is_some_and(|(newest, _)| *newest == age);
        let (_, savepoint) = self.by_age.remove(&age)?;
        is_newest.then_some(savepoint)
    }

    /// Removes the savepoint called `name` and all newer ones.
    pub(super) fn cut(&mut self, name: &CStr) {
        let Some(age) = self.ages.get(name).copied() else { return };
        while let Some(newest) = self.by_age.last_entry()
            && *newest.key() >= age
        {
            let (name, _) = newest.remove();
            self.ages.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares random calls with a list that is searched.
    #[test]
    fn savepoints_behave_like_a_list_of_names() {
        let names: Vec<_> = (0..12_u8).map(|n| std::ffi::CString::new(vec![n + 1]).unwrap()).collect();
        let (mut savepoints, mut list, mut random) =
            (Savepoints::default(), Vec::<(usize, u64)>::new(), 7_u64);
        for turn in 0..100_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = (random >> 33) as usize % names.len();
            let at = list.iter().position(|(name, _)| *name == n);
            assert_eq!(savepoints.find(&names[n]), at.map(|at| list[at].1));
            match random >> 60 {
                0 => {
                    savepoints.cut(&names[n]);
                    list.truncate(at.unwrap_or(list.len()));
                }
                1 if (random >> 50) % 64 == 0 => {
                    savepoints.clear();
                    list.clear();
                }
                1..6 => {
                    let newest = at.is_some_and(|at| at + 1 == list.len());
                    let removed = at.map(|at| list.remove(at).1);
                    assert_eq!(savepoints.remove(&names[n]), removed.filter(|_| newest));
                }
                _ if at.is_none() => {
                    savepoints.add(&names[n], turn);
                    list.push((n, turn));
                }
                _ => {}
            }
        }
    }
}
