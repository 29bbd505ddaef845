//! Queues: rows are inserted at the end and deleted from the front for ten minutes. Finding the front must not become
//! slower, however many rows were deleted before it.

use crate::spec::{Spec, Workload};

/// Name of the suite.
pub const NAME: &str = "queue";

/// Two queues, as fast as possible.
pub const QUEUE: &str = "queue_2_threads";

const SECONDS: f64 = 600.0;

pub(super) fn rows() -> Vec<Spec> {
    vec![Spec {
        name: QUEUE.to_owned(),
        workload: Workload::Queue,
        watched: true,
        seconds: SECONDS,
        threads: 2,
        batch: 100,
        ..Spec::default()
    }]
}
