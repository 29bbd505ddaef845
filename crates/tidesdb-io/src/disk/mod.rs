//! The real disk: directories and files of the operating system, reached by descriptor.
//!
//! Invariants: every name is one checked path component; every open refuses symbolic links and anything but a
//! regular file; files are 0600 and directories 0700 (the umask can only remove bits); every descriptor is
//! close-on-exec.
//! All types are `Send + Sync`: the system calls used carry their own offsets.

mod file;
mod lock;
mod mmap;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::name::check_name;
use crate::{Access, Dir, DirLock, Disk, File, Space};
use file::RealFile;

/// Mode of files: private to their owner.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// Upper limit of [`descriptor_budget`]: more open files cost memory and gain nothing.
const DESCRIPTORS_MAX: usize = 8192;
/// Mode of directories: private to their owner.
const DIR_MODE: Mode = Mode::from_raw_mode(0o700);

/// The file systems of the machine.
///
/// ```
/// use tidesdb_io::{Disk, FileExt, RealDisk};
///
/// let temp = tempfile::tempdir()?;
/// let dir = RealDisk::new().open_dir(&temp.path().join("db"), true)?;
/// let file = dir.create_new("1.log", 0)?;
/// file.write_all_at(b"hello", 0)?;
/// file.sync_data()?; // the bytes survive a power loss
/// dir.sync()?; // and so does the name
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RealDisk(());

impl RealDisk {
    /// Creates a handle to the file systems of the machine.
    pub fn new() -> Self {
        Self(())
    }
}

impl Disk for RealDisk {
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        if create {
            make_dirs(path)?;
        }
        Ok(Arc::new(RealDir { fd: open_dir_fd(path)?, path: path.to_owned() }))
    }

    fn boot_id(&self) -> [u8; 16] {
        read_boot_id().unwrap_or_default()
    }

    fn open_files_max(&self) -> Option<usize> {
        Some(descriptor_budget())
    }
}

/// Returns half of the process's descriptor limit, at most [`DESCRIPTORS_MAX`]. The rest is for files that are
/// written, and for the program itself.
fn descriptor_budget() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit
        .map_or(DESCRIPTORS_MAX, |limit| usize::try_from(limit / 2).unwrap_or(DESCRIPTORS_MAX))
        .min(DESCRIPTORS_MAX)
}

/// Reads the boot id that Linux draws at each boot, written as a UUID.
fn read_boot_id() -> Option<[u8; 16]> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/proc/sys/kernel/random/boot_id", flags, Mode::empty()).ok()?;
    let mut text = [0; 36];
    let len = retry_on_intr(|| rustix::io::read(&fd, &mut text)).ok()?;
    parse_uuid(&text[..len])
}

fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut digits = text.iter().filter(|&&c| c != b'-').map(|&c| char::from(c).to_digit(16));
    let mut out = [0; 16];
    for byte in &mut out {
        *byte = u8::try_from(digits.next()?? << 4 | digits.next()??).ok()?;
    }
    digits.next().is_none().then_some(out)
}

fn open_dir_fd(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?)
}

/// Creates `path` and its missing parents. Also syncs the parent of the deepest directory that already existed:
/// an earlier process may have created that directory and died before it could sync the name.
fn make_dirs(path: &Path) -> io::Result<()> {
    match rustix::fs::stat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            return sync_parent(path, true);
        }
        Ok(_) => return Err(Errno::NOTDIR.into()),
        Err(Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    let parent = parent_of(path);
    if parent == path {
        // An empty path has no parent to make.
        return Err(Errno::NOENT.into());
    }
    make_dirs(parent)?;
    match retry_on_intr(|| rustix::fs::mkdir(path, DIR_MODE)) {
        // Another process may create the same directory at the same time.
        Ok(()) | Err(Errno::EXIST) => sync_parent(path, false),
        Err(e) => Err(e.into()),
    }
}

fn sync_parent(path: &Path, existed: bool) -> io::Result<()> {
    let parent = match open_dir_fd(parent_of(path)) {
        // The parent of a directory created by another user need not be readable.
        Err(e) if existed && e.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        other => other?,
    };
    match rustix::fs::fsync(&parent) {
        // Special file systems such as /proc cannot sync, and have nothing to lose.
        Err(Errno::INVAL) if existed => Ok(()),
        other => Ok(other?),
    }
}

/// Returns the directory that holds the last name of `path`.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

#[derive(Debug)]
struct RealDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl RealDir {
    fn open_regular(&self, name: &str, flags: OFlags) -> io::Result<RealFile> {
        check_name(name)?;
        // NONBLOCK keeps the open of a pipe from blocking; it has no effect on a regular file.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, FILE_MODE))?;
        regular(rustix::fs::fstat(&fd)?.st_mode)?;
        Ok(RealFile::new(fd))
    }
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

impl Dir for RealDir {
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>> {
        let file = self.open_regular(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        if let Err(e) = file.allocate(0, prealloc) {
            // The caller gets no file, so none may stay. The first error is returned.
            let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
            return Err(e);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>> {
        let flags = match access {
            Access::Read | Access::Random => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let file = self.open_regular(name, flags)?;
        if access == Access::Random {
            file.advise_random();
        }
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        Ok(retry_on_intr(|| rustix::fs::renameat(&self.fd, from, &self.fd, to))?)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        Ok(retry_on_intr(|| rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()))?)
    }

    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()> {
        check_name(name)?;
        check_name(to_name)?;
        let to = to
            .as_any()
            .downcast_ref::<Self>()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "cannot link across disks"))?;
        regular(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)?;
        Ok(retry_on_intr(|| rustix::fs::linkat(&self.fd, name, &to.fd, to_name, AtFlags::empty()))?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
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

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        let access = if exclusive { OFlags::RDWR } else { OFlags::RDONLY };
        let file = self.open_regular(name, access | OFlags::CREATE)?;
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok(Box::new(lock::RealLock::acquire((stat.st_dev, stat.st_ino), file.into_fd(), exclusive)?))
    }

    fn space(&self) -> io::Result<Space> {
        let vfs = rustix::fs::fstatvfs(&self.fd)?;
        Ok(Space {
            free: vfs.f_bavail.saturating_mul(vfs.f_frsize),
            total: vfs.f_blocks.saturating_mul(vfs.f_frsize),
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl RealDir {
    /// Finds the type of an entry by `stat`, for file systems whose listing does not report it.
    fn is_file(&self, name: &str) -> io::Result<bool> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}
