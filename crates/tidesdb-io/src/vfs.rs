//! The traits a disk implements: [`Disk`] opens directories, [`Dir`] holds names, [`File`] holds bytes.
//!
//! A directory is held by descriptor, on Windows by a handle that keeps it where it is. Names are single path components made by the
//! engine, so no name that a user chose ever becomes a path. Every error is an [`io::Error`] that keeps the error number of the system.
//!
//! The promises are the same on each system. Where a system cannot do what a call is for, the call says what takes its place.

#![expect(
    clippy::missing_errors_doc,
    reason = "all fail as the system does; the docs name the errors with a meaning"
)]

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::{Boot, Surroundings};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    Read,
    /// Reads only, in short pieces at random places. Disables the system's read-ahead.
    Random,
    /// Reads and writes.
    ReadWrite,
}

/// A hint to the system about a range, given by [`File::advise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The range will be read soon: starts loading it into the page cache and does not wait. Does nothing on Windows.
    WillNeed,
    /// The range will not be read soon: starts writing its dirty pages and drops its clean pages from the page
    /// cache. Does nothing on macOS and Windows, and starts no writes on FreeBSD.
    DontNeed,
    /// The range was written and will be synced soon: starts writing its dirty pages, so that the sync waits less. Nothing is durable
    /// before the sync. Does nothing except on Linux.
    SyncSoon,
}

/// Free and total bytes of the file system that holds a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that an unprivileged process may still allocate.
    pub free: u64,
    /// Size of the file system in bytes.
    pub total: u64,
}

/// Opens directories.
pub trait Disk: Send + Sync + Debug {
    /// Opens the directory at `path`. With `create`, makes it (and missing parents) first, mode 0700, and syncs
    /// the parent so that the new name survives a power loss.
    ///
    /// On Windows a directory has the permissions that its parent passes on. Nobody can rename or remove it while it is open.
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>>;
    /// Removes the directory at `path`, which must be empty. Not durable. A disk for tests may refuse it.
    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// One directory, held by descriptor.
pub trait Dir: Send + Sync + Debug {
    /// Creates a file that must not exist yet (mode 0600, never through a symbolic link) and reserves
    /// `prealloc` bytes of real blocks, which become its length and read as zeros; see [`File::allocate`]. On Windows a file has the
    /// permissions that its directory passes on.
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>>;
    /// Opens a regular file. Symbolic links, devices and directories are refused.
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>>;
    /// Renames atomically, replacing `to` if it exists. Open files that had the name `to` stay readable.
    ///
    /// On Windows the rename is durable when it returns. A file system without POSIX semantics (FAT, most of the network) refuses
    /// to replace an open file there.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name; open files stay readable. On a file system of Windows without POSIX semantics the name goes when the last of them is
    /// closed, and cannot be used again before.
    fn unlink(&self, name: &str) -> io::Result<()>;
    /// Gives the file `name` a second name `to_name` in `to`, a directory of the same disk. `Unsupported` on a file system of Windows
    /// without hard links (FAT, exFAT); the other systems have errors of their own for that.
    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()>;
    /// Returns the names of all regular files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Returns whether the directory has no entry of any kind, also none that [`Dir::list`] leaves out.
    fn is_empty(&self) -> io::Result<bool>;
    /// Makes every earlier create, rename, link and unlink in this directory durable.
    ///
    /// Windows has no such call. The time of the directory is changed instead, through a handle whose changes are written before they
    /// return: NTFS logs changes of names in order, so the earlier ones are durable too. It logs them in the same order if the call is
    /// never made, so that a crash keeps no change without those before it.
    fn sync(&self) -> io::Result<()>;
    /// Locks the directory through the file `name`: exclusively for a writer, shared for readers.
    /// Fails with [`io::ErrorKind::WouldBlock`] if another opener, in this or another process, holds a
    /// conflicting lock. Other programs respect the lock if they ask for it: `flock`, on Windows `LockFileEx` for a byte beyond the file.
    ///
    /// On Unix the directory itself is locked too, by `flock`, where its file system can: a file that somebody removes while it is locked
    /// lets nobody else in. A reader does without the file if there is none and it must not be created: on a medium that is read-only, or
    /// in a directory of somebody else.
    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>>;
    /// Identifies the time since the machine started and the file system of the directory was mounted. While it stays the same, bytes
    /// written to the system are still there, even if the process died. Once it changes, unsynced bytes may be gone. Unknown, which callers
    /// treat as changed, on Windows, on FreeBSD before 13, and on Linux where `/proc` is not mounted, or where neither the file system
    /// (ext2/3/4, XFS, F2FS, tmpfs) nor the kernel (6.8) tells one mount from another. macOS and FreeBSD identify the boot alone. One that may
    /// also change without a loss is not [exact](Boot::is_exact).
    fn boot(&self) -> Boot;
    /// Returns the free and total space of the file system.
    fn space(&self) -> io::Result<Space>;
    /// Looks around the directory; `process` is the number of the one that writes there. Looks at each process of the machine. Nothing is
    /// known of a directory that is not of this machine.
    fn surroundings(&self, _process: Option<u32>) -> Surroundings {
        Surroundings::default()
    }
    /// Returns the path this directory was opened by, for messages.
    fn path(&self) -> &Path;
    /// Returns the concrete type, so that [`Dir::link`] can recognise a directory of its own kind.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A locked directory; dropping this unlocks it.
pub trait DirLock: Send + Sync + Debug {}

/// One file. All methods take `&self`; offsets are explicit, so threads may share a handle. A file that is open for
/// reading only keeps the methods that change one as they are here: they fail with `PermissionDenied`.
pub trait File: Send + Sync + Debug {
    /// Reads at `offset`. May be short. `Ok(0)` for a non-empty buffer means end of file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Like [`File::read_at`], but only if the bytes are in the system's page cache; never waits for the device. `None` if they
    /// are not, or if the system cannot say: only Linux can.
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>>;
    /// Writes at `offset`. May be short.
    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<usize> {
        for_reading()
    }
    /// Reserves real blocks for the range, never sparse; grows the file to `offset + len` if it is shorter. Where the system or the file
    /// system cannot reserve blocks, zeros are written.
    ///
    /// A file system that writes each change to new blocks (APFS with snapshots, ZFS, Btrfs, ReFS) may be full when reserved
    /// blocks are written, on every system. The write fails then.
    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        for_reading()
    }
    /// Truncates the file, or extends it with zeros, which take no blocks unless the file system gives each file blocks for its length (FAT).
    fn set_len(&self, _len: u64) -> io::Result<()> {
        for_reading()
    }
    /// Makes the bytes, and the length needed to read them back, durable: `fdatasync`, on macOS `F_FULLFSYNC`, on Windows
    /// `FlushFileBuffers`. On Windows a file that is open for reading only fails with `PermissionDenied`.
    fn sync_data(&self) -> io::Result<()>;
    /// Like [`File::sync_data`], and syncs all metadata too.
    fn sync_all(&self) -> io::Result<()>;
    /// Writes at `offset`, and makes these bytes durable. Other bytes of the file, and a length that is not durable yet, need not become so:
    /// in a file with many such bytes this takes less time than a sync, on Linux; the other systems sync the file. May be short.
    fn write_durably_at(&self, _buf: &[u8], _offset: u64) -> io::Result<usize> {
        for_reading()
    }
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Returns true if the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Maps `[0, len)` for writing through the page cache, coherent with `read_at` and `write_at`. Returns
    /// `Ok(None)` if mapping is not supported, or not safe on this file system because a page fault may end in
    /// a signal, or if addresses of 32 bits leave no room. Only Linux has such maps.
    fn map_shared(&self, _len: u64) -> io::Result<Option<Box<dyn SharedMap>>> {
        for_reading()
    }
    /// Returns the file at its current length, for reading, without a descriptor: it stays readable after its name is
    /// gone. Other processes may go on writing to it; the file must never be truncated meanwhile. Returns `Ok(None)` if not supported, as on
    /// Windows, where a mapped file cannot be removed, and if addresses of 32 bits leave no room.
    fn without_descriptor(&self) -> io::Result<Option<Arc<dyn File>>> {
        Ok(None)
    }
    /// Hints to the system how a range will be used. `len` 0 means up to the end of the file. Changes no byte,
    /// so callers may ignore the error.
    fn advise(&self, advice: Advice, offset: u64, len: u64) -> io::Result<()>;
    /// Returns a number that the file keeps as long as it exists, and that no copy of it on the same file system has: its inode on Unix. 0 if
    /// the system does not say.
    fn identity(&self) -> u64 {
        0
    }
    /// Returns true if the byte at `offset` is in the system's page cache, or if the system does not report
    /// that.
    fn is_cached(&self, offset: u64) -> io::Result<bool>;
}

/// The error of a call that would change a file that is open for reading only.
pub(crate) fn for_reading<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is open for reading only"))
}

/// A writable shared mapping of a file.
pub trait SharedMap: Send + Sync + Debug {
    /// Copies `bytes` to `offset`. Concurrent writers must use disjoint ranges: overlapping writes leave
    /// unspecified bytes, but never cause undefined behaviour. A range outside the mapping fails with
    /// `InvalidInput`.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Tells the system that the map is written in order from now on. A new map is expected to be hardly written: a write brings in
    /// the page that it needs, not the many pages behind it.
    fn expect_order(&self);
    /// Unmaps the pages from the process but keeps their bytes in the system's page cache. A later write faults
    /// them in again.
    fn release(&self) -> io::Result<()>;
}

/// Loops over the short reads and writes of a [`File`].
pub trait FileExt {
    /// Fills `buf`; [`io::ErrorKind::UnexpectedEof`] if the file ends first.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buf`; [`io::ErrorKind::WriteZero`] if the disk accepts nothing.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buf` by [`File::write_durably_at`]; errors as [`FileExt::write_all_at`].
    fn write_all_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
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

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        write_all(buf, offset, |buf, offset| self.write_at(buf, offset))
    }

    fn write_all_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        write_all(buf, offset, |buf, offset| self.write_durably_at(buf, offset))
    }
}

fn write_all(
    mut buf: &[u8],
    mut offset: u64,
    write: impl Fn(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    while !buf.is_empty() {
        match write(buf, offset) {
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
