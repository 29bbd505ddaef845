//! Reads the log after a crash: which records are valid, where the log ends, and what is damage.
//!
//! Every segment is scanned from its header. An address where no valid record begins is a **hole**; the scan continues
//! at the next address where one does. Let `X` be a hole, `synced` the highest address up to which any valid record or
//! the manifest states that the log is durable, and `complete` the highest up to which they state that it is in the
//! log.
//!
//! | case | meaning | action (`Tail`) |
//! |---|---|---|
//! | `X < synced` | bytes that were durable are gone | refuse, naming file and offset |
//! | same boot, records after `X`, `X < complete` | bytes that the kernel had are gone | refuse |
//! | same boot, records after `X`, `X >= complete` | a commit was being written when the process died; it never returned | skip it |
//! | other boot, records after `X` | the machine stopped; later bytes reached the disk before earlier ones | cut at `X`: a prefix |
//! | nothing after `X` | the end, or a torn tail | end there |
//! | a pad record without a next segment | the segment existed before the pad | refuse |
//!
//! A failed sync may drop pages that were written. So one of the log or of values leaves a note, and the next open then treats "same boot"
//! as "other boot".
//!
//! A read error is none of these: the open fails with it. Segments are read by system calls, because a bad sector under
//! a memory map would kill the process.
//!
//! In the same boot, commits without values in other files are passed on while the log is scanned, up to the first hole. The meaning of a
//! hole is known only at the end of the log, so the commits after it are read a second time. In all other cases the whole log is scanned
//! first: only then is known which commits are durable, so that a missing value is damage and not the end of the log.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::{Access, Dir};

use super::layout::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT,
};
use super::piece::{LargeCommit, Piece};
use super::window::{SegmentReader, Unusable, Window};
use crate::files::{self, FileKind};
use crate::options::RecoveryMode;
use crate::order;
use crate::types::{SeqNo, WalId, wal_id_max};
use crate::{Error, Result};

/// What is known about a log before it is read.
#[derive(Clone, Debug)]
pub struct ScanConfig {
    /// Bytes of a segment, from the manifest.
    pub segment_bytes: u64,
    /// Identity of the database.
    pub db_uuid: [u8; 16],
    /// Identity of this boot of the machine, with the mount of the file system.
    pub boot_id: [u8; 16],
    /// First segment that is used, from the manifest.
    pub first: WalId,
    /// True if that segment is known to have existed.
    pub first_existed: bool,
    /// The manifest states that the log is durable up to here.
    pub watermark: SeqNo,
    /// A sync failed, and no open has saved the log since: bytes that were not durable may be lost.
    pub sync_failed: bool,
    /// What to do about damage.
    pub mode: RecoveryMode,
    /// Commits may refer to values outside of the log. Which of them must be there is known only when the log was scanned.
    pub has_values: bool,
}

/// Result of scanning the log.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Replay ends before this address; `None` = replay to the end.
    pub cut: Option<SeqNo>,
    /// First address after the last valid record that is replayed.
    pub end: SeqNo,
    /// Valid commits before the cut.
    pub commits: u64,
    /// Commits after the cut that are given up.
    pub discarded: u64,
    /// Addresses of commits that were being written when the process died.
    pub unfinished: Vec<SeqNo>,
    /// True if the last record is a seal, that is, the log ends cleanly after a sync.
    pub sealed: bool,
    /// Damage that `PointInTime` or `Salvage` ignored.
    pub damage: Option<Error>,
    /// The log is durable up to here, by the highest statement found.
    pub synced: SeqNo,
    /// Where the last record of each segment file ends, by the segment's number.
    used: BTreeMap<u64, u64>,
}

/// Findings of a scan.
#[derive(Default)]
struct Findings {
    /// Of the whole log so far, without a decision about holes.
    scan: Scan,
    holes: Vec<Hole>,
    complete: SeqNo,
    /// All commits so far.
    passed: Passed,
    same_boot: bool,
    dangling_pad: Option<SeqNo>,
    /// Start of a segment that must have existed and is missing, although a later one exists.
    missing: Option<SeqNo>,
    /// Start of a segment with a damaged header, where the scan ended.
    unreadable: Option<(SeqNo, Error)>,
}

/// Commits before an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Passed {
    commits: u64,
    /// End of the last one.
    end: SeqNo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    at: SeqNo,
    followed: bool,
    before: Passed,
}

impl Findings {
    /// Notes that no valid record begins at `at`.
    fn add_hole(&mut self, at: SeqNo) {
        self.holes.push(Hole { at, followed: false, before: self.passed });
    }

    /// Notes the valid `record` at `at` of `segment`.
    fn add(&mut self, segment: &SegmentHeader, record: &RecordHeader, at: u64) {
        // All open holes are followed by this record.
        self.holes.iter_mut().rev().take_while(|hole| !hole.followed).for_each(|hole| hole.followed = true);
        self.scan.synced = self.scan.synced.max(record.synced);
        self.complete = self.complete.max(record.complete);
        self.scan.sealed = false;
        if record.kind.is_pad() {
            self.dangling_pad = Some(segment.seq_at(segment.file_bytes() + SEGMENT_HEADER_BYTES));
            return;
        }
        let end = at + record.record_bytes();
        self.scan.end = segment.seq_at(end);
        self.scan.used.insert(segment.id, end.min(segment.file_bytes()));
        match record.kind {
            RecordKind::Commit | RecordKind::Ingest => {
                self.passed = Passed { commits: self.passed.commits + 1, end: self.scan.end };
            }
            RecordKind::Seal => self.scan.sealed = true,
            RecordKind::Refused | RecordKind::Pad => {}
        }
    }

    /// The commits before `at`: a hole, or the end of the log.
    fn before(&self, at: SeqNo) -> Passed {
        self.holes.iter().find(|hole| hole.at >= at).map_or(self.passed, |hole| hole.before)
    }
}

/// Finds the segment files in `dir` from `first` on, in order. Numbers larger than any log can reach are ignored as foreign files.
///
/// # Errors
/// `Io`.
pub fn segment_files(dir: &Arc<dyn Dir>, first: WalId, segment_bytes: u64) -> Result<Vec<WalId>> {
    let names = dir.list().map_err(|e| Error::io("list", "database directory", e))?;
    let mut ids: Vec<WalId> = names
        .iter()
        .filter_map(|n| match files::parse(n) {
            Some(FileKind::Wal(id)) if id >= first && id.0 <= wal_id_max(segment_bytes) => Some(id),
            _ => None,
        })
        .collect();
    order::sort_by(&mut ids, Ord::cmp);
    Ok(ids)
}

/// Number of segments whose addresses the file `id` covers, judged by its length alone.
pub fn span_of(dir: &Arc<dyn Dir>, id: WalId, segment_bytes: u64) -> u64 {
    let len = dir.open(&files::wal(id), Access::Read).and_then(|f| f.len()).unwrap_or(0);
    len.div_ceil(segment_bytes).max(1)
}

/// Valid commits before the cut, oldest first.
#[derive(Debug)]
pub enum Logged {
    /// Some that are in memory.
    Commits(Piece),
    /// One that is too long for that.
    Large(LargeCommit),
}

/// A log that is to be recovered.
pub struct CrashedLog<'a> {
    dir: &'a dyn Dir,
    config: &'a ScanConfig,
    ids: Vec<WalId>,
    /// Bytes of all segments.
    pub bytes: u64,
    /// True if all segments were written since the machine started, and no sync failed: no written byte is lost.
    pub same_boot: bool,
}

impl<'a> CrashedLog<'a> {
    /// Finds the segments and looks at their headers. Leaves out those that were prepared, and were to be removed because an oversized record
    /// had taken their place.
    ///
    /// # Errors
    /// `Io`.
    pub fn find(dir: &'a Arc<dyn Dir>, config: &'a ScanConfig) -> Result<Self> {
        let mut this =
            Self { dir: &**dir, config, ids: Vec::new(), bytes: 0, same_boot: !config.sync_failed };
        let (mut window, mut covered) = (Window::new(0), 0);
        for id in segment_files(dir, config.first, config.segment_bytes)? {
            match open(this.dir, id, config, &mut window) {
                Ok(mut segment) => {
                    let first = first_seq(config, id.0);
                    let head = segment.load(SEGMENT_HEADER_BYTES, RECORD_HEADER_BYTES as u64)?;
                    if id.0 < covered && !RecordHeader::looks_like(head, first) {
                        continue;
                    }
                    covered = covered.max(id.0 + u64::from(segment.header.span));
                    this.bytes += segment.header.file_bytes();
                    // All zeros mean "unknown", which is never treated as the same boot.
                    this.same_boot &= segment.header.is_of_boot(&config.boot_id);
                }
                Err(Unusable::Failed(e)) => return Err(e),
                Err(Unusable::Damaged(_) | Unusable::Foreign(_)) => this.same_boot = false,
            }
            this.ids.push(id);
        }
        Ok(this)
    }

    /// Reads the log and decides which commits are valid. Changes nothing on disk. Passes all valid commits to `apply`, in order, in pieces
    /// of about `piece_bytes`, with how far the log is known to be durable. If `apply` returns `false`, the rest is only scanned.
    ///
    /// # Errors
    /// Errors of `apply`; `Corrupt` for damage that the recovery mode does not tolerate, also after commits were passed on; `Io`;
    /// `MemoryLimit`.
    pub fn read(
        &self,
        piece_bytes: usize,
        mut apply: impl FnMut(Logged, SeqNo) -> Result<bool>,
    ) -> Result<Scan> {
        let mut window = Window::new(piece_bytes);
        let held_from = (!self.same_boot || self.config.has_values).then_some(0);
        let mut sink = Sink {
            apply: &mut apply,
            piece_bytes,
            piece: None,
            synced: 0,
            held_from,
            cut: None,
            ended: false,
        };
        let findings = self.scan(&mut sink, &mut window)?;
        sink.synced = findings.scan.synced;
        let passed = findings.passed;
        let scan = decide(findings, self.config)?;
        sink.cut = scan.cut;
        if let Some(from) = sink.held_from.take().filter(|from| passed.end > *from) {
            self.pass_from(from, &scan, &mut sink, &mut window)?;
        }
        Ok(scan)
    }

    fn scan(&self, sink: &mut Sink<'_>, window: &mut Window) -> Result<Findings> {
        let config = self.config;
        let begin = first_seq(config, config.first.0);
        let scan = Scan { synced: config.watermark, end: begin, ..Scan::default() };
        let mut found = Findings { scan, same_boot: !config.sync_failed, ..Findings::default() };
        let first = self.ids.first();
        if config.first_existed && first != Some(&config.first) {
            found.add_hole(begin);
            found.missing = Some(begin);
        }
        let mut expected = if config.first_existed { config.first.0 } else { first.map_or(0, |id| id.0) };
        for id in &self.ids {
            if id.0 < expected {
                return Err(Error::corrupt(&files::wal(*id), 0, "overlaps the previous segment"));
            }
            if id.0 > expected {
                found.add_hole(first_seq(config, expected));
                found.missing = found.missing.or(found.dangling_pad);
            }
            let mut segment = match open(self.dir, *id, config, window) {
                Ok(segment) => segment,
                Err(Unusable::Damaged(e) | Unusable::Foreign(e)) if config.mode == RecoveryMode::Salvage => {
                    tracing::warn!(error = %e, "skipping a damaged log segment");
                    continue;
                }
                Err(Unusable::Damaged(e)) if config.mode == RecoveryMode::PointInTime => {
                    found.unreadable = Some((first_seq(config, id.0), e));
                    break;
                }
                Err(e) => return Err(e.into()),
            };
            expected = id.0 + u64::from(segment.header.span);
            found.same_boot &= segment.header.is_of_boot(&config.boot_id);
            found.dangling_pad = None;
            if let Some(hole) = found.holes.last() {
                sink.hold(hole.at)?;
            }
            let end = segment.header.file_bytes();
            walk(&mut segment, SEGMENT_HEADER_BYTES..end, sink, Some(&mut found))?;
        }
        Ok(found)
    }

    /// Passes the commits from `from` on.
    fn pass_from(&self, from: SeqNo, scan: &Scan, sink: &mut Sink<'_>, window: &mut Window) -> Result<()> {
        for (id, end) in &scan.used {
            let base = id * self.config.segment_bytes;
            if sink.ended || sink.cut.is_some_and(|cut| cut <= base / UNIT) {
                return Ok(());
            }
            let begin = (from * UNIT).saturating_sub(base).max(SEGMENT_HEADER_BYTES);
            if begin < *end {
                let mut segment = open(self.dir, WalId(*id), self.config, window)?;
                walk(&mut segment, begin..*end, sink, None)?;
            }
        }
        Ok(())
    }
}

fn open<'w>(
    dir: &dyn Dir,
    id: WalId,
    config: &ScanConfig,
    window: &'w mut Window,
) -> std::result::Result<SegmentReader<'w>, Unusable> {
    let segment = SegmentReader::open(dir, id, &config.db_uuid, config.segment_bytes, window)?;
    segment.check_len()?;
    Ok(segment)
}

fn first_seq(config: &ScanConfig, id: u64) -> SeqNo {
    (id * config.segment_bytes + SEGMENT_HEADER_BYTES) / UNIT
}

fn decide(mut walk: Findings, config: &ScanConfig) -> Result<Scan> {
    let mut unfinished = Vec::new();
    let stop = first_stop(&walk, config, &mut unfinished);
    let mut out = Scan { unfinished, ..std::mem::take(&mut walk.scan) };
    let unreadable = walk.unreadable.clone().map(|(at, e)| (at, Some(e)));
    if let Some((at, damage)) = stop.or(unreadable) {
        match (config.mode, damage) {
            (RecoveryMode::Strict, None) => return Err(damage_at(&walk, config, at, "torn tail")),
            (RecoveryMode::Strict | RecoveryMode::Tail, Some(damage)) => return Err(damage),
            (RecoveryMode::Salvage, damage) => out.damage = damage,
            (RecoveryMode::Tail | RecoveryMode::PointInTime, damage) => {
                (out.cut, out.damage) = (Some(at), damage);
            }
        }
    }
    out.commits = walk.passed.commits;
    if let Some(cut) = out.cut {
        let before = walk.before(cut);
        out.unfinished.retain(|at| *at < cut);
        out.commits = before.commits;
        out.end = if before.commits > 0 { before.end.min(cut) } else { cut };
    }
    out.discarded = walk.passed.commits - out.commits;
    Ok(out)
}

/// Where replay must stop, with the damage found there; no damage if the machine merely stopped. Addresses that are
/// only skipped are added to `unfinished`.
fn first_stop(
    walk: &Findings,
    config: &ScanConfig,
    unfinished: &mut Vec<SeqNo>,
) -> Option<(SeqNo, Option<Error>)> {
    let damaged = |at, what| Some((at, Some(damage_at(walk, config, at, what))));
    let mut stop = None;
    for hole in &walk.holes {
        let is_gone = walk.same_boot && hole.followed && hole.at < walk.complete;
        if hole.at < walk.scan.synced || is_gone {
            stop = damaged(hole.at, "a record that was complete is damaged");
            break;
        }
        if hole.followed && !walk.same_boot {
            stop = Some((hole.at, None));
            break;
        }
        unfinished.extend(hole.followed.then_some(hole.at));
    }
    // A segment's name is durable before the pad that leads to it. So a missing segment was removed, whatever else was
    // lost.
    let before_stop = |gone: &SeqNo| stop.as_ref().is_none_or(|(at, damage)| damage.is_none() && at >= gone);
    let gone = walk.missing.filter(before_stop).or(walk.dangling_pad.filter(|_| stop.is_none()));
    if let Some(at) = gone {
        stop = damaged(at, "the next segment is missing");
    }
    let begun = walk.scan.end > first_seq(config, config.first.0);
    if config.mode == RecoveryMode::Strict && stop.is_none() && !walk.scan.sealed && begun {
        stop = damaged(walk.scan.end, "the log does not end in a seal");
    }
    stop
}

fn damage_at(walk: &Findings, config: &ScanConfig, at: SeqNo, what: &str) -> Error {
    let id = at * UNIT / config.segment_bytes;
    let lost = walk.passed.commits - walk.before(at).commits;
    Error::corrupt(
        &files::wal(WalId(id)),
        at * UNIT % config.segment_bytes,
        format!(
            "{what}; commits from sequence number {at} on are affected, {lost} whole commits follow \
             (see recovery modes PointInTime and Salvage)"
        ),
    )
}

/// Walks over the records in a part of a segment and passes commits on. The first reading of the log notes in `found` what it meets.
fn walk(
    segment: &mut SegmentReader<'_>,
    part: Range<u64>,
    sink: &mut Sink<'_>,
    mut found: Option<&mut Findings>,
) -> Result<()> {
    let mut at = part.start;
    while at + RECORD_HEADER_BYTES as u64 <= part.end {
        if !segment.has(at) {
            sink.flush()?; // the window moves on
        }
        let Some(record) = segment.record_at(at)? else {
            sink.flush()?;
            if let Some(found) = &mut found {
                found.add_hole(segment.header.seq_at(at));
                sink.hold(segment.header.seq_at(at))?;
            }
            match segment.next_record(at + UNIT, part.end)? {
                Some(next) => at = next,
                None => break,
            }
            continue;
        };
        if let Some(found) = &mut found {
            found.add(&segment.header, &record, at);
            sink.synced = found.scan.synced;
        }
        sink.add(segment, &record, at)?;
        let is_over = found.is_none() && sink.ended;
        // Nothing follows a pad. The file of an oversized record holds only that record; the rest is unused.
        if is_over || record.kind.is_pad() || segment.header.span > 1 {
            break;
        }
        at += record.record_bytes();
    }
    sink.flush()
}

/// Collects commits into pieces and passes them on.
struct Sink<'a> {
    apply: &'a mut dyn FnMut(Logged, SeqNo) -> Result<bool>,
    piece_bytes: usize,
    piece: Option<Piece>,
    /// The log is known to be durable up to here.
    synced: SeqNo,
    /// Commits from here on are not passed on yet.
    held_from: Option<SeqNo>,
    /// Commits from here on do not count.
    cut: Option<SeqNo>,
    /// No more commits are passed on.
    ended: bool,
}

impl Sink<'_> {
    fn hold(&mut self, from: SeqNo) -> Result<()> {
        self.flush()?;
        self.held_from.get_or_insert(from);
        Ok(())
    }

    fn add(&mut self, segment: &SegmentReader<'_>, record: &RecordHeader, at: u64) -> Result<()> {
        self.ended |= self.cut.is_some_and(|cut| record.seq >= cut);
        match record.kind {
            RecordKind::Commit | RecordKind::Ingest => {}
            RecordKind::Pad | RecordKind::Seal | RecordKind::Refused => return Ok(()),
        }
        if self.held_from.is_some() || self.ended {
            return Ok(());
        }
        let Some(body) = segment.body_of(record, at) else {
            self.flush()?;
            return self.pass(Logged::Large(segment.large(record, at)));
        };
        let piece = self.piece.get_or_insert_with(|| segment.piece());
        piece.push(record, body);
        if piece.bytes() >= self.piece_bytes { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        match self.piece.take() {
            Some(piece) => self.pass(Logged::Commits(piece)),
            None => Ok(()),
        }
    }

    fn pass(&mut self, logged: Logged) -> Result<()> {
        self.ended |= !(self.apply)(logged, self.synced)?;
        Ok(())
    }
}
