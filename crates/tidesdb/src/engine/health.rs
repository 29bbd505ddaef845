//! The health of an open database, for people and monitors.

use super::Engine;
use crate::health::{HealthReport, HealthState};
use crate::memory::{Pressure, RANGES_FULL};
use crate::waits::StallCause;

impl Engine {
    /// Returns the health of the database.
    pub fn health(&self) -> HealthReport {
        if let Some(cause) = self.write.health.cause() {
            let causes = vec![format!("writes are refused since: {cause}")];
            return HealthReport { state: HealthState::Poisoned, causes, first_failure: Some(cause) };
        }
        let mut causes = Vec::new();
        if self.write.merges.are_off() {
            causes.push("merges were cancelled and do not start on their own".to_owned());
        }
        if self.write.merges.are_starved() {
            causes.push("the disk has no space for the output of a merge".to_owned());
        }
        if let Some(shortage) = self.write.log.shortage() {
            causes.push(format!("commits are refused: {shortage}"));
        }
        let memory = &self.write.memory;
        let refused = self.write.pacing.delays(StallCause::Memory).counts().gave_up;
        if memory.level() == Pressure::Critical && refused > 0 {
            causes.push(format!("commits are refused: {}", StallCause::Memory.why_busy()));
        }
        if memory.is_full_of_ranges() && refused > 0 {
            causes.push(format!("range deletes are refused: {RANGES_FULL}"));
        }
        if memory.whole().families() > memory.families_max() {
            let (families, max, limit) = (memory.whole().families(), memory.families_max(), memory.limit());
            causes.push(format!(
                "there are {families} families, and a memory_limit of {limit} bytes has room for {max}: more memory is in use, and none can be created"
            ));
        }
        if let Some(cause) = self.write.jobs.workers.shortage() {
            causes.push(format!(
                "commits do the work of background threads, which the system cannot start: {cause}"
            ));
        }
        if let Some(failure) = self.remote.as_ref().and_then(|remote| remote.failure()) {
            causes.push(format!("uploads to the object store fail and are tried again: {failure}"));
        }
        if self.retry.is_failing() {
            causes.push("background work fails and is tried again".to_owned());
        }
        for family in self.write.families.read().all_of(self.write.index.damaged()) {
            causes.push(format!("merges of family {:?} leave out tables that are damaged", family.name()));
        }
        let state = if causes.is_empty() { HealthState::Healthy } else { HealthState::Degraded };
        HealthReport { state, causes, first_failure: None }
    }
}
