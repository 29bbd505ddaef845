//! Reads the log after a crash: which records count, where the log ends, and what is damage.
//!
//! Every segment is scanned from its header. An address where no valid record begins is a **hole**; the scan continues
//! at the next address where one does. Let `X` be a hole, `synced` the highest claim "durable up to here" made by any
//! valid record or by the manifest, and `complete` the highest claim "in the log up to here".
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
//! A failed sync may drop pages that were written. The log leaves a note of it, and the next open then treats "same
//! boot" as "other boot".
//!
//! A read error is none of these: the open fails with it. Segments are read by system calls, because a bad sector under
//! a memory map would kill the process.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::{Access, Dir, File, FileExt};

use super::layout::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT,
};
use crate::files::{self, FileKind};
use crate::options::RecoveryMode;
use crate::types::{SeqNo, WalId, wal_id_max};
use crate::{Error, Result};

/// What is known about a log before it is read.
#[derive(Clone, Debug)]
pub struct ScanConfig {
    /// Bytes of a segment, from the manifest.
    pub segment_bytes: u64,
    /// Identity of the database.
    pub db_uuid: [u8; 16],
    /// Identity of this boot.
    pub boot_id: [u8; 16],
    /// First segment that counts, from the manifest.
    pub first: WalId,
    /// True if that segment is known to have existed.
    pub first_existed: bool,
    /// The manifest's claim: durable up to here.
    pub watermark: SeqNo,
    /// A sync failed since the machine last started: bytes that were not durable may be lost.
    pub sync_failed: bool,
    /// What to do about damage.
    pub mode: RecoveryMode,
}

/// Result of scanning the log.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    segments: Vec<SegmentHeader>,
    /// Replay ends before this address; `None` = replay to the end.
    pub cut: Option<SeqNo>,
    /// First address after the last valid record that is replayed.
    pub end: SeqNo,
    /// Commits that will be replayed.
    pub commits: u64,
    /// Bytes of log that these commits take.
    pub commit_bytes: u64,
    /// Commits after the cut that are given up.
    pub discarded: u64,
    /// Addresses of commits that were being written when the process died.
    pub unfinished: Vec<SeqNo>,
    /// True if the last record is a seal, that is, the log ends cleanly after a sync.
    pub sealed: bool,
    /// Damage that `PointInTime` or `Salvage` ignored.
    pub damage: Option<Error>,
    /// Highest segment number that any file uses.
    pub last_segment: u64,
    /// The log is durable up to here, by the highest claim found.
    pub synced: SeqNo,
    /// True if all segments were written since the machine started, and no sync failed: no written byte is lost.
    pub same_boot: bool,
    /// Where the last record of each segment file ends, by the segment's number.
    used: BTreeMap<u64, u64>,
}

/// Findings of a scan.
#[derive(Default)]
struct Findings {
    holes: Vec<Hole>,
    synced: SeqNo,
    complete: SeqNo,
    commits: Vec<(SeqNo, u64)>,
    end: SeqNo,
    sealed: bool,
    same_boot: bool,
    dangling_pad: Option<SeqNo>,
    /// As [`Scan::used`].
    used: BTreeMap<u64, u64>,
    /// Start of a segment that must have existed and is missing, although a later one exists.
    missing: Option<SeqNo>,
    /// Start of a segment with a damaged header, where the scan ended.
    unreadable: Option<(SeqNo, Error)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    at: SeqNo,
    followed: bool,
}

/// What a hole means for the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoleVerdict {
    Skip,
    Cut,
    Damage,
}

fn judge(hole: Hole, walk: &Findings) -> HoleVerdict {
    if hole.at < walk.synced {
        HoleVerdict::Damage
    } else if !hole.followed {
        HoleVerdict::Skip
    } else if !walk.same_boot {
        HoleVerdict::Cut
    } else if hole.at < walk.complete {
        HoleVerdict::Damage
    } else {
        HoleVerdict::Skip
    }
}

/// Segment files in a directory, in order.
pub struct SegmentFiles {
    /// From the first segment that is needed on.
    pub needed: Vec<WalId>,
    /// Below that segment.
    pub old: Vec<WalId>,
}

/// Finds the segments in `dir`; `first` is the first one needed. Numbers larger than any log can reach are ignored as
/// foreign files.
///
/// # Errors
/// `Io`.
pub fn segment_files(dir: &Arc<dyn Dir>, first: WalId, segment_bytes: u64) -> Result<SegmentFiles> {
    let names = dir.list().map_err(|e| Error::io("list", "database directory", e))?;
    let mut ids: Vec<WalId> = names
        .iter()
        .filter_map(|n| match files::parse(n) {
            Some(FileKind::Wal(id)) if id.0 <= wal_id_max(segment_bytes) => Some(id),
            _ => None,
        })
        .collect();
    ids.sort_unstable();
    let (needed, old) = ids.into_iter().partition(|id| *id >= first);
    Ok(SegmentFiles { needed, old })
}

/// Number of segments whose addresses the file `id` covers, judged by its length alone.
pub fn span_of(dir: &Arc<dyn Dir>, id: WalId, segment_bytes: u64) -> u64 {
    let len = dir.open(&files::wal(id), Access::Read).and_then(|f| f.len()).unwrap_or(0);
    len.div_ceil(segment_bytes).max(1)
}

/// Reads the whole log once and decides what counts. Changes nothing on disk.
///
/// # Errors
/// `Corrupt` for damage that `config.mode` does not tolerate; `Io`.
pub fn scan(dir: &Arc<dyn Dir>, config: &ScanConfig) -> Result<Scan> {
    let ids = segment_files(dir, config.first, config.segment_bytes)?.needed;
    let mut walk = Findings {
        synced: config.watermark,
        same_boot: !config.sync_failed,
        end: first_seq(config, config.first.0),
        ..Findings::default()
    };
    let mut segments = Vec::new();
    if config.first_existed && ids.first() != Some(&config.first) {
        walk.holes.push(Hole { at: first_seq(config, config.first.0), followed: false });
        walk.missing = Some(first_seq(config, config.first.0));
    }
    let mut expected = if config.first_existed { config.first.0 } else { ids.first().map_or(0, |id| id.0) };
    for id in ids {
        if id.0 < expected {
            return Err(Error::corrupt(&files::wal(id), 0, "overlaps the previous segment"));
        }
        if id.0 > expected {
            walk.holes.push(Hole { at: first_seq(config, expected), followed: false });
            walk.missing = walk.missing.or(walk.dangling_pad);
        }
        let (header, bytes) = match load(dir, id, config, u64::MAX) {
            Ok(x) => x,
            Err(Unusable::Damaged(e) | Unusable::Foreign(e)) if config.mode == RecoveryMode::Salvage => {
                tracing::warn!(error = %e, "skipping a damaged log segment");
                continue;
            }
            Err(Unusable::Damaged(e)) if config.mode == RecoveryMode::PointInTime => {
                walk.unreadable = Some((first_seq(config, id.0), e));
                break;
            }
            Err(e) => return Err(e.into()),
        };
        expected = id.0 + u64::from(header.span);
        // All zeros mean "unknown", which never counts as the same boot.
        walk.same_boot &= header.is_of_boot(&config.boot_id);
        let used = walk_segment(&header, &bytes, &mut walk);
        walk.used.insert(header.id, used);
        segments.push(header);
    }
    let last_segment = segments.last().map_or(config.first.0, |h| h.id + u64::from(h.span) - 1);
    decide(walk, segments, last_segment, config)
}

fn first_seq(config: &ScanConfig, id: u64) -> SeqNo {
    (id * config.segment_bytes + SEGMENT_HEADER_BYTES) / UNIT
}

fn decide(
    walk: Findings,
    segments: Vec<SegmentHeader>,
    last_segment: u64,
    config: &ScanConfig,
) -> Result<Scan> {
    let mut out = Scan {
        segments,
        end: walk.end,
        sealed: walk.sealed,
        last_segment,
        synced: walk.synced,
        same_boot: walk.same_boot,
        used: walk.used.clone(),
        ..Scan::default()
    };
    let stop = first_stop(&walk, config, &mut out.unfinished);
    let unreadable = walk.unreadable.clone().map(|(at, e)| (at, Some(e)));
    if let Some((at, damage)) = stop.or(unreadable) {
        match (config.mode, damage) {
            (RecoveryMode::Salvage, damage) => out.damage = damage,
            (RecoveryMode::PointInTime, damage) => {
                out.damage = damage;
                out.cut = Some(at);
            }
            (RecoveryMode::Tail, None) => out.cut = Some(at),
            (RecoveryMode::Strict, None) => return Err(damage_at(&walk, config, at, "torn tail")),
            (_, Some(damage)) => return Err(damage),
        }
    }
    if let Some(cut) = out.cut {
        out.unfinished.retain(|at| *at < cut);
        out.end = walk
            .commits
            .iter()
            .filter(|(seq, _)| *seq < cut)
            .map(|(seq, units)| seq + units)
            .max()
            .unwrap_or(cut)
            .min(cut);
    }
    let before_cut = walk.commits.iter().filter(|(seq, _)| out.cut.is_none_or(|cut| *seq < cut));
    (out.commits, out.commit_bytes) =
        before_cut.fold((0, 0), |(n, bytes), (_, units)| (n + 1, bytes + units * UNIT));
    out.discarded = walk.commits.len() as u64 - out.commits;
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
        match judge(*hole, walk) {
            HoleVerdict::Skip if hole.followed => unfinished.push(hole.at),
            HoleVerdict::Skip => {}
            HoleVerdict::Cut => {
                stop = Some((hole.at, None));
                break;
            }
            HoleVerdict::Damage => {
                stop = damaged(hole.at, "a record that was complete is damaged");
                break;
            }
        }
    }
    // A segment's name is durable before the pad that leads to it. So a missing segment was removed, whatever else was
    // lost.
    let before_stop = |gone: &SeqNo| stop.as_ref().is_none_or(|(at, damage)| damage.is_none() && at >= gone);
    let gone = walk.missing.filter(before_stop).or(walk.dangling_pad.filter(|_| stop.is_none()));
    if let Some(at) = gone {
        stop = damaged(at, "the next segment is missing");
    }
    let begun = walk.end > first_seq(config, config.first.0);
    if config.mode == RecoveryMode::Strict && stop.is_none() && !walk.sealed && begun {
        stop = damaged(walk.end, "the log does not end in a seal");
    }
    stop
}

fn damage_at(walk: &Findings, config: &ScanConfig, at: SeqNo, what: &str) -> Error {
    let id = at * UNIT / config.segment_bytes;
    let lost = walk.commits.iter().filter(|(seq, _)| *seq > at).count();
    Error::corrupt(
        &files::wal(WalId(id)),
        at * UNIT % config.segment_bytes,
        format!(
            "{what}; commits from sequence number {at} on are affected, {lost} whole commits follow \
             (see recovery modes PointInTime and Salvage)"
        ),
    )
}

/// Why a segment cannot be scanned.
enum Unusable {
    /// Its header or its length is damaged.
    Damaged(Error),
    /// It is valid but does not match its name: files were moved.
    Foreign(Error),
    /// It could not be read.
    Failed(Error),
}

impl From<Unusable> for Error {
    fn from(e: Unusable) -> Self {
        match e {
            Unusable::Damaged(e) | Unusable::Foreign(e) | Unusable::Failed(e) => e,
        }
    }
}

/// Opens a segment and checks its header against the database. Reads its first `bytes_max` bytes.
fn load(
    dir: &Arc<dyn Dir>,
    id: WalId,
    config: &ScanConfig,
    bytes_max: u64,
) -> std::result::Result<(SegmentHeader, Vec<u8>), Unusable> {
    let name = files::wal(id);
    let io = |op| move |e| Unusable::Failed(Error::io(op, &files::wal(id), e));
    let file = dir.open(&name, Access::Read).map_err(io("open"))?;
    let len = file.len().map_err(io("read length"))?;
    let mut head = vec![0; len.min(SEGMENT_HEADER_BYTES) as usize];
    file.read_exact_at(&mut head, 0).map_err(|e| Unusable::Failed(Error::io_at("read", &name, 0, e)))?;
    let header = SegmentHeader::decode(&head, &name)
        .map_err(|e| if e.is_corruption() { Unusable::Damaged(e) } else { Unusable::Failed(e) })?;
    header.check_place(id, &config.db_uuid, config.segment_bytes, &name).map_err(Unusable::Foreign)?;
    if header.segment_bytes.checked_mul(u64::from(header.span)) != Some(len) {
        let what = "the file is not as long as its header says";
        return Err(Unusable::Damaged(Error::corrupt(&name, len, what)));
    }
    let mut bytes = tidesdb_io::zeroed(len.min(bytes_max) as usize)
        .map_err(|_| Unusable::Failed(Error::MemoryLimit { what: "reading a log segment".into() }))?;
    read_all(&*file, &mut bytes).map_err(|(at, e)| Unusable::Failed(Error::io_at("read", &name, at, e)))?;
    Ok((header, bytes))
}

/// Fills `bytes` from the beginning of `file`. An error carries the offset that could not be read.
fn read_all(file: &dyn File, bytes: &mut [u8]) -> std::result::Result<(), (u64, io::Error)> {
    let mut at = 0;
    while at < bytes.len() {
        match file.read_at(&mut bytes[at..], at as u64) {
            Ok(0) => return Err((at as u64, io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => at += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err((at as u64, e)),
        }
    }
    Ok(())
}

/// Scans one segment and adds its holes and claims to `walk`. Returns where its last record ends.
fn walk_segment(header: &SegmentHeader, bytes: &[u8], walk: &mut Findings) -> u64 {
    let base = header.id * header.segment_bytes;
    let mut pos = SEGMENT_HEADER_BYTES;
    walk.dangling_pad = None;
    let mut any = false;
    let mut used = pos;
    while pos + RECORD_HEADER_BYTES as u64 <= bytes.len() as u64 {
        let seq = (base + pos) / UNIT;
        let Some(record) = record_at(bytes, pos, seq, header) else {
            walk.holes.push(Hole { at: seq, followed: false });
            match next_record(bytes, pos + UNIT, base, header) {
                Some(next) => {
                    pos = next;
                    continue;
                }
                None => return used,
            }
        };
        if !any || walk.holes.last().is_some_and(|h| !h.followed) {
            // All open holes are followed by this record.
            walk.holes.iter_mut().for_each(|h| h.followed = true);
            any = true;
        }
        walk.synced = walk.synced.max(record.synced);
        walk.complete = walk.complete.max(record.complete);
        walk.sealed = record.kind == RecordKind::Seal;
        if record.kind == RecordKind::Pad {
            walk.dangling_pad = Some((base + bytes.len() as u64 + SEGMENT_HEADER_BYTES) / UNIT);
            return used;
        }
        if record.kind == RecordKind::Commit {
            walk.commits.push((seq, record.record_bytes() / UNIT));
        }
        pos += record.record_bytes();
        used = pos.min(bytes.len() as u64);
        walk.end = (base + pos) / UNIT;
        if header.span > 1 {
            break; // the file of an oversized record holds only that record; the rest is unused
        }
    }
    used
}

fn record_at(bytes: &[u8], pos: u64, seq: SeqNo, header: &SegmentHeader) -> Option<RecordHeader> {
    let rest = bytes.get(pos as usize..)?;
    let (record, _) = RecordHeader::decode(rest, seq, &header.salt)?;
    let fills = record.record_bytes() == rest.len() as u64;
    (record.kind != RecordKind::Pad || fills).then_some(record)
}

/// The first offset from `pos` on where a valid record begins.
fn next_record(bytes: &[u8], pos: u64, base: u64, header: &SegmentHeader) -> Option<u64> {
    (pos..bytes.len() as u64).step_by(UNIT as usize).find(|at| {
        let seq = (base + at) / UNIT;
        RecordHeader::looks_like(&bytes[*at as usize..], seq) && record_at(bytes, *at, seq, header).is_some()
    })
}

/// Consecutive commits of one segment.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Name of the segment file.
    pub file: Arc<str>,
    bytes: Arc<Vec<u8>>,
    /// Where `bytes` begin in the file.
    base: u64,
    /// Sequence number of each commit, and where its body lies in `bytes`.
    commits: Vec<(SeqNo, Range<usize>)>,
}

/// One commit of the log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCommit<'a> {
    /// Its sequence number.
    pub seq: SeqNo,
    /// Its operations.
    pub body: &'a [u8],
    /// The file that it is in.
    pub file: &'a str,
    /// Where the body begins in the file.
    pub offset: u64,
}

impl Piece {
    /// The commits in `bytes`, which begin at `base` of `file`.
    pub(super) fn new(
        file: Arc<str>,
        bytes: Vec<u8>,
        base: u64,
        commits: Vec<(SeqNo, Range<usize>)>,
    ) -> Self {
        Self { file, bytes: Arc::new(bytes), base, commits }
    }

    /// The commits in order.
    pub fn commits(&self) -> impl ExactSizeIterator<Item = LoggedCommit<'_>> {
        self.commits.iter().map(|(seq, at)| LoggedCommit {
            seq: *seq,
            body: &self.bytes[at.clone()],
            file: &self.file,
            offset: self.base + at.start as u64,
        })
    }

    /// Bytes of the commits, with what lies between them.
    pub fn bytes(&self) -> usize {
        match (self.commits.first(), self.commits.last()) {
            (Some((_, first)), Some((_, last))) => last.end - first.start,
            _ => 0,
        }
    }

    /// Cuts the piece into at most `parts` of about the same size, in order.
    pub fn split(&self, parts: usize) -> Vec<Self> {
        let mut out = Vec::new();
        let mut rest = &self.commits[..];
        for left in (1..=parts.max(1)).rev() {
            let (Some((_, first)), Some((_, last))) = (rest.first(), rest.last()) else {
                break;
            };
            let end = first.start + (last.end - first.start).div_ceil(left);
            let n = rest.partition_point(|(_, at)| at.end <= end).max(1);
            let (commits, later) = rest.split_at(n);
            out.push(Self { commits: commits.to_vec(), ..self.clone_empty() });
            rest = later;
        }
        out
    }

    fn clone_empty(&self) -> Self {
        let (file, bytes) = (Arc::clone(&self.file), Arc::clone(&self.bytes));
        Self { file, bytes, base: self.base, commits: Vec::new() }
    }

    /// Removes the commits from `seq` on.
    pub fn truncate(&mut self, seq: SeqNo) {
        self.commits.truncate(self.commits.partition_point(|(at, _)| *at < seq));
    }
}

/// Calls `apply` for all commits that count, in order, in pieces of at most about `piece_bytes`, of one commit at least.
/// Stops when `apply` returns `false`.
///
/// # Errors
/// Those of `apply`; `Io`; `Corrupt` if the log changed since [`scan`].
pub fn replay(
    dir: &Arc<dyn Dir>,
    config: &ScanConfig,
    scan: &Scan,
    piece_bytes: usize,
    mut apply: impl FnMut(Piece) -> Result<bool>,
) -> Result<()> {
    for known in &scan.segments {
        if scan.cut.is_some_and(|cut| cut <= known.id * config.segment_bytes / UNIT) {
            return Ok(());
        }
        let used = scan.used.get(&known.id).copied().unwrap_or(SEGMENT_HEADER_BYTES);
        let (header, bytes) = load(dir, WalId(known.id), config, used)?;
        let commits = commits_of(&header, &bytes, scan.cut);
        let mut piece = Piece::new(files::wal(WalId(header.id)).into(), bytes, 0, Vec::new());
        for commit in commits {
            piece.commits.push(commit);
            if piece.bytes() >= piece_bytes {
                let full = Piece { commits: std::mem::take(&mut piece.commits), ..piece.clone_empty() };
                if !apply(full)? {
                    return Ok(());
                }
            }
        }
        if !piece.commits.is_empty() && !apply(piece)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the commits of a segment before `cut`: the sequence number of each, and where its body lies.
fn commits_of(header: &SegmentHeader, bytes: &[u8], cut: Option<SeqNo>) -> Vec<(SeqNo, Range<usize>)> {
    let base = header.id * header.segment_bytes;
    let mut pos = SEGMENT_HEADER_BYTES;
    let mut commits = Vec::new();
    while pos + RECORD_HEADER_BYTES as u64 <= bytes.len() as u64 {
        let seq = (base + pos) / UNIT;
        if cut.is_some_and(|cut| seq >= cut) {
            break;
        }
        let Some(record) = record_at(bytes, pos, seq, header) else {
            match next_record(bytes, pos + UNIT, base, header) {
                Some(next) => pos = next,
                None => break,
            }
            continue;
        };
        if record.kind == RecordKind::Commit {
            let begin = pos as usize + RECORD_HEADER_BYTES;
            commits.push((seq, begin..begin + record.body_len as usize));
        }
        pos += record.record_bytes();
        if header.span > 1 {
            break; // as in `walk_segment`: nothing else counts
        }
    }
    commits
}
