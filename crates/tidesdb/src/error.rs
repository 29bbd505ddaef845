//! The error type of the engine: few, stable kinds; each says what happened, where, and what to do next.
//!
//! Messages never contain keys or values.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::sync::Arc;

/// The result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. Cheap to clone, so that one failure can be reported to every waiter of a group commit.
///
/// A program whose calls return [`io::Result`] uses `?`: the error becomes an [`io::Error`] with the kind of the system's error, `StorageFull`,
/// `NotFound`, `AlreadyExists`, `InvalidInput`, `InvalidData` for damage, `OutOfMemory` for a memory limit, or `Other`.
///
/// ```
/// use std::io;
/// use tidesdb::{Db, Error};
/// fn load(db: &Db) -> io::Result<Option<Vec<u8>>> {
///     Ok(db.family("stock")?.get("apple")?.map(Into::into))
/// }
/// # let dir = tempfile::tempdir()?;
/// # let db = Db::open(dir.path())?;
/// let error = load(&db).unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::NotFound);
/// let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
/// assert!(matches!(cause, Some(Error::NotFound { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed. No acknowledged commit is lost.
    Io {
        /// What was attempted: `read`, `write`, `sync`, `open`, ...
        op: &'static str,
        /// The file or directory.
        file: Arc<str>,
        /// Offset in the file, for a read or a write.
        offset: Option<u64>,
        /// The system's error. It is part of the message, so it is not a `source` as well.
        cause: Arc<io::Error>,
    },
    /// Bytes on disk are not the bytes that were written. Nothing was changed; see `tidesdb verify` and the recovery
    /// modes.
    Corrupt {
        /// The damaged file.
        file: Arc<str>,
        /// Offset at which the damage was found.
        offset: u64,
        /// What was expected.
        what: Arc<str>,
    },
    /// The commit was handed to the log but its outcome is unknown: after reopening it is either whole or absent.
    CommitUnknown {
        /// Sequence number of the commit; 0 if it is not known.
        seq: u64,
        /// The first failure.
        cause: Arc<Error>,
    },
    /// An earlier failure left the durable state unknown: writes are refused, reads continue. Reopen to recover.
    Poisoned {
        /// The first failure.
        cause: Arc<Error>,
    },
    /// The disk has less free space than the configured minimum. Reads continue; writes resume when space returns.
    NoSpace {
        /// The directory.
        dir: Arc<str>,
        /// Bytes free now.
        free: u64,
        /// Bytes that had to be free: those of the call, those that the flush of unflushed commits needs, and
        /// [`DbOptions::disk_free_min`](crate::DbOptions::disk_free_min).
        needed: u64,
    },
    /// The database has used up one of its number spaces. Reads continue: open it read-only and load its rows into a
    /// new one.
    Exhausted {
        /// Which number space.
        what: Arc<str>,
    },
    /// The call would have to wait too long; retry later.
    Busy {
        /// What the call waits for.
        cause: &'static str,
    },
    /// Another commit changed what the transaction depends on; retry the transaction.
    Conflict {
        /// The family.
        family: Arc<str>,
        /// The key that was changed. If there are several, any of them.
        key: Arc<[u8]>,
    },
    /// Another process, or another handle of this process, has the database open.
    Locked {
        /// The directory.
        dir: Arc<str>,
        /// Which process or handle may have it open.
        what: Arc<str>,
    },
    /// The database was opened read-only.
    ReadOnly,
    /// The handle was used after [`Db::close`](crate::Db::close), or after the last [`Db`](crate::Db) was dropped: other handles do not keep
    /// the database open.
    Closed,
    /// [`Db::close_timeout`](crate::Db::close_timeout) was over before the close: it goes on in the background, and no acknowledged commit
    /// is lost.
    Closing {
        /// What the close waits for.
        waits_for: Arc<str>,
    },
    /// No such family, file or snapshot.
    NotFound {
        /// The missing object.
        what: Arc<str>,
    },
    /// The name is already in use.
    Exists {
        /// The object that was to be created.
        what: Arc<str>,
    },
    /// An argument is outside its domain. Nothing was done.
    InvalidArgument {
        /// Which argument, and why.
        what: Arc<str>,
    },
    /// The merge operator of a family failed or is not known. The value and its operands stay as they are.
    Merge {
        /// The family.
        family: Arc<str>,
        /// Name of the operator.
        operator: Arc<str>,
        /// What the operator reported.
        what: Arc<str>,
    },
    /// A memory limit would be exceeded. Nothing was done.
    MemoryLimit {
        /// What needed the memory.
        what: Arc<str>,
    },
    /// The files were written by a newer version. The directory was not changed.
    FormatTooNew {
        /// The file.
        file: Arc<str>,
        /// Its format version.
        found: u32,
        /// The newest format version this library reads.
        supported: u32,
    },
    /// The files are of a format from before the first release. The directory was not changed.
    FormatTooOld {
        /// The file.
        file: Arc<str>,
        /// Its format version.
        found: u32,
        /// The oldest format version this library reads.
        supported: u32,
    },
    /// The data is compressed with an algorithm that this build of the library lacks, or a setting asks for it. The data is intact.
    NotBuiltIn {
        /// The missing feature of the crate.
        feature: &'static str,
    },
    /// An invariant of the engine was violated; the database is poisoned. Please report it.
    Internal {
        /// Which invariant.
        what: Arc<str>,
    },
}

impl std::error::Error for Error {}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { op, file, offset, cause } => write!(f, "{op} of {file}{}: {cause}", at(*offset)),
            Self::Corrupt { file, offset, what } => {
                write!(f, "corruption in {file} at byte {offset}: {what}")
            }
            Self::CommitUnknown { seq, cause } => {
                let commit = number(*seq);
                write!(
                    f,
                    "commit{commit} may or may not have become durable: {cause}; reopen the database to find out"
                )
            }
            Self::Poisoned { cause } => {
                write!(
                    f,
                    "the database refuses writes since an earlier failure: {cause}; reopen it to recover"
                )
            }
            Self::NoSpace { dir, free, needed } => {
                write!(f, "no space in {dir}: {}; free some space and retry", shortage(*free, *needed))
            }
            Self::Exhausted { what } => {
                write!(f, "the {what} of this database are used up: dump it and load the rows into a new one")
            }
            Self::Busy { cause } => write!(f, "busy: {cause}"),
            Self::Conflict { family, .. } => {
                let what = "another commit changed what the transaction depends on";
                write!(f, "conflict in family {family:?}: {what}; retry it")
            }
            Self::Locked { dir, what } => write!(f, "{dir} is open elsewhere: {what}"),
            Self::ReadOnly => f.write_str("the database is open for reading only"),
            Self::Closed => f.write_str(
                "the database is closed: by a call, or because the last `Db` was dropped; a family or a transaction does not keep it open",
            ),
            Self::Closing { waits_for } => {
                write!(
                    f,
                    "the database is still closing: it waits for {waits_for}; close it again to wait further"
                )
            }
            Self::NotFound { what } => write!(f, "{what} does not exist"),
            Self::Exists { what } => write!(f, "{what} exists already"),
            Self::InvalidArgument { what } => write!(f, "invalid argument: {what}"),
            Self::Merge { family, operator, what } => {
                let operands = "the operands are kept";
                write!(f, "the merge operator {operator:?} of family {family:?} failed: {what}; {operands}")
            }
            Self::MemoryLimit { what } => write!(f, "memory limit: {what}"),
            Self::FormatTooNew { file, found, supported } => {
                write!(
                    f,
                    "{file} has format {found}, this version reads up to {supported}; use a newer version"
                )
            }
            Self::FormatTooOld { file, found, supported } => write!(
                f,
                "{file} has format {found}, this version reads from {supported} on: write the rows to a file with `tidesdb dump` of the \
                 version that made the database, and read them into a new one with `tidesdb load`"
            ),
            Self::NotBuiltIn { feature } => {
                let advice = format!("build with the feature `{feature}` of the crate tidesdb-engine");
                write!(f, "{feature} compression is not built in: {advice}")
            }
            Self::Internal { what } => write!(f, "internal error: {what}"),
        }
    }
}

impl From<Error> for io::Error {
    /// Wraps the error; [`io::Error::get_ref`] and [`io::Error::into_inner`] return it.
    fn from(e: Error) -> Self {
        let kind = match &e {
            Error::Io { cause, .. } => cause.kind(),
            Error::Corrupt { .. } => io::ErrorKind::InvalidData,
            Error::NoSpace { .. } => io::ErrorKind::StorageFull,
            Error::InvalidArgument { .. } => io::ErrorKind::InvalidInput,
            Error::NotFound { .. } => io::ErrorKind::NotFound,
            Error::Exists { .. } => io::ErrorKind::AlreadyExists,
            Error::MemoryLimit { .. } => io::ErrorKind::OutOfMemory,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, e)
    }
}

/// Formats a sequence number for a message; empty for 0, which is none.
fn number(seq: u64) -> String {
    if seq == 0 { String::new() } else { format!(" {seq}") }
}

/// Formats the offset for a message; empty if there is none.
fn at(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}

/// Says what a full disk lacks. The system may refuse bytes although enough are free: a quota, or blocks kept for root.
fn shortage(free: u64, needed: u64) -> String {
    match free < needed {
        true => format!("{needed} bytes must be free, {free} are"),
        false => format!("the system refused {needed} bytes although {free} are free"),
    }
}

impl Error {
    /// Returns true if the same call can succeed later without reopening: `Busy`, `Conflict`, `NoSpace`, `MemoryLimit`,
    /// `Closing`.
    ///
    /// ```
    /// assert!(tidesdb::Error::Busy { cause: "a flush" }.is_retryable());
    /// assert!(!tidesdb::Error::Closed.is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::Conflict { .. }
                | Self::NoSpace { .. }
                | Self::MemoryLimit { .. }
                | Self::Closing { .. }
        )
    }

    /// Returns true if bytes on disk were found damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// A failed system call on `file`.
    pub(crate) fn io(op: &'static str, file: &str, cause: io::Error) -> Self {
        Self::Io { op, file: file.into(), offset: None, cause: Arc::new(cause) }
    }

    /// A failed read or write of `file` at `offset`.
    pub(crate) fn io_at(op: &'static str, file: &str, offset: u64, cause: io::Error) -> Self {
        Self::Io { op, file: file.into(), offset: Some(offset), cause: Arc::new(cause) }
    }

    /// There is no family called `name`.
    pub(crate) fn no_family(name: &str) -> Self {
        Self::NotFound { what: format!("family {name:?}").into() }
    }

    /// Damage in `file` at `offset`.
    pub(crate) fn corrupt(file: &str, offset: u64, what: impl Into<Arc<str>>) -> Self {
        Self::Corrupt { file: file.into(), offset, what: what.into() }
    }

    /// An invalid argument.
    pub(crate) fn invalid(what: impl Into<Arc<str>>) -> Self {
        Self::InvalidArgument { what: what.into() }
    }

    /// A violated invariant.
    pub(crate) fn internal(what: impl Into<Arc<str>>) -> Self {
        Self::Internal { what: what.into() }
    }

    /// Returns true if the disk or a quota is full.
    pub(crate) fn is_full(&self) -> bool {
        let full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        matches!(self, Self::NoSpace { .. }) || self.io_kind().is_some_and(full)
    }

    /// Returns true if a resource is short that may become available again: disk space, a quota, file descriptors, an
    /// object store.
    pub(crate) fn is_shortage(&self) -> bool {
        let store = self.io_kind() == Some(io::ErrorKind::HostUnreachable);
        self.is_out_of_descriptors() || self.is_full() || store
    }

    /// Returns true if the process or the system has run out of file descriptors.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { cause, .. } if tidesdb_io::is_out_of_descriptors(cause))
    }

    /// The kind of a failed system call, if this is one.
    pub(crate) fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { cause, .. } => Some(cause.kind()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidesdb_io::sim::errno;

    /// On Windows damaged data (23) counted as a shortage, so that a merge which read it was tried again for ever.
    #[test]
    fn a_shortage_of_descriptors_is_known_on_each_system() {
        let lacks = |number| {
            Error::io("read", "000001.klog", io::Error::from_raw_os_error(number)).is_out_of_descriptors()
        };
        assert!(lacks(errno::EMFILE) && lacks(errno::ENFILE));
        let others =
            [errno::EIO, errno::ENOSPC, errno::EACCES, errno::EOPNOTSUPP, if cfg!(windows) { 23 } else { 5 }];
        assert!(others.iter().all(|number| !lacks(*number)));
    }

    /// One of each variant.
    fn all() -> Vec<Error> {
        let what = || Arc::<str>::from("it");
        let poisoned = || Arc::new(Error::Closed);
        vec![
            Error::io_at("read", "000001.klog", 8, io::ErrorKind::Other.into()),
            Error::corrupt("f", 0, "it"),
            Error::CommitUnknown { seq: 7, cause: poisoned() },
            Error::Poisoned { cause: poisoned() },
            Error::NoSpace { dir: what(), free: 1, needed: 2 },
            Error::Exhausted { what: what() },
            Error::Busy { cause: "a flush" },
            Error::Conflict { family: what(), key: Arc::from(&b"k"[..]) },
            Error::Locked { dir: what(), what: what() },
            Error::ReadOnly,
            Error::Closed,
            Error::Closing { waits_for: what() },
            Error::no_family("f"),
            Error::Exists { what: what() },
            Error::invalid("it"),
            Error::Merge { family: what(), operator: what(), what: what() },
            Error::MemoryLimit { what: what() },
            Error::FormatTooNew { file: what(), found: 2, supported: 1 },
            Error::FormatTooOld { file: what(), found: 1, supported: 2 },
            Error::NotBuiltIn { feature: "zstd" },
            Error::internal("it"),
        ]
    }

    /// The page of errors has a row for each variant, in the order of the code: its name, a part of its message, and whether to retry.
    #[test]
    fn the_page_of_errors_has_each_variant() {
        let page = include_str!("../../../docs/reference/errors.md");
        let source = include_str!("error.rs");
        let variants = source.split("pub enum Error {").nth(1).and_then(|rest| rest.split("\n}\n").next());
        let variants: Vec<&str> = variants
            .map_or(Vec::new(), |body| body.lines().collect())
            .into_iter()
            .filter_map(|line| line.strip_prefix("    ").filter(|line| line.starts_with(char::is_uppercase)))
            .map(|line| line.trim_end_matches([',', '{', ' ']))
            .collect();
        let name = |error: &Error| format!("{error:?}").split([' ', '{']).next().map(str::to_owned);
        let all = all();
        assert_eq!(all.iter().filter_map(name).collect::<Vec<_>>(), variants, "`all` has each variant");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split('|').map(str::trim).collect())
            .take(all.len())
            .collect();
        let names: Vec<String> = rows.iter().map(|row| row[1].trim_matches('`').to_owned()).collect();
        assert_eq!(names, variants, "docs/reference/errors.md has each variant");
        for (error, row) in all.iter().zip(&rows) {
            let (message, retry) = (error.to_string(), if error.is_retryable() { "yes" } else { "no" });
            assert!(message.contains(row[2]), "docs/reference/errors.md: {} says {message:?}", row[1]);
            assert_eq!(row[3], retry, "docs/reference/errors.md: {}", row[1]);
            assert!(row.len() == 7 && !row[4].is_empty() && !row[5].is_empty(), "{row:?}");
        }
    }

    #[test]
    fn an_io_error_has_the_kind_of_the_error_and_gives_it_back() {
        use io::ErrorKind::*;
        let what = || Arc::<str>::from("it");
        let cases = [
            (Error::io("read", "f", TimedOut.into()), TimedOut),
            (Error::corrupt("f", 0, "it"), InvalidData),
            (Error::NoSpace { dir: what(), free: 1, needed: 2 }, StorageFull),
            (Error::invalid("it"), InvalidInput),
            (Error::no_family("f"), NotFound),
            (Error::Exists { what: what() }, AlreadyExists),
            (Error::MemoryLimit { what: what() }, OutOfMemory),
            (Error::Closed, Other),
        ];
        for (error, kind) in cases {
            let message = error.to_string();
            let wrapped = io::Error::from(error);
            assert_eq!((wrapped.kind(), wrapped.to_string()), (kind, message.clone()));
            let inner = wrapped.into_inner().and_then(|inner| inner.downcast::<Error>().ok());
            assert_eq!(inner.map(|inner| inner.to_string()), Some(message));
        }
    }
}
