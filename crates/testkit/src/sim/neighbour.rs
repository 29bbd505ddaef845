//! A second database on the same disk, which shares its threads, memory and cache with the first. Its rows are few and known, and it is
//! closed and opened again while the other one works.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidesdb::{Db, Resources};
use tidesdb_sync::scheduler;

use super::world::World;
use crate::rng::Rng;

/// Path of the second database.
const PATH: &str = "/neighbour";
/// Its keys.
const KEYS: u64 = 24;

/// The rows that were acknowledged.
type Known = BTreeMap<[u8; 8], Vec<u8>>;

/// Opens, uses and closes the database until the clients have ended.
pub(super) fn live(world: &World, resources: &Resources) {
    let mut rng = Rng::new(world.plan.seed ^ 0x4E16);
    let mut known = Known::new();
    while goes_on(world) {
        let db = match world.plan.open_with(&world.env, PATH, None, Some(resources)) {
            Ok(db) => db,
            Err(e) => return world.failed("an open of the neighbour", &e, &[]),
        };
        if let Err(e) =
            compare(world, &db, &known).and_then(|()| use_for_a_while(world, &db, &mut known, &mut rng))
        {
            return world.failed("a call of the neighbour", &e, &[]);
        }
        if let Err(e) = compare(world, &db, &known).and_then(|()| db.close()) {
            return world.failed("a close of the neighbour", &e, &[]);
        }
        scheduler::note("the neighbour is closed", known.len() as u64, "");
    }
}

fn goes_on(world: &World) -> bool {
    world.working.load(SeqCst) > 0 && !world.stops()
}

fn use_for_a_while(world: &World, db: &Db, known: &mut Known, rng: &mut Rng) -> tidesdb::Result<()> {
    for _ in 0..rng.below(60) {
        if !goes_on(world) {
            break;
        }
        let key = rng.below(KEYS).to_be_bytes();
        match rng.below(12) {
            0 => db.flush()?,
            1 => db.compact()?,
            2 => world.env.clock.sleep(Duration::from_micros(1 << rng.below(16))),
            3 | 4 => {
                // A refusal has no effect.
                if had_effect(db.delete(key))? {
                    known.remove(&key);
                }
            }
            5 => compare(world, db, known)?,
            _ => {
                let value = vec![rng.below(256) as u8; rng.below(900) as usize];
                if had_effect(db.put(key, &value))? {
                    known.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

/// Returns whether the call had an effect: not if it was refused because memory or time was short.
fn had_effect(result: tidesdb::Result<u64>) -> tidesdb::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(tidesdb::Error::Busy { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Reads all rows.
fn compare(world: &World, db: &Db, known: &Known) -> tidesdb::Result<()> {
    let mut found = Known::new();
    for row in db.iter()? {
        let (key, value) = row?;
        let key = <[u8; 8]>::try_from(&key[..]).unwrap_or([0xFF; 8]);
        found.insert(key, value.into_vec());
    }
    if found != *known && !world.is_stormy() {
        world.fail(format!("the neighbour has {found:?} in place of {known:?}"));
    }
    Ok(())
}
