//! Eight families under load, one of them a hundred times as large as the others: none may wait much longer for its
//! merges and its puts than it does alone.

use crate::keys::Pattern::Random;
use crate::spec::{FAMILIES_MAX, Spec, Workload};

/// Name of the suite.
pub const NAME: &str = "families";

/// The large family alone.
pub const LARGE: &str = "families_large_alone";
/// One small family alone.
pub const SMALL: &str = "families_small_alone";
/// All families at once.
pub const TOGETHER: &str = "families_together";

const SMALL_KEYS: u64 = 100_000;
/// Size of the large family, as a multiple of a small one.
const TIMES: u64 = 100;
const SECONDS: f64 = 60.0;
/// Puts per second of each family: no more than the engine can merge with all families at once.
const RATE: f64 = 10_000.0;

pub(super) fn rows() -> Vec<Spec> {
    let row = |name: &str, families: Vec<u64>| Spec {
        name: name.to_owned(),
        workload: Workload::Families,
        watched: true,
        ops: families.iter().sum(),
        keys: families.iter().sum(),
        seconds: SECONDS,
        rate: RATE * families.len() as f64,
        threads: families.len(),
        families,
        batch: 10,
        pattern: Random,
        memtable: 1 << 20,
        ..Spec::default()
    };
    let large = TIMES * SMALL_KEYS;
    let mut together = vec![large];
    together.resize(FAMILIES_MAX, SMALL_KEYS);
    vec![row(SMALL, vec![SMALL_KEYS]), row(LARGE, vec![large]), row(TOGETHER, together)]
}
