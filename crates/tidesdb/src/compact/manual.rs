//! Compactions that a user asks for.
//!
//! A small tree is merged whole. In a larger tree the upper levels are first merged into the level just above the largest. Their
//! tables then end where a piece of the largest level ends. After that, one piece after the other is merged into the largest level.
//! Each merge is installed on its own, and the files that it replaces are removed before the next one begins: so it takes the space
//! of the upper levels and of one piece, not that of the data again. What was installed stays if a later merge fails or is stopped,
//! and other merges of the family run in between.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::plan;
use super::run::{run_alone, version_of};
use crate::Result;
use crate::family::FamilyCore;
use crate::maintenance::MaintenanceCtx;

/// Merges all tables of `family` into one sorted run.
///
/// # Errors
/// As `run`; what was merged before the failure stays.
pub fn everything(ctx: &MaintenanceCtx, family: &Arc<FamilyCore>) -> Result<()> {
    within(ctx, family, &..)
}

/// Merges the tables of `family` that overlap `range`, and those that must be merged with them.
///
/// # Errors
/// As [`everything`].
pub fn within<'k>(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    range: &impl RangeBounds<&'k [u8]>,
) -> Result<()> {
    let (options, order) = (&family.options, &family.options.comparator);
    let stops = ctx.write.merges.stops();
    ctx.write.jobs.check_open()?;
    ctx.remove_obsolete(); // what readers used when an earlier attempt found no space
    let mut pieces = false;
    run_alone(ctx, family, stops, |version| {
        pieces = plan::is_divided(version, options, range);
        match pieces {
            true => plan::above_largest(version, options, range),
            false => plan::within(version, options, range),
        }
    })?;
    // Rows beyond the current last key did not exist when the user asked.
    let Some(last) = plan::largest_key(&version_of(family)).filter(|_| pieces) else { return Ok(()) };
    let mut done: Option<Vec<u8>> = None;
    while done.as_ref().is_none_or(|done| order.compare(done, &last).is_lt()) {
        ctx.write.jobs.check_open()?; // a close waits for one merge, not for all
        ctx.remove_obsolete();
        let start = done.as_deref().map_or(range.start_bound().cloned(), Bound::Excluded);
        let rest = (start, range.end_bound().cloned());
        let merged = run_alone(ctx, family, stops, |version| plan::piece(version, options, &rest))?;
        let Some(merged) = merged else { break };
        done = merged.plan.keys(order).map(|(_, largest)| largest.to_vec());
    }
    Ok(())
}
