//! Churn: 1 GiB of values is overwritten ten times in one open database, nine tenths are deleted, queues run for a
//! minute, and a minute without writes follows. The space of dead values must be freed meanwhile, and scans must not
//! become slower.
//!
//! Values do not compress, so bytes on disk can be compared with the bytes of keys and values. The scale multiplies the
//! data, the memtable and the files of values, so that the bound on space means the same; the times grow with its square
//! root.

use crate::spec::{Spec, Workload};
use crate::values::Filling;

/// Name of the suite.
pub const NAME: &str = "churn";

/// Values of 4 KiB.
pub const CHURN: &str = "churn_4k";

const VALUE: usize = 4096;
const KEYS: u64 = (1 << 30) / VALUE as u64;
const ROUNDS: u64 = 10;
const SECONDS: f64 = 60.0;

pub(super) fn rows() -> Vec<Spec> {
    vec![Spec {
        name: CHURN.to_owned(),
        workload: Workload::Turnover,
        watched: true,
        ops: ROUNDS * KEYS,
        keys: KEYS,
        seconds: SECONDS,
        threads: 2,
        batch: 100,
        range: 1000,
        value_bytes: VALUE,
        filling: Filling::Percent(0),
        ..Spec::default()
    }]
}

#[cfg(test)]
mod tests {
    use super::super::named;
    use super::*;

    #[test]
    fn the_data_is_sixteen_memtables_at_every_scale() {
        for scale in [1.0, 0.25, 0.1] {
            let row = &named(NAME).unwrap().rows(scale)[0];
            let data = (row.population() * row.value_bytes as u64) as f64;
            assert!((data / row.memtable as f64 - 16.0).abs() < 0.01, "{data}");
            assert_eq!((row.ops as f64 / row.population() as f64).round() as u64, ROUNDS);
            assert!((row.seconds / scale.sqrt() - SECONDS).abs() < 1e-9);
            assert_eq!(row.name, format!("{CHURN}@{scale}"));
        }
    }
}
