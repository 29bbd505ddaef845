//! What a transaction's cursors have read: a model records every key and gap. A concurrent write conflicts if and only if it
//! falls into one of them.

use std::collections::BTreeSet;
use std::ops::Bound;

use tidesdb::{Comparator, Cursor, Db, Error, Family, Isolation, Iter, Transaction};

use crate::common::{Random, Sim, letters, small};

/// Number of possible keys, as places in the order of the family.
const PLACES: usize = 24;

/// A family in one of two orders, and the places that hold a value.
struct World {
    db: Db,
    family: Family,
    reverse: bool,
    rows: BTreeSet<usize>,
}

impl World {
    fn new(reverse: bool) -> Self {
        let sim = Sim::new();
        let order = if reverse { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        let db = sim.open();
        let family = db.create_family("ordered", small().comparator(order)).unwrap();
        Self { db, family, reverse, rows: BTreeSet::new() }
    }

    fn key(&self, place: usize) -> [u8; 1] {
        [if self.reverse { 200 - place as u8 } else { 100 + place as u8 }]
    }

    fn place(&self, key: &[u8]) -> usize {
        usize::from(if self.reverse { 200 - key[0] } else { key[0] - 100 })
    }
}

/// What a cursor of the transaction shows, and the places that were read through it.
struct Visibility<'a> {
    shown: &'a BTreeSet<usize>,
    seen: BTreeSet<usize>,
    low: Bound<usize>,
    high: Bound<usize>,
}

impl Visibility<'_> {
    fn inside(&self, place: usize) -> bool {
        std::ops::RangeBounds::contains(&(self.low, self.high), &place)
    }

    /// Returns the first row from `from` on; everything up to it counts as read.
    fn forward(&mut self, from: usize) -> Option<usize> {
        let landed = self.shown.range(from..).next().copied();
        self.see(from, landed.unwrap_or(PLACES));
        landed
    }

    /// Returns the last row before `end`; everything from it on counts as read.
    fn backward(&mut self, end: usize) -> Option<usize> {
        let landed = self.shown.range(..end).next_back().copied();
        self.see(landed.unwrap_or(0), end.saturating_sub(1));
        landed
    }

    fn see(&mut self, first: usize, last: usize) {
        let places = (first..=last).filter(|place| *place < PLACES && self.inside(*place));
        let places: Vec<usize> = places.collect();
        self.seen.extend(places);
    }
}

/// Moves `cursor` by one random step among `targets`; `at` is its position in the model.
fn step(
    world: &World,
    random: &mut Random,
    (cursor, at): (&mut Cursor, &mut Option<usize>),
    sight: &mut Visibility<'_>,
    targets: &[usize],
) {
    let target = targets[random.index(targets.len())];
    let key = world.key(target);
    match random.index(12) {
        0 => {
            cursor.seek(&key).unwrap();
            *at = sight.forward(target);
        }
        1 => {
            cursor.seek_for_prev(&key).unwrap();
            *at = sight.backward(target + 1);
        }
        2 if random.one_in(4) => {
            cursor.seek_to_first().unwrap();
            *at = sight.forward(0);
        }
        3 if random.one_in(4) => {
            cursor.seek_to_last().unwrap();
            *at = sight.backward(PLACES);
        }
        4 if random.one_in(4) => {
            cursor.refresh().unwrap();
            *at = None;
        }
        step if step % 2 == 0 => {
            cursor.next().unwrap();
            *at = at.and_then(|at| sight.forward(at + 1));
        }
        _ => {
            cursor.prev().unwrap();
            *at = at.and_then(|at| sight.backward(at));
        }
    }
    assert_eq!(cursor.valid().then(|| world.place(cursor.key())), *at);
}

/// Iterates over a random range from both ends, not always to the end.
fn range(world: &World, random: &mut Random, tx: &Transaction, sight: &mut Visibility<'_>) -> Iter {
    let mut bound = |place: usize| match random.index(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(place),
        _ => Bound::Included(place),
    };
    let (a, b) = (bound(7), bound(16));
    let shift = random.index(8);
    (sight.low, sight.high) = (a.map(|p| p + shift), b.map(|p| p + shift - 4));
    if random.one_in(10) {
        sight.high = sight.low; // no key, or one key
    }
    let bytes = |bound: Bound<usize>| bound.map(|place| world.key(place));
    let mut iter = tx.range(&world.family, (bytes(sight.low), bytes(sight.high))).unwrap();
    let (mut front, mut back): (Option<usize>, Option<usize>) = (None, None);
    for _ in 0..random.index(10) {
        let landed = if random.one_in(2) {
            let from = match (front, sight.low) {
                (Some(at), _) | (None, Bound::Excluded(at)) => at + 1,
                (None, Bound::Included(at)) => at,
                (None, Bound::Unbounded) => 0,
            };
            front = sight.forward(from);
            let landed = front.filter(|at| sight.inside(*at) && back.is_none_or(|back| *at < back));
            assert_eq!(iter.next().map(|row| world.place(&row.unwrap().0)), landed);
            landed
        } else {
            let end = match (back, sight.high) {
                (Some(at), _) | (None, Bound::Excluded(at)) => at,
                (None, Bound::Included(at)) => at + 1,
                (None, Bound::Unbounded) => PLACES,
            };
            back = sight.backward(end);
            let landed = back.filter(|at| sight.inside(*at) && front.is_none_or(|front| *at > front));
            assert_eq!(iter.next_back().map(|row| world.place(&row.unwrap().0)), landed);
            landed
        };
        if landed.is_none() {
            break;
        }
    }
    (sight.low, sight.high) = (Bound::Unbounded, Bound::Unbounded);
    iter
}

/// Reads through cursors and ranges, and returns the places read. Cursors and iterators still in use at the end go to `kept`.
fn look(world: &World, random: &mut Random, tx: &Transaction, kept: &mut Kept) -> BTreeSet<usize> {
    let shown: BTreeSet<usize> = (0..PLACES)
        .filter(|place| tx.contains_untracked(&world.family, &world.key(*place)).unwrap())
        .collect();
    let all = Bound::Unbounded;
    let mut sight = Visibility { shown: &shown, seen: BTreeSet::new(), low: all, high: all };
    let long = random.one_in(20);
    let targets: Vec<usize> = if long {
        // Many seeks into a few places: the intervals that they read are merged meanwhile.
        (0..3).map(|_| random.index(PLACES)).collect()
    } else {
        (0..PLACES).collect()
    };
    let mut cursors: Vec<(Cursor, Option<usize>)> =
        (0..1 + random.index(2)).map(|_| (tx.cursor(&world.family).unwrap(), None)).collect();
    for _ in 0..if long { 500 } else { random.index(14) } {
        let n = random.index(cursors.len());
        if random.one_in(15) {
            cursors[n] = (tx.cursor(&world.family).unwrap(), None);
        } else if random.one_in(15) {
            kept.iters.push(range(world, random, tx, &mut sight));
        } else {
            let (cursor, at) = &mut cursors[n];
            step(world, random, (cursor, at), &mut sight, &targets);
        }
    }
    kept.cursors.extend(cursors.into_iter().map(|(cursor, _)| cursor));
    sight.seen
}

#[derive(Default)]
struct Kept {
    cursors: Vec<Cursor>,
    iters: Vec<Iter>,
}

/// Runs one transaction that reads, one concurrent write, and one commit.
fn trial(world: &mut World, random: &mut Random, level: Isolation) -> bool {
    let mut tx = world.db.begin(level);
    for _ in 0..random.index(3) {
        let place = random.index(PLACES);
        let key = world.key(place);
        if random.one_in(2) {
            tx.delete(&world.family, &key).unwrap();
        } else {
            tx.put(&world.family, &key, b"own").unwrap();
        }
    }
    let mut kept = Kept::default();
    let seen = look(world, random, &tx, &mut kept);
    if random.one_in(2) {
        drop(std::mem::take(&mut kept));
    }
    // Without a write its commit could not conflict.
    tx.put(world.db.default_family(), b"k", b"v").unwrap();
    let place = random.index(PLACES);
    let key = world.key(place);
    let counts = |place: &usize| seen.contains(place) && world.rows.contains(place);
    let expected = match random.index(5) {
        0 => {
            let end = place + random.index(6);
            world.family.delete_range(key..world.key(end)).unwrap();
            let expected = (place..end).any(|place| counts(&place));
            world.rows.retain(|row| !(place..end).contains(row));
            expected
        }
        kind => {
            let expected =
                if level == Isolation::Serializable { seen.contains(&place) } else { counts(&place) };
            if kind == 1 {
                world.family.delete(&key).unwrap();
                world.rows.remove(&place);
            } else {
                world.family.put(&key, b"theirs").unwrap();
                world.rows.insert(place);
            }
            expected
        }
    };
    let conflict = match tx.commit() {
        Ok(_) => false,
        Err(Error::Conflict { .. }) => true,
        Err(e) => panic!("{e}"),
    };
    assert_eq!(conflict, expected, "{level:?}, written at {place}, seen {seen:?}, rows {:?}", world.rows);
    if !conflict {
        world.rows = places(world);
    }
    conflict
}

fn places(world: &World) -> BTreeSet<usize> {
    world.family.iter().unwrap().map(|row| world.place(&row.unwrap().0)).collect()
}

/// The span of a cursor that changed direction used to shrink to the interval between its last two places. What it had read before
/// did not count any more.
#[test]
fn a_write_conflicts_exactly_if_a_cursor_has_read_its_place() {
    for (reverse, level) in [
        (false, Isolation::Serializable),
        (true, Isolation::Serializable),
        (false, Isolation::RepeatableRead),
        (true, Isolation::RepeatableRead),
    ] {
        let mut world = World::new(reverse);
        let mut conflicts = 0;
        for seed in 1..=3000u64 {
            let mut random = Random::new(seed);
            if seed % 100 == 0 {
                world.family.flush().unwrap();
            }
            let run = std::panic::AssertUnwindSafe(|| trial(&mut world, &mut random, level));
            match std::panic::catch_unwind(run) {
                Ok(conflict) => conflicts += usize::from(conflict),
                Err(_) => panic!("seed {seed}, reverse {reverse}, {level:?}"),
            }
        }
        assert!((300..2700).contains(&conflicts), "{conflicts}");
    }
}

/// The bug of the previous test in its smallest form: a write skew that committed.
#[test]
fn a_cursor_that_changes_direction_has_read_all_it_passed() {
    for (written, refused) in
        [("a", true), ("b", true), ("c", true), ("f", true), ("m", true), ("p", true), ("q", false)]
    {
        let sim = Sim::new();
        let db = sim.open();
        let f = db.default_family();
        letters(f, "cmpz");
        let mut tx = db.begin(Isolation::Serializable);
        let mut cursor = tx.cursor(f).unwrap();
        cursor.seek(b"a").unwrap();
        cursor.next().unwrap();
        cursor.next().unwrap();
        cursor.prev().unwrap();
        assert_eq!(cursor.key(), b"m");
        tx.put(f, b"zz", b"v").unwrap();
        f.put(written.as_bytes(), b"other").unwrap();
        assert_eq!(matches!(tx.commit(), Err(Error::Conflict { .. })), refused, "{written}");
    }
}

/// A long transaction that repeats the same reads used to keep a span for each seek until its end.
#[test]
fn repeated_reads_take_no_additional_memory() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for n in 0..500u32 {
        f.put(&(4 * n).to_be_bytes(), b"v").unwrap();
    }
    let mut random = Random::new(5);
    for places in [500, 20] {
        let mut tx = db.begin(Isolation::Serializable);
        let mut cursor = tx.cursor(f).unwrap();
        let mut most = 0;
        for _ in 0..20_000 {
            let target = 4 * random.index(places) as u32 + random.index(4) as u32;
            cursor.seek(&target.to_be_bytes()).unwrap();
            for _ in 0..random.index(3) {
                cursor.next().unwrap();
            }
            if random.one_in(10) {
                let back = tx.range(f, target.to_be_bytes()..).unwrap().next();
                assert!(back.is_none_or(|row| row.is_ok()));
            }
            most = most.max(tx.reads_tracked());
        }
        assert!(most <= 2 * places + 200, "{most} spans in {places} places");
        f.put(&2u32.to_be_bytes(), b"v").unwrap();
        tx.put(f, b"k", b"v").unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict { .. })), "a tracked read was lost");
        f.delete(&2u32.to_be_bytes()).unwrap();
    }
}

/// Pages of one scan, each starting just after the last key of the previous page, become one interval.
#[test]
fn pages_of_a_scan_become_one_interval() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for n in 0..10_000u32 {
        f.put(&n.to_be_bytes(), b"v").unwrap();
    }
    for exclusive in [false, true] {
        let mut tx = db.begin(Isolation::Serializable);
        let mut last = vec![0];
        for _ in 0..1000 {
            let from = if exclusive {
                Bound::Excluded(last.clone())
            } else {
                Bound::Included([&last[..], &[0]].concat())
            };
            let page = tx.range(f, (from, Bound::Unbounded)).unwrap().take(5);
            last = page.map(|row| row.unwrap().0.into_vec()).last().unwrap();
        }
        assert!(tx.reads_tracked() <= 130, "{}", tx.reads_tracked());
        assert_eq!(last, 4999u32.to_be_bytes());
        tx.put(f, b"k", b"v").unwrap();
        f.put(&5000u32.to_be_bytes(), b"beyond").unwrap();
        tx.commit().unwrap();
    }
}

/// Two adjacent ranges, with every kind of bound: together they cover what each of them covers and no other key.
#[test]
fn adjacent_ranges_cover_no_additional_key() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let places: [&[u8]; 5] = [b"l", b"l\0", b"l\0\0", b"m", b"m\0"];
    letters(f, "az");
    let bounds: Vec<Bound<&[u8]>> =
        places.iter().flat_map(|place| [Bound::Included(*place), Bound::Excluded(*place)]).collect();
    for high in &bounds {
        for low in &bounds {
            let ranges = [(Bound::Included(&b"b"[..]), *high), (*low, Bound::Included(&b"y"[..]))];
            for written in places {
                let mut tx = db.begin(Isolation::Serializable);
                for range in ranges {
                    assert_eq!(tx.range(f, range).unwrap().count(), 0);
                }
                tx.put(f, b"zz", b"v").unwrap();
                f.delete(written).unwrap();
                let covered = ranges.iter().any(|range| std::ops::RangeBounds::contains(range, &written));
                let refused = matches!(tx.commit(), Err(Error::Conflict { .. }));
                assert_eq!(refused, covered, "{ranges:?}, written {written:?}");
                f.delete(b"zz").unwrap();
            }
        }
    }
}
