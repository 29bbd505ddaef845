//! The families of an open database, by number and by name.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::family::{FamilyCore, Metric};
use crate::types::FamilyId;

/// The families; dropped ones are removed. Dereferences to the map by number.
#[derive(Clone, Debug, Default)]
pub struct Families {
    by_id: BTreeMap<FamilyId, Arc<FamilyCore>>,
    by_name: BTreeMap<Arc<str>, FamilyId>,
    /// What the dropped ones had counted, by [`Metric`]: sums over all families never fall.
    dropped: [u64; Metric::COUNT],
}

impl Families {
    /// Adds a family. A sweep looks at it, which may have missed it before.
    pub fn insert(&mut self, family: Arc<FamilyCore>) {
        self.by_name.insert(family.name(), family.id);
        let added = Arc::clone(&family);
        self.by_id.insert(family.id, family);
        added.ask_for_sweep();
    }

    /// Removes a family.
    pub fn remove(&mut self, family: &FamilyCore) {
        self.by_name.remove(&family.name());
        if self.by_id.remove(&family.id).is_some() {
            self.dropped.iter_mut().enumerate().for_each(|(metric, sum)| *sum += family.metrics.sum(metric));
        }
    }

    /// The sum of `metric` over all families since the open, with those that were dropped.
    pub fn total(&self, metric: Metric) -> u64 {
        let living: u64 = self.by_id.values().map(|family| family.total(metric)).sum();
        living + self.dropped[metric as usize]
    }

    /// Gives a family another name, which no other has.
    pub fn rename(&mut self, family: &FamilyCore, name: &str) {
        self.by_name.remove(&family.name());
        family.set_name(name);
        self.by_name.insert(family.name(), family.id);
    }

    /// Returns the family called `name`.
    pub fn named(&self, name: &str) -> Option<&Arc<FamilyCore>> {
        self.by_id.get(self.by_name.get(name)?)
    }

    /// Returns the names of all families, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }

    /// Returns those of `ids` that are there.
    pub fn all_of<'a>(
        &'a self,
        ids: impl IntoIterator<Item = FamilyId> + 'a,
    ) -> impl Iterator<Item = &'a Arc<FamilyCore>> {
        ids.into_iter().filter_map(|id| self.by_id.get(&id))
    }
}

impl Deref for Families {
    type Target = BTreeMap<FamilyId, Arc<FamilyCore>>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}
