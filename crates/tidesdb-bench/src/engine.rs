//! What the benchmark asks of an engine.
//!
//! An [`Engine`] is an open database, shared by all threads; a [`Session`] belongs to one thread. Both are used through
//! trait objects, a call costs a nanosecond or two. Every failure is an error and fails the row: an adapter must not
//! swallow one. An adapter hands out what the engine said, unchanged; it checks nothing itself.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::{Isolation, Spec};

/// What can go wrong, in words.
pub type Result<T> = std::result::Result<T, String>;

/// How to open an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name, perhaps with an argument after a colon.
    pub engine: String,
    /// Where the database is or will be.
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
    /// What the engine says.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Makes all commits durable.
    ///
    /// # Errors
    /// What the engine says.
    fn sync(&self) -> Result<()>;

    /// Writes out all memtables and waits until no background work is left.
    ///
    /// # Errors
    /// What the engine says, or that it took too long.
    fn settle(&self) -> Result<()>;

    /// Closes the database in good order.
    ///
    /// # Errors
    /// What the engine says.
    fn close(self: Box<Self>) -> Result<()>;

    /// Figures so far.
    fn stats(&self) -> Stats;

    /// Version and exact settings, for the report.
    fn settings(&self) -> String;

    /// Why writers had to stop, if it tells.
    fn causes(&self) -> Vec<Cause> {
        Vec::new()
    }

    /// Whether it keeps what it is given. If not, answers are compared as always but not held against it.
    fn keeps_data(&self) -> bool {
        true
    }
}

/// What an engine says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Times that writers had to stop.
    pub stalls: u64,
    /// Seconds that writers were delayed, all threads together.
    pub stalled: f64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks not found in the cache.
    pub cache_misses: u64,
}

/// One cause of stalls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// In the engine's words.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// Seconds, all threads together; 0 if the engine counts only.
    pub seconds: f64,
}

/// The engine in the hands of one thread. Operations after a failed one are undefined.
pub trait Session {
    /// Adds a put to the open batch.
    ///
    /// # Errors
    /// What the engine says.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Adds a delete to the open batch.
    ///
    /// # Errors
    /// What the engine says.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Commits the open batch with the durability of the row.
    ///
    /// # Errors
    /// What the engine says.
    fn commit(&mut self) -> Result<()>;

    /// Shows the newest value of `key`; returns whether there is one.
    ///
    /// # Errors
    /// What the engine says.
    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows the newest value of each of `keys` that is there, with its place among them; returns how many are there.
    ///
    /// # Errors
    /// What the engine says.
    fn multi_get(&mut self, keys: &[Vec<u8>], value: &mut dyn FnMut(usize, &[u8])) -> Result<u64> {
        let mut found = 0;
        for (place, key) in keys.iter().enumerate() {
            found += u64::from(self.get(key, &mut |shown| value(place, shown))?);
        }
        Ok(found)
    }

    /// Shows the first key at or after `key`; returns whether there is one. The cursor is the session's own and sees
    /// what was there at the last [`Session::refresh`] or later.
    ///
    /// # Errors
    /// What the engine says.
    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows up to `limit` rows from the first key at or after `key`; returns how many. Cursor as in [`Session::seek`].
    ///
    /// # Errors
    /// What the engine says.
    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Shows all rows in order with a new cursor; returns how many.
    ///
    /// # Errors
    /// What the engine says.
    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// The cursor sees all commits from before this call.
    ///
    /// # Errors
    /// What the engine says.
    fn refresh(&mut self) -> Result<()>;

    /// Transactions, if the engine offers any; apart from the open batch of the session.
    fn transactions(&mut self) -> Option<&mut dyn Transactions> {
        None
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All its writes are there.
    Committed,
    /// Nothing happened, because of what others committed: do it again.
    Conflict,
}

/// One transaction after the other. Between `begin` and the end all calls are part of it.
pub trait Transactions {
    /// Begins one. The last one has ended.
    ///
    /// # Errors
    /// What the engine says.
    fn begin(&mut self, level: Isolation) -> Result<()>;

    /// Shows the value of `key` as the transaction sees it, its own writes first; returns whether there is one.
    ///
    /// # Errors
    /// What the engine says.
    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// What the engine says.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes `key`.
    ///
    /// # Errors
    /// What the engine says.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Ends it with the durability of the row: all of it, or nothing.
    ///
    /// # Errors
    /// What the engine says, other than that there was a conflict.
    fn commit(&mut self) -> Result<Ended>;

    /// Ends it; nothing happened.
    ///
    /// # Errors
    /// What the engine says.
    fn rollback(&mut self) -> Result<()>;
}
