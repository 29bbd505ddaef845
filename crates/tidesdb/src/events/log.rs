//! The event log: two files of bounded size in the database directory.
//!
//! Lines are appended to `EVENTS`. When it is full it becomes `EVENTS.old`, whose contents are lost. Nothing is synced: after a crash of the
//! machine lines may be missing or torn. The engine never reads the files.

use std::io;
use std::sync::Arc;

use tidesdb_io::{Access, Dir, File, FileExt};

use crate::files::{EVENTS, EVENTS_OLD};

/// Size of `EVENTS` at which a new file is begun.
pub(super) const BYTES_MAX: u64 = 2 << 20;

/// The file that is appended to.
#[derive(Debug)]
pub(super) struct EventLog {
    dir: Arc<dyn Dir>,
    /// `None` until the first line, and after a failure.
    file: Option<(Arc<dyn File>, u64)>,
}

impl EventLog {
    /// The event log in `dir`. Touches no file.
    pub(super) fn new(dir: &Arc<dyn Dir>) -> Self {
        Self { dir: Arc::clone(dir), file: None }
    }

    /// Appends `lines`, each of which ends with a line feed.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let (file, at) = match self.file.take() {
            Some(open) => open,
            None => self.open()?,
        };
        let (file, at) = if at >= BYTES_MAX { self.rotate()? } else { (file, at) };
        file.write_all_at(lines, at)?;
        self.file = Some((file, at + lines.len() as u64));
        Ok(())
    }

    fn open(&self) -> io::Result<(Arc<dyn File>, u64)> {
        let file = match self.dir.open(EVENTS, Access::ReadWrite) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((self.dir.create_new(EVENTS, 0)?, 0)),
            other => other?,
        };
        let len = file.len()?;
        let mut last = [b'\n'];
        if len > 0 {
            file.read_exact_at(&mut last, len - 1)?;
        }
        if last == [b'\n'] {
            return Ok((file, len));
        }
        file.write_all_at(b"\n", len)?; // ends a torn line
        Ok((file, len + 1))
    }

    fn rotate(&self) -> io::Result<(Arc<dyn File>, u64)> {
        self.dir.rename(EVENTS, EVENTS_OLD)?;
        Ok((self.dir.create_new(EVENTS, 0)?, 0))
    }
}
