//! The one rule for names: a single path component, the same on every disk.

use std::io;

/// Refuses a name that is not a single path component.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file name"));
    }
    Ok(())
}
