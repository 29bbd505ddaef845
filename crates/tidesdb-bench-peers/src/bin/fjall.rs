//! Fjall. Its cursors cannot seek: every seek and range opens an iterator on the session's snapshot.

use std::ops::Bound;
use std::process::ExitCode;
use std::time::Duration;

use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use fjall::{
    CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, OwnedWriteBatch,
    PersistMode, Readable, Snapshot,
};
use tidesdb_bench::engine::{Config, Engine, Result, Session, Stats};
use tidesdb_bench::measure::now;
use tidesdb_bench::spec::Durability;

fn main() -> ExitCode {
    tidesdb_bench_peers::serve(open)
}

/// Values of at least this size are stored separately.
const BLOB: usize = 4096;
/// Background work that takes longer after the writes is a failure.
const SETTLE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(2);

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    settings: String,
    batch: u64,
    durability: Durability,
}

fn said(error: fjall::Error) -> String {
    error.to_string()
}

fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let spec = &config.spec;
    let apart = spec.value_bytes >= BLOB;
    let manual = spec.durability == Durability::None;
    let db = Database::builder(&config.dir)
        .cache_size(spec.cache)
        .worker_threads(2)
        .manual_journal_persist(manual)
        .open()
        .map_err(said)?;
    let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
    let options = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(spec.memtable)
            .manual_journal_persist(manual)
            .data_block_size_policy(BlockSizePolicy::all(4096))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            .filter_policy(FilterPolicy::all(filter))
            .with_kv_separation(
                apart.then(|| KvSeparationOptions::default().separation_threshold(BLOB as u32)),
            )
    };
    let keyspace = db.keyspace("default", options).map_err(said)?;
    let settings = format!(
        "fjall 3: durability {}, cache {} B, memtable {} B, 4 KiB blocks, LZ4 on all levels, filter 10 bits/key on \
         all levels, value separation {}, 2 workers, a new iterator for each seek",
        spec.durability.name(),
        spec.cache,
        spec.memtable,
        if apart { "from 4 KiB" } else { "never" },
    );
    let (batch, durability) = (spec.batch, spec.durability);
    Ok(Box::new(Fjall { db, keyspace, settings, batch, durability }))
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { engine: self, batch: None, snapshot: None }))
    }

    fn sync(&self) -> Result<()> {
        self.db.persist(PersistMode::SyncAll).map_err(said)
    }

    fn settle(&self) -> Result<()> {
        let start = now();
        self.keyspace.rotate_memtable_and_wait().map_err(said)?;
        let mut quiet = 0;
        while quiet < 5 {
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            if start.elapsed() > SETTLE {
                return Err(format!("background work did not finish within {SETTLE:?}"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let persisted = self.sync();
        drop(self);
        persisted
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

struct FjallSession<'a> {
    engine: &'a Fjall,
    batch: Option<OwnedWriteBatch>,
    snapshot: Option<Snapshot>,
}

impl FjallSession<'_> {
    fn batch(&mut self) -> &mut OwnedWriteBatch {
        let engine = self.engine;
        self.batch.get_or_insert_with(|| {
            // A batch without a mode is kept in process memory only.
            let mode = match engine.durability {
                Durability::None => None,
                Durability::Os => Some(PersistMode::Buffer),
                Durability::Device => Some(PersistMode::SyncData),
            };
            OwnedWriteBatch::with_capacity(engine.db.clone(), engine.batch as usize).durability(mode)
        })
    }

    /// Returns whether each put is its own commit.
    fn direct(&self) -> bool {
        self.engine.batch == 1 && self.engine.durability != Durability::Device
    }

    fn from(&mut self, key: &[u8]) -> Iter {
        let db = &self.engine.db;
        let snapshot = self.snapshot.get_or_insert_with(|| db.snapshot());
        snapshot.range::<&[u8], _>(&self.engine.keyspace, (Bound::Included(key), Bound::Unbounded))
    }
}

impl Session for FjallSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.direct() {
            return self.engine.keyspace.insert(key, value).map_err(said);
        }
        let engine = self.engine;
        self.batch().insert(&engine.keyspace, key, value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        if self.direct() {
            return self.engine.keyspace.remove(key).map_err(said);
        }
        let engine = self.engine;
        self.batch().remove(&engine.keyspace, key);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.batch.take().map_or(Ok(()), |batch| batch.commit().map_err(said))
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.engine.keyspace.get(key).map_err(said)?;
        if let Some(found) = &found {
            value(found);
        }
        Ok(found.is_some())
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(row) = self.from(key).next() else { return Ok(false) };
        found(&row.key().map_err(said)?);
        Ok(true)
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        rows(self.from(key), limit, row)
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        rows(self.engine.keyspace.iter(), u64::MAX, row)
    }

    fn refresh(&mut self) -> Result<()> {
        self.snapshot = None;
        Ok(())
    }
}

fn rows(iter: Iter, limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
    let mut n = 0;
    for guard in iter {
        let (key, value) = guard.into_inner().map_err(said)?;
        row(&key, &value);
        n += 1;
        if n == limit {
            break;
        }
    }
    Ok(n)
}
