//! Compaction: plan, run, install.
//!
//! ```text
//!   version --plan::pick--> CompactionPlan --rewrite::run--> tables --install--> version
//!              (pure)                        (one merge loop)
//! ```
//!
//! Two levels for now. Level 1 holds what flushes wrote, newest first, overlapping; level 2 is one sorted run of disjoint
//! tables. When level 1 has `l1_tables_trigger` tables, all of it is merged with the tables of level 2 that it overlaps; when
//! it overlaps nothing, tables only change their level. Further plans (dividing and partitioned merges) join `plan.rs`.

pub mod policy;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use plan::{CompactionPlan, PlanKind, pick};
pub use run::{everything, run, within};
