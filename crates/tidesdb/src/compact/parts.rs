//! Carries out a merge in parts: disjoint key ranges, each with its own output tables.
//!
//! The thread that runs the merge takes one part after the other. Workers that have nothing else to do take parts too
//! ([`Job::MergePart`]). All parts share the disk space that the merge reserved, its progress and the rate of merges. When one fails, the
//! others stop, and all outputs are removed. The outputs of all parts are installed together, because the inputs can only be removed
//! together; so range tombstones are dropped only once all parts are done.
//!
//! A worker ends its part early if a merge of another family waits for a worker; what it leaves out is a part that any thread may take.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tidesdb_sync::{Backoff, Condvar, Mutex};

use super::plan::Begun;
use super::split;
use crate::context::{MergeSpace, OwnedLog};
use crate::family::FamilyCore;
use crate::jobs::{Job, Progress};
use crate::maintenance::MaintenanceCtx;
use crate::merge::MergeCursor;
use crate::order;
use crate::rewrite::{self, RewriteTarget, Rewritten, Splits};
use crate::sources::{MergeInput, Source, TableSlot};
use crate::types::{EntryCursor, Scope, VlogId};
use crate::vlog::{LoadAhead, ValueMover};
use crate::wal::Log;
use crate::{Error, Result};

/// Writes the tables of a merge; other threads may help. The tables and their names are durable. Also returns what moved the values, which
/// must live until the install, and the disk space, which must live until the tables are installed or removed: a close waits for it.
///
/// # Errors
/// Errors of reading and writing; all output is removed.
pub(super) fn merge(
    ctx: &MaintenanceCtx,
    family: &Arc<FamilyCore>,
    begun: &Arc<Begun>,
    progress: &Arc<Progress>,
    victims: &Arc<BTreeSet<VlogId>>,
) -> Result<(Rewritten, ValueMover, MergeSpace)> {
    let merge = Arc::new(PartedMerge::begin(ctx, family, begun, progress, victims)?);
    let is_offered = merge.state.lock().unclaimed.len() > 1;
    let running = Running(&merge);
    let helped = Arc::clone(&merge);
    let help = Arc::new(move |ctx: &MaintenanceCtx| helped.work(ctx, true));
    let offered = is_offered.then(|| ctx.parted.offer(family.id, help));
    if is_offered && ctx.write.jobs.mergers() > 1 {
        ctx.write.jobs.push(Job::MergePart(family.id));
    }
    while merge.work(ctx, false) {}
    drop((offered, running));
    sole(merge).finish(ctx)
}

/// Number of parts of a merge if `threads` threads merge: more than threads, so that a slow part does not delay the merge for long.
fn parts_for(threads: usize) -> usize {
    if threads > 1 { 2 * threads } else { 1 }
}

/// Waits until the last helper has released `merge`; a helper does so when its part is done.
fn sole(mut merge: Arc<PartedMerge>) -> PartedMerge {
    let mut backoff = Backoff::new();
    loop {
        match Arc::try_unwrap(merge) {
            Ok(merge) => return merge,
            Err(shared) => merge = shared,
        }
        backoff.snooze();
    }
}

/// A merge in parts.
#[derive(Debug)]
pub(super) struct PartedMerge {
    family: Arc<FamilyCore>,
    begun: Arc<Begun>,
    progress: Arc<Progress>,
    victims: Arc<BTreeSet<VlogId>>,
    /// True if an input refers to values of the victims.
    moves: bool,
    space: MergeSpace,
    /// Maximum bytes of an output table.
    table_bytes: u64,
    drop_pages: bool,
    state: Mutex<State>,
    /// A part ended.
    ended: Condvar,
}

/// A key range of a merge; `None` means no bound.
#[derive(Clone, Debug)]
struct Part {
    start: Option<Vec<u8>>,
    /// The first key after the range.
    end: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    unclaimed: VecDeque<Part>,
    /// Number of parts that threads work on.
    claimed: usize,
    done: Vec<(Rewritten, ValueMover)>,
    /// The first failure.
    failure: Option<Error>,
}

/// The result of a part: its outputs, and the rest of the part if the thread ended early.
type Outcome = Result<(Rewritten, ValueMover, Option<Part>)>;

impl PartedMerge {
    /// Reserves the disk space and divides the merge.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(super) fn begin(
        ctx: &MaintenanceCtx,
        family: &Arc<FamilyCore>,
        begun: &Arc<Begun>,
        progress: &Arc<Progress>,
        victims: &Arc<BTreeSet<VlogId>>,
    ) -> Result<Self> {
        let plan = &begun.plan;
        let metas = plan.inputs.iter().map(|(_, table)| table.meta());
        let moving: u64 = metas.map(|meta| meta.value_bytes_in(victims)).sum();
        let log = OwnedLog(Arc::clone(&ctx.write));
        let space = Log::reserve_space_for_merge(log, plan.output_bytes() + moving)?;
        let parts =
            ctx.write.options.forced.merge_parts.unwrap_or_else(|| parts_for(ctx.write.jobs.mergers()));
        let order = &family.options.comparator;
        let (starts, table_bytes) =
            split::divide(order, plan, parts, plan.table_bytes.min(family.options.table_bytes()));
        let ends = starts.iter().cloned().map(Some).chain([None]);
        let starts = [None].into_iter().chain(starts.iter().cloned().map(Some));
        let unclaimed = starts.zip(ends).map(|(start, end)| Part { start, end }).collect();
        let inputs: Vec<_> = plan.inputs.iter().map(|(_, table)| table).collect();
        let family_bytes = family.owned_view().version.bytes();
        Ok(Self {
            family: Arc::clone(family),
            begun: Arc::clone(begun),
            progress: Arc::clone(progress),
            victims: Arc::clone(victims),
            moves: moving > 0,
            space,
            table_bytes,
            drop_pages: MergeInput::are_cold(&inputs) && !ctx.write.memory.page_cache_keeps(family_bytes),
            state: Mutex::new(State { unclaimed, ..State::default() }),
            ended: Condvar::default(),
        })
    }

    /// Takes a part and carries it out. Returns false if there is none. For a helper there may be one again later; for the thread
    /// that runs the merge, all parts are then done.
    pub(super) fn work(&self, ctx: &MaintenanceCtx, helps: bool) -> bool {
        let Some((part, more)) = self.claim(helps) else { return false };
        let ask = || ctx.write.jobs.push(Job::MergePart(self.family.id));
        if helps && more {
            ask();
        }
        let panicked = || Err(Error::internal("a part of a merge panicked"));
        let mut claimed = Claimed { merge: self, outcome: panicked() };
        claimed.outcome = self.rewrite(ctx, &part, helps);
        let yielded = matches!(claimed.outcome, Ok((.., Some(_))));
        drop(claimed);
        if yielded {
            ask();
        }
        true
    }

    /// Takes the next part; also returns whether there are more. Helpers do not wait for parts that other threads may still give back.
    fn claim(&self, helps: bool) -> Option<(Part, bool)> {
        let mut state = self.state.lock();
        loop {
            if let Some(part) = state.unclaimed.pop_front() {
                state.claimed += 1;
                return Some((part, !state.unclaimed.is_empty()));
            }
            if helps || state.claimed == 0 {
                return None;
            }
            self.ended.wait(&mut state);
        }
    }

    /// Records the result of a part that was taken.
    fn note(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        state.claimed -= 1;
        match outcome {
            Ok((out, mover, rest)) => {
                state.done.push((out, mover));
                if state.failure.is_none() {
                    state.unclaimed.extend(rest);
                }
            }
            Err(e) => state.fail(&self.progress, e),
        }
        drop(state);
        self.ended.notify_all();
    }

    fn rewrite(&self, ctx: &MaintenanceCtx, part: &Part, helps: bool) -> Outcome {
        let Begun { plan, purge, stops } = &*self.begun;
        let cursor = self.cursor(part)?;
        let target = RewriteTarget {
            level: plan.target,
            bottom: plan.bottom,
            table_bytes: self.table_bytes,
            splits: Splits { cuts: &plan.cuts, guards: &plan.guards },
            end: part.end.as_deref(),
            yields: helps,
            stops_seen: Some(*stops),
            progress: Some(&self.progress),
            caches: false,
            drop_pages: self.drop_pages,
            space: Some(&self.space),
        };
        let mut mover = ValueMover::new(&self.victims);
        if self.moves {
            let ahead = Box::new(self.cursor(part)?);
            mover = mover.loading(LoadAhead::new(ahead, self.family.page_cache_keeps_values()));
        }
        let (out, rest) = rewrite::run_part(ctx, &self.family, cursor, target, purge, &mut mover)?;
        mover.end_loading();
        let rest = rest.map(|start| Part { start: Some(start), end: part.end.clone() });
        Ok((out, mover, rest))
    }

    /// A cursor at the first entry of `part`.
    fn cursor(&self, part: &Part) -> Result<MergeCursor<Source>> {
        let order = &self.family.options.comparator;
        let (start, end) = (part.start.as_deref(), part.end.as_deref());
        let meets = |input: &MergeInput| input.meets(order, start, end);
        // Each table of level 1 is a sorted run. In a deeper level, a run ends before a table whose keys are not above those of the
        // previous table.
        let ascends = |a: &Arc<TableSlot>, b: &Arc<TableSlot>| {
            order.compare(&a.meta().largest, &b.meta().smallest).is_lt()
        };
        let same = |a: &(u8, _), b: &(u8, _)| a.0 == b.0 && (a.0 == 1 || ascends(&a.1, &b.1));
        let runs = self.begun.plan.inputs.chunk_by(same).flat_map(|level| {
            let tables = level.iter().map(|(_, table)| MergeInput::new(table)).filter(meets).collect();
            Source::for_merge(order, tables, level[0].0 > 1)
        });
        let mut cursor = MergeCursor::new(order.clone(), runs.collect());
        let mut scope = Scope::default();
        scope.set_range(order, Bound::Unbounded, end.map_or(Bound::Unbounded, Bound::Excluded));
        cursor.set_scope(&scope);
        match start {
            Some(start) => cursor.seek(start)?,
            None => cursor.seek_to_first()?,
        }
        Ok(cursor)
    }

    /// Ends the merge, once all parts are done.
    ///
    /// # Errors
    /// The first failure of a part; all output is removed.
    pub(super) fn finish(self, ctx: &MaintenanceCtx) -> Result<(Rewritten, ValueMover, MergeSpace)> {
        let State { mut done, failure, .. } = self.state.into_inner();
        let order = &self.family.options.comparator;
        let first = |out: &Rewritten| out.tables.first().map(|table| table.smallest.clone());
        order::sort_by(&mut done, |(a, _), (b, _)| match (first(a), first(b)) {
            (Some(a), Some(b)) => order.compare(&a, &b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        let (mut out, mut mover) = (Rewritten::default(), ValueMover::new(&self.victims));
        for (part, moved) in done {
            out.absorb(part);
            mover.absorb(moved);
        }
        let counted = || self.begun.plan.inputs.iter().map(|(_, table)| table.meta().entries).sum::<u64>();
        let failure = failure.or_else(|| {
            // Law: the parts read each entry of the inputs once. A damaged input may have another number of entries than it says.
            let all = counted() == out.entries_in;
            (!all).then(|| Error::internal("the parts of a merge did not read each entry of the inputs once"))
        });
        if let Some(e) = failure {
            out.abandon(ctx);
            return Err(e);
        }
        out.sync(ctx)?;
        Ok((out, mover, self.space))
    }
}

impl State {
    /// Stops all parts.
    fn fail(&mut self, progress: &Progress, e: Error) {
        progress.abort();
        self.unclaimed.clear();
        self.failure.get_or_insert(e);
    }
}

/// A claimed part. Its outcome is noted even if the thread panics, so that no other waits for ever.
struct Claimed<'a> {
    merge: &'a PartedMerge,
    outcome: Outcome,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let taken = Err(Error::internal("the outcome of a part was taken"));
        self.merge.note(std::mem::replace(&mut self.outcome, taken));
    }
}

/// The merge as seen by the thread that runs it. If that panics, no other thread goes on with the inputs, which it had claimed.
struct Running<'a>(&'a PartedMerge);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if state.claimed > 0 || !state.unclaimed.is_empty() {
            state.fail(&self.0.progress, Error::internal("a merge was given up"));
        }
        while state.claimed > 0 {
            self.0.ended.wait(&mut state);
        }
    }
}
