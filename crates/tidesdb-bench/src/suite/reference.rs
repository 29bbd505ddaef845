//! The suites of the reference tool, test by test, with its names, sizes and settings, so that figures can be
//! compared. Its "random" is our `stride`, its values are the sawtooth, its databases are not settled before reads.
//! Our keys of the zipfian tests follow the same distribution, not the same sequence.

use crate::keys::Pattern::{self, Seq, Stride, Zipfian};
use crate::spec::Workload::{self, Delete, Mixed, Range, Read, Seek, Write};
use crate::spec::{Durability, Spec};
use crate::values::Filling;

const M: u64 = 1_000_000;
const K: u64 = 1000;

/// Settings shared by all rows of the reference tool.
fn reference(cache: u64) -> Spec {
    Spec {
        filling: Filling::Sawtooth,
        theta: 1.3,
        theta_offset: 0.99,
        settle: false,
        durability: Durability::Os,
        cache,
        batch: 1000,
        ..Spec::default()
    }
}

/// A row of the reference tool: name, workload, pattern, operations, threads.
type Row = (&'static str, Workload, Pattern, u64, usize);

/// Returns a row with its special settings.
fn special(
    base: &Spec,
    (name, workload, pattern, ops, threads): Row,
    change: impl FnOnce(&mut Spec),
) -> Spec {
    let mut spec = Spec { name: name.to_owned(), workload, pattern, ops, threads, ..base.clone() };
    change(&mut spec);
    spec
}

fn plain(base: &Spec, rows: &[Row]) -> Vec<Spec> {
    rows.iter().map(|row| special(base, *row, |_| ())).collect()
}

fn batches(base: &Spec, rows: &[(Row, u64)]) -> Vec<Spec> {
    rows.iter().map(|(row, batch)| special(base, *row, |s| s.batch = *batch)).collect()
}

fn ranges(base: &Spec, rows: &[(Row, u64)]) -> Vec<Spec> {
    rows.iter().map(|(row, range)| special(base, *row, |s| s.range = *range)).collect()
}

fn sizes(base: &Spec, rows: &[(Row, usize, usize)]) -> Vec<Spec> {
    let row = |(row, key, value): &(Row, usize, usize)| {
        special(base, *row, |s| (s.key_bytes, s.value_bytes) = (*key, *value))
    };
    rows.iter().map(row).collect()
}

/// Returns tests 1 to 12.
pub(super) fn old() -> Vec<Spec> {
    let base = reference(64 << 20);
    [
        plain(
            &base,
            &[
                ("write_seq_10M_t8_b1000", Write, Seq, 10 * M, 8),
                ("write_random_10M_t8_b1000", Write, Stride, 10 * M, 8),
                ("read_random_10M_t8", Read, Stride, 10 * M, 8),
                ("mixed_random_5M_t8_b1000", Mixed, Stride, 5 * M, 8),
                ("write_zipfian_5M_t8_b1000", Write, Zipfian, 5 * M, 8),
                ("mixed_zipfian_5M_t8_b1000", Mixed, Zipfian, 5 * M, 8),
                ("delete_random_5M_t8_b1000", Delete, Stride, 5 * M, 8),
            ],
        ),
        sizes(
            &base,
            &[
                (("write_large_values_1M_k256_v4096_t8_b1000", Write, Stride, M, 8), 256, 4096),
                (("write_small_values_50M_k16_v64_t8_b1000", Write, Stride, 50 * M, 8), 16, 64),
            ],
        ),
        batches(
            &base,
            &[
                (("batch_1_10M_t8", Write, Stride, 10 * M, 8), 1),
                (("batch_10_10M_t8", Write, Stride, 10 * M, 8), 10),
                (("batch_100_10M_t8", Write, Stride, 10 * M, 8), 100),
                (("batch_1000_10M_t8", Write, Stride, 10 * M, 8), 1000),
                (("batch_10000_10M_t8", Write, Stride, 10 * M, 8), 10_000),
                (("delete_batch_1_5M_t8", Delete, Stride, 5 * M, 8), 1),
                (("delete_batch_100_5M_t8", Delete, Stride, 5 * M, 8), 100),
                (("delete_batch_1000_5M_t8", Delete, Stride, 5 * M, 8), 1000),
            ],
        ),
        plain(
            &base,
            &[
                ("seek_random_5M_t8", Seek, Stride, 5 * M, 8),
                ("seek_seq_5M_t8", Seek, Seq, 5 * M, 8),
                ("seek_zipfian_5M_t8", Seek, Zipfian, 5 * M, 8),
            ],
        ),
        ranges(
            &base,
            &[
                (("range_random_100_1M_t8", Range, Stride, M, 8), 100),
                (("range_random_1000_500K_t8", Range, Stride, 500 * K, 8), 1000),
                (("range_seq_100_1M_t8", Range, Seq, M, 8), 100),
            ],
        ),
    ]
    .concat()
}

/// Returns tests 1 to 12 with a cache of 64 MiB, 13 to 25 with 6 GB.
pub(super) fn standard() -> Vec<Spec> {
    let base = reference(6 << 30);
    let durable = Spec { durability: Durability::Device, ..base.clone() };
    [old(), large(&base), durable_writes(&durable)].concat()
}

/// Returns tests 13 to 24.
fn large(base: &Spec) -> Vec<Spec> {
    [
        plain(
            base,
            &[
                ("write_seq_40M_t16_b1000", Write, Seq, 40 * M, 16),
                ("write_random_40M_t16_b1000", Write, Stride, 40 * M, 16),
                ("read_random_40M_t16", Read, Stride, 40 * M, 16),
                ("mixed_random_20M_t16_b1000", Mixed, Stride, 20 * M, 16),
                ("write_zipfian_20M_t16_b1000", Write, Zipfian, 20 * M, 16),
                ("mixed_zipfian_20M_t16_b1000", Mixed, Zipfian, 20 * M, 16),
                ("delete_random_20M_t16_b1000", Delete, Stride, 20 * M, 16),
            ],
        ),
        sizes(
            base,
            &[
                (("write_large_values_4M_k256_v4096_t16_b1000", Write, Stride, 4 * M, 16), 256, 4096),
                (("write_small_values_200M_k16_v64_t16_b1000", Write, Stride, 200 * M, 16), 16, 64),
            ],
        ),
        batches(
            base,
            &[
                (("batch_1_40M_t16", Write, Stride, 40 * M, 16), 1),
                (("batch_100_40M_t16", Write, Stride, 40 * M, 16), 100),
                (("batch_1000_40M_t16", Write, Stride, 40 * M, 16), 1000),
                (("delete_batch_1_20M_t16", Delete, Stride, 20 * M, 16), 1),
                (("delete_batch_1000_20M_t16", Delete, Stride, 20 * M, 16), 1000),
            ],
        ),
        plain(
            base,
            &[
                ("seek_random_20M_t16", Seek, Stride, 20 * M, 16),
                ("seek_seq_20M_t16", Seek, Seq, 20 * M, 16),
                ("seek_zipfian_20M_t16", Seek, Zipfian, 20 * M, 16),
            ],
        ),
        ranges(
            base,
            &[
                (("range_random_100_4M_t16", Range, Stride, 4 * M, 16), 100),
                (("range_random_1000_2M_t16", Range, Stride, 2 * M, 16), 1000),
                (("range_seq_100_4M_t16", Range, Seq, 4 * M, 16), 100),
            ],
        ),
    ]
    .concat()
}

/// Returns test 25.
fn durable_writes(base: &Spec) -> Vec<Spec> {
    plain(
        base,
        &[
            ("sync_write_random_25K_t1_b1000", Write, Stride, 25 * K, 1),
            ("sync_write_random_50K_t4_b1000", Write, Stride, 50 * K, 4),
            ("sync_write_random_100K_t8_b1000", Write, Stride, 100 * K, 8),
            ("sync_write_random_500K_t16_b1000", Write, Stride, 500 * K, 16),
        ],
    )
}

pub(super) fn synced() -> Vec<Spec> {
    let base = Spec { durability: Durability::Device, ..reference(64 << 20) };
    [
        plain(
            &base,
            &[
                ("write_seq_2M_t8_b1000", Write, Seq, 2 * M, 8),
                ("write_random_2M_t8_b1000", Write, Stride, 2 * M, 8),
                ("read_random_2M_t8", Read, Stride, 2 * M, 8),
                ("mixed_random_1M_t8_b1000", Mixed, Stride, M, 8),
                ("write_zipfian_1M_t8_b1000", Write, Zipfian, M, 8),
                ("mixed_zipfian_1M_t8_b1000", Mixed, Zipfian, M, 8),
                ("delete_random_1M_t8_b1000", Delete, Stride, M, 8),
            ],
        ),
        sizes(
            &base,
            &[
                (("write_large_values_200K_k256_v4096_t8_b1000", Write, Stride, 200 * K, 8), 256, 4096),
                (("write_small_values_2M_k16_v64_t8_b1000", Write, Stride, 2 * M, 8), 16, 64),
            ],
        ),
        batches(
            &base,
            &[
                (("batch_1_2M_t8", Write, Stride, 2 * M, 8), 1),
                (("batch_10_2M_t8", Write, Stride, 2 * M, 8), 10),
                (("batch_100_2M_t8", Write, Stride, 2 * M, 8), 100),
                (("batch_1000_2M_t8", Write, Stride, 2 * M, 8), 1000),
                (("batch_10000_2M_t8", Write, Stride, 2 * M, 8), 10_000),
                (("delete_batch_1_1M_t8", Delete, Stride, M, 8), 1),
                (("delete_batch_100_1M_t8", Delete, Stride, M, 8), 100),
                (("delete_batch_1000_1M_t8", Delete, Stride, M, 8), 1000),
            ],
        ),
        plain(
            &base,
            &[
                ("seek_random_1M_t8", Seek, Stride, M, 8),
                ("seek_seq_1M_t8", Seek, Seq, M, 8),
                ("seek_zipfian_1M_t8", Seek, Zipfian, M, 8),
            ],
        ),
        ranges(
            &base,
            &[
                (("range_random_100_200K_t8", Range, Stride, 200 * K, 8), 100),
                (("range_random_1000_100K_t8", Range, Stride, 100 * K, 8), 1000),
                (("range_seq_100_200K_t8", Range, Seq, 200 * K, 8), 100),
            ],
        ),
    ]
    .concat()
}
