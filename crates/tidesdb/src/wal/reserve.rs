//! The reserve: a file that holds disk space for what makes space.
//!
//! On a full disk, deletes, drops and flushes must still work, or nothing would ever get better. While the disk has room,
//! `RESERVE` occupies a few real blocks. When a delete or a flush meets a full disk, the file goes and they use its
//! space. From then on commits that store data are refused, until the disk has room for the file again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb_io::{Access, Dir};

use crate::files;
use crate::{Error, Result};

/// The reserve of one database that is open for writing. Callers hold the log's `preparing` lock, except for questions.
#[derive(Debug)]
pub(super) struct Reserve {
    dir: Arc<dyn Dir>,
    bytes: u64,
    held: AtomicBool,
}

impl Reserve {
    /// A reserve of `bytes`, not held yet; 0 = none is wanted.
    pub(super) fn new(dir: &Arc<dyn Dir>, bytes: u64) -> Self {
        Self { dir: Arc::clone(dir), bytes, held: AtomicBool::new(bytes == 0) }
    }

    /// Whether the file occupies its space, or none is wanted.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// Bytes it occupies while it is held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes over the file of an earlier session, if it has the right length.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn take_over(&self) -> Result<()> {
        let io = |op| move |e| Error::io(op, files::RESERVE, e);
        let file = match self.dir.open(files::RESERVE, Access::Read) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(io("open"))?,
        };
        if self.bytes > 0 && file.len().map_err(io("stat"))? == self.bytes {
            self.held.store(true, Ordering::SeqCst);
        } else {
            self.dir.unlink(files::RESERVE).map_err(io("unlink"))?;
        }
        Ok(())
    }

    /// Occupies the space.
    ///
    /// # Errors
    /// `Io`; for a full disk, too.
    pub(super) fn hold(&self) -> Result<()> {
        let made = self.dir.create_new(files::RESERVE, self.bytes);
        drop(made.map_err(|e| Error::io("create", files::RESERVE, e))?);
        self.held.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Gives the space back to the disk. True if there was some to give.
    pub(super) fn release(&self) -> bool {
        if self.bytes == 0 || !self.held.swap(false, Ordering::SeqCst) {
            return false;
        }
        tracing::warn!(bytes = self.bytes, "the disk is full: its reserve is used for deletes and flushes");
        release(&*self.dir)
    }
}

/// Removes the reserve's file, before or after a database is open. True if there was one.
pub(super) fn release(dir: &dyn Dir) -> bool {
    match dir.unlink(files::RESERVE) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(%error, "the reserve could not be removed");
            }
            false
        }
    }
}
