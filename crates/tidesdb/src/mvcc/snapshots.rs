//! Live snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb_sync::modelled::Mutex;

use crate::types::SeqNo;

/// All live snapshots of a database. No limit on their number.
#[derive(Debug, Default)]
pub struct Snapshots {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many there are at each sequence number.
    live: BTreeMap<SeqNo, usize>,
    /// Those of them whose transactions look for conflicts when they commit: how many, and the time at which the first began.
    validating: BTreeMap<SeqNo, (usize, u32)>,
    /// Below this, versions may be gone that no live snapshot needs.
    floor: SeqNo,
}

/// A registered snapshot; dropping it lets its versions go.
#[derive(Debug)]
pub struct SnapshotPin {
    seq: SeqNo,
    validating: bool,
    all: Arc<Snapshots>,
}

impl Snapshots {
    /// Registers a snapshot at the sequence number that `now` reads under the lock. `now` must not wait: other threads need the
    /// lock to get on.
    pub fn register(self: &Arc<Self>, now: impl FnOnce() -> SeqNo) -> SnapshotPin {
        let mut state = self.state.lock();
        let seq = now();
        *state.live.entry(seq).or_insert(0) += 1;
        SnapshotPin { seq, validating: false, all: Arc::clone(self) }
    }

    /// As [`Snapshots::register`], for a transaction that begins at the second `began` and whose commit looks for conflicts:
    /// merges keep the newest version of each key that was written since, and what had not expired.
    pub fn register_validating(self: &Arc<Self>, began: u32, now: impl FnOnce() -> SeqNo) -> SnapshotPin {
        let mut state = self.state.lock();
        let seq = now();
        *state.live.entry(seq).or_insert(0) += 1;
        state.validating.entry(seq).or_insert((0, began)).0 += 1;
        SnapshotPin { seq, validating: true, all: Arc::clone(self) }
    }

    /// The oldest live snapshot of a transaction whose commit looks for conflicts, and the time at which it began. Time never goes
    /// back, so no other one began earlier.
    pub fn oldest_validating(&self) -> Option<(SeqNo, u32)> {
        self.state.lock().validating.first_key_value().map(|(seq, (_, began))| (*seq, *began))
    }

    /// Registers a snapshot at `seq`, which is published, if everything that it shows is still there; else the first sequence
    /// number of which that is sure.
    ///
    /// # Errors
    /// That number.
    pub fn register_at(self: &Arc<Self>, seq: SeqNo) -> Result<SnapshotPin, SeqNo> {
        let mut state = self.state.lock();
        if seq < state.floor && !state.live.contains_key(&seq) {
            return Err(state.floor);
        }
        *state.live.entry(seq).or_insert(0) += 1;
        Ok(SnapshotPin { seq, validating: false, all: Arc::clone(self) })
    }

    /// Nothing is sure of the time before `seq`.
    pub fn begin_at(&self, seq: SeqNo) {
        let mut state = self.state.lock();
        state.floor = state.floor.max(seq);
    }

    /// All live snapshots before `floor` in ascending order, and then `floor`, read under the same lock: the points in time at
    /// which someone reads, and the first of all those at which someone can begin to read.
    pub fn readers(&self, floor: impl FnOnce() -> SeqNo) -> Vec<SeqNo> {
        let mut state = self.state.lock();
        let floor = floor();
        state.floor = state.floor.max(floor);
        state.live.range(..floor).map(|(seq, _)| *seq).chain([floor]).collect()
    }

    /// Number of live snapshots.
    pub fn count(&self) -> usize {
        self.state.lock().live.values().sum()
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
        let mut state = self.all.state.lock();
        if let Some(n) = state.live.get_mut(&self.seq) {
            *n -= 1;
            if *n == 0 {
                state.live.remove(&self.seq);
            }
        }
        if self.validating
            && let Some((n, _)) = state.validating.get_mut(&self.seq)
        {
            *n -= 1;
            if *n == 0 {
                state.validating.remove(&self.seq);
            }
        }
    }
}
