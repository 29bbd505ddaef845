//! Versions: which tables and value logs exist, and at which level.
//!
//! ```text
//! edit      a list of changes                     state    the facts they add up to (pure)
//! format    bytes of the manifest                 current  names the manifest in force
//! manifest  appends edits, synced                 replay   reads them back, tells a crash from damage
//! chunks    a sequence in chunks that its successors share
//! run       a sorted run of tables                family   FamilyVersion: immutable tables and value logs of one family
//! placing   arranges the tables of a level into runs
//! follow    reads a manifest that another process writes
//! set       install: the only way to change it    obsolete unlinks files that are no longer needed
//! ```
//!
//! Invariants. Files are durable before the manifest names them, and unlinked only after the manifest has durably
//! removed them. A version never changes; holding one allows reading all its files. Numbers are never reused. Versions
//! are generic over the type of an open table, because this layer only passes tables through.

mod chunks;
mod current;
mod edit;
mod family;
mod format;
mod manifest;
mod obsolete;
mod placing;
mod replay;
mod follow;
mod image;
mod run;
mod set;
mod state;
#[cfg(test)]
mod tests;

pub use current::has_current;
pub use edit::{Change, IGNORABLE, LEVEL_MAX, MANIFEST_FORMAT, VersionEdit};
pub use family::{FamilyVersion, OpenTable, VlogSlots};
pub use follow::ManifestTail;
pub use format::Identity;
pub use image::{Image, in_force};
pub use obsolete::{FileGuard, ObsoleteFiles, OrphanReport};
pub use replay::{ManifestReport, Presence, presence};
pub use run::{Run, TableSlot};
pub use set::{Context, VersionSet, Versions, inspect, without_comparator};
pub use state::{FAMILY_BYTES, FamilyState, PlacedTable, State, Tables, VlogState};
