//! Where the bytes of an open table come from: a map of the file, or reads.

use std::io;
use std::sync::Arc;

use tidesdb_io::{File, FileExt, ReadMap};

use crate::{Error, Result};

/// An open table file. Complete and never written again.
#[derive(Debug)]
pub(super) enum Source {
    /// The whole file in memory.
    Map(ReadMap),
    /// Read piece by piece.
    File(Arc<dyn File>),
}

/// A part of a file, read ahead of a walk.
#[derive(Debug, Default)]
pub(super) struct Window {
    at: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// `len` bytes at `at`, if they are in the window.
    pub(super) fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        slice(&self.bytes, at.checked_sub(self.at)?, len)
    }

    /// Forgets what was read; keeps the memory, but for what is longer than `kept` bytes.
    pub(super) fn clear(&mut self, kept: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > kept {
            self.bytes = Vec::new();
        }
    }
}

impl Source {
    /// The file, mapped if wished and possible, checked to be `len` bytes long.
    pub(super) fn open(file: Arc<dyn File>, use_mmap: bool, len: u64, name: &str) -> Result<Self> {
        let found = file.len().map_err(|e| Error::io("stat", name, e))?;
        if found != len {
            let what = format!("file has {found} bytes where {len} were written");
            return Err(Error::corrupt(name, found.min(len), what));
        }
        let map = if use_mmap { file.map_read().map_err(|e| Error::io("map", name, e))? } else { None };
        // A map that does not hold the whole file is of no use; the file was cut since its length was asked.
        match map {
            Some(map) if map.len() as u64 == len => Ok(Self::Map(map)),
            _ => Ok(Self::File(file)),
        }
    }

    /// `len` bytes at `at`: of the map, or read into `buf`.
    pub(super) fn read<'a>(
        &'a self,
        at: u64,
        len: usize,
        buf: &'a mut Vec<u8>,
        name: &str,
    ) -> Result<&'a [u8]> {
        match self {
            Self::Map(map) => {
                slice(map, at, len).ok_or_else(|| Error::corrupt(name, at, "file ends too early"))
            }
            Self::File(file) => {
                // Bytes of the read before are not cleared: the new ones take their place.
                buf.try_reserve_exact(len.saturating_sub(buf.len()))
                    .map_err(|_| Error::MemoryLimit { what: format!("reading {name}").into() })?;
                buf.resize(len, 0);
                read_exact(file, buf, at, name)?;
                Ok(buf)
            }
        }
    }

    /// `len` bytes at `at`: of the map, or of `window`; if they are not there, the window is read anew from `at` on, `ahead` bytes
    /// where that is more, but none at or after `end`.
    pub(super) fn read_ahead<'a>(
        &'a self,
        (at, len): (u64, usize),
        (ahead, end): (usize, u64),
        window: &'a mut Window,
        name: &str,
    ) -> Result<&'a [u8]> {
        if !matches!(self, Self::Map(_)) && window.get(at, len).is_none() {
            let ahead = ahead.min(usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX));
            // Not what it was before, should the read fail.
            window.at = u64::MAX;
            // A sector that cannot be read further ahead is no error of this piece.
            let read = self.read(at, ahead.max(len), &mut window.bytes, name).is_ok();
            if !read {
                self.read(at, len, &mut window.bytes, name)?;
            }
            window.at = at;
        }
        match self {
            Self::Map(map) => slice(map, at, len),
            Self::File(_) => window.get(at, len),
        }
        .ok_or_else(|| Error::corrupt(name, at, "file ends too early"))
    }

    /// The map, if the file is mapped.
    #[inline]
    pub(super) fn map(&self) -> Option<&[u8]> {
        match self {
            Self::Map(map) => Some(map),
            Self::File(_) => None,
        }
    }
}

/// `len` bytes at `at` of `bytes`, if they are there.
#[inline]
pub(super) fn slice(bytes: &[u8], at: u64, len: usize) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(len)?)
}

/// Fills `buf` from `at`.
fn read_exact(file: &Arc<dyn File>, buf: &mut [u8], at: u64, name: &str) -> Result<()> {
    file.read_exact_at(buf, at).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::corrupt(name, at, "file ends too early"),
        _ => Error::io_at("read", name, at, e),
    })
}
