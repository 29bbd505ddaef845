//! What a memtable tells without a look at anything else: its runs of tombstones, and how far what is known of them goes.

use std::sync::Arc;

use tidesdb_memtable::Memtable;

use crate::family::{FamilyCore, Run};
use crate::ranges::RangeTombstone;
use crate::sources::Source;
use crate::types::{Comparator, EntryCursor, SeqNo};

/// Tombstones in a row from which on they are looked at.
pub(super) const RUN_MIN: usize = 4096;
/// Tombstones of a run for each mark.
const MARK_EVERY: usize = 4096;

/// A run and the keys of its memtable around it, which are not deleted.
pub(super) struct Stretch {
    before: Option<Vec<u8>>,
    pub(super) run: Run,
    after: Option<Vec<u8>>,
}

impl Stretch {
    /// What of `desert` lies between the two, for readers at `seq`, if anything does.
    fn clip(&self, order: &Comparator, desert: &RangeTombstone, seq: SeqNo) -> Option<RangeTombstone> {
        let mut clipped = RangeTombstone { seq, ..desert.clone() };
        let begins_before =
            |key: &Vec<u8>| desert.start.as_ref().is_none_or(|s| order.compare(s, key).is_le());
        if self.before.as_ref().is_some_and(begins_before) {
            clipped.start = Some(self.run.marks[0].as_slice().into());
        }
        let ends_behind = |key: &&Vec<u8>| desert.end.as_ref().is_none_or(|e| order.compare(key, e).is_lt());
        if let Some(after) = self.after.as_ref().filter(ends_behind) {
            clipped.end = Some(after.as_slice().into());
        }
        let is_empty = match (&clipped.start, &clipped.end) {
            (Some(start), Some(end)) => order.compare(start, end).is_ge(),
            _ => false,
        };
        (!is_empty).then_some(clipped)
    }
}

/// Deserts that were learned while the memtable of `stretch` was written, at numbers from just below `from` on, and before `boundary`,
/// are deserts for readers at the boundary, too: what the memtable holds there are tombstones, and of keys that it does not hold
/// nothing was written. So they become one, and readers pass over the whole table that the memtable became.
pub(super) fn raise(family: &FamilyCore, stretch: &Stretch, (from, boundary): (SeqNo, SeqNo)) {
    let order = &family.options.comparator;
    let meanwhile = |t: &&Arc<RangeTombstone>| (from..=boundary).contains(&(t.seq + 1));
    let known = family.deserts.to_owned();
    let mut parts: Vec<RangeTombstone> =
        known.iter().filter(meanwhile).filter_map(|t| stretch.clip(order, t, boundary - 1)).collect();
    parts.sort_by(|a, b| match (&a.start, &b.start) {
        (Some(a), Some(b)) => order.compare(a, b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    });
    let mut joined: Option<RangeTombstone> = None;
    for part in parts {
        match &mut joined {
            Some(whole) if touches(order, whole, &part) => {
                if whole.end.as_ref().is_some_and(|_| !reaches(order, whole, &part)) {
                    whole.end = part.end;
                }
            }
            _ => joined.replace(part).into_iter().for_each(|whole| family.learn_desert(whole)),
        }
    }
    joined.into_iter().for_each(|whole| family.learn_desert(whole));
}

/// Whether `b`, which does not begin before `a`, begins within it or at its end.
fn touches(order: &Comparator, a: &RangeTombstone, b: &RangeTombstone) -> bool {
    match (&a.end, &b.start) {
        (Some(end), Some(start)) => order.compare(start, end).is_le(),
        _ => true,
    }
}

/// Whether `a` ends no earlier than `b`.
fn reaches(order: &Comparator, a: &RangeTombstone, b: &RangeTombstone) -> bool {
    match (&a.end, &b.end) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(a), Some(b)) => order.compare(a, b).is_ge(),
    }
}

/// The runs of tombstones in `map`.
pub(super) fn survey(map: &Arc<Memtable>) -> Vec<Stretch> {
    let mut found = Vec::new();
    let mut cursor = Source::memtable(map);
    let mut run = Run::default();
    let mut before: Option<Vec<u8>> = None;
    let mut length = 0;
    let _ = cursor.seek_to_first(); // a memtable does not fail
    while cursor.valid() {
        if cursor.kind().is_tombstone() {
            if length % MARK_EVERY == 0 {
                run.marks.push(cursor.key().to_vec());
            }
            length += 1;
            if length >= RUN_MIN {
                run.last.clear();
                run.last.extend_from_slice(cursor.key());
            }
        } else {
            if length >= RUN_MIN {
                let after = Some(cursor.key().to_vec());
                found.push(Stretch { before: before.take(), run: std::mem::take(&mut run), after });
            }
            run.marks.clear();
            length = 0;
            let before = before.get_or_insert_default();
            before.clear();
            before.extend_from_slice(cursor.key());
        }
        let _ = cursor.next_key();
    }
    if length >= RUN_MIN {
        found.push(Stretch { before, run, after: None });
    }
    found
}
