//! Tests of a directory as a store, on a simulated disk.

use std::sync::Arc;

use tidesdb_io::sim::{self, Fault, Image, OpKind, OpSet, SimDisk, errno};
use tidesdb_sync::Mutex;

use super::*;

fn open(disk: &SimDisk, seed: u64) -> DirectoryStore {
    let (env, ..) = sim::env_on(disk.fork(), seed);
    DirectoryStore::open_in(&env, "/store").unwrap()
}

fn bytes_of(store: &DirectoryStore, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    store.get(name, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

fn put_if(store: &DirectoryStore, name: &str, bytes: &[u8], condition: Condition<'_>) -> Option<Tag> {
    store.put_if(name, &Body::bytes(bytes), condition).unwrap()
}

#[test]
fn a_put_with_a_condition_changes_nothing_unless_it_holds() {
    // On some file systems there are no links.
    for links in [true, false] {
        let (env, disk, _clock) = sim::env(1);
        if !links {
            disk.inject(Fault::errno(errno::EOPNOTSUPP).on(OpKind::Link).forever());
        }
        let [one, two] = [(); 2].map(|()| DirectoryStore::open_in(&env, "/store").unwrap());
        let first = put_if(&one, "a", b"first", Condition::Absent).unwrap();
        assert!(put_if(&two, "a", b"other", Condition::Absent).is_none());
        let second = put_if(&two, "a", b"second", Condition::Tagged(&first)).unwrap();
        assert!(put_if(&one, "a", b"other", Condition::Tagged(&first)).is_none());
        assert!(put_if(&one, "b", b"other", Condition::Tagged(&second)).is_none());
        assert_eq!(bytes_of(&one, "a").unwrap(), b"second");
        assert_eq!(one.get_tagged("a", &mut |_| Ok(())).unwrap(), second);
        assert_eq!(one.list().unwrap(), [Object { name: "a".into(), bytes: 6 }]);
        assert_eq!(disk.file_names("/store").unwrap(), ["a"], "nothing else is left");
    }
}

#[test]
fn the_lock_of_conditional_puts_is_waited_for() {
    let (env, _disk, clock) = sim::env(1);
    let store = DirectoryStore::open_in(&env, "/store").unwrap();
    let held = store.lock().unwrap();
    let began = env.clock.mono();
    let refused = store.put_if("a", &Body::bytes(b"x"), Condition::Absent).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    assert!(env.clock.mono() - began >= LOCK_TIME);
    store.put("b", &Body::bytes(b"y")).unwrap(); // others do not wait
    drop(held);
    assert!(put_if(&store, "a", b"x", Condition::Absent).is_some());
    drop(clock);
}

#[test]
fn names_of_objects_are_letters_digits_and_dots() {
    let (env, ..) = sim::env(1);
    let store = DirectoryStore::open_in(&env, "/store").unwrap();
    for foreign in ["c++.txt", "a+1", "+0123456789abcdef", "lock+x"] {
        store.dir.create_new(foreign, 0).unwrap();
    }
    store.remove_unfinished().unwrap();
    assert_eq!(store.dir.list().unwrap().len(), 4, "files of others stay");
    for name in ["", ".", "..", "a/b", "../a", "a+1", "a\0", "\u{e4}", "lock+"] {
        let refused = store.put(name, &Body::bytes(b"x")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        assert!(bytes_of(&store, name).is_err() && store.delete(name).is_err(), "{name:?}");
        assert!(store.put_if(name, &Body::bytes(b"x"), Condition::Absent).is_err(), "{name:?}");
    }
    assert!(store.list().unwrap().is_empty());
}

/// After a crash at any change an object is what it was or what was put, and what was being written goes with the next call for that.
#[test]
fn a_crash_leaves_the_old_object_or_the_new_one() {
    type Put = fn(&DirectoryStore);
    /// A put, what the object was, and what it is then.
    type Case = (Put, Option<&'static [u8]>, &'static [u8]);
    let puts: [Case; 4] = [
        (|store| store.put("new", &Body::bytes(b"one")).unwrap(), None, b"one"),
        (|store| drop(put_if(store, "new", b"one", Condition::Absent).unwrap()), None, b"one"),
        (|store| store.put("old", &Body::bytes(b"two")).unwrap(), Some(b"one"), b"two"),
        (
            |store| {
                let tag = store.get_tagged("old", &mut |_| Ok(())).unwrap();
                put_if(store, "old", b"two", Condition::Tagged(&tag)).unwrap();
            },
            Some(b"one"),
            b"two",
        ),
    ];
    for (n, (put, before, after)) in puts.into_iter().enumerate() {
        let (env, disk, _clock) = sim::env(1);
        let store = DirectoryStore::open_in(&env, "/store").unwrap();
        store.put("old", &Body::bytes(b"one")).unwrap();
        let name = if before.is_none() { "new" } else { "old" };
        let states = Arc::new(Mutex::<Vec<SimDisk>>::new(Vec::new()));
        let taken = Arc::clone(&states);
        disk.observe(OpSet::CHANGES, move |_, fork| taken.lock().push(fork));
        put(&store);
        disk.stop_observing();
        let mut states = std::mem::take(&mut *states.lock());
        states.push(disk.fork()); // the put has returned
        let last = states.len() - 1;
        assert!(last >= 4, "{last}");
        for (at, state) in states.into_iter().enumerate() {
            let images = Image::STANDARD.iter().map(|image| state.crash_image(image, at as u64));
            for lost in images.chain([state.fork()]) {
                let store = open(&lost, 9);
                let found = bytes_of(&store, name).ok();
                let is_whole = found.as_deref() == Some(after) || (at < last && found.as_deref() == before);
                assert!(is_whole, "put {n}, before change {at}: {found:?}");
                store.remove_unfinished().unwrap();
                let left = store.dir.list().unwrap();
                assert!(left.iter().all(|name| check_name(name).is_ok()), "put {n}, change {at}: {left:?}");
            }
        }
    }
}

#[test]
fn a_failing_body_leaves_nothing() {
    let (env, disk, _clock) = sim::env(1);
    let store = DirectoryStore::open_in(&env, "/store").unwrap();
    let failing = |_: &mut [u8], at: u64| if at > 0 { Err(io::ErrorKind::Other.into()) } else { Ok(()) };
    let body = Body::read(2 << 20, &failing);
    assert!(store.put("a", &body).is_err());
    assert!(store.put_if("a", &body, Condition::Absent).is_err());
    disk.limit_space(Some(1 << 20));
    let full = store.put("a", &Body::bytes(&vec![1; 2 << 20])).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(disk.file_names("/store").unwrap().is_empty());
}
