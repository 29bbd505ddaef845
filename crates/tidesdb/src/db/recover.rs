//! Recovery: reads the log into memtables. `save.rs` writes these to tables before new commits are accepted.
//!
//! The log is read in pieces, which are decoded and inserted by several threads, while the next piece is read; memtables are rotated
//! between two pieces. If the memtables outgrow their memory, the largest are written to tables at once. A commit that is longer than a
//! piece is inserted part by part, so the replay never needs memory for a whole commit beside its memtables.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::replay::{Begun, NewTables, Replayer, to_tables};
use super::save::{Unsaved, memtable_bytes};
use crate::background::TRIM_PERIOD;
use crate::engine::Engine;
use crate::events::{Event, TARGET};
use crate::family::FamilyCore;
use crate::files::{self, FileKind};
use crate::maintenance::MaintenanceCtx;
use crate::memory::Pressure;
use crate::options::RecoveryMode;
use crate::order;
use crate::types::{SeqNo, VlogId};
use crate::version::{State, VersionEdit};
use crate::wal::layout::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, UNIT};
use crate::wal::reader::{CrashedLog, Logged, Scan, ScanConfig};
use crate::wal::{LargeCommit, LoggedCommit, Piece, Taken};
use crate::write::whole_ops;
use crate::{Error, Result};

/// Bytes of log that are replayed between two checks of the memtable sizes.
const REPLAY_BYTES: usize = 4 << 20;
/// Shorter pieces of the log are replayed by one thread.
const PARALLEL_BYTES_MIN: usize = 256 << 10;
/// Maximum number of threads of a replay.
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
    /// Whether a sync of the log or of values had failed in an earlier session.
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
            f.write_str("; a sync of the log or of values had failed before")?;
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
    /// The event with the same facts.
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

/// What an open has left to do before anything is written.
pub(super) enum Rest {
    /// Nothing.
    Done,
    /// Recovered commits must be saved, in the background.
    Unsaved(Box<Unsaved>),
    /// The session must be begun. The database was closed cleanly, with this state: nothing changes on disk before the first write.
    Begin(Box<State>),
    /// The database is new. The edit that creates its first family must contain this one.
    Create(VersionEdit),
}

/// Recovers the database. The families must be loaded already. The commits that were recovered are readable afterwards;
/// what is returned beside the report must be done before anything else is written.
///
/// # Errors
/// `Corrupt` for damage that the recovery mode does not tolerate; `Io`, `NoSpace`. Nothing was deleted.
pub(super) fn run(engine: &Arc<Engine>) -> Result<(RecoveryReport, Rest)> {
    let started = engine.write.env.clock.mono();
    let _span = tracing::debug_span!(target: TARGET, "recovery").entered();
    let state = engine.maintenance.versions.state();
    let config = scan_config(&engine.maintenance, &state)?;
    let dir = Arc::clone(&engine.maintenance.dir);
    let log = CrashedLog::find(&dir, &config)?;
    engine.write.recovery_pins.store(first_seq(&config), Ordering::SeqCst);
    let log_bytes = log.bytes;
    let begins_late = log_bytes == 0 && may_begin_late(engine, &state) && !config.sync_failed;
    let mut replay = Replay::new(engine, &state, &log, config.sync_failed);
    let read = log.read(REPLAY_BYTES, |logged, synced| replay.apply(logged, synced));
    let inserted = replay.finish_inserting(); // also after a failure: no thread works on afterwards
    let read = read.and_then(|scan| inserted.map(|()| scan)).map(|scan| replay.report(&scan));
    let Replay { tables, doubtful, unsynced_bytes, .. } = replay;
    let mut unsaved = Unsaved { engine: Arc::clone(engine), state, tables, doubtful };
    let mut report = read.inspect_err(|_| unsaved.abandon())?;
    let rest = if engine.write.options.read_only {
        Rest::Done
    } else if begins_late && report.clean {
        engine.write.recovery_pins.store(u64::MAX, Ordering::SeqCst);
        Rest::Begin(Box::new(unsaved.state))
    } else if report.clean && log_bytes == 0 && unsaved.state.families.is_empty() {
        Rest::Create(unsaved.begin_new(&report)?)
    } else if unsaved.may_wait(report.log_bytes.saturating_add(unsynced_bytes))? {
        Rest::Unsaved(Box::new(unsaved))
    } else {
        report.orphans = unsaved.save(&report)?;
        if report.commits > 0 {
            unsaved.free();
        }
        Rest::Done
    };
    report.took = engine.write.env.clock.mono().saturating_sub(started);
    Ok((report, rest))
}

/// Returns true if nothing on disk must change before the first write: the database was closed cleanly, no value log is to be sealed, no
/// object store waits for the first state, and the reserve has space for the manifest of the first write.
fn may_begin_late(engine: &Engine, state: &State) -> bool {
    engine.maintenance.versions.is_untouched()
        && engine.write.log.is_ready_for_full_disk()
        && engine.remote.is_none()
        && state.families.values().all(|family| family.vlogs.is_empty())
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
        boot_id: ctx.dir.boot().id,
        first: state.log_start,
        first_existed: false,
        watermark: state.durable_mark,
        sync_failed: names.iter().any(|name| name == files::SYNC_FAILED),
        mode: ctx.write.options.recovery,
        has_values: names.iter().any(|name| matches!(files::parse(name), Some(FileKind::Vlog(_)))),
    };
    // A sequence number past the header of the first segment was assigned, so the segment existed. One record may fill
    // the previous segment to its end. Then the next number equals the position after that header, and nothing was
    // written there yet.
    let header = SEGMENT_HEADER_BYTES / UNIT;
    config.first_existed = state.log_start.0 > 0 && state.last_seq >= first_seq(&config) + header;
    Ok(config)
}

struct Replay<'a> {
    engine: &'a Arc<Engine>,
    replayer: Arc<Replayer>,
    /// Bytes of the log, at most.
    total_bytes: u64,
    /// What was replayed so far.
    report: RecoveryReport,
    /// Bytes of values that replayed commits refer to and that are not known to be durable.
    unsynced_bytes: u64,
    stopped_at: Option<SeqNo>,
    /// The insertion of the last piece.
    inserting: Option<Begun<u64>>,
    /// Tables written so far; all are installed together at the end.
    tables: NewTables,
    /// Parts of value logs that replayed commits refer to and that a failed sync may have lost.
    doubtful: BTreeMap<VlogId, Range<u64>>,
}

impl<'a> Replay<'a> {
    fn new(engine: &'a Arc<Engine>, state: &State, log: &CrashedLog<'_>, sync_failed: bool) -> Self {
        Self {
            engine,
            replayer: Arc::new(Replayer::new(engine, state, log.same_boot, sync_failed)),
            total_bytes: log.bytes,
            report: RecoveryReport { sync_failed, ..RecoveryReport::default() },
            unsynced_bytes: 0,
            stopped_at: None,
            inserting: None,
            tables: NewTables::new(),
            doubtful: BTreeMap::new(),
        }
    }

    /// What is reported about a log that was read.
    fn report(&self, scan: &Scan) -> RecoveryReport {
        if self.engine.write.options.read_only && self.report.commits == 0 {
            self.engine.write.recovery_pins.store(u64::MAX, Ordering::SeqCst); // the log is not needed
        }
        RecoveryReport {
            clean: scan.commits == 0 && scan.cut.is_none() && scan.damage.is_none(),
            discarded: scan.discarded + scan.commits.saturating_sub(self.report.commits),
            unfinished: scan.unfinished.len() as u64,
            cut: self.stopped_at.or(scan.cut),
            damage: scan.damage.clone(),
            end: self.stopped_at.unwrap_or(scan.end),
            ..self.report.clone()
        }
    }

    /// Applies commits of the log, which is known to be durable up to `synced`. Returns `false` to end the replay, because a value is
    /// missing.
    fn apply(&mut self, logged: Logged, synced: SeqNo) -> Result<bool> {
        match logged {
            Logged::Commits(piece) => self.apply_piece(piece, synced)?,
            Logged::Large(commit) => self.apply_large(&commit, synced)?,
        }
        Ok(self.stopped_at.is_none())
    }

    fn apply_piece(&mut self, mut piece: Piece, synced: SeqNo) -> Result<()> {
        // Memtables end at a commit that takes tables: what is older must stay below these, and what is newer above.
        while let Some(ingest) = piece.first_ingest() {
            let rest = piece.from(ingest + 1);
            let mut taking = piece.from(ingest);
            taking.truncate(ingest + 1);
            piece.truncate(ingest);
            self.apply_operations(piece, synced)?;
            if self.stopped_at.is_some() {
                return Ok(());
            }
            for commit in taking.commits() {
                self.take(&commit)?;
            }
            piece = rest;
        }
        self.apply_operations(piece, synced)
    }

    /// Applies a commit that takes tables.
    fn take(&mut self, commit: &LoggedCommit<'_>) -> Result<()> {
        self.finish_inserting()?;
        for mut recovered in self.replayer.targets.taken(&self.engine.maintenance, commit, |_| {})? {
            let family = Arc::clone(&recovered.family);
            family.rotate_around_tables(recovered.taken(), (commit.seq, commit.end()))?;
        }
        self.count(1, (RECORD_HEADER_BYTES + commit.body.len()) as u64);
        Ok(())
    }

    fn apply_operations(&mut self, mut piece: Piece, synced: SeqNo) -> Result<()> {
        let Some(first) = piece.commits().next().map(|commit| commit.seq) else { return Ok(()) };
        self.check_values(&piece.from(synced))?;
        self.relieve(first, piece.bytes() as u64)?;
        if let Some(stop) = self.stopped_at {
            piece.truncate(stop);
        }
        self.insert(&piece)?;
        let bytes = piece.commits().map(|commit| (RECORD_HEADER_BYTES + commit.body.len()) as u64);
        self.count(piece.commits().len() as u64, bytes.sum());
        Ok(())
    }

    /// Applies a commit that is longer than a piece. All its values are checked before its first operation is inserted.
    fn apply_large(&mut self, commit: &LargeCommit, synced: SeqNo) -> Result<()> {
        if commit.is_ingest {
            return commit.read(usize::MAX, |whole, _| {
                whole.commits().try_for_each(|commit| self.take(&commit))?;
                Ok(Taken::Operations(whole.bytes(), 0))
            });
        }
        self.relieve(commit.seq, commit.body_bytes)?;
        if commit.seq >= synced {
            commit.read(REPLAY_BYTES, |part, is_last| {
                let (part, taken) = whole_part(part, is_last);
                self.check_values(&part)?;
                Ok(if self.stopped_at.is_none() { taken } else { Taken::Enough })
            })?;
        }
        if self.stopped_at.is_some() {
            return Ok(());
        }
        commit.read(REPLAY_BYTES, |part, is_last| {
            let (part, taken) = whole_part(part, is_last);
            self.insert(&part)?;
            self.finish_inserting()?; // the next part takes the same buffer
            Ok(taken)
        })?;
        self.count(1, RECORD_HEADER_BYTES as u64 + commit.body_bytes);
        Ok(())
    }

    /// Begins to insert the operations of `piece`.
    fn insert(&mut self, piece: &Piece) -> Result<()> {
        self.finish_inserting()?;
        self.inserting = Some(self.replayer.begin(self.parts(piece), Replayer::insert));
        Ok(())
    }

    /// Waits until the last piece is inserted.
    fn finish_inserting(&mut self) -> Result<()> {
        let inserted = self.inserting.take().map(Begun::finish).transpose()?;
        self.report.operations += inserted.iter().flatten().sum::<u64>();
        Ok(())
    }

    /// Counts replayed commits. Reports the progress now and then.
    fn count(&mut self, commits: u64, bytes: u64) {
        let report = &mut self.report;
        let before = report.log_bytes;
        report.commits += commits;
        report.log_bytes += bytes;
        if before / EVENT_BYTES != report.log_bytes / EVENT_BYTES {
            let (bytes, total, commits) = (report.log_bytes, self.total_bytes, report.commits);
            self.engine.write.events.record(&Event::Replay { bytes, total, commits });
            self.engine.write.events.write();
        }
    }

    /// The parts of `piece` for the threads.
    fn parts(&self, piece: &Piece) -> Vec<Piece> {
        let env = &self.engine.write.env;
        let alone =
            self.engine.write.options.background_threads == Some(0) || piece.bytes() < PARALLEL_BYTES_MIN;
        piece.split(if alone { 1 } else { env.threads.parallelism().clamp(1, THREADS_MAX) })
    }

    /// Checks the values of `piece`. If one is missing, the replay stops before its commit.
    ///
    /// # Errors
    /// `Corrupt` for a missing value in the mode `Strict`, and in the mode `Tail` if nothing can have been lost but by damage.
    fn check_values(&mut self, piece: &Piece) -> Result<()> {
        for checked in self.replayer.begin(self.parts(piece), Replayer::check_values).finish()? {
            self.stopped_at = self.stopped_at.or(checked.missing);
            self.unsynced_bytes += checked.bytes;
            for (vlog, part) in checked.doubtful {
                let range = self.doubtful.entry(vlog).or_insert(part.clone());
                *range = range.start.min(part.start)..range.end.max(part.end);
            }
        }
        let strict = match self.engine.write.options.recovery {
            RecoveryMode::Strict => true,
            RecoveryMode::Tail => self.replayer.has_lost_nothing(),
            RecoveryMode::PointInTime | RecoveryMode::Salvage => false,
        };
        let missing = piece.commits().find(|commit| strict && Some(commit.seq) == self.stopped_at);
        let what = "a commit refers to a value that is missing in its value log";
        missing.map_or(Ok(()), |at| Err(Error::corrupt(at.file, at.offset, what)))
    }

    /// Runs before commits of `bytes` bytes are replayed, from `first` on: rotates full memtables. If the memtables would take more memory
    /// than those of an open database, or memory would be scarce, writes the largest as tables.
    fn relieve(&mut self, first: SeqNo, bytes: u64) -> Result<()> {
        self.finish_inserting()?;
        let families = self.engine.write.all_families();
        for family in &families {
            let bytes = family.owned_view().active.as_ref().map_or(0, |slot| slot.bytes());
            if bytes >= family.buffer_bytes() {
                family.rotate(first);
            }
        }
        let options = &self.engine.write.options;
        if options.read_only {
            return Ok(());
        }
        let mut used: Vec<(u64, &Arc<FamilyCore>)> =
            families.iter().map(|f| (memtable_bytes(f), f)).collect();
        order::sort_by_key(&mut used, |(bytes, _)| *bytes);
        let total: u64 = used.iter().map(|(bytes, _)| *bytes).sum();
        let limit = options.memtables_bytes_max.saturating_add(options.wal_bytes_max);
        let memory = &self.engine.write.memory;
        let scarce = (memory.wanted() + bytes).saturating_sub(memory.begin_of(Pressure::Elevated));
        let scarce = if memory.is_in_memtables() { scarce } else { 0 };
        let (mut excess, mut freed) = ((total + bytes).saturating_sub(limit).max(scarce), false);
        while excess > 0
            && let Some((bytes, family)) = used.pop().filter(|(bytes, _)| *bytes > 0)
        {
            excess = excess.saturating_sub(bytes);
            to_tables(&self.engine.maintenance, family, &mut self.tables)?;
            family.forget_memtables();
            freed = true;
        }
        if freed {
            self.engine.return_memory(TRIM_PERIOD);
        }
        Ok(())
    }
}

/// The operations of a part of a large commit that are whole.
fn whole_part(part: &Piece, is_last: bool) -> (Piece, Taken) {
    let body = part.commits().next().map_or(&[][..], |commit| commit.body);
    let (bytes, ranks) = if is_last { (body.len(), 0) } else { whole_ops(body) };
    (part.prefix(bytes), Taken::Operations(bytes, ranks))
}
