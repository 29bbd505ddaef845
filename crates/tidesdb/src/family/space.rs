//! What the value logs of a family take on disk, and which of them should be emptied.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_sync::Mutex;

use super::{FamilyCore, MemSlot};
use crate::Error;
use crate::jobs::Retry;
use crate::order;
use crate::pacing::{GARBAGE, GARBAGE_SHARE_MAX};
use crate::sources::TableVersion;
use crate::types::{SeqNo, VlogId};
use crate::version::VlogState;

/// A memtable is flushed when the values that it refers to take this many times its size in value logs,
const VALUES_PER_BUFFER: u64 = 4;
/// or this part of all live values, but not less than this: what it overwrites is garbage only then.
const UNFLUSHED_PART: u64 = 8;
const UNFLUSHED_LEAST: u64 = 32 << 20;
/// Tables are merged when newer ones may hide this part of the live values, if the merge writes less than half of what it may find.
const HIDDEN_PART: u64 = 8;
const MERGE_COST: u64 = 2;
/// Approximate number of flushes after which a higher share of new keys is fully used.
const NEW_KEYS_SLOWNESS: f64 = 8.0;
/// Approximate number of commits after which a changed compression ratio of values is fully used.
const STORED_SLOWNESS: f64 = 8.0;
/// The lowest ratio that is used: a commit has a cost, however well its values compress.
const STORED_LEAST: f64 = 1.0 / 64.0;
/// Live bytes of all victims at a time, as a part of all live bytes: they take space twice until the victims are gone.
const MOVING_PART: u64 = 8;
/// Garbage that is tolerated in any case, as a part of a value log.
const SLACK_PART: u64 = 4;

/// How much garbage value logs may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GarbageBudget {
    /// More than is configured: commits need the disk.
    Busy,
    /// What is configured.
    Idle,
    /// Less: commits are refused for lack of space.
    Short,
}

impl GarbageBudget {
    /// Garbage may be this many times what is configured.
    fn factor(self) -> f64 {
        match self {
            Self::Busy => 1.25,
            Self::Idle => 1.0,
            Self::Short => 0.25,
        }
    }
}

/// The collection of the value logs of one family.
#[derive(Debug, Default)]
pub struct Collection {
    /// Files whose live values merges move elsewhere.
    victims: Mutex<Arc<BTreeSet<VlogId>>>,
    /// Files in which a damaged value was found: they stay as they are.
    damaged: Mutex<BTreeSet<VlogId>>,
    /// The last damage, until it is reported.
    damage: Mutex<Option<Error>>,
    /// After a collection failed.
    pub retry: Retry,
    /// See [`FamilyCore::garbage_fullness`].
    fullness: AtomicU64,
    /// Share of the keys of recent flushes that were in no older table; 0 until it is known.
    new_keys: AtomicU64,
    /// Bytes that value logs store per byte of large values in recent commits; 0 until it is known.
    stored: AtomicU64,
}

/// Sums over the tables of a family, about its values.
#[derive(Clone, Copy, Debug)]
pub struct ValueSpace {
    /// Bytes of the records that tables refer to.
    pub live: u64,
    /// Bytes of a record on average.
    pub average: u64,
    /// Maximum bytes of records that newer tables may hide.
    pub hidden: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
}

impl ValueSpace {
    /// Sums up `version`.
    pub fn of(version: &TableVersion) -> Self {
        let vlogs = version.vlogs();
        let live: u64 = vlogs.values().map(VlogState::used).sum();
        let count: u64 = vlogs.values().map(|v| v.live_count).sum();
        let average = live / count.max(1);
        let upper = match version.runs() {
            // If there is no deeper level, all tables of level 1 but the oldest may hide values of others.
            [only] if only.is_overlapping() => {
                only.tables().rev().skip(1).map(|t| t.meta().entries).fold(0, u64::saturating_add)
            }
            [upper @ .., _] => upper.iter().map(|run| run.entries()).fold(0, u64::saturating_add),
            [] => 0,
        };
        Self { live, average, hidden: upper.min(count).saturating_mul(average), table_bytes: version.bytes() }
    }
}

/// The sealed value logs of a family that only tables, and no memtables, refer to.
#[derive(Debug)]
pub struct SettledFiles {
    files: Vec<(VlogId, VlogState)>,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes of the files that nothing refers to.
    pub garbage: u64,
}

impl SettledFiles {
    /// Returns the files of `version` that are settled when all commits up to `flushed_to` are in tables, without damaged ones.
    pub fn of(family: &FamilyCore, version: &TableVersion, flushed_to: SeqNo) -> Self {
        let is_settled = |v: &VlogState| v.sealed_at.is_some_and(|seq| seq <= flushed_to);
        let excluded = |id| family.collection.is_excluded(id);
        let files =
            version.vlogs().iter().filter(|(id, v)| is_settled(v) && v.live_count > 0 && !excluded(**id));
        let files: Vec<_> = files.map(|(id, v)| (*id, *v)).collect();
        let sum = |of: fn(&VlogState) -> u64| files.iter().map(|(_, v)| of(v)).sum();
        Self { bytes: sum(|v| v.bytes), garbage: sum(VlogState::garbage), files }
    }

    /// Returns the files with the largest share of garbage, until at most `kept` bytes of garbage are left in the others, or
    /// `moving_max` bytes are live in them.
    fn victims(&self, kept: u64, moving_max: u64) -> BTreeSet<VlogId> {
        let mut files: Vec<_> = self.files.iter().filter(|(_, v)| v.garbage() > 0).collect();
        let permille = |v: &VlogState| u128::from(v.garbage()) * 1000 / u128::from(v.bytes.max(1));
        order::sort_by_key(&mut files, |(id, v)| (Reverse(permille(v)), *id));
        let (mut left, mut moving) = (self.garbage, 0);
        let mut victims = BTreeSet::new();
        for (id, v) in files {
            let is_first = victims.is_empty();
            if !is_first && (left <= kept || moving + v.used() > moving_max) {
                break;
            }
            left = left.saturating_sub(v.garbage());
            moving += v.used();
            victims.insert(*id);
        }
        victims
    }
}

impl FamilyCore {
    /// Returns the garbage that `bytes` of value logs may hold.
    pub fn garbage_max(&self, bytes: u64, budget: GarbageBudget) -> u64 {
        let share = f64::from(self.options.value_garbage_percent()) / 100.0 * budget.factor();
        (bytes as f64 * share.min(GARBAGE_SHARE_MAX)) as u64 + self.garbage_slack()
    }

    /// Returns the files to empty, as long as `files` hold too much garbage; none if values are not to be moved.
    pub fn victims(&self, files: &SettledFiles, budget: GarbageBudget) -> BTreeSet<VlogId> {
        let max = self.garbage_max(files.bytes, budget);
        if self.options.value_garbage_percent() == 0 || files.garbage <= max {
            return BTreeSet::new();
        }
        files.victims(max / 2, (self.vlog.sizes.live() / MOVING_PART).max(self.vlog.sizes.of_new()))
    }

    /// Chooses the files to empty for a merge that is about to begin, unless the last collection failed.
    pub fn choose_victims(&self, version: &TableVersion, budget: GarbageBudget) {
        if !version.vlogs().is_empty() && !self.collection.retry.is_failing() {
            let files = SettledFiles::of(self, version, version.flushed_to());
            self.collection.set_victims(self.victims(&files, budget));
        }
    }

    /// Garbage that value logs may hold in any case.
    pub fn garbage_slack(&self) -> u64 {
        self.vlog.sizes.of_new() / SLACK_PART
    }

    /// Returns true if the values that `slot` refers to fill so many value logs that the memtable should be flushed: what
    /// they overwrite is garbage only then.
    pub fn has_many_values(&self, slot: &MemSlot) -> bool {
        let most = (self.vlog.sizes.live() / UNFLUSHED_PART).max(UNFLUSHED_LEAST);
        let bytes = self.vlog.sizes.filled().saturating_sub(slot.filled);
        bytes >= most.min(VALUES_PER_BUFFER * self.buffer_bytes() as u64)
    }

    /// Returns true if the page cache can keep the value logs.
    pub fn page_cache_keeps_values(&self) -> bool {
        let sealed: u64 = self.owned_view().version.vlogs().values().map(|v| v.bytes).sum();
        let begun = self.vlog.open.infos().iter().filter(|file| !file.sealed).map(|file| file.bytes).sum();
        self.memory.page_cache_keeps(sealed.saturating_add(begun))
    }

    /// Returns true if newer tables of `version` may hide so many values that a merge is worth its cost.
    pub fn hides_many_values(&self, version: &TableVersion) -> bool {
        if version.vlogs().is_empty() || self.options.value_garbage_percent() == 0 {
            return false;
        }
        let space = ValueSpace::of(version);
        let most = space.live / HIDDEN_PART + self.garbage_slack();
        self.collection.likely_hidden(&space) > most.max(space.table_bytes.saturating_mul(MERGE_COST))
    }

    /// Takes note of the values of a new version: new files get their size from it, and writers are slowed down if it holds too much
    /// garbage.
    pub fn note_values(&self) {
        let version = &self.owned_view().version;
        let (space, files) = (ValueSpace::of(version), SettledFiles::of(self, version, version.flushed_to()));
        self.vlog.sizes.set_live(space.live);
        let hidden = self.collection.likely_hidden(&space);
        let garbage = (files.garbage + hidden).saturating_sub(self.garbage_slack());
        let share = garbage as f64 / files.bytes.max(1) as f64;
        let fullness = match self.options.value_garbage_percent() {
            0 => 0.0,
            percent => GARBAGE.fullness(share, f64::from(percent) / 100.0),
        };
        self.collection.fullness.store(fullness.to_bits(), Ordering::Relaxed);
    }

    /// Returns how full the limit of garbage in value logs is; 0 while a damaged table or the last failure keeps collections
    /// from emptying it: writers do not wait for a collection that may not succeed.
    #[inline]
    pub fn garbage_fullness(&self) -> f64 {
        match f64::from_bits(self.collection.fullness.load(Ordering::Relaxed)) {
            full if full > 0.0 && (self.claims.has_quarantined() || self.collection.retry.is_failing()) => {
                0.0
            }
            full => full,
        }
    }
}

impl Collection {
    /// Returns the files whose live values merges move elsewhere.
    pub fn victims(&self) -> Arc<BTreeSet<VlogId>> {
        Arc::clone(&self.victims.lock())
    }

    /// Replaces them.
    pub fn set_victims(&self, victims: BTreeSet<VlogId>) {
        *self.victims.lock() = Arc::new(victims);
    }

    /// Notes the share of the keys of a flush that are in no older table. Writes of new keys hide nothing: neither do writers wait for them, nor
    /// do merges look for what they hide. A lower share of new keys is used at once, a higher one slowly: tables of earlier flushes may still
    /// hide values.
    pub fn note_new_keys(&self, share: f64) {
        let before = f64::from_bits(self.new_keys.load(Ordering::Relaxed));
        let share = share.min(before + (share - before) / NEW_KEYS_SLOWNESS);
        self.new_keys.store(share.to_bits(), Ordering::Relaxed);
    }

    /// Notes that a commit stored `raw` bytes of large values in `stored` bytes.
    pub fn note_stored(&self, raw: u64, stored: u64) {
        if raw == 0 {
            return;
        }
        let (before, share) = (self.stored_share(), stored as f64 / raw as f64);
        let share = (before + (share - before) / STORED_SLOWNESS).clamp(STORED_LEAST, 1.0);
        self.stored.store(share.to_bits(), Ordering::Relaxed);
    }

    /// Returns how many bytes value logs store per byte of large values: what an overwrite of these will leave as garbage.
    pub fn stored_share(&self) -> f64 {
        match f64::from_bits(self.stored.load(Ordering::Relaxed)) {
            share if share > 0.0 => share,
            _ => 1.0,
        }
    }

    /// Notes that the tables are the first ones of the family: they hide nothing.
    pub fn note_first_tables(&self) {
        self.new_keys.store(1f64.to_bits(), Ordering::Relaxed);
    }

    /// Returns the bytes of records that newer tables hide if flushes before the recent ones had as many new keys as these.
    fn likely_hidden(&self, space: &ValueSpace) -> u64 {
        let new_keys = f64::from_bits(self.new_keys.load(Ordering::Relaxed));
        (space.hidden as f64 * (1.0 - new_keys)) as u64
    }

    /// Returns the last damage that was found, once.
    pub fn damage(&self) -> Option<Error> {
        self.damage.lock().take()
    }

    /// Excludes a file in which a damaged value was found.
    pub fn exclude(&self, damaged: VlogId, damage: Error) {
        self.damaged.lock().insert(damaged);
        *self.damage.lock() = Some(damage);
        Arc::make_mut(&mut self.victims.lock()).remove(&damaged);
    }

    /// Returns whether a damaged value was found in the file.
    pub fn is_excluded(&self, id: VlogId) -> bool {
        self.damaged.lock().contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_share_follows_the_commits_within_its_bounds() {
        let collection = Collection::default();
        assert_eq!(collection.stored_share(), 1.0, "nothing is known");
        collection.note_stored(0, 100);
        assert_eq!(collection.stored_share(), 1.0, "no large value");
        collection.note_stored(1000, 500);
        assert!((collection.stored_share() - 0.9375).abs() < 1e-9);
        let after = |raw, stored| {
            (0..100).for_each(|_| collection.note_stored(raw, stored));
            collection.stored_share()
        };
        assert!((after(1000, 500) - 0.5).abs() < 1e-3);
        assert_eq!(after(u64::MAX, 0), STORED_LEAST);
        assert!(after(1, u64::MAX) <= 1.0);
    }
}
