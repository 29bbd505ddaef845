//! [`TableFile`]: the bytes of an open table, mapped or read piece by piece.
//!
//! The file is complete and has the length that its description says; it is never written again. Its sections are handed out only
//! after their checksum, which is bound to the salt of the file and to their offset, has been verified.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb_io::{Access, Advice, File, FileExt, ReadMap};

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
    bytes: Bytes,
    name: String,
    meta: Arc<TableMeta>,
    /// Whether the database is closed.
    closed: Arc<AtomicBool>,
}

enum Bytes {
    /// The whole file, mapped into memory.
    Map(ReadMap),
    /// A file that is read piece by piece.
    File(Arc<dyn File>),
}

impl TableFile {
    /// Opens the file that `meta` describes and checks its length. Maps it if the context says so and the system can.
    pub(super) fn open(context: &TableContext, meta: Arc<TableMeta>) -> Result<Self> {
        let (name, len) = (files::table(meta.id), meta.file_bytes);
        let file = context.dir.open(&name, Access::Random).map_err(|e| Error::io("open", &name, e))?;
        let found = file.len().map_err(|e| Error::io("stat", &name, e))?;
        if found != len {
            let what = format!("the file has {found} bytes, but {len} were written");
            return Err(Error::corrupt(&name, found.min(len), what));
        }
        let map = match context.use_mmap {
            true => file.map_read().map_err(|e| Error::io("map", &name, e))?,
            false => None,
        };
        // A map that lacks a part of the file is useless: the file was truncated after its length was read.
        let bytes = match map {
            Some(map) if map.len() as u64 == len => Bytes::Map(map),
            _ => Bytes::File(file),
        };
        Ok(Self { bytes, name, meta, closed: Arc::clone(&context.closed) })
    }

    /// Returns the description of the table.
    pub(super) fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// Returns the name of the file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the map if the file is mapped.
    #[inline]
    pub(super) fn map(&self) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::Map(map) => Some(map),
            Bytes::File(_) => None,
        }
    }

    /// Returns `len` bytes at offset `at` of the map.
    #[inline]
    pub(super) fn mapped(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.map().and_then(|map| slice(map, at, len))
    }

    /// Returns `len` bytes at offset `at`, from the map or read into `buf`.
    pub(super) fn read<'a>(&'a self, at: u64, len: usize, buf: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let file = match &self.bytes {
            Bytes::Map(map) => return slice(map, at, len).ok_or_else(|| self.ends_early(at)),
            Bytes::File(file) => file,
        };
        // Old content is not cleared first, because the read overwrites it.
        buf.try_reserve_exact(len.saturating_sub(buf.len())).map_err(|_| self.no_memory())?;
        buf.resize(len, 0);
        file.read_exact_at(buf, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.ends_early(at),
            io::ErrorKind::NotFound if self.closed.load(Ordering::SeqCst) => Error::Closed,
            _ => Error::io_at("read", &self.name, at, e),
        })?;
        Ok(buf)
    }

    /// Reads `len` bytes at offset `at` into `buf`, and returns where they came from.
    pub(super) fn read_from(&self, at: u64, len: usize, buf: &mut Vec<u8>) -> Result<ReadOrigin> {
        if let Some(map) = self.map() {
            let bytes = slice(map, at, len).ok_or_else(|| self.ends_early(at))?;
            buf.clear();
            buf.extend_from_slice(bytes);
            return Ok(ReadOrigin::Map);
        }
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
        match self.mapped(range.start, len) {
            Some(bytes) => {
                buf.try_reserve_exact(len).map_err(|_| self.no_memory())?;
                buf.extend_from_slice(bytes);
            }
            None => drop(self.read(range.start, len, &mut buf)?),
        }
        Ok(buf)
    }

    /// Reads `len` bytes at offset `at` into `buf` if all of them are in the system's page cache. Errors are left to a later read.
    pub(super) fn read_cached(&self, at: u64, len: usize, buf: &mut Vec<u8>) -> bool {
        let Bytes::File(file) = &self.bytes else { return false };
        if buf.try_reserve_exact(len.saturating_sub(buf.len())).is_err() {
            return false;
        }
        buf.resize(len, 0);
        matches!(file.read_cached_at(buf, at), Ok(Some(read)) if read == len)
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
        if let Bytes::File(file) = &self.bytes {
            let _ = file.advise(advice, at, len as u64);
        }
    }

    /// Returns whether most of the first `len` bytes are in the system's page cache, according to a sample.
    pub(super) fn is_in_page_cache(&self, len: u64) -> bool {
        let Bytes::File(file) = &self.bytes else { return true };
        let cached = |i: &u64| file.is_cached(i * (len / SAMPLES)).unwrap_or(true);
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
