//! Which compactions are due: pure functions of a picture of the tree.
//!
//! ```text
//!   Tree + Settings --CompactionPolicy::pick--> Plan --executor--> new tables --install--> next Tree
//! ```
//!
//! A [`Tree`] describes the tables of one family: level, key range, sizes, counts, and whether a running job uses them. A
//! [`Plan`] names input tables, the target level and where outputs are cut. Nothing here reads a file, a clock or an option
//! of the database, so that the same policies run in the engine, in tests from text scripts, and in a simulation of sizes.
//!
//! [`Spooky`] is the default. [`Leveled`] and [`Fifo`] use the same interface.

mod division;
mod fifo;
#[cfg(test)]
mod histories;
mod leveled;
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

pub use fifo::Fifo;
pub use leveled::Leveled;
pub use picture::{Claim, KeyRange, TableView, Tree};
pub use plan::{Cause, Plan, PlanKind};
pub use settings::PolicySettings;
pub use shape::Shape;
pub use spooky::Spooky;

/// Decides which compaction runs next.
pub trait CompactionPolicy: Send + Sync {
    /// The most urgent compaction that uses no table and no range of a running job; `None` if none is due.
    fn pick(&self, tree: &Tree<'_>, settings: &PolicySettings) -> Option<Plan>;

    /// Up to `want` compactions that can run at the same time, most urgent first.
    fn plans(&self, tree: &Tree<'_>, settings: &PolicySettings, want: usize) -> Vec<Plan> {
        let mut tree = tree.clone();
        let mut plans = Vec::new();
        while plans.len() < want
            && let Some(plan) = self.pick(&tree, settings)
        {
            tree.claim(&plan);
            plans.push(plan);
        }
        plans
    }
}
