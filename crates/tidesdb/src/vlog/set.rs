//! The value logs of one family: the files that receive appends, earlier files of this session, and files of earlier
//! sessions, which are opened on demand.
//!
//! A file of this session is *begun* until the manifest names it as sealed. It is current while it receives appends. When it is full, or
//! closed for appends, the next sync makes it complete: its length and bytes are durable, and it is opened for reading
//! only. Then it can be sealed, once no lease on it is left. Merges empty sealed files, and the manifest drops them.
//!
//! ```text
//! CurrentFiles  current.rs  the file of each lane that receives appends    held while a file is created, else to clone an `Arc`
//! BegunFiles    begun.rs    what syncs make durable and complete           one sync at a time: who finds a file clean must know that
//!                                                                          the sync that cleaned it has ended
//! OpenFiles     open.rs     what reads use                                 held briefly
//! FileSizes     sizes.rs    how large the next file may be                 no lock
//! ```
//!
//! Every method takes `&self`, and appends go on in parallel.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb_io::{Dir, Entropy, Threads};
use tidesdb_sync::Backoff;

use super::begun::BegunFiles;
use super::budget::WriteBudget;
use super::current::{CurrentFiles, Lane};
use super::facts::{Appended, VlogInfo};
use super::file::{Lease, RecordGroup, VlogFile};
use super::open::OpenFiles;
use super::scan::{self, RecordInfo, VlogReport};
use super::sizes::{FILE_BYTES_MIN, FileSizes};
use super::{ChunkIndex, ChunkedPlace, VlogPointer, scratch};
use crate::codec::Compression;
use crate::order::Gather;
use crate::types::{FamilyId, VlogId};
use crate::{Error, Result, files};

/// Values are grouped into writes of about this many bytes.
const GROUP_BYTES: usize = 256 << 10;

/// After a long value, a current file may stay open if its size limit is at most this many times that of new files. The limits
/// follow the live bytes, so a factor of 1 would close files after every long value of a set that shrinks.
const OVERSIZED_FACTOR: u64 = 2;

/// Number of checks for a pause in writes. After that, the file is closed for appends to force one.
const QUIET_ROUNDS: u32 = 1000;

/// The value logs of a family.
pub struct VlogSet {
    /// How large the next file may be.
    pub sizes: FileSizes,
    /// The files of this session that the manifest does not name as sealed.
    pub begun: BegunFiles,
    /// The open files.
    pub open: OpenFiles,
    current: CurrentFiles,
    /// If set, dropping this `VlogSet` unlinks its files.
    doomed: AtomicBool,
    /// Starts threads that help to read and write long values.
    pub(super) threads: Option<Arc<dyn Threads>>,
    /// True while such threads help one caller.
    pub(super) is_helped: AtomicBool,
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
        self.set.sizes.expected(self.bytes);
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
            sizes: FileSizes::new(file_bytes_max),
            begun: BegunFiles::default(),
            open: OpenFiles::new(dir, family),
            current: CurrentFiles::new(entropy, Box::new(new_id)),
            doomed: AtomicBool::new(false),
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
        self.current.limit = Some((budget, Box::new(relieve)));
        self
    }

    /// Makes missing files an error of a database that was closed, once `closed` is set.
    pub fn until(mut self, closed: &Arc<AtomicBool>) -> Self {
        self.open.until(closed);
        self
    }

    /// Calls `on_close` when a file receives no more appends, with locks held.
    pub fn noticed(mut self, on_close: impl Fn() + Send + Sync + 'static) -> Self {
        self.current.on_close = Some(Box::new(on_close));
        self
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
            let current = self.current.of(lane);
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
        Arc::ptr_eq(&self.open.dir, dir)
    }

    /// Returns the files that are not complete and durable, and their bytes: those that receive appends, and closed ones before
    /// their last sync.
    pub fn incomplete(&self) -> Vec<(VlogId, u64)> {
        self.begun.written(|_| true).iter().map(|file| (file.id, file.settled_len())).collect()
    }

    /// Announces a value of `bytes` bytes, for which files may be larger until the returned value is dropped.
    pub fn expect(&self, bytes: u64) -> Expected<'_> {
        self.sizes.expect(bytes);
        Expected { set: self, bytes }
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
        if self.current.is_budget_spent() {
            self.relieve();
        }
        let begin = || self.current.begin(lane, full, &self.sizes, (&self.begun, &self.open));
        match begin() {
            Err(e) if e.is_out_of_descriptors() => {
                self.relieve();
                begin()
            }
            other => other,
        }
    }

    /// Makes this set, and the sets that share its budget, close their files for writing.
    fn relieve(&self) {
        let _ = self.give_back(); // the failure is kept and fails the next log sync
        if let Some((_, relieve)) = &self.current.limit {
            relieve();
        }
    }

    /// Closes the current files for appends; the next value creates a new file.
    pub fn rotate(&self) {
        self.current.close(&self.sizes, |_| true);
    }

    /// Closes the current files whose size limit is more than twice that of new files. Only full files are sealed while the database
    /// is busy, so the garbage in a larger file would stay until other values have filled the file.
    fn close_oversized(&self) {
        self.current.close(&self.sizes, |file| file.bytes_max > OVERSIZED_FACTOR * self.sizes.of_new());
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
        self.begun.sync(&self.open)
    }

    /// Makes the files durable that were begun before this call, so that the manifest may name them.
    ///
    /// # Errors
    /// As [`VlogSet::sync`].
    pub fn sync_begun(&self) -> Result<()> {
        self.begun.sync_begun(&self.open)
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

    /// Replaces the content of `value` by the value that `pointer` addresses.
    ///
    /// # Errors
    /// As [`VlogSet::read`].
    pub fn read_into(&self, pointer: &VlogPointer, value: &mut Vec<u8>) -> Result<()> {
        self.file(pointer.vlog)?.read_into(pointer, value)
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
        let file = self.open.find(id)?;
        let mut backoff = Backoff::new();
        for round in 0u32.. {
            if let Some(len) = file.quiet_len() {
                return Some(len);
            }
            if round == QUIET_ROUNDS && self.current.has(id) {
                self.rotate();
            }
            backoff.snooze();
        }
        None
    }

    /// Returns whether a file was begun that receives no more appends, and is not sealed: it is not complete yet, or there are leases on it.
    pub fn is_closing(&self) -> bool {
        self.begun.ids().into_iter().any(|id| !self.current.has(id))
    }

    /// Returns a set of `ids` alone, for a set to which nothing is appended. Files that are open stay so, because another process may have
    /// removed their names.
    pub fn part(&self, ids: impl Iterator<Item = VlogId>) -> Self {
        let (dir, entropy) = (Arc::clone(&self.open.dir), Arc::clone(self.current.entropy()));
        let part = Self::new(dir, entropy, self.open.family, FILE_BYTES_MIN, || Err(Error::ReadOnly));
        ids.filter_map(|id| self.open.find(id)).for_each(|file| part.open.add(file));
        part
    }

    pub(super) fn file(&self, id: VlogId) -> Result<Arc<VlogFile>> {
        self.open.get(id)
    }
}

impl Drop for VlogSet {
    fn drop(&mut self) {
        if !self.doomed.load(Ordering::SeqCst) {
            return;
        }
        let all: BTreeSet<VlogId> = self.open.take().chain(self.begun.take()).gather();
        all.into_iter().for_each(|id| files::remove(&*self.open.dir, &files::vlog(id)));
    }
}

impl fmt::Debug for VlogSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VlogSet")
            .field("family", &self.open.family)
            .field("files", &self.open.infos())
            .finish_non_exhaustive()
    }
}
