//! A row of the benchmark as data: one workload with all its settings. The row is passed to the child process and
//! stored in the reports, so a published figure states exactly what was measured.

use serde::{Deserialize, Serialize};

pub use crate::isolation::{Contention, HOT, Isolation};
use crate::keys::{INDEX_MAX, KEY_BYTES, Keys, Pattern};
use crate::values::{Filling, VALUE_BYTES_MIN, Values};

/// Operations that a row performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Puts, in batches.
    Write,
    /// Gets of existing keys.
    Read,
    /// All puts, then all gets, in the same open database; the reference calls this "mixed".
    Mixed,
    /// Deletes of all keys, in batches.
    Delete,
    /// Seeks to existing keys, with one long-lived cursor per thread.
    Seek,
    /// Seeks, each followed by reading `range` rows.
    Range,
    /// A scan of all rows.
    Iterate,
    /// Each thread overwrites, deletes and reads its own keys.
    Churn,
    /// Each thread appends at the end of its own queue and takes from the front, which it finds by a scan.
    Queue,
    /// Concurrent reads and writes, in the shares of [`Blend`].
    Blend,
    /// Puts, in batches; then the process is killed and the database is reopened.
    Kill,
    /// Transactions, each of which increments the counters of `tx_ops` keys.
    Transaction,
    /// Puts of the next version of existing keys: each key once, in batches, in a different order from the original
    /// puts.
    Overwrite,
    /// Gets of `batch` keys at once.
    MultiGet,
    /// Gets, while one additional thread overwrites keys in batches, at the rate of the row.
    ReadWhileWriting,
    /// Puts of drawn keys, in batches; each thread draws from its own part of the keys. One additional thread gets
    /// random keys until all puts are done.
    WriteWhileReading,
    /// Overwrites of several families at once, one thread for each.
    Families,
    /// All keys are put, overwritten `ops / keys` times, and nine of ten deleted; then queues run, then nothing is
    /// written. One additional thread scans ranges all the time.
    Turnover,
    /// Puts of drawn keys, first as fast as possible, then at twice that rate in an open loop.
    Overload,
    /// Puts of the next version of existing keys, as `Overwrite`; when they end, one additional thread probes: it seeks,
    /// reads ranges, and gets existing and absent keys in turn.
    ProbeAfter,
    /// Overwrites of drawn keys, first as fast as possible, then at half of that rate; then one additional thread probes as
    /// in `ProbeAfter`, while it holds one more cursor.
    ProbeBeside,
    /// Puts of all keys, then of their next versions, then seeks, ranges and gets in turn through cursors that are held from then on. When
    /// the background work is done, the same reads again.
    Motion,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 22] = [
        Self::Write,
        Self::Read,
        Self::Mixed,
        Self::Delete,
        Self::Seek,
        Self::Range,
        Self::Iterate,
        Self::Churn,
        Self::Queue,
        Self::Blend,
        Self::Kill,
        Self::Transaction,
        Self::Overwrite,
        Self::MultiGet,
        Self::ReadWhileWriting,
        Self::WriteWhileReading,
        Self::Families,
        Self::Turnover,
        Self::Overload,
        Self::ProbeAfter,
        Self::ProbeBeside,
        Self::Motion,
    ];

    /// Returns the name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Mixed => "mixed",
            Self::Delete => "delete",
            Self::Seek => "seek",
            Self::Range => "range",
            Self::Iterate => "iterate",
            Self::Churn => "churn",
            Self::Queue => "queue",
            Self::Blend => "blend",
            Self::Kill => "kill",
            Self::Transaction => "transaction",
            Self::Overwrite => "overwrite",
            Self::MultiGet => "multiget",
            Self::ReadWhileWriting => "readwhilewriting",
            Self::WriteWhileReading => "writewhilereading",
            Self::Families => "families",
            Self::Turnover => "turnover",
            Self::Overload => "overload",
            Self::ProbeAfter => "probeafter",
            Self::ProbeBeside => "probebeside",
            Self::Motion => "motion",
        }
    }

    /// Returns the workload with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }

    /// Returns true if the workload needs a database that another process has filled.
    pub fn needs_data(self) -> bool {
        !matches!(self, Self::Write | Self::Mixed | Self::Queue | Self::Kill | Self::Turnover | Self::Motion)
    }
}

/// Shares of operations in percent; they add up to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blend {
    /// Gets.
    pub read: u8,
    /// Puts of existing keys.
    pub update: u8,
    /// Puts of new keys.
    pub insert: u8,
    /// Seeks, each followed by reading rows; their number is uniform from 1 to `range`.
    pub scan: u8,
    /// A get and a put of the same key.
    pub modify: u8,
    /// If set, newly inserted keys are the popular ones.
    pub latest: bool,
}

impl Blend {
    fn sum(&self) -> u32 {
        [self.read, self.update, self.insert, self.scan, self.modify].into_iter().map(u32::from).sum()
    }
}

/// Failures that a commit survives once it has returned. Figures of different classes are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// None: the commit may still be in the memory of the process.
    None,
    /// A crash of the process: the operating system has the commit.
    Os,
    /// A power loss: the commit is on the device.
    Device,
}

impl Durability {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::None, Self::Os, Self::Device];

    /// Returns the name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Os => "os",
            Self::Device => "device",
        }
    }

    /// Returns the class with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }
}

/// One row. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Name in reports.
    pub name: String,
    /// Operations to perform.
    pub workload: Workload,
    /// Keys to use, and their order.
    pub pattern: Pattern,
    /// Shares of the operations of the workload `Blend`.
    pub blend: Blend,
    /// Number of operations, over all threads; a transaction counts as one.
    pub ops: u64,
    /// If not 0, the duration of the operations in seconds; it replaces `ops`. With `Turnover`, the duration of the
    /// queues and of the rest after them; with `ProbeAfter` and `ProbeBeside`, that of the probes; with `Motion`, that of the first reads.
    pub seconds: f64,
    /// Number of keys in the database before the operations; 0 means as many as `ops`.
    pub keys: u64,
    /// Threads that issue operations.
    pub threads: usize,
    /// Operations per commit, or keys per `MultiGet`.
    pub batch: u64,
    /// Size of a key.
    pub key_bytes: usize,
    /// Size of a value.
    pub value_bytes: usize,
    /// How the bytes of values are generated.
    pub filling: Filling,
    /// Rows per range.
    pub range: u64,
    /// Exponent of Zipf's law.
    pub theta: f64,
    /// Offset that is added to the rank in Zipf's law.
    pub theta_offset: f64,
    /// Failures that a commit survives.
    pub durability: Durability,
    /// Size of the block cache.
    pub cache: u64,
    /// Size of a memtable.
    pub memtable: u64,
    /// If not 0, operations start at this rate per second, over all threads (an open loop); with `ReadWhileWriting` the
    /// puts, with `WriteWhileReading` the gets alone.
    pub rate: f64,
    /// If set, background work from filling the database is done before the operations begin.
    pub settle: bool,
    /// If set, every answer is checked in full instead of one in 64.
    pub verify: bool,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Isolation level of transactions. With the workload `Write`, batches are committed as transactions of this level.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    /// Operations per transaction; each is a get and a put of the same key.
    #[serde(default)]
    pub tx_ops: u64,
    /// Whether transactions of different threads conflict.
    #[serde(default)]
    pub contention: Contention,
    /// If not empty, the rows of a suite with the same name here are stages over one database, in their order.
    #[serde(default)]
    pub database: String,
    /// Number of keys of each family of a `Families` row, which has one thread for each; else empty.
    #[serde(default)]
    pub families: Vec<u64>,
    /// If not 0, the process runs in a cgroup with this memory limit.
    #[serde(default)]
    pub memory: u64,
    /// If set, the row has a timeline with one line per second. Such a row starts with its files dropped from the page
    /// cache, unless it is `warm`, and ends with the background work done. It scans all rows only if that is its workload or it overwrites. A
    /// commit that is refused because background work made no progress is retried and counted.
    #[serde(default)]
    pub watched: bool,
    /// If set, a watched row starts with the page cache as the row before has left it.
    #[serde(default)]
    pub warm: bool,
    /// If set, a batch is written as sorted tables, past the log, which its commit takes. The pattern must be `Seq`.
    #[serde(default)]
    pub bulk: bool,
    /// Version of all values before the operations; with `WriteWhileReading`, the newest of them.
    #[serde(default)]
    pub version: u32,
}

/// Default number of keys of a row with a duration.
const TIMED_KEYS: u64 = 1_000_000;
/// Indexes reserved for each thread of such a row.
const TIMED_SHARE: u64 = 1_000_000_000_000;
/// Maximum number of operations per transaction.
const TX_OPS_MAX: u64 = 1_000_000;
/// Maximum number of families in a row.
pub const FAMILIES_MAX: usize = 8;

impl Default for Spec {
    fn default() -> Self {
        Self {
            name: String::new(),
            workload: Workload::Write,
            pattern: Pattern::Random,
            blend: Blend { read: 50, update: 50, ..Blend::default() },
            ops: 1_000_000,
            seconds: 0.0,
            keys: 0,
            threads: 4,
            batch: 1,
            key_bytes: 16,
            value_bytes: 100,
            filling: Filling::Percent(50),
            range: 100,
            theta: 0.99,
            theta_offset: 0.0,
            durability: Durability::Os,
            cache: 64 << 20,
            memtable: 64 << 20,
            rate: 0.0,
            settle: true,
            verify: false,
            seed: 1,
            isolation: None,
            tx_ops: 10,
            contention: Contention::Low,
            database: String::new(),
            families: Vec::new(),
            memory: 0,
            watched: false,
            warm: false,
            bulk: false,
            version: 0,
        }
    }
}

impl Spec {
    /// Checks whether the row can run.
    ///
    /// # Errors
    /// Returns what is wrong, in the terms of the command line.
    pub fn check(&self) -> Result<(), String> {
        let wrong = [
            (self.ops == 0 && self.seconds <= 0.0, "a row needs a number of operations or a duration"),
            (self.threads == 0 || self.threads > 1024, "threads must be from 1 to 1024"),
            (self.batch == 0, "a batch needs at least one operation"),
            (self.range == 0, "a range needs at least one row"),
            (!KEY_BYTES.contains(&self.key_bytes), "keys must have from 16 to 4096 bytes"),
            (self.value_bytes < VALUE_BYTES_MIN, "values must have at least 8 bytes"),
            (!(0.0..=4.0).contains(&self.theta), "theta must be from 0 to 4"),
            (
                self.workload == Workload::Blend && self.blend.sum() != 100,
                "the shares of a blend must add up to 100 percent",
            ),
            (
                self.has_versions() && self.filling == Filling::Sawtooth,
                "sawtooth values cannot be overwritten",
            ),
            (
                self.has_versions() && self.pattern == Pattern::Stride,
                "stride keys repeat and cannot be used for overwriting",
            ),
            (
                self.has_versions() && self.pattern == Pattern::Reverse,
                "reverse keys leave no room for new keys",
            ),
            (
                self.seconds > 0.0 && self.is_counted(),
                "delete, overwrite, writewhilereading and kill rows need a number of operations, not a duration",
            ),
            (
                self.is_too_short(),
                "turnover needs as many operations as keys, overload, probes and motion need a duration",
            ),
            (self.probes() && self.pattern != Pattern::Random, "probes need random keys, some absent"),
            (
                self.threads > 0 && self.workload == Workload::Overwrite && self.quota() > self.share(),
                "an overwrite row can write each key once at most",
            ),
            (
                self.workload == Workload::Delete
                    && !self.is_stage()
                    && self.keys != 0
                    && self.keys != self.ops,
                "a delete row must delete all keys: set as many operations as keys",
            ),
            (
                self.workload == Workload::Transaction && !(1..=TX_OPS_MAX).contains(&self.tx_ops),
                "a transaction has from one to a million operations",
            ),
            (
                self.workload == Workload::Write && self.isolation.is_some() && self.pattern.is_drawn(),
                "puts in transactions need a pattern that writes each key once, so that they are never refused",
            ),
            (
                self.bulk && self.pattern != Pattern::Seq,
                "rows of sorted tables come in the order of their keys",
            ),
            (
                !self.families_are_right(),
                "a families row, and no other, has one to eight families with keys, and a thread for each",
            ),
            (self.rate < 0.0 || !self.rate.is_finite(), "the rate must be a number of operations per second"),
            (self.ops > INDEX_MAX || self.keys > INDEX_MAX, "too many operations or keys"),
        ];
        match wrong.into_iter().find(|(is, _)| *is) {
            Some((_, what)) => Err(what.to_owned()),
            None => Ok(()),
        }
    }

    fn is_too_short(&self) -> bool {
        match self.workload {
            Workload::Turnover => self.ops < self.population(),
            Workload::Overload | Workload::Motion => self.seconds <= 0.0,
            _ => self.probes() && self.seconds <= 0.0,
        }
    }

    /// Returns true if the workload ends after a number of operations, and cannot have a duration.
    fn is_counted(&self) -> bool {
        use Workload::{Delete, Kill, Overwrite, WriteWhileReading};
        matches!(self.workload, Delete | Kill | Overwrite | WriteWhileReading)
    }

    fn probes(&self) -> bool {
        matches!(self.workload, Workload::ProbeAfter | Workload::ProbeBeside)
    }

    fn families_are_right(&self) -> bool {
        let families = &self.families;
        if self.workload != Workload::Families {
            return families.is_empty();
        }
        let keys: u64 = families.iter().sum();
        (1..=FAMILIES_MAX).contains(&families.len())
            && families.len() == self.threads
            && !families.contains(&0)
            && keys <= self.population()
    }

    /// Returns true if the row shares its database with others.
    pub fn is_stage(&self) -> bool {
        !self.database.is_empty()
    }

    /// Returns true if the row writes, so that its durability matters.
    pub fn writes(&self) -> bool {
        match self.workload {
            Workload::Read | Workload::MultiGet | Workload::Seek | Workload::Range | Workload::Iterate => {
                false
            }
            Workload::Blend => self.blend.update + self.blend.insert + self.blend.modify > 0,
            _ => true,
        }
    }

    fn has_versions(&self) -> bool {
        self.overwrites() || self.workload == Workload::Queue
    }

    /// Returns true if the row writes newer versions of existing keys.
    pub fn overwrites(&self) -> bool {
        use Workload::{Blend, Churn, Families, Motion, Overload, Overwrite, Transaction};
        let alone =
            matches!(self.workload, Churn | Blend | Transaction | Overwrite | Families | Overload | Motion);
        alone || self.has_extra_thread()
    }

    fn has_extra_thread(&self) -> bool {
        use Workload::{ProbeAfter, ProbeBeside, ReadWhileWriting, Turnover, WriteWhileReading};
        matches!(self.workload, ReadWhileWriting | WriteWhileReading | Turnover | ProbeAfter | ProbeBeside)
    }

    /// Returns the number of threads that issue operations, including the additional one that some workloads have.
    pub fn crew(&self) -> usize {
        self.threads + usize::from(self.has_extra_thread())
    }

    /// Returns the isolation level of the row's transactions, if it has any.
    pub fn level(&self) -> Option<Isolation> {
        match self.workload {
            Workload::Transaction => Some(self.isolation.unwrap_or(Isolation::ReadCommitted)),
            Workload::Write => self.isolation,
            _ => None,
        }
    }

    /// Returns the number of keys that all threads share, if the contention is high.
    pub fn hot_keys(&self) -> Option<u64> {
        let hot = || HOT.max(self.tx_ops).min(self.population());
        (self.contention == Contention::High).then(hot)
    }

    /// Returns the number of keys in the database before the operations, rounded so that all threads have equal shares.
    pub fn population(&self) -> u64 {
        let keys = match (self.keys, self.seconds > 0.0) {
            (0, true) => TIMED_KEYS,
            (0, false) => self.ops,
            (keys, _) => keys,
        };
        let threads = self.threads as u64;
        (keys / threads).max(1) * threads
    }

    /// Returns the number of operations of each thread; `u64::MAX` if the row has a duration.
    pub fn quota(&self) -> u64 {
        if self.seconds > 0.0 { u64::MAX } else { (self.ops / self.threads as u64).max(1) }
    }

    /// Returns the number of indexes that each thread owns when it writes.
    pub fn share(&self) -> u64 {
        let has_keys = self.workload.needs_data() || self.workload == Workload::Motion;
        let timed = self.seconds > 0.0 && !has_keys;
        if timed { TIMED_SHARE } else { self.population() / self.threads as u64 }
    }

    /// Returns the key generator of the row.
    ///
    /// # Errors
    /// Returns an error if the sizes are out of range.
    pub fn keys(&self) -> Result<Keys, String> {
        let is_queue = matches!(self.workload, Workload::Queue | Workload::Turnover);
        let pattern = if is_queue { Pattern::Seq } else { self.pattern };
        Keys::new(pattern, self.key_bytes, self.share() * self.threads as u64)
    }

    /// Returns the value generator of the row.
    ///
    /// # Errors
    /// Returns an error if the sizes are out of range.
    pub fn values(&self) -> Result<Values, String> {
        Values::new(self.value_bytes, self.filling)
    }

    /// Returns the size of one key and its value.
    pub fn entry_bytes(&self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_values() {
        assert!(Workload::ALL.iter().all(|w| Workload::named(w.name()) == Some(*w)));
        assert!(Pattern::ALL.iter().all(|p| Pattern::named(p.name()) == Some(*p)));
        assert!(Durability::ALL.iter().all(|d| Durability::named(d.name()) == Some(*d)));
    }

    #[test]
    fn a_row_survives_serialization() {
        let spec = Spec { filling: Filling::Sawtooth, theta: 1.3, ..Spec::default() };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
    }

    #[test]
    fn invalid_rows_are_refused() {
        let bad = |change: fn(&mut Spec)| {
            let mut spec = Spec::default();
            change(&mut spec);
            spec.check().unwrap_err()
        };
        assert!(Spec::default().check().is_ok());
        assert!(bad(|s| s.threads = 0).contains("threads"));
        assert!(bad(|s| s.ops = 0).contains("operations"));
        assert!(bad(|s| s.key_bytes = 8).contains("keys"));
        let blend = |s: &mut Spec| (s.workload, s.blend.read) = (Workload::Blend, 49);
        assert!(bad(blend).contains("100 percent"));
        assert!(bad(|s| (s.workload, s.tx_ops) = (Workload::Transaction, 0)).contains("a transaction"));
        let drawn = |s: &mut Spec| (s.isolation, s.pattern) = (Some(Isolation::Snapshot), Pattern::Uniform);
        assert!(bad(drawn).contains("never refused"));
        assert!(bad(|s| (s.workload, s.ops, s.keys) = (Workload::Overwrite, 16, 8)).contains("once at most"));
        assert!(bad(|s| (s.workload, s.filling) = (Workload::Churn, Filling::Sawtooth)).contains("sawtooth"));
    }
}
