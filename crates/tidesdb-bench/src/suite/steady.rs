//! Steady load: a load of random keys, then overwrites at random, as fast as two writers can. What matters is the
//! slowest second and the slowest put, not the mean.

use crate::keys::Pattern::Random;
use crate::spec::Spec;
use crate::spec::Workload::{self, Overwrite, Write};

/// Name of the suite.
pub const NAME: &str = "steady";

/// Puts of all keys.
pub const LOAD: &str = "steady_load";
/// Overwrite of all keys, each once.
pub const OVERWRITE: &str = "steady_overwrite";

const KEYS: u64 = 40_000_000;

pub(super) fn rows() -> Vec<Spec> {
    let row = |name: &str, workload: Workload| Spec {
        name: name.to_owned(),
        workload,
        database: NAME.to_owned(),
        watched: true,
        ops: KEYS,
        keys: KEYS,
        threads: 2,
        batch: 100,
        pattern: Random,
        ..Spec::default()
    };
    vec![row(LOAD, Write), row(OVERWRITE, Overwrite)]
}
