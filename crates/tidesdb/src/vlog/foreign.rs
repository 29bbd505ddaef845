//! A value log that is written outside of a database, beside a table that is built there: the database that takes the table gives it a number.

use std::io::Read;
use std::sync::Arc;

use tidesdb_io::Dir;

use super::file::VlogFile;
use super::{CHUNK_BYTES, CHUNKED_BYTES_MAX, ChunkIndex, ChunkedPlace, VlogPointer};
use crate::codec::{Compression, Salt};
use crate::{Error, Result};

/// The values of one table, written by one thread.
#[derive(Debug)]
pub struct ForeignValues {
    name: String,
    file: VlogFile,
}

impl ForeignValues {
    /// Creates the file `name`. The salt must be new.
    ///
    /// # Errors
    /// `Io` if the file exists or cannot be created.
    pub fn create(dir: &Arc<dyn Dir>, name: String, salt: Salt) -> Result<Self> {
        let file = VlogFile::create_foreign(&**dir, &name, salt)?;
        Ok(Self { name, file })
    }

    /// Appends `value` and returns where it lies.
    ///
    /// # Errors
    /// `InvalidArgument` for a value of more than 4 GiB; `Io`.
    pub fn append(&self, value: &[u8], compression: Compression) -> Result<VlogPointer> {
        let full = || Error::internal(format!("{} is full", self.name));
        self.file.append(value, compression)?.ok_or_else(full)
    }

    /// Appends the value that `source` yields up to its end, in chunks, and returns where it lies. Calls `before` with the length of each chunk
    /// before it is written.
    ///
    /// # Errors
    /// `InvalidArgument` for a value of more than 16 TiB; `Io`, also from `source`; those of `before`.
    pub fn append_from(
        &self,
        source: &mut dyn Read,
        compression: Compression,
        before: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<ChunkedPlace> {
        let mut index = ChunkIndex::new(CHUNK_BYTES as u32);
        let (mut chunk, mut len) = (Vec::with_capacity(CHUNK_BYTES), 0);
        loop {
            chunk.clear();
            let read = (&mut *source).take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
            read.map_err(|e| Error::io("read", "the value of a row", e))?;
            if chunk.is_empty() {
                break;
            }
            len += chunk.len() as u64;
            if len > CHUNKED_BYTES_MAX {
                return Err(Error::invalid(format!("a value is longer than {CHUNKED_BYTES_MAX} bytes")));
            }
            before(chunk.len() as u64)?;
            index.push(self.append(&chunk, compression)?);
        }
        debug_assert!(len > 0, "the caller refuses an empty value");
        let pointer = self.append(&index.encode(), compression)?;
        Ok(index.place(pointer))
    }

    /// Makes the values durable. Returns salt and length of the file.
    ///
    /// # Errors
    /// `Io`.
    pub fn finish(&self) -> Result<(Salt, u64)> {
        self.file.close();
        self.file.sync()?;
        Ok((self.file.salt, self.file.settled_len()))
    }
}
