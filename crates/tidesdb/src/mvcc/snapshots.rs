//! Live snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb_sync::Mutex;

use crate::types::SeqNo;

/// All live snapshots of a database. No limit on their number.
#[derive(Debug, Default)]
pub struct Snapshots {
    live: Mutex<BTreeMap<SeqNo, usize>>,
}

/// A registered snapshot; dropping it lets its versions go.
#[derive(Debug)]
pub struct SnapshotPin {
    seq: SeqNo,
    all: Arc<Snapshots>,
}

impl Snapshots {
    /// Registers a snapshot at the sequence number that `now` reads under the lock.
    pub fn register(self: &Arc<Self>, now: impl FnOnce() -> SeqNo) -> SnapshotPin {
        let mut live = self.live.lock();
        let seq = now();
        *live.entry(seq).or_insert(0) += 1;
        SnapshotPin { seq, all: Arc::clone(self) }
    }

    /// All live snapshots in ascending order, and then `now`, read under the same lock: the points in time at which
    /// someone reads, or can begin to read.
    pub fn readers(&self, now: impl FnOnce() -> SeqNo) -> Vec<SeqNo> {
        let live = self.live.lock();
        let mut out: Vec<SeqNo> = live.keys().copied().collect();
        let now = now();
        if out.last() != Some(&now) {
            out.push(now);
        }
        out
    }

    /// Number of live snapshots.
    pub fn count(&self) -> usize {
        self.live.lock().values().sum()
    }
}

impl SnapshotPin {
    /// The sequence number that the snapshot reads at.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }
}

impl Clone for SnapshotPin {
    fn clone(&self) -> Self {
        self.all.register(|| self.seq)
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut live = self.all.live.lock();
        if let Some(n) = live.get_mut(&self.seq) {
            *n -= 1;
            if *n == 0 {
                live.remove(&self.seq);
            }
        }
    }
}
