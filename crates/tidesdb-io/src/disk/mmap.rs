//! Memory maps of files that a process writes: writable ones, and one that only reads what another process writes.
//!
//! Invariants: a map is accessed through 8-byte atomics only, so writers that overlap by mistake mix their
//! bytes but cause no data race. The atomics are relaxed: a writer that passes its bytes to another thread to
//! sync them must do so through an operation that orders memory.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::system::{Handle, Mapping};
use crate::vfs::for_reading;
use crate::{Advice, File, SharedMap};

/// Bytes in a word of a writable map.
const WORD: usize = size_of::<u64>();

/// The error for a range that does not lie inside a map or file.
pub(super) fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "range outside the file")
}

/// A writable shared map of a file.
#[derive(Debug)]
pub(super) struct RealSharedMap(Mapping);

impl RealSharedMap {
    /// Maps `[0, len)`, which must not be empty and must lie inside the file.
    pub(super) fn new(file: &Handle, len: u64) -> io::Result<Self> {
        let map = Mapping::new(file, len, true)?;
        map.expect_order(false);
        Ok(Self(map))
    }

    /// Returns the range as indices, or an error if it is not inside the map.
    fn range(&self, offset: u64, len: u64) -> io::Result<(usize, usize)> {
        let end = offset.checked_add(len).filter(|&end| end <= self.0.len() as u64).ok_or_else(outside)?;
        // Both fit: `end` is at most `len`, a usize.
        Ok((usize::try_from(offset).map_err(|_| outside())?, usize::try_from(end).map_err(|_| outside())?))
    }

    /// Returns the memory as words. The last word may extend past `len`, but never past the last mapped page.
    fn words(&self) -> &[AtomicU64] {
        words(&self.0)
    }
}

/// Returns the memory of `map` as words. The last word may extend past its length, but never past the last mapped page.
/// Only loads are allowed if the map is not writable.
fn words(map: &Mapping) -> &[AtomicU64] {
    // SAFETY: `base` is page-aligned, so aligned for a word; the kernel maps whole pages and a page is a multiple of a
    // word, so `len` rounded up to a word is mapped while `map` lives. Every access of this process to the memory of
    // the maps of this file goes through these atomics of one size; a relaxed load writes nothing.
    unsafe { std::slice::from_raw_parts(map.base().as_ptr().cast::<AtomicU64>(), map.len().div_ceil(WORD)) }
}

/// A file that is read through a map and holds no descriptor. It has the length that the file had when it was mapped.
#[derive(Debug)]
pub(super) struct MappedFile(Mapping);

impl MappedFile {
    /// Maps `[0, len)`, which must not be empty and must lie inside the file. The file must never become shorter.
    pub(super) fn new(file: &Handle, len: u64) -> io::Result<Self> {
        Mapping::new(file, len, false).map(Self)
    }
}

impl File for MappedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = self.0.len() as u64;
        let Some(left) = len.checked_sub(offset).filter(|left| *left > 0) else { return Ok(0) };
        let count = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let start = usize::try_from(offset).map_err(|_| outside())?;
        let mut words = words(&self.0)[start / WORD..].iter();
        let mut at = start % WORD;
        let mut rest = &mut buf[..count];
        while !rest.is_empty()
            && let Some(word) = words.next()
        {
            let bytes = word.load(Ordering::Relaxed).to_le().to_le_bytes(); // as they are in memory
            let n = (WORD - at).min(rest.len());
            rest[..n].copy_from_slice(&bytes[at..at + n]);
            rest = &mut rest[n..];
            at = 0;
        }
        Ok(count)
    }

    fn read_cached_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn sync_data(&self) -> io::Result<()> {
        for_reading()
    }

    fn sync_all(&self) -> io::Result<()> {
        for_reading()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_cached(&self, _offset: u64) -> io::Result<bool> {
        Ok(true)
    }
}

/// Stores `bytes` at byte `at` of `word` and leaves the other bytes of the word to concurrent writers. Rarely needed: records of the log
/// consist of whole words.
#[cold]
fn store_part(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let mut value = [0; WORD];
    let mut mask = [0; WORD];
    value[at..at + bytes.len()].copy_from_slice(bytes);
    mask[at..at + bytes.len()].fill(0xFF);
    let (value, mask) = (native(value), native(mask));
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(old, (old & !mask) | value, Ordering::Relaxed, Ordering::Relaxed)
    {
        old = now;
    }
}

/// Returns the word whose bytes in memory are `bytes`.
fn native(bytes: [u8; WORD]) -> u64 {
    u64::from_le_bytes(bytes).to_le()
}

impl SharedMap for RealSharedMap {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (start, end) = self.range(offset, bytes.len() as u64)?;
        let words = &self.words()[start / WORD..end.div_ceil(WORD)];
        let head_len = start.wrapping_neg() % WORD;
        let (head, rest) = bytes.split_at(head_len.min(bytes.len()));
        let (body, tail) = rest.as_chunks::<WORD>();
        let (first, words) = words.split_at(usize::from(!head.is_empty()));
        if let [word] = first {
            store_part(word, start % WORD, head);
        }
        // Two slices in step: the compiler unrolls this loop.
        for (word, chunk) in words.iter().zip(body) {
            word.store(native(*chunk), Ordering::Relaxed);
        }
        if let [word] = &words[body.len()..]
            && !tail.is_empty()
        {
            store_part(word, 0, tail);
        }
        Ok(())
    }

    fn expect_order(&self) {
        self.0.expect_order(true);
    }

    fn release(&self) -> io::Result<()> {
        self.0.release()
    }
}
