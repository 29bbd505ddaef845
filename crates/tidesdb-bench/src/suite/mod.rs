//! Suites: named lists of rows.

pub mod amplification;
pub mod beyond;
pub mod churn;
pub mod families;
pub mod ingest;
mod large;
pub mod motion;
pub mod overload;
pub mod queue;
mod reference;
pub mod steady;
mod transactions;
pub mod values;

use crate::keys::Pattern;
use crate::spec::{Blend, Durability, Spec, Workload};

/// A named list of rows.
pub struct Suite {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Default number of repetitions of each row.
    pub repeat: usize,
    /// Quantity that the option `--scale` multiplies.
    scales: Scales,
    rows: fn() -> Vec<Spec>,
}

/// Quantity that the scale multiplies.
#[derive(Clone, Copy)]
enum Scales {
    /// Numbers of operations and keys.
    Operations,
    /// The size of values.
    Values,
    /// The memory limit, with keys, operations, cache and memtable; durations by the square root of the scale.
    Memory,
    /// Durations.
    Duration,
    /// Numbers of operations and keys, cache and memtable, so that the tree keeps its shape; durations by the square
    /// root of the scale.
    Tree,
    /// As `Tree`, and durations.
    Whole,
}

/// All suites.
pub const ALL: [Suite; 17] = [
    Suite {
        name: "quick",
        about: "every kind of operation, under a minute for this engine",
        repeat: 3,
        scales: Scales::Operations,
        rows: quick,
    },
    Suite {
        name: "ycsb",
        about: "the core workloads A to F of YCSB",
        repeat: 3,
        scales: Scales::Operations,
        rows: ycsb,
    },
    Suite {
        name: "standard",
        about: "the 25 tests of the reference; use --scale to fit the machine",
        repeat: 1,
        scales: Scales::Operations,
        rows: reference::standard,
    },
    Suite {
        name: "old",
        about: "the first twelve tests of the reference, with 64 MiB of cache",
        repeat: 1,
        scales: Scales::Operations,
        rows: reference::old,
    },
    Suite {
        name: "synced",
        about: "the reference's tests with durable commits",
        repeat: 1,
        scales: Scales::Operations,
        rows: reference::synced,
    },
    Suite {
        name: "1gb",
        about: "ten values of 1 GiB, as the reference; --scale multiplies the size of the values",
        repeat: 1,
        scales: Scales::Values,
        rows: large::gigabyte,
    },
    Suite {
        name: beyond::NAME,
        about: "2 GiB of data in a cgroup of 1 GiB, with a timeline; --scale multiplies both",
        repeat: 1,
        scales: Scales::Memory,
        rows: beyond::rows,
    },
    Suite {
        name: steady::NAME,
        about: "load and overwrite 40 million random keys as fast as two writers can, second by second",
        repeat: 1,
        scales: Scales::Operations,
        rows: steady::rows,
    },
    Suite {
        name: motion::NAME,
        about: "single puts and held cursors while the tree changes, and reads at once after an overwrite",
        repeat: 1,
        scales: Scales::Tree,
        rows: motion::rows,
    },
    Suite {
        name: amplification::NAME,
        about: "what merges cost: load, overwrite uniformly, overwrite by Zipf's law, with gets meanwhile",
        repeat: 1,
        scales: Scales::Tree,
        rows: amplification::rows,
    },
    Suite {
        name: families::NAME,
        about: "eight families under load, one a hundred times as large as the others, together and alone",
        repeat: 1,
        scales: Scales::Operations,
        rows: families::rows,
    },
    Suite {
        name: queue::NAME,
        about: "ten minutes of inserts at the end of a queue and deletes at its front; --scale multiplies the time",
        repeat: 1,
        scales: Scales::Duration,
        rows: queue::rows,
    },
    Suite {
        name: churn::NAME,
        about: "1 GiB of values overwritten ten times, then mostly deleted, then left alone: space and scans over time",
        repeat: 1,
        scales: Scales::Tree,
        rows: churn::rows,
    },
    Suite {
        name: overload::NAME,
        about: "five minutes of puts at twice the rate that the engine sustains, second by second",
        repeat: 1,
        scales: Scales::Whole,
        rows: overload::rows,
    },
    Suite {
        name: ingest::NAME,
        about: "30 million sorted rows as batches and as sorted tables, into an empty database and over the same keys",
        repeat: 1,
        scales: Scales::Tree,
        rows: ingest::rows,
    },
    Suite {
        name: values::NAME,
        about: "values of 4 KiB, compressible or not: written, overwritten, read in order and at random",
        repeat: 1,
        scales: Scales::Tree,
        rows: values::rows,
    },
    Suite {
        name: "transactions",
        about: "1, 10 and 1000 operations at every isolation level, with and without conflicts",
        repeat: 1,
        scales: Scales::Operations,
        rows: transactions::all,
    },
];

/// Returns the suite with that name.
pub fn named(name: &str) -> Option<&'static Suite> {
    ALL.iter().find(|suite| suite.name == name)
}

/// Separates the name of a row from the scale.
const SCALED: char = '@';

/// Returns the name of a row without its scale.
pub fn unscaled(row: &str) -> &str {
    row.split(SCALED).next().unwrap_or(row)
}

/// Minimum number of operations per thread, however small the scale.
const LEAST: u64 = 100;
/// Minimum number of transactions per thread.
const LEAST_TRANSACTIONS: u64 = 5;
/// Minimum size of scaled values, in bytes.
const LEAST_BYTES: u64 = 1 << 16;
/// Minimum size of scaled caches and memtables, in bytes.
const LEAST_BUFFER: u64 = 1 << 20;
/// Minimum size of a scaled memory limit, in bytes; the benchmark itself needs some memory.
const LEAST_MEMORY: u64 = 64 << 20;

impl Suite {
    /// Returns the rows of the suite, scaled by `scale`.
    pub fn rows(&self, scale: f64) -> Vec<Spec> {
        let times = |n: u64| (n as f64 * scale) as u64;
        let shrink = |n: u64, threads: u64| times(n).max(LEAST * threads) / threads * threads;
        let mut rows = (self.rows)();
        for row in &mut rows {
            if let Scales::Values = self.scales {
                row.value_bytes = times(row.value_bytes as u64).max(LEAST_BYTES) as usize;
                continue;
            }
            if let Scales::Duration = self.scales {
                row.seconds *= scale;
                row.name += &format!("{SCALED}{scale}");
                continue;
            }
            if let Scales::Memory | Scales::Tree | Scales::Whole = self.scales {
                row.cache = times(row.cache).max(LEAST_BUFFER);
                row.memtable = times(row.memtable).max(LEAST_BUFFER);
            }
            if let Scales::Memory = self.scales {
                row.memory = times(row.memory).max(LEAST_MEMORY);
            }
            row.seconds *= match self.scales {
                Scales::Memory | Scales::Tree => scale.sqrt(),
                Scales::Whole => scale,
                _ => 1.0,
            };
            let threads = row.threads as u64;
            row.ops = match row.workload {
                // Each transaction already has many operations.
                Workload::Transaction => times(row.ops).max(LEAST_TRANSACTIONS * threads) / threads * threads,
                _ => shrink(row.ops, threads),
            };
            if row.keys > 0 {
                row.keys = shrink(row.keys, threads);
            }
            if !row.families.is_empty() {
                row.families.iter_mut().for_each(|keys| *keys = shrink(*keys, 1));
                row.keys = row.families.iter().sum::<u64>().next_multiple_of(threads);
            }
            if self.names_scale() {
                row.name += &format!("{SCALED}{scale}");
            }
        }
        rows
    }

    /// Returns true if the names of rows end with the scale: the shape of the tree depends on it, so figures of
    /// different scales must not be compared.
    fn names_scale(&self) -> bool {
        matches!(self.scales, Scales::Tree | Scales::Whole)
            || [steady::NAME, families::NAME].contains(&self.name)
    }
}

fn quick() -> Vec<Spec> {
    let base = Spec { threads: 4, keys: 400_000, ..Spec::default() };
    let row = |name: &str, workload, ops| Spec { name: name.to_owned(), workload, ops, ..base.clone() };
    let write =
        |name, ops, batch, pattern| Spec { batch, pattern, keys: 0, ..row(name, Workload::Write, ops) };
    vec![
        write("put_seq_b1000", 2_000_000, 1000, Pattern::Seq),
        write("put_random_b1000", 1_500_000, 1000, Pattern::Random),
        write("put_random_b1", 600_000, 1, Pattern::Random),
        Spec {
            durability: Durability::Device,
            threads: 16,
            ..write("put_durable_t16", 16_000, 1, Pattern::Random)
        },
        Spec { value_bytes: 4096, ..write("put_4k_b100", 60_000, 100, Pattern::Random) },
        row("get_random", Workload::Read, 800_000),
        Spec { pattern: Pattern::Scrambled, ..row("get_zipfian", Workload::Read, 800_000) },
        row("seek_random", Workload::Seek, 600_000),
        row("range_100", Workload::Range, 40_000),
        Spec { batch: 1000, keys: 0, ..row("delete_b1000", Workload::Delete, 400_000) },
        Spec { batch: 10, ..row("churn_b10", Workload::Churn, 600_000) },
        Spec { batch: 10, keys: 0, ..row("queue_b10", Workload::Queue, 100_000) },
        Spec { pattern: Pattern::Scrambled, ..row("concurrent_50_50", Workload::Blend, 400_000) },
        Spec { batch: 100, keys: 0, ..row("kill_b100", Workload::Kill, 300_000) },
    ]
}

fn ycsb() -> Vec<Spec> {
    let none = Blend::default();
    let letters = [
        ('a', Blend { read: 50, update: 50, ..none }),
        ('b', Blend { read: 95, update: 5, ..none }),
        ('c', Blend { read: 100, ..none }),
        ('d', Blend { read: 95, insert: 5, latest: true, ..none }),
        ('e', Blend { scan: 95, insert: 5, ..none }),
        ('f', Blend { read: 50, modify: 50, ..none }),
    ];
    let row = |(letter, blend): (char, Blend)| Spec {
        name: format!("ycsb_{letter}"),
        workload: Workload::Blend,
        pattern: Pattern::Scrambled,
        blend,
        ops: if blend.scan > 0 { 200_000 } else { 2_000_000 },
        keys: 1_000_000,
        key_bytes: 24,
        value_bytes: 1000,
        threads: 4,
        ..Spec::default()
    };
    letters.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_valid_and_has_a_unique_name() {
        for suite in &ALL {
            for scale in [1.0, 0.001] {
                let rows = suite.rows(scale);
                rows.iter().for_each(|row| assert_eq!(row.check(), Ok(()), "{}", row.name));
                let names: HashSet<_> = rows.iter().map(|row| row.name.clone()).collect();
                assert_eq!(names.len(), rows.len(), "{}", suite.name);
            }
        }
    }

    #[test]
    fn the_standard_suite_is_complete() {
        let rows = named("standard").unwrap().rows(1.0);
        assert_eq!((reference::old().len(), rows.len(), reference::synced().len()), (23, 47, 23));
        let row = |name: &str| rows.iter().find(|r| r.name == name).unwrap().clone();
        assert_eq!((row("seek_zipfian_5M_t8").ops, row("seek_zipfian_5M_t8").cache), (5_000_000, 64 << 20));
        assert_eq!(row("range_seq_100_4M_t16").cache, 6 << 30);
        assert_eq!(row("sync_write_random_500K_t16_b1000").durability, Durability::Device);
        assert_eq!(named("standard").unwrap().rows(0.01)[0].ops, 100_000);
    }
}
