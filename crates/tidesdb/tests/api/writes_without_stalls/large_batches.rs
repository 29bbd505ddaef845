//! Batches that are sorted into their own memtables: these are ordered between the earlier and the later commits, and no other
//! thread waits while they are sorted.

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use tidesdb::{Comparator, Db, Family, FamilyOptions, Isolation, SyncMode, WriteBatch};

use crate::common::{Pair, Sim, contents, small, value};

/// Operations of at least 100 bytes: together more than 1 MiB, the limit from which a batch gets its own memtables.
const OPS: u32 = 12_000;

fn key(n: u32) -> Vec<u8> {
    format!("key{:06}", n.wrapping_mul(7919) % OPS).into_bytes()
}

/// Puts every key with a value that begins with `mark`.
fn large(batch: &mut WriteBatch, family: &Family, mark: u8) {
    for n in 0..OPS {
        batch.put(family, &key(n), &[mark; 100]).unwrap();
    }
}

fn all(mark: u8) -> Vec<Pair> {
    (0..OPS).map(|n| (format!("key{n:06}").into_bytes(), vec![mark; 100])).collect()
}

thread_local! {
    /// True if comparisons of this thread stop at the gate.
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

/// Stops a thread once in the middle of a sort.
#[derive(Default)]
struct Gate {
    passed: AtomicBool,
    sides: Option<(Barrier, Barrier)>,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self { sides: Some((Barrier::new(2), Barrier::new(2))), ..Self::default() })
    }

    /// Called by the sorting thread.
    fn stop(&self) {
        if STOPS.get() && !self.passed.swap(true, SeqCst) {
            self.wait_for_stop();
            self.open();
        }
    }

    fn wait_for_stop(&self) {
        self.sides.as_ref().unwrap().0.wait();
    }

    fn open(&self) {
        self.sides.as_ref().unwrap().1.wait();
    }
}

/// Runs every operation that must not wait while a large batch for `family` is sorted.
fn use_all(db: &Db, family: &Family, side: &Family) {
    let snapshot = db.snapshot();
    for f in [family, side] {
        f.put(b"small", b"now").unwrap();
        assert_eq!(value(f, b"small").unwrap(), b"now");
        assert_eq!(contents(f), [(b"small".to_vec(), b"now".to_vec())]);
        assert!(snapshot.get(f, b"small").unwrap().is_none());
        let mut tx = db.begin(Isolation::Serializable);
        assert!(tx.get(f, b"small").unwrap().is_some());
        tx.put(f, b"small", b"again").unwrap();
        tx.commit().unwrap();
        f.flush().unwrap();
        f.compact().unwrap();
        assert_eq!(value(f, b"small").unwrap(), b"again");
    }
}

#[test]
fn no_thread_waits_while_a_large_batch_is_sorted() {
    for sync in [SyncMode::None, SyncMode::Full] {
        let (sim, gate) = (Sim::new(), Gate::new());
        let at_gate = Arc::clone(&gate);
        let order = Comparator::custom("gated", move |a: &[u8], b: &[u8]| -> Ordering {
            at_gate.stop();
            a.cmp(b)
        });
        let db = sim.options().sync(sync).comparator(order.clone()).open().unwrap();
        let family = db.create_family("ordered", small().comparator(order)).unwrap();
        let mut batch = WriteBatch::new();
        large(&mut batch, &family, b'1');
        std::thread::scope(|s| {
            s.spawn(|| {
                STOPS.set(true);
                db.write(&mut batch).unwrap();
            });
            gate.wait_for_stop();
            use_all(&db, &family, db.default_family());
            gate.open();
        });
        let mut expected = all(b'1');
        expected.push((b"small".to_vec(), b"again".to_vec()));
        assert_eq!(contents(&family), expected, "{sync:?}");
    }
}

/// Runs a history of small and large commits; checks the contents after each step, at its snapshot, after flushes and after a kill.
fn history(options: &FamilyOptions, segment_bytes: u64) {
    let sim = Sim::new();
    let open = |sim: &Sim| {
        let options = options.clone();
        sim.options().default_family(options).with(|o| o.wal_segment_bytes = segment_bytes).open().unwrap()
    };
    let db = open(&sim);
    let f = db.default_family();
    f.put(&key(5), b"before").unwrap();
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    large(&mut batch, f, b'1');
    batch.delete(f, &key(6)).unwrap();
    batch.put(f, &key(7), b"last of the batch").unwrap();
    db.write(&mut batch).unwrap();
    let between = db.snapshot();
    f.put(&key(8), b"after").unwrap();
    let check = |db: &Db| {
        let f = db.default_family();
        let found = [5, 6, 7, 8, 9].map(|n| value(f, &key(n)));
        let old = Some(vec![b'1'; 100]);
        let expected = [old.clone(), None, Some(b"last of the batch".to_vec()), Some(b"after".to_vec()), old];
        assert_eq!((found, contents(f).len()), (expected, OPS as usize - 1));
    };
    let at =
        |n, snapshot: &tidesdb::Snapshot| snapshot.get(f, &key(n)).unwrap().map(tidesdb::Slice::into_vec);
    for round in 0..3 {
        check(&db);
        assert_eq!([5, 7, 8].map(|n| at(n, &before)), [Some(b"before".to_vec()), None, None], "{round}");
        let (seven, eight) = (Some(b"last of the batch".to_vec()), Some(vec![b'1'; 100]));
        assert_eq!([6, 7, 8].map(|n| at(n, &between)), [None, seven, eight], "{round}");
        check(&open(&sim.killed()));
        match round {
            0 => f.flush().unwrap(),
            _ => db.compact().unwrap(),
        }
    }
    drop((before, between));
    db.close().unwrap();
    check(&open(&sim));
}

#[test]
fn a_large_batch_is_ordered_between_earlier_and_later_commits() {
    let custom = Comparator::custom("bytes", |a: &[u8], b: &[u8]| a.cmp(b));
    for segment_bytes in [64 << 10, 4 << 20] {
        history(&small(), segment_bytes);
        history(&small().comparator(Comparator::reverse_bytewise()), segment_bytes);
    }
    let sim = Sim::new();
    let db = sim.options().comparator(custom.clone()).open().unwrap();
    let f = db.create_family("ordered", small().comparator(custom)).unwrap();
    let mut batch = WriteBatch::new();
    large(&mut batch, &f, b'1');
    db.write(&mut batch).unwrap();
    assert_eq!(contents(&f), all(b'1'));
}

#[test]
fn readers_see_large_batches_completely_and_in_order() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).background_threads(2).open().unwrap();
    let side = db.create_family("side", small()).unwrap();
    let main = db.default_family();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for mark in 1..=6 {
                let mut batch = WriteBatch::new();
                large(&mut batch, main, mark);
                large(&mut batch, &side, mark);
                db.write(&mut batch).unwrap();
                side.put(b"newest", &[mark]).unwrap();
            }
            done.store(true, SeqCst);
        });
        s.spawn(|| {
            while !done.load(SeqCst) {
                main.put(b"small", b"x").unwrap();
            }
        });
        while !done.load(SeqCst) {
            let snapshot = db.snapshot();
            let newest = snapshot.get(&side, b"newest").unwrap().map_or(0, |v| v[0]);
            let marks = |f: &Family| {
                let iter = snapshot.iter(f).unwrap();
                let rows = iter.map(|kv| kv.unwrap()).filter(|(k, _)| k.starts_with(b"key"));
                rows.map(|(_, v)| v[0]).collect::<Vec<u8>>()
            };
            let (of_main, of_side) = (marks(main), marks(&side));
            let mark = of_main.first().copied().unwrap_or(0);
            assert!(of_main.len() == of_side.len() && [0, OPS as usize].contains(&of_main.len()));
            assert!(of_main.iter().chain(&of_side).all(|m| *m == mark));
            assert!(mark >= newest && mark <= newest + 1, "{mark} {newest}");
        }
    });
}
