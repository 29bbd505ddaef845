//! Ingest: the same sorted rows as batches of a thousand, and as sorted tables that are built and taken; by one thread and by two. Then all rows
//! once more, as tables that overlap what is there everywhere.

use crate::keys::Pattern::Seq;
use crate::spec::Spec;
use crate::spec::Workload::Overwrite;

/// Name of the suite.
pub const NAME: &str = "ingest";

const KEYS: u64 = 30_000_000;

pub(super) fn rows() -> Vec<Spec> {
    let batches = |threads| Spec {
        name: format!("{NAME}_batches_t{threads}"),
        ops: KEYS,
        threads,
        batch: 1000,
        pattern: Seq,
        ..Spec::default()
    };
    // Each thread commits once.
    let tables = |threads| Spec {
        name: format!("{NAME}_tables_t{threads}"),
        batch: KEYS,
        bulk: true,
        ..batches(threads)
    };
    let over = |row: Spec, kind| Spec {
        name: format!("{NAME}_over_{kind}"),
        workload: Overwrite,
        keys: KEYS,
        ..row
    };
    vec![batches(1), tables(1), batches(2), tables(2), over(batches(2), "batches"), over(tables(2), "tables")]
}
