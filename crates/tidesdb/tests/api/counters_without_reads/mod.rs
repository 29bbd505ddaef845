//! Counters without reads: `merge` writes an operand without a read, and every read combines operands. A compaction filter changes only rows
//! that no snapshot sees.

mod filters;
mod merge_added;
mod merge_checks;
mod merge_copies;
mod merge_edges;
mod merge_histories;
mod merge_operators;
