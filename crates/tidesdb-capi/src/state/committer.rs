//! Commits batches in a thread of the library and passes each result to a function of the program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};

use tidesdb::{Db, Error, SeqNo, SyncMode, WriteBatch, WriteOptions};
use tidesdb_sync::Mutex;

use super::CLOSED;
use crate::abi::ERR_MEMORY;
use crate::callback::Receiver;
use crate::failure::{Answer, Failure};

/// Maximum number of batches that share one sync, so that the first of them does not wait long.
const GROUP_MAX: usize = 1024;

/// A batch, its sync mode, and who gets the result.
struct Request {
    batch: WriteBatch,
    sync: SyncMode,
    receiver: Receiver,
}

/// The thread and its queue.
#[derive(Default)]
enum Worker {
    #[default]
    NotStarted,
    Runs(Sender<Request>, JoinHandle<()>),
    Ended,
}

/// The thread of a database that commits batches in the background. It starts with the first batch.
#[derive(Default)]
pub(super) struct Committer(Mutex<Worker>);

impl Committer {
    /// Starts the thread, unless it runs.
    ///
    /// # Errors
    /// `ERR_INVALID_DB` after the end; `ERR_MEMORY` if the system has no thread.
    pub(super) fn start(&self, db: &Db) -> Answer {
        let mut worker = self.0.lock();
        match &*worker {
            Worker::Runs(..) => return Ok(()),
            Worker::Ended => return Err(CLOSED),
            Worker::NotStarted => {}
        }
        let (requests, queue) = mpsc::channel::<Request>();
        let db = db.clone();
        let work = move || {
            while let Ok(first) = queue.recv() {
                let group = std::iter::once(first).chain(queue.try_iter()).take(GROUP_MAX);
                commit_group(&db, group.collect());
            }
        };
        let started = Builder::new().name("tidesdb-commit".to_owned()).spawn(work);
        let thread = started
            .map_err(|e| Failure::text_of(ERR_MEMORY, format!("cannot start a thread for commits: {e}")))?;
        *worker = Worker::Runs(requests, thread);
        Ok(())
    }

    /// Hands a batch to the thread. After success the receiver is called once.
    ///
    /// # Errors
    /// `ERR_INVALID_DB` after the end.
    pub(super) fn commit(&self, batch: WriteBatch, sync: SyncMode, receiver: Receiver) -> Answer {
        let worker = self.0.lock();
        let Worker::Runs(requests, _) = &*worker else { return Err(CLOSED) };
        requests.send(Request { batch, sync, receiver }).map_err(|_| CLOSED)
    }

    /// Commits what is queued, waits until all receivers have returned, and ends the thread. Not called by that thread: a receiver cannot
    /// close its database.
    pub(super) fn end(&self) {
        let worker = std::mem::replace(&mut *self.0.lock(), Worker::Ended);
        if let Worker::Runs(requests, thread) = worker {
            drop(requests);
            let _ = thread.join(); // it contains panics
        }
    }
}

/// Commits a group in its order, with one sync for all that ask for one, and passes on the results.
fn commit_group(db: &Db, group: Vec<Request>) {
    let is_full = |sync: SyncMode| matches!(sync, SyncMode::Full);
    let committed: Vec<_> = group
        .into_iter()
        .map(|Request { mut batch, sync, receiver }| {
            let mode = if is_full(sync) { SyncMode::None } else { sync };
            (write(db, &mut batch, mode), is_full(sync), receiver)
        })
        .collect();
    // An empty commit in mode `Full` makes all commits before it durable.
    let synced = match committed.iter().any(|(result, full, _)| *full && result.is_ok()) {
        true => write(db, &mut WriteBatch::new(), SyncMode::Full).map(drop),
        false => Ok(()),
    };
    let durable_end = if synced.is_ok() { SeqNo::MAX } else { db.stats().durable_end };
    for (result, full, receiver) in committed {
        let result = result.and_then(|seq| match &synced {
            Err(e) if full && seq >= durable_end => Err(unknown(seq, e.clone())),
            _ => Ok(seq),
        });
        receiver.call(result.map_err(Failure::from));
    }
}

/// Commits a batch. If the engine panics, the outcome is unknown.
fn write(db: &Db, batch: &mut WriteBatch, sync: SyncMode) -> tidesdb::Result<SeqNo> {
    let commit = || db.write_with(batch, &WriteOptions::default().sync(sync));
    let panicked = || Error::Internal { what: "the commit panicked".into() };
    catch_unwind(AssertUnwindSafe(commit)).unwrap_or_else(|_| Err(unknown(0, panicked())))
}

fn unknown(seq: SeqNo, cause: Error) -> Error {
    Error::CommitUnknown { seq, cause: std::sync::Arc::new(cause) }
}
