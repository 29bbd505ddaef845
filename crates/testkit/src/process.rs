//! What the runners ask the system about their own process, and the limits that they set it. Windows is not asked and sets none.

use std::process::Command;
use std::time::Duration;

use clap::Parser;

/// Returns the name of the runner that this process is: its first argument.
pub fn runner() -> String {
    std::env::args().nth(1).unwrap_or_default()
}

/// Returns the arguments of the runner.
pub fn own_args() -> impl Iterator<Item = String> {
    std::env::args().skip(2)
}

/// Parses the arguments of the runner. Ends the process if they are wrong.
pub fn arguments<A: Parser>() -> A {
    A::parse_from(std::env::args_os().skip(1))
}

/// Returns a command that starts the same runner, without arguments yet.
///
/// # Errors
/// Returns the error of the system if it does not name the program of this process.
pub fn itself() -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|e| format!("name the program of this process: {e}"))?;
    let mut command = Command::new(program);
    command.arg(runner());
    Ok(command)
}

/// Limits the files that this process may have open. Returns false on Windows, which has no such limit.
///
/// # Errors
/// Returns the error of the system.
pub fn limit_descriptors(max: u64) -> Result<bool, String> {
    system::limit_descriptors(max)
}

/// Whether [`limit_memory`] sets a limit.
pub const LIMITS_MEMORY: bool = cfg!(unix);

/// Limits the addresses of this process to `max` bytes, and lets it leave no image of its memory when it dies. Does nothing on Windows.
///
/// # Errors
/// Returns the error of the system.
pub fn limit_memory(max: u64) -> Result<(), String> {
    system::limit_memory(max)
}

/// Returns the processor time that this process has used; zero on Windows.
pub fn processor_time() -> Duration {
    system::processor_time()
}

/// Returns the processor time that this thread has used; zero on Windows.
pub fn thread_time() -> Duration {
    system::thread_time()
}

#[cfg(unix)]
mod system {
    use std::time::Duration;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::time::{ClockId, clock_gettime};

    pub(super) fn limit_descriptors(max: u64) -> Result<bool, String> {
        let limit = Rlimit { current: Some(max), ..getrlimit(Resource::Nofile) };
        let set = setrlimit(Resource::Nofile, limit);
        set.map(|()| true).map_err(|e| format!("set the limit of descriptors: {e}"))
    }

    pub(super) fn limit_memory(max: u64) -> Result<(), String> {
        let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
        let _ = setrlimit(Resource::Core, limit(0)); // an image of memory would only be in the way
        let set = setrlimit(Resource::As, limit(max));
        set.map_err(|e| format!("set the limit of memory: {e}"))
    }

    pub(super) fn processor_time() -> Duration {
        time_of(ClockId::ProcessCPUTime)
    }

    pub(super) fn thread_time() -> Duration {
        time_of(ClockId::ThreadCPUTime)
    }

    fn time_of(clock: ClockId) -> Duration {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    }
}

#[cfg(not(unix))]
mod system {
    use std::time::Duration;

    pub(super) fn limit_descriptors(_max: u64) -> Result<bool, String> {
        Ok(false)
    }

    pub(super) fn limit_memory(_max: u64) -> Result<(), String> {
        Ok(())
    }

    pub(super) fn processor_time() -> Duration {
        Duration::ZERO
    }

    pub(super) fn thread_time() -> Duration {
        Duration::ZERO
    }
}
