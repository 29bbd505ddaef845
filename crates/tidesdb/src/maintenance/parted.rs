//! Running jobs whose work several threads share.

use std::fmt;
use std::sync::Arc;

use tidesdb_sync::Mutex;

use super::MaintenanceCtx;
use crate::types::FamilyId;

/// A job that is divided into parts.
pub trait PartedWork: Send + Sync {
    /// The family that the job belongs to.
    fn family(&self) -> FamilyId;
    /// Takes a part and carries it out; a failure is left to the thread that runs the job. Returns false if there is none to take.
    fn help(&self, ctx: &MaintenanceCtx) -> bool;
}

/// The jobs that have parts for other threads.
#[derive(Default)]
pub struct PartedJobs {
    jobs: Mutex<Vec<Arc<dyn PartedWork>>>,
}

impl PartedJobs {
    /// Offers the parts of `work` to other threads until the result is dropped.
    pub fn offer(&self, work: Arc<dyn PartedWork>) -> PartedJob<'_> {
        self.jobs.lock().push(Arc::clone(&work));
        PartedJob { of: self, work }
    }

    /// Takes a part of a job of `family` and carries it out. Returns false if there is none to take.
    pub fn help(&self, ctx: &MaintenanceCtx, family: FamilyId) -> bool {
        // Keeps one job at a time: a job that has ended must not keep its files because another one has not.
        let job = |n: usize| {
            let jobs = self.jobs.lock();
            jobs.iter().filter(|job| job.family() == family).nth(n).cloned()
        };
        (0..).map_while(job).any(|job| job.help(ctx))
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
    work: Arc<dyn PartedWork>,
}

impl Drop for PartedJob<'_> {
    fn drop(&mut self) {
        self.of.jobs.lock().retain(|work| !Arc::ptr_eq(work, &self.work));
    }
}

impl fmt::Debug for PartedJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartedJob").field("family", &self.work.family()).finish_non_exhaustive()
    }
}
