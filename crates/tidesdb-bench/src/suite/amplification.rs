//! What merges cost: random keys are loaded, then drawn keys are overwritten, twice as many as there are keys, first
//! uniformly, then by Zipf's law. Another thread gets random keys meanwhile, as fast as it can.
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

const KEYS: u64 = 30_000_000;
const OVERWRITES: u64 = 60_000_000;

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
    vec![
        Spec { name: LOAD.to_owned(), workload: Write, ops: KEYS, pattern: Random, ..base },
        Spec { name: UNIFORM.to_owned(), pattern: Uniform, ..overwrites.clone() },
        Spec { name: ZIPF.to_owned(), pattern: Scrambled, version: OVERWRITES as u32, ..overwrites },
    ]
}
