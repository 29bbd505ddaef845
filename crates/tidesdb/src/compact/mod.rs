//! Compaction: plan, run, install.
//!
//! ```text
//!   version --plan::next--> CompactionPlan --rewrite::run--> tables --install--> version
//!              (pure)                        (one merge loop)
//! ```
//!
//! There are two levels for now. Level 1 holds flushed tables, newest first, which may overlap. Level 2 is one sorted
//! run of disjoint tables. When level 1 reaches `l1_tables_trigger` tables, all of it is merged with the level 2 tables
//! between its smallest and largest key. If nothing overlaps, tables only change their level. New kinds of plans
//! (divided and partitioned merges) belong in `plan.rs`.

pub mod policy;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use plan::CompactionPlan;
pub use run::{everything, run, within};
