//! What is around a folder on this machine: who holds files of it, where it is mounted, what the process that uses it may have.

use std::path::PathBuf;

/// What the system says about a folder and the process that writes it. What it does not tell is empty: all of it everywhere but on Linux.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Surroundings {
    /// Bytes of memory that the process may use: those of the machine, or of its smallest control group.
    pub memory: Option<u64>,
    /// Descriptors that the process has open, and how many it may have.
    pub descriptors: Option<(u64, u64)>,
    /// The file system of the folder.
    pub mount: Option<Mount>,
    /// Processes that hold files which were removed from the folder, with most bytes first.
    pub holders: Vec<Holder>,
    /// Processes that could not be looked at: they belong to other users.
    pub hidden: u64,
    /// Files of the folder that have another name elsewhere, as a checkpoint gives them, and their bytes.
    pub linked: (u64, u64),
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its kind, such as `ext4`.
    pub kind: String,
    /// Its options: those of the mount, then those of the file system.
    pub options: Vec<String>,
}

/// A process that holds removed files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// How many files it holds.
    pub files: u64,
    /// Bytes of the disk that they take.
    pub bytes: u64,
}
