//! Whether somebody wrote, since a snapshot, into what a transaction depends on.
//!
//! Only memtables and tables that can hold a version newer than the snapshot are looked into. The cost follows the footprint
//! of the transaction: a lookup for each key, a walk over each interval again.

use std::ops::Bound;

use tidesdb_sync::pin;

use super::footprint::Footprint;
use crate::Result;
use crate::read::{Span, is_before, newest_version, sees};
use crate::shared::Shared;
use crate::sources::Source;
use crate::types::{EntryCursor, SeqNo};
use crate::write::WriteBatch;

/// What the commit of a transaction depends on, beside the keys it writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depends<'a> {
    /// Keys and intervals read.
    pub(super) reads: Option<&'a Footprint>,
    /// Of the intervals only keys count that the transaction saw: not those that came to be since.
    pub(super) seen_only: bool,
}

impl Depends<'_> {
    /// Whether none of it, nor any key of `writes`, has a version in `during`, both ends excluded. The transaction read at
    /// `snapshot`.
    ///
    /// # Errors
    /// `Corrupt`, `Io`: it cannot be said.
    pub(super) fn unchanged(
        &self,
        shared: &Shared,
        writes: Option<&WriteBatch>,
        snapshot: SeqNo,
        during: (SeqNo, SeqNo),
    ) -> Result<bool> {
        let (since, _) = during;
        if let Some(batch) = writes {
            for op in batch.ops_from(0) {
                let op = op?;
                let Some(family) = batch.family(op.family) else { continue };
                let guard = pin();
                if newest_version(family.view(&guard), op.key, during, &guard)? > since {
                    return Ok(false);
                }
            }
        }
        let Some(reads) = self.reads else { return Ok(true) };
        for (family, key) in reads.points() {
            let guard = pin();
            if newest_version(family.view(&guard), key, during, &guard)? > since {
                return Ok(false);
            }
        }
        let spans = reads.spans.lock();
        for span in &*spans {
            if self.written_into(shared, span, snapshot, during)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn written_into(
        &self,
        shared: &Shared,
        span: &Span,
        snapshot: SeqNo,
        during: (SeqNo, SeqNo),
    ) -> Result<bool> {
        let view = span.family.owned_view();
        let mut sources: Vec<Source> =
            view.memtables_since(during.0).map(|slot| Source::memtable(&slot.map)).collect();
        let tables = view.version.tables().filter(|slot| slot.meta().max_seq > during.0);
        sources.extend(tables.map(Source::table));
        let counts = |key: &[u8]| Ok(!self.seen_only || sees(shared, &view, key, snapshot, &pin())?);
        for source in &mut sources {
            if found_in(source, span, during, counts)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether `source` has a version in `span` and `during` of a key that counts.
fn found_in(
    source: &mut Source,
    span: &Span,
    (since, end): (SeqNo, SeqNo),
    counts: impl Fn(&[u8]) -> Result<bool>,
) -> Result<bool> {
    let order = &span.family.options.comparator;
    match &span.low {
        Bound::Unbounded => source.seek_to_first()?,
        Bound::Included(low) | Bound::Excluded(low) => source.seek(low)?,
    }
    let outside = |key: &[u8]| matches!(&span.low, Bound::Excluded(low) if order.compare(key, low).is_eq());
    while source.valid() && is_before(order, source.key(), &span.high) {
        let during = source.seq() > since && source.seq() < end;
        if during && !outside(source.key()) && counts(source.key())? {
            return Ok(true);
        }
        source.next()?;
    }
    Ok(false)
}
