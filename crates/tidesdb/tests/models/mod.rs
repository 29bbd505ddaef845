//! What the models share: the exploration, and a [`Log`] of a few places.
//!
//! What a commit leaves behind is written and read with Relaxed accesses: only the order of commits says who sees
//! it, so a publication that is too early or too weak shows as something missing.

mod floor;
mod publish;
mod validated;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;
use tidesdb::SeqNo;
use tidesdb::wal::{Commit, Purpose, Sequencer};

/// Commits that one model makes at most.
const PLACES: usize = 6;
/// Length of a record: no more than its header.
const RECORD_BYTES: u64 = 32;
/// Sequence numbers of a record.
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

/// Runs `body` on what is shared, in a thread of its own.
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

/// The order of commits, with what stands for the file of the log and the memtables: a number for each place, zero if nothing is
/// there.
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

    /// Inserts what `c` brings.
    fn insert(&self, c: &Commit, what: u64) {
        self.memtable[self.place(c.seq)].store(what, Relaxed);
    }

    /// A commit as most are.
    fn put(&self, what: u64) -> Commit {
        let c = self.reserve();
        self.insert(&c, what);
        self.sequencer.done(&c);
        c
    }

    /// The place of a commit, counted from zero; of the end of one: how many come before it.
    fn place(&self, seq: SeqNo) -> usize {
        ((seq - self.first) / RECORD) as usize
    }

    /// Number of the commit at `place`.
    fn seq(&self, place: usize) -> SeqNo {
        self.first + place as u64 * RECORD
    }

    /// How many places a reader at `seq` sees.
    fn places_at(&self, seq: SeqNo) -> usize {
        self.place(seq + 1)
    }

    fn inserted(&self, place: usize) -> u64 {
        self.memtable[place].load(Relaxed)
    }
}
