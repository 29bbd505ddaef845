//! What merges cost: random keys are loaded, then drawn keys are overwritten, twice as many as there are keys, first
//! uniformly, then by Zipf's law. Another thread gets random keys meanwhile, as fast as it can.
//!
//! Where every processor is busy, an engine with fast gets pays for them with puts. So two more rows overwrite half as
//! many keys while gets come at a given rate, the same for every engine: there the puts compare.
//!
//! Values do not compress, so bytes on disk compare with the bytes of keys and values. The memtable is a small part of
//! the data, so the tree has four levels. The scale multiplies both, so the tree keeps its shape.

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
/// Overwrites of keys drawn uniformly, while gets come at a given rate.
pub const UNIFORM_PACED: &str = "amp_uniform_paced_gets";
/// The same by Zipf's law.
pub const ZIPF_PACED: &str = "amp_zipf_paced_gets";

const KEYS: u64 = 30_000_000;
const OVERWRITES: u64 = 60_000_000;
/// Gets per second of the rows with a rate.
const GETS: f64 = 20_000.0;

pub(super) fn rows() -> Vec<Spec> {
    let base = Spec {
        database: NAME.to_owned(),
        watched: true,
        keys: KEYS,
        threads: 1,
        batch: 100,
        filling: Filling::Percent(0),
        cache: 64 << 20,
        memtable: 16 << 20,
        ..Spec::default()
    };
    let overwrites = Spec { workload: WriteWhileReading, ops: OVERWRITES, ..base.clone() };
    let row = |name: &str, pattern, done: u64| Spec {
        name: name.to_owned(),
        pattern,
        version: done as u32,
        ..overwrites.clone()
    };
    let paced = |row: Spec| Spec { ops: OVERWRITES / 2, rate: GETS, ..row };
    vec![
        Spec { name: LOAD.to_owned(), workload: Write, ops: KEYS, pattern: Random, ..base },
        row(UNIFORM, Uniform, 0),
        row(ZIPF, Scrambled, OVERWRITES),
        paced(row(UNIFORM_PACED, Uniform, 2 * OVERWRITES)),
        paced(row(ZIPF_PACED, Scrambled, 2 * OVERWRITES + OVERWRITES / 2)),
    ]
}
