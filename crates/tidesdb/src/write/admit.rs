//! Collects what decides whether a commit waits: see [`crate::pacing`].
//!
//! A memtable that holds one large batch is charged as one write buffer, so that small commits continue while
//! it is flushed; the next large batch waits until all of its bytes are flushed. A commit that needs much
//! memory also waits until its memtables fit, and other writers leave it that memory.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use tidesdb_sync::pin;

use super::batch::WriteBatch;
use crate::context::{StagedTables, WriteCtx};
use crate::family::FamilyCore;
use crate::jobs::Job;
use crate::memory::{Charge, Memory, Pressure, RANGES_FULL, Reservation};
use crate::pacing::{
    Admission, GARBAGE, LEVEL_1, Load, MEMORY, MEMORY_PATIENCE, MEMTABLE_BYTES, MEMTABLES, MERGES,
};
use crate::waits::StallCause;
use crate::{Error, Result};

/// Delays or stops the commit of `batch` as long as the limits demand. Returns the memory that is kept for the commit, if it needs much.
///
/// # Errors
/// As [`Pacing::stop`](crate::pacing::Pacing::stop); those of [`WriteCtx::check_writable`].
pub(super) fn admit(ctx: &WriteCtx, batch: &WriteBatch) -> Result<Option<Reservation>> {
    let kept = RefCell::new(None::<Reservation>);
    let admission = || {
        let mut kept = kept.borrow_mut();
        if batch.needs_much() && kept.is_none() {
            *kept = ctx.memory.reserve(batch.inserted_bytes());
            if kept.is_none() {
                ctx.ask_for_relief();
                return Admission::Stop(StallCause::Memory);
            }
        }
        admission(ctx, batch)
    };
    match admission() {
        Admission::Go => {}
        _ if ctx.works_alone() => {}
        Admission::Slow(cause, fullness) => {
            let bytes = cost(batch, cause);
            ctx.pacing.delay(&*ctx.env.clock, (cause, fullness), bytes, admission);
        }
        Admission::Stop(cause) => {
            let check = |cause| ask_for_work(ctx, batch, cause);
            let admission = || {
                let decided = admission();
                if decided == Admission::Stop(StallCause::Memory) {
                    // Of several that fitted, and do not any more, one is to have it.
                    kept.borrow_mut().take_if(|kept| !kept.exceeds());
                }
                decided
            };
            ctx.pacing.stop(&*ctx.env.clock, cause, patience(ctx), admission, check)?;
        }
    }
    Ok(kept.into_inner())
}

/// Stops a commit that takes the tables of `staged` as long as the limits demand, which would stop a write of its families too. Returns the
/// memory that is kept for its range tombstones.
///
/// # Errors
/// As [`admit`] and [`admit_ranges`].
pub(super) fn admit_taken(ctx: &WriteCtx, staged: &[StagedTables]) -> Result<Option<Charge>> {
    let mut batch = WriteBatch::new();
    batch.families.extend(staged.iter().map(|part| Arc::clone(&part.family)));
    admit(ctx, &batch)?;
    let bytes = staged.iter().flat_map(|part| &part.ranges).map(|(_, range)| range.bytes() as u64).sum();
    if bytes > 0 { take_for_ranges(ctx, bytes).map(Some) } else { Ok(None) }
}

/// Takes memory for the range tombstones of `batch`. If there is none, waits until merges have applied others. The result is kept until the
/// commit has inserted its own, which are charged then.
///
/// # Errors
/// `MemoryLimit` for a batch that takes half of their share: smaller ones could wait for it for ever. `Busy` if merges free too little, because
/// a reader still needs what is deleted, or merges do not run.
#[inline]
pub(super) fn admit_ranges(ctx: &WriteCtx, batch: &WriteBatch) -> Result<Option<Charge>> {
    match batch.counts.range_bytes {
        0 => Ok(None),
        bytes => take_for_ranges(ctx, bytes).map(Some),
    }
}

#[cold]
fn take_for_ranges(ctx: &WriteCtx, bytes: u64) -> Result<Charge> {
    let max = ctx.memory.ranges_max() / 2;
    if bytes > max {
        let what = format!(
            "the range deletes of this batch or transaction would take {bytes} bytes of memory, and memory_limit allows {max} for those of \
             one; use smaller batches, or raise memory_limit"
        );
        return Err(Error::MemoryLimit { what: what.into() });
    }
    if ctx.works_alone() && ctx.memory.is_in_ranges() {
        ctx.apply_ranges(); // the caller does the work after the commit
    }
    let taken = RefCell::new(None);
    let admission = || {
        let mut taken = taken.borrow_mut();
        *taken = taken.take().or_else(|| ctx.memory.take_for_ranges(bytes));
        if taken.is_some() { Admission::Go } else { Admission::Stop(StallCause::Memory) }
    };
    let ask = |_| {
        ctx.check_writable()?;
        ctx.apply_ranges();
        Ok(())
    };
    if admission() != Admission::Go {
        match ctx.works_alone() {
            true => ctx.check_writable()?,
            false => {
                let stopped =
                    ctx.pacing.stop(&*ctx.env.clock, StallCause::Memory, patience(ctx), admission, ask);
                stopped.or_else(|e| if matches!(e, Error::Busy { .. }) { Ok(()) } else { Err(e) })?;
            }
        }
    }
    taken.into_inner().ok_or(Error::Busy { cause: RANGES_FULL })
}

/// How long a commit waits for memory, and whether other databases may free some.
fn patience(ctx: &WriteCtx) -> (Duration, bool) {
    (MEMORY_PATIENCE, ctx.memory.databases() > 1)
}

/// Bytes of the work for `cause` that the commit causes. Garbage is counted as it is stored, and a batch before compression.
fn cost(batch: &WriteBatch, cause: StallCause) -> f64 {
    let bytes = (batch.bytes() as u64 + batch.counts.chunked_bytes) as f64;
    let most = batch.families.iter().max_by(|a, b| a.garbage_fullness().total_cmp(&b.garbage_fullness()));
    match (cause, most) {
        (StallCause::Values, Some(family)) => bytes * family.collection.stored_share(),
        _ => bytes,
    }
}

/// Requests the work that a stopped writer waits for. Fails if it is not worth the wait.
#[cold]
fn ask_for_work(ctx: &WriteCtx, batch: &WriteBatch, cause: StallCause) -> Result<()> {
    ctx.check_writable()?;
    if cause == StallCause::Memory {
        ctx.ask_for_relief();
    }
    for family in &batch.families {
        ctx.jobs.push(Job::Flush(family.id));
        ctx.jobs.push(Job::Compact(family.id));
    }
    Ok(())
}

/// The memory of a batch that needs much is kept for it, and counts for the limit already.
fn admission(ctx: &WriteCtx, batch: &WriteBatch) -> Admission {
    let (unflushed, is_large) = (ctx.pacing.unflushed_bytes(), batch.is_large());
    let (mut load, mut garbage, mut active, mut waiting) = (Load::default(), 0.0_f64, 0_u64, 0_usize);
    for family in &batch.families {
        if family.merge_debt.is_above(LEVEL_1.bounds(0.0)[0] as usize) {
            add_tables(ctx, family, &mut load);
        }
        garbage = garbage.max(family.garbage_fullness());
        if unflushed > 0 {
            let guard = pin();
            let view = family.view(&guard);
            active = active.max(view.active.as_ref().map_or(0, |slot| slot.debt()));
            waiting = waiting.max(view.immutables.len());
        }
    }
    let (memory, wanted) = (&ctx.memory, ctx.memory.wanted());
    let is_scarce = wanted >= memory.begin_of(Pressure::Elevated);
    if is_scarce {
        ctx.ask_for_relief();
    } else if unflushed == 0 && garbage == 0.0 && !is_large {
        return load.admission;
    }
    let bytes = if is_large { unflushed.max(immutable_bytes_now(ctx)) } else { unflushed + active };
    load.add(&MEMTABLE_BYTES, bytes as f64, ctx.options.memtables_bytes_max as f64);
    load.add(&MEMTABLES, waiting as f64, 0.0);
    if is_scarce && gives_way(memory, wanted) && (!batch.needs_much() || wanted >= memory.limit()) {
        load.add(&MEMORY, wanted as f64, memory.limit() as f64);
    }
    if garbage > 0.0 && !ctx.merges.are_stuck() {
        load.add_full(&GARBAGE, garbage);
    }
    load.admission
}

/// Returns false for a database that takes less than its equal part of a limit that several have: until all of the limit is used, only the
/// others wait.
fn gives_way(memory: &Memory, wanted: u64) -> bool {
    memory.databases() <= 1 || wanted >= memory.limit() || memory.own_wanted() >= memory.fair_bytes()
}

/// Bytes of all immutable memtables, in full.
fn immutable_bytes_now(ctx: &WriteCtx) -> u64 {
    let of_family = |family: &Arc<FamilyCore>| {
        let view = family.owned_view();
        view.immutables.iter().map(|(slot, _)| slot.bytes() as u64).sum::<u64>()
    };
    let waiting = ctx.index.waiting(usize::MAX);
    let waiting: Vec<_> = ctx.families.read().all_of(waiting).cloned().collect();
    waiting.iter().map(of_family).sum()
}

/// Adds the limits of the tables of `family`. Adds nothing if merges cannot lower these figures, because waiting for them might
/// never end: merges are stuck, or a table of the family is damaged.
#[cold]
fn add_tables(ctx: &WriteCtx, family: &FamilyCore, load: &mut Load) {
    if family.claims.has_quarantined() || ctx.merges.are_stuck() {
        return;
    }
    let (debt, trigger) = (&family.merge_debt, family.options.l1_tables_trigger() as f64);
    let [free, _] = MERGES.bounds(trigger);
    load.add(&LEVEL_1, debt.unread(), trigger);
    load.add(&MERGES, debt.in_tables(free), trigger);
}
