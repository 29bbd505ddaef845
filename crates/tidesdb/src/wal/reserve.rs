//! The reserve: a file that keeps disk space for operations that free space.
//!
//! On a full disk, deletes, drops and flushes must still work, or the disk would stay full. While the disk has room,
//! `RESERVE` occupies a few real blocks. When a delete or a flush finds the disk full, the file is cut and they use its
//! space. From then on commits that store data are refused, until the disk has room for the file again.
//!
//! The file is as long as that work may need, so it grows with the database up to its longest length. It grows before
//! the log does: a commit that stores data never has a place in a log that is too long for the reserve.
//!
//! A last piece of the file is kept for the next open, which alone may take it: a process killed on a completely full
//! disk must still be able to write the manifest of that open.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_io::{Access, Dir};

use crate::files;
use crate::{Error, Result};

/// A smaller reserve is not worth a file.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Minimum that an open needs: a manifest. A reserve of less than two such pieces is removed as a whole.
const LAST_PIECE_BYTES: u64 = 256 << 10;

/// The reserve of one database that is open for writing. Callers hold the log's `preparing` lock, except for queries.
#[derive(Debug)]
pub(super) struct Reserve {
    dir: Arc<dyn Dir>,
    /// Shortest and longest length of the file; 0 = no reserve is wanted.
    bytes: RangeInclusive<u64>,
    /// Bytes that the file occupies for work on a full disk; 0 while that space is in use, or not occupied yet.
    held: AtomicU64,
}

impl Reserve {
    /// A reserve whose length is within `bytes`, not yet held; 0 = no reserve is wanted.
    pub(super) fn new(dir: &Arc<dyn Dir>, bytes: RangeInclusive<u64>) -> Self {
        Self { dir: Arc::clone(dir), bytes, held: AtomicU64::new(0) }
    }

    /// Bytes that the file must have in a database that holds `data` bytes.
    pub(super) fn wanted(&self, data: u64) -> u64 {
        self.bytes.start().saturating_add(data).min(*self.bytes.end())
    }

    /// Bytes that the file occupies for work on a full disk.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// Returns true if the file occupies its space, or no reserve is wanted.
    pub(super) fn is_held(&self) -> bool {
        self.held() > 0 || *self.bytes.end() == 0
    }

    /// Bytes that [`Reserve::release`] would give back.
    pub(super) fn spare(&self) -> u64 {
        match self.held() {
            0 => 0,
            held if self.has_last_piece() => held.saturating_sub(LAST_PIECE_BYTES),
            held => held,
        }
    }

    /// Takes over the file of an earlier session. It is held if it has the shortest length or more.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn take_over(&self) -> Result<()> {
        let io = |op| move |e| Error::io(op, files::RESERVE, e);
        let file = match self.dir.open(files::RESERVE, Access::Read) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(io("open"))?,
        };
        let len = file.len().map_err(io("stat"))?;
        if *self.bytes.end() == 0 || len > *self.bytes.end() {
            self.dir.unlink(files::RESERVE).map_err(io("unlink"))?;
        } else if len >= *self.bytes.start() {
            self.held.store(len, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Occupies `bytes` bytes.
    ///
    /// # Errors
    /// `Io`, also for a full disk: what was held before is still held.
    pub(super) fn hold(&self, bytes: u64) -> Result<()> {
        self.occupy(bytes)?;
        self.held.store(bytes, Ordering::SeqCst);
        Ok(())
    }

    /// Occupies as much of `wanted` bytes as the disk has left, for the next open.
    pub(super) fn hold_what_fits(&self, wanted: u64) {
        if self.is_held() {
            return;
        }
        let sizes = std::iter::successors(Some(wanted), |bytes| Some(bytes / 2));
        for bytes in sizes.take_while(|bytes| *bytes >= PIECE_BYTES_MIN) {
            if self.occupy(bytes).is_ok() {
                return;
            }
        }
        tracing::warn!("the disk is full, and there is no reserve for the next open");
    }

    /// Creates the file with `bytes` bytes, or extends it to that length.
    fn occupy(&self, bytes: u64) -> Result<()> {
        let io = |op| move |e| Error::io(op, files::RESERVE, e);
        match self.dir.create_new(files::RESERVE, bytes) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                let file = self.dir.open(files::RESERVE, Access::ReadWrite).map_err(io("open"))?;
                let len = file.len().map_err(io("stat"))?;
                file.allocate(len, bytes.saturating_sub(len)).map_err(io("allocate"))
            }
            made => made.map(drop).map_err(io("create")),
        }
    }

    fn has_last_piece(&self) -> bool {
        *self.bytes.end() >= 2 * LAST_PIECE_BYTES
    }

    /// Occupies the last piece, if the disk has that much.
    pub(super) fn hold_last(&self) {
        if self.has_last_piece() {
            let _ = self.occupy(LAST_PIECE_BYTES); // best effort: the next open may have no reserve
        }
    }

    /// Gives all but the last piece back. Returns true if the file was longer than the last piece.
    fn cut(&self) -> bool {
        let cut = self.dir.open(files::RESERVE, Access::ReadWrite).and_then(|file| {
            let more = file.len()? > LAST_PIECE_BYTES;
            if more { file.set_len(LAST_PIECE_BYTES).map(|()| true) } else { Ok(false) }
        });
        or_warn(cut)
    }

    /// Gives the space back to the disk, except the last piece. Returns true if there was space to give.
    pub(super) fn release(&self) -> bool {
        if *self.bytes.end() == 0 {
            return false;
        }
        let released = if self.has_last_piece() { self.cut() } else { release(&*self.dir) };
        if released {
            self.held.store(0, Ordering::SeqCst);
            tracing::warn!("the disk is full: the reserve is used for deletes and flushes");
        }
        released
    }
}

/// Removes the reserve's file; called while the database is not open. Returns true if the file existed.
pub(super) fn release(dir: &dyn Dir) -> bool {
    or_warn(dir.unlink(files::RESERVE).map(|()| true))
}

/// Whether space was given back. A missing file had none.
fn or_warn(released: std::io::Result<bool>) -> bool {
    released.unwrap_or_else(|error| {
        if error.kind() != std::io::ErrorKind::NotFound {
            tracing::warn!(%error, "the reserve could not be released");
        }
        false
    })
}
