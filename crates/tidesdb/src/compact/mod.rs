//! Compaction: plan, run, install.
//!
//! ```text
//!   version --plan::next--> CompactionPlan --rewrite::run--> tables --install--> version
//!              (pure)                        (one merge loop)
//! ```
//!
//! `plan.rs` asks the policy (`policy/`) which merge is due; `run.rs` carries it out and installs the result. Level 1 holds flushed
//! tables, newest first, which may overlap. Each deeper level is one sorted run of disjoint tables.

pub mod policy;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use plan::CompactionPlan;
pub use run::{everything, move_values, run, within};
