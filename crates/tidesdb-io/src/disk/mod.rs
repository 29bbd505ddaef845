//! The real disk: directories and files of the operating system, reached by handle.
//!
//! Invariants: every name is one checked path component; every open refuses symbolic links and anything but a
//! regular file; files and directories are private to their owner as far as the system allows; no handle is inherited by
//! other programs.
//! All types are `Send + Sync`: the system calls used carry their own offsets.

mod file;
mod lock;
mod mmap;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::name::check_name;
use crate::system::{self, Errno, Folder, How, parent_of};
use crate::{Access, Boot, Dir, DirLock, Disk, File, Space, Surroundings};
use file::RealFile;

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
        let folder = Folder::open(path)?;
        Ok(Arc::new(RealDir { folder, path: path.to_owned(), boot: OnceLock::new() }))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }
}

/// Creates `path` and its missing parents. Also makes the name of the deepest directory that already existed durable:
/// an earlier process may have created that directory and died before it could sync the name.
fn make_dirs(path: &Path) -> io::Result<()> {
    match system::is_dir(path) {
        Ok(true) => return system::sync_name(path, true),
        Ok(false) => return Err(Errno::NOTDIR.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let parent = parent_of(path);
    if parent == path {
        // An empty path has no parent to make.
        return Err(Errno::NOENT.into());
    }
    make_dirs(parent)?;
    match system::make_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        // Another process may create the same directory at the same time.
        Err(_) => leads_nowhere(path).map_or_else(|| system::sync_name(path, false), Err),
        Ok(()) => system::sync_name(path, false),
    }
}

/// Returns the error for a link whose target does not exist. That of the system names neither.
fn leads_nowhere(path: &Path) -> Option<io::Error> {
    let target = std::fs::read_link(path).ok().filter(|_| !path.exists())?;
    let what = format!("{} is a link to {}, which does not exist", path.display(), target.display());
    Some(io::Error::new(io::ErrorKind::NotFound, what))
}

#[derive(Debug)]
struct RealDir {
    folder: Folder,
    path: PathBuf,
    boot: OnceLock<Boot>,
}

impl RealDir {
    fn open_file(&self, name: &str, how: How) -> io::Result<RealFile> {
        check_name(name)?;
        self.folder.open_file(name, how).map(RealFile::new)
    }

    fn is_missing(&self, name: &str) -> bool {
        self.folder.open_file(name, How::Read).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }
}

/// Returns whether a file could not be created because the medium is read-only, or the directory that of somebody else.
fn cannot_create(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

impl Dir for RealDir {
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>> {
        let file = self.open_file(name, How::CreateNew)?;
        if let Err(e) = file.allocate(0, prealloc) {
            // The caller gets no file, so none may stay. The first error is returned.
            let _ = self.folder.unlink(name);
            return Err(e);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>> {
        let how = match access {
            Access::Read => How::Read,
            Access::Random => How::Random,
            Access::ReadWrite => How::ReadWrite,
        };
        Ok(Arc::new(self.open_file(name, how)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.folder.rename(from, to)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.folder.unlink(name)
    }

    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()> {
        check_name(name)?;
        check_name(to_name)?;
        let to = to
            .as_any()
            .downcast_ref::<Self>()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "cannot link across disks"))?;
        self.folder.link(name, &to.folder, to_name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.folder.list()
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.folder.is_empty()
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.sync()
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        check_name(name)?;
        let file = match self.folder.open_file(name, How::Lock { exclusive }) {
            // A writer would have made the file.
            Err(e) if !exclusive && cannot_create(&e) && self.is_missing(name) => None,
            opened => Some(opened?),
        };
        Ok(Box::new(lock::RealLock::acquire(&self.folder, file, exclusive)?))
    }

    fn boot(&self) -> Boot {
        *self.boot.get_or_init(|| self.folder.boot())
    }

    fn space(&self) -> io::Result<Space> {
        let (free, total) = self.folder.space()?;
        Ok(Space { free, total })
    }

    fn surroundings(&self, process: Option<u32>) -> Surroundings {
        system::surroundings(&self.path, process)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
