//! The families that the manifest in the store knows: the log that is stored behind it may name no others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::types::FamilyId;
use crate::version::{FamilyState, State};

/// What the log relies on, of each family of a manifest: its name, and whether it has a merge operator.
#[derive(Clone, Debug)]
pub(super) struct Catalog {
    next_family: FamilyId,
    families: BTreeMap<FamilyId, (Arc<str>, bool)>,
}

impl Catalog {
    /// The families of `state`.
    pub(super) fn of(state: &State) -> Self {
        let families = state.families.iter().map(|(id, family)| (*id, facts(family)));
        Self { next_family: state.next_family, families: families.collect() }
    }

    /// Returns whether a database with these families can replay the log of one with the state `now`, which is later: no family was made,
    /// renamed, or dropped, which would leave its values missing, and none got a merge operator.
    pub(super) fn knows(&self, now: &State) -> bool {
        let is_same = |id, family| self.families.get(id) == Some(&facts(family));
        now.next_family == self.next_family
            && now.families.len() == self.families.len()
            && now.families.iter().all(|(id, family)| is_same(id, family))
    }
}

fn facts(family: &FamilyState) -> (Arc<str>, bool) {
    (Arc::clone(&family.name), family.options.merge_operator.is_some())
}
