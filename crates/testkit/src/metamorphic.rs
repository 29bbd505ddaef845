//! T15: one history of operations under several random configurations. Settings decide where rows are stored, when they move and how
//! they are found, but not what a read returns: every configuration must give the answers of the first one, which keeps most rows
//! in memory. Some configurations ask a reader beside the writer where the others ask the writer. In some, transactions also make writes
//! that they take back. Some write sorted rows to tables that a commit takes, where the others write a batch.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;
use tidesdb::{
    CommitHook, Comparator, Compression, Db, FamilyOptions, Ingest, Isolation, Iter, OpenOptions, Reader,
    Snapshot, SyncMode, TableBuilder, Transaction, WriteBatch,
};
use tidesdb_io::Env;
use tidesdb_io::sim;

use crate::home::in_memory;
use crate::model::listed;
use crate::rng::Rng;

/// Snapshots that are open at the same time, at most.
const SNAPSHOTS: usize = 4;
/// Keys that a load covers, at most.
const LOAD: u64 = 200;

/// One operation. Keys are numbers; values are made from a number.
#[derive(Clone, Copy, Debug)]
enum Op {
    Put(u64, u64),
    Delete(u64),
    SingleDelete(u64),
    DeleteRange(u64, u64),
    /// Puts and deletes neighbouring keys in one commit, some of them several times.
    Batch(u64, u64),
    /// Makes the same changes in a transaction, which reads and scans after each key.
    Transact(u64, u64),
    /// Writes sorted rows in one commit: see [`sorted`].
    Load(u64, u64, u64),
    /// Reads a key; the flag asks for the oldest snapshot.
    Get(u64, bool),
    /// Reads the rows of a range.
    Scan(Scan),
    Snapshot,
    Release,
    /// Reads the rows of a range from a new view of the reader or, without one, from a new snapshot; keeps it if the flag is set.
    Look(Scan, bool),
    /// Reads the rows of a range from the kept view or snapshot.
    LookBack(Scan),
    Flush,
    /// Starts a flush and commits a batch, so that the reader has both in its log at once.
    FlushBefore(u64, u64),
    Compact,
    CompactRange(u64, u64),
    Reopen,
}

#[derive(Clone, Copy, Debug)]
struct Scan {
    from: u64,
    to: u64,
    most: usize,
    back: bool,
    old: bool,
}

/// A history: the same for the same seed and length.
#[derive(Debug)]
pub struct History {
    ops: Vec<Op>,
    keys: u64,
}

impl History {
    /// Makes a history of `length` operations on `keys` keys.
    pub fn new(seed: u64, length: usize, keys: u64) -> Self {
        let keys = keys.max(100);
        let mut this = Self { ops: Vec::with_capacity(length), keys };
        let mut rng = Rng::new(seed);
        let mut puts = vec![0u32; keys as usize];
        let mut front = 0;
        while this.ops.len() < length {
            // Half of the keys are drawn from a window that moves on, so that tables of different ages need not overlap.
            front = (front + rng.below(3)) % keys;
            let key = if rng.one_in(2) { (front + rng.below(keys / 20)) % keys } else { rng.below(keys) };
            let op = this.choose(&mut rng, key, puts[key as usize] == 1);
            this.count_puts(op, &mut puts);
            this.ops.push(op);
        }
        this
    }

    /// A single delete is allowed if the key was put exactly once since its last delete.
    fn choose(&self, rng: &mut Rng, key: u64, once: bool) -> Op {
        let end = (key + 1 + rng.below(self.keys / 50)).min(self.keys);
        let (back, old) = (rng.one_in(2), rng.one_in(3));
        match rng.below(1000) {
            427..430 => Op::Load(key, (key + 1 + rng.below(LOAD)).min(self.keys), rng.next_u64()),
            430..440 => Op::FlushBefore(key.min(self.keys - 8), rng.next_u64()),
            440..448 => Op::Look(Scan { from: key, to: end, most: usize::MAX, back, old }, rng.one_in(4)),
            448..450 => Op::LookBack(Scan { from: 0, to: self.keys, most: usize::MAX, back, old }),
            450..530 => Op::Delete(key),
            530..570 if once => Op::SingleDelete(key),
            570..575 => Op::DeleteRange(key, end),
            575..610 => Op::Batch(key.min(self.keys - 8), rng.next_u64()),
            610..620 => Op::Transact(key.min(self.keys - 8), rng.next_u64()),
            620..900 => Op::Get(key, old),
            900..960 => Op::Scan(Scan { from: key, to: end, most: usize::MAX, back, old }),
            960..980 => Op::Scan(Scan { from: key, to: self.keys, most: 40, back, old }),
            980..984 => Op::Snapshot,
            984..988 => Op::Release,
            988..996 => Op::Flush,
            996 => Op::Compact,
            997..999 => Op::CompactRange(key, end),
            999 => Op::Reopen,
            _ => Op::Put(key, rng.next_u64()),
        }
    }

    /// Counts the puts of each key since its last delete.
    fn count_puts(&self, op: Op, puts: &mut [u32]) {
        match op {
            Op::Put(key, _) => puts[key as usize] += 1,
            Op::Delete(key) | Op::SingleDelete(key) => puts[key as usize] = 0,
            Op::DeleteRange(from, to) => puts[from as usize..to as usize].fill(0),
            Op::Batch(key, seed) | Op::FlushBefore(key, seed) | Op::Transact(key, seed) => {
                // A commit that deletes a key and puts it is treated as the put alone.
                for (key, changes) in batch(key, seed) {
                    let deletes = !matches!(changes.last(), Some(Change::Put(_)));
                    let more = changes.iter().filter(|change| matches!(change, Change::Put(_))).count();
                    puts[key as usize] = if deletes { 0 } else { puts[key as usize] + more as u32 };
                }
            }
            Op::Load(from, to, seed) => {
                let (deletes, rows) = sorted(from, to, seed);
                if deletes {
                    puts[from as usize..to as usize].fill(0);
                }
                for (key, value) in rows {
                    puts[key as usize] = if value.is_some() { puts[key as usize] + 1 } else { 0 };
                }
            }
            _ => {}
        }
    }
}

/// Whether a load from one key to another one deletes this range first, and its rows: most keys in order, with the numbers of their values;
/// `None` is a delete.
fn sorted(from: u64, to: u64, seed: u64) -> (bool, Vec<(u64, Option<u64>)>) {
    let mut rng = Rng::new(seed);
    let deletes = rng.one_in(3);
    let mut rows: Vec<_> = (from..to).filter(|_| !rng.one_in(4)).map(|key| (key, Some(key ^ seed))).collect();
    rows.iter_mut().filter(|_| rng.one_in(8)).for_each(|(_, value)| *value = None);
    if rows.is_empty() {
        rows.push((from, Some(seed)));
    }
    (deletes, rows)
}

/// A change of a key in a batch.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Puts the value of this number.
    Put(u64),
    Delete,
    /// Deletes the key by a range of its own.
    DeleteRange,
}

/// Changes of a batch, by key: one of each, two or three of a fourth of the keys.
fn batch(key: u64, seed: u64) -> Vec<(u64, Vec<Change>)> {
    let mut rng = Rng::new(seed);
    let mut changes = || -> Vec<Change> {
        let count = if rng.one_in(4) { 2 + rng.below(2) } else { 1 };
        let change = |rng: &mut Rng| match rng.below(16) {
            0..3 => Change::Delete,
            3 => Change::DeleteRange,
            _ => Change::Put(rng.next_u64()),
        };
        (0..count).map(|_| change(&mut rng)).collect()
    };
    (key..key + 8).map(|key| (key, changes())).collect()
}

fn key_of(n: u64) -> Vec<u8> {
    format!("{:03}/key{n:07}", n / 100).into_bytes()
}

/// A short value, or one time in 30 a long one.
fn value_of(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let most = if rng.one_in(30) { 6000 } else { 200 };
    let len = rng.below(most) as usize;
    rng.bytes(len)
}

/// Settings of one run.
#[derive(Debug)]
pub struct Config {
    family: FamilyOptions,
    /// With threads the run uses real files, otherwise a simulated disk.
    threads: usize,
    cache_bytes: u64,
    segment_bytes: u64,
    /// Maximum number of parts of a merge.
    merge_parts: usize,
    /// False: flushes and merges of the history are left out.
    maintains: bool,
    /// A reader beside the writer answers some of the reads. It is refreshed during commits too.
    reads_beside: bool,
    /// Transactions make more writes and take them back, before each read.
    takes_back: bool,
    /// How loads write their rows.
    loads: Loads,
}

/// How a load writes its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loads {
    /// As a batch.
    Batch,
    /// To tables in the folder of the database.
    Sorted,
    /// To tables beside the database, which are taken by copy, link or move in turn.
    Tables,
}

impl Config {
    /// The configuration that gives the answers: defaults, so that a small history stays in memory.
    pub fn reference() -> Self {
        Self {
            family: FamilyOptions::default(),
            threads: 0,
            cache_bytes: 64 << 20,
            segment_bytes: 64 << 20,
            merge_parts: 1,
            maintains: false,
            reads_beside: false,
            takes_back: false,
            loads: Loads::Batch,
        }
    }

    /// A random configuration.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut one_of = |choices: &[u64]| *rng.pick(choices);
        let order = if one_of(&[0, 1]) == 0 { Comparator::bytewise() } else { listed() };
        let codecs = [Compression::None, Compression::Lz4, Compression::Lz4Fast, Compression::Zstd];
        let family = FamilyOptions::default()
            .comparator(order)
            .write_buffer_bytes(one_of(&[4 << 10, 16 << 10, 64 << 10, 256 << 10]) as usize)
            .value_threshold(one_of(&[64, 512, 4000, 1 << 30]) as usize)
            .compression(codecs[one_of(&[0, 1, 2, 3]) as usize])
            .filter_bits_per_key(one_of(&[0, 4, 10]) as u32)
            .table_bytes(one_of(&[2 << 10, 8 << 10, 32 << 10, 1 << 20]))
            .l1_tables_trigger(one_of(&[1, 2, 4, 8]) as usize)
            .vlog_file_bytes(one_of(&[4 << 10, 64 << 10, 1 << 20]))
            .level_size_ratio(one_of(&[2, 3, 4, 10]))
            .min_levels(one_of(&[1, 2, 4, 6]) as u32)
            .dividing_level_offset(one_of(&[0, 1, 2, 3]) as u32)
            .tiered_runs_max(one_of(&[1, 2, FamilyOptions::default().tiered_runs_max, 64]))
            .tombstone_density_permille(one_of(&[0, 200, 500, 1000]) as u32)
            .tombstone_density_min_entries(one_of(&[1, 50, 1024]));
        Self {
            family,
            threads: one_of(&[0, 0, 2, 4]) as usize,
            cache_bytes: one_of(&[0, 64 << 10, 8 << 20]),
            segment_bytes: one_of(&[64 << 10, 1 << 20]),
            maintains: one_of(&[0, 1, 1]) == 1,
            merge_parts: one_of(&[1, 2, 3, 8]) as usize,
            reads_beside: one_of(&[0, 1]) == 1,
            takes_back: one_of(&[0, 1, 1]) == 1,
            loads: [Loads::Batch, Loads::Sorted, Loads::Tables][one_of(&[0, 1, 2]) as usize],
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What a run returned, and what it went through.
#[derive(Debug, Default)]
pub struct Answers {
    /// A hash of each answer.
    pub reads: Vec<u64>,
    /// The most levels that the tree had.
    pub levels: u64,
    /// Merges.
    pub merges: u64,
    /// Parts of merges that were divided.
    pub parts: u64,
    /// Opens after the first one.
    pub reopens: u64,
    /// Views of readers beside the writer that were read.
    pub views: u64,
    /// Tables that commits took.
    pub taken: u64,
}

/// The view or snapshot that answers a read again later.
enum Kept {
    Snapshot(Snapshot),
    View(Db),
}

struct Run<'h> {
    history: &'h History,
    config: &'h Config,
    env: Option<Env>,
    path: PathBuf,
    _home: Option<TempDir>,
    db: Option<Db>,
    snapshots: Vec<Snapshot>,
    reader: Option<Arc<Reader>>,
    /// The first refresh that failed during a commit.
    failed: Arc<Mutex<Option<tidesdb::Error>>>,
    /// The next commit refreshes the reader.
    refreshes: Arc<AtomicBool>,
    kept: Option<Kept>,
    answers: Answers,
}

/// Runs `history` under `config`.
///
/// # Errors
/// The first error of the database, or a failed verification, with the number of the operation.
pub fn run(history: &History, config: &Config) -> Result<Answers, String> {
    let home = if config.threads > 0 { Some(in_memory()?) } else { None };
    let simulated = || {
        let (env, disk, _) = sim::env(1);
        disk.log_ops(false);
        env
    };
    let path = home.as_ref().map_or_else(|| PathBuf::from("/db"), |home| home.path().join("db"));
    let env = home.is_none().then(simulated);
    let mut run = Run {
        history,
        config,
        env,
        path,
        _home: home,
        db: None,
        snapshots: Vec::new(),
        reader: None,
        failed: Arc::default(),
        refreshes: Arc::default(),
        kept: None,
        answers: Answers::default(),
    };
    for (at, op) in history.ops.iter().enumerate() {
        run.step(*op).map_err(|e| format!("operation {at}, {op:?}: {e}"))?;
    }
    run.finish().map_err(|e| format!("at the end: {e}"))?;
    Ok(run.answers)
}

impl Run<'_> {
    fn open(&self) -> tidesdb::Result<Db> {
        let config = self.config;
        let options: OpenOptions = Db::options(&self.path)
            .sync(SyncMode::None)
            .background_threads(config.threads)
            .cache_bytes(config.cache_bytes)
            .comparator(listed())
            .default_family(config.family.clone())
            .with(|o| {
                o.wal_segment_bytes = config.segment_bytes;
                o.disk_free_min = 0;
                o.forced.merge_parts = Some(config.merge_parts);
            });
        self.here(options).open()
    }

    /// Sets the disk of the run.
    fn here(&self, options: OpenOptions) -> OpenOptions {
        match &self.env {
            Some(env) => options.env(env.clone()),
            None => options,
        }
    }

    /// Opens the reader, unless it is open, and has it refreshed after some commits: before the flushes that a commit runs.
    fn follow(&mut self, db: &Db) -> tidesdb::Result<()> {
        let reader = match &self.reader {
            Some(reader) => Arc::clone(reader),
            None => {
                let options =
                    Db::options(&self.path).comparator(listed()).cache_bytes(self.config.cache_bytes);
                Arc::new(self.here(options).open_reader()?)
            }
        };
        self.reader = Some(Arc::clone(&reader));
        let (failed, refreshes) = (Arc::clone(&self.failed), Arc::clone(&self.refreshes));
        let hook: Arc<CommitHook> = Arc::new(move |commit| {
            if (refreshes.swap(false, Relaxed) || commit.seq.is_multiple_of(8))
                && let Err(e) = reader.refresh()
            {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            }
        });
        db.default_family().set_commit_hook(Some(hook));
        Ok(())
    }

    fn step(&mut self, op: Op) -> tidesdb::Result<()> {
        if self.db.is_none() {
            let db = self.open()?;
            if self.config.reads_beside {
                self.follow(&db)?;
            }
            self.db = Some(db);
        }
        let Some(db) = &self.db else { return Ok(()) };
        match op {
            Op::Put(key, seed) => db.put(&key_of(key), &value_of(seed)).map(drop),
            Op::Delete(key) => db.delete(&key_of(key)).map(drop),
            Op::SingleDelete(key) => db.default_family().single_delete(&key_of(key)).map(drop),
            Op::DeleteRange(from, to) => db.delete_range(key_of(from)..key_of(to)).map(drop),
            Op::Batch(key, seed) => write_batch(db, key, seed),
            Op::Transact(key, seed) => self.transact(key, seed),
            Op::Load(from, to, seed) => self.load(from, to, seed),
            Op::Get(key, old) => self.get(key, old),
            Op::Scan(scan) => self.scan(scan),
            Op::Snapshot if self.snapshots.len() < SNAPSHOTS => {
                self.snapshots.push(db.snapshot());
                Ok(())
            }
            Op::Release if !self.snapshots.is_empty() => {
                drop(self.snapshots.remove(0));
                Ok(())
            }
            Op::Look(scan, keep) => self.look(scan, keep),
            Op::LookBack(scan) => self.kept.take().map_or(Ok(()), |kept| {
                self.answer_from(&kept, scan)?;
                self.kept = Some(kept);
                Ok(())
            }),
            Op::Reopen => self.reopen(),
            Op::FlushBefore(key, seed) => {
                if self.config.maintains {
                    db.default_family().start_flush()?;
                }
                self.refreshes.store(true, Relaxed);
                write_batch(db, key, seed)
            }
            Op::Flush if self.config.maintains => db.flush(),
            Op::Compact if self.config.maintains => db.compact(),
            Op::CompactRange(from, to) if self.config.maintains => {
                db.default_family().compact_range(key_of(from)..key_of(to))
            }
            _ => Ok(()),
        }
    }

    fn load(&mut self, from: u64, to: u64, seed: u64) -> tidesdb::Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        let (family, (deletes, rows)) = (db.default_family(), sorted(from, to, seed));
        let add = |to_table: &mut TableBuilder| {
            if deletes {
                to_table.delete_range(key_of(from)..key_of(to))?;
            }
            rows.iter().try_for_each(|(key, value)| match value {
                Some(seed) => to_table.put(key_of(*key), value_of(*seed)),
                None => to_table.delete(key_of(*key)),
            })
        };
        self.answers.taken += match self.config.loads {
            Loads::Batch => {
                let mut batch = WriteBatch::new();
                if deletes {
                    batch.delete_range(family, key_of(from)..key_of(to))?;
                }
                for (key, value) in &rows {
                    match value {
                        Some(seed) => batch.put(family, key_of(*key), value_of(*seed))?,
                        None => batch.delete(family, key_of(*key))?,
                    }
                }
                return db.write(&mut batch).map(drop);
            }
            Loads::Sorted => {
                let mut writer = family.sorted_writer()?;
                add(writer.rows())?;
                writer.commit()?.tables
            }
            Loads::Tables => {
                let stem = self.path.with_file_name(format!("load-{}", self.answers.taken));
                let mut builder = family.table_builder(stem)?.memory_limit(1 + seed % 4096);
                add(&mut builder)?;
                let ingest = Ingest::new().tables(family, builder.finish()?);
                let ingest = match seed % 3 {
                    0 => ingest,
                    1 => ingest.linking(),
                    _ => ingest.moving(),
                };
                db.ingest(&ingest)?.tables
            }
        };
        Ok(())
    }

    fn get(&mut self, key: u64, old: bool) -> tidesdb::Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        let got = match self.snapshots.first().filter(|_| old) {
            Some(snapshot) => snapshot.get(db.default_family(), &key_of(key))?,
            None => db.get(&key_of(key))?,
        };
        self.answers.reads.push(got.map_or(0, |value| hash(1, &value)));
        Ok(())
    }

    fn transact(&mut self, from: u64, seed: u64) -> tidesdb::Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        let (family, mut rng) = (db.default_family(), Rng::new(seed));
        let mut tx = db.begin(Isolation::Snapshot);
        for (key, changes) in batch(from, seed) {
            for change in changes {
                match change {
                    Change::Put(seed) => tx.put(family, key_of(key), value_of(seed))?,
                    Change::Delete => tx.delete(family, key_of(key))?,
                    Change::DeleteRange => tx.delete_range(family, key_of(key)..key_of(key + 1))?,
                }
            }
            if self.config.takes_back {
                take_back(db, &mut tx, from, &mut rng)?;
            }
            let rows = tx.range(family, key_of(from.saturating_sub(3))..key_of(from + 11))?;
            let scanned = if key % 2 == 0 { hash_rows(rows, 20) } else { hash_rows(rows.rev(), 20) };
            let got = tx.get(family, key_of(key))?;
            self.answers.reads.extend([scanned?, got.map_or(0, |value| hash(1, &value))]);
        }
        tx.commit().map(drop)
    }

    fn scan(&mut self, scan: Scan) -> tidesdb::Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        let range = key_of(scan.from)..key_of(scan.to);
        let rows: Iter = match self.snapshots.first().filter(|_| scan.old) {
            Some(snapshot) => snapshot.range(db.default_family(), range)?,
            None => db.range(range)?,
        };
        let answer = if scan.back { hash_rows(rows.rev(), scan.most) } else { hash_rows(rows, scan.most) };
        self.answers.reads.push(answer?);
        Ok(())
    }

    /// Reads from a view of everything that was committed.
    fn look(&mut self, scan: Scan, keep: bool) -> tidesdb::Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        if let Some(e) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(e);
        }
        let view = match &self.reader {
            Some(reader) => Kept::View(reader.refresh()?),
            None => Kept::Snapshot(db.snapshot()),
        };
        self.answers.views += u64::from(self.reader.is_some());
        self.answer_from(&view, scan)?;
        if keep {
            self.kept = Some(view);
        }
        Ok(())
    }

    fn answer_from(&mut self, view: &Kept, scan: Scan) -> tidesdb::Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        let range = key_of(scan.from)..key_of(scan.to);
        let rows = match view {
            Kept::Snapshot(snapshot) => snapshot.range(db.default_family(), range)?,
            Kept::View(view) => view.range(range)?,
        };
        let answer = if scan.back { hash_rows(rows.rev(), scan.most) } else { hash_rows(rows, scan.most) };
        self.answers.reads.push(answer?);
        Ok(())
    }

    /// Notes what the tree looks like, then closes the database or lets it go as if the process had been killed.
    fn reopen(&mut self) -> tidesdb::Result<()> {
        self.snapshots.clear();
        self.kept = None;
        let Some(db) = self.db.take() else { return Ok(()) };
        let stats = db.default_family().stats();
        self.answers.levels = self.answers.levels.max(stats.level_tables.len() as u64);
        self.answers.merges += stats.compactions;
        self.answers.parts += stats.merge_parts.saturating_sub(stats.compactions - stats.moves);
        self.answers.reopens += 1;
        if self.answers.reopens.is_multiple_of(3) {
            db.abandon();
            return Ok(());
        }
        db.close()
    }

    /// Reads all rows both ways before and after a last merge and a last open, and verifies all files.
    fn finish(&mut self) -> tidesdb::Result<()> {
        for last in [Op::Flush, Op::Compact, Op::Reopen, Op::Flush] {
            self.step(last)?;
            for back in [false, true] {
                self.scan(Scan { from: 0, to: self.history.keys, most: usize::MAX, back, old: false })?;
            }
        }
        let report = self.db.as_ref().map(Db::verify).transpose()?;
        match report.filter(|report| !report.is_ok()) {
            Some(report) => Err(tidesdb::Error::InvalidArgument { what: report.to_string().into() }),
            None => self.reopen(),
        }
    }
}

/// Makes writes around `from` in `tx` and takes them back, some of them twice.
fn take_back(db: &Db, tx: &mut Transaction, from: u64, rng: &mut Rng) -> tidesdb::Result<()> {
    let (family, outer) = (db.default_family(), tx.savepoint());
    for _ in 0..1 + rng.below(3) {
        let inner = tx.savepoint();
        for _ in 0..1 + rng.below(4) {
            let (key, to) = (from.saturating_sub(3) + rng.below(14), rng.below(14));
            match rng.below(5) {
                0 => tx.delete(family, key_of(key))?,
                1 => tx.delete_range(family, key_of(key)..key_of(key + 1 + to))?,
                _ => tx.put(family, key_of(key), "taken back")?,
            }
            if rng.one_in(2) {
                tx.contains(family, key_of(key))?;
            }
        }
        if rng.one_in(2) {
            tx.rollback_to(inner)?;
        }
    }
    tx.rollback_to(outer)?;
    tx.release(outer)
}

fn write_batch(db: &Db, key: u64, seed: u64) -> tidesdb::Result<()> {
    let (mut all, family) = (WriteBatch::new(), db.default_family());
    for (key, changes) in batch(key, seed) {
        for change in changes {
            match change {
                Change::Put(seed) => all.put(family, key_of(key), value_of(seed))?,
                Change::Delete => all.delete(family, key_of(key))?,
                Change::DeleteRange => all.delete_range(family, key_of(key)..key_of(key + 1))?,
            }
        }
    }
    db.write(&mut all).map(drop)
}

fn hash_rows(
    rows: impl Iterator<Item = tidesdb::Result<(tidesdb::Slice, tidesdb::Slice)>>,
    most: usize,
) -> tidesdb::Result<u64> {
    rows.take(most).try_fold(2, |hashed, row| row.map(|(key, value)| hash(hash(hashed, &key), &value)))
}

/// FNV-1a, continued from `hashed`, with the length.
fn hash(hashed: u64, bytes: &[u8]) -> u64 {
    let start = (hashed ^ bytes.len() as u64).wrapping_mul(0x0100_0000_01b3) ^ 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
