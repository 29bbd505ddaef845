//! Without new data the work of merges ends, from any tree: see [`World::settle`] for why. `scripts/settling.txt` has
//! examples. `ROUNDS=20000 cargo test -p tidesdb-engine tree_settles` looks longer.

use std::collections::BTreeMap;

use super::model::{Dice, ENTRY_BYTES, What, World, key, settings};

/// Adds random tables to the sorted `level`: any number, of any length, with gaps; above what is there already.
fn fill(world: &mut World, dice: &mut Dice, level: u8, keys: u64) {
    let (share, most) = (1 + dice.below(8), 1 + dice.below(60));
    let mut rows = BTreeMap::new();
    let mut next = world.next_id();
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

/// A random tree of up to nine levels, some of them empty, some of several runs, whatever the settings want.
fn tree(dice: &mut Dice) -> World {
    let mut world = World::new(settings(dice), ENTRY_BYTES);
    world.probes_credit = dice.one_of(&[0, 0, 100, u64::MAX]);
    world.is_idle = dice.below(2) == 0;
    world.now = 5;
    let keys = dice.one_of(&[40, 200, 900]);
    for level in (2..=2 + dice.below(8) as u8).rev() {
        if dice.below(3) > 0 {
            let runs = dice.one_of(&[1, 1, 2, 6, 30]);
            (0..runs).for_each(|_| fill(&mut world, dice, level, keys));
        }
    }
    (0..dice.below(12)).for_each(|_| world.flush(dice, keys));
    world
}

#[test]
fn a_tree_settles_from_any_state_and_leaves_no_debt() {
    let rounds = std::env::var("ROUNDS").map_or(200, |n| n.parse().unwrap());
    let mut plans = 0;
    for seed in 1..=rounds {
        let mut world = tree(&mut Dice(seed * 0x9E37_79B9 + 1));
        plans += world.settle().len() as u64;
        let debts = world.debts();
        assert!(debts.iter().all(|debt| *debt == 0), "seed {seed}: {debts:?}: {:?}", world.settings);
    }
    assert!(plans > rounds / 2, "{plans} plans");
}
