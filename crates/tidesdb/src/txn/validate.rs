//! Checks whether another commit, since a snapshot, wrote into what a transaction depends on.
//!
//! Only memtables and tables that can hold a version newer than the snapshot are searched. The cost follows the
//! footprint of the transaction: one lookup per key, one scan per interval. Intervals are disjoint, and sorted by family and key.

use std::ops::Bound;
use std::sync::Arc;

use tidesdb_sync::pin;

use super::footprint::Footprint;
use crate::family::{FamilyCore, Metric, ReadView};
use crate::ranges::RangeSet;
use crate::read::{Span, is_before, merge_spans, newest_range, newest_version, sees, show_keys};
use crate::sources::Source;
use crate::types::{Between, Comparator, EntryCursor, ReadPoint, SEQ_MAX};
use crate::write::{Op, WriteBatch};
use crate::{Error, Result};

/// What the commit of a transaction depends on, in addition to the keys it writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depends<'a> {
    /// Keys read.
    pub(super) reads: Option<&'a Footprint>,
    /// Intervals read.
    pub(super) spans: &'a [Span],
    /// Within the intervals, count only keys that the transaction saw, not keys inserted since.
    pub(super) seen_only: bool,
}

impl Depends<'_> {
    /// Returns true if the commit depends on any key or interval read.
    pub(super) fn on_reads(&self) -> bool {
        self.reads.is_some_and(|reads| reads.points().next().is_some()) || !self.spans.is_empty()
    }

    /// Checks that none of these keys and intervals, nor any key of `writes`, has a version within `during` (both ends
    /// excluded). The transaction read at `then`, its snapshot and the time at which it began: a row that has expired since
    /// is still treated as visible, because the transaction may have read it.
    ///
    /// # Errors
    /// `Conflict`, naming a key that has one. `Corrupt`, `Io`: the check could not be completed.
    pub(super) fn check_unchanged(
        &self,
        writes: Option<&WriteBatch>,
        then: ReadPoint,
        during: Between,
    ) -> Result<()> {
        if let Some(batch) = writes {
            let mut deleted = Vec::new();
            for op in batch.ops_from(0) {
                let op = op?;
                let Some(family) = batch.family(op.family) else { continue };
                if op.kind.is_range() {
                    deleted.push(span_of(family, &op));
                } else {
                    check_key(family, op.key, then, during)?;
                }
            }
            merge_spans(&mut deleted);
            Depends { reads: None, spans: &deleted, seen_only: false }.check_spans(then, during)?;
        }
        let Some(reads) = self.reads else { return Ok(()) };
        for (family, key) in reads.points() {
            check_key(family, key, then, during)?;
        }
        self.check_spans(then, during)
    }

    fn check_spans(&self, then: ReadPoint, during: Between) -> Result<()> {
        for spans in self.spans.chunk_by(|a, b| a.family.id == b.family.id) {
            if let Some(key) = self.written_into(spans, then, during)? {
                return Err(conflict(&spans[0].family, &key));
            }
        }
        Ok(())
    }

    /// Returns a key that was written in one of `spans`, which are of one family.
    fn written_into(&self, spans: &[Span], then: ReadPoint, during: Between) -> Result<Option<Vec<u8>>> {
        let [Span { family, .. }, ..] = spans else { return Ok(None) };
        let view = family.owned_view();
        if let Some(key) = deleted_from(&view, family, spans, then, during)? {
            return Ok(Some(key));
        }
        let order = view.version.order();
        let mut sources: Vec<Source> =
            view.memtables_since(during.after).flat_map(|slot| slot.sources(order)).collect();
        let tables = view.version.tables().filter(|slot| slot.meta().max_seq > during.after);
        sources.extend(tables.map(Source::table));
        let counts = |key: &[u8]| Ok(!self.seen_only || sees(&view, key, then, &pin())?);
        for source in &mut sources {
            for span in spans {
                if found_in(source, span, during, counts)? {
                    return Ok(Some(source.key().to_vec()));
                }
            }
        }
        Ok(None)
    }
}

fn conflict(family: &FamilyCore, key: &[u8]) -> Error {
    family.count(Metric::Conflicts, 1);
    Error::Conflict { family: family.name(), key: key.into() }
}

/// Fails if `key` has a version within `during`, or if a range tombstone within `during` deleted a value that the
/// snapshot shows.
fn check_key(family: &FamilyCore, key: &[u8], then: ReadPoint, during: Between) -> Result<()> {
    let guard = pin();
    let view = family.view(&guard);
    let written = newest_version(view, key, during, &guard)? > during.after
        || newest_range(view, key, during, &guard) > during.after && sees(view, key, then, &guard)?;
    if written { Err(conflict(family, key)) } else { Ok(()) }
}

/// The interval that a range delete covers.
fn span_of(family: &Arc<FamilyCore>, op: &Op<'_>) -> Span {
    let border = |key: &[u8], some: fn(Vec<u8>) -> Bound<Vec<u8>>| match key {
        [] => Bound::Unbounded,
        key => some(key.to_vec()),
    };
    let (low, high) = (border(op.key, Bound::Included), border(op.value, Bound::Excluded));
    Span { family: Arc::clone(family), low, high }
}

/// Returns a key in one of `spans` that the snapshot shows and a range tombstone within `during` deleted. A tombstone that
/// deleted no such key changed nothing for the transaction. A key that was written and deleted since the snapshot also
/// changed nothing, or is found as a version.
fn deleted_from(
    view: &Arc<ReadView>,
    family: &Arc<FamilyCore>,
    spans: &[Span],
    then: ReadPoint,
    during: Between,
) -> Result<Option<Vec<u8>>> {
    let memtables: Vec<RangeSet> =
        view.memtables_since(during.after).map(|slot| slot.ranges.to_owned()).collect();
    let sets = memtables.iter().chain([view.version.ranges()]).filter(|set| set.max_seq() > during.after);
    let new = sets.flat_map(RangeSet::iter).filter(|range| during.contains(range.seq));
    let order = &family.options.comparator;
    let deletes = RangeSet::new(order, new.cloned().collect());
    if deletes.is_empty() {
        return Ok(None);
    }
    let mut cursor = show_keys(view, family, then);
    for span in spans {
        seek_into(&mut cursor, order, span)?;
        while cursor.valid() && is_before(order, cursor.key(), &span.high) {
            let around = deletes.around(order, cursor.key(), SEQ_MAX);
            match around.to {
                _ if around.seq > 0 => return Ok(Some(cursor.key().to_vec())),
                Some(next) => cursor.seek(next)?,
                None => break, // no tombstone is above
            }
        }
    }
    Ok(None)
}

/// Moves `cursor` to the first key at or after the lower end of `span`.
fn seek_into(cursor: &mut impl EntryCursor, order: &Comparator, span: &Span) -> Result<()> {
    match &span.low {
        Bound::Unbounded => cursor.seek_to_first(),
        Bound::Included(low) => cursor.seek(low),
        Bound::Excluded(low) => {
            cursor.seek(low)?;
            let is_outside = cursor.valid() && order.compare(cursor.key(), low).is_eq();
            if is_outside { cursor.next_key() } else { Ok(()) }
        }
    }
}

/// Moves `source` to a version in `span` and within `during` of a key for which `counts` returns true. Returns false if
/// there is none.
fn found_in(
    source: &mut Source,
    span: &Span,
    during: Between,
    counts: impl Fn(&[u8]) -> Result<bool>,
) -> Result<bool> {
    let order = &span.family.options.comparator;
    seek_into(source, order, span)?;
    while source.valid() && is_before(order, source.key(), &span.high) {
        if during.contains(source.seq()) && counts(source.key())? {
            return Ok(true);
        }
        source.next()?;
    }
    Ok(false)
}
