//! A row of the benchmark as data: one workload with all its settings. It is passed to the child process and stored in the
//! reports, so a published figure documents exactly what was measured.

use serde::{Deserialize, Serialize};

pub use crate::isolation::{Contention, HOT, Isolation};
use crate::keys::{INDEX_MAX, KEY_BYTES, Keys, Pattern};
use crate::values::{Filling, VALUE_BYTES_MIN, Values};

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Puts, in batches.
    Write,
    /// Gets of existing keys.
    Read,
    /// All puts, then all gets, in the same open database: "mixed" of the reference tool.
    Mixed,
    /// Deletes of all keys, in batches.
    Delete,
    /// Seeks to existing keys, with one long-lived cursor per thread.
    Seek,
    /// Seeks, each followed by reading `range` rows.
    Range,
    /// All rows in order.
    Iterate,
    /// Each thread overwrites, deletes and reads its own keys.
    Churn,
    /// Each thread appends at the end of its own queue and takes from its front, which it finds by a scan.
    Queue,
    /// Concurrent reads and writes, in the proportions of [`Blend`].
    Blend,
    /// Puts, in batches; then the process is killed, and the database reopened.
    Kill,
    /// Transactions, each of which adds one to the counters of `tx_ops` keys.
    Transaction,
    /// Puts of the next version of existing keys, each key once, in batches and in a different order than the first puts.
    Overwrite,
    /// Gets of `batch` keys at once.
    MultiGet,
    /// Gets, while another thread overwrites keys in batches, at the rate of the row.
    ReadWhileWriting,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 15] = [
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
    ];

    /// Returns its name on command lines and in reports.
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
        }
    }

    /// Returns the workload with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }

    /// Returns whether it needs a database that another process has filled.
    pub fn needs_data(self) -> bool {
        !matches!(self, Self::Write | Self::Mixed | Self::Queue | Self::Kill)
    }
}

/// Proportions of operations in percent; they add up to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blend {
    /// Gets.
    pub read: u8,
    /// Puts of existing keys.
    pub update: u8,
    /// Puts of new keys.
    pub insert: u8,
    /// Seeks followed by 1 to `range` rows, uniformly distributed.
    pub scan: u8,
    /// A get and a put of the same key.
    pub modify: u8,
    /// True if new keys are the popular ones.
    pub latest: bool,
}

/// Failures that a returned commit survives. Figures of different classes are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// None: the commit may be in the memory of the process.
    None,
    /// The death of the process: the commit has reached the kernel.
    Os,
    /// The loss of power: the commit has reached the device.
    Device,
}

impl Durability {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::None, Self::Os, Self::Device];

    /// Returns its name on command lines and in reports.
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

/// One row. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name in reports.
    pub name: String,
    /// Kind of work.
    pub workload: Workload,
    /// Pattern and order of the keys.
    pub pattern: Pattern,
    /// Proportions of the workload `Blend`.
    pub blend: Blend,
    /// Operations over all threads; a transaction counts as one.
    pub ops: u64,
    /// If not 0, the operations run for this many seconds instead.
    pub seconds: f64,
    /// Keys in the database before the operations; 0 = as many as operations.
    pub keys: u64,
    /// Threads that issue operations.
    pub threads: usize,
    /// Operations per commit, keys per `MultiGet`.
    pub batch: u64,
    /// Size of a key.
    pub key_bytes: usize,
    /// Size of a value.
    pub value_bytes: usize,
    /// Contents of values.
    pub filling: Filling,
    /// Rows per range.
    pub range: u64,
    /// Exponent of Zipf's law.
    pub theta: f64,
    /// Offset added to the rank in Zipf's law.
    pub theta_offset: f64,
    /// Failures that a commit survives.
    pub durability: Durability,
    /// Size of the block cache.
    pub cache: u64,
    /// Size of a memtable.
    pub memtable: u64,
    /// If not 0, operations start at this rate per second, over all threads: an open loop.
    pub rate: f64,
    /// True if background work is finished after filling, before the operations begin.
    pub settle: bool,
    /// True to check every answer instead of one of 64.
    pub verify: bool,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Isolation level of transactions; with the workload `Write`, batches are committed as such transactions.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    /// Operations per transaction, each a get and a put of the same key.
    #[serde(default)]
    pub tx_ops: u64,
    /// Contention between transactions of several threads.
    #[serde(default)]
    pub contention: Contention,
    /// Rows of a suite with the same non-empty name here are stages on one database, in their order.
    #[serde(default)]
    pub database: String,
    /// If not 0, the process runs in a cgroup with this memory limit.
    #[serde(default)]
    pub memory: u64,
    /// True if the row has a line per second. Such a row begins with its files out of the page cache, ends with the background
    /// work done, and reads all rows only if that is its workload or the check of its answers needs it.
    #[serde(default)]
    pub watched: bool,
    /// The version of all values before the operations.
    #[serde(default)]
    pub version: u32,
}

/// Keys of a row with a time limit instead of a number of operations.
const TIMED_KEYS: u64 = 1_000_000;
/// Indexes of one thread of such a row.
const TIMED_SHARE: u64 = 1_000_000_000_000;
/// Maximum number of operations per transaction.
const TX_OPS_MAX: u64 = 1_000_000;

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
            memory: 0,
            watched: false,
            version: 0,
        }
    }
}

impl Spec {
    /// Checks that the row can be run.
    ///
    /// # Errors
    /// What is wrong, in terms of the command line.
    pub fn check(&self) -> Result<(), String> {
        let b = &self.blend;
        let shares =
            [b.read, b.update, b.insert, b.scan, b.modify].iter().map(|s| u32::from(*s)).sum::<u32>();
        let wrong = [
            (self.ops == 0 && self.seconds <= 0.0, "no operations"),
            (self.threads == 0 || self.threads > 1024, "threads: from 1 to 1024"),
            (self.batch == 0, "a batch has at least one operation"),
            (self.range == 0, "a range has at least one row"),
            (!KEY_BYTES.contains(&self.key_bytes), "keys have from 16 to 4096 bytes"),
            (self.value_bytes < VALUE_BYTES_MIN, "values have at least 8 bytes"),
            (!(0.0..=4.0).contains(&self.theta), "theta is from 0 to 4"),
            (
                self.workload == Workload::Blend && shares != 100,
                "the percentages of a blend must add up to 100",
            ),
            (
                self.has_versions() && self.filling == Filling::Sawtooth,
                "sawtooth values cannot be overwritten",
            ),
            (
                self.has_versions() && self.pattern == Pattern::Stride,
                "stride keys are not distinct: they cannot be overwritten",
            ),
            (
                self.has_versions() && self.pattern == Pattern::Reverse,
                "reverse keys have no room for new ones",
            ),
            (
                self.seconds > 0.0
                    && matches!(self.workload, Workload::Delete | Workload::Kill | Workload::Overwrite),
                "deletes, overwrites, and puts before a kill, have a number of operations, not a time",
            ),
            (
                self.threads > 0 && self.workload == Workload::Overwrite && self.quota() > self.share(),
                "an overwrite row writes each key at most once",
            ),
            (
                self.workload == Workload::Delete
                    && !self.is_stage()
                    && self.keys != 0
                    && self.keys != self.ops,
                "a delete row deletes all keys: set keys equal to ops",
            ),
            (
                self.workload == Workload::Transaction && !(1..=TX_OPS_MAX).contains(&self.tx_ops),
                "a transaction has from one to a million operations",
            ),
            (
                self.workload == Workload::Write && self.isolation.is_some() && self.pattern.is_drawn(),
                "puts in transactions never conflict: each key is written once",
            ),
            (self.rate < 0.0 || !self.rate.is_finite(), "a rate is a number of operations per second"),
            (self.ops > INDEX_MAX || self.keys > INDEX_MAX, "too many operations"),
        ];
        match wrong.into_iter().find(|(is, _)| *is) {
            Some((_, what)) => Err(what.to_owned()),
            None => Ok(()),
        }
    }

    /// Returns whether the row shares its database with others.
    pub fn is_stage(&self) -> bool {
        !self.database.is_empty()
    }

    /// Returns whether it writes, so that its durability matters.
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

    /// Returns whether it writes newer versions of existing keys.
    pub fn overwrites(&self) -> bool {
        use Workload::{Blend, Churn, Overwrite, ReadWhileWriting, Transaction};
        matches!(self.workload, Churn | Blend | Transaction | Overwrite | ReadWhileWriting)
    }

    /// Returns the number of threads that issue operations, including the concurrent writer.
    pub fn crew(&self) -> usize {
        self.threads + usize::from(self.workload == Workload::ReadWhileWriting)
    }

    /// Returns the level of its transactions, if it has any.
    pub fn level(&self) -> Option<Isolation> {
        match self.workload {
            Workload::Transaction => Some(self.isolation.unwrap_or(Isolation::ReadCommitted)),
            Workload::Write => self.isolation,
            _ => None,
        }
    }

    /// Returns the number of keys that all threads share, if they do.
    pub fn hot_keys(&self) -> Option<u64> {
        let hot = || HOT.max(self.tx_ops).min(self.population());
        (self.contention == Contention::High).then(hot)
    }

    /// Returns the number of keys in the database before the operations, a multiple of the number of threads.
    pub fn population(&self) -> u64 {
        let keys = match (self.keys, self.seconds > 0.0) {
            (0, true) => TIMED_KEYS,
            (0, false) => self.ops,
            (keys, _) => keys,
        };
        let threads = self.threads as u64;
        (keys / threads).max(1) * threads
    }

    /// Returns the operations of each thread; unlimited if a time is given.
    pub fn quota(&self) -> u64 {
        if self.seconds > 0.0 { u64::MAX } else { (self.ops / self.threads as u64).max(1) }
    }

    /// Returns the number of indexes that each thread writes.
    pub fn share(&self) -> u64 {
        let timed = self.seconds > 0.0 && !self.workload.needs_data();
        if timed { TIMED_SHARE } else { self.population() / self.threads as u64 }
    }

    /// Returns the format of keys.
    ///
    /// # Errors
    /// If the sizes are out of range.
    pub fn keys(&self) -> Result<Keys, String> {
        let pattern = if self.workload == Workload::Queue { Pattern::Seq } else { self.pattern };
        Keys::new(pattern, self.key_bytes, self.share() * self.threads as u64)
    }

    /// Returns the format of values.
    ///
    /// # Errors
    /// If the sizes are out of range.
    pub fn values(&self) -> Result<Values, String> {
        Values::new(self.value_bytes, self.filling)
    }

    /// Returns the bytes of one key and its value.
    pub fn entry_bytes(&self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back() {
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
    fn invalid_rows_are_rejected() {
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
        assert!(bad(blend).contains("add up to 100"));
        assert!(bad(|s| (s.workload, s.tx_ops) = (Workload::Transaction, 0)).contains("a transaction"));
        let drawn = |s: &mut Spec| (s.isolation, s.pattern) = (Some(Isolation::Snapshot), Pattern::Uniform);
        assert!(bad(drawn).contains("never conflict"));
        assert!(bad(|s| (s.workload, s.ops, s.keys) = (Workload::Overwrite, 16, 8)).contains("at most once"));
        assert!(bad(|s| (s.workload, s.filling) = (Workload::Churn, Filling::Sawtooth)).contains("sawtooth"));
    }
}
