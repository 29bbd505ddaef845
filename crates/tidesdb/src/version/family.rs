//! The immutable version of one family: its sorted runs and value logs.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use std::fmt;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use super::edit::{Change, VersionEdit};
use super::obsolete::{FileGuard, ObsoleteFiles};
use super::placing::{self, Placed};
use super::run::{Run, TableSlot};
use super::state::{FamilyState, PlacedTable, Tables, VlogState};
use crate::order::{self, Gather};
use crate::ranges::{RangeSet, RangeTombstone};
use crate::sst::{Table, TableMeta};
use crate::types::{Comparator, FamilyId, SeqNo, TableId, VlogId};
use crate::{Error, Result};

/// Opens a table that an edit adds.
pub type OpenTable<T = Table> = dyn Fn(&FamilyState, &Arc<TableMeta>) -> Result<Arc<T>> + Send + Sync;

/// As [`OpenTable`], for the time of a call. Not generic: so the code that follows a change is compiled once.
type Open<'a, T> = &'a dyn Fn(&FamilyState, &Arc<TableMeta>) -> Result<Arc<T>>;

/// The value logs of a version. Sharing them keeps their files alive. A memtable may refer to a value log that the version of its reader
/// lacks; it gets those of the version that its flush installs.
pub type VlogSlots = Arc<BTreeMap<VlogId, Arc<FileGuard>>>;

/// All tables and value logs of a family in one version. Immutable; shared by `Arc`.
pub struct FamilyVersion<T = Table> {
    pub(super) state: Arc<FamilyState>,
    /// L1, if it has a table, and the sorted runs of each deeper level, newest data first.
    runs: Vec<Arc<Run<T>>>,
    vlogs: VlogSlots,
    ranges: RangeSet,
    /// As [`FamilyVersion::flushed_runs`].
    flushed_runs: usize,
    /// The guards of the files of the database.
    files: Arc<ObsoleteFiles>,
}

impl<T> FamilyVersion<T> {
    /// Builds the version of `state`. Shares the slots and the files of `prev`, and opens tables that are new.
    pub(super) fn build(
        state: &Arc<FamilyState>,
        prev: Option<&Self>,
        queue: &Arc<ObsoleteFiles>,
        open: impl Fn(&FamilyState, &Arc<TableMeta>) -> Result<Arc<T>>,
    ) -> Result<Self> {
        let edit = state.tables_since(prev.map(|prev| &*prev.state)).collect();
        let (this, _) = Self::changed(state, prev, &edit, queue, &open)?;
        this.check()?;
        Ok(this)
    }

    /// Returns the version of `state` that follows from `prev` and `edit`.
    pub(super) fn successor(
        state: &Arc<FamilyState>,
        prev: Option<&Self>,
        edit: &VersionEdit,
        queue: &Arc<ObsoleteFiles>,
        open: &OpenTable<T>,
    ) -> Result<Self> {
        let (this, added) = Self::changed(state, prev, edit, queue, open)?;
        added.iter().try_for_each(|slot| this.check_table(slot))?;
        if edit.changes.iter().any(|change| matches!(change, Change::AddTable { level: 1, .. })) {
            this.check_ages()?;
        }
        debug_assert!(this.check().is_ok(), "{:?}", this.check());
        Ok(this)
    }

    /// Returns the unchecked version of `state` that follows from `prev` and `edit`, and the tables that `edit` adds. Costs what the edit
    /// changes: all else is shared.
    fn changed(
        state: &Arc<FamilyState>,
        prev: Option<&Self>,
        edit: &VersionEdit,
        queue: &Arc<ObsoleteFiles>,
        open: Open<'_, T>,
    ) -> Result<(Self, Vec<Arc<TableSlot<T>>>)> {
        let order = &state.options.comparator;
        let (mut gone, mut new) = (BTreeMap::new(), Vec::new());
        for change in edit.changes.iter().filter(|change| change.family() == Some(state.id)) {
            match change {
                Change::RemoveTable { level, table, .. } => {
                    let found = prev.and_then(|prev| prev.table(*table));
                    let found = found.ok_or_else(|| Error::internal("a removed table is in no version"))?;
                    gone.insert(*table, (*level, Arc::clone(found)));
                }
                Change::AddTable { level, generation, meta, .. } => {
                    let slot = match gone.get(&meta.id) {
                        Some((_, slot)) => Arc::clone(slot), // it changes its level
                        None => Arc::new(TableSlot::new(Arc::clone(meta), open(state, meta)?, queue)),
                    };
                    new.push((*level, Placed { generation: *generation, slot }));
                }
                _ => {}
            }
        }
        let added: Vec<_> = new.iter().map(|(_, placed)| Arc::clone(&placed.slot)).collect();
        let levels = gone.values().map(|(level, _)| *level).chain(new.iter().map(|(level, _)| *level));
        let touched: BTreeSet<u8> = levels.gather();
        let mut runs = prev.map_or_else(Vec::new, |prev| prev.runs.clone());
        let generation = |id| state.tables.get(id).map_or(0, |table| table.generation);
        for level in touched {
            let removed: Vec<_> =
                gone.values().filter(|(at, _)| *at == level).map(|(_, slot)| slot).collect();
            let more = new.extract_if(.., |(at, _)| *at == level).map(|(_, placed)| placed).collect();
            let range = range_of(&runs, level);
            let changed =
                placing::rearranged(order, level, &runs[range.clone()], (&removed, more), generation)?;
            runs.splice(range, changed);
        }
        let vlog_slot = |&id: &VlogId| match prev.and_then(|prev| prev.vlogs.get(&id)) {
            Some(slot) => (id, Arc::clone(slot)),
            None => (id, queue.value(id)),
        };
        let vlogs = match prev {
            Some(prev) if prev.vlogs.keys().eq(state.vlogs.keys()) => Arc::clone(&prev.vlogs),
            _ => Arc::new(state.vlogs.keys().map(vlog_slot).collect()),
        };
        let ranges = match prev {
            Some(prev) if Arc::ptr_eq(&prev.state.ranges, &state.ranges) => prev.ranges.clone(),
            _ => RangeSet::new(order, state.ranges.values().cloned().collect()),
        };
        let flushed_runs = flushed_runs(order, &runs[range_of(&runs, 1)]);
        let (state, files) = (Arc::clone(state), Arc::clone(queue));
        Ok((Self { state, runs, vlogs, ranges, flushed_runs, files }, added))
    }

    /// Marks as obsolete all files that `next` lacks. `next` is what `edit` made of this version, or `None` if the family was
    /// dropped.
    pub(super) fn retire_into(&self, next: Option<&Self>, edit: &VersionEdit) {
        let retire = |slot: &Arc<TableSlot<T>>| {
            if next.is_none_or(|next| next.state.tables.get(slot.id()).is_none()) {
                slot.guard().set_obsolete();
            }
        };
        let removed = |change: &Change| match change {
            Change::RemoveTable { family, table, .. } if *family == self.state.id => self.table(*table),
            _ => None,
        };
        match next {
            Some(_) => edit.changes.iter().filter_map(removed).for_each(retire),
            None => self.tables().for_each(retire),
        }
        if next.is_some_and(|next| Arc::ptr_eq(&next.vlogs, &self.vlogs)) {
            return;
        }
        for (id, file) in &*self.vlogs {
            if next.is_none_or(|n| !n.vlogs.contains_key(id)) {
                file.set_obsolete();
            }
        }
    }

    /// Returns the same family without tables and value logs. Used after a drop, so that remaining holders of the
    /// family do not keep its files alive.
    pub fn emptied(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            runs: Vec::new(),
            vlogs: Arc::default(),
            ranges: RangeSet::new(self.order(), Vec::new()),
            flushed_runs: 0,
            files: Arc::clone(&self.files),
        }
    }

    /// Returns the number of the family.
    pub fn id(&self) -> FamilyId {
        self.state.id
    }

    /// Returns the key order.
    pub fn order(&self) -> &Comparator {
        &self.state.options.comparator
    }

    /// All commits up to this one are in tables.
    pub fn flushed_to(&self) -> SeqNo {
        self.state.flushed_to
    }

    /// Returns L1, if it has a table, and the sorted runs of each deeper level: newest data first, which is the order in which reads search.
    #[inline]
    pub fn runs(&self) -> &[Arc<Run<T>>] {
        &self.runs
    }

    /// Returns the runs of level `n`, newest first.
    #[inline]
    pub fn runs_of(&self, n: u8) -> &[Arc<Run<T>>] {
        &self.runs[range_of(&self.runs, n)]
    }

    /// Returns the tables of level `n` (1 for L1), run by run: newest first in L1, by key in a sorted run.
    pub fn level(&self, n: u8) -> impl DoubleEndedIterator<Item = &Arc<TableSlot<T>>> + Clone {
        self.runs_of(n).iter().flat_map(|run| run.tables())
    }

    /// Returns the number of tables in level `n`.
    #[inline]
    pub fn level_len(&self, n: u8) -> usize {
        self.runs_of(n).iter().map(|run| run.len()).sum()
    }

    /// Returns the number of tables in level 1, which is what a merge of it owes: of tables that one commit took and that are disjoint, all are
    /// one sorted run, and count once.
    pub fn flushed_runs(&self) -> usize {
        self.flushed_runs
    }

    /// Returns the number of the deepest level that holds a table; 0 without tables.
    pub fn depth(&self) -> u8 {
        self.runs.last().map_or(0, |run| run.level())
    }

    /// Returns the bytes of all tables.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes()).fold(0, u64::saturating_add)
    }

    /// Returns the range tombstones over tables. Memtables have their own.
    #[inline]
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Returns the range tombstones over tables, oldest first.
    pub fn oldest_ranges(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.state.ranges.values().map(|range| &**range)
    }

    /// Returns whether `range` may cover an older entry of a table, once the tables `removed` are replaced by `added`.
    pub fn is_hiding(
        &self,
        range: &RangeTombstone,
        removed: &BTreeSet<TableId>,
        added: &[Arc<TableMeta>],
    ) -> bool {
        let kept = self.tables().map(|slot| slot.meta()).filter(|meta| !removed.contains(&meta.id));
        kept.chain(added).any(|meta| meta.may_be_hidden(self.order(), range))
    }

    /// Returns whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Calls `each` with all tables that may hold `key`, newest data first: the order in which a read must search.
    #[inline]
    pub fn tables_for<'a>(&'a self, key: &[u8], mut each: impl FnMut(&'a TableSlot<T>)) {
        let order = self.order();
        self.runs.iter().for_each(|run| run.covering(order, key, &mut each));
    }

    /// Returns the tables of level `n` whose key range overlaps `range`, in the order of [`FamilyVersion::level`].
    pub fn tables_meeting<'k>(&self, n: u8, range: &impl RangeBounds<&'k [u8]>) -> Vec<Arc<TableSlot<T>>> {
        self.runs_of(n).iter().flat_map(|run| run.meeting(self.order(), range)).collect()
    }

    /// Returns the table numbered `id`.
    pub fn table(&self, id: TableId) -> Option<&Arc<TableSlot<T>>> {
        let PlacedTable { level, meta, .. } = self.state.tables.get(id)?;
        self.runs_of(*level).iter().find_map(|run| run.table(self.order(), meta))
    }

    /// Returns all tables, run by run.
    pub fn tables(&self) -> impl DoubleEndedIterator<Item = &Arc<TableSlot<T>>> + Clone {
        self.runs.iter().flat_map(|run| run.tables())
    }

    /// Returns the value logs that are obsolete once the family is flushed up to `flushed_to`.
    pub fn obsolete_vlogs_at(&self, flushed_to: SeqNo) -> impl Iterator<Item = VlogId> {
        self.state.obsolete_vlogs_at(flushed_to)
    }

    /// Returns the guard of a value log of the family, whether this version names it or not: the caller has a memtable, a version or a
    /// lease that keeps the file.
    pub fn value_guard(&self, id: VlogId) -> Arc<FileGuard> {
        self.files.value(id)
    }

    /// Returns the slots of all value logs.
    pub fn vlog_slots(&self) -> VlogSlots {
        Arc::clone(&self.vlogs)
    }

    /// Returns the recorded facts of each value log, with the exact count of its live bytes.
    pub fn vlogs(&self) -> &BTreeMap<VlogId, VlogState> {
        &self.state.vlogs
    }

    /// Returns the generation above those of all tables in level `n` that overlap `range`, except the ones numbered `but`; 0 if there is
    /// none.
    pub fn next_generation<'k>(
        &self,
        n: u8,
        range: &impl RangeBounds<&'k [u8]>,
        but: &HashSet<TableId>,
    ) -> u32 {
        let tables = self.tables_meeting(n, range);
        let others = tables.iter().filter(|slot| !but.contains(&slot.id()));
        others.map(|slot| self.generation(slot.id()).saturating_add(1)).max().unwrap_or(0)
    }

    /// Returns the generation of a table in its level.
    pub fn generation(&self, id: TableId) -> u32 {
        self.state.tables.get(id).map_or(0, |table| table.generation)
    }

    /// Returns whether a table that is searched after `slot`, in a deeper run, overlaps it.
    pub fn overlaps_older(&self, slot: &TableSlot<T>) -> bool {
        let run = self.runs.iter().position(|run| run.table(self.order(), slot.meta()).is_some());
        let older = run.and_then(|run| self.runs.get(run + 1..)).unwrap_or_default();
        older.iter().any(|run| run.overlaps(self.order(), slot.meta()))
    }

    /// Checks every invariant of a version.
    ///
    /// # Errors
    /// `Internal`, naming the violated invariant and the tables.
    pub fn check(&self) -> Result<()> {
        self.tables().try_for_each(|slot| self.check_table(slot))?;
        self.check_ages()?;
        if self.runs.iter().map(|run| run.len()).sum::<usize>() != self.state.tables.iter().count() {
            return Err(Error::internal(format!("family {}: a table is in two runs", self.state.id.0)));
        }
        self.check_vlogs()
    }

    /// Checks the invariants that concern one table: what it says of itself, and its place between the others.
    fn check_table(&self, slot: &TableSlot<T>) -> Result<()> {
        let (order, m) = (self.order(), slot.meta());
        let law = |holds: bool, what: &str| match holds {
            true => Ok(()),
            false => Err(Error::internal(format!("family {}, table {}: {what}", self.state.id.0, m.id.0))),
        };
        law(
            order.compare(&m.smallest, &m.largest).is_le(),
            &match order.is_bytewise() {
                true => "smallest key above largest".to_owned(),
                false => format!(
                    "smallest key above largest in the key order {:?}: damage, or not the order that wrote the table",
                    order.name()
                ),
            },
        )?;
        law(m.min_seq <= m.max_seq, "oldest commit above newest")?;
        let placed = self.state.tables.get(m.id).filter(|placed| placed.meta == *m);
        law(placed.is_some(), "not in the state")?;
        let runs = self.runs_of(placed.map_or(0, |placed| placed.level));
        let run = runs.iter().position(|run| run.table(order, m).is_some());
        let Some(run) = run else { return law(false, "in no run of its level") };
        if runs[run].is_overlapping() {
            return Ok(()); // its age is checked beside those of all others
        }
        let generation = self.generation(m.id);
        let keys = &*m.smallest..=&*m.largest;
        for (at, other) in runs.iter().enumerate() {
            for other in other.meeting(order, &keys).iter().filter(|other| other.id() != m.id) {
                let newer = self.generation(other.id());
                law(newer != generation, "overlaps another one of its generation")?;
                law(
                    at != run && (at < run) == (newer > generation),
                    "overlaps one of a run that is not in order",
                )?;
            }
        }
        Ok(())
    }

    /// Checks that of any two L1 tables that may share a key, all entries of one are newer than those of the other. Looks at the tables from
    /// the newest on, and compares each with those whose ages reach into its own: their key ranges are disjoint, so only two can overlap its.
    fn check_ages(&self) -> Result<()> {
        let order = self.order();
        let tables: Vec<&TableMeta> = self.level(1).map(|slot| &**slot.meta()).collect();
        let mut by_key: Vec<&TableMeta> = Vec::new();
        let place = |by_key: &[&TableMeta], meta: &TableMeta| {
            by_key.partition_point(|other| order.compare(&other.smallest, &meta.smallest).is_lt())
        };
        let mut by_age = BinaryHeap::new();
        for (i, meta) in tables.iter().enumerate() {
            while let Some(&(from, other)) = by_age.peek()
                && from > meta.max_seq
            {
                by_age.pop();
                by_key.remove(place(&by_key, tables[other]));
            }
            let at = place(&by_key, meta);
            let before = by_key[..at].last().filter(|t| order.compare(&t.largest, &meta.smallest).is_ge());
            let after = by_key.get(at).filter(|t| order.compare(&t.smallest, &meta.largest).is_le());
            if let Some(other) = before.or(after) {
                let (a, b) = (meta.id.0, other.id.0);
                return Err(Error::internal(format!("tables {a} and {b} of L1 interleave in age")));
            }
            by_key.insert(at, meta);
            by_age.push((meta.min_seq, i));
        }
        Ok(())
    }

    /// Checks that the counts of live values are exactly the sums over the tables.
    fn check_vlogs(&self) -> Result<()> {
        let mut sums: BTreeMap<VlogId, (u64, u64)> = self.vlogs.keys().map(|id| (*id, (0, 0))).gather();
        for r in self.tables().flat_map(|s| &s.meta().vlog_refs) {
            let sum = sums.entry(r.vlog).or_default();
            *sum = (sum.0.saturating_add(r.bytes), sum.1.saturating_add(r.count));
        }
        let told = self.state.vlogs.iter().map(|(id, v)| (*id, (v.live_bytes, v.live_count)));
        if sums == told.collect() {
            return Ok(());
        }
        Err(Error::internal(format!(
            "family {}: the live bytes of value logs differ from the sums over the tables",
            self.state.id.0
        )))
    }
}

/// The tables of `level_1`, newest first. Those of one commit that took them are next to each other, and rise in age as their keys fall.
fn flushed_runs<T>(order: &Comparator, level_1: &[Arc<Run<T>>]) -> usize {
    let mut runs = 0;
    let mut last: Option<&TableMeta> = None;
    for slot in level_1.iter().flat_map(|run| run.tables()) {
        let meta: &TableMeta = slot.meta();
        let goes_on = |last: &TableMeta| {
            last.taken.is_some()
                && meta.taken.is_some()
                && order.compare(&meta.largest, &last.smallest).is_lt()
        };
        runs += usize::from(!last.is_some_and(goes_on));
        last = Some(meta);
    }
    runs
}

impl FamilyVersion<Table> {
    /// Returns a version of the family that has only `tables`, of which the first are the oldest: commits took them, and the manifest does not
    /// name them yet.
    ///
    /// # Errors
    /// `Internal`: two of them are the same.
    pub fn of_taken(&self, tables: &[Arc<Table>]) -> Result<Self> {
        const SORTED_LEVEL: u8 = 2;
        let (vlogs, ranges) = Default::default();
        let mut state =
            FamilyState { tables: Tables::default(), vlogs, ranges, flushed_to: 0, ..(*self.state).clone() };
        let (mut edit, mut opened) = (VersionEdit::new(), BTreeMap::new());
        for (generation, table) in (0..).zip(tables) {
            let (family, level, meta) = (self.id(), SORTED_LEVEL, Arc::clone(table.meta()));
            state.vlogs.extend(meta.vlog_refs.iter().map(|r| (r.vlog, VlogState::default())));
            state.add_table(level, generation, &meta)?;
            opened.insert(meta.id, Arc::clone(table));
            edit.push(Change::AddTable { family, level, generation, meta });
        }
        let lost = || Error::internal("a table was not opened before it was taken");
        let open = |_: &FamilyState, meta: &Arc<TableMeta>| opened.get(&meta.id).cloned().ok_or_else(lost);
        Self::changed(&Arc::new(state), None, &edit, &self.files, &open).map(|(this, _)| this)
    }

    /// Returns the tables in the order of their generations.
    pub fn oldest_first(&self) -> impl Iterator<Item = &Arc<TableSlot>> {
        let mut all: Vec<_> = self.tables().collect();
        order::sort_by_key(&mut all, |slot| self.generation(slot.id()));
        all.into_iter()
    }

    /// Marks all files as obsolete: the family was dropped before the manifest named them.
    pub fn give_up(&self) {
        self.retire_into(None, &VersionEdit::new());
    }
}

impl FamilyVersion<()> {
    /// Returns the tables of `state` in their runs, for figures: none is open, and nothing is checked, because the key order may not be
    /// known.
    ///
    /// # Errors
    /// `Internal`, as for any version.
    pub fn described(state: &Arc<FamilyState>) -> Result<Self> {
        let edit = state.tables_since(None).collect();
        Self::changed(state, None, &edit, &Arc::default(), &|_, _| Ok(Arc::default())).map(|(this, _)| this)
    }
}

impl<T> fmt::Debug for FamilyVersion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FamilyVersion").field("runs", &self.runs).finish_non_exhaustive()
    }
}

/// The indices of those of `runs` that are of level `n`.
#[inline]
fn range_of<T>(runs: &[Arc<Run<T>>], n: u8) -> Range<usize> {
    let start = runs.partition_point(|run| run.level() < n);
    start..start + runs[start..].partition_point(|run| run.level() == n)
}
