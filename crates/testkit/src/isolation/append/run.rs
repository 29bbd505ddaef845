//! Runs random transactions of one level on lists, on many threads and one database with small memtables.
//!
//! After about a dozen appends, a list is replaced by a new one. So there are always short lists and absent keys, and
//! few enough of them that transactions conflict.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tidesdb::{Cursor, Db, Error, FamilyOptions, Isolation, Savepoint, SyncMode, Transaction};

use super::{End, History, List, Op, Record};
use crate::isolation::roam::Roam;
use crate::isolation::{Key, bytes, number};
use crate::rng::Rng;

/// Number of lists in use at a time.
const PLACES: u64 = 6;
/// Number of appends after which a list is replaced.
const APPENDS_MAX: u64 = 12;

/// Runs `each` transactions on each of `threads` threads at `level`, in a new database in `dir`; then reads all lists.
///
/// # Errors
/// Returns the error of the engine.
pub fn run(
    dir: &Path,
    level: Isolation,
    (threads, each): (usize, u64),
    seed: u64,
) -> Result<History, String> {
    let family = FamilyOptions::default().write_buffer_bytes(64 << 10);
    let options = Db::options(dir).sync(SyncMode::None).default_family(family);
    let db = options.open().map_err(|e| e.to_string())?;
    let common = Common { db: &db, level, clock: AtomicU64::new(1), appends: Default::default() };
    let mut records = Vec::new();
    std::thread::scope(|scope| {
        let start = |thread| {
            let common = &common;
            scope.spawn(move || Worker::new(common, thread, seed).run(each))
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        for worker in workers {
            records.extend(worker.join().map_err(|_| "a thread panicked")??);
        }
        Ok::<(), String>(())
    })?;
    let finals = last_reads(&common, &mut records).map_err(|e| e.to_string())?;
    db.close().map_err(|e| e.to_string())?;
    Ok(History { level, records, finals })
}

/// State shared by all threads.
struct Common<'a> {
    db: &'a Db,
    level: Isolation,
    clock: AtomicU64,
    /// Number of appends attempted at each place.
    appends: [AtomicU64; PLACES as usize],
}

impl Common<'_> {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    /// Returns the list in use at `place`, or its successor.
    fn key(&self, place: u64, ahead: bool) -> Key {
        let generation = self.appends[place as usize].load(SeqCst) / APPENDS_MAX + u64::from(ahead);
        (generation * PLACES + place) as Key
    }
}

/// Reads every list once, in one transaction.
fn last_reads(common: &Common<'_>, records: &mut Vec<Record>) -> tidesdb::Result<BTreeMap<Key, List>> {
    let begun = common.tick();
    let mut tx = common.db.begin(common.level);
    let all = tx.iter(common.db.default_family())?.collect::<tidesdb::Result<Vec<_>>>()?;
    let finals: BTreeMap<Key, List> = all.iter().map(|(k, v)| (key(k), list(v))).collect();
    tx.commit()?;
    let ops = finals.iter().map(|(key, list)| Op::Read { key: *key, list: list.clone() }).collect();
    records.push(Record { ops, end: End::Committed, begun, ended: common.tick() });
    Ok(finals)
}

struct Worker<'a> {
    common: &'a Common<'a>,
    thread: usize,
    random: Rng,
    appended: u64,
}

impl<'a> Worker<'a> {
    fn new(common: &'a Common<'a>, thread: usize, seed: u64) -> Self {
        Self { common, thread, random: Rng::new(seed << 8 | thread as u64), appended: 0 }
    }

    fn run(mut self, count: u64) -> Result<Vec<Record>, String> {
        (0..count).map(|_| self.transaction().map_err(|e| e.to_string())).collect()
    }

    fn transaction(&mut self) -> tidesdb::Result<Record> {
        let begun = self.common.tick();
        let mut tx = self.common.db.begin(self.common.level);
        let (mut ops, mut kept) = (Vec::new(), Vec::new());
        for _ in 0..1 + self.random.below(5) {
            match self.random.below(20) {
                0..7 => self.append(&mut tx, &mut ops)?,
                7..12 => drop(self.read(&tx, &mut ops)?),
                12..14 => self.walk(&tx, &mut ops)?,
                14 => kept.push(self.roam(&tx, &mut ops)?),
                15 => self.part(&mut tx, &mut ops)?,
                _ => std::thread::yield_now(),
            }
        }
        if self.random.one_in(2) {
            kept.clear(); // otherwise cursors are still in use at the commit
        }
        let end = if self.random.one_in(20) {
            tx.rollback();
            End::RolledBack
        } else {
            match tx.commit() {
                Ok(_) => End::Committed,
                Err(Error::Conflict { .. }) => End::Refused,
                Err(e) => return Err(e),
            }
        };
        Ok(Record { ops, end, begun, ended: self.common.tick() })
    }

    fn read(&mut self, tx: &Transaction, ops: &mut Vec<Op>) -> tidesdb::Result<(Key, List)> {
        let place = self.random.below(PLACES);
        let ahead = self.random.one_in(10);
        let key = self.common.key(place, ahead);
        let list = tx.get(self.common.db.default_family(), &bytes(key))?.map_or(List::new(), |v| list(&v));
        ops.push(Op::Read { key, list: list.clone() });
        Ok((key, list))
    }

    fn append(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>) -> tidesdb::Result<()> {
        let (key, mut list) = self.read(tx, ops)?;
        if self.random.one_in(3) {
            std::thread::yield_now();
        }
        self.appended += 1;
        let (after, element) = (list.last().copied(), (self.thread as u64 + 1) << 40 | self.appended);
        list.push(element);
        let value: Vec<u8> = list.iter().flat_map(|element| element.to_le_bytes()).collect();
        tx.put(self.common.db.default_family(), &bytes(key), &value)?;
        self.common.appends[usize::from(key) % PLACES as usize].fetch_add(1, SeqCst);
        ops.push(Op::Append { key, after, element });
        Ok(())
    }

    /// Scans one or two generations of lists, in either direction, sometimes stopping early.
    fn walk(&mut self, tx: &Transaction, ops: &mut Vec<Op>) -> tidesdb::Result<()> {
        let place = self.random.below(PLACES);
        let low = self.common.key(place, self.random.one_in(4));
        let high = low + PLACES as Key + self.random.below(PLACES) as Key;
        let most = if self.random.one_in(4) { 1 + self.random.below(3) as usize } else { usize::MAX };
        let range = tx.range(self.common.db.default_family(), bytes(low)..bytes(high))?;
        let back = self.random.one_in(2);
        let mut found = if back {
            range.rev().take(most).collect::<tidesdb::Result<Vec<_>>>()?
        } else {
            range.take(most).collect::<tidesdb::Result<Vec<_>>>()?
        };
        if back {
            found.reverse();
        }
        let found: Vec<(Key, List)> = found.iter().map(|(k, v)| (key(k), list(v))).collect();
        let (mut low, mut high) = (low, high);
        if let ([(first, _), ..], [.., (last, _)]) = (&found[..], &found[..])
            && found.len() == most
        {
            // The scan has not seen keys beyond the position where it stopped.
            if back { low = *first } else { high = last + 1 }
        }
        ops.push(Op::Scan { low, high, found });
        Ok(())
    }

    /// Moves a cursor at random, with reads by key in between. Returns the cursor.
    fn roam(&mut self, tx: &Transaction, ops: &mut Vec<Op>) -> tidesdb::Result<Cursor> {
        // Keys beyond those in use are not recorded; most of them are never written.
        let end = (0..PLACES).map(|place| self.common.key(place, true)).max().unwrap_or(0) + PLACES as Key;
        let mut roam = Roam::new(tx.cursor(self.common.db.default_family())?, 0..end, list);
        for _ in 0..2 + self.random.below(8) {
            let place = self.random.below(PLACES);
            let target = self.common.key(place, self.random.one_in(3));
            match self.random.below(6) {
                0 => drop(self.read(tx, ops)?),
                _ => roam.step(&mut self.random, target.min(end - 1))?,
            }
        }
        // At read uncommitted, repeated reads by a cursor may differ.
        let (seen, cursor) = roam.finish(self.common.level != Isolation::ReadUncommitted)?;
        for seen in seen.into_iter().filter(|seen| seen.low < seen.high) {
            ops.push(Op::Scan { low: seen.low, high: seen.high, found: seen.rows.into_iter().collect() });
        }
        Ok(cursor)
    }

    /// Makes some appends within a savepoint, then undoes or keeps them.
    fn part(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>) -> tidesdb::Result<()> {
        let savepoint: Savepoint = tx.savepoint();
        let from = ops.len();
        for _ in 0..1 + self.random.below(2) {
            self.append(tx, ops)?;
        }
        if self.random.one_in(3) {
            return tx.release(savepoint);
        }
        tx.rollback_to(savepoint)?;
        let undone = |op: &Op| match op {
            Op::Append { key, .. } => Some(Op::Undo { key: *key }),
            _ => None,
        };
        let undos: Vec<Op> = ops[from..].iter().filter_map(undone).collect();
        ops.extend(undos);
        Ok(())
    }
}

fn key(bytes: &[u8]) -> Key {
    Key::from(bytes[0]) << 8 | Key::from(bytes[1])
}

fn list(bytes: &[u8]) -> List {
    bytes.chunks(8).map(number).collect()
}
