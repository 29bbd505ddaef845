//! Commits with a condition: transactions that read one key and write another, beside plain puts.
//!
//! The steps are those of `write::commit_if`. In every schedule the commits, in the order of their places, are a serial
//! history: each read what the last commit before its own place had written.

use std::sync::Arc;

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

/// What a transaction does; the last two show that the models can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Whole,
    /// Visible once it is durable.
    Synced,
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
fn transact(log: &Log, read: Key, wrote: Key, protocol: Protocol) -> Option<Committed> {
    let sequencer = &log.sequencer;
    let since = sequencer.snapshot();
    let version = newest(log, read, log.places_at(since));
    let seen = sequencer.visible_end();
    if is_written(log, read, (since, seen)) {
        return None;
    }
    let c = log.reserve();
    let valid = match protocol {
        Protocol::LooksOnce => true,
        Protocol::Hasty => !is_written(log, read, (since, c.seq)),
        Protocol::Whole | Protocol::Synced => {
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
        sequencer.set_durable(c.end);
        sequencer.acknowledge(&c);
    } else {
        sequencer.done(&c);
    }
    Some(Committed { place: log.place(c.seq), wrote, read: Some((read, version)) })
}

fn spawn_transaction(
    log: &Arc<Log>,
    read: Key,
    wrote: Key,
    protocol: Protocol,
) -> JoinHandle<Option<Committed>> {
    spawn(log, move |log| transact(log, read, wrote, protocol))
}

fn spawn_put(log: &Arc<Log>, key: Key) -> JoinHandle<Option<Committed>> {
    spawn(log, move |log| Some(Committed { place: log.place(log.put(key).seq), wrote: key, read: None }))
}

/// Ends all, checks the history, and returns how many transactions were committed.
fn finish(log: &Log, threads: Vec<JoinHandle<Option<Committed>>>) -> usize {
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
        let log = Arc::new(Log::new());
        let threads =
            vec![spawn_transaction(&log, X, Y, protocols[0]), spawn_transaction(&log, Y, X, protocols[1])];
        assert_ne!(finish(&log, threads), 0, "both were refused");
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
#[should_panic(expected = "not serializable")]
fn without_the_second_look_write_skew_passes() {
    write_skew([Protocol::LooksOnce; 2]);
}

#[test]
#[should_panic(expected = "not serializable")]
fn without_the_wait_write_skew_passes() {
    write_skew([Protocol::Hasty; 2]);
}

#[test]
fn plain_puts_beside_transactions_are_seen_or_come_later() {
    check(|| {
        let log = Arc::new(Log::new());
        let threads = vec![
            spawn_transaction(&log, X, Y, Protocol::Whole),
            spawn_transaction(&log, Y, X, Protocol::Whole),
            spawn_put(&log, X),
        ];
        finish(&log, threads);
    });
}

/// Two of the three may pass, in the right order.
#[test]
fn a_circle_of_three_is_refused() {
    check(|| {
        let log = Arc::new(Log::new());
        let circle = [(X, Y), (Y, Z), (Z, X)];
        let threads = circle.map(|(read, wrote)| spawn_transaction(&log, read, wrote, Protocol::Whole));
        assert_ne!(finish(&log, threads.into()), 0, "all were refused");
    });
}

/// Place after place is drawn until the ring has come round.
#[test]
fn transactions_pass_while_the_ring_comes_round() {
    check(|| {
        let log = Arc::new(Log::new());
        for key in [X, Y, Z] {
            log.put(key);
        }
        let transaction = spawn_transaction(&log, X, Y, Protocol::Whole);
        let put = spawn(&log, |log| [X, Y].map(|key| log.put(key)));
        let committed = join(transaction);
        let puts = join(put).map(|c| log.place(c.seq));
        if let Some(Committed { place, read: Some((_, version)), .. }) = committed {
            let expected = if puts[0] < place { puts[0] } else { 0 };
            assert_eq!(version, Some(expected), "not serializable");
        }
    });
}
