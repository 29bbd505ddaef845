//! Windows.
//!
//! A folder is its absolute path, in the form that has no limit of 260 characters, and a handle that keeps other programs from renaming or
//! removing it while it is open. All files are opened so that others may read, write, rename and remove them. Files have the permissions
//! that their folder passes on.
//!
//! **Durability of names.** No call syncs a folder. A rename goes through a handle with `FILE_FLAG_WRITE_THROUGH`: NTFS then writes
//! the log of its metadata before the call returns. [`Folder::sync`] changes the time of the folder through such a handle. NTFS
//! writes its log in order, so all names that were created, linked or removed before are durable then. Each sync of a file writes the log
//! too: a name is never durable before the names and files that were synced earlier. Other file systems, such as ReFS, FAT and exFAT, do not
//! promise that order. The simulated disk promises less (`sim::Habits::WINDOWS`): nothing by [`Folder::sync`], so the engine does not rely on
//! that, and no order of names between two syncs or renames.
//!
//! **Open files.** With POSIX semantics, a name that is removed or replaced is gone at once, and who has the file open keeps it.
//! File systems without them (FAT, most of the network) remove the name when the last handle is closed, and refuse to replace an open file.
//!
//! **Space.** [`allocate`] asks for clusters and reads how many the file got: NTFS grants them, a share of the network or Wine may not, and zeros
//! are written then. The length of a file would take clusters too, so [`set_len`] makes a file that it extends sparse: a log with 64 KiB of
//! records takes 64 KiB of the disk, not a whole segment. Later pieces of that file are reserved by zeros.
//!
//! **Maps.** There are none: a flush of a file does not write what a map holds, and a file that is mapped cannot be removed.

use std::ffi::{OsString, c_void};
use std::fs::{File, FileTimes, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::{Component, Path, PathBuf, Prefix};
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use windows_sys::Win32::Foundation as code;
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, DELETE, FILE_ALLOCATION_INFO, FILE_ATTRIBUTE_COMPRESSED,
    FILE_ATTRIBUTE_REPARSE_POINT, FILE_ATTRIBUTE_SPARSE_FILE, FILE_DISPOSITION_FLAG_DELETE,
    FILE_DISPOSITION_FLAG_IGNORE_READONLY_ATTRIBUTE, FILE_DISPOSITION_FLAG_POSIX_SEMANTICS,
    FILE_DISPOSITION_INFO_EX, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
    FILE_FLAG_RANDOM_ACCESS, FILE_FLAG_WRITE_THROUGH, FILE_INFO_BY_HANDLE_CLASS, FILE_LIST_DIRECTORY,
    FILE_RENAME_INFO, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_STANDARD_INFO,
    FILE_WRITE_ATTRIBUTES, FileAllocationInfo, FileDispositionInfoEx, FileRenameInfoEx, FileStandardInfo,
    GetDiskFreeSpaceExW, GetFileInformationByHandle, GetFileInformationByHandleEx, LOCKFILE_EXCLUSIVE_LOCK,
    LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH, MoveFileExW,
    SetFileInformationByHandle, UnlockFileEx,
};
use windows_sys::Win32::System::IO::{DeviceIoControl, OVERLAPPED};
use windows_sys::Win32::System::Ioctl::FSCTL_SET_SPARSE;
use windows_sys::Win32::System::JobObjects::{
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_PROCESS_MEMORY, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectExtendedLimitInformation, QueryInformationJobObject,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentThread, SetThreadPriority, THREAD_PRIORITY_BELOW_NORMAL,
};

use super::How;
use super::boot::Boot;

pub(crate) use super::absent::{
    advise_huge, anonymous_bytes, file_identity, heap, is_cached, process, process_now, read_cached_at,
    start_writing, trim_heap,
};
pub(crate) use super::write_then_sync as write_durably_at;

/// An open file.
pub(crate) type Handle = File;

/// Characters that no file name has.
pub(crate) const NOT_IN_NAMES: &[char] = &['/', '\\', ':', '*', '?', '"', '<', '>', '|', '\0'];

/// Others may read, write, rename and remove what is open.
const SHARE_ALL: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/// Flags of a rename: replace the target, with POSIX semantics, even if it is read-only.
const RENAME_FLAGS: u32 = 0x1 | 0x2 | 0x40;

/// How often a rename or removal is tried while another program, such as a scanner for viruses, has the file open and does not share it.
const TRIES: u32 = 7;

/// The error of the system that stands for an error number of Unix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(i32);

impl Errno {
    pub(crate) const ACCESS: Self = Self(code::ERROR_ACCESS_DENIED as i32);
    /// A write to a file that is open for reading.
    pub(crate) const BADF: Self = Self::ACCESS;
    pub(crate) const DQUOT: Self = Self(code::ERROR_DISK_QUOTA_EXCEEDED as i32);
    pub(crate) const EXIST: Self = Self(code::ERROR_FILE_EXISTS as i32);
    pub(crate) const FBIG: Self = Self(code::ERROR_FILE_TOO_LARGE as i32);
    pub(crate) const ILSEQ: Self = Self(code::ERROR_INVALID_NAME as i32);
    /// `WSAEINTR`: only calls of sockets are interrupted on this system.
    pub(crate) const INTR: Self = Self(10_004);
    pub(crate) const INVAL: Self = Self(code::ERROR_INVALID_PARAMETER as i32);
    pub(crate) const IO: Self = Self(code::ERROR_IO_DEVICE as i32);
    pub(crate) const ISDIR: Self = Self(code::ERROR_DIRECTORY_NOT_SUPPORTED as i32);
    pub(crate) const MFILE: Self = Self(code::ERROR_TOO_MANY_OPEN_FILES as i32);
    pub(crate) const NAMETOOLONG: Self = Self(code::ERROR_FILENAME_EXCED_RANGE as i32);
    /// The system has no memory for another handle.
    pub(crate) const NFILE: Self = Self(code::ERROR_NO_SYSTEM_RESOURCES as i32);
    pub(crate) const NOENT: Self = Self(code::ERROR_FILE_NOT_FOUND as i32);
    pub(crate) const NOSPC: Self = Self(code::ERROR_DISK_FULL as i32);
    pub(crate) const NOTDIR: Self = Self(code::ERROR_DIRECTORY as i32);
    pub(crate) const OPNOTSUPP: Self = Self(code::ERROR_CALL_NOT_IMPLEMENTED as i32);
    pub(crate) const ROFS: Self = Self(code::ERROR_WRITE_PROTECT as i32);
    /// `WSAEWOULDBLOCK`, which stands for a lock that another one holds.
    pub(crate) const WOULDBLOCK: Self = Self(10_035);

    pub(crate) const fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

fn has_code(error: &io::Error, codes: &[u32]) -> bool {
    error.raw_os_error().is_some_and(|raw| codes.iter().any(|code| *code as i32 == raw))
}

/// Returns whether the system or the file system does not have a call at all.
fn lacks_call(error: &io::Error) -> bool {
    let codes = [
        code::ERROR_INVALID_FUNCTION,
        code::ERROR_NOT_SUPPORTED,
        code::ERROR_INVALID_PARAMETER,
        code::ERROR_CALL_NOT_IMPLEMENTED,
        code::ERROR_INVALID_LEVEL,
    ];
    has_code(error, &codes)
}

/// Converts the result of a call of the system.
fn check(done: i32) -> io::Result<()> {
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Calls `act`, and again after a while if it fails with one of `codes`, because another program has the file open: for 127 ms in all.
fn patiently(codes: &[u32], mut act: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for attempt in 0..TRIES {
        match act() {
            Err(e) if has_code(&e, codes) => {
                std::thread::sleep(Duration::from_millis(1 << attempt));
            }
            done => return done,
        }
    }
    act()
}

/// Returns `path` with a final 0, as the system takes it.
fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

/// Returns `path` in the form that has no limit of 260 characters and in which every character stands for itself.
fn verbatim(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let Some(Component::Prefix(prefix)) = path.components().next() else { return Ok(path) };
    let (head, skipped) = match prefix.kind() {
        Prefix::Disk(_) => (r"\\?\", 0),
        Prefix::UNC(..) => (r"\\?\UNC\", 2),
        _ => return Ok(path),
    };
    let rest: Vec<u16> = path.as_os_str().encode_wide().skip(skipped).collect();
    let mut long = OsString::from(head);
    long.push(OsString::from_wide(&rest));
    Ok(long.into())
}

/// An open folder, see the head of this file.
#[derive(Debug)]
pub(crate) struct Folder {
    handle: File,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder at `path`.
    #[allow(clippy::disallowed_methods, reason = "this is the place that opens files")]
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT.into());
        }
        // A volume without a name, such as some RAM disks, has no canonical path.
        let path = std::fs::canonicalize(path).or_else(|_| verbatim(path))?;
        let mut options = OpenOptions::new();
        options.access_mode(FILE_LIST_DIRECTORY).share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE);
        let handle = options.custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(&path)?;
        if !handle.metadata()?.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Self { handle, path })
    }

    /// Opens the regular file `name`.
    #[allow(clippy::disallowed_methods, reason = "this is the place that opens files")]
    pub(crate) fn open_file(&self, name: &str, how: How) -> io::Result<Handle> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true).share_mode(SHARE_ALL);
        let mut flags = 0;
        match how {
            How::Read => {}
            How::Random => flags = FILE_FLAG_RANDOM_ACCESS,
            How::ReadWrite => {
                options.write(true);
            }
            How::CreateNew => {
                options.write(true).create_new(true);
            }
            How::Lock { exclusive: true } => {
                options.write(true).create(true);
            }
            // The permission to write is not needed.
            How::Lock { exclusive: false } => {
                options.write(true).create(true).access_mode(code::GENERIC_READ);
            }
        }
        let file = match options.custom_flags(flags | FILE_FLAG_OPEN_REPARSE_POINT).open(&path) {
            Err(e) if has_code(&e, &[code::ERROR_ACCESS_DENIED]) && path.is_dir() => {
                return Err(Errno::ISDIR.into());
            }
            other => other?,
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if found.file_attributes() & FILE_ATTRIBUTE_REPARSE_POINT != 0 && how != How::CreateNew {
            // Not a link: the bytes are kept elsewhere (deduplicated, or in a cloud), and the system fetches them.
            return options.custom_flags(flags).open(&path);
        }
        Ok(file)
    }

    /// Opens a file to rename or remove it, durably.
    #[allow(clippy::disallowed_methods, reason = "this is the place that opens files")]
    fn open_name(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.access_mode(DELETE).share_mode(SHARE_ALL);
        options
            .custom_flags(FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_WRITE_THROUGH)
            .open(self.path.join(name))
    }

    /// Renames a file, replacing `to` if it exists. The new name is durable.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (source, target) = (wide(&self.path.join(from)), wide(&self.path.join(to)));
        // Without POSIX semantics, the target may be open in a reader.
        let codes = [code::ERROR_SHARING_VIOLATION, code::ERROR_ACCESS_DENIED];
        patiently(&codes, || {
            let renamed = rename_open(&self.open_name(from)?, &target);
            match renamed {
                Err(e) if lacks_call(&e) => {
                    let flags = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
                    // SAFETY: both names end with 0 and live until the call returns.
                    check(unsafe { MoveFileExW(source.as_ptr(), target.as_ptr(), flags) })
                }
                done => done,
            }
        })
    }

    /// Removes a name.
    pub(crate) fn unlink(&self, name: &str) -> io::Result<()> {
        let how = FILE_DISPOSITION_INFO_EX {
            Flags: FILE_DISPOSITION_FLAG_DELETE
                | FILE_DISPOSITION_FLAG_POSIX_SEMANTICS
                | FILE_DISPOSITION_FLAG_IGNORE_READONLY_ATTRIBUTE,
        };
        patiently(&[code::ERROR_SHARING_VIOLATION], || {
            let file = self.open_name(name)?;
            // SAFETY: the bytes are those of the structure that belongs to the class.
            let done =
                unsafe { set_info(&file, FileDispositionInfoEx, (&raw const how).cast(), size_of_val(&how)) };
            match done {
                Err(e) if lacks_call(&e) => {
                    drop(file);
                    std::fs::remove_file(self.path.join(name))
                }
                done => done,
            }
        })
    }

    /// Gives the regular file `name` a second name `to_name` in `to`.
    pub(crate) fn link(&self, name: &str, to: &Self, to_name: &str) -> io::Result<()> {
        let from = self.path.join(name);
        if !std::fs::symlink_metadata(&from)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        std::fs::hard_link(from, to.path.join(to_name))
            .map_err(|e| if lacks_call(&e) { Errno::OPNOTSUPP.into() } else { e })
    }

    /// Returns the names of all regular files.
    pub(crate) fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            // The engine creates only UTF-8 names.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entry.file_type()?.is_file() {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Returns whether the folder has no entry of any kind.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        std::fs::read_dir(&self.path)?.next().transpose().map(|entry| entry.is_none())
    }

    /// Makes all names in the folder durable, see the head of this file.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the place that opens files; the time decides nothing"
    )]
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.access_mode(FILE_WRITE_ATTRIBUTES).share_mode(SHARE_ALL);
        let folder =
            options.custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_WRITE_THROUGH).open(&self.path)?;
        folder.set_times(FileTimes::new().set_modified(SystemTime::now()))
    }

    /// Identifies the folder while it is open: volume and number.
    pub(crate) fn id(&self) -> io::Result<(u64, u64)> {
        let mut info = BY_HANDLE_FILE_INFORMATION::default();
        // SAFETY: the handle is open as long as `self` lives, and the call writes one structure of this type.
        check(unsafe { GetFileInformationByHandle(self.handle.as_raw_handle(), &raw mut info) })?;
        let number = u64::from(info.nFileIndexHigh) << 32 | u64::from(info.nFileIndexLow);
        Ok((info.dwVolumeSerialNumber.into(), number))
    }

    /// Returns an unknown time: the system numbers its boots, but tells it only to administrators.
    #[expect(clippy::unused_self, reason = "other systems ask the folder")]
    pub(crate) fn boot(&self) -> Boot {
        Boot::default()
    }

    /// Locks nothing: the system locks ranges of files only.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "other systems lock the folder")]
    pub(crate) fn lock(&self, _exclusive: bool) -> io::Result<Option<Handle>> {
        Ok(None)
    }

    /// Returns the free bytes, within the quota of the user, and all bytes of the file system.
    pub(crate) fn space(&self) -> io::Result<(u64, u64)> {
        let path = wide(&self.path.join("")); // a share of the network must end with a separator
        let (mut free, mut total) = (0, 0);
        // SAFETY: the path ends with 0, and the call writes two numbers of 64 bits; it takes null for the third.
        check(unsafe { GetDiskFreeSpaceExW(path.as_ptr(), &raw mut free, &raw mut total, ptr::null_mut()) })?;
        Ok((free, total))
    }
}

/// Renames the open file to `target`, an absolute path that ends with 0, with POSIX semantics.
fn rename_open(file: &File, target: &[u16]) -> io::Result<()> {
    let name_bytes = (target.len() - 1) * size_of::<u16>();
    let bytes = mem::offset_of!(FILE_RENAME_INFO, FileName) + size_of_val(target);
    let bytes = bytes.max(size_of::<FILE_RENAME_INFO>());
    let mut memory = vec![0_u64; bytes.div_ceil(size_of::<u64>())];
    let info = memory.as_mut_ptr().cast::<FILE_RENAME_INFO>();
    // SAFETY: the memory is aligned to 8 bytes, as the structure is, is zero, which each of its fields may be, and has room for the structure
    // and for the name, which begins in its last field. The class belongs to the structure.
    unsafe {
        (&raw mut (*info).Anonymous.Flags).write(RENAME_FLAGS);
        (&raw mut (*info).FileNameLength).write(u32::try_from(name_bytes).map_err(|_| Errno::NAMETOOLONG)?);
        ptr::copy_nonoverlapping(target.as_ptr(), (&raw mut (*info).FileName).cast(), target.len());
        set_info(file, FileRenameInfoEx, info.cast(), bytes)
    }
}

/// Changes what `class` says of an open file.
///
/// # Safety
///
/// `info` points to `bytes` bytes of the structure that belongs to `class`.
unsafe fn set_info(
    file: &File,
    class: FILE_INFO_BY_HANDLE_CLASS,
    info: *const c_void,
    bytes: usize,
) -> io::Result<()> {
    let bytes = u32::try_from(bytes).map_err(|_| Errno::INVAL)?;
    // SAFETY: the handle is open as long as `file` is borrowed; the rest by contract. The call keeps no reference.
    check(unsafe { SetFileInformationByHandle(file.as_raw_handle(), class, info, bytes) })
}

/// Returns whether `path` is a folder, or the error of the system if there is nothing.
pub(crate) fn is_dir(path: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(path)?.is_dir())
}

/// Creates a folder.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)
}

/// Makes the name of the folder `path` durable. With `existed`, another program may have made the folder.
///
/// Syncs the folder itself: what is logged after its name makes the name durable, and its owner may change it, but perhaps not its parent.
pub(crate) fn sync_name(path: &Path, existed: bool) -> io::Result<()> {
    match Folder::open(path)?.sync() {
        Err(e) if existed && e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// Refuses offsets that the system gives another meaning: those that are negative as signed numbers.
fn offset_is_plain(offset: u64) -> io::Result<()> {
    if i64::try_from(offset).is_ok() { Ok(()) } else { Err(Errno::INVAL.into()) }
}

/// Reads at `offset`. May be short. Reads through one handle run one after the other.
pub(crate) fn read_at(file: &Handle, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    offset_is_plain(offset)?;
    file.seek_read(buf, offset)
}

/// Writes at `offset`. May be short.
pub(crate) fn write_at(file: &Handle, buf: &[u8], offset: u64) -> io::Result<usize> {
    offset_is_plain(offset)?;
    file.seek_write(buf, offset)
}

/// Reserves clusters for a range that is not empty, and makes the file at least that long. Returns false if the file system then has not given
/// the file that many: it ignores the wish, or the file has holes.
pub(crate) fn allocate(file: &Handle, offset: u64, len: u64) -> io::Result<bool> {
    let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
    let found = file.metadata()?;
    if found.file_attributes() & FILE_ATTRIBUTE_SPARSE_FILE != 0 {
        return Ok(false); // the range may be a hole
    }
    let grows = end > found.len(); // a smaller allocation would shorten the file
    if grows {
        let wanted = FILE_ALLOCATION_INFO { AllocationSize: i64::try_from(end).map_err(|_| Errno::FBIG)? };
        // SAFETY: the bytes are those of the structure that belongs to the class.
        match unsafe { set_info(file, FileAllocationInfo, (&raw const wanted).cast(), size_of_val(&wanted)) }
        {
            Err(e) if lacks_call(&e) => {}
            done => done?,
        }
    }
    // Zeros take no clusters of a compressed file either.
    let is_compressed = found.file_attributes() & FILE_ATTRIBUTE_COMPRESSED != 0;
    if !is_compressed && allocated(file)? < end {
        return Ok(false);
    }
    if grows {
        file.set_len(end)?;
    }
    Ok(true)
}

/// Returns how many bytes of the disk the file has, as the file system states it.
pub(crate) fn allocated(file: &Handle) -> io::Result<u64> {
    let mut info = FILE_STANDARD_INFO::default();
    let bytes = size_of_val(&info) as u32;
    // SAFETY: the handle is open as long as `file` is borrowed, and the call writes one structure of this class and length.
    check(unsafe {
        GetFileInformationByHandleEx(file.as_raw_handle(), FileStandardInfo, (&raw mut info).cast(), bytes)
    })?;
    Ok(info.AllocationSize.unsigned_abs())
}

/// Truncates the file, or extends it with zeros. What it is longer takes no clusters if the file system has sparse files: NTFS gives clusters
/// to the whole length of other files.
pub(crate) fn set_len(file: &Handle, len: u64) -> io::Result<()> {
    offset_is_plain(len)?;
    if len > file_len(file)? {
        let mut written = 0;
        // Best effort: the length takes clusters then.
        // SAFETY: the handle is open as long as the file is borrowed. The call takes no bytes, which stands for "sparse", and returns none. It
        // is done when it returns, and writes one number.
        let _ = unsafe {
            DeviceIoControl(
                file.as_raw_handle(),
                FSCTL_SET_SPARSE,
                ptr::null(),
                0,
                ptr::null_mut(),
                0,
                &raw mut written,
                ptr::null_mut(),
            )
        };
    }
    file.set_len(len)
}

/// Returns the length in bytes.
pub(crate) fn file_len(file: &Handle) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

/// Makes the bytes durable, and all metadata: `FlushFileBuffers`, for files that are open for writing.
pub(crate) fn sync_data(file: &Handle) -> io::Result<()> {
    file.sync_data()
}

/// Like [`sync_data`].
pub(crate) fn sync_all(file: &Handle) -> io::Result<()> {
    file.sync_all()
}

/// Does nothing: the system has no such call for files.
pub(crate) fn will_need(_file: &Handle, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

/// Does nothing: the system has no such call.
pub(crate) fn dont_need(_file: &Handle, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

/// Locks an open file, exclusively or shared, without waiting. `WouldBlock` if another opener holds a conflicting lock.
pub(crate) fn try_lock(file: &Handle, exclusive: bool) -> io::Result<()> {
    let flags = LOCKFILE_FAIL_IMMEDIATELY | if exclusive { LOCKFILE_EXCLUSIVE_LOCK } else { 0 };
    let mut place = locked_place();
    // SAFETY: the handle is open as long as `file` is borrowed. The call does not wait, so it is done with `place` when it returns.
    match check(unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) }) {
        Err(e) if has_code(&e, &[code::ERROR_LOCK_VIOLATION]) => Err(Errno::WOULDBLOCK.into()),
        locked => locked,
    }
}

/// Unlocks an open file.
pub(crate) fn unlock(file: &Handle) -> io::Result<()> {
    let mut place = locked_place();
    // SAFETY: the handle is open as long as `file` is borrowed. The call does not wait, so it is done with `place` when it returns.
    check(unsafe { UnlockFileEx(file.as_raw_handle(), 0, 1, 0, &raw mut place) })
}

/// Where the byte that is locked lies: beyond every file. Others could not read a locked byte of the file, and a copy would fail.
fn locked_place() -> OVERLAPPED {
    let mut place = OVERLAPPED::default();
    place.Anonymous.Anonymous.OffsetHigh = 1 << 30;
    place
}

/// Returns nothing: the system has no limit that matters.
pub(crate) fn files_max() -> Option<u64> {
    None
}

/// Returns the time since the first call.
#[allow(clippy::disallowed_methods, reason = "this is the place that reads the clock")]
pub(crate) fn since_boot() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

/// Returns the bytes of a page of memory, the same on all processors of this system.
pub(crate) fn page_bytes() -> usize {
    4096
}

/// Fills `out` with random bytes: the hash of nothing, with keys that the standard library takes from the system.
pub(crate) fn random(out: &mut [u8; 8]) -> bool {
    *out = RandomState::new().build_hasher().finish().to_le_bytes();
    true
}

/// Lowers the priority of the calling thread. The system raises it for a moment if the thread gets no time at all.
pub(crate) fn lower_priority() {
    // SAFETY: the calls take no memory of the program, and the handle stands for the calling thread.
    let _ = unsafe { SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL) };
}

/// Returns all bytes of memory that this process may use, and those of them that are free: of the machine, or of the job of the process, as
/// in a container, if that allows less. If the system does not say: 4 GiB and half of it.
pub(crate) fn memory() -> (u64, u64) {
    let mut machine =
        MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..MEMORYSTATUSEX::default() };
    // SAFETY: the call writes one structure, whose length is set.
    let known = unsafe { GlobalMemoryStatusEx(&raw mut machine) } != 0;
    let (total, free) = if known { (machine.ullTotalPhys, machine.ullAvailPhys) } else { (4 << 30, 2 << 30) };
    match limit_of_job() {
        Some(limit) if limit < total => (limit, free.min(limit.saturating_sub(used_memory()))),
        _ => (total, free),
    }
}

/// Returns how many bytes the job of this process allows, if it sets a limit.
fn limit_of_job() -> Option<u64> {
    let mut job = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    let bytes = size_of_val(&job) as u32;
    // SAFETY: null stands for the job of this process. The call writes at most `bytes` bytes, those of the structure that belongs to the
    // class, and takes null for where to store how many these are.
    let known = unsafe {
        QueryInformationJobObject(
            ptr::null_mut(),
            JobObjectExtendedLimitInformation,
            (&raw mut job).cast(),
            bytes,
            ptr::null_mut(),
        )
    };
    let limits = [
        (JOB_OBJECT_LIMIT_JOB_MEMORY, job.JobMemoryLimit),
        (JOB_OBJECT_LIMIT_PROCESS_MEMORY, job.ProcessMemoryLimit),
    ];
    let set =
        limits.iter().filter(|(flag, _)| known != 0 && job.BasicLimitInformation.LimitFlags & flag != 0);
    set.map(|(_, bytes)| *bytes as u64).min()
}

/// Returns how many bytes of memory this process has been promised.
fn used_memory() -> u64 {
    let bytes = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut counters = PROCESS_MEMORY_COUNTERS { cb: bytes, ..PROCESS_MEMORY_COUNTERS::default() };
    // SAFETY: the handle stands for this process, and the call writes one structure of this length.
    let known = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, bytes) } != 0;
    if known { counters.PagefileUsage as u64 } else { 0 }
}

/// No map of a file: there are none on this system.
#[derive(Debug)]
pub(crate) enum Mapping {}

impl Mapping {
    pub(crate) fn new(_file: &Handle, _len: u64, _writable: bool) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn base(&self) -> ptr::NonNull<u8> {
        match *self {}
    }

    pub(crate) fn len(&self) -> usize {
        match *self {}
    }

    pub(crate) fn expect_order(&self, _in_order: bool) {
        match *self {}
    }

    pub(crate) fn release(&self) -> io::Result<()> {
        match *self {}
    }
}

/// Returns false, see the head of this file.
pub(crate) fn may_map(_file: &Handle) -> io::Result<bool> {
    Ok(false)
}

/// Returns false, see the head of this file.
pub(crate) fn may_map_shared(_file: &Handle) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_taken_as_they_are() {
        for (path, long) in [
            (r"C:\data\db", r"\\?\C:\data\db"),
            ("C:/data/../db", r"\\?\C:\db"),
            (r"\\server\share\db", r"\\?\UNC\server\share\db"),
            (r"\\?\C:\db", r"\\?\C:\db"),
        ] {
            assert_eq!(verbatim(Path::new(path)).unwrap(), Path::new(long), "{path}");
        }
    }

    #[test]
    fn offsets_with_another_meaning_are_refused() {
        assert!(offset_is_plain(i64::MAX as u64).is_ok());
        assert!(offset_is_plain(u64::MAX).is_err() && offset_is_plain(1 << 63).is_err());
    }

    #[test]
    fn memory_of_the_machine_is_known() {
        let (total, free) = memory();
        assert!(total > 16 << 20 && free > 0 && free <= total, "{total} {free}");
    }
}
