//! Commits with a condition: transactions that read one key and write another, beside plain puts.
//!
//! The steps are those of `write::commit_if`, which decides one commit at a time; that is for speed, and the order
//! alone suffices. In every schedule the commits, in the order of their places, are a serial
//! history: each read what the last commit before its own place had written.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread::JoinHandle;
use tidesdb::SeqNo;

use super::{Log, check, join, spawn};

/// Zero is no key: a place where nothing is inserted holds it.
type Key = u64;
const X: Key = 1;
const Y: Key = 2;
const Z: Key = 3;

/// A commit that counts.
#[derive(Debug)]
struct Committed {
    place: usize,
    wrote: Key,
    /// A key, and the place whose version of it was read, if there was one.
    read: Option<(Key, Option<usize>)>,
}

/// The log, and the lock of the commit that is being decided.
struct World {
    log: Log,
    deciding: Mutex<()>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { log: Log::new(), deciding: Mutex::new(()) })
    }
}

/// What a transaction does; the last two show that the models can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Whole,
    /// Visible once it is durable.
    Synced,
    /// Decided beside the others.
    Unlocked,
    /// Does not look again once it has its place.
    LooksOnce,
    /// Looks again, and does not wait for those before it.
    Hasty,
}

/// The newest version of `key` at a place before `end`.
fn newest(log: &Log, key: Key, end: usize) -> Option<usize> {
    (0..end).rev().find(|place| log.inserted(*place) == key)
}

/// Whether `key` has a version in `during`, both ends excluded.
fn is_written(log: &Log, key: Key, during: (SeqNo, SeqNo)) -> bool {
    let places = 0..log.place(during.1);
    places.into_iter().any(|place| log.seq(place) > during.0 && log.inserted(place) == key)
}

/// Reads one key as of a snapshot, then writes another; nothing if the commit was refused.
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
            assert!(sequencer.wait_for_earlier(&c), "the order is not stopped");
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

/// Ends all, checks the history, and returns how many transactions were committed.
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
    assert_eq!(sequencer.visible_end(), sequencer.tail(), "the prefix stands still");
    history.iter().filter(|commit| commit.read.is_some()).count()
}

/// Each reads what the other writes: at most one may pass, and one does.
fn write_skew(protocols: [Protocol; 2]) {
    check(move || {
        let world = World::new();
        let threads = vec![
            spawn_transaction(&world, X, Y, protocols[0]),
            spawn_transaction(&world, Y, X, protocols[1]),
        ];
        assert_ne!(finish(&world, threads), 0, "both were refused");
    });
}

#[test]
fn write_skew_is_refused() {
    write_skew([Protocol::Whole; 2]);
}

#[test]
fn write_skew_is_refused_before_it_is_durable() {
    write_skew([Protocol::Synced, Protocol::Whole]);
}

#[test]
fn the_order_alone_refuses_write_skew() {
    write_skew([Protocol::Unlocked; 2]);
}

#[test]
#[should_panic(expected = "not serializable")]
fn without_the_second_look_write_skew_passes() {
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
fn plain_puts_beside_transactions_are_seen_or_come_later() {
    beside_a_put(Protocol::Whole);
}

#[test]
#[should_panic(expected = "not serializable")]
fn without_the_wait_a_late_put_is_missed() {
    beside_a_put(Protocol::Hasty);
}

/// Two of the three may pass, in the right order.
fn circle(protocol: Protocol) {
    check(move || {
        let world = World::new();
        let circle = [(X, Y), (Y, Z), (Z, X)];
        let threads = circle.map(|(read, wrote)| spawn_transaction(&world, read, wrote, protocol));
        assert_ne!(finish(&world, threads.into()), 0, "all were refused");
    });
}

#[test]
fn a_circle_of_three_is_refused() {
    circle(Protocol::Whole);
}

#[test]
fn the_order_alone_refuses_a_circle_of_three() {
    circle(Protocol::Unlocked);
}

/// Place after place is drawn until the ring has come round.
#[test]
fn transactions_pass_while_the_ring_comes_round() {
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
