//! Live snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb_sync::modelled::Mutex;
use tidesdb_sync::rank;

use crate::types::SeqNo;

/// All live snapshots of a database. No limit on their number.
#[derive(Debug, Default)]
pub struct Snapshots {
    state: Mutex<State, { rank::SNAPSHOTS }>,
}

#[derive(Debug, Default)]
struct State {
    /// Those at each sequence number.
    live: BTreeMap<SeqNo, Pins>,
    /// Below this, versions may be gone that no live snapshot needs.
    floor: SeqNo,
}

/// The snapshots at one sequence number.
#[derive(Debug, Default)]
struct Pins {
    count: usize,
    /// How many of them are of transactions that look for conflicts when they commit, and when the first of these began.
    validating: usize,
    began: u32,
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
        self.pin(&mut state, seq, None)
    }

    /// As [`Snapshots::register`], for a transaction that begins at the second `began` and whose commit looks for conflicts:
    /// merges keep the newest version of each key that was written since, and what had not expired.
    pub fn register_validating(self: &Arc<Self>, began: u32, now: impl FnOnce() -> SeqNo) -> SnapshotPin {
        let mut state = self.state.lock();
        let seq = now();
        self.pin(&mut state, seq, Some(began))
    }

    fn pin(self: &Arc<Self>, state: &mut State, seq: SeqNo, validating: Option<u32>) -> SnapshotPin {
        let pins = state.live.entry(seq).or_default();
        pins.count += 1;
        if let Some(began) = validating {
            pins.began = if pins.validating == 0 { began } else { pins.began };
            pins.validating += 1;
        }
        SnapshotPin { seq, validating: validating.is_some(), all: Arc::clone(self) }
    }

    /// The oldest live snapshot of a transaction whose commit looks for conflicts, and the time at which it began. Time never goes
    /// back, so no other one began earlier.
    pub fn oldest_validating(&self) -> Option<(SeqNo, u32)> {
        let state = self.state.lock();
        let oldest = state.live.iter().find(|(_, pins)| pins.validating > 0);
        oldest.map(|(seq, pins)| (*seq, pins.began))
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
        Ok(self.pin(&mut state, seq, None))
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
        self.state.lock().live.values().map(|pins| pins.count).sum()
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
        if let Some(pins) = state.live.get_mut(&self.seq) {
            pins.count -= 1;
            pins.validating -= usize::from(self.validating);
            if pins.count == 0 {
                state.live.remove(&self.seq);
            }
        }
    }
}
