//! Known key orders, and unresolved families, whose key order is not registered yet.
//!
//! An unresolved family has no read view, because its keys cannot be sorted. Recovery defers the operations that the
//! log holds for it: they are kept in its value logs, or in memory if the database is open read-only. See
//! `db/waiting.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb_sync::{Mutex, rank};

use crate::types::{Comparator, FamilyId};
use crate::vlog::VlogSet;

/// The registered key orders, and the families whose key order is missing.
#[derive(Debug, Default)]
pub struct Orders {
    /// The registered orders; built-in ones are not listed.
    pub given: Mutex<Vec<Comparator>, { rank::ORDERS }>,
    /// Unresolved families. Held while one of them becomes a normal family, so that a name is always found in exactly
    /// one place.
    pub waiting: Mutex<BTreeMap<FamilyId, Arc<UnresolvedFamily>>, { rank::ORDERS_WAITING }>,
}

/// An unresolved family: its key order is not registered yet.
#[derive(Debug)]
pub struct UnresolvedFamily {
    /// Its id.
    pub id: FamilyId,
    /// Its name.
    pub name: Arc<str>,
    /// The name of its key order.
    pub order: Arc<str>,
    /// Its value logs, which need no key order.
    pub vlog: VlogSet,
    /// Deferred operations that recovery read from the log and could not store, because the database is open read-only.
    pub in_memory: Mutex<Vec<Vec<u8>>, { rank::ORDERS_MEMORY }>,
}

impl Orders {
    /// Starts with these orders registered.
    pub fn new(given: Vec<Comparator>) -> Self {
        Self { given: Mutex::new(given), waiting: Mutex::default() }
    }

    /// The order of this name, if it is built in or registered.
    pub fn by_name(&self, name: &str) -> Option<Comparator> {
        let given = || self.given.lock().iter().find(|order| order.name() == name).cloned();
        Comparator::by_name(name).or_else(given)
    }

    /// The unresolved family called `name`.
    pub fn unresolved_family(&self, name: &str) -> Option<Arc<UnresolvedFamily>> {
        self.waiting.lock().values().find(|family| &*family.name == name).cloned()
    }
}
