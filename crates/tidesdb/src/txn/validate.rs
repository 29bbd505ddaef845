//! Checks whether another commit, since a snapshot, wrote into what a transaction depends on.
//!
//! Only memtables and tables that can hold a version newer than the snapshot are searched. The cost follows the
//! footprint of the transaction: one lookup per key, one scan per interval.

use std::ops::Bound;
use std::sync::Arc;

use tidesdb_sync::pin;

use super::footprint::Footprint;
use crate::family::{FamilyCore, Metric, ReadView};
use crate::ranges::RangeSet;
use crate::read::{Span, is_before, newest_range, newest_version, sees, show_keys};
use crate::sources::Source;
use crate::types::{Between, EntryCursor, Kind, ReadPoint};
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
            for op in batch.ops_from(0) {
                let op = op?;
                let Some(family) = batch.family(op.family) else { continue };
                if op.kind == Kind::RangeDelete {
                    let span = span_of(family, &op);
                    let all = Depends { reads: None, spans: &[], seen_only: false };
                    all.check_span(&span, then, during)?;
                } else {
                    check_key(family, op.key, then, during)?;
                }
            }
        }
        let Some(reads) = self.reads else { return Ok(()) };
        for (family, key) in reads.points() {
            check_key(family, key, then, during)?;
        }
        self.spans.iter().try_for_each(|span| self.check_span(span, then, during))
    }

    fn check_span(&self, span: &Span, then: ReadPoint, during: Between) -> Result<()> {
        match self.written_into(span, then, during)? {
            Some(key) => Err(conflict(&span.family, &key)),
            None => Ok(()),
        }
    }

    /// Returns a key in `span` that was written.
    fn written_into(&self, span: &Span, then: ReadPoint, during: Between) -> Result<Option<Vec<u8>>> {
        let view = span.family.owned_view();
        if let Some(key) = deleted_from(&view, span, then, during)? {
            return Ok(Some(key));
        }
        let mut sources: Vec<Source> =
            view.memtables_since(during.after).map(|slot| Source::memtable(&slot.map)).collect();
        let tables = view.version.tables().filter(|slot| slot.meta().max_seq > during.after);
        sources.extend(tables.map(Source::table));
        let counts = |key: &[u8]| Ok(!self.seen_only || sees(&view, key, then, &pin())?);
        for source in &mut sources {
            if found_in(source, span, during, counts)? {
                return Ok(Some(source.key().to_vec()));
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

/// Returns a key in `span` that the snapshot shows and a range tombstone within `during` deleted. A tombstone that
/// deleted no such key changed nothing for the transaction. A key that was written and deleted since the snapshot also
/// changed nothing, or is found as a version.
fn deleted_from(
    view: &Arc<ReadView>,
    span: &Span,
    then: ReadPoint,
    during: Between,
) -> Result<Option<Vec<u8>>> {
    let memtables: Vec<RangeSet> = view
        .memtables_since(during.after)
        .map(|slot| slot.ranges.to_owned())
        .filter(|set| !set.is_empty())
        .collect();
    let all = memtables.iter().chain([view.version.ranges()]).flat_map(RangeSet::iter);
    let order = &span.family.options.comparator;
    let mut cursor = None;
    for range in all.filter(|range| during.contains(range.seq)) {
        let cursor = cursor.get_or_insert_with(|| show_keys(view, &span.family, then));
        match (&span.low, &range.start) {
            (Bound::Included(low) | Bound::Excluded(low), Some(start))
                if order.compare(low, start).is_lt() =>
            {
                cursor.seek(start)?;
            }
            (Bound::Included(low) | Bound::Excluded(low), _) => cursor.seek(low)?,
            (Bound::Unbounded, Some(start)) => cursor.seek(start)?,
            (Bound::Unbounded, None) => cursor.seek_to_first()?,
        }
        if let Bound::Excluded(low) = &span.low
            && cursor.valid()
            && order.compare(cursor.key(), low).is_eq()
        {
            cursor.next()?;
        }
        if cursor.valid() && is_before(order, cursor.key(), &span.high) && range.covers(order, cursor.key()) {
            return Ok(Some(cursor.key().to_vec()));
        }
    }
    Ok(None)
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
    match &span.low {
        Bound::Unbounded => source.seek_to_first()?,
        Bound::Included(low) | Bound::Excluded(low) => source.seek(low)?,
    }
    let outside = |key: &[u8]| matches!(&span.low, Bound::Excluded(low) if order.compare(key, low).is_eq());
    while source.valid() && is_before(order, source.key(), &span.high) {
        if during.contains(source.seq()) && !outside(source.key()) && counts(source.key())? {
            return Ok(true);
        }
        source.next()?;
    }
    Ok(false)
}
