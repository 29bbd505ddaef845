//! The map: which tables and value logs exist, and at which level.
//!
//! ```text
//! edit      a list of changes                     state    the facts they add up to (pure)
//! format    bytes of the manifest                 current  names the manifest in force
//! manifest  appends edits, synced                 replay   reads them back, tells a crash from damage
//! level     tables of one level, in order         family   FamilyVersion: the immutable map of one family
//! set       install: the one way to change it     obsolete unlinks files when nothing needs them
//! ```
//!
//! Laws. What the manifest names is durable before the manifest names it. What it forgets is unlinked after it has
//! durably forgotten it. A version never changes; who holds one may read all its files. Numbers are never reused.
//! Versions are generic over what an open table is, because this floor only passes it through.

mod current;
mod edit;
mod family;
mod format;
mod level;
mod manifest;
mod obsolete;
mod replay;
mod image;
mod set;
mod state;
#[cfg(test)]
mod tests;

pub use edit::{Change, IGNORABLE, LEVEL_MAX, MANIFEST_FORMAT, VersionEdit};
pub use family::{FamilyVersion, OpenTable, VlogSlot};
pub use format::Identity;
pub use image::{Image, in_force};
pub use level::{Level, TableSlot};
pub use obsolete::{FileGuard, ObsoleteFiles, OrphanReport};
pub use replay::{ManifestReport, Presence, presence};
pub use set::{Context, Installed, VersionSet, inspect};
pub use state::{FamilyState, State, VlogInfo};
