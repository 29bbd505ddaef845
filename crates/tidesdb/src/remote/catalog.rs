//! The families that the manifest in the store knows: the log that is stored behind it may name no others.

use std::collections::BTreeMap;

use crate::types::FamilyId;
use crate::version::State;

/// The families of a manifest, and whether they have merge operators.
#[derive(Clone, Debug)]
pub struct Catalog {
    next_family: FamilyId,
    merges: BTreeMap<FamilyId, bool>,
}

impl Catalog {
    /// The families of `state`.
    pub fn of(state: &State) -> Self {
        let merges = state.families.iter().map(|(id, family)| (*id, family.options.merge_operator.is_some()));
        Self { next_family: state.next_family, merges: merges.collect() }
    }

    /// Returns whether a database with these families can replay the log of one with the state `now`, which is later: no family was made, and
    /// none got a merge operator.
    pub fn knows(&self, now: &State) -> bool {
        let merges = |id, has| self.merges.get(id) == Some(&has);
        now.next_family == self.next_family
            && now.families.iter().all(|(id, family)| merges(id, family.options.merge_operator.is_some()))
    }
}
