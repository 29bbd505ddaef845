//! Threads that compress and append chunks while the writer fills the next ones.
//!
//! The writer gives chunks to the helpers in turn and takes the results in the same order, so no result must be sorted.
//! Each helper has at most one chunk, which bounds the memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tidesdb_io::{JoinHandle, Priority};

use crate::family::Metric;
use crate::shared::Family;
use crate::vlog::{Lease, VlogPointer};
use crate::wal::{Log, SpaceReservation};
use crate::{Error, Result};

/// Most helpers of one writer.
const HELPERS_MAX: usize = 3;
/// Most helpers in the process, as a multiple of the processors. Writers beyond that append their chunks themselves.
const PER_PROCESSOR: usize = 2;

/// Helpers in the process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// An appended chunk, and leases on its file.
pub(super) type Appended = (VlogPointer, Vec<Lease>);
/// A chunk's memory, and where it was appended.
type Done = (Vec<u8>, Result<Appended>);

/// Reserves disk space for `bytes` of values. A close waits until the reservation is dropped: once it has returned, another
/// process may have the directory open.
pub(super) fn begin_writing(family: &Family, bytes: usize) -> Result<SpaceReservation<&Log>> {
    let ctx = &family.shared.write;
    let reservation = ctx.log.reserve_space_for_values(bytes.max(1) as u64)?;
    ctx.check_writable()?; // after the reservation: a close that does not wait for it is seen here
    Ok(reservation)
}

/// Appends `chunk` to the value log of `family`.
pub(super) fn append(family: &Family, chunk: &[u8]) -> Result<Appended> {
    let _reservation = begin_writing(family, chunk.len())?;
    let mut leases = Vec::new();
    let compression = family.core.options.compression();
    let pointer = family.core.vlog.append_leased(chunk, compression, &mut leases)?;
    family.core.count(Metric::ValueLogWritten, pointer.record_bytes());
    Ok((pointer, leases))
}

/// One thread.
struct Helper {
    chunks: Option<SyncSender<Vec<u8>>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle>,
    /// It has a chunk whose result was not taken.
    busy: bool,
}

impl Helper {
    fn start(family: &Family) -> Option<Self> {
        let (chunks, given) = sync_channel::<Vec<u8>>(1);
        let (tell, done) = sync_channel::<Done>(1);
        let threads = &family.shared.write.env.threads;
        let family = family.clone();
        let body = move || {
            while let Ok(chunk) = given.recv() {
                let appended = append(&family, &chunk);
                if tell.send((chunk, appended)).is_err() {
                    break;
                }
            }
        };
        let thread = threads.spawn("tidesdb-stream", Priority::Normal, Box::new(body)).ok()?;
        Some(Self { chunks: Some(chunks), done, thread: Some(thread), busy: false })
    }

    /// Waits for the result of its chunk, if it has one.
    fn take(&mut self) -> Option<Done> {
        if !std::mem::take(&mut self.busy) {
            return None;
        }
        let lost = |_| (Vec::new(), Err(Error::internal("a helper of a value writer ended")));
        Some(self.done.recv().unwrap_or_else(lost))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.chunks = None; // ends the thread
        while self.done.recv().is_ok() {}
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// The helpers of one writer.
pub(super) struct Helpers {
    helpers: Vec<Helper>,
    /// The one whose turn is next.
    turn: usize,
    /// Counted in [`RUNNING`].
    counted: usize,
}

impl Helpers {
    /// Starts helpers; `None` if the database does without threads, or if there are many in the process already.
    pub(super) fn start(family: &Family) -> Option<Self> {
        let ctx = &family.shared.write;
        let processors = ctx.env.threads.parallelism();
        let wanted = processors.min(HELPERS_MAX);
        if ctx.options.background_threads == Some(0) {
            return None;
        }
        let counted = RUNNING.fetch_add(wanted, Ordering::Relaxed) + wanted;
        let mut this = Self { helpers: Vec::new(), turn: 0, counted: wanted };
        if counted <= processors * PER_PROCESSOR {
            this.helpers.extend((0..wanted).map_while(|_| Helper::start(family)));
        }
        (!this.helpers.is_empty()).then_some(this)
    }

    /// Gives `chunk` to the next helper. Returns the result of its previous chunk, which is the oldest one not taken.
    pub(super) fn exchange(&mut self, chunk: Vec<u8>) -> Option<Done> {
        let count = self.helpers.len();
        let helper = &mut self.helpers[self.turn];
        self.turn = (self.turn + 1) % count;
        let done = helper.take();
        helper.busy = helper.chunks.as_ref().is_some_and(|chunks| chunks.send(chunk).is_ok());
        if helper.busy { done } else { Some((Vec::new(), Err(Error::internal("a helper ended")))) }
    }

    /// Waits for the oldest result not taken.
    pub(super) fn next(&mut self) -> Option<Done> {
        let count = self.helpers.len();
        let turn = (self.turn..self.turn + count).map(|at| at % count).find(|&at| self.helpers[at].busy)?;
        self.turn = (turn + 1) % count;
        self.helpers[turn].take()
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.helpers.clear();
        RUNNING.fetch_sub(self.counted, Ordering::Relaxed);
    }
}
