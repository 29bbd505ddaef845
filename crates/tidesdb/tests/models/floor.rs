//! Readers against a merge that drops versions: a reader at a sequence number finds the version of that number.
//!
//! All commits write one key, so a reader at `s` must find the newest place at or below `s`. The merge is a flush of everything
//! published, together with what was flushed before; the rules and the decision are the engine's.

use std::sync::Arc;

use tidesdb::SeqNo;
use tidesdb::internals::merge::{Action, Retain, RetainRules};
use tidesdb::internals::mvcc::Snapshots;
use tidesdb::internals::types::{Comparator, Kind};
use tidesdb_sync::{EpochCell, pin};

use super::{Log, RECORD, check, join, spawn};

/// The view that a reader loads in one step.
#[derive(Clone, Debug, Default)]
struct View {
    /// Versions in tables, newest first.
    table: Vec<SeqNo>,
    /// All places from here on are in the memtable.
    memtable_from: usize,
}

struct World {
    log: Log,
    snapshots: Arc<Snapshots>,
    view: EpochCell<View>,
    /// Distance below `visible` down to which old versions are kept for readers at a given number.
    history: u64,
}

impl World {
    /// Creates a world in which the key was already written `versions` times.
    fn new(history: u64, versions: u64) -> Arc<Self> {
        let world = Self {
            log: Log::new(),
            snapshots: Arc::default(),
            view: EpochCell::new(View::default()),
            history,
        };
        for _ in 0..versions {
            world.log.put(1);
        }
        Arc::new(world)
    }

    fn visible(&self) -> SeqNo {
        self.log.sequencer.snapshot()
    }

    /// Checks that a reader at `seq` finds the correct version in `view`.
    fn check(&self, view: &View, seq: SeqNo) {
        let end = self.log.places_at(seq);
        let inserted = (view.memtable_from..end).rev().find(|place| self.log.inserted(*place) != 0);
        let in_table = || view.table.iter().copied().find(|version| *version <= seq);
        let found = inserted.map(|place| self.log.seq(place)).or_else(in_table);
        assert_eq!(found, Some(self.log.seq(end - 1)), "a reader at {seq} in {view:?}");
    }

    fn check_now(&self, seq: SeqNo) {
        let guard = pin();
        self.check(self.view.load(&guard), seq);
    }

    /// Runs a merge; one at a time. Chooses the input first and asks for the readers second, like the engine.
    fn merge(&self) {
        let guard = pin();
        let old = self.view.load(&guard);
        let memtable_from = self.log.place(self.log.sequencer.visible_end());
        let flushed = (old.memtable_from..memtable_from).rev();
        let mut input: Vec<SeqNo> = flushed.map(|place| self.log.seq(place)).collect();
        input.extend(&old.table);
        let mut judge = Retain::new(self.rules(), Comparator::bytewise());
        input.retain(|version| judge.judge(b"k", *version, Kind::Put, 0) == Action::Keep);
        self.view.store(View { table: input, memtable_from });
    }

    /// Like `rewrite::rules`.
    fn rules(&self) -> RetainRules {
        let mut snapshots = self.snapshots.readers(|| self.visible().saturating_sub(self.history));
        let visible_floor = snapshots.pop().expect("the floor");
        let newest_snapshot = self.snapshots.newest();
        RetainRules {
            snapshots,
            visible_floor,
            bottom: true,
            now: None,
            conflicts_since: None,
            newest_snapshot,
            renumber: false,
        }
    }

    /// After all threads have ended: versions that no reader needs are dropped.
    fn finish(&self, kept: usize) {
        self.merge();
        let guard = pin();
        let view = self.view.load(&guard);
        assert_eq!(view.table.len(), kept, "{view:?}");
        self.check(view, self.visible());
    }
}

/// Runs `read` beside a commit and a merge, and returns its result once all have ended.
fn beside_a_merge<R: 'static>(world: &Arc<World>, read: impl FnOnce(&Arc<World>) -> R + 'static) -> R {
    let writer = spawn(world, |world| {
        world.log.put(1);
    });
    let merge = spawn(world, |world| world.merge());
    let reader = spawn(world, read);
    [writer, merge].into_iter().for_each(join);
    join(reader)
}

#[test]
fn a_registered_snapshot_keeps_its_versions() {
    check(|| {
        let world = World::new(0, 1);
        beside_a_merge(&world, |world| {
            let snapshot = world.snapshots.register(|| world.visible());
            world.check_now(snapshot.seq());
            let clone = snapshot.clone();
            drop(snapshot);
            world.check_now(clone.seq());
        });
        world.finish(1);
    });
}

/// The snapshot may be older than both merges, between them, or newer than both.
#[test]
fn a_snapshot_outlives_merge_after_merge() {
    check(|| {
        let world = World::new(0, 1);
        let merges = spawn(&world, |world| {
            world.log.put(1);
            world.merge();
            world.log.put(1);
            world.merge();
        });
        let reader = spawn(&world, |world| {
            let snapshot = world.snapshots.register(|| world.visible());
            world.check_now(snapshot.seq());
            snapshot
        });
        join(merges);
        let snapshot = join(reader);
        world.check_now(snapshot.seq());
        drop(snapshot);
        assert_eq!(world.snapshots.count(), 0);
        world.finish(1);
    });
}

/// A cursor registers its number without a lock and takes its view second, more than once. With `crowded`, no slot is free.
fn hold_a_cursor(crowded: bool) {
    check(move || {
        let world = World::new(0, 1);
        let taken = crowded.then(|| world.snapshots.register_cursor(0, || world.visible()).0);
        beside_a_merge(&world, |world| {
            let (place, seq) = world.snapshots.register_cursor(0, || world.visible());
            world.check_now(seq);
            world.check_now(seq);
            world.snapshots.release_cursor(&place);
        });
        taken.iter().for_each(|place| world.snapshots.release_cursor(place));
        assert_eq!(world.snapshots.cursors().0, 0);
        world.finish(1);
    });
}

#[test]
fn a_registered_cursor_keeps_its_versions() {
    hold_a_cursor(false);
}

#[test]
fn a_cursor_without_a_slot_keeps_its_versions() {
    hold_a_cursor(true);
}

/// A merge may begin between the read of the number and its registration: this shows that the models above can fail.
#[test]
#[should_panic(expected = "a reader at")]
fn a_number_that_is_not_compared_with_the_floor_would_miss_a_version() {
    check(|| {
        let world = World::new(0, 1);
        beside_a_merge(&world, |world| {
            let seq = world.visible();
            let _place = world.snapshots.register_cursor_at(seq, 0);
            world.check_now(seq);
        });
    });
}

/// The number is registered all the time, first by the snapshot, then by the cursor.
#[test]
fn a_cursor_outlives_its_snapshot() {
    check(|| {
        let world = World::new(0, 1);
        let merge = spawn(&world, |world| {
            world.log.put(1);
            world.merge();
        });
        let reader = spawn(&world, |world| {
            let snapshot = world.snapshots.register(|| world.visible());
            let (seq, place) = (snapshot.seq(), world.snapshots.register_cursor_at(snapshot.seq(), 0));
            drop(snapshot);
            world.check_now(seq);
            world.snapshots.release_cursor(&place);
        });
        [merge, reader].into_iter().for_each(join);
        world.finish(1);
    });
}

#[test]
fn a_reader_without_a_snapshot_takes_the_view_first() {
    check(|| {
        let world = World::new(0, 1);
        beside_a_merge(&world, |world| {
            let guard = pin();
            let view = world.view.load(&guard);
            world.check(view, world.visible());
        });
        world.finish(1);
    });
}

/// In the opposite order a merge in between drops the version: this shows that the model above can fail.
#[test]
#[should_panic(expected = "a reader at")]
fn taking_the_number_before_the_view_would_miss_a_version() {
    check(|| {
        let world = World::new(0, 1);
        beside_a_merge(&world, |world| world.check_now(world.visible()));
    });
}

/// A reader asks for an old number: the request fails for a reason, or the whole state is there and stays.
fn ask_for_the_past(history: u64, kept: usize) {
    check(move || {
        let world = World::new(history, 2);
        let past = world.log.seq(1) - 1;
        let asked = beside_a_merge(&world, move |world| {
            let asked = world.snapshots.register_at(past);
            match &asked {
                Ok(snapshot) => world.check_now(snapshot.seq()),
                Err(floor) => assert!(past < *floor && floor + world.history <= world.visible()),
            }
            asked
        });
        if let Ok(snapshot) = asked {
            world.check_now(past);
            world.merge();
            world.check_now(snapshot.seq());
        }
        world.finish(kept);
    });
}

#[test]
fn a_read_of_the_past_fails_or_sees_the_whole_state() {
    ask_for_the_past(0, 1);
}

#[test]
fn a_read_of_the_past_within_the_history_sees_the_whole_state() {
    ask_for_the_past(RECORD, 2);
}

/// A number that another thread's live snapshot keeps can be registered, although it is below the floor.
#[test]
fn the_past_of_a_live_snapshot_can_be_shared() {
    check(|| {
        let world = World::new(0, 1);
        let first = world.snapshots.register(|| world.visible());
        let past = first.seq();
        let merge = spawn(&world, |world| {
            world.log.put(1);
            world.merge();
        });
        let owner = spawn(&world, move |_| drop(first));
        let sharer = spawn(&world, move |world| {
            if let Ok(snapshot) = world.snapshots.register_at(past) {
                world.check_now(snapshot.seq());
            }
        });
        [merge, owner, sharer].into_iter().for_each(join);
        world.finish(1);
    });
}
