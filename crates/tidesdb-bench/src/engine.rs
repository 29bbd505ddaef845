//! The interface of an engine in the benchmark.
//!
//! An [`Engine`] is an open database, shared by all threads; a [`Session`] belongs to one thread. Both are used through
//! trait objects; a call costs a nanosecond or two. Every failure is an error and fails the row: an adapter must not
//! hide one. An adapter returns the engine's answers unchanged; it checks nothing itself.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::{Isolation, Spec};

/// Result with a description of the failure.
pub type Result<T> = std::result::Result<T, String>;

/// How to open an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name, optionally with an argument after a colon.
    pub engine: String,
    /// Directory of the database, which may not exist yet.
    pub dir: PathBuf,
    /// The row: cache, memtable, durability, sizes.
    pub spec: Spec,
}

/// Opens an engine.
pub type Open = fn(&Config) -> Result<Box<dyn Engine>>;

/// An open database.
pub trait Engine: Send + Sync {
    /// A session for one thread.
    ///
    /// # Errors
    /// Those of the engine.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Makes all commits durable.
    ///
    /// # Errors
    /// Those of the engine.
    fn sync(&self) -> Result<()>;

    /// Flushes all memtables and waits until no background work is left.
    ///
    /// # Errors
    /// Those of the engine, or that it took too long.
    fn settle(&self) -> Result<()>;

    /// Closes the database cleanly.
    ///
    /// # Errors
    /// Those of the engine.
    fn close(self: Box<Self>) -> Result<()>;

    /// Returns statistics since the open.
    fn stats(&self) -> Stats;

    /// Returns version and exact settings, for the report.
    fn settings(&self) -> String;

    /// Returns why writers had to stop, if the engine reports it.
    fn causes(&self) -> Vec<Cause> {
        Vec::new()
    }

    /// Returns whether it stores data. If not, answers are compared as always, but differences are ignored.
    fn keeps_data(&self) -> bool {
        true
    }
}

/// Statistics reported by an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Number of times that writers had to stop.
    pub stalls: u64,
    /// Total delay of writers over all threads, in seconds.
    pub stalled: f64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks not found in the cache.
    pub cache_misses: u64,
}

/// One cause of stalls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Its name in the engine.
    pub cause: String,
    /// Number of stalls.
    pub count: u64,
    /// Seconds over all threads; 0 if the engine reports only counts.
    pub seconds: f64,
}

/// The engine as used by one thread. The effect of operations after a failed one is undefined.
pub trait Session {
    /// Adds a put to the open batch.
    ///
    /// # Errors
    /// Those of the engine.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Adds a delete to the open batch.
    ///
    /// # Errors
    /// Those of the engine.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Commits the open batch with the durability of the row.
    ///
    /// # Errors
    /// Those of the engine.
    fn commit(&mut self) -> Result<()>;

    /// Passes the newest value of `key` to `value`; returns whether there is one.
    ///
    /// # Errors
    /// Those of the engine.
    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes the newest value of each existing key to `value`, with its index in `keys`; returns the number of existing keys.
    ///
    /// # Errors
    /// Those of the engine.
    fn multi_get(&mut self, keys: &[Vec<u8>], value: &mut dyn FnMut(usize, &[u8])) -> Result<u64> {
        let mut found = 0;
        for (place, key) in keys.iter().enumerate() {
            found += u64::from(self.get(key, &mut |shown| value(place, shown))?);
        }
        Ok(found)
    }

    /// Passes the first key at or after `key` to `found`; returns whether there is one. The cursor belongs to the session and sees
    /// the state of the last [`Session::refresh`] or a later one.
    ///
    /// # Errors
    /// Those of the engine.
    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes up to `limit` rows from the first key at or after `key` to `row`; returns their number. Cursor as in [`Session::seek`].
    ///
    /// # Errors
    /// Those of the engine.
    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Passes all rows in order to `row`, with a new cursor; returns their number.
    ///
    /// # Errors
    /// Those of the engine.
    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Makes the cursor see all commits from before this call.
    ///
    /// # Errors
    /// Those of the engine.
    fn refresh(&mut self) -> Result<()>;

    /// Returns the transactions, if the engine supports them; they are separate from the open batch of the session.
    fn transactions(&mut self) -> Option<&mut dyn Transactions> {
        None
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All its writes are committed.
    Committed,
    /// It conflicted with other commits and had no effect: retry.
    Conflict,
}

/// Consecutive transactions of one session. All calls between `begin` and the end belong to one transaction.
pub trait Transactions {
    /// Begins a transaction. The previous one must have ended.
    ///
    /// # Errors
    /// Those of the engine.
    fn begin(&mut self, level: Isolation) -> Result<()>;

    /// Passes the value of `key` as seen by the transaction to `value`, own writes first; returns whether there is one.
    ///
    /// # Errors
    /// Those of the engine.
    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// Those of the engine.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes `key`.
    ///
    /// # Errors
    /// Those of the engine.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Ends the transaction with the durability of the row: commits all of it, or nothing.
    ///
    /// # Errors
    /// Those of the engine, except a conflict.
    fn commit(&mut self) -> Result<Ended>;

    /// Ends the transaction without effect.
    ///
    /// # Errors
    /// Those of the engine.
    fn rollback(&mut self) -> Result<()>;
}
