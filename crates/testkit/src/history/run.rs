//! Runs a history: changes and maintenance of the database. Reads are in `reads`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidesdb::{
    Compression, Cursor, Db, Error, Family, FamilyOptions, MergeOperator, Snapshot, SyncMode, WriteBatch,
    WriteOptions,
};
use tidesdb_io::sim;
use tidesdb_io::{Env, ManualClock};

use super::Coverage;
use super::ops::{Change, Op, What, key, value};
use super::store::{FamilyNo, ReadTimestamp, Rows, SEPARATOR, Store, Write, same_rows};
use crate::model::{listed, moment, wall_millis};
use crate::rng::Rng;

/// Environment of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The simulated disk, with a manual clock and without threads.
    Sim,
    /// A temporary directory, with this number of background threads.
    Real(usize),
}

/// An existing family.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) no: FamilyNo,
    pub(super) name: String,
    pub(super) handle: Family,
}

/// A snapshot, its read timestamp, and the families that existed then.
pub(super) struct Pinned {
    pub(super) snapshot: Snapshot,
    pub(super) at: ReadTimestamp,
    pub(super) families: Vec<Live>,
}

/// A kept cursor, the rows it iterates over, and its position.
pub(super) struct KeptCursor {
    pub(super) cursor: Cursor,
    pub(super) rows: Rows,
    pub(super) position: Option<usize>,
    pub(super) family: FamilyNo,
    pub(super) at: ReadTimestamp,
    /// What it may show of a row whose expiry has passed since: nothing, or only the operands after the expired value. It judges expiry as of
    /// its creation or of one of its moves to newer tables.
    pub(super) later: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

pub(super) struct Runner<'c> {
    place: Place,
    env: Env,
    clock: Option<Arc<ManualClock>>,
    path: PathBuf,
    options: Options,
    pub(super) db: Option<Db>,
    pub(super) store: Store,
    pub(super) families: Vec<Live>,
    pub(super) snapshots: Vec<Pinned>,
    pub(super) cursors: Vec<KeptCursor>,
    families_made: FamilyNo,
    checkpoints: usize,
    coverage: &'c mut Coverage,
}

/// Settings, drawn from the seed.
#[derive(Clone, Copy, Debug)]
struct Options {
    sync: SyncMode,
    write_buffer: usize,
    compression: Compression,
    /// Whether the families have an order of their own, kept in a skip list.
    listed: bool,
    value_threshold: usize,
    filter_bits: u32,
    cache: u64,
    trigger: usize,
    tiered_runs_max: u64,
    vlog_file: u64,
    mapped: bool,
    /// Whether the families have a merge operator.
    merges: bool,
}

impl Options {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0971_0125);
        let mut of = |n: u64| rng.below(n) as usize;
        Self {
            sync: [SyncMode::None, SyncMode::Interval(Duration::from_millis(5)), SyncMode::Full][of(3)],
            write_buffer: [4 << 10, 16 << 10, 64 << 10][of(3)],
            compression: [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Snappy][of(4)],
            listed: of(2) == 1,
            value_threshold: [32, 512, 1 << 20][of(3)],
            filter_bits: [0, 10][of(2)],
            cache: [0, 16 << 10, 8 << 20][of(3)],
            trigger: [1, 2, 4][of(3)],
            vlog_file: [8 << 10, 256 << 20][of(2)],
            mapped: of(2) == 0,
            merges: of(2) == 0,
            tiered_runs_max: [1, 2, FamilyOptions::default().tiered_runs_max, 64][of(4)],
        }
    }

    fn family(&self) -> FamilyOptions {
        let mut options = FamilyOptions::default()
            .write_buffer_bytes(self.write_buffer)
            .compression(self.compression)
            .value_threshold(self.value_threshold)
            .filter_bits_per_key(self.filter_bits);
        if self.listed {
            options = options.comparator(listed());
        }
        options.l1_tables_trigger = self.trigger;
        options.tiered_runs_max = self.tiered_runs_max;
        options.vlog_file_bytes = self.vlog_file;
        options.table_bytes = 16 << 10;
        options.merge_operator = self.merges.then(|| MergeOperator::append(SEPARATOR));
        options
    }
}

/// Runs `ops` and compares every answer with the model.
pub(super) fn run(seed: u64, ops: &[Op], place: Place, coverage: &mut Coverage) -> Result<(), String> {
    let temp = tempfile::tempdir().map_err(|e| e.to_string())?;
    let (env, clock, path) = match place {
        Place::Sim => {
            let (env, disk, clock) = sim::env(seed);
            disk.log_ops(false);
            (env, Some(clock), PathBuf::from("/db"))
        }
        Place::Real(_) => (Env::real(), None, temp.path().join("db")),
    };
    let mut runner = Runner {
        place,
        env,
        clock,
        path,
        options: Options::draw(seed),
        db: None,
        store: Store::default(),
        families: Vec::new(),
        snapshots: Vec::new(),
        cursors: Vec::new(),
        families_made: 1,
        checkpoints: 0,
        coverage,
    };
    runner.store.create(0);
    runner.open()?;
    for (i, op) in ops.iter().enumerate() {
        runner.step(op).map_err(|e| format!("operation {i} {op:?}: {e}"))?;
    }
    runner.compare_all()?;
    runner.snapshots.clear();
    runner.cursors.clear();
    runner.families.clear();
    runner.db.take().map_or(Ok(()), Db::close).map_err(|e| format!("last close: {e}"))
}

impl Runner<'_> {
    pub(super) fn count(&mut self, op: &'static str, outcome: &'static str) {
        *self.coverage.entry((op, outcome)).or_default() += 1;
    }

    pub(super) fn wall(&self) -> u64 {
        wall_millis(&*self.env.clock)
    }

    pub(super) fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }

    fn options(&self, path: &Path) -> tidesdb::OpenOptions {
        let o = self.options;
        let threads = match self.place {
            Place::Sim => 0,
            Place::Real(n) => n,
        };
        Db::options(path)
            .env(self.env.clone())
            .sync(o.sync)
            .cache_bytes(o.cache)
            .background_threads(threads)
            .comparator(listed())
            .default_family(o.family())
            .with(move |db| {
                db.wal_segment_bytes = 32 << 10;
                db.wal_bytes_max = 128 << 10;
                db.disk_free_min = 0;
                db.mmap_wal = o.mapped;
            })
    }

    /// Opens the database and checks that its families are those of the model.
    fn open(&mut self) -> Result<(), String> {
        let db = self.options(&self.path).open().map_err(|e| format!("open: {e}"))?;
        let known = std::mem::take(&mut self.families);
        let mut names: Vec<String> = known.iter().map(|f| f.name.clone()).collect();
        names.sort_unstable();
        if names.is_empty() {
            let handle = db.default_family().clone();
            self.families.push(Live { no: 0, name: tidesdb::DEFAULT_FAMILY.into(), handle });
        } else if names != db.families() {
            return Err(format!("families {:?}, expected {names:?}", db.families()));
        }
        for family in known {
            let handle = db.family(&family.name).map_err(|e| format!("family {:?}: {e}", family.name))?;
            self.families.push(Live { handle, ..family });
        }
        self.db = Some(db);
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::One(change) => self.one(change),
            Op::Batch(changes, durable) => self.batch(changes, *durable),
            Op::Snapshot => self.take_snapshot(),
            Op::DropSnapshot(n) => self.drop_snapshot(*n),
            Op::Create(name) => self.create(*name),
            Op::Drop(n) => self.drop_family(*n),
            Op::Rename(n, name) => self.rename(*n, *name),
            Op::Clone(n, name) => self.clone_family(*n, *name),
            Op::Flush(which) => self.flush(*which),
            Op::Compact(which) => self.compact(*which),
            Op::Sync => {
                self.count("sync", "ok");
                self.db().sync().map(drop).map_err(|e| e.to_string())
            }
            Op::Reopen(closed) => self.reopen(*closed),
            Op::Checkpoint => self.checkpoint(),
            Op::Verify => self.verify(),
            Op::Advance(secs) => {
                if let Some(clock) = &self.clock {
                    clock.advance(Duration::from_secs(*secs));
                    self.count("clock", "advanced");
                }
                Ok(())
            }
            read => self.read(read),
        }
    }

    pub(super) fn live(&self, n: u64) -> &Live {
        &self.families[n as usize % self.families.len()]
    }

    /// Returns the oldest read timestamp that is still in use.
    fn oldest(&self) -> ReadTimestamp {
        self.snapshots.iter().map(|s| s.at).min().unwrap_or(u64::MAX).min(self.store.moment())
    }

    /// Returns the expiry of a value put now for `secs` seconds. With a real clock, values either expire at once or
    /// live for long.
    fn expiry(&self, secs: u64, seed: u64) -> u64 {
        match self.clock {
            // Any millisecond of the last of these seconds.
            Some(_) => self.wall() + secs * 1000 - seed % 1000,
            None if secs < 10 => 1,
            None => self.wall() + 100_000_000,
        }
    }

    fn write_of(&self, change: &Change) -> (Write, &'static str) {
        let family = self.live(change.family).no;
        let key = key(change.key);
        let (value, expiry, verb) = match change.what {
            What::Put(len, seed) => (Some(value(len, seed)), 0, "put"),
            What::PutTtl(len, seed, secs) => (Some(value(len, seed)), self.expiry(secs, seed), "put_ttl"),
            What::Merge(len, seed) if self.options.merges => {
                let value = Some(value(len, seed));
                return (Write { family, key, value, expiry: 0, until: None, merge: true }, "merge");
            }
            What::Merge(len, seed) => (Some(value(len, seed)), 0, "put"),
            What::Delete => (None, 0, "delete"),
            What::SingleDelete if self.options.merges => (None, 0, "single_delete"), // a full delete
            What::SingleDelete if self.store.may_single_delete(family, &key) => (None, 0, "single_delete"),
            What::SingleDelete => (None, 0, "delete"),
            What::DeleteRange(other) => {
                let other = super::ops::key(other);
                let (key, until) = if key < other { (key, other) } else { (other, key) };
                let until = Some(until);
                let write = Write { family, key, value: None, expiry: 0, until, merge: false };
                return (write, "delete_range");
            }
        };
        (Write { family, key, value, expiry, until: None, merge: false }, verb)
    }

    fn one(&mut self, change: &Change) -> Result<(), String> {
        let (write, verb) = self.write_of(change);
        let family = self.live(change.family).handle.clone();
        let result = match (&write.value, verb) {
            (Some(value), "put") => family.put(&write.key, value),
            (Some(value), "merge") => family.merge(&write.key, value),
            (Some(value), _) => {
                let mut batch = WriteBatch::new();
                let filled = batch.put_expiring(&family, &write.key, value, moment(write.expiry));
                filled.and_then(|()| self.db().write(&mut batch))
            }
            (None, "single_delete") => family.single_delete(&write.key),
            (None, "delete_range") => {
                family.delete_range(&*write.key..write.until.as_deref().unwrap_or_default())
            }
            (None, _) => family.delete(&write.key),
        };
        result.map_err(|e| e.to_string())?;
        let oldest = self.oldest();
        self.store.commit(vec![write], oldest);
        self.count(verb, "ok");
        Ok(())
    }

    fn batch(&mut self, changes: &[Change], durable: bool) -> Result<(), String> {
        let mut batch = WriteBatch::new();
        let mut writes: Vec<Write> = Vec::new();
        for change in changes {
            let (write, verb) = self.write_of(change);
            let family = &self.live(change.family).handle;
            // A commit that changes a key twice is treated as a put, so it must not use a single delete of that key.
            let again = writes.iter().any(|w| w.family == write.family && w.key == write.key);
            let filled = match (&write.value, verb) {
                (Some(value), "merge") => batch.merge(family, &write.key, value),
                (Some(value), _) => batch.put_expiring(family, &write.key, value, moment(write.expiry)),
                (None, "single_delete") if !again => batch.single_delete(family, &write.key),
                (None, "delete_range") => {
                    batch.delete_range(family, &*write.key..write.until.as_deref().unwrap_or_default())
                }
                (None, _) => batch.delete(family, &write.key),
            };
            filled.map_err(|e| e.to_string())?;
            writes.push(write);
        }
        let options = WriteOptions::default();
        let options = if durable { options.sync(SyncMode::Full) } else { options };
        self.db().write_with(&mut batch, &options).map_err(|e| e.to_string())?;
        if !batch.is_empty() {
            return Err("a committed batch was not cleared".into());
        }
        let oldest = self.oldest();
        self.store.commit(writes, oldest);
        self.count("batch", if durable { "durable" } else { "ok" });
        Ok(())
    }

    fn take_snapshot(&mut self) -> Result<(), String> {
        if self.snapshots.len() < 6 {
            let (snapshot, at, families) = (self.db().snapshot(), self.store.moment(), self.families.clone());
            self.snapshots.push(Pinned { snapshot, at, families });
            self.count("snapshot", "ok");
        }
        Ok(())
    }

    fn drop_snapshot(&mut self, n: u64) -> Result<(), String> {
        if !self.snapshots.is_empty() {
            let at = n as usize % self.snapshots.len();
            self.snapshots.swap_remove(at);
            self.count("snapshot", "dropped");
        }
        Ok(())
    }

    fn name(n: u64) -> String {
        ["..", "a/b", "CON", "x\n\0", "family", "\u{1F40B}"][n as usize % 6].to_owned() + &(n / 6).to_string()
    }

    fn is_taken(&self, name: &str) -> bool {
        self.families.iter().any(|f| f.name == name)
    }

    fn new_family(&mut self, name: String, handle: Family) -> FamilyNo {
        let no = self.families_made;
        self.families_made += 1;
        self.families.push(Live { no, name, handle });
        no
    }

    fn create(&mut self, name: u64) -> Result<(), String> {
        let name = Self::name(name);
        let result = self.db().create_family(&name, self.options.family());
        match (result, self.is_taken(&name)) {
            (Ok(handle), false) => {
                let no = self.new_family(name, handle);
                self.store.create(no);
                self.count("create", "ok");
                Ok(())
            }
            (Err(Error::Exists { .. }), true) => {
                self.count("create", "exists");
                Ok(())
            }
            (result, taken) => Err(format!("create, taken {taken}: {result:?}")),
        }
    }

    fn drop_family(&mut self, n: u64) -> Result<(), String> {
        if self.families.len() < 2 {
            return Ok(());
        }
        let at = 1 + n as usize % (self.families.len() - 1);
        let family = self.families.remove(at);
        self.db().drop_family(&family.name).map_err(|e| e.to_string())?;
        self.count("drop", "ok");
        match family.handle.get(b"k") {
            Err(Error::NotFound { .. }) => Ok(()),
            other => Err(format!("a dropped family returned {other:?}")),
        }
    }

    fn rename(&mut self, n: u64, name: u64) -> Result<(), String> {
        if self.families.len() < 2 {
            return Ok(());
        }
        let at = 1 + n as usize % (self.families.len() - 1);
        let (old, new) = (self.families[at].name.clone(), Self::name(name));
        let result = self.db().rename_family(&old, &new);
        match (result, self.is_taken(&new) && old != new) {
            (Ok(()), false) => {
                self.families[at].name.clone_from(&new);
                self.count("rename", "ok");
                let told = self.families[at].handle.name();
                if told == new { Ok(()) } else { Err(format!("the renamed family has the name {told:?}")) }
            }
            (Err(Error::Exists { .. }), true) => {
                self.count("rename", "exists");
                Ok(())
            }
            (result, taken) => Err(format!("rename, taken {taken}: {result:?}")),
        }
    }

    fn clone_family(&mut self, n: u64, name: u64) -> Result<(), String> {
        let (from, name) = (self.live(n).clone(), Self::name(name));
        if self.families.len() > 6 || self.is_taken(&name) {
            return Ok(());
        }
        let _older = self.db().snapshot(); // merges keep the sequence numbers of newer rows
        let handle = self.db().clone_family(&from.name, &name).map_err(|e| e.to_string())?;
        let mut cursor = handle.cursor().map_err(|e| e.to_string())?;
        cursor.seek_to_first().map_err(|e| e.to_string())?;
        // Sequence numbers may advance without a commit. Then a snapshot of the last commit is older than the clone.
        let seq = if cursor.valid() { cursor.version_seq() } else { u64::MAX };
        self.store.tick();
        let moment = self.store.moment();
        let same = self.snapshots.iter_mut().filter(|pinned| pinned.snapshot.seq() >= seq);
        same.for_each(|pinned| pinned.at = moment);
        let (no, wall) = (self.new_family(name, handle), self.wall());
        self.store.copy(from.no, no, wall);
        self.count("clone", "ok");
        Ok(())
    }

    fn flush(&mut self, which: Option<u64>) -> Result<(), String> {
        self.count("flush", if which.is_some() { "one" } else { "ok" });
        which.map_or_else(|| self.db().flush(), |n| self.live(n).handle.flush()).map_err(|e| e.to_string())
    }

    fn compact(&mut self, which: Option<u64>) -> Result<(), String> {
        self.count("compact", if which.is_some() { "one" } else { "ok" });
        which
            .map_or_else(|| self.db().compact(), |n| self.live(n).handle.compact())
            .map_err(|e| e.to_string())
    }

    /// Closes or abandons the database and reopens it. Nothing may be lost either way, because the machine does not
    /// crash.
    fn reopen(&mut self, closed: bool) -> Result<(), String> {
        self.cursors.clear();
        let snapshots = std::mem::take(&mut self.snapshots);
        if let Some(db) = self.db.take() {
            if closed { db.close().map_err(|e| format!("close: {e}"))? } else { db.abandon() }
        }
        if let Some(old) = snapshots.first()
            && !matches!(old.snapshot.get(&old.families[0].handle, b"k"), Err(Error::Closed))
        {
            return Err("a snapshot still works after its database was closed".into());
        }
        drop(snapshots);
        self.count("reopen", if closed { "closed" } else { "died" });
        self.open()?;
        self.compare_all()
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let path = self.path.with_file_name(format!("checkpoint{}", self.checkpoints));
        self.checkpoints += 1;
        self.db().checkpoint(&path).map_err(|e| e.to_string())?;
        let copy = self.options(&path).open().map_err(|e| format!("open the checkpoint: {e}"))?;
        for family in &self.families {
            let handle = copy.family(&family.name).map_err(|e| e.to_string())?;
            self.compare(&handle, family.no).map_err(|e| format!("checkpoint: {e}"))?;
        }
        copy.put(b"k", b"written to a checkpoint").map_err(|e| e.to_string())?;
        copy.close().map_err(|e| e.to_string())?;
        self.count("checkpoint", "ok");
        self.compare_all()
    }

    fn verify(&mut self) -> Result<(), String> {
        let report = self.db().verify().map_err(|e| e.to_string())?;
        self.count("verify", "ok");
        if report.is_ok() { Ok(()) } else { Err(format!("verify: {report}")) }
    }

    fn compare_all(&self) -> Result<(), String> {
        self.families.iter().try_for_each(|f| self.compare(&f.handle, f.no))
    }

    /// Compares the current contents of a family with the model.
    fn compare(&self, handle: &Family, no: FamilyNo) -> Result<(), String> {
        let rows = self.store.rows(no, self.store.moment(), self.wall());
        same_rows(handle.iter().map_err(|e| e.to_string())?, &rows)
            .map_err(|e| format!("all of family {no}: {e}"))
    }
}
