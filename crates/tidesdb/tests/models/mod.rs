//! Shared by the models: the exploration, and a [`Log`] of a few places.
//!
//! The data of a commit is written and read with Relaxed accesses: only the order of commits makes it visible. So a
//! publication that is too early or too weak shows up as missing data.

mod floor;
mod publish;
mod validated;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;
use tidesdb::SeqNo;
use tidesdb::internals::wal::{Commit, Purpose, Sequencer};

/// Maximum number of commits in one model.
const PLACES: usize = 6;
/// Length of a record: only its header.
const RECORD_BYTES: u64 = 32;
/// Sequence numbers per record.
const RECORD: u64 = RECORD_BYTES / 8;

/// Explores all schedules of `model` and prints how many there were.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        model();
    });
    println!("{} executions", executions.load(Relaxed));
}

/// Runs `body` on the shared state in a new thread.
fn spawn<S: 'static, R: 'static>(
    shared: &Arc<S>,
    body: impl FnOnce(&Arc<S>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || body(&shared))
}

fn join<R>(thread: thread::JoinHandle<R>) -> R {
    thread.join().expect("the thread passed")
}

/// The order of commits, with a stand-in for the file of the log and the memtables: a number for each place, zero if the place
/// is empty.
struct Log {
    sequencer: Sequencer,
    first: SeqNo,
    file: [AtomicU64; PLACES],
    memtable: [AtomicU64; PLACES],
}

impl Log {
    fn new() -> Self {
        let sequencer = Sequencer::new(1 << 20, 1);
        let first = sequencer.tail();
        let cells = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { sequencer, first, file: cells(), memtable: cells() }
    }

    fn reserve(&self) -> Commit {
        self.sequencer.reserve(RECORD_BYTES, Purpose::Store).expect("the order is not stopped")
    }

    /// Writes the record of `c`.
    fn write(&self, c: &Commit, what: u64) {
        self.file[self.place(c.seq)].store(what, Relaxed);
        self.sequencer.written(c);
    }

    /// Inserts the data of `c`.
    fn insert(&self, c: &Commit, what: u64) {
        self.memtable[self.place(c.seq)].store(what, Relaxed);
    }

    /// Runs an ordinary commit.
    fn put(&self, what: u64) -> Commit {
        let c = self.reserve();
        self.insert(&c, what);
        self.sequencer.done(&c);
        c
    }

    /// Returns the place of a commit, counted from zero. For the end of a commit: how many places precede it.
    fn place(&self, seq: SeqNo) -> usize {
        ((seq - self.first) / RECORD) as usize
    }

    /// Returns the sequence number of the commit at `place`.
    fn seq(&self, place: usize) -> SeqNo {
        self.first + place as u64 * RECORD
    }

    /// Returns the number of places that a reader at `seq` sees.
    fn places_at(&self, seq: SeqNo) -> usize {
        self.place(seq + 1)
    }

    fn inserted(&self, place: usize) -> u64 {
        self.memtable[place].load(Relaxed)
    }
}
