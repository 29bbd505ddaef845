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
        let mut record = Record {
            level: tx.isolation(),
            thread: self.thread,
            snapshot: tx.snapshot_seq(),
            reads: Vec::new(),
            walks: Vec::new(),
            writes: BTreeMap::new(),
            overwritten: Vec::new(),
            end: End::RolledBack,
        };
        let mut kept = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            match self.random.below(10) {
                0..4 => self.read(&tx, &mut record)?,
                4 if self.random.one_in(2) => self.walk(&tx, &mut record)?,
                4 => kept.push(self.roam(&tx, &mut record)?),
                5..9 => self.write(&mut tx, &mut record)?,
                _ if self.random.one_in(2) => self.write_in_vain(&mut tx)?,
                _ => (self.shared.pause)(),
            }
        }
        if self.random.one_in(2) {
            kept.clear(); // otherwise cursors are still in use at the commit
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
        let low = a.min(b);
        let high = a.max(b).min(low + 8).min(keys_beside(low).end);
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
        if self.random.one_in(5) {
            tx.delete(self.family(key), &bytes(key))?;
            record.note_write(key, None);
            return Ok(());
        }
        let value = self.value();
        tx.put(self.family(key), &bytes(key), &encode(value))?;
        record.note_write(key, Some(value));
        Ok(())
    }

    /// Every value is written only once.
    fn value(&mut self) -> u64 {
        self.written += 1;
        (self.thread as u64 + 1) << 40 | self.written
    }

    /// Makes writes that savepoints take back.
    fn write_in_vain(&mut self, tx: &mut Transaction) -> tidesdb::Result<()> {
        let outer = tx.savepoint();
        for _ in 0..1 + self.random.below(2) {
            let inner = tx.savepoint();
            let (key, value) = (self.key(), self.value());
            tx.put(self.family(key), &bytes(key), &encode(value))?;
            if self.random.one_in(2) { tx.release(inner)? } else { tx.rollback_to(inner)? }
        }
        let key = self.key();
        tx.delete(self.family(key), &bytes(key))?;
        tx.rollback_to(outer)
    }
}

impl Record {
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
        self.overwritten.extend(self.writes.insert(key, value).map(|old| (key, old)));
    }
}

/// The keys of the family that has `key`.
fn keys_beside(key: Key) -> Range<Key> {
    if key < SECOND { 0..SECOND } else { SECOND..KEYS }
}

fn wrong(what: String) -> Error {
    Error::Internal { what: what.into() }
}
