//! Overload: the rate of puts that an engine sustains is measured for a minute, then twice that rate is offered for five
//! minutes. An engine must continue at the rate of its flushes and merges, without a second in which no put ends.
//!
//! The scale multiplies keys, memtable, cache and times.

use crate::keys::Pattern::Random;
use crate::spec::{Spec, Workload};

/// Name of the suite.
pub const NAME: &str = "overload";

/// Puts of 1 KB by four writers.
pub const OVERLOAD: &str = "overload_1k";

const KEYS: u64 = 2_000_000;
const SECONDS: f64 = 300.0;

pub(super) fn rows() -> Vec<Spec> {
    vec![Spec {
        name: OVERLOAD.to_owned(),
        workload: Workload::Overload,
        watched: true,
        ops: KEYS,
        keys: KEYS,
        seconds: SECONDS,
        threads: 4,
        batch: 10,
        value_bytes: 1000,
        pattern: Random,
        ..Spec::default()
    }]
}
