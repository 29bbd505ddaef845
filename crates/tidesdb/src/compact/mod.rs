//! Compaction: plan, run, install.
//!
//! ```text
//!   version --plan::next--> CompactionPlan --rewrite::run--> tables --install--> version
//!              (pure)                        (one merge loop)
//! ```
//!
//! Level 1 holds what flushes wrote, newest first, overlapping; each deeper level is one sorted run of disjoint tables. Which
//! compaction is due is decided in `policy/`; several of one family run at the same time if they share no table and write to
//! different key ranges of a level (`family/claims.rs`).

pub mod policy;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use plan::CompactionPlan;
pub use run::{everything, run, within};
