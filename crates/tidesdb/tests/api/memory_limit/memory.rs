//! One limit for all memory: what is counted, what is refused, and what happens when it becomes scarce.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidesdb::{Committed, Comparator, Db, Error, FamilyOptions, Isolation, StallCause, SyncMode, WriteBatch};

use crate::common::{Sim, used};

const LIMIT: u64 = 16 << 20;

/// A database with the lowest limit, and families whose memtables the limit alone keeps small.
fn limited(sim: &Sim, threads: usize) -> Db {
    let family = large().l1_tables_trigger(1000);
    let options = sim.options().default_family(family).memory_limit(LIMIT).sync(SyncMode::None);
    options.background_threads(threads).with(|o| o.wal_segment_bytes = 1 << 20).open().unwrap()
}

fn large() -> FamilyOptions {
    FamilyOptions::default().write_buffer_bytes(1 << 30).value_threshold(usize::MAX)
}

#[test]
fn the_limit_is_at_least_16_mib_and_by_default_part_of_the_machine() {
    let sim = Sim::new();
    let open = |bytes| sim.options().memory_limit(bytes).open().unwrap().memory_limit();
    assert_eq!((open(1), open(1 << 40)), (LIMIT, 1 << 40));
    assert!(open(0) >= LIMIT);
    let half = tidesdb::MachineMemory::now().total / 2;
    assert!(open(0) == half.max(LIMIT), "{half}");
}

#[test]
fn a_transaction_is_counted_and_gets_an_error_at_the_share_of_transactions() {
    let sim = Sim::new();
    let db = limited(&sim, 0);
    let family = db.default_family();
    let mut tx = db.begin(Isolation::Snapshot);
    let (mut puts, row) = (0u32, vec![7; 100_000]);
    let e = loop {
        match tx.put(family, puts.to_be_bytes(), &row) {
            Ok(()) => puts += 1,
            Err(e) => break e,
        }
        let (held, counted) = (tx.bytes() as u64, db.stats().memory_transactions_bytes);
        assert!(counted >= held && counted <= held + held / 4 + 4096, "{counted} for {held}");
    };
    assert!(matches!(&e, Error::MemoryLimit { .. }) && e.is_retryable(), "{e}");
    assert!((45..52).contains(&puts), "4.9 of 16 MiB: {puts} puts");
    let mut other = db.begin(Isolation::Snapshot);
    let refused = other.put(family, b"other", vec![7; 2_000_000]);
    assert!(matches!(refused, Err(Error::MemoryLimit { .. })), "all transactions share it");
    assert_eq!(tx.len(), puts as usize, "the refused put left nothing");
    tx.commit().unwrap();
    drop(tx);
    other.put(family, b"other", vec![7; 2_000_000]).unwrap();
    drop(other);
    assert_eq!(db.stats().memory_transactions_bytes, 0);
    assert_eq!(db.iter().unwrap().count(), puts as usize);
}

/// It need not be faulted in again for each commit. A batch that is longer, or that belongs to a thread and not to the user, is freed.
#[test]
fn a_batch_keeps_some_memory_for_its_next_commit() {
    let sim = Sim::new();
    let db = sim.open();
    let held = || db.stats().memory_transactions_bytes;
    let mut batch = WriteBatch::new();
    let mut commit = |rows: u32| {
        for n in 0..rows {
            batch.put(db.default_family(), n.to_be_bytes(), vec![7; 4000]).unwrap();
        }
        let filled = held();
        db.write(&mut batch).unwrap();
        (filled, held())
    };
    for _ in 0..2 {
        let (filled, kept) = commit(1000);
        assert!(filled > 4_000_000 && kept == filled, "{filled} {kept}");
    }
    assert_eq!(commit(3000).1, 0, "12 MB");
    assert!(commit(1000).1 > 0);
    batch.clear();
    assert_eq!(held(), 0);
    db.put(b"k", vec![7; 2_000_000]).unwrap();
    assert_eq!(held(), 0);
}

#[test]
fn what_a_transaction_reads_is_counted() {
    let sim = Sim::new();
    let db = limited(&sim, 0);
    let tx = db.begin(Isolation::Serializable);
    for n in 0..20_000u32 {
        tx.get(db.default_family(), n.to_be_bytes()).unwrap();
    }
    assert!(db.stats().memory_transactions_bytes >= 20_000 * 4, "{}", db.stats());
    drop(tx);
    assert_eq!(db.stats().memory_transactions_bytes, 0);
    let tx = db.begin(Isolation::Serializable);
    for n in 0..1000u32 {
        tx.get(db.default_family(), n.to_be_bytes().repeat(1000)).unwrap();
    }
    assert!(db.stats().memory_transactions_bytes >= 1000 * 4000, "few long keys: {}", db.stats());
    drop(tx);
    assert_eq!(db.stats().memory_transactions_bytes, 0);
}

/// The memtables of all families together would take more than twice the limit.
#[test]
fn memtables_of_many_families_are_flushed_before_memory_runs_out() {
    let sim = Sim::new();
    let db = limited(&sim, 0);
    let families: Vec<_> = (0..20).map(|n| db.create_family(&format!("f{n}"), large()).unwrap()).collect();
    let mut highest = 0;
    for n in 0..1700u32 {
        for family in &families {
            family.put(n.to_be_bytes(), [1; 1000]).unwrap();
        }
        if n % 50 == 0 {
            highest = highest.max(used(&db));
        }
    }
    assert!(highest > LIMIT / 2 && highest < LIMIT * 9 / 10, "{highest} of {LIMIT}");
    assert!(families.iter().all(|family| family.iter().unwrap().keys().count() == 1700));
}

/// A transaction and iterators hold memory, so flushes free none: the writer gets `Busy` in time, and the database goes on by itself once
/// they are gone.
#[test]
fn a_writer_gets_busy_while_memory_stays_scarce_and_the_database_heals() {
    let sim = Sim::new();
    let db = limited(&sim, 2);
    let side = db.create_family("side", large()).unwrap();
    let mut tx = db.begin(Isolation::Snapshot);
    // Not the whole share: iterators take some of it.
    while tx.bytes() < 4_000_000 {
        tx.put(&side, tx.len().to_be_bytes(), vec![7; 50_000]).unwrap();
    }
    let (ticking, mut iterators) = (AtomicBool::new(true), Vec::new());
    let put = |n: u32| db.put(n.to_be_bytes(), vec![1; 20_000]);
    let e = std::thread::scope(|s| {
        // Advances the clock: the timeout is measured on the clock of the environment.
        s.spawn(|| {
            while ticking.load(Ordering::SeqCst) {
                sim.clock.advance(Duration::from_millis(500));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let e = (0..100).find_map(|_| {
            let refused = (0..25).find_map(|n| put(n).err());
            iterators.push(db.iter().unwrap()); // keeps the memtable
            db.flush().unwrap();
            refused
        });
        ticking.store(false, Ordering::SeqCst);
        e.expect("memory is bounded")
    });
    assert!(matches!(e, Error::Busy { cause } if cause.starts_with("memory")), "{e}");
    let stats = db.stats();
    assert!(stats.stalled_by(StallCause::Memory).gave_up > 0 && stats.memory_pressure >= 2, "{stats}");
    assert!(used(&db) < LIMIT * 115 / 100, "{}", used(&db));
    drop((tx, iterators));
    for n in 0..500 {
        put(n).unwrap();
    }
    assert_eq!(
        db.stats().stalled_by(StallCause::Memory).gave_up,
        stats.stalled_by(StallCause::Memory).gave_up
    );
}

/// Short rows take three times as much in a memtable, and sorted for reading, as in the transaction.
#[test]
fn a_transaction_of_short_rows_stays_within_the_limit() {
    let sim = Sim::new();
    let db = limited(&sim, 2);
    let side = db.create_family("side", large()).unwrap();
    let fill = |tx: &mut tidesdb::Transaction| {
        let full = (0..u64::MAX).find_map(|n| tx.put(&side, n.to_be_bytes(), [7; 8]).err());
        assert!(matches!(full, Some(Error::MemoryLimit { .. })), "{full:?}");
    };
    let mut tx = db.begin(Isolation::Snapshot);
    fill(&mut tx);
    assert!(tx.len() > 50_000, "{}", tx.len());
    assert_eq!(tx.iter(&side).unwrap().keys().count(), tx.len());
    assert!(used(&db) < LIMIT, "{} of {LIMIT}", used(&db));
    tx.commit().unwrap();
    assert!(used(&db) < LIMIT, "{} of {LIMIT}", used(&db));
}

/// Room that was charged for long rows is not filled with short ones beyond what a commit could insert.
#[test]
fn what_a_batch_admits_can_be_committed_however_its_rows_are_mixed() {
    let sim = Sim::new();
    let db = limited(&sim, 2);
    let family = db.default_family();
    let deletes = |target: &mut WriteBatch, most: u32| {
        (0..most).find_map(|n| target.delete(family, n.to_be_bytes()).err())
    };
    let (mut first, mut short) = (WriteBatch::new(), WriteBatch::new());
    assert!(deletes(&mut short, 60_000).is_none());
    first.put(family, b"long", vec![7; 3_200_000]).unwrap();
    let appended = first.append(&short);
    assert!(matches!(appended, Err(Error::MemoryLimit { .. })), "{appended:?}");
    drop((first, short));
    let mut mixed = WriteBatch::new();
    mixed.put(family, b"long", vec![7; 3_800_000]).unwrap();
    assert!(deletes(&mut mixed, 200_000).is_some(), "{mixed:?}");
    for len in [mixed.len(), 0] {
        let done = with_time(&sim, || db.write(&mut mixed));
        assert!(done.is_ok(), "{done:?}: {len} operations; {}", db.stats());
        assert!(used(&db) < LIMIT, "{} of {LIMIT}", used(&db));
        mixed.clear();
        mixed.put(family, b"again", b"1").unwrap();
    }
    let mut tx = db.begin(Isolation::Snapshot);
    let empty = tx.savepoint();
    fill_up(&mut tx, family, 1000);
    tx.rollback_to(empty).unwrap();
    let full = (0..u64::MAX).find_map(|n| tx.delete(family, n.to_be_bytes()).err());
    assert!(matches!(full, Some(Error::MemoryLimit { .. })), "{full:?}");
    let done = with_time(&sim, || tx.commit());
    assert!(done.is_ok(), "{done:?}; {}", db.stats());
}

/// Together, sorted writes of many transactions may take no more than their share.
#[test]
fn transactions_of_short_rows_are_sorted_within_the_limit() {
    let sim = Sim::new();
    let db = limited(&sim, 2);
    let side = db.create_family("side", large()).unwrap();
    let mut open: Vec<_> = (0..8).map(|_| db.begin(Isolation::Snapshot)).collect();
    for n in 0..22_000u64 {
        for (of, tx) in (0u64..).zip(&mut open) {
            tx.put(&side, (n << 3 | of).to_be_bytes(), [7; 8]).unwrap();
        }
    }
    let sorted: Vec<bool> = open.iter().map(|tx| tx.iter(&side).is_ok()).collect();
    assert!(sorted[0] && !sorted[7], "{sorted:?}");
    let refused = open[7].iter(&side).map(drop);
    assert!(matches!(refused, Err(Error::MemoryLimit { .. })), "{refused:?}");
    assert!(used(&db) < LIMIT, "{} of {LIMIT}", used(&db));
    for mut tx in open {
        let done = with_time(&sim, || tx.commit());
        assert!(done.is_ok(), "{done:?}; {}", db.stats());
        assert!(used(&db) < LIMIT * 115 / 100, "{} of {LIMIT}", used(&db));
    }
}

/// Each fits, and all at once do not: they take turns.
#[test]
fn commits_that_do_not_fit_together_do_not_wait_for_each_other() {
    let sim = Sim::new();
    let db = limited(&sim, 2);
    let mut batches: Vec<WriteBatch> = (0..5).map(|_| WriteBatch::new()).collect();
    for (of, batch) in (0u64..).zip(&mut batches) {
        for n in 0..70_000u64 {
            batch.delete(db.default_family(), (n << 3 | of).to_be_bytes()).unwrap();
        }
    }
    let ready = std::sync::Barrier::new(batches.len());
    let write = |batch: &mut WriteBatch| {
        ready.wait();
        db.write(batch)
    };
    with_time(&sim, || {
        std::thread::scope(|s| {
            let all: Vec<_> = batches.iter_mut().map(|batch| s.spawn(|| write(batch))).collect();
            for done in all {
                let done = done.join().unwrap();
                assert!(done.is_ok(), "{done:?}; {}", db.stats());
            }
        });
    });
    assert!(used(&db) < LIMIT * 115 / 100, "{} of {LIMIT}", used(&db));
}

/// Replay writes tables before its memtables outgrow the limit.
#[test]
fn recovery_stays_within_the_limit() {
    let sim = Sim::new();
    let db = limited(&sim, 0);
    let families: Vec<_> = (0..12).map(|n| db.create_family(&format!("f{n}"), large()).unwrap()).collect();
    for n in 0..500u32 {
        for family in &families {
            family.put(n.to_be_bytes(), [1; 1000]).unwrap();
        }
    }
    let killed = sim.killed();
    let db = limited(&killed, 0);
    assert!(db.recovery_report().commits > 0 && used(&db) < LIMIT, "{}", db.stats());
    db.flush().unwrap(); // recovered commits become tables behind the open
    // Threads of other tests may delay when the memory of memtables is free.
    let freed = (0..1500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        db.flush().unwrap();
        used(&db) < LIMIT / 2
    });
    assert!(freed, "{}", db.stats());
    for n in 0..12 {
        let family = db.family(&format!("f{n}")).unwrap();
        assert_eq!(family.iter().unwrap().keys().count(), 500);
    }
}

/// Runs `work` while the clock advances: timeouts are measured on the clock of the environment.
fn with_time<R>(sim: &Sim, work: impl FnOnce() -> R) -> R {
    let ticking = AtomicBool::new(true);
    std::thread::scope(|s| {
        s.spawn(|| {
            while ticking.load(Ordering::SeqCst) {
                sim.clock.advance(Duration::from_millis(500));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let result = work();
        ticking.store(false, Ordering::SeqCst);
        result
    })
}

/// Puts until the limit of transactions is reached.
fn fill_up(tx: &mut tidesdb::Transaction, family: &tidesdb::Family, row: usize) {
    let e = loop {
        match tx.put(family, tx.len().to_be_bytes(), vec![7; row]) {
            Ok(()) => {}
            Err(e) => break e,
        }
    };
    assert!(matches!(e, Error::MemoryLimit { .. }), "{e}");
}

/// What the limit admits to a transaction can be committed, although the memtables need as much again.
#[test]
fn the_largest_transaction_can_be_committed() {
    for row in [8, 1000, 50_000, 700_000] {
        for reads in [false, true] {
            let sim = Sim::new();
            let db = limited(&sim, 2);
            let mut tx = db.begin(Isolation::Snapshot);
            fill_up(&mut tx, db.default_family(), row);
            let rows = tx.len();
            if reads {
                assert_eq!(tx.iter(db.default_family()).unwrap().keys().count(), rows);
            }
            let done = with_time(&sim, || tx.commit());
            assert!(done.is_ok(), "{done:?}: {rows} rows of {row} bytes, read: {reads}; {}", db.stats());
            drop(tx);
            assert_eq!(db.iter().unwrap().keys().count(), rows);
            assert_eq!(db.stats().memory_transactions_bytes, 0);
        }
    }
}

/// Large transactions that together take the whole share and commit at the same time do not wait for each other's reservations.
#[test]
fn large_transactions_commit_at_the_same_time() {
    let sim = Sim::new();
    let db = limited(&sim, 2);
    let family = db.default_family();
    let mut all: Vec<_> = (0..4).map(|_| db.begin(Isolation::ReadCommitted)).collect();
    let mut rows = 0;
    'full: loop {
        for (n, tx) in all.iter_mut().enumerate() {
            if tx.put(family, (rows * 10 + n).to_be_bytes(), vec![7; 40_000]).is_err() {
                break 'full;
            }
        }
        rows += 1;
    }
    let (barrier, written) = (std::sync::Barrier::new(all.len()), std::sync::atomic::AtomicUsize::new(0));
    with_time(&sim, || {
        std::thread::scope(|s| {
            for mut tx in all {
                let (barrier, written) = (&barrier, &written);
                s.spawn(move || {
                    barrier.wait();
                    let rows = tx.len();
                    tx.commit().unwrap();
                    written.fetch_add(rows, Ordering::SeqCst);
                });
            }
        });
    });
    assert_eq!(db.iter().unwrap().keys().count(), written.into_inner());
    assert_eq!(db.stats().memory_transactions_bytes, 0);
}

/// A transaction that waits for memory does not outwait the database.
#[test]
fn a_close_ends_the_wait_for_memory() {
    let sim = Sim::new();
    let db = limited(&sim, 2);
    let mut iterators = Vec::new();
    while used(&db) < LIMIT / 100 * 90 {
        db.put(iterators.len().to_be_bytes(), vec![1; 300_000]).unwrap();
        iterators.push(db.iter().unwrap()); // keeps the memtable
    }
    let mut tx = db.begin(Isolation::Snapshot);
    let family = db.default_family().clone();
    let e = std::thread::scope(|s| {
        let waiting = s
            .spawn(move || (0..100u64).find_map(|n| tx.put(&family, n.to_be_bytes(), vec![1; 40_000]).err()));
        while db.stats().stalled_by(StallCause::Memory).delayed_now == 0 {
            assert!(!waiting.is_finished(), "memory is left");
            std::thread::yield_now();
        }
        db.close().unwrap();
        with_time(&sim, || waiting.join().unwrap())
    });
    assert!(matches!(e, Some(Error::Closed)), "{e:?}");
}

/// A long batch is in the log when it is inserted, so it gives back its memory meanwhile: together with its memtables it never takes
/// twice its length. Range deletes, which count the operations, are inserted right from one piece to the next.
#[test]
fn a_long_batch_frees_its_memory_while_it_is_inserted() {
    const ROWS: u32 = 1000;
    let sim = Sim::new();
    let (db, least) = (Arc::new(OnceLock::<Db>::new()), Arc::new(AtomicU64::new(u64::MAX)));
    let (seen, low) = (Arc::downgrade(&db), Arc::clone(&least));
    let order = Comparator::custom("watching", move |a: &[u8], b: &[u8]| {
        if a.ends_with(b"look") || b.ends_with(b"look") {
            let db = seen.upgrade();
            let bytes = db
                .as_ref()
                .and_then(|db| db.get())
                .map_or(u64::MAX, |db| db.stats().memory_transactions_bytes);
            low.fetch_min(bytes, Ordering::Relaxed);
        }
        a.cmp(b)
    });
    let family = large().comparator(order);
    let options = sim.options().default_family(family).memory_limit(256 << 20).sync(SyncMode::None);
    let open = options.background_threads(0).with(|o| o.wal_segment_bytes = 1 << 20).open().unwrap();
    let db = db.get_or_init(|| open);
    let family = db.default_family();
    let key = |n: u32| n.to_be_bytes();
    for has_hook in [true, false] {
        let told = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&told);
        let hook =
            move |commit: &Committed<'_>| _ = count.fetch_add(commit.ops.len() as u64, Ordering::Relaxed);
        family.set_commit_hook(has_hook.then(|| Arc::new(hook) as _));
        family.put(b"base", b"v").unwrap();
        told.store(0, Ordering::Relaxed);
        let mut batch = WriteBatch::new();
        for n in 0..ROWS {
            if n % 300 == 299 {
                batch.delete_range(family, key(n - 9)..key(n)).unwrap();
            }
            batch.put(family, key(n), vec![n as u8; 16 << 10]).unwrap();
        }
        batch.put(family, b"look", b"v").unwrap();
        let (ops, bytes) = (batch.len() as u64, batch.bytes() as u64);
        least.store(u64::MAX, Ordering::Relaxed);
        db.write(&mut batch).unwrap();
        let least = least.load(Ordering::Relaxed);
        if has_hook {
            assert!(least >= bytes && told.load(Ordering::Relaxed) == ops, "a hook gets the whole batch");
        } else if cfg!(target_os = "linux") {
            assert!(least < bytes / 2, "{least} of {bytes} bytes are kept to the end");
        } // other systems give a long buffer back as a whole
        assert!(batch.is_empty() && db.stats().memory_transactions_bytes == 0);
        for n in 0..ROWS {
            let expected = (![290..299, 590..599, 890..899].iter().any(|gone| gone.contains(&n)))
                .then(|| vec![n as u8; 16 << 10]);
            assert_eq!(family.get(key(n)).unwrap().as_deref(), expected.as_deref(), "row {n}");
        }
    }
}

/// A scan that is refused memory fails. It ended as if there were no more rows in the table, or blamed the engine.
#[test]
fn a_scan_that_is_refused_memory_does_not_end_early() {
    const ROWS: usize = 200;
    let sim = Sim::new();
    let db = limited(&sim, 0);
    let family = db.default_family();
    for n in 0..ROWS {
        family.put(format!("{n:03}"), crate::common::noise(n as u64, 100 + n * 300)).unwrap();
    }
    db.compact().unwrap();
    let mut refused = 0;
    for before in 0..ROWS - 1 {
        let mut scan = family.iter().unwrap();
        assert!(scan.by_ref().take(before).all(|row| row.is_ok()));
        let mut held = Vec::new();
        while let Ok(mut iter) = family.iter() {
            if !iter.by_ref().take(ROWS - 1).all(|row| row.is_ok()) {
                break;
            }
            held.push(iter);
            assert!(held.len() < 1000, "iterators without a limit");
        }
        let mut rows = before;
        let failed = scan.find_map(|row| row.map(|_| rows += 1).err());
        match &failed {
            Some(e) => assert!(matches!(e, Error::Busy { .. }), "after {before} rows: {e}"),
            None => assert_eq!(rows, ROWS, "the scan ended early after {before} rows and a refusal"),
        }
        refused += usize::from(failed.is_some());
    }
    assert!(refused > 10, "{refused}");
}
