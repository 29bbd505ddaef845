//! Which compactions are due: pure functions of a picture of the tree.
//!
//! ```text
//!   Tree + Settings --Planner::next--> Plan --executor--> new tables --install--> next Tree
//! ```
//!
//! A [`Tree`] describes the tables of one family: level, run, key range, sizes, counts, and whether a running job uses them. A
//! [`Plan`] names input tables, the target level and where outputs are cut. Nothing here reads a file, a clock or an option
//! of the database, so that the same code runs in the engine, in tests from text scripts, and in a simulation of sizes.

mod tree;
mod settings;
mod shape;
mod plan;
mod partitions;
mod planner;
#[cfg(test)]
mod tests;

pub use plan::{Cause, Plan, PlanKind};
pub use planner::Planner;
pub use settings::PolicySettings;
pub use shape::Shape;
pub use tree::{KeyRange, Run, TableView, Tree, join};
