//! Writes without stalls: the log, flushes and merges keep up with writers. Writers wait if they must, and never forever.

mod large_batches;
mod levels;
mod log_ahead;
mod maintenance;
mod merging;
mod pressure;
mod small_buffers;
