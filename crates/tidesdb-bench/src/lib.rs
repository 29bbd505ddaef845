//! The benchmark: workloads on an engine, each operation timed, each answer checked.
//!
//! A *row* is one workload with all its settings ([`Spec`]). It runs in its own process in a new directory
//! ([`stage`]). A [`run::Plan`] runs many rows on many engines, repeated and interleaved; [`report`] takes the
//! [`Results`] as data. A row with wrong answers has failed, whatever its speed.
//!
//! The order of the modules below is the order of the layers: a module uses only modules above its own line.
#![forbid(unsafe_code)]

// Ground: random numbers, keys, values, clock, process, memory limit, device, lines per second.
pub mod rng;
pub mod keys;
pub mod values;
pub mod measure;
pub mod process;
pub mod cgroup;
pub mod device;
pub mod timeline;
// Rows and engines.
mod isolation;
pub mod spec;
pub mod engine;
pub mod engines;
pub mod rivals;
// One row: the model, the checks, the operations, the stages.
pub mod verify;
pub mod workload;
pub mod stage;
// Many rows, and their evaluation.
pub mod suite;
mod children;
pub mod run;
pub mod report;
pub mod compare;

pub use run::Results;
pub use spec::Spec;
pub use stage::Outcome;
