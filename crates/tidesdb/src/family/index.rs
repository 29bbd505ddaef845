//! What a database must know of its families without looking at all of them: which retain the log, which wait for a flush, which have
//! damaged tables, and which the next sweep looks at. Each family tells the index what changes, so a database with many families that are
//! not used does no work for them.
//!
//! Its locks are leaves: a family tells the index of a change of its view while it holds the lock of the view.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use tidesdb_sync::Mutex;

use crate::types::{FamilyId, SeqNo};

/// What the memtables of a family mean for the log and for flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemtableFacts {
    /// The log is needed from here on; `None` without a memtable.
    pub(super) pins: Option<SeqNo>,
    /// Whether one waits for its flush.
    pub(super) waits: bool,
}

/// The index of the families of one database.
#[derive(Debug, Default)]
pub struct FamilyIndex {
    memtables: Mutex<Memtables>,
    damaged: Mutex<BTreeSet<FamilyId>>,
    sweeps: Mutex<Sweeps>,
}

#[derive(Debug, Default)]
struct Memtables {
    /// The families with memtables, by the log that these need.
    pins: BTreeSet<(SeqNo, FamilyId)>,
    /// Those with immutable ones.
    waiting: BTreeSet<FamilyId>,
}

/// When families are looked at again, if nothing tells earlier that they have changed.
#[derive(Debug, Default)]
struct Sweeps {
    /// With the next sweep.
    next: BTreeSet<FamilyId>,
    /// With the next sweep of a quiet database that looks for leftovers.
    settling: BTreeSet<FamilyId>,
    /// When a registered reader has ended.
    held: BTreeSet<FamilyId>,
    /// At a time, in milliseconds since the UNIX epoch.
    later: Appointments,
    /// When no reader can begin below a sequence number any more.
    behind: Appointments,
    /// The numbers at which readers were registered at the last sweep, in ascending order.
    registered: Vec<SeqNo>,
}

/// Families and the number, such as a time, that each waits for.
#[derive(Debug, Default)]
struct Appointments {
    of: BTreeMap<FamilyId, u64>,
    in_order: BTreeSet<(u64, FamilyId)>,
}

impl Appointments {
    /// Lets `family` wait for `at`, and for nothing that was set before.
    fn set(&mut self, family: FamilyId, at: u64) {
        self.remove(family);
        self.of.insert(family, at);
        self.in_order.insert((at, family));
    }

    /// Lets `family` wait for nothing.
    fn remove(&mut self, family: FamilyId) {
        if let Some(at) = self.of.remove(&family) {
            self.in_order.remove(&(at, family));
        }
    }

    /// Removes the families that wait for at most `now`.
    fn take_until(&mut self, now: u64) -> BTreeSet<FamilyId> {
        let mut taken = BTreeSet::new();
        while let Some(first) = self.in_order.first().copied().filter(|(at, _)| *at <= now) {
            self.in_order.remove(&first);
            self.of.remove(&first.1);
            taken.insert(first.1);
        }
        taken
    }
}

/// What a sweep knows, see [`FamilyIndex::take_swept`].
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Whether it looks for leftovers.
    pub settles: bool,
    /// The numbers at which readers are registered, in ascending order.
    pub registered: Vec<SeqNo>,
    /// The time, in milliseconds since the UNIX epoch.
    pub now: u64,
    /// No reader can begin below this sequence number.
    pub floor: SeqNo,
}

/// When a sweep should look at a family again, see [`FamilyIndex::look_again`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Again {
    /// With the next sweep: something changes that nothing tells of.
    pub soon: bool,
    /// With the next sweep that looks for leftovers.
    pub settling: bool,
    /// When a registered reader has ended.
    pub held: bool,
    /// At this time.
    pub at: Option<u64>,
    /// When no reader can begin below this sequence number.
    pub floor: Option<SeqNo>,
}

impl FamilyIndex {
    /// Notes that the facts about the memtables of `family` changed.
    pub(super) fn set_memtables(&self, family: FamilyId, old: MemtableFacts, new: MemtableFacts) {
        let mut memtables = self.memtables.lock();
        if let Some(pins) = old.pins {
            memtables.pins.remove(&(pins, family));
        }
        memtables.pins.extend(new.pins.map(|pins| (pins, family)));
        match new.waits {
            true => memtables.waiting.insert(family),
            false => memtables.waiting.remove(&family),
        };
    }

    /// Returns the families whose memtables need the log from a number below `end`, in the order of these numbers, up to `max` of those after
    /// `after`.
    pub fn pinning(
        &self,
        end: SeqNo,
        after: Option<(SeqNo, FamilyId)>,
        max: usize,
    ) -> Vec<(SeqNo, FamilyId)> {
        let memtables = self.memtables.lock();
        let from = after.unwrap_or((0, FamilyId(0)));
        let all = memtables.pins.range(from..(end, FamilyId(0)));
        all.filter(|at| Some(**at) != after).take(max).copied().collect()
    }

    /// Returns the families whose memtables need the log from numbers for which `wanted` returns true; they are the lowest.
    pub fn pinning_while(&self, wanted: impl Fn(SeqNo) -> bool) -> Vec<(SeqNo, FamilyId)> {
        self.memtables.lock().pins.iter().take_while(|(pins, _)| wanted(*pins)).copied().collect()
    }

    /// Returns the lowest number from which a family for which `counts` returns true needs the log.
    pub fn lowest_pin(&self, counts: impl Fn(FamilyId) -> bool) -> Option<SeqNo> {
        self.memtables.lock().pins.iter().find(|(_, id)| counts(*id)).map(|(pins, _)| *pins)
    }

    /// Returns up to `max` families with memtables that wait for their flush.
    pub fn waiting(&self, max: usize) -> Vec<FamilyId> {
        self.memtables.lock().waiting.iter().take(max).copied().collect()
    }

    /// Notes whether `family` has damaged tables. `is_damaged` says so at that moment.
    pub(super) fn note_damage(&self, family: FamilyId, is_damaged: impl FnOnce() -> bool) {
        let mut damaged = self.damaged.lock();
        match is_damaged() {
            true => damaged.insert(family),
            false => damaged.remove(&family),
        };
    }

    /// Forgets `family`, which was dropped. Its memtables are gone.
    pub(super) fn forget(&self, family: FamilyId) {
        self.damaged.lock().remove(&family);
        let sweeps = &mut *self.sweeps.lock();
        for families in [&mut sweeps.next, &mut sweeps.settling, &mut sweeps.held] {
            families.remove(&family);
        }
        sweeps.later.remove(family);
        sweeps.behind.remove(family);
    }

    /// Returns the families with damaged tables.
    pub fn damaged(&self) -> Vec<FamilyId> {
        self.damaged.lock().iter().copied().collect()
    }

    /// Has the next sweep look at `family`.
    pub fn sweep_next(&self, family: FamilyId) {
        self.sweeps.lock().next.insert(family);
    }

    /// Takes the families that `sweep` looks at: those that changed, and those for which the time, the end of a reader or the floor has
    /// come that they wait for. Also returns those for whose readers this may change something.
    pub fn take_swept(&self, sweep: &Sweep) -> (BTreeSet<FamilyId>, BTreeSet<FamilyId>) {
        let mut sweeps = self.sweeps.lock();
        let mut taken = take(&mut sweeps.next);
        if sweep.settles {
            taken.append(&mut sweeps.settling);
        }
        let mut released = sweeps.behind.take_until(sweep.floor);
        // A family that waits was looked at beside the readers of the last sweep.
        let is_there = |seq: &SeqNo| sweep.registered.binary_search(seq).is_ok();
        if !sweeps.registered.iter().all(is_there) {
            released.append(&mut sweeps.held);
        }
        sweeps.registered.clone_from(&sweep.registered);
        taken.extend(&released);
        taken.append(&mut sweeps.later.take_until(sweep.now));
        (taken, released)
    }

    /// Has a sweep look at `family` again.
    pub fn look_again(&self, family: FamilyId, again: Again) {
        let mut sweeps = self.sweeps.lock();
        if again.soon {
            sweeps.next.insert(family);
        }
        if again.settling {
            sweeps.settling.insert(family);
        }
        if again.held {
            sweeps.held.insert(family);
        }
        if let Some(at) = again.at {
            sweeps.later.set(family, at);
        }
        if let Some(floor) = again.floor {
            sweeps.behind.set(family, floor);
        }
    }

    /// Number of families that some sweep will look at.
    #[cfg(test)]
    pub fn to_sweep(&self) -> usize {
        let sweeps = self.sweeps.lock();
        let waiting = sweeps.later.in_order.len() + sweeps.behind.in_order.len();
        sweeps.next.len() + sweeps.settling.len() + sweeps.held.len() + waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FamilyId = FamilyId(1);
    const B: FamilyId = FamilyId(2);

    fn facts(pins: SeqNo, waits: bool) -> MemtableFacts {
        MemtableFacts { pins: Some(pins), waits }
    }

    #[test]
    fn the_log_is_needed_from_the_lowest_number_of_those_that_count() {
        let (index, none) = (FamilyIndex::default(), MemtableFacts::default());
        index.set_memtables(A, none, facts(30, false));
        index.set_memtables(B, none, facts(20, true));
        assert_eq!((index.lowest_pin(|_| true), index.lowest_pin(|id| id != B)), (Some(20), Some(30)));
        assert_eq!((index.pinning(30, None, 9), index.pinning(31, None, 1)), (vec![(20, B)], vec![(20, B)]));
        assert_eq!(index.pinning(31, Some((20, B)), 9), [(30, A)]);
        assert_eq!(index.waiting(9), [B]);
        index.set_memtables(B, facts(20, true), none);
        assert_eq!((index.lowest_pin(|_| true), index.waiting(9)), (Some(30), vec![]));
    }

    #[test]
    fn a_family_is_looked_at_when_it_changed_or_its_time_has_come() {
        let index = FamilyIndex::default();
        let swept = |settles, registered: &[SeqNo], now| {
            let taken = index.take_swept(&Sweep { settles, registered: registered.to_vec(), now, floor: 0 });
            taken.0.into_iter().collect::<Vec<_>>()
        };
        index.sweep_next(A);
        assert_eq!((swept(false, &[4, 9], 0), swept(true, &[4, 9], 0)), (vec![A], vec![]));
        index.look_again(A, Again { settling: true, ..Again::default() });
        assert_eq!((swept(false, &[4, 9], 0), swept(true, &[4, 9], 0)), (vec![], vec![A]));
        index.look_again(A, Again { held: true, at: Some(70), ..Again::default() });
        assert_eq!((swept(true, &[4, 9], 69), swept(false, &[4, 9, 12], 70)), (vec![], vec![A]));
        let ends = Sweep { registered: vec![9, 12], now: 70, ..Sweep::default() };
        assert_eq!(index.take_swept(&ends).1, BTreeSet::from([A]), "a reader has ended");
        assert_eq!((swept(true, &[], u64::MAX), index.to_sweep()), (vec![], 0));
    }

    /// A family whose tables come and go waits for one time, not for that of each table that it has had.
    #[test]
    fn a_family_waits_for_one_time_and_one_floor() {
        let index = FamilyIndex::default();
        for at in [50, 90, 20] {
            index.look_again(A, Again { at: Some(at), floor: Some(at + 1), ..Again::default() });
        }
        index.look_again(B, Again { at: Some(30), ..Again::default() });
        assert_eq!(index.to_sweep(), 3);
        let swept = |now, floor| index.take_swept(&Sweep { now, floor, ..Sweep::default() });
        assert_eq!(swept(29, 20), (BTreeSet::from([A]), BTreeSet::new()));
        assert_eq!(swept(29, 21), (BTreeSet::from([A]), BTreeSet::from([A])), "readers have moved on");
        assert_eq!(swept(30, 99), (BTreeSet::from([B]), BTreeSet::new()));
        assert_eq!((swept(u64::MAX, u64::MAX).0, index.to_sweep()), (BTreeSet::new(), 0));
    }

    #[test]
    fn a_dropped_family_is_forgotten_wherever_it_waits() {
        let index = FamilyIndex::default();
        let again =
            Again { soon: true, settling: true, held: true, at: Some(u64::MAX), floor: Some(u64::MAX) };
        index.look_again(A, again);
        index.note_damage(A, || true);
        index.forget(A);
        assert_eq!((index.to_sweep(), index.damaged()), (0, vec![]));
    }
}
