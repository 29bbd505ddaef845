//! Tests of the sums, shares and charges.

use super::*;

#[test]
fn levels_begin_at_their_shares() {
    let memory = Memory::new(100 << 20);
    let level = |percent: u64| memory.level_of(memory.limit() / 100 * percent);
    assert_eq!(
        [0, 59, 60, 74].map(level),
        [Pressure::Normal, Pressure::Normal, Pressure::Elevated, Pressure::Elevated]
    );
    assert_eq!(
        [75, 94, 95, 200].map(level),
        [Pressure::High, Pressure::High, Pressure::Critical, Pressure::Critical]
    );
}

#[test]
fn a_charge_is_part_of_the_sum_until_it_is_dropped() {
    let memory = Memory::new(100 << 20);
    let fixed = memory.used();
    let mut charge = Charge::new(Use::Jobs);
    charge.set(&memory, 500);
    charge.set(&memory, 300);
    let kept = memory.reserve(50).unwrap();
    memory.settle();
    assert_eq!((memory.used() - fixed, memory.wanted() - fixed), (300, 350));
    let other = Memory::new(100 << 20);
    charge.set(&other, 200);
    [&memory, &other].into_iter().for_each(|memory| memory.settle());
    assert_eq!(
        (memory.used() - fixed, other.used() - fixed),
        (0, 200),
        "a batch that goes to another database"
    );
    drop((charge, kept));
    [&memory, &other].into_iter().for_each(|memory| memory.settle());
    assert_eq!((memory.wanted(), other.wanted()), (fixed, fixed));
}

/// Commits that wait for memory would wait for each other if it was kept for all of them.
#[test]
fn memory_that_is_not_there_is_kept_for_one_commit() {
    let memory = Memory::new(100 << 20);
    let fits = [30 << 20, 60 << 20].map(|bytes| memory.reserve(bytes).unwrap());
    assert!(fits.iter().all(|kept| !kept.exceeds()) && memory.is_within_limit());
    let exceeds = memory.reserve(10 << 20).unwrap();
    assert!(exceeds.exceeds() && !memory.is_within_limit(), "those who wait for memory are seen");
    assert!(memory.reserve(10 << 20).is_none() && memory.reserve(1).is_none());
    drop(fits);
    assert!(memory.reserve(1).is_some_and(|kept| !kept.exceeds()));
    drop(exceeds);
    assert!(memory.reserve(200 << 20).is_some_and(|kept| kept.exceeds()));
    assert_eq!(memory.wanted(), memory.used());
}

/// A thread may free what another one took, so the sum of one of them is below zero.
#[test]
fn small_charges_of_many_threads_add_up() {
    let memory = Memory::new(100 << 20);
    let take = |bytes| {
        let mut charge = Charge::new(Use::Transactions);
        charge.set(&memory, bytes);
        charge
    };
    let take = &take;
    let taken: Vec<Charge> = std::thread::scope(|s| {
        let threads: Vec<_> =
            (1..=4).map(|n| s.spawn(move || (0..1000).map(|_| take(n * 100)).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let apart = memory.used_for(Use::Transactions).abs_diff(1_000_000);
    assert!(apart < STEP_BYTES * LINES as u64, "{apart}");
    memory.settle();
    assert_eq!(memory.used_for(Use::Transactions), 1_000_000);
    drop(taken);
    assert!(memory.used_for(Use::Transactions) < STEP_BYTES * LINES as u64);
    memory.settle();
    assert_eq!(memory.used_for(Use::Transactions), 0);
}

/// Cursors and transactions leave each other room, whichever is first.
#[test]
fn cursors_and_transactions_share_what_callers_may_hold() {
    let memory = Memory::new(132 << 20);
    let take = |of, mib: u64| {
        let mut charge = Charge::new(of);
        charge.grow(&memory, mib << 20).map(|_| charge)
    };
    let fill = |of| std::iter::from_fn(|| take(of, 1).ok()).collect::<Vec<_>>();
    let cursors = fill(Use::Cursors);
    assert_eq!(cursors.len(), 32, "a quarter of what is not fixed");
    assert!(matches!(take(Use::Cursors, 1), Err(Error::Busy { cause }) if cause == HELD));
    let writes = fill(Use::Transactions);
    assert_eq!(writes.len() as u64, ((72 << 20) + memory.limit() / 16) / (2 << 20));
    drop((cursors, writes));
    let writes = fill(Use::Transactions);
    let long_value = take(Use::Cursors, 50).unwrap();
    assert_eq!((writes.len(), memory.cursors_max()), (52, memory.limit() / 16));
    assert!(take(Use::Cursors, 1).is_err());
    drop(long_value);
    assert_eq!(fill(Use::Cursors).len(), 9, "a sixteenth of the limit, and what one may exceed it by");
}

#[test]
fn one_long_value_is_in_work_at_a_time() {
    let memory = Memory::new(64 << 20);
    assert!(memory.is_long((1 << 20) + 1) && !memory.is_long(1 << 20));
    let (in_work, most) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..100 {
                    let _long = memory.take_long();
                    most.fetch_max(in_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    in_work.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(most.into_inner(), 1);
}

#[test]
fn so_many_families_fit_that_they_make_no_pressure() {
    for limit in [0, LIMIT_MIN, 64 << 20, 1 << 30, u64::MAX] {
        let memory = Memory::new(limit);
        let idle = FIXED_BYTES + memory.families_max() * FAMILY_ROOM_BYTES;
        assert!(memory.families_max() > 700 && memory.level_of(idle) == Pressure::Normal, "{limit}");
    }
    let documented = include_str!("../../../../docs/concepts/memory.md");
    let fit = |mib: u64| Memory::new(mib << 20).families_max();
    let text = format!("{} with a limit of 16 MiB, {} with one of 64 MiB", fit(16), fit(64));
    assert!(documented.contains(&text), "docs/concepts/memory.md does not say {text:?}");
    let memory = Memory::new(LIMIT_MIN);
    (0..memory.families_max()).for_each(|_| memory.family_begins());
    assert!(matches!(memory.check_new_family(), Err(Error::MemoryLimit { .. })));
    assert_eq!(memory.used(), FIXED_BYTES + memory.families_max() * FAMILY_BYTES);
    memory.family_ends();
    memory.check_new_family().unwrap();
}

#[test]
fn transactions_share_one_limit() {
    let memory = Memory::new(164 << 20);
    let [mut first, mut second] = [Use::Transactions; 2].map(Charge::new);
    first.grow(&memory, 55 << 20).unwrap();
    assert!(matches!(second.grow(&memory, 11 << 20), Err(Error::MemoryLimit { .. })));
    second.grow(&memory, 10 << 20).unwrap();
    first.grow(&memory, 55 << 20).unwrap();
    drop(first);
    second.grow(&memory, 65 << 20).unwrap();
    assert_eq!(memory.used_for(Use::Transactions), 65 << 20);
}

/// Freed blocks that lie between allocated ones stay with the process.
#[test]
fn the_breakdown_shows_what_the_allocator_keeps() {
    tidesdb_io::sim::alone(|| {
        let memory = Memory::new(100 << 20);
        let shown = || memory.breakdown().allocator;
        if Heap::recent().is_none() || tidesdb_io::anonymous_bytes().is_none() {
            assert_eq!(shown(), 0);
            return;
        }
        let blocks: Vec<Box<[u8]>> = (0..64_000).map(|n| vec![n as u8; 1000].into()).collect();
        let kept: Vec<_> = blocks.into_iter().step_by(2).collect(); // frees 32 MB
        let grows = (0..3000).any(|_| {
            std::thread::sleep(Duration::from_millis(10)); // the allocator is not asked every time
            shown() > 20 << 20
        });
        drop(kept);
        assert!(grows);
    });
}

#[test]
fn databases_with_one_limit_add_up_and_leave_nothing() {
    for shares in [Shares::Limit, Shares::Resources] {
        let whole = Memory::of_several(100 << 20);
        let fixed = whole.used();
        let [first, second] = [(); 2].map(|()| Memory::within(&whole, shares));
        assert_eq!((whole.databases(), second.databases(), second.limit()), (2, 2, 100 << 20));
        let mut charge = Charge::new(Use::Jobs);
        charge.set(&first, 60 << 20);
        first.settle();
        assert_eq!((second.level(), second.own_wanted() < 5 << 20), (Pressure::Elevated, true));
        assert!(first.needs_relief() && !second.needs_relief());
        assert!(second.is_within_limit() && !second.has_room_for_jobs());
        charge.set(&second, 40 << 20); // a batch that goes to another database
        [&first, &second].into_iter().for_each(|memory| memory.settle());
        assert_eq!((first.used_for(Use::Jobs), whole.used_for(Use::Jobs)), (0, 40 << 20));
        let ranges = first.take_for_ranges(12 << 20).unwrap();
        assert!(second.take_for_ranges(1 << 20).is_none() && second.is_full_of_ranges());
        assert_eq!((first.used_for(Use::Ranges), second.used_for(Use::Ranges)), (12 << 20, 0));
        first.family_begins();
        assert_eq!((whole.families(), second.families()), (1, 0));
        first.family_ends();
        first.set_tables(3 << 20, 9 << 20);
        second.set_tables(1 << 20, 9 << 20);
        let tables = if shares == Shares::Limit { 4 << 20 } else { 9 << 20 };
        assert_eq!(whole.used_for(Use::Tables), tables);
        let sums = second.sums(Use::Memtables);
        sums.iter().for_each(|sum| _ = sum.fetch_add(1 << 20, Ordering::Relaxed));
        assert_eq!((sums.len(), whole.used_for(Use::Memtables)), (2, 1 << 20));
        sums.iter().for_each(|sum| _ = sum.fetch_sub(1 << 20, Ordering::Relaxed));
        second.set_tables(0, 0);
        drop((charge, ranges));
        [&first, &second].into_iter().for_each(|memory| memory.settle());
        first.leave();
        assert_eq!(whole.databases(), 1);
        drop((first, second));
        assert_eq!((whole.databases(), whole.used()), (0, fixed), "{shares:?}");
    }
}

#[test]
fn databases_without_a_limit_share_the_default() {
    let first = Memory::within(&Memory::of_process(), Shares::Limit);
    let second = Memory::within(&Memory::of_process(), Shares::Limit);
    assert_eq!(first.limit(), Memory::new(0).limit());
    assert!(std::ptr::eq(first.whole(), second.whole()) && first.databases() >= 2);
    assert!(first.fair_bytes() <= first.begin_of(Pressure::High) / 2);
}
