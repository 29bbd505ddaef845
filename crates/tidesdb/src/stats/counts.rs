//! [`profile`]: counts of what a closure reads and writes.
//!
//! Operations cost nothing more while no profile runs. Three things make that possible:
//!
//! * Each operation of a user takes a sample decision (`sample.rs`), which sends one in 256 a longer way. While a profile runs in a thread,
//!   each operation of the thread goes there, and is counted there.
//! * A lookup tells its steps to a gate (`sst/gate.rs`). The gate of a lookup on the longer way counts them.
//! * What takes a system call anyway, or is done once for a block or a commit, is counted by each thread always, and a profile is the difference.
//!
//! The counters belong to a thread, so they need no atomic operation, and a profile sees nothing of other threads.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use super::sample;

/// What a thread counts.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Reads of one key.
    Gets,
    /// Calls that read many keys.
    MultiGets,
    /// Seeks of cursors.
    Seeks,
    /// Commits of single writes.
    Puts,
    /// Commits of batches and transactions.
    Commits,
    /// Memtables and tables that lookups searched.
    Sources,
    /// Answers of filters.
    FiltersAsked,
    /// Answers of filters that excluded the table.
    FiltersExcluded,
    /// Searches of indexes by lookups.
    IndexSearches,
    /// Blocks that took no read of a file.
    BlocksInMemory,
    /// Reads of table files.
    TableReads,
    /// Bytes of these reads.
    TableBytes,
    /// Values read from value logs.
    LogValues,
    /// Bytes of these values in the files.
    LogValueBytes,
    /// Rows that cursors came to.
    Rows,
    /// Deleted and expired keys that cursors passed.
    DeadKeys,
    /// Records written to the log.
    Records,
    /// Bytes of these records.
    RecordBytes,
    /// Bytes of values written to value logs.
    ValuesWritten,
    /// Syncs of the log made by the thread.
    Syncs,
    /// Waits for a sync that another thread made.
    SyncWaits,
}

const COUNTERS: usize = Counter::SyncWaits as usize + 1;

/// The counts of a thread.
#[derive(Clone, Copy, Debug)]
struct Counts([u64; COUNTERS]);

thread_local! {
    static COUNTS: [Cell<u64>; COUNTERS] = const { [const { Cell::new(0) }; COUNTERS] };
    /// Profiles of this thread that run, one within the other.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
}

/// Adds `n` to a counter of this thread.
#[inline(always)]
pub fn add(counter: Counter, n: u64) {
    COUNTS.with(|counts| {
        let count = &counts[counter as usize];
        count.set(count.get().wrapping_add(n));
    });
}

/// Counts a read of a table file.
pub fn add_read(bytes: usize) {
    add(Counter::TableReads, 1);
    add(Counter::TableBytes, bytes as u64);
}

/// Returns whether a profile of this thread runs.
#[inline]
pub fn is_running() -> bool {
    RUNNING.get() > 0
}

/// Reads of table files and their bytes, and blocks that took no read, counted by this thread so far.
pub fn blocks_so_far() -> [u64; 3] {
    let Counts(counts) = Counts::now();
    [Counter::TableReads, Counter::TableBytes, Counter::BlocksInMemory]
        .map(|counter| counts[counter as usize])
}

impl Counts {
    fn now() -> Self {
        COUNTS.with(|counts| Self(std::array::from_fn(|at| counts[at].get())))
    }

    /// What was counted after `start`.
    fn since(&self, start: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].wrapping_sub(start.0[at])))
    }

    fn of(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

super::statistics! {
    /// What a closure read and wrote in its thread: see [`profile`]. It has counts and no times.
    ///
    /// Not counted, because it could not be without slowing down reads that nobody counts: single versions that a cursor passes
    /// ([`Family::explain_range`](crate::Family::explain_range) has them), entries that a commit moves through memtables, and rows that
    /// [`Cursor::advance`](crate::Cursor::advance) passes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    Profile of counts: &Counts;
    plain {}
    figures {
        Counter Count gets: u64 = counts.of(Counter::Gets), "Reads of one key: `get`, `get_map`, `contains`; also those within a transaction.";
        Counter Count multi_gets: u64 = counts.of(Counter::MultiGets), "Calls that read many keys: `multi_get`, `multi_contains`.";
        Counter Count seeks: u64 = counts.of(Counter::Seeks), "Seeks of cursors and iterators; an iterator makes one at its first row.";
        Counter Count rows: u64 = counts.of(Counter::Rows), "Rows that cursors and iterators came to.";
        Counter Count dead_keys: u64 = counts.of(Counter::DeadKeys), "Keys without a row that cursors passed, because a tombstone deleted them or because they have expired. Keys that range tombstones hide are not among them.";
        Counter Count sources: u64 = counts.of(Counter::Sources), "Memtables and tables that `gets` and `multi_gets` searched. A `multi_get` that waits for a block searches for its key again from the start, and counts again.";
        Counter Count filters_asked: u64 = counts.of(Counter::FiltersAsked), "Filters of tables that they asked.";
        Counter Count filters_excluded: u64 = counts.of(Counter::FiltersExcluded), "How many of these filters excluded the table, so that nothing else of it was looked at.";
        Counter Count index_searches: u64 = counts.of(Counter::IndexSearches), "Indexes of tables that they searched.";
        Counter Count blocks_in_memory: u64 = counts.of(Counter::BlocksInMemory), "Blocks of tables that took no read: they were in the block cache.";
        Counter Count table_reads: u64 = counts.of(Counter::TableReads), "Reads of table files: of a block, of several at once in a long scan, of a part of an index or a filter. The page cache of the system may have answered.";
        Counter Bytes table_bytes: u64 = counts.of(Counter::TableBytes), "Bytes of these reads.";
        Counter Count log_values: u64 = counts.of(Counter::LogValues), "Values read from value logs; a chunked value is one for its index and one for each chunk that the thread itself reads.";
        Counter Bytes log_value_bytes: u64 = counts.of(Counter::LogValueBytes), "Bytes that these values take in the files.";
        Counter Count puts: u64 = counts.of(Counter::Puts), "Single writes: puts, deletes, merges, range deletes.";
        Counter Count commits: u64 = counts.of(Counter::Commits), "Commits of batches and transactions that were not empty.";
        Counter Count log_records: u64 = counts.of(Counter::Records), "Records that were written to the log: one for each commit, also for one that met a conflict late.";
        Counter Bytes log_bytes: u64 = counts.of(Counter::RecordBytes), "Bytes of these records.";
        Counter Bytes values_written: u64 = counts.of(Counter::ValuesWritten), "Bytes that were written to value logs by the thread itself.";
        Counter Count syncs: u64 = counts.of(Counter::Syncs), "Syncs of the log that the thread made, for its own commits and for those of others.";
        Counter Count sync_waits: u64 = counts.of(Counter::SyncWaits), "Times that the thread waited while another one synced the log.";
    }
}

impl fmt::Display for Profile {
    /// One figure a line, without those that are 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::write_lines(f, "", self.figures())
    }
}

/// Marks the profile as ended, also if its closure panics.
#[derive(Debug)]
struct Running;

impl Running {
    fn begin() -> Self {
        if RUNNING.replace(RUNNING.get() + 1) == 0 {
            sample::choose_all();
        }
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if RUNNING.replace(RUNNING.get() - 1) == 1 {
            sample::choose_some();
        }
    }
}

/// Calls `work`, and returns its result and the counts of what it read and wrote, in all databases together.
///
/// * Only the calling thread counts. What other threads do for it is not counted: threads that help with a value of many megabytes, another
///   thread that syncs the log for this one, background work, async tasks on other threads.
/// * What the call does in its own thread for the database, such as a flush or a merge, counts by its writes to the log and by blocks that it finds in memory: its
///   other reads and writes of tables are left out.
/// * Calls may be nested: the outer profile includes what the inner one counts. If `work` panics, the panic goes on, and nothing is returned.
/// * A profile costs some nanoseconds for each operation. Without one, operations cost what they would cost if this function did not exist.
///
/// A cursor that was positioned before `work` begins counts from its next seek on, or after at most 1,024 steps; one that is used after
/// `work` ended is not counted.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// for n in 0..100u32 { db.put(format!("{n:03}"), "v")?; }
/// db.flush()?;
/// let (found, counts) = tidesdb::profile(|| db.get("042"));
/// assert!(found?.is_some());
/// assert_eq!((counts.gets, counts.sources), (1, 1));
/// assert_eq!(counts.blocks_in_memory + counts.table_reads, 1);
/// println!("{counts}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn profile<R>(work: impl FnOnce() -> R) -> (R, Profile) {
    let profiling = Profiling::begin();
    let result = work();
    (result, profiling.end())
}

/// A profile of this thread, from its begin to its end: for a caller whose work must not run below a frame of Rust.
#[derive(Debug)]
pub struct Profiling {
    start: Counts,
    _running: Running,
    /// It belongs to its thread.
    _local: PhantomData<*const ()>,
}

impl Profiling {
    /// Begins to count. Without [`Profiling::end`] it ends when it is dropped.
    #[must_use]
    pub fn begin() -> Self {
        Self { _running: Running::begin(), start: Counts::now(), _local: PhantomData }
    }

    /// Ends, and returns what was counted.
    pub fn end(self) -> Profile {
        Profile::of(&Counts::now().since(&self.start))
    }
}
