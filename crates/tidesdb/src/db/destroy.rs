//! Removes a database.
//!
//! ```text
//! lock -> CURRENT, synced -> every other file of the database -> LOCK, and the folder, if nothing else is in it
//! ```
//!
//! Without `CURRENT` an open refuses the folder as long as there are files of a database in it, so a crash leaves the whole database or
//! none. A second call removes what a crash has left.

use std::io::ErrorKind;
use std::path::Path;

use tidesdb_io::Dir;

use super::{Db, OpenOptions};
use crate::files::{self, CURRENT, CURRENT_NEW, FileKind, LOCK, RESTORING, UNFINISHED};
use crate::version::has_current;
use crate::{Error, Result};

/// The log of the C library, if a program has asked for it.
const LIBRARY_LOG: &str = "LOG";

impl Db {
    /// Removes the database in the folder `path`: its own files, and the folder, if nothing else is in it. A copy in an object store stays.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use tidesdb::{Db, Error};
    /// let path = dir.path().join("shop.db");
    /// let db = Db::open(&path)?;
    /// assert!(matches!(Db::destroy(&path), Err(Error::Locked { .. })));
    /// db.close()?;
    /// Db::destroy(&path)?;
    /// assert!(!path.exists());
    /// assert!(matches!(Db::destroy(&path), Err(Error::NotFound { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Locked` if the database is open; `NotFound` if there is none; `Corrupt`, `FormatTooNew` if the file `CURRENT` is not one of this
    /// engine: nothing was removed. `Io`: a part may have been removed, and the rest does not open; call it again.
    pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
        Self::options(path).destroy()
    }
}

impl OpenOptions {
    /// Removes the database: see [`Db::destroy`]. Of the options, the environment counts.
    ///
    /// # Errors
    /// As [`Db::destroy`].
    pub fn destroy(mut self) -> Result<()> {
        (self.options.read_only, self.options.create_if_missing) = (false, false);
        let dir = self.open_dir()?;
        files_of(&*dir)?; // before the lock, which makes a file
        let lock = self.lock_dir(&dir)?;
        let mut ours = files_of(&*dir)?;
        ours.retain(|name| name != CURRENT && name != LOCK);
        ours.sort_by_key(|name| is_data(name)); // last: by these a later call finds what this one has left
        remove(&*dir, CURRENT)?;
        sync(&*dir)?;
        ours.iter().try_for_each(|name| remove(&*dir, name))?;
        // The lock goes with the last file only: whoever opens the folder would lock another one.
        let is_last = list(&*dir)? == [LOCK];
        if is_last {
            remove(&*dir, LOCK)?;
        }
        drop((lock, dir));
        if is_last {
            let _ = self.env.disk.remove_dir(&self.path); // an empty folder does no harm
        }
        Ok(())
    }
}

/// Returns true for a file that shows that there is a database, or a part of one.
fn is_data(name: &str) -> bool {
    match files::parse(name) {
        Some(FileKind::Manifest(_) | FileKind::Wal(_) | FileKind::Table(_) | FileKind::Vlog(_)) => true,
        Some(_) => name == CURRENT_NEW,
        None => name == UNFINISHED || name == RESTORING,
    }
}

/// Returns the files of the database in a folder.
fn files_of(dir: &dyn Dir) -> Result<Vec<String>> {
    let names = list(dir)?;
    if !has_current(dir)? && !names.iter().any(|name| is_data(name)) {
        return Err(Error::NotFound { what: format!("database {}", dir.path().display()).into() });
    }
    let is_ours = |name: &String| files::parse(name).is_some() || is_data(name) || name == LIBRARY_LOG;
    Ok(names.into_iter().filter(is_ours).collect())
}

fn list(dir: &dyn Dir) -> Result<Vec<String>> {
    dir.list().map_err(|e| Error::io("list", &dir.path().display().to_string(), e))
}

fn remove(dir: &dyn Dir, name: &str) -> Result<()> {
    match dir.unlink(name) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("unlink", name, e)),
        _ => Ok(()),
    }
}

fn sync(dir: &dyn Dir) -> Result<()> {
    dir.sync().map_err(|e| Error::io("sync", &dir.path().display().to_string(), e))
}
