//! One seed, one run: the engine with all its threads, its clients, its disk and its faults in a simulation of the scheduler of
//! `tidesdb-sync`. Built with `--cfg simulated` only.
//!
//! A [`Plan`](plan::Plan) is drawn from the seed. Clients read and write families, others run transactions of all levels, others change the
//! catalog, flush and merge. Meanwhile disks are captured as a power failure or a kill would leave them. The
//! [`Ledger`](ledger::Ledger) judges all reads, and each disk after its recovery.

pub mod ledger;
pub mod plan;
mod store;
mod world;
mod vain;
mod tables;
mod client;
mod admin;
mod backups;
mod neighbour;
mod life;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidesdb_sync::scheduler::{self, Outcome, Settings};

use plan::Plan;

/// No call of a client and no job may wait longer than this in virtual time.
const WAIT_MAX: Duration = Duration::from_secs(1200);

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Acknowledged commits.
    pub commits: u64,
    /// Judged reads.
    pub reads: u64,
    /// Flushes.
    pub flushes: u64,
    /// Merges.
    pub merges: u64,
    /// Values that were moved, in bytes.
    pub moved: u64,
    /// Recovered disks.
    pub recoveries: u64,
    /// Restored generations of backups.
    pub generations: u64,
    /// Judged transactions.
    pub transactions: u64,
}

/// What a run has shown.
#[derive(Debug)]
pub struct Report {
    /// What the scheduler counted.
    pub outcome: Outcome,
    /// What the clients counted.
    pub figures: Figures,
    /// What is wrong.
    pub violation: Option<String>,
}

/// The counts of a run, and what is wrong.
type Done = (Figures, Result<(), String>);

/// Runs `plan` under the schedule of `settings`.
pub fn run(plan: Plan, settings: Settings) -> Report {
    let result: Arc<Mutex<Option<Done>>> = Arc::default();
    let shared = Arc::clone(&result);
    let plan = plan.under(&settings);
    let outcome = scheduler::run(settings, move || {
        let mut figures = Figures::default();
        let done = life::run(&plan, &mut figures);
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some((figures, done));
    });
    let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (figures, done) = result.unwrap_or_else(|| (Figures::default(), Ok(()))); // the first thread may have panicked
    let longest = &outcome.longest_wait;
    let violation = match done {
        _ if outcome.failure.is_some() => outcome.failure.clone(),
        Err(e) => Some(e),
        Ok(()) if !outcome.panics.is_empty() => Some(format!("panic: {}", outcome.panics.join("; "))),
        Ok(()) if longest.0 > WAIT_MAX => Some(format!("{} waited for {:?}", longest.1, longest.0)),
        Ok(()) => None,
    };
    Report { outcome, figures, violation }
}
