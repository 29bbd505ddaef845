//! What the value logs of a family take on disk, and which of them should be emptied.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidesdb_sync::Mutex;

use crate::Error;
use crate::jobs::Retry;
use crate::types::VlogId;

/// The collection of the value logs of one family.
#[derive(Debug, Default)]
pub struct Collection {
    /// Files whose live values merges move elsewhere.
    victims: Mutex<Arc<BTreeSet<VlogId>>>,
    /// Files in which a damaged value was found: they stay as they are.
    damaged: Mutex<BTreeSet<VlogId>>,
    /// The last damage, until it is reported.
    damage: Mutex<Option<Error>>,
    /// After a collection failed.
    pub retry: Retry,
}

impl Collection {
    /// Returns the files whose live values merges move elsewhere.
    pub fn victims(&self) -> Arc<BTreeSet<VlogId>> {
        Arc::clone(&self.victims.lock())
    }

    /// Replaces them.
    pub fn set_victims(&self, victims: BTreeSet<VlogId>) {
        *self.victims.lock() = Arc::new(victims);
    }

    /// Returns the last damage that was found, once.
    pub fn damage(&self) -> Option<Error> {
        self.damage.lock().take()
    }

    /// Excludes a file in which a damaged value was found.
    pub fn exclude(&self, damaged: VlogId, damage: Error) {
        self.damaged.lock().insert(damaged);
        *self.damage.lock() = Some(damage);
        Arc::make_mut(&mut self.victims.lock()).remove(&damaged);
    }

    /// Returns whether a damaged value was found in the file.
    pub fn is_excluded(&self, id: VlogId) -> bool {
        self.damaged.lock().contains(&id)
    }
}
