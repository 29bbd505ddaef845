//! Whether somebody wrote, since a snapshot, into what a transaction depends on.
//!
//! Only memtables and tables that can hold a version newer than the snapshot are looked into. The cost follows the footprint
//! of the transaction: a lookup for each key, a walk over each interval again.

use std::ops::Bound;

use tidesdb_sync::pin;

use super::footprint::Footprint;
use crate::Result;
use crate::family::ReadView;
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
    /// Whether none of it, nor any key of `writes`, has a version in `since < seq < end`.
    ///
    /// # Errors
    /// `Corrupt`, `Io`: it cannot be said.
    pub(super) fn unchanged(
        &self,
        shared: &Shared,
        writes: Option<&WriteBatch>,
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
            if self.written_into(shared, span, during)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn written_into(&self, shared: &Shared, span: &Span, during: (SeqNo, SeqNo)) -> Result<bool> {
        let view = span.family.owned_view();
        let mut sources: Vec<Source> =
            view.memtables_since(during.0).map(|slot| Source::memtable(&slot.map)).collect();
        let tables = view.version.tables().filter(|slot| slot.meta().max_seq > during.0);
        sources.extend(tables.map(Source::table));
        for source in &mut sources {
            if self.found_in(shared, source, span, &view, during)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn found_in(
        &self,
        shared: &Shared,
        source: &mut Source,
        span: &Span,
        view: &std::sync::Arc<ReadView>,
        (since, end): (SeqNo, SeqNo),
    ) -> Result<bool> {
        let order = &span.family.options.comparator;
        match &span.low {
            Bound::Unbounded => source.seek_to_first()?,
            Bound::Included(low) | Bound::Excluded(low) => source.seek(low)?,
        }
        let outside =
            |key: &[u8]| matches!(&span.low, Bound::Excluded(low) if order.compare(key, low).is_eq());
        while source.valid() && is_before(order, source.key(), &span.high) {
            if source.seq() > since && source.seq() < end && !outside(source.key()) {
                let key = source.key();
                if !self.seen_only || sees(shared, view, key, since, &pin())? {
                    return Ok(true);
                }
            }
            source.next()?;
        }
        Ok(false)
    }
}
