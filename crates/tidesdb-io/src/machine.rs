//! Memory of the machine, and of the control groups or the job that this process belongs to.

use crate::system;

/// Memory that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineMemory {
    /// Bytes in all: those of the machine, or of the smallest control group of the process (Linux) or its job (Windows) if that is less.
    pub total: u64,
    /// Bytes of these that are free or can be freed at once.
    pub available: u64,
}

impl MachineMemory {
    /// Asks the system.
    pub fn now() -> Self {
        let (total, available) = system::memory();
        Self { total, available }
    }
}
