//! Structures and constants of `tidesdb/extended.h`. Unlike those of `db.h` they may grow at their end: the first field of each is its size, except in arrays.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use super::{Code, CompareFn, Config, FamilyConfig};

/// A structure that may get more fields. Its first field is its size, which the caller sets to the `sizeof` that the program was compiled
/// with. A field that the caller does not have is 0.
///
/// # Safety
/// The structure is `repr(C)`, its first field is a `usize`, and its other fields are integers, raw pointers and handles: all bytes are valid,
/// and zeros are the default.
pub unsafe trait Growing: Copy + Default {
    /// Size of the structure in the first version that had it.
    const FIRST_BYTES: usize;
}

/// A buffer of the caller is too short.
pub const ERR_TOO_LARGE: Code = -8;
/// The merge operator failed, or is not known here.
pub const ERR_MERGE: Code = -100;

/// Reads no values.
pub const KEYS_ONLY: c_uint = 1;
/// The commit of the transaction never depends on the read.
pub const UNTRACKED: c_uint = 2;
/// The row never expires, whatever the default of its family.
pub const NEVER_EXPIRES: c_uint = 1;

/// The sync mode of the family.
pub const X_SYNC_DEFAULT: c_int = 0;
/// No sync.
pub const X_SYNC_NONE: c_int = 1;
/// Durable before the call returns.
pub const X_SYNC_FULL: c_int = 2;
/// Durable after an interval.
pub const X_SYNC_INTERVAL: c_int = 3;

/// Kind of an operation in a list: see `tidesdb_x_batch_add()`.
pub const OP_PUT: u8 = 0;
/// See [`OP_PUT`].
pub const OP_DELETE: u8 = 1;
/// See [`OP_PUT`].
pub const OP_SINGLE_DELETE: u8 = 2;
/// See [`OP_PUT`].
pub const OP_MERGE: u8 = 3;
/// See [`OP_PUT`].
pub const OP_DELETE_RANGE: u8 = 4;
/// See [`OP_PUT`].
pub const OP_DELETE_PREFIX: u8 = 5;

/// A put of a value that was written piece by piece; in commit hooks only.
pub const OP_PUT_STREAM: u8 = 6;

/// Removes a row; any number but this and [`FILTER_CHANGE`] keeps it.
pub const FILTER_REMOVE: c_int = 1;
/// Replaces the value of a row by what was appended.
pub const FILTER_CHANGE: c_int = 2;

/// Offset of a value that does not exist.
pub const NONE: usize = usize::MAX;

/// `tidesdb_x_read_options_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// Size of the structure.
    pub size: usize,
    /// Reads as this transaction sees it.
    pub txn: usize,
    /// Reads at this snapshot.
    pub snapshot: usize,
    /// `KEYS_ONLY`, `UNTRACKED`.
    pub flags: c_uint,
}

/// `tidesdb_x_write_options_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Size of the structure.
    pub size: usize,
    /// `X_SYNC_DEFAULT` and the others.
    pub sync_mode: c_int,
    /// `NEVER_EXPIRES`.
    pub flags: c_uint,
    /// Microseconds, for `X_SYNC_INTERVAL`.
    pub sync_interval_us: u64,
    /// Milliseconds until a put row expires; 0 = the default of the family.
    pub ttl_ms: u64,
    /// UNIX milliseconds at which a put row expires; 0 = not given.
    pub expires_at_ms: u64,
}

/// `tidesdb_x_span_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset in the buffer.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// `tidesdb_x_row_t`: a key, and its value after it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Offset of the key in the buffer.
    pub offset: usize,
    /// Size of the key in bytes.
    pub key_size: usize,
    /// Size of the value in bytes.
    pub value_size: usize,
}

/// Combines a value with an operand.
pub type MergeFn = unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut c_void) -> c_int;
/// Checks an operand before it is written.
pub type CheckFn = unsafe extern "C" fn(*const u8, usize, *mut c_void) -> c_int;
/// Receives the result of a commit.
pub type CommittedFn = unsafe extern "C" fn(Code, u64, *const c_char, *mut c_void);

/// `tidesdb_x_figure_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What the figure is of.
    pub group: *const c_char,
    /// Its name: of a family, an operation, a cause; empty for the database.
    pub of: *const c_char,
    /// Name of the figure.
    pub name: *const c_char,
    /// Unit of its value.
    pub unit: *const c_char,
    /// Level of the tree; 0 if it is not of a level.
    pub level: c_int,
    /// 1 if it only grows.
    pub is_counter: c_int,
    /// The value, rounded down.
    pub number: u64,
    /// The value.
    pub real: f64,
}

/// `tidesdb_x_finding_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// 0 urgent, 1 problem, 2 advice.
    pub severity: c_int,
    /// Name of the rule.
    pub rule: *const c_char,
    /// What was found.
    pub what: *const c_char,
    /// The figures, one a line.
    pub evidence: *const c_char,
    /// Why.
    pub cause: *const c_char,
    /// What to do.
    pub advice: *const c_char,
    /// What that costs.
    pub price: *const c_char,
}

/// `tidesdb_x_writer_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Writer {
    /// Size of the structure.
    pub size: usize,
    /// What is known of the process: `TDB_X_WRITER_RUNNING` and the others.
    pub state: c_int,
    /// Number of the process.
    pub process: u32,
    /// Milliseconds since the figures were published.
    pub age_ms: u64,
    /// Milliseconds that the database had been open then.
    pub open_for_ms: u64,
    /// When they were published, in UNIX milliseconds.
    pub written_ms: u64,
}

/// Decides about a row that a merge of tables rewrites.
pub type FilterFn = unsafe extern "C" fn(*const u8, usize, *const u8, usize, u64, *mut c_void) -> c_int;
/// Receives all operations of a commit on one family.
pub type HookFn = unsafe extern "C" fn(*const CommitOp, usize, u64, *mut c_void) -> c_int;

/// `tidesdb_x_commit_op_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommitOp {
    /// `OP_PUT` and the others.
    pub kind: c_int,
    /// The key; the start of a range.
    pub key: *const u8,
    /// Size of the key in bytes.
    pub key_size: usize,
    /// The value; the operand; the end of a range; null for a streamed value.
    pub value: *const u8,
    /// Size of the value in bytes.
    pub value_size: u64,
    /// UNIX milliseconds of expiry; 0 = never.
    pub expires_at_ms: u64,
}

/// `tidesdb_x_health_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    /// Size of the structure.
    pub size: usize,
    /// 0 healthy, 1 degraded, 2 poisoned.
    pub state: c_int,
    /// 1 if the last close was clean.
    pub was_closed: c_int,
    /// Commits that the open recovered from the log.
    pub recovered_commits: u64,
    /// Bytes of the log that it read.
    pub recovered_log_bytes: u64,
    /// Commits that it discarded behind damage.
    pub discarded_commits: u64,
}

/// `tidesdb_x_verified_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Verified {
    /// Size of the structure.
    pub size: usize,
    /// Tables read.
    pub tables: u64,
    /// Value logs read.
    pub value_logs: u64,
    /// Entries of tables.
    pub entries: u64,
    /// Entries that are in memory only.
    pub unflushed: u64,
    /// Faults found.
    pub faults: u64,
}

/// Copies the files of tables.
pub const COPY: c_int = 0;
/// Links them.
pub const LINK: c_int = 1;
/// Moves them.
pub const MOVE: c_int = 2;

/// `tidesdb_x_tables_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The family that takes them.
    pub cf: usize,
    /// Their paths.
    pub paths: *const *const c_char,
    /// Number of paths.
    pub count: usize,
}

/// `tidesdb_x_ingested_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ingested {
    /// Size of the structure.
    pub size: usize,
    /// Sequence number of the commit; 0 if there was nothing to take.
    pub seq: u64,
    /// Tables taken.
    pub tables: u64,
    /// Their rows.
    pub rows: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Receives the progress of a backup: bytes done, and all bytes.
pub type ProgressFn = unsafe extern "C" fn(u64, u64, *mut c_void);

/// Says whether a call on backups is to end.
pub type StopFn = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `tidesdb_x_backup_options_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BackupOptions {
    /// Size of the structure.
    pub size: usize,
    /// Folder in which the generation is proven; null: it is not.
    pub scratch: *const c_char,
    /// Most bytes to copy per second; 0 = no limit.
    pub bytes_per_second: u64,
    /// Receives the progress; may be null.
    pub progress: Option<ProgressFn>,
    /// Passed to the functions.
    pub ctx: *mut c_void,
    /// Asked after each piece whether the call is to end; may be null.
    pub stop: Option<StopFn>,
}

impl Default for BackupOptions {
    fn default() -> Self {
        Self { size: 0, scratch: null(), bytes_per_second: 0, progress: None, ctx: null_mut(), stop: None }
    }
}

/// `tidesdb_x_generation_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Generation {
    /// Number of the generation.
    pub number: u64,
    /// When it was made, in UNIX milliseconds.
    pub created_ms: u64,
    /// Sequence number of its last commit.
    pub seq: u64,
    /// Number of its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that its creation copied.
    pub bytes_copied: u64,
    /// When it was proven, in UNIX milliseconds; 0 = never.
    pub proven_ms: u64,
    /// 1 if the proof passed.
    pub is_proven: c_int,
    /// Identity of its database.
    pub database: *const c_char,
}

/// Returns the size of a field.
const fn bytes_of<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Implements `Growing` for structures with the last field that their first version has. Later fields are added after it.
macro_rules! growing {
    ($($name:ident: $last:ident,)*) => {$(
        // SAFETY: `repr(C)`, begins with its size; integers, raw pointers, handles and functions that may be null.
        unsafe impl Growing for $name {
            const FIRST_BYTES: usize =
                std::mem::offset_of!($name, $last) + bytes_of(|it: &$name| &it.$last);
        }
    )*};
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Span>() == 16 && size_of::<Row>() == 24 && size_of::<CommitOp>() == 48);
    assert!(size_of::<Figure>() == 56 && size_of::<Finding>() == 56);
    assert!(size_of::<ResourcesOptions>() == 48 && size_of::<ResourcesUse>() == 48);
    assert!(size_of::<OpenOptions>() == 72 && size_of::<FamilyOptions>() == 32);
    assert!(size_of::<ReadOptions>() == 32 && size_of::<WriteOptions>() == 40);
    assert!(size_of::<Tables>() == 24 && size_of::<Generation>() == 72);
};

growing! {
    ReadOptions: flags,
    WriteOptions: expires_at_ms,
    Writer: written_ms,
    Health: discarded_commits,
    Verified: faults,
    Ingested: bytes,
    BackupOptions: ctx,
    MergeOperator: ctx,
    OrderOf: ctx,
    OpenOptions: flags,
    ResourcesOptions: threads,
    ResourcesUse: threads,
    FamilyOptions: default_ttl_ms,
}

/// `tidesdb_x_merge_operator_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MergeOperator {
    /// Size of the structure.
    pub size: usize,
    /// The name, stored with the families that use it.
    pub name: *const c_char,
    /// The function.
    pub merge: Option<MergeFn>,
    /// The check; may be null.
    pub check: Option<CheckFn>,
    /// Passed to both.
    pub ctx: *mut c_void,
}

/// `tidesdb_x_comparator_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OrderOf {
    /// Size of the structure.
    pub size: usize,
    /// The name, stored with the families that use it.
    pub name: *const c_char,
    /// The function.
    pub compare: Option<CompareFn>,
    /// Passed to it.
    pub ctx: *mut c_void,
}

/// `tidesdb_x_open_options_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Size of the structure.
    pub size: usize,
    /// The settings of the base interface.
    pub config: *const Config,
    /// Comparators, each with its own size: elements are as far apart as the size of the first says.
    pub comparators: *const OrderOf,
    /// Number of comparators.
    pub comparator_count: usize,
    /// Merge operators, likewise.
    pub merge_operators: *const MergeOperator,
    /// Number of merge operators.
    pub merge_operator_count: usize,
    /// How much history snapshots of the past can read, in bytes of log.
    pub history_bytes: u64,
    /// `READ_ONLY`, `MUST_EXIST`.
    pub flags: c_uint,
    /// What it shares with other databases; may be null.
    pub resources: usize,
}

/// `tidesdb_x_resources_options_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourcesOptions {
    /// Size of the structure.
    pub size: usize,
    /// Bytes of memory of all databases; 0 = half of what there is.
    pub memory_limit: u64,
    /// Bytes of the block cache; 0 = the default.
    pub cache_bytes: u64,
    /// Files open for reading; 0 = the budget of the process.
    pub descriptors: u64,
    /// Bytes per second that all merges may write; 0 = no limit.
    pub compaction_bytes_per_second: u64,
    /// Threads that flush and merge; 0 = the default.
    pub threads: u64,
}

/// `tidesdb_x_resources_use_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourcesUse {
    /// Size of the structure.
    pub size: usize,
    /// Limit of the memory.
    pub memory_limit: u64,
    /// Memory in use.
    pub memory_used: u64,
    /// Of it, the block cache and open tables.
    pub cache_used: u64,
    /// Open databases.
    pub databases: u64,
    /// Threads that have started.
    pub threads: u64,
}

/// Opens for reading only.
pub const READ_ONLY: c_uint = 1;
/// Creates no database.
pub const MUST_EXIST: c_uint = 2;
/// Opens no database that exists.
pub const MUST_BE_NEW: c_uint = 4;

/// `tidesdb_x_family_options_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FamilyOptions {
    /// Size of the structure.
    pub size: usize,
    /// The settings of the base interface; null = the defaults.
    pub config: *const FamilyConfig,
    /// Name of the merge operator; null = none.
    pub merge_operator: *const c_char,
    /// Milliseconds after which rows expire that are put without an expiry; 0 = never.
    pub default_ttl_ms: u64,
}

/// The default of a structure with pointers: zeros.
macro_rules! zero {
    ($($name:ident)*) => {$(
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: a `Growing`: zeros are valid.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

zero!(MergeOperator OrderOf OpenOptions FamilyOptions);
