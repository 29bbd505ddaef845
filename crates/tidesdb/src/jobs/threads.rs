//! Which threads take jobs, and that none starts before it has one.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tidesdb_sync::{Mutex, rank};

/// Threads that take the same jobs. With one worker, it is the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
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
    /// Takes no jobs: it writes the figures for other processes.
    Figures,
}

impl ThreadKind {
    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Number of kinds.
    pub const COUNT: usize = Self::Figures as usize + 1;

    /// Returns true for threads that take jobs.
    pub fn takes_jobs(self) -> bool {
        !matches!(self, Self::Clock | Self::Figures)
    }
}

/// Starts threads of a kind, or reports that there are none.
type Start = Box<dyn Fn(ThreadKind) + Send + Sync>;

/// The kinds that have started, and how the others start.
#[derive(Default)]
pub struct WorkerPool {
    /// Unset: there are no threads.
    start: OnceLock<Start>,
    /// Kinds with a thread.
    started: AtomicU8,
    /// Kinds that could not be started when they were wanted last.
    lacking: AtomicU8,
    /// Set if other databases have the same threads: each new job is announced to them.
    shared: AtomicBool,
    /// Why one could not be started.
    cause: Mutex<String, { rank::LEAF }>,
}

impl WorkerPool {
    /// From now on `start` starts a kind when it is wanted. It reports what it did by [`WorkerPool::started`] and [`WorkerPool::failed`].
    pub fn start_with(&self, start: impl Fn(ThreadKind) + Send + Sync + 'static) {
        let _set_once = self.start.set(Box::new(start));
    }

    /// From now on `announce` learns of each job that threads of a kind may take, of each job that has ended, and when the threads without
    /// jobs shall do a round. It serves several databases.
    pub fn share_with(&self, announce: impl Fn(ThreadKind) + Send + Sync + 'static) {
        self.start_with(announce);
        self.shared.store(true, Ordering::Release);
    }

    /// Returns true if other databases have the same threads.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Returns true if `kind` has a thread.
    #[inline]
    pub fn has(&self, kind: ThreadKind) -> bool {
        self.started.load(Ordering::Acquire) & kind.bit() != 0
    }

    pub(super) fn start(&self, kind: ThreadKind) {
        if let Some(start) = self.start.get() {
            start(kind);
        }
    }

    /// Records that `kind` has a thread.
    pub fn started(&self, kind: ThreadKind) {
        self.started.fetch_or(kind.bit(), Ordering::AcqRel);
        self.lacking.fetch_and(!kind.bit(), Ordering::AcqRel);
    }

    /// Records that `kind` has no thread, because of `cause`. Returns true if that is new.
    pub fn failed(&self, kind: ThreadKind, cause: String) -> bool {
        *self.cause.lock() = cause;
        self.lacking.fetch_or(kind.bit(), Ordering::AcqRel) & kind.bit() == 0
    }

    /// Returns true if jobs wait for threads that could not be started: commits run them.
    #[inline]
    pub fn lacks_workers(&self) -> bool {
        self.lacking.load(Ordering::Relaxed) & !(ThreadKind::Clock.bit() | ThreadKind::Log.bit()) != 0
    }

    /// Returns why a thread could not be started, if one is lacking.
    pub fn shortage(&self) -> Option<String> {
        (self.lacking.load(Ordering::Acquire) != 0).then(|| self.cause.lock().clone())
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool")
            .field("started", &self.started)
            .field("lacking", &self.lacking)
            .finish_non_exhaustive()
    }
}
