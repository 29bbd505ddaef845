//! [`VersionLock`]: a lock that readers do not take; they compare its version before and after reading.
//!
//! Bit 0 is set while a writer is inside; every write adds 2. The guarded data is atomics, read and written
//! relaxed. A reader that sees the same even version before and after has read the state left by one writer,
//! and that writer's work happens before the reader's second load of the version.
//!
//! The ordering rests on three edges: the writer's fence after locking keeps its stores after the lock bit; its
//! unlocking Release publishes them; the reader's fence before the second load keeps the earlier loads before
//! it.

use crate::sync::{AtomicU64, Ordering, Spin, fence};

/// An optimistic lock; see the module documentation.
pub(super) struct VersionLock(AtomicU64);

/// A version read while no writer was inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen(u64);

/// The held write side. Dropping it begins a new version.
pub(super) struct Locked<'a> {
    lock: &'a VersionLock,
    version: u64,
}

impl VersionLock {
    pub(super) fn new() -> Self {
        VersionLock(AtomicU64::new(0))
    }

    /// Returns the current version. Waits for a writer to leave.
    #[inline]
    pub(super) fn read(&self) -> Seen {
        let mut spin = Spin::default();
        loop {
            if let Some(seen) = self.try_read() {
                return seen;
            }
            spin.wait();
        }
    }

    /// Returns the current version, or `None` if a writer is inside.
    #[inline]
    pub(super) fn try_read(&self) -> Option<Seen> {
        let version = self.0.load(Ordering::Acquire);
        (version & 1 == 0).then_some(Seen(version))
    }

    /// Returns whether everything loaded since `seen` was read belongs to that version.
    #[inline]
    pub(super) fn validate(&self, seen: Seen) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == seen.0
    }

    /// Locks if the version is still `seen`. Then everything loaded since is still valid, and stays so while
    /// locked.
    #[inline]
    pub(super) fn try_lock(&self, seen: Seen) -> Option<Locked<'_>> {
        let locked = seen.0 | 1;
        self.0.compare_exchange(seen.0, locked, Ordering::Acquire, Ordering::Relaxed).ok()?;
        fence(Ordering::Release);
        Some(Locked { lock: self, version: locked })
    }
}

impl Locked<'_> {
    /// Returns the version while locked, for methods shared by readers and the writer.
    #[inline]
    pub(super) fn seen(&self) -> Seen {
        Seen(self.version)
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Only the holder writes the word while it is locked, so no read-modify-write is needed.
        self.lock.0.store(self.version + 1, Ordering::Release);
    }
}
