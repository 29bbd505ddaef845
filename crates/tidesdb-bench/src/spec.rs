//! A row of the benchmark as data: one workload with all its settings. It travels to the child process and into the
//! reports, so a published figure says exactly what was measured.

use serde::{Deserialize, Serialize};

pub use crate::isolation::{Contention, HOT, Isolation};
use crate::keys::{INDEX_MAX, KEY_BYTES, Keys, Pattern};
use crate::values::{Filling, VALUE_BYTES_MIN, Values};

/// What is done to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Puts, in batches.
    Write,
    /// Gets of keys that are there.
    Read,
    /// All puts, then all gets, in the same open database: the reference's "mixed".
    Mixed,
    /// Deletes of all keys, in batches.
    Delete,
    /// Seeks to keys that are there, one long-lived cursor per thread.
    Seek,
    /// Seeks, each followed by reading `range` rows.
    Range,
    /// All rows in order.
    Iterate,
    /// Each thread overwrites, deletes and reads keys of its own.
    Churn,
    /// Each thread appends at the end of a queue of its own and takes from its front, which it finds by a scan.
    Queue,
    /// Reads and writes at the same time, in the shares of [`Blend`].
    Blend,
    /// Puts, in batches; then the process is killed, and the database opened again.
    Kill,
    /// Transactions, each of which adds one to the counters of `tx_ops` keys.
    Transaction,
    /// Puts of the next version of keys that are there, each key once, in batches and in another order than they came.
    Overwrite,
    /// Gets of `batch` keys at once.
    MultiGet,
    /// Gets, while one more thread overwrites keys in batches, at the rate of the row.
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

    /// Its name on command lines and in reports.
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

    /// The workload of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }

    /// Whether it needs a database that another process filled before.
    pub fn needs_data(self) -> bool {
        !matches!(self, Self::Write | Self::Mixed | Self::Queue | Self::Kill)
    }
}

/// Shares of operations in percent; together 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blend {
    /// Gets.
    pub read: u8,
    /// Puts of keys that are there.
    pub update: u8,
    /// Puts of new keys.
    pub insert: u8,
    /// Seeks followed by up to `range` rows, evenly from one on.
    pub scan: u8,
    /// A get and a put of the same key.
    pub modify: u8,
    /// Whether new keys are the popular ones.
    pub latest: bool,
}

/// What a commit survives when it returns. Figures of different classes are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing: the commit may be in the memory of the process.
    None,
    /// The death of the process: the commit is with the operating system.
    Os,
    /// The loss of power: the commit is on the device.
    Device,
}

impl Durability {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::None, Self::Os, Self::Device];

    /// Its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Os => "os",
            Self::Device => "device",
        }
    }

    /// The class of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }
}

/// One row. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name in reports.
    pub name: String,
    /// What is done.
    pub workload: Workload,
    /// To which keys in which order.
    pub pattern: Pattern,
    /// Shares of the workload `Blend`.
    pub blend: Blend,
    /// Operations, over all threads; transactions count as one.
    pub ops: u64,
    /// If not 0, operations go on for this time instead, in seconds.
    pub seconds: f64,
    /// Keys in the database before; 0 = as many as operations.
    pub keys: u64,
    /// Threads that issue operations.
    pub threads: usize,
    /// Operations in a commit, keys of a `MultiGet`.
    pub batch: u64,
    /// Size of a key.
    pub key_bytes: usize,
    /// Size of a value.
    pub value_bytes: usize,
    /// What values are made of.
    pub filling: Filling,
    /// Rows of a range.
    pub range: u64,
    /// Exponent of Zipf's law.
    pub theta: f64,
    /// What is added to the rank in Zipf's law.
    pub theta_offset: f64,
    /// What a commit survives.
    pub durability: Durability,
    /// Block cache.
    pub cache: u64,
    /// Memtable.
    pub memtable: u64,
    /// If not 0, operations start at this rate a second, over all threads: an open loop.
    pub rate: f64,
    /// Whether the database is filled and its background work done before the operations begin, or only filled.
    pub settle: bool,
    /// Check every answer, not one of 64.
    pub verify: bool,
    /// Where chance begins.
    pub seed: u64,
    /// The level of transactions; with the workload `Write`, batches are committed as such transactions.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    /// Operations of a transaction, each a get and a put of the same key.
    #[serde(default)]
    pub tx_ops: u64,
    /// Whether transactions of several threads meet.
    #[serde(default)]
    pub contention: Contention,
    /// Rows of a suite with the same name here, if it is not empty, are stages over one database, in their order.
    #[serde(default)]
    pub database: String,
    /// If not 0, the process runs in a cgroup with this memory limit.
    #[serde(default)]
    pub memory: u64,
    /// Whether the row has a line per second. Such a row begins with its files out of the page cache, ends with the background
    /// work done, and reads all rows only if that is its workload or its answers need it.
    #[serde(default)]
    pub watched: bool,
    /// The version of all values before the operations.
    #[serde(default)]
    pub version: u32,
}

/// Keys of a row that is given a time, not a number.
const TIMED_KEYS: u64 = 1_000_000;
/// Indexes of one thread of such a row.
const TIMED_SHARE: u64 = 1_000_000_000_000;
/// Most operations of a transaction.
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
    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// What is wrong, in the words of the command line.
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
                "the shares of a blend are 100 percent together",
            ),
            (
                self.has_versions() && self.filling == Filling::Sawtooth,
                "sawtooth values cannot be overwritten",
            ),
            (
                self.has_versions() && self.pattern == Pattern::Stride,
                "stride keys coincide: not for overwriting",
            ),
            (
                self.has_versions() && self.pattern == Pattern::Reverse,
                "reverse keys have no room for new ones",
            ),
            (
                self.seconds > 0.0
                    && matches!(self.workload, Workload::Delete | Workload::Kill | Workload::Overwrite),
                "deletes, overwrites, and puts before a kill, are counted, not timed",
            ),
            (
                self.threads > 0 && self.workload == Workload::Overwrite && self.quota() > self.share(),
                "an overwrite row writes each key once at most",
            ),
            (
                self.workload == Workload::Delete
                    && !self.is_stage()
                    && self.keys != 0
                    && self.keys != self.ops,
                "a delete row deletes as many keys as there are",
            ),
            (
                self.workload == Workload::Transaction && !(1..=TX_OPS_MAX).contains(&self.tx_ops),
                "a transaction has from one to a million operations",
            ),
            (
                self.workload == Workload::Write && self.isolation.is_some() && self.pattern.is_drawn(),
                "puts in transactions are never refused: each key is written once",
            ),
            (self.rate < 0.0 || !self.rate.is_finite(), "a rate is a number of operations a second"),
            (self.ops > INDEX_MAX || self.keys > INDEX_MAX, "too many operations"),
        ];
        match wrong.into_iter().find(|(is, _)| *is) {
            Some((_, what)) => Err(what.to_owned()),
            None => Ok(()),
        }
    }

    /// Whether the row shares its database with others.
    pub fn is_stage(&self) -> bool {
        !self.database.is_empty()
    }

    /// Whether it writes, so that its durability matters.
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

    /// Whether it writes newer versions of keys that are there.
    pub fn overwrites(&self) -> bool {
        use Workload::{Blend, Churn, Overwrite, ReadWhileWriting, Transaction};
        matches!(self.workload, Churn | Blend | Transaction | Overwrite | ReadWhileWriting)
    }

    /// Threads that issue operations, the writer beside readers included.
    pub fn crew(&self) -> usize {
        self.threads + usize::from(self.workload == Workload::ReadWhileWriting)
    }

    /// The level of its transactions, if it has any.
    pub fn level(&self) -> Option<Isolation> {
        match self.workload {
            Workload::Transaction => Some(self.isolation.unwrap_or(Isolation::ReadCommitted)),
            Workload::Write => self.isolation,
            _ => None,
        }
    }

    /// Keys that all threads share, if they do.
    pub fn hot_keys(&self) -> Option<u64> {
        let hot = || HOT.max(self.tx_ops).min(self.population());
        (self.contention == Contention::High).then(hot)
    }

    /// Keys in the database before the operations: whole shares of the threads.
    pub fn population(&self) -> u64 {
        let keys = match (self.keys, self.seconds > 0.0) {
            (0, true) => TIMED_KEYS,
            (0, false) => self.ops,
            (keys, _) => keys,
        };
        let threads = self.threads as u64;
        (keys / threads).max(1) * threads
    }

    /// Operations of each thread; without end if a time is given.
    pub fn quota(&self) -> u64 {
        if self.seconds > 0.0 { u64::MAX } else { (self.ops / self.threads as u64).max(1) }
    }

    /// Indexes that belong to each thread when it writes.
    pub fn share(&self) -> u64 {
        let timed = self.seconds > 0.0 && !self.workload.needs_data();
        if timed { TIMED_SHARE } else { self.population() / self.threads as u64 }
    }

    /// How keys look.
    ///
    /// # Errors
    /// If the sizes are out of range.
    pub fn keys(&self) -> Result<Keys, String> {
        let pattern = if self.workload == Workload::Queue { Pattern::Seq } else { self.pattern };
        Keys::new(pattern, self.key_bytes, self.share() * self.threads as u64)
    }

    /// How values look.
    ///
    /// # Errors
    /// If the sizes are out of range.
    pub fn values(&self) -> Result<Values, String> {
        Values::new(self.value_bytes, self.filling)
    }

    /// Bytes of one key and its value.
    pub fn entry_bytes(&self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        assert!(Workload::ALL.iter().all(|w| Workload::named(w.name()) == Some(*w)));
        assert!(Pattern::ALL.iter().all(|p| Pattern::named(p.name()) == Some(*p)));
        assert!(Durability::ALL.iter().all(|d| Durability::named(d.name()) == Some(*d)));
    }

    #[test]
    fn a_row_survives_its_journey() {
        let spec = Spec { filling: Filling::Sawtooth, theta: 1.3, ..Spec::default() };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
    }

    #[test]
    fn senseless_rows_are_refused() {
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
