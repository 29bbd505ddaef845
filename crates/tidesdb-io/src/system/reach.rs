//! How far the calls reach that make changes durable: of each system, the weakest that its file may use.
//!
//! The file of macOS chooses its call by [`MACOS`], and the simulated disk does what the call does. So a crash run fails if a weaker call is
//! chosen here.

/// How far a call brings the changes that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Not beyond the page cache: nothing is promised.
    Memory,
    /// Into the cache of the device: `fsync` of macOS. If the power fails, each change is lost or kept.
    Cache,
    /// Into the cache of the device, and nothing that comes there later is kept without them: `F_BARRIERFSYNC` of macOS.
    Barrier,
    /// Onto the device, and so is all that is in its cache: `fsync` of Linux and FreeBSD, `F_FULLFSYNC` of macOS.
    Device,
    /// Onto the device, and so are all earlier changes of names in the file system: `FlushFileBuffers` and write-through renames on NTFS.
    DeviceAndNames,
}

/// Each sync on macOS, of a file or a directory.
pub(crate) const MACOS: Reach = Reach::Device;

/// Each sync of a file, and each rename, on Windows.
pub(crate) const WINDOWS: Reach = Reach::DeviceAndNames;

/// The sync of a directory on Windows. By the documentation of NTFS its names are durable then, but no call exists for that alone: the engine
/// must not rely on it.
pub(crate) const WINDOWS_DIR: Reach = Reach::Memory;
