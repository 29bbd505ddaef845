//! Tests of the log: golden bytes, the sequencer, the log on a simulated disk, and the reader's damage rules.

mod ahead;
mod crowd;
mod failure;
mod golden;
mod log;
mod reader;
mod segments;
mod sequencer;
mod sweep;
mod tail;
mod work;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use tidesdb_io::sim::{self, OpKind, SimDisk};
use tidesdb_io::{Boot, Buffer, Dir, Env};

use super::layout::{RECORD_HEADER_BYTES, RecordKind, SEGMENT_HEADER_BYTES, UNIT, blank_record};
use super::reader::{CrashedLog, Logged, Scan, ScanConfig};
use super::{Commit, Log, LogConfig, Piece, Purpose, Taken};
use crate::health::Health;
use crate::options::RecoveryMode;
use crate::types::{SeqNo, WalId};
use crate::{Error, Result, files};

const DB: &str = "/db";
/// Bytes of a segment in most tests.
const SEGMENT: u64 = 16 << 10;
const UUID: [u8; 16] = [0xDB; 16];
const BOOT: [u8; 16] = [0xB0; 16];
const OTHER_BOOT: [u8; 16] = [0xB1; 16];
const KNOWN: Boot = Boot { id: BOOT, is_exact: true };

/// A simulated disk with a directory for a log.
struct Rig {
    env: Env,
    disk: Arc<SimDisk>,
    dir: Arc<dyn Dir>,
    health: Arc<Health>,
    segment: u64,
}

/// A commit as it is read back.
type Read = (SeqNo, Vec<u8>);

impl Rig {
    fn new() -> Self {
        Self::on(SimDisk::new(1), SEGMENT)
    }

    fn on(disk: SimDisk, segment: u64) -> Self {
        let (env, disk, _clock) = sim::env_on(disk, 1);
        let dir = env.disk.open_dir(Path::new(DB), true).unwrap();
        Self { env, disk, dir, health: Arc::default(), segment }
    }

    /// A log that begins at segment 1.
    fn log(&self, mapped: bool) -> Log {
        let log = self.log_at(WalId(1), mapped);
        log.begin(Vec::new()).unwrap();
        log
    }

    fn log_at(&self, first: WalId, mapped: bool) -> Log {
        self.log_with(first, mapped, 0..=0)
    }

    /// A log with a reserve of these lengths.
    fn log_with(&self, first: WalId, mapped: bool, reserve_bytes: RangeInclusive<u64>) -> Log {
        Log::new(&self.env, &self.dir, self.log_config(mapped, reserve_bytes), &self.health, first)
    }

    fn log_config(&self, mapped: bool, reserve_bytes: RangeInclusive<u64>) -> LogConfig {
        LogConfig {
            segment_bytes: self.segment,
            db_uuid: UUID,
            boot: KNOWN,
            mapped,
            reserve_bytes,
            free_min: 0,
        }
    }

    fn config(&self) -> ScanConfig {
        ScanConfig {
            segment_bytes: self.segment,
            db_uuid: UUID,
            boot_id: BOOT,
            first: WalId(1),
            first_existed: true,
            watermark: 0,
            sync_failed: false,
            mode: RecoveryMode::Tail,
            has_values: false,
        }
    }

    fn read(&self) -> Result<(Scan, Vec<Read>)> {
        self.read_with(&self.config())
    }

    fn read_with(&self, config: &ScanConfig) -> Result<(Scan, Vec<Read>)> {
        let mut commits = Vec::new();
        let found = CrashedLog::find(&self.dir, config)?.read(1000, |logged, _| {
            commits.extend(bodies(&logged)?);
            Ok(true)
        })?;
        assert_eq!(found.commits, commits.len() as u64, "the scan counts the commits that it passes on");
        Ok((found, commits))
    }

    /// The rig as the next process finds it after this process alone has died.
    fn reopened(&self) -> Self {
        Self::on(self.disk.fork(), self.segment)
    }

    fn count(&self, kind: OpKind) -> usize {
        self.disk.ops().iter().filter(|op| op.kind == kind && op.ok).count()
    }

    /// Changes the byte at an address of the log.
    fn damage(&self, address: u64) {
        let (file, offset) = self.place(address);
        self.disk.corrupt(file, offset, |b| b ^ 0x10).unwrap();
    }

    fn place(&self, address: u64) -> (String, u64) {
        (format!("{DB}/{}", files::wal(WalId(address / self.segment))), address % self.segment)
    }
}

/// The commits of `logged`, with their bodies.
fn bodies(logged: &Logged) -> Result<Vec<Read>> {
    match logged {
        Logged::Commits(piece) => Ok(piece.commits().map(|c| (c.seq, c.body.to_vec())).collect()),
        Logged::Large(commit) => {
            let mut body = Vec::new();
            commit.read(999, |part, is_last| {
                let part = part.commits().next().unwrap();
                assert_eq!((part.seq, part.offset), (commit.seq, commit.offset() + body.len() as u64));
                let used = if is_last { part.body.len() } else { part.body.len() / 2 };
                body.extend_from_slice(&part.body[..used]);
                Ok(Taken::Operations(used, 0))
            })?;
            Ok(vec![(commit.seq, body)])
        }
    }
}

impl Log {
    /// Reserves a place for `record`, a commit, and writes it there.
    ///
    /// # Errors
    /// The failure, with the commit if a place was reserved.
    pub(crate) fn append(
        &self,
        record: &mut Buffer,
        ops: u32,
        mapped: bool,
        purpose: Purpose,
    ) -> std::result::Result<Commit, (Option<Commit>, Error)> {
        let place = self.reserve(record, purpose).map_err(|e| (None, e))?;
        let written = self.write_at(&place, RecordKind::Commit, ops, record, mapped);
        written.map(|()| place).map_err(|e| (Some(place), e))
    }
}

/// A record with this body: space for the header, then the body.
fn record(body: &[u8]) -> Buffer {
    let mut out = blank_record(0);
    out.extend_from_slice(body);
    out
}

/// Appends a commit and makes it visible.
fn put(log: &Log, body: &[u8]) -> Commit {
    put_by(log, body, false)
}

fn put_by(log: &Log, body: &[u8], mapped: bool) -> Commit {
    let commit = log.append(&mut record(body), 1, mapped, Purpose::Store).unwrap();
    log.sequencer().done(&commit);
    commit
}

/// A body of `len` bytes, different for each `n`.
fn body(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (n.wrapping_mul(31) ^ i.wrapping_mul(7)) as u8 | 1).collect()
}

fn no_values() -> Result<()> {
    Ok(())
}
