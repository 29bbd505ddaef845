//! Readers beside the writer: each read shows one consistent state, in this process and in others, whatever is written meanwhile.

mod batched_reads;
mod beside;
pub(crate) mod beside_steps;
mod cursors;
mod history;
mod iterators;
mod lent;
mod read_ahead;
mod reads;
mod snapshots;
mod versions;
