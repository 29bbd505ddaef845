//! Directories for runners that need many syncs and no real disk.

use std::path::Path;

use tempfile::TempDir;

/// A directory in memory where there is one: syncs are free there.
///
/// # Errors
/// What the system says.
pub fn in_memory() -> Result<TempDir, String> {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.map_err(|e| e.to_string())
}
