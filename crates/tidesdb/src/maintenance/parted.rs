//! Running jobs whose work several threads share.

use std::fmt;
use std::sync::Arc;

use tidesdb_sync::Mutex;

use super::MaintenanceCtx;
use crate::types::FamilyId;

/// Takes a part of a job and carries it out; a failure is left to the thread that runs the job. Returns false if there is none to take.
type Help = dyn Fn(&MaintenanceCtx) -> bool + Send + Sync;

/// The jobs that have parts for other threads, each with its family.
#[derive(Default)]
pub struct PartedJobs {
    jobs: Mutex<Vec<(FamilyId, Arc<Help>)>>,
}

impl PartedJobs {
    /// Offers the parts of a job of `family`, which `help` takes, to other threads until the result is dropped.
    pub fn offer(&self, family: FamilyId, help: Arc<Help>) -> PartedJob<'_> {
        self.jobs.lock().push((family, Arc::clone(&help)));
        PartedJob { of: self, help }
    }

    /// Takes a part of a job of `family` and carries it out. Returns false if no part was left to take.
    pub fn help(&self, ctx: &MaintenanceCtx, family: FamilyId) -> bool {
        // Keeps one job at a time: a job that has ended must not keep its files because another one has not.
        let job = |n: usize| {
            let jobs = self.jobs.lock();
            jobs.iter().filter(|(of, _)| *of == family).nth(n).map(|(_, help)| Arc::clone(help))
        };
        (0..).map_while(job).any(|help| help(ctx))
    }
}

impl fmt::Debug for PartedJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartedJobs").field("jobs", &self.jobs.lock().len()).finish()
    }
}

/// Keeps a job among the [`PartedJobs`].
pub struct PartedJob<'a> {
    of: &'a PartedJobs,
    help: Arc<Help>,
}

impl Drop for PartedJob<'_> {
    fn drop(&mut self) {
        self.of.jobs.lock().retain(|(_, help)| !Arc::ptr_eq(help, &self.help));
    }
}
