//! Sequences of calls. The bytes of an input are the choices of a script, so a change of one byte changes one choice. The disk is recovered
//! after a kill and after a power failure, and compared with the model.

use tidesdb_io::sim::{self, Image, SimDisk};

use crate::check::{self, Demand};
use crate::model::wall_millis;
use crate::rng::Rng;
use crate::script::{self, Families, Recipe};
use crate::world::{Config, Shared, World};

/// Most steps of a script.
const STEPS_MAX: usize = 300;
/// Bytes of a generated input.
const SEED_BYTES: usize = 1200;

/// Runs the script that `data` chooses: two bytes for the settings, one for the recipe and one for the power failure, then the choices.
///
/// # Panics
/// If a call fails on a healthy disk, or a recovered disk has not what was promised.
pub fn run(data: &[u8]) {
    let Some((head, choices)) = data.split_first_chunk::<4>() else { return };
    let config = Config::numbered(u64::from(u16::from_le_bytes([head[0], head[1]])));
    let recipe = Recipe::numbered(u64::from(head[2]));
    let mut rng = Rng::of_choices(choices);
    let (env, disk, _clock) = sim::env_on(SimDisk::new(1), 1);
    disk.log_ops(false);
    let promises = Shared::default();
    let mut world = match World::open(&env, config, promises.clone()) {
        Ok(world) => world,
        Err(e) => panic!("the open failed: {e}"),
    };
    let mut families = Families { live: vec![0], made: 1 };
    for n in 0..STEPS_MAX {
        if rng.choices_left() == 0 {
            break;
        }
        let step = script::step(&recipe, &mut rng, wall_millis(&*env.clock), &mut families, n);
        if let Err(e) = world.run(&step) {
            panic!("a step on a healthy disk failed: {step:?}: {e}");
        }
    }
    let promises = promises.lock().clone();
    world.abandon();
    let image = &Image::STANDARD[usize::from(head[3]) % Image::STANDARD.len()];
    for (what, disk, everything) in [
        ("a kill", disk.fork(), true),
        ("a power failure", disk.crash_image(image, u64::from(head[3])), false),
    ] {
        disk.log_ops(false);
        let (env, _, _) = sim::env_on(disk, 2);
        let demand = Demand { everything, thorough: true };
        if let Err(e) = check::recovered(&env, &config, &promises, demand) {
            panic!("after {what}: {e}");
        }
    }
}

/// Returns some scripts.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let seed = |n: u8| {
        let mut rng = Rng::new(u64::from(n));
        let choices: Vec<u8> = (0..SEED_BYTES).map(|_| (rng.next_u64() >> 56) as u8).collect();
        (format!("script-{n}"), [&[n.wrapping_mul(37), n, n, n][..], &choices].concat())
    };
    [1, 2, 4, 9, 12, 13].map(seed).into()
}
