//! A client that reads and writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidesdb::{Cursor, Isolation, Snapshot, SyncMode, WriteBatch, WriteOptions};

use super::ledger::{Change, Found, Op, Row, may_expire};
use super::tables::{self, Part, Turn};
use super::vain::Place;
use super::world::{Tracked, World};
use crate::model::{FamilyNo, moment};
use crate::rng::Rng;

/// Commits of a client beside the close.
const CLOSING_WRITES: u64 = 30;
/// Keys of a family.
const KEYS: u64 = 48;
/// A bound of a range delete has fewer bytes more than two to the power of this.
const LONG_BOUND_BITS: u64 = 15;

pub(super) struct Client<'a> {
    world: &'a World,
    who: String,
    rng: Rng,
    written: u64,
    /// Keys for single deletes, each of a family, that have a row. Only this client writes them.
    singles: BTreeMap<(FamilyNo, u64), Single>,
    /// Values and batches of megabytes that it may still write.
    huge_left: u64,
    /// A snapshot, and the number of families at its time.
    kept: Option<(Snapshot, usize)>,
    /// A cursor that stays open while merges change the tables below it.
    held: Option<Held>,
}

/// A cursor over a family that may be dropped meanwhile.
struct Held {
    t: Arc<Tracked>,
    cursor: Cursor,
    /// Time of its creation.
    from: u64,
}

/// What is known of a key for single deletes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Single {
    /// It has a row.
    Put,
    /// It has none.
    Deleted,
    /// A commit with an unknown fate has changed it: it is left alone.
    Unknown,
}

/// Keys of a client for single deletes in each family.
const SINGLES: u64 = 3;
/// Values and batches of megabytes of a client.
const HUGE_MAX: u64 = 3;

fn key(n: u64) -> Vec<u8> {
    format!("k{n:03}").into_bytes()
}

impl<'a> Client<'a> {
    pub(super) fn new(world: &'a World, n: u64) -> Self {
        let rng = Rng::new(world.plan.seed.wrapping_mul(1000) + n);
        Self {
            world,
            who: format!("c{n}"),
            rng,
            written: 0,
            singles: BTreeMap::new(),
            huge_left: HUGE_MAX,
            kept: None,
            held: None,
        }
    }

    pub(super) fn run(mut self) {
        for _ in 0..self.world.plan.steps {
            if self.world.stops() {
                return;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let plan = &self.world.plan;
        match self.rng.below(100) {
            0..39 => self.write(),
            39..42 if plan.has("ingest") => self.ingest(),
            39..42 => self.write(),
            42..60 => self.get(),
            60..64 => self.multi_get(),
            64..72 if plan.has("scans") => self.scan(),
            72..80 if plan.has("snapshots") => self.use_snapshot(),
            80..84 if plan.has("long") => self.put_stream(),
            84..88 if plan.has("transactions") => self.transact(),
            88..91 => self.sync(),
            91..93 => self.write_nothing(),
            93..96 if plan.is_huge && self.huge_left > 0 => self.write_huge(),
            _ => self.world.env.clock.sleep(Duration::from_micros(1 << self.rng.below(18))),
        }
    }

    fn pick(&mut self) -> Option<Arc<Tracked>> {
        self.world.pick(&mut self.rng)
    }

    /// Half of the time, one of few keys.
    fn key(&mut self) -> u64 {
        let of = if self.rng.one_in(2) { 6 } else { KEYS };
        self.rng.below(of)
    }

    /// Returns a value that is written only once.
    fn value(&mut self) -> Arc<[u8]> {
        self.written += 1;
        let mut value = format!("{}.{}:", self.who, self.written).into_bytes();
        let len = match self.rng.below(20) {
            0..10 => self.rng.below(40),
            10..16 => self.rng.below(400),
            16..19 => self.rng.below(3000),
            _ if self.world.plan.has("long") => self.rng.below(40_000),
            _ => 1,
        };
        let filler = self.rng.next_u64();
        let compresses = self.rng.one_in(2);
        value.extend((0..len).map(|n| {
            let word = if compresses { filler } else { filler.wrapping_mul(n | 1).rotate_left(n as u32) };
            b'a' + (word % 26) as u8
        }));
        value.into()
    }

    fn op(&mut self, t: &Tracked) -> Op {
        let plan = &self.world.plan;
        let n = self.key();
        let family = t.no;
        let change = match self.rng.below(20) {
            0..3 if plan.has("deletes") => Change::Delete,
            3 if plan.has("ranges") => {
                let (key, until) = self.bounds(n);
                return Op { family, key, change: Change::DeleteRange(until) };
            }
            // Keys with operands and keys that expire are different ones.
            4..12 if n % 5 == 1 && plan.has("merges") => {
                self.written += 1;
                Change::Merge(format!("{}.{}+", self.who, self.written).into_bytes().into())
            }
            4..12 if n.is_multiple_of(5) && plan.has("expiry") => {
                let expiry = self.world.time().0 + (1 << self.rng.below(18));
                Change::Put(Row { value: self.value(), expiry })
            }
            _ => Change::Put(Row { value: self.value(), expiry: 0 }),
        };
        Op { family, key: key(n), change }
    }

    /// Returns the bounds of a range delete near key `n`. Some are long.
    fn bounds(&mut self, n: u64) -> (Vec<u8>, Vec<u8>) {
        let (mut from, mut until) = (key(n), key(n + 1 + self.rng.below(8)));
        for (bound, digit) in [(&mut from, b'1'), (&mut until, b'9')] {
            if self.rng.one_in(4) && self.world.plan.has("long") {
                let more = 1 << self.rng.below(LONG_BOUND_BITS);
                bound.resize(bound.len() + more, digit); // behind its key, before the next one
            }
        }
        (from, until)
    }

    /// Returns at most `max` families.
    fn targets(&mut self, max: u64) -> Vec<Arc<Tracked>> {
        let mut targets: Vec<Arc<Tracked>> = Vec::new();
        for _ in 0..1 + self.rng.below(max) {
            let more = self.pick().filter(|t| !targets.iter().any(|other| other.no == t.no));
            targets.extend(more);
        }
        targets
    }

    /// Returns some families and operations on them.
    fn ops(&mut self) -> (Vec<Arc<Tracked>>, Vec<Op>) {
        let targets = self.targets(3);
        let mut ops = Vec::new();
        for t in &targets {
            for _ in 0..1 + self.rng.below(4) {
                ops.push(self.op(t));
                if self.rng.one_in(4) {
                    let again = Op { key: ops[ops.len() - 1].key.clone(), ..self.op(t) };
                    let is_range = matches!(again.change, Change::DeleteRange(_));
                    ops.extend(Some(again).filter(|_| !is_range));
                }
            }
        }
        ops.retain(|op| is_fit(op, target(&targets, op)));
        for t in &targets {
            let n = 1 + self.rng.below(SINGLES);
            if self.rng.one_in(3) && !takes_operands(t) {
                ops.extend(self.single_op(t, n));
            }
        }
        (targets, ops)
    }

    /// Puts a key of this client and family that has no row, or deletes it.
    fn single_op(&mut self, t: &Tracked, n: u64) -> Option<Op> {
        let change = match self.singles.get(&(t.no, n)) {
            Some(Single::Unknown) => return None,
            Some(Single::Put) => Change::SingleDelete,
            Some(Single::Deleted) | None => Change::Put(Row { value: self.value(), expiry: 0 }),
        };
        let key = format!("s{}.{}.{n}", self.who, t.no).into_bytes();
        Some(Op { family: t.no, key, change })
    }

    /// Notes what a commit that was acknowledged or not has done to keys for single deletes.
    fn note_singles(&mut self, ops: &[Op], is_acked: bool) {
        for op in ops.iter().filter(|op| op.key.starts_with(b"s")) {
            let n = u64::from(op.key[op.key.len() - 1] - b'0');
            let state = match op.change {
                _ if !is_acked => Single::Unknown,
                Change::SingleDelete => Single::Deleted,
                _ => Single::Put,
            };
            self.singles.insert((op.family, n), state);
        }
    }

    fn options(&mut self) -> (WriteOptions, bool) {
        match self.rng.below(6) {
            0 => (WriteOptions::default().sync(SyncMode::Full), true),
            _ => (WriteOptions::default(), false),
        }
    }

    /// Commits until the database is closed, at most some times.
    pub(super) fn write_until_closed(mut self) {
        for _ in 0..CLOSING_WRITES {
            if self.rng.one_in(8) && self.world.plan.has("ingest") {
                self.ingest();
            }
            let (targets, ops) = self.ops();
            if !ops.is_empty() && self.write_ops(&targets, &ops).is_none() {
                return;
            }
        }
    }

    fn write(&mut self) {
        let (targets, ops) = self.ops();
        if ops.is_empty() {
            return;
        }
        let seq = self.write_ops(&targets, &ops);
        if seq.is_some() && self.rng.one_in(2) {
            let t = Arc::clone(target(&targets, &ops[0]));
            self.get_key(&t, ops[0].key.clone());
        }
    }

    /// Writes `ops` as one commit. Returns its sequence number if it was acknowledged.
    fn write_ops(&mut self, targets: &[Arc<Tracked>], ops: &[Op]) -> Option<u64> {
        let (options, full) = self.options();
        let (world, logged) = (self.world, ops.to_vec());
        let one = self.rng.one_in(3);
        let seq = match (ops, one) {
            ([op], true) => {
                let t = target(targets, op);
                world.commit("a write", logged, targets, full && !expires(op), || single(t, op, &options))
            }
            _ => world.commit("a batch", logged, targets, full, || {
                let mut batch = WriteBatch::new();
                for op in ops {
                    let t = target(targets, op);
                    match &op.change {
                        Change::Put(row) => {
                            batch.put_expiring(&t.family, &op.key, &row.value, moment(row.expiry))?;
                        }
                        Change::Delete => batch.delete(&t.family, &op.key)?,
                        Change::SingleDelete => batch.single_delete(&t.family, &op.key)?,
                        Change::Merge(operand) => batch.merge(&t.family, &op.key, operand)?,
                        Change::DeleteRange(until) => batch.delete_range(&t.family, &op.key..until)?,
                    }
                }
                world.db.write_with(&mut batch, &options)
            }),
        };
        self.note_singles(ops, seq.is_some());
        seq
    }

    /// Builds tables of one or two families, and has one commit take them.
    fn ingest(&mut self) {
        let world = self.world;
        let Some(_turn) = Turn::of(world) else { return };
        let targets = self.targets(2);
        let mut parts = Vec::new();
        for t in &targets {
            for _ in 0..1 + self.rng.below(2) {
                let rows = if self.rng.one_in(4) { KEYS } else { 1 + self.rng.below(6) };
                let ops = (0..rows).map(|_| self.op(t)).filter(|op| is_fit(op, t)).collect();
                parts.extend(Part::new(t, ops));
            }
        }
        if self.rng.one_in(2) {
            parts.reverse();
        }
        if parts.is_empty() {
            return;
        }
        self.written += 1;
        let (stem, (options, full)) = (format!("{}-{}", self.who, self.written), self.options());
        let rng = &mut self.rng;
        let take = || tables::take(world, rng, &stem, &parts, options);
        if world.commit("an ingest", tables::ops(&parts), &targets, full, take).is_some() {
            let (t, key) = tables::one_of(&parts, &mut self.rng);
            self.get_key(&t, key);
        }
    }

    /// A value or a batch of megabytes.
    fn write_huge(&mut self) {
        let Some(t) = self.pick() else { return };
        self.huge_left -= 1;
        let bytes = (1 << 20) + self.rng.below(3 << 20);
        let world = self.world;
        let rows = if self.rng.one_in(2) { 1 } else { 12 + self.rng.below(KEYS - 12) };
        let mut ops = Vec::new();
        for n in (0..KEYS).filter(|n| n % 5 >= 2).cycle().take(rows as usize) {
            let mut value = self.value().to_vec();
            let (seed, len) = (self.rng.next_u64(), value.len() as u64 + bytes / rows);
            value.extend((value.len() as u64..len).map(|n| (seed.wrapping_mul(n | 1) >> 56) as u8));
            let change = Change::Put(Row { value: value.into(), expiry: 0 });
            ops.push(Op { family: t.no, key: key(n), change });
        }
        match &ops[..] {
            [Op { key, change: Change::Put(row), .. }] if self.rng.one_in(2) => {
                let stream = || t.family.put_stream(key, &row.value[..]);
                world.commit("a long stream", ops.clone(), &[Arc::clone(&t)], false, stream);
            }
            _ => drop(self.write_ops(&[t], &ops)),
        }
    }

    /// A batch without operations: with `SyncMode::Full`, all commits before it are durable when it returns.
    fn write_nothing(&mut self) {
        let world = self.world;
        world.commit("an empty batch", Vec::new(), &[], true, || {
            world.db.write_with(&mut WriteBatch::new(), &WriteOptions::default().sync(SyncMode::Full))
        });
    }

    fn transact(&mut self) {
        let (targets, ops) = self.ops();
        let (options, full) = self.options();
        let world = self.world;
        let levels = [Isolation::Snapshot, Isolation::Serializable, Isolation::ReadCommitted];
        let level = *self.rng.pick(&levels);
        if ops.is_empty() {
            return;
        }
        let rng = &mut self.rng;
        let seq = world.commit("a transaction", ops.clone(), &targets, full, || {
            let mut tx = world.db.begin(level);
            for op in &ops {
                let t = target(&targets, op);
                tx.get(&t.family, &op.key)?;
                if rng.one_in(5) {
                    let place = Place { t, n: rng.below(KEYS), key };
                    place.write_in_vain(world, rng, &mut tx)?;
                }
                match &op.change {
                    Change::Put(row) => {
                        tx.put_expiring(&t.family, &op.key, &row.value, moment(row.expiry))?
                    }
                    Change::Delete => tx.delete(&t.family, &op.key)?,
                    Change::SingleDelete => tx.single_delete(&t.family, &op.key)?,
                    Change::Merge(operand) => tx.merge(&t.family, &op.key, operand)?,
                    Change::DeleteRange(until) => tx.delete_range(&t.family, &op.key..until)?,
                }
            }
            tx.commit_with(&options)
        });
        self.note_singles(&ops, seq.is_some());
    }

    fn put_stream(&mut self) {
        let Some(t) = self.pick() else { return };
        let mut value = self.value().to_vec();
        value.resize(value.len() + self.rng.below(60_000) as usize, b'z');
        let n = 2 + 5 * self.rng.below(KEYS / 5);
        let row = Row { value: value.clone().into(), expiry: 0 };
        let ops = vec![Op { family: t.no, key: key(n), change: Change::Put(row) }];
        self.world
            .commit("a stream", ops, &[Arc::clone(&t)], false, || t.family.put_stream(key(n), &value[..]));
    }

    fn sync(&mut self) {
        let before = self.world.acked();
        match self.world.db.sync() {
            Ok(_) => self.world.durable(before),
            Err(e) => self.world.failed("a sync", &e, &[]),
        }
    }

    fn get(&mut self) {
        let Some(t) = self.pick() else { return };
        let key = key(self.key());
        self.get_key(&t, key);
    }

    fn get_key(&mut self, t: &Arc<Tracked>, key: Vec<u8>) {
        let (world, from) = (self.world, self.world.time().0);
        let before = world.snapshot().seq();
        match t.family.get(&key) {
            Ok(value) => {
                let between = (before, world.db.snapshot().seq());
                world.read(&self.who, t.no, between, from, Found::Key(key, value.map(Into::into)));
            }
            Err(e) => self.world.failed("a get", &e, std::slice::from_ref(t)),
        }
    }

    fn multi_get(&mut self) {
        let Some(t) = self.pick() else { return };
        let keys: Vec<Vec<u8>> = (0..1 + self.rng.below(6)).map(|_| key(self.key())).collect();
        let (world, from) = (self.world, self.world.time().0);
        let before = world.snapshot().seq();
        match t.family.multi_get(&keys) {
            Ok(values) => {
                let between = (before, world.db.snapshot().seq());
                for (key, value) in keys.into_iter().zip(values) {
                    world.read(&self.who, t.no, between, from, Found::Key(key, value.map(Into::into)));
                }
            }
            Err(e) => self.world.failed("a get of many", &e, &[t]),
        }
    }

    /// Walks with a new cursor, or again with the one that is held.
    fn scan(&mut self) {
        if self.held.is_some() && self.rng.one_in(2) {
            return self.walk_again();
        }
        let Some(t) = self.pick() else { return };
        let (acked, from) = (self.world.acked(), self.world.time().0);
        let scanned = t.family.cursor().and_then(|cursor| {
            if cursor.seq() < acked && !self.world.is_stormy() {
                self.world.fail(format!("a cursor at {} misses commit {acked}", cursor.seq()));
            }
            self.walk_and_hold(Held { t: Arc::clone(&t), cursor, from })
        });
        if let Err(e) = scanned {
            self.world.failed("a scan", &e, &[t]);
        }
    }

    fn walk_again(&mut self) {
        let Some(held) = self.held.take() else { return };
        let t = Arc::clone(&held.t);
        if let Err(e) = self.walk_and_hold(held) {
            self.world.failed("a scan by a cursor that was held", &e, &[t]);
        }
    }

    /// Walks, and holds the cursor if none is held and the walk came to an end.
    fn walk_and_hold(&mut self, mut held: Held) -> tidesdb::Result<()> {
        self.walk(&mut held)?;
        if self.held.is_none() && !self.rng.one_in(4) {
            self.held = Some(held);
        }
        Ok(())
    }

    /// Walks with a cursor forwards or backwards, turns at the end, and records the rows in between.
    fn walk(&mut self, held: &mut Held) -> tidesdb::Result<()> {
        let Held { t, cursor, from } = held;
        let (world, seq) = (self.world, cursor.seq());
        let start = key(self.rng.below(KEYS));
        let forwards = self.rng.one_in(2);
        let from_end = self.rng.one_in(3);
        match (forwards, from_end) {
            (true, true) => cursor.seek_to_first()?,
            (true, false) => cursor.seek(&start)?,
            (false, true) => cursor.seek_to_last()?,
            (false, false) => cursor.seek_for_prev(&start)?,
        }
        let begin = (!from_end).then_some(start);
        let mut rows = BTreeMap::new();
        let (mut previous, mut last) = (None, None);
        for _ in 0..self.rng.below(2 * KEYS) {
            if !cursor.valid() {
                break;
            }
            let (key, value) = cursor.entry()?;
            let (key, value) = (key.to_vec(), value.to_vec());
            previous = last.replace(key.clone());
            rows.insert(key, value);
            if forwards {
                cursor.next()?
            } else {
                cursor.prev()?
            };
        }
        // Rows between the last one that was seen and the end of the walk are not known, unless it came to an end.
        let end = if cursor.valid() { last.clone() } else { None };
        if cursor.valid() && last.is_none() {
            return Ok(()); // nothing was walked
        }
        if cursor.valid() && !rows.is_empty() {
            if forwards {
                cursor.prev()?
            } else {
                cursor.next()?
            };
            let turned = cursor.valid().then(|| cursor.key().to_vec());
            // A row may expire at the turn.
            if turned != last && !last.as_deref().is_some_and(may_expire) {
                let (turned, last, previous) = (shown(&turned), shown(&last), shown(&previous));
                world
                    .fail(format!("a cursor that turned is on {turned} and not on {last}, after {previous}"));
            }
        }
        let (low, high) = if forwards { (begin, end) } else { (end, begin) };
        world.read(&self.who, t.no, (seq, seq), *from, Found::Range(low, high, rows));
        Ok(())
    }

    /// Takes a snapshot or uses the one that was kept.
    fn use_snapshot(&mut self) {
        let Some(t) = self.pick() else { return };
        let (snapshot, families) = match self.kept.take() {
            Some(kept) => kept,
            None => (self.world.snapshot(), self.world.next_no.load(SeqCst)),
        };
        if t.no >= families {
            return; // the family is newer
        }
        let (world, seq) = (self.world, snapshot.seq());
        for _ in 0..self.rng.below(4) {
            let (key, from) = (key(self.key()), world.time().0);
            match snapshot.get(&t.family, &key) {
                Ok(value) => {
                    if let Some(value) = &value {
                        self.get_part(&snapshot, &t, &key, value);
                    }
                    world.read(&self.who, t.no, (seq, seq), from, Found::Key(key, value.map(Into::into)));
                }
                Err(e) => return self.world.failed("a get of a snapshot", &e, &[t]),
            }
        }
        let from = world.time().0;
        if self.rng.one_in(2)
            && let Err(e) = snapshot
                .cursor(&t.family)
                .and_then(|cursor| self.walk_and_hold(Held { t: Arc::clone(&t), cursor, from }))
        {
            return self.world.failed("a scan of a snapshot", &e, &[t]);
        }
        if self.rng.one_in(2) {
            self.kept = Some((snapshot, families));
        }
    }

    fn get_part(&mut self, snapshot: &Snapshot, t: &Arc<Tracked>, key: &[u8], value: &[u8]) {
        let len = value.len() as u64;
        let from = self.rng.below(len + 1);
        let to = from + self.rng.below(len + 1 - from);
        match snapshot.get_part(&t.family, key, from..to) {
            Ok(Some(part)) if part[..] == value[from as usize..to as usize] => {}
            Ok(None) if may_expire(key) => {}
            Ok(part) => {
                let part = part.map(|part| part.len());
                self.world
                    .fail(format!("bytes {from} to {to} of a value of {len} bytes are wrong: {part:?}"));
            }
            Err(e) => self.world.failed("a get of a part", &e, std::slice::from_ref(t)),
        }
    }
}

fn target<'t>(targets: &'t [Arc<Tracked>], op: &Op) -> &'t Arc<Tracked> {
    targets.iter().find(|t| t.no == op.family).expect("the operation is on a target")
}

fn expires(op: &Op) -> bool {
    matches!(&op.change, Change::Put(row) if row.expiry > 0)
}

/// Operands and expiries are on different keys, also if an operation repeats the key of another one.
fn is_fit(op: &Op, t: &Tracked) -> bool {
    match &op.change {
        Change::Merge(_) if !takes_operands(t) => false,
        Change::Merge(_) => op.key.last().is_some_and(|digit| (digit - b'0') % 5 == 1),
        Change::Put(row) if row.expiry != 0 => may_expire(&op.key),
        _ => true,
    }
}

fn takes_operands(t: &Tracked) -> bool {
    t.family.current_options().merge_operator.is_some()
}

fn shown(key: &Option<Vec<u8>>) -> String {
    key.as_ref().map_or_else(|| "none".to_owned(), |key| String::from_utf8_lossy(key).into_owned())
}

fn single(t: &Tracked, op: &Op, options: &WriteOptions) -> tidesdb::Result<u64> {
    match &op.change {
        Change::Put(row) if row.expiry > 0 => t.family.put_expiring(&op.key, &row.value, moment(row.expiry)),
        Change::Put(row) => t.family.put_with(&op.key, &row.value, options),
        Change::Delete => t.family.delete_with(&op.key, options),
        Change::SingleDelete => t.family.single_delete_with(&op.key, options),
        Change::Merge(operand) => t.family.merge_with(&op.key, operand, options),
        Change::DeleteRange(until) => t.family.delete_range_with(&op.key..until, options),
    }
}
