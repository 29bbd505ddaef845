//! Random histories: the jobs that are planned run beside each other and end or fail in any order. Every key keeps
//! its answer. `ROUNDS=20000 cargo test -p tidesdb-engine jobs_beside` looks longer.

use super::model::{Dice, ENTRY_BYTES, World, settings};

#[test]
fn jobs_beside_each_other_keep_every_answer() {
    let rounds = std::env::var("ROUNDS").map_or(120, |n| n.parse().unwrap());
    for seed in 1..=rounds {
        let mut dice = Dice(seed * 0x9E37_79B9 + 1);
        let keys = dice.one_of(&[30, 200, 900]);
        let mut world = World::new(settings(&mut dice), ENTRY_BYTES);
        for _ in 0..300 {
            world.is_idle = dice.below(10) == 0;
            match dice.below(10) {
                0..4 => world.flush(&mut dice, keys),
                4..7 if world.jobs.len() < 4 => drop(world.begin()),
                9 if dice.below(4) == 0 => world.now += dice.below(10),
                9 if dice.below(16) == 0 => world.settings = settings(&mut dice),
                _ if !world.jobs.is_empty() => {
                    let at = dice.below(world.jobs.len() as u64) as usize;
                    if dice.below(10) == 0 { world.fail(at) } else { world.end(at) }
                }
                _ => {}
            }
        }
        while !world.jobs.is_empty() {
            world.end(0);
        }
        world.is_idle = seed % 2 == 0;
        world.settle();
    }
}
