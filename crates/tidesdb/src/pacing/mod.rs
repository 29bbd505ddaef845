//! Whether a writer must wait, and how long: what it owes, at which rate that is paid, and how writers were delayed.

mod pace;
mod backlog;
mod merge_debt;

pub use backlog::{Debt, DelayStats, FLUSH_RATE_ASSUMED, GARBAGE_RATE_ASSUMED, MERGE_RATE_ASSUMED};
pub use merge_debt::{MergeDebt, Paid};
pub use pace::Pace;
