//! Inspects the files of a database without opening it: what they hold, where each part lies, and where damage is.
//!
//! All functions only read, take no lock, and also work on files of a database that does not open. Each function shows
//! lines for people and returns the damage it found; an empty list means that every byte it covers is intact. The
//! format of the lines is not part of the interface. If the database is being written, the newest bytes may look
//! unfinished.

mod manifest;
mod table;
mod vlog;
mod wal;

use std::path::Path;
use std::sync::Arc;

use tidesdb_io::{Dir, Env};

use crate::types::ShownExpiry;
use crate::{Error, Result, files};

pub use crate::compact::{Layout, LayoutTable};
pub use manifest::{layouts, manifest, trees};
pub use table::table;
pub use vlog::vlog;
pub use wal::wal;

/// Longest part of a key that is shown, in bytes.
const KEY_SHOWN_MAX: usize = 64;

/// Opens the directory at `path`.
fn open(path: &Path) -> Result<(Env, Arc<dyn Dir>)> {
    files::check_path(path)?;
    let env = Env::real();
    let dir =
        env.disk.open_dir(path, false).map_err(|e| Error::io("open", &path.display().to_string(), e))?;
    Ok((env, dir))
}

/// A key in readable form.
fn shown(key: &[u8]) -> String {
    match key.get(..KEY_SHOWN_MAX) {
        Some(front) if key.len() > KEY_SHOWN_MAX => {
            format!("{}... ({} bytes)", front.escape_ascii(), key.len())
        }
        _ => key.escape_ascii().to_string(),
    }
}

/// When a row expires, as the end of its line; empty if it never does.
fn shown_expiry(expiry: u64) -> String {
    if expiry == 0 { String::new() } else { format!(", expires {}", ShownExpiry(expiry)) }
}

/// Collects damage as part of the answer; returns any other error.
fn keep_damage<T>(result: Result<T>, damage: &mut Vec<Error>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.is_corruption() => {
            damage.push(e);
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn no_such(file: &str) -> Error {
    Error::NotFound { what: format!("file {file} of this kind").into() }
}

#[cfg(test)]
mod tests;
