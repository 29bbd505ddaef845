//! Key orders that are known, and families that wait for one that is not.
//!
//! A waiting family has no read view: nobody can sort its keys. What the log holds for it was held back by recovery, in its
//! value logs, or in memory if the database is open for reading only. See `db/waiting.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb_sync::{Mutex, rank};

use crate::types::{Comparator, FamilyId};
use crate::vlog::VlogSet;

/// Which orders are known, and who waits for one.
#[derive(Debug, Default)]
pub struct Orders {
    /// Those that were given, beside the built-in ones.
    pub given: Mutex<Vec<Comparator>, { rank::ORDERS }>,
    /// Families that wait. Held while one of them joins the others, so that a name is always found in one place.
    pub waiting: Mutex<BTreeMap<FamilyId, Arc<WaitingFamily>>, { rank::ORDERS_WAITING }>,
}

/// A family that waits for its key order.
#[derive(Debug)]
pub struct WaitingFamily {
    /// Its number.
    pub id: FamilyId,
    /// Its name.
    pub name: Arc<str>,
    /// The name of its key order.
    pub order: Arc<str>,
    /// Its value logs, which need no order.
    pub vlog: VlogSet,
    /// What recovery found in the log and could not write anywhere: open for reading only.
    pub in_memory: Mutex<Vec<Vec<u8>>, { rank::ORDERS_MEMORY }>,
}

impl Orders {
    /// With these orders known.
    pub fn new(given: Vec<Comparator>) -> Self {
        Self { given: Mutex::new(given), waiting: Mutex::default() }
    }

    /// The order of this name, if it is known.
    pub fn by_name(&self, name: &str) -> Option<Comparator> {
        let given = || self.given.lock().iter().find(|order| order.name() == name).cloned();
        Comparator::by_name(name).or_else(given)
    }

    /// The waiting family called `name`.
    pub fn waiting_family(&self, name: &str) -> Option<Arc<WaitingFamily>> {
        self.waiting.lock().values().find(|family| &*family.name == name).cloned()
    }
}
