//! What Linux and the other Unix systems share: directories and files by descriptor, maps of files, locks, the clock.
//!
//! Invariants: every name is one checked path component; every open refuses symbolic links and anything but a regular file; files are
//! 0600 and directories 0700 (the umask can only remove bits); every descriptor is close-on-exec, and none is that of a standard stream. A [`Mapping`] owns
//! `[base, base + len)`: the range stays mapped for the whole life of the value and is unmapped once, on drop; `base` is page-aligned.
//!
//! # Interrupted calls
//!
//! A signal may end a call with `EINTR`. Disks of the machine do that hardly ever, FUSE, 9p and NFS do. A call is then repeated, by
//! `retry_on_intr` or `uninterrupted`, as the standard library does, in this file and in those of the systems:
//!
//! | call | after `EINTR` |
//! | --- | --- |
//! | `fstat`, `stat`, `fstatfs`, `fstatvfs`, `pread`, `preadv2`, `flock`, `fadvise`, `madvise`, `sync_file_range` | repeated: it changes nothing, or the same again |
//! | `getdents` | the list is read again from its beginning |
//! | `pwrite`, `pwritev2`, `ftruncate`, `fallocate`, `F_PREALLOCATE` | repeated: the same bytes come to the same place |
//! | `fsync`, `fdatasync`, `F_FULLFSYNC` | repeated: the call said nothing about the bytes, and nothing is durable before one says that they are. An error of the device is an error of its own; it is never repeated |
//! | `open`, `openat`, `mkdir`, `linkat`, `renameat`, `unlinkat` | repeated. A server that did it before the signal came answers that the name exists, or is missing: that is reported, and hides nothing |
//! | `close` | never: the descriptor may be gone, and another thread may have got its number. Nothing depends on its result, as each file that must be durable is synced before |
//! | `mmap`, `munmap` | only a signal that ends the process interrupts them |

use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::time::Duration;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags};

use super::boot::Boot;
use super::{How, own, parent_of};

/// Error numbers of the system.
pub(crate) use rustix::io::Errno;

/// Makes a call again as long as a signal interrupts it: one for which `retry_on_intr` does not serve.
pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Returns what a call of the C library reported by its result, which is negative after a failure.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
pub(super) fn checked(result: std::ffi::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An open file.
pub(crate) type Handle = OwnedFd;

/// Characters that no file name has.
pub(crate) const NOT_IN_NAMES: &[char] = &['/', '\0'];

/// Mode of files: private to their owner.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// Mode of directories: private to their owner.
const DIR_MODE: Mode = Mode::from_raw_mode(0o700);

/// An open directory. It stays the same directory if its path comes to mean another one.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens the directory at `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        beside_streams(folder).map(Self)
    }

    /// Opens the regular file `name`.
    pub(crate) fn open_file(&self, name: &str, how: How) -> io::Result<Handle> {
        let flags = match how {
            How::Read | How::Random => OFlags::RDONLY,
            How::ReadWrite => OFlags::RDWR,
            How::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            How::Lock { exclusive: true } => OFlags::RDWR | OFlags::CREATE,
            How::Lock { exclusive: false } => OFlags::RDONLY | OFlags::CREATE,
        };
        // NONBLOCK keeps the open of a pipe from blocking; it has no effect on a regular file.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = beside_streams(retry_on_intr(|| rustix::fs::openat(&self.0, name, flags, FILE_MODE))?)?;
        regular(retry_on_intr(|| rustix::fs::fstat(&file))?.st_mode)?;
        if how == How::Random {
            own::disable_read_ahead(&file);
        }
        Ok(file)
    }

    /// Renames a file, replacing `to` if it exists.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::renameat(&self.0, from, &self.0, to))?)
    }

    /// Removes a name.
    pub(crate) fn unlink(&self, name: &str) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::unlinkat(&self.0, name, AtFlags::empty()))?)
    }

    /// Gives the regular file `name` a second name `to_name` in `to`.
    pub(crate) fn link(&self, name: &str, to: &Self, to_name: &str) -> io::Result<()> {
        regular(stat_in(&self.0, name)?.st_mode)?;
        match retry_on_intr(|| rustix::fs::linkat(&self.0, name, &to.0, to_name, AtFlags::empty())) {
            // So Linux says that the file system has no links, such as FAT.
            Err(Errno::PERM) => Err(io::ErrorKind::Unsupported.into()),
            linked => Ok(linked?),
        }
    }

    /// Returns the names of all regular files.
    pub(crate) fn list(&self) -> io::Result<Vec<String>> {
        uninterrupted(|| self.list_once())
    }

    fn list_once(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            // The engine creates only UTF-8 names.
            let Ok(name) = entry.file_name().to_str() else { continue };
            let is_file = match entry.file_type() {
                FileType::Unknown => self.is_file(name)?,
                kind => kind == FileType::RegularFile,
            };
            if is_file {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Returns whether the folder has no entry of any kind.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        uninterrupted(|| {
            for entry in rustix::fs::Dir::read_from(&self.0)? {
                if ![c".", c".."].contains(&entry?.file_name()) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Finds the type of an entry by `stat`, for file systems whose listing does not report it.
    fn is_file(&self, name: &str) -> io::Result<bool> {
        match stat_in(&self.0, name) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes all names in the directory durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        own::sync_all(&self.0)
    }

    /// Identifies the directory while it is open: device and inode.
    pub(crate) fn id(&self) -> io::Result<(u64, u64)> {
        let stat = retry_on_intr(|| rustix::fs::fstat(&self.0))?;
        #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
        let id = (stat.st_dev as u64, stat.st_ino as u64);
        Ok(id)
    }

    /// Returns the time since which no byte of the directory can be lost that the system has taken. It is the same while the directory is
    /// open: that keeps the file system mounted.
    pub(crate) fn boot(&self) -> Boot {
        own::boot(&self.0)
    }

    /// Locks the directory itself, exclusively or shared, without waiting. `WouldBlock` if another opener holds a conflicting lock; `None`
    /// if the file system has no locks of directories, as NFS.
    pub(crate) fn lock(&self, exclusive: bool) -> io::Result<Option<Handle>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again =
            beside_streams(retry_on_intr(|| rustix::fs::openat(&self.0, ".", flags, Mode::empty()))?)?;
        match try_lock(&again, exclusive) {
            Ok(()) => Ok(Some(again)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
            Err(_) => Ok(None),
        }
    }

    /// Returns the free bytes and all bytes of the file system.
    pub(crate) fn space(&self) -> io::Result<(u64, u64)> {
        own::space(&self.0)
    }
}

/// Number of standard streams: their descriptors are 0, 1 and 2.
const STREAMS: i32 = 3;

/// Returns `file` with a descriptor that is not of a standard stream. If a program has closed one, its number is the next that an open gets, and
/// what the program writes to the stream, such as a message to standard error, would be written into the file.
fn beside_streams(file: OwnedFd) -> io::Result<OwnedFd> {
    if file.as_raw_fd() >= STREAMS {
        return Ok(file);
    }
    Ok(retry_on_intr(|| rustix::io::fcntl_dupfd_cloexec(&file, STREAMS))?)
}

/// Looks at the entry `name` of a directory. Follows no symbolic link.
fn stat_in(folder: &OwnedFd, name: &str) -> rustix::io::Result<rustix::fs::Stat> {
    retry_on_intr(|| rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW))
}

/// Refuses everything but a regular file.
fn regular(raw_mode: rustix::fs::RawMode) -> io::Result<()> {
    match FileType::from_raw_mode(raw_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        FileType::Symlink => Err(Errno::LOOP.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Returns whether `path` is a directory, or the error of the system if there is nothing.
pub(crate) fn is_dir(path: &Path) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(retry_on_intr(|| rustix::fs::stat(path))?.st_mode) == FileType::Directory)
}

/// Creates a directory.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::mkdir(path, DIR_MODE))?)
}

/// Makes the name of the directory `path` durable. With `existed`, another program may have made the directory.
pub(crate) fn sync_name(path: &Path, existed: bool) -> io::Result<()> {
    let parent = match Folder::open(parent_of(path)) {
        // The parent of a directory created by another user need not be readable.
        Err(e) if existed && e.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        other => other?,
    };
    match parent.sync() {
        // Special file systems such as /proc cannot sync, and have nothing to lose.
        Err(e) if existed && e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
        other => other,
    }
}

/// Reads at `offset`. May be short.
pub(crate) fn read_at(file: &Handle, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pread(file, &mut *buf, offset))?)
}

/// Writes at `offset`. May be short.
pub(crate) fn write_at(file: &Handle, buf: &[u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pwrite(file, buf, offset))?)
}

/// Truncates the file, or extends it with zeros.
pub(crate) fn set_len(file: &Handle, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ftruncate(file, len))?)
}

/// Returns the length in bytes.
pub(crate) fn file_len(file: &Handle) -> io::Result<u64> {
    u64::try_from(retry_on_intr(|| rustix::fs::fstat(file))?.st_size).map_err(|_| Errno::OVERFLOW.into())
}

/// Returns the inode; 0 if it cannot be read.
pub(crate) fn file_identity(file: &Handle) -> u64 {
    retry_on_intr(|| rustix::fs::fstat(file)).map_or(0, |stat| stat.st_ino)
}

/// Locks an open file, exclusively or shared, without waiting. `WouldBlock` if another opener holds a conflicting lock.
pub(crate) fn try_lock(file: &Handle, exclusive: bool) -> io::Result<()> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    Ok(retry_on_intr(|| rustix::fs::flock(file, operation))?)
}

/// Unlocks an open file. Closing it would unlock it too, but not while a child that was just forked holds a copy of the descriptor.
pub(crate) fn unlock(file: &Handle) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::flock(file, FlockOperation::Unlock))?)
}

/// Returns how many files this process may have open; `None` if there is no limit.
pub(crate) fn files_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Reads the system's monotonic clock. A durable commit does so twice, and `Instant::elapsed` takes three times as many instructions.
pub(crate) fn since_boot() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to the given place and keeps no reference to it.
    let failed = unsafe { libc::clock_gettime(own::MONOTONIC, &raw mut now) } != 0;
    debug_assert!(!failed, "every system has this clock");
    #[allow(clippy::unnecessary_cast, reason = "the type differs between systems")]
    let seconds = now.tv_sec.unsigned_abs() as u64;
    Duration::new(seconds, now.tv_nsec as u32)
}

/// Returns the bytes of a page of memory. `rustix` would look for the number in the image of the kernel's page of code, which is not
/// mapped under valgrind.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: the call takes a number and reads no memory of the program.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every system knows the size of its pages")
}

/// A live mapping of the first `len` bytes of a file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is process-wide memory; unmapping it on another thread than the mapping one is allowed.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives only the address and the length; each user proves its own accesses.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `[0, len)` of `file`, shared. `len` must not be zero.
    pub(crate) fn new(file: &Handle, len: u64, writable: bool) -> io::Result<Self> {
        // No object may be larger than `isize::MAX`, or slices of it would be unsound.
        let len = isize::try_from(len).map_err(|_| Errno::NOMEM)?.unsigned_abs();
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a null hint lets the kernel choose an address, so no existing mapping is replaced.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    /// Returns the first byte; its address is page-aligned.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Says whether the map is accessed in order from now on, so that a page fault may bring in the pages behind its own.
    pub(crate) fn expect_order(&self, in_order: bool) {
        own::expect_order(self, in_order);
    }

    /// Unmaps the pages and keeps their bytes in the page cache. A later access maps them again.
    pub(crate) fn release(&self) -> io::Result<()> {
        own::release(self)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of a successful mmap, unmapped here only, and `&mut self` proves
        // that no borrow of the memory is left.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}
