//! Random histories of merges with every other operation, read in every way and compared with a model.

use std::collections::BTreeMap;
use std::time::Duration;

use tidesdb::{
    Cursor, Db, Family, FamilyOptions, ReadOptions, Savepoint, Slice, Snapshot, Transaction, WriteBatch,
};

use crate::common::{LEVELS, Random, Sim, joined, noise};

type Value = Option<(Vec<u8>, u32)>;

/// What a key has: a value, and operands above it.
#[derive(Clone, Debug, Default)]
struct Cell {
    base: Value,
    operands: Vec<Vec<u8>>,
}

impl Cell {
    fn at(&self, now: u32) -> Option<Vec<u8>> {
        let live = self.base.as_ref().filter(|(_, expiry)| *expiry == 0 || *expiry > now);
        let parts: Vec<&[u8]> =
            live.map(|(v, _)| &v[..]).into_iter().chain(self.operands.iter().map(|o| &o[..])).collect();
        (!parts.is_empty()).then(|| parts.join(&b'.'))
    }
}

type Model = BTreeMap<Vec<u8>, Cell>;

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    PutTtl(Vec<u8>, Vec<u8>, u32),
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    SingleDelete(Vec<u8>),
    Range(Vec<u8>, Vec<u8>),
}

fn apply(model: &mut Model, op: &Op, now: u32) {
    match op {
        Op::Put(k, v) => drop(model.insert(k.clone(), Cell { base: Some((v.clone(), 0)), operands: vec![] })),
        Op::PutTtl(k, v, ttl) => {
            model.insert(k.clone(), Cell { base: Some((v.clone(), now + ttl)), operands: vec![] });
        }
        Op::Merge(k, v) => model.entry(k.clone()).or_default().operands.push(v.clone()),
        Op::Delete(k) | Op::SingleDelete(k) => drop(model.remove(k)),
        Op::Range(a, b) => model.retain(|k, _| !(a <= k && k < b)),
    }
}

fn seconds(n: u32) -> Duration {
    Duration::from_secs(n.into())
}

fn add(batch: &mut WriteBatch, f: &Family, op: &Op) {
    let added = match op {
        Op::Put(k, v) => batch.put(f, k, v),
        Op::PutTtl(k, v, ttl) => batch.put_with_ttl(f, k, v, seconds(*ttl)),
        Op::Merge(k, v) => batch.merge(f, k, v),
        Op::Delete(k) => batch.delete(f, k),
        Op::SingleDelete(k) => batch.single_delete(f, k),
        Op::Range(a, b) => batch.delete_range(f, &a[..]..&b[..]),
    };
    added.unwrap();
}

fn add_to_transaction(tx: &mut Transaction, f: &Family, op: &Op) {
    let added = match op {
        Op::Put(k, v) => tx.put(f, k, v),
        Op::PutTtl(k, v, ttl) => tx.put_with_ttl(f, k, v, seconds(*ttl)),
        Op::Merge(k, v) => tx.merge(f, k, v),
        Op::Delete(k) => tx.delete(f, k),
        Op::SingleDelete(k) => tx.single_delete(f, k),
        Op::Range(a, b) => tx.delete_range(f, &a[..]..&b[..]),
    };
    added.unwrap();
}

struct World {
    sim: Sim,
    db: Option<Db>,
    rng: Random,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    start: u32,
    passed: u32,
    counter: u64,
    options: Shape,
    /// Sequence numbers of commits and what they show.
    past: Vec<(u64, Model)>,
}

#[derive(Clone)]
struct Shape {
    family: FamilyOptions,
    history: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let sim = Sim::new();
        let mut rng = Random::new(seed);
        let mut options = joined();
        options.write_buffer_bytes = 16 << 10;
        options.value_threshold = [1, 16, 600, 1 << 20][rng.below(4) as usize];
        options.vlog_file_bytes = [4 << 10, 1 << 20][rng.below(2) as usize];
        options.table_bytes = [2 << 10, 128 << 20][rng.below(2) as usize];
        options.level_size_ratio = 2 + rng.below(3);
        options.min_levels = 1 + rng.below(4) as u32;
        options.l1_tables_trigger = 1 + rng.below(4) as usize;
        let history = [0, 1 << 12, 1 << 20][rng.below(3) as usize];
        let options = Shape { family: options, history };
        let db = Self::open_at(&sim, &options);
        let start = sim.env.clock.wall_secs() as u32;
        Self {
            sim,
            db: Some(db),
            rng,
            model: Model::new(),
            snapshots: Vec::new(),
            start,
            passed: 0,
            counter: 0,
            options,
            past: Vec::new(),
        }
    }

    fn open_at(sim: &Sim, shape: &Shape) -> Db {
        sim.options().default_family(shape.family.clone()).history_bytes(shape.history).open().unwrap()
    }

    fn now(&self) -> u32 {
        self.start + self.passed
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn key(&mut self) -> Vec<u8> {
        format!("k{}", self.rng.below(6)).into_bytes()
    }

    fn random_value(&mut self) -> Vec<u8> {
        self.counter += 1;
        let mut v = format!("{}", self.counter).into_bytes();
        match self.rng.below(12) {
            0 => v.extend(std::iter::repeat_n(b'x', 30)),
            1 => v.extend(noise(self.counter, 900)),
            _ => {}
        }
        v
    }

    fn op(&mut self) -> Op {
        let key = self.key();
        match self.rng.below(16) {
            0 | 1 => Op::Put(key, self.random_value()),
            2 => {
                let v = self.random_value();
                Op::PutTtl(key, v, 1 + self.rng.below(6) as u32)
            }
            3 => Op::Delete(key),
            4 => Op::SingleDelete(key),
            5 => {
                let end = self.key();
                if key <= end { Op::Range(key, end) } else { Op::Range(end, key) }
            }
            _ => Op::Merge(key, self.random_value()),
        }
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..=9 => {
                let n = 1 + self.rng.below(4);
                let ops: Vec<Op> = (0..n).map(|_| self.op()).collect();
                let f = self.db().default_family().clone();
                let mut batch = WriteBatch::new();
                ops.iter().for_each(|op| add(&mut batch, &f, op));
                let seq = self.db().write(&mut batch).unwrap();
                let now = self.now();
                ops.iter().for_each(|op| apply(&mut self.model, op, now));
                if self.options.history > 0 {
                    self.past.push((seq, self.model.clone()));
                    if self.past.len() > 30 {
                        self.past.remove(0);
                    }
                }
            }
            10..=13 => self.transaction(),
            14 | 15 => self.db().flush().unwrap(),
            16 => self.db().compact().unwrap(),
            17 => {
                let snapshot = self.db().snapshot();
                self.snapshots.push((snapshot, self.model.clone()));
            }
            18 => {
                if !self.snapshots.is_empty() {
                    let i = self.rng.index(self.snapshots.len());
                    self.snapshots.remove(i);
                }
            }
            19 => {
                self.sim.clock.advance(Duration::from_secs(1));
                self.passed += 1;
            }
            20 => {
                self.snapshots.clear();
                self.past.clear();
                if self.rng.below(2) == 0 {
                    self.db.take().unwrap().close().unwrap();
                }
                let next = self.sim.killed();
                self.db = None;
                next.clock.advance(Duration::from_secs(self.passed.into()));
                self.db = Some(Self::open_at(&next, &self.options));
                self.sim = next;
            }
            _ => {
                for _ in 0..8 {
                    self.counter += 1;
                    let key = format!("filler{}", self.counter % 50);
                    let v = noise(self.counter, 300);
                    self.db().put(&key, &v).unwrap();
                    self.model.insert(key.into_bytes(), Cell { base: Some((v, 0)), operands: vec![] });
                }
            }
        }
    }

    fn transaction(&mut self) {
        let isolation = LEVELS[self.rng.below(5) as usize];
        let mut tx = self.db().begin(isolation);
        let f = self.db().default_family().clone();
        let mut overlay = self.model.clone();
        let mut saved: Vec<(Savepoint, Model)> = Vec::new();
        let now = self.now();
        for _ in 0..1 + self.rng.below(30) {
            match self.rng.below(12) {
                0 => saved.push((tx.savepoint(), overlay.clone())),
                1 => {
                    if !saved.is_empty() {
                        let i = self.rng.index(saved.len());
                        let (mark, old) = saved.swap_remove(i);
                        saved.truncate(i);
                        tx.rollback_to(mark).unwrap();
                        overlay = old;
                    }
                }
                2 => {
                    let cursor = tx.cursor(&f).unwrap();
                    check_cursor(&mut self.rng, cursor, &overlay, now, "tx cursor");
                }
                3 | 4 => {
                    let key = self.key();
                    let want = overlay.get(&key).and_then(|c| c.at(now));
                    assert_eq!(tx.get(&f, &key).unwrap().map(Slice::into_vec), want, "{isolation:?}");
                    assert_eq!(tx.contains(&f, &key).unwrap(), want.is_some());
                    assert_eq!(tx.get_map(&f, &key, <[u8]>::to_vec).unwrap(), want);
                    assert_eq!(tx.multi_get(&f, &[&key]).unwrap().pop().unwrap().map(Slice::into_vec), want);
                }
                _ => {
                    let op = self.op();
                    add_to_transaction(&mut tx, &f, &op);
                    apply(&mut overlay, &op, now);
                }
            }
        }
        if self.rng.below(4) > 0 {
            tx.commit().unwrap();
            self.model = overlay;
        }
    }

    fn check(&mut self) {
        let now = self.now();
        let db = self.db.as_ref().unwrap();
        let f = db.default_family();
        for n in 0..6 {
            let key = format!("k{n}").into_bytes();
            let want = self.model.get(&key).and_then(|c| c.at(now));
            assert_eq!(f.get(&key).unwrap().map(Slice::into_vec), want);
            assert_eq!(f.get_map(&key, <[u8]>::to_vec).unwrap(), want);
            assert_eq!(f.contains(&key).unwrap(), want.is_some());
            let reader = f.value_reader(&key).unwrap().map(|mut r| {
                let mut all = Vec::new();
                std::io::Read::read_to_end(&mut r, &mut all).unwrap();
                all
            });
            assert_eq!(reader, want);
            if let Some(want) = &want {
                let part = f.get_part(&key, 1..).unwrap().unwrap();
                assert_eq!(&*part, &want[1..]);
            }
            for (snapshot, model) in &self.snapshots {
                let want = model.get(&key).and_then(|c| c.at(now));
                assert_eq!(snapshot.get(f, &key).unwrap().map(Slice::into_vec), want);
            }
        }
        let keys: Vec<String> = (0..6).map(|n| format!("k{n}")).collect();
        let got = f.multi_get(&keys).unwrap();
        for (key, got) in keys.iter().zip(got) {
            assert_eq!(got.map(Slice::into_vec), self.model.get(key.as_bytes()).and_then(|c| c.at(now)));
        }
        check_cursor(&mut self.rng, f.cursor().unwrap(), &self.model, now, "live");
        for (snapshot, model) in &self.snapshots {
            check_cursor(&mut self.rng, snapshot.cursor(f).unwrap(), model, now, "snapshot");
        }
        let i = self.rng.below(30) as usize;
        if let Some((seq, model)) = self.past.get(i)
            && let Ok(at) = db.snapshot_at(*seq)
        {
            check_cursor(&mut self.rng, at.cursor(f).unwrap(), model, now, "past");
        }
        check_keys(f, &rows(&self.model, now));
    }
}

/// A scan of the keys alone shows those of `rows`.
fn check_keys(f: &Family, rows: &[(Vec<u8>, Vec<u8>)]) {
    let mut only = f.cursor_with(&ReadOptions::default().keys_only(true)).unwrap();
    only.seek_to_first().unwrap();
    for (k, _) in rows {
        assert_eq!(only.key(), k);
        only.next().unwrap();
    }
    assert!(!only.valid());
    only.seek_to_last().unwrap();
    for (k, _) in rows.iter().rev() {
        assert_eq!(only.key(), k);
        only.prev().unwrap();
    }
    assert!(!only.valid());
}

fn rows(model: &Model, now: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    model.iter().filter_map(|(k, c)| c.at(now).map(|v| (k.clone(), v))).collect()
}

/// Walks at random, and compares each row.
fn check_cursor(rng: &mut Random, mut cursor: Cursor, model: &Model, now: u32, what: &str) {
    let rows = rows(model, now);
    let mut all = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        let (k, v) = cursor.entry().unwrap();
        all.push((k.to_vec(), v.to_vec()));
        cursor.next().unwrap();
    }
    assert_eq!(all, rows, "{what} forward");
    all.clear();
    cursor.seek_to_last().unwrap();
    while cursor.valid() {
        let (k, v) = cursor.entry().unwrap();
        all.insert(0, (k.to_vec(), v.to_vec()));
        cursor.prev().unwrap();
    }
    assert_eq!(all, rows, "{what} backward");
    for _ in 0..6 {
        let target = format!("k{}", rng.below(7)).into_bytes();
        let mut at = if rng.below(2) == 0 {
            cursor.seek(&target).unwrap();
            rows.iter().position(|(k, _)| *k >= target)
        } else {
            cursor.seek_for_prev(&target).unwrap();
            rows.iter().rposition(|(k, _)| *k <= target)
        };
        for _ in 0..6 {
            assert_eq!(cursor.valid(), at.is_some(), "{what}");
            let Some(i) = at else { break };
            assert_eq!(cursor.key(), rows[i].0, "{what}");
            if rng.below(3) > 0 {
                assert_eq!(cursor.entry().unwrap(), (&rows[i].0[..], &rows[i].1[..]), "{what}");
            }
            at = if rng.below(2) == 0 {
                cursor.next().unwrap();
                (i + 1 < rows.len()).then_some(i + 1)
            } else {
                cursor.prev().unwrap();
                i.checked_sub(1)
            };
        }
    }
}

#[test]
fn random_histories_read_as_a_model_says() {
    for seed in 1..=25 {
        let mut world = World::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..150 {
                world.step();
                world.check();
            }
            assert!(world.db().verify().unwrap().is_ok());
        }));
        assert!(run.is_ok(), "seed {seed}");
    }
}
