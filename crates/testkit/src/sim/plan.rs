//! What a seed decides about a run beside the schedule: the settings of the engine, the clients, and the weather.

use std::time::Duration;

use tidesdb::{Compression, Db, FamilyOptions, MergeOperator, Result, SyncMode};
use tidesdb_io::Env;

use crate::model::{SEPARATOR, listed};
use crate::rng::Rng;

/// Path of the database.
pub const PATH: &str = "/db";

/// Kinds of work and faults that can be left out, to make a failure smaller.
pub const PARTS: [&str; 17] = [
    "captures",
    "catalog",
    "clock",
    "clones",
    "checkpoints",
    "deletes",
    "expiry",
    "faults",
    "long",
    "maintenance",
    "merges",
    "options",
    "ranges",
    "readers",
    "scans",
    "snapshots",
    "transactions",
];

/// What happens to the machine during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// No call fails.
    Calm,
    /// Calls of the disk fail for a while.
    Failing,
    /// The disk is full for a while.
    Full,
    /// The power fails.
    Cut,
}

/// All that a seed decides beside the schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Clients that read and write.
    pub clients: u64,
    /// Clients that run transactions of all levels on the default family.
    pub isolated: u64,
    /// Steps of each client.
    pub steps: u64,
    /// Families at the begin.
    pub families: u64,
    /// Disk states that are recovered at the end.
    pub captures: u64,
    /// Weather.
    pub weather: Weather,
    /// Parts that are left out.
    pub off: Vec<String>,
    sync: SyncMode,
    threads: usize,
    parts: usize,
    segment: u64,
    memtables: u64,
    actives: u64,
    history: u64,
    map_log: bool,
    write_buffer: usize,
    table: u64,
    vlog: u64,
    threshold: usize,
}

impl Plan {
    /// Draws a plan.
    pub fn new(seed: u64, steps: Option<u64>, off: Vec<String>) -> Self {
        let mut rng = Rng::new(seed ^ 0xB10C_0F57_0E55);
        let mut one = |choices: &[u64]| *rng.pick(choices);
        let is_off = |part: &str| off.iter().any(|off| off == part);
        let weather = match one(&[0, 0, 0, 0, 0, 0, 1, 1, 2, 3]) {
            _ if is_off("faults") => Weather::Calm,
            1 => Weather::Failing,
            2 => Weather::Full,
            3 => Weather::Cut,
            _ => Weather::Calm,
        };
        let sync = match one(&[0, 1, 2, 2]) {
            0 => SyncMode::None,
            1 => SyncMode::Interval(Duration::from_millis(one(&[1, 20, 200]))),
            _ => SyncMode::Full,
        };
        let captures = if is_off("captures") { 0 } else { one(&[0, 1, 2, 4]) };
        Self {
            seed,
            clients: one(&[1, 2, 3, 4]),
            isolated: if is_off("transactions") { 0 } else { one(&[0, 0, 2, 3]) },
            steps: steps.unwrap_or_else(|| one(&[20, 40, 80, 120])),
            families: one(&[1, 2, 3, 5]),
            captures,
            weather,
            off,
            sync,
            threads: one(&[0, 1, 2, 3, 4, 4]) as usize,
            parts: one(&[1, 2, 4]) as usize,
            segment: one(&[16 << 10, 32 << 10, 256 << 10]),
            memtables: one(&[32 << 10, 128 << 10, 4 << 20]),
            actives: one(&[0, 0, 16 << 10]),
            history: one(&[0, 0, 64 << 10]),
            map_log: one(&[0, 1]) == 1,
            write_buffer: one(&[2 << 10, 4 << 10, 16 << 10]) as usize,
            table: one(&[1 << 10, 4 << 10, 32 << 10]),
            vlog: one(&[2 << 10, 16 << 10, 1 << 20]),
            threshold: one(&[40, 200, 512, u64::MAX]) as usize,
        }
    }

    /// Returns whether a part is not left out.
    pub fn has(&self, part: &str) -> bool {
        debug_assert!(PARTS.contains(&part));
        !self.off.iter().any(|off| off == part)
    }

    /// Returns whether commits are durable when they return.
    pub fn is_durable(&self) -> bool {
        self.sync == SyncMode::Full
    }

    /// Returns the settings of the family with number `n`.
    pub fn family(&self, n: usize) -> FamilyOptions {
        let mut options = FamilyOptions::default().write_buffer_bytes(self.write_buffer << (n % 2));
        options.merge_operator = Some(MergeOperator::append(SEPARATOR));
        if n % 3 == 1 {
            options = options.comparator(listed());
        }
        options.compression = [Compression::Lz4, Compression::None][n % 2];
        options.value_threshold = self.threshold;
        options.vlog_file_bytes = self.vlog;
        options.table_bytes = self.table;
        options.l1_tables_trigger = 2;
        options.level_size_ratio = 2 + n as u64 % 3;
        options.tombstone_density_min_entries = 4;
        options
    }

    /// Opens the database at `path`.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn open(&self, env: &Env, path: &str) -> Result<Db> {
        Db::options(path)
            .env(env.clone())
            .sync(self.sync)
            .background_threads(self.threads)
            .memory_limit(64 << 20)
            .cache_bytes(32 << 10)
            .comparator(listed())
            .default_family(self.family(0))
            .with(|o| {
                o.wal_segment_bytes = self.segment;
                o.memtables_bytes_max = self.memtables;
                o.active_memtables_bytes_max = self.actives;
                o.wal_bytes_max = 4 * self.segment;
                o.history_bytes = self.history;
                o.merge_parts = Some(self.parts);
                o.mmap_wal = self.map_log;
                o.disk_free_min = 0;
                o.disk_reserve_bytes = Some(0);
            })
            .open()
    }
}
