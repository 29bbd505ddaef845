//! Random histories: commits, snapshots, transactions, flushes and merges of a few keys.

use std::collections::BTreeSet;

use super::*;
use crate::merge::{MergeCursor, RetainRules};
use crate::types::EntryRef;

/// Number of keys, from `a` on.
pub(super) const KEYS: usize = 3;

/// What was written, who reads it, and where it is stored.
#[derive(Default)]
pub(super) struct History {
    pub(super) seq: SeqNo,
    pub(super) published: SeqNo,
    pub(super) now: u64,
    pub(super) snapshots: BTreeSet<SeqNo>,
    /// Snapshots of transactions that check for conflicts.
    pub(super) transactions: BTreeSet<SeqNo>,
    /// Everything ever written, the newest first.
    pub(super) written: Vec<Version>,
    pub(super) active: Vec<Version>,
    /// Newest first.
    pub(super) runs: Vec<Vec<Version>>,
    /// Entries written with sequence number 0.
    pub(super) renumbered: u64,
}

/// What a rewrite does.
pub(super) struct Rewrite {
    /// The versions of the memtable, or those of neighbouring runs, the newest first.
    pub(super) inputs: Vec<Vec<Version>>,
    /// Whether nothing older is stored.
    pub(super) bottom: bool,
    pub(super) is_flush: bool,
}

pub(super) fn random_key(rng: &mut Rng) -> Vec<u8> {
    vec![b'a' + rng.below(KEYS) as u8]
}

impl History {
    pub(super) fn write(&mut self, version: Version) {
        self.active.insert(0, version.clone());
        self.written.insert(0, version);
    }

    /// Returns the rules of a rewrite that begins now.
    pub(super) fn rules(&self, rng: &mut Rng, bottom: bool, may_renumber: bool) -> RetainRules {
        RetainRules {
            visible_floor: self.published,
            snapshots: self.snapshots.iter().copied().collect(),
            bottom,
            now: (!rng.one_in(3)).then_some(self.now),
            conflicts_since: self.transactions.first().copied(),
            newest_snapshot: self.snapshots.last().copied(),
            renumber: may_renumber && rng.one_in(2),
        }
    }

    /// Returns an entry that a rewrite keeps, and counts it if its number is 0.
    pub(super) fn kept(&mut self, e: &EntryRef<'_>) -> Version {
        self.renumbered += u64::from(e.seq == 0);
        Version { key: e.key.to_vec(), seq: e.seq, kind: e.kind, expiry: e.expiry, value: e.value.to_vec() }
    }

    /// Returns the sequence numbers of all current and possible readers.
    pub(super) fn readers(&self) -> impl Iterator<Item = SeqNo> {
        self.snapshots.iter().copied().chain(self.published..=self.seq)
    }

    /// Returns a cursor over all stored versions.
    pub(super) fn stored(&self, order: &Comparator) -> MergeCursor<VecCursor> {
        let sources = std::iter::once(&self.active).chain(&self.runs);
        let sources = sources.map(|versions| VecCursor::sorted(order, versions.clone())).collect();
        MergeCursor::newest_first(order.clone(), sources)
    }

    fn begin_reader(&mut self, rng: &mut Rng) {
        if rng.one_in(2) {
            self.published = self.seq; // so that no version in a merge is newer than this transaction
            self.transactions.insert(self.seq);
        }
        self.snapshots.insert(self.published);
    }

    fn end_reader(&mut self, rng: &mut Rng) {
        let nth = rng.below(self.snapshots.len() + 1);
        if let Some(s) = self.snapshots.iter().nth(nth).copied() {
            self.snapshots.remove(&s);
            self.transactions.remove(&s);
        }
    }
}

/// A history whose commits and rewrites are those of one test.
pub(super) trait World {
    fn history(&mut self) -> &mut History;

    fn commit(&mut self, rng: &mut Rng);

    /// Returns what is left of the inputs.
    fn rewrite(&mut self, rng: &mut Rng, rewrite: Rewrite) -> Vec<Version>;

    fn flush(&mut self, rng: &mut Rng) {
        let history = self.history();
        let inputs = vec![std::mem::take(&mut history.active)];
        let bottom = history.runs.is_empty();
        let run = self.rewrite(rng, Rewrite { inputs, bottom, is_flush: true });
        self.history().runs.insert(0, run);
    }

    fn merge(&mut self, rng: &mut Rng) {
        let runs = &mut self.history().runs;
        if runs.is_empty() {
            return;
        }
        let from = rng.below(runs.len());
        let to = from + 1 + rng.below(runs.len() - from);
        let bottom = to == runs.len();
        let inputs: Vec<_> = runs.drain(from..to).collect();
        let run = self.rewrite(rng, Rewrite { inputs, bottom, is_flush: false });
        if !run.is_empty() || rng.one_in(2) {
            self.history().runs.insert(from, run);
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        let history = self.history();
        match rng.below(16) {
            0..=6 => self.commit(rng),
            7 => history.published = history.seq,
            8 => history.published += (history.seq - history.published) / 2,
            9 => history.begin_reader(rng),
            10 => history.end_reader(rng),
            11 => history.now += 1,
            12 | 13 => self.flush(rng),
            _ => self.merge(rng),
        }
    }
}
