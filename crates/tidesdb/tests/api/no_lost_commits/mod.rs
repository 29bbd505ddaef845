//! No acknowledged commit is lost: by a kill, a power failure, a close, or the loss of a folder that has a copy. A batch is recovered
//! completely or not at all.

mod batches;
mod checkpoints;
mod close_races;
pub(crate) mod close_timeouts;
mod closing;
mod destroy;
mod durability;
mod empty_commits;
mod generation_crashes;
mod generation_stores;
pub(crate) mod generations;
mod handles;
mod ingest;
mod ingest_edges;
mod ingest_places;
mod ingest_traps;
mod lost_logs;
mod remote;
mod remote_crashes;
