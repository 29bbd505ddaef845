//! Steady load: a load of random keys, then overwrites at random, as fast as two writers can. What matters is the
//! slowest second and the slowest put, not the mean. Then what reads cost in a tree that has just been written, and in one
//! that is being written.

use crate::keys::Pattern::Random;
use crate::spec::Spec;
use crate::spec::Workload::{self, Overwrite, ProbeAfter, ProbeBeside, Write};

/// Name of the suite.
pub const NAME: &str = "steady";

/// Puts of all keys.
pub const LOAD: &str = "steady_load";
/// Overwrite of all keys, each once.
pub const OVERWRITE: &str = "steady_overwrite";

/// One more overwrite of all keys, then reads without writes.
pub const AFTER: &str = "steady_reads_after";
/// Reads beside two writers at half of the rate that they can keep.
pub const BESIDE: &str = "steady_reads_beside";

const KEYS: u64 = 40_000_000;
/// Duration of the reads, in seconds.
const READS: f64 = 60.0;

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
    // The versions of keys are those that the rows before have left; the files are in the page cache.
    let reads = |name, workload, version| Spec { seconds: READS, version, warm: true, ..row(name, workload) };
    vec![
        row(LOAD, Write),
        row(OVERWRITE, Overwrite),
        reads(AFTER, ProbeAfter, 1),
        reads(BESIDE, ProbeBeside, 2),
    ]
}
