//! A reader beside the writer, on the simulated disk. It is refreshed during commits and after steps, and every view must hold what the
//! model holds after all acknowledged commits, then and later.
//!
//! A refresh during a commit runs before the flushes of that commit. So these flushes divide memtables of the reader.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use tidesdb::{CommitHook, Committed, Db, Reader};
use tidesdb_io::Env;

use crate::check::{difference, dump, mark};
use crate::disks::System;
use crate::model::{FamilyNo, wall_millis};
use crate::rng::Rng;
use crate::script::{self, Recipe};
use crate::world::{Config, PATH, Promises, Shared, World};

/// Older views that are kept.
const KEPT: usize = 3;

/// A view, and what it must show.
struct View {
    db: Db,
    families: BTreeMap<FamilyNo, String>,
    commits: usize,
}

/// A reader that follows a writer.
pub struct Follower {
    env: Env,
    promises: Shared,
    rng: Rng,
    reader: Arc<Reader>,
    /// The first refresh that failed during a commit.
    failed: Arc<Mutex<Option<String>>>,
    older: Vec<View>,
}

/// Runs a script on a healthy disk with the habits of `system`, beside a reader. Returns the number of views that were compared.
///
/// # Errors
/// Returns a description of the first violation.
pub fn follow(recipe: &Recipe, config: Config, system: System, seed: u64) -> Result<u64, String> {
    let (env, disk, _clock) = system.machine(seed);
    disk.log_ops(false);
    let mut world = World::open(&env, config, Shared::default()).map_err(|e| format!("open: {e}"))?;
    let mut follower = Follower::new(&env, &world.promises, seed)?;
    world.after_commits(follower.hook());
    let steps = script::make(recipe, seed, wall_millis(&*env.clock));
    for step in &steps {
        let text = |e: &dyn Display| format!("{step:?} beside a reader: {e}");
        world.run(step).map_err(|e| text(&e))?;
        follower.look().map_err(|e| text(&e))?;
    }
    world.abandon();
    Ok(steps.len() as u64)
}

impl Follower {
    /// Opens a reader of the database that the writer has open.
    ///
    /// # Errors
    /// The engine's error, as text.
    pub fn new(env: &Env, promises: &Shared, seed: u64) -> Result<Self, String> {
        let reader = Db::options(PATH).env(env.clone()).open_reader();
        let reader = Arc::new(reader.map_err(|e| format!("a reader beside the writer: {e}"))?);
        let (env, promises, failed) = (env.clone(), promises.clone(), Arc::default());
        Ok(Self { env, promises, rng: Rng::new(seed), reader, failed, older: Vec::new() })
    }

    /// Returns a hook that refreshes the reader after each commit.
    pub fn hook(&self) -> Arc<CommitHook> {
        let (reader, failed) = (Arc::clone(&self.reader), Arc::clone(&self.failed));
        Arc::new(move |commit: &Committed<'_>| {
            if let Err(e) = reader.refresh() {
                let e = format!("a refresh during commit {}: {e}", commit.seq);
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            }
        })
    }

    /// Refreshes the reader between two steps of the writer, and compares the view and an older one.
    ///
    /// # Errors
    /// Returns a description of the first violation.
    pub fn look(&mut self) -> Result<(), String> {
        if let Some(e) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(e);
        }
        let db = self.reader.refresh().map_err(|e| format!("a refresh: {e}"))?;
        let (families, commits) = {
            let promises = self.promises.lock();
            (promises.families_after.clone(), promises.acked)
        };
        let view = View { db, families, commits };
        self.compare(&view).map_err(|e| format!("a reader beside the writer: {e}"))?;
        if self.older.len() < KEPT {
            self.older.push(view);
        } else if self.rng.one_in(4) {
            let at = self.rng.below(KEPT as u64) as usize;
            let old = std::mem::replace(&mut self.older[at], view);
            self.compare(&old).map_err(|e| format!("an older view of a reader: {e}"))?;
        }
        Ok(())
    }

    fn compare(&self, view: &View) -> Result<(), String> {
        let contents = dump(&view.db)?;
        let promises: &Promises = &self.promises.lock();
        let expected = promises.model.contents(&view.families, view.commits, wall_millis(&*self.env.clock));
        if contents == expected {
            return Ok(());
        }
        let (shown, wanted) = (mark(&contents), view.commits);
        Err(format!("it shows {shown} commits of {wanted}: {}", difference(&contents, &expected)))
    }
}
