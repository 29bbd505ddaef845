//! Random histories, snapshots, flushes and merges: no reader may notice that versions are dropped.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::merge::{MergeCursor, Retain, RetainRules, RetainStream, VisibleCursor};

const KEYS: usize = 3;

/// State a user must track to use single deletes correctly.
#[derive(Clone, Copy, Default)]
struct Promise {
    /// Puts since the last delete, counting every operation.
    puts: u32,
    /// The same, counting only the last operation of each commit.
    commit_puts: u32,
}

struct World {
    order: Comparator,
    seq: SeqNo,
    published: SeqNo,
    now: u32,
    snapshots: BTreeSet<SeqNo>,
    /// Snapshots of transactions that check for conflicts.
    transactions: BTreeSet<SeqNo>,
    /// Everything ever written; newest first within a commit when sorted.
    history: Vec<Version>,
    active: Vec<Version>,
    /// Newest first.
    runs: Vec<Vec<Version>>,
    promises: BTreeMap<Vec<u8>, Promise>,
    /// Whether the user keeps the promise about single deletes.
    honest: bool,
    dropped: u64,
    renumbered: u64,
}

impl World {
    fn new(honest: bool) -> Self {
        Self {
            order: Comparator::bytewise(),
            seq: 0,
            published: 0,
            now: 1,
            snapshots: BTreeSet::new(),
            transactions: BTreeSet::new(),
            history: Vec::new(),
            active: Vec::new(),
            runs: Vec::new(),
            promises: BTreeMap::new(),
            honest,
            dropped: 0,
            renumbered: 0,
        }
    }

    fn commit(&mut self, rng: &mut Rng) {
        self.seq += 1 + rng.below(2) as u64;
        let mut words: BTreeMap<Vec<u8>, Vec<Kind>> = BTreeMap::new();
        for _ in 0..1 + rng.below(3) {
            let key = vec![b'a' + rng.below(KEYS) as u8];
            let word = words.entry(key.clone()).or_default();
            let promise = self.promises.entry(key.clone()).or_default();
            let deleted = word.iter().any(|k| k.is_tombstone());
            let puts = u32::from(word.contains(&Kind::Put));
            let may = promise.puts <= 1 && (deleted || promise.commit_puts + puts <= 1);
            let kind = match rng.below(6) {
                0 => Kind::Delete,
                1 | 2 if may || !self.honest => Kind::SingleDelete,
                _ => Kind::Put,
            };
            promise.puts = if kind == Kind::Put { promise.puts + 1 } else { 0 };
            word.push(kind);
            let mut v = version(&key, self.seq, kind);
            v.value.extend(format!("/{}", word.len()).bytes());
            if kind == Kind::Put && rng.one_in(5) {
                v.expiry = self.now + rng.below(4) as u32;
            }
            self.active.insert(0, v.clone());
            self.history.insert(0, v);
        }
        for (key, word) in words {
            let promise = self.promises.get_mut(&key).unwrap();
            let put = word.last() == Some(&Kind::Put);
            promise.commit_puts = if put { promise.commit_puts + 1 } else { 0 };
        }
    }

    fn rewrite(&mut self, rng: &mut Rng, inputs: Vec<Vec<Version>>, bottom: bool) -> Vec<Version> {
        let rules = RetainRules {
            visible_floor: self.published,
            snapshots: self.snapshots.iter().copied().collect(),
            bottom,
            now: (!rng.one_in(3)).then_some(self.now),
            conflicts_since: self.transactions.first().copied(),
            newest_snapshot: None,
            renumber: rng.one_in(2),
        };
        let middle = vec![b'a' + rng.below(KEYS) as u8];
        let (mut out, mut seen) = (Vec::new(), 0);
        let mut parts = vec![(middle.clone(), None), (Vec::new(), Some(middle))];
        while let Some((from, end)) = parts.pop() {
            let children = inputs.iter().map(|run| VecCursor::sorted(&self.order, run.clone())).collect();
            let mut merged = MergeCursor::new(self.order.clone(), children);
            merged.seek(&from).unwrap();
            let retain = Retain::new(rules.clone(), self.order.clone());
            let mut stream = RetainStream::new(merged, retain, end.as_deref());
            while let Some(e) = stream.next().unwrap() {
                let (key, value) = (e.key.to_vec(), e.value.to_vec());
                self.renumbered += u64::from(e.seq == 0);
                out.push(Version { key, seq: e.seq, kind: e.kind, expiry: e.expiry, value });
                if rng.one_in(6) {
                    stream.end_after_key();
                }
            }
            parts.extend(stream.rest().map(|rest| (rest.to_vec(), end.clone())));
            let counts = stream.counts();
            assert_eq!(counts.seen, counts.kept + counts.dropped_in_all());
            self.dropped += counts.dropped_in_all();
            seen += counts.seen;
        }
        assert_eq!(seen, inputs.iter().map(|run| run.len() as u64).sum(), "each entry is in one part");
        assert!(
            out.is_sorted_by(|a, b| order(&self.order, a, b).is_lt()),
            "the output must be sorted and have no version twice"
        );
        out
    }

    fn flush(&mut self, rng: &mut Rng) {
        let active = std::mem::take(&mut self.active);
        let bottom = self.runs.is_empty();
        let run = self.rewrite(rng, vec![active], bottom);
        self.runs.insert(0, run);
    }

    fn merge(&mut self, rng: &mut Rng) {
        if self.runs.is_empty() {
            return;
        }
        let from = rng.below(self.runs.len());
        let to = from + 1 + rng.below(self.runs.len() - from);
        let bottom = to == self.runs.len();
        let inputs: Vec<_> = self.runs.drain(from..to).collect();
        let run = self.rewrite(rng, inputs, bottom);
        if !run.is_empty() || rng.one_in(2) {
            self.runs.insert(from, run);
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(16) {
            0..=6 => self.commit(rng),
            7 => self.published = self.seq,
            8 => self.published += (self.seq - self.published) / 2,
            9 => {
                if rng.one_in(2) {
                    self.published = self.seq; // so that no version in a merge is newer than this transaction
                    self.transactions.insert(self.seq);
                }
                self.snapshots.insert(self.published);
            }
            10 => {
                let nth = rng.below(self.snapshots.len() + 1);
                if let Some(s) = self.snapshots.iter().nth(nth).copied() {
                    self.snapshots.remove(&s);
                    self.transactions.remove(&s);
                }
            }
            11 => self.now += 1,
            12 | 13 => self.flush(rng),
            _ => self.merge(rng),
        }
    }

    /// Checks that every current or possible reader still sees what was written.
    fn check(&self) {
        let mut sources = vec![VecCursor::sorted(&self.order, self.active.clone())];
        sources.extend(self.runs.iter().map(|run| VecCursor::sorted(&self.order, run.clone())));
        let merged = MergeCursor::newest_first(self.order.clone(), sources);
        let mut stored = VisibleCursor::new(merged, self.order.clone(), 0, 0);
        let written = VecCursor::sorted(&self.order, self.history.clone());
        let mut written = VisibleCursor::new(written, self.order.clone(), 0, 0);
        for reader in self.snapshots.iter().copied().chain(self.published..=self.seq) {
            stored.set_view(reader, self.now);
            written.set_view(reader, self.now);
            // The value names the version; its number may have become 0.
            let rows = |versions: Vec<Version>| versions.into_iter().map(|v| Version { seq: 0, ..v });
            assert!(rows(all(&mut stored)).eq(rows(all(&mut written))), "reader at {reader}");
        }
        for begun in &self.transactions {
            let stored = self.active.iter().chain(self.runs.iter().flatten());
            let (stored, written) = (written_since(*begun, stored), written_since(*begun, &self.history));
            assert_eq!(stored, written, "conflicts of a transaction at {begun}");
        }
    }
}

/// Returns the keys with a version newer than `begun`.
fn written_since<'v>(begun: SeqNo, versions: impl IntoIterator<Item = &'v Version>) -> BTreeSet<Vec<u8>> {
    versions.into_iter().filter(|v| v.seq > begun).map(|v| v.key.clone()).collect()
}

#[test]
fn no_reader_notices_what_is_dropped() {
    let (dropped, renumbered) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    with_seeds(2500, |rng| {
        let mut world = World::new(true);
        for _ in 0..80 {
            world.step(rng);
            world.check();
        }
        dropped.set(dropped.get() + world.dropped);
        renumbered.set(renumbered.get() + world.renumbered);
    });
    assert!(dropped.get() > 1000 && renumbered.get() > 1000);
}

#[test]
fn without_older_readers_the_bottom_level_keeps_no_dead_version() {
    with_seeds(500, |rng| {
        let mut world = World::new(true);
        for _ in 0..60 {
            world.step(rng);
        }
        world.snapshots.clear();
        world.transactions.clear();
        world.published = world.seq;
        world.now += 10;
        let mut inputs = vec![std::mem::take(&mut world.active)];
        inputs.append(&mut world.runs);
        let children = inputs.iter().map(|run| VecCursor::sorted(&world.order, run.clone())).collect();
        let mut merged = MergeCursor::new(world.order.clone(), children);
        merged.seek_to_first().unwrap();
        let rules = RetainRules {
            visible_floor: world.seq,
            bottom: true,
            now: Some(world.now),
            ..RetainRules::default()
        };
        let mut stream = RetainStream::new(merged, Retain::new(rules, world.order.clone()), None);
        let mut keys = BTreeSet::new();
        while let Some(e) = stream.next().unwrap() {
            let expired = e.expiry != 0 && e.expiry <= world.now;
            assert!(!e.kind.is_tombstone() && !expired, "only visible versions may be left");
            assert!(keys.insert(e.key.to_vec()), "only one version of each key may be left");
        }
    });
}

#[test]
fn wrong_use_of_single_deletes_keeps_the_counts_and_the_order() {
    with_seeds(500, |rng| {
        let mut world = World::new(false);
        for _ in 0..80 {
            world.step(rng);
        }
    });
}
