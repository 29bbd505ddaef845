//! Exact isolation: each level allows exactly the documented anomalies, with no missed and no false conflicts.

mod concurrency;
mod footprints;
mod isolation;
mod old_values;
mod savepoints;
mod transactions;
