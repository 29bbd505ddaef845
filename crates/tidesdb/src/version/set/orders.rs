//! Key orders of the families, given when the set is opened or registered later. A family with an unknown key order is
//! unresolved: it is in the state and edits change it like any other, but it has no version, because its tables cannot
//! be opened.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Context, Inner, Phase, VersionSet};
use crate::files::{self, FileKind};
use crate::types::{Comparator, FamilyId};
use crate::version::format::RECORDS_AT;
use crate::version::state::State;
use crate::{Error, Result};

impl<T> VersionSet<T> {
    /// Assigns `order` to the unresolved families that need it, and opens their tables: all of them or none.
    ///
    /// # Errors
    /// Errors of opening tables; `Corrupt` for tables that cannot exist together in this order.
    pub fn learn(&self, order: &Comparator) -> Result<()> {
        let mut inner = self.inner.lock();
        let mut learned = Vec::new();
        for family in inner.waiting.iter().filter_map(|id| inner.state.families.get(id)) {
            if family.options.comparator.name() == order.name() {
                let mut family = Arc::clone(family);
                Arc::make_mut(&mut family).options.comparator = order.clone();
                // The invariants between tables could not be checked before. A violation means that the manifest is
                // damaged.
                let version = self.build(&family, None).map_err(|e| match (e, &inner.phase) {
                    (Error::Internal { what }, Phase::Writable(m)) => {
                        Error::corrupt(&files::manifest(m.number()), RECORDS_AT, what)
                    }
                    (Error::Internal { what }, _) => Error::corrupt(files::CURRENT, 0, what),
                    (other, _) => other,
                })?;
                learned.push((Arc::new(version), family));
            }
        }
        for (version, family) in learned {
            inner.waiting.remove(&family.id);
            inner.versions.insert(family.id, version);
            inner.state.families.insert(family.id, family);
        }
        Ok(())
    }

    /// Queues the files of families that were dropped while unresolved: no version owns these files.
    pub(super) fn forget_waiting(&self, inner: &mut Inner<T>, before: &State) {
        let Inner { waiting, state, .. } = inner;
        let gone = |id: &FamilyId| !state.families.contains_key(id);
        for family in waiting.extract_if(.., |id| gone(id)).filter_map(|id| before.families.get(&id)) {
            family.tables.keys().for_each(|id| self.obsolete.push(FileKind::Table(*id)));
            family.vlogs.keys().for_each(|id| self.obsolete.push(FileKind::Vlog(*id)));
        }
    }
}

/// Assigns each family its key order; returns the unresolved families.
pub(super) fn resolve<T>(state: &mut State, context: &Context<T>) -> Result<BTreeSet<FamilyId>> {
    let mut waiting = BTreeSet::new();
    for family in state.families.values_mut() {
        let name = family.options.comparator.name();
        if Comparator::by_name(name).is_some() {
            continue;
        }
        let order = context.comparators.iter().find(|c| c.name() == name).cloned();
        match order {
            Some(order) => Arc::make_mut(family).options.comparator = order,
            None if (context.may_wait)(&family.name) => drop(waiting.insert(family.id)),
            None => {
                return Err(Error::invalid(format!(
                    "family {:?} uses the key order {name:?}; register it with OpenOptions::comparator",
                    family.name
                )));
            }
        }
    }
    Ok(waiting)
}
