//! Checks isolation. The checker knows every committed version of each key and their order, so it does not need to
//! infer a graph. For each read it checks that the value is one the level had to return. For each commit it checks that
//! the level did not have to refuse it. For each refusal it checks that there was a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tidesdb::Isolation;

use super::{End, Key, Read, Record, Scan};

/// Findings of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// Violations.
    pub violations: Vec<String>,
    /// Number of commits with writes.
    pub committed: u64,
    /// Number of refused commits.
    pub refused: u64,
    /// Number of lost updates at levels that allow them.
    pub lost_updates: u64,
    /// Number of commits at the snapshot level that a serializable transaction could not have made.
    pub write_skews: u64,
    /// Number of commits at repeatable read whose scans were out of date.
    pub phantoms: u64,
    /// Number of pairs of different reads of a key within one transaction, at levels that allow that.
    pub changed_reads: u64,
}

/// What a commit did to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    /// It wrote this key.
    Key,
    /// It deleted a range that has the key.
    Range,
    /// It wrote the key, then deleted a range that has it.
    Both,
}

/// Whether a commit must find a write, or may find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finds {
    Must,
    May,
}

/// A sequence number, the value of a key from there on, and what wrote it.
type Version = (u64, Option<u64>, By);

/// All committed versions of every key, in ascending order.
struct Versions {
    all: BTreeMap<Key, Vec<Version>>,
    /// Values that were overwritten within the same commit.
    overwritten: BTreeSet<(Key, Option<u64>)>,
}

impl Versions {
    fn of(records: &[Record], base: &BTreeMap<Key, u64>) -> Self {
        let mut all: BTreeMap<Key, Vec<Version>> =
            base.iter().map(|(key, value)| (*key, vec![(0, Some(*value), By::Key)])).collect();
        for record in records {
            if let End::Committed(seq) = record.end {
                for (key, value) in &record.writes {
                    let by = match record.ranged.get(key) {
                        None => By::Key,
                        Some(false) => By::Range,
                        Some(true) => By::Both,
                    };
                    all.entry(*key).or_default().push((seq, *value, by));
                }
            }
        }
        all.values_mut().for_each(|versions| versions.sort_unstable());
        let committed = records.iter().filter(|record| matches!(record.end, End::Committed(_)));
        Self { all, overwritten: committed.flat_map(|record| record.overwritten.iter().copied()).collect() }
    }

    fn at(&self, key: Key, seq: u64) -> Option<u64> {
        let versions = self.all.get(&key)?;
        let before = versions.partition_point(|(at, ..)| *at <= seq);
        versions.get(before.checked_sub(1)?)?.1
    }

    /// Returns true if a commit must find, or may find, that `key` was written at a sequence number in `from < seq < to`. A range
    /// delete is a write of the keys that had a value at `from`. Of the others it may remove older versions, which are
    /// then not found.
    fn written(&self, key: Key, (from, to): (u64, u64), finds: Finds) -> bool {
        let versions = self.all.get(&key).map_or(&[][..], Vec::as_slice);
        let next = versions.partition_point(|(at, ..)| *at <= from);
        let end = versions.partition_point(|(at, ..)| *at < to).max(next);
        let existed = self.at(key, from).is_some();
        let mut during = versions[next..end].iter().map(|(.., by)| *by);
        match finds {
            Finds::Must => during.next_back().is_some_and(|by| existed || by == By::Key),
            Finds::May => during.any(|by| existed || by != By::Range),
        }
    }

    fn walk(&self, walk: &Scan, seq: u64) -> Vec<(Key, u64)> {
        let keys = self.all.range((Bound::Included(walk.low), Bound::Excluded(walk.high)));
        let others = keys.map(|(key, _)| *key).filter(|key| !walk.own.contains(key));
        others.filter_map(|key| self.at(key, seq).map(|value| (key, value))).collect()
    }

    fn written_into(&self, walk: &Scan, during: (u64, u64), finds: Finds) -> bool {
        let mut keys = self.all.range((Bound::Included(walk.low), Bound::Excluded(walk.high)));
        keys.any(|(key, _)| self.written(*key, during, finds))
    }

    /// Returns `from`, and the sequence numbers in `from..=to` at which one of `keys` changed.
    fn moments(&self, keys: impl Iterator<Item = Key>, (from, to): (u64, u64)) -> Vec<u64> {
        let mut out = vec![from];
        for key in keys {
            let versions = self.all.get(&key).map_or(&[][..], Vec::as_slice);
            out.extend(versions.iter().map(|(at, ..)| *at).filter(|at| *at > from && *at <= to));
        }
        out
    }
}

/// Checks all transactions of a database that initially held `base`. The records of one thread must be in order.
pub fn check(records: &[Record], base: &BTreeMap<Key, u64>) -> Findings {
    let versions = Versions::of(records, base);
    let mut found = Findings::default();
    let mut last_commit: BTreeMap<usize, u64> = BTreeMap::new();
    for (n, record) in records.iter().enumerate() {
        let mut wrong =
            |what: String| found.violations.push(format!("transaction {n}, {:?}: {what}", record.level));
        check_reads(record, &versions, &mut wrong);
        let before = last_commit.get(&record.thread).copied().unwrap_or(0);
        if record.snapshot.is_some_and(|s| s < before) {
            wrong(format!("its snapshot misses {before}, a commit of the same thread"));
        }
        if let End::Committed(seq) = record.end
            && !record.writes.is_empty()
        {
            last_commit.insert(record.thread, seq);
        }
        check_end(record, &versions, &mut wrong);
        count(record, &versions, &mut found);
    }
    found
}

fn check_reads(record: &Record, versions: &Versions, wrong: &mut impl FnMut(String)) {
    for read in &record.reads {
        let good = match record.snapshot {
            Some(seq) => versions.at(read.key, seq) == read.value,
            None => loosely(record.level, versions, read),
        };
        if !good {
            wrong(format!("read {read:?} at {:?}", record.snapshot));
        }
    }
    for walk in &record.walks {
        let good = match record.snapshot {
            Some(seq) => versions.walk(walk, seq) == walk.found,
            None if record.level == Isolation::ReadCommitted => {
                let moments = versions.moments(walk.low..walk.high, walk.moment);
                moments.into_iter().any(|seq| versions.walk(walk, seq) == walk.found)
            }
            None => walk.found.iter().all(|(key, value)| {
                let read = Read { key: *key, value: Some(*value), moment: walk.moment };
                loosely(record.level, versions, &read)
            }),
        };
        if !good {
            wrong(format!("scanned {walk:?} at {:?}", record.snapshot));
        }
    }
}

/// Checks a read without a snapshot: it must return what was committed at some time during the read, or, at
/// `ReadUncommitted`, at any time from its start on.
fn loosely(level: Isolation, versions: &Versions, read: &Read) -> bool {
    let (from, to) = read.moment;
    let to = if level == Isolation::ReadUncommitted { u64::MAX } else { to };
    let mut moments = versions.moments(std::iter::once(read.key), (from, to)).into_iter();
    let between = || versions.overwritten.contains(&(read.key, read.value));
    moments.any(|seq| versions.at(read.key, seq) == read.value)
        || (level == Isolation::ReadUncommitted && between())
}

/// Returns true if data protected by the level was written during `during`.
fn disturbed(record: &Record, versions: &Versions, during: (u64, u64), finds: Finds) -> bool {
    match record.level {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => false,
        Isolation::Snapshot => record.writes.keys().any(|key| versions.written(*key, during, finds)),
        Isolation::RepeatableRead => {
            let seen = |walk: &Scan| {
                let mut keys = (walk.low..walk.high).filter(|key| versions.at(*key, during.0).is_some());
                keys.any(|key| versions.written(key, during, finds))
            };
            record.reads.iter().any(|read| versions.written(read.key, during, finds))
                || record.walks.iter().any(seen)
        }
        Isolation::Serializable => untrue(record, versions, during, finds),
    }
}

/// Returns true if anything that the transaction read was written during `during`.
fn untrue(record: &Record, versions: &Versions, during: (u64, u64), finds: Finds) -> bool {
    record.reads.iter().any(|read| versions.written(read.key, during, finds))
        || record.walks.iter().any(|walk| versions.written_into(walk, during, finds))
}

fn check_end(record: &Record, versions: &Versions, wrong: &mut impl FnMut(String)) {
    let Some(snapshot) = record.snapshot else {
        if matches!(record.end, End::Refused(_)) {
            wrong("refused, at a level that refuses nothing".to_owned());
        }
        return;
    };
    match record.end {
        End::Committed(seq) if !record.writes.is_empty() => {
            if disturbed(record, versions, (snapshot, seq), Finds::Must) {
                wrong(format!("committed at {seq} despite a conflict since {snapshot}: {record:?}"));
            }
        }
        End::Refused(seen) => {
            if record.writes.is_empty() {
                wrong("refused although it wrote nothing".to_owned());
            }
            if !disturbed(record, versions, (snapshot, seen + 1), Finds::May) {
                wrong(format!("refused for no reason between {snapshot} and {seen}: {record:?}"));
            }
        }
        End::Committed(_) | End::RolledBack => {}
    }
}

/// Counts anomalies that weak levels allow. They must occur; otherwise the transactions were not concurrent.
fn count(record: &Record, versions: &Versions, found: &mut Findings) {
    let mut reads: Vec<&Read> = record.reads.iter().collect();
    reads.sort_by_key(|read| read.key);
    found.changed_reads +=
        reads.windows(2).filter(|w| w[0].key == w[1].key && w[0].value != w[1].value).count() as u64;
    match record.end {
        End::Refused(_) => found.refused += 1,
        End::Committed(seq) if !record.writes.is_empty() => {
            found.committed += 1;
            let lost = |read: &&Read| {
                record.writes.contains_key(&read.key)
                    && versions.written(read.key, (read.moment.1, seq), Finds::Must)
            };
            match (record.level, record.snapshot) {
                (Isolation::ReadCommitted, _) => {
                    found.lost_updates += record.reads.iter().filter(lost).count() as u64;
                }
                (Isolation::Snapshot, Some(s)) => {
                    found.write_skews += u64::from(untrue(record, versions, (s, seq), Finds::Must))
                }
                (Isolation::RepeatableRead, Some(s)) => {
                    let changed = |walk: &Scan| versions.written_into(walk, (s, seq), Finds::Must);
                    found.phantoms += u64::from(record.walks.iter().any(changed));
                }
                _ => {}
            }
        }
        End::Committed(_) | End::RolledBack => {}
    }
}
