//! The interface between the benchmark and an engine.
//!
//! An [`Engine`] is an open database, shared by all threads; a [`Session`] belongs to one thread. Both are used through
//! trait objects; a call costs 1 to 2 ns. Every failure is an error and fails the row: an adapter must not swallow one.
//! An adapter passes on the engine's answers unchanged and checks nothing itself.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::{Isolation, Spec};

/// Result whose error is a message for people.
pub type Result<T> = std::result::Result<T, String>;

/// How to open an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Engine name, optionally followed by a colon and an argument.
    pub engine: String,
    /// Directory of the database; it need not exist yet.
    pub dir: PathBuf,
    /// Row to run: cache, memtable, durability, sizes.
    pub spec: Spec,
}

/// Opens an engine.
pub type Open = fn(&Config) -> Result<Box<dyn Engine>>;

/// An open database.
pub trait Engine: Send + Sync {
    /// Creates a session for one thread.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Creates a session for one thread in one of the families of a `Families` row. Programs of rivals have no such
    /// rows.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn session_of(&self, family: usize) -> Result<Box<dyn Session + '_>> {
        let _ = family;
        self.session()
    }

    /// Makes all commits durable.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn sync(&self) -> Result<()>;

    /// Writes out all memtables and waits until no background work is left.
    ///
    /// # Errors
    /// Returns the engine's error, or a timeout.
    fn settle(&self) -> Result<()>;

    /// Closes the database cleanly.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn close(self: Box<Self>) -> Result<()>;

    /// Returns the engine's counters so far.
    fn stats(&self) -> Stats;

    /// Returns version and exact settings, for the report.
    fn settings(&self) -> String;

    /// Returns the causes of write stalls, if the engine reports them.
    fn causes(&self) -> Vec<Cause> {
        Vec::new()
    }

    /// Returns the bytes that background work must still flush or merge, as the engine counts them.
    fn debt(&self) -> u64 {
        0
    }

    /// Returns the bytes of the tables in each level of the largest family, the newest level first.
    fn levels(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns how long due merges waited until they started, for each family of a `Families` row.
    fn waits(&self) -> Vec<Wait> {
        Vec::new()
    }

    /// Returns true if the engine stores what is written. If not, answers are compared as usual, but differences are
    /// not reported.
    fn keeps_data(&self) -> bool {
        true
    }
}

/// Counters that an engine reports about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Number of write stalls.
    pub stalls: u64,
    /// Seconds that writers were stalled, summed over all threads.
    pub stalled: f64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks not found in the cache.
    pub cache_misses: u64,
    /// Bytes of tables that flushes and merges wrote; 0 if the engine does not report them.
    #[serde(default)]
    pub tables_written: u64,
    /// Commits that were refused because background work made no progress. A watched row retries them; in other rows
    /// they are failures.
    #[serde(default)]
    pub busy: u64,
}

/// One cause of write stalls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Name of the cause, as the engine reports it.
    pub cause: String,
    /// Number of stalls.
    pub count: u64,
    /// Seconds, summed over all threads; 0 if the engine reports only the count.
    pub seconds: f64,
}

/// How long due merges of one family waited until one started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Number of waits.
    pub count: u64,
    /// Seconds of all waits.
    pub seconds: f64,
    /// Seconds of the longest wait.
    pub longest: f64,
}

impl Cause {
    /// Returns the stalls since `before`; `None` if there was none.
    pub fn since(&self, before: &[Self]) -> Option<Self> {
        let before = before.iter().find(|b| b.cause == self.cause).cloned().unwrap_or_default();
        let count = self.count.saturating_sub(before.count);
        let seconds = (self.seconds - before.seconds).max(0.0);
        (count > 0 || seconds > 0.0).then(|| Self { cause: self.cause.clone(), count, seconds })
    }
}

/// One thread's access to the engine. After a failed operation, the results of later operations are undefined.
pub trait Session {
    /// Adds a put to the open batch.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Adds a delete to the open batch.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Commits the open batch with the durability of the row.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn commit(&mut self) -> Result<()>;

    /// Passes the newest value of `key` to `value`; returns whether there is one.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes the newest value of each existing key to `value`, with the key's index in `keys`; returns how many exist.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn multi_get(&mut self, keys: &[Vec<u8>], value: &mut dyn FnMut(usize, &[u8])) -> Result<u64> {
        let mut found = 0;
        for (place, key) in keys.iter().enumerate() {
            found += u64::from(self.get(key, &mut |shown| value(place, shown))?);
        }
        Ok(found)
    }

    /// Passes the first key at or after `key` to `found`; returns whether there is one. The session's own cursor is
    /// used. It sees the database as of the last [`Session::refresh`] or later.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes up to `limit` rows, starting at the first key at or after `key`, to `row`; returns how many. Uses the
    /// same cursor as [`Session::seek`].
    ///
    /// # Errors
    /// Returns the engine's error.
    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Passes all rows to `row`, in key order, using a new cursor; returns how many.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Moves the cursor forward so that it sees all commits made before this call.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn refresh(&mut self) -> Result<()>;

    /// Returns the transaction interface, if the engine has one. Transactions are independent of the session's open
    /// batch.
    fn transactions(&mut self) -> Option<&mut dyn Transactions> {
        None
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All writes were applied.
    Committed,
    /// No write was applied, because of commits by other transactions. The caller retries.
    Conflict,
}

/// Transactions of one session, one at a time. All calls between `begin` and `commit` or `rollback` belong to it.
pub trait Transactions {
    /// Begins a transaction. The previous one must have ended.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn begin(&mut self, level: Isolation) -> Result<()>;

    /// Passes the value of `key` as the transaction sees it, its own writes first, to `value`; returns whether there is
    /// one.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes `key`.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Commits all writes, or none on a conflict, with the durability of the row.
    ///
    /// # Errors
    /// Returns the engine's error. A conflict is not an error.
    fn commit(&mut self) -> Result<Ended>;

    /// Rolls back: no write is applied.
    ///
    /// # Errors
    /// Returns the engine's error.
    fn rollback(&mut self) -> Result<()>;
}
