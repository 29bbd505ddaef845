//! The interface of an object store: blocking calls. Four are enough for a continuous copy; backups need conditional puts as well.

mod contained;
mod directory;
mod memory;

use std::fmt::{self, Debug};
use std::io;
use std::ops::Range;

pub(crate) use contained::contain;
pub use directory::DirectoryStore;
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

    /// Like [`ObjectStore::get`], for the bytes in `range`. A range that ends after the object is an error.
    ///
    /// # Errors
    /// As [`ObjectStore::get`]; `UnexpectedEof` for a range beyond the end.
    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = 0;
        self.get(name, &mut |piece| {
            let within = |at: u64| at.clamp(range.start, range.end.max(range.start));
            let (from, to) = (within(at), within(at + piece.len() as u64));
            let begin = at;
            at += piece.len() as u64;
            if from < to { sink(&piece[(from - begin) as usize..(to - begin) as usize]) } else { Ok(()) }
        })?;
        if at < range.end { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Like [`ObjectStore::get`], and returns the tag of what was read.
    ///
    /// # Errors
    /// As [`ObjectStore::get`]; `Unsupported` if the store has no tags.
    fn get_tagged(&self, _name: &str, _sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        Err(unconditional())
    }

    /// Like [`ObjectStore::put`] if `condition` holds. The look and the put are one step for all processes that use the store. Returns the
    /// tag of the new object; `None` if the condition does not hold: then nothing has changed.
    ///
    /// # Errors
    /// `Unsupported` if the store has no conditional puts. After any other error the object may be stored or not.
    fn put_if(&self, _name: &str, _body: &Body<'_>, _condition: Condition<'_>) -> io::Result<Option<Tag>> {
        Err(unconditional())
    }

    /// Removes what puts that never ended have left, such as the parts of an upload. A put of another process that has not ended may fail.
    ///
    /// # Errors
    /// Any.
    fn remove_unfinished(&self) -> io::Result<()> {
        Ok(())
    }
}

fn unconditional() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the object store has no conditional puts")
}

/// Identifies what an object held when it was read or stored. Only the store that made it can tell what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(pub String);

/// What must hold for [`ObjectStore::put_if`].
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// There is no object of the name.
    Absent,
    /// The object has this tag.
    Tagged(&'a Tag),
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name of the object.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// The bytes of an object to store: a range of a file, bytes in memory, or what a function reads. A store may read any part of it, and any
/// part again.
#[derive(Debug)]
pub struct Body<'a> {
    source: Source<'a>,
    len: u64,
}

/// Fills a buffer from an offset.
type ReadAt<'a> = &'a (dyn Fn(&mut [u8], u64) -> io::Result<()> + Sync);

enum Source<'a> {
    Bytes(&'a [u8]),
    File { file: &'a dyn File, from: u64 },
    Read(ReadAt<'a>),
}

impl Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes(_) => "Bytes",
            Self::File { .. } => "File",
            Self::Read(_) => "Read",
        })
    }
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

    /// `len` bytes, of which `read` fills any buffer from any offset.
    pub fn read(len: u64, read: &'a (dyn Fn(&mut [u8], u64) -> io::Result<()> + Sync)) -> Self {
        Self { source: Source::Read(read), len }
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
            Source::Read(read) => read(buf, at)?,
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
