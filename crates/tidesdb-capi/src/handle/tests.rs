//! Tests of handles and slots.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use super::*;
use crate::abi::ERR_INVALID_ARGS;

type Small = Table<u64>;

const OWNER: Handle = Handle(8);
const STRANGER: Handle = Handle(16);

/// Bits of an address of a program.
const ADDRESS_BITS: u32 = if usize::BITS >= 64 { 48 } else { 32 };

fn table() -> Box<Small> {
    Box::new(Table::new(Kind::Iterator))
}

fn code<T>(answer: Answer<T>) -> i32 {
    answer.err().map_or(0, |failure| failure.code())
}

#[test]
fn a_handle_carries_kind_generation_and_index() {
    for (generation, index) in [(0, 0), (1, 1), (GENERATIONS - 1, (1 << INDEX_BITS) - 1), (77, 4096)] {
        let handle = Handle::new(Kind::Family, generation, index);
        assert_eq!(handle.index(), index);
        assert_ne!(handle, Handle::new(Kind::Database, generation, index));
        assert_eq!(handle.next(), Handle::new(Kind::Family, (generation + 1) % GENERATIONS, index));
        let lower_half = handle.0 >> (ADDRESS_BITS - 1) == 0;
        assert!(handle.0.is_multiple_of(8) && lower_half, "an aligned address of the lower half");
    }
}

#[test]
fn every_handle_finds_the_place_it_was_made_for() {
    let table = table();
    let handles: Vec<Handle> = (0..5000).map(|n| table.insert(n, OWNER).unwrap()).collect();
    for (n, &handle) in handles.iter().enumerate() {
        assert_eq!((*table.lend(handle).unwrap(), handle.index()), (n as u64, n));
    }
    assert_eq!(table.remove_all(OWNER), (0..5000).collect::<Vec<_>>());
    // Every index has exactly one position in the chunks, and there are no other positions.
    let places = (0..CHUNKS).flat_map(|chunk| (0..indexes(chunk).len()).map(move |at| (chunk, at)));
    assert!(places.eq((0..1 << INDEX_BITS).map(place_of)));
}

/// Only the handle itself is accepted, whatever the state of the slot. No other word makes a caller wait.
#[test]
fn words_that_are_no_handles_are_refused_in_every_state() {
    let table: Table<u64> = Table::new(Kind::Iterator);
    let handle = table.insert(1, OWNER).unwrap();
    let all_refused = |handle: Handle, state: &str| {
        let near = (1..8)
            .map(|bits| handle.0 | bits)
            .chain([ADDRESS_BITS, usize::BITS].map(|bits| handle.0 | 1 << (bits - 1)));
        for word in near.chain([Handle::new(Kind::Transaction, 0, 0).0]) {
            assert_eq!(code(table.lend(Handle(word))), ERR_INVALID_ARGS, "{word:#x} {state}");
            assert_eq!(code(table.share(Handle(word))), ERR_INVALID_ARGS, "{word:#x} {state}");
            assert!(table.retire(Handle(word)).is_none(), "{word:#x} {state}");
        }
    };
    all_refused(handle, "there");
    let lent = table.lend(handle).unwrap();
    all_refused(handle, "lent");
    let parked = Small::park(lent);
    all_refused(handle, "parked");
    let next = handle.next();
    all_refused(next, "parked");
    assert_eq!(code(table.lend(next)), ERR_INVALID_ARGS, "a guess of its next handle");
    let (woken, lent) = table.wake(parked).unwrap();
    assert_eq!(woken, next);
    drop(lent);
    assert_eq!(table.remove(woken).unwrap(), Some(1));
    all_refused(woken.next(), "empty");
    assert_eq!(code(table.lend(woken.next())), ERR_INVALID_ARGS, "a guess");
}

#[test]
fn a_removed_handle_stays_stale_when_its_slot_is_used_again() {
    let table = table();
    let old = table.insert(1, OWNER).unwrap();
    assert_eq!(table.remove(old).unwrap(), Some(1));
    let new = table.insert(2, OWNER).unwrap();
    assert_ne!(old, new);
    assert_eq!(code(table.lend(old)), ERR_INVALID_ARGS);
    assert_eq!(code(table.remove(old)), ERR_INVALID_ARGS, "a second time");
    assert_eq!(*table.lend(new).unwrap(), 2);
    for word in [0, 8, new.0 + 8, new.0 + 1, usize::MAX, usize::MAX >> 17] {
        assert_eq!(code(table.lend(Handle(word))), ERR_INVALID_ARGS, "{word:#x}");
    }
}

#[test]
fn a_value_is_lent_to_one_at_a_time() {
    let table = table();
    let handle = table.insert(1, OWNER).unwrap();
    let lent = table.lend(handle).unwrap();
    assert_eq!(code(table.lend(handle)), ERR_BUSY);
    assert!(table.remove_all(OWNER).is_empty(), "a lent value stays");
    drop(lent);
    assert!(table.remove_all(STRANGER).is_empty());
    assert_eq!(table.remove_all(OWNER), [1]);
    assert_eq!(code(table.lend(handle)), ERR_INVALID_ARGS);
}

#[test]
fn a_parked_value_is_kept_under_another_handle() {
    let table = table();
    let old = table.insert(7, OWNER).unwrap();
    let parked = Small::park(table.lend(old).unwrap());
    assert_eq!(code(table.lend(old)), ERR_INVALID_ARGS);
    let (new, lent) = table.wake(parked).unwrap();
    assert_eq!(*lent, 7);
    drop(lent);
    assert_ne!(new, old);
    assert_eq!(table.remove(new).unwrap(), Some(7));
}

#[test]
fn a_shut_value_is_kept_until_it_is_freed() {
    let table = table();
    let (ours, theirs) = (table.insert(1, OWNER).unwrap(), table.insert(2, STRANGER).unwrap());
    let lent = table.insert(3, OWNER).unwrap();
    let in_use = table.lend(lent).unwrap();
    table.shut_all(OWNER);
    assert_eq!(code(table.lend(ours)), ERR_INVALID_ARGS);
    assert_eq!(code(table.remove(ours)), ERR_INVALID_ARGS);
    assert_eq!(*table.lend(theirs).unwrap(), 2);
    drop(in_use);
    assert_eq!(*table.lend(lent).unwrap(), 3, "a lent value stays");
    table.shut_all(OWNER);
    assert!(table.remove_all(OWNER).iter().eq(&[1, 3]), "both values are still there");
    let again = table.insert(4, OWNER).unwrap();
    table.shut_all(OWNER);
    table.shut_all(OWNER);
    assert_eq!(table.remove_shut(again).unwrap(), Some(4));
    assert_eq!(code(table.remove_shut(again)), ERR_INVALID_ARGS, "a second time");
    assert_eq!(table.remove_shut(theirs).unwrap(), Some(2), "one that is not shut");
}

/// Whichever way a loan ends, the value that was freed meanwhile ends with it, once, and its slot is used again.
#[test]
fn a_value_that_is_freed_while_it_is_lent_ends_with_the_loan() {
    type Counted = Table<Arc<()>>;
    type Way = fn(&Counted, Lent<'_, Arc<()>>);
    let ways: [Way; 3] =
        [|_, lent| drop(lent), |_, lent| lent.give_back(), |table, lent| drop(table.end(lent))];
    let (table, value) = (Counted::new(Kind::Object), Arc::new(()));
    for give_back in ways {
        let handle = table.insert(Arc::clone(&value), OWNER).unwrap();
        let lent = table.lend(handle).unwrap();
        assert_eq!(table.remove(handle).unwrap(), None);
        for _ in 0..2 {
            assert_eq!(code(table.lend(handle)), ERR_INVALID_ARGS, "it is stale at once");
            assert_eq!(code(table.remove(handle)), ERR_INVALID_ARGS, "a second time");
            assert!(table.front(handle).is_none() && table.front_even_lent(handle).is_err());
        }
        table.shut_all(OWNER);
        assert!(table.remove_all(OWNER).is_empty(), "the loan goes on");
        assert_eq!(Arc::strong_count(&value), 2);
        give_back(&table, lent);
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(code(table.remove(handle)), ERR_INVALID_ARGS);
        let next = table.insert(Arc::clone(&value), OWNER).unwrap();
        assert_eq!(next.index(), 0, "the slot is used again");
        assert!(table.unused.lock().again.is_empty(), "and is free once");
        assert!(table.remove(next).unwrap().is_some());
    }
}

/// A close waits for the loan, and finds nothing then.
#[test]
fn the_end_of_an_owner_waits_for_a_value_that_ends_with_its_loan() {
    let (table, value) = (Table::<Arc<()>>::new(Kind::Object), Arc::new(()));
    let handle = table.insert(Arc::clone(&value), OWNER).unwrap();
    let lent = table.lend(handle).unwrap();
    assert_eq!(table.remove_shut(handle).unwrap(), None);
    std::thread::scope(|scope| {
        let ender = scope.spawn(|| {
            table.await_and_shut_all(OWNER);
            let left = table.await_and_remove_all(OWNER).len();
            (left, Arc::strong_count(&value))
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!ender.is_finished());
        drop(lent);
        assert_eq!(ender.join().unwrap(), (0, 1));
    });
}

/// Calls of one thread and the free of another one meet at any place: each value ends exactly once, soon.
#[test]
fn each_value_ends_once_while_another_thread_uses_it() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let (table, value) = (Table::<Arc<()>>::new(Kind::Object), Arc::new(()));
    let (begin, end) = (Barrier::new(2), Barrier::new(2));
    let current = Mutex::<_, { rank::C_HANDLES }>::new(Handle::NULL);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                begin.wait();
                let handle = *current.lock();
                while table.with(handle, |_| Ok(())).is_ok() {}
                end.wait();
            }
        });
        for round in 0..ROUNDS {
            let handle = table.insert(Arc::clone(&value), OWNER).unwrap();
            *current.lock() = handle;
            begin.wait();
            (0..round % 64).for_each(|_| std::hint::spin_loop());
            table.remove(handle).unwrap();
            end.wait();
            assert_eq!(Arc::strong_count(&value), 1);
        }
    });
    assert_eq!(table.unused.lock().fresh, 1);
}

#[test]
fn the_end_of_an_owner_waits_for_what_is_lent_and_for_nothing_else() {
    let table = table();
    let ours = [1, 2].map(|n| table.insert(n, OWNER).unwrap());
    let parked = Small::park(table.lend(table.insert(3, OWNER).unwrap()).unwrap());
    let theirs = table.insert(4, STRANGER).unwrap();
    let (_theirs, lent) = (table.lend(theirs).unwrap(), table.lend(ours[1]).unwrap());
    std::thread::scope(|scope| {
        let ender = scope.spawn(|| {
            table.await_and_shut_all(OWNER);
            table.await_and_remove_all(OWNER)
        });
        while table.lend(ours[0]).is_ok() {
            std::thread::yield_now(); // until the value before the lent one is shut
        }
        assert!(!ender.is_finished());
        drop(lent);
        assert_eq!(ender.join().unwrap(), [1, 2, 3]);
    });
    assert_eq!(code(table.lend(ours[1])), ERR_INVALID_ARGS);
    assert!(table.wake(parked).is_none());
}

#[test]
fn only_parked_values_are_visited() {
    let table = table();
    let handles: Vec<Handle> = (0..4).map(|n| table.insert(n, OWNER).unwrap()).collect();
    let parked = Small::park(table.lend(handles[0]).unwrap());
    let woken = table.wake(Small::park(table.lend(handles[1]).unwrap())).unwrap();
    table.remove(handles[2]).unwrap();
    let stranger = table.insert(9, STRANGER).unwrap();
    let _other = Small::park(table.lend(stranger).unwrap());
    let mut seen = Vec::new();
    table.visit_parked(OWNER, |n| seen.push(std::mem::replace(n, 100)));
    assert_eq!(seen, [0]);
    assert_eq!(*table.wake(parked).unwrap().1, 100);
    assert_eq!(*woken.1, 1);
}

/// A close shuts a value while its caller frees it: the caller must get it.
#[test]
fn each_value_is_freed_once_while_another_thread_shuts_it() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let table = table();
    let begin = Barrier::new(2);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn({
            let (table, begin) = (&table, &begin);
            move || {
                for _ in 0..ROUNDS {
                    sender.send(table.insert(7, OWNER).unwrap()).unwrap();
                    begin.wait();
                    table.shut_all(OWNER);
                    begin.wait();
                }
            }
        });
        for _ in 0..ROUNDS {
            let handle = receiver.recv().unwrap();
            begin.wait();
            assert_eq!(table.remove_shut(handle).unwrap(), Some(7));
            begin.wait();
        }
    });
}

#[test]
fn a_value_in_use_during_a_panic_is_never_lent_again() {
    let table = table();
    let handle = table.insert(1, OWNER).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _lent = table.lend(handle).unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(code(table.lend(handle)), ERR_INVALID_ARGS);
    assert!(table.remove_all(OWNER).is_empty(), "it is not dropped either");
    let handle = table.insert(2, OWNER).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.with(handle, |_| -> Answer { panic!("on purpose") })
    }));
    assert!(panicked.is_err());
    assert_eq!(code(table.lend(handle)), ERR_INVALID_ARGS);
}

/// Threads insert, lend and remove at random, also with handles of each other and stale ones. A value must
/// never be lent to two threads, and never under a handle that is not its own.
#[test]
fn threads_never_share_a_value() {
    const ROUNDS: u64 = if cfg!(miri) { 200 } else { 20_000 };
    let table: Table<(u64, AtomicUsize)> = Table::new(Kind::Transaction);
    let handles: Vec<Mutex<(Handle, u64)>> = (0..8).map(|_| Mutex::new((Handle::NULL, 0))).collect();
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (table, handles, served) = (&table, &handles, &served);
            scope.spawn(move || {
                let mut random = thread + 1;
                for n in 0..ROUNDS {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let place = &handles[(random >> 60) as usize % 8];
                    let (handle, stamp) = *place.lock();
                    match (random >> 40) % 8 {
                        0 => {
                            let stamp = thread << 32 | n;
                            let new = table.insert((stamp, AtomicUsize::new(0)), OWNER).unwrap();
                            *place.lock() = (new, stamp);
                        }
                        1 => drop(table.remove(handle)),
                        _ => {
                            if let Ok(lent) = table.lend(handle) {
                                assert_eq!(lent.0, stamp);
                                assert_eq!(lent.1.fetch_add(1, Ordering::SeqCst), 0, "lent to two threads");
                                served.fetch_add(1, Ordering::Relaxed);
                                lent.1.fetch_sub(1, Ordering::SeqCst);
                            }
                        }
                    }
                }
            });
        }
    });
    assert!(served.into_inner() as u64 > ROUNDS / 20);
}

/// One owner's values are removed repeatedly while other threads use slots that just belonged to that owner.
/// Their handles must never be busy or stale, and each value must end once.
#[test]
fn removing_the_values_of_one_owner_never_touches_those_of_another() {
    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 300_000 };
    let table: Table<Arc<u64>> = Table::new(Kind::Transaction);
    let (value, removed, stop) = (Arc::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let together = Barrier::new(3);
    let use_places = |owner: Handle| {
        together.wait();
        for n in 0..ROUNDS {
            // The next value reuses this slot, which still has the first owner until then.
            let passing = table.insert(Arc::clone(&value), OWNER).unwrap();
            if n % 1024 != 0 && matches!(table.remove(passing), Ok(Some(_))) {
                removed.fetch_add(1, Ordering::Relaxed);
            }
            let handle = table.insert(Arc::clone(&value), owner).unwrap();
            drop(table.lend(handle).expect("no other thread knows it"));
            if n % 3 == 0 {
                let parked = Table::<Arc<u64>>::park(table.lend(handle).expect("no other thread knows it"));
                let (_, lent) = table.wake(parked).expect("no thread removes it");
                drop(table.end(lent));
            } else {
                drop(table.remove(handle).expect("no other thread knows it"));
            }
        }
    };
    std::thread::scope(|scope| {
        let use_places = &use_places;
        let users = [STRANGER, Handle(24)].map(|owner| scope.spawn(move || use_places(owner)));
        scope.spawn(|| {
            together.wait();
            while !stop.load(Ordering::Acquire) {
                removed.fetch_add(table.remove_all(OWNER).len(), Ordering::Relaxed);
            }
        });
        let ends = users.map(|user| user.join());
        stop.store(true, Ordering::Release);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    let last = table.remove_all(OWNER).len();
    assert_eq!((removed.into_inner() + last) as u64, 2 * ROUNDS);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn a_parked_value_is_not_woken_from_a_reused_slot() {
    let table = table();
    let old = table.insert(7, OWNER).unwrap();
    let parked = Small::park(table.lend(old).unwrap());
    assert_eq!(table.remove_all(OWNER), [7], "its database was closed");
    let other = table.insert(8, OWNER).unwrap();
    assert!(table.wake(parked).is_none());
    assert_eq!(*table.lend(other).unwrap(), 8);
}
