//! What every handle shares: the open database, the check that it may be used in this process, and locks that cannot deadlock with the
//! interpreter lock.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use pyo3::prelude::*;

use crate::failure;

/// Number of forks between the process that loaded the module and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The databases of this process, for the end of the interpreter.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Set once the interpreter ends: a thread that comes back to it must not.
static ENDED: AtomicBool = AtomicBool::new(false);
/// The thread that ended it, which may.
static ENDER: AtomicU64 = AtomicU64::new(0);
/// Threads that are about to take the interpreter lock again.
static RETURNING: AtomicUsize = AtomicUsize::new(0);
/// How long the end of the interpreter waits for them.
const RETURN_MAX: Duration = Duration::from_secs(10);

/// Runs `call` without the interpreter lock.
///
/// A thread that takes the lock while the interpreter ends would be ended in place, before Python 3.14: the system would unwind the frames of
/// this module, which is a crash. So `close_all` waits for the threads that take it, and a thread that comes later waits for ever.
///
/// # Errors
/// The exception that [`interrupt`] has kept during the call.
#[inline]
pub(crate) fn detach<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> PyResult<R> {
    let _depth = Depth::new();
    let (out, born) = py.detach(|| {
        let out = call();
        RETURNING.fetch_add(1, Ordering::SeqCst);
        if ENDED.load(Ordering::SeqCst) && ENDER.load(Ordering::SeqCst) != me() {
            RETURNING.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        (out, forks())
    });
    // A finalizer that runs with the return of the lock may fork: the count of the child does not have this thread.
    if born == forks() {
        RETURNING.fetch_sub(1, Ordering::SeqCst);
    }
    take_interrupt().map_or(Ok(out), Err)
}

/// As [`detach`], for a call of the engine.
///
/// # Errors
/// As [`detach`]; those of the call.
#[inline]
pub(crate) fn run<R: Send>(py: Python<'_>, call: impl FnOnce() -> tidesdb::Result<R> + Send) -> PyResult<R> {
    detach(py, call)?.map_err(|e| failure::raise(py, &e))
}

thread_local! {
    /// Number of calls without the interpreter lock that this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// What a function of Python below the innermost of them has raised.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Counts a call in [`DEPTH`].
struct Depth;

impl Depth {
    fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Keeps an exception that the engine must not handle, such as `KeyboardInterrupt`, for the call of [`detach`] that this thread is in.
///
/// # Errors
/// The exception, in a thread of the engine: there is no such call.
pub(crate) fn interrupt(exception: PyErr) -> PyResult<()> {
    if DEPTH.get() == 0 {
        return Err(exception);
    }
    INTERRUPT.with_borrow_mut(|kept| {
        kept.get_or_insert(exception);
    });
    Ok(())
}

/// Returns whether the call of [`detach`] that this thread is in will raise an exception of [`interrupt`].
pub(crate) fn is_interrupted() -> bool {
    INTERRUPT.with_borrow(Option::is_some)
}

/// Takes the exception that [`interrupt`] has kept.
pub(crate) fn take_interrupt() -> Option<PyErr> {
    INTERRUPT.take()
}

/// Called in each child of `os.fork`, which has none of the threads of its parent.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    RETURNING.store(0, Ordering::SeqCst);
    ENDED.store(false, Ordering::SeqCst);
}

/// Closes the databases that this process has opened and not closed; called at the end of the interpreter.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) {
    // In a child, the lock may be that of a thread that is gone. It is not held while the databases close.
    let Ok(open) = OPEN.try_lock().map(|mut open| std::mem::take(&mut *open)) else { return };
    for shared in open.iter().filter_map(Weak::upgrade) {
        if !shared.db.is_ours() {
            continue;
        }
        if let Err(e) = shared.close(py) {
            e.write_unraisable(py, None);
        }
    }
    ENDER.store(me(), Ordering::SeqCst);
    ENDED.store(true, Ordering::SeqCst);
    py.detach(|| {
        let step = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while RETURNING.load(Ordering::SeqCst) > 0 && waited < RETURN_MAX {
            std::thread::sleep(step);
            waited += step;
        }
    });
}

/// What belongs to the process that made it: a child of a fork leaks it, because a drop would use threads and locks that the child lacks,
/// and files of the parent.
pub(crate) struct Owned<T> {
    /// `None` only during the drop.
    value: Option<T>,
    born: u64,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), born: forks() }
    }

    /// Whether this process made it.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.born == forks()
    }

    /// Takes the value out.
    pub(crate) fn into_inner(mut self) -> T {
        self.value.take().expect(HAS_VALUE)
    }
}

const HAS_VALUE: &str = "the value is taken by the drop only";

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(HAS_VALUE)
    }
}

impl<T> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(HAS_VALUE)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            #[expect(clippy::mem_forget, reason = "it belongs to the parent process")]
            std::mem::forget(self.value.take());
        }
    }
}

/// The exception in a child process for a handle of its parent.
#[cold]
pub(crate) fn of_parent(py: Python<'_>) -> PyErr {
    let message = "the database belongs to the parent process, with its threads and its lock: open a reader in the child (open_reader), \
                   or use multiprocessing with the start method 'spawn'";
    failure::exception(py, "Forked", message)
}

/// An open database: all handles share it and keep it open.
pub(crate) struct Shared {
    db: Owned<tidesdb::Db>,
    closed: AtomicBool,
    /// Whether it closes the database. A view of a reader is shared with the reader, which ends it.
    is_owner: bool,
    pub(crate) path: PathBuf,
}

impl Shared {
    pub(crate) fn new(db: tidesdb::Db, path: PathBuf, is_owner: bool) -> Arc<Self> {
        let shared = Arc::new(Self { db: Owned::new(db), closed: AtomicBool::new(false), is_owner, path });
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| one.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        shared
    }

    /// Checks that the database may be used here.
    ///
    /// # Errors
    /// `Forked` in a child process; `Closed`.
    #[inline]
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.db.is_ours() && !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.unusable(py))
    }

    #[cold]
    fn unusable(&self, py: Python<'_>) -> PyErr {
        match self.db.is_ours() {
            true => failure::raise(py, &tidesdb::Error::Closed),
            false => of_parent(py),
        }
    }

    /// Returns the database.
    ///
    /// # Errors
    /// As [`Shared::check`].
    pub(crate) fn db(&self, py: Python<'_>) -> PyResult<&tidesdb::Db> {
        self.check(py)?;
        Ok(&self.db)
    }

    /// Returns the database, which may be closed.
    ///
    /// # Errors
    /// `Forked` in a child process.
    pub(crate) fn db_even_closed(&self, py: Python<'_>) -> PyResult<&tidesdb::Db> {
        if self.db.is_ours() { Ok(&self.db) } else { Err(of_parent(py)) }
    }

    /// Passes the database to `call`, in a thread that does not hold the interpreter lock and has called [`Shared::check`] before.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&tidesdb::Db) -> R) -> R {
        call(&self.db)
    }

    /// Returns whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Runs a call of the engine without the interpreter lock.
    ///
    /// # Errors
    /// As [`Shared::check`]; those of the call.
    #[inline]
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&tidesdb::Db) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        self.check(py)?;
        let db = &*self.db;
        run(py, || call(db))
    }

    /// Closes the database for all handles. A second call waits for the first and has its result.
    ///
    /// # Errors
    /// Those of the engine; `Forked`.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.db_even_closed(py)?;
        self.closed.store(true, Ordering::Release);
        if !self.is_owner {
            return Ok(());
        }
        run(py, || db.clone().close())
    }

    /// As [`Shared::close`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Shared::close`]; `Closing`.
    pub(crate) fn close_timeout(&self, py: Python<'_>, timeout: Duration) -> PyResult<()> {
        let db = self.db_even_closed(py)?;
        if !self.is_owner {
            return self.close(py);
        }
        self.closed.store(true, Ordering::Release);
        run(py, || db.close_timeout(timeout))
    }
}

impl Drop for Shared {
    /// Closes the database without the interpreter lock: a close may wait for the disk, and for a merge operator in Python.
    fn drop(&mut self) {
        if self.is_owner && self.db.is_ours() && !self.is_closed() {
            let db = (*self.db).clone();
            let _ = Python::try_attach(|py| match detach(py, || db.close()) {
                Ok(_) => {} // a drop cannot report an error
                Err(e) => e.write_unraisable(py, None),
            });
        }
    }
}

thread_local! {
    static ME: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number of this thread; never 0.
fn me() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ME.with(|me| {
        if me.get() == 0 {
            me.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        me.get()
    })
}

/// A lock for a handle that one thread uses at a time: others wait for it, without the interpreter lock.
pub(crate) struct Guarded<T> {
    value: Mutex<T>,
    /// The thread that has the lock; 0 = none.
    owner: AtomicU64,
    born: u64,
}

/// The lock of a [`Guarded`].
struct Guard<'a, T> {
    value: MutexGuard<'a, T>,
    owner: &'a AtomicU64,
}

impl<'a, T> Guard<'a, T> {
    fn new(value: MutexGuard<'a, T>, owner: &'a AtomicU64) -> Self {
        owner.store(me(), Ordering::Relaxed);
        Self { value, owner }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed); // before the lock itself is released
    }
}

impl<T: Send> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), owner: AtomicU64::new(0), born: forks() }
    }

    /// Refuses a call from within a call: from a merge operator in Python, or from a finalizer that runs in between.
    fn check_owner(&self, py: Python<'_>) -> PyResult<()> {
        if self.owner.load(Ordering::Relaxed) == me() {
            return Err(failure::exception(
                py,
                "Busy",
                "busy: this object is in use by a call of the same thread",
            ));
        }
        Ok(())
    }

    /// Runs `call` with the interpreter lock. A part of it that may read, wait or call Python back runs within [`detach`]; it keeps
    /// this lock, which other threads wait for without the interpreter lock.
    ///
    /// # Errors
    /// `Busy` within another call on the same object; `Forked` in a child process, where the lock may be that of a thread that is gone.
    #[inline]
    pub(crate) fn with<R>(&self, py: Python<'_>, call: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        if self.born != forks() {
            return Err(of_parent(py));
        }
        loop {
            let value = match self.value.try_lock() {
                Ok(value) => value,
                Err(TryLockError::Poisoned(e)) => e.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    self.check_owner(py)?;
                    detach(py, || drop(self.value.lock()))?;
                    continue;
                }
            };
            let mut guard = Guard::new(value, &self.owner);
            return Ok(call(&mut guard.value));
        }
    }

    /// As [`Guarded::with`], for a thread that does not hold the interpreter lock.
    pub(crate) fn with_detached<R>(&self, call: impl FnOnce(&mut T) -> R) -> R {
        let mut guard = Guard::new(self.value.lock().unwrap_or_else(PoisonError::into_inner), &self.owner);
        call(&mut guard.value)
    }
}

impl<T: Send> Guarded<Option<Owned<T>>> {
    /// As [`Guarded::with`], for a handle that is `None` once it is closed.
    ///
    /// # Errors
    /// `Closed`; those of [`Guarded::with`] and of `call`.
    pub(crate) fn with_open<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> PyResult<R>,
    ) -> PyResult<R> {
        self.with(py, |value| match value {
            Some(value) => call(value),
            None => Err(failure::raise(py, &tidesdb::Error::Closed)),
        })?
    }
}
