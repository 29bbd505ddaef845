//! The health of an open database, for people and monitors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{SCARCE, Shared};
use crate::Error;
use crate::memory::Pressure;

/// Whether a database works, works with restrictions, or refuses writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthState {
    /// All work succeeds.
    #[default]
    Healthy,
    /// Reads work; some background work does not, or there is no room for commits that store data, on the disk or in memory.
    Degraded,
    /// Writes are refused until the database is opened again. Reads work.
    Poisoned,
}

impl HealthState {
    /// The name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Poisoned => "poisoned",
        }
    }
}

/// The health of a database at one moment. Its `Display` is for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HealthReport {
    /// The state.
    pub state: HealthState,
    /// Why the database is not healthy; empty if it is.
    pub causes: Vec<String>,
    /// The first failure that poisoned the database.
    pub first_failure: Option<Arc<Error>>,
}

impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state.name())?;
        if !self.causes.is_empty() {
            write!(f, ": {}", self.causes.join("; "))?;
        }
        Ok(())
    }
}

impl Shared {
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
        if memory.level() == Pressure::Critical
            && self.write.debt.by_memory.gave_up.load(Ordering::Relaxed) > 0
        {
            causes.push(format!("commits are refused: {SCARCE}"));
        }
        if memory.families() > memory.families_max() {
            let (families, max, limit) = (memory.families(), memory.families_max(), memory.limit());
            causes.push(format!(
                "there are {families} families, and a memory_limit of {limit} bytes has room for {max}: more memory is in use, and none can be created"
            ));
        }
        if self.retry.is_failing() {
            causes.push("background work fails and is tried again".to_owned());
        }
        for family in self.write.all_families() {
            if family.claims.has_quarantined() {
                causes
                    .push(format!("merges of family {:?} leave out tables that are damaged", family.name()));
            }
        }
        let state = if causes.is_empty() { HealthState::Healthy } else { HealthState::Degraded };
        HealthReport { state, causes, first_failure: None }
    }
}
