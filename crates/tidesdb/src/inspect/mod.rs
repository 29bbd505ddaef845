//! Looking at the files of a database from outside: what they say, where each part lies, and where damage is.
//!
//! Everything here only reads, takes no lock, and works on files of a database that does not open. Each function shows
//! lines for people and returns the damage it met; an empty list means that every byte it covers is whole. What the lines
//! look like is no part of the interface. Of a database that is being written, the newest bytes may look unfinished.

mod manifest;
mod table;
mod vlog;
mod wal;

use std::path::Path;
use std::sync::Arc;

use tidesdb_io::{Dir, Env};

use crate::{Error, Result};

pub use manifest::manifest;
pub use table::table;
pub use vlog::vlog;
pub use wal::wal;

/// Longest part of a key that is shown, in bytes.
const KEY_SHOWN_MAX: usize = 64;

/// Opens the directory at `path`.
fn open(path: &Path) -> Result<(Env, Arc<dyn Dir>)> {
    let env = Env::real();
    let dir =
        env.disk.open_dir(path, false).map_err(|e| Error::io("open", &path.display().to_string(), e))?;
    Ok((env, dir))
}

/// A key for the eyes.
fn shown(key: &[u8]) -> String {
    match key.get(..KEY_SHOWN_MAX) {
        Some(front) if key.len() > KEY_SHOWN_MAX => {
            format!("{}... ({} bytes)", front.escape_ascii(), key.len())
        }
        _ => key.escape_ascii().to_string(),
    }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Damage is part of the answer; any other error is the end of it.
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
    Error::NotFound { what: format!("file {file} of that kind").into() }
}

#[cfg(test)]
mod tests;
