//! Durable commits from async tasks, without a thread for each: a [`Committer`] has one thread that commits the batches
//! of all tasks and syncs once for all batches that arrived meanwhile.
//!
//! Everything else of [TidesDB](tidesdb) is called as from any other program:
//! `docs/how-to/async.md` in the repository says which calls may wait, and what a committer
//! saves.
//!
//! ```
//! use tidesdb::{Db, WriteBatch};
//! use tidesdb_tokio::Committer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let db = Db::open(dir.path())?;
//! let committer = Committer::new(&db)?;
//!
//! let mut batch = WriteBatch::new();
//! batch.put(db.default_family(), "whale", "blue")?;
//! committer.commit(batch).await?; // durable; no thread waited for it
//! assert!(db.contains("whale")?);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use tidesdb::{Db, Error, Result, SeqNo, SyncMode, WriteBatch, WriteOptions};
use tokio::sync::oneshot;

/// Maximum number of batches that share one sync, so that the first of them does not wait long.
const GROUP_MAX: usize = 1024;

/// Fills a batch that is committed next.
type Fill = Box<dyn FnOnce(&mut WriteBatch) -> Result<()> + Send>;

/// A commit, and the task that waits for it.
type Request = (Fill, oneshot::Sender<Result<SeqNo>>);

/// Commits batches durably for async tasks. Cheap to clone; works with every runtime. Dropping the last clone returns when what was handed
/// over is committed and the thread, which holds a [`Db`], has ended. So it may wait for the device. It does not wait on that thread itself,
/// in a commit hook or a waker.
///
/// A batch is filled by the task. Its memory counts from then on, so the batches of all tasks that wait share what `memory_limit` allows for
/// batches. Filling takes memory only, except for a value of 8 MiB or more, which [`WriteBatch::put`] writes to the disk at once.
/// [`Committer::commit_with`] fills it in the thread instead, when its turn has come.
///
/// A commit is visible to readers shortly before it is durable, as in mode `Interval`: what a reader saw before
/// [`Committer::commit`] has returned may be lost in a power cut. The order of commits is that of the calls.
#[derive(Clone, Debug)]
pub struct Committer {
    worker: Arc<Worker>,
}

/// The thread of a [`Committer`] and its queue; `None` once they are taken by the drop.
#[derive(Debug)]
struct Worker {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.requests.take()); // ends the thread
        let other = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(thread) = other {
            let _ = thread.join(); // if it panicked, tasks got `CommitUnknown`
        }
    }
}

impl Committer {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Io` if the system cannot start a thread.
    pub fn new(db: &Db) -> Result<Self> {
        let (requests, queue) = channel();
        let db = db.clone();
        let started =
            thread::Builder::new().name("tidesdb-commit".to_owned()).spawn(move || work(&db, &queue));
        let thread = started.map_err(|e| Error::Io {
            op: "start",
            file: "thread tidesdb-commit".into(),
            offset: None,
            cause: Arc::new(e),
        })?;
        Ok(Self { worker: Arc::new(Worker { requests: Some(requests), thread: Some(thread) }) })
    }

    /// Hands `batch` to the thread at once, before the future is polled. The future is ready when the batch and all commits before it
    /// are durable, with its sequence number. An empty batch waits for the commits before it, by whatever call they were made. So rows
    /// can be readable at once and a task be told when they are durable:
    ///
    /// ```
    /// # use tidesdb::{Db, SyncMode, WriteBatch, WriteOptions};
    /// # use tidesdb_tokio::Committer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Db::open(dir.path())?;
    /// # let committer = Committer::new(&db)?;
    /// let seq = db.put_with("whale", "blue", &WriteOptions::default().sync(SyncMode::None))?;
    /// assert!(db.contains("whale")?); // readable
    /// let durable = committer.commit(WriteBatch::new());
    /// tokio::spawn(async move { assert!(durable.await.is_ok()) }).await?;
    /// assert!(db.stats().durable_end > seq); // durable
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A dropped future, polled or not, changes nothing: the batch is committed in its order and made durable.
    ///
    /// # Errors
    /// As [`Db::write`] if the batch had no effect. `CommitUnknown` if it is not known whether it is durable: the sync failed, or the
    /// database was closed meanwhile by a close that failed or is still running.
    pub fn commit(&self, batch: WriteBatch) -> impl Future<Output = Result<SeqNo>> + Send + use<> {
        self.hand_over(Box::new(move |next| {
            *next = batch;
            Ok(())
        }))
    }

    /// As [`Committer::commit`], for a batch that `fill` fills in the thread just before it is committed. One batch at a time takes memory of
    /// the database, however many tasks wait, and a long value is written to the disk by the thread, which other commits then wait for.
    ///
    /// ```
    /// # use tidesdb::Db;
    /// # use tidesdb_tokio::Committer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Db::open(dir.path())?;
    /// # let committer = Committer::new(&db)?;
    /// let (films, film) = (db.default_family().clone(), vec![7; 20 << 20]);
    /// committer.commit_with(move |batch| batch.put(&films, "film", film)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Committer::commit`]; that of `fill`, and `Internal` if it panics: then nothing is committed.
    pub fn commit_with<F>(&self, fill: F) -> impl Future<Output = Result<SeqNo>> + Send + use<F>
    where
        F: FnOnce(&mut WriteBatch) -> Result<()> + Send + 'static,
    {
        self.hand_over(Box::new(fill))
    }

    fn hand_over(&self, fill: Fill) -> impl Future<Output = Result<SeqNo>> + Send + use<> {
        let (done, committed) = oneshot::channel();
        let requests = self.worker.requests.as_ref();
        let sent = requests.is_some_and(|requests| requests.send((fill, done)).is_ok());
        async move {
            match committed.await {
                Ok(result) => result,
                Err(_) if sent => Err(unknown(0, internal("the thread of the committer has ended"))),
                Err(_) => Err(Error::Closed),
            }
        }
    }
}

/// Commits what is queued, group by group, until the last [`Committer`] is gone.
fn work(db: &Db, queue: &Receiver<Request>) {
    while let Ok(first) = queue.recv() {
        // Each is committed as it is taken, so one that arrives meanwhile joins the group.
        commit_group(db, std::iter::once(first).chain(queue.try_iter()).take(GROUP_MAX));
    }
}

/// Commits a group in its order and makes it durable. Each task gets the result of its own batch.
fn commit_group(db: &Db, group: impl Iterator<Item = Request>) {
    let committed: Vec<_> = group.map(|(fill, done)| (commit_one(db, fill), done)).collect();
    // An empty commit in mode `Full` makes all commits before it durable.
    let synced = write(db, &mut WriteBatch::new(), SyncMode::Full);
    let durable_end = if synced.is_ok() { SeqNo::MAX } else { db.stats().durable_end };
    for (result, done) in committed {
        let result = result.and_then(|seq| match &synced {
            Err(e) if seq >= durable_end => Err(unknown(seq, e.clone())),
            _ => Ok(seq),
        });
        // The task may be gone, and its waker may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| done.send(result)));
    }
}

/// Commits what a task has handed over.
fn commit_one(db: &Db, fill: Fill) -> Result<SeqNo> {
    let mut batch = WriteBatch::new();
    catch_unwind(AssertUnwindSafe(|| fill(&mut batch)))
        .unwrap_or_else(|_| Err(internal("the function that fills the batch panicked")))?;
    write(db, &mut batch, SyncMode::None)
}

/// Commits `batch`. If the engine panics, the outcome is unknown.
fn write(db: &Db, batch: &mut WriteBatch, mode: SyncMode) -> Result<SeqNo> {
    let commit = || db.write_with(batch, &WriteOptions::default().sync(mode));
    catch_unwind(AssertUnwindSafe(commit))
        .unwrap_or_else(|_| Err(unknown(0, internal("the commit panicked"))))
}

fn unknown(seq: SeqNo, cause: Error) -> Error {
    match cause {
        Error::Poisoned { cause } => Error::CommitUnknown { seq, cause },
        cause => Error::CommitUnknown { seq, cause: Arc::new(cause) },
    }
}

fn internal(what: &str) -> Error {
    Error::Internal { what: what.into() }
}
