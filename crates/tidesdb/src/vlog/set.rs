//! The value logs of one family: the files that receive appends, earlier files of this session, and files of earlier
//! sessions, which are opened on demand.
//!
//! A file of this session is *begun* until the manifest names it as sealed. It is current while it receives appends. When it is full, or
//! closed for appends, the next sync makes it complete: its length and bytes are durable, and it is opened for reading
//! only. Then it can be sealed, once no lease on it is left. Merges empty sealed files, and the manifest drops them.
//!
//! Threads and locks: every method takes `&self`. Appenders hold the read lock of `current` only while they clone an
//! `Arc`, and write in parallel; the write lock is held while a file is created. `syncing` allows one sync at a time: a
//! caller that finds a file clean must know that the sync that cleaned it has ended. `files` is held only briefly.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use tidesdb_io::{Dir, Entropy, Threads};
use tidesdb_sync::{Backoff, Mutex, RwLock, rank};

use super::budget::WriteBudget;
use super::facts::{Appended, BegunFile, VlogInfo};
use super::file::{Lease, RecordGroup, VlogFile};
use super::format::FileHeader;
use super::groups::{groups, order_in_files};
use super::scan::{self, RecordInfo, VlogReport};
use super::{ChunkIndex, ChunkedPlace, VlogPointer, scratch};
use crate::codec::{Compression, Salt};
use crate::types::{FILE_BYTES_MAX, FamilyId, VlogId};
use crate::{Error, Result, files};

/// Values are grouped into writes of about this many bytes.
const GROUP_BYTES: usize = 256 << 10;

/// Minimum size of a file in bytes: a smaller file is never full.
const FILE_BYTES_MIN: u64 = 4096;
/// The size limit of a new file is this part of the live bytes, so that a small set has small files: space is freed file by file.
const FILE_PART: u64 = 16;
/// Minimum size limit of a new file, however few bytes are live: a file costs two syncs.
const FILE_BYTES_LEAST: u64 = 8 << 20;

/// After a long value, a current file may stay open if its size limit is at most this many times that of new files. The limits
/// follow the live bytes, so a factor of 1 would close files after every long value of a set that shrinks.
const OVERSIZED_FACTOR: u64 = 2;

/// Number of checks for a pause in writes. After that, the file is closed for appends to force one.
const QUIET_ROUNDS: u32 = 1000;

/// Which of the files that receive appends. The kernel lets one thread at a time write to a file, so parts of one long value go to
/// two: the copy into the page cache is what takes longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The file of all values.
    Main,
    /// The file to which helpers write.
    Helpers,
}

const LANES: usize = 2;

type NewId = dyn Fn() -> Result<VlogId> + Send + Sync;

/// Makes all sets of the database close files.
type Relieve = dyn Fn() + Send + Sync;

/// Learns that a file receives no more appends.
type OnClose = dyn Fn() + Send + Sync;

/// The value logs of a family.
pub struct VlogSet {
    dir: Arc<dyn Dir>,
    entropy: Arc<dyn Entropy>,
    family: FamilyId,
    file_bytes_max: AtomicU64,
    new_id: Box<NewId>,
    files: RwLock<Files, { rank::VLOG_FILES }>,
    /// The file of each lane that receives appends; `None` until the first value of a file is appended.
    current: [RwLock<Option<Arc<VlogFile>>, { rank::VLOG_CURRENT }>; LANES],
    /// Held while a sync runs. Contains the first failure: what that sync covered may be lost, so no later sync may
    /// succeed.
    syncing: Mutex<Option<Error>, { rank::VLOG_SYNCING }>,
    /// If set, dropping this `VlogSet` unlinks its files.
    doomed: AtomicBool,
    /// Live bytes of all files when they were last counted.
    live: AtomicU64,
    /// Bytes of the files that were filled in this session.
    filled: AtomicU64,
    /// Bytes of the long values that are being written.
    coming: AtomicU64,
    /// Limit on files open for writing, and what makes room under it.
    limit: Option<(Arc<WriteBudget>, Box<Relieve>)>,
    /// Called when a file receives no more appends.
    on_close: Option<Box<OnClose>>,
    /// Set before the directory is unlocked: another open may then remove any file.
    closed: Arc<AtomicBool>,
    /// Starts threads that help to read and write long values.
    pub(super) threads: Option<Arc<dyn Threads>>,
    /// True while such threads help one caller.
    pub(super) is_helped: AtomicBool,
}

#[derive(Default)]
struct Files {
    /// All open files.
    open: BTreeMap<VlogId, Arc<VlogFile>>,
    /// The files of this session that the manifest does not name as sealed, including those that could not be reopened
    /// for reading.
    begun: BTreeMap<VlogId, Begun>,
}

struct Begun {
    salt: Salt,
    users: Arc<()>,
    /// The file as it is written, until it is complete.
    written: Option<Arc<VlogFile>>,
    /// Final length of a complete file.
    complete: Option<u64>,
}

/// A long value that is being written, for which new files may be larger. Dropping it closes the current files that became too
/// large for what else is written.
#[derive(Debug)]
pub struct Expected<'a> {
    set: &'a VlogSet,
    bytes: u64,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.set.coming.fetch_sub(self.bytes, Ordering::Relaxed);
        self.set.close_oversized();
    }
}

impl VlogSet {
    /// Creates the set of value logs of `family` in `dir`, without opening any. The first append creates a file. Once a
    /// record reaches `file_bytes_max` bytes, the next append creates a new file. `new_id` must return numbers that
    /// were never used before.
    pub fn new(
        dir: Arc<dyn Dir>,
        entropy: Arc<dyn Entropy>,
        family: FamilyId,
        file_bytes_max: u64,
        new_id: impl Fn() -> Result<VlogId> + Send + Sync + 'static,
    ) -> Self {
        Self {
            dir,
            entropy,
            family,
            file_bytes_max: file_bytes_max.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX).into(),
            new_id: Box::new(new_id),
            files: RwLock::default(),
            current: Default::default(),
            syncing: Mutex::default(),
            doomed: AtomicBool::new(false),
            live: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            coming: AtomicU64::new(0),
            limit: None,
            on_close: None,
            closed: Arc::default(),
            threads: None,
            is_helped: AtomicBool::new(false),
        }
    }

    /// Lets threads help to read and write long values.
    pub fn helped(mut self, threads: Arc<dyn Threads>) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Adds a write budget. When `budget` is spent, `relieve` must make all sets that share the budget close files.
    pub fn limited(mut self, budget: Arc<WriteBudget>, relieve: impl Fn() + Send + Sync + 'static) -> Self {
        self.limit = Some((budget, Box::new(relieve)));
        self
    }

    /// Makes missing files an error of a database that was closed, once `closed` is set.
    pub fn until(mut self, closed: &Arc<AtomicBool>) -> Self {
        self.closed = Arc::clone(closed);
        self
    }

    /// Calls `on_close` when a file receives no more appends, with locks held.
    pub fn noticed(mut self, on_close: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_close = Some(Box::new(on_close));
        self
    }

    fn note_close(&self) {
        if let Some(on_close) = &self.on_close {
            on_close();
        }
    }

    /// Sets the size limit of files created from now on.
    pub fn set_file_bytes_max(&self, bytes: u64) {
        self.file_bytes_max.store(bytes.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX), Ordering::Relaxed);
    }

    /// Marks the files for deletion when the last handle is dropped; called after the family was dropped. This also
    /// covers files that the manifest never named because nothing was flushed since their creation. Nothing else would
    /// remove them.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::SeqCst);
    }

    /// Writes `value` and returns a pointer to it. The bytes are in the kernel when this returns, and durable after
    /// [`VlogSet::sync`]. Takes no lease: for a set that no job seals files of yet.
    ///
    /// # Errors
    /// `Io`: nothing refers to the bytes written, and the caller may retry. `InvalidArgument`: the value is longer than
    /// 4 GiB.
    pub fn append(&self, value: &[u8], compression: Compression) -> Result<VlogPointer> {
        self.append_leased(Lane::Main, value, compression).map(|(pointer, _)| pointer)
    }

    /// Calls `append` with the current file of `lane`, and with the next one if it returns `None` because the file is full.
    /// Returns its result and a lease on the file.
    pub(super) fn place<R>(
        &self,
        lane: Lane,
        mut append: impl FnMut(&VlogFile) -> Result<Option<R>>,
    ) -> Result<(R, Lease)> {
        loop {
            let current = self.current[lane as usize].read().clone();
            if let Some(file) = &current {
                let lease = file.lease();
                if let Some(placed) = append(file)? {
                    return Ok((placed, lease));
                }
            }
            self.begin_file(lane, current.as_ref())?;
        }
    }

    /// Like [`VlogSet::append`], to the file of `lane`. Also returns a lease on the file.
    ///
    /// # Errors
    /// As [`VlogSet::append`].
    pub fn append_leased(
        &self,
        lane: Lane,
        value: &[u8],
        compression: Compression,
    ) -> Result<(VlogPointer, Lease)> {
        self.place(lane, |file| file.append(value, compression))
    }

    /// Appends the index of a value whose chunks were appended, and returns where the value lies.
    ///
    /// # Errors
    /// As [`VlogSet::append`].
    pub fn append_index(
        &self,
        chunks: &ChunkIndex,
        compression: Compression,
        leases: &mut Vec<Lease>,
    ) -> Result<ChunkedPlace> {
        let (pointer, lease) = self.append_leased(Lane::Main, &chunks.encode(), compression)?;
        lease.add_to(leases);
        Ok(chunks.place(pointer))
    }

    /// Returns whether the files are in the directory handle `dir`, which identifies one open database.
    pub fn is_in(&self, dir: &Arc<dyn Dir>) -> bool {
        Arc::ptr_eq(&self.dir, dir)
    }

    /// Returns the files that are not complete and durable, and their bytes: those that receive appends, and closed ones before
    /// their last sync.
    pub fn incomplete(&self) -> Vec<(VlogId, u64)> {
        self.written(|_| true).iter().map(|file| (file.id, file.settled_len())).collect()
    }

    /// Returns the bytes of the files that were filled in this session.
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    /// Sets the live bytes of all files, which decide about the size of new ones.
    pub fn set_live(&self, bytes: u64) {
        self.live.store(bytes, Ordering::Relaxed);
    }

    /// Returns the live bytes of all files when they were last counted.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Announces a value of `bytes` bytes, for which files may be larger until the returned value is dropped.
    pub fn expect(&self, bytes: u64) -> Expected<'_> {
        self.coming.fetch_add(bytes, Ordering::Relaxed);
        Expected { set: self, bytes }
    }

    /// Returns the size of new files.
    pub fn file_bytes(&self) -> u64 {
        let part = self.live() / FILE_PART;
        part.max(self.coming.load(Ordering::Relaxed))
            .max(FILE_BYTES_LEAST)
            .min(self.file_bytes_max.load(Ordering::Relaxed))
    }

    /// Appends `values` like [`VlogSet::append`] and adds their pointers to `out` in order, with leases on their files.
    /// Many values share one write (0.4 us per value of 600 bytes instead of 1.2 us).
    ///
    /// # Errors
    /// As [`VlogSet::append`]. On error `out` contains the pointers of some of the values.
    pub fn append_all<'v>(
        &self,
        values: impl IntoIterator<Item = &'v [u8]>,
        compression: Compression,
        out: &mut Appended,
    ) -> Result<()> {
        scratch::with(|buf| {
            let mut group = RecordGroup::new(buf);
            for value in values {
                let alone = !group.add(value, compression);
                if alone || group.bytes() >= GROUP_BYTES {
                    self.append_group(&mut group, out)?;
                }
                if alone {
                    let (pointer, lease) = self.append_leased(Lane::Main, value, compression)?;
                    out.pointers.push(pointer);
                    lease.add_to(&mut out.leases);
                }
            }
            self.append_group(&mut group, out)
        })
    }

    fn append_group(&self, group: &mut RecordGroup<'_>, out: &mut Appended) -> Result<()> {
        if group.bytes() > 0 {
            let Appended { pointers, leases } = out;
            let placed = self.place(Lane::Main, |file| Ok(file.append_group(group, pointers)?.then_some(())));
            placed.map(|((), lease)| lease.add_to(leases))?;
        }
        Ok(())
    }

    /// Creates the next file, unless another thread has replaced `full` as the current file.
    fn begin_file(&self, lane: Lane, full: Option<&Arc<VlogFile>>) -> Result<()> {
        if self.limit.as_ref().is_some_and(|(budget, _)| budget.is_spent()) {
            self.relieve();
        }
        match self.try_begin_file(lane, full) {
            Err(e) if e.is_out_of_descriptors() => {
                self.relieve();
                self.try_begin_file(lane, full)
            }
            other => other,
        }
    }

    /// Makes this set, and the sets that share its budget, close their files for writing.
    fn relieve(&self) {
        let _ = self.give_back(); // the failure is kept and fails the next log sync
        if let Some((_, relieve)) = &self.limit {
            relieve();
        }
    }

    fn try_begin_file(&self, lane: Lane, full: Option<&Arc<VlogFile>>) -> Result<()> {
        let mut current = self.current[lane as usize].write();
        if current.as_ref().map(|f| f.id) != full.map(|f| f.id) {
            return Ok(());
        }
        let header = FileHeader { family: self.family, vlog: (self.new_id)()?, salt: self.entropy.salt() };
        let counted = self.limit.as_ref().map(|(budget, _)| budget.count());
        let file = Arc::new(VlogFile::create(&*self.dir, header, self.file_bytes(), counted)?);
        let (salt, users) = (file.salt, Arc::clone(&file.users));
        let begun = Begun { salt, users, written: Some(Arc::clone(&file)), complete: None };
        let mut files = self.files.write();
        files.begun.insert(file.id, begun);
        files.open.insert(file.id, Arc::clone(&file));
        self.filled.fetch_add(full.map_or(0, |full| full.settled_len()), Ordering::Relaxed);
        if current.replace(file).is_some() {
            self.note_close();
        }
        Ok(())
    }

    /// Closes the current files for appends; the next value creates a new file.
    pub fn rotate(&self) {
        self.close_current(|_| true);
    }

    /// Closes the current files whose size limit is more than twice that of new files. Only full files are sealed while the database
    /// is busy, so the garbage in a larger file would stay until other values have filled the file.
    fn close_oversized(&self) {
        self.close_current(|file| file.bytes_max > OVERSIZED_FACTOR * self.file_bytes());
    }

    /// Closes the current files that `which` selects for appends.
    fn close_current(&self, which: impl Fn(&VlogFile) -> bool) {
        for lane in &self.current {
            if let Some(file) = lane.write().take_if(|file| which(file)) {
                file.close();
                self.filled.fetch_add(file.settled_len(), Ordering::Relaxed);
                self.note_close();
            }
        }
    }

    /// Closes the current files for appends and makes all values durable. Then no file is open for writing.
    ///
    /// # Errors
    /// As [`VlogSet::sync`].
    pub fn give_back(&self) -> Result<()> {
        self.rotate();
        self.sync()
    }

    /// Makes durable every value whose [`VlogSet::append`] returned before this call, and the names of their files.
    ///
    /// # Errors
    /// `Io`. Every later call returns the same error, because the state of the values on disk is unknown.
    pub fn sync(&self) -> Result<()> {
        let mut failed = self.syncing.lock();
        let files = self.written(|_| true);
        self.sync_files(&mut failed, &files)?;
        // The order of the checks matters: a write sets `dirty` before it is added to `settled`.
        let is_complete = |file: &&Arc<VlogFile>| file.sealed_len().is_some() && !file.is_dirty();
        // After a failed write the file may be shorter than what was reserved.
        let length = |file: &Arc<VlogFile>| (file.id, file.len().ok().or(file.sealed_len()));
        let complete: Vec<_> = files.iter().filter(is_complete).map(length).collect();
        drop(files);
        complete.into_iter().for_each(|(id, len)| self.complete(id, len));
        Ok(())
    }

    /// Returns the files of this session that are not complete and that `which` selects.
    fn written(&self, which: impl Fn(&VlogFile) -> bool) -> Vec<Arc<VlogFile>> {
        let files = self.files.read();
        let written = files.begun.values().filter_map(|begun| begun.written.as_ref());
        written.filter(|file| which(file)).cloned().collect()
    }

    /// Notes that a file has its final length, and opens it for reading. Files open for reading share a descriptor budget.
    fn complete(&self, id: VlogId, len: Option<u64>) {
        let mut files = self.files.write();
        let written = files.begun.get_mut(&id).and_then(|begun| begun.written.take());
        let open = files.open.remove(&id);
        drop(files);
        // Before the open: no other descriptor may be left.
        drop((written, open));
        let _ = self.file(id); // on failure, the next read opens it
        // After the open: the file may now be sealed, found dead and removed, and would stay open.
        if let Some(begun) = self.files.write().begun.get_mut(&id) {
            begun.complete = len;
        }
    }

    /// Makes the files durable that were begun before this call, so that the manifest may name them.
    ///
    /// # Errors
    /// As [`VlogSet::sync`].
    pub fn sync_begun(&self) -> Result<()> {
        let mut failed = self.syncing.lock();
        let files = self.written(|file| !file.is_durable());
        self.sync_files(&mut failed, &files)
    }

    /// Makes `files` durable, and those names that are not. `failed` is the first failure of a sync.
    fn sync_files(&self, failed: &mut Option<Error>, files: &[Arc<VlogFile>]) -> Result<()> {
        if let Some(e) = &*failed {
            return Err(e.clone());
        }
        let sync_names = || match files.iter().all(|file| file.is_durable()) {
            true => Ok(()),
            false => self.dir.sync().map_err(|e| Error::io("sync", &self.dir.path().to_string_lossy(), e)),
        };
        if let Err(e) = files.iter().try_for_each(|file| file.sync()).and_then(|()| sync_names()) {
            files::note_failed_sync(&*self.dir);
            *failed = Some(e.clone());
            return Err(e);
        }
        files.iter().for_each(|file| file.set_durable());
        Ok(())
    }

    /// Returns the files of this session that the manifest does not name as sealed.
    pub fn begun(&self) -> Vec<BegunFile> {
        let file = |(&id, begun): (&VlogId, &Begun)| {
            // A complete file gets no new lease.
            let unused = || {
                let unused = Arc::strong_count(&begun.users) == 1;
                fence(Ordering::Acquire); // what the last holder of a lease did is visible
                unused
            };
            let sealable = begun.complete.filter(|_| unused());
            let is_durable = begun.written.as_ref().is_none_or(|file| file.is_durable());
            BegunFile { id, salt: begun.salt, is_durable, sealable }
        };
        self.files.read().begun.iter().map(file).collect()
    }

    /// Returns the files of this session that the manifest may name: their headers and names are durable.
    pub fn nameable(&self) -> impl Iterator<Item = VlogId> + use<> {
        self.begun().into_iter().filter(|file| file.is_durable).map(|file| file.id)
    }

    /// Called when the manifest names a file as sealed.
    pub fn sealed(&self, id: VlogId) {
        let mut files = self.files.write();
        if files.begun.get(&id).is_some_and(|begun| begun.written.is_none()) {
            files.begun.remove(&id);
        }
    }

    /// Returns the value that `pointer` addresses.
    ///
    /// # Errors
    /// `Corrupt` if the file or the record is missing or does not match the pointer; `Io`.
    pub fn read(&self, pointer: &VlogPointer) -> Result<Vec<u8>> {
        self.file(pointer.vlog)?.read(pointer)
    }

    /// Checks that the file of `pointer` is long enough for the record or, if `thorough`, that the record is intact. Does not decode
    /// the value.
    ///
    /// # Errors
    /// As [`VlogSet::read`].
    pub fn check(&self, pointer: &VlogPointer, thorough: bool) -> Result<()> {
        let file = self.file(pointer.vlog)?;
        if thorough { file.check(pointer) } else { file.check_range(pointer) }
    }

    /// Starts loading the values that [`VlogSet::read_many`] will read, so that the device works on all of them.
    pub fn load_many_ahead(&self, wanted: &[VlogPointer]) {
        for group in groups(wanted, &order_in_files(wanted)) {
            let (first, last) = (&wanted[group[0]], &wanted[group[group.len() - 1]]);
            if let Ok(file) = self.file(first.vlog) {
                file.load_group_ahead(first, last);
            }
        }
    }

    /// Reads the values that `wanted` address, in the order in which they lie in the files. Records that are near each
    /// other are read with one call. Passes each result to `visit` with its index in `wanted`.
    pub fn read_many(&self, wanted: &[VlogPointer], mut visit: impl FnMut(usize, Result<Vec<u8>>)) {
        for group in groups(wanted, &order_in_files(wanted)) {
            let read = match group {
                [_] => Err(None),
                _ => self.file(wanted[group[0]].vlog).map_err(Some),
            };
            match read {
                Ok(file) => file.read_group(wanted, group, &mut visit),
                Err(_) => group.iter().for_each(|&i| visit(i, self.read(&wanted[i]))),
            }
        }
    }

    /// Replaces the content of `value` by the value that `pointer` addresses.
    ///
    /// # Errors
    /// As [`VlogSet::read`].
    pub fn read_into(&self, pointer: &VlogPointer, value: &mut Vec<u8>) -> Result<()> {
        self.file(pointer.vlog)?.read_into(pointer, value)
    }

    /// Starts loading the record that `pointer` names, so that a [`VlogSet::read`] shortly afterwards waits less.
    /// Errors are left to that read.
    pub fn load_ahead(&self, pointer: &VlogPointer) {
        if let Ok(file) = self.file(pointer.vlog) {
            file.load_ahead(pointer);
        }
    }

    /// Scans all records of a file, checks every byte, and passes each valid record to `visit`. A sealed file of a clean shutdown has no
    /// gaps and no torn tail. A file that was being written during a crash may have both; they are not damage, because nothing refers to
    /// them.
    ///
    /// # Errors
    /// `Corrupt` if the file or its header is damaged or missing; `Io`; `FormatTooNew`.
    pub fn scan(&self, id: VlogId, visit: impl FnMut(&RecordInfo)) -> Result<VlogReport> {
        let file = self.file(id)?;
        let len = file.len()?;
        scan::scan(&file, len, visit)
    }

    /// Returns facts about a file, opening it if necessary.
    ///
    /// # Errors
    /// `Corrupt` if the file is missing or its header is damaged; `Io`; `FormatTooNew`.
    pub fn info(&self, id: VlogId) -> Result<VlogInfo> {
        self.file(id).map(|file| VlogInfo::of(&file))
    }

    /// Returns the length up to which the bytes of a file no longer change. A file with constant writes is closed for appends to get
    /// there; the next value creates a new one. Returns `None` if the file is not open.
    pub fn stable(&self, id: VlogId) -> Option<u64> {
        let file = self.files.read().open.get(&id).cloned()?;
        let mut backoff = Backoff::new();
        for round in 0u32.. {
            if let Some(len) = file.quiet_len() {
                return Some(len);
            }
            if round == QUIET_ROUNDS && self.is_current(id) {
                self.rotate();
            }
            backoff.snooze();
        }
        None
    }

    /// Returns whether a file was begun that receives no more appends, and is not sealed: it is not complete yet, or there are leases on it.
    pub fn is_closing(&self) -> bool {
        let begun: Vec<VlogId> = self.files.read().begun.keys().copied().collect();
        begun.into_iter().any(|id| !self.is_current(id))
    }

    /// Returns whether the file receives appends.
    fn is_current(&self, id: VlogId) -> bool {
        self.current.iter().any(|lane| lane.read().as_ref().is_some_and(|file| file.id == id))
    }

    /// Returns the open files in ascending number order.
    pub fn files(&self) -> Vec<VlogInfo> {
        self.files.read().open.values().map(|file| VlogInfo::of(file)).collect()
    }

    /// Returns a set of `ids` alone, for a set to which nothing is appended. Files that are open stay so, because another process may have
    /// removed their names.
    pub fn part(&self, ids: impl Iterator<Item = VlogId>) -> Self {
        let (dir, entropy) = (Arc::clone(&self.dir), Arc::clone(&self.entropy));
        let mut part = Self::new(dir, entropy, self.family, FILE_BYTES_MIN, || Err(Error::ReadOnly));
        let files = self.files.read();
        let open = |id: VlogId| Some((id, Arc::clone(files.open.get(&id)?)));
        part.files.get_mut().open = ids.filter_map(open).collect();
        part
    }

    /// Takes over the open files of `from`, another set of the same family, that `keep` selects.
    pub fn adopt(&self, from: &Self, keep: impl Fn(VlogId) -> bool) {
        let files = from.files.read().open.clone();
        self.files.write().open.extend(files.into_iter().filter(|(id, _)| keep(*id)));
    }

    /// Returns whether the file is open.
    pub fn is_open(&self, id: VlogId) -> bool {
        self.files.read().open.contains_key(&id)
    }

    /// Opens a file by its name, also if it is open, so that all its bytes can be read from now on even if another process
    /// removes the name. A file that is open may have been mapped when it was shorter.
    ///
    /// # Errors
    /// `Corrupt` if the file is missing or its header is damaged; `Io`; `FormatTooNew`.
    pub fn open_anew(&self, id: VlogId) -> Result<()> {
        let file = VlogFile::open(&*self.dir, self.family, id)?;
        self.files.write().open.insert(id, Arc::new(file));
        Ok(())
    }

    /// Closes a sealed file. The next read reopens it; reads in progress are not affected.
    pub fn close(&self, id: VlogId) {
        self.files.write().open.remove(&id);
    }

    pub(super) fn file(&self, id: VlogId) -> Result<Arc<VlogFile>> {
        if let Some(file) = self.files.read().open.get(&id) {
            return Ok(Arc::clone(file));
        }
        // Two threads may open the file at once; the first one inserted is kept.
        let opened = VlogFile::open(&*self.dir, self.family, id);
        let judged = |e| if self.closed.load(Ordering::SeqCst) { Error::Closed } else { e };
        let file = Arc::new(opened.map_err(judged)?);
        Ok(Arc::clone(self.files.write().open.entry(id).or_insert(file)))
    }
}

impl Drop for VlogSet {
    fn drop(&mut self) {
        if !self.doomed.load(Ordering::SeqCst) {
            return;
        }
        let Files { open, begun } = std::mem::take(self.files.get_mut());
        let all: BTreeSet<VlogId> = open.into_keys().chain(begun.into_keys()).collect();
        all.into_iter().for_each(|id| files::remove(&*self.dir, &files::vlog(id)));
    }
}

impl fmt::Debug for VlogSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VlogSet")
            .field("family", &self.family)
            .field("files", &self.files())
            .finish_non_exhaustive()
    }
}
