//! The memory of several databases that have one limit: the *whole*, and the part of each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tidesdb_sync::Mutex;

use super::{FIXED_BYTES, Memory, Pressure, SHARING_BYTES, Use};

/// What several databases share with the memory of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// The limit, and nothing else.
    Limit,
    /// The limit, for a view of files of a database, or for a reader beside it. It does not count as a database.
    View,
    /// The limit, the threads, and the cache: its bytes count in the whole alone.
    Resources,
}

/// The part of one database in the memory of several.
pub(super) struct Part {
    pub(super) whole: Arc<Memory>,
    pub(super) shares: Shares,
    /// Set once the database does not count any more.
    left: AtomicBool,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.settle();
        self.leave();
        let Some(Part { whole, shares, .. }) = &self.part else { return };
        whole.fixed.fetch_sub(SHARING_BYTES, Ordering::Relaxed);
        if *shares != Shares::Resources {
            // Nothing else is left: each charge keeps the memory that it is part of.
            whole.sums[Use::Tables as usize].fetch_sub(self.used_for(Use::Tables), Ordering::Relaxed);
        }
    }
}

impl Memory {
    /// Creates the sums of several databases, of which none is open yet. `limit` as in [`Memory::new`].
    pub fn of_several(limit: u64) -> Arc<Self> {
        let limit = Self::new(limit);
        Arc::new(Self::with((limit.limit, limit.machine), FIXED_BYTES, 0))
    }

    /// Returns the sums of all databases of this process that set no limit. They share half of the memory that the process may use.
    pub fn of_process() -> Arc<Self> {
        static SHARED: OnceLock<Mutex<Weak<Memory>>> = OnceLock::new();
        let mut shared = SHARED.get_or_init(Mutex::default).lock();
        shared.upgrade().unwrap_or_else(|| {
            let new = Self::of_several(0);
            *shared = Arc::downgrade(&new);
            new
        })
    }

    /// Creates the sums of a database that is part of `whole`.
    pub fn within(whole: &Arc<Self>, shares: Shares) -> Arc<Self> {
        whole.fixed.fetch_add(SHARING_BYTES, Ordering::Relaxed);
        whole.databases.fetch_add(u64::from(shares != Shares::View), Ordering::Relaxed);
        let mut own = Self::with((whole.limit, whole.machine), SHARING_BYTES, 1);
        own.part =
            Some(Part { whole: Arc::clone(whole), shares, left: AtomicBool::new(shares == Shares::View) });
        Arc::new(own)
    }

    /// The memory that the limit counts: of this database, or of all that share it.
    #[inline]
    pub fn whole(&self) -> &Self {
        self.part.as_ref().map_or(self, |part| &part.whole)
    }

    /// Returns true if the databases that share the limit share the cache, too.
    pub fn shares_cache(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.shares == Shares::Resources)
    }

    /// Called when the database is closed: it does not count any more, although its handles still take memory.
    pub fn leave(&self) {
        if let Some(part) = &self.part
            && !part.left.swap(true, Ordering::Relaxed)
        {
            part.whole.databases.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The memory of all that share the limit, if there are others.
    pub fn shared_whole(&self) -> Option<&Arc<Self>> {
        self.part.as_ref().map(|part| &part.whole)
    }

    /// Number of databases that share the limit.
    pub fn databases(&self) -> u64 {
        self.whole().databases.load(Ordering::Relaxed)
    }

    /// Bytes that each of the databases with this limit may take before others have to give way.
    pub fn fair_bytes(&self) -> u64 {
        self.begin_of(Pressure::High) / self.databases().max(1)
    }

    /// The memory of all that share the cache.
    pub(super) fn with_cache(&self) -> &Self {
        if self.shares_cache() { self.whole() } else { self }
    }

    /// Returns whether memory is so scarce that this database gives some back: one that takes little beside others does so last.
    pub fn needs_relief(&self) -> bool {
        let level = self.level();
        let is_small = || self.databases() > 1 && self.own_wanted() < self.fair_bytes() / 2;
        level == Pressure::Critical || level > Pressure::Normal && !is_small()
    }

    /// Sets the bytes of the cache that databases share, and of their open tables. This is the whole.
    pub fn set_shared_tables(&self, bytes: u64) {
        let before = self.cache_bytes.swap(bytes, Ordering::Relaxed);
        self.sums[Use::Tables as usize].fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}
