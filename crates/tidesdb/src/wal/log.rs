//! The log while it is written: segments by number, one append, release of what is no longer needed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_io::{Dir, Env};
use tidesdb_sync::{EpochCell, Mutex, ShardedCounter, pin};

use super::group::Group;
use super::layout::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT,
};
use super::segment::Segment;
use super::sequencer::{Commit, Sequencer};
use crate::health::Health;
use crate::types::{SeqNo, WalId};
use crate::{Error, Result, files};

/// Segments reached without a lock.
const RECENT: usize = 4;
/// Old segment files kept for reuse.
const FREE_MAX: usize = 2;

/// What a log needs to know about its database.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Identity of the database.
    pub db_uuid: [u8; 16],
    /// Identity of this boot of the machine.
    pub boot_id: [u8; 16],
    /// Write small records through a map where the file system allows.
    pub mapped: bool,
}

/// A place in the log that is to be filled.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where, and when in the order of commits.
    pub commit: Commit,
    body_len: u32,
}

/// The write-ahead log of one database. Shared by all threads.
#[derive(Debug)]
pub struct Log {
    pub(super) config: LogConfig,
    pub(super) env: Env,
    pub(super) dir: Arc<dyn Dir>,
    pub(super) health: Arc<Health>,
    pub(super) sequencer: Sequencer,
    pub(super) group: Group,
    table: Mutex<Segments>,
    /// Held while files of segments are made, renamed or removed; taken before `table`.
    preparing: Mutex<()>,
    recent: [EpochCell<Option<Arc<Segment>>>; RECENT],
    /// Highest segment that is ready; raised before half of the one below is used.
    ready_max: AtomicU64,
    bytes: ShardedCounter,
}

#[derive(Debug, Default)]
struct Segments {
    live: BTreeMap<u64, Arc<Segment>>,
    free: Vec<String>,
    /// No file is made any more: the directory may be another opener's by now.
    closed: bool,
}

impl Log {
    /// A log that will begin at segment `first`, which must be above every segment that exists. Touches no file.
    pub fn new(env: &Env, dir: &Arc<dyn Dir>, config: LogConfig, health: &Arc<Health>, first: WalId) -> Self {
        Self {
            sequencer: Sequencer::new(config.segment_bytes, first.0),
            config,
            env: env.clone(),
            dir: Arc::clone(dir),
            health: Arc::clone(health),
            group: Group::default(),
            table: Mutex::new(Segments::default()),
            preparing: Mutex::new(()),
            recent: std::array::from_fn(|_| EpochCell::new(None)),
            ready_max: AtomicU64::new(0),
            bytes: ShardedCounter::new(),
        }
    }

    /// Makes the first segment ready; `free` are files of older logs to reuse.
    ///
    /// # Errors
    /// `Io`.
    pub fn begin(&self, free: Vec<String>) -> Result<()> {
        self.table.lock().free = free;
        self.ensure(self.segment_of(self.sequencer.tail()).0, 1).map(drop)
    }

    /// The order of commits.
    pub fn sequencer(&self) -> &Sequencer {
        &self.sequencer
    }

    /// Bytes of records handed to the log so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes.sum()
    }

    /// Makes sure that a record of `bytes` meets a segment that is ready: what a full disk refuses, it refuses here, before the
    /// record has a place in the order of commits.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing happened.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        let segment = self.config.segment_bytes;
        // What others add at the same time may go before: a quarter of a segment is kept for them.
        let end = self.sequencer.tail() * UNIT + bytes + segment / 4;
        if end / segment <= self.ready_max.load(Ordering::Relaxed) {
            return Ok(());
        }
        if bytes > segment - SEGMENT_HEADER_BYTES {
            // It gets a file of its own, whose number nobody knows yet.
            return self.check_space(bytes + 2 * segment);
        }
        self.prepare_next().map_err(|e| if e.is_full() { self.no_space(segment) } else { e })
    }

    /// Fails if less than `needed` bytes of the disk are free.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn check_space(&self, needed: u64) -> Result<()> {
        let space = self.dir.space().map_err(|e| Error::io("read free space", "database directory", e))?;
        if space.free < needed { Err(self.no_space(needed)) } else { Ok(()) }
    }

    /// The error for a disk that lacks the `needed` bytes.
    pub fn no_space(&self, needed: u64) -> Error {
        let free = self.dir.space().map_or(0, |space| space.free);
        Error::NoSpace { dir: self.dir.path().display().to_string().into(), free, needed }
    }

    /// Reserves a place for `record`, writes it there and tells the order of commits.
    ///
    /// `record` is room for a header, then the body. `mapped` asks for the path without a system call.
    ///
    /// # Errors
    /// The failure, and the commit if a place was reserved: then the caller must poison, for the log has a hole.
    pub fn append(
        &self,
        record: &mut Vec<u8>,
        ops: u32,
        mapped: bool,
    ) -> std::result::Result<Commit, (Option<Commit>, Error)> {
        self.append_kind(RecordKind::Commit, record, ops, mapped)
    }

    pub(super) fn append_kind(
        &self,
        kind: RecordKind,
        record: &mut Vec<u8>,
        ops: u32,
        mapped: bool,
    ) -> std::result::Result<Commit, (Option<Commit>, Error)> {
        let place = self.reserve(record).map_err(|e| (None, e))?;
        match self.write_at(&place, kind, ops, record, mapped) {
            Ok(()) => Ok(place.commit),
            Err(e) => Err((Some(place.commit), e)),
        }
    }

    /// Reserves a place for `record` and pads it. The place must be filled by [`Log::write_at`], or the caller must poison.
    ///
    /// # Errors
    /// `InvalidArgument`, `Poisoned`: nothing happened.
    pub fn reserve(&self, record: &mut Vec<u8>) -> Result<Place> {
        debug_assert!(record.len() >= RECORD_HEADER_BYTES, "a record begins with room for its header");
        let body_len = u32::try_from(record.len() - RECORD_HEADER_BYTES)
            .map_err(|_| Error::invalid("a commit is limited to 4 GiB"))?;
        record.resize(record.len().next_multiple_of(UNIT as usize), 0);
        match self.sequencer.reserve(record.len() as u64) {
            Some(commit) => Ok(Place { commit, body_len }),
            None => Err(self.health.check().err().unwrap_or(Error::Closed)),
        }
    }

    /// Writes the padded `record` to its place and tells the order of commits.
    ///
    /// # Errors
    /// `Io`; the caller must poison.
    pub fn write_at(
        &self,
        place: &Place,
        kind: RecordKind,
        ops: u32,
        record: &mut [u8],
        mapped: bool,
    ) -> Result<()> {
        let header = RecordHeader {
            seq: place.commit.seq,
            body_len: place.body_len,
            kind,
            ops,
            complete: self.sequencer.visible_end(),
            synced: self.sequencer.durable(),
        };
        self.write(&place.commit, &header, record, mapped)?;
        self.sequencer.written(&place.commit);
        self.bytes.add(record.len() as u64);
        Ok(())
    }

    fn write(&self, commit: &Commit, header: &RecordHeader, record: &mut [u8], mapped: bool) -> Result<()> {
        let address = commit.seq * UNIT;
        let id = address / self.config.segment_bytes;
        let span = (record.len() as u64 + SEGMENT_HEADER_BYTES).div_ceil(self.config.segment_bytes);
        let segment = self.segment(id, span)?;
        if let Some((seq, bytes)) = commit.pad {
            // After the next segment exists, so that a pad without a successor is damage.
            self.write_pad(seq, bytes, header)?;
        }
        debug_assert!(header.complete <= commit.seq && header.synced <= commit.seq, "promises look back");
        let (head, body) = record.split_at_mut(RECORD_HEADER_BYTES);
        head.copy_from_slice(&header.encode(segment.salt(), body));
        segment.write(address - segment.header.id * self.config.segment_bytes, record, mapped)
    }

    fn write_pad(&self, seq: SeqNo, bytes: u64, claims: &RecordHeader) -> Result<()> {
        let segment = self.segment(seq * UNIT / self.config.segment_bytes, 1)?;
        let pad = RecordHeader {
            seq,
            body_len: (bytes - RECORD_HEADER_BYTES as u64) as u32,
            kind: RecordKind::Pad,
            ops: 0,
            ..*claims
        };
        let head = pad.encode(segment.salt(), &[]);
        segment.write(seq * UNIT % self.config.segment_bytes, &head, false)
    }

    /// The segment `id`, from the few recent ones without a lock.
    fn segment(&self, id: u64, span: u64) -> Result<Arc<Segment>> {
        let recent = self.recent[id as usize % RECENT].load(&pin()).clone();
        match recent {
            Some(s) if s.header.id == id && u64::from(s.header.span) == span => Ok(s),
            _ => self.ensure(id, span),
        }
    }

    /// The segment `id`, made ready now if it is not yet.
    fn ensure(&self, id: u64, span: u64) -> Result<Arc<Segment>> {
        // Not under the lock of the table, which every sync takes: a file takes milliseconds to make.
        let _one_at_a_time = self.preparing.lock();
        let reuse = {
            let mut table = self.table.lock();
            if table.closed {
                return Err(Error::Closed);
            }
            // A preparation, which asks for a short one, may come after an oversized record took the place: that one stays.
            if let Some(s) = table.live.get(&id)
                && (span == 1 || u64::from(s.header.span) == span)
            {
                return Ok(Arc::clone(s));
            }
            if span == 1 { table.free.pop() } else { None }
        };
        let header = SegmentHeader {
            id,
            segment_bytes: self.config.segment_bytes,
            span: u32::try_from(span).map_err(|_| Error::invalid("commit too large for the log"))?,
            salt: self.env.entropy.salt(),
            db_uuid: self.config.db_uuid,
            boot_id: self.config.boot_id,
        };
        let segment = Arc::new(Segment::create(&self.dir, header, reuse, self.config.mapped)?);
        self.table.lock().live.insert(id, Arc::clone(&segment));
        self.recent[id as usize % RECENT].store(Some(Arc::clone(&segment)));
        self.ready_max.fetch_max(id + span - 1, Ordering::SeqCst);
        Ok(segment)
    }

    /// Whether the next segment should be made ready in the background.
    #[inline]
    pub fn wants_next(&self, commit: &Commit) -> bool {
        let address = commit.seq * UNIT;
        address % self.config.segment_bytes > self.config.segment_bytes / 2
            && address / self.config.segment_bytes >= self.ready_max.load(Ordering::Relaxed)
    }

    /// Makes the segment after the tail's ready, and lets go of the pages of the one before it.
    ///
    /// # Errors
    /// `Io`; nothing is lost, the next append tries again.
    pub fn prepare_next(&self) -> Result<()> {
        let current = self.sequencer.tail() * UNIT / self.config.segment_bytes;
        if self.ready_max.load(Ordering::SeqCst) <= current {
            self.ensure(current + 1, 1)?;
        }
        let full = current.checked_sub(1).and_then(|id| self.table.lock().live.get(&id).cloned());
        if let Some(full) = full {
            full.release_pages();
        }
        Ok(())
    }

    /// The segment that holds `seq`.
    pub fn segment_of(&self, seq: SeqNo) -> WalId {
        WalId(seq * UNIT / self.config.segment_bytes)
    }

    /// Bytes of log from `seq` to the tail.
    pub fn bytes_since(&self, seq: SeqNo) -> u64 {
        self.sequencer.tail().saturating_sub(seq) * UNIT
    }

    /// Segments whose bytes below `end` are perhaps not durable yet.
    pub(super) fn segments_between(&self, from: SeqNo, end: SeqNo) -> Vec<Arc<Segment>> {
        let (first, last) = (self.segment_of(from).0, self.segment_of(end).0);
        let table = self.table.lock();
        // A span that began below `first` reaches into the range.
        table
            .live
            .values()
            .filter(|s| s.header.id <= last && (s.header.id >= first || s.covers(first)))
            .cloned()
            .collect()
    }

    /// Lets go of every segment below `first`, which the manifest no longer needs: two files stay for reuse, others go.
    pub fn release_before(&self, first: WalId) {
        let _one_at_a_time = self.preparing.lock();
        let (gone, mut room) = {
            let mut table = self.table.lock();
            let (gone, keep) = std::mem::take(&mut table.live)
                .into_iter()
                .partition::<BTreeMap<_, _>, _>(|(id, s)| *id < first.0 && !s.covers(first.0));
            table.live = keep;
            (gone, FREE_MAX.saturating_sub(table.free.len()))
        };
        for (id, segment) in gone {
            let cell = &self.recent[id as usize % RECENT];
            if cell.load(&pin()).as_ref().is_some_and(|s| s.header.id == id) {
                cell.store(None);
            }
            let name = files::wal(WalId(id));
            let free = format!("{name}.free");
            if segment.header.span == 1 && room > 0 && self.dir.rename(&name, &free).is_ok() {
                room -= 1;
                self.table.lock().free.push(free);
            } else if let Err(error) = self.dir.unlink(&name) {
                tracing::warn!(%name, %error, "an obsolete log segment could not be removed; it is ignored");
            }
        }
    }

    /// Removes every file of the log after a clean shutdown: all data is in tables.
    pub fn remove_all(&self) {
        let _one_at_a_time = self.preparing.lock();
        let (live, free) = {
            let mut table = self.table.lock();
            table.closed = true;
            (std::mem::take(&mut table.live), std::mem::take(&mut table.free))
        };
        for name in live.into_keys().map(|id| files::wal(WalId(id))).chain(free) {
            if let Err(error) = self.dir.unlink(&name) {
                tracing::warn!(%name, %error, "a log segment could not be removed; the next open does it");
            }
        }
    }
}
