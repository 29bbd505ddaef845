//! The cost of merges: random keys are loaded, then drawn keys are overwritten, twice as many as there are keys, first
//! uniformly, then by Zipf's law. Another thread gets random keys meanwhile: as fast as it can, or 22,000 times in each second.
//!
//! A thread that gets as fast as it can uses all free processor time, so on few processors the engine with the faster gets has less left
//! for its puts. At a fixed rate all engines have the same work to do.
//!
//! Values do not compress, so bytes on disk can be compared with the bytes of keys and values. The memtable is a small
//! part of the data, so the tree has four levels. The scale multiplies both, so the tree keeps its shape.

use crate::keys::Pattern::{Random, Scrambled, Uniform};
use crate::spec::Spec;
use crate::spec::Workload::{Write, WriteWhileReading};
use crate::values::Filling;

/// Name of the suite.
pub const NAME: &str = "amplification";

/// Puts of all keys.
pub const LOAD: &str = "amp_load";
/// Overwrites of keys drawn uniformly.
pub const UNIFORM: &str = "amp_uniform";
/// Overwrites of keys drawn by Zipf's law.
pub const ZIPF: &str = "amp_zipf";
/// Overwrites of keys drawn uniformly, with gets at a fixed rate.
pub const UNIFORM_AT: &str = "amp_uniform_22k";
/// Overwrites of keys drawn by Zipf's law, with gets at a fixed rate.
pub const ZIPF_AT: &str = "amp_zipf_22k";

/// Gets per second of the rows with a fixed rate, so that both engines do the same for readers.
const GETS: f64 = 22_000.0;

const KEYS: u64 = 30_000_000;
const OVERWRITES: u64 = 60_000_000;

pub(super) fn rows() -> Vec<Spec> {
    let base = Spec {
        database: NAME.to_owned(),
        watched: true,
        // Gets that wait for the device in the first seconds do not measure merges.
        warm: true,
        keys: KEYS,
        threads: 1,
        batch: 100,
        filling: Filling::Percent(0),
        cache: 64 << 20,
        memtable: 16 << 20,
        ..Spec::default()
    };
    let overwrites = Spec { workload: WriteWhileReading, ops: OVERWRITES, ..base.clone() };
    vec![
        Spec { name: LOAD.to_owned(), workload: Write, ops: KEYS, pattern: Random, ..base },
        Spec { name: UNIFORM.to_owned(), pattern: Uniform, ..overwrites.clone() },
        Spec {
            name: UNIFORM_AT.to_owned(),
            pattern: Uniform,
            version: OVERWRITES as u32,
            rate: GETS,
            ..overwrites.clone()
        },
        Spec {
            name: ZIPF.to_owned(),
            pattern: Scrambled,
            version: 2 * OVERWRITES as u32,
            ..overwrites.clone()
        },
        Spec {
            name: ZIPF_AT.to_owned(),
            pattern: Scrambled,
            version: 3 * OVERWRITES as u32,
            rate: GETS,
            ..overwrites
        },
    ]
}
