//! The bytes of an open table: a mapped file, or reads of the file.

use std::io;
use std::sync::Arc;

use tidesdb_io::{Advice, File, FileExt, ReadMap};

use crate::{Error, Result};

/// An open table file. It is complete and never written again.
#[derive(Debug)]
pub(super) enum Source {
    /// The whole file, mapped into memory.
    Map(ReadMap),
    /// A file that is read piece by piece.
    File(Arc<dyn File>),
}

impl Source {
    /// Opens the file and checks that it is `len` bytes long. Maps it if `use_mmap` is set and the system can.
    pub(super) fn open(file: Arc<dyn File>, use_mmap: bool, len: u64, name: &str) -> Result<Self> {
        let found = file.len().map_err(|e| Error::io("stat", name, e))?;
        if found != len {
            let what = format!("the file has {found} bytes, but {len} were written");
            return Err(Error::corrupt(name, found.min(len), what));
        }
        let map = if use_mmap { file.map_read().map_err(|e| Error::io("map", name, e))? } else { None };
        // A map that lacks a part of the file is useless: the file was truncated after its length was read.
        match map {
            Some(map) if map.len() as u64 == len => Ok(Self::Map(map)),
            _ => Ok(Self::File(file)),
        }
    }

    /// Returns `len` bytes at offset `at`, from the map or read into `buf`.
    pub(super) fn read<'a>(
        &'a self,
        at: u64,
        len: usize,
        buf: &'a mut Vec<u8>,
        name: &str,
    ) -> Result<&'a [u8]> {
        match self {
            Self::Map(map) => {
                slice(map, at, len).ok_or_else(|| Error::corrupt(name, at, "unexpected end of file"))
            }
            Self::File(file) => {
                // Old content is not cleared first, because the read overwrites it.
                buf.try_reserve_exact(len.saturating_sub(buf.len()))
                    .map_err(|_| Error::MemoryLimit { what: format!("reading {name}").into() })?;
                buf.resize(len, 0);
                read_exact(file, buf, at, name)?;
                Ok(buf)
            }
        }
    }

    /// Reads `len` bytes at offset `at` into `buf` if all of them are in the system's page cache. Errors are left to a later read.
    pub(super) fn read_cached(&self, at: u64, len: usize, buf: &mut Vec<u8>) -> bool {
        let Self::File(file) = self else { return false };
        if buf.try_reserve_exact(len.saturating_sub(buf.len())).is_err() {
            return false;
        }
        buf.resize(len, 0);
        matches!(file.read_cached_at(buf, at), Ok(Some(read)) if read == len)
    }

    /// Starts loading `len` bytes at offset `at`, so that a read shortly afterwards waits less. Errors are left to that
    /// read.
    pub(super) fn load_ahead(&self, at: u64, len: usize) {
        if let Self::File(file) = self {
            let _ = file.advise(Advice::WillNeed, at, len as u64);
        }
    }

    /// Asks the system to drop `len` bytes at offset `at`, which were read, from its page cache.
    pub(super) fn drop_cached(&self, at: u64, len: usize) {
        if let Self::File(file) = self {
            let _ = file.advise(Advice::DontNeed, at, len as u64);
        }
    }

    /// Returns the map if the file is mapped.
    #[inline]
    pub(super) fn map(&self) -> Option<&[u8]> {
        match self {
            Self::Map(map) => Some(map),
            Self::File(_) => None,
        }
    }
}

/// Returns `len` bytes at offset `at` of `bytes`, if they exist.
#[inline]
pub(super) fn slice(bytes: &[u8], at: u64, len: usize) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(len)?)
}

/// Fills `buf` with the bytes at offset `at`.
fn read_exact(file: &Arc<dyn File>, buf: &mut [u8], at: u64, name: &str) -> Result<()> {
    file.read_exact_at(buf, at).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::corrupt(name, at, "unexpected end of file"),
        _ => Error::io_at("read", name, at, e),
    })
}
