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
