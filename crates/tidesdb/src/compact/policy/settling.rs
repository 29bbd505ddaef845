//! Without new data the work of every policy ends, from any tree: see [`World::settle`] for why. `scripts/settling.txt` has
//! examples. `ROUNDS=20000 cargo test -p tidesdb-engine every_policy_settles` looks longer.

use std::collections::BTreeMap;

use super::model::{Dice, ENTRY_BYTES, What, World, key, settings};
use super::{CompactionPolicy, Fifo, Leveled, Spooky};

/// Adds random tables to the sorted `level`: any number, of any length, with gaps.
fn fill(world: &mut World, dice: &mut Dice, level: u8, keys: u64) {
    let (share, most) = (1 + dice.below(8), 1 + dice.below(60));
    let mut rows = BTreeMap::new();
    let mut next = 1000 * u64::from(level);
    for n in 0..keys {
        if dice.below(8) < share && dice.below(3) == 0 {
            let what = match dice.below(10) {
                0 => What::Delete,
                1 => What::Expiring(world.now + dice.below(9)),
                _ => What::Put,
            };
            rows.insert(key(n), what);
        }
        if rows.len() as u64 > dice.below(most) && dice.below(4) == 0 || n + 1 == keys && !rows.is_empty() {
            world.add(level, next, std::mem::take(&mut rows));
            next += 1;
        }
    }
}

/// A random tree of up to nine levels, some of them empty, whatever the settings want.
fn tree(dice: &mut Dice, policy: (&'static dyn CompactionPolicy, bool)) -> World {
    let mut world = World::new(policy, settings(dice), ENTRY_BYTES);
    world.settings.fifo_bytes = dice.below(4) * 3000;
    world.probes_pay = dice.one_of(&[0, 0, 100, u64::MAX]);
    world.is_idle = dice.below(2) == 0;
    world.now = 5;
    let keys = dice.one_of(&[40, 200, 900]);
    for level in (2..=2 + dice.below(8) as u8).rev() {
        if dice.below(3) > 0 {
            fill(&mut world, dice, level, keys);
        }
    }
    (0..dice.below(12)).for_each(|_| world.flush(dice, keys));
    world
}

#[test]
fn every_policy_settles_from_any_tree_and_leaves_no_debt() {
    let rounds = std::env::var("ROUNDS").map_or(100, |n| n.parse().unwrap());
    let policies: [(&'static dyn CompactionPolicy, bool); 3] =
        [(&Spooky, true), (&Leveled, true), (&Fifo, false)];
    let mut plans = [0; 3];
    for seed in 1..=rounds {
        for (at, policy) in policies.into_iter().enumerate() {
            let mut world = tree(&mut Dice(seed * 0x9E37_79B9 + 1), policy);
            plans[at] += world.settle().len();
            let says = |what: String| format!("seed {seed}: {what}: {:?}", world.settings);
            match at {
                0 => assert!(
                    world.debts().iter().all(|debt| *debt == 0),
                    "{}",
                    says(format!("{:?}", world.debts()))
                ),
                1 => {
                    let over = (1..=world.depth()).find(|level| {
                        let (bytes, capacity) = world.fill(*level);
                        bytes >= capacity
                    });
                    assert_eq!(over, None, "{}", says("a level is over its capacity".into()));
                }
                _ => {
                    let most = world.settings.fifo_bytes;
                    assert!(
                        most == 0 || world.bytes() <= most,
                        "{}",
                        says(format!("{} bytes", world.bytes()))
                    );
                }
            }
        }
    }
    assert!(plans.iter().all(|n| *n as u64 > rounds / 2), "{plans:?} plans");
}
