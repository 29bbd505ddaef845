//! Tests of the engine through its public API only: one file per subject, each test short.
#![expect(clippy::big_endian_bytes, reason = "numbers as keys, in their order")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

mod batched_reads;
mod batches;
mod beside;
mod beside_steps;
mod beyond_memory;
mod checkpoints;
mod clock;
mod clones;
mod closing;
mod comparators;
mod concurrency;
mod cursors;
mod deletes;
mod durability;
mod estimates;
mod events;
mod expiry;
mod filters;
mod history;
mod isolation;
mod families;
mod footprints;
mod iterators;
mod large_batches;
mod lent;
mod levels;
mod maintenance;
mod memory;
mod merge_operators;
mod merging;
mod metrics;
mod opening;
mod pressure;
mod ranges;
mod recovery;
mod read_ahead;
mod reads;
mod remote;
mod remote_crashes;
mod settings;
mod snapshots;
mod space;
mod statistics;
mod transactions;
mod unresolved;
mod unresolved_crashes;
mod verify;
mod stored_scans;
mod stream_faults;
mod streams;
mod value_space;
mod versions;
