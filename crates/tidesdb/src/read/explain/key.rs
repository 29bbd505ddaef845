//! Explains the lookup of one key.

use std::sync::Arc;

use tidesdb_sync::pin;

use super::{
    ExplainedLevel, ExplainedRangeTombstone, ExplainedSource, ExplainedVersion, Explanation, FilterAnswer,
    Outcome, SourceName, Verdict, VersionKind,
};
use crate::Result;
use crate::codec::key_hash;
use crate::context::ReadCtx;
use crate::family::{FamilyCore, MemSlot, ReadView};
use crate::ranges::RangeSet;
use crate::read::get::{Traced, look_up_traced};
use crate::sources::{Source, TableSlot};
use crate::sst::{ReadStep, WatchingGate};
use crate::stats::counts;
use crate::types::{Comparator, EntryCursor, EntryMeta, ReadPoint, SeqNo, Slice, has_passed, moment_of};
use crate::vlog::ValuePlace;

/// Explains what a get of `key` does for a reader at `snapshot`, or at the newest visible commit.
///
/// # Errors
/// As `get`, except those of a value that cannot be combined or is too long.
pub fn explain_key(
    reads: &ReadCtx,
    family: &FamilyCore,
    key: &[u8],
    snapshot: Option<SeqNo>,
) -> Result<Explanation> {
    reads.check_open()?;
    // The view before the sequence number, and before the check for a drop: see `get`.
    let view = family.owned_view();
    family.check_usable()?;
    let at = ReadPoint { seq: snapshot.unwrap_or_else(|| reads.visible()), now: reads.now() };
    let mut gate = WatchingGate::collecting();
    let answer = look_up_traced(reads, (family, &view), key, at, &mut gate)?;
    let mut explained = Explained { view: &view, key, at, sources: Vec::new(), levels: Vec::new() };
    explained.add_sources();
    explained.add_steps(gate.into_steps());
    let range_tombstone = explained.tombstone_in(view.version.ranges());
    let newest = |of: &ExplainedSource| of.range_tombstone.as_ref().map(|tombstone| tombstone.seq);
    let in_tables = range_tombstone.as_ref().map(|tombstone| tombstone.seq);
    let deleted = explained.sources.iter().filter_map(newest).chain(in_tables).max().unwrap_or(0);
    let before = counts::blocks_so_far();
    let has_more_versions = explained.add_versions(deleted)?;
    let after = counts::blocks_so_far();
    let [extra_reads, extra_bytes] = [0, 1].map(|at: usize| after[at].wrapping_sub(before[at]));
    let outcome = outcome(answer, at, deleted);
    let (sources, levels) = (explained.sources, explained.levels);
    let now = moment_of(at.now).unwrap_or(std::time::SystemTime::UNIX_EPOCH);
    let (key, seq) = (Slice::from(key), at.seq);
    Ok(Explanation {
        key,
        seq,
        now,
        outcome,
        sources,
        levels,
        range_tombstone,
        has_more_versions,
        extra_reads,
        extra_bytes,
    })
}

/// What a get returns if `answer` is its version; `deleted` is the newest range tombstone over the key that the reader sees.
fn outcome(answer: Option<Traced>, at: ReadPoint, deleted: SeqNo) -> Outcome {
    match answer {
        None if deleted > 0 => Outcome::DeletedByRange { seq: deleted },
        None => Outcome::NoVersion,
        Some(Traced { value: Some(Ok(value)), expiry, .. }) => {
            Outcome::Found { value, expiry: moment_of(expiry) }
        }
        Some(Traced { value: Some(Err(error)), .. }) => Outcome::Failed { error },
        Some(Traced { seq, kind, expiry, value: None }) => match kind.is_tombstone() {
            true => Outcome::Deleted { seq },
            false => {
                debug_assert!(has_passed(expiry, at.now), "a version without a value is dead");
                Outcome::Expired { seq, at: moment_of(expiry) }
            }
        },
    }
}

/// An explanation in the making.
struct Explained<'v> {
    view: &'v Arc<ReadView>,
    key: &'v [u8],
    at: ReadPoint,
    sources: Vec<ExplainedSource>,
    levels: Vec<ExplainedLevel>,
}

impl Explained<'_> {
    fn order(&self) -> &Comparator {
        self.view.version.order()
    }

    /// Adds the sources that may have the key, as a get finds them, and counts the tables of each level.
    fn add_sources(&mut self) {
        let (view, key) = (self.view, self.key);
        for (number, slot) in (0..).zip(view.memtables()) {
            let is_active = view.active.as_ref().is_some_and(|active| Arc::ptr_eq(active, slot));
            let tombstone = self.tombstone_in(&slot.ranges.to_owned());
            self.sources.push(ExplainedSource {
                range_tombstone: tombstone,
                ..source(SourceName::Memtable { number, is_active }, (slot.bytes() as u64, slot.entries()))
            });
        }
        for run in view.version.runs() {
            let (level, tables) = (run.level(), run.len() as u64);
            let runs = if run.is_overlapping() { tables } else { 1 };
            let mut covering = 0;
            run.covering(view.version.order(), key, &mut |slot: &TableSlot| {
                covering += 1;
                let name = SourceName::Table { level, table: slot.id() };
                self.sources.push(source(name, (slot.meta().file_bytes, slot.meta().entries)));
            });
            match self.levels.last_mut().filter(|last| last.level == level) {
                Some(last) => {
                    last.tables += tables;
                    last.runs += runs;
                    last.covering += covering;
                }
                None => self.levels.push(ExplainedLevel { level, tables, runs, covering }),
            }
        }
    }

    /// The newest range tombstone of `set` over the key that the reader sees.
    fn tombstone_in(&self, set: &RangeSet) -> Option<ExplainedRangeTombstone> {
        let seq = set.newest(self.order(), self.key, self.at.seq);
        let found = set
            .iter()
            .find(|tombstone| tombstone.seq == seq && seq > 0 && tombstone.covers(self.order(), self.key))?;
        let bound = |bound: &Option<Box<[u8]>>| bound.as_deref().map(Slice::from);
        Some(ExplainedRangeTombstone { seq, start: bound(&found.start), end: bound(&found.end) })
    }

    /// Gives each source the steps that the get did there.
    fn add_steps(&mut self, steps: Vec<ReadStep>) {
        let mut current = 0;
        for step in steps {
            let found = match step {
                ReadStep::Memtable { number: of, .. } => self.sources.iter().position(
                    |source| matches!(source.name, SourceName::Memtable { number, .. } if number == of),
                ),
                ReadStep::Table(of) => self
                    .sources
                    .iter()
                    .position(|source| matches!(source.name, SourceName::Table { table, .. } if table == of)),
                _ => Some(current),
            };
            let Some(source) = found.and_then(|at| self.sources.get_mut(at)) else { continue };
            source.is_searched = true;
            if let ReadStep::Filter { passes } = step {
                source.filter = if passes { FilterAnswer::Passed } else { FilterAnswer::Excluded };
            }
            source.steps.push(step);
            current = found.unwrap_or(current);
        }
    }

    /// Looks up the versions in each source, and asks the filters that the get did not ask. `deleted` is the newest range tombstone over the
    /// key that the reader sees. Returns true if a source has more versions than an explanation shows.
    fn add_versions(&mut self, deleted: SeqNo) -> Result<bool> {
        let mut has_more = false;
        let mut judge = Judge { at: self.at, deleted, decided: None, is_combining: false };
        let memtables: Vec<Arc<MemSlot>> = self.view.memtables().cloned().collect();
        for at in 0..self.sources.len() {
            let cursors = match self.sources[at].name {
                SourceName::Memtable { number, .. } => memtables
                    .get(usize::try_from(number).unwrap_or(usize::MAX))
                    .map_or_else(Vec::new, |slot| slot.sources(self.order())),
                SourceName::Table { table, .. } => self.table_cursor(at, table)?.into_iter().collect(),
                SourceName::Run { .. } => Vec::new(),
            };
            for mut cursor in cursors {
                let (versions, more) = versions(&mut cursor, self.order(), self.key, &mut judge)?;
                self.sources[at].versions.extend(versions);
                has_more |= more;
            }
        }
        Ok(has_more)
    }

    /// A cursor over a table, unless its filter excludes the key.
    fn table_cursor(&mut self, at: usize, table: crate::types::TableId) -> Result<Option<Source>> {
        let Some(slot) = self.view.version.table(table) else { return Ok(None) };
        if !self.sources[at].is_searched && slot.table().has_filter() {
            let (hash, mut gate) = (key_hash(self.key), WatchingGate::collecting());
            let passes = slot.table().may_contain_through(hash, &pin(), &mut gate)?;
            self.sources[at].filter = if passes { FilterAnswer::Passed } else { FilterAnswer::Excluded };
        }
        let is_excluded = self.sources[at].filter == FilterAnswer::Excluded;
        Ok((!is_excluded).then(|| Source::peeking(slot)))
    }
}

fn source(name: SourceName, (bytes, entries): (u64, u64)) -> ExplainedSource {
    ExplainedSource {
        name,
        is_searched: false,
        steps: Vec::new(),
        filter: FilterAnswer::None,
        bytes,
        entries,
        range_tombstone: None,
        versions: Vec::new(),
    }
}

/// Returns the versions of `key` that `cursor` has, newest first, and whether there are more.
fn versions(
    cursor: &mut Source,
    order: &Comparator,
    key: &[u8],
    judge: &mut Judge,
) -> Result<(Vec<ExplainedVersion>, bool)> {
    let (mut versions, mut has_more) = (Vec::new(), false);
    cursor.seek(key)?;
    while cursor.valid() && order.compare(cursor.key(), key).is_eq() {
        if versions.len() == Explanation::VERSIONS_MAX {
            // Those of older sources are judged after these.
            has_more = true;
            judge.judge(cursor.entry_meta());
            cursor.next()?;
            continue;
        }
        let (seq, kind, expiry) = EntryMeta::parts(cursor.entry_meta());
        let value_bytes = match kind.holds_pointer() {
            true => ValuePlace::decode(cursor.value()?).map_or(0, |place| place.value_bytes()),
            false => cursor.value_len() as u64,
        };
        let verdict = judge.judge(cursor.entry_meta());
        let (kind, expiry) = (VersionKind::of(kind), moment_of(expiry));
        versions.push(ExplainedVersion { seq, kind, expiry, value_bytes, verdict });
        cursor.next()?;
    }
    Ok((versions, has_more))
}

/// Judges the versions of a key, from the newest to the oldest.
struct Judge {
    at: ReadPoint,
    /// The newest range tombstone over the key that the reader sees; 0 = none.
    deleted: SeqNo,
    /// The version that decided what the get returns: older ones do not matter.
    decided: Option<SeqNo>,
    /// True if the versions so far were operands, which need an older one.
    is_combining: bool,
}

impl Judge {
    fn judge(&mut self, version: EntryMeta) -> Verdict {
        if version.seq > self.at.seq {
            return Verdict::TooNew;
        }
        if version.seq < self.deleted {
            self.decided.get_or_insert(self.deleted);
            return Verdict::HiddenByRange { by: self.deleted };
        }
        if let Some(by) = self.decided {
            return Verdict::Overwritten { by };
        }
        let has_expired = has_passed(version.expiry(), self.at.now);
        if version.kind().is_operand() && !has_expired {
            self.is_combining = true;
            return Verdict::Combined;
        }
        self.decided = Some(version.seq);
        match (version.kind().is_tombstone(), has_expired) {
            (true, _) => Verdict::Deletes,
            (_, true) => Verdict::Expired,
            _ if self.is_combining => Verdict::Combined,
            _ => Verdict::Shown,
        }
    }
}
