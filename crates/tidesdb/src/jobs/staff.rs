//! Which threads take jobs, and that none starts before it has one.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use tidesdb_sync::{Mutex, rank};

/// Threads that take the same jobs. With one worker, it is the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crew {
    /// Takes short jobs.
    Short,
    /// Takes merges, their parts, and collections of values.
    Long,
    /// Removes files.
    Removals,
    /// Uploads to the object store.
    Uploads,
    /// Prepares the log: it may wait for the device while commits go on.
    Log,
    /// Takes no jobs: it keeps the time.
    Clock,
}

impl Crew {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Starts threads of a crew, or reports that there are none.
type Start = Box<dyn Fn(Crew) + Send + Sync>;

/// The crews that have started, and how the others start.
#[derive(Default)]
pub struct Staff {
    /// Unset: there are no threads.
    start: OnceLock<Start>,
    /// Crews with a thread.
    started: AtomicU8,
    /// Crews that could not be started when they were wanted last.
    lacking: AtomicU8,
    /// Why one could not be started.
    cause: Mutex<String, { rank::LEAF }>,
}

impl Staff {
    /// From now on `start` starts a crew when it is wanted. It reports what it did by [`Staff::started`] and [`Staff::failed`].
    pub fn hire_by(&self, start: impl Fn(Crew) + Send + Sync + 'static) {
        let _set_once = self.start.set(Box::new(start));
    }

    /// Returns true if `crew` has a thread.
    #[inline]
    pub fn has(&self, crew: Crew) -> bool {
        self.started.load(Ordering::Acquire) & crew.bit() != 0
    }

    pub(super) fn start(&self, crew: Crew) {
        if let Some(start) = self.start.get() {
            start(crew);
        }
    }

    /// Records that `crew` has a thread.
    pub fn started(&self, crew: Crew) {
        self.started.fetch_or(crew.bit(), Ordering::AcqRel);
        self.lacking.fetch_and(!crew.bit(), Ordering::AcqRel);
    }

    /// Records that `crew` has no thread, because of `cause`. Returns true if that is new.
    pub fn failed(&self, crew: Crew, cause: String) -> bool {
        *self.cause.lock() = cause;
        self.lacking.fetch_or(crew.bit(), Ordering::AcqRel) & crew.bit() == 0
    }

    /// Returns true if jobs wait for threads that could not be started: commits run them.
    #[inline]
    pub fn lacks_workers(&self) -> bool {
        self.lacking.load(Ordering::Relaxed) & !(Crew::Clock.bit() | Crew::Log.bit()) != 0
    }

    /// Returns why a thread could not be started, if one is lacking.
    pub fn shortage(&self) -> Option<String> {
        (self.lacking.load(Ordering::Acquire) != 0).then(|| self.cause.lock().clone())
    }
}

impl fmt::Debug for Staff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staff")
            .field("started", &self.started)
            .field("lacking", &self.lacking)
            .finish_non_exhaustive()
    }
}
