//! What a seed decides about a run beside the schedule: the settings of the engine, the clients, and the weather.

use std::sync::Arc;
use std::time::Duration;

use tidesdb::{
    Compression, Db, FamilyOptions, MergeOperator, ObjectStore, RemoteOptions, Resources, Result, SyncMode,
};
use tidesdb_io::sim::{Habits, SimDisk};
use tidesdb_io::{Descriptors, Env};
use tidesdb_sync::scheduler::{Settings, Strategy};

use crate::model::{SEPARATOR, listed};
use crate::rng::Rng;

/// Path of the database.
pub const PATH: &str = "/db";

/// The least limit of memory.
const MEMORY_LITTLE: u64 = 16 << 20;
/// The thread of intervals looks every 10 ms, and its sync waits for commits that are being written, and takes turns with all other threads.
const INTERVAL_LATE: Duration = Duration::from_millis(300);
/// Bytes of files that stay on a disk whose files may leave it.
const LOCAL_BYTES_MAX: u64 = 16 << 10;
/// A call that takes no longer is not slow.
const LATE_LITTLE: Duration = Duration::from_millis(1);

/// Kinds of work and faults that can be left out, to make a failure smaller.
pub const PARTS: [&str; 29] = [
    "backups",
    "captures",
    "catalog",
    "clock",
    "clones",
    "closes",
    "checkpoints",
    "deletes",
    "descriptors",
    "expiry",
    "faults",
    "habits",
    "huge",
    "ingest",
    "long",
    "maintenance",
    "memory",
    "merges",
    "neighbours",
    "options",
    "ranges",
    "readers",
    "recoveries",
    "scans",
    "singles",
    "snapshots",
    "store",
    "threads",
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

/// The copy of a database in an object store.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    /// Whether the log is copied too.
    log: bool,
    /// Whether files that are in the store leave the disk.
    evicts: bool,
    /// Whether the store is down for a while.
    pub fails: bool,
}

impl Copying {
    fn drawn(one: &mut impl FnMut(&[u64]) -> u64) -> Option<Self> {
        let (kind, log) = (one(&[0, 0, 0, 1, 2]), one(&[0, 1]) == 1);
        // Files that are only in a store that is down cannot be read.
        (kind > 0).then_some(Self { log, evicts: kind == 2, fails: kind == 1 })
    }
}

/// Generations of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In a store whose calls succeed.
    Calm,
    /// In a store that is down for a while.
    Failing,
}

impl Backing {
    fn drawn(one: &mut impl FnMut(&[u64]) -> u64) -> Option<Self> {
        match one(&[0, 0, 0, 1, 2]) {
            0 => None,
            1 => Some(Self::Calm),
            _ => Some(Self::Failing),
        }
    }
}

/// All that a seed decides beside the schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Clients that read and write.
    pub clients: u64,
    /// Clients that run transactions of all levels, on families of their own.
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
    /// Habits of the disk.
    pub habits: Habits,
    /// How many files may be open.
    open_files: Option<usize>,
    /// Whether some values and batches have megabytes.
    pub is_huge: bool,
    /// Whether some threads of the engine are not started after the open.
    pub starts_fail: bool,
    /// The copy in an object store.
    pub copying: Option<Copying>,
    /// Backups in another store.
    pub backing: Option<Backing>,
    /// Whether a second database shares its resources with this one.
    pub shares: bool,
    /// Whether each thread gets its turn soon and no call is slow.
    is_timely: bool,
    memory: u64,
    singles: bool,
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
        let habits = match one(&[0, 0, 0, 1, 2]) {
            1 if !is_off("habits") => Habits::MACOS,
            2 if !is_off("habits") => Habits::WINDOWS,
            _ => Habits::LINUX,
        };
        let is_huge = one(&[0, 0, 0, 0, 0, 0, 0, 1]) == 1 && !is_off("huge");
        let memory = match one(&[0, 0, 0, 1]) {
            // A scan of several tables with values of megabytes needs more than the share of scans, even alone.
            1 if !is_huge && !is_off("memory") => MEMORY_LITTLE,
            _ => 64 << 20,
        };
        let open_files = match one(&[0, 0, 1]) {
            // Windows sets no limit, and its files have no maps in their place.
            1 if habits != Habits::WINDOWS && !is_off("descriptors") => Some(one(&[40, 64]) as usize),
            _ => None,
        };
        let starts_fail = one(&[0, 0, 0, 0, 1]) == 1 && !is_off("threads");
        let singles = one(&[0, 1]) == 1 && !is_off("singles");
        let copying = Copying::drawn(&mut one).filter(|_| !is_off("store"));
        let backing = Backing::drawn(&mut one).filter(|_| !is_off("backups"));
        let captures = if is_off("captures") { 0 } else { one(&[0, 1, 2, 4]) };
        Self {
            seed,
            clients: one(&[1, 2, 3, 4]),
            isolated: if is_off("transactions") { 0 } else { one(&[0, 0, 2, 3]) },
            steps: steps.unwrap_or_else(|| one(&[20, 40, 80, 120])),
            families: one(&[1, 2, 3, 5]),
            captures,
            weather,
            shares: one(&[0, 0, 1]) == 1 && !is_off("neighbours"),
            off,
            habits,
            open_files,
            is_huge,
            starts_fail,
            copying,
            backing,
            is_timely: false,
            memory,
            singles,
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

    /// Returns whether readers beside the writer take part. They do not see what is only in a store.
    pub fn has_readers(&self) -> bool {
        self.has("readers") && !self.copying.is_some_and(|copying| copying.evicts)
    }

    /// Returns whether recoveries may end by a power failure or a kill: not if the only copy of a file is in the store. A machine that is
    /// gone no longer calls the store, and one whose disk fails does.
    pub fn cuts_recoveries(&self) -> bool {
        self.has("recoveries") && !self.copying.is_some_and(|copying| copying.evicts)
    }

    /// Returns whether commits are durable when they return.
    pub fn is_durable(&self) -> bool {
        self.sync == SyncMode::Full
    }

    /// Notes how threads take turns.
    pub fn under(mut self, settings: &Settings) -> Self {
        let is_fair = matches!(settings.strategy, Strategy::Walk { .. })
            && settings.jump_one_in == 0
            && settings.stall_one_in == 0;
        self.is_timely = is_fair && (settings.late_one_in == 0 || settings.late_max <= LATE_LITTLE);
        self
    }

    /// Returns whether little memory may be the reason of a refusal.
    pub fn is_memory_little(&self) -> bool {
        self.memory == MEMORY_LITTLE
    }

    /// In virtual time after its return, a commit is durable without a further call; `None` if there is no bound.
    pub fn durable_within(&self) -> Option<Duration> {
        match self.sync {
            SyncMode::Interval(period) if self.threads > 0 && self.is_timely => Some(period + INTERVAL_LATE),
            _ => None,
        }
    }

    /// Limits the files that are open on `disk`, and gives the databases of `env` a half of them to read.
    pub fn with_descriptors(&self, env: Env, disk: &SimDisk) -> Env {
        let Some(max) = self.open_files else { return env };
        // A neighbour writes files, too.
        disk.limit_open_files(if self.shares { 2 * max } else { max });
        Env { descriptors: Arc::new(Descriptors::new(max / 2)), ..env }
    }

    /// Returns the settings of the family with number `n`.
    pub fn family(&self, n: usize) -> FamilyOptions {
        let mut options = FamilyOptions::default().write_buffer_bytes(self.write_buffer << (n % 2));
        // A single delete is a delete where operands may be.
        if !self.singles || n.is_multiple_of(2) {
            options.merge_operator = Some(MergeOperator::append(SEPARATOR));
        }
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

    /// Opens the database at `path`, whose copy is in `store`.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn open(&self, env: &Env, path: &str, store: Option<Arc<dyn ObjectStore>>) -> Result<Db> {
        self.open_with(env, path, store, None)
    }

    /// Makes what the database shares with another one, if it does.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn resources(&self, env: &Env) -> Result<Option<Resources>> {
        let resources = Resources::builder()
            .env(env.clone())
            .memory_limit(self.memory)
            .cache_bytes(32 << 10)
            .background_threads(self.threads);
        if self.shares { resources.build().map(Some) } else { Ok(None) }
    }

    /// As [`Plan::open`], with what it shares with other databases.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn open_with(
        &self,
        env: &Env,
        path: &str,
        store: Option<Arc<dyn ObjectStore>>,
        resources: Option<&Resources>,
    ) -> Result<Db> {
        let remote = self.copying.zip(store).map(|(copying, store)| {
            let mut remote = RemoteOptions::new(store);
            remote.local_bytes_max = if copying.evicts { LOCAL_BYTES_MAX } else { 0 };
            (remote.replicate_log, remote.log_bytes) = (copying.log, 4 << 10);
            remote.interval = Duration::from_millis(20);
            remote
        });
        let options = Db::options(path);
        let options = resources.into_iter().fold(options, |options, shared| options.resources(shared));
        options
            .env(env.clone())
            .sync(self.sync)
            .background_threads(self.threads)
            .memory_limit(self.memory)
            .cache_bytes(32 << 10)
            .comparator(listed())
            .default_family(self.family(0))
            .with(|o| {
                o.wal_segment_bytes = self.segment;
                o.memtables_bytes_max = self.memtables;
                o.active_memtables_bytes_max = self.actives;
                o.wal_bytes_max = 4 * self.segment;
                o.history_bytes = self.history;
                o.forced.merge_parts = Some(self.parts);
                o.mmap_wal = self.map_log;
                o.disk_free_min = 0;
                o.disk_reserve_bytes = Some(0);
                o.remote = remote;
            })
            .open()
    }
}
