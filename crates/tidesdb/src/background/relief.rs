//! Frees memory when the database is near its limit, and lets the cache grow again afterwards.

use std::time::Duration;

use crate::engine::Engine;
use crate::memory::{Pressure, Use};

/// Under pressure the block cache keeps at least this part of the memory limit.
const CACHE_PART_MIN: u64 = 32;
/// While range tombstones take much memory, memtables with more of it than all may take, divided by this, are flushed.
const RANGES_FLUSHED_PART: u64 = 8;
/// Below this limit, the memory that the heap keeps after flushes and merges (20 to 70 MiB) may be more than a tenth of the limit.
const SMALL_LIMIT: u64 = 1 << 30;
/// Under pressure the heap is returned to the system at most once in this time.
pub const TRIM_PERIOD: Duration = Duration::from_secs(1);

impl Engine {
    /// Computes the sum of the memory that is not charged where it is used.
    pub fn count_memory(&self) {
        let (memory, tables) = (&self.write.memory, &self.maintenance.tables.memory);
        memory.settle();
        let all = tables.shared.used();
        let own = if memory.shares_cache() { tables.held() } else { all };
        memory.set_tables(own, all);
    }

    /// Looks how scarce memory is; the timekeeper calls this ten times a second. In between, commits ask for relief, at most once
    /// per tick.
    pub fn watch_memory(&self) {
        self.count_memory();
        let memory = &self.write.memory;
        let has_ranges = memory.is_in_ranges() && memory.used_for(Use::Ranges) > 0;
        if memory.needs_relief() || memory.is_pressed() || has_ranges {
            self.write.ask_for_relief();
        }
        let installs = self.maintenance.versions.installs();
        if memory.limit() < SMALL_LIMIT
            && memory.has_new(installs)
            && memory.trims(self.write.env.clock.mono(), TRIM_PERIOD)
        {
            memory.note(installs);
            tidesdb_io::trim_heap();
        }
    }

    /// Frees memory as the pressure requires.
    pub fn relieve(&self) {
        let memory = &self.write.memory;
        if self.write.works_alone() {
            memory.allow_relief(); // there are no ticks
        }
        self.count_memory();
        if memory.is_in_ranges() {
            // Merges apply only what tables hold.
            self.write.flush_ranges((memory.ranges_max() / RANGES_FLUSHED_PART) as usize);
        }
        if memory.level() == Pressure::Normal {
            if memory.set_pressed(false) {
                self.maintenance.tables.memory.shared.lower_to(u64::MAX);
                self.return_memory(Duration::ZERO);
            }
            return;
        }
        memory.set_pressed(true);
        self.write.flush_for_memory();
        let excess = memory.wanted().saturating_sub(memory.begin_of(Pressure::High));
        if excess > 0 {
            let cache = &self.maintenance.tables.memory.shared;
            // Those that share the limit, and have a cache each, give up as much together.
            let caches = if memory.shares_cache() { 1 } else { memory.databases().max(1) };
            let least = memory.limit() / CACHE_PART_MIN / caches;
            cache.lower_to(cache.used().saturating_sub(excess / caches).max(least));
            self.count_memory();
        }
        self.return_memory(TRIM_PERIOD);
    }

    /// Returns to the system what was freed and is kept for reuse: buffers of threads, mappings of memtables, and the heap if that was not
    /// done for `period`.
    pub fn return_memory(&self, period: Duration) {
        tidesdb_sync::reclaim();
        tidesdb_sync::release_kept();
        tidesdb_memtable::free_spare();
        if self.write.memory.trims(self.write.env.clock.mono(), period) {
            tidesdb_io::trim_heap();
        }
    }
}
