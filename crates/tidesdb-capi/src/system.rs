//! Direct queries to the operating system.

use std::ffi::c_long;
use std::path::Path;

use tidesdb_io::program;

use crate::abi::ERR_IO;
use crate::failure::{Answer, Failure};

/// Raises the soft limit of open files towards `desired` (0 changes nothing). Returns the resulting limit; the largest number if there is
/// none.
pub(crate) fn raise_open_file_limit(desired: c_long) -> c_long {
    let limit = program::raise_files_max(u64::try_from(desired).unwrap_or(0));
    limit.map_or(c_long::MAX, |limit| c_long::try_from(limit).unwrap_or(c_long::MAX))
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
