//! Which process wrote something, and whether it still runs: for figures that one process writes and others read.

#[cfg(simulated)]
use tidesdb_sync::scheduler;

use crate::system;

/// Identifies a process among all that ever run on this machine and its containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessId {
    /// Its number.
    pub number: u32,
    /// When it was started, in a unit of the system since the boot; 0 if that is not known. A number is used again, this pair is not.
    pub started: u64,
    /// The boot of the machine; all zeros if that is not known.
    pub boot: [u8; 16],
    /// The namespace in which the number counts; 0 if that is not known.
    pub namespace: u64,
}

/// What a look at a process found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessState {
    /// It runs, or waits for something.
    Runs,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has ended.
    Ended,
    /// It ended at the latest when the machine was started again.
    Rebooted,
    /// The system does not say. That is so for a process of another container or one that is hidden, and everywhere but on Linux.
    Unknown,
}

impl ProcessId {
    /// This process.
    pub fn current() -> Self {
        #[cfg(simulated)]
        if scheduler::is_active() {
            return Self { number: 1, ..Self::default() };
        }
        let (started, boot, namespace) = system::process();
        Self { number: std::process::id(), started, boot, namespace }
    }

    /// Looks whether the process still runs. Takes no lock.
    pub fn look(&self) -> ProcessState {
        self.look_from(&Self::current())
    }

    fn look_from(&self, own: &Self) -> ProcessState {
        if [self.boot, own.boot].contains(&[0; 16]) {
            return ProcessState::Unknown;
        }
        if self.boot != own.boot {
            return ProcessState::Rebooted;
        }
        if self.started == 0 || self.namespace == 0 || self.namespace != own.namespace {
            return ProcessState::Unknown;
        }
        match system::process_now(self.number) {
            Some((0, _)) => ProcessState::Unknown,
            Some((started, stopped)) if started == self.started => match stopped {
                Some(true) => ProcessState::Stopped,
                Some(false) => ProcessState::Runs,
                None => ProcessState::Ended, // its parent has not asked how it ended
            },
            _ => ProcessState::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux tells")]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn a_process_runs_and_one_with_another_start_boot_or_namespace_does_not() {
        let own = ProcessId::current();
        assert_eq!(own.look(), ProcessState::Runs);
        let seen = |change: fn(&mut ProcessId)| {
            let mut other = own;
            change(&mut other);
            other.look()
        };
        assert_eq!(seen(|id| id.started += 1), ProcessState::Ended);
        assert_eq!(seen(|id| id.boot[0] ^= 1), ProcessState::Rebooted);
        assert_eq!(seen(|id| id.boot = [0; 16]), ProcessState::Unknown);
        assert_eq!(seen(|id| id.namespace += 1), ProcessState::Unknown);
        assert_eq!(seen(|id| id.number = u32::MAX), ProcessState::Ended);
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux tells")]
    #[cfg_attr(miri, ignore = "starts a program")]
    fn a_child_that_has_ended_is_not_taken_for_one_that_runs() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let own = ProcessId::current();
        let number = child.id();
        let id = || system::process_now(number).map(|(started, _)| ProcessId { number, started, ..own });
        let id = id().unwrap();
        while id.look() != ProcessState::Ended {
            std::thread::yield_now(); // it has not ended yet, or nobody has asked how
        }
        child.wait().unwrap();
        assert_eq!(id.look(), ProcessState::Ended);
    }
}
