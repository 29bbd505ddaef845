//! What differs between operating systems: the only place of the workspace where `cfg` chooses code for a system.
//!
//! Each system is one file that offers the same names, listed below. The traits of `vfs.rs` say in their documentation what a call does
//! on each system; `docs/reference/platforms.md` has the table. `unix.rs` holds what `linux.rs`, `macos.rs` and `bsd.rs` share, in terms of calls that
//! each of them defines, `posix.rs` calls that macOS has not or with a weaker promise, `absent.rs` what takes the place of those that only
//! Linux has. `unix_program.rs` and `windows_program.rs` hold what programs need beside files. `reach.rs` is part of each system: the
//! simulated disk has the habits of all of them.
//!
//! All functions may be called from any thread.

#[cfg(not(target_os = "linux"))]
mod absent;
pub(crate) mod boot;
#[cfg(target_os = "freebsd")]
mod bsd;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_vendor = "apple")]
mod macos;
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) mod pages;
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
mod posix;
pub(crate) mod reach;
#[cfg(target_os = "linux")]
mod surroundings;
#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
mod sysctl;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(crate) mod unix_program;
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
mod uuid;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub(crate) mod windows_program;

use std::io;
use std::path::Path;

#[cfg(target_os = "freebsd")]
use bsd as own;
#[cfg(target_os = "linux")]
use linux as own;
#[cfg(target_vendor = "apple")]
use macos as own;

#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use linux::pages;
#[cfg(unix)]
pub(crate) use own::{
    advise_huge, allocate, anonymous_bytes, dont_need, heap, is_cached, lower_priority, may_map,
    may_map_shared, memory, process, process_now, random, read_cached_at, start_writing, sync_all, sync_data,
    trim_heap, will_need, write_durably_at,
};
#[cfg(unix)]
pub(crate) use unix::{
    Errno, Folder, Handle, Mapping, NOT_IN_NAMES, file_identity, file_len, files_max, is_dir, make_dir,
    page_bytes, read_at, set_len, since_boot, sync_name, try_lock, unlock, write_at,
};

#[cfg(unix)]
pub(crate) use unix_program as program;

#[cfg(not(target_os = "linux"))]
pub(crate) use absent::surroundings;
#[cfg(target_os = "linux")]
pub(crate) use surroundings::surroundings;

#[cfg(windows)]
pub(crate) use windows_program as program;

#[cfg(all(windows, test))]
pub(crate) use windows::allocated;
#[cfg(windows)]
pub(crate) use windows::{
    Errno, Folder, Handle, Mapping, NOT_IN_NAMES, advise_huge, allocate, anonymous_bytes, dont_need,
    file_identity, file_len, files_max, heap, is_cached, is_dir, lower_priority, make_dir, may_map,
    may_map_shared, memory, page_bytes, process, process_now, random, read_at, read_cached_at, set_len,
    since_boot, start_writing, sync_all, sync_data, sync_name, trim_heap, try_lock, unlock, will_need,
    write_at, write_durably_at,
};

#[cfg(not(any(target_os = "linux", target_vendor = "apple", target_os = "freebsd", windows)))]
compile_error!(
    "TidesDB runs on Linux, macOS, FreeBSD and Windows: crates/tidesdb-io/src/system has no file for this system"
);

/// How [`Folder::open_file`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// For reading.
    Read,
    /// For reading short pieces at random places: without read-ahead.
    Random,
    /// For reading and writing.
    ReadWrite,
    /// For reading and writing; the file must not exist yet.
    CreateNew,
    /// For a lock. The file is created if there is none; nothing is read or written.
    Lock {
        /// Whether nobody else may hold the lock.
        exclusive: bool,
    },
}

/// Writes at `offset` and syncs the file. May be short. For systems without one call for both.
pub(crate) fn write_then_sync(file: &Handle, buf: &[u8], offset: u64) -> io::Result<usize> {
    let written = write_at(file, buf, offset)?;
    sync_all(file)?;
    Ok(written)
}

/// Returns the directory that holds the last name of `path`, or `path` if it has no name.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_found_lexically() {
        for (path, parent) in [("a/b", "a"), ("a", "."), ("/", "/"), ("/a", "/"), ("a/b/", "a")] {
            assert_eq!(parent_of(Path::new(path)), Path::new(parent), "{path}");
        }
    }
}
