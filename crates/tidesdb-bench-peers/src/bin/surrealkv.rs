//! SurrealKV, on a runtime with two workers. It has Snappy but no LZ4. Each read uses a new transaction. A cursor is
//! kept for all seeks of a session until the session is refreshed.
//!
//! A commit is refused if another thread wrote one of its keys after its transaction started. The adapter then retries
//! the batch, as users of SurrealKV have to.
#![expect(clippy::mem_forget, reason = "the expansion of `self_cell!` forgets a guard on purpose")]

use std::process::ExitCode;
use std::time::Duration;

use self_cell::self_cell;
use surrealkv::{
    CompressionType, Durability as Kept, Error, LSMIterator, Mode, Options, Transaction, Tree, TreeBuilder,
};
use tidesdb_bench::engine::{Config, Engine, Result, Session, Stats};
use tidesdb_bench::spec::Durability;
use tidesdb_bench_peers::batch::Batch;
use tokio::runtime::{Builder, Runtime};

fn main() -> ExitCode {
    tidesdb_bench_peers::serve(open)
}

/// Values of at least this size are stored separately.
const BLOB: usize = 4096;

struct Surreal {
    runtime: Runtime,
    tree: Tree,
    kept: Kept,
    settings: String,
}

fn said(error: Error) -> String {
    error.to_string()
}

fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let spec = &config.spec;
    let runtime =
        Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|e| e.to_string())?;
    let apart = spec.value_bytes >= BLOB;
    let memtable = usize::try_from(spec.memtable).map_err(|e| e.to_string())?;
    let options = Options::new().with_compression_per_level(vec![CompressionType::SnappyCompression]);
    let tree = {
        let _inside = runtime.enter();
        TreeBuilder::with_options(options)
            .with_path(config.dir.clone())
            .with_block_size(4096)
            .with_block_cache_capacity(spec.cache)
            .with_max_memtable_size(memtable)
            .with_memtable_stall_threshold(4)
            .with_enable_vlog(apart)
            .with_vlog_value_threshold(BLOB)
            .build()
            .map_err(said)?
    };
    let kept = if spec.durability == Durability::Device { Kept::Immediate } else { Kept::Eventual };
    let settings = format!(
        "SurrealKV 1: durability {kept:?}, cache {} B, memtable {memtable} B (4 at most), 4 KiB blocks, Snappy, its own filter, \
         value separation {}, 2 workers",
        spec.cache,
        if apart { "from 4 KiB" } else { "never" },
    );
    Ok(Box::new(Surreal { runtime, tree, kept, settings }))
}

impl Engine for Surreal {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(SurrealSession { engine: self, batch: Batch::default(), cursor: None }))
    }

    fn sync(&self) -> Result<()> {
        self.tree.flush_wal(true).map_err(said)
    }

    fn settle(&self) -> Result<()> {
        self.sync()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let closed = self.runtime.block_on(self.tree.close()).map_err(said);
        let Self { runtime, tree, .. } = *self;
        drop(tree);
        runtime.shutdown_timeout(Duration::from_secs(10));
        closed
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

type Moving<'a> = Box<dyn LSMIterator + 'a>;

self_cell!(
    /// A cursor, and the transaction it reads in.
    struct Held {
        owner: Transaction,
        #[not_covariant]
        dependent: Moving,
    }
);

struct SurrealSession<'a> {
    engine: &'a Surreal,
    batch: Batch,
    cursor: Option<Held>,
}

impl SurrealSession<'_> {
    /// Commits the batch. Fails if another thread has committed one of its keys in the meantime.
    fn attempt(&self) -> std::result::Result<(), Error> {
        let Surreal { runtime, tree, kept, .. } = self.engine;
        let mut transaction = tree.begin_with_mode(Mode::WriteOnly)?.with_durability(*kept);
        for (key, value) in self.batch.iter() {
            match value {
                Some(value) => transaction.set(key, value)?,
                None => transaction.delete(key)?,
            }
        }
        runtime.block_on(transaction.commit())
    }

    fn fresh(&self) -> Result<Held> {
        let transaction = self.engine.tree.begin_with_mode(Mode::ReadOnly).map_err(said)?;
        Held::try_new(transaction, |t| t.iter().map(|iter| Box::new(iter) as Moving<'_>)).map_err(said)
    }

    fn cursor(&mut self) -> Result<&mut Held> {
        if self.cursor.is_none() {
            self.cursor = Some(self.fresh()?);
        }
        self.cursor.as_mut().ok_or_else(|| "no cursor".to_owned())
    }
}

fn rows(cursor: &mut Moving<'_>, limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
    let mut n = 0;
    while n < limit && cursor.valid() {
        row(cursor.key().user_key(), &cursor.value().map_err(said)?);
        n += 1;
        if n < limit {
            cursor.next().map_err(said)?;
        }
    }
    Ok(n)
}

impl Session for SurrealSession<'_> {
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
        loop {
            match self.attempt() {
                Ok(()) => break,
                Err(Error::TransactionWriteConflict | Error::TransactionRetry) => {}
                Err(error) => return Err(said(error)),
            }
        }
        self.batch.clear();
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.engine.tree.begin_with_mode(Mode::ReadOnly).map_err(said)?;
        let found = transaction.get(key).map_err(said)?;
        if let Some(found) = &found {
            value(found);
        }
        Ok(found.is_some())
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.cursor()?.with_dependent_mut(|_, cursor| {
            cursor.seek(key).map_err(said)?;
            if cursor.valid() {
                found(cursor.key().user_key());
            }
            Ok(cursor.valid())
        })
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.cursor()?.with_dependent_mut(|_, cursor| {
            cursor.seek(key).map_err(said)?;
            rows(cursor, limit, row)
        })
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.fresh()?.with_dependent_mut(|_, cursor| {
            cursor.seek_first().map_err(said)?;
            rows(cursor, u64::MAX, row)
        })
    }

    fn refresh(&mut self) -> Result<()> {
        self.cursor = None;
        Ok(())
    }
}
