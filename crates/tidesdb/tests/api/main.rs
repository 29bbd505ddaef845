//! Tests of the engine through its public API only: one folder per promise of `docs/start/promises.md`, one file per subject, each test short.
//!
//! | folder | promise |
//! | --- | --- |
//! | `no_silent_damage` | no silent damage, and no change by a call that fails |
//! | `no_lost_commits` | no acknowledged commit is lost: logs, batches, closes, copies |
//! | `quick_opens` | a quick open after a kill |
//! | `readers_beside_the_writer` | readers beside the writer: reads, cursors, snapshots, other processes |
//! | `writes_without_stalls` | writes without stalls: flushes, merges, the log |
//! | `memory_limit` | memory that obeys a number |
//! | `space_that_comes_back` | disk space that comes back |
//! | `large_values` | large values beside small ones |
//! | `deletes_and_scans` | deletes that do not slow down scans: tombstones, ranges, expiry |
//! | `counters_without_reads` | counters without reads: merge operators, compaction filters |
//! | `few_settings` | few settings: families, their settings and orders of keys |
//! | `exact_isolation` | exact isolation: transactions, savepoints, threads |
//! | `verified_figures` | figures that can be verified: statistics, metrics, events |
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test may use threads and files")]
#![expect(clippy::big_endian_bytes, reason = "numbers as keys, in their order")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

mod no_silent_damage;
mod no_lost_commits;
mod quick_opens;
mod readers_beside_the_writer;
mod writes_without_stalls;
mod memory_limit;
mod space_that_comes_back;
mod large_values;
mod deletes_and_scans;
mod counters_without_reads;
mod few_settings;
mod exact_isolation;
mod verified_figures;
