//! The rule for file names, the same on every disk: a single path component.

use std::io;

use crate::system::NOT_IN_NAMES;

/// Refuses a name that is not a single path component.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(NOT_IN_NAMES) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file name"));
    }
    Ok(())
}
