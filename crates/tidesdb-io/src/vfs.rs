//! The traits a disk implements: [`Disk`] opens directories, [`Dir`] holds names, [`File`] holds bytes.
//!
//! A directory is held by descriptor, and names are single path components made by the engine, so no
//! name that a user chose ever becomes a path. Every error is an [`io::Error`] that keeps the errno of the system.

#![expect(
    clippy::missing_errors_doc,
    reason = "all fail as the system does; the docs name the errors with a meaning"
)]

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    Read,
    /// Reads only, short pieces here and there: the system should read nothing but what is asked for.
    Random,
    /// Reads and writes.
    ReadWrite,
}

/// Free and total bytes of the file system that holds a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that an unprivileged writer may still use.
    pub free: u64,
    /// Size of the file system in bytes.
    pub total: u64,
}

/// Opens directories.
pub trait Disk: Send + Sync + Debug {
    /// Opens the directory at `path`. With `create`, makes it (and missing parents) first, mode 0700, and syncs
    /// the parent so that the new name survives a power loss.
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>>;
    /// Identifies the time since the machine last started. While it stays the same, bytes that were handed to the
    /// system are still there, whoever died; once it changes, unsynced bytes may be gone. Zeros if unknown, which is
    /// treated as changed.
    fn boot_id(&self) -> [u8; 16];
    /// How many files the process should have open for reading at once; `None` if its limits do not matter to this disk.
    fn open_files_max(&self) -> Option<usize>;
}

/// One directory, held by descriptor.
pub trait Dir: Send + Sync + Debug {
    /// Creates a file that must not exist yet (mode 0600, never through a symbolic link) and reserves
    /// `prealloc` bytes of real blocks, which become its length and read as zeros.
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>>;
    /// Opens a regular file. Symbolic links, devices and directories are refused.
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>>;
    /// Renames atomically, replacing `to` if it exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name; open files stay readable.
    fn unlink(&self, name: &str) -> io::Result<()>;
    /// Gives the file `name` a second name `to_name` in `to`, a directory of the same disk.
    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()>;
    /// Names of all regular files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes every earlier create, rename, link and unlink in this directory durable.
    fn sync(&self) -> io::Result<()>;
    /// Locks the directory through the file `name`: exclusively for a writer, shared for readers.
    /// Fails with [`io::ErrorKind::WouldBlock`] when another opener, in this or another process, holds it.
    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>>;
    /// Free space of the file system.
    fn space(&self) -> io::Result<Space>;
    /// The path this directory was opened by, for messages.
    fn path(&self) -> &Path;
    /// The concrete type, so that [`Dir::link`] can recognise a directory of its own kind.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Held while a directory is locked; dropping it unlocks.
pub trait DirLock: Send + Sync + Debug {}

/// One file. All methods take `&self`; offsets are explicit, so threads may share a handle.
pub trait File: Send + Sync + Debug {
    /// Reads at `offset`; may be short. `Ok(0)` for a non-empty buffer means end of file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset`; may be short.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    /// Reserves real blocks for the range, never sparse; grows the file to `offset + len` if it is shorter.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the bytes, and the length needed to read them back, durable.
    fn sync_data(&self) -> io::Result<()>;
    /// As [`File::sync_data`], with all metadata.
    fn sync_all(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True when the file holds no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Maps `[0, len)` for writing through the page cache, coherent with `read_at` and `write_at`. `Ok(None)`
    /// where that is not safe (a file system that may answer a page fault with a signal) or not supported.
    fn map_shared(&self, len: u64) -> io::Result<Option<Box<dyn SharedMap>>>;
    /// Maps the whole file for reading. `Ok(None)` where not supported: the caller falls back to `read_at`.
    /// The file must never be cut while the map lives.
    fn map_read(&self) -> io::Result<Option<ReadMap>>;
    /// Asks the system to drop clean cached pages of this file.
    fn drop_cache(&self) -> io::Result<()>;
}

/// A writable shared mapping of a file.
pub trait SharedMap: Send + Sync + Debug {
    /// Copies `bytes` to `offset`. Concurrent writers must use disjoint ranges: overlapping ones leave
    /// unspecified bytes there (never undefined behaviour). The range must lie inside the mapping, else `InvalidInput`.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the pages of a range present and writable, so that later writes do not fault.
    fn populate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Gives the pages of the mapping back to the system's cache of the file. No byte changes; a later write faults
    /// them in again.
    fn release(&self) -> io::Result<()>;
}

/// A read-only mapping of a whole file; derefs to its bytes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadMap {
    pub(crate) inner: Arc<crate::region::MapRegion>,
}

impl std::ops::Deref for ReadMap {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.inner.as_slice()
    }
}

/// Loops over the short reads and writes of a [`File`].
pub trait FileExt {
    /// Fills `buf`; [`io::ErrorKind::UnexpectedEof`] if the file ends first.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buf`; [`io::ErrorKind::WriteZero`] if the disk accepts nothing.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for dyn File + '_ {
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    buf = &buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
