//! One limit for the memory of a database, or of several together: who uses how much, and how scarce it is.
//!
//! The memory of a database is part of a *whole* if it shares its limit: with those of the same
//! [`Resources`](crate::Resources), or with all of the process that set none. Then each charge counts in both. Limits and levels are
//! those of the whole; figures are those of the database.
//!
//! Each kind of memory has one sum. Each object that a caller can hold (a batch, a transaction, a cursor, a reader or writer of a long
//! value) owns a [`Charge`], its part of the sum. Only [`Charge::grow`] admits more: it refuses what would exceed the share of the
//! callers. A charge grows in steps, and each thread adds small steps on a cache line of few threads first, so no operation on a hot path writes
//! to a shared sum. Memtables charge chunks. The memory of the block cache and of open tables has a limit of its own, which this one
//! lowers; the reaper copies it here ten times a second.
//!
//! Batches and transactions (T), and cursors and values (C) share one part P of the limit. A commit needs as much memory again for its
//! memtables, so `2 T + C <= P`; what short rows take beyond that is bounded for each batch ([`Memory::inserted_max`]). C gets at most a quarter of the memory. A sixteenth of the limit is for C alone, outside of P, so
//! that scans and large transactions do not keep each other from running.
//!
//! ```text
//! share of the limit   0 ........ 60 % ......... 75 % ............. 95 %
//! level                  Normal    Elevated       High               Critical
//! what happens                     large          the cache shrinks, writers wait, and get `Busy`
//!                                  memtables      writers are        if nothing helps
//!                                  are flushed    slowed down
//! ```

mod charge;
mod whole;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use charge::{Charge, LongValue, Reservation};
use tidesdb_io::{Heap, MachineMemory};
use tidesdb_sync::{CachePadded, Condvar, Mutex, thread_index};
use whole::Part;
pub use whole::Shares;

use crate::{Error, Result};

/// Lowest limit.
const LIMIT_MIN: u64 = 16 << 20;
/// The default limit is the memory of the machine, or of the control group, divided by this.
const AUTO_PART: u64 = 2;
/// Bytes that a database takes for its threads, the log and other fixed parts. Several with one limit take them once,
const FIXED_BYTES: u64 = 4 << 20;
/// and each of them these.
const SHARING_BYTES: u64 = 64 << 10;
/// Memory of a family without its tables and memtables.
const FAMILY_BYTES: u64 = 3 << 10;
/// Memory that an idle family may take, with the few small tables that it has before they are merged. Families are admitted only while
/// these bytes leave memory below the level at which pressure begins: nothing could end a pressure that idle families cause.
const FAMILY_ROOM_BYTES: u64 = 8 << 10;
/// A thread adds its charges to the sums once they differ by this much.
const STEP_BYTES: u64 = 16 << 10;
/// Cursors, and readers and writers of long values, have the limit divided by this for themselves, whatever transactions take.
const CURSORS_PART: u64 = 16;
/// Flushes and merges read and write values longer than the limit divided by this one at a time.
const LONG_PART: u64 = 64;
/// So long waits a flush or merge for a long value of another database, whose disk may hang.
const LONG_PATIENCE: Duration = Duration::from_secs(1);
/// Merges read with small buffers once all take the limit divided by this.
const JOBS_PART: u64 = 8;
/// Filter and index of a table that a merge writes take at most the limit divided by this before the table ends.
const TABLE_PART: u64 = 16;
/// Range tombstones take at most the limit divided by this. From half of that on, merges are planned that only apply them.
const RANGES_PART: u64 = 8;
/// Number of cache lines on which threads add up their charges.
const LINES: usize = 16;
/// Why a cursor, a reader or writer of a long value, or a view of a reader was refused.
const HELD: &str = "memory: open iterators, readers and writers of long values, and views hold their share of memory_limit; \
                    drop some of them, or raise memory_limit";

/// Why a commit that deletes ranges was refused.
pub const RANGES_FULL: &str = "memory: range deletes that merges have not applied yet hold their share of memory_limit; end snapshots, \
                               iterators and transactions that still read what they delete, let merges run, or raise memory_limit";

/// Memory that the allocator takes for a block of `bytes` bytes: it matters for short keys.
pub fn block_bytes(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Use {
    /// Memtables: active, immutable, and those that only a reader still uses.
    Memtables,
    /// Batches and transactions: their writes, and what they read.
    Transactions,
    /// Cursors and iterators, readers and writers of long values, and views of a reader beside the writer.
    Cursors,
    /// Tables that flushes and merges build, and what they read.
    Jobs,
    /// Range tombstones: of memtables, and those over tables that no merge has applied yet.
    Ranges,
    /// The block cache, and the filters, indexes and border keys of open tables.
    Tables,
    /// Memory that commits have waited for and will use for their memtables. It is counted as requested, not as used.
    Reserved,
}

impl Use {
    const ALL: [Self; USES] = [
        Self::Memtables,
        Self::Transactions,
        Self::Cursors,
        Self::Jobs,
        Self::Ranges,
        Self::Tables,
        Self::Reserved,
    ];
}

const USES: usize = Use::Reserved as usize + 1;

/// The sum of the charges of some threads, and how much of it was added to the sum of all. Both wrap: memory may be freed by another
/// thread.
#[derive(Debug, Default)]
struct Line {
    here: AtomicU64,
    told: AtomicU64,
}

/// How scarce memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Pressure {
    /// Below 60 % of the limit.
    #[default]
    Normal,
    /// From 60 % on: large memtables are flushed early.
    Elevated,
    /// From 75 % on: the block cache shrinks and writers are slowed down.
    High,
    /// From 95 % on: writers wait.
    Critical,
}

impl Pressure {
    /// Where each level begins, in percent of the limit.
    const BEGINS: [u64; 4] = [0, 60, 75, 95];

    /// The share of the limit at which it begins.
    pub const fn begin(self) -> f64 {
        Self::BEGINS[self as usize] as f64 / 100.0
    }

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        ["normal", "elevated", "high", "critical"][self as usize]
    }
}

/// All parts of the breakdown at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breakdown {
    sums: [u64; USES],
    /// Mappings of this process that are kept for new memtables.
    pub spare: u64,
    /// Freed memory of this process that the allocator keeps resident; 0 where it does not count.
    pub allocator: u64,
}

impl Breakdown {
    /// Bytes charged for one use.
    pub fn used_for(&self, of: Use) -> u64 {
        self.sums[of as usize]
    }
}

/// The memory of one database, or of several.
pub struct Memory {
    /// The memory of all databases that have the limit together, and what else they share.
    part: Option<Part>,
    limit: u64,
    /// Memory that this process may use: of the machine, or of its control group.
    machine: u64,
    /// Bytes at which each level begins.
    begins: [u64; 4],
    /// May be below zero for a moment: memory may be freed by another thread than the one that took it.
    sums: [Arc<AtomicU64>; USES],
    /// The part of the sum of tables that is of a cache which databases share.
    cache_bytes: AtomicU64,
    /// Bytes of fixed parts.
    fixed: AtomicU64,
    /// Databases that are open: this one, or those that this is the whole of.
    databases: AtomicU64,
    /// Number of families that are open, or dropped and still in use.
    families: AtomicU64,
    lines: Box<[CachePadded<[Line; USES]>; LINES]>,
    /// Set once a job that frees memory was requested, until the next tick.
    relief: AtomicBool,
    /// Set from the first relief until pressure has ended.
    pressed: AtomicBool,
    /// When the free memory of the heap may next be returned to the system, in nanoseconds.
    next_trim: AtomicU64,
    /// Whether a flush or merge has a long value in memory, see [`Memory::take_long`].
    long: Mutex<bool>,
    /// The long value was written.
    long_ended: Condvar,
    /// Flushes and merges after which the free memory of the heap was returned, see [`Memory::has_new`].
    trimmed: AtomicU64,
    /// Set while memory is kept for a commit that it does not have, see [`Memory::reserve`].
    exceeded: AtomicBool,
}

impl Memory {
    /// Creates the sums for a limit of `limit` bytes; 0 = half of the memory that this process may use.
    pub fn new(limit: u64) -> Arc<Self> {
        let machine = MachineMemory::now().total;
        let limit = if limit == 0 { machine / AUTO_PART } else { limit }.max(LIMIT_MIN);
        Arc::new(Self::with((limit, machine), FIXED_BYTES, 1))
    }

    fn with((limit, machine): (u64, u64), fixed: u64, databases: u64) -> Self {
        Self {
            part: None,
            limit,
            machine,
            begins: Pressure::BEGINS.map(|percent| limit / 100 * percent),
            sums: Default::default(),
            cache_bytes: AtomicU64::new(0),
            fixed: AtomicU64::new(fixed),
            databases: AtomicU64::new(databases),
            families: AtomicU64::new(0),
            lines: Box::default(),
            relief: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            next_trim: AtomicU64::new(0),
            long: Mutex::new(false),
            long_ended: Condvar::default(),
            trimmed: AtomicU64::new(0),
            exceeded: AtomicBool::new(false),
        }
    }

    /// Returns true if the page cache can keep files of `bytes` bytes: they take at most half of the memory that this process may use.
    pub fn page_cache_keeps(&self, bytes: u64) -> bool {
        bytes <= self.machine / 2
    }

    /// Limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The sums of one use, for code that charges by itself: of this memory and of the whole.
    pub fn sums(&self, of: Use) -> Vec<Arc<AtomicU64>> {
        let whole = self.part.as_ref().map(|part| Arc::clone(&part.whole.sums[of as usize]));
        std::iter::once(Arc::clone(&self.sums[of as usize])).chain(whole).collect()
    }

    /// Bytes charged for one use. Without the bytes that threads have not added yet, see [`Memory::settle`].
    #[inline]
    pub fn used_for(&self, of: Use) -> u64 {
        let bytes = self.sums[of as usize].load(Ordering::Relaxed);
        if bytes.cast_signed() < 0 { 0 } else { bytes }
    }

    /// Adds `bytes` to the sum of one use; wraps, so that a negative number subtracts.
    fn add(&self, of: Use, bytes: u64) {
        if matches!(of, Use::Reserved) {
            return self.change(of, bytes); // exact: see `reserve`
        }
        let line = &self.lines[thread_index() % LINES][of as usize];
        let here = line.here.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        let apart = here.wrapping_sub(line.told.load(Ordering::Relaxed)).cast_signed();
        if apart.unsigned_abs() >= STEP_BYTES {
            self.tell(of, line);
        }
    }

    /// Adds to the sum what the threads of `line` have not added yet.
    #[cold]
    fn tell(&self, of: Use, line: &Line) {
        let here = line.here.load(Ordering::Relaxed);
        let told = line.told.swap(here, Ordering::Relaxed);
        self.change(of, here.wrapping_sub(told));
    }

    /// Adds `bytes` to the sums of one use; wraps.
    fn change(&self, of: Use, bytes: u64) {
        self.sums[of as usize].fetch_add(bytes, Ordering::Relaxed);
        if let Some(Part { whole, .. }) = &self.part {
            whole.sums[of as usize].fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Makes all sums exact, as of some moment during the call for each thread.
    pub fn settle(&self) {
        for lines in self.lines.iter() {
            Use::ALL.iter().zip(&**lines).for_each(|(of, line)| self.tell(*of, line));
        }
    }

    /// Reads all parts, with what the allocator keeps. That may walk the free blocks of the heap, see [`Heap::recent`].
    pub fn breakdown(&self) -> Breakdown {
        self.breakdown_with(Heap::recent()) // first: it takes longest, and the other figures change meanwhile
    }

    /// Reads all parts but what the allocator keeps.
    pub fn breakdown_without_heap(&self) -> Breakdown {
        self.breakdown_with(None)
    }

    fn breakdown_with(&self, heap: Option<Heap>) -> Breakdown {
        self.settle();
        let sums = Use::ALL.map(|of| self.used_for(of));
        let mut parts = Breakdown { sums, spare: tidesdb_memtable::spare_bytes(), allocator: 0 };
        if let (Some(heap), Some(anonymous)) = (heap, tidesdb_io::anonymous_bytes()) {
            // Nearly all of these bytes are mappings; the other parts are in the heap.
            let mapped = parts.used_for(Use::Memtables) + parts.used_for(Use::Transactions) + parts.spare;
            parts.allocator = heap.free_resident(anonymous, mapped);
        }
        parts
    }

    /// Bytes charged for all uses of this database.
    #[inline]
    pub fn used(&self) -> u64 {
        self.unreserved()
    }

    /// Bytes of parts that no other sum holds: fixed parts, and families.
    #[inline]
    pub fn fixed_bytes(&self) -> u64 {
        let common = self.part.as_ref().map_or(0, |_| FIXED_BYTES / self.databases().max(1));
        self.fixed.load(Ordering::Relaxed) + common + self.families() * FAMILY_BYTES
    }

    /// Number of families in memory.
    #[inline]
    pub fn families(&self) -> u64 {
        self.families.load(Ordering::Relaxed)
    }

    /// Number of families that fit, in all databases with this limit. An open with a lower limit than before may find more.
    pub fn families_max(&self) -> u64 {
        let fixed = self.whole().fixed.load(Ordering::Relaxed);
        self.begin_of(Pressure::Elevated).saturating_sub(fixed) / FAMILY_ROOM_BYTES
    }

    /// Counts a family that is opened.
    pub fn family_begins(&self) {
        self.families.fetch_add(1, Ordering::Relaxed);
        if let Some(Part { whole, .. }) = &self.part {
            whole.families.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a family that nothing uses any more.
    pub fn family_ends(&self) {
        self.families.fetch_sub(1, Ordering::Relaxed);
        if let Some(Part { whole, .. }) = &self.part {
            whole.families.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Checks that one more family may be created.
    ///
    /// # Errors
    /// `MemoryLimit`, which says how many fit.
    pub fn check_new_family(&self) -> Result<()> {
        let (max, limit) = (self.families_max(), self.limit);
        match self.whole().families() < max {
            true => Ok(()),
            false => Err(Error::MemoryLimit {
                what: format!(
                    "a memory_limit of {limit} bytes has room for {max} families, and there are as many; \
                     raise the limit, or drop families"
                )
                .into(),
            }),
        }
    }

    /// Bytes that count for the limit, and those that commits wait for.
    #[inline]
    pub fn wanted(&self) -> u64 {
        self.whole().own_wanted()
    }

    /// The part of these bytes that is of this database.
    #[inline]
    pub fn own_wanted(&self) -> u64 {
        self.sum_of(&self.sums)
    }

    /// As [`Memory::own_wanted`], without what is kept for commits.
    fn unreserved(&self) -> u64 {
        self.sum_of(&self.sums[..Use::Reserved as usize])
    }

    #[inline]
    fn sum_of(&self, sums: &[Arc<AtomicU64>]) -> u64 {
        let sum = sums.iter().map(|sum| sum.load(Ordering::Relaxed).cast_signed()).fold(0, i64::wrapping_add);
        sum.max(0).cast_unsigned() + self.fixed_bytes() // one of them may be below zero for a moment
    }

    /// The level of `bytes`.
    #[inline]
    pub fn level_of(&self, bytes: u64) -> Pressure {
        let levels = [Pressure::Critical, Pressure::High, Pressure::Elevated];
        levels.into_iter().find(|level| bytes >= self.begin_of(*level)).unwrap_or_default()
    }

    /// The current level.
    pub fn level(&self) -> Pressure {
        self.level_of(self.wanted())
    }

    /// Bytes at which `level` begins.
    #[inline]
    pub fn begin_of(&self, level: Pressure) -> u64 {
        self.begins[level as usize]
    }

    /// Sets the bytes of open tables: of those of this database, and of the cache. `shared` is what those of all databases take that share
    /// the cache.
    pub fn set_tables(&self, bytes: u64, shared: u64) {
        let of = Use::Tables as usize;
        let before = self.sums[of].swap(bytes, Ordering::Relaxed);
        match &self.part {
            Some(Part { whole, shares: Shares::Resources, .. }) => whole.set_shared_tables(shared),
            Some(Part { whole, .. }) => {
                whole.sums[of].fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
            }
            None => {}
        }
    }

    /// Capacity of the block cache, with the filters and indexes of tables, if `wanted` bytes are asked for; also the limit of immutable
    /// memtables.
    pub fn part_max(&self, wanted: u64) -> u64 {
        wanted.min(self.limit / 4)
    }

    /// Size of one memtable at which it is flushed, if `wanted` bytes are asked for.
    #[inline]
    pub fn buffer_max(&self, wanted: usize) -> usize {
        wanted.min(usize::try_from(self.limit / 8).unwrap_or(usize::MAX))
    }

    /// Memory that callers may hold, with the memtables that their commits will need. The rest is for the fixed parts, the indexes
    /// of open tables and memtables too small to flush.
    fn callers_max(&self) -> u64 {
        let whole = self.whole();
        let fixed = whole.fixed_bytes().clamp(FIXED_BYTES, self.limit / 2);
        ((self.limit - fixed) / 32 * 26).saturating_sub(whole.used_for(Use::Ranges))
    }

    /// Limit of all range tombstones together.
    pub fn ranges_max(&self) -> u64 {
        self.limit / RANGES_PART
    }

    /// Returns whether range tombstones take enough that merges should apply them for that alone.
    pub fn is_in_ranges(&self) -> bool {
        self.whole().used_for(Use::Ranges) >= self.ranges_max() / 2
    }

    /// Returns whether range tombstones take nearly all that they may.
    pub fn is_full_of_ranges(&self) -> bool {
        self.whole().used_for(Use::Ranges) >= self.ranges_max() / 8 * 7
    }

    /// Keeps `bytes` for range tombstones, unless all together would then exceed their limit.
    pub fn take_for_ranges(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let max = self.ranges_max();
        let taken = |sum: u64| {
            let wanted = sum.wrapping_add(bytes);
            (wanted.cast_signed() <= max.cast_signed()).then_some(wanted)
        };
        self.take(Use::Ranges, bytes, taken)
    }

    /// Limit of all batches and transactions together, beside the cursors that are open.
    pub fn transactions_max(&self) -> u64 {
        self.callers_max().saturating_sub(self.shared_by_cursors()) / 2
    }

    /// Memory that cursors take from the share of the callers, beyond the part that is for cursors alone.
    fn shared_by_cursors(&self) -> u64 {
        self.whole().used_for(Use::Cursors).saturating_sub(self.limit / CURSORS_PART)
    }

    /// Limit of all batches and transactions together, with their own writes sorted for reading: these make room for the memtables of
    /// the commit, and take somewhat more than the writes.
    pub fn sorted_max(&self) -> u64 {
        self.callers_max().saturating_sub(self.shared_by_cursors()) / 8 * 9
    }

    /// What the operations of one batch may take in memtables, beside all batches.
    pub fn inserted_max(&self) -> u64 {
        self.callers_max().saturating_sub(self.shared_by_cursors()) / 16 * 9
    }

    /// Limit of all cursors, and readers and writers of long values, together, beside the transactions that are open.
    pub fn cursors_max(&self) -> u64 {
        let rest = self.callers_max().saturating_sub(2 * self.whole().used_for(Use::Transactions));
        rest.min((self.limit - FIXED_BYTES) / 4).max(self.limit / CURSORS_PART)
    }

    /// Returns whether cursors may take more. A scan that may not reads its blocks one by one.
    pub fn has_room_for_cursors(&self) -> bool {
        self.whole().used_for(Use::Cursors) < self.cursors_max()
    }

    /// Returns whether flushes and merges may take more for their buffers.
    pub fn has_room_for_jobs(&self) -> bool {
        self.whole().used_for(Use::Jobs) < self.limit / JOBS_PART
    }

    /// Returns whether memtables take enough that flushing them early is worth small tables.
    pub fn is_in_memtables(&self) -> bool {
        self.whole().used_for(Use::Memtables) >= self.limit / 16
    }

    /// Returns whether all memory is within the limit.
    pub fn is_within_limit(&self) -> bool {
        self.wanted() <= self.limit
    }

    /// Asks for a job that frees memory. Returns true if the caller must queue it.
    pub fn ask_for_relief(&self) -> bool {
        !self.relief.load(Ordering::Relaxed) && !self.relief.swap(true, Ordering::Relaxed)
    }

    /// Lets the next caller ask for relief again.
    pub fn allow_relief(&self) {
        self.relief.store(false, Ordering::Relaxed);
    }

    /// Returns true while memory is, or was at the last look, scarce.
    pub fn is_pressed(&self) -> bool {
        self.with_cache().pressed.load(Ordering::Relaxed)
    }

    /// Notes whether memory is scarce. Returns whether it was.
    pub fn set_pressed(&self, yes: bool) -> bool {
        self.with_cache().pressed.swap(yes, Ordering::Relaxed)
    }

    /// Returns true at most once in `period`.
    pub fn trims(&self, now: Duration, period: Duration) -> bool {
        let next_trim = &self.whole().next_trim;
        let due = now.as_nanos() as u64 >= next_trim.load(Ordering::Relaxed);
        if due {
            next_trim.store((now + period).as_nanos() as u64, Ordering::Relaxed);
        }
        due
    }

    /// Returns whether there were flushes or merges since [`Memory::note`], if `installs` have ended by now.
    pub fn has_new(&self, installs: u64) -> bool {
        self.trimmed.load(Ordering::Relaxed) != installs
    }

    /// Notes that the free memory of the heap is returned after `installs` flushes and merges.
    pub fn note(&self, installs: u64) {
        self.trimmed.store(installs, Ordering::Relaxed);
    }

    /// Returns whether a value of `bytes` bytes takes so much memory that flushes and merges have only one of this kind in memory.
    #[inline]
    pub fn is_long(&self, bytes: usize) -> bool {
        bytes as u64 > self.limit / LONG_PART
    }

    /// Waits until no flush or merge has a long value in memory, of other databases at most [`LONG_PATIENCE`]. The caller may have one until
    /// it drops the result.
    pub fn take_long(self: &Arc<Self>) -> LongValue {
        if let Some(Part { whole, shares: Shares::Resources, .. }) = &self.part {
            let mut taken = whole.long.lock();
            let is_free = !*taken || {
                whole.long_ended.wait_for(&mut taken, LONG_PATIENCE);
                !*taken
            };
            if is_free {
                *taken = true;
                return LongValue::new(whole);
            }
        }
        let mut taken = self.long.lock();
        while *taken {
            self.long_ended.wait(&mut taken);
        }
        *taken = true;
        LongValue::new(self)
    }

    /// Returns whether a flush or merge has a long value in memory.
    #[cfg(test)]
    pub fn has_long(&self) -> bool {
        *self.with_cache().long.lock()
    }

    /// Memory that the filter and the index of a table may take while a merge writes it.
    pub fn table_max(&self) -> u64 {
        self.limit / TABLE_PART
    }

    /// Keeps `bytes` for a commit, so that other writers leave them free, until the result is dropped. If they do not fit beside all else, keeps them
    /// all the same for one commit, and returns `None` to the others: if all that wait for memory had some, they would wait for each other.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let whole = self.whole();
        let fits = |kept: u64| {
            let wanted = kept.saturating_add(bytes);
            (whole.unreserved().saturating_add(wanted) < self.limit).then_some(wanted)
        };
        if let Some(charge) = self.take(Use::Reserved, bytes, fits) {
            return Some(Reservation::new(charge, None));
        }
        if whole.exceeded.swap(true, Ordering::Relaxed) {
            return None;
        }
        let mut charge = Charge::new(Use::Reserved);
        charge.set(self, bytes);
        Some(Reservation::new(charge, Some(Arc::clone(self))))
    }

    /// Adds `bytes` to the sum of one use if `taken` of the sum of all databases returns the new one.
    fn take(self: &Arc<Self>, of: Use, bytes: u64, taken: impl FnMut(u64) -> Option<u64>) -> Option<Charge> {
        let sum = |memory: &Self| Arc::clone(&memory.sums[of as usize]);
        sum(self.whole()).fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).ok()?;
        if self.part.is_some() {
            sum(self).fetch_add(bytes, Ordering::Relaxed);
        }
        Some(Charge::taken(self, of, bytes))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("limit", &self.limit).field("used", &self.used()).finish()
    }
}

#[cfg(test)]
mod tests;
