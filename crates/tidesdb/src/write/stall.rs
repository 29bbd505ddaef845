//! Slow down, stop, resume: writers pay for the debt they make, before they draw a place in the order of commits.
//!
//! ```text
//! delay per byte
//!   |                                 ____ stop: wait for progress
//!   |                             ..''
//!   |                       ..--''
//!   |______________..----''
//!   0             S = 1/2           H = memtables_bytes_max          bytes of immutable memtables
//! ```
//!
//! Between `S` and `H` the delay grows with the square of the debt, measured against the flush rate, so writers meet the
//! rate of the disk smoothly. Above `H` a writer waits for a flush; if none makes progress for [`PATIENCE`], the write
//! fails with `Busy` and nothing was done. A family with too many tables in level 1 feeds the same curve.
//! A memtable that holds one large batch counts as one write buffer, so that small commits go on while it is flushed; the next
//! large batch waits for all of its bytes.
//! Reads are never delayed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::batch::WriteBatch;
use super::commit::LARGE_BYTES_MIN;
use crate::family::FamilyCore;
use crate::jobs::Job;
use crate::shared::{HeldUp, WriteCtx};
use crate::{Error, Result};

/// How long a stopped writer waits without any progress.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks at the clock, and how often at least before it gives up: a clock that jumps, as after a machine
/// slept, proves nothing about flushing.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS_MIN: u32 = 20;
/// Flush rate assumed before one is measured, in bytes per second.
const DRAIN_RATE_ASSUMED: u64 = 200 << 20;
/// Longest delay of one commit.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// Delays shorter than this are not worth a system call.
const DELAY_MIN: Duration = Duration::from_micros(50);
/// Tables in level 1 at which writers begin to slow down, and at which they stop: at least so many, and so many times the
/// number at which a compaction begins.
const L1_SLOW: (usize, usize) = (12, 2);
const L1_STOP: (usize, usize) = (24, 3);

/// Waits as long as the debt demands.
///
/// # Errors
/// `Busy` if nothing made progress for a long time.
pub(super) fn admit(ctx: &WriteCtx, batch: &WriteBatch) -> Result<()> {
    let (debt, cause) = debt(ctx, batch);
    if debt <= 0.5 || ctx.options.background_threads == Some(0) {
        return Ok(());
    }
    if debt >= 1.0 {
        return stop(ctx, batch);
    }
    let rate = match ctx.debt.drain_rate.load(Ordering::Relaxed) {
        0 => DRAIN_RATE_ASSUMED,
        rate => rate,
    };
    let weight = (debt - 0.5) * 2.0;
    let delay = Duration::from_secs_f64(batch.bytes() as f64 / rate as f64 * weight * weight).min(DELAY_MAX);
    if delay >= DELAY_MIN {
        cause.nanos.fetch_add(delay.as_nanos() as u64, Ordering::Relaxed);
        cause.slowed.fetch_add(1, Ordering::Relaxed);
        ctx.env.clock.sleep(delay);
    }
    Ok(())
}

/// Debt as a fraction of what is allowed, 0.5 starts the delays and 1 stops, and which of the two causes weighs more.
fn debt<'a>(ctx: &'a WriteCtx, batch: &WriteBatch) -> (f64, &'a HeldUp) {
    let counted = ctx.debt.immutable_bytes.load(Ordering::Relaxed);
    let bytes = if batch.bytes() < LARGE_BYTES_MIN { counted } else { counted.max(bytes_waiting(ctx)) };
    let memory = bytes as f64 / ctx.options.memtables_bytes_max.max(1) as f64;
    let guard = tidesdb_sync::pin();
    let debts = batch
        .families
        .iter()
        .map(|f| table_debt(f.view(&guard).version.level_len(1), f.options.l1_tables_trigger()));
    let tables = match debts.fold(0.0, f64::max) {
        // Nobody works on that debt, so that to wait for it would have no end.
        debt if debt > 0.0 && ctx.merges.are_stuck() => 0.0,
        debt => debt,
    };
    if tables > memory { (tables, &ctx.debt.by_tables) } else { (memory, &ctx.debt.by_memtables) }
}

/// Bytes of all memtables that wait for a flush.
fn bytes_waiting(ctx: &WriteCtx) -> u64 {
    let of_family = |family: &Arc<FamilyCore>| {
        let view = family.owned_view();
        view.immutables.iter().map(|(slot, _)| slot.bytes() as u64).sum::<u64>()
    };
    ctx.all_families().iter().map(of_family).sum()
}

/// What `tables` tables in level 1 weigh.
fn table_debt(tables: usize, trigger: usize) -> f64 {
    let limit = |(least, times): (usize, usize)| least.max(trigger.saturating_mul(times));
    let (slow, stop) = (limit(L1_SLOW), limit(L1_STOP));
    if tables <= slow {
        return 0.0;
    }
    0.5 + (tables - slow) as f64 / (stop - slow) as f64 * 0.5
}

#[cold]
fn stop(ctx: &WriteCtx, batch: &WriteBatch) -> Result<()> {
    let cause = debt(ctx, batch).1;
    cause.stopped.fetch_add(1, Ordering::Relaxed);
    let started = ctx.env.clock.mono();
    let (mut idle_since, mut idle_looks) = (started, 0);
    while debt(ctx, batch).0 >= 1.0 {
        let seen = ctx.debt.progress.current();
        if debt(ctx, batch).0 < 1.0 {
            break;
        }
        ctx.check_writable()?;
        for family in &batch.families {
            ctx.jobs.push(Job::Flush(family.id));
            ctx.jobs.push(Job::Compact(family.id));
        }
        // A timed wait may end early, so the clock decides.
        let progress = ctx.debt.progress.wait_while(seen, Some(LOOK));
        let now = ctx.env.clock.mono();
        if progress {
            (idle_since, idle_looks) = (now, 0);
            continue;
        }
        idle_looks += 1;
        if idle_looks >= LOOKS_MIN && now.saturating_sub(idle_since) >= PATIENCE {
            return Err(Error::Busy { cause: "flushing makes no progress; see the log for the reason" });
        }
    }
    let waited = ctx.env.clock.mono().saturating_sub(started);
    cause.nanos.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    Ok(())
}
