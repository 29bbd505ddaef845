//! Which compactions are due: pure functions of a picture of the tree.
//!
//! ```text
//!   Tree + Settings --Spooky::pick--> Plan --executor--> new tables --install--> next Tree
//! ```
//!
//! A [`Tree`] describes the tables of one family: level, key range, sizes, counts, and whether a running job uses them. A
//! [`Plan`] names input tables, the target level and where outputs are cut. Nothing here reads a file, a clock or an option
//! of the database, so that the same code runs in the engine, in tests from text scripts, and in a simulation of sizes.

mod division;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod model;
mod picture;
mod plan;
mod settings;
#[cfg(test)]
mod settling;
mod shape;
mod spooky;
#[cfg(test)]
mod tests;

pub use picture::{Claim, KeyRange, TableView, Tree};
pub use plan::{Cause, Plan, PlanKind};
pub use settings::PolicySettings;
pub use shape::Shape;
pub use spooky::Spooky;
