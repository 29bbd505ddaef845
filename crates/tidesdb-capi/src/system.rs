//! Direct queries to the operating system.

use std::ffi::c_long;
use std::path::Path;

use crate::abi::ERR_IO;
use crate::failure::{Answer, Failure};

/// Raises the soft limit of open files towards `desired` (0 changes nothing). Returns the resulting limit.
pub(crate) fn raise_open_file_limit(desired: c_long) -> c_long {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable and has the right type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    let wanted = u64::try_from(desired).unwrap_or(0).min(limit.rlim_max);
    if wanted > limit.rlim_cur {
        let raised = libc::rlimit { rlim_cur: wanted, ..limit };
        // SAFETY: `raised` is readable and has the right type.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    c_long::try_from(limit.rlim_cur).unwrap_or(c_long::MAX)
}

/// Returns the bytes of memory that this process may use (the limit of the host or of its control group), and
/// how many are free.
pub(crate) fn memory() -> (u64, u64) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (total, available) = memory_of_host(&read("/proc/meminfo"));
    // The limit of the control group, if there is one.
    let group = read("/sys/fs/cgroup/memory.max").trim().parse::<u64>().unwrap_or(u64::MAX);
    let used = read("/sys/fs/cgroup/memory.current").trim().parse::<u64>().unwrap_or(0);
    (total.min(group), available.min(group.saturating_sub(used)))
}

/// Returns the values from `/proc/meminfo`. If that is not mounted, asks the kernel, which does not count
/// caches as free.
fn memory_of_host(info: &str) -> (u64, u64) {
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    if let (Some(total), Some(available)) = (field("MemTotal:"), field("MemAvailable:")) {
        return (total, available);
    }
    // SAFETY: the structure holds numbers only, so all zeros is a valid value.
    let mut host: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: `host` is writable and has the right type.
    if unsafe { libc::sysinfo(&raw mut host) } != 0 {
        return (0, 0);
    }
    let unit = u64::from(host.mem_unit);
    (host.totalram * unit, (host.freeram + host.bufferram) * unit)
}

/// Fails if the parent of `directory` does not exist, so that a mistyped path does not create a tree of
/// directories.
///
/// # Errors
/// `ERR_IO`.
pub(crate) fn check_parent(directory: &Path) -> Answer {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent {
        Some(parent) if !parent.is_dir() => {
            let text =
                format!("cannot create {}: {} is not a directory", directory.display(), parent.display());
            Err(Failure::text_of(ERR_IO, text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: without `/proc`, the memory was taken as 0 and the limit of a database was 16 MiB, so
    /// no family with the default settings could be created.
    #[test]
    fn memory_is_known_without_proc() {
        let (total, available) = memory_of_host("");
        assert!(total > 16 << 20 && available > 0 && available <= total, "{total} {available}");
        let told = memory_of_host("MemTotal:  2048 kB\nMemFree: 5 kB\nMemAvailable:   1024 kB\n");
        assert_eq!(told, (2 << 20, 1 << 20));
        let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let near = memory_of_host(&info).0.abs_diff(total);
        assert!(near < total / 10, "the two values differ too much: {near} of {total}");
    }
}
