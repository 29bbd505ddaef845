//! Habits: what the file systems of one operating system do and those of another do not.

use crate::system::reach::{self, Reach};

/// What a simulated file system does differently from others, as far as a program can tell.
///
/// ```
/// use tidesdb_io::sim::{Habits, SimDisk, errno};
/// use tidesdb_io::{Access, Disk};
///
/// let disk = SimDisk::new(7);
/// disk.set_habits(Habits::WINDOWS);
/// let dir = disk.open_dir("/db".as_ref(), true)?;
/// let held = dir.create_new("a", 0)?;
/// dir.unlink("a")?; // the name stays while the file is open
/// assert_eq!(dir.open("a", Access::Read).unwrap_err().raw_os_error(), Some(errno::EACCES));
/// drop(held);
/// assert!(dir.list()?.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// How far the syncs of a file reach, [`File::write_durably_at`](crate::File::write_durably_at) too.
    pub file_sync: Reach,
    /// How far [`Dir::sync`](crate::Dir::sync) reaches.
    pub dir_sync: Reach,
    /// How far [`Dir::rename`](crate::Dir::rename) reaches, after which a sync of the directory may follow.
    pub rename: Reach,
    /// What belongs to an open file.
    pub open_files: OpenFiles,
    /// Whether [`Dir::boot`](crate::Dir::boot) is known.
    pub boots: bool,
    /// Whether files can be mapped for writing.
    pub maps: bool,
}

/// What belongs to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFiles {
    /// Its bytes: the name can be removed and replaced at once.
    KeepBytes,
    /// Its bytes and its name, as on file systems of Windows without POSIX semantics. A rename that would replace an open file fails with
    /// `EACCES`. An unlink of an open file returns, but the name stays until the last handle is closed: it is listed, and every other call
    /// that names it fails with `EACCES`. A kill closes the file; if the power fails, the name stays. A file that is open for reading only
    /// cannot be synced: `EACCES`.
    KeepName,
}

impl Habits {
    /// ext4 and XFS, as strict as POSIX allows: a sync of a file does not make its name durable. Each new disk has these habits.
    pub const LINUX: Self = Self {
        file_sync: Reach::Device,
        dir_sync: Reach::Device,
        rename: Reach::Memory,
        open_files: OpenFiles::KeepBytes,
        boots: true,
        maps: true,
    };
    /// APFS: the syncs are those that the seam chooses.
    pub const MACOS: Self =
        Self { file_sync: reach::MACOS, dir_sync: reach::MACOS, maps: false, ..Self::LINUX };
    /// NTFS for the order of changes, FAT and most of the network for open files.
    pub const WINDOWS: Self = Self {
        file_sync: reach::WINDOWS,
        dir_sync: reach::WINDOWS_DIR,
        rename: reach::WINDOWS,
        open_files: OpenFiles::KeepName,
        boots: false,
        maps: false,
    };
}
