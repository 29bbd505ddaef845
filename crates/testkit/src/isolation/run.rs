//! Runs random transactions of all levels concurrently, on one database with small memtables.

use std::collections::BTreeMap;
use std::path::Path;

use tidesdb::{Cursor, Db, Error, Family, FamilyOptions, Isolation, Iter, SyncMode, Transaction};

use super::roam::Roam;
use super::{End, Key, LEVELS, Read, Record, Scan, bytes, number};
use crate::rng::Rng;

const KEYS: Key = 48;

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
    let family = FamilyOptions::default().write_buffer_bytes(64 << 10);
    let options = Db::options(dir).sync(SyncMode::None).default_family(family);
    let db = options.open().map_err(|e| e.to_string())?;
    let mut base = BTreeMap::new();
    for key in (0..KEYS).step_by(2) {
        db.put(&bytes(key), &u64::from(key).to_le_bytes()).map_err(|e| e.to_string())?;
        base.insert(key, u64::from(key));
    }
    let mut records = Vec::new();
    std::thread::scope(|scope| {
        let start = |thread| {
            let db = &db;
            scope.spawn(move || client(db, thread, seed, each))
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        for worker in workers {
            let done = worker.join().map_err(|_| "a thread panicked")?;
            records.extend(done.map_err(|e| e.to_string())?);
        }
        Ok::<(), String>(())
    })?;
    db.close().map_err(|e| e.to_string())?;
    Ok((records, base))
}

/// Runs `count` transactions on the default family of `db`, as thread `thread`.
///
/// # Errors
/// Returns the error of the engine, or a read that did not return the transaction's own write.
pub fn client(db: &Db, thread: usize, seed: u64, count: u64) -> tidesdb::Result<Vec<Record>> {
    Worker::new(db, thread, seed).run(count)
}

struct Worker<'a> {
    db: &'a Db,
    thread: usize,
    random: Rng,
    written: u64,
}

impl<'a> Worker<'a> {
    fn new(db: &'a Db, thread: usize, seed: u64) -> Self {
        Self { db, thread, random: Rng::new(seed << 8 | thread as u64), written: 0 }
    }

    fn run(mut self, count: u64) -> tidesdb::Result<Vec<Record>> {
        (0..count).map(|_| self.transaction()).collect()
    }

    fn family(&self) -> &'a Family {
        self.db.default_family()
    }

    fn visible(&self) -> u64 {
        self.db.snapshot().seq()
    }

    fn key(&mut self) -> Key {
        self.random.below(u64::from(KEYS)) as Key
    }

    fn transaction(&mut self) -> tidesdb::Result<Record> {
        let level = LEVELS[self.random.below(5) as usize];
        let mut tx = self.db.begin(level);
        let mut record = Record {
            level,
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
                _ => std::thread::yield_now(),
            }
        }
        if self.random.one_in(2) {
            kept.clear(); // otherwise cursors are still in use at the commit
        }
        if self.random.one_in(20) {
            tx.rollback();
            return Ok(record);
        }
        record.end = match tx.commit() {
            Ok(seq) => End::Committed(seq),
            Err(Error::Conflict { .. }) => End::Refused(self.visible()),
            Err(e) => return Err(e),
        };
        Ok(record)
    }

    fn read(&mut self, tx: &Transaction, record: &mut Record) -> tidesdb::Result<()> {
        let key = self.key();
        let before = self.visible();
        let value = tx.get(self.family(), &bytes(key))?.map(|v| number(&v));
        match record.writes.get(&key) {
            Some(own) if *own == value => {}
            Some(own) => return Err(wrong(format!("own write of {key}: {own:?}, read {value:?}"))),
            None => record.reads.push(Read { key, value, moment: (before, self.visible()) }),
        }
        Ok(())
    }

    fn walk(&mut self, tx: &Transaction, record: &mut Record) -> tidesdb::Result<()> {
        let (a, b) = (self.key(), self.key());
        let (low, high) = (a.min(b), a.max(b).min(a.min(b) + 8));
        let before = self.visible();
        let range = tx.range(self.family(), bytes(low)..bytes(high))?;
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
        let mut roam = Roam::new(tx.cursor(self.family())?, KEYS, number);
        for _ in 0..2 + self.random.below(10) {
            let target = self.key();
            match self.random.below(8) {
                0 => self.read(tx, record)?,
                1 => std::thread::yield_now(),
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
            tx.delete(self.family(), &bytes(key))?;
            record.note_write(key, None);
            return Ok(());
        }
        self.written += 1;
        // Every value is written only once.
        let value = (self.thread as u64 + 1) << 40 | self.written;
        tx.put(self.family(), &bytes(key), &value.to_le_bytes())?;
        record.note_write(key, Some(value));
        Ok(())
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

fn wrong(what: String) -> Error {
    Error::Internal { what: what.into() }
}
