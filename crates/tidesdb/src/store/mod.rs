//! The interface of an object store: four blocking calls.

mod contained;
mod memory;

use std::fmt::Debug;
use std::io;

pub(crate) use contained::contain;
pub use memory::MemoryStore;
use tidesdb_io::{File, FileExt};

/// A store of named objects. Calls block; any thread may make them, several at a time.
///
/// A `put` must be atomic: readers find the whole new object, or the previous one. When it has returned, the object is
/// as durable as the store ever makes it. Names consist of ASCII letters, digits and dots.
///
/// A panic in a call is treated as an error of the call.
pub trait ObjectStore: Send + Sync + Debug {
    /// Stores `body` under `name`, replacing an existing object.
    ///
    /// # Errors
    /// Any: the call is repeated later.
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()>;

    /// Passes the bytes of an object to `sink`, in order, in pieces of any size.
    ///
    /// # Errors
    /// `NotFound` if there is no such object; the error of `sink`; any other.
    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;

    /// All objects.
    ///
    /// # Errors
    /// Any. An incomplete list must be an error.
    fn list(&self) -> io::Result<Vec<Object>>;

    /// Removes an object. Removing a missing object is not an error.
    ///
    /// # Errors
    /// Any: the call is repeated later.
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name of the object.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// The bytes of an object to store: a range of a file, or bytes in memory.
#[derive(Debug)]
pub struct Body<'a> {
    source: Source<'a>,
    len: u64,
}

#[derive(Debug)]
enum Source<'a> {
    Bytes(&'a [u8]),
    File { file: &'a dyn File, from: u64 },
}

impl<'a> Body<'a> {
    /// A body of these bytes.
    pub fn bytes(bytes: &'a [u8]) -> Self {
        Self { source: Source::Bytes(bytes), len: bytes.len() as u64 }
    }

    /// `len` bytes of `file` from the offset `from` on.
    pub fn file(file: &'a dyn File, from: u64, len: u64) -> Self {
        Self { source: Source::File { file, from }, len }
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `buf` from the offset `at`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the body ends first; those of reading the file.
    pub fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(buf.len() as u64).filter(|end| *end <= self.len);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        match &self.source {
            Source::Bytes(bytes) => buf.copy_from_slice(&bytes[at as usize..end as usize]),
            Source::File { file, from } => file.read_exact_at(buf, from + at)?,
        }
        Ok(())
    }

    /// Passes all bytes to `sink`, at most `piece` bytes at a time.
    ///
    /// # Errors
    /// Errors of reading the file and of `sink`.
    pub fn for_each(&self, piece: usize, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buf = vec![0; (piece.max(1) as u64).min(self.len) as usize];
        let mut at = 0;
        while at < self.len {
            let n = (buf.len() as u64).min(self.len - at) as usize;
            self.read_exact_at(&mut buf[..n], at)?;
            sink(&buf[..n])?;
            at += n as u64;
        }
        Ok(())
    }
}
