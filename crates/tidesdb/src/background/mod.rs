//! Which job runs when, and how failed jobs are handled.
//!
//! Work is driven by debt, not by the clock: code that causes work requests it through `jobs`; workers take the most
//! urgent job. Without workers the committing thread runs queued jobs after its commit: the order of I/O is then
//! deterministic.
//!
//! A failed job keeps its inputs and is tried again with growing pauses. An unknown durable state and a panic poison
//! the database. So does an I/O error that occurs `IO_FAILURES_MAX` times in a row, unless it reports a shortage
//! (space, descriptors). A damaged input of a compaction fails only that compaction and is quarantined (`family/claims.rs`).

mod pool;
mod relief;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use pool::Pool;
pub use relief::TRIM_PERIOD;
pub use shared::SharedThreads;

use crate::callback::contained;
use crate::context::WriteCtx;
use crate::engine::Engine;
use crate::events::Event;
use crate::family::{Again, FamilyCore, Sweep};
use crate::jobs::{Job, Takes};
use crate::options::SyncMode;
use crate::remote::upload;
use crate::types::SeqNo;
use crate::wal::SyncDue;
use crate::wal::layout::UNIT;
use crate::{Error, Result, collect, compact, flush};

/// Consecutive I/O errors after which the database is poisoned. A full disk is not counted.
const IO_FAILURES_MAX: u32 = 3;
/// The longest pause before a collection of values that met damage or a full disk is tried again.
const COLLECT_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The longest pause before failed work is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs one job. Failures are handled here; the result is for callers that wait for the job.
///
/// # Errors
/// Errors of the job.
pub fn run(engine: &Arc<Engine>, job: Job) -> Result<()> {
    if job == Job::WriteEvents {
        engine.write.events.write(); // also if writes are refused
        return Ok(());
    }
    let result = contained(|| dispatch(engine, job))
        .unwrap_or_else(|| Err(Error::internal(format!("a background job panicked: {job:?}"))));
    match &result {
        Ok(true) => engine.retry.succeeded(),
        Ok(false) => {}
        Err(e) => failed(engine, job, e),
    }
    engine.write.events.write();
    result.map(drop)
}

/// Runs queued jobs in this thread until the queue is empty or closed, or a job fails.
///
/// # Errors
/// Errors of the first job that fails.
pub fn run_queued(engine: &Arc<Engine>) -> Result<()> {
    while !engine.write.jobs.is_closed()
        && let Some(job) = engine.write.jobs.pop(Duration::ZERO, Takes::All)
    {
        let result = run(engine, job);
        finished(engine, job);
        result?;
    }
    Ok(())
}

/// Ends `job`, and asks for the removal of the files that it made obsolete.
fn finished(engine: &Engine, job: Job) {
    engine.write.jobs.finished(job);
    if matches!(job, Job::Compact(_) | Job::Collect(_)) && engine.write.health.check().is_ok() {
        engine.write.jobs.push(Job::RemoveObsolete);
    }
}

/// Runs `job`. Returns true if tables were written, which proves that the disk works.
fn dispatch(engine: &Arc<Engine>, job: Job) -> Result<bool> {
    engine.write.health.check()?;
    let family = |id| engine.write.family(id);
    match job {
        Job::PrepareLog => {
            engine.write.log.prepare_next()?;
            flush_families_retaining_the_log(&engine.write);
        }
        Job::SyncLog => {
            let _ = engine.write.sync_to(engine.write.log.sequencer().written_end()); // a failure has poisoned the database
        }
        Job::Flush(id) => {
            if let Some(family) = family(id)
                && flush::run(&engine.maintenance, &family)?
            {
                engine.write.jobs.push(Job::Flush(id));
                engine.write.jobs.push(Job::Compact(id));
                settle_values(engine, &family);
                return Ok(true);
            }
        }
        Job::Compact(id) => {
            if let Some(family) = family(id)
                && compact::run(&engine.maintenance, &family)
                    .inspect(|&merged| {
                        // A job that found no merge to begin proves nothing about the disk.
                        if merged {
                            engine.write.merges.set_starved(false);
                        }
                    })
                    .inspect_err(|e| engine.write.merges.set_starved(e.is_full()))?
            {
                engine.write.jobs.push(Job::Compact(id));
                push_collect(engine, &family);
                return Ok(true);
            }
        }
        Job::MergePart(id) => {
            engine.maintenance.parted.help(&engine.maintenance, id); // a failure is that of the merge
        }
        Job::Relieve => engine.relieve(),
        Job::FreeSpace => free_space(engine),
        Job::FlushActive(id) => {
            if let Some(family) = family(id) {
                engine.write.rotate_if_scanned(&family);
            }
        }
        Job::Collect(id) => {
            if let Some(family) = family(id)
                && !family.collection.retry.waits(engine.write.env.clock.mono())
                && collect::step(&engine.maintenance, &family, engine.log_store())?
            {
                family.collection.retry.succeeded();
                engine.write.jobs.push(job);
            }
        }
        Job::WriteEvents => {} // see `run`
        Job::RemoveObsolete => engine.maintenance.remove_obsolete(),
        Job::Upload => {
            if let Some(remote) = &engine.remote
                && let Err(error) = upload::run(&engine.maintenance, remote, &engine.catalog)
            {
                tracing::warn!(%error, "the upload to the object store failed; it will be tried again");
            }
        }
    }
    Ok(false)
}

/// After a flush of `family`: seals its full value logs and removes dead ones at once, so that their garbage is counted, and requests the
/// collection. A collection that is moving values takes seconds, in which writers may fill gigabytes. A failure is not reported here,
/// because the flush is done: the collection will fail for the same reason.
fn settle_values(engine: &Engine, family: &FamilyCore) {
    if collect::has_values(family) {
        if collect::run(&engine.maintenance, family, engine.log_store()).unwrap_or(false) {
            engine.write.jobs.push(Job::RemoveObsolete);
        }
        engine.write.jobs.push(Job::Collect(family.id));
    }
}

/// Requests the work that frees space of the disk. Skips memtables whose flush would free none. Families with immutable memtables only
/// get their flush requested again: rotating them too would turn each small commit between refused ones into a memtable and a table.
fn free_space(engine: &Engine) {
    let write = &engine.write;
    write.log.release_spares();
    for family in write.all_families() {
        let view = family.owned_view();
        if !view.immutables.is_empty() {
            write.jobs.push(Job::Flush(family.id));
        } else if let Some(slot) = &view.active
            && (write.pins_log(slot) || collect::flush_frees_values(&engine.maintenance, &family, slot))
        {
            write.rotate(&family);
        }
        push_collect(engine, &family);
    }
    write.jobs.push(Job::RemoveObsolete);
}

/// Requests the collection of value logs of `family`, if it has any.
fn push_collect(engine: &Engine, family: &FamilyCore) {
    if collect::has_values(family) {
        engine.write.jobs.push(Job::Collect(family.id));
    }
}

/// If the log exceeds its limit, flushes every family whose active memtable retains log beyond the limit.
fn flush_families_retaining_the_log(ctx: &WriteCtx) {
    let beyond = |pins| ctx.log.bytes_since(pins) >= ctx.options.wal_bytes_max;
    for (_, id) in ctx.index.pinning_while(beyond) {
        let family = ctx.family(id);
        if let Some(family) = family
            && family.owned_view().active.as_ref().is_some_and(|slot| beyond(slot.pins))
        {
            ctx.rotate(&family);
        }
    }
}

fn failed(engine: &Engine, job: Job, e: &Error) {
    if matches!(e, Error::Poisoned { .. } | Error::Closed | Error::Busy { .. }) {
        return; // `Busy`: merges were stopped
    }
    let retry = pause_after(engine, job, e);
    let family = match job {
        Job::Flush(id) | Job::FlushActive(id) | Job::Compact(id) => {
            engine.write.families.read().get(&id).map(|f| f.name())
        }
        _ => None,
    };
    engine.write.events.record(&Event::JobFailed {
        job: format!("{job:?}"),
        family: family.unwrap_or_default(),
        error: e.to_string(),
        retry,
    });
}

/// Handles the failure of `job`. Returns the pause before it is tried again; 0 if the database is
/// poisoned, or if it goes on at once without damaged tables.
fn pause_after(engine: &Engine, job: Job, e: &Error) -> Duration {
    engine.write.jobs.withdraw(job); // a merge asks for another one to run beside it: that would find the same work at once
    let now = engine.write.env.clock.mono();
    if matches!(job, Job::Compact(_)) && e.is_corruption() {
        // A damaged input affects only the keys it holds. It is quarantined; other tables can be merged.
        engine.write.jobs.push(job);
        return Duration::ZERO;
    }
    if let Job::Collect(id) = job
        && (e.is_corruption() || e.is_full())
        && let Some(family) = engine.write.families.read().get(&id)
    {
        return family.collection.retry.failed(now, COLLECT_PAUSE_MAX);
    }
    let io = e.io_kind().is_some() && !e.is_shortage() && engine.retry.count_failure() >= IO_FAILURES_MAX;
    if io || e.is_corruption() || matches!(e, Error::Internal { .. }) {
        engine.write.poison(e.clone());
        return Duration::ZERO;
    }
    engine.retry.failed(now, PAUSE_MAX)
}

/// Periodic work: reads the clock, syncs and seals the log, requests failed flushes again.
#[derive(Debug, Default)]
pub struct Ticks {
    /// The log must become durable up to here for commits with a sync interval.
    sync_until: SeqNo,
    tail_seen: SeqNo,
    tail_since: Duration,
    sealed: SeqNo,
    last_sweep: Duration,
    last_reap: Duration,
    /// Sweeps since the database became quiet.
    quiet_sweeps: u32,
    uploads: upload::Due,
}

impl Ticks {
    /// How often [`Ticks::tick`] is called while there are commits.
    const PERIOD: Duration = Duration::from_millis(10);
    /// A database is idle after this time without commits; the time between its ticks is then [`Ticks::idle_period`].
    const CALM: Duration = Duration::from_secs(1);
    /// The ticks of idle databases come later if there are more than so many: together they are looked at a thousand times a second.
    const IDLE_DATABASES: u64 = 100;
    /// A log without commits for this long is sealed.
    const IDLE: Duration = Duration::from_millis(50);
    /// How often memory is summed up.
    const REAP: Duration = Duration::from_millis(100);
    /// How often unneeded memory and files are collected.
    const SWEEP: Duration = Duration::from_secs(1);
    /// After this long without commits, space is collected down to its bound.
    const QUIET: Duration = Duration::from_secs(5);
    /// Number of sweeps of a quiet database between two searches for leftovers: a reader that needed them may have ended.
    const LOOK_FOR_LEFTOVERS: u32 = 16;

    /// Syncs what commits with a sync interval rely on, as far as it is in the log. A commit that is still being
    /// written, and may take long, is left to the next round: it must not delay the deadlines of earlier commits, nor
    /// the clock.
    fn sync_what_is_written(&self, ctx: &WriteCtx) {
        let sequencer = ctx.log.sequencer();
        if sequencer.durable() < self.sync_until {
            let _ = ctx.sync_to(sequencer.written_end().min(self.sync_until)); // a failure has poisoned the database
        }
    }

    /// Returns when [`Ticks::tick`] must be called next. An idle database is looked at less often, so that it takes next to no
    /// processor time.
    pub fn pause(&self, engine: &Engine) -> Duration {
        let now = engine.write.env.clock.mono();
        let sequencer = engine.write.log.sequencer();
        let databases = engine.write.memory.databases().max(1);
        let is_calm = sequencer.tail() == self.tail_seen
            && sequencer.durable().max(self.sync_until) == sequencer.durable()
            && now.saturating_sub(self.tail_since) >= Self::CALM
            && (databases > 1 || !engine.write.memory.needs_relief()) // another one may need it
            && !engine.write.pacing.delays_writers()
            && engine.remote.is_none();
        let next = if is_calm { Self::idle_period(databases) } else { Duration::ZERO };
        if engine.write.sync_due.set_idle(next) { next } else { Self::PERIOD }
    }

    /// Time between two ticks of an idle database, one of `databases`.
    fn idle_period(databases: u64) -> Duration {
        let shares = u32::try_from(databases.div_ceil(Self::IDLE_DATABASES)).unwrap_or(u32::MAX);
        SyncDue::IDLE_PERIOD.saturating_mul(shares).min(SyncDue::IDLE_PERIOD_MAX)
    }

    /// Runs one round.
    pub fn tick(&mut self, engine: &Arc<Engine>) {
        engine.reads.refresh_clock();
        if engine.write.is_recovering() {
            return;
        }
        engine.observe(false);
        if engine.write.events.has_pending() {
            engine.write.jobs.push(Job::WriteEvents);
        }
        if engine.write.health.is_poisoned() {
            return;
        }
        let now = engine.write.env.clock.mono();
        let sequencer = engine.write.log.sequencer();
        if engine.write.sync_due.tick(now) {
            self.sync_until = sequencer.tail();
        }
        self.sync_what_is_written(&engine.write);
        let tail = sequencer.tail();
        if tail != self.tail_seen {
            (self.tail_seen, self.tail_since) = (tail, now);
        } else if engine.write.options.sync == SyncMode::Full
            && tail != self.sealed
            && !engine.write.is_unbegun()
            && sequencer.written_end() == tail
            && now.saturating_sub(self.tail_since) >= Self::IDLE
        {
            let _ = engine.write.log.seal(&|| engine.write.sync_values()); // a failure has poisoned the database
            self.sealed = sequencer.tail();
            self.tail_seen = self.sealed;
        }
        if engine.retry.due(now) {
            engine.write.ask_for_pending();
        }
        if let Some(remote) = &engine.remote
            && self.uploads.tick(&engine.maintenance, remote, now)
        {
            engine.write.jobs.push(Job::Upload);
        }
        engine.write.memory.allow_relief();
        if now.saturating_sub(self.last_reap) >= Self::REAP {
            self.last_reap = now;
            engine.watch_memory();
        }
        if now.saturating_sub(self.last_sweep) >= Self::SWEEP {
            self.last_sweep = now;
            let waits = engine.write.pacing.delays_writers();
            let quiet = !waits && now.saturating_sub(self.tail_since) >= Self::QUIET;
            engine.write.idle.store(quiet, Ordering::Relaxed);
            let settles = quiet && self.quiet_sweeps.is_multiple_of(Self::LOOK_FOR_LEFTOVERS);
            self.quiet_sweeps = if quiet { self.quiet_sweeps.wrapping_add(1) } else { 0 };
            sweep(engine, settles);
        }
    }
}

/// Frees what nothing needs any more, and requests the work that became due without a commit. With `settles`, families that may have
/// leftovers look for a merge.
fn sweep(engine: &Engine, settles: bool) {
    engine.write.log.restore_reserve();
    if engine.write.log.shortage().is_some() {
        engine.write.jobs.push(Job::FreeSpace);
    }
    // Frees what a reader still used when it was replaced: on an idle database no other call would free it.
    tidesdb_sync::reclaim();
    tidesdb_sync::release_idle(engine.write.env.clock.mono());
    let now = engine.reads.now();
    // Does not wait for commits that are being written.
    let visible = engine.write.log.sequencer().visible_end().saturating_sub(1);
    let floor = visible.saturating_sub(engine.write.options.history_bytes / UNIT);
    let this = Sweep { settles, registered: engine.reads.snapshots.registered(), now, floor };
    let (swept, released) = engine.write.index.take_swept(&this);
    for id in swept {
        if let Some(family) = engine.write.family(id) {
            if released.contains(&id) {
                family.ask_for_sweep(); // what a reader needed may be merged now
            }
            look_after(engine, &family, &this);
        }
    }
    if !engine.maintenance.versions.obsolete().is_empty() {
        engine.write.jobs.push(Job::RemoveObsolete);
    }
}

/// Requests the work of `family` that became due without a commit, and says when a sweep looks at it again.
fn look_after(engine: &Engine, family: &FamilyCore, sweep: &Sweep) {
    let now = sweep.now;
    let is_settled = family.is_settled();
    let view = family.owned_view();
    let version = &view.version;
    // A snapshot that kept deleted ranges alive may have ended, the last row of a table may have expired, a
    // quarantine may be over, or reads may have charged enough for a merge.
    let expiring = version.runs().iter().filter(|run| run.has_expiring()).flat_map(|run| run.tables());
    let expiries: Vec<u64> = expiring.filter_map(|table| table.meta().expires()).collect();
    let is_expired = expiries.iter().any(|at| *at <= now);
    let has_dead =
        !version.ranges().is_empty() || is_expired || family.claims.has_quarantined() || view.probes.is_due();
    let may_settle = !version.runs().is_empty() && !is_settled;
    if has_dead || sweep.settles && may_settle {
        engine.write.jobs.push(Job::Compact(family.id));
    }
    let due = collect::due(&engine.maintenance, family, engine.log_store());
    if due == collect::Due::Now {
        engine.write.jobs.push(Job::Collect(family.id));
    }
    let oldest = sweep.registered.first().filter(|_| !version.runs().is_empty());
    let again = Again {
        soon: matches!(due, collect::Due::Now | collect::Due::Soon) || family.claims.has_quarantined(),
        settling: may_settle || due == collect::Due::Later,
        held: oldest.is_some_and(|oldest| *oldest < version.flushed_to() || is_expired),
        at: expiries.into_iter().filter(|at| *at > now).min(),
        floor: (!version.runs().is_empty() && sweep.floor < version.flushed_to())
            .then(|| version.flushed_to()),
    };
    engine.write.index.look_again(family.id, again);
}
