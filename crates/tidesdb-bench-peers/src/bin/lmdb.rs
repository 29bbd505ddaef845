//! LMDB. It allows one writer at a time: batches are buffered in the session and applied while the write lock is held.
//! It has neither a cache nor a memtable of its own; the page cache serves as both.
//!
//! A reader keeps its transaction until something is committed. Without `fdatasync` a commit reaches the system, so the
//! weaker durability class is `os`.
#![allow(unsafe_code, reason = "LMDB maps its file")]

use std::ops::Bound;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};
use tidesdb_bench::engine::{Config, Engine, Result, Session, Stats};
use tidesdb_bench::spec::Durability;
use tidesdb_bench_peers::batch::Batch;

fn main() -> ExitCode {
    tidesdb_bench_peers::serve(open)
}

/// Address space reserved for the map; the file grows with use.
const MAP: usize = 1 << 40;

type Data = Database<'static, Bytes, Bytes>;

struct Lmdb {
    env: Env<WithoutTls>,
    data: Data,
    settings: String,
    /// Commits so far.
    commits: AtomicU64,
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let spec = &config.spec;
    std::fs::create_dir_all(&config.dir).map_err(said)?;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP).max_readers(4096);
    if spec.durability != Durability::Device {
        // SAFETY: without sync, a power loss may damage the file, which is deleted after the benchmark. As long as the
        // system keeps running, nothing else is weaker.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: the directory was created for this benchmark. No other process opens or changes the file while it is
    // mapped, and this process opens it once.
    let env = unsafe { options.open(&config.dir) }.map_err(said)?;
    let transaction = env.write_txn().map_err(said)?;
    let data: Data = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        })
        .map_err(said)?
        .commit()
        .ok_or("the database was not created")?;
    let settings = format!(
        "LMDB {}: {}, no cache except the page cache, no compression, no filter, no memtable, readers keep their transaction until \
         the next commit, a new iterator for each seek",
        heed::lmdb_version().string,
        if spec.durability == Durability::Device { "synced commits" } else { "NO_SYNC" },
    );
    Ok(Box::new(Lmdb { env, data, settings, commits: AtomicU64::new(0) }))
}

impl Engine for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { engine: self, batch: Batch::default(), view: None }))
    }

    fn sync(&self) -> Result<()> {
        self.env.force_sync().map_err(said)
    }

    fn settle(&self) -> Result<()> {
        self.sync()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

type View<'a> = RoTxn<'a, WithoutTls>;

struct LmdbSession<'a> {
    engine: &'a Lmdb,
    batch: Batch,
    /// A read transaction, and the number of commits before it started.
    view: Option<(u64, View<'a>)>,
}

impl<'a> LmdbSession<'a> {
    /// Returns a read transaction that sees all commits.
    fn view(&mut self) -> Result<&View<'a>> {
        let commits = self.engine.commits.load(Ordering::Acquire);
        if self.view.as_ref().is_none_or(|(at, _)| *at != commits) {
            self.view = None;
            self.view = Some((commits, self.engine.env.read_txn().map_err(said)?));
        }
        self.view.as_ref().map(|(_, view)| view).ok_or_else(|| "no view".to_owned())
    }
}

impl Session for LmdbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(key, value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.batch.delete(key);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        // An open read transaction would prevent pages from being reused.
        self.view = None;
        let Lmdb { env, data, commits, .. } = self.engine;
        let mut transaction = env.write_txn().map_err(said)?;
        for (key, value) in self.batch.iter() {
            match value {
                Some(value) => data.put(&mut transaction, key, value).map_err(said)?,
                None => data.delete(&mut transaction, key).map(drop).map_err(said)?,
            }
        }
        transaction.commit().map_err(said)?;
        commits.fetch_add(1, Ordering::Release);
        self.batch.clear();
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let data = self.engine.data;
        let found = data.get(self.view()?, key).map_err(said)?;
        if let Some(found) = found {
            value(found);
        }
        Ok(found.is_some())
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let data = self.engine.data;
        let first = data.get_greater_than_or_equal_to(self.view()?, key).map_err(said)?;
        if let Some((key, _)) = first {
            found(key);
        }
        Ok(first.is_some())
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let data = self.engine.data;
        let bounds = (Bound::Included(key), Bound::Unbounded);
        let mut n = 0;
        for found in data.range(self.view()?, &bounds).map_err(said)? {
            let (key, value) = found.map_err(said)?;
            row(key, value);
            n += 1;
            if n == limit {
                break;
            }
        }
        Ok(n)
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let transaction = self.engine.env.read_txn().map_err(said)?;
        let mut n = 0;
        for found in self.engine.data.iter(&transaction).map_err(said)? {
            let (key, value) = found.map_err(said)?;
            row(key, value);
            n += 1;
        }
        Ok(n)
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }
}
