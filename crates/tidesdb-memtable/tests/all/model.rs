//! Random operations on each map and order, compared step by step with a `BTreeMap`. The keys are chosen to be
//! hard: nested prefixes, sequences of 0xFF and 0x00, long shared parts, ascending and descending loads, many
//! versions.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tidesdb_memtable::{Cursor, KeyOrder, Memtable, Version};

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    /// Few symbols, including both extremes; short.
    Alphabet,
    Hex,
    /// Few keys, so that most operations meet an existing one.
    Hot,
    /// Three keys, so that each gets thousands of versions.
    Few,
    /// `aaaa...` of any length, then one byte.
    Nested,
    Ascending,
    Descending,
    /// Tens of KiB in common, then a little.
    Huge,
    /// 40 bytes in common, then a number: longer than the inline prefix of a node.
    LongPrefix,
}

impl Keys {
    fn make(self, random: &mut Random, step: u64) -> Vec<u8> {
        match self {
            Keys::Alphabet => {
                let symbols = [0, 1, b'a', 0xFE, 0xFF];
                let length = 1 + random.below(11);
                (0..length).map(|_| symbols[random.below(symbols.len() as u64) as usize]).collect()
            }
            Keys::Hex => format!("{:016x}", random.next()).into_bytes(),
            Keys::Hot => format!("{:08}", random.below(100)).into_bytes(),
            Keys::Few => vec![b'a' + random.below(3) as u8; 3],
            Keys::Nested => {
                let mut key = vec![b'a'; random.below(300) as usize];
                key.push(b'`' + random.below(3) as u8);
                key
            }
            Keys::Ascending => format!("{:016}", step + random.below(3)).into_bytes(),
            Keys::Descending => format!("{:016}", u64::from(u32::MAX) - step - random.below(3)).into_bytes(),
            Keys::Huge => {
                let mut key = vec![0xFF; (65_530 - random.below(2) * 65_000) as usize];
                key.extend_from_slice(&random.below(200).to_le_bytes()[..6]);
                key
            }
            Keys::LongPrefix => format!("{:040}{:06}", 7, random.below(50_000)).into_bytes(),
        }
    }
}

/// Key orders, and an encoding of keys whose byte order equals that order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Byte by byte, in the tree.
    Forward,
    /// Byte by byte, in the skip list.
    Listed,
    /// The reverse of byte by byte, in the skip list.
    Reverse,
    /// Shorter keys first.
    ByLength,
}

impl Order {
    fn of_memtable(self) -> KeyOrder {
        match self {
            Order::Forward => KeyOrder::Bytewise,
            Order::Listed => KeyOrder::Custom(Arc::new(<[u8]>::cmp)),
            Order::Reverse => KeyOrder::Custom(Arc::new(|a: &[u8], b: &[u8]| b.cmp(a))),
            Order::ByLength => KeyOrder::Custom(Arc::new(|a, b| (a.len(), a).cmp(&(b.len(), b)))),
        }
    }

    fn encode(self, key: &[u8]) -> Vec<u16> {
        match self {
            Order::Forward | Order::Listed => key.iter().map(|b| u16::from(*b)).collect(),
            // The end of a key sorts after every byte.
            Order::Reverse => key.iter().map(|b| 255 - u16::from(*b)).chain([256]).collect(),
            Order::ByLength => {
                let length = [(key.len() >> 16) as u16, key.len() as u16];
                length.into_iter().chain(key.iter().map(|b| u16::from(*b))).collect()
            }
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Item {
    key: Vec<u8>,
    seq: u64,
    kind: u8,
    expiry: u64,
    value: Vec<u8>,
}

/// The reference model: versions per key in a sorted map, and a position in it.
struct Model {
    order: Order,
    map: BTreeMap<Vec<u16>, Vec<Item>>,
    place: Option<(Vec<u16>, usize)>,
}

impl Model {
    fn insert(&mut self, item: Item) {
        let versions = self.map.entry(self.order.encode(&item.key)).or_default();
        let at = versions.iter().position(|v| v.seq <= item.seq).unwrap_or(versions.len());
        versions.insert(at, item);
    }

    fn get(&self, key: &[u8], snapshot: u64) -> Option<&Item> {
        self.map.get(&self.order.encode(key))?.iter().find(|v| v.seq <= snapshot)
    }

    fn current(&self) -> Option<&Item> {
        let (key, at) = self.place.as_ref()?;
        Some(&self.map[key][*at])
    }

    fn stand_on_newest(&mut self, found: Option<Vec<u16>>) {
        self.place = found.map(|key| (key, 0));
    }

    fn stand_on_oldest(&mut self, found: Option<Vec<u16>>) {
        self.place = found.map(|key| {
            let oldest = self.map[&key].len() - 1;
            (key, oldest)
        });
    }

    fn stand_at_version(&mut self, key: &Vec<u16>, seq: u64) {
        let at = self.map.get(key).and_then(|versions| versions.iter().position(|v| v.seq <= seq));
        match at {
            Some(at) => self.place = Some((key.clone(), at)),
            None => self.stand_on_newest(self.first_from(Bound::Excluded(key))),
        }
    }

    fn first_from(&self, from: Bound<&Vec<u16>>) -> Option<Vec<u16>> {
        self.map.range::<Vec<u16>, _>((from, Bound::Unbounded)).next().map(|(k, _)| k.clone())
    }

    fn last_to(&self, to: Bound<&Vec<u16>>) -> Option<Vec<u16>> {
        self.map.range::<Vec<u16>, _>((Bound::Unbounded, to)).next_back().map(|(k, _)| k.clone())
    }

    fn next_key(&mut self) {
        let Some((key, _)) = self.place.take() else { return };
        self.stand_on_newest(self.first_from(Bound::Excluded(&key)));
    }

    fn next(&mut self) {
        match self.place.take() {
            Some((key, at)) if at + 1 < self.map[&key].len() => self.place = Some((key, at + 1)),
            place => {
                self.place = place;
                self.next_key();
            }
        }
    }

    fn prev(&mut self) {
        match self.place.take() {
            Some((key, at)) if at > 0 => self.place = Some((key, at - 1)),
            Some((key, _)) => self.stand_on_oldest(self.last_to(Bound::Excluded(&key))),
            None => {}
        }
    }
}

fn assert_same(cursor: &Cursor, model: &Model, what: &str) {
    let ours = cursor.valid().then(|| cursor.entry()).map(|e| Item {
        key: e.key.to_vec(),
        seq: e.seq,
        kind: e.kind,
        expiry: e.expiry,
        value: e.value.to_vec(),
    });
    assert_eq!(ours.as_ref(), model.current(), "{what}");
}

fn version_of(item: &Item) -> Version {
    Version { seq: item.seq, kind: item.kind, expiry: item.expiry }
}

struct Run {
    memtable: Arc<Memtable>,
    model: Model,
    random: Random,
    keys: Keys,
    inserted: u64,
    /// All versions have one kind, do not expire, and come in order.
    alike: bool,
    /// Keys whose older versions the cursor passed at once.
    passed: u64,
}

impl Run {
    fn new(order: Order, keys: Keys, seed: u64) -> Run {
        println!("{order:?} {keys:?} seed {seed}");
        let memtable = Memtable::new(order.of_memtable(), 1 << 20, seed);
        let model = Model { order, map: BTreeMap::new(), place: None };
        let alike = seed.is_multiple_of(2);
        Run { memtable, model, random: Random(seed * 2 + 1), keys, inserted: 0, alike, passed: 0 }
    }

    fn item(&mut self, step: u64) -> Item {
        let key = self.keys.make(&mut self.random, step);
        let value = vec![step as u8; self.random.below(40) as usize];
        if self.alike {
            return Item { key, seq: step, kind: 7, expiry: 0, value };
        }
        // Mostly ascending, often late, sometimes equal.
        let seq = (step + self.random.below(8)).saturating_sub(self.random.below(8));
        Item { key, seq, kind: (step % 251) as u8, expiry: step, value }
    }

    fn insert(&mut self, step: u64) {
        let item = self.item(step);
        self.memtable.insert(&item.key, version_of(&item), &item.value).expect("memory");
        self.model.insert(item);
        self.inserted += 1;
    }

    /// Finds the places of some keys first, and then inserts them: earlier ones may split the leaves of later ones.
    fn insert_together(&mut self, step: u64) {
        let items: Vec<Item> = (0..=self.random.below(8)).map(|n| self.item(step + n)).collect();
        let places: Vec<_> = items.iter().map(|item| self.memtable.place(&item.key)).collect();
        for (place, item) in places.into_iter().zip(&items) {
            place.insert(version_of(item), &item.value).expect("memory");
        }
        self.inserted += items.len() as u64;
        items.into_iter().for_each(|item| self.model.insert(item));
    }

    fn get(&mut self, step: u64) {
        let key = self.keys.make(&mut self.random, step);
        let snapshot = if self.random.below(4) == 0 { u64::MAX } else { self.random.below(step + 2) };
        let ours =
            self.memtable.get(&key, snapshot).map(|e| (e.key.to_vec(), e.seq, e.kind, e.value.to_vec()));
        let theirs = self.model.get(&key, snapshot);
        assert_eq!(ours, theirs.map(|i| (i.key.clone(), i.seq, i.kind, i.value.clone())));
    }

    /// Positions the cursor at random and takes some steps.
    fn walk(&mut self, cursor: &mut Cursor, step: u64) {
        let target = self.keys.make(&mut self.random, step);
        let encoded = self.model.order.encode(&target);
        match self.random.below(12) {
            10.. => {
                let seq = self.random.below(step + 10);
                cursor.seek_version(&target, seq);
                self.model.stand_at_version(&encoded, seq);
            }
            0 => {
                cursor.seek_to_first();
                self.model.stand_on_newest(self.model.first_from(Bound::Unbounded));
            }
            1 => {
                cursor.seek_to_last();
                self.model.stand_on_oldest(self.model.last_to(Bound::Unbounded));
            }
            2..=5 => {
                cursor.seek(&target);
                self.model.stand_on_newest(self.model.first_from(Bound::Included(&encoded)));
            }
            _ => {
                cursor.seek_for_prev(&target);
                self.model.stand_on_oldest(self.model.last_to(Bound::Included(&encoded)));
            }
        }
        assert_same(cursor, &self.model, "after positioning");
        for _ in 0..self.random.below(6) {
            match self.random.below(6) {
                5 => {
                    let left =
                        self.model.place.as_ref().map_or(0, |(key, at)| self.model.map[key].len() - 1 - at);
                    if let Some(passed) = cursor.next_key_past_alike() {
                        assert_eq!(passed, left as u64);
                        self.model.next_key();
                        self.passed += 1;
                    }
                }
                0 | 1 => {
                    cursor.next();
                    self.model.next();
                }
                2 | 3 => {
                    cursor.prev();
                    self.model.prev();
                }
                _ => {
                    cursor.next_key();
                    self.model.next_key();
                }
            }
            assert_same(cursor, &self.model, "after a step");
        }
    }

    /// Checks all entries, forwards and backwards.
    fn check_all(&mut self) {
        assert_eq!(self.memtable.entries(), self.inserted);
        assert_eq!(self.memtable.is_empty(), self.inserted == 0);
        let mut cursor = self.memtable.cursor();
        cursor.seek_to_first();
        for item in self.model.map.values().flatten() {
            assert!(cursor.valid());
            assert_eq!((cursor.entry().key, cursor.entry().seq), (item.key.as_slice(), item.seq));
            assert_eq!(cursor.entry().value, item.value);
            cursor.next();
        }
        assert!(!cursor.valid());
        cursor.seek_to_last();
        for item in self.model.map.values().flatten().rev() {
            assert!(cursor.valid());
            assert_eq!((cursor.entry().key, cursor.entry().seq), (item.key.as_slice(), item.seq));
            assert_eq!(cursor.entry().expiry, item.expiry);
            cursor.prev();
        }
        assert!(!cursor.valid());
    }

    /// Checks a copy of the versions above a random sequence number, and that it is ordered as the original, equal numbers too.
    fn check_copy(&mut self, steps: u64) {
        let above = self.random.below(steps * 10);
        let copy = Memtable::new(self.model.order.of_memtable(), 1 << 20, 3);
        let mut passed = 0;
        copy.copy_newer(&self.memtable, above, |e| passed += u64::from(e.seq > above)).expect("memory");
        let mut cursor = copy.cursor();
        cursor.seek_to_first();
        for item in self.model.map.values().flatten().filter(|item| item.seq > above) {
            let e = cursor.entry();
            assert_eq!((e.key, e.seq, e.kind, e.expiry), (&item.key[..], item.seq, item.kind, item.expiry));
            assert_eq!(e.value, item.value);
            cursor.next();
        }
        assert!(!cursor.valid());
        assert_eq!((copy.entries(), passed), (passed, copy.entries()));
    }

    fn run(mut self, steps: u64) {
        let mut cursor = self.memtable.cursor();
        for step in 0..steps {
            let step = step * 10; // apart, for the items of one step
            match self.random.below(10) {
                0..=3 => self.insert(step),
                4 => self.insert_together(step),
                5..=7 => self.get(step),
                _ => self.walk(&mut cursor, step),
            }
        }
        self.check_all();
        self.check_copy(steps);
        let is_tree = self.model.order == Order::Forward;
        assert!(
            self.passed > 0 || !(self.alike && is_tree) || steps < 1000,
            "no versions were passed at once"
        );
    }
}

const ALL: [Order; 4] = [Order::Forward, Order::Listed, Order::Reverse, Order::ByLength];

fn run_all(keys: Keys, steps: u64) {
    for order in ALL {
        for seed in 1..=2 {
            Run::new(order, keys, seed).run(steps);
        }
    }
}

#[test]
fn few_symbols() {
    run_all(Keys::Alphabet, 30_000);
}

#[test]
fn random_hex() {
    run_all(Keys::Hex, 30_000);
}

#[test]
fn many_versions_out_of_order() {
    run_all(Keys::Hot, 20_000);
}

#[test]
fn thousands_of_versions() {
    run_all(Keys::Few, 12_000);
}

#[test]
fn nested_prefixes() {
    run_all(Keys::Nested, 10_000);
}

#[test]
fn ascending() {
    run_all(Keys::Ascending, 30_000);
}

#[test]
fn descending() {
    run_all(Keys::Descending, 30_000);
}

#[test]
fn prefixes_longer_than_a_node_keeps() {
    run_all(Keys::LongPrefix, 20_000);
}

#[test]
fn keys_of_64_kib() {
    for order in ALL {
        Run::new(order, Keys::Huge, 1).run(300);
    }
}

#[test]
fn empty_and_small_maps_of_every_size() {
    for order in ALL {
        for size in 0..130 {
            let mut run = Run::new(order, Keys::Alphabet, 100 + size);
            let mut cursor = run.memtable.cursor();
            (0..size).for_each(|step| run.insert(step));
            (0..20).for_each(|step| run.walk(&mut cursor, step));
            run.check_all();
        }
    }
}

/// Both maps, given the same operations, must show the same entries.
#[test]
fn each_map_is_the_model_of_the_other() {
    for keys in [Keys::Alphabet, Keys::Hex, Keys::Nested, Keys::LongPrefix, Keys::Descending] {
        let tree = Memtable::new(KeyOrder::Bytewise, 1 << 20, 3);
        let list = Memtable::new(Order::Listed.of_memtable(), 1 << 20, 3);
        let mut random = Random(77);
        for step in 0..50_000 {
            let key = keys.make(&mut random, step);
            let version = Version { seq: random.below(1000), kind: 1, expiry: step };
            tree.insert(&key, version, b"v").expect("memory");
            list.insert(&key, version, b"v").expect("memory");
        }
        let (mut a, mut b) = (tree.cursor(), list.cursor());
        a.seek_to_first();
        b.seek_to_first();
        while a.valid() && b.valid() {
            let (x, y) = (a.entry(), b.entry());
            assert_eq!((x.key, x.seq, x.expiry), (y.key, y.seq, y.expiry));
            let shown = (x.key.to_vec(), x.seq);
            step(&mut a, &shown);
            step(&mut b, &shown);
        }
        assert_eq!(a.valid(), b.valid());
    }
}

/// Steps past all versions with one key and sequence number; a map may show only the last of them.
fn step(cursor: &mut Cursor, shown: &(Vec<u8>, u64)) {
    while cursor.valid() && (cursor.entry().key, cursor.entry().seq) == (&shown.0[..], shown.1) {
        cursor.next();
    }
}

/// A batch that puts one key often leaves one version. Another kind, or another batch, is another version.
#[test]
fn the_tree_drops_superseded_versions() {
    let tree = Memtable::new(KeyOrder::Bytewise, 1 << 20, 3);
    let put = |seq, kind, value: &[u8]| {
        tree.insert(b"k", Version { seq, kind, expiry: 0 }, value).expect("memory");
    };
    put(20, 1, b"20");
    for i in 0..100u8 {
        put(10, 1, &[i]);
        put(30, 1, &[i]);
    }
    put(10, 2, b"deleted");
    put(10, 1, b"back");
    let mut cursor = tree.cursor();
    cursor.seek_to_first();
    let mut seen = Vec::new();
    while cursor.valid() {
        let e = cursor.entry();
        seen.push((e.seq, e.kind, e.value.to_vec()));
        cursor.next();
    }
    let expected: [(u64, u8, &[u8]); 5] =
        [(30, 1, &[99]), (20, 1, b"20"), (10, 1, b"back"), (10, 2, b"deleted"), (10, 1, &[99])];
    assert_eq!(seen, expected.map(|(seq, kind, value)| (seq, kind, value.to_vec())));
    assert_eq!(tree.entries(), 5);
    assert_eq!(tree.get(b"k", 15).expect("a version").value, b"back");
    cursor.seek_to_last();
    let mut back = 0;
    while cursor.valid() {
        back += 1;
        cursor.prev();
    }
    assert_eq!(back, 5);
}

#[test]
fn a_rebased_memtable_is_the_same_at_higher_numbers() {
    const BASE: u64 = 1 << 40;
    for order in ALL.map(Order::of_memtable) {
        let plain = Memtable::new(order.clone(), 1 << 20, 1);
        let mut rebased = Memtable::new(order, 1 << 20, 1);
        let mut random = Random(5);
        for seq in 0..2000 {
            let key = Keys::Hot.make(&mut random, seq);
            plain.insert(&key, Version { seq: BASE + seq, kind: 0, expiry: 0 }, b"value").unwrap();
            let half = seq < 1000;
            if seq == 1000 {
                Arc::get_mut(&mut rebased).unwrap().rebase(BASE);
            }
            let seq = if half { seq } else { BASE + seq };
            rebased.insert(&key, Version { seq, kind: 0, expiry: 0 }, b"value").unwrap();
        }
        let (mut a, mut b) = (plain.cursor(), rebased.cursor());
        let same = |a: &Cursor, b: &Cursor| {
            assert_eq!(a.valid(), b.valid());
            assert!(!a.valid() || (a.entry().key, a.entry().seq) == (b.entry().key, b.entry().seq));
            a.valid()
        };
        for n in 0..100 {
            let key = format!("{n:08}").into_bytes();
            for seq in [0, BASE - 1, BASE, BASE + random.below(2000), u64::MAX] {
                let seqs = [&plain, &rebased].map(|map| map.get(&key, seq).map(|e| e.seq));
                assert_eq!(seqs[0], seqs[1]);
                a.seek_version(&key, seq);
                b.seek_version(&key, seq);
                same(&a, &b);
                a.seek(&key);
                b.seek(&key);
                a.skip_older(seq, None);
                b.skip_older(seq, None);
                same(&a, &b);
            }
        }
        a.seek_to_first();
        b.seek_to_first();
        while same(&a, &b) {
            a.next();
            b.next();
        }
    }
}
