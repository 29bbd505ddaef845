//! Live snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb_sync::modelled::Mutex;
use tidesdb_sync::rank;

use crate::types::{ReadPoint, SeqNo};

/// All live snapshots of a database. Their number is not limited.
#[derive(Debug, Default)]
pub struct Snapshots {
    state: Mutex<State, { rank::SNAPSHOTS }>,
}

#[derive(Debug, Default)]
struct State {
    /// Snapshots at each sequence number.
    live: BTreeMap<SeqNo, Pins>,
    /// Below this sequence number, versions that no live snapshot needs may be gone.
    floor: SeqNo,
}

/// The snapshots at one sequence number.
#[derive(Debug, Default)]
struct Pins {
    count: usize,
    /// Number of snapshots of transactions that check for conflicts at commit, and when the first of these transactions
    /// began.
    validating: usize,
    began: u64,
}

/// A registered snapshot; dropping it allows its versions to be dropped.
#[derive(Debug)]
pub struct SnapshotPin {
    seq: SeqNo,
    validating: bool,
    all: Arc<Snapshots>,
}

impl State {
    /// All live snapshots below `floor` in ascending order, then `floor`.
    fn readers(&self, floor: SeqNo) -> Vec<SeqNo> {
        self.live.range(..floor).map(|(seq, _)| *seq).chain([floor]).collect()
    }
}

impl Snapshots {
    /// Registers a snapshot at the sequence number that `now` returns; it is called under the lock. `now` must not
    /// wait: other threads need the lock to make progress.
    pub fn register(self: &Arc<Self>, now: impl FnOnce() -> SeqNo) -> SnapshotPin {
        let mut state = self.state.lock();
        let seq = now();
        self.pin(&mut state, seq, None)
    }

    /// Like [`Snapshots::register`], for a transaction that begins at time `began` and whose commit checks for
    /// conflicts. Merges keep the newest version of each key written since, and what had not expired at `began`.
    pub fn register_validating(self: &Arc<Self>, began: u64, now: impl FnOnce() -> SeqNo) -> SnapshotPin {
        let mut state = self.state.lock();
        let seq = now();
        self.pin(&mut state, seq, Some(began))
    }

    fn pin(self: &Arc<Self>, state: &mut State, seq: SeqNo, validating: Option<u64>) -> SnapshotPin {
        let pins = state.live.entry(seq).or_default();
        pins.count += 1;
        if let Some(began) = validating {
            pins.began = if pins.validating == 0 { began } else { pins.began };
            pins.validating += 1;
        }
        SnapshotPin { seq, validating: validating.is_some(), all: Arc::clone(self) }
    }

    /// The oldest live snapshot of a transaction whose commit checks for conflicts, and the time at which the
    /// transaction began. Time never goes back, so no other such transaction began earlier.
    pub fn oldest_validating(&self) -> Option<ReadPoint> {
        let state = self.state.lock();
        let oldest = state.live.iter().find(|(_, pins)| pins.validating > 0);
        oldest.map(|(seq, pins)| ReadPoint { seq: *seq, now: pins.began })
    }

    /// Registers a snapshot at `seq`, which is published, if everything that it shows still exists.
    ///
    /// # Errors
    /// The first sequence number at which everything still exists.
    pub fn register_at(self: &Arc<Self>, seq: SeqNo) -> Result<SnapshotPin, SeqNo> {
        let mut state = self.state.lock();
        if seq < state.floor && !state.live.contains_key(&seq) {
            return Err(state.floor);
        }
        Ok(self.pin(&mut state, seq, None))
    }

    /// Records that versions before `seq` may be incomplete.
    pub fn begin_at(&self, seq: SeqNo) {
        let mut state = self.state.lock();
        state.floor = state.floor.max(seq);
    }

    /// All live snapshots below `floor` in ascending order, then `floor`, all read under one lock. These are the read
    /// timestamps in use, and the lowest one that a new reader can get.
    pub fn readers(&self, floor: impl FnOnce() -> SeqNo) -> Vec<SeqNo> {
        let mut state = self.state.lock();
        let floor = floor();
        state.floor = state.floor.max(floor);
        state.readers(floor)
    }

    /// Like [`Snapshots::readers`], for callers that drop nothing: new readers may still begin below `floor`.
    pub fn readers_now(&self, floor: SeqNo) -> Vec<SeqNo> {
        self.state.lock().readers(floor)
    }

    /// The numbers at which live snapshots read, in ascending order.
    pub fn registered(&self) -> Vec<SeqNo> {
        self.state.lock().live.keys().copied().collect()
    }

    /// The newest live snapshot.
    pub fn newest(&self) -> Option<SeqNo> {
        self.state.lock().live.last_key_value().map(|(seq, _)| *seq)
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
