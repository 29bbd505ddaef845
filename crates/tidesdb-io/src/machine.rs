//! Memory of the machine, and of the control groups or the job that this process belongs to.

use crate::system;

/// Memory that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineMemory {
    /// Bytes in all: those of the machine, or of the smallest control group of the process (Linux) or its job (Windows) if that is less. At
    /// most 2 GiB with addresses of 32 bits.
    pub total: u64,
    /// Bytes of these that are free or can be freed at once.
    pub available: u64,
}

impl MachineMemory {
    /// Asks the system.
    pub fn now() -> Self {
        let (total, available) = system::memory();
        let total = total.min(isize::MAX as u64);
        Self { total, available: available.min(total) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found on 32 bits: the default memory limit of a database was half of the machine's memory, more than a process has addresses.
    #[test]
    fn memory_without_addresses_does_not_count() {
        let seen = MachineMemory::now();
        assert!(seen.total > 16 << 20 && seen.total <= isize::MAX as u64, "{seen:?}");
        assert!(seen.available <= seen.total, "{seen:?}");
    }
}
