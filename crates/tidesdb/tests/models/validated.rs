//! Conditional commits: transactions that read one key and write another, concurrent with plain puts.
//!
//! The steps are those of `write::commit_if`, which decides one commit at a time. That is only for speed; the order of commits
//! alone is sufficient. In every schedule the commits, in the order of their places, are a serial
//! history: each read what the last commit before its own place had written.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread::JoinHandle;
use tidesdb::SeqNo;

use super::{Log, check, join, spawn};

/// Zero is not a key: it marks a place where nothing is inserted.
type Key = u64;
const X: Key = 1;
const Y: Key = 2;
const Z: Key = 3;

/// A successful commit.
#[derive(Debug)]
struct Committed {
    place: usize,
    wrote: Key,
    /// A key, and the place of the version that was read, if there was one.
    read: Option<(Key, Option<usize>)>,
}

/// The log, and the lock held while a commit is being decided.
struct World {
    log: Log,
    deciding: Mutex<()>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { log: Log::new(), deciding: Mutex::new(()) })
    }
}

/// Steps of a transaction; the last two show that the models can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Whole,
    /// Visible once it is durable.
    Synced,
    /// Decided concurrently, without the lock.
    Unlocked,
    /// Does not check again after reserving its place.
    LooksOnce,
    /// Checks again, but does not wait for earlier commits.
    Hasty,
}

/// Returns the place of the newest version of `key` before place `end`.
fn newest(log: &Log, key: Key, end: usize) -> Option<usize> {
    (0..end).rev().find(|place| log.inserted(*place) == key)
}

/// Returns whether `key` has a version in `during`, both ends excluded.
fn is_written(log: &Log, key: Key, during: (SeqNo, SeqNo)) -> bool {
    let places = 0..log.place(during.1);
    places.into_iter().any(|place| log.seq(place) > during.0 && log.inserted(place) == key)
}

/// Reads one key at a snapshot, then writes another; returns `None` if the commit failed with a conflict.
fn transact(world: &World, read: Key, wrote: Key, protocol: Protocol) -> Option<Committed> {
    let (log, sequencer) = (&world.log, &world.log.sequencer);
    let since = sequencer.snapshot();
    let version = newest(log, read, log.places_at(since));
    let seen = sequencer.visible_end();
    if is_written(log, read, (since, seen)) {
        return None;
    }
    let locked = protocol != Protocol::Unlocked;
    let deciding = locked.then(|| world.deciding.lock().expect("no model panics under the lock"));
    let c = log.reserve();
    let valid = match protocol {
        Protocol::LooksOnce => true,
        Protocol::Hasty => !is_written(log, read, (since, c.seq)),
        Protocol::Whole | Protocol::Synced | Protocol::Unlocked => {
            assert!(sequencer.wait_for_earlier(&c), "the sequencer was stopped");
            c.seq <= seen || !is_written(log, read, (since.max(seen - 1), c.seq))
        }
    };
    sequencer.written(&c);
    if !valid {
        sequencer.done(&c);
        return None;
    }
    log.insert(&c, wrote);
    if protocol == Protocol::Synced {
        sequencer.ready(&c);
        drop(deciding);
        sequencer.set_durable(c.end);
        sequencer.acknowledge(&c);
    } else {
        sequencer.done(&c);
    }
    Some(Committed { place: log.place(c.seq), wrote, read: Some((read, version)) })
}

fn spawn_transaction(
    world: &Arc<World>,
    read: Key,
    wrote: Key,
    protocol: Protocol,
) -> JoinHandle<Option<Committed>> {
    spawn(world, move |world| transact(world, read, wrote, protocol))
}

fn spawn_put(world: &Arc<World>, key: Key) -> JoinHandle<Option<Committed>> {
    spawn(world, move |world| {
        let c = world.log.put(key);
        Some(Committed { place: world.log.place(c.seq), wrote: key, read: None })
    })
}

/// Joins all threads, checks the history, and returns the number of committed transactions.
fn finish(world: &World, threads: Vec<JoinHandle<Option<Committed>>>) -> usize {
    let log = &world.log;
    let mut history: Vec<_> = threads.into_iter().filter_map(join).collect();
    history.sort_by_key(|commit| commit.place);
    for (at, commit) in history.iter().enumerate() {
        assert_eq!(log.inserted(commit.place), commit.wrote);
        let Some((key, version)) = commit.read else { continue };
        let last = history[..at].iter().rfind(|earlier| earlier.wrote == key);
        assert_eq!(version, last.map(|earlier| earlier.place), "not serializable: {history:?}");
    }
    let sequencer = &log.sequencer;
    assert_eq!(sequencer.visible_end(), sequencer.tail(), "the visible prefix did not reach the tail");
    history.iter().filter(|commit| commit.read.is_some()).count()
}

/// Each transaction reads what the other writes: exactly one must commit.
fn write_skew(protocols: [Protocol; 2]) {
    check(move || {
        let world = World::new();
        let threads = vec![
            spawn_transaction(&world, X, Y, protocols[0]),
            spawn_transaction(&world, Y, X, protocols[1]),
        ];
        assert_ne!(finish(&world, threads), 0, "both conflicted");
    });
}

#[test]
fn write_skew_conflicts() {
    write_skew([Protocol::Whole; 2]);
}

#[test]
fn write_skew_of_synced_commits_conflicts() {
    write_skew([Protocol::Synced, Protocol::Whole]);
}

#[test]
fn write_skew_conflicts_without_the_lock() {
    write_skew([Protocol::Unlocked; 2]);
}

#[test]
#[should_panic(expected = "not serializable")]
fn without_the_second_check_write_skew_is_missed() {
    write_skew([Protocol::LooksOnce; 2]);
}

/// The order of the places is the history, so a put with an earlier place comes first, however late it is inserted.
fn beside_a_put(protocol: Protocol) {
    check(move || {
        let world = World::new();
        let threads = vec![
            spawn_transaction(&world, X, Y, protocol),
            spawn_transaction(&world, Y, X, protocol),
            spawn_put(&world, X),
        ];
        finish(&world, threads);
    });
}

#[test]
fn a_concurrent_put_is_read_or_ordered_later() {
    beside_a_put(Protocol::Whole);
}

#[test]
#[should_panic(expected = "not serializable")]
fn without_the_wait_a_late_put_is_missed() {
    beside_a_put(Protocol::Hasty);
}

/// Two of the three transactions may commit, in the right order.
fn circle(protocol: Protocol) {
    check(move || {
        let world = World::new();
        let circle = [(X, Y), (Y, Z), (Z, X)];
        let threads = circle.map(|(read, wrote)| spawn_transaction(&world, read, wrote, protocol));
        assert_ne!(finish(&world, threads.into()), 0, "all conflicted");
    });
}

#[test]
fn a_cycle_of_three_conflicts() {
    circle(Protocol::Whole);
}

#[test]
fn a_cycle_of_three_conflicts_without_the_lock() {
    circle(Protocol::Unlocked);
}

/// More places are reserved than the ring has slots.
#[test]
fn transactions_commit_while_the_ring_wraps_around() {
    check(|| {
        let world = World::new();
        for key in [X, Y, Z] {
            world.log.put(key);
        }
        let transaction = spawn_transaction(&world, X, Y, Protocol::Whole);
        let put = spawn(&world, |world| [X, Y].map(|key| world.log.put(key)));
        let committed = join(transaction);
        let puts = join(put).map(|c| world.log.place(c.seq));
        if let Some(Committed { place, read: Some((_, version)), .. }) = committed {
            let expected = if puts[0] < place { puts[0] } else { 0 };
            assert_eq!(version, Some(expected), "not serializable");
        }
    });
}
