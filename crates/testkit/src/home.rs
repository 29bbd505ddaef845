//! Directories for runners that do many syncs and need no real disk.

use std::path::Path;

use tempfile::TempDir;

/// Creates a directory in memory if possible, where syncs are free.
///
/// # Errors
/// Those of the system.
pub fn in_memory() -> Result<TempDir, String> {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.map_err(|e| e.to_string())
}
