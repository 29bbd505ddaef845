//! The order of commits: a commit that has returned is visible, and a commit is visible only after all earlier commits.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use tidesdb::SeqNo;
use tidesdb::internals::wal::{Commit, Purpose};
use tidesdb_sync::Backoff;

use super::{Log, check, join, spawn};

const PLAIN: u64 = 1;
const SYNCED: u64 = 2;

struct World {
    log: Log,
    /// The newest commit that has returned.
    returned: AtomicU64,
    /// Begin of the newest memtable, as set by a rotation while it holds the tail.
    boundary: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { log: Log::new(), returned: AtomicU64::new(0), boundary: AtomicU64::new(0) })
    }

    /// Commits, and records that the commit has returned.
    fn put(&self) -> Commit {
        let c = self.log.put(PLAIN);
        self.returned.fetch_max(c.seq, Ordering::AcqRel);
        c
    }

    /// Like a commit in mode `Full`: visible once it is durable.
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

    /// Like a leader's sync: the gap-free prefix of the written records becomes durable.
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

    /// Starts a read, and checks that everything visible is complete.
    fn read(&self) {
        let returned = self.returned.load(Ordering::Acquire);
        let seq = self.log.sequencer.snapshot();
        assert!(seq >= returned, "a commit has returned and is not visible");
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

    /// After all threads have ended: every commit was published.
    fn finish(&self, commits: usize) {
        let sequencer = &self.log.sequencer;
        assert_eq!(sequencer.visible_end(), sequencer.tail(), "the visible prefix did not reach the tail");
        assert_eq!(sequencer.tail(), self.log.seq(commits));
        self.check_seen(sequencer.snapshot());
    }
}

#[test]
fn a_commit_that_has_returned_is_visible_with_all_earlier_ones() {
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

/// A thread that finishes may leave the publication to another thread, but not all of them to each other. Nothing has raised
/// `acked` here, so the final reader does not publish either.
#[test]
fn the_visible_prefix_advances_without_readers() {
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
        assert_eq!(seq + 1, world.log.sequencer.tail(), "the visible prefix did not reach the tail");
        world.check_seen(seq);
    });
}

#[test]
fn a_synced_commit_is_visible_once_it_is_durable() {
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
fn a_full_ring_blocks_and_overwrites_nothing() {
    check(|| {
        let world = World::new();
        let [a, b, c] = [0; 3].map(|_| world.log.reserve());
        let late = spawn(&world, |world| {
            for place in 3..5 {
                assert_eq!(world.log.place(world.put().seq), place);
                let published = world.log.place(world.log.sequencer.visible_end());
                assert!(published + 3 > place, "place {place} was reserved in a full ring");
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

/// While a thread scans the slots, slots that are published meanwhile are reused by commits of the next round.
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
fn a_commit_after_a_rotation_knows_the_new_memtable() {
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
fn waiting_ends_when_the_sequencer_is_stopped() {
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

#[test]
fn a_close_waits_for_commits_with_a_place_and_refuses_all_others() {
    check(|| {
        let world = World::new();
        let writer = spawn(&world, |world| {
            let c = world.log.sequencer.reserve(super::RECORD_BYTES, Purpose::Store).ok()?;
            world.log.insert(&c, PLAIN);
            world.log.sequencer.done(&c);
            Some(c)
        });
        let closer = spawn(&world, |world| {
            world.log.sequencer.close().expect("nothing stops the order");
            world.log.sequencer.visible_end()
        });
        let (committed, end) = (join(writer), join(closer));
        assert!(committed.is_none_or(|c| c.end <= end), "a commit was ordered after the close");
        assert!(world.log.sequencer.reserve(super::RECORD_BYTES, Purpose::Store).is_err());
    });
}
