//! Durable commits from async tasks, without a thread for each: a [`Committer`] has one thread that commits the batches
//! of all tasks and syncs once for all that came in meanwhile.
//!
//! Everything else of [TidesDB](tidesdb) is called as from any other program:
//! `docs/async.md` in the repository says which calls may wait, and what a committer
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

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use tidesdb::{Db, Error, Result, SeqNo, SyncMode, WriteBatch, WriteOptions};
use tokio::sync::oneshot;

/// Most batches that share one sync, so that the first of them does not wait long.
const GROUP_MAX: usize = 1024;

/// A batch, and the task that waits for it.
type Request = (WriteBatch, oneshot::Sender<Result<SeqNo>>);

/// Commits batches durably for async tasks. Cheap to clone; works with every runtime. Dropping the last clone ends its
/// thread, which holds a [`Db`] until then.
///
/// A commit is visible to readers shortly before it is durable, as in mode `Interval`: what a reader saw before
/// [`Committer::commit`] has returned may be lost in a power cut. The order of commits is that of the calls.
#[derive(Clone, Debug)]
pub struct Committer {
    requests: Sender<Request>,
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
        started.map_err(|e| Error::Io {
            op: "start",
            file: "thread tidesdb-commit".into(),
            offset: None,
            cause: Arc::new(e),
        })?;
        Ok(Self { requests })
    }

    /// Hands `batch` to the thread at once. The future is ready when the commit is durable, with its sequence number;
    /// dropping the future does not undo the commit.
    ///
    /// # Errors
    /// As [`Db::write`]; `CommitUnknown` or `Poisoned` if the sync fails; `Closed`.
    pub fn commit(&self, batch: WriteBatch) -> impl Future<Output = Result<SeqNo>> + Send + use<> {
        let (done, committed) = oneshot::channel();
        // If the thread has ended, the error drops `done`.
        let _ = self.requests.send((batch, done));
        async move { committed.await.map_err(|_| Error::Closed)? }
    }
}

/// Commits what is queued, group by group, until the last [`Committer`] is gone.
fn work(db: &Db, queue: &Receiver<Request>) {
    while let Ok(first) = queue.recv() {
        let group: Vec<Request> = std::iter::once(first).chain(queue.try_iter()).take(GROUP_MAX).collect();
        commit_group(db, group);
    }
}

/// Commits a group in its order. The last commit is made durable, and with it all before it.
fn commit_group(db: &Db, mut group: Vec<Request>) {
    let last = group.pop();
    let write = |(mut batch, done): Request, mode| {
        (db.write_with(&mut batch, &WriteOptions::default().sync(mode)), done)
    };
    let early: Vec<_> = group.into_iter().map(|request| write(request, SyncMode::None)).collect();
    let Some((committed, done)) = last.map(|request| write(request, SyncMode::Full)) else { return };
    // A commit that was refused has synced nothing.
    let synced = if committed.is_ok() { Ok(()) } else { db.sync().map(drop) };
    for (result, done) in early {
        let _ = done.send(result.and_then(|seq| synced.clone().map(|()| seq))); // the task may be gone
    }
    let _ = done.send(committed);
}
