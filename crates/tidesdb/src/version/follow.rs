//! Reads a manifest that another process may be writing.
//!
//! Only records that a complete mark covers are used: their bytes were durable before the mark was written, and are
//! never written again. Bytes after them are an append in progress and are not read. So there is no torn tail here;
//! an invalid record below a mark is damage.
//!
//! The writer may begin a new manifest at any time. `CURRENT` is read first, so the manifest read is in force at that
//! moment; if it cannot be read, `CURRENT` is read again, and the failure is reported only if it still names the same
//! manifest.

use std::sync::Arc;

use tidesdb_io::{Dir, File};

use super::current::{Current, in_force};
use super::format::{Header, Identity, Mark, PAGE, RECORDS_AT, page_up};
use super::replay::{ManifestFile, Replayed, check_state, open_file};
use super::state::State;
use crate::{Error, Result, files};

/// Number of times that the marks are read before the lack of a complete one is an error. A mark is torn only while
/// the writer writes it.
const MARK_TRIES: u32 = 100;

/// A manifest and how far it was read.
#[derive(Debug)]
pub struct ManifestTail {
    current: Current,
    file: Arc<dyn File>,
    name: String,
    header: Header,
    replayed: Replayed,
}

impl ManifestTail {
    /// Reads the manifest in force.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Corrupt`, `FormatTooNew`, `Io`.
    pub fn open(dir: &dyn Dir) -> Result<Self> {
        let mut current = in_force(dir)?;
        loop {
            match Self::begin(dir, current) {
                Ok(this) => return Ok(this),
                Err(e) => match in_force(dir)? {
                    now if now == current => return Err(e),
                    now => current = now,
                },
            }
        }
    }

    /// Reads what was added since. Returns whether anything was.
    ///
    /// # Errors
    /// As [`ManifestTail::open`]. The state stays as it was.
    pub fn poll(&mut self, dir: &dyn Dir) -> Result<bool> {
        if in_force(dir)? == self.current {
            let before = self.replayed.records;
            match self.advance() {
                Ok(()) => return Ok(self.replayed.records != before),
                Err(e) if in_force(dir)? == self.current => return Err(e),
                Err(_) => {}
            }
        }
        let now = Self::open(dir)?;
        if now.identity().uuid != self.identity().uuid {
            return Err(Error::corrupt(files::CURRENT, 0, "the directory contains another database by now"));
        }
        *self = now;
        Ok(true)
    }

    /// The state after the records read.
    pub fn state(&self) -> &State {
        &self.replayed.state
    }

    /// What was fixed when the database was created.
    pub fn identity(&self) -> Identity {
        self.header.identity
    }

    /// Name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn begin(dir: &dyn Dir, current: Current) -> Result<Self> {
        let name = files::manifest(current.number);
        let (file, header) = open_file(dir, &name, current.number, Some(&current))?;
        let mut this = Self { current, file, name, header, replayed: Replayed::new(&header) };
        this.advance()?;
        check_state(this.state(), &this.header, &this.name)?;
        Ok(this)
    }

    /// Applies the records that the newest mark covers.
    fn advance(&mut self) -> Result<()> {
        let mark = self.newest_mark()?;
        if mark.number <= self.replayed.records {
            return Ok(());
        }
        // The length is read after the mark, which speaks of the length at the time of its append.
        let file_bytes = self.file.len().map_err(|e| Error::io("length", &self.name, e))?;
        let source = ManifestFile { file: &*self.file, name: &self.name, file_bytes };
        source.check_mark(&mark)?;
        let limit = page_up(mark.end);
        let mut replayed = self.replayed.clone();
        while replayed.records < mark.number {
            let record = replayed.durable_record(&source, &self.header.salt, limit)?;
            replayed.apply(&record, &self.name, &mut |_, _| {})?;
        }
        if replayed.chain != mark.chain || replayed.next != limit {
            return Err(Error::corrupt(&self.name, replayed.next, "a record does not match its mark"));
        }
        self.replayed = replayed;
        Ok(())
    }

    fn newest_mark(&self) -> Result<Mark> {
        // Grows only; the marks are always inside.
        let source = ManifestFile { file: &*self.file, name: &self.name, file_bytes: RECORDS_AT };
        for _ in 0..MARK_TRIES {
            let marks = source.marks(&self.header.salt)?;
            if let Some(newest) = marks.into_iter().max_by_key(|mark| mark.number) {
                return Ok(newest);
            }
        }
        Err(Error::corrupt(&self.name, PAGE, "no mark is complete"))
    }
}
