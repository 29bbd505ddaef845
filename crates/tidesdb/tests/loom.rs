//! Models of the protocols of the engine, explored in every schedule:
//! `LOOM_MAX_PREEMPTIONS=2 RUSTFLAGS="--cfg loom" cargo test -p tidesdb-engine --test loom --release`.
//!
//! The order of commits, the list of snapshots and the rules of a merge are the engine's own; a small array stands in for log
//! and memtables. The ring of the sequencer has four slots here, so that a handful of commits fills it and wraps around.
#![cfg(loom)]

mod models;
