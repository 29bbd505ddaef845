//! Sorted tables that one session builds outside of the database, next to its files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rocksdb::{Error, Options, SstFileWriter};

/// A table of at least this size is followed by another one.
const TABLE_BYTES: u64 = 256 << 20;

/// Number of tables that all sessions have begun.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

/// The tables of the open batch.
pub(crate) struct Tables<'a> {
    dir: &'a Path,
    options: &'a Options,
    open: Option<SstFileWriter<'a>>,
    files: Vec<PathBuf>,
    /// Size of the keys and values in the open table.
    bytes: u64,
}

impl<'a> Tables<'a> {
    pub(crate) fn new(dir: &'a Path, options: &'a Options) -> Self {
        Self { dir, options, open: None, files: Vec::new(), bytes: 0 }
    }

    /// Adds a row, behind all rows of the batch so far.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.bytes >= TABLE_BYTES {
            self.close()?;
        }
        if self.open.is_none() {
            let path = self.dir.join(format!("built-{}.sst", BEGUN.fetch_add(1, Ordering::Relaxed)));
            let writer = SstFileWriter::create(self.options);
            writer.open(&path)?;
            self.files.push(path);
            self.open = Some(writer);
        }
        self.bytes += (key.len() + value.len()) as u64;
        self.open.as_mut().map_or(Ok(()), |writer| writer.put(key, value))
    }

    /// Ends the batch; returns its tables.
    pub(crate) fn finish(&mut self) -> Result<Vec<PathBuf>, Error> {
        self.close()?;
        Ok(std::mem::take(&mut self.files))
    }

    fn close(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        self.open.take().map_or(Ok(()), |mut writer| writer.finish())
    }
}
