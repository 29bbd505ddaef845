//! A wall clock that is stepped forward and back while the database is open. Invariant: time only moves forward. An entry that one
//! reader found expired is expired for every later reader, so no answer depends on whether a merge has already run.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use tidesdb::{Db, Error, Family, Isolation, Snapshot, Transaction, WriteBatch};

use crate::common::{Pair, Random, Sim, contents, keys, keys_back, letters, pairs, small};

/// Start of the simulated clock.
const START: u64 = 1_700_000_000;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// An expired row used to reappear when the clock was set back, unless a merge had dropped it by then.
#[test]
fn what_has_expired_stays_expired_merged_or_not() {
    for merged in [false, true] {
        let sim = Sim::new();
        let db = sim.open();
        let f = db.default_family();
        f.put_with_ttl(b"k", b"v", secs(10)).unwrap();
        f.put_with_ttl(b"later", b"v", secs(1000)).unwrap();
        sim.clock.set_wall_secs(START + 100);
        assert!(!f.contains(b"k").unwrap());
        if merged {
            db.compact().unwrap();
        }
        for back in [START + 99, START + 5, 0] {
            sim.clock.set_wall_secs(back);
            assert!(!f.contains(b"k").unwrap(), "merged: {merged}, at {back}");
            assert_eq!(keys(f.iter()), ["later"], "merged: {merged}, at {back}");
        }
    }
}

/// While the wall clock is behind, time continues: puts live as long as requested, neither shorter nor forever.
#[test]
fn time_continues_while_the_wall_clock_is_behind() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put_with_ttl(b"old", b"v", secs(40)).unwrap();
    sim.clock.set_wall_secs(START - 1_000_000);
    assert!(f.contains(b"old").unwrap());
    f.put_with_ttl(b"new", b"v", secs(20)).unwrap();
    let mut batch = WriteBatch::new();
    batch.put_with_ttl(f, b"batch", b"v", secs(20)).unwrap();
    db.write(&mut batch).unwrap();
    let mut tx = db.begin(Isolation::Snapshot);
    tx.put_with_ttl(f, b"tx", b"v", secs(20)).unwrap();
    for second in 0..45 {
        assert_eq!(f.contains(b"new").unwrap(), second < 20, "{second}");
        assert_eq!(f.contains(b"batch").unwrap(), second < 20, "{second}");
        assert_eq!(tx.contains(f, b"tx").unwrap(), second < 20, "{second}");
        assert_eq!(f.contains(b"old").unwrap(), second < 40, "{second}");
        sim.clock.advance(secs(1));
    }
    // The wall clock catches up.
    f.put_with_ttl(b"last", b"v", secs(20)).unwrap();
    sim.clock.set_wall_secs(START + 64);
    assert!(f.contains(b"last").unwrap());
    sim.clock.set_wall_secs(START + 65);
    assert!(!f.contains(b"last").unwrap());
}

/// A clock that was wrong for a while has no effect after the next open; entries that were merged away meanwhile stay dropped.
#[test]
fn an_open_starts_from_the_wall_clock_again() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put_with_ttl(b"k", b"v", secs(10)).unwrap();
    f.put_with_ttl(b"merged", b"v", secs(5)).unwrap();
    sim.clock.set_wall_secs(START + 7);
    db.compact().unwrap();
    sim.clock.set_wall_secs(START + 1_000_000);
    assert_eq!(keys(f.iter()), [""; 0]);
    sim.clock.set_wall_secs(START);
    assert_eq!(keys(f.iter()), [""; 0]);
    let sim = sim.killed();
    sim.clock.set_wall_secs(START);
    let db = sim.open();
    assert_eq!(keys(db.default_family().iter()), ["k"]);
}

/// Both ends of an iterator use the time of its creation.
#[test]
fn both_ends_of_an_iterator_use_the_same_time() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    letters(f, "ac");
    f.put_with_ttl(b"b", b"v", secs(10)).unwrap();
    f.put_with_ttl(b"d", b"v", secs(10)).unwrap();
    let mut iter = f.iter().unwrap();
    assert_eq!(&iter.next().unwrap().unwrap().0[..], b"a");
    sim.clock.advance(secs(10));
    let rest: Vec<_> = std::iter::from_fn(|| iter.next_back()).map(|row| row.unwrap().0.into_vec()).collect();
    assert_eq!(rest, [b"d", b"c", b"b"]);
    assert_eq!(
        (keys(f.iter()), keys_back(f.iter())),
        (vec!["a".into(), "c".into()], vec!["c".into(), "a".into()])
    );
}

/// A row that a transaction has read counts as read even if it has expired since. It used to be ignored.
#[test]
fn a_row_that_expired_since_it_was_read_still_conflicts() {
    type Theirs = fn(&Family);
    let writes: [Theirs; 3] = [
        |f| assert!(f.put(b"k", b"theirs").unwrap() > 0),
        |f| assert!(f.delete(b"k").unwrap() > 0),
        |f| assert!(f.delete_range(&b"j"[..]..b"l").unwrap() > 0),
    ];
    type Mine = fn(&Transaction, &Family);
    let reads: [Mine; 2] =
        [|tx, f| assert!(tx.contains(f, b"k").unwrap()), |tx, f| assert_eq!(tx.iter(f).unwrap().count(), 1)];
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        for (w, write) in writes.iter().enumerate() {
            for (r, read) in reads.iter().enumerate() {
                let sim = Sim::new();
                let db = sim.open();
                let f = db.create_family("f", small()).unwrap();
                f.put_with_ttl(b"k", b"v", secs(10)).unwrap();
                let mut tx = db.begin(level);
                read(&tx, &f);
                sim.clock.advance(secs(10));
                write(&f);
                tx.put(db.default_family(), b"k", b"mine").unwrap();
                let conflict = matches!(tx.commit(), Err(Error::Conflict { .. }));
                assert!(conflict, "{level:?}, read {r}, write {w}");
            }
        }
    }
}

/// Values with the second at which each expires; 0 = never.
type Rows = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// The expected contents of the database, at the expected time.
struct Model {
    now: u64,
    wall: u64,
    families: Vec<(Family, Rows)>,
    snapshots: Vec<(Snapshot, Vec<Rows>)>,
}

fn live(rows: &Rows, now: u64) -> Vec<Pair> {
    let live = rows.iter().filter(|(_, (_, expiry))| *expiry == 0 || *expiry > now);
    live.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
}

impl Model {
    /// Sets the wall clock to `wall`.
    fn step(&mut self, db: &Db, sim: &Sim, wall: u64) {
        sim.clock.set_wall_secs(wall);
        self.wall = wall;
        self.now = self.now.max(wall);
        drop(db.iter().unwrap()); // the next read notices the step
    }

    fn check(&self, what: &str) {
        for (n, (family, rows)) in self.families.iter().enumerate() {
            let expected = live(rows, self.now);
            assert_eq!(contents(family), expected, "family {n}, {what}");
            let mut back = pairs(family.iter().unwrap().rev());
            back.reverse();
            assert_eq!(back, expected, "family {n}, backwards, {what}");
            let all: Vec<&Vec<u8>> = rows.keys().collect();
            let values = family.multi_get(&all).unwrap();
            for (key, value) in all.into_iter().zip(values) {
                let value = value.map(tidesdb::Slice::into_vec);
                let alive = expected.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
                assert_eq!(value, alive, "{key:?} of family {n}, {what}");
                assert_eq!(family.contains(key).unwrap(), alive.is_some(), "{key:?} of family {n}, {what}");
            }
        }
        for (snapshot, then) in &self.snapshots {
            for (n, (family, _)) in self.families.iter().enumerate() {
                // A family that was created later is empty for a snapshot.
                let expected = then.get(n).map_or(Vec::new(), |rows| live(rows, self.now));
                assert_eq!(pairs(snapshot.iter(family).unwrap()), expected, "snapshot of family {n}, {what}");
            }
        }
    }
}

/// Runs a transaction that puts and deletes, and reads its own writes while the clock moves forward and back; it may commit.
fn transaction(db: &Db, sim: &Sim, model: &mut Model, random: &mut Random) {
    let at = random.below(model.families.len() as u64) as usize;
    let family = model.families[at].0.clone();
    let mut rows = model.families[at].1.clone();
    let mut tx = db.begin(Isolation::Serializable);
    for _ in 0..random.below(30) {
        let key = vec![b'a' + random.below(12) as u8];
        match random.below(8) {
            0 => {
                tx.delete(&family, &key).unwrap();
                rows.remove(&key);
            }
            1..4 => {
                let ttl = 1 + random.below(40);
                tx.put_with_ttl(&family, &key, b"ttl of mine", secs(ttl)).unwrap();
                rows.insert(key, (b"ttl of mine".into(), model.now + ttl));
            }
            4 => {
                let expiry = START - 100 + random.below(200);
                tx.put_expiring(&family, &key, b"moment of mine", UNIX_EPOCH + secs(expiry)).unwrap();
                rows.insert(key, (b"moment of mine".into(), expiry));
            }
            5 => {
                let wall = START - 50 + random.below(150);
                model.step(db, sim, wall);
            }
            _ => {
                sim.clock.advance(secs(5));
                (model.now, model.wall) = (model.now + 5, model.wall + 5);
            }
        }
        let expected = live(&rows, model.now);
        assert_eq!(pairs(tx.iter(&family).unwrap()), expected);
        for key in rows.keys() {
            let alive = expected.iter().any(|(k, _)| k == key);
            assert_eq!(tx.contains(&family, key).unwrap(), alive, "{key:?}");
            assert_eq!(tx.get(&family, key).unwrap().is_some(), alive, "{key:?}");
        }
    }
    if random.below(2) == 0 {
        tx.commit().unwrap();
        model.families[at].1 = rows;
    }
}

fn history(seed: u64) {
    let mut random = Random::new(seed);
    let sim = Sim::new();
    let db = sim.open();
    let families = vec![(db.default_family().clone(), Rows::new())];
    let mut model = Model { now: START, wall: START, families, snapshots: Vec::new() };
    for op in 0..60 {
        let at = random.below(model.families.len() as u64) as usize;
        let key = vec![b'a' + random.below(12) as u8];
        let choice = random.below(16);
        match choice {
            0..4 => {
                let ttl = 1 + random.below(40);
                let value = vec![choice as u8; 1 + random.below(900) as usize];
                model.families[at].0.put_with_ttl(&key, &value, secs(ttl)).unwrap();
                let expiry = model.now + ttl;
                model.families[at].1.insert(key, (value, expiry));
            }
            4 => {
                model.families[at].0.put(&key, b"for ever").unwrap();
                model.families[at].1.insert(key, (b"for ever".into(), 0));
            }
            5 => {
                model.families[at].0.delete(&key).unwrap();
                model.families[at].1.remove(&key);
            }
            6 | 7 => {
                let d = random.below(20);
                sim.clock.advance(secs(d));
                (model.now, model.wall) = (model.now + d, model.wall + d);
                model.now = model.now.max(model.wall);
            }
            8 | 9 => {
                let wall = START - 50 + random.below(200);
                model.step(&db, &sim, wall);
            }
            10 => db.flush().unwrap(),
            11 => db.compact().unwrap(),
            12 if model.families.len() < 4 => {
                let name = format!("copy{op}");
                let source = model.families[at].0.name().to_string();
                let copy = db.clone_family(&source, &name).unwrap();
                let now = model.now;
                let mut rows = model.families[at].1.clone();
                rows.retain(|_, (_, expiry)| *expiry == 0 || *expiry > now);
                model.families.push((copy, rows));
                model.snapshots.retain(|(snapshot, _)| snapshot.seq() < db.snapshot().seq());
            }
            13 => {
                let then = model.families.iter().map(|(_, rows)| rows.clone()).collect();
                model.snapshots.push((db.snapshot(), then));
                if model.snapshots.len() > 3 {
                    model.snapshots.remove(0);
                }
            }
            _ => transaction(&db, &sim, &mut model, &mut random),
        }
        model.check(&format!("operation {op}: {choice}"));
    }
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn random_histories_under_a_stepped_clock() {
    for seed in 1..=150 {
        if std::panic::catch_unwind(|| history(seed)).is_err() {
            panic!("seed {seed}");
        }
    }
}
