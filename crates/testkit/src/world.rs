//! Runs a script against the engine on a simulated disk, and records what the engine has promised.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidesdb::{
    CommitHook, Compression, Db, Error, Family, FamilyOptions, Isolation, MergeOperator, Result, SeqNo,
    SyncMode, WriteBatch, WriteOptions,
};
use tidesdb_io::Env;

use crate::model::{FamilyNo, Model, Op, SEPARATOR, moment};
use crate::script::Step;

/// Key in the default family with the number of the last commit.
pub const MARK: &[u8] = b"\x00commit";
/// Path of the database.
pub const PATH: &str = "/db";

/// Settings of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Sync mode of commits.
    pub sync: SyncMode,
    /// Size of a memtable in bytes.
    pub write_buffer: usize,
    /// Size of a log segment in bytes.
    pub wal_segment: u64,
    /// Compression of tables and values.
    pub compression: Compression,
    /// Size of a value log in bytes.
    pub vlog_file: u64,
    /// Tables are short, and merges are divided into parts.
    pub divides: bool,
    /// The families have a merge operator; otherwise operands are put.
    pub merges: bool,
}

impl Config {
    /// Returns a configuration derived from a number, so that different seeds test different ones.
    pub fn numbered(n: u64) -> Self {
        Self {
            sync: [SyncMode::Full, SyncMode::None, SyncMode::Interval(std::time::Duration::from_millis(50))]
                [(n % 3) as usize],
            write_buffer: [8 << 10, 32 << 10, 1 << 20][(n / 3 % 3) as usize],
            wal_segment: [16 << 10, 64 << 10, 1 << 20][(n / 9 % 3) as usize],
            compression: [Compression::Lz4, Compression::None, Compression::Zstd, Compression::Snappy]
                [(n / 18 % 4) as usize],
            vlog_file: [4 << 10, 16 << 10, 256 << 20][(n / 5 % 3) as usize],
            divides: n / 2 % 2 == 1,
            merges: n / 4 % 2 == 1,
        }
    }

    /// Returns the settings of each family.
    pub fn family(&self) -> FamilyOptions {
        let mut options =
            FamilyOptions::default().write_buffer_bytes(self.write_buffer).compression(self.compression);
        options.vlog_file_bytes = self.vlog_file;
        options.merge_operator = self.merges.then(|| MergeOperator::append(SEPARATOR));
        if self.divides {
            options.table_bytes = 2 << 10;
        }
        options
    }

    /// Opens the database, without background threads.
    ///
    /// # Errors
    /// Returns the error of the engine.
    pub fn open(&self, env: &Env, path: &Path) -> Result<Db> {
        Db::options(path)
            .env(env.clone())
            .sync(self.sync)
            .background_threads(0)
            .cache_bytes(64 << 10)
            .default_family(self.family())
            .with(|o| {
                o.wal_segment_bytes = self.wal_segment;
                o.disk_free_min = 0;
                o.forced.merge_parts = Some(if self.divides { 3 } else { 1 });
            })
            .open()
    }
}

/// Promises of the engine.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// The model; its last commit may be in progress.
    pub model: Model,
    /// Number of acknowledged commits.
    pub acked: usize,
    /// Number of commits acknowledged as durable.
    pub durable: usize,
    /// Families before the step in progress.
    pub families_before: BTreeMap<FamilyNo, String>,
    /// Families after the step in progress.
    pub families_after: BTreeMap<FamilyNo, String>,
    /// Checkpoints whose call returned: number, and the minimum number of commits they must hold.
    pub checkpoints: Vec<(usize, usize)>,
    /// Whether the first open has returned.
    pub opened: bool,
}

/// Promises, shared with an observer of the disk.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Promises>>);

impl Shared {
    /// Locks the promises.
    pub fn lock(&self) -> MutexGuard<'_, Promises> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the steps of a script, one after the other.
pub struct World {
    env: Env,
    config: Config,
    /// Promises so far.
    pub promises: Shared,
    /// Whether a failed sync may revert acknowledged commits that were not durable, as on Btrfs.
    pub cache_may_revert: bool,
    db: Option<Db>,
    handles: BTreeMap<FamilyNo, Family>,
    /// Runs after each commit.
    hook: Option<Arc<CommitHook>>,
}

impl World {
    /// Returns the bytes of values that merges have moved out of value logs since the open.
    pub fn value_bytes_moved(&self) -> u64 {
        let families = self.db.iter().flat_map(|db| db.stats().families);
        families.map(|family| family.value_bytes_moved).sum()
    }

    /// Opens the database.
    ///
    /// # Errors
    /// Returns the error of the engine.
    pub fn open(env: &Env, config: Config, promises: Shared) -> Result<Self> {
        {
            let mut p = promises.lock();
            p.families_before = BTreeMap::new();
            p.families_after = [(0, tidesdb::DEFAULT_FAMILY.to_owned())].into();
        }
        let db = config.open(env, Path::new(PATH))?;
        let handles = [(0, db.default_family().clone())].into();
        {
            let mut p = promises.lock();
            p.model.families_made = 1;
            p.families_before = p.families_after.clone();
            p.opened = true;
        }
        Ok(Self {
            env: env.clone(),
            config,
            promises,
            cache_may_revert: false,
            db: Some(db),
            handles,
            hook: None,
        })
    }

    /// Opens the database that an earlier run left, whose promises are `promises`. What is found is durable from then on.
    ///
    /// # Errors
    /// Returns the error of the engine.
    pub fn resume(env: &Env, config: Config, promises: Shared) -> Result<Self> {
        let (env, db, handles, hook) = (env.clone(), None, BTreeMap::new(), None);
        let mut world = Self { env, config, promises, cache_may_revert: true, db, handles, hook };
        world.open_again()?;
        world.cache_may_revert = false;
        Ok(world)
    }

    /// Runs `hook` after each later commit, before the jobs that the commit runs.
    pub fn after_commits(&mut self, hook: Arc<CommitHook>) {
        self.handles.values().for_each(|family| family.set_commit_hook(Some(Arc::clone(&hook))));
        self.hook = Some(hook);
    }

    fn keep(&mut self, no: FamilyNo, family: Family) {
        family.set_commit_hook(self.hook.clone());
        self.handles.insert(no, family);
    }

    /// Returns the open database.
    ///
    /// # Panics
    /// Panics after a failed reopen.
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the last reopen succeeded")
    }

    /// Runs one step.
    ///
    /// # Errors
    /// Returns the error of the engine. The promises then include all that was acknowledged before the error.
    pub fn run(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Commit { ops, full } => self.commit(ops, *full),
            Step::Flush => self.db().flush(),
            Step::FlushOf(no) => self.handles.get(no).map_or(Ok(()), Family::flush),
            Step::StartFlush(no) => self.handles.get(no).map_or(Ok(()), Family::start_flush),
            Step::Compact => self.db().compact(),
            Step::Sync => self.sync(),
            Step::Reopen => self.reopen(),
            Step::Checkpoint(n) => self.checkpoint(*n),
            Step::Create(_) | Step::Drop(_) | Step::Rename(..) => self.family(step),
        }
    }

    /// Commits `ops` and the number of the commit. Operations on families that could not be created are left out.
    fn commit(&mut self, ops: &[Op], full: bool) -> Result<()> {
        let mut ops: Vec<Op> =
            ops.iter().filter(|op| self.handles.contains_key(&op.family)).cloned().collect();
        ops.iter_mut().for_each(|op| op.merge &= self.config.merges);
        let number = {
            let mut p = self.promises.lock();
            let number = p.model.commits.len() + 1;
            let value = Some(number.to_string().into_bytes());
            ops.push(Op {
                family: 0,
                key: MARK.to_vec(),
                value,
                expiry: 0,
                single: false,
                until: None,
                merge: false,
            });
            p.model.commits.push(ops.clone());
            number
        };
        let result = if number % 3 == 0 { self.transact(&ops, full) } else { self.write(&ops, full) };
        let mut p = self.promises.lock();
        match result {
            Ok(_) => {
                p.acked = number;
                if full || self.config.sync == SyncMode::Full {
                    p.durable = number;
                }
                Ok(())
            }
            // Unknown result: the commit remains the last one of the model, and no further commit may be acknowledged.
            Err(e @ Error::CommitUnknown { .. }) => Err(e),
            Err(e) => {
                p.model.commits.pop();
                Err(e)
            }
        }
    }

    fn write(&self, ops: &[Op], full: bool) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        for op in ops {
            let family = &self.handles[&op.family];
            if let Some(until) = &op.until {
                batch.delete_range(family, op.key.as_slice()..until)?;
                continue;
            }
            match &op.value {
                Some(value) if op.merge => batch.merge(family, &op.key, value)?,
                Some(value) => batch.put_expiring(family, &op.key, value, moment(op.expiry))?,
                None if op.single => batch.single_delete(family, &op.key)?,
                None => batch.delete(family, &op.key)?,
            }
        }
        let options =
            if full { WriteOptions::default().sync(SyncMode::Full) } else { WriteOptions::default() };
        self.db().write_with(&mut batch, &options)
    }

    /// Writes like `write`, through a transaction that has read the keys it writes. A second transaction that began
    /// earlier must be refused.
    fn transact(&self, ops: &[Op], full: bool) -> Result<SeqNo> {
        let late_family = &self.handles[&0];
        let mut late = self.db().begin(Isolation::Snapshot);
        late.put(late_family, MARK, b"never")?;
        let mut tx = self.db().begin(Isolation::Serializable);
        for op in ops {
            let family = &self.handles[&op.family];
            if tx.get(family, &op.key).is_err() {
                return self.write(ops, full); // a failed disk may not be readable any more
            }
            if let Some(until) = &op.until {
                tx.delete_range(family, op.key.as_slice()..until)?;
                continue;
            }
            match &op.value {
                Some(value) if op.merge => tx.merge(family, &op.key, value)?,
                Some(value) => tx.put_expiring(family, &op.key, value, moment(op.expiry))?,
                None if op.single => tx.single_delete(family, &op.key)?,
                None => tx.delete(family, &op.key)?,
            }
        }
        let options =
            if full { WriteOptions::default().sync(SyncMode::Full) } else { WriteOptions::default() };
        let seq = tx.commit_with(&options)?;
        match late.commit() {
            Ok(_) => Err(Error::Internal { what: "a conflicting transaction was not refused".into() }),
            Err(_) => Ok(seq), // a conflict, or a fault that the next step meets again
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.db().sync()?;
        let mut p = self.promises.lock();
        p.durable = p.acked;
        Ok(())
    }

    /// Closes and reopens the database. It is reopened even if the close failed; the error of the close is returned.
    fn reopen(&mut self) -> Result<()> {
        self.handles.clear();
        let closed = self.db.take().map_or(Ok(()), Db::close);
        if closed.is_ok() {
            let mut p = self.promises.lock();
            p.durable = p.acked;
        }
        self.open_again()?;
        closed
    }

    fn open_again(&mut self) -> Result<()> {
        let db = self.config.open(&self.env, Path::new(PATH))?;
        self.settle(&db)?;
        let families = self.promises.lock().families_after.clone();
        for (no, name) in families {
            self.keep(no, db.family(&name)?);
        }
        self.db = Some(db);
        Ok(())
    }

    /// After a reopen, commits and families with an unknown result are known and durable.
    fn settle(&self, db: &Db) -> Result<()> {
        let mark = db.get(MARK)?.and_then(|m| String::from_utf8_lossy(&m).parse().ok()).unwrap_or(0);
        let names = db.families();
        let mut p = self.promises.lock();
        let least = if self.cache_may_revert { p.durable } else { p.acked };
        if mark >= least && mark <= p.model.commits.len() {
            p.model.commits.truncate(mark);
            (p.acked, p.durable) = (mark, mark);
        }
        let are = |families: &BTreeMap<FamilyNo, String>| {
            let mut given: Vec<&String> = families.values().collect();
            given.sort_unstable();
            given.into_iter().eq(&names)
        };
        if are(&p.families_after) {
            p.families_before = p.families_after.clone();
        } else if are(&p.families_before) {
            p.families_after = p.families_before.clone();
        }
        Ok(())
    }

    fn checkpoint(&mut self, n: usize) -> Result<()> {
        self.db().checkpoint(checkpoint_path(n))?;
        let mut p = self.promises.lock();
        p.durable = p.acked; // a checkpoint flushes
        let acked = p.acked;
        p.checkpoints.push((n, acked));
        Ok(())
    }

    /// Creates, drops or renames a family. A number is assigned even if the creation fails, because the script counts
    /// it. Steps on a family that could not be created are left out.
    fn family(&mut self, step: &Step) -> Result<()> {
        let before = self.promises.lock().families_after.clone();
        let mut after = before.clone();
        let made = self.promises.lock().model.families_made;
        match step {
            Step::Create(name) => drop(after.insert(made, name.clone())),
            Step::Drop(no) | Step::Rename(no, _) if !before.contains_key(no) => return Ok(()),
            Step::Drop(no) => drop(after.remove(no)),
            Step::Rename(no, name) => drop(after.insert(*no, name.clone())),
            _ => {}
        }
        self.promises.lock().families_after = after;
        let result = match step {
            Step::Create(name) => {
                self.promises.lock().model.families_made += 1;
                self.db().create_family(name, self.config.family()).map(|family| self.keep(made, family))
            }
            Step::Drop(no) => {
                let result = self.db().drop_family(&before[no]);
                if result.is_ok() {
                    self.handles.remove(no);
                }
                result
            }
            Step::Rename(no, name) => self.db().rename_family(&before[no], name),
            _ => Ok(()),
        };
        let mut p = self.promises.lock();
        match &result {
            Ok(()) => p.families_before = p.families_after.clone(),
            // Refused: the unknown state left by an earlier step is unchanged.
            Err(Error::Poisoned { .. }) => p.families_after = before,
            Err(_) => {}
        }
        drop(p);
        result
    }

    /// Records that a failed step on families had no effect. Call only if the database is healthy.
    pub fn undo_families(&mut self) {
        let mut p = self.promises.lock();
        p.families_after = p.families_before.clone();
    }

    /// Returns true if a reopen has failed.
    pub fn is_down(&self) -> bool {
        self.db.is_none()
    }

    /// Ends without a close, like a process that dies: nothing more is written to the disk.
    pub fn abandon(mut self) {
        self.handles.clear();
        if let Some(db) = self.db.take() {
            db.abandon();
        }
    }
}

/// Returns the directory of checkpoint `n`.
pub fn checkpoint_path(n: usize) -> PathBuf {
    PathBuf::from(format!("/checkpoint{n}"))
}
