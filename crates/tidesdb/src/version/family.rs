//! The immutable version of one family: its levels and value logs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::edit::{Change, VersionEdit};
use super::level::{Level, TableSlot};
use super::obsolete::{FileGuard, ObsoleteFiles};
use super::state::{FamilyState, PlacedTable, VlogState};
use crate::files::FileKind;
use crate::ranges::{RangeSet, RangeTombstone};
use crate::sst::{Table, TableMeta};
use crate::types::{Comparator, FamilyId, SeqNo, TableId, VlogId};
use crate::{Error, Result};

/// Opens a table that an edit adds.
pub type OpenTable<T = Table> = dyn Fn(&FamilyState, &Arc<TableMeta>) -> Result<Arc<T>> + Send + Sync;

/// A value log in a version. Sharing the slot keeps its file alive. A memtable may refer to a value log
/// that the version of its reader lacks; it gets the slots of the version that its flush installs.
#[derive(Debug)]
pub struct VlogSlot {
    file: FileGuard,
}

/// The value logs of a version. Sharing them keeps their files alive.
pub type VlogSlots = Arc<BTreeMap<VlogId, Arc<VlogSlot>>>;

/// All tables and value logs of a family in one version. Immutable; shared by `Arc`.
pub struct FamilyVersion<T = Table> {
    pub(super) state: Arc<FamilyState>,
    levels: Vec<Arc<Level<T>>>,
    vlogs: VlogSlots,
    ranges: RangeSet,
}

impl<T> FamilyVersion<T> {
    /// Builds the version of `state`. Shares the slots and the files of `prev`, and opens tables that are new.
    pub(super) fn build(
        state: &Arc<FamilyState>,
        prev: Option<&Self>,
        queue: &Arc<ObsoleteFiles>,
        open: impl Fn(&FamilyState, &Arc<TableMeta>) -> Result<Arc<T>>,
    ) -> Result<Self> {
        let order = &state.options.comparator;
        let mut by_level: Vec<Vec<Arc<TableSlot<T>>>> = Vec::new();
        for PlacedTable { level, meta } in state.tables.iter() {
            let slot = match prev.and_then(|p| p.table(meta.id)) {
                Some(slot) => Arc::clone(slot),
                None => {
                    let file = Arc::new(FileGuard::new(FileKind::Table(meta.id), queue));
                    Arc::new(TableSlot::new(Arc::clone(meta), open(state, meta)?, file))
                }
            };
            let index = usize::from(*level).saturating_sub(1);
            if by_level.len() <= index {
                by_level.resize_with(index + 1, Vec::new);
            }
            by_level[index].push(slot);
        }
        let mut levels = Vec::with_capacity(by_level.len());
        for (i, tables) in by_level.into_iter().enumerate() {
            levels.push(Arc::new(Level::new(tables, order, i == 0)));
        }
        let this = Self::with_levels(state, prev, queue, levels);
        this.check()?;
        Ok(this)
    }

    /// Returns the version of `state` that `edit` makes of this one. Costs what the edit changes: all else is shared.
    pub(super) fn successor(
        &self,
        state: &Arc<FamilyState>,
        edit: &VersionEdit,
        queue: &Arc<ObsoleteFiles>,
        open: &OpenTable<T>,
    ) -> Result<Self> {
        let order = &state.options.comparator;
        let (mut gone, mut new) = (BTreeMap::new(), BTreeMap::new());
        for change in edit.changes().iter().filter(|change| change.family() == Some(state.id)) {
            match change {
                Change::RemoveTable { level, table, .. } => {
                    let found = self
                        .table(*table)
                        .ok_or_else(|| Error::internal("a removed table is in no version"))?;
                    gone.insert(*table, (*level, Arc::clone(found)));
                }
                Change::AddTable { level, meta, .. } => {
                    let slot = match gone.get(&meta.id) {
                        Some((_, slot)) => Arc::clone(slot), // it changes its level
                        None => {
                            let file = Arc::new(FileGuard::new(FileKind::Table(meta.id), queue));
                            Arc::new(TableSlot::new(Arc::clone(meta), open(state, meta)?, file))
                        }
                    };
                    new.insert(meta.id, (*level, slot));
                }
                _ => {}
            }
        }
        let mut levels = self.levels.clone();
        let touched: BTreeSet<u8> = gone.values().chain(new.values()).map(|(level, _)| *level).collect();
        for level in touched {
            while levels.len() < usize::from(level) {
                levels.push(Arc::new(Level::empty(levels.is_empty())));
            }
            let of = |(at, slot): &'_ (u8, Arc<TableSlot<T>>)| (*at == level).then(|| Arc::clone(slot));
            let removed: Vec<_> = gone.values().filter_map(of).collect();
            Arc::make_mut(&mut levels[usize::from(level) - 1])
                .change(order, removed.iter().map(|slot| &**slot), new.values().filter_map(of))
                .map_err(|id| Error::internal(format!("table {} is not in level {level}", id.0)))?;
        }
        while levels.pop_if(|level| level.is_empty()).is_some() {}
        let this = Self::with_levels(state, Some(self), queue, levels);
        new.values().try_for_each(|(level, slot)| this.check_table(*level, slot))?;
        debug_assert!(this.check().is_ok(), "{:?}", this.check());
        Ok(this)
    }

    fn with_levels(
        state: &Arc<FamilyState>,
        prev: Option<&Self>,
        queue: &Arc<ObsoleteFiles>,
        levels: Vec<Arc<Level<T>>>,
    ) -> Self {
        let vlog_slot = |&id: &VlogId| match prev.and_then(|p| p.vlogs.get(&id)) {
            Some(slot) => (id, Arc::clone(slot)),
            None => (id, Arc::new(VlogSlot { file: FileGuard::new(FileKind::Vlog(id), queue) })),
        };
        let vlogs = match prev {
            Some(prev) if prev.vlogs.keys().eq(state.vlogs.keys()) => Arc::clone(&prev.vlogs),
            _ => Arc::new(state.vlogs.keys().map(vlog_slot).collect()),
        };
        let ranges = match prev {
            Some(prev) if Arc::ptr_eq(&prev.state.ranges, &state.ranges) => prev.ranges.clone(),
            _ => RangeSet::new(&state.options.comparator, state.ranges.values().cloned().collect()),
        };
        Self { state: Arc::clone(state), levels, vlogs, ranges }
    }

    /// Marks as obsolete all files that `next` lacks. `next` is what `edit` made of this version, or `None` if the family was
    /// dropped.
    pub(super) fn retire_into(&self, next: Option<&Self>, edit: &VersionEdit) {
        let is_gone = |id: TableId| next.is_none_or(|n| n.state.tables.get(id).is_none());
        let removed = |change: &Change| match change {
            Change::RemoveTable { family, table, .. } if *family == self.state.id => self.table(*table),
            _ => None,
        };
        match next {
            Some(_) => edit.changes().iter().filter_map(removed).for_each(|slot| retire(slot, is_gone)),
            None => self.tables().for_each(|slot| retire(slot, is_gone)),
        }
        if next.is_some_and(|next| Arc::ptr_eq(&next.vlogs, &self.vlogs)) {
            return;
        }
        for (id, slot) in &*self.vlogs {
            if next.is_none_or(|n| !n.vlogs.contains_key(id)) {
                slot.file.set_obsolete();
            }
        }
    }

    /// Returns the same family without tables and value logs. Used after a drop, so that remaining holders of the
    /// family do not keep its files alive.
    pub fn emptied(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            levels: Vec::new(),
            vlogs: Arc::default(),
            ranges: RangeSet::new(self.order(), Vec::new()),
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

    /// Returns the levels; the first is L1. Trailing empty levels are absent.
    pub fn levels(&self) -> &[Arc<Level<T>>] {
        &self.levels
    }

    /// Returns the tables of level `n` (1 for L1): newest first in L1, by key in deeper levels.
    pub fn level(&self, n: u8) -> impl DoubleEndedIterator<Item = &Arc<TableSlot<T>>> + Clone {
        self.get_level(n).into_iter().flat_map(Level::tables)
    }

    /// Returns the number of tables in level `n`.
    #[inline]
    pub fn level_len(&self, n: u8) -> usize {
        self.get_level(n).map_or(0, Level::len)
    }

    #[inline]
    fn get_level(&self, n: u8) -> Option<&Level<T>> {
        self.levels.get(usize::from(n).checked_sub(1)?).map(|level| &**level)
    }

    /// Returns the number of the deepest level that holds a table; 0 without tables.
    pub fn depth(&self) -> u8 {
        self.levels.len() as u8
    }

    /// Returns the range tombstones over tables. Memtables have their own.
    #[inline]
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
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
        self.levels.is_empty()
    }

    /// Calls `each` with all tables that may hold `key`, newest data first: the order in which a read must search.
    #[inline]
    pub fn tables_for<'a>(&'a self, key: &[u8], mut each: impl FnMut(&'a TableSlot<T>)) {
        let order = self.order();
        self.levels.iter().for_each(|level| level.covering(order, key, &mut each));
    }

    /// Returns the tables of level `n` whose key range overlaps `range`, in the order of [`FamilyVersion::level`].
    pub fn tables_meeting<'k>(&self, n: u8, range: &impl RangeBounds<&'k [u8]>) -> Vec<Arc<TableSlot<T>>> {
        self.get_level(n).map(|l| l.meeting(self.order(), range)).unwrap_or_default()
    }

    /// Returns the table numbered `id`.
    pub fn table(&self, id: TableId) -> Option<&Arc<TableSlot<T>>> {
        let PlacedTable { level, meta } = self.state.tables.get(id)?;
        self.get_level(*level)?.table(self.order(), meta)
    }

    /// Returns all tables, level by level.
    pub fn tables(&self) -> impl DoubleEndedIterator<Item = &Arc<TableSlot<T>>> + Clone {
        self.levels.iter().flat_map(|level| level.tables())
    }

    /// Returns the value logs that are obsolete once the family is flushed up to `flushed_to`.
    pub fn obsolete_vlogs_at(&self, flushed_to: SeqNo) -> impl Iterator<Item = VlogId> {
        self.state.obsolete_vlogs_at(flushed_to)
    }

    /// Returns the slots of all value logs.
    pub fn vlog_slots(&self) -> VlogSlots {
        Arc::clone(&self.vlogs)
    }

    /// Returns the recorded facts of each value log, with the exact count of its live bytes.
    pub fn vlogs(&self) -> &BTreeMap<VlogId, VlogState> {
        &self.state.vlogs
    }

    /// Returns whether a table in a level deeper than `level` may hold a key in `range`.
    pub fn any_deeper<'k>(&self, level: u8, range: &impl RangeBounds<&'k [u8]>) -> bool {
        let deeper = self.levels.get(usize::from(level)..).unwrap_or_default();
        deeper.iter().any(|l| !l.meeting(self.order(), range).is_empty())
    }

    /// Checks every invariant of a version.
    ///
    /// # Errors
    /// `Internal`, naming the violated invariant and the tables.
    pub fn check(&self) -> Result<()> {
        for (level, slot) in self.levels.iter().zip(1..).flat_map(|(l, n)| l.tables().map(move |t| (n, t))) {
            self.check_table(level, slot)?;
        }
        if self.levels.iter().map(|level| level.len()).sum::<usize>() != self.state.tables.iter().count() {
            return Err(Error::internal(format!("family {}: a table is in two levels", self.state.id.0)));
        }
        self.check_vlogs()
    }

    /// Checks the invariants that concern one table of `level`: what it says of itself, and its place between the others.
    fn check_table(&self, level: u8, slot: &TableSlot<T>) -> Result<()> {
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
        law(
            self.state.tables.get(m.id).is_some_and(|t| t.level == level && t.meta == *m),
            "not in the state",
        )?;
        match self.get_level(level) {
            None => law(false, "in no level"),
            Some(level) if level.is_overlapping() => self.check_ages(level, slot),
            Some(level) => {
                let [before, after] = level.neighbours(order, slot);
                let apart = |a: &TableMeta, b: &TableMeta| order.compare(&a.largest, &b.smallest).is_lt();
                let apart =
                    before.is_none_or(|t| apart(t.meta(), m)) && after.is_none_or(|t| apart(m, t.meta()));
                law(apart, "overlaps its neighbour in a sorted level")
            }
        }
    }

    /// Checks that of `slot` and any other L1 table that may share a key with it, all entries of one are newer than those of the
    /// other.
    fn check_ages(&self, level: &Level<T>, slot: &TableSlot<T>) -> Result<()> {
        let m = slot.meta();
        let mixed = |t: &&Arc<TableSlot<T>>| {
            t.id() != m.id && t.meta().max_seq >= m.min_seq && m.max_seq >= t.meta().min_seq
        };
        let other =
            level.tables().filter(mixed).find(|t| t.meets(self.order(), &(&*m.smallest..=&*m.largest)));
        other.map_or(Ok(()), |other| {
            let (a, b) = (m.id.0, other.id().0);
            Err(Error::internal(format!("tables {a} and {b} of L1 interleave in age")))
        })
    }

    /// Checks that the counts of live values are exactly the sums over the tables.
    fn check_vlogs(&self) -> Result<()> {
        let mut sums: BTreeMap<VlogId, (u64, u64)> = self.vlogs.keys().map(|id| (*id, (0, 0))).collect();
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

impl<T> fmt::Debug for FamilyVersion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FamilyVersion")
            .field("family", &self.id())
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}

fn retire<T>(slot: &TableSlot<T>, is_gone: impl Fn(TableId) -> bool) {
    if is_gone(slot.id()) {
        slot.guard().set_obsolete();
    }
}
