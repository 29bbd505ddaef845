//! Recovery: reads the log into memtables. `save.rs` writes these to tables before new commits are accepted.
//!
//! Pieces of the log are decoded and inserted by several threads; memtables are rotated between two pieces. If the
//! memtables outgrow their memory, the largest are written to tables at once. Operations of families with an unknown
//! key order are deferred without being sorted: see `unresolved.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::replay::{Replayer, to_tables};
use super::save::Unsaved;
use super::unresolved::{Deferred, PIECE_BYTES};
use crate::events::{Event, TARGET};
use crate::family::FamilyCore;
use crate::memory::Pressure;
use crate::options::RecoveryMode;
use crate::rewrite::Rewritten;
use crate::shared::{MaintenanceCtx, Shared};
use crate::types::{FamilyId, SeqNo, VlogId};
use crate::version::State;
use crate::wal::layout::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, UNIT};
use crate::wal::reader::{self, Piece, Scan, ScanConfig};
use crate::write::ops;
use crate::{Error, Result, files};

/// Bytes of log that are replayed between two checks of the memtable sizes.
const REPLAY_BYTES: usize = 4 << 20;
/// Shorter pieces of the log are replayed by one thread.
const PARALLEL_BYTES_MIN: usize = 256 << 10;
/// Most threads of a replay.
const THREADS_MAX: usize = 8;
/// Bytes of log between two events about the progress.
const EVENT_BYTES: u64 = 64 << 20;

/// Outcome of an open. Its `Display` is for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the database had been closed cleanly.
    pub clean: bool,
    /// Commits replayed from the log.
    pub commits: u64,
    /// Operations replayed from the log.
    pub operations: u64,
    /// Bytes of log that these commits take.
    pub log_bytes: u64,
    /// Complete commits after the end of the recovered prefix, which were discarded.
    pub discarded: u64,
    /// Commits that were being written when the process died; none of these calls had returned.
    pub unfinished: u64,
    /// Sequence number at which the log was cut.
    pub cut: Option<SeqNo>,
    /// Whether a sync of the log had failed in an earlier session.
    pub sync_failed: bool,
    /// Damage that the recovery mode tolerated.
    pub damage: Option<Error>,
    /// First sequence number after the recovered commits.
    pub end: SeqNo,
    /// Files set aside because the manifest does not name them. 0 if the open returned before that was decided.
    pub orphans: usize,
    /// Duration of the recovery.
    pub took: Duration,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.clean {
            return write!(f, "clean: nothing to recover ({:?})", self.took);
        }
        write!(f, "recovered {} commits ({} operations) in {:?}", self.commits, self.operations, self.took)?;
        if self.unfinished > 0 {
            write!(f, "; {} commits were unfinished and never returned", self.unfinished)?;
        }
        if let Some(cut) = self.cut {
            write!(
                f,
                "; the log was cut at sequence number {cut}, {} later commits discarded",
                self.discarded
            )?;
        }
        if self.sync_failed {
            f.write_str("; a sync of the log had failed before")?;
        }
        if let Some(damage) = &self.damage {
            write!(f, "; damage was skipped: {damage}")?;
        }
        if self.orphans > 0 {
            write!(f, "; {} stray files set aside", self.orphans)?;
        }
        Ok(())
    }
}

impl RecoveryReport {
    /// The event that says the same.
    pub(super) fn event(&self) -> Event {
        Event::Open {
            seconds: self.took,
            clean: self.clean,
            log_bytes: self.log_bytes,
            commits: self.commits,
            operations: self.operations,
            unfinished: self.unfinished,
            discarded: self.discarded,
            orphans: self.orphans as u64,
            sync_failed: self.sync_failed,
            damage: self.damage.as_ref().map(Error::to_string).unwrap_or_default(),
        }
    }
}

/// Recovers the database. The families must be loaded already. The commits that were recovered are readable afterwards;
/// what is returned beside the report must be saved before anything else is written.
///
/// # Errors
/// `Corrupt` for damage that the recovery mode does not tolerate; `Io`, `NoSpace`. Nothing was deleted.
pub(super) fn run(shared: &Arc<Shared>) -> Result<(RecoveryReport, Option<Unsaved>)> {
    let started = shared.write.env.clock.mono();
    let _span = tracing::debug_span!(target: TARGET, "recovery").entered();
    let state = shared.maintenance.versions.state();
    let config = scan_config(&shared.maintenance, &state)?;
    let scan = reader::scan(&shared.maintenance.dir, &config)?;
    shared.write.recovery_pins.store(first_seq(&config), Ordering::SeqCst);
    let mut report = RecoveryReport {
        clean: scan.commits == 0 && scan.cut.is_none() && scan.damage.is_none(),
        unfinished: scan.unfinished.len() as u64,
        sync_failed: config.sync_failed,
        damage: scan.damage.clone(),
        ..RecoveryReport::default()
    };
    let mut replay = Replay::new(shared, &state, &scan, config.sync_failed);
    let result = replay.run(&config, &mut report);
    let Replay { tables, deferred, doubtful, unsynced_bytes, .. } = replay;
    let mut unsaved = Unsaved { shared: Arc::clone(shared), state, config, tables, deferred, doubtful };
    if let Err(e) = result {
        unsaved.abandon();
        return Err(e);
    }
    if shared.write.options.read_only {
        unsaved.keep_deferred();
        report.took = shared.write.env.clock.mono().saturating_sub(started);
        return Ok((report, None));
    }
    let mut behind = None;
    if unsaved.may_wait(report.log_bytes.saturating_add(unsynced_bytes))? {
        behind = Some(unsaved);
    } else {
        report.orphans = unsaved.save(&report)?;
        unsaved.free();
    }
    report.took = shared.write.env.clock.mono().saturating_sub(started);
    Ok((report, behind))
}

fn first_seq(config: &ScanConfig) -> SeqNo {
    config.first.0 * config.segment_bytes / UNIT
}

fn scan_config(ctx: &MaintenanceCtx, state: &State) -> Result<ScanConfig> {
    let names = ctx.dir.list().map_err(|e| Error::io("list", "database directory", e))?;
    let identity = ctx.versions.identity();
    let mut config = ScanConfig {
        segment_bytes: identity.wal_segment_bytes,
        db_uuid: identity.uuid,
        boot_id: ctx.write.env.disk.boot_id(),
        first: state.log_start,
        first_existed: false,
        watermark: state.durable_mark,
        sync_failed: names.iter().any(|name| name == files::SYNC_FAILED),
        mode: ctx.write.options.recovery,
    };
    // A sequence number past the header of the first segment was assigned, so the segment existed. One record may fill
    // the previous segment to its end. Then the next number equals the position after that header, and nothing was
    // written there yet.
    let header = SEGMENT_HEADER_BYTES / UNIT;
    config.first_existed = state.log_start.0 > 0 && state.last_seq >= first_seq(&config) + header;
    Ok(config)
}

struct Replay<'a> {
    shared: &'a Arc<Shared>,
    scan: &'a Scan,
    replayer: Arc<Replayer>,
    commits: u64,
    operations: u64,
    log_bytes: u64,
    /// Bytes of values that replayed commits refer to and that are not known to be durable.
    unsynced_bytes: u64,
    stopped_at: Option<SeqNo>,
    /// Tables written so far; all are installed together at the end.
    tables: Vec<(Arc<FamilyCore>, Rewritten)>,
    /// Operations of unresolved families.
    deferred: BTreeMap<FamilyId, Deferred>,
    /// Parts of value logs that replayed commits refer to and that a failed sync may have lost.
    doubtful: BTreeMap<VlogId, Range<u64>>,
}

impl<'a> Replay<'a> {
    fn new(shared: &'a Arc<Shared>, state: &State, scan: &'a Scan, sync_failed: bool) -> Self {
        Self {
            shared,
            scan,
            replayer: Arc::new(Replayer::new(shared, state, scan, sync_failed)),
            commits: 0,
            operations: 0,
            log_bytes: 0,
            unsynced_bytes: 0,
            stopped_at: None,
            tables: Vec::new(),
            deferred: BTreeMap::new(),
            doubtful: BTreeMap::new(),
        }
    }

    fn run(&mut self, config: &ScanConfig, report: &mut RecoveryReport) -> Result<()> {
        let scan = self.scan;
        let dir = Arc::clone(&self.shared.maintenance.dir);
        reader::replay(&dir, config, scan, REPLAY_BYTES, |piece| self.apply(piece))?;
        report.commits = self.commits;
        report.operations = self.operations;
        report.log_bytes = self.log_bytes;
        report.discarded = scan.discarded + scan.commits.saturating_sub(self.commits);
        report.cut = self.stopped_at.or(scan.cut);
        report.end = self.stopped_at.unwrap_or(scan.end);
        if self.shared.write.options.read_only && self.commits == 0 {
            self.shared.write.recovery_pins.store(u64::MAX, Ordering::SeqCst); // the log is not needed
        }
        Ok(())
    }

    /// Applies a piece of the log. Returns `false` to end the replay, because a value is missing.
    fn apply(&mut self, mut piece: Piece) -> Result<bool> {
        self.relieve(&piece)?;
        let stop = self.check_values(&piece)?;
        if let Some(seq) = stop {
            let strict = self.shared.write.options.recovery == RecoveryMode::Strict;
            let at = piece.commits().find(|commit| commit.seq == seq).filter(|_| strict);
            if let Some(at) = at {
                let what = "a commit refers to a value that is missing in its value log";
                return Err(Error::corrupt(at.file, at.offset, what));
            }
            self.stopped_at = stop;
            piece.truncate(seq);
        }
        let inserted = self.replayer.in_parallel(self.parts(&piece), Replayer::insert)?;
        self.operations += inserted.iter().sum::<u64>();
        self.defer(&piece)?;
        let before = self.log_bytes;
        for commit in piece.commits() {
            self.commits += 1;
            self.log_bytes += (RECORD_HEADER_BYTES + commit.body.len()) as u64;
        }
        if before / EVENT_BYTES != self.log_bytes / EVENT_BYTES {
            let (bytes, total) = (self.log_bytes, self.scan.commit_bytes);
            self.shared.write.events.record(&Event::Replay { bytes, total, commits: self.commits });
            self.shared.write.events.write();
        }
        Ok(stop.is_none())
    }

    /// The parts of `piece` for the threads.
    fn parts(&self, piece: &Piece) -> Vec<Piece> {
        let env = &self.shared.write.env;
        let alone =
            self.shared.write.options.background_threads == Some(0) || piece.bytes() < PARALLEL_BYTES_MIN;
        piece.split(if alone { 1 } else { env.threads.parallelism().clamp(1, THREADS_MAX) })
    }

    /// Returns the first commit of `piece` whose values are not there.
    fn check_values(&mut self, piece: &Piece) -> Result<Option<SeqNo>> {
        let mut stop = None;
        for checked in self.replayer.in_parallel(self.parts(piece), Replayer::check_values)? {
            stop = stop.or(checked.missing);
            self.unsynced_bytes += checked.bytes;
            for (vlog, part) in checked.doubtful {
                let range = self.doubtful.entry(vlog).or_insert(part.clone());
                *range = range.start.min(part.start)..range.end.max(part.end);
            }
        }
        Ok(stop)
    }

    /// Keeps the operations of unresolved families. When they fill a piece of their own, it goes to a value log.
    fn defer(&mut self, piece: &Piece) -> Result<()> {
        if !self.replayer.has_unresolved() {
            return Ok(());
        }
        for commit in piece.commits() {
            for op in ops(commit.body, commit.file, commit.offset) {
                let op = op?;
                if let Some(family) = self.replayer.unresolved(commit.seq, op.family) {
                    let deferred = self.deferred.entry(op.family).or_insert_with(|| Deferred::new(family));
                    deferred.add(commit.seq, &op)?;
                }
            }
            if !self.shared.write.options.read_only {
                self.deferred.values_mut().try_for_each(|deferred| deferred.write(PIECE_BYTES))?;
            }
        }
        Ok(())
    }

    /// Runs before `piece` is replayed: rotates full memtables. If the memtables take more memory than those of an open
    /// database, writes the largest as tables; if memory is scarce, one of them.
    fn relieve(&mut self, piece: &Piece) -> Result<()> {
        let Some(first) = piece.commits().next() else {
            return Ok(());
        };
        let families = self.shared.write.all_families();
        for family in &families {
            let bytes = family.owned_view().active.as_ref().map_or(0, |slot| slot.bytes());
            if bytes >= family.buffer_bytes() {
                family.rotate(first.seq);
            }
        }
        let options = &self.shared.write.options;
        if options.read_only {
            return Ok(());
        }
        let bytes = |family: &Arc<FamilyCore>| -> u64 {
            family.owned_view().memtables().map(|slot| slot.bytes() as u64).sum()
        };
        let limit = options.memtables_bytes_max.saturating_add(options.wal_bytes_max);
        let mut used: Vec<(u64, &Arc<FamilyCore>)> = families.iter().map(|f| (bytes(f), f)).collect();
        used.sort_unstable_by_key(|(bytes, _)| *bytes);
        let mut total: u64 = used.iter().map(|(bytes, _)| *bytes).sum();
        let memory = &self.shared.write.memory;
        let mut scarce = memory.level() > Pressure::Normal && memory.is_in_memtables();
        while (total > limit || std::mem::take(&mut scarce))
            && let Some((bytes, family)) = used.pop()
        {
            total -= bytes;
            let has_more = self.tables.iter().any(|(f, _)| Arc::ptr_eq(f, family));
            let out = to_tables(&self.shared.maintenance, family, has_more)?;
            self.tables.extend(out.into_iter().map(|out| (Arc::clone(family), out)));
            family.forget_memtables();
        }
        Ok(())
    }
}
