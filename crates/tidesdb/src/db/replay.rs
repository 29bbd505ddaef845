//! Operations of the log, as recovery and a late key order replay them: into a memtable, and from there to tables.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::{JoinHandle, Priority};
use tidesdb_memtable::Version;
use tidesdb_sync::Mutex;

use crate::family::{FamilyCore, MemSlot};
use crate::merge::CoveringRanges;
use crate::rewrite::{self, RewriteTarget, Rewritten};
use crate::shared::{JobStart, MaintenanceCtx, Shared, WriteCtx};
use crate::sources::Source;
use crate::types::{EntryCursor, FamilyId, Kind, SeqNo, VlogId};
use crate::version::State;
use crate::vlog::ValuePlace;
use crate::wal::reader::{LoggedCommit, Piece, Scan};
use crate::write::{Op, ops};
use crate::{Error, Result};

/// Inserts an operation of commit `seq` into the memtable of `family`.
pub(super) fn insert(ctx: &WriteCtx, family: &Arc<FamilyCore>, seq: SeqNo, op: &Op<'_>) -> Result<()> {
    insert_into(&*slot_for(ctx, family, seq)?, family, seq, op)
}

/// The memtable of commit `seq`, which is made if it is missing.
fn slot_for(ctx: &WriteCtx, family: &FamilyCore, seq: SeqNo) -> Result<Arc<MemSlot>> {
    let found = || family.owned_view().slot_for(seq).cloned();
    if let Some(slot) = found() {
        return Ok(slot);
    }
    family.make_slot(seq, ctx.env.entropy.next_u64(), || seq);
    found().ok_or_else(|| Error::internal("a replayed commit has no memtable"))
}

/// Inserts an operation of commit `seq` into `slot`.
pub(super) fn insert_into(slot: &MemSlot, family: &FamilyCore, seq: SeqNo, op: &Op<'_>) -> Result<()> {
    let seq = seq + u64::from(op.rank);
    if op.kind == Kind::RangeDelete {
        slot.ranges.add(&family.options.comparator, op.range_tombstone(seq));
        return Ok(());
    }
    let version = Version { seq, kind: op.kind as u8, expiry: op.expiry };
    let full = |_| Error::MemoryLimit { what: "replaying the log".into() };
    slot.map.insert(op.key, version, op.value).map_err(full)
}

/// Checks that an operation of the log is one that its family can have.
///
/// # Errors
/// `Corrupt` for an operand in a family without a merge operator: the manifest names the operator before the first operand is logged.
pub(super) fn check_operand(family: &FamilyCore, op: &Op<'_>, commit: &LoggedCommit<'_>) -> Result<()> {
    if op.kind == Kind::Merge && family.options.merge_operator().is_none() {
        let what = "an operand for a family without a merge operator";
        return Err(Error::corrupt(commit.file, commit.offset, what));
    }
    Ok(())
}

/// What the threads of a recovery need.
pub(super) struct Replayer {
    write: Arc<WriteCtx>,
    /// Each family with the newest commit that is in its tables or deferred.
    families: BTreeMap<FamilyId, (Arc<FamilyCore>, SeqNo)>,
    /// No family has this number or a higher one.
    next_family: FamilyId,
    /// Commits below this are durable, with their values.
    synced: SeqNo,
    /// No byte that was written is lost.
    same_boot: bool,
    /// A sync failed: bytes that can be read may not be on disk.
    sync_failed: bool,
}

/// What [`Replayer::check_values`] finds.
#[derive(Debug, Default)]
pub(super) struct CheckedValues {
    /// The first commit with a missing value.
    pub(super) missing: Option<SeqNo>,
    /// Bytes of values that are not known to be durable.
    pub(super) bytes: u64,
    /// Parts of value logs that may not be on disk although they can be read.
    pub(super) doubtful: BTreeMap<VlogId, Range<u64>>,
}

impl Replayer {
    pub(super) fn new(shared: &Shared, state: &State, scan: &Scan, sync_failed: bool) -> Self {
        let flushed = |id: &FamilyId| state.families.get(id).map_or(0, |family| family.flushed_to);
        let families = shared.write.families.read();
        Self {
            write: Arc::clone(&shared.write),
            families: families.iter().map(|(id, f)| (*id, (Arc::clone(f), flushed(id)))).collect(),
            next_family: state.next_family,
            synced: scan.synced,
            same_boot: scan.same_boot,
            sync_failed,
        }
    }

    /// Calls `work` with each part of the log, with all but the first in threads of their own, as far as the system has threads. Returns
    /// the results in order.
    pub(super) fn in_parallel<R: Send + 'static>(
        self: &Arc<Self>,
        parts: Vec<Piece>,
        work: fn(&Self, &Piece) -> Result<R>,
    ) -> Result<Vec<R>> {
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return Ok(Vec::new()) };
        let others: Vec<_> = parts
            .map(|part| {
                let part = Arc::new(part);
                (self.start(&part, work), part)
            })
            .collect();
        let mut results = vec![work(self, &first)];
        for (thread, part) in others {
            // Every thread is joined, also after a failure.
            results.push(match thread {
                Some((thread, result)) => {
                    let done = thread.join().then(|| result.lock().take()).flatten();
                    done.unwrap_or_else(|| Err(Error::internal("a thread of the recovery panicked")))
                }
                None => work(self, &part),
            });
        }
        results.into_iter().collect()
    }

    /// Starts a thread that calls `work`. `None` if the system has none left.
    fn start<R: Send + 'static>(
        self: &Arc<Self>,
        part: &Arc<Piece>,
        work: fn(&Self, &Piece) -> Result<R>,
    ) -> Option<Running<R>> {
        let result = Arc::new(Mutex::new(None));
        let (this, part, out) = (Arc::clone(self), Arc::clone(part), Arc::clone(&result));
        let body = move || {
            let done = work(&this, &part);
            *out.lock() = Some(done);
        };
        let thread = self.write.env.threads.spawn("tidesdb-replay", Priority::Normal, Box::new(body));
        thread
            .inspect_err(
                |e| tracing::warn!(error = %e, "no thread for the replay of the log; it goes on with fewer"),
            )
            .ok()
            .map(|thread| (thread, result))
    }

    /// Inserts the operations of resolved families. Returns the number of all operations.
    pub(super) fn insert(&self, piece: &Piece) -> Result<u64> {
        let mut operations = 0;
        let mut slots: Vec<(FamilyId, Arc<MemSlot>)> = Vec::new();
        for commit in piece.commits() {
            for op in ops(commit.body, commit.file, commit.offset) {
                let op = op?;
                operations += 1;
                let Some((family, flushed)) = self.families.get(&op.family) else {
                    if op.family < self.next_family {
                        continue; // dropped since
                    }
                    let what = "a commit for a family that never existed";
                    return Err(Error::corrupt(commit.file, commit.offset, what));
                };
                if commit.seq <= *flushed || family.is_unresolved() {
                    continue;
                }
                check_operand(family, &op, &commit)?;
                // No memtable is rotated meanwhile.
                let slot = match slots.iter().position(|(id, _)| *id == op.family) {
                    Some(n) => &slots[n].1,
                    None => {
                        slots.push((op.family, slot_for(&self.write, family, commit.seq)?));
                        &slots[slots.len() - 1].1
                    }
                };
                insert_into(slot, family, commit.seq, &op)?;
            }
        }
        Ok(operations)
    }

    /// Checks whether the values are there that commits point to.
    ///
    /// A value is written before the record that points to it. So a value of a durable record is durable, and a value
    /// of any record is whole while the kernel has lost nothing: then it is enough that its file is long enough. Only
    /// after a crash of the machine or a failed sync, the values of records that are not known to be durable are read.
    /// A commit without its values was never acknowledged as durable.
    pub(super) fn check_values(&self, piece: &Piece) -> Result<CheckedValues> {
        let mut found = CheckedValues::default();
        for commit in piece.commits().filter(|commit| commit.seq >= self.synced) {
            for op in ops(commit.body, commit.file, commit.offset) {
                let op = op?;
                if op.kind != Kind::PutPointer {
                    continue;
                }
                let Some((family, flushed)) = self.families.get(&op.family) else {
                    continue; // dropped since
                };
                if commit.seq <= *flushed {
                    continue; // the value log of a flushed commit may have been removed since
                }
                let place = ValuePlace::decode(op.value).ok_or_else(|| {
                    Error::corrupt(commit.file, commit.offset, "a malformed pointer into a value log")
                })?;
                match self.check_value(family, &place) {
                    Ok(()) => found.add(&place, self.sync_failed),
                    Err(e) if e.is_corruption() || e.io_kind() == Some(std::io::ErrorKind::NotFound) => {
                        found.missing = Some(commit.seq);
                        return Ok(found);
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(found)
    }

    fn check_value(&self, family: &FamilyCore, place: &ValuePlace) -> Result<()> {
        match place {
            ValuePlace::Record(pointer) if self.same_boot => family.vlog.check_place(pointer),
            ValuePlace::Record(pointer) => family.vlog.check(pointer),
            ValuePlace::Chunks(place) => family.vlog.check_chunks(place), // durable before its commit was logged
        }
    }

    /// Returns whether a family is unresolved.
    pub(super) fn has_unresolved(&self) -> bool {
        self.families.values().any(|(family, _)| family.is_unresolved())
    }

    /// Returns the family `id` if it is unresolved and has not deferred commit `seq` before.
    pub(super) fn unresolved(&self, seq: SeqNo, id: FamilyId) -> Option<&Arc<FamilyCore>> {
        let (family, flushed) = self.families.get(&id)?;
        (family.is_unresolved() && seq > *flushed).then_some(family)
    }
}

type Running<R> = (JoinHandle, Arc<Mutex<Option<Result<R>>>>);

impl CheckedValues {
    fn add(&mut self, place: &ValuePlace, doubtful: bool) {
        let ValuePlace::Record(pointer) = place else { return };
        self.bytes += pointer.record_bytes();
        if doubtful {
            let (from, to) = (pointer.offset, pointer.offset + pointer.record_bytes());
            let range = self.doubtful.entry(pointer.vlog).or_insert(from..to);
            *range = range.start.min(from)..range.end.max(to);
        }
    }
}

/// Writes the memtables of `family` as tables, which nothing names yet, the oldest first. `has_more` says that there
/// are tables below them that the version does not have.
pub(super) fn to_tables(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    has_more: bool,
) -> Result<Vec<Rewritten>> {
    let view = family.owned_view();
    let slots: Vec<_> = view.memtables().collect();
    let mut bottom = view.version.is_empty() && !has_more;
    let mut out: Vec<Rewritten> = Vec::new();
    for slot in slots.into_iter().rev() {
        match to_table(ctx, family, slot, bottom) {
            Ok(table) => out.push(table),
            Err(e) => {
                out.iter().for_each(|table| table.abandon(ctx));
                return Err(e);
            }
        }
        bottom = false;
    }
    Ok(out)
}

fn to_table(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    slot: &MemSlot,
    bottom: bool,
) -> Result<Rewritten> {
    let job = ctx.write.running.begin(JobStart {
        kind: "recovery",
        family: family.name(),
        target: rewrite::FLUSH_LEVEL,
        bytes: slot.bytes() as u64,
        entries: slot.map.entries(),
        parts_done: Vec::new(),
    });
    let mut cursor = Source::memtable(&slot.map);
    cursor.seek_to_first()?;
    let ranges = slot.ranges.to_owned();
    let purge = CoveringRanges { ranges: ranges.clone(), complete_to: 0 };
    let target = RewriteTarget { progress: Some(&job.progress), ..RewriteTarget::flush(bottom) };
    let mut out = rewrite::run(ctx, family, cursor, target, &purge)?;
    out.ranges = ranges.iter().cloned().collect();
    Ok(out)
}
