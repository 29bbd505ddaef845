//! Calls to the simulated disk: their kinds, sets of kinds, and the record kept of each call.

use std::sync::Arc;

/// One kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum OpKind {
    /// [`Disk::open_dir`](crate::Disk::open_dir).
    OpenDir,
    /// A directory created by `open_dir`.
    MakeDir,
    /// [`Dir::create_new`](crate::Dir::create_new).
    Create,
    /// [`Dir::open`](crate::Dir::open).
    Open,
    /// [`Dir::rename`](crate::Dir::rename).
    Rename,
    /// [`Dir::unlink`](crate::Dir::unlink).
    Unlink,
    /// [`Dir::link`](crate::Dir::link).
    Link,
    /// [`Dir::list`](crate::Dir::list).
    List,
    /// [`Dir::sync`](crate::Dir::sync), also made by `open_dir` with `create`.
    SyncDir,
    /// [`Dir::lock`](crate::Dir::lock).
    Lock,
    /// [`Dir::space`](crate::Dir::space).
    Space,
    /// [`File::read_at`](crate::File::read_at).
    Read,
    /// [`File::write_at`](crate::File::write_at).
    Write,
    /// [`File::allocate`](crate::File::allocate).
    Allocate,
    /// [`File::set_len`](crate::File::set_len).
    SetLen,
    /// [`File::sync_data`](crate::File::sync_data).
    SyncData,
    /// [`File::sync_all`](crate::File::sync_all).
    SyncAll,
    /// [`File::len`](crate::File::len).
    Len,
    /// [`File::map_shared`](crate::File::map_shared).
    MapShared,
    /// [`File::without_descriptor`](crate::File::without_descriptor).
    MapRead,
    /// [`SharedMap::write`](crate::SharedMap::write).
    MapWrite,
    /// [`File::advise`](crate::File::advise).
    Advise,
}

/// A set of [`OpKind`]s. Sets and kinds are joined with `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpSet(u32);

impl OpSet {
    /// All calls.
    pub const ALL: Self = Self(u32::MAX);
    /// `sync_data` and `sync_all` of files.
    pub const SYNCS: Self = Self::of(OpKind::SyncData).with(OpKind::SyncAll);
    /// `write_at` and writes through maps.
    pub const WRITES: Self = Self::of(OpKind::Write).with(OpKind::MapWrite);
    /// Calls that look up or create a file.
    pub const OPENS: Self =
        Self::of(OpKind::Create).with(OpKind::Open).with(OpKind::Lock).with(OpKind::OpenDir);
    /// Calls that may change the state of the disk: the useful crash points.
    pub const CHANGES: Self = Self::SYNCS
        .join(Self::WRITES)
        .with(OpKind::MakeDir)
        .with(OpKind::Create)
        .with(OpKind::Rename)
        .with(OpKind::Unlink)
        .with(OpKind::Link)
        .with(OpKind::SyncDir)
        .with(OpKind::Lock)
        .with(OpKind::Allocate)
        .with(OpKind::SetLen);

    /// The set of one kind.
    pub const fn of(kind: OpKind) -> Self {
        Self(1 << kind as u32)
    }

    const fn with(self, kind: OpKind) -> Self {
        self.join(Self::of(kind))
    }

    const fn join(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if `kind` is in the set.
    pub const fn has(self, kind: OpKind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }
}

impl From<OpKind> for OpSet {
    fn from(kind: OpKind) -> Self {
        Self::of(kind)
    }
}

impl<T: Into<Self>> std::ops::BitOr<T> for OpSet {
    type Output = Self;
    fn bitor(self, other: T) -> Self {
        self.join(other.into())
    }
}

impl<T: Into<OpSet>> std::ops::BitOr<T> for OpKind {
    type Output = OpSet;
    fn bitor(self, other: T) -> OpSet {
        OpSet::of(self).join(other.into())
    }
}

/// One call that reached the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Position in the run, from 0. [`SimDisk::crash_at`](super::SimDisk::crash_at) takes this number.
    pub index: u64,
    /// Kind of the call.
    pub kind: OpKind,
    /// The file or directory, as `/dir/name`. An open file keeps the name it was opened by. For a rename or
    /// link, the old name.
    pub path: Arc<str>,
    /// Offset in the file, or 0.
    pub offset: u64,
    /// Requested length, or 0.
    pub len: u64,
    /// True if the call returned `Ok`.
    pub ok: bool,
}
