//! [`TableFile`]: the bytes of an open table, read piece by piece.
//!
//! The file is complete and has the length that its description says; it is never written again. Its sections are handed out only
//! after their checksum, which is bound to the salt of the file and to their offset, has been verified.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb_io::{Access, Advice, File, FileExt};

use super::layout::open_section;
use super::parts::TableContext;
use super::props::TableMeta;
use super::steps::ReadOrigin;
use crate::codec::{Decoder, bound_crc};
use crate::{Error, Result, files};

/// Number of offsets at which the page cache is sampled.
const SAMPLES: u64 = 16;

/// An open table file.
pub(super) struct TableFile {
    file: Arc<dyn File>,
    name: String,
    meta: Arc<TableMeta>,
    /// Whether the database is closed.
    closed: Arc<AtomicBool>,
}

impl TableFile {
    /// Opens the file that `meta` describes and checks its length.
    pub(super) fn open(context: &TableContext, meta: Arc<TableMeta>) -> Result<Self> {
        let (name, len) = (files::table(meta.id), meta.file_bytes);
        let file = context.dir.open(&name, Access::Random).map_err(|e| Error::io("open", &name, e))?;
        let found = file.len().map_err(|e| Error::io("stat", &name, e))?;
        if found != len {
            let what = format!("the file has {found} bytes, but {len} were written");
            return Err(Error::corrupt(&name, found.min(len), what));
        }
        Ok(Self { file, name, meta, closed: Arc::clone(&context.closed) })
    }

    /// Returns the description of the table.
    pub(super) fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// Replaces the description, which says the same of the bytes of the file.
    pub(super) fn set_meta(&mut self, meta: Arc<TableMeta>) {
        self.meta = meta;
    }

    /// Returns the name of the file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns `len` bytes at offset `at`, read into `buf`.
    pub(super) fn read<'a>(&'a self, at: u64, len: usize, buf: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        // Old content is not cleared first, because the read overwrites it.
        buf.try_reserve_exact(len.saturating_sub(buf.len())).map_err(|_| self.no_memory())?;
        buf.resize(len, 0);
        self.file.read_exact_at(buf, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.ends_early(at),
            io::ErrorKind::NotFound if self.closed.load(Ordering::SeqCst) => Error::Closed,
            _ => Error::io_at("read", &self.name, at, e),
        })?;
        Ok(buf)
    }

    /// Reads `len` bytes at offset `at` into `buf`, and returns where they came from.
    pub(super) fn read_from(&self, at: u64, len: usize, buf: &mut Vec<u8>) -> Result<ReadOrigin> {
        if self.read_cached(at, len, buf) {
            return Ok(ReadOrigin::PageCache);
        }
        self.read(at, len, buf)?;
        Ok(ReadOrigin::Device)
    }

    /// Returns the bytes of a range.
    pub(super) fn read_range(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let len = usize::try_from(range.end - range.start)
            .map_err(|_| self.corrupt(range.start, "section too long"))?;
        let mut buf = Vec::new();
        self.read(range.start, len, &mut buf)?;
        Ok(buf)
    }

    /// Reads `len` bytes at offset `at` into `buf` if all of them are in the system's page cache. Errors are left to a later read.
    pub(super) fn read_cached(&self, at: u64, len: usize, buf: &mut Vec<u8>) -> bool {
        if buf.try_reserve_exact(len.saturating_sub(buf.len())).is_err() {
            return false;
        }
        buf.resize(len, 0);
        matches!(self.file.read_cached_at(buf, at), Ok(Some(read)) if read == len)
    }

    /// Starts loading `len` bytes at offset `at`, so that a read shortly afterwards waits less. Errors are left to that
    /// read.
    pub(super) fn load_ahead(&self, at: u64, len: usize) {
        self.advise(Advice::WillNeed, at, len);
    }

    /// Asks the system to drop `len` bytes at offset `at`, which were read, from its page cache.
    pub(super) fn drop_cached(&self, at: u64, len: usize) {
        self.advise(Advice::DontNeed, at, len);
    }

    fn advise(&self, advice: Advice, at: u64, len: usize) {
        let _ = self.file.advise(advice, at, len as u64);
    }

    /// Returns whether most of the first `len` bytes are in the system's page cache, according to a sample.
    pub(super) fn is_in_page_cache(&self, len: u64) -> bool {
        let cached = |i: &u64| self.file.is_cached(i * (len / SAMPLES)).unwrap_or(true);
        (0..SAMPLES).filter(cached).count() as u64 * 2 > SAMPLES
    }

    /// Returns whether the bytes at offset `at` have this checksum.
    #[inline]
    pub(super) fn is_intact(&self, at: u64, bytes: &[u8], crc: u32) -> bool {
        bound_crc(&self.meta.salt, at, &[bytes]) == crc
    }

    /// Returns what follows the checksum with which the section at offset `at` begins, and verifies it.
    pub(super) fn body<'a>(&self, at: u64, section: &'a [u8], what: &str) -> Result<&'a [u8]> {
        open_section(&self.meta.salt, at, section, &self.name, what)
    }

    /// Returns a decoder of the verified section at offset `at`.
    pub(super) fn section<'a>(&'a self, at: u64, section: &'a [u8], what: &str) -> Result<Decoder<'a>> {
        Ok(Decoder::new(self.body(at, section, what)?, &self.name, at))
    }

    #[cold]
    pub(super) fn corrupt(&self, at: u64, what: &str) -> Error {
        Error::corrupt(&self.name, at, what)
    }

    #[cold]
    pub(super) fn no_memory(&self) -> Error {
        Error::MemoryLimit { what: format!("reading {}", self.name).into() }
    }

    #[cold]
    pub(super) fn ends_early(&self, at: u64) -> Error {
        self.corrupt(at, "unexpected end of file")
    }
}

/// Returns `len` bytes at offset `at` of `bytes`, if they exist.
#[inline]
pub(super) fn slice(bytes: &[u8], at: u64, len: usize) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(len)?)
}
