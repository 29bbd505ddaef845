//! Replay of the log: which of its operations are applied, whether their values are there, and the threads of a recovery, which insert
//! them into memtables. A reader beside the writer decides by the same rules, and inserts into memtables of its own
//! (`reader/replayed.rs`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::{JoinHandle, Priority};
use tidesdb_sync::{Mutex, pin};

use crate::context::WriteCtx;
use crate::engine::Engine;
use crate::family::{FamilyCore, MemSlot, TakenTables};
use crate::ingest::{IngestRecord, Taking};
use crate::jobs::JobStart;
use crate::maintenance::MaintenanceCtx;
use crate::merge::CoveringRanges;
use crate::pacing::RunningReduction;
use crate::ranges::RangeTombstone;
use crate::rewrite::{self, RewriteTarget, Rewritten};
use crate::sources::Source;
use crate::sst::Table;
use crate::types::{EntryCursor, FamilyId, SeqNo, VlogId, head_of};
use crate::version::State;
use crate::vlog::{ValuePlace, VlogPointer};
use crate::wal::{LoggedCommit, Piece};
use crate::write::{Op, insert_op, logged_ops, slot_of};
use crate::{Error, Result};

/// Operations that a thread sorts before it inserts them.
const SORTED_MAX: usize = 32 << 10;

/// The memtable of commit `seq`, which is made if it is missing.
fn slot_for(ctx: &WriteCtx, family: &FamilyCore, seq: SeqNo) -> Result<Arc<MemSlot>> {
    let slot = slot_of(ctx, family, seq, &pin())?.cloned();
    slot.ok_or_else(|| Error::internal("a replayed commit has no memtable"))
}

/// Inserts an operation of commit `seq` into `slot`.
pub(super) fn insert_into(slot: &MemSlot, family: &FamilyCore, seq: SeqNo, op: &Op<'_>) -> Result<()> {
    let full = |_| Error::MemoryLimit { what: "replaying the log".into() };
    insert_op(slot, family, seq, op, None).map_err(full)
}

/// The families that the log may name.
pub(super) struct Targets {
    /// Each family with the newest commit that is in its tables.
    families: BTreeMap<FamilyId, (Arc<FamilyCore>, SeqNo)>,
    /// No family has this number or a higher one.
    next_family: FamilyId,
}

impl Targets {
    pub(super) fn new(engine: &Engine, state: &State) -> Self {
        let flushed = |id: &FamilyId| state.families.get(id).map_or(0, |family| family.flushed_to);
        let families = engine.write.families.read();
        Self {
            families: families.iter().map(|(id, f)| (*id, (Arc::clone(f), flushed(id)))).collect(),
            next_family: state.next_family,
        }
    }

    /// Calls `visit` with each operation of `commit` that is in no table, and its family, and `pass` with each family that does not exist.
    /// Returns the number of all operations.
    ///
    /// # Errors
    /// `Corrupt` for a family that never existed, and for an operand in a family without a merge operator: the manifest names the
    /// operator before the first operand is logged. Errors of `visit`.
    pub(super) fn replay<'s, 'a>(
        &'s self,
        commit: &LoggedCommit<'a>,
        mut pass: impl FnMut(FamilyId),
        mut visit: impl FnMut(&'s Arc<FamilyCore>, Op<'a>) -> Result<()>,
    ) -> Result<u64> {
        let corrupt = |what| Err(Error::corrupt(commit.file, commit.offset, what));
        let mut operations = 0;
        if commit.is_ingest {
            return Ok(0); // see `taken`
        }
        for op in logged_ops(commit) {
            let op = op?;
            operations += 1;
            let Some((family, flushed)) = self.families.get(&op.family) else {
                if op.family < self.next_family {
                    pass(op.family); // dropped since
                    continue;
                }
                return corrupt("a commit for a family that never existed");
            };
            if commit.seq <= *flushed {
                continue;
            }
            if op.kind.is_operand() && family.options.merge_operator().is_none() {
                return corrupt("an operand for a family without a merge operator");
            }
            visit(family, op)?;
        }
        Ok(operations)
    }

    /// What `commit` takes that is in no version yet, by family, and calls `pass` with each family that does not exist. Opens the tables.
    ///
    /// # Errors
    /// As [`Targets::replay`]; `Corrupt` and `Io` for a table that cannot be opened.
    pub(super) fn taken(
        &self,
        ctx: &MaintenanceCtx,
        commit: &LoggedCommit<'_>,
        mut pass: impl FnMut(FamilyId),
    ) -> Result<Vec<Recovered>> {
        let record = IngestRecord::decode(commit)?;
        let mut all: Vec<Recovered> = Vec::new();
        for (position, (id, taking)) in (0..).zip(record.parts()) {
            let Some((family, flushed)) = self.families.get(&id) else {
                if id < self.next_family {
                    pass(id); // dropped since
                    continue;
                }
                let what = "a commit takes tables for a family that never existed";
                return Err(Error::corrupt(commit.file, commit.offset, what));
            };
            if commit.seq <= *flushed {
                continue;
            }
            let known = all.iter().position(|recovered| recovered.family.id == id);
            let at = known.unwrap_or_else(|| {
                all.push(Recovered { family: Arc::clone(family), tables: Vec::new(), ranges: Vec::new() });
                all.len() - 1
            });
            match taking {
                Taking::Table(meta) => {
                    all[at].tables.push(Table::open(
                        &ctx.tables,
                        &family.options.comparator,
                        Arc::clone(meta),
                    )?);
                }
                Taking::Range(..) => all[at].ranges.extend(taking.range(commit.seq + position)),
            }
        }
        Ok(all)
    }

    /// Checks that the values are there to which `commit` points, and passes each record of them to `visit`. Returns false if an error
    /// says that a value `is_missing`.
    ///
    /// # Errors
    /// As [`Targets::replay`]; errors of a value, except those for which `is_missing` returns true.
    pub(super) fn has_values(
        &self,
        commit: &LoggedCommit<'_>,
        same_boot: bool,
        is_missing: impl Fn(&Error) -> bool,
        mut visit: impl FnMut(&VlogPointer),
    ) -> Result<bool> {
        let mut is_whole = true;
        self.replay(
            commit,
            |_| {},
            |family, op| {
                if !op.kind.holds_pointer() {
                    return Ok(());
                }
                let malformed =
                    || Error::corrupt(commit.file, commit.offset, "a malformed pointer into a value log");
                let place = ValuePlace::decode(op.value).ok_or_else(malformed)?;
                match check_value(family, &place, same_boot, &mut visit) {
                    Err(e) if is_missing(&e) => {
                        is_whole = false;
                        Ok(())
                    }
                    checked => checked,
                }
            },
        )?;
        Ok(is_whole)
    }
}

/// What a commit of the log takes for one family.
pub(super) struct Recovered {
    pub(super) family: Arc<FamilyCore>,
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) ranges: Vec<RangeTombstone>,
}

impl Recovered {
    /// It as the family takes it.
    pub(super) fn taken(&mut self) -> TakenTables<'_> {
        TakenTables { tables: &self.tables, ranges: std::mem::take(&mut self.ranges) }
    }
}

/// Checks that a value is there, and opens its files. In the `same_boot` that wrote them it is enough that they are long enough. Passes each
/// record of the value to `visit`.
fn check_value(
    family: &FamilyCore,
    place: &ValuePlace,
    same_boot: bool,
    mut visit: impl FnMut(&VlogPointer),
) -> Result<()> {
    match place {
        ValuePlace::Chunks(place) => family.vlog.check_chunks(place, !same_boot, visit),
        ValuePlace::Record(pointer) => family.vlog.check(pointer, !same_boot).map(|()| visit(pointer)),
    }
}

/// What the threads of a recovery need.
pub(super) struct Replayer {
    write: Arc<WriteCtx>,
    pub(super) targets: Targets,
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
    pub(super) fn new(engine: &Engine, state: &State, same_boot: bool, sync_failed: bool) -> Self {
        let targets = Targets::new(engine, state);
        Self { write: Arc::clone(&engine.write), targets, same_boot, sync_failed }
    }

    /// The kernel has every byte that the processes before have written.
    pub(super) fn has_lost_nothing(&self) -> bool {
        self.same_boot && !self.sync_failed
    }

    /// Calls `work` with each part of the log: in threads of their own, as far as the system has threads; at once if there is only one part.
    pub(super) fn begin<R: Send + 'static>(
        self: &Arc<Self>,
        parts: Vec<Piece>,
        work: fn(&Self, &Piece) -> Result<R>,
    ) -> Begun<R> {
        let alone = parts.len() == 1;
        let begin = |part| {
            let part = Arc::new(part);
            let thread = if alone { None } else { self.start(&part, work) };
            thread.ok_or_else(|| work(self, &part))
        };
        Begun(parts.into_iter().map(begin).collect())
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
            drop(part); // the buffer of the piece is free before anyone can see that the thread has ended
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

    /// Inserts the operations. Returns their number.
    pub(super) fn insert(&self, piece: &Piece) -> Result<u64> {
        let mut operations = 0;
        let mut sorted = Sorted::default();
        for commit in piece.commits() {
            operations += self.targets.replay(
                &commit,
                |_| {},
                |family, op| {
                    sorted.add(&self.write, commit.seq, op, family)?;
                    if sorted.ops.len() < SORTED_MAX { Ok(()) } else { sorted.insert() }
                },
            )?;
        }
        sorted.insert()?;
        Ok(operations)
    }

    /// Checks whether the values are there that commits point to, which are not known to be durable.
    ///
    /// A value is written before the record that points to it. So a value of a durable record is durable, and a value
    /// of any record is whole while the kernel has lost nothing: then it is enough that its file is long enough. Only
    /// after a crash of the machine or a failed sync, the values of records that are not known to be durable are read.
    /// A commit without its values was never acknowledged as durable.
    pub(super) fn check_values(&self, piece: &Piece) -> Result<CheckedValues> {
        let mut found = CheckedValues::default();
        let is_missing = |e: &Error| e.is_corruption() || e.io_kind() == Some(std::io::ErrorKind::NotFound);
        for commit in piece.commits() {
            let add = |part: &VlogPointer| found.add(part, self.sync_failed);
            if !self.targets.has_values(&commit, self.same_boot, is_missing, add)? {
                found.missing = Some(commit.seq);
                break;
            }
        }
        Ok(found)
    }
}

/// Work on parts of the log that threads carry out, or its result if there was no thread for it.
pub(super) struct Begun<R>(Vec<std::result::Result<Running<R>, Result<R>>>);

type Running<R> = (JoinHandle, Arc<Mutex<Option<Result<R>>>>);

impl<R> Begun<R> {
    /// Waits for all threads, also after a failure. Returns the results in order.
    pub(super) fn finish(self) -> Result<Vec<R>> {
        let finish = |part: std::result::Result<Running<R>, Result<R>>| match part {
            Ok((thread, result)) => {
                let done = thread.join().then(|| result.lock().take()).flatten();
                done.unwrap_or_else(|| Err(Error::internal("a thread of the recovery panicked")))
            }
            Err(done) => done,
        };
        let results: Vec<Result<R>> = self.0.into_iter().map(finish).collect();
        results.into_iter().collect()
    }
}

/// Operations that are inserted in the order of their keys, which takes half the time of the order of the log: neighbours in the memtable
/// are then in the processor's cache.
#[derive(Default)]
struct Sorted<'a> {
    targets: Vec<Target<'a>>,
    /// The index of each family in the targets.
    known: BTreeMap<FamilyId, usize>,
    ops: Vec<(SeqNo, Op<'a>)>,
    /// Target, first bytes of the key, and index of each operation.
    order: Vec<(u32, u64, u32)>,
}

/// A family, and the memtable of its operations.
struct Target<'a> {
    family: &'a FamilyCore,
    slot: Arc<MemSlot>,
    bytewise: bool,
}

impl<'a> Sorted<'a> {
    /// Adds an operation of commit `seq`. No memtable is rotated meanwhile.
    fn add(&mut self, ctx: &WriteCtx, seq: SeqNo, op: Op<'a>, family: &'a FamilyCore) -> Result<()> {
        let target = match self.known.get(&family.id) {
            Some(n) => *n,
            None => {
                self.known.insert(family.id, self.targets.len());
                let bytewise = family.options.comparator.custom_compare().is_none();
                self.targets.push(Target { family, slot: slot_for(ctx, family, seq)?, bytewise });
                self.targets.len() - 1
            }
        };
        // Operations of another order stay in the order of the log.
        let head = if self.targets[target].bytewise { head_of(op.key) } else { 0 };
        self.order.push((target as u32, head, self.ops.len() as u32));
        self.ops.push((seq, op));
        Ok(())
    }

    /// Inserts all operations. Those of one key and one commit stay in order: the last one wins.
    fn insert(&mut self) -> Result<()> {
        let Self { targets, ops, order, .. } = self;
        let key = |n: u32| ops[n as usize].1.key;
        order.sort_unstable_by(|a, b| {
            (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| match targets[a.0 as usize].bytewise {
                true => key(a.2).cmp(key(b.2)).then(a.2.cmp(&b.2)),
                false => a.2.cmp(&b.2),
            })
        });
        for (target, _, n) in order.drain(..) {
            let (target, (seq, op)) = (&targets[target as usize], &ops[n as usize]);
            insert_into(&target.slot, target.family, *seq, op)?;
        }
        ops.clear();
        Ok(())
    }
}

impl CheckedValues {
    fn add(&mut self, pointer: &VlogPointer, doubtful: bool) {
        self.bytes += pointer.record_bytes();
        if doubtful {
            let (from, to) = (pointer.offset, pointer.offset + pointer.record_bytes());
            let range = self.doubtful.entry(pointer.vlog).or_insert(from..to);
            *range = range.start.min(from)..range.end.max(to);
        }
    }
}

/// Tables that were written and that nothing names yet, by family, the oldest first.
pub(super) type NewTables = BTreeMap<FamilyId, (Arc<FamilyCore>, Vec<Rewritten>)>;

/// Writes the memtables of `family` as tables, which nothing names yet, the oldest first. Appends them to `tables`, which has earlier
/// ones that the version does not have.
pub(super) fn to_tables(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    tables: &mut NewTables,
) -> Result<()> {
    let view = family.owned_view();
    let slots: Vec<_> = view.memtables().collect();
    for slot in slots.into_iter().rev() {
        let bottom = view.version.is_empty() && !tables.contains_key(&family.id);
        let table = match &slot.taken {
            None => to_table(ctx, family, slot, bottom)?,
            Some(taken) => {
                let mut out =
                    Rewritten::unchanged(taken.oldest_first().map(|t| Arc::clone(t.meta())).collect());
                out.ranges = slot.ranges.to_owned().iter().cloned().collect();
                out
            }
        };
        tables.entry(family.id).or_insert_with(|| (Arc::clone(family), Vec::new())).1.push(table);
    }
    Ok(())
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
        reduces: RunningReduction::default(),
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
