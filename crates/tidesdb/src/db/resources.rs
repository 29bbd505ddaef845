//! [`Resources`]: memory, a cache, threads, descriptors and a rate of merges that several databases share.

use std::fmt;
use std::sync::Arc;

use tidesdb_io::{Descriptors, Env};

use crate::Result;
use crate::background::SharedThreads;
use crate::jobs::RateLimit;
use crate::memory::{Memory, Use};
use crate::options::check_threads;
use crate::sst::CacheMemory;
use crate::vlog::WriteBudget;

/// At least two, so that flushes have a thread that no merge takes.
const WORKERS_MIN: usize = 2;

/// What several databases of a process share: one limit for their memory, one block cache, one set of threads, one budget of file
/// descriptors, and one limit on what merges write.
///
/// A program with many databases, for example one for each raft group or partition, opens all with the same `Resources`: then their number
/// does not multiply what they take. The databases are independent otherwise: each has its own folder, log, transactions and failures.
///
/// * **Memory.** The limit is for all together. One that writes much does not slow others down as long as they take less than their
///   equal part: see [`Resources::memory_used`].
/// * **Threads.** A thread takes one job of one database, then the next database has its turn. Merges never delay the flush of
///   another database, and no database takes the last of several threads that flush or merge.
/// * A database that closes ends its own jobs only. One that failed, or whose disk is full, leaves the others alone.
///
/// Clones are handles of the same. The threads end with the last handle and the last database.
///
/// ```
/// use tidesdb::{Db, Resources};
/// # let dir = tempfile::tempdir()?;
/// let resources = Resources::builder().memory_limit(64 << 20).cache_bytes(8 << 20).background_threads(2).build()?;
/// let groups = (0..10)
///     .map(|n| Db::options(dir.path().join(n.to_string())).resources(&resources).open())
///     .collect::<Result<Vec<_>, _>>()?;
/// for (n, db) in groups.iter().enumerate() {
///     db.put("group", n.to_string())?;
/// }
/// assert_eq!(groups[7].get("group")?.as_deref(), Some(&b"7"[..]));
/// assert_eq!((resources.databases(), resources.memory_limit()), (10, 64 << 20));
/// assert!(resources.memory_used() < resources.memory_limit());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Resources(Arc<Parts>);

struct Parts {
    memory: Arc<Memory>,
    cache: Arc<CacheMemory>,
    descriptors: Arc<Descriptors>,
    vlog_writes: Arc<WriteBudget>,
    rate: Arc<RateLimit>,
    threads: Arc<SharedThreads>,
}

/// Settings of [`Resources`]; made by [`Resources::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourcesBuilder {
    memory_limit: u64,
    cache_bytes: u64,
    threads: Option<usize>,
    descriptors: Option<usize>,
    rate: u64,
    env: Env,
}

impl Resources {
    /// Begins with the defaults.
    pub fn builder() -> ResourcesBuilder {
        ResourcesBuilder {
            memory_limit: 0,
            cache_bytes: 64 << 20,
            threads: None,
            descriptors: None,
            rate: 0,
            env: Env::real(),
        }
    }

    /// Bytes of memory that all databases together may use.
    pub fn memory_limit(&self) -> u64 {
        self.0.memory.limit()
    }

    /// Bytes of memory that all databases use now, of all kinds together: what [`Resources::memory_limit`] limits. Within its equal part,
    /// this limit divided by the number of databases, the writers of a database are not slowed down for lack of memory before all of it
    /// is used.
    pub fn memory_used(&self) -> u64 {
        self.counted().used()
    }

    /// Of these, the bytes of the block cache and of open tables.
    pub fn cache_used(&self) -> u64 {
        self.counted().used_for(Use::Tables)
    }

    /// How scarce memory is: `"normal"`, `"elevated"`, `"high"` or `"critical"`, as in the statistics of a database.
    pub fn memory_pressure(&self) -> &'static str {
        self.counted().level().name()
    }

    /// Number of databases that are open with these resources.
    pub fn databases(&self) -> u64 {
        self.0.memory.databases()
    }

    /// Number of threads that have started.
    pub fn threads(&self) -> usize {
        self.0.threads.threads()
    }

    /// Sets how many bytes per second the merges of all databases together may write; 0 = no limit. Running merges adapt at once.
    pub fn set_compaction_rate(&self, bytes_per_second: u64) {
        self.0.rate.set(bytes_per_second);
    }

    /// The memory, with what the cache takes now.
    fn counted(&self) -> &Memory {
        self.0.memory.set_shared_tables(self.0.cache.used());
        &self.0.memory
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.0.memory
    }

    pub(super) fn cache(&self) -> &Arc<CacheMemory> {
        &self.0.cache
    }

    pub(super) fn descriptors(&self) -> &Arc<Descriptors> {
        &self.0.descriptors
    }

    pub(super) fn vlog_writes(&self) -> &Arc<WriteBudget> {
        &self.0.vlog_writes
    }

    pub(super) fn rate(&self) -> &Arc<RateLimit> {
        &self.0.rate
    }

    pub(super) fn shared_threads(&self) -> &Arc<SharedThreads> {
        &self.0.threads
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resources")
            .field("memory_limit", &self.memory_limit())
            .field("memory_used", &self.memory_used())
            .field("databases", &self.databases())
            .finish_non_exhaustive()
    }
}

impl ResourcesBuilder {
    /// Sets the bytes of memory that all databases together may use, of all kinds. 0, the default, is half of the memory of the machine or
    /// of the control group. Less than 16 MiB is treated as 16 MiB.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Sets the capacity of the block cache of all databases, at most a quarter of the memory. Default 64 MiB.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets the number of threads that flush and merge for all databases, 2 to 256; fewer are treated as 2. Further ones keep the time, prepare logs, remove
    /// files, upload and publish figures: one of each kind works at a time, and another one goes on when it waits for a device. Default: the number of cores, at least 4 and at most 16.
    pub fn background_threads(mut self, n: usize) -> Self {
        self.threads = Some(n);
        self
    }

    /// Sets how many files all databases together keep open for reading. Default: the budget that all databases of the process share.
    pub fn descriptors(mut self, n: usize) -> Self {
        self.descriptors = Some(n);
        self
    }

    /// Sets how many bytes per second the merges of all databases together may write; 0, the default, is no limit. A database may have a
    /// lower limit of its own.
    pub fn compaction_bytes_per_second(mut self, bytes: u64) -> Self {
        self.rate = bytes;
        self
    }

    /// Replaces the environment, as [`OpenOptions::env`](crate::OpenOptions::env) does.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Makes the resources. No thread starts before a database has work for it.
    ///
    /// # Errors
    /// `InvalidArgument` for a number of threads out of its domain.
    pub fn build(self) -> Result<Resources> {
        let threads = match self.threads {
            Some(n) => check_threads(n)?,
            None => self.env.threads.parallelism().clamp(4, 16),
        };
        let memory = Memory::of_several(self.memory_limit);
        let descriptors = match self.descriptors {
            Some(n) => Arc::new(Descriptors::new(n)),
            None => Arc::clone(&self.env.descriptors),
        };
        Ok(Resources(Arc::new(Parts {
            cache: CacheMemory::new(memory.part_max(self.cache_bytes)),
            vlog_writes: WriteBudget::of(descriptors.max()),
            rate: RateLimit::new(self.rate),
            threads: Arc::new(SharedThreads::new(&self.env, threads.max(WORKERS_MIN))),
            descriptors,
            memory,
        })))
    }
}
