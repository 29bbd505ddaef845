//! Commit: the only entry point for data.
//!
//! Invariants: log order is sequence order; nothing is published that is not in the log; nothing becomes visible before
//! all earlier commits; after the first failure nothing is acknowledged. A failure before the log is written leaves no
//! trace. A failure after that is `CommitUnknown`, and the database is poisoned.

use std::sync::atomic::Ordering;

use tidesdb_io::Buffer;
use tidesdb_sync::pin;

use super::admit::{admit, admit_ranges, admit_taken};
use super::batch::{KEPT_AFTER_COMMIT, WriteBatch};
use super::chunks::refuse_comparators;
use super::insert::insert;
use super::ops::{Op, encode_op, ops};
use super::staged::{Staged, stage};
use crate::callback::{comparing, contained};
use crate::context::{StagedTables, WriteCtx};
use crate::family::{Committed, CommittedOp, FamilyCore, Metric};
use crate::jobs::{Job, ThreadKind};
use crate::memory::{Reservation, Use};
use crate::options::{SyncMode, WriteOptions};
use crate::stats::counts::{self, Counter};
use crate::types::{Between, Kind, SeqNo, moment_of};
use crate::vlog::{Appended, ValuePlace, VlogPointer};
use crate::waits::StallCause;
use crate::wal::layout::{RECORD_HEADER_BYTES, RecordKind, blank_record};
use crate::wal::{Commit, Unpublished};
use crate::{Error, Result};

/// The name of a batch in error messages.
const BODY: &str = "a batch in memory";

/// Commits `batch` and clears it. Returns its sequence number. Earlier commits become as durable as the sync mode says, even
/// if the batch is empty.
///
/// # Errors
/// Before the log is written: nothing happened and the batch is kept. After it: `CommitUnknown`.
pub fn commit(ctx: &WriteCtx, batch: &mut WriteBatch, options: &WriteOptions) -> Result<SeqNo> {
    commit_on(ctx, batch, options, None)
}

/// Like [`commit`], provided that `check_unchanged` succeeds for all commits after `since` and before this one. It is
/// called with a range of sequence numbers (both ends excluded) once all commits in it are in the memtables.
/// Meanwhile commits without a condition continue and do not wait. Commits with a condition are decided in the order in
/// which they got their places.
///
/// # Errors
/// Errors of `check_unchanged`, such as `Conflict`; nothing happened and the batch is kept. Others as [`commit`].
pub fn commit_if(
    ctx: &WriteCtx,
    batch: &mut WriteBatch,
    options: &WriteOptions,
    since: SeqNo,
    check_unchanged: impl Fn(&WriteBatch, Between) -> Result<()>,
) -> Result<SeqNo> {
    commit_on(ctx, batch, options, Some(Condition { checked: since, check_unchanged: &check_unchanged }))
}

/// What must hold for a commit.
struct Condition<'a> {
    /// It holds for all commits up to this one.
    checked: SeqNo,
    check_unchanged: &'a dyn Fn(&WriteBatch, Between) -> Result<()>,
}

impl Condition<'_> {
    /// Checks the commits below `before` that are not checked yet.
    fn check(&mut self, batch: &WriteBatch, before: SeqNo) -> Result<()> {
        let during = Between { after: self.checked, before };
        if !during.is_empty() {
            comparing(|| (self.check_unchanged)(batch, during))?;
            self.checked = before - 1;
        }
        Ok(())
    }

    /// Checks it for all commits before `commit`, which has its place in the log.
    fn decide(&mut self, ctx: &WriteCtx, batch: &WriteBatch, commit: &Commit) -> Result<()> {
        match ctx.log.sequencer().wait_for_earlier(commit) {
            true => self.check(batch, commit.seq),
            false => ctx.health.check().and(Err(Error::Closed)), // stopped: the cause, which is known by now
        }
    }
}

/// The one path of a commit. Inlined, so a commit without a condition has no trace of conditions.
#[inline(always)]
fn commit_on(
    ctx: &WriteCtx,
    batch: &mut WriteBatch,
    options: &WriteOptions,
    mut condition: Option<Condition<'_>>,
) -> Result<SeqNo> {
    check(ctx, batch)?;
    if batch.is_empty() {
        return commit_nothing(ctx, options);
    }
    let sequencer = ctx.log.sequencer();
    if let Some(condition) = &mut condition {
        // Most conflicts already exist at this point; detecting them here saves a log record.
        condition.check(batch, sequencer.visible_end())?;
    }
    let _ranges = admit_ranges(ctx, batch)?;
    let kept = make_ready(ctx, batch)?;
    let sync = options.sync.unwrap_or(ctx.options.sync);
    let durable = sync == SyncMode::Full;
    // Only one conditional commit runs at a time, from getting its place to the insert. Without the lock, a thread that
    // loses the processor after getting its place would make all others spin behind it.
    let deciding = condition.as_ref().map(|_| ctx.deciding.lock());
    let here = Unpublished::begin();
    let staged = match condition {
        None if batch.is_large() => stage(ctx, batch).inspect_err(|_| batch.restore_values())?,
        _ => None, // with a condition, readers would see the memtables before the verdict
    };
    let inserted = staged.is_some();
    let kept = kept.filter(|_| !inserted);
    let large = batch.is_large().then(|| sequencer.begin_large());
    let place = reserve(ctx, batch, staged)?;
    let unfinished = Unfinished(Some(ctx));
    let verdict = condition.as_mut().map_or(Ok(()), |condition| condition.decide(ctx, batch, &place));
    let kind = if verdict.is_ok() { RecordKind::Commit } else { RecordKind::Refused };
    let written = ctx.log.write_at(&place, kind, batch.counts.ops, &mut batch.record, !durable);
    written.map_err(|e| unknown(ctx, &place, e))?;
    if let Err(e) = verdict {
        sequencer.done(&place);
        unfinished.finished();
        batch.restore_values();
        return Err(e);
    }
    let full = inserted || insert(ctx, batch, &place).map_err(|e| unknown(ctx, &place, e))?;
    drop(kept); // memtables have it now
    publish(ctx, &place, durable);
    drop((here, deciding));
    acknowledge(ctx, &place, sync)?;
    drop(large);
    unfinished.finished();
    Ok(after(ctx, batch, &place, full))
}

/// Commits `record`, which takes the tables of `staged`: their files have their names in the database and are durable. `within` is called
/// while the commit has its number and no later one has. Returns the sequence number of the last part of the record.
///
/// # Errors
/// Before the log is written: nothing happened. After it: `CommitUnknown`.
pub(crate) fn commit_taken(
    ctx: &WriteCtx,
    record: &mut Buffer,
    staged: &mut [StagedTables],
    options: &WriteOptions,
    within: impl Fn(),
) -> Result<SeqNo> {
    ctx.check_writable()?;
    staged.iter().try_for_each(|part| part.family.check_usable())?;
    let _kept = admit_taken(ctx, staged)?;
    let sync = options.sync.unwrap_or(ctx.options.sync);
    let durable = sync == SyncMode::Full;
    let here = Unpublished::begin();
    let bytes = record.len() as u64;
    let (place, taken) = ctx.reserve_taken(record, staged, within).map_err(|e| ctx.refused(bytes, e))?;
    let unfinished = Unfinished(Some(ctx));
    taken.map_err(|e| unknown(ctx, &place, e))?;
    let parts = staged.iter().map(|part| part.tables.len() as u32).sum();
    let last =
        staged.iter().flat_map(|part| &part.positions).max().map_or(place.seq, |last| place.seq + last);
    let written = ctx.log.write_at(&place, RecordKind::Ingest, parts, record, !durable);
    written.map_err(|e| unknown(ctx, &place, e))?;
    publish(ctx, &place, durable);
    drop(here);
    acknowledge(ctx, &place, sync)?;
    unfinished.finished();
    if ctx.log.wants_next(&place) {
        ask_ahead(ctx, &place);
    }
    Ok(last)
}

/// Checks that `batch` may be committed to this database, and by this thread now.
fn check(ctx: &WriteCtx, batch: &WriteBatch) -> Result<()> {
    ctx.check_writable()?;
    refuse_comparators()?; // this commit would wait for the outer commit, which waits for it
    batch.families.iter().try_for_each(|family| family.check_usable())?;
    if batch.families.iter().any(|f| !f.vlog.is_in(ctx.log.dir())) {
        return Err(Error::invalid("a batch holds a family of another database"));
    }
    Ok(())
}

/// Does everything that can be refused without harm before the commit gets its place in the order of commits.
/// Returns the memory that is kept for it, if it needs much.
fn make_ready(ctx: &WriteCtx, batch: &mut WriteBatch) -> Result<Option<Reservation>> {
    let kept = admit(ctx, batch)?;
    let separates =
        batch.families.iter().any(|f| batch.counts.value_bytes_max >= f.options.value_threshold());
    if separates || batch.is_large() {
        make_long_ready(ctx, batch, separates)?;
    }
    Ok(kept)
}

/// Before values are written or a large batch is sorted, makes sure that the log has room for the record. Any other
/// commit makes room when it gets its place.
#[cold]
fn make_long_ready(ctx: &WriteCtx, batch: &mut WriteBatch, separates: bool) -> Result<()> {
    let bytes = batch.record.len() as u64;
    ctx.log.make_room(bytes, batch.purpose()).map_err(|e| ctx.refused(bytes, e))?;
    if separates { separate(ctx, batch).map_err(|e| ctx.refused(bytes, e)) } else { Ok(()) }
}

/// Gets the place of `batch` in the order of commits; `staged` holds its operations if they are sorted already.
#[inline]
fn reserve(ctx: &WriteCtx, batch: &mut WriteBatch, staged: Option<Staged>) -> Result<Commit> {
    let (bytes, purpose) = (batch.record.len() as u64, batch.purpose());
    let reserved = match staged {
        Some(staged) => ctx.reserve_staged(&mut batch.record, purpose, staged),
        None => ctx.log.reserve(&mut batch.record, purpose),
    };
    reserved.map_err(|e| {
        batch.restore_values();
        ctx.refused(bytes, e)
    })
}

/// Publishes a commit that is in the log and inserted, or marks it ready to be published once it is durable.
fn publish(ctx: &WriteCtx, commit: &Commit, durable: bool) {
    debug_assert!(commit.seq < commit.end);
    let sequencer = ctx.log.sequencer();
    if durable {
        sequencer.ready(commit);
    } else {
        sequencer.done(commit);
    }
}

/// A commit that is in the log and not yet published. If a panic ends it here, all later commits would wait for it: dropping this guard
/// poisons the database instead.
struct Unfinished<'a>(Option<&'a WriteCtx>);

impl Unfinished<'_> {
    fn finished(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(ctx) = self.0 {
            ctx.poison(Error::internal("a commit ended before it was published"));
        }
    }
}

/// Poisons the database, because the content of its log is unknown, and returns the error.
fn unknown(ctx: &WriteCtx, commit: &Commit, e: Error) -> Error {
    Error::CommitUnknown { seq: commit.seq, cause: ctx.poison(e) }
}

/// Moves values of at least their family's threshold to the value log and leaves pointers.
fn separate(ctx: &WriteCtx, batch: &mut WriteBatch) -> Result<()> {
    let _reservation = ctx.log.reserve_space_for_values(batch.record.len() as u64)?;
    if ctx.reads.closed.load(Ordering::SeqCst) {
        return Err(Error::Closed); // `close` waits only for earlier commits
    }
    let all = ops(&batch.record[RECORD_HEADER_BYTES..], BODY, 0).collect::<Result<Vec<Op<'_>>>>()?;
    let is_large = |op: &Op<'_>, family: &FamilyCore, threshold: usize| {
        op.family == family.id && op.kind.holds_value() && op.value.len() >= threshold
    };
    let (mut pointers, mut moved) = (Vec::new(), 0);
    for family in &batch.families {
        // A failed write of values leaves at worst garbage at the end of a value log; nothing refers to it.
        let threshold = family.options.value_threshold(); // read once: the setting may change meanwhile
        let large = all.iter().filter(|op| is_large(op, family, threshold)).map(|op| op.value);
        let values = large.inspect(|value| moved += value.len());
        let mut out = Appended::default();
        family.vlog.append_all(values, family.options.compression(), &mut out)?;
        batch.leases.append(&mut out.leases);
        let sum = |bytes: fn(&VlogPointer) -> u64| out.pointers.iter().map(bytes).sum();
        let stored = sum(VlogPointer::record_bytes);
        family.count(Metric::ValueLogWritten, stored);
        counts::add(Counter::ValuesWritten, stored);
        family.collection.note_stored(sum(|pointer| u64::from(pointer.raw_len)), stored);
        pointers.push((family, threshold, out.pointers.into_iter()));
    }
    let pointer_bytes: usize = pointers.iter().map(|(_, _, left)| left.len() * VlogPointer::BYTES).sum();
    let mut record = blank_record(0);
    record.reserve(batch.body_bytes() - moved + pointer_bytes);
    for op in &all {
        let owner = pointers.iter_mut().find(|(family, threshold, _)| is_large(op, family, *threshold));
        let Some((_, _, pointers)) = owner else {
            encode_op(&mut record, op);
            continue;
        };
        let pointer = pointers.next().ok_or_else(|| Error::internal("a large value was not written"))?;
        encode_op(&mut record, &Op { kind: Kind::PutPointer, value: &pointer.encode(), ..*op });
    }
    drop(all);
    ctx.note_dirty_values(&batch.families);
    let whole = std::mem::replace(&mut batch.record, record);
    let is_wanted = whole.capacity() <= KEPT_AFTER_COMMIT || batch.families.iter().any(|f| f.hook.is_set());
    batch.whole = is_wanted.then_some(whole);
    Ok(())
}

/// A commit without operations needs no place in the log. Returns the newest sequence number.
///
/// # Errors
/// `Poisoned`, if a sync fails.
#[cold]
fn commit_nothing(ctx: &WriteCtx, options: &WriteOptions) -> Result<SeqNo> {
    let newest = ctx.reads.visible(); // every commit that has returned is at or below it
    ctx.health.check()?; // unless the order of commits was stopped meanwhile
    if ctx.log.sequencer().durable() <= newest {
        let synced = make_durable(ctx, newest + 1, options.sync.unwrap_or(ctx.options.sync));
        synced.map_err(|e| Error::Poisoned { cause: ctx.poison(e) })?;
    }
    Ok(newest)
}

/// Makes the log durable up to `end` as `sync` says: waits for a sync (`Full`), or schedules one (`Interval`) and
/// syncs itself if no thread will do so in time. Returns true if it is durable.
fn make_durable(ctx: &WriteCtx, end: SeqNo, sync: SyncMode) -> Result<bool> {
    match sync {
        SyncMode::None => return Ok(false),
        SyncMode::Interval(period) => {
            if ctx.sync_due.within(period) {
                return Ok(false);
            }
        }
        SyncMode::Full => {}
    }
    ctx.sync_to(end)?;
    debug_assert!(ctx.log.sequencer().durable() >= end, "durable before visible");
    Ok(true)
}

/// Makes a commit that is in the log durable as `sync` says, or at least safe from a kill. A commit in mode `Full` becomes visible here.
fn acknowledge(ctx: &WriteCtx, commit: &Commit, sync: SyncMode) -> Result<()> {
    if !make_durable(ctx, commit.end, sync).map_err(|e| unknown(ctx, commit, e))? {
        return ctx.log.wait_safe_from_kill(commit).map_err(|e| unknown(ctx, commit, e));
    }
    let sequencer = ctx.log.sequencer();
    sequencer.publish();
    sequencer.acknowledge(commit);
    Ok(())
}

/// Follow-up work of a commit: rotates full memtables, if there may be some, and has the next log segment prepared. Cannot fail,
/// because the commit is done.
fn after(ctx: &WriteCtx, batch: &mut WriteBatch, commit: &Commit, full: bool) -> SeqNo {
    if full || !batch.leases.is_empty() {
        rotate_full(ctx, batch);
    }
    if ctx.options.active_memtables_bytes_max > 0 {
        ctx.rotate_if_large_together();
    }
    for (family, bytes) in batch.families.iter().zip(&batch.user_bytes) {
        family.count(Metric::UserBytes, *bytes);
    }
    if ctx.log.wants_next(commit) {
        ask_ahead(ctx, commit);
    }
    if ctx.log.is_crowded() {
        sync_ahead(ctx, commit);
    }
    let last = commit.seq + u64::from(batch.counts.ranks);
    // A hook that was set while the operations were inserted is too late for them.
    if !batch.is_freed() && batch.families.iter().any(|f| f.hook.is_set()) {
        call_hooks(batch, last);
    }
    // So that batches that wait for their next use leave most of the share of all to others.
    batch.recycle(|| ctx.memory.whole().used_for(Use::Transactions) <= ctx.memory.transactions_max() / 4);
    last
}

/// Has the log synced before it has too many open files, where commits are not synced. The commit syncs by itself if nobody else does in
/// time. A failure poisons the database, and the next commit gets it.
#[cold]
fn sync_ahead(ctx: &WriteCtx, commit: &Commit) {
    ctx.log.note_asked_to_sync();
    if ctx.log.is_overcrowded() || !ctx.jobs.push_to_thread(Job::SyncLog) {
        let _ = ctx.log.waits().of(StallCause::Log).time(&*ctx.env.clock, || ctx.sync_to(commit.end));
    }
}

/// Has the next blocks of the log prepared. Starts the timekeeper at the first commit.
#[cold]
fn ask_ahead(ctx: &WriteCtx, commit: &Commit) {
    if ctx.log.takes_first() {
        ctx.jobs.want(ThreadKind::Clock);
    }
    if ctx.log.wants_piece(commit) {
        let _ = ctx.jobs.push_to_thread(Job::PrepareLog); // a commit that finds no file asks again
    }
}

#[cold]
fn rotate_full(ctx: &WriteCtx, batch: &WriteBatch) {
    ctx.log.waits().of(StallCause::Lock).time(&*ctx.env.clock, || rotate_each(ctx, batch));
}

fn rotate_each(ctx: &WriteCtx, batch: &WriteBatch) {
    let guard = pin();
    for family in &batch.families {
        let view = family.view(&guard);
        let has_many_values = || view.active.as_ref().is_some_and(|active| family.has_many_values(active));
        if family.is_full(view) {
            ctx.rotate_if_full(family);
        } else if !batch.leases.is_empty() && has_many_values() {
            ctx.rotate(family);
        }
    }
}

/// Calls the hook of each family with the operations committed to it. A hook that panics changes nothing: the commit is done, and the
/// other hooks are called.
#[cold]
fn call_hooks(batch: &WriteBatch, seq: SeqNo) {
    let record = batch.whole.as_ref().unwrap_or(&batch.record);
    let all: Vec<Op<'_>> = ops(&record[RECORD_HEADER_BYTES..], BODY, 0).map_while(Result::ok).collect();
    for family in &batch.families {
        let Some(hook) = family.hook.get() else { continue };
        let of_family = all.iter().filter(|op| op.family == family.id);
        let ops: Vec<CommittedOp<'_>> = of_family.map(committed).collect();
        if contained(|| hook(&Committed::new(seq, &ops))).is_none() {
            contained(
                || tracing::error!(family = %family.name(), seq, "a commit hook panicked; the commit stands"),
            );
        }
    }
}

fn committed<'a>(op: &Op<'a>) -> CommittedOp<'a> {
    match op.kind {
        Kind::Put => CommittedOp::Put { key: op.key, value: op.value, expiry: moment_of(op.expiry) },
        Kind::PutPointer => {
            let len = ValuePlace::decode(op.value).map_or(0, |place| place.value_bytes());
            CommittedOp::PutStream { key: op.key, len, expiry: moment_of(op.expiry) }
        }
        Kind::Merge => CommittedOp::Merge { key: op.key, operand: op.value },
        Kind::Delete | Kind::SingleDelete => CommittedOp::Delete { key: op.key },
        Kind::RangeDelete => CommittedOp::DeleteRange { start: op.key, end: op.value },
    }
}
