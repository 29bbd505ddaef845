//! Which job runs when, and what a failed job means.
//!
//! Work is driven by debt, not by the clock: whoever makes work asks for it through `jobs`; workers take the most urgent.
//! With no workers the committing thread runs what waits, after its commit: the order of I/O is then deterministic.
//!
//! A failed job leaves its inputs: it is tried again with growing pauses. An unknown durable state and a panic poison the
//! database; so does an I/O error that comes back `IO_FAILURES_MAX` times, unless it says that something is
//! short (space, descriptors). A damaged input of a compaction only fails that compaction.

mod pool;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use pool::Pool;

use crate::family::FamilyCore;
use crate::jobs::Job;
use crate::options::SyncMode;
use crate::shared::Shared;
use crate::types::SeqNo;
use crate::{Error, Result, compact, flush, upload};

/// How often in a row an I/O error may come before the database is poisoned. A full disk does not count.
const IO_FAILURES_MAX: u32 = 3;
/// The longest pause before failed work is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The same for a compaction whose input is damaged: it reads that damage again for nothing, most likely.
const DAMAGE_PAUSE_MAX: Duration = Duration::from_secs(300);

/// Runs one job; failures are dealt with, not returned, except to callers who wait for the result.
///
/// # Errors
/// Those of the job.
pub fn run(shared: &Arc<Shared>, job: Job) -> Result<()> {
    let result = catch_unwind(AssertUnwindSafe(|| dispatch(shared, job)))
        .unwrap_or_else(|_| Err(Error::internal(format!("a background job panicked: {job:?}"))));
    match &result {
        Ok(true) => shared.retry.succeeded(),
        Ok(false) => {}
        Err(e) => failed(shared, job, e),
    }
    result.map(drop)
}

/// Runs everything that waits, in this thread, until nothing does or something fails.
///
/// # Errors
/// Those of the first job that fails.
pub fn run_waiting(shared: &Arc<Shared>) -> Result<()> {
    while let Some(job) = shared.jobs.pop(Duration::ZERO, |_| true) {
        let result = run(shared, job);
        shared.jobs.finished(job);
        result?;
    }
    Ok(())
}

/// Runs `job`; whether tables were written, which proves that the disk works.
fn dispatch(shared: &Arc<Shared>, job: Job) -> Result<bool> {
    shared.health.check()?;
    let family = |id| shared.families.read().get(&id).cloned();
    match job {
        Job::PrepareLog => {
            shared.log.prepare_next()?;
            flush_what_pins_the_log(shared);
        }
        Job::Flush(id) => {
            if let Some(family) = family(id)
                && flush::run(shared, &family)?
            {
                shared.jobs.push(Job::Flush(id));
                shared.jobs.push(Job::Compact(id));
                return Ok(true);
            }
        }
        Job::Compact(id) => {
            if let Some(family) = family(id)
                && !family.compaction_retry.waits(shared.env.clock.mono())
                && compact::run(shared, &family)
                    .inspect(|_| shared.merges.set_starved(false))
                    .inspect_err(|e| shared.merges.set_starved(e.is_full()))?
            {
                family.compaction_retry.succeeded();
                shared.jobs.push(Job::Compact(id));
                shared.remove_obsolete(); // at once: a job for it would wait behind every compaction that is due
                shared.jobs.push(Job::RemoveObsolete);
                return Ok(true);
            }
        }
        Job::RemoveObsolete => shared.remove_obsolete(),
        Job::Upload => upload::in_background(shared),
    }
    Ok(false)
}

/// When the log outgrows its cap, every family whose active memtable holds on to what is beyond the cap is flushed.
fn flush_what_pins_the_log(shared: &Arc<Shared>) {
    let beyond = |pins| shared.log.bytes_since(pins) >= shared.options.wal_bytes_max;
    if !beyond(shared.log_needed_from()) {
        return;
    }
    for family in shared.all_families() {
        if family.owned_view().active.as_ref().is_some_and(|slot| beyond(slot.pins)) {
            shared.rotate(&family);
        }
    }
}

fn failed(shared: &Shared, job: Job, e: &Error) {
    if matches!(e, Error::Poisoned { .. } | Error::Closed | Error::Busy { .. }) {
        return; // `Busy`: merges were stopped
    }
    tracing::warn!(?job, error = %e, "a background job failed; its inputs are kept");
    let now = shared.env.clock.mono();
    if let (Job::Compact(id), true) = (job, e.is_corruption()) {
        // A damaged input harms only the keys it holds: its tables stay, reads of them say what is wrong.
        if let Some(family) = shared.families.read().get(&id) {
            family.compaction_retry.failed(now, DAMAGE_PAUSE_MAX);
        }
        return;
    }
    let io = e.io_kind().is_some() && !e.is_shortage() && shared.retry.count_failure() >= IO_FAILURES_MAX;
    if io || e.is_corruption() || matches!(e, Error::Internal { .. }) {
        shared.poison(e.clone());
        return;
    }
    let pause = shared.retry.failed(now, PAUSE_MAX);
    tracing::info!(?pause, "it will be tried again");
}

/// What must happen from time to time: the clock is read, the log synced and sealed, failed flushes asked for again.
#[derive(Debug, Default)]
pub struct Ticks {
    /// The log must become durable up to here, as commits were promised.
    sync_until: SeqNo,
    tail_seen: SeqNo,
    tail_since: Duration,
    sealed: SeqNo,
    last_sweep: Duration,
    uploads: upload::Due,
}

impl Ticks {
    /// How often [`Ticks::tick`] wants to be called.
    pub const PERIOD: Duration = Duration::from_millis(10);
    /// A log without commits for this long is sealed.
    const IDLE: Duration = Duration::from_millis(50);
    /// How often memory and files that nobody needs are looked for.
    const SWEEP: Duration = Duration::from_secs(1);

    /// Makes durable what was promised, as far as it is in the log. A commit that is still being written, and may take long, is
    /// left to the next round: it must not delay the promises before it, nor the clock.
    fn sync_what_is_written(&self, shared: &Shared) {
        let sequencer = shared.log.sequencer();
        if sequencer.durable() < self.sync_until {
            let _ = shared.sync_to(sequencer.written_end().min(self.sync_until)); // a failure has poisoned the database
        }
    }

    /// One round.
    pub fn tick(&mut self, shared: &Arc<Shared>) {
        shared.refresh_clock();
        if shared.health.is_poisoned() {
            return;
        }
        let now = shared.env.clock.mono();
        let sequencer = shared.log.sequencer();
        if shared.sync_due.tick(now) {
            self.sync_until = sequencer.tail();
        }
        self.sync_what_is_written(shared);
        let tail = sequencer.tail();
        if tail != self.tail_seen {
            (self.tail_seen, self.tail_since) = (tail, now);
        } else if shared.options.sync == SyncMode::Full
            && tail != self.sealed
            && sequencer.written_end() == tail
            && now.saturating_sub(self.tail_since) >= Self::IDLE
        {
            let _ = shared.log.seal(&|| shared.sync_values()); // a failure has poisoned the database
            self.sealed = sequencer.tail();
            self.tail_seen = self.sealed;
        }
        if shared.retry.due(now) {
            shared.ask_for_pending();
        }
        if let Some(remote) = &shared.remote
            && self.uploads.tick(shared, remote, now)
        {
            shared.jobs.push(Job::Upload);
        }
        if now.saturating_sub(self.last_sweep) >= Self::SWEEP {
            self.last_sweep = now;
            shared.log.restore_reserve();
            // What a reader still used when it was replaced: on an idle database nobody else would free it.
            tidesdb_sync::reclaim();
            // A snapshot may have gone that kept deleted ranges alive.
            let ranges = |f: &Arc<FamilyCore>| !f.owned_view().version.ranges().is_empty();
            for family in shared.all_families().iter().filter(|f| ranges(f)) {
                shared.jobs.push(Job::Compact(family.id));
            }
            if !shared.versions.obsolete().is_empty() {
                shared.jobs.push(Job::RemoveObsolete);
            }
        }
    }
}
