//! Generations of backups: made, proven, checked and removed beside everything else, and restored after the run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidesdb::backup::{Backups, CreateOptions, Generation, PrunePolicy};
use tidesdb::{Error, MemoryStore, ObjectStore};
use tidesdb_io::Env;
use tidesdb_sync::scheduler;

use super::admin::{names_of, pause, rng_of, still_named};
use super::store::Shaky;
use super::world::{World, lock};
use crate::model::FamilyNo;
use crate::rng::Rng;

/// Generations that stay when others are removed.
const KEPT: u64 = 2;
/// Where proofs restore to.
const SCRATCH: &str = "/scratch";

/// The store of the generations, and what it must have.
pub(super) struct Shelf {
    store: Arc<Shaky>,
    /// The writer of the store.
    writer: Mutex<Backups>,
    /// Generations that were made, and that nobody has begun to remove.
    known: Mutex<BTreeMap<u64, Made>>,
    /// Those of them that a prune has seen: the next listing tells which of them stay.
    pruned: Mutex<BTreeMap<u64, Made>>,
    /// Begins and ends of removals: one that may have been removed while its maker returns is not known.
    removals: AtomicU64,
    scratches: AtomicU64,
    captured: Mutex<Vec<Shelved>>,
}

/// A generation as its maker knows it.
#[derive(Clone)]
pub(super) struct Made {
    /// Families that it must have, with their names.
    pub(super) families: Vec<(FamilyNo, String)>,
    /// Commits up to this sequence number must be there.
    pub(super) least: u64,
}

/// The store as it was at some time.
pub(super) struct Shelved {
    /// What was captured then.
    pub(super) what: String,
    pub(super) objects: MemoryStore,
    pub(super) known: BTreeMap<u64, Made>,
}

impl Shelf {
    pub(super) fn new(store: Shaky, env: &Env) -> Self {
        let store = Arc::new(store);
        let writer = Mutex::new(writer_of(&store, env));
        Self {
            store,
            writer,
            known: Mutex::default(),
            pruned: Mutex::default(),
            removals: AtomicU64::new(0),
            scratches: AtomicU64::new(0),
            captured: Mutex::default(),
        }
    }

    /// All calls of the store fail while it is down.
    pub(super) fn set_down(&self, is_down: bool) {
        self.store.set_down(is_down);
    }

    /// Captures the store and what it must have.
    pub(super) fn capture(&self, what: &str) {
        // Other threads go on while the objects are copied: a generation counts that was known before and after.
        let mut known = lock(&self.known).clone();
        let objects = self.store.fork();
        known.retain(|number, _| self.knows(*number));
        lock(&self.captured).push(Shelved { what: what.to_owned(), objects, known });
    }

    /// Returns all that was captured.
    pub(super) fn captured(self) -> Vec<Shelved> {
        self.captured.into_inner().unwrap_or_default()
    }

    /// Returns whether a generation was made, and nobody has begun to remove it.
    fn knows(&self, number: u64) -> bool {
        lock(&self.known).contains_key(&number)
    }

    fn writer(&self) -> Backups {
        lock(&self.writer).clone()
    }
}

fn writer_of(store: &Arc<Shaky>, env: &Env) -> Backups {
    Backups::with_env(Arc::<Shaky>::clone(store) as Arc<dyn ObjectStore>, env.clone())
}

/// Makes, proves and checks generations until the clients have ended.
pub(super) fn back_up(world: &World, shelf: &Shelf) {
    let mut rng = rng_of(world, 7);
    while world.working.load(SeqCst) > 0 && !world.stops() {
        pause(world, &mut rng);
        let (backups, failures) = (shelf.writer(), shelf.store.failures());
        let done = match rng.below(10) {
            0..5 => create(world, shelf, &backups, false),
            5 if !world.is_stormy() => create(world, shelf, &backups, true),
            6 | 7 if !world.is_stormy() => check(world, shelf, &backups, &mut rng),
            8 => {
                *lock(&shelf.writer) = writer_of(&shelf.store, &world.env); // takes the store over with its first change
                Ok(())
            }
            _ => backups.list().map(drop),
        };
        judge(world, shelf, failures, done);
    }
}

/// Removes generations beside that.
pub(super) fn clear_up(world: &World, shelf: &Shelf) {
    let mut rng = rng_of(world, 8);
    while world.working.load(SeqCst) > 0 && !world.stops() {
        pause(world, &mut rng);
        pause(world, &mut rng);
        let (backups, failures) = (shelf.writer(), shelf.store.failures());
        shelf.removals.fetch_add(1, SeqCst);
        let done = match rng.below(3) {
            0 => delete(world, shelf, &backups, &mut rng),
            _ => prune(world, shelf, &backups),
        };
        shelf.removals.fetch_add(1, SeqCst);
        judge(world, shelf, failures, done);
    }
}

/// Tells what the last prunes have left.
pub(super) fn settle_last(world: &World, shelf: &Shelf) {
    if let Ok(listed) = shelf.writer().list() {
        settle(world, shelf, &listed);
    }
}

/// Judges the result of a call: another writer may have taken the store over, and a generation may have been removed meanwhile.
fn judge(world: &World, shelf: &Shelf, failures: u64, done: Result<(), Error>) {
    match done {
        Ok(()) | Err(Error::Locked { .. } | Error::NotFound { .. }) => {}
        Err(e @ Error::Corrupt { .. }) => world.failed("a backup", &e, &[]),
        Err(_) if shelf.store.failures() > failures => {}
        Err(e) => world.failed("a backup", &e, &[]),
    }
}

fn create(world: &World, shelf: &Shelf, backups: &Backups, proves: bool) -> Result<(), Error> {
    let (least, removals) = (world.acked(), shelf.removals.load(SeqCst));
    let families = world.all_families();
    let names = names_of(&families);
    let options = match proves {
        true => {
            let n = shelf.scratches.fetch_add(1, SeqCst);
            CreateOptions::default().prove(format!("{SCRATCH}{n}"))
        }
        false => CreateOptions::default(),
    };
    let made = backups.create_with(&world.db, &options)?;
    scheduler::note("generation", made.number, &format!("has all up to {least}"));
    if proves && made.proof.is_none_or(|proof| !proof.passed) {
        world.fail(format!("generation {} is not proven: {:?}", made.number, made.proof));
    }
    let families = still_named(&families, names);
    if removals.is_multiple_of(2) && shelf.removals.load(SeqCst) == removals {
        lock(&shelf.known).insert(made.number, Made { families, least });
    }
    Ok(())
}

/// Removes all generations but the newest.
fn prune(world: &World, shelf: &Shelf, backups: &Backups) -> Result<(), Error> {
    let known = std::mem::take(&mut *lock(&shelf.known));
    lock(&shelf.pruned).extend(known);
    backups.prune(&PrunePolicy::default().keep_last(KEPT))?;
    settle(world, shelf, &backups.list()?);
    Ok(())
}

/// Tells which generations the prunes since the last call have left, also those that failed: one that is gone has `KEPT` newer ones.
fn settle(world: &World, shelf: &Shelf, listed: &[Generation]) {
    let pruned = std::mem::take(&mut *lock(&shelf.pruned));
    for (number, made) in pruned {
        let newer = listed.iter().filter(|g| g.number > number).count();
        if listed.iter().any(|g| g.number == number) {
            lock(&shelf.known).insert(number, made);
        } else if newer < KEPT as usize {
            world.fail(format!("generation {number} was pruned, and {newer} newer ones are left"));
        }
    }
}

fn delete(world: &World, shelf: &Shelf, backups: &Backups, rng: &mut Rng) -> Result<(), Error> {
    let listed = backups.list()?;
    settle(world, shelf, &listed);
    if listed.is_empty() {
        return Ok(());
    }
    let number = rng.pick(&listed).number;
    lock(&shelf.known).remove(&number);
    backups.delete(number)
}

/// Reads all bytes of a generation.
fn check(world: &World, shelf: &Shelf, backups: &Backups, rng: &mut Rng) -> Result<(), Error> {
    let before: Vec<u64> = lock(&shelf.known).keys().copied().collect();
    let listed = backups.list()?;
    let is_lost = |number: &&u64| !listed.iter().any(|g| g.number == **number) && shelf.knows(**number);
    if let Some(lost) = before.iter().find(is_lost) {
        world.fail(format!("generation {lost} is lost"));
    }
    if listed.is_empty() {
        return Ok(());
    }
    let number = rng.pick(&listed).number;
    let verified = backups.verify(number)?;
    if !verified.is_ok() && shelf.knows(number) {
        world.fail(format!("generation {number} is damaged: {:?}", verified.damage));
    }
    Ok(())
}
