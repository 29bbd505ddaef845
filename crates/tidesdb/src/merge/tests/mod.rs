//! Helpers of these tests: a cursor over a vector, and a simple model of the merged order.

mod dead;
mod history;
mod level;
mod merge;
mod operands;
mod reclaim;
mod rules;
mod visible;

use std::cmp::Ordering;
use std::sync::Arc;

use super::{LevelCursor, LevelTable, VisibleCursor};
use crate::types::{Comparator, EntryCursor, EntryMeta, Kind, ReadPoint, Rows, Scope, SeqNo, Stored};
use crate::{Error, Result};

/// An owned version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) key: Vec<u8>,
    pub(super) seq: SeqNo,
    pub(super) kind: Kind,
    pub(super) expiry: u64,
    pub(super) value: Vec<u8>,
}

pub(super) fn version(key: &[u8], seq: SeqNo, kind: Kind) -> Version {
    let value = if kind.is_tombstone() { Vec::new() } else { format!("v{seq}").into_bytes() };
    Version { key: key.to_vec(), seq, kind, expiry: 0, value }
}

pub(super) fn put(key: &[u8], seq: SeqNo) -> Version {
    version(key, seq, Kind::Put)
}

pub(super) fn order(compare: &Comparator, a: &Version, b: &Version) -> Ordering {
    compare.compare(&a.key, &b.key).then(b.seq.cmp(&a.seq))
}

/// Iterates over a sorted vector. Can be set to fail at an entry, and to disable its filter.
#[derive(Clone, Debug)]
pub(super) struct VecCursor {
    compare: Comparator,
    run: Arc<[Version]>,
    at: Option<usize>,
    /// Reaching this entry fails.
    pub(super) fails_at: Option<usize>,
    /// Whether `may_contain` is exact, or always `true`.
    pub(super) filter: bool,
    pub(super) seeks: usize,
    pub(super) steps: usize,
}

impl VecCursor {
    pub(super) fn new(compare: &Comparator, run: Arc<[Version]>) -> Self {
        assert!(run.is_sorted_by(|a, b| order(compare, a, b).is_le()));
        Self { compare: compare.clone(), run, at: None, fails_at: None, filter: true, seeks: 0, steps: 0 }
    }

    /// Sorts `entries` stably and returns a cursor over them.
    pub(super) fn sorted(compare: &Comparator, mut entries: Vec<Version>) -> Self {
        entries.sort_by(|a, b| order(compare, a, b));
        Self::new(compare, entries.into())
    }

    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.filter(|&i| i < self.run.len());
        if self.at.is_some() && self.at == self.fails_at {
            self.at = None;
            return Err(Error::corrupt("run", 7, "planted"));
        }
        Ok(())
    }

    fn standing(&self) -> &Version {
        &self.run[self.at.expect("valid")]
    }
}

impl EntryCursor for VecCursor {
    fn may_contain(&self, key: &[u8]) -> bool {
        !self.filter || self.run.iter().any(|v| v.key == key)
    }
    fn set_scope(&mut self, _: &Scope) {}
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.run.len().checked_sub(1))
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.seeks += 1;
        let at = self.run.partition_point(|v| self.compare.compare(&v.key, target).is_lt());
        self.go(Some(at))
    }
    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        self.seeks += 1;
        let order = |v: &Version| self.compare.compare(&v.key, target).then(seq.cmp(&v.seq));
        let at = self.run.partition_point(|v| order(v).is_lt());
        self.go(Some(at))
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.seeks += 1;
        let end = self.run.partition_point(|v| self.compare.compare(&v.key, target).is_le());
        self.go(end.checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.steps += 1;
        let at = self.at.expect("next on a cursor that is not valid");
        self.go(Some(at + 1))
    }
    fn next_key(&mut self) -> Result<()> {
        self.steps += 1;
        let key = &self.standing().key;
        let end = self.run.partition_point(|v| self.compare.compare(&v.key, key).is_le());
        self.go(Some(end))
    }
    fn next_key_past_alike(&mut self) -> Option<u64> {
        let at = self.at?;
        let Version { key, kind, expiry, .. } = &self.run[at];
        let end = self.run.partition_point(|v| self.compare.compare(&v.key, key).is_le());
        let versions = &self.run[at..end];
        // A memtable has no two versions of a key with one number and one kind.
        let alike = *expiry == 0
            && versions.iter().all(|v| (v.kind, v.expiry) == (*kind, 0))
            && versions.windows(2).all(|pair| pair[0].seq != pair[1].seq);
        if !alike || self.fails_at.is_some_and(|fails| (at..=end).contains(&fails)) {
            return None;
        }
        self.at = Some(end).filter(|end| *end < self.run.len());
        Some((end - at - 1) as u64)
    }
    fn prev(&mut self) -> Result<()> {
        self.steps += 1;
        let at = self.at.expect("prev on a cursor that is not valid");
        self.go(at.checked_sub(1))
    }
    fn key(&self) -> &[u8] {
        &self.standing().key
    }
    fn entry_meta(&self) -> EntryMeta {
        let Version { seq, kind, expiry, .. } = *self.standing();
        EntryMeta::new(seq, kind, expiry)
    }
    fn value_len(&self) -> usize {
        self.standing().value.len()
    }
    fn entry(&mut self) -> Result<Stored<'_>> {
        let Version { key, kind, value, .. } = self.standing();
        Ok((key, *kind, value))
    }
}

/// Changes the sequence number and time at which `cursor` reads. It must be positioned again.
pub(super) fn set_view<C>(cursor: &mut VisibleCursor<C>, snapshot: SeqNo, now: u64) {
    (cursor.snapshot, cursor.now) = (snapshot, now);
}

/// A table of a level: a sorted vector.
#[derive(Clone, Debug)]
pub(super) struct VecTable {
    compare: Comparator,
    run: Arc<[Version]>,
}

impl VecTable {
    pub(super) fn new(compare: &Comparator, run: Arc<[Version]>) -> Self {
        Self { compare: compare.clone(), run }
    }
}

impl LevelTable for VecTable {
    type Cursor = VecCursor;
    fn smallest(&self) -> &[u8] {
        &self.run.first().expect("a table has entries").key
    }
    fn largest(&self) -> &[u8] {
        &self.run.last().expect("a table has entries").key
    }
    fn cursor(&self) -> VecCursor {
        VecCursor::new(&self.compare, Arc::clone(&self.run))
    }
}

/// Cuts a sorted run into tables of about `size` entries, never within a key.
pub(super) fn cut(compare: &Comparator, run: &[Version], size: usize) -> Arc<[VecTable]> {
    let mut tables = Vec::new();
    let mut table: Vec<Version> = Vec::new();
    for v in run {
        let new_key = table.last().is_some_and(|last| compare.compare(&last.key, &v.key).is_ne());
        if new_key && table.len() >= size {
            tables.push(VecTable::new(compare, std::mem::take(&mut table).into()));
        }
        table.push(v.clone());
    }
    if !table.is_empty() {
        tables.push(VecTable::new(compare, table.into()));
    }
    tables.into()
}

/// Any kind of source that the engine has.
pub(super) enum Source {
    Run(VecCursor),
    Level(LevelCursor<Arc<[VecTable]>>),
}

macro_rules! forward {
    ($self:ident, $c:ident => $e:expr) => {
        match $self {
            Source::Run($c) => $e,
            Source::Level($c) => $e,
        }
    };
}

impl EntryCursor for Source {
    fn may_contain(&self, key: &[u8]) -> bool {
        forward!(self, c => c.may_contain(key))
    }
    fn set_scope(&mut self, scope: &Scope) {
        forward!(self, c => c.set_scope(scope));
    }
    fn skip_older(&mut self, below: SeqNo, until: Option<&[u8]>) -> Result<()> {
        forward!(self, c => c.skip_older(below, until))
    }
    fn copy_rows(&mut self, reader: ReadPoint, until: Option<&[u8]>, rows: &mut Rows) -> Result<()> {
        forward!(self, c => c.copy_rows(reader, until, rows))
    }
    fn valid(&self) -> bool {
        forward!(self, c => c.valid())
    }
    fn seek_to_first(&mut self) -> Result<()> {
        forward!(self, c => c.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        forward!(self, c => c.seek_to_last())
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        forward!(self, c => c.seek(target))
    }
    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        forward!(self, c => c.seek_version(target, seq))
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        forward!(self, c => c.seek_for_prev(target))
    }
    fn next(&mut self) -> Result<()> {
        forward!(self, c => c.next())
    }
    fn next_key(&mut self) -> Result<()> {
        forward!(self, c => c.next_key())
    }
    fn prev(&mut self) -> Result<()> {
        forward!(self, c => c.prev())
    }
    fn key(&self) -> &[u8] {
        forward!(self, c => c.key())
    }
    fn entry_meta(&self) -> EntryMeta {
        forward!(self, c => c.entry_meta())
    }
    fn entry(&mut self) -> Result<Stored<'_>> {
        forward!(self, c => c.entry())
    }
}

/// Returns the current entry of a cursor.
pub(super) fn entry<C: EntryCursor>(cursor: &mut C) -> Option<Version> {
    cursor.valid().then(|| {
        let (seq, kind, expiry) = cursor.entry_meta().parts();
        let (key, stored, value) = cursor.entry().unwrap();
        assert_eq!(kind, stored);
        Version { key: key.to_vec(), seq, kind, expiry, value: value.to_vec() }
    })
}

/// Returns all entries from the first one on.
pub(super) fn all<C: EntryCursor>(cursor: &mut C) -> Vec<Version> {
    let mut out = Vec::new();
    cursor.seek_to_first().unwrap();
    while let Some(v) = entry(cursor) {
        out.push(v);
        cursor.next().unwrap();
    }
    out
}

/// A reproducible generator (SplitMix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// Returns a number below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Runs `body` with `cases` seeds and prints the seed that fails.
pub(super) fn with_seeds(cases: u64, body: impl Fn(&mut Rng)) {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let seeds = first.map_or(0..cases, |s: u64| s..s + 1);
    for seed in seeds {
        let run = std::panic::AssertUnwindSafe(|| body(&mut Rng(seed)));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("failed with SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
