//! Entries: a value with its key, charge and heat, shared by the table and by handles.
//!
//! Everything but heat and probation is immutable once the entry exists. The heat is a hint: it is read and
//! written relaxed, and a lost update is harmless. Probation ends once: the thread that swaps the flag also
//! updates the account.

use std::fmt;
use std::ops::Deref;

use crate::key::CacheKey;
use crate::stats::Account;
use crate::sync::{Arc, AtomicBool, AtomicU8, Ordering, PlainArc};

/// Maximum heat. Further hits before the hand passes are not counted, and cost no store.
pub(crate) const MAX_HEAT: u8 = 3;

pub(crate) struct Entry<V> {
    pub(crate) key: CacheKey,
    heat: AtomicU8,
    /// True while the entry is charged to the probationary part.
    probation: AtomicBool,
    /// All bytes of the entry: the caller's charge plus the entry's own overhead.
    pub(crate) charge: u64,
    account: PlainArc<Account>,
    pub(crate) value: V,
}

impl<V> Entry<V> {
    /// Bytes of an entry without its value: the fields above and two reference counts.
    pub(crate) const OVERHEAD: u64 =
        if cfg!(loom) { 0 } else { (size_of::<Self>() - size_of::<V>() + 2 * size_of::<usize>()) as u64 };

    pub(crate) fn new(key: CacheKey, value: V, charge: u64, account: &PlainArc<Account>) -> Arc<Self> {
        let charge = charge.saturating_add(Self::OVERHEAD);
        account.born(charge);
        let (heat, probation) = (AtomicU8::new(0), AtomicBool::new(false));
        Arc::new(Entry { key, heat, probation, charge, account: PlainArc::clone(account), value })
    }

    /// Records a hit. An entry of maximum heat is only read, so its cache line stays shared between cores.
    #[inline]
    pub(crate) fn touch(&self) {
        let heat = self.heat.load(Ordering::Relaxed);
        if heat < MAX_HEAT {
            self.heat.store(heat + 1, Ordering::Relaxed);
        }
    }

    pub(crate) fn heat(&self) -> u8 {
        self.heat.load(Ordering::Relaxed)
    }

    pub(crate) fn chill(&self) {
        self.heat.store(0, Ordering::Relaxed);
    }

    /// Records that the charged entry goes into the table, on probation or not.
    pub(crate) fn arrive(&self, probation: bool) {
        self.probation.store(probation, Ordering::Relaxed);
        self.account.arrived(if probation { self.charge } else { 0 });
    }

    /// Returns all charges. Called by the thread that removed the entry from the table.
    pub(crate) fn depart(&self) {
        self.end_probation();
        self.account.departed(self.charge);
    }

    pub(crate) fn is_on_probation(&self) -> bool {
        self.probation.load(Ordering::Relaxed)
    }

    pub(crate) fn end_probation(&self) {
        if self.is_on_probation() && self.probation.swap(false, Ordering::Relaxed) {
            self.account.end_probation(self.charge);
        }
    }

    /// Reduces the heat by one. Returns whether it was zero before.
    pub(crate) fn cool(&self) -> bool {
        let heat = self.heat();
        if heat != 0 {
            self.heat.store(heat - 1, Ordering::Relaxed);
        }
        heat == 0
    }
}

impl<V> Drop for Entry<V> {
    fn drop(&mut self) {
        self.account.died(self.charge);
    }
}

/// A cached value. It stays valid as long as the handle lives, even after eviction or after the cache is
/// dropped.
pub struct Handle<V>(pub(crate) Arc<Entry<V>>);

impl<V> Handle<V> {
    /// Returns the key under which the value was found or inserted.
    #[must_use]
    pub fn key(&self) -> CacheKey {
        self.0.key
    }

    /// Bytes charged for the value, including the cache's own overhead.
    #[must_use]
    pub fn charge(&self) -> u64 {
        self.0.charge
    }
}

impl<V> Clone for Handle<V> {
    fn clone(&self) -> Self {
        Handle(Arc::clone(&self.0))
    }
}

impl<V> Deref for Handle<V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        &self.0.value
    }
}

impl<V: fmt::Debug> fmt::Debug for Handle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.0.key).field(&self.0.value).finish()
    }
}
