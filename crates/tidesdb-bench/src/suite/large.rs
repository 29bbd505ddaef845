//! Values of a gigabyte, and data that is larger than memory.
//!
//! The memory is a supposed one: cache and memtable have the shares of it that the reference gives them, and the data is
//! twice as large. The page cache is not limited by this; a limit on the process from outside does that.

use crate::keys::Pattern::{self, Random, Scrambled, Seq};
use crate::spec::Workload::{self, Delete, Range, Read, Seek, Write};
use crate::spec::{Blend, Spec};

/// Put, get, and ranges of ten over ten values of 1 GiB.
pub(super) fn gigabyte() -> Vec<Spec> {
    let base = Spec {
        pattern: Seq,
        ops: 10,
        threads: 1,
        key_bytes: 256,
        value_bytes: 1 << 30,
        range: 10,
        cache: 64 << 20,
        ..Spec::default()
    };
    let row = |name: &str, workload| Spec { name: name.to_owned(), workload, ..base.clone() };
    vec![
        row("large_value_1gb_put", Write),
        row("large_value_1gb_get", Read),
        row("large_value_1gb_range_10", Range),
    ]
}

/// The memory that the suite supposes.
const MEMORY: u64 = 1 << 30;
/// Data in units of it.
const TIMES: u64 = 2;
const KEY: usize = 16;
const VALUE: usize = 100;

/// Stages over one database. Keys are spread over all bits and every read finds its key; the reference reads keys of another
/// form than it wrote, which are not there.
pub(super) fn larger_than_memory() -> Vec<Spec> {
    let keys = TIMES * MEMORY / (KEY + VALUE) as u64;
    let tenth = keys / 10;
    let base = Spec {
        database: "larger-than-memory".to_owned(),
        keys,
        threads: 4,
        key_bytes: KEY,
        value_bytes: VALUE,
        cache: MEMORY / 4,
        memtable: MEMORY / 8,
        ..Spec::default()
    };
    let row = |name: &str, workload: Workload, pattern: Pattern, ops: u64| Spec {
        name: format!("ltm_2x_{name}"),
        workload,
        pattern,
        ops,
        ..base.clone()
    };
    let blend = |name, pattern, blend, ops| Spec { blend, ..row(name, Workload::Blend, pattern, ops) };
    let none = Blend::default();
    vec![
        Spec { batch: 10_000, ..row("ingest", Write, Random, keys) },
        row("warmup", Read, Random, tenth),
        row("read_random", Read, Random, tenth),
        row("read_zipfian", Read, Scrambled, tenth),
        row("seek_random", Seek, Random, tenth),
        row("seek_zipfian", Seek, Scrambled, tenth),
        row("range_100", Range, Random, tenth / 10),
        Spec { range: 1000, ..row("range_1000", Range, Random, tenth / 20) },
        blend("mixed_random", Random, Blend { read: 50, update: 50, ..none }, tenth),
        blend("mixed_zipfian", Scrambled, Blend { read: 50, update: 50, ..none }, tenth),
        blend("write_random_extra", Random, Blend { update: 100, ..none }, keys / 20),
        Spec { batch: 1000, ..row("delete_random", Delete, Random, keys / 20) },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::named;
    use super::*;

    #[test]
    fn the_data_is_twice_the_memory_at_every_scale() {
        for scale in [1.0, 0.01] {
            let rows = named("larger-than-memory").unwrap().rows(scale);
            let data = rows[0].population() * rows[0].entry_bytes();
            let memory = MEMORY as f64 * scale;
            assert!((data as f64 / memory - 2.0).abs() < 0.01, "{data}");
            assert!((rows[0].cache as f64 / memory - 0.25).abs() < 0.01);
            assert!(rows.iter().all(|row| row.is_stage() && row.population() == rows[0].population()));
            assert_eq!(rows[0].ops, rows[0].population());
        }
    }

    #[test]
    fn large_values_are_scaled_and_their_number_is_not() {
        let rows = named("1gb").unwrap().rows(0.001);
        assert!(rows.iter().all(|row| row.ops == 10 && row.value_bytes == 1_073_741));
    }
}
