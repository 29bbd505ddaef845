//! Live snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidesdb_sync::modelled::{AtomicU64, Mutex, Ordering};
use tidesdb_sync::rank;

use super::cursors::{CursorSlots, Slot};
use crate::types::{ReadPoint, SeqNo};

/// All live snapshots and cursors of a database. Their number is not limited.
#[derive(Debug)]
pub struct Snapshots {
    state: Mutex<State, { rank::SNAPSHOTS }>,
    /// Below this sequence number, versions that no registered reader needs may be gone. It only rises, under the lock.
    floor: AtomicU64,
    cursors: CursorSlots,
}

#[derive(Debug, Default)]
struct State {
    /// Snapshots at each sequence number.
    live: BTreeMap<SeqNo, Pins>,
    /// Cursors that found no free slot: the number of each, and when it was created.
    crowd: BTreeMap<u64, (SeqNo, u64)>,
    /// Key of the next cursor in `crowd`.
    next: u64,
}

/// Where the number of a cursor is registered; see [`Snapshots::release_cursor`].
#[derive(Debug)]
pub struct CursorPlace(Place);

#[derive(Debug)]
enum Place {
    Slot(Slot),
    Crowd(u64),
}

/// Held by the cursors of a transaction that checks for conflicts. As long as it lives, rows stay that had not expired when the transaction began.
#[derive(Debug)]
pub struct TimePin {
    seq: SeqNo,
    all: Arc<Snapshots>,
}

/// The snapshots at one sequence number.
#[derive(Debug, Default)]
struct Pins {
    count: usize,
    /// When the first of those that are held without a gap was registered.
    since: u64,
    /// Number of snapshots of transactions that check for conflicts at commit.
    validating: usize,
    /// Number of cursors of such transactions.
    timed: usize,
    /// When the first of these transactions began.
    began: u64,
}

/// A registered snapshot; dropping it allows its versions to be dropped.
#[derive(Debug)]
pub struct SnapshotPin {
    seq: SeqNo,
    /// When the transaction began, if it checks for conflicts.
    began: Option<u64>,
    all: Arc<Snapshots>,
}

impl Pins {
    fn is_empty(&self) -> bool {
        self.count == 0 && self.timed == 0
    }

    /// Returns whether merges keep what had not expired when the transaction began.
    fn keeps_time(&self) -> bool {
        self.validating + self.timed > 0
    }
}

impl State {
    /// Calls `f` on the pins at `seq`, and removes them if none is left.
    fn release(&mut self, seq: SeqNo, f: impl FnOnce(&mut Pins)) {
        if let Some(pins) = self.live.get_mut(&seq) {
            f(pins);
            if pins.is_empty() {
                self.live.remove(&seq);
            }
        }
    }

    /// Registers a cursor for which there is no slot.
    fn add_cursor(&mut self, seq: SeqNo, born: u64) -> CursorPlace {
        let key = self.next;
        self.next += 1;
        self.crowd.insert(key, (seq, born));
        CursorPlace(Place::Crowd(key))
    }
}

impl Default for Snapshots {
    fn default() -> Self {
        Self { state: Mutex::default(), floor: AtomicU64::new(0), cursors: CursorSlots::default() }
    }
}

impl Snapshots {
    /// Registers a snapshot at the sequence number that `now` returns; it is called under the lock. `now` must not
    /// wait: other threads need the lock to make progress. `born` is the time.
    pub fn register(self: &Arc<Self>, born: u64, now: impl FnOnce() -> SeqNo) -> SnapshotPin {
        let mut state = self.state.lock();
        let seq = now();
        self.pin(&mut state, seq, born, None)
    }

    /// Like [`Snapshots::register`], for a transaction whose commit checks for conflicts: `now` also returns the time at which it begins.
    /// Merges keep the newest version of each key written since, and what had not expired then.
    pub fn register_validating(self: &Arc<Self>, now: impl FnOnce() -> ReadPoint) -> SnapshotPin {
        let mut state = self.state.lock();
        let ReadPoint { seq, now } = now();
        self.pin(&mut state, seq, now, Some(now))
    }

    fn pin(self: &Arc<Self>, state: &mut State, seq: SeqNo, born: u64, began: Option<u64>) -> SnapshotPin {
        let pins = state.live.entry(seq).or_default();
        pins.since = if pins.count == 0 { born } else { pins.since };
        pins.count += 1;
        if let Some(began) = began {
            pins.began = if pins.keeps_time() { pins.began } else { began };
            pins.validating += 1;
        }
        SnapshotPin { seq, began, all: Arc::clone(self) }
    }

    /// The oldest live snapshot of a transaction whose commit checks for conflicts, and the time at which the oldest transaction began that
    /// does, or that has a cursor. Time never goes back, so no other began earlier; one that begins after this call does not begin before
    /// a time that was read before it.
    pub fn oldest_validating(&self) -> (Option<SeqNo>, Option<u64>) {
        let state = self.state.lock();
        let validating = state.live.iter().find(|(_, pins)| pins.validating > 0);
        let timed = state.live.values().find(|pins| pins.keeps_time());
        (validating.map(|(seq, _)| *seq), timed.map(|pins| pins.began))
    }

    /// Registers a snapshot at `seq`, which is published, if everything that it shows still exists.
    ///
    /// # Errors
    /// The first sequence number at which everything still exists.
    pub fn register_at(self: &Arc<Self>, seq: SeqNo, born: u64) -> Result<SnapshotPin, SeqNo> {
        let mut state = self.state.lock();
        let floor = self.floor.load(Ordering::SeqCst);
        if seq < floor && !state.live.contains_key(&seq) {
            return Err(floor);
        }
        Ok(self.pin(&mut state, seq, born, None))
    }

    /// Records that versions before `seq` may be incomplete.
    pub fn begin_at(&self, seq: SeqNo) {
        let _state = self.state.lock();
        self.floor.fetch_max(seq, Ordering::SeqCst);
    }

    /// All numbers below `floor` at which a snapshot or a cursor reads, in ascending order, then `floor`. These are the read timestamps in
    /// use, and the lowest one that a new reader can get.
    pub fn readers(&self, floor: impl FnOnce() -> SeqNo) -> Vec<SeqNo> {
        let state = self.state.lock();
        let floor = floor();
        self.floor.fetch_max(floor, Ordering::SeqCst); // before the slots of cursors are read
        self.listed(&state, floor)
    }

    /// Like [`Snapshots::readers`], for callers that drop nothing: new readers may still begin below `floor`.
    pub fn readers_now(&self, floor: SeqNo) -> Vec<SeqNo> {
        self.listed(&self.state.lock(), floor)
    }

    /// Snapshots first, cursors second: a cursor of a snapshot registers its number while the snapshot lives.
    fn listed(&self, state: &State, floor: SeqNo) -> Vec<SeqNo> {
        let mut seqs: Vec<SeqNo> = state.live.range(..floor).map(|(seq, _)| *seq).collect();
        let snapshots = seqs.len();
        seqs.extend(self.cursors_in(state).map(|(seq, _)| seq).filter(|seq| *seq < floor));
        if seqs.len() > snapshots {
            seqs.sort_unstable();
            seqs.dedup();
        }
        seqs.push(floor);
        seqs
    }

    /// The numbers at which snapshots and cursors read, in ascending order.
    pub fn registered(&self) -> Vec<SeqNo> {
        let mut seqs = self.listed(&self.state.lock(), SeqNo::MAX);
        seqs.pop();
        seqs
    }

    /// The number of each cursor, and when it was created.
    fn cursors_in(&self, state: &State) -> impl Iterator<Item = (SeqNo, u64)> {
        state.crowd.values().copied().chain(self.cursors.all())
    }

    /// The newest number at which a snapshot or a cursor reads.
    pub fn newest(&self) -> Option<SeqNo> {
        let state = self.state.lock();
        let snapshot = state.live.last_key_value().map(|(seq, _)| *seq);
        snapshot.max(self.cursors_in(&state).map(|(seq, _)| seq).max())
    }

    /// Number of live snapshots, transactions included.
    pub fn count(&self) -> usize {
        self.state.lock().live.values().map(|pins| pins.count).sum()
    }

    /// When the oldest live snapshot below `newest` was registered. Those at the newest number keep nothing.
    pub fn oldest(&self, newest: SeqNo) -> Option<u64> {
        let state = self.state.lock();
        state.live.range(..newest).filter(|(_, pins)| pins.count > 0).map(|(_, pins)| pins.since).min()
    }

    /// Number of cursors that are registered, and when the oldest of them was created.
    pub fn cursors(&self) -> (usize, Option<u64>) {
        let state = self.state.lock();
        let (count, oldest) = self
            .cursors_in(&state)
            .fold((0, u64::MAX), |(count, oldest), (_, born)| (count + 1, oldest.min(born)));
        (count, Some(oldest).filter(|oldest| *oldest != u64::MAX))
    }

    /// Registers a cursor at the number that `newest` returns, which is published, and returns both. Takes no lock as long as there is a
    /// free slot. `born` is the time. The caller takes its view afterwards.
    ///
    /// Why no merge drops a version that the cursor needs, at whatever time the merge began and will end: let `s` be the number, and `F` the
    /// floor at which a merge calls [`Snapshots::readers`]. The merge raises `floor` to `F` and then reads the slots; the cursor stores `s`
    /// in its slot and then reads `floor`. All four are SeqCst. If the merge reads `s` in the slot, it keeps what `s` shows. If not, it read
    /// the slot before `s` was stored, so it raised `floor` before the cursor read it, and the cursor found a floor of at least `F`. It
    /// accepts `s` only if that is not above `s`, so `F <= s`: the merge keeps what any reader from `F` on shows. Otherwise the cursor asks
    /// for a newer number: every floor was published before, so the next number is not below it, and only another merge that begins at that
    /// moment makes the cursor ask again.
    ///
    /// So every view, taken now or at any later time while the cursor is registered, shows it the same versions. Commits up to `s` are in
    /// the view because they are published: each is in a memtable that was in the view before. Later commits are above `s`.
    pub fn register_cursor(&self, born: u64, newest: impl Fn() -> SeqNo) -> (CursorPlace, SeqNo) {
        let mut seq = newest();
        let Some(slot) = self.cursors.take(seq, born) else { return self.join_crowd(born, seq, newest) };
        while seq < self.floor.load(Ordering::SeqCst) {
            seq = newest();
            self.cursors.set(&slot, seq);
        }
        (CursorPlace(Place::Slot(slot)), seq)
    }

    /// Registers a cursor under the lock. `newest` is called without it, because it may wait for commits.
    #[cold]
    fn join_crowd(&self, born: u64, mut seq: SeqNo, newest: impl Fn() -> SeqNo) -> (CursorPlace, SeqNo) {
        loop {
            let mut state = self.state.lock();
            if seq >= self.floor.load(Ordering::SeqCst) {
                return (state.add_cursor(seq, born), seq);
            }
            drop(state);
            seq = newest();
        }
    }

    /// Registers a cursor at `seq`, the number of a snapshot that lives until the call returns.
    pub fn register_cursor_at(&self, seq: SeqNo, born: u64) -> CursorPlace {
        match self.cursors.take(seq, born) {
            Some(slot) => CursorPlace(Place::Slot(slot)),
            None => self.state.lock().add_cursor(seq, born),
        }
    }

    /// Allows merges to drop what only this cursor needs.
    pub fn release_cursor(&self, place: &CursorPlace) {
        match &place.0 {
            Place::Slot(slot) => self.cursors.free(slot),
            Place::Crowd(key) => drop(self.state.lock().crowd.remove(key)),
        }
    }
}

impl SnapshotPin {
    /// The sequence number that the snapshot reads at.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// When the transaction began, if it checks for conflicts.
    pub fn began(&self) -> Option<u64> {
        self.began
    }

    /// For the snapshot of a transaction that checks for conflicts: keeps what had not expired when it began, for a cursor that may outlive
    /// the transaction. `None` for other snapshots.
    pub fn keep_time(&self) -> Option<TimePin> {
        self.began.map(|_| {
            self.all.state.lock().live.entry(self.seq).or_default().timed += 1;
            TimePin { seq: self.seq, all: Arc::clone(&self.all) }
        })
    }
}

impl Drop for TimePin {
    fn drop(&mut self) {
        self.all.state.lock().release(self.seq, |pins| pins.timed -= 1);
    }
}

impl Clone for SnapshotPin {
    fn clone(&self) -> Self {
        self.all.register(0, || self.seq) // this one was registered first
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        self.all.state.lock().release(self.seq, |pins| {
            pins.count -= 1;
            pins.validating -= usize::from(self.began.is_some());
        });
    }
}
