//! redb. It allows one writer at a time: batches are buffered in the session and applied while the write lock is held.
//! It supports the durability classes `none` and `device`, with nothing in between.
//!
//! A reader keeps its view until something is committed, because opening a view costs more than a read.

use std::ops::Bound;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{
    Database, Durability as Kept, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition, TableError,
};
use tidesdb_bench::engine::{Config, Engine, Result, Session, Stats};
use tidesdb_bench::spec::Durability;
use tidesdb_bench_peers::batch::Batch;

fn main() -> ExitCode {
    tidesdb_bench_peers::serve(open)
}

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");

struct Redb {
    db: Database,
    kept: Kept,
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
    let file: PathBuf = config.dir.join("data.redb");
    let cache = usize::try_from(spec.cache).map_err(said)?;
    let db = Database::builder().set_cache_size(cache).create(file).map_err(said)?;
    let kept = if spec.durability == Durability::Device { Kept::Immediate } else { Kept::None };
    let settings = format!(
        "redb 4: durability {kept:?}, cache {cache} B, no compression, no filter, no memtable, readers keep their view until \
         the next commit, a new iterator for each seek",
    );
    let engine = Redb { db, kept, settings, commits: AtomicU64::new(0) };
    engine.sync()?;
    Ok(Box::new(engine))
}

impl Redb {
    fn write(&self, kept: Kept, batch: &Batch) -> Result<()> {
        let mut transaction = self.db.begin_write().map_err(said)?;
        transaction.set_durability(kept).map_err(said)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(said)?;
            for (key, value) in batch.iter() {
                match value {
                    Some(value) => table.insert(key, value).map_err(said)?,
                    None => table.remove(key).map_err(said)?,
                };
            }
        }
        transaction.commit().map_err(said)?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn table(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>> {
        let transaction = self.db.begin_read().map_err(said)?;
        transaction.open_table(TABLE).map_err(|e: TableError| said(e))
    }
}

impl Engine for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { engine: self, batch: Batch::default(), view: None }))
    }

    fn sync(&self) -> Result<()> {
        self.write(Kept::Immediate, &Batch::default())
    }

    fn settle(&self) -> Result<()> {
        self.sync()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let synced = self.sync();
        drop(self);
        synced
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;

struct RedbSession<'a> {
    engine: &'a Redb,
    batch: Batch,
    /// A view, and the number of commits before it was opened.
    view: Option<(u64, Table)>,
}

impl RedbSession<'_> {
    /// Returns a view that contains all commits.
    fn view(&mut self) -> Result<&Table> {
        let commits = self.engine.commits.load(Ordering::Acquire);
        if self.view.as_ref().is_none_or(|(at, _)| *at != commits) {
            self.view = None;
            self.view = Some((commits, self.engine.table()?));
        }
        self.view.as_ref().map(|(_, table)| table).ok_or_else(|| "no view".to_owned())
    }
}

impl Session for RedbSession<'_> {
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
        // An open view would prevent pages from being reused.
        self.view = None;
        self.engine.write(self.engine.kept, &self.batch)?;
        self.batch.clear();
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.view()?.get(key).map_err(said)?;
        if let Some(found) = &found {
            value(found.value());
        }
        Ok(found.is_some())
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut all = self.view()?.range::<&[u8]>((Bound::Included(key), Bound::Unbounded)).map_err(said)?;
        let Some(row) = all.next() else { return Ok(false) };
        found(row.map_err(said)?.0.value());
        Ok(true)
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let all = self.view()?.range::<&[u8]>((Bound::Included(key), Bound::Unbounded)).map_err(said)?;
        let mut n = 0;
        for found in all {
            let (key, value) = found.map_err(said)?;
            row(key.value(), value.value());
            n += 1;
            if n == limit {
                break;
            }
        }
        Ok(n)
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut n = 0;
        for found in self.engine.table()?.iter().map_err(said)? {
            let (key, value) = found.map_err(said)?;
            row(key.value(), value.value());
            n += 1;
        }
        Ok(n)
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }
}
