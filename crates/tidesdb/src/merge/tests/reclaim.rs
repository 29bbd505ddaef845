//! Random histories, snapshots, flushes and merges: no reader may notice that versions are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::history::{History, Rewrite, World as _, random_key};
use super::*;
use crate::memory::Memory;
use crate::merge::{MergeCursor, Retain, RetainRules, RetainStream, VisibleCursor};

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
    history: History,
    promises: BTreeMap<Vec<u8>, Promise>,
    /// Whether the user keeps the promise about single deletes.
    honest: bool,
    dropped: u64,
}

impl history::World for World {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn commit(&mut self, rng: &mut Rng) {
        self.history.seq += 1 + rng.below(2) as u64;
        let mut words: BTreeMap<Vec<u8>, Vec<Kind>> = BTreeMap::new();
        for _ in 0..1 + rng.below(3) {
            let key = random_key(rng);
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
            let mut v = version(&key, self.history.seq, kind);
            v.value.extend(format!("/{}", word.len()).bytes());
            if kind == Kind::Put && rng.one_in(5) {
                v.expiry = self.history.now + rng.below(4) as u64;
            }
            self.history.write(v);
        }
        for (key, word) in words {
            let promise = self.promises.get_mut(&key).unwrap();
            let put = word.last() == Some(&Kind::Put);
            promise.commit_puts = if put { promise.commit_puts + 1 } else { 0 };
        }
    }

    fn rewrite(&mut self, rng: &mut Rng, Rewrite { inputs, bottom, .. }: Rewrite) -> Vec<Version> {
        let rules = self.history.rules(rng, bottom, true);
        let middle = random_key(rng);
        let (mut out, mut seen) = (Vec::new(), 0);
        let mut parts = vec![(middle.clone(), None), (Vec::new(), Some(middle))];
        while let Some((from, end)) = parts.pop() {
            let children = inputs.iter().map(|run| VecCursor::sorted(&self.order, run.clone())).collect();
            let mut merged = MergeCursor::new(self.order.clone(), children);
            merged.seek(&from).unwrap();
            let retain = Retain::new(rules.clone(), self.order.clone());
            let mut stream = RetainStream::new(merged, retain, end.as_deref());
            while let Some(e) = stream.next().unwrap() {
                out.push(self.history.kept(&e));
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
}

impl World {
    fn new(honest: bool) -> Self {
        Self {
            order: Comparator::bytewise(),
            history: History { now: 1, ..History::default() },
            promises: BTreeMap::new(),
            honest,
            dropped: 0,
        }
    }

    /// Checks that every current or possible reader still sees what was written.
    fn check(&self) {
        let history = &self.history;
        let mut stored = VisibleCursor::new(history.stored(&self.order), self.order.clone(), 0, 0);
        let written = VecCursor::sorted(&self.order, history.written.clone());
        let mut written = VisibleCursor::new(written, self.order.clone(), 0, 0);
        for reader in history.readers() {
            set_view(&mut stored, reader, history.now);
            set_view(&mut written, reader, history.now);
            // The value names the version; its number may have become 0.
            let rows = |versions: Vec<Version>| versions.into_iter().map(|v| Version { seq: 0, ..v });
            assert!(rows(all(&mut stored)).eq(rows(all(&mut written))), "reader at {reader}");
        }
        for begun in &history.transactions {
            let stored = history.active.iter().chain(history.runs.iter().flatten());
            let (stored, written) = (written_since(*begun, stored), written_since(*begun, &history.written));
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
        renumbered.set(renumbered.get() + world.history.renumbered);
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
        let history = &mut world.history;
        history.now += 10;
        let mut inputs = vec![std::mem::take(&mut history.active)];
        inputs.append(&mut history.runs);
        let children = inputs.iter().map(|run| VecCursor::sorted(&world.order, run.clone())).collect();
        let mut merged = MergeCursor::new(world.order.clone(), children);
        merged.seek_to_first().unwrap();
        let rules = RetainRules {
            visible_floor: history.seq,
            bottom: true,
            now: Some(history.now),
            ..RetainRules::default()
        };
        let mut stream = RetainStream::new(merged, Retain::new(rules, world.order.clone()), None);
        let mut keys = BTreeSet::new();
        while let Some(e) = stream.next().unwrap() {
            let expired = e.expiry != 0 && e.expiry <= history.now;
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

/// A filter that removed a long value kept the permission for it until the next entry was written: other flushes and merges waited.
#[test]
fn a_long_value_that_a_filter_removes_is_given_back_at_once() {
    use crate::types::{CompactionFilter, Decision};
    let memory = Memory::new(16 << 20);
    let long = |key: &[u8], seq| Version { value: vec![7; 1 << 20], ..put(key, seq) };
    let order = Comparator::bytewise();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (memory_of_filter, shown) = (Arc::clone(&memory), Arc::clone(&seen));
    let filter = CompactionFilter::new("all", move |row| {
        shown.lock().unwrap().push((row.key.len(), memory_of_filter.has_long()));
        Decision::Remove
    });
    let rules = RetainRules { visible_floor: 9, bottom: true, now: Some(5), ..RetainRules::default() };
    let mut cursor =
        VecCursor::sorted(&order, vec![long(b"a", 1), put(b"bb", 2), long(b"ccc", 3), put(b"dddd", 4)]);
    cursor.seek_to_first().unwrap();
    let mut stream = RetainStream::new(cursor, Retain::new(rules, order.clone()), None)
        .sharing(&memory)
        .filtering(Some(filter));
    assert!(stream.next().unwrap().is_none(), "all rows are removed");
    assert_eq!(*seen.lock().unwrap(), [(1, true), (2, false), (3, true), (4, false)]);
    assert!(!memory.has_long());
}
