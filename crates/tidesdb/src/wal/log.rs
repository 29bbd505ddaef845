//! The log that is being written: segments by number, one append, release of segments that are no longer needed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use tidesdb_io::{Boot, Buffer, Dir, Env};
use tidesdb_sync::{EpochCell, Mutex, ShardedCounter, pin, rank};

use super::ahead::Ahead;
use super::layout::{RECORD_HEADER_BYTES, RecordHeader, RecordKind, UNIT};
use super::reserve::Reserve;
use super::segment::Segment;
use super::sequencer::{Commit, Purpose, Refusal, Sequencer};
use super::space::Refused;
use super::sync::Group;
use crate::health::Health;
use crate::stats::counts::{self, Counter};
use crate::types::{SeqNo, WalId};
use crate::waits::{StallCause, Waits};
use crate::{Error, Result, files};

/// Bytes of a page of a mapped file, on the systems that map the log; elsewhere the figure only decides which writes are timed.
const PAGE_BYTES: u64 = 4096;
/// Segments reachable without a lock.
const RECENT: usize = 4;
/// Number of old segment files kept for reuse: a memtable of the usual size fills two segments.
const FREE_MAX: usize = 2;
/// Old segments kept until an object store has them, and as many bytes of dead value logs.
const KEPT_MAX: u64 = 4;

/// Files that are not durable yet may take one part in this many of the descriptors, or [`OPEN_FILES_MIN`].
const OPEN_FILES_SHARE: usize = 8;
const OPEN_FILES_MIN: usize = 4;
/// A thread should sync the log.
const CROWDED: u8 = 1;
/// A thread was asked to sync the log.
const ASKED: u8 = 2;
/// The next commit syncs the log.
const OVERCROWDED: u8 = 3;

/// Properties of the database that the log needs.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Identity of the database.
    pub db_uuid: [u8; 16],
    /// The boot of the machine, with the mount of the file system.
    pub boot: Boot,
    /// Write small records through a map where the file system allows.
    pub mapped: bool,
    /// Shortest and longest length of the file that reserves disk space for deletes, drops and flushes on a full disk: see `space.rs`.
    pub reserve_bytes: RangeInclusive<u64>,
    /// Commits that store data leave at least this much of the disk free.
    pub free_min: u64,
}

/// Makes room in `record` for its padding. Returns the padded length.
fn padded(record: &mut Buffer) -> Result<u64> {
    body_len(record)?;
    record.reserve(UNIT as usize);
    Ok((record.len() as u64).next_multiple_of(UNIT))
}

fn body_len(record: &Buffer) -> Result<u32> {
    debug_assert!(record.len() >= RECORD_HEADER_BYTES, "a record begins with space for its header");
    let body_len = record.len() - RECORD_HEADER_BYTES;
    u32::try_from(body_len).map_err(|_| Error::invalid("a commit is limited to 4 GiB"))
}

/// The write-ahead log of one database. Shared by all threads.
#[derive(Debug)]
pub struct Log {
    pub(super) config: LogConfig,
    pub(super) env: Env,
    pub(super) dir: Arc<dyn Dir>,
    pub(super) health: Arc<Health>,
    pub(super) sequencer: Arc<Sequencer>,
    pub(super) group: Group,
    pub(super) reserve: Reserve,
    pub(super) table: Mutex<Segments, { rank::SEGMENTS }>,
    pub(super) ahead: Ahead,
    /// What commits wait for.
    pub(super) waits: Arc<Waits>,
    /// Held while blocks are allocated, of the log or of the reserve; taken before `table`.
    pub(super) preparing: Mutex<(), { rank::PREPARING }>,
    recent: [EpochCell<Option<Arc<Segment>>>; RECENT],
    /// Address at which the log of this session begins.
    pub(super) start: u64,
    /// The log has real blocks up to this address.
    pub(super) backed: AtomicU64,
    /// A record above this address requests more blocks in advance.
    pub(super) ask_from: AtomicU64,
    /// Files that are not durable yet take too large a part of the descriptors: [`CROWDED`] or [`OVERCROWDED`].
    crowd: AtomicU8,
    /// The first record must be announced; `ask_from` is 0 until then.
    pub(super) announces: AtomicBool,
    /// `ask_from` is not below this address: the disk had no room for blocks in advance.
    pub(super) tight_to: AtomicU64,
    /// Bytes of tables and values when the database was opened, and of values written since.
    pub(super) data: AtomicU64,
    /// Disk space reservations of running value writes and merges, in bytes.
    pub(super) reserved_bytes: AtomicU64,
    /// Bytes of values written since the free space was last checked.
    pub(super) values_unchecked: AtomicU64,
    /// The last commit that was refused for lack of space, until there is space for it.
    pub(super) refused: Mutex<Option<Refused>, { rank::LEAF }>,
    /// All commits before this sequence number are in tables.
    pub(super) needed_from: AtomicU64,
    /// Segments from this one on are kept for an object store; `u64::MAX` = none.
    kept_from: AtomicU64,
    bytes: ShardedCounter,
}

#[derive(Debug, Default)]
pub(super) struct Segments {
    pub(super) live: BTreeMap<u64, Arc<Segment>>,
    pub(super) free: Vec<String>,
    /// Set at close: no more files are created, because another process may have opened the directory.
    pub(super) closed: bool,
}

impl Log {
    /// A log that will begin at segment `first`, which must be above every existing segment. Touches no file.
    pub fn new(env: &Env, dir: &Arc<dyn Dir>, config: LogConfig, health: &Arc<Health>, first: WalId) -> Self {
        let this = Self {
            sequencer: Arc::new(Sequencer::new(config.segment_bytes, first.0)),
            reserve: Reserve::new(dir, config.reserve_bytes.clone()),
            start: first.0 * config.segment_bytes,
            backed: AtomicU64::new(first.0 * config.segment_bytes),
            ask_from: AtomicU64::new(u64::MAX),
            crowd: AtomicU8::new(0),
            announces: AtomicBool::new(false),
            tight_to: AtomicU64::new(0),
            data: AtomicU64::new(0),
            env: env.clone(),
            dir: Arc::clone(dir),
            health: Arc::clone(health),
            group: Group::default(),
            table: Mutex::new(Segments::default()),
            ahead: Ahead::default(),
            waits: Arc::default(),
            preparing: Mutex::new(()),
            recent: std::array::from_fn(|_| EpochCell::new(None)),
            reserved_bytes: AtomicU64::new(0),
            values_unchecked: AtomicU64::new(0),
            refused: Mutex::default(),
            needed_from: AtomicU64::new(first.0 * config.segment_bytes / UNIT),
            kept_from: AtomicU64::new(u64::MAX),
            bytes: ShardedCounter::new(),
            config,
        };
        this.sequencer.count_waits(&this.env.clock, &this.waits);
        this.set_limits();
        this
    }

    /// What commits wait for.
    pub fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// Prepares the first segment with its first blocks, if the disk has room for them. `free` are files of older logs to reuse.
    ///
    /// # Errors
    /// `Io`.
    pub fn begin(&self, free: Vec<String>) -> Result<()> {
        self.table.lock().free = free;
        self.make_first()
    }

    /// Returns true if the segment of the next record exists.
    pub fn has_begun(&self) -> bool {
        self.table.lock().live.contains_key(&self.segment_of(self.sequencer.tail()).0)
    }

    /// The order of commits.
    pub fn sequencer(&self) -> &Arc<Sequencer> {
        &self.sequencer
    }

    /// The database directory.
    pub fn dir(&self) -> &Arc<dyn Dir> {
        &self.dir
    }

    /// Bytes of records handed to the log so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes.sum()
    }

    /// Reserves a place for `record`. The place has real blocks on disk. The caller must fill it with
    /// [`Log::write_at`], or poison.
    ///
    /// `record` is space for a header, then the body.
    ///
    /// # Errors
    /// `InvalidArgument`, `NoSpace`, `Io`, `Poisoned`: nothing happened.
    pub fn reserve(&self, record: &mut Buffer, purpose: Purpose) -> Result<Commit> {
        let reserve = |bytes, _: &mut _| self.sequencer.reserve(bytes, purpose);
        self.reserve_by((record, true), purpose, |_| (), reserve)
    }

    /// Like [`Log::reserve`]. Calls `within` once with the commit, while no other commit can be ordered. Does not wait for the thread that
    /// prepares the log: that thread also rotates, and the caller keeps others from rotating.
    ///
    /// # Errors
    /// As [`Log::reserve`]; `within` was not called.
    pub fn reserve_holding(
        &self,
        record: &mut Buffer,
        purpose: Purpose,
        within: impl FnMut(&Commit),
    ) -> Result<Commit> {
        self.reserve_by((record, false), purpose, within, |bytes, within| {
            let held = self.sequencer.hold();
            held.reserve_below_limit(bytes, purpose).inspect(within)
        })
    }

    /// Reserves a place by `reserve`, after making room if there is none. The bool says whether the thread that prepares the log may make it.
    #[inline]
    fn reserve_by<F: FnMut(&Commit)>(
        &self,
        (record, asks): (&mut Buffer, bool),
        purpose: Purpose,
        mut within: F,
        reserve: impl Fn(u64, &mut F) -> std::result::Result<Commit, Refusal>,
    ) -> Result<Commit> {
        let bytes = padded(record)?;
        if self.is_oversized(bytes) {
            let reserve = || self.reserve_oversized(bytes, purpose, within);
            return self.waits.of(StallCause::Log).time(&*self.env.clock, reserve);
        }
        loop {
            match reserve(bytes, &mut within) {
                Ok(commit) => return Ok(commit),
                Err(Refusal::Limit) => self.extend_for(bytes, purpose, asks)?,
                Err(refusal) => return Err(self.refused(refusal)),
            }
        }
    }

    /// Ends the log: every later commit is refused, every commit that has a place is published before the return.
    ///
    /// # Errors
    /// The failure that poisoned the database.
    pub fn close(&self) -> Result<()> {
        self.sequencer.close().map_err(|refusal| self.refused(refusal))
    }

    /// The error for a place that was finally refused.
    pub(super) fn refused(&self, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Exhausted => Error::Exhausted { what: "sequence numbers".into() },
            Refusal::Limit | Refusal::Stopped => self.health.check().err().unwrap_or(Error::Closed),
        }
    }

    /// Writes `record` to the place of `commit` and marks the commit as written. `mapped` asks for the path without a
    /// system call.
    ///
    /// # Errors
    /// `Io`; the caller must poison.
    pub fn write_at(
        &self,
        commit: &Commit,
        kind: RecordKind,
        ops: u32,
        record: &mut Buffer,
        mapped: bool,
    ) -> Result<()> {
        let header = RecordHeader {
            seq: commit.seq,
            body_len: body_len(record)?,
            kind,
            ops,
            complete: self.sequencer.visible_end(),
            synced: self.sequencer.durable(),
        };
        let end = record.len();
        record.resize(end.next_multiple_of(UNIT as usize), 0);
        let bytes = record.len() as u64;
        let written = self.write(commit, &header, record, mapped);
        record.truncate(end);
        written?;
        self.sequencer.written(commit);
        self.bytes.add(bytes);
        counts::add(Counter::Records, 1);
        counts::add(Counter::RecordBytes, bytes);
        Ok(())
    }

    /// Returns once a kill of the process cannot take `commit`, which is written. An open that cannot tell a kill from a loss of the machine
    /// ends the log at its first gap that nothing declares durable. So where the identity of the boot is not known, or may change without a
    /// loss, all earlier commits must be written as well; elsewhere this returns at once.
    ///
    /// # Errors
    /// The failure that poisoned the log: an earlier commit may never be written.
    #[inline]
    pub fn wait_safe_from_kill(&self, commit: &Commit) -> Result<()> {
        if self.config.boot.is_exact || self.sequencer.wait_written(commit) {
            return Ok(());
        }
        self.health.check().and(Err(Error::Closed))
    }

    fn write(&self, commit: &Commit, header: &RecordHeader, record: &mut [u8], mapped: bool) -> Result<()> {
        let address = commit.seq * UNIT;
        let id = address / self.config.segment_bytes;
        let segment = self.segment(id)?;
        if segment.header.span > 1 {
            // The file got its name while the tail was held; the name is made durable here.
            self.dir.sync().map_err(|e| Error::io("sync", "database directory", e))?;
        }
        if commit.begin < commit.seq {
            // Written after the next segment exists, so that a pad without a successor is damage.
            self.write_pad(commit.begin, header)?;
        }
        // Law: recovery trusts what a later record states about earlier ones. Cost: two comparisons per record.
        assert!(
            header.complete <= commit.seq && header.synced <= commit.seq,
            "statements refer to earlier records"
        );
        header.write(&segment.header.salt, record);
        let offset = address - segment.header.id * self.config.segment_bytes;
        // A write through the map may wait for the device at the first byte of a page, any other at once.
        let may_wait = !mapped || offset % PAGE_BYTES + record.len() as u64 > PAGE_BYTES;
        let write = || segment.write(offset, record, mapped);
        if may_wait { self.waits.of(StallCause::Device).time(&*self.env.clock, write) } else { write() }
    }

    /// Fills the rest of a segment, from `seq` on.
    fn write_pad(&self, seq: SeqNo, stated: &RecordHeader) -> Result<()> {
        let (address, bytes) = (seq * UNIT, self.config.segment_bytes);
        let segment = self.segment(address / bytes)?;
        let body_len = (bytes - address % bytes - RECORD_HEADER_BYTES as u64) as u32;
        let pad = RecordHeader { seq, body_len, kind: RecordKind::Pad, ops: 0, ..*stated };
        let mut head = [0; RECORD_HEADER_BYTES];
        pad.write(&segment.header.salt, &mut head);
        segment.write(address % bytes, &head, false)
    }

    /// The segment `id`; recent segments are found without a lock. It exists, because a place in it was reserved.
    pub(super) fn segment(&self, id: u64) -> Result<Arc<Segment>> {
        if let Some(segment) = self.recent_segment(id) {
            return Ok(segment);
        }
        let segment = self.table.lock().live.get(&id).cloned();
        segment.ok_or_else(|| Error::internal(format!("log segment {id} of a reserved place is missing")))
    }

    #[inline]
    fn recent_segment(&self, id: u64) -> Option<Arc<Segment>> {
        let guard = pin();
        let segment = self.recent[id as usize % RECENT].load(&guard).as_ref()?;
        (segment.header.id == id).then(|| Arc::clone(segment))
    }

    /// The segment that alone holds everything between `from` and `end`, if it is found without a lock.
    pub(super) fn only_segment(&self, from: SeqNo, end: SeqNo) -> Option<Arc<Segment>> {
        let id = self.segment_of(end);
        (self.segment_of(from) == id).then(|| self.recent_segment(id.0)).flatten()
    }

    /// Makes a finished segment available to writers. The caller holds `making`.
    pub(super) fn register(&self, segment: Segment) -> Arc<Segment> {
        let id = segment.header.id;
        let segment = Arc::new(segment);
        let mut table = self.table.lock();
        table.live.insert(id, Arc::clone(&segment));
        self.note_open_files(&table);
        self.recent[id as usize % RECENT].store(Some(Arc::clone(&segment)));
        segment
    }

    /// Removes a segment that is no longer needed or was never used.
    pub(super) fn forget(&self, id: u64) {
        let mut table = self.table.lock();
        table.live.remove(&id);
        let cell = &self.recent[id as usize % RECENT];
        if cell.load(&pin()).as_ref().is_some_and(|s| s.header.id == id) {
            cell.store(None);
        }
    }

    /// The segment that holds `seq`.
    pub fn segment_of(&self, seq: SeqNo) -> WalId {
        WalId(seq * UNIT / self.config.segment_bytes)
    }

    /// The first number above those of all segments: of the one that holds `tail`, and of one that was prepared. A file system may keep the
    /// name of a removed file that is open.
    pub fn after_all(&self, tail: SeqNo) -> WalId {
        let end = |(id, segment): (&u64, &Arc<Segment>)| id + u64::from(segment.header.span);
        let files = self.table.lock().live.last_key_value().map_or(0, end);
        WalId(files.max(self.segment_of(tail).0 + 1))
    }

    /// Bytes of log from `seq` to the tail.
    pub fn bytes_since(&self, seq: SeqNo) -> u64 {
        self.sequencer.tail().saturating_sub(seq) * UNIT
    }

    /// Segments that may hold bytes between `from` and `end` that are not durable yet.
    pub(super) fn segments_between(&self, from: SeqNo, end: SeqNo) -> Vec<Arc<Segment>> {
        let (first, last) = (self.segment_of(from).0, self.segment_of(end).0);
        let table = self.table.lock();
        // A file that spans several segments and began below `first` may reach into the range.
        table
            .live
            .values()
            .filter(|s| s.header.id <= last && (s.header.id >= first || s.covers(first)))
            .cloned()
            .collect()
    }

    /// Closes the files whose last byte became durable when the log that was durable up to `from` became durable up to `end`.
    pub(super) fn close_between(&self, from: SeqNo, end: SeqNo) {
        let last = self.segment_of(end).0;
        if self.segment_of(from).0 < last {
            let is_done = |s: &Arc<Segment>| s.header.id + u64::from(s.header.span) <= last;
            self.segments_between(from, end).iter().filter(|s| is_done(s)).for_each(|s| s.close());
            self.note_open_files(&self.table.lock());
        }
    }

    /// Notes whether the files that are not durable yet are many.
    fn note_open_files(&self, table: &Segments) {
        let most = (self.env.descriptors.max() / OPEN_FILES_SHARE).max(OPEN_FILES_MIN);
        // Files without records need no sync.
        let [durable, tail] =
            [self.sequencer.durable(), self.sequencer.tail()].map(|seq| self.segment_of(seq).0);
        let crowd = match table.live.range(durable..=tail.max(durable)).count() {
            few if few <= most => 0,
            many if many <= 2 * most => CROWDED,
            _ => OVERCROWDED,
        };
        self.crowd.store(crowd, Ordering::Relaxed);
    }

    /// Returns whether the files that are not durable yet take too large a part of the descriptors: a file must be synced through the
    /// descriptor that it was written by. The caller should have the log synced.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        matches!(self.crowd.load(Ordering::Relaxed), CROWDED | OVERCROWDED)
    }

    /// Notes that a thread is asked to sync the log: no other commit asks before there is one more file.
    pub fn note_asked_to_sync(&self) {
        let _ = self.crowd.compare_exchange(CROWDED, ASKED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns whether [`Log::is_crowded`] was not followed in time.
    pub fn is_overcrowded(&self) -> bool {
        self.crowd.load(Ordering::Relaxed) >= OVERCROWDED
    }

    /// Keeps the files of segments from `first` on until the next call. At most a few are kept, and none on a full
    /// disk.
    pub fn keep_from(&self, first: WalId) {
        self.kept_from.store(first.0, Ordering::SeqCst);
    }

    /// Bytes of the segments that are kept at most, see [`Log::keep_from`].
    pub fn kept_bytes_max(&self) -> u64 {
        KEPT_MAX * self.config.segment_bytes
    }

    /// Releases every segment below `first`, which the manifest no longer needs: some files are kept for reuse, the others are
    /// removed. A record written to a file that is used again takes less time: blocks and pages of the page cache are there.
    pub fn release_before(&self, first: WalId) {
        let kept_from = self.kept_from.load(Ordering::SeqCst);
        let kept = kept_from.max(first.0.saturating_sub(KEPT_MAX));
        let first = if self.reserve.is_held() { WalId(first.0.min(kept)) } else { first };
        let (gone, mut room) = {
            let mut table = self.table.lock();
            let (gone, keep) = std::mem::take(&mut table.live)
                .into_iter()
                .partition::<BTreeMap<_, _>, _>(|(id, s)| *id < first.0 && !s.covers(first.0));
            table.live = keep;
            (gone, FREE_MAX.saturating_sub(table.free.len()))
        };
        // On a full disk, the space of the file is needed more than the file. An object store may still read a file that was released: a
        // removed one stays as it is.
        let keep_files = self.reserve.is_held() && !self.lacks_space() && kept_from == u64::MAX;
        for (id, segment) in gone {
            self.forget(id);
            let (name, free) = (files::wal(WalId(id)), files::free_wal(WalId(id)));
            if keep_files && segment.is_reusable() && room > 0 && self.dir.rename(&name, &free).is_ok() {
                room -= 1;
                self.table.lock().free.push(free);
            } else {
                files::remove(&*self.dir, &name);
            }
        }
    }

    /// Removes every file of the log after a clean shutdown: all data is in tables.
    pub fn remove_all(&self) {
        let _making = self.ahead.making.lock();
        let (live, free) = {
            let mut table = self.table.lock();
            table.closed = true;
            (std::mem::take(&mut table.live), std::mem::take(&mut table.free))
        };
        let names = live.into_keys().map(|id| files::wal(WalId(id))).chain(free);
        names.for_each(|name| files::remove(&*self.dir, &name));
    }
}
