//! Rolling back to savepoints: what it costs, and what the transaction and its cursors read afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb::{Comparator, Cursor, Db, Error, Family, Isolation, Savepoint, Transaction};

use crate::common::{LEVELS, Random, Sim, Stop, counting, joined, pairs, small};

fn row(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Returns the comparisons of each round of `round` in a transaction of `writes` writes that were read.
fn work_per_round(
    writes: u64,
    rounds: u64,
    mut round: impl FnMut(&mut Transaction, &Family, Savepoint, u64),
) -> u64 {
    let (order, count) = counting();
    let db = Sim::new().open();
    let family = db.create_family("counted", small().comparator(order)).unwrap();
    let mut tx = db.begin(Isolation::Snapshot);
    for n in 0..writes {
        tx.put(&family, row(2 * n), b"a value").unwrap();
    }
    assert!(tx.contains(&family, row(0)).unwrap());
    let before = count.load(Ordering::Relaxed);
    for n in 0..rounds {
        let savepoint = tx.savepoint();
        round(&mut tx, &family, savepoint, n);
        assert!(tx.contains(&family, row(2 * (n % writes))).unwrap());
    }
    assert_eq!(tx.len() as u64, writes);
    (count.load(Ordering::Relaxed) - before) / rounds
}

/// An SQL layer sets a savepoint for each statement. A rollback used to forget the index of all writes of the transaction.
#[test]
fn a_rollback_costs_what_was_rolled_back() {
    // To find a key among 8,000 takes about 20 comparisons.
    let most = 1000;
    let nothing = work_per_round(8000, 8000, |tx, _, savepoint, _| tx.rollback_to(savepoint).unwrap());
    assert!(nothing < 100, "{nothing}");
    let unread = work_per_round(8000, 8000, |tx, family, savepoint, n| {
        tx.put(family, row(2 * n + 1), b"rolled back").unwrap();
        tx.rollback_to(savepoint).unwrap();
    });
    assert!(unread < 100, "{unread}");
    let new_keys = work_per_round(8000, 8000, |tx, family, savepoint, n| {
        tx.put(family, row(2 * n + 1), b"rolled back").unwrap();
        assert!(tx.contains(family, row(2 * n + 1)).unwrap());
        tx.rollback_to(savepoint).unwrap();
        assert!(!tx.contains(family, row(2 * n + 1)).unwrap());
    });
    assert!(new_keys < most, "{new_keys}");
    let one_key = work_per_round(8000, 8000, |tx, family, savepoint, _| {
        tx.delete(family, row(8)).unwrap();
        assert!(!tx.contains(family, row(8)).unwrap());
        tx.rollback_to(savepoint).unwrap();
        assert!(tx.contains(family, row(8)).unwrap());
    });
    assert!(one_key < most, "{one_key}");
    let ranges = work_per_round(8000, 8000, |tx, family, savepoint, n| {
        tx.delete_range(family, row(n)..row(n + 4)).unwrap();
        assert!(!tx.contains(family, row(n.next_multiple_of(2))).unwrap());
        tx.rollback_to(savepoint).unwrap();
    });
    assert!(ranges < most, "{ranges}");
}

/// The same with savepoints that nest, of which the inner ones are released, and a walk over what was rolled back.
#[test]
fn a_rollback_over_released_savepoints_and_a_walk_cost_no_more() {
    let nested = work_per_round(8000, 4000, |tx, family, outer, n| {
        for inner in 0..4 {
            let savepoint = tx.savepoint();
            tx.put(family, row(2 * (n + inner) + 1), b"rolled back").unwrap();
            assert!(tx.contains(family, row(2 * (n + inner) + 1)).unwrap());
            tx.release(savepoint).unwrap();
        }
        tx.rollback_to(outer).unwrap();
    });
    assert!(nested < 4000, "{nested}");
    let walked = work_per_round(8000, 4000, |tx, family, savepoint, n| {
        tx.put(family, row(2 * n + 1), b"rolled back").unwrap();
        assert_eq!(tx.range(family, row(2 * n)..row(2 * n + 6)).unwrap().count(), 4);
        tx.rollback_to(savepoint).unwrap();
        assert_eq!(tx.range(family, row(2 * n)..row(2 * n + 6)).unwrap().count(), 3);
    });
    assert!(walked < 4000, "{walked}");
}

/// What the keys have, by [`name`], and the spelling and value of each.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Merge(Vec<u8>, Vec<u8>),
    /// Both ends are included.
    Range(Vec<u8>, Vec<u8>),
}

/// One of the orders, and the model of a transaction in it.
struct Model {
    order: Comparator,
    /// What the transaction reads at.
    base: Rows,
    ops: Vec<Op>,
    savepoints: Vec<(Savepoint, usize)>,
}

/// The form of a key that equal keys share.
fn name(order: &Comparator, key: &[u8]) -> Vec<u8> {
    if order.name() == "case-insensitive" { key.to_ascii_lowercase() } else { key.to_vec() }
}

fn apply(order: &Comparator, rows: &mut Rows, op: &Op) {
    match op {
        Op::Put(key, value) => drop(rows.insert(name(order, key), value.clone())),
        Op::Delete(key) => drop(rows.remove(&name(order, key))),
        Op::Merge(key, operand) => {
            let value = rows.entry(name(order, key)).or_default();
            if !value.is_empty() {
                value.push(b'.');
            }
            value.extend_from_slice(operand);
        }
        Op::Range(from, to) => {
            rows.retain(|key, _| order.compare(key, from).is_lt() || order.compare(key, to).is_gt())
        }
    }
}

impl Model {
    fn rows(&self) -> Rows {
        let mut rows = self.base.clone();
        self.ops.iter().for_each(|op| apply(&self.order, &mut rows, op));
        rows
    }

    /// Returns the rows in the order of the family.
    fn sorted(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows: Vec<_> = self.rows().into_iter().collect();
        rows.sort_by(|a, b| self.order.compare(&a.0, &b.0));
        rows
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    let letters = b"aAbBcCdDeE";
    (0..1 + random.below(2)).map(|_| letters[random.index(letters.len())]).collect()
}

/// Writes `op` to the transaction.
fn write(tx: &mut Transaction, family: &Family, op: &Op) {
    match op {
        Op::Put(key, value) => tx.put(family, key, value),
        Op::Delete(key) => tx.delete(family, key),
        Op::Merge(key, operand) => tx.merge(family, key, operand),
        Op::Range(from, to) => tx.delete_range(family, from..=to),
    }
    .unwrap();
}

fn any_op(order: &Comparator, random: &mut Random, n: u64) -> Op {
    let (key, other) = (key(random), key(random));
    let value = [&key[..], b"-", n.to_string().as_bytes()].concat();
    match random.below(9) {
        0..4 => Op::Put(key, value),
        4 => Op::Delete(key),
        5..7 => Op::Merge(key, value),
        _ if order.compare(&key, &other).is_gt() => Op::Range(other, key),
        _ => Op::Range(key, other),
    }
}

/// Reads in one of many ways and compares.
fn compare(tx: &Transaction, family: &Family, model: &Model, random: &mut Random) {
    let rows = model.sorted();
    let named = |rows: Vec<(Vec<u8>, Vec<u8>)>| -> Vec<(Vec<u8>, Vec<u8>)> {
        rows.into_iter().map(|(key, value)| (name(&model.order, &key), value)).collect()
    };
    match random.below(5) {
        0 => assert_eq!(named(pairs(tx.iter(family).unwrap())), rows),
        1 => {
            let mut back = named(pairs(tx.iter(family).unwrap().rev()));
            back.reverse();
            assert_eq!(back, rows);
        }
        2 => walk(&mut tx.cursor(family).unwrap(), &rows, model, random),
        _ => {
            let key = key(random);
            let expected = rows.iter().find(|(k, _)| *k == name(&model.order, &key)).map(|(_, v)| &v[..]);
            assert_eq!(tx.get(family, &key).unwrap().as_deref(), expected, "{:?}", key.escape_ascii());
            assert_eq!(tx.contains(family, &key).unwrap(), expected.is_some());
            assert_eq!(tx.multi_get(family, &[&key]).unwrap()[0].as_deref(), expected);
        }
    }
}

/// Reads all rows in every way and compares.
fn compare_all(tx: &Transaction, family: &Family, model: &Model) {
    let rows = model.sorted();
    let named = |(key, value): (Vec<u8>, Vec<u8>)| (name(&model.order, &key), value);
    let forward: Vec<_> = pairs(tx.iter(family).unwrap()).into_iter().map(named).collect();
    assert_eq!(forward, rows);
    let mut back: Vec<_> = pairs(tx.iter(family).unwrap().rev()).into_iter().map(named).collect();
    back.reverse();
    assert_eq!(back, rows);
    for a in b"aAbBcCdDeE" {
        for key in [vec![*a], vec![*a, b'c'], vec![*a, b'D']] {
            let expected = rows.iter().find(|(k, _)| *k == name(&model.order, &key)).map(|(_, v)| &v[..]);
            assert_eq!(tx.get(family, &key).unwrap().as_deref(), expected, "{:?}", key.escape_ascii());
        }
    }
}

/// Walks with a cursor in both directions and compares.
fn walk(cursor: &mut Cursor, rows: &[(Vec<u8>, Vec<u8>)], model: &Model, random: &mut Random) {
    let target = key(random);
    let mut at = if random.one_in(2) {
        cursor.seek(&target).unwrap();
        rows.iter().position(|(key, _)| model.order.compare(key, &target).is_ge())
    } else {
        cursor.seek_for_prev(&target).unwrap();
        rows.iter().rposition(|(key, _)| model.order.compare(key, &target).is_le())
    };
    for _ in 0..8 {
        let Some(here) = at else {
            assert!(!cursor.valid());
            return;
        };
        assert_eq!(name(&model.order, cursor.key()), rows[here].0);
        assert_eq!(cursor.value().unwrap(), rows[here].1);
        at = if random.one_in(2) {
            cursor.next().unwrap();
            Some(here + 1).filter(|at| *at < rows.len())
        } else {
            cursor.prev().unwrap();
            here.checked_sub(1)
        };
    }
}

/// Moves a cursor that was made before rollbacks. It may show any state of a key that the transaction once had.
fn wander(cursor: &mut Cursor, order: &Comparator, random: &mut Random) {
    cursor.seek(key(random)).unwrap();
    let mut last: Option<Vec<u8>> = None;
    while cursor.valid() {
        let key = cursor.key().to_vec();
        assert!(last.is_none_or(|last| order.compare(&last, &key).is_lt()));
        let value = cursor.value().unwrap().to_vec();
        for part in value.split(|byte| *byte == b'.') {
            let of = part.split(|byte| *byte == b'-').next().unwrap();
            assert!(order.compare(of, &key).is_eq(), "{:?} has {:?}", key, value.escape_ascii().to_string());
        }
        cursor.next().unwrap();
        last = Some(key);
    }
    cursor.seek_to_last().unwrap();
    while cursor.valid() {
        let key = cursor.key().to_vec();
        cursor.prev().unwrap();
        assert!(!cursor.valid() || order.compare(cursor.key(), &key).is_lt());
    }
}

/// Sets savepoints, rolls back and releases. Reads everything after each rollback.
fn savepoints(tx: &mut Transaction, family: &Family, model: &mut Model, random: &mut Random) {
    let at = random.index(model.savepoints.len().max(1));
    match (random.below(4), model.savepoints.get(at).copied()) {
        (0..2, _) | (_, None) => model.savepoints.push((tx.savepoint(), model.ops.len())),
        (2, Some((savepoint, ops))) => {
            tx.rollback_to(savepoint).unwrap();
            model.ops.truncate(ops);
            model.savepoints.truncate(at + 1);
            compare_all(tx, family, model);
        }
        (_, Some((savepoint, _))) => {
            tx.release(savepoint).unwrap();
            for (gone, _) in model.savepoints.drain(at..) {
                assert!(matches!(tx.rollback_to(gone), Err(Error::NotFound { .. })));
            }
        }
    }
}

fn play(db: &Db, family: &Family, order: &Comparator, isolation: Isolation, random: &mut Random) {
    let mut committed = Rows::new();
    for _ in 0..6 {
        let mut tx = db.begin(isolation);
        let mut model =
            Model { order: order.clone(), base: committed.clone(), ops: Vec::new(), savepoints: Vec::new() };
        let mut old: Option<Cursor> = None;
        let steps = [20, 300][random.index(2)];
        for n in 0..steps {
            match random.below(10) {
                0..5 => {
                    let op = any_op(order, random, n);
                    write(&mut tx, family, &op);
                    model.ops.push(op);
                }
                5..7 => savepoints(&mut tx, family, &mut model, random),
                7 if random.one_in(4) => old = Some(tx.cursor(family).unwrap()),
                _ => compare(&tx, family, &model, random),
            }
            if let Some(cursor) = old.as_mut().filter(|_| random.one_in(4)) {
                wander(cursor, order, random);
            }
            assert_eq!(tx.is_empty(), model.ops.is_empty());
        }
        committed = model.rows();
        tx.commit().unwrap();
        let model = Model { base: committed.clone(), ops: Vec::new(), ..model };
        compare(&db.begin(isolation), family, &model, random);
    }
}

#[test]
fn reads_after_rollbacks_agree_with_a_model() {
    let orders: [fn() -> Comparator; 3] =
        [Comparator::bytewise, Comparator::reverse_bytewise, Comparator::case_insensitive];
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let order = orders[random.index(3)]();
        let db = Sim::new().open();
        let options = joined().comparator(order.clone());
        let family = db.create_family("rows", options).unwrap();
        play(&db, &family, &order, LEVELS[random.index(5)], &mut random);
    }
}

/// A rollback takes the writes of one family back and leaves those of another, also where one has no write before the savepoint.
#[test]
fn a_rollback_undoes_each_family() {
    let db = Sim::new().open();
    let other = db.create_family("other", small()).unwrap();
    let mut tx = db.begin(Isolation::Snapshot);
    for n in 0..100 {
        tx.put(db.default_family(), row(n), b"kept").unwrap();
    }
    for _ in 0..10 {
        let savepoint = tx.savepoint();
        tx.put(&other, "k", "gone").unwrap();
        tx.put(db.default_family(), row(7), b"gone").unwrap();
        assert_eq!(tx.get(&other, "k").unwrap().as_deref(), Some(&b"gone"[..]));
        tx.rollback_to(savepoint).unwrap();
        assert_eq!(tx.get(&other, "k").unwrap(), None);
        assert_eq!(tx.get(db.default_family(), row(7)).unwrap().as_deref(), Some(&b"kept"[..]));
        tx.put(&other, "after", "x").unwrap();
        assert_eq!(tx.iter(&other).unwrap().count(), 1);
        tx.rollback_to(savepoint).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!((other.iter().unwrap().count(), db.iter().unwrap().count()), (0, 100));
}

/// A cursor on another thread walks while the transaction writes, reads and rolls back. It shows each key at most once, in order, with a
/// whole value that the key has had.
#[test]
fn a_cursor_on_another_thread_walks_beside_rollbacks() {
    let orders: [fn() -> Comparator; 2] = [Comparator::bytewise, Comparator::case_insensitive];
    for order in orders {
        let db = Sim::new().open();
        let family = db.create_family("rows", joined().comparator(order())).unwrap();
        let mut random = Random::new(7);
        let mut tx = db.begin(Isolation::Snapshot);
        for n in 0..200 {
            write(&mut tx, &family, &any_op(&order(), &mut random, n));
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = Stop(&stop);
            let mut cursor = tx.cursor(&family).unwrap();
            let stop = &stop;
            scope.spawn(move || {
                let mut random = Random::new(8);
                while !stop.load(Ordering::Relaxed) {
                    wander(&mut cursor, &order(), &mut random);
                }
            });
            for n in 0..3000 {
                let savepoint = tx.savepoint();
                write(&mut tx, &family, &any_op(&order(), &mut random, n));
                drop(tx.get(&family, key(&mut random)).unwrap());
                if random.one_in(4) {
                    tx.release(savepoint).unwrap()
                } else {
                    tx.rollback_to(savepoint).unwrap()
                }
            }
        });
    }
}
