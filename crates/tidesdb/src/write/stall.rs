//! Slow down, stop, resume: writers pay for the debt they make, before they draw a place in the order of commits.
//!
//! ```text
//! delay per byte
//!   |                                 ____ stop: wait for progress
//!   |                             ..''
//!   |                       ..--''
//!   |______________..----''
//!   0              S                H = memtables_bytes_max          bytes of immutable memtables
//! ```
//!
//! `S` is the share [`MEMTABLES_SLOW`] of `H`; the debt is one half at `S` and one at `H`. Between them the delay grows with the square of the
//! debt, relative to the measured rate at which that debt is paid: by flushes, or by merges of level 1. So writers approach that rate smoothly.
//! All writers share one schedule ([`crate::pacing::Pace`]), so many small commits wait as long as
//! few large ones. Above `H` a writer waits for a flush; if none makes progress for [`PATIENCE`], the write
//! fails with `Busy` and nothing was done. A family with too many tables in level 1 feeds the same curve. So does one with too much garbage
//! in its value logs, but that never stops writers (`family/space.rs`).
//!
//! Memory feeds the same curve from the level `High` on, and stops writers at `Critical`: see `memory.rs`. A commit of a megabyte or more
//! also waits until its memtables fit, and other writers leave it that memory.
//!
//! A memtable that holds one large batch counts as one write buffer, so that small commits continue while it is
//! flushed; the next large batch waits until all of its bytes are flushed.
//! Reads are never delayed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidesdb_sync::pin;

use super::LARGE_BYTES_MIN;
use super::batch::WriteBatch;
use crate::context::{SCARCE, WriteCtx};
use crate::family::{FamilyCore, ValuesDebt};
use crate::jobs::Job;
use crate::memory::{Charge, Pressure, Use};
use crate::pacing::{DelayStats, FLUSH_RATE_ASSUMED, GARBAGE_RATE_ASSUMED, MERGE_RATE_ASSUMED};
use crate::{Error, Result};

/// How long a stopped writer waits without any progress.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits for memory in all: flushes and merges may go on without freeing what transactions or readers hold.
const MEMORY_PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which a stopped writer checks the clock, and the minimum number of checks before it gives up. A clock
/// that jumps, as after the machine slept, proves nothing about flushing.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS_MIN: u32 = 200;
/// Writers may write at `rate / (STEEPNESS * weight^2)`, where the weight rises from 0 to 1 between the start of the delays and the stop.
/// Debt is paid in steps: a flush or a merge of level 1 takes away in the end all that it reads. With a steepness of 3, the integral
/// from 0 to 1 is the time in which that much is paid, so a step as large as the whole range does not stop writers.
const STEEPNESS: f64 = 3.0;
/// Most that one commit adds to the schedule, in seconds.
const COST_MAX: f64 = 1.0;
/// A shorter delay is not worth a system call; a later commit pays it.
const DELAY_MIN: Duration = Duration::from_micros(50);
/// A delayed writer checks after this time whether the debt is paid.
const SLICE: Duration = Duration::from_millis(10);
/// Share of `memtables_bytes_max` at which writers slow down. What flushes have written is no debt, so debt is paid steadily, and a short range is
/// enough; the larger the part before it, the larger the bursts that are taken at full speed.
const MEMTABLES_SLOW: f64 = 0.625;
/// Immutable memtables of one family at which its writers slow down, and at which they stop, however small they are. Full memtables do not get
/// there, since the active one grows while few wait ([`FamilyCore::is_full`]): these were rotated for other reasons.
const WAITING_SLOW: u64 = 32;
const WAITING_STOP: u64 = 64;
/// Tables in level 1 at which writers slow down, and at which they stop.
const L1_SLOW: TableLimit = TableLimit { least: 10, triggers: 2 };
const L1_STOP: TableLimit = TableLimit { least: 24, triggers: 3 };

/// What the levels below level 1 owe slows writers down and never stops them.
const DEEP_MAX: f64 = 0.95;

/// A number of tables: that many times the compaction trigger, but not less than `least`.
struct TableLimit {
    least: usize,
    triggers: usize,
}

impl TableLimit {
    fn at(&self, trigger: usize) -> usize {
        self.least.max(trigger.saturating_mul(self.triggers))
    }
}

/// Waits as long as the debt requires. Returns the memory that is kept for the commit.
///
/// # Errors
/// `Busy` if nothing made progress for a long time.
pub(super) fn admit(ctx: &WriteCtx, batch: &WriteBatch) -> Result<Charge> {
    let kept = match batch.bytes() < LARGE_BYTES_MIN {
        true => Charge::new(Use::Reserved),
        false => ctx.memory.reserve(batch.bytes() as u64),
    };
    let debt = debt(ctx, batch);
    if debt.share <= 0.5 || ctx.options.background_threads == Some(0) {
        return Ok(kept);
    }
    if debt.share >= 1.0 {
        return stop(ctx, batch).map(|()| kept);
    }
    let clock = &ctx.env.clock;
    let now = clock.mono();
    let weight = (debt.share - 0.5) * 2.0;
    let bytes = batch.bytes() as u64 + batch.chunked_bytes;
    let cost = bytes as f64 / debt.rate as f64 * STEEPNESS * weight * weight;
    let wait = ctx.debt.pace.reserve(now, Duration::from_secs_f64(cost.min(COST_MAX)));
    if wait >= DELAY_MIN {
        debt.cause.slowed.fetch_add(1, Ordering::Relaxed);
        debt.cause.measure(&**clock, now, || sleep_until(ctx, batch, now + wait));
    }
    Ok(kept)
}

/// Sleeps until `end` or until the debt is paid.
#[cold]
fn sleep_until(ctx: &WriteCtx, batch: &WriteBatch, end: Duration) {
    loop {
        let left = end.saturating_sub(ctx.env.clock.mono());
        if left.is_zero() || debt(ctx, batch).share <= 0.5 {
            return;
        }
        ctx.env.clock.sleep(left.min(SLICE));
    }
}

/// What the writers of a batch owe.
struct Owed<'a> {
    /// Fraction of the limit: 0.5 starts the delays, 1 stops writers.
    share: f64,
    /// The larger of the two causes.
    cause: &'a DelayStats,
    /// Bytes of batches per second that make as much debt as is paid.
    rate: u64,
}

fn debt<'a>(ctx: &'a WriteCtx, batch: &WriteBatch) -> Owed<'a> {
    let unflushed = ctx.debt.unflushed_bytes();
    let (mut tables, mut garbage, mut active, mut waiting) = (0.0_f64, ValuesDebt::default(), 0_u64, 0_usize);
    let mut stored = 1.0;
    for family in &batch.families {
        if family.merge_debt.is_above(L1_SLOW.least) {
            tables = tables.max(table_debt(ctx, family));
        }
        let owed = family.values_debt();
        if owed > garbage {
            (garbage, stored) = (owed, family.collection.stored_share());
        }
        if unflushed > 0 {
            let guard = pin();
            let view = family.view(&guard);
            active = active.max(view.active.as_ref().map_or(0, |slot| slot.debt()));
            waiting = waiting.max(view.immutables.len());
        }
    }
    let values = garbage.share();
    let is_calm = unflushed == 0 && tables == 0.0 && values == 0.0 && batch.bytes() < LARGE_BYTES_MIN;
    if is_calm && ctx.memory.wanted() < ctx.memory.begin_of(Pressure::Elevated) {
        return Owed { share: 0.0, cause: &ctx.debt.by_memtables, rate: FLUSH_RATE_ASSUMED };
    }
    let bytes = match batch.bytes() >= LARGE_BYTES_MIN {
        true => unflushed.max(immutable_bytes_now(ctx)),
        // The largest active memtable is the next debt: without it, debt would rise by a whole memtable at once.
        false => unflushed + active,
    };
    let memory = memtable_debt(bytes, ctx.options.memtables_bytes_max).max(number_debt(waiting));
    let debt = &ctx.debt;
    let pressure = pressure(ctx, batch);
    if values > 0.0 && values > tables.max(memory).max(pressure) && !ctx.merges.are_stuck() {
        // Garbage is counted as it is stored, and a batch before compression.
        let rate = debt.garbage_rate.or(GARBAGE_RATE_ASSUMED) as f64 / (stored * garbage.excess());
        Owed { share: values, cause: &debt.by_values, rate: rate as u64 }
    } else if pressure > tables && pressure > memory {
        Owed { share: pressure, cause: &debt.by_memory, rate: debt.flush_rate.or(FLUSH_RATE_ASSUMED) }
    } else if tables > memory {
        Owed { share: tables, cause: &debt.by_tables, rate: debt.merge_rate.or(MERGE_RATE_ASSUMED) }
    } else {
        Owed { share: memory, cause: &debt.by_memtables, rate: debt.flush_rate.or(FLUSH_RATE_ASSUMED) }
    }
}

/// Debt caused by scarce memory: 0.5 where `High` begins, 1 at `Critical`. A large batch may use the rest up to the limit.
#[inline]
fn pressure(ctx: &WriteCtx, batch: &WriteBatch) -> f64 {
    let (memory, wanted) = (&ctx.memory, ctx.memory.wanted());
    if wanted < memory.begin_of(Pressure::Elevated) {
        return 0.0;
    }
    ctx.ask_for_relief();
    if batch.bytes() >= LARGE_BYTES_MIN {
        return if wanted >= memory.limit() { 1.0 } else { 0.0 };
    }
    let (high, critical) = (memory.begin_of(Pressure::High), memory.begin_of(Pressure::Critical));
    if wanted < high { 0.0 } else { 0.5 + (wanted - high) as f64 / (critical - high) as f64 * 0.5 }
}

/// Bytes of all immutable memtables.
fn immutable_bytes_now(ctx: &WriteCtx) -> u64 {
    let of_family = |family: &Arc<FamilyCore>| {
        let view = family.owned_view();
        view.immutables.iter().map(|(slot, _)| slot.bytes() as u64).sum::<u64>()
    };
    ctx.all_families().iter().map(of_family).sum()
}

/// Debt caused by `bytes` of memtables that are not in tables yet.
fn memtable_debt(bytes: u64, stop: u64) -> f64 {
    rising(bytes, (stop as f64 * MEMTABLES_SLOW) as u64, stop)
}

/// Debt caused by `waiting` immutable memtables of a family: a get looks into each of them.
fn number_debt(waiting: usize) -> f64 {
    rising(waiting as u64, WAITING_SLOW, WAITING_STOP)
}

/// Debt that is 0 up to `slow` and then rises from one half to one at `stop`.
fn rising(owed: u64, slow: u64, stop: u64) -> f64 {
    match owed <= slow {
        true => 0.0,
        false => 0.5 + (owed - slow) as f64 / (stop - slow).max(1) as f64 * 0.5,
    }
}

/// Debt caused by the tables in level 1, and by the levels between it and the largest; none if merges cannot pay it, because waiting for
/// them might never end: merges are stuck, or a table of the family is damaged.
#[cold]
fn table_debt(ctx: &WriteCtx, family: &FamilyCore) -> f64 {
    let trigger = family.options.l1_tables_trigger();
    let (slow, stop) = (L1_SLOW.at(trigger), L1_STOP.at(trigger));
    let level_1 = family.view(&pin()).version.level_len(1);
    let (slow, range) = (slow as f64, (stop - slow) as f64);
    let above = family.merge_debt.owed(level_1, slow) - slow;
    if above <= 0.0 || family.claims.has_quarantined() || ctx.merges.are_stuck() {
        return 0.0;
    }
    let share = |tables: f64| 0.5 + tables / range * 0.5;
    share(family.merge_debt.unread(level_1) - slow).max(share(above).min(DEEP_MAX))
}

#[cold]
fn stop(ctx: &WriteCtx, batch: &WriteBatch) -> Result<()> {
    let cause = debt(ctx, batch).cause;
    cause.stopped.fetch_add(1, Ordering::Relaxed);
    let started = ctx.env.clock.mono();
    let waited = cause.measure(&*ctx.env.clock, started, || wait_for_progress(ctx, batch, started));
    if matches!(waited, Err(Error::Busy { .. })) {
        cause.gave_up.fetch_add(1, Ordering::Relaxed);
    }
    waited
}

/// Waits until the debt is below the limit.
fn wait_for_progress(ctx: &WriteCtx, batch: &WriteBatch, started: Duration) -> Result<()> {
    let mut patience = Patience::new(ctx, started);
    while debt(ctx, batch).share >= 1.0 {
        let seen = ctx.debt.progress.current();
        let owed = debt(ctx, batch);
        if owed.share < 1.0 {
            break;
        }
        ctx.check_writable()?;
        if std::ptr::eq(owed.cause, &ctx.debt.by_memory) {
            if ctx.env.clock.mono().saturating_sub(started) >= MEMORY_PATIENCE {
                return Err(Error::Busy { cause: SCARCE });
            }
            ctx.ask_for_relief();
        }
        for family in &batch.families {
            ctx.jobs.push(Job::Flush(family.id));
            ctx.jobs.push(Job::Compact(family.id));
        }
        // A timed wait may end early, so the clock decides.
        let progress = ctx.debt.progress.wait_while(seen, Some(LOOK));
        if patience.is_exhausted(ctx, progress) {
            return Err(Error::Busy {
                cause: match std::ptr::eq(owed.cause, &ctx.debt.by_memory) {
                    true => SCARCE,
                    false => "flushes and merges make no progress; the logged warnings say why",
                },
            });
        }
    }
    Ok(())
}

/// How long a stopped writer has seen no progress. A job that processes entries is progress, unless a job failed since debt was paid last:
/// it may process the same entries again and again.
struct Patience {
    idle_since: Duration,
    idle_looks: u32,
    moved: u64,
    failed: u64,
    failing: bool,
}

impl Patience {
    fn new(ctx: &WriteCtx, now: Duration) -> Self {
        let (moved, failed) =
            (ctx.debt.moved.load(Ordering::Relaxed), ctx.debt.failed.load(Ordering::Relaxed));
        Self { idle_since: now, idle_looks: 0, moved, failed, failing: false }
    }

    /// Checks once more. `paid`: debt was paid since the last check.
    fn is_exhausted(&mut self, ctx: &WriteCtx, paid: bool) -> bool {
        let now = ctx.env.clock.mono();
        let next = Self::new(ctx, now);
        let failing = !paid && (self.failing || next.failed != self.failed);
        if paid || (next.moved != self.moved && !failing) {
            *self = next;
            return false;
        }
        (self.moved, self.failed, self.failing) = (next.moved, next.failed, failing);
        self.idle_looks += 1;
        self.idle_looks >= LOOKS_MIN && now.saturating_sub(self.idle_since) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::{L1_SLOW, L1_STOP};

    /// A merge of level 1 takes at least `trigger` tables away at its end. Between slow and stop there is room for that many.
    #[test]
    fn a_merge_of_level_1_fits_between_the_first_delay_and_the_stop() {
        for trigger in (1..1000).chain([usize::MAX / 3]) {
            let (slow, stop) = (L1_SLOW.at(trigger), L1_STOP.at(trigger));
            assert!(slow > trigger && stop - slow >= trigger, "{trigger}: from {slow} to {stop} tables");
        }
        assert_eq!((L1_SLOW.at(4), L1_STOP.at(4)), (10, 24), "with the default trigger");
    }
}
