//! Values in chunks, read as a whole.

use std::mem;

use super::format::UNNUMBERED;
use super::{ChunkIndex, ChunkedPlace, VlogPointer, VlogSet};
use crate::{Error, Result};

impl VlogSet {
    /// Returns the chunk index of the value at `place`.
    ///
    /// # Errors
    /// As [`VlogSet::read`]; `Corrupt` if the index contradicts itself or `place`.
    pub fn read_index(&self, place: &ChunkedPlace) -> Result<ChunkIndex> {
        let file = self.file(place.index.vlog)?;
        let bytes = file.read(&place.index)?;
        let index = match file.is_foreign() {
            false => ChunkIndex::decode(&bytes, place),
            true => {
                let in_file = ChunkIndex::decode(&bytes, &place.clone().in_file(UNNUMBERED));
                in_file.map(|index| index.in_file(place.index.vlog))
            }
        };
        index.map_err(|what| file.damaged(&place.index, what))
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
            self.check(chunk, thorough)?;
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
        let parts = index.chunks().iter().zip(value.chunks_mut(index.chunk_bytes()));
        self.in_parallel(parts, |_, (pointer, part)| self.file(pointer.vlog)?.read_to(pointer, part))?;
        Ok(value)
    }
}
