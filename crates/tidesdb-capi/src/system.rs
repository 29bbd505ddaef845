//! What is asked of the system directly.

use std::ffi::c_long;
use std::path::Path;

use crate::abi::ERR_IO;
use crate::failure::{Answer, Failure};

/// Raises the soft limit of open files towards `desired`, which may be 0 to change nothing; returns the limit then in force.
pub(crate) fn raise_open_file_limit(desired: c_long) -> c_long {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is good for writing one structure of this type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    let wanted = u64::try_from(desired).unwrap_or(0).min(limit.rlim_max);
    if wanted > limit.rlim_cur {
        let raised = libc::rlimit { rlim_cur: wanted, ..limit };
        // SAFETY: `raised` is good for reading one structure of this type.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    c_long::try_from(limit.rlim_cur).unwrap_or(c_long::MAX)
}

/// Bytes of memory that this process may use, the host's or its group's, and how many of them are free.
pub(crate) fn memory() -> (u64, u64) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/meminfo");
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let total = field("MemTotal:").unwrap_or(0);
    let available = field("MemAvailable:").unwrap_or(0);
    // The limit of a control group, where there is one.
    let group = read("/sys/fs/cgroup/memory.max").trim().parse::<u64>().unwrap_or(u64::MAX);
    let used = read("/sys/fs/cgroup/memory.current").trim().parse::<u64>().unwrap_or(0);
    (total.min(group), available.min(group.saturating_sub(used)))
}

/// Refuses a directory that could be made only together with one above it: a path with a slip of the pen makes no tree.
///
/// # Errors
/// `ERR_IO`.
pub(crate) fn check_parent(directory: &Path) -> Answer {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent {
        Some(parent) if !parent.is_dir() => {
            let text = format!("cannot create {}: {} is no directory", directory.display(), parent.display());
            Err(Failure::text_of(ERR_IO, text))
        }
        _ => Ok(()),
    }
}
