//! The immutable version of one family: its levels and value logs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::level::{Level, TableSlot};
use super::obsolete::{FileGuard, ObsoleteFiles};
use super::state::{FamilyState, VlogState};
use crate::files::FileKind;
use crate::ranges::RangeSet;
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
    levels: Vec<Level<T>>,
    slots: BTreeMap<TableId, Arc<TableSlot<T>>>,
    /// Tables of an unresolved family, which cannot be opened.
    unopened: BTreeMap<TableId, Arc<FileGuard>>,
    vlogs: VlogSlots,
    ranges: RangeSet,
}

impl<T> FamilyVersion<T> {
    /// Builds the version of `state`. Shares the slots and the files of `prev`, and opens tables that are new. The
    /// version of an unresolved family keeps its files and has no table and no range tombstone.
    pub(super) fn build(
        state: &Arc<FamilyState>,
        prev: Option<&Self>,
        queue: &Arc<ObsoleteFiles>,
        open: impl Fn(&FamilyState, &Arc<TableMeta>) -> Result<Arc<T>>,
    ) -> Result<Self> {
        let order = &state.options.comparator;
        let (mut slots, mut unopened) = (BTreeMap::new(), BTreeMap::new());
        let mut by_level: Vec<Vec<Arc<TableSlot<T>>>> = Vec::new();
        for (&id, (level, meta)) in &state.tables {
            let shared = prev.and_then(|p| p.unopened.get(&id)).cloned();
            let file = || shared.unwrap_or_else(|| Arc::new(FileGuard::new(FileKind::Table(id), queue)));
            if order.is_unresolved() {
                unopened.insert(id, file());
                continue;
            }
            let slot = match prev.and_then(|p| p.slots.get(&id)) {
                Some(slot) => Arc::clone(slot),
                None => Arc::new(TableSlot::new(Arc::clone(meta), open(state, meta)?, file())),
            };
            let index = usize::from(*level).saturating_sub(1);
            if by_level.len() <= index {
                by_level.resize_with(index + 1, Vec::new);
            }
            by_level[index].push(Arc::clone(&slot));
            slots.insert(id, slot);
        }
        let vlog_slot = |&id: &VlogId| match prev.and_then(|p| p.vlogs.get(&id)) {
            Some(slot) => (id, Arc::clone(slot)),
            None => (id, Arc::new(VlogSlot { file: FileGuard::new(FileKind::Vlog(id), queue) })),
        };
        let levels = by_level.into_iter().enumerate().map(|(i, t)| Level::new(t, order, i == 0)).collect();
        let vlogs = match prev {
            Some(prev) if prev.vlogs.keys().eq(state.vlogs.keys()) => Arc::clone(&prev.vlogs),
            _ => Arc::new(state.vlogs.keys().map(vlog_slot).collect()),
        };
        let ranges = match prev {
            _ if order.is_unresolved() => RangeSet::new(order, Vec::new()),
            Some(prev) if Arc::ptr_eq(&prev.state.ranges, &state.ranges) && !prev.order().is_unresolved() => {
                prev.ranges.clone()
            }
            _ => RangeSet::new(order, state.ranges.values().cloned().collect()),
        };
        let this = Self { state: Arc::clone(state), levels, slots, unopened, vlogs, ranges };
        this.check()?;
        Ok(this)
    }

    /// Marks as obsolete all files that `next` lacks. `next` is the following version, or `None` if the family was
    /// dropped.
    pub(super) fn retire_into(&self, next: Option<&Self>) {
        let opened = self.slots.iter().map(|(id, slot)| (id, slot.guard()));
        for (id, file) in opened.chain(self.unopened.iter().map(|(id, file)| (id, &**file))) {
            if next.is_none_or(|n| !n.state.tables.contains_key(id)) {
                file.set_obsolete();
            }
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
            slots: BTreeMap::new(),
            unopened: BTreeMap::new(),
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
    pub fn levels(&self) -> &[Level<T>] {
        &self.levels
    }

    /// Returns the tables of level `n` (1 for L1): newest first in L1, by key in deeper levels.
    pub fn level(&self, n: u8) -> &[Arc<TableSlot<T>>] {
        self.get_level(n).map(Level::tables).unwrap_or_default()
    }

    /// Returns the number of tables in level `n`.
    pub fn level_len(&self, n: u8) -> usize {
        self.level(n).len()
    }

    fn get_level(&self, n: u8) -> Option<&Level<T>> {
        self.levels.get(usize::from(n).checked_sub(1)?)
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

    /// Returns whether there is no table, opened or not.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.unopened.is_empty()
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
        self.slots.get(&id)
    }

    /// Returns all tables, by number.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = &Arc<TableSlot<T>>> {
        self.slots.values()
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

    /// Checks every invariant of a version. Those of an unresolved family are checked once it is resolved.
    ///
    /// # Errors
    /// `Internal`, naming the violated invariant and the tables.
    pub fn check(&self) -> Result<()> {
        let law = |holds: bool, what: &str, t: TableId| match holds {
            true => Ok(()),
            false => Err(Error::internal(format!("family {}, table {}: {what}", self.state.id.0, t.0))),
        };
        let order = self.order();
        if order.is_unresolved() {
            return Ok(());
        }
        for slot in self.slots.values() {
            let m = slot.meta();
            law(order.compare(&m.smallest, &m.largest).is_le(), "smallest key above largest", m.id)?;
            law(m.min_seq <= m.max_seq, "oldest commit above newest", m.id)?;
            law(self.state.tables.get(&m.id).is_some_and(|(_, s)| s == m), "not in the state", m.id)?;
        }
        law(
            self.levels.iter().map(Level::len).sum::<usize>() == self.slots.len(),
            "in two levels",
            TableId(0),
        )?;
        for level in &self.levels {
            if level.is_overlapping() {
                self.check_ages(level)?;
                continue;
            }
            for pair in level.tables().windows(2) {
                let [a, b] = pair else { continue };
                let apart = order.compare(&a.meta().largest, &b.meta().smallest).is_lt();
                law(apart, "overlaps its neighbour in a sorted level", b.meta().id)?;
            }
        }
        self.check_vlogs()
    }

    /// Checks that, of two L1 tables that may share a key, all entries of one are newer than those of the other.
    fn check_ages(&self, level: &Level<T>) -> Result<()> {
        let tables = level.tables();
        for (i, newer) in tables.iter().enumerate() {
            for older in tables.iter().skip(i + 1).filter(|o| o.meta().max_seq >= newer.meta().min_seq) {
                if older.meets(self.order(), &(&*newer.meta().smallest..=&*newer.meta().largest)) {
                    let (a, b) = (newer.meta().id.0, older.meta().id.0);
                    return Err(Error::internal(format!("tables {a} and {b} of L1 interleave in age")));
                }
            }
        }
        Ok(())
    }

    /// Checks that the counts of live values are exactly the sums over the tables.
    fn check_vlogs(&self) -> Result<()> {
        let mut sums: BTreeMap<VlogId, (u64, u64)> = self.vlogs.keys().map(|id| (*id, (0, 0))).collect();
        for r in self.slots.values().flat_map(|s| &s.meta().vlog_refs) {
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
