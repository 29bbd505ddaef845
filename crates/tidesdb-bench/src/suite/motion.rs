//! Motion: what puts and reads cost while the tree changes. All keys are put one by one, overwritten one by one, and read at once through
//! held cursors; then the engine comes to rest, and the reads are repeated.

use crate::keys::Pattern::Random;
use crate::spec::{Spec, Workload};

/// Name of the suite, and of the row that has memory enough.
pub const NAME: &str = "motion";
/// The row whose process has 1 GiB of memory, for less than twice as much data in two versions.
pub const SMALL: &str = "motion_1gib";

/// Seconds of the reads in motion; those at rest take half of it.
const READS: f64 = 60.0;

pub(super) fn rows() -> Vec<Spec> {
    let row = |name: &str, keys: u64| Spec {
        name: name.to_owned(),
        workload: Workload::Motion,
        watched: true,
        seconds: READS,
        ops: keys,
        keys,
        threads: 2,
        pattern: Random,
        ..Spec::default()
    };
    vec![row(NAME, 40_000_000), Spec { memory: 1 << 30, value_bytes: 200, ..row(SMALL, 10_000_000) }]
}
