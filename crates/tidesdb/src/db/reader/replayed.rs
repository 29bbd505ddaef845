//! The memtables of a reader: the commits that the writer has in its log and not in tables yet.
//!
//! All views share them. A view reads at its own sequence number, so it does not see what a later refresh inserts. When
//! the writer has flushed a family, the memtables below the flush mark leave later views; the one that the mark divides
//! is copied without the entries below it. Later views must not use them: the values that they refer to may be gone,
//! and once the log was skipped they could bring back a row that a later commit has deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidesdb_io::Dir;
use tidesdb_memtable::Entry;

use super::super::RecoveryReport;
use super::super::replay::{Targets, insert_into};
use crate::engine::Engine;
use crate::family::{FamilyCore, MemSlot, ReadView};
use crate::memory::Use;
use crate::order::Gather;
use crate::ranges::RangeTombstone;
use crate::types::{FamilyId, Kind, SeqNo, VlogId};
use crate::version::State;
use crate::vlog::ValuePlace;
use crate::wal::layout::RECORD_HEADER_BYTES;
use crate::wal::{LogTail, LoggedCommit};
use crate::{Error, Result};

/// A memtable of the reader is one of this many parts of the family's write buffer. If it is smaller, less is copied
/// when the writer has flushed a part of it; if it is larger, a lookup searches fewer memtables.
const PARTS: usize = 4;
/// Smallest size of a memtable at which the next one begins.
const SLOT_BYTES_MIN: usize = 1 << 20;

/// A memtable, and what is needed to decide whether it is still used.
#[derive(Debug)]
struct Slot {
    slot: Arc<MemSlot>,
    /// Newest sequence number in it.
    newest: SeqNo,
    /// Value logs that it refers to.
    vlogs: BTreeSet<VlogId>,
}

/// The memtables of all families, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    slots: BTreeMap<FamilyId, Vec<Slot>>,
    /// Families whose operations were passed over: they were dropped, or the manifest did not name them yet.
    passed: BTreeSet<FamilyId>,
    /// Value logs that were opened when they had their last length.
    complete: BTreeSet<VlogId>,
    /// The last read ended before a commit whose value is missing and may never have been durable.
    pub(super) lacks_value: bool,
    /// Set while a piece of the log is inserted.
    torn: bool,
    /// What was read of the log so far.
    pub(super) report: RecoveryReport,
}

impl Replayed {
    /// Opens the value logs that `state` names. Takes over from `last` those that are open, if `state` names them or a
    /// memtable refers to them.
    pub(super) fn open_values(
        &mut self,
        engine: &Engine,
        last: Option<&Engine>,
        state: &State,
    ) -> Result<()> {
        let named: BTreeSet<VlogId> = state.families.values().flat_map(|f| f.vlogs.keys().copied()).gather();
        let mut complete = self.complete.clone();
        complete.retain(|id| named.contains(id));
        for core in engine.write.all_families() {
            let Some(family) = state.families.get(&core.id) else {
                continue;
            };
            let used = |id| {
                let slots = self.slots.get(&core.id).into_iter().flatten();
                family.vlogs.contains_key(&id) || slots.into_iter().any(|slot| slot.vlogs.contains(&id))
            };
            let old = last.and_then(|last| last.write.family(core.id));
            if let Some(old) = old {
                core.vlog.open.adopt(&old.vlog.open, used);
            }
            for (id, vlog) in &family.vlogs {
                if !core.vlog.open.has(*id) || !complete.contains(id) {
                    core.vlog.open.open_anew(*id)?;
                }
                if vlog.sealed_at.is_some() {
                    complete.insert(*id);
                }
            }
        }
        self.complete = complete;
        Ok(())
    }

    /// Drops what `state` has in tables.
    pub(super) fn drop_flushed(&mut self, engine: &Engine, state: &State) -> Result<()> {
        let families = engine.write.families.read().clone();
        self.slots.retain(|id, _| families.contains_key(id));
        for (id, slots) in &mut self.slots {
            let (Some(core), Some(family)) = (families.get(id), state.families.get(id)) else { continue };
            slots.retain(|slot| slot.newest > family.flushed_to);
            if let Some(first) = slots.first_mut().filter(|first| first.slot.from <= family.flushed_to) {
                let seed = engine.write.env.entropy.next_u64();
                *first = first.above(core, family.flushed_to, seed)?;
            }
        }
        Ok(())
    }

    /// Begins the log again if operations of a family of `state` were passed over: the manifest that was read before named the family not
    /// yet, although a number above its own was given away.
    pub(super) fn begin_again_if_passed(&mut self, log: &mut LogTail, state: &State) {
        if state.families.keys().any(|id| self.passed.contains(id)) {
            self.passed.clear();
            self.slots.clear();
            log.restart(super::first_segment(state));
        }
    }

    /// Reads the log from where the last read ended.
    pub(super) fn read_log(
        &mut self,
        log: &mut LogTail,
        dir: &dyn Dir,
        engine: &Engine,
        state: &State,
    ) -> Result<()> {
        let targets = Targets::new(engine, state);
        let (mut stopped, mut lacks_value) = (None, false);
        let read = log.read(dir, state.durable_mark, |piece, same_boot| {
            check_memory(engine)?;
            // A value of a commit that may not be durable can be missing: the machine stopped before it was on disk, and the log ends
            // before the commit. An operand fails if the writer has added the operator since; the next try sees it.
            let check = |commit: &LoggedCommit<'_>| {
                let is_durable = same_boot || commit.seq < state.durable_mark;
                targets.has_values(commit, same_boot, |e| e.is_corruption() && !is_durable, |_| ())
            };
            let bad = piece.commits().find_map(|commit| match check(&commit) {
                Ok(true) => None,
                Ok(false) => Some((commit.seq, None)),
                Err(e) => Some((commit.seq, Some(e))),
            });
            let until = bad.as_ref().map_or(SeqNo::MAX, |(seq, _)| *seq);
            self.torn = true;
            for commit in piece.commits().take_while(|commit| commit.seq < until) {
                self.insert(engine, &targets, &commit)?;
            }
            self.torn = false;
            stopped = bad.as_ref().and_then(|(_, e)| e.clone());
            lacks_value = bad.is_some();
            Ok(bad.map(|(seq, _)| seq))
        });
        self.lacks_value = lacks_value;
        if std::mem::take(&mut self.torn) {
            self.slots.clear(); // a part of a piece was inserted
            log.restart(super::first_segment(state));
        }
        read.and(stopped.map_or(Ok(()), Err))
    }

    /// Adds what `commit` takes. A table that the writer has removed is in the next manifest, in another form.
    fn take(&mut self, engine: &Engine, targets: &Targets, commit: &LoggedCommit<'_>) -> Result<()> {
        let passed = &mut self.passed;
        let pass = |family| {
            passed.insert(family);
        };
        for mut recovered in targets.taken(&engine.maintenance, commit, pass)? {
            let tables = recovered.tables.iter().flat_map(|table| table.meta().vlog_refs.clone());
            let vlogs: BTreeSet<VlogId> = tables.map(|r| r.vlog).gather();
            let core = Arc::clone(&recovered.family);
            // Now, as their tables: later the writer may have moved the values and removed the file.
            for id in vlogs.iter().filter(|id| !core.vlog.open.has(**id)) {
                core.vlog.open.open_anew(*id)?;
            }
            let slot = Arc::new(core.taken_slot(recovered.taken(), commit.seq)?);
            self.slots.entry(core.id).or_default().push(Slot { slot, newest: commit.end() - 1, vlogs });
        }
        Ok(())
    }

    fn insert(&mut self, engine: &Engine, targets: &Targets, commit: &LoggedCommit<'_>) -> Result<()> {
        if commit.is_ingest {
            self.take(engine, targets, commit)?;
        }
        self.report.commits += 1;
        self.report.log_bytes += (RECORD_HEADER_BYTES + commit.body.len()) as u64;
        let mut passed = std::mem::take(&mut self.passed);
        let pass = |family| {
            passed.insert(family);
        };
        let operations = targets.replay(commit, pass, |core, op| {
            let slot = self.slot_for(engine, core, commit.seq);
            insert_into(&slot.slot, core, commit.seq, &op)?;
            slot.newest = commit.seq + u64::from(op.rank);
            slot.refer_to(op.kind, op.value);
            Ok(())
        });
        self.passed = passed;
        self.report.operations += operations?;
        Ok(())
    }

    /// The memtable of commit `seq`.
    fn slot_for(&mut self, engine: &Engine, core: &Arc<FamilyCore>, seq: SeqNo) -> &mut Slot {
        let slots = self.slots.entry(core.id).or_default();
        let full = (core.buffer_bytes() / PARTS).max(SLOT_BYTES_MIN);
        let fits = |last: &Slot| last.newest >= seq || last.slot.taken.is_none() && last.slot.bytes() < full;
        if !slots.last().is_some_and(fits) {
            let slot = core.new_slot(engine.write.env.entropy.next_u64(), seq, seq);
            slots.push(Slot { slot, newest: seq, vlogs: BTreeSet::new() });
        }
        slots.last_mut().expect("a memtable was just added")
    }

    /// Puts the memtables into the read views of the families; the log ends at `end`.
    pub(super) fn publish(&self, engine: &Engine, end: SeqNo) {
        for core in engine.write.all_families() {
            let slots = self.slots.get(&core.id).map_or(&[][..], |slots| slots);
            let ends = slots.iter().skip(1).map(|next| next.slot.from);
            let mut immutables: Vec<_> =
                slots.iter().zip(ends).map(|(s, end)| (Arc::clone(&s.slot), end)).collect();
            immutables.reverse();
            let active = slots.last().map(|last| Arc::clone(&last.slot));
            let active_from = active.as_ref().map_or(end, |active| active.from);
            core.change_view(|view| ReadView { active, active_from, immutables, ..view.clone() });
        }
    }
}

impl Slot {
    fn refer_to(&mut self, kind: Kind, value: &[u8]) {
        if kind.holds_pointer()
            && let Some(place) = ValuePlace::decode(value)
        {
            if let ValuePlace::Chunks(chunks) = &place {
                self.vlogs.insert(chunks.index.vlog);
            }
            place.each_part(|vlog, _| self.vlogs.extend([vlog]));
        }
    }

    /// Copies what is newer than `flushed`.
    fn above(&self, core: &FamilyCore, flushed: SeqNo, seed: u64) -> Result<Self> {
        let slot = core.new_slot(seed, flushed + 1, flushed + 1);
        let mut copy = Self { slot, newest: self.newest, vlogs: BTreeSet::new() };
        let map = Arc::clone(&copy.slot.map);
        let refer = |e: &Entry<'_>| copy.refer_to(Kind::of_checked(e.kind), e.value);
        map.copy_newer(&self.slot.map, flushed, refer).map_err(|_| full())?;
        for tombstone in self.slot.ranges.to_owned().iter().filter(|tombstone| tombstone.seq > flushed) {
            let range = RangeTombstone::clone(tombstone);
            range.charge_to(&core.memory);
            copy.slot.ranges.add(&core.options.comparator, range);
        }
        Ok(copy)
    }
}

fn full() -> Error {
    Error::MemoryLimit { what: "reading the log beside the writer".into() }
}

fn check_memory(engine: &Engine) -> Result<()> {
    let memory = &engine.write.memory;
    if memory.used_for(Use::Memtables) <= memory.limit() {
        return Ok(());
    }
    let what = "the log that the writer has not flushed does not fit in memory_limit of the reader";
    Err(Error::MemoryLimit { what: what.into() })
}
