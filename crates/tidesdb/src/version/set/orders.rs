//! Comparators and merge operators of the families: the manifest has their names, the caller gives the code.

use std::sync::Arc;

use super::Context;
use crate::types::Comparator;
use crate::version::edit::Change;
use crate::version::state::{FamilyState, State};
use crate::{Error, Result};

/// Returns the families of `state` whose comparator is neither built in nor among `given`.
pub fn without_comparator<'a>(
    state: &'a State,
    given: &'a [Comparator],
) -> impl Iterator<Item = &'a Arc<FamilyState>> {
    let is_given = |name: &str| given.iter().any(|order| order.name() == name);
    let is_missing = move |order: &Comparator| order.is_unresolved() && !is_given(order.name());
    state.families.values().filter(move |family| is_missing(&family.options.comparator))
}

/// Assigns the known comparators and merge operators to the families.
///
/// # Errors
/// `InvalidArgument`, naming all families whose comparator is not known, or one whose merge operator is not.
pub(super) fn assign<T>(state: &mut State, context: &Context<T>) -> Result<()> {
    let missing: Vec<_> = without_comparator(state, &context.comparators).cloned().collect();
    if context.leaves_out {
        state.apply(&missing.iter().map(|family| Change::DropFamily { family: family.id }).collect())?;
    } else if !missing.is_empty() {
        let name = |family: &Arc<FamilyState>| {
            format!("{:?} of family {:?}", family.options.comparator.name(), family.name)
        };
        let names: Vec<_> = missing.iter().map(name).collect();
        let names = names.join(", ");
        return Err(Error::invalid(format!(
            "key orders are not known: {names}; register them with OpenOptions::comparator"
        )));
    }
    state.families.values_mut().try_for_each(|family| assign_to(family, context))
}

fn assign_to<T>(family: &mut Arc<FamilyState>, context: &Context<T>) -> Result<()> {
    let order = &family.options.comparator;
    if order.is_unresolved()
        && let Some(given) = context.comparators.iter().find(|given| given.name() == order.name())
    {
        Arc::make_mut(family).options.comparator = given.clone();
    }
    let unknown = family.options.merge_operator.as_ref().filter(|operator| operator.is_unresolved());
    let Some(name) = unknown.map(|operator| operator.name()) else { return Ok(()) };
    match context.operators.iter().find(|given| given.name() == name) {
        Some(given) => Arc::make_mut(family).options.merge_operator = Some(given.clone()),
        None if context.lacks_operators => {}
        None => {
            return Err(Error::invalid(format!(
                "family {:?} uses the merge operator {name:?}; register it with OpenOptions::merge_operator",
                family.name
            )));
        }
    }
    Ok(())
}
