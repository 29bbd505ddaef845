//! One thread plays several clients. Their transactions are open at the same time and take turns, between flushes,
//! compactions, syncs and reopens.

use std::path::Path;

use tidesdb::{Db, Error, Family, Isolation, Result, Snapshot, SyncMode, Transaction, WriteOptions};
use tidesdb_io::Env;

use super::judge::look;
use super::work::Families;
use super::{Commit, Contents, SECOND, Shared, Work, receipt};
use crate::rng::Rng;
use crate::world::{Config, PATH};

/// Maximum number of open transactions.
const CLIENTS: usize = 4;
/// Maximum number of open snapshots.
const SNAPSHOTS_MAX: usize = 3;
/// Levels that preserve the invariants.
const LEVELS: [Isolation; 3] = [Isolation::RepeatableRead, Isolation::Snapshot, Isolation::Serializable];

/// Figures of a play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of committed transactions.
    pub commits: u64,
    /// Number of refused transactions.
    pub conflicts: u64,
    /// Number of transactions that were rolled back voluntarily.
    pub rolled_back: u64,
    /// Number of parts undone by a savepoint.
    pub undone: u64,
    /// Number of snapshots and open transactions in which the invariant was checked.
    pub views: u64,
}

impl Counts {
    /// Adds the figures of another play.
    pub fn add(&mut self, other: Self) {
        self.commits += other.commits;
        self.conflicts += other.conflicts;
        self.rolled_back += other.rolled_back;
        self.undone += other.undone;
        self.views += other.views;
    }
}

/// A client's transaction, and the writes it has planned.
struct Client {
    tx: Transaction,
    plan: Option<Commit>,
    id: u64,
    written: bool,
}

/// Plays one workload on one database.
pub struct Player {
    env: Env,
    config: Config,
    work: Work,
    rng: Rng,
    promises: Shared,
    clients: Vec<Client>,
    snapshots: Vec<Snapshot>,
    open: Option<(Db, Family)>,
    next_id: u64,
    /// Figures so far.
    pub counts: Counts,
}

impl Player {
    /// Creates a database with the first commit.
    ///
    /// # Errors
    /// Returns the error of the engine.
    pub fn start(env: &Env, config: Config, work: Work, seed: u64, promises: Shared) -> Result<Self> {
        let db = config.open(env, Path::new(PATH))?;
        let second = db.create_family(SECOND, config.family())?;
        let mut this = Self {
            env: env.clone(),
            config,
            work,
            rng: Rng::new(seed),
            promises,
            clients: Vec::new(),
            snapshots: Vec::new(),
            open: Some((db, second)),
            next_id: 0,
            counts: Counts::default(),
        };
        let mut tx = this.db().begin(Isolation::Serializable);
        let start = work.start(&mut this.rng);
        let commit = this.write(&mut tx, start, 0)?;
        this.next_id = 1;
        this.commit(&mut tx, commit, true)?;
        Ok(this)
    }

    fn db(&self) -> &Db {
        &self.open.as_ref().expect("only a reopen closes the database; if it fails, the play ends").0
    }

    fn families(&self) -> Families<'_> {
        let (db, second) = self.open.as_ref().expect("the database is open, as in `db`");
        [db.default_family(), second]
    }

    /// Makes one turn.
    ///
    /// # Errors
    /// Returns the error of the engine, or a view that violates the invariant.
    pub fn turn(&mut self) -> std::result::Result<(), String> {
        match self.rng.below(100) {
            0 => self.db().flush().map_err(text),
            1 if self.rng.one_in(2) => self.db().compact().map_err(text),
            2 => self.sync().map_err(text),
            3 if self.rng.one_in(2) => self.reopen().map_err(text),
            4..12 => self.view(),
            _ => self.client(),
        }
    }

    /// Checks all open snapshots and a new one, then abandons the database, so that nothing more is written to the
    /// disk.
    ///
    /// # Errors
    /// Returns the violation of the invariant.
    pub fn end(mut self) -> std::result::Result<Counts, String> {
        while !self.snapshots.is_empty() {
            self.look_at_a_snapshot()?;
        }
        self.clients.clear();
        if let Some((db, second)) = self.open.take() {
            let contents = Self::snapshot_contents(&db.snapshot(), [db.default_family(), &second])?;
            drop(second);
            db.abandon();
            let promises = self.promises.lock();
            if contents != promises.contents(promises.acked) {
                return Err("a snapshot differs from all acknowledged commits".into());
            }
        }
        Ok(self.counts)
    }

    fn sync(&mut self) -> Result<()> {
        self.db().sync()?;
        let mut promises = self.promises.lock();
        promises.durable = promises.acked;
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        self.clients.clear();
        self.snapshots.clear();
        if let Some((db, second)) = self.open.take() {
            drop(second);
            db.close()?;
        }
        {
            let mut promises = self.promises.lock();
            promises.durable = promises.acked;
        }
        let db = self.config.open(&self.env, Path::new(PATH))?;
        let second = db.family(SECOND)?;
        self.open = Some((db, second));
        Ok(())
    }

    /// Makes one step of one client: begin and read, write, or end.
    fn client(&mut self) -> std::result::Result<(), String> {
        if self.clients.len() < CLIENTS && self.rng.one_in(2) {
            let level = LEVELS[self.rng.below(3) as usize];
            let tx = self.db().begin(level);
            self.clients.push(Client { tx, plan: None, id: self.next_id, written: false });
            self.next_id += 1;
        }
        if self.clients.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.clients.len() as u64) as usize;
        let mut client = self.clients.swap_remove(at);
        match client.plan.take() {
            None => {
                if self.rng.one_in(6) {
                    let contents = transaction_contents(&client.tx, self.families())?;
                    self.counts.views += 1;
                    self.work.holds(&contents).map_err(|e| format!("in a transaction: {e}"))?;
                }
                let mut rng = self.rng.clone();
                client.plan = Some(self.work.plan(&client.tx, &self.families(), &mut rng).map_err(text)?);
                self.rng = rng;
                self.clients.push(client);
            }
            Some(plan) if !client.written => {
                client.plan = Some(self.write(&mut client.tx, plan, client.id).map_err(text)?);
                client.written = true;
                self.clients.push(client);
            }
            Some(_) if self.rng.one_in(10) => {
                client.tx.rollback();
                self.counts.rolled_back += 1;
            }
            Some(commit) => self.finish(client, commit).map_err(text)?,
        }
        Ok(())
    }

    /// Commits; after a conflict the client restarts its transaction.
    fn finish(&mut self, mut client: Client, commit: Commit) -> Result<()> {
        let full = self.rng.one_in(5);
        match self.commit(&mut client.tx, commit, full) {
            Err(Error::Conflict { .. }) => {
                self.counts.conflicts += 1;
                client.tx.reset();
                client.written = false;
                self.clients.push(client);
                Ok(())
            }
            other => other,
        }
    }

    /// Writes the plan and the receipt in the transaction. Sometimes also makes invalid writes, which it undoes or writes over.
    fn write(&mut self, tx: &mut Transaction, mut plan: Commit, id: u64) -> Result<Commit> {
        plan.push((receipt(id), id.to_le_bytes().to_vec()));
        let nonsense = self.rng.one_in(3).then(|| self.rng.below(plan.len() as u64) as usize);
        for (n, (place, value)) in plan.iter().enumerate() {
            if nonsense == Some(n) {
                let outer = tx.savepoint();
                let bad = [self.work.nonsense(&mut self.rng), self.work.nonsense(&mut self.rng)];
                for (i, (place, value)) in bad.into_iter().enumerate() {
                    let inner = tx.savepoint();
                    tx.put(self.families()[usize::from(place.0)], &place.1, &value)?;
                    if i == 1 { tx.release(inner)? } else { tx.rollback_to(inner)? }
                }
                tx.delete(self.families()[usize::from(place.0)], &place.1)?;
                tx.rollback_to(outer)?;
                self.counts.undone += 1;
            }
            let choice = self.rng.below(6);
            let family = self.families()[usize::from(place.0)];
            match choice {
                0 => tx.put(family, &place.1, b"written over")?,
                1 => tx.delete(family, &place.1)?,
                2 => tx.delete_range(family, place.1.as_slice()..=place.1.as_slice())?,
                _ => {}
            }
            tx.put(family, &place.1, value)?;
        }
        Ok(plan)
    }

    fn commit(&mut self, tx: &mut Transaction, commit: Commit, full: bool) -> Result<()> {
        self.promises.lock().commits.push(commit);
        let options =
            if full { WriteOptions::default().sync(SyncMode::Full) } else { WriteOptions::default() };
        let result = tx.commit_with(&options);
        let mut promises = self.promises.lock();
        match result {
            Ok(_) => {
                promises.acked = promises.commits.len();
                if full || self.config.sync == SyncMode::Full {
                    promises.durable = promises.acked;
                }
                self.counts.commits += 1;
                Ok(())
            }
            Err(e) => {
                promises.commits.pop();
                Err(e)
            }
        }
    }

    /// Takes a snapshot, or checks one taken earlier.
    fn view(&mut self) -> std::result::Result<(), String> {
        if self.snapshots.len() < SNAPSHOTS_MAX && self.rng.one_in(2) {
            let snapshot = self.db().snapshot();
            self.snapshots.push(snapshot);
            return Ok(());
        }
        self.look_at_a_snapshot()
    }

    fn look_at_a_snapshot(&mut self) -> std::result::Result<(), String> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let snapshot = self.snapshots.swap_remove(self.rng.below(self.snapshots.len() as u64) as usize);
        let contents = Self::snapshot_contents(&snapshot, self.families())?;
        self.counts.views += 1;
        let promises = self.promises.lock();
        look(self.work, &contents, &promises).map(drop).map_err(|e| format!("in a snapshot: {e}"))
    }

    fn snapshot_contents(
        snapshot: &Snapshot,
        families: Families<'_>,
    ) -> std::result::Result<Contents, String> {
        let mut contents = Contents::new();
        for (second, family) in [(false, families[0]), (true, families[1])] {
            for item in snapshot.iter(family).map_err(text)? {
                let (key, value) = item.map_err(text)?;
                contents.insert((second, key.to_vec()), value.to_vec());
            }
        }
        Ok(contents)
    }
}

fn transaction_contents(tx: &Transaction, families: Families<'_>) -> std::result::Result<Contents, String> {
    let mut contents = Contents::new();
    for (second, family) in [(false, families[0]), (true, families[1])] {
        for item in tx.prefix(family, b"n").map_err(text)? {
            let (key, value) = item.map_err(text)?;
            contents.insert((second, key.to_vec()), value.to_vec());
        }
    }
    Ok(contents)
}

fn text(e: Error) -> String {
    e.to_string()
}
