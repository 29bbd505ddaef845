//! Values in chunks, read as a whole.
//!
//! The chunks are read in parallel: helpers read some into memory of their own, which the caller copies, and the caller reads the
//! others into their places.

use std::mem;
use std::sync::Arc;

use super::file::VlogFile;
use super::{ChunkIndex, ChunkedPlace, VlogPointer, VlogSet};
use crate::value_threads::Helpers;
use crate::{Error, Result};

/// Values of fewer chunks are read by the caller alone: threads would not pay.
const HELPED_CHUNKS_MIN: usize = 6;

/// A chunk for a helper: its number, where it lies, and memory to read it into.
type Wanted = (usize, Arc<VlogFile>, VlogPointer, Vec<u8>);
type Loaded = (usize, Vec<u8>, Result<()>);

impl VlogSet {
    /// Returns the chunk index of the value at `place`.
    ///
    /// # Errors
    /// As [`VlogSet::read`]; `Corrupt` if the index contradicts itself or `place`.
    pub fn read_index(&self, place: &ChunkedPlace) -> Result<ChunkIndex> {
        let file = self.file(place.index.vlog)?;
        let bytes = file.read(&place.index)?;
        ChunkIndex::decode(&bytes, place).map_err(|what| file.damaged(&place.index, what))
    }

    /// Checks that the files have every chunk of the value at `place`: that they are long enough or, if `thorough`, that each
    /// record is intact. Passes the index to `visit`, and each chunk that passed the check.
    ///
    /// # Errors
    /// As [`VlogSet::read_index`].
    pub fn check_chunks(
        &self,
        place: &ChunkedPlace,
        thorough: bool,
        mut visit: impl FnMut(&VlogPointer),
    ) -> Result<()> {
        let index = self.read_index(place)?;
        visit(&place.index);
        index.chunks().iter().try_for_each(|chunk| {
            let file = self.file(chunk.vlog)?;
            if thorough { file.check(chunk) } else { file.check_range(chunk) }?;
            visit(chunk); // after the check: recovery writes the visited bytes again, so they must exist
            Ok(())
        })
    }

    /// Calls `visit` with each chunk of the value at `place`, in order.
    ///
    /// # Errors
    /// As [`VlogSet::read_index`]; those of `visit`.
    pub fn read_chunks(
        &self,
        place: &ChunkedPlace,
        mut visit: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let index = self.read_index(place)?;
        let mut chunk = Vec::new();
        index.chunks().iter().try_for_each(|pointer| {
            self.read_into(pointer, &mut chunk)?;
            visit(&chunk)
        })
    }

    /// Returns the value at `place`, of `len` bytes. Uses the memory of `value` if it is enough.
    ///
    /// # Errors
    /// As [`VlogSet::read_index`]; `MemoryLimit`.
    pub fn read_whole(&self, place: &ChunkedPlace, len: usize, mut value: Vec<u8>) -> Result<Vec<u8>> {
        let index = self.read_index(place)?;
        let no_memory = |_| Error::MemoryLimit { what: "reading a value".into() };
        match value.capacity() >= len {
            true => value.resize(len, 0),
            false => {
                drop(mem::take(&mut value)); // before more memory is taken
                value = tidesdb_io::zeroed(len).map_err(no_memory)?;
            }
        }
        let mut parts: Vec<&mut [u8]> = value.chunks_mut(index.chunk_bytes()).collect();
        let mut helpers = self.helpers_for(index.chunks().len());
        let mut spare = Vec::new();
        let keep = |parts: &mut [&mut [u8]], (number, bytes, read): Loaded| -> Result<Vec<u8>> {
            read.map(|()| parts[number].copy_from_slice(&bytes))?;
            Ok(bytes)
        };
        for (number, pointer) in index.chunks().iter().enumerate() {
            let file = self.file(pointer.vlog)?;
            if let Some(done) = helpers.as_mut().and_then(Helpers::take) {
                spare = keep(&mut parts, done)?;
            }
            match helpers.as_mut().filter(|helpers| helpers.have_room()) {
                Some(helpers) => helpers.give((number, file, *pointer, mem::take(&mut spare)))?,
                None => file.read_to(pointer, parts[number])?,
            }
        }
        while let Some(done) = helpers.as_mut().map_or(Ok(None), Helpers::wait)? {
            keep(&mut parts, done)?;
        }
        Ok(value)
    }

    fn helpers_for(&self, chunks: usize) -> Option<Helpers<Wanted, Loaded>> {
        let threads = self.threads().filter(|_| chunks >= HELPED_CHUNKS_MIN)?;
        let load = |(number, file, pointer, mut bytes): Wanted| {
            bytes.resize(pointer.raw_len as usize, 0);
            let read = file.read_to(&pointer, &mut bytes);
            (number, bytes, read)
        };
        Some(Helpers::start(&**threads, load))
    }
}
