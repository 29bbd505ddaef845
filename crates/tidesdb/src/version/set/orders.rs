//! Comparators and merge operators of the families.
//!
//! Comparators are given when the set is opened, or later. A family without its comparator, or with
//! deferred operations, is unresolved: edits change it like any other, but its version has no tables, because they
//! cannot be opened in order.

use std::sync::Arc;

use super::{Context, Installed, Phase, VersionSet};
use crate::files;
use crate::types::{Comparator, FamilyId};
use crate::version::edit::VersionEdit;
use crate::version::format::RECORDS_AT;
use crate::version::state::{FamilyState, State};
use crate::{Error, Result};

impl<T: Send + Sync + 'static> VersionSet<T> {
    /// Gives the unresolved family `id` its comparator, opens its tables and installs `edit`, all or nothing. Installs
    /// nothing if `edit` is empty, so that a read-only set can resolve families too.
    ///
    /// # Errors
    /// Errors of opening tables and of [`VersionSet::install`]; `Corrupt` for tables that cannot exist together in this
    /// order.
    pub fn resolve(
        &self,
        id: FamilyId,
        order: &Comparator,
        edit: &VersionEdit,
        publish: impl FnOnce(&Installed<'_, T>),
    ) -> Result<()> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let (Some(state), Some(version)) = (inner.state.families.get(&id), inner.versions.get(&id)) else {
            return Err(Error::NotFound { what: format!("family {}", id.0).into() });
        };
        let unresolved = (Arc::clone(state), Arc::clone(version));
        let mut state = Arc::clone(state);
        Arc::make_mut(&mut state).options.comparator = order.clone();
        // The laws between tables could not be checked before. A breach means that the manifest is damaged.
        let version = self.build(&state, Some(version)).map_err(|e| match (e, &inner.phase) {
            (Error::Internal { what }, Phase::Writable(m)) => {
                Error::corrupt(&files::manifest(m.number()), RECORDS_AT, what)
            }
            (Error::Internal { what }, _) => Error::corrupt(files::CURRENT, 0, what),
            (other, _) => other,
        })?;
        inner.state.families.insert(id, state);
        inner.versions.insert(id, Arc::new(version));
        if !edit.is_empty()
            && let Err(e) = self.install_locked(inner, edit.clone())
        {
            inner.state.families.insert(id, unresolved.0);
            inner.versions.insert(id, unresolved.1);
            return Err(e);
        }
        publish(&Installed { state: &inner.state, versions: &inner.versions });
        Ok(())
    }
}

/// Assigns the known comparators to the families. A family with deferred operations stays unresolved, so that these are
/// replayed before it is used.
pub(super) fn assign<T>(state: &mut State, context: &Context<T>) -> Result<()> {
    for family in state.families.values_mut() {
        if family.held.is_empty() && !family.options.comparator.is_unresolved() {
            continue;
        }
        let name = family.options.comparator.name();
        let given = || context.comparators.iter().find(|order| order.name() == name).cloned();
        let order = match Comparator::by_name(name).or_else(given) {
            Some(_) if !family.held.is_empty() => Comparator::unresolved(name),
            Some(order) => order,
            None if (context.may_wait)(&family.name) => continue,
            None => {
                return Err(Error::invalid(format!(
                    "family {:?} uses the key order {name:?}; register it with OpenOptions::comparator",
                    family.name
                )));
            }
        };
        Arc::make_mut(family).options.comparator = order;
    }
    state.families.values_mut().try_for_each(|family| assign_operator(family, context))
}

/// Replaces an unresolved merge operator of `family` by the one of this name that the caller gave.
fn assign_operator<T>(family: &mut Arc<FamilyState>, context: &Context<T>) -> Result<()> {
    let Some(unknown) = family.options.merge_operator.as_ref().filter(|operator| operator.is_unresolved())
    else {
        return Ok(());
    };
    let name = unknown.name();
    match context.operators.iter().find(|given| given.name() == name) {
        Some(given) => {
            let given = Some(given.clone());
            Arc::make_mut(family).options.merge_operator = given;
            Ok(())
        }
        None if context.lacks_operators => Ok(()),
        None => Err(Error::invalid(format!(
            "family {:?} uses the merge operator {name:?}; register it with OpenOptions::merge_operator",
            family.name
        ))),
    }
}
