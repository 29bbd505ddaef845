//! Data larger than memory: one database of twice the memory limit. Each stage runs in its own process within the
//! limit, on files that were dropped from the page cache.
//!
//! Gets and scans start cold: the process is new, and pages that the previous stage left in the page cache were
//! dropped. The background work of a stage is done before the next stage.

use crate::keys::Pattern::{Random, Uniform};
use crate::spec::Spec;
use crate::spec::Workload::{self, Iterate, MultiGet, Overwrite, Read, ReadWhileWriting, Write};

/// Name of the suite.
pub const NAME: &str = "beyond-memory";

/// Puts of all keys.
pub const LOAD: &str = "beyond_load";
/// Overwrite of all keys.
pub const OVERWRITE: &str = "beyond_overwrite";
/// Gets of random keys.
pub const GET: &str = "beyond_get";
/// Multi-gets of 32 random keys.
pub const MULTIGET: &str = "beyond_multiget_32";
/// Scan of all rows.
pub const SCAN: &str = "beyond_scan";
/// Gets of random keys, while another thread overwrites at a fixed rate.
pub const GET_WHILE_WRITING: &str = "beyond_get_while_writing";

const MEMORY: u64 = 1 << 30;
const KEYS: u64 = 10_000_000;
const SECONDS: f64 = 60.0;
/// Puts per second during the gets. It is below the limit of every engine, so that all do the same work.
const BESIDE: f64 = 30_000.0;

pub(super) fn rows() -> Vec<Spec> {
    let base = Spec {
        database: NAME.to_owned(),
        memory: MEMORY,
        watched: true,
        ops: KEYS,
        keys: KEYS,
        threads: 2,
        batch: 100,
        key_bytes: 16,
        value_bytes: 200,
        pattern: Random,
        cache: 64 << 20,
        memtable: 64 << 20,
        ..Spec::default()
    };
    let row = |name: &str, workload: Workload| Spec { name: name.to_owned(), workload, ..base.clone() };
    // After the overwrite, all values are of version 1.
    let after = |name, workload| Spec { version: 1, ..row(name, workload) };
    let timed = |name, workload| Spec { seconds: SECONDS, ..after(name, workload) };
    vec![
        row(LOAD, Write),
        row(OVERWRITE, Overwrite),
        Spec { pattern: Uniform, batch: 1, ..timed(GET, Read) },
        Spec { pattern: Uniform, batch: 32, ..timed(MULTIGET, MultiGet) },
        after(SCAN, Iterate),
        Spec { rate: BESIDE, ..timed(GET_WHILE_WRITING, ReadWhileWriting) },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::named;
    use super::*;

    #[test]
    fn the_data_is_twice_the_memory_at_every_scale() {
        for scale in [2.0, 1.0, 0.1] {
            let rows = named(NAME).unwrap().rows(scale);
            let data = rows[0].population() * rows[0].entry_bytes();
            let memory = MEMORY as f64 * scale;
            assert!((data as f64 / memory - 2.0).abs() < 0.02, "{data}");
            for row in &rows {
                assert!(row.is_stage() && row.watched && row.population() == rows[0].population());
                assert_eq!((row.memory as f64 / memory * 100.0).round(), 100.0);
                assert_eq!(((row.cache * 16) as f64 / memory * 100.0).round(), 100.0);
            }
            assert!((rows[2].seconds / scale.sqrt() - SECONDS).abs() < 1e-9);
        }
        let least = &named(NAME).unwrap().rows(0.001)[0];
        assert_eq!((least.memory, least.ops), (64 << 20, 10_000), "the limit leaves room for the process");
    }
}
