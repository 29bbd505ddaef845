//! The order in which the locks of the engine are taken.
//!
//! A thread takes locks in rising rank only, so no two threads wait for each other. [`Mutex`](crate::Mutex) and
//! [`RwLock`](crate::RwLock) carry their rank in their type; a build with debug assertions checks it at each lock. A lock without
//! a rank is a leaf: its holder takes no other lock. `docs/internals/locks.md` says what each lock guards.

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident = $rank:expr;)*) => {
        $($(#[$doc])* pub const $name: u16 = $rank;)*

        /// Each rank with its name.
        #[cfg(debug_assertions)]
        pub(crate) const ALL: &[(&str, u16)] = &[$((stringify!($name), $name)),*];
    };
}

ranks! {
    /// C library: the families of a database are made, dropped or renamed.
    C_CATALOG = 10;
    /// C library: the engine opens a database.
    C_OPENING = 12;
    /// C library: comparators that were registered.
    C_ORDERS = 14;
    /// C library: what open transactions hold.
    C_TRANSACTIONS = 16;
    /// C library: handles of the families of a database.
    C_FAMILIES = 18;
    /// C library: settings of a family.
    C_CONFIG = 20;
    /// C library: handles to give out again.
    C_HANDLES = 22;
    /// The view of a reader beside the writer is renewed.
    READER = 90;
    /// The index of a store of backups is read and replaced.
    BACKUP = 92;
    /// Lock of the database directory.
    DIRECTORY = 100;
    /// The figures for other processes are written.
    PUBLISHING = 104;
    /// What the last look at the state of the database saw.
    WATCH = 106;
    /// The upload under way.
    UPLOADING = 120;
    /// A family is made, dropped or renamed.
    CATALOG = 130;
    /// The first write begins the session.
    BEGINNING = 140;
    /// The commit with a condition that is being decided.
    DECIDING = 150;
    /// A set of range tombstones is replaced.
    RANGES = 160;
    /// What a transaction read.
    SPANS = 162;
    /// A merge of a family is installed.
    INSTALLING = 172;
    /// The flush of a family; several only in the order of their numbers.
    FLUSHING = 180;
    /// The manifest names more value logs of a family.
    NAMING = 184;
    /// The tables that the merges of a family claim.
    CLAIMS = 186;
    /// The order of commits is held.
    ROTATING = 190;
    /// The leader of a sync of the log.
    LEADING = 200;
    /// The sealing of the log.
    SEALED = 202;
    /// A file of the log is made, and its header and name made durable.
    MAKING = 208;
    /// Blocks of the log are allocated.
    PREPARING = 210;
    /// Segments of the log.
    SEGMENTS = 220;
    /// Value logs to sync.
    DIRTY_VLOGS = 222;
    /// A sync of a value log.
    VLOG_SYNCING = 224;
    /// The file of a value log that is written to.
    VLOG_CURRENT = 229;
    /// The manifest.
    VERSIONS = 240;
    /// Files that nothing names.
    ORPHANS = 242;
    /// The families by number.
    FAMILIES = 250;
    /// The read view of a family is replaced.
    VIEW = 260;
    /// Files of a value log that are not sealed.
    VLOG_BEGUN = 262;
    /// Files of a value log.
    VLOG_FILES = 264;
    /// Live snapshots.
    SNAPSHOTS = 270;
    /// Jobs of the background.
    JOBS = 280;
    /// The memory of filters and indexes is settled.
    TABLE_MEMORY = 284;
    /// The table of the cache grows or shrinks.
    CACHE = 286;
    /// A fetch from an object store.
    REMOTE_FETCHING = 288;
    /// Objects of an object store.
    REMOTE_OBJECTS = 290;
    /// Local files of an object store.
    REMOTE_FILES = 292;
    /// A file of an object store.
    REMOTE_FILE = 294;
    /// Files to remove.
    OBSOLETE = 298;
    /// Threads of the background.
    THREADS = 299;
    /// Why the database was poisoned.
    HEALTH = 300;
    /// The event log is written.
    EVENT_LOG = 310;
    /// A lock under which no other is taken.
    LEAF = u16::MAX;
}

/// Name of a rank, for messages.
#[cfg(debug_assertions)]
pub(crate) fn name(rank: u16) -> &'static str {
    ALL.iter().find(|(_, known)| *known == rank).map_or("without a name", |(name, _)| name)
}
