//! Range deletes of a transaction: the work of its reads, its cursors and its commit, in comparisons, and the memory that they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb::{Db, Error, Family, FamilyOptions, Isolation, SyncMode, Transaction};

use crate::common::{Sim, counting, small, used};

fn row(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A family whose comparisons are counted, with 100 rows.
struct Counted {
    db: Db,
    family: Family,
    count: Arc<AtomicU64>,
}

impl Counted {
    fn new() -> Self {
        let (order, count) = counting();
        let db = Sim::new().open();
        let family = db.create_family("counted", small().comparator(order)).unwrap();
        for n in 0..100 {
            family.put(row(n * 1000), b"committed").unwrap();
        }
        Self { db, family, count }
    }

    /// Returns the comparisons of `work`.
    fn comparisons(&self, work: impl FnOnce()) -> u64 {
        let before = self.count.load(Ordering::Relaxed);
        work();
        self.count.load(Ordering::Relaxed) - before
    }
}

/// Range deletes in one transaction.
const RANGES: u64 = 8000;

/// Returns the range delete with number `n`, of `RANGES`.
type Shape = fn(u64) -> (u64, u64);

const SHAPES: [(&str, Shape); 5] = [
    ("apart", |n| (4 * n, 4 * n + 2)),
    ("overlapping", |n| (4 * n, 4 * n + 6)),
    ("nested, the outer one first", |n| (n, 8 * RANGES - n)),
    ("nested, the inner one first", |n| (RANGES - n, 7 * RANGES + n)),
    ("the same", |_| (5, 8 * RANGES)),
];

fn delete(tx: &mut Transaction, family: &Family, (from, to): (u64, u64)) {
    tx.delete_range(family, row(from)..row(to)).unwrap();
}

/// A get used to look at each of them, and a scan to copy and sort them all: with 8,000, 16,000 and 240,000 comparisons.
#[test]
fn a_read_does_not_look_at_each_range_delete_of_its_transaction() {
    for (name, shape) in SHAPES {
        let counted = Counted::new();
        let Counted { db, family, .. } = &counted;
        let mut tx = db.begin(Isolation::Snapshot);
        let is_deleted = |upto: u64, key: u64| (0..upto).any(|n| (shape(n).0..shape(n).1).contains(&key));
        let in_turn = counted.comparisons(|| {
            for n in 0..RANGES {
                delete(&mut tx, family, shape(n));
                let key = (n * 7919) % 100 * 1000;
                let found = tx.contains(family, row(key)).unwrap();
                if n % 97 == 0 {
                    assert_eq!(found, !is_deleted(n + 1, key), "{name}: {key} after {n}");
                }
            }
        });
        assert!(in_turn / RANGES < 300, "{name}: {} comparisons for each delete and get", in_turn / RANGES);
        for key in [0, 1000, 8000, 31_000, 33_000, 99_000] {
            let gone = is_deleted(RANGES, key);
            let get = counted.comparisons(|| assert_eq!(tx.get(family, row(key)).unwrap().is_none(), gone));
            assert!(get < 60, "{name}: {get} for a get");
            let cursor = counted.comparisons(|| drop(tx.cursor(family).unwrap()));
            assert!(cursor < 10, "{name}: {cursor} to make a cursor");
            let scan = counted.comparisons(|| {
                let rows = tx.range(family, row(key)..row(key + 1)).unwrap().count();
                assert_eq!(rows, usize::from(!gone), "{name}: {key}");
            });
            assert!(scan < 200, "{name}: {scan} for a scan of one row");
        }
    }
}

/// A range delete used to write a tombstone for each key that the transaction had written before, even if it was deleted: 2,000 range
/// deletes over 1,000 rows made 2,000,000.
#[test]
fn a_range_delete_costs_nothing_for_each_earlier_write() {
    let counted = Counted::new();
    let Counted { db, family, .. } = &counted;
    let mut tx = db.begin(Isolation::ReadCommitted);
    for n in 0..1000 {
        tx.put(family, row(n), b"own").unwrap();
    }
    assert_eq!(tx.get(family, row(7)).unwrap().as_deref(), Some(&b"own"[..]));
    let before = db.stats().memory_transactions_bytes;
    let turns = counted.comparisons(|| {
        for n in 0..2000 {
            tx.delete_range(family, row(0)..row(2000)).unwrap();
            assert!(!tx.contains(family, row(n % 1000)).unwrap());
        }
    });
    assert!(turns / 2000 < 100, "{} comparisons for each delete and get", turns / 2000);
    let grown = db.stats().memory_transactions_bytes - before;
    assert!(grown < 2000 * 1000, "{grown} bytes for 2,000 range deletes");
    assert_eq!(tx.iter(family).unwrap().count(), 98, "the committed rows above");
    tx.put(family, row(3), b"again").unwrap();
    assert_eq!(tx.iter(family).unwrap().count(), 99);
    tx.commit().unwrap();
    assert_eq!(family.iter().unwrap().count(), 99);
}

/// A database with the lowest limit, no threads, and one row.
fn limited() -> Db {
    let large = FamilyOptions::default().write_buffer_bytes(1 << 30);
    let options = Sim::new().options().default_family(large).memory_limit(16 << 20).sync(SyncMode::None);
    let db = options.open().unwrap();
    db.put(b"first", b"row").unwrap();
    db
}

/// Such a transaction used to grow without end, and then every writer of the database got `Busy`.
#[test]
fn a_transaction_of_range_deletes_and_reads_is_refused_at_its_share() {
    let db = limited();
    let family = db.default_family();
    let mut tx = db.begin(Isolation::ReadCommitted);
    for n in 0..1000 {
        tx.put(family, row(n), [7; 1000]).unwrap();
    }
    let refused = (0..100_000).find_map(|n| {
        let deleted = tx.delete_range(family, row(0)..row(2000));
        let read = deleted.and_then(|()| tx.contains(family, row(n % 1000)));
        if n % 50 == 0 {
            assert!(used(&db) <= db.memory_limit(), "after {n}: {}", db.stats());
        }
        read.err()
    });
    let e = refused.expect("the sorted writes take more than the share");
    assert!(matches!(&e, Error::MemoryLimit { what } if what.contains("memory")) && e.is_retryable(), "{e}");
    assert!(used(&db) <= db.memory_limit(), "{}", db.stats());
    db.put(b"others", b"go on").unwrap();
    tx.rollback();
    drop(tx);
    assert_eq!(db.stats().memory_transactions_bytes, 0);
}

/// Each cursor used to have a copy, which no figure counted.
#[test]
fn cursors_share_the_range_deletes_and_keep_them_counted() {
    let db = limited();
    let family = db.default_family();
    let bytes = || db.stats().memory_transactions_bytes;
    let mut tx = db.begin(Isolation::ReadCommitted);
    for n in 0..2000u64 {
        tx.delete_range(family, row(4 * n)..row(4 * n + 2)).unwrap();
    }
    let unsorted = bytes();
    assert!(!tx.contains(family, row(0)).unwrap());
    let sorted = bytes();
    assert!(sorted - unsorted > 2000 * 200, "{} bytes for 2,000 range deletes", sorted - unsorted);
    let mut cursors: Vec<_> = (0..100).map(|_| tx.cursor(family).unwrap()).collect();
    for cursor in &mut cursors {
        cursor.seek_to_first().unwrap();
        assert_eq!(cursor.key(), b"first");
    }
    assert_eq!(bytes(), sorted);
    for n in 0..100u64 {
        tx.delete_range(family, row(4 * n + 1)..row(4 * n + 3)).unwrap();
        cursors.push(tx.cursor(family).unwrap()); // each keeps the state as of now
    }
    let several = bytes() - sorted;
    assert!((100 * 200..1 << 20).contains(&several), "{several} bytes for 100 states");
    drop(tx);
    let kept = bytes();
    assert!(kept > 2000 * 200, "{kept} bytes are kept by cursors alone");
    cursors.truncate(1);
    cursors[0].seek_to_last().unwrap();
    assert_eq!(cursors[0].key(), b"first");
    assert!(bytes() > 2000 * 200 && bytes() < kept);
    drop(cursors);
    assert_eq!(bytes(), 0);
}

/// A commit used to compare each of its ranges with each range that others had deleted: here 1,000,000 pairs.
#[test]
fn a_commit_does_not_compare_each_pair_of_range_deletes() {
    const EACH: u64 = 1000;
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for flushed in [false, true] {
            let counted = Counted::new();
            let Counted { db, family, .. } = &counted;
            let mut tx = db.begin(isolation);
            for n in 0..EACH {
                if isolation == Isolation::Snapshot {
                    delete(&mut tx, family, (100 * n + 10, 100 * n + 20));
                } else {
                    let found = tx.range(family, row(100 * n + 10)..row(100 * n + 20)).unwrap().count();
                    assert_eq!(found, 0);
                }
            }
            tx.put(family, row(1), b"own").unwrap();
            for n in 0..EACH {
                family.delete_range(row(100 * n + 15)..row(100 * n + 30)).unwrap(); // no row is there
            }
            if flushed {
                db.flush().unwrap();
            }
            let checked = counted.comparisons(|| assert!(tx.commit().is_ok()));
            assert!(checked < EACH * 500, "{isolation:?}: {} comparisons for each range", checked / EACH);
        }
    }
}

/// The ranges of a transaction that overlap are checked once.
#[test]
fn a_commit_checks_ranges_that_overlap_once() {
    const EACH: u64 = 1000;
    let counted = Counted::new();
    let Counted { db, family, .. } = &counted;
    let mut tx = db.begin(Isolation::Snapshot);
    for n in 0..EACH {
        delete(&mut tx, family, (10 + n, 1_000_000 - n));
    }
    for n in 0..EACH {
        family.delete_range(row(100 * n + 15)..row(100 * n + 30)).unwrap();
    }
    let checked = counted.comparisons(|| assert!(tx.commit().is_ok()));
    assert!(checked < EACH * 500, "{} comparisons for each range", checked / EACH);
}

/// Among many ranges, the one in which another commit deleted or wrote a row is found, and no other one.
#[test]
fn a_commit_finds_the_one_range_that_others_changed() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for changed in [None, Some(0), Some(57), Some(99)] {
            for deletes in [false, true] {
                let counted = Counted::new();
                let Counted { db, family, .. } = &counted;
                let mut tx = db.begin(isolation);
                for n in (0..100).rev() {
                    // Each has one row, and its upper end is the lower one of a range that is not read.
                    match isolation {
                        Isolation::Snapshot => delete(&mut tx, family, (1000 * n, 1000 * n + 500)),
                        _ => drop(tx.range(family, row(1000 * n)..row(1000 * n + 500)).unwrap().count()),
                    }
                }
                tx.put(family, row(999), b"own").unwrap();
                for n in 0..100 {
                    family.delete_range(row(1000 * n + 1)..row(1000 * n + 700)).unwrap();
                    family.put(row(1000 * n + 500), b"beside").unwrap();
                }
                if let Some(n) = changed {
                    match deletes {
                        true => family.delete_range(row(1000 * n)..row(1000 * n + 10)).map(drop),
                        false => family.put(row(1000 * n + 499), b"into").map(drop),
                    }
                    .unwrap();
                }
                let key = changed.map(|n| if deletes { row(1000 * n) } else { row(1000 * n + 499) });
                match (tx.commit(), key) {
                    (Ok(_), None) => {}
                    (Err(Error::Conflict { key: found, .. }), Some(key)) => assert_eq!(&*found, key),
                    (result, _) => panic!("{isolation:?}, {changed:?}, {deletes}: {result:?}"),
                }
            }
        }
    }
}
