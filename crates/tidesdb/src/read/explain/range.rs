//! Explains a scan: the cursor of every scan, over sources that count what they are asked for.

use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use tidesdb_sync::pin;

use super::{RangeExplanation, ScannedSource, SourceName};
use crate::context::ReadCtx;
use crate::family::{FamilyCore, ReadView};
use crate::merge::{Combine, HidingCursor, MergeCursor, VisibleCursor};
use crate::ranges::Hidden;
use crate::read::cursor::{Sorted, range_sets, sorted_sources};
use crate::sources::Source;
use crate::stats::counts;
use crate::types::{
    Comparator, EntryCursor, EntryMeta, ReadPoint, Scope, SeqNo, Stored, has_passed, moment_of,
};
use crate::vlog::ValuePlace;
use crate::{Error, Result};

/// Explains what a scan of the first `rows_max` rows in `range` does for a reader at `snapshot`, or at the newest visible commit.
///
/// # Errors
/// As a scan, except those of values that cannot be combined.
pub fn explain_range(
    reads: &ReadCtx,
    family: &Arc<FamilyCore>,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    rows_max: usize,
    snapshot: Option<SeqNo>,
) -> Result<RangeExplanation> {
    reads.check_open()?;
    let (view, seq) = view_of(reads, family, snapshot);
    family.check_usable()?;
    let at = ReadPoint { seq, now: reads.now() };
    let mut scope = Scope::default();
    scope.set_range(&family.options.comparator, range.0, range.1);
    scope.one_call = true;
    let mut cursor = scan(family, &view, at);
    cursor.set_scope(&scope);
    let range_tombstones = range_sets(&view, at.seq)
        .iter()
        .map(|set| set.iter().filter(|tombstone| tombstone.seq <= at.seq).count() as u64)
        .sum();
    let mut explained = RangeExplanation {
        seq: at.seq,
        now: moment_of(at.now).unwrap_or(SystemTime::UNIX_EPOCH),
        keys: Vec::new(),
        row_bytes: 0,
        log_values: 0,
        log_value_bytes: 0,
        failed_values: 0,
        is_complete: true,
        sources: Vec::new(),
        range_tombstones,
    };
    cursor.seek_to_first()?;
    while cursor.valid() {
        if explained.keys.len() >= rows_max {
            explained.is_complete = false;
            break;
        }
        let (key, seq) = (cursor.key().to_vec(), cursor.seq());
        cursor.each_source(|source| source.note_row(&key, seq));
        explained.add_row(&key, cursor.entry())?;
        explained.keys.push(key.into());
        cursor.next()?;
    }
    let last = explained.keys.last().cloned();
    let is_complete = explained.is_complete;
    cursor.each_source(|source| explained.sources.push(source.finish(last.as_deref(), is_complete)));
    Ok(explained)
}

/// Takes the view before the sequence number, and both again if the view was replaced in between: as a cursor within one call does.
fn view_of(reads: &ReadCtx, family: &FamilyCore, snapshot: Option<SeqNo>) -> (Arc<ReadView>, SeqNo) {
    loop {
        let view = family.owned_view();
        let seq = snapshot.unwrap_or_else(|| reads.visible());
        if snapshot.is_some() || Arc::ptr_eq(&view, family.view(&pin())) {
            return (view, seq);
        }
    }
}

type Scan = VisibleCursor<HidingCursor<MergeCursor<Watched>>>;

/// The cursor of a scan, over sources that count.
fn scan(family: &Arc<FamilyCore>, view: &ReadView, at: ReadPoint) -> Scan {
    let order = &family.options.comparator;
    let mut number = 0;
    let watched = |source: Sorted<'_>| {
        let (name, inner) = match source {
            Sorted::Memtable(slot) => {
                let is_active = view.active.as_ref().is_some_and(|active| Arc::ptr_eq(active, slot));
                number += 1;
                let name = SourceName::Memtable { number: number - 1, is_active };
                (name, Source::memtable(&slot.map))
            }
            Sorted::Table(slot) => {
                let name = SourceName::Table { level: 1, table: slot.id() };
                (name, Source::peeking(slot))
            }
            Sorted::Run(run) => {
                let name = SourceName::Run { level: run.level(), tables: run.len() as u64 };
                (name, Source::peeking_run(run, order))
            }
        };
        Watched {
            inner,
            order: order.clone(),
            hidden: Hidden::new(range_sets(view, at.seq), at.seq),
            at,
            scope: Scope::default(),
            counts: ScannedSource::new(name),
            last: None,
        }
    };
    let sources = sorted_sources(view, at.seq).map(watched).collect();
    let merged = MergeCursor::newest_first(order.clone(), sources);
    let hiding = HidingCursor::new(merged, order.clone(), Hidden::new(range_sets(view, at.seq), at.seq));
    let combine = family.options.merge_operator().map(|_| Arc::clone(family) as Arc<dyn Combine>);
    VisibleCursor::new(hiding, order.clone(), at.seq, at.now).combining(combine)
}

impl RangeExplanation {
    /// Adds a row with this `key` and `entry`.
    fn add_row(&mut self, key: &[u8], entry: Result<Stored<'_>>) -> Result<()> {
        self.row_bytes += key.len() as u64;
        match entry {
            Ok((_, kind, place)) if kind.holds_pointer() => {
                let place = ValuePlace::decode(place);
                self.log_values += 1;
                self.log_value_bytes += place.map_or(0, |place| place.stored_bytes());
            }
            Ok((_, _, value)) => self.row_bytes += value.len() as u64,
            // As in a scan, only the value of this row cannot be had.
            Err(Error::Merge { .. }) => self.failed_values += 1,
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// What an entry is for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    TooNew,
    Hidden,
    Tombstone,
    Expired,
    Operand,
    /// A value: shown, or older than another version.
    Value,
    Shown,
}

/// A source that counts what a forward scan asks of it.
struct Watched {
    inner: Source,
    order: Comparator,
    hidden: Option<Hidden>,
    at: ReadPoint,
    scope: Scope,
    counts: ScannedSource,
    /// The last entry that was counted.
    last: Option<(Vec<u8>, SeqNo, Class)>,
}

impl Watched {
    /// Moves by `go`, and counts what that takes and the entry that it comes to.
    fn go(&mut self, go: impl FnOnce(&mut Source) -> Result<()>) -> Result<()> {
        let before = counts::blocks_so_far();
        let gone = go(&mut self.inner);
        let after = counts::blocks_so_far();
        let [reads, bytes, in_memory] = std::array::from_fn(|at| after[at].wrapping_sub(before[at]));
        self.counts.table_reads += reads;
        self.counts.table_bytes += bytes;
        self.counts.blocks_in_memory += in_memory;
        gone?;
        self.note_entry();
        Ok(())
    }

    fn seek_by(&mut self, seek: impl FnOnce(&mut Source) -> Result<()>) -> Result<()> {
        self.counts.seeks += 1;
        self.go(seek)
    }

    /// Counts the entry on which the source stands, unless it was counted or is out of scope.
    fn note_entry(&mut self) {
        if !self.inner.valid()
            || self.scope.is_above(&self.order, self.inner.key())
            || self.scope.is_below(&self.order, self.inner.key())
        {
            return;
        }
        let (key, meta) = (self.inner.key(), self.inner.entry_meta());
        let is_known = self.last.as_ref().is_some_and(|(last, seq, _)| {
            let order = self.order.compare(key, last);
            order.is_lt() || order.is_eq() && meta.seq >= *seq
        });
        if is_known {
            return;
        }
        let kind = meta.kind();
        let class = if meta.seq > self.at.seq {
            Class::TooNew
        } else if self.hidden.as_mut().is_some_and(|hidden| hidden.covers(&self.order, key, meta.seq)) {
            Class::Hidden
        } else if kind.is_tombstone() {
            Class::Tombstone
        } else if has_passed(meta.expiry(), self.at.now) {
            Class::Expired
        } else if kind.is_operand() {
            Class::Operand
        } else {
            Class::Value
        };
        self.counts.entries += 1;
        *self.count_of(class) += 1;
        let mut last = self.last.take().map_or_else(Vec::new, |(key, ..)| key);
        last.clear();
        last.extend_from_slice(self.inner.key());
        self.last = Some((last, meta.seq, class));
    }

    fn count_of(&mut self, class: Class) -> &mut u64 {
        let counts = &mut self.counts;
        match class {
            Class::TooNew => &mut counts.too_new,
            Class::Hidden => &mut counts.hidden_by_range,
            Class::Tombstone => &mut counts.tombstones,
            Class::Expired => &mut counts.expired,
            Class::Operand => &mut counts.operands,
            Class::Value => &mut counts.older,
            Class::Shown => &mut counts.shown,
        }
    }

    /// Notes that the scan shows version `seq` of `key`.
    fn note_row(&mut self, key: &[u8], seq: SeqNo) {
        let is_it = self.last.as_ref().is_some_and(|(last, at, class)| {
            *class == Class::Value && *at == seq && self.order.compare(last, key).is_eq()
        });
        if let Some((.., class)) = self.last.as_mut().filter(|_| is_it) {
            *class = Class::Shown;
            self.counts.older -= 1;
            self.counts.shown += 1;
        }
    }

    /// Returns the counts. A scan that ended before the range did has not judged the entry after its last row, so that entry does not count.
    fn finish(&mut self, last_row: Option<&[u8]>, is_complete: bool) -> ScannedSource {
        if !is_complete
            && let Some((key, _, class)) = self.last.take()
            && last_row.is_none_or(|row| self.order.compare(&key, row).is_gt())
        {
            *self.count_of(class) -= 1;
            self.counts.entries -= 1;
        }
        self.counts.clone()
    }
}

impl EntryCursor for Watched {
    fn set_scope(&mut self, scope: &Scope) {
        self.scope = scope.clone();
        self.inner.set_scope(scope);
    }

    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_by(|inner| inner.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.seek_by(|inner| inner.seek_to_last())
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.seek_by(|inner| inner.seek(target))
    }

    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        self.seek_by(|inner| inner.seek_version(target, seq))
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.seek_by(|inner| inner.seek_for_prev(target))
    }

    fn next(&mut self) -> Result<()> {
        self.go(|inner| inner.next())
    }

    /// Comes to each older version of the key, so that it is counted.
    fn next_key(&mut self) -> Result<()> {
        let key = self.inner.key().to_vec();
        loop {
            self.next()?;
            if !self.inner.valid() || self.order.compare(self.inner.key(), &key).is_ne() {
                return Ok(());
            }
        }
    }

    fn prev(&mut self) -> Result<()> {
        self.go(|inner| inner.prev())
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn entry_meta(&self) -> EntryMeta {
        self.inner.entry_meta()
    }

    fn value_len(&self) -> usize {
        self.inner.value_len()
    }

    fn entry(&mut self) -> Result<Stored<'_>> {
        let before = counts::blocks_so_far();
        let entry = self.inner.entry();
        let after = counts::blocks_so_far();
        self.counts.table_reads += after[0].wrapping_sub(before[0]);
        self.counts.table_bytes += after[1].wrapping_sub(before[1]);
        entry
    }

    fn skip_older(&mut self, below: SeqNo, until: Option<&[u8]>) -> Result<()> {
        self.go(|inner| inner.skip_older(below, until))
    }

    fn may_contain(&self, key: &[u8]) -> bool {
        self.inner.may_contain(key)
    }
}
