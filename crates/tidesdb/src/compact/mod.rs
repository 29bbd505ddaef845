//! Compaction: plan, run, install.
//!
//! ```text
//!   version --plan::next--> CompactionPlan --rewrite::run--> tables --install--> version
//!          (policy is pure)             (one merge loop, in parts)
//! ```
//!
//! `plan.rs` asks the policy (`policy/`) which merge is due; `run.rs` carries it out and installs the result; `parts.rs`
//! divides the rewrite over threads; `manual.rs` divides
//! what a user asks for into several merges. Level 1 holds flushed tables, newest first, which may overlap. A deeper level holds
//! one sorted run of disjoint tables; the tiered level holds several.

pub mod policy;
mod plan;
mod levels;
mod record;
mod split;
mod parts;
mod run;
mod manual;
mod taken;
#[cfg(test)]
mod tests;

pub use levels::{Layout, LayoutTable, LevelStats, TreeStats, stored_layout, stored_tree, tree};
pub use manual::{everything, within};
pub use plan::CompactionPlan;
pub use run::{is_due, move_values, run};
pub use taken::{TakenPlaces, place_taken};
