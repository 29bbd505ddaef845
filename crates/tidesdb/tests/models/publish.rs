//! The order of commits: what has returned is seen, nothing is seen before all that came before it.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use tidesdb::SeqNo;
use tidesdb::wal::{Commit, Purpose};
use tidesdb_sync::Backoff;

use super::{Log, check, join, spawn};

const PLAIN: u64 = 1;
const SYNCED: u64 = 2;

struct World {
    log: Log,
    /// Newest commit that has returned.
    returned: AtomicU64,
    /// Begin of the newest memtable, as a rotation says it while it holds the tail.
    boundary: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { log: Log::new(), returned: AtomicU64::new(0), boundary: AtomicU64::new(0) })
    }

    /// Commits, and says so to the world.
    fn put(&self) -> Commit {
        let c = self.log.put(PLAIN);
        self.returned.fetch_max(c.seq, Ordering::AcqRel);
        c
    }

    /// As a commit in mode `Full`: visible once it is durable.
    fn put_synced(&self) -> Commit {
        let (log, sequencer) = (&self.log, &self.log.sequencer);
        let c = log.reserve();
        log.write(&c, SYNCED);
        log.insert(&c, SYNCED);
        sequencer.ready(&c);
        let mut backoff = Backoff::new();
        while sequencer.written_end() < c.end {
            backoff.snooze();
        }
        self.sync();
        sequencer.publish();
        sequencer.acknowledge(&c);
        self.returned.fetch_max(c.seq, Ordering::AcqRel);
        c
    }

    /// As a leader's sync: the gap-free prefix of what is with the kernel becomes durable.
    fn sync(&self) {
        let end = self.log.sequencer.written_end();
        self.check_written(end);
        self.log.sequencer.set_durable(end);
    }

    fn check_written(&self, end: SeqNo) {
        for place in 0..self.log.place(end) {
            assert_ne!(self.log.file[place].load(Ordering::Relaxed), 0, "place {place} is not written");
        }
    }

    /// Begins to read, and looks at all that must be there.
    fn read(&self) {
        let returned = self.returned.load(Ordering::Acquire);
        let seq = self.log.sequencer.snapshot();
        assert!(seq >= returned, "a commit has returned and is not seen");
        self.check_seen(seq);
    }

    fn check_seen(&self, seq: SeqNo) {
        for place in 0..self.log.places_at(seq) {
            let what = self.log.inserted(place);
            assert_ne!(what, 0, "place {place} is visible before it is inserted");
            let durable = self.log.sequencer.durable() >= self.log.seq(place + 1);
            assert!(what != SYNCED || durable, "place {place} is visible before it is durable");
        }
    }

    /// After all threads: every commit was published.
    fn finish(&self, commits: usize) {
        let sequencer = &self.log.sequencer;
        assert_eq!(sequencer.visible_end(), sequencer.tail(), "the prefix stands still");
        assert_eq!(sequencer.tail(), self.log.seq(commits));
        self.check_seen(sequencer.snapshot());
    }
}

#[test]
fn a_commit_that_has_returned_is_seen_with_all_before_it() {
    check(|| {
        let world = World::new();
        let writers = [0; 2].map(|_| {
            spawn(&world, |world| {
                world.put();
            })
        });
        let reader = spawn(&world, |world| world.read());
        writers.into_iter().for_each(join);
        join(reader);
        world.finish(2);
    });
}

#[test]
fn a_writer_sees_its_own_commit() {
    check(|| {
        let world = World::new();
        let writers = [0; 2].map(|_| {
            spawn(&world, |world| {
                let c = world.put();
                let seq = world.log.sequencer.snapshot();
                assert!(seq >= c.seq, "a writer misses its own commit");
                world.check_seen(seq);
            })
        });
        writers.into_iter().for_each(join);
        world.finish(2);
    });
}

/// Each who finishes may leave it to another to publish, but not all to each other. Nobody has raised `acked` here, so the
/// reader in the end does not publish either.
#[test]
fn the_prefix_moves_on_though_nobody_reads() {
    check(|| {
        let world = World::new();
        let commits = [0; 2].map(|_| world.log.reserve());
        commits.iter().for_each(|c| world.log.write(c, SYNCED));
        let writers = commits.map(|c| {
            spawn(&world, move |world| {
                world.log.insert(&c, SYNCED);
                world.log.sequencer.ready(&c);
            })
        });
        let sync = spawn(&world, |world| world.sync());
        writers.into_iter().for_each(join);
        join(sync);
        let seq = world.log.sequencer.snapshot();
        assert_eq!(seq + 1, world.log.sequencer.tail(), "the prefix stands still");
        world.check_seen(seq);
    });
}

#[test]
fn a_synced_commit_is_seen_once_it_is_durable() {
    check(|| {
        let world = World::new();
        let synced = spawn(&world, |world| {
            world.put_synced();
        });
        let plain = spawn(&world, |world| {
            let c = world.log.reserve();
            world.log.write(&c, PLAIN);
            world.log.insert(&c, PLAIN);
            world.log.sequencer.done(&c);
        });
        let reader = spawn(&world, |world| world.read());
        [synced, plain, reader].into_iter().for_each(join);
        world.finish(2);
    });
}

#[test]
fn a_full_ring_waits_and_overwrites_nothing() {
    check(|| {
        let world = World::new();
        let [a, b, c] = [0; 3].map(|_| world.log.reserve());
        let late = spawn(&world, |world| {
            for place in 3..5 {
                assert_eq!(world.log.place(world.put().seq), place);
                let published = world.log.place(world.log.sequencer.visible_end());
                assert!(published + 3 > place, "place {place} was drawn from a full ring");
            }
        });
        let finish = |commits: Vec<Commit>| {
            spawn(&world, move |world| {
                for c in &commits {
                    world.log.insert(c, PLAIN);
                    world.log.sequencer.done(c);
                }
            })
        };
        [finish(vec![b, a]), finish(vec![c]), late].into_iter().for_each(join);
        world.finish(5);
    });
}

/// While somebody walks the slots, those that were published meanwhile go to commits of the next round.
#[test]
fn a_slot_of_the_next_round_does_not_lengthen_the_prefix() {
    check(|| {
        let world = World::new();
        let [a, b, gap] = [0; 3].map(|_| world.log.reserve());
        for c in [&a, &b] {
            world.log.write(c, PLAIN);
            world.log.insert(c, PLAIN);
        }
        let round = spawn(&world, move |world| {
            world.log.sequencer.done(&a);
            world.log.sequencer.done(&b);
            let next = [0; 2].map(|_| world.log.reserve());
            world.log.write(&next[1], PLAIN);
            next
        });
        let walk = spawn(&world, |world| world.check_written(world.log.sequencer.written_end()));
        join(walk);
        for c in join(round).iter().chain([&gap]) {
            world.log.insert(c, PLAIN);
            world.log.sequencer.done(c);
        }
        world.finish(5);
    });
}

#[test]
fn a_rotation_parts_those_before_from_those_after() {
    check(|| {
        let world = World::new();
        let rotation = spawn(&world, |world| {
            let held = world.log.sequencer.hold();
            let boundary = held.boundary;
            world.boundary.store(boundary, Ordering::Relaxed);
            drop(held);
            boundary
        });
        let writers = [0; 2].map(|_| {
            spawn(&world, |world| {
                let c = world.log.reserve();
                let known = world.boundary.load(Ordering::Relaxed);
                world.log.insert(&c, PLAIN);
                world.log.sequencer.done(&c);
                (c, known)
            })
        });
        let boundary = join(rotation);
        for (c, known) in writers.map(join) {
            assert!(c.end <= boundary || known == boundary, "a commit does not know its memtable");
        }
        world.finish(2);
    });
}

#[test]
fn nobody_waits_any_more_once_the_order_is_stopped() {
    check(|| {
        let world = World::new();
        let _never_done = world.log.reserve();
        let writer = spawn(&world, |world| {
            let c = world.log.sequencer.reserve(super::RECORD_BYTES, Purpose::Store);
            if let Ok(c) = c {
                world.log.insert(&c, PLAIN);
                world.log.sequencer.done(&c);
                assert!(
                    !world.log.sequencer.wait_for_earlier(&c),
                    "an earlier commit is not in the memtables"
                );
            }
        });
        let reader = spawn(&world, |world| world.check_seen(world.log.sequencer.snapshot()));
        let poison = spawn(&world, |world| world.log.sequencer.stop());
        [writer, reader, poison].into_iter().for_each(join);
        assert_eq!(world.log.sequencer.visible_end(), world.log.first);
    });
}
