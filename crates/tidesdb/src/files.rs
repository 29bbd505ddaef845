//! File names: built and parsed in one place. All names are numbers; a family's name is data.

use std::path::Path;
use std::sync::Arc;

use tidesdb_io::{Access, Dir, File};

use crate::types::{FILE_NUMBER_MAX, ID_MAX, TableId, VlogId, WAL_ID_MAX, WalId};
use crate::{Error, Result};

/// The lock file.
pub const LOCK: &str = "LOCK";
/// Names the manifest in force.
pub const CURRENT: &str = "CURRENT";
/// Marks that a sync of the log or of values failed since the machine started, so pages may have been dropped without being written.
/// Empty.
pub const SYNC_FAILED: &str = "SYNC-FAILED";
/// Occupies disk space that is given back when the disk is full: see `wal/reserve.rs`. Its bytes have no meaning.
pub const RESERVE: &str = "RESERVE";
/// A new `CURRENT` before its rename.
pub const CURRENT_NEW: &str = "CURRENT.new";
/// Marks that the directory is being filled from an object store: see `remote/restore.rs`. Empty.
pub const RESTORING: &str = "RESTORING";
/// Marks that the directory is being filled from a backup: see `backup/restore.rs`. Empty.
pub const UNFINISHED: &str = "UNFINISHED";

/// The event log: see `events`. The engine never reads it.
pub const EVENTS: &str = "EVENTS";
/// The older part of the event log.
pub const EVENTS_OLD: &str = "EVENTS.old";
/// What the process that writes says of itself: see `figures.rs`.
pub const FIGURES: &str = "FIGURES";

/// Begins the names of tables that are being built in the directory, see `db/ingest.rs`. An open removes them.
pub const BUILDING: &str = "INGEST-";

/// The kind of a file in the database directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// `LOCK`
    Lock,
    /// `CURRENT` or `CURRENT.new`
    Current,
    /// `000001.manifest`
    Manifest(u64),
    /// `000001.wal`
    Wal(WalId),
    /// `000001.klog`
    Table(TableId),
    /// `000001.vlog`
    Vlog(VlogId),
    /// `SYNC-FAILED`
    SyncFailed,
    /// `RESERVE`
    Reserve,
    /// `EVENTS`, `EVENTS.old` or `FIGURES`
    Events,
    /// `INGEST-...`, a table or its values while it is being built
    Building,
    /// A file set aside: `000001.klog.orphan`, `000001.wal.lost`, or a WAL segment kept for reuse, `000001.wal.free`
    Aside,
}

/// Name of a manifest.
pub fn manifest(n: u64) -> String {
    format!("{n:06}.manifest")
}

/// Name of a WAL segment.
pub fn wal(id: WalId) -> String {
    format!("{:06}.wal", id.0)
}

/// Name of a WAL segment that is not part of the log: one that is being made, or that is kept for reuse.
pub fn free_wal(id: WalId) -> String {
    format!("{}.free", wal(id))
}

/// Name of a table.
pub fn table(id: TableId) -> String {
    format!("{:06}.klog", id.0)
}

/// Name of a value log.
pub fn vlog(id: VlogId) -> String {
    format!("{:06}.vlog", id.0)
}

/// The kind of the file called `name`. `None` for a name that the engine never writes, such as `1.wal`, or one whose
/// number is outside its domain.
pub fn parse(name: &str) -> Option<FileKind> {
    match name {
        LOCK => return Some(FileKind::Lock),
        CURRENT | CURRENT_NEW => return Some(FileKind::Current),
        SYNC_FAILED => return Some(FileKind::SyncFailed),
        RESERVE => return Some(FileKind::Reserve),
        EVENTS | EVENTS_OLD | FIGURES => return Some(FileKind::Events),
        _ if name.starts_with(BUILDING) => return Some(FileKind::Building),
        _ => {}
    }
    let (stem, ext) = name.split_once('.')?;
    let n: u64 = stem.parse().ok()?;
    if format!("{n:06}") != stem {
        return None;
    }
    let kind = match ext {
        "manifest" if n <= FILE_NUMBER_MAX => FileKind::Manifest(n),
        "wal" if n <= WAL_ID_MAX => FileKind::Wal(WalId(n)),
        "klog" if n <= FILE_NUMBER_MAX => FileKind::Table(TableId(n)),
        "vlog" => FileKind::Vlog(VlogId(u32::try_from(n).ok().filter(|n| *n <= ID_MAX)?)),
        _ if ext.ends_with(".orphan") || ext.ends_with(".lost") || ext.ends_with(".free") => FileKind::Aside,
        _ => return None,
    };
    Some(kind)
}

/// Refuses an empty path of a directory: the system would say that it does not exist, and an unset variable of a script is the usual cause.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_path(path: &Path) -> Result<()> {
    match path.as_os_str().is_empty() {
        true => Err(Error::invalid("the path of a folder is empty; write \".\" for the current folder")),
        false => Ok(()),
    }
}

/// Opens a file to make its bytes durable. Windows syncs only what may be written; elsewhere a file that nobody may write can be synced, too.
///
/// # Errors
/// Those of the open.
pub fn open_to_sync(dir: &dyn Dir, name: &str) -> std::io::Result<Arc<dyn File>> {
    match dir.open(name, Access::ReadWrite) {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => dir.open(name, Access::Read),
        opened => opened,
    }
}

/// Returns the folder that `path` is in; the current one for a name alone.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes a file that nothing needs any more, if there is one of this name. After a failure it stays, and the next open removes it or sets
/// it aside.
pub fn remove(dir: &dyn Dir, name: &str) {
    match dir.unlink(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(name, %error, "a file could not be removed; it stays until the next open");
        }
        _ => {}
    }
}

/// Leaves a note for the next open: bytes that can be read may not be on disk. The note needs no sync: after a machine
/// crash the changed boot identity has the same effect.
pub fn note_failed_sync(dir: &dyn Dir) {
    match dir.create_new(SYNC_FAILED, 0) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            tracing::warn!(%error, "a sync failed, and the note SYNC-FAILED for the next open could not be written");
        }
        _ => {}
    }
}
