//! Settings of a database.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::RemoteOptions;
use crate::{Error, Result};

/// Default bytes of the reserve of an empty database: for its flush, and for the manifest of the next open.
const RESERVE_BYTES_MIN: u64 = 512 << 10;
/// Default bytes of the reserve of a large database.
const RESERVE_BYTES_MAX: u64 = 8 << 20;

/// When a commit becomes durable against a crash of the machine. In every mode the bytes are handed to the kernel
/// before the commit returns. So the death of the process loses nothing, and a crash leaves a prefix of the commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// When the system writes it back, without a bound on time.
    None,
    /// At most this long after the call returned, plus 10 ms and one sync, together with every commit before it.
    Interval(Duration),
    /// Before the call returns, together with every commit before it. The default.
    #[default]
    Full,
}

/// What opening does about damage in the log. An ordinary crash leaves nothing worse than a torn tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RecoveryMode {
    /// Refuse even a torn tail: for tests, and after clean shutdowns.
    Strict,
    /// Cut a torn tail and report it. Refuse damage elsewhere and report what would be lost. The default.
    #[default]
    Tail,
    /// Stop before the first damage and report how many commits were given up; later segments are set aside.
    PointInTime,
    /// Skip damage; the database opens read-only, to export what can be read.
    Salvage,
}

/// Settings of a database: see [`crate::Db::options`], and [`OpenOptions::with`](crate::OpenOptions::with) for those without a method.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DbOptions {
    /// Default durability of commits. Default `Full`.
    pub sync: SyncMode,
    /// What to do with damage in the log. Default `Tail`.
    pub recovery: RecoveryMode,
    /// Bytes of memory that the database may use, of all kinds together; see `docs/concepts/memory.md` in the repository. 0 = half of the memory that the
    /// process may use: that of its control groups or of the machine, whichever is less. All databases of the process that have background threads
    /// and set no limit share it. Less than 16 MiB is treated as 16 MiB. Default 0.
    pub memory_limit: u64,
    /// Bytes of decoded blocks, filters and indexes kept in memory. Filters and indexes that stay in memory while their
    /// table is open take at most half of it. Default 64 MiB.
    pub cache_bytes: u64,
    /// Bytes of immutable memtables, of all families together, at which writers stop; writers are delayed from
    /// five eighths of it on. Active memtables are not counted, except that of a family with memtables that wait for a flush. Writers to a family stop, too, while too many of its
    /// memtables wait for their flush, however small these are. Default 160 MiB: two and a half write buffers of the default size.
    pub memtables_bytes_max: u64,
    /// Bytes of active memtables, of all families together, at which all of them are flushed, besides each at the size that its family says
    /// ([`FamilyOptions::write_buffer_bytes`](crate::FamilyOptions::write_buffer_bytes)). A family with several memtables that wait for
    /// their flush is left out. 0 = no such limit. Default 0.
    pub active_memtables_bytes_max: u64,
    /// Bytes of log kept for unflushed data before the family that retains the oldest part is flushed. Default 256 MiB.
    pub wal_bytes_max: u64,
    /// Bytes of one WAL segment, for a database that this open creates; an existing one keeps its own. The file has this length, but takes
    /// less of the disk while the log is short: 64 KiB at first, then twice what it took before, up to the whole segment. Default 32 MiB.
    pub wal_segment_bytes: u64,
    /// Threads for flush and compaction. 0 = the committing thread does the work itself: the order of I/O is then
    /// deterministic, and no thread syncs for `SyncMode::Interval`. With two or more, another one merges while one family
    /// uses all that merge. None starts before there is work for it. While the system cannot start one, commits do its work, and
    /// [`crate::Db::health`] says so. At most 256. Default: 2 to 4, by the number of cores.
    pub background_threads: Option<usize>,
    /// Bytes per second that all merges together may write; flushes are not limited. 0 = no limit. Can be changed while the
    /// database is open: [`crate::Db::set_compaction_rate`]. Default 0.
    pub compaction_bytes_per_second: u64,
    /// Commits that store data, and merges, leave at least this many bytes of the disk free. Deletes, drops and flushes
    /// may use them. Default 100 MiB.
    pub disk_free_min: u64,
    /// Bytes of disk that a file reserves for deletes, drops and flushes when other programs have filled the disk; 0 =
    /// none. Default: 512 KiB, and as much more as the database holds, up to 8 MiB; two log segments if that is less.
    pub disk_reserve_bytes: Option<u64>,
    /// How much history [`crate::Db::snapshot_at`] can read, in bytes of log: what was overwritten or deleted since is kept.
    /// Default 0: only until the next flush or merge.
    pub history_bytes: u64,
    /// Create the database if there is none. Default true.
    pub create_if_missing: bool,
    /// Refuse to open a database that exists, with `Exists`. Default false.
    pub error_if_exists: bool,
    /// Open read-only: nothing on disk is changed. Default false.
    pub read_only: bool,
    /// Write small WAL records through a memory map where the file system allows. Default true.
    pub mmap_wal: bool,
    /// Write an event log to the directory: flushes, merges, stalls and errors as JSON lines in `EVENTS` and `EVENTS.old`, at most
    /// about 4 MiB. Also publish the figures and the health for other processes, in `FIGURES`: [`crate::WriterFigures`]. See
    /// `docs/operate` in the repository. Default true.
    pub event_log: bool,
    /// Syncs of the log that take at least so long are events `slow_sync`; 0 = none. Default 100 ms.
    pub slow_sync: Duration,
    /// Operations that take at least so long are events `slow_operation`. Every operation is timed then: two readings of the clock, about 50 ns.
    /// Default none.
    pub slow_operation: Option<Duration>,
    /// An object store that keeps a copy of the database, from which a lost folder is restored. Default none.
    pub remote: Option<RemoteOptions>,
    /// What the project's own tests choose in place of the engine.
    #[doc(hidden)]
    pub forced: Forced,
}

/// Choices that the engine makes itself, and tests make for it: a small database then does what only a large one would.
#[derive(Clone, Debug, Default)]
pub struct Forced {
    /// Number of key ranges that one merge is divided into, at most.
    pub merge_parts: Option<usize>,
    /// Recovered commits are saved by a background thread however few they are.
    pub saves_behind: bool,
}

/// The system may have room for no more threads, and a thread that cannot begin ends the process.
const BACKGROUND_THREADS_MAX: usize = 256;

/// Checks a number of threads for flush and compaction.
///
/// # Errors
/// `InvalidArgument` if it is out of its domain.
pub(crate) fn check_threads(n: usize) -> Result<usize> {
    if n <= BACKGROUND_THREADS_MAX {
        return Ok(n);
    }
    Err(Error::invalid(format!("background_threads is {n}, outside 0 to {BACKGROUND_THREADS_MAX}")))
}

impl Default for DbOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::Full,
            recovery: RecoveryMode::Tail,
            memory_limit: 0,
            cache_bytes: 64 << 20,
            memtables_bytes_max: 160 << 20,
            active_memtables_bytes_max: 0,
            wal_bytes_max: 256 << 20,
            wal_segment_bytes: 32 << 20,
            background_threads: None,
            compaction_bytes_per_second: 0,
            disk_free_min: 100 << 20,
            disk_reserve_bytes: None,
            history_bytes: 0,
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            mmap_wal: true,
            event_log: true,
            slow_sync: Duration::from_millis(100),
            slow_operation: None,
            remote: None,
            forced: Forced::default(),
        }
    }
}

impl DbOptions {
    /// Shortest and longest length of the reserve file, for log segments of `segment_bytes` bytes.
    pub(crate) fn reserve_bytes(&self, segment_bytes: u64) -> RangeInclusive<u64> {
        let most = RESERVE_BYTES_MAX.min(2 * segment_bytes);
        self.disk_reserve_bytes.map_or(RESERVE_BYTES_MIN.min(most)..=most, |bytes| bytes..=bytes)
    }
}
