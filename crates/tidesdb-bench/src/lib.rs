//! Benchmark library: runs workloads on an engine, times each operation and checks each answer.
//!
//! A *row* is one workload with all its settings ([`Spec`]). Each row runs in its own process on a fresh directory
//! ([`stage`]). A [`run::Plan`] runs many rows on many engines, repeated and interleaved. [`report`] renders the
//! [`Results`]. A row that returns wrong answers has failed, whatever its speed.
//!
//! The modules below are listed from the lowest layer up: a module uses only modules above its own line.
#![forbid(unsafe_code)]

// Base layer: random numbers, keys, values, clock, process, memory limit, device.
pub mod rng;
pub mod keys;
pub mod values;
pub mod measure;
pub mod process;
pub mod cgroup;
pub mod device;
// Row definitions, the engines they run on, and the timeline of a row, second by second.
mod isolation;
pub mod spec;
pub mod engine;
pub mod rivals;
pub mod engines;
pub mod timeline;
// Execution of one row: model, checks, operations, stages.
pub mod verify;
pub mod workload;
pub mod stage;
// Execution of many rows, and reports about them.
pub mod suite;
mod children;
pub mod run;
pub mod report;
pub mod compare;
// The program.
#[cfg(feature = "program")]
pub mod program;

pub use run::Results;
pub use spec::Spec;
pub use stage::Outcome;
