//! Runs random transactions of all levels concurrently, on two families with small memtables.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use tidesdb::{Cursor, Db, Error, Family, FamilyOptions, Isolation, Iter, SyncMode, Transaction};

use super::roam::Roam;
use super::{End, Key, LEVELS, Read, Record, Scan, bytes, number};
use crate::rng::Rng;

const KEYS: Key = 48;
/// Keys from here on are in the second family.
const SECOND: Key = KEYS / 2;
/// One in this many values is long.
const LONG_ONE_IN: u64 = 8;
const LONG_BYTES: usize = 900;
/// Most bytes that make a bound of a range delete long.
const LONG_BOUND: u64 = 2000;
/// Writes of a transaction that makes many of them: more than are searched without sorting them.
const MANY: usize = 20;
/// Reads after a rollback to a savepoint.
const LOOKS: usize = 6;

/// Final writes of a transaction; `None` is a delete.
pub type Writes = BTreeMap<Key, Option<u64>>;

/// What the clients of a run use.
pub struct Shared<'a> {
    /// The database.
    pub db: &'a Db,
    /// Each has a half of the keys.
    pub families: &'a [Family; 2],
    /// Commits a transaction that has these writes, which may be none.
    pub commit: &'a dyn Fn(&mut Transaction, &Writes) -> tidesdb::Result<u64>,
    /// Lets others go on, between two calls of a transaction.
    pub pause: &'a dyn Fn(),
}

/// Returns which of the two families has `key`.
pub fn family_of(key: Key) -> usize {
    usize::from(key >= SECOND)
}

/// Returns the bytes of a value, which begin with its number.
pub fn encode(value: u64) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    if value.is_multiple_of(LONG_ONE_IN) {
        bytes.resize(LONG_BYTES, value as u8);
    }
    bytes
}

/// Runs `each` transactions on each of `threads` threads in a new database in `dir`. Returns the records of the
/// transactions, and the initial contents.
///
/// # Errors
/// Returns the error of the engine, or a read that did not return the transaction's own write.
pub fn run(
    dir: &Path,
    threads: usize,
    each: u64,
    seed: u64,
) -> Result<(Vec<Record>, BTreeMap<Key, u64>), String> {
    let options = FamilyOptions::default().write_buffer_bytes(64 << 10);
    let db = Db::options(dir).sync(SyncMode::None).default_family(options.clone()).open();
    let db = db.map_err(|e| e.to_string())?;
    let second = db.create_family("second", options).map_err(|e| e.to_string())?;
    let families = [db.default_family().clone(), second];
    let mut base = BTreeMap::new();
    for key in (0..KEYS).step_by(2) {
        let family = &families[family_of(key)];
        family.put(bytes(key), encode(u64::from(key))).map_err(|e| e.to_string())?;
        base.insert(key, u64::from(key));
    }
    let mut records = Vec::new();
    std::thread::scope(|scope| {
        let start = |thread| {
            let (db, families) = (&db, &families);
            scope.spawn(move || {
                let (commit, pause) =
                    (&|tx: &mut Transaction, _: &Writes| tx.commit(), &std::thread::yield_now);
                client(&Shared { db, families, commit, pause }, thread, seed, each)
            })
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        for worker in workers {
            let done = worker.join().map_err(|_| "a thread panicked")?;
            records.extend(done.map_err(|e| e.to_string())?);
        }
        Ok::<(), String>(())
    })?;
    drop(families);
    db.close().map_err(|e| e.to_string())?;
    Ok((records, base))
}

/// Runs `count` transactions as thread `thread`.
///
/// # Errors
/// Returns the error of the engine, or a read that did not return the transaction's own write.
pub fn client(shared: &Shared<'_>, thread: usize, seed: u64, count: u64) -> tidesdb::Result<Vec<Record>> {
    Worker::new(shared, thread, seed).run(count)
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    thread: usize,
    random: Rng,
    written: u64,
    /// A transaction that was refused and reset.
    again: Option<Transaction>,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, thread: usize, seed: u64) -> Self {
        let random = Rng::new(seed << 8 | thread as u64);
        Self { shared, thread, random, written: 0, again: None }
    }

    fn run(mut self, count: u64) -> tidesdb::Result<Vec<Record>> {
        (0..count).map(|_| self.transaction()).collect()
    }

    fn family(&self, key: Key) -> &'a Family {
        &self.shared.families[family_of(key)]
    }

    fn visible(&self) -> u64 {
        self.shared.db.snapshot().seq()
    }

    fn key(&mut self) -> Key {
        self.random.below(u64::from(KEYS)) as Key
    }

    fn transaction(&mut self) -> tidesdb::Result<Record> {
        let level = LEVELS[self.random.below(5) as usize];
        let mut tx = self.again.take().unwrap_or_else(|| self.shared.db.begin(level));
        let mut record = Record::new(tx.isolation(), self.thread, tx.snapshot_seq());
        let mut kept = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            match self.random.below(20) {
                0..8 => self.read(&tx, &mut record)?,
                8 => self.walk(&tx, &mut record)?,
                9 => kept.push(self.roam(&tx, &mut record)?),
                10..17 => self.write(&mut tx, &mut record)?,
                17 => self.write_many(&mut tx, &mut record)?,
                18 => self.write_in_vain(&mut tx, &mut record)?,
                _ => (self.shared.pause)(),
            }
        }
        if self.random.one_in(2) {
            kept.clear(); // otherwise cursors are still in use at the commit
        }
        if self.random.one_in(4) {
            (self.shared.pause)();
        }
        if self.random.one_in(20) {
            tx.rollback();
            return Ok(record);
        }
        record.end = match (self.shared.commit)(&mut tx, &record.writes) {
            Ok(seq) => End::Committed(seq),
            Err(Error::Conflict { .. }) => End::Refused(self.visible()),
            Err(e) => return Err(e),
        };
        if matches!(record.end, End::Refused(_)) && self.random.one_in(2) {
            tx.reset();
            self.again = Some(tx);
        }
        Ok(record)
    }

    fn read(&mut self, tx: &Transaction, record: &mut Record) -> tidesdb::Result<()> {
        let key = self.key();
        self.read_key(tx, record, key)
    }

    fn read_key(&self, tx: &Transaction, record: &mut Record, key: Key) -> tidesdb::Result<()> {
        let before = self.visible();
        let value = tx.get(self.family(key), &bytes(key))?.map(|v| number(&v));
        match record.writes.get(&key) {
            Some(own) if *own == value => {}
            Some(own) => return Err(wrong(format!("own write of {key}: {own:?}, read {value:?}"))),
            None => record.reads.push(Read { key, value, moment: (before, self.visible()) }),
        }
        Ok(())
    }

    fn walk(&mut self, tx: &Transaction, record: &mut Record) -> tidesdb::Result<()> {
        let (a, b) = (self.key(), self.key());
        self.walk_from(tx, record, a.min(b), a.max(b))
    }

    fn walk_from(
        &mut self,
        tx: &Transaction,
        record: &mut Record,
        low: Key,
        high: Key,
    ) -> tidesdb::Result<()> {
        let high = high.min(low + 8).min(keys_beside(low).end);
        let before = self.visible();
        let range = tx.range(self.family(low), bytes(low)..bytes(high))?;
        let found = self.collect(range)?;
        record.note_walk((low, high), found, (before, self.visible()))
    }

    /// Returns all rows of a range, by key, read from the front, the back, or both ends in turn.
    fn collect(&mut self, mut range: Iter) -> tidesdb::Result<Vec<(Key, u64)>> {
        let from_front = self.random.below(4);
        let mut rows = BTreeMap::new();
        loop {
            let row = match self.random.below(3) < from_front {
                true => range.next(),
                false => range.next_back(),
            };
            let Some(row) = row else { return Ok(rows.into_iter().collect()) };
            let (key, value) = row?;
            let key = Key::from(key[0]) << 8 | Key::from(key[1]);
            if rows.insert(key, number(&value)).is_some() {
                return Err(wrong(format!("a range returned {key} twice")));
            }
        }
    }

    /// Moves a cursor at random, with reads by key in between. Returns the cursor.
    fn roam(&mut self, tx: &Transaction, record: &mut Record) -> tidesdb::Result<Cursor> {
        let before = self.visible();
        let one = self.key();
        let keys = keys_beside(one);
        let mut roam = Roam::new(tx.cursor(self.family(one))?, keys.clone(), number);
        for _ in 0..2 + self.random.below(10) {
            let target = keys.start + self.key() % SECOND;
            match self.random.below(8) {
                0 => self.read(tx, record)?,
                1 => (self.shared.pause)(),
                _ => roam.step(&mut self.random, target)?,
            }
        }
        // At read uncommitted, repeated reads by a cursor may differ.
        let (seen, cursor) = roam.finish(record.level != Isolation::ReadUncommitted)?;
        for seen in seen {
            let found = seen.rows.into_iter().collect();
            record.note_walk((seen.low, seen.high), found, (before, self.visible()))?;
        }
        Ok(cursor)
    }

    fn write(&mut self, tx: &mut Transaction, record: &mut Record) -> tidesdb::Result<()> {
        // A third of the writes, if there was one before, write the same key again.
        let again = record.writes.keys().next().filter(|_| self.random.one_in(3)).copied();
        let key = again.unwrap_or_else(|| self.key());
        match self.random.below(10) {
            0 | 1 => {
                tx.delete(self.family(key), &bytes(key))?;
                record.note_write(key, None);
            }
            2 => record.note_range(self.delete_range(tx, key)?),
            _ => {
                let value = self.value();
                tx.put(self.family(key), &bytes(key), &encode(value))?;
                record.note_write(key, Some(value));
            }
        }
        Ok(())
    }

    /// Deletes some keys from `low` on, or all of its family. Returns them.
    fn delete_range(&mut self, tx: &mut Transaction, low: Key) -> tidesdb::Result<Range<Key>> {
        let all = keys_beside(low);
        let high = (low + 1 + self.random.below(6) as Key).min(all.end);
        match self.random.below(12) {
            0 => tx.delete_range(self.family(low), ..).map(|()| all),
            1..4 => {
                // Behind the last key, and before the next one.
                let long = [&bytes(high - 1)[..], &vec![0xFF; 1 + self.random.below(LONG_BOUND) as usize]];
                tx.delete_range(self.family(low), bytes(low).as_slice()..&long.concat()).map(|()| low..high)
            }
            _ => tx.delete_range(self.family(low), bytes(low)..bytes(high)).map(|()| low..high),
        }
    }

    /// Makes so many writes that they are sorted.
    fn write_many(&mut self, tx: &mut Transaction, record: &mut Record) -> tidesdb::Result<()> {
        (0..MANY).try_for_each(|_| self.write(tx, record))
    }

    /// Every value is written only once.
    fn value(&mut self) -> u64 {
        self.written += 1;
        (self.thread as u64 + 1) << 40 | self.written
    }

    /// Makes writes that savepoints take back, reads in between, and reads what they wrote afterwards.
    fn write_in_vain(&mut self, tx: &mut Transaction, record: &mut Record) -> tidesdb::Result<()> {
        let (outer, before) = (tx.savepoint(), record.written());
        let mut touched = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            let (inner, until) = (tx.savepoint(), record.written());
            for _ in 0..1 + self.random.below(3) {
                self.write(tx, record)?;
            }
            touched.extend(record.changed_since(&until));
            match self.random.below(3) {
                0 => self.walk(tx, record)?,
                1 => self.look(tx, record, &touched)?,
                _ => {}
            }
            if self.random.one_in(2) {
                tx.release(inner)?;
            } else {
                tx.rollback_to(inner)?;
                record.take_back(until);
                self.look(tx, record, &touched)?;
            }
        }
        self.write(tx, record)?;
        touched.extend(record.changed_since(&before));
        tx.rollback_to(outer)?;
        record.take_back(before);
        self.look(tx, record, &touched)
    }

    /// Reads some of `keys`, or scans what is around one of them.
    fn look(&mut self, tx: &Transaction, record: &mut Record, keys: &[Key]) -> tidesdb::Result<()> {
        for _ in 0..keys.len().min(LOOKS) {
            let key = *self.random.pick(keys);
            if self.random.one_in(2) {
                self.read_key(tx, record, key)?;
            } else {
                let (before, after) = (self.random.below(4) as Key, self.random.below(4) as Key);
                let low = key.saturating_sub(before).max(keys_beside(key).start);
                self.walk_from(tx, record, low, key + 1 + after)?;
            }
        }
        Ok(())
    }
}

/// The writes of a record at some time.
struct Written {
    writes: Writes,
    ranged: BTreeMap<Key, bool>,
    /// Number of writes that the transaction had overwritten.
    overwritten: usize,
}

impl Record {
    pub(super) fn new(level: Isolation, thread: usize, snapshot: Option<u64>) -> Self {
        let (reads, walks, overwritten) = (Vec::new(), Vec::new(), Vec::new());
        let (writes, ranged, end) = (Writes::new(), BTreeMap::new(), End::RolledBack);
        Self { level, thread, snapshot, reads, walks, writes, ranged, overwritten, end }
    }

    fn written(&self) -> Written {
        let overwritten = self.overwritten.len();
        Written { writes: self.writes.clone(), ranged: self.ranged.clone(), overwritten }
    }

    /// Takes back what was written since `before`.
    fn take_back(&mut self, before: Written) {
        self.writes = before.writes;
        self.ranged = before.ranged;
        self.overwritten.truncate(before.overwritten);
    }

    /// Keys that were written since `before`.
    fn changed_since(&self, before: &Written) -> Vec<Key> {
        let of = |key: &Key| (before.writes.get(key).copied(), before.ranged.get(key).copied());
        let now = |key: &Key| (self.writes.get(key).copied(), self.ranged.get(key).copied());
        self.writes.keys().filter(|key| of(key) != now(key)).copied().collect()
    }

    /// Records that `low..high` contains exactly `found`, own writes included.
    fn note_walk(
        &mut self,
        (low, high): (Key, Key),
        mut found: Vec<(Key, u64)>,
        moment: (u64, u64),
    ) -> tidesdb::Result<()> {
        let own: Vec<Key> = self.writes.range(low..high).map(|(key, _)| *key).collect();
        for key in &own {
            let shown = found.iter().find(|(k, _)| k == key).map(|(_, v)| *v);
            if self.writes.get(key) != Some(&shown) {
                return Err(wrong(format!("own write of {key} in a scan: read {shown:?}")));
            }
        }
        found.retain(|(key, _)| !own.contains(key));
        self.walks.push(Scan { low, high, found, own, moment });
        Ok(())
    }

    fn note_write(&mut self, key: Key, value: Option<u64>) {
        self.ranged.remove(&key);
        self.overwritten.extend(self.writes.insert(key, value).map(|old| (key, old)));
    }

    fn note_range(&mut self, keys: Range<Key>) {
        for key in keys {
            let before = self.writes.insert(key, None);
            let was_alone = before.is_some() && self.ranged.get(&key).copied().unwrap_or(true);
            self.ranged.insert(key, was_alone);
            self.overwritten.extend(before.map(|old| (key, old)));
        }
    }
}

/// The keys of the family that has `key`.
fn keys_beside(key: Key) -> Range<Key> {
    if key < SECOND { 0..SECOND } else { SECOND..KEYS }
}

fn wrong(what: String) -> Error {
    Error::Internal { what: what.into() }
}
