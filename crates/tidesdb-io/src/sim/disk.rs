//! The simulated disk: its state under one mutex, and the gate that every call passes.
//!
//! Invariants: a call takes its number at the gate, before it does anything. After the crash, no call takes a
//! number or changes the disk. Open handles are counted here and not in [`World`], so snapshots share every
//! file.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::fault::{Effect, Fault, FaultId, Faults, SyncModel, errno};
use super::habits::Habits;
use super::image::{self, Image};
use super::op::{Op, OpKind, OpSet};
use super::rng::Rng;
use super::world::{Id, World};
use crate::crc::checksummed_bytes;
use crate::system::Errno;
use parking_lot::Mutex;

/// Size reported for a disk without a limit: 1 TiB.
const UNLIMITED: u64 = 1 << 40;

/// The error of every call at and after the crash.
#[derive(Debug)]
struct SimulatedCrash;

impl fmt::Display for SimulatedCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated crash")
    }
}

impl std::error::Error for SimulatedCrash {}

/// Returns true if `error` comes from a crash of a simulated disk.
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<SimulatedCrash>())
}

pub(super) fn crash_error() -> io::Error {
    io::Error::other(SimulatedCrash)
}

/// A simulated disk. Clones are handles to the same disk; see [`SimDisk::fork`] for a copy.
#[derive(Clone)]
pub struct SimDisk {
    pub(super) state: Arc<Mutex<State>>,
}

/// When the disk crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CrashPoint {
    index: u64,
    torn: bool,
}

/// How a directory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    Exclusive,
    Shared(usize),
}

type Observer = Box<dyn FnMut(&Op, SimDisk) + Send>;
type Before = Arc<dyn Fn(&str) + Send + Sync>;

pub(super) struct State {
    pub(super) world: World,
    pub(super) handles: BTreeMap<Id, usize>,
    pub(super) locks: BTreeMap<Id, Locked>,
    pub(super) rng: Rng,
    pub(super) sync_model: SyncModel,
    pub(super) habits: Habits,
    /// Whether nothing can be changed.
    pub(super) is_read_only: bool,
    /// Names that are removed when their file is closed, each with its directory.
    pub(super) removed: BTreeMap<(Id, String), Id>,
    /// Files that are open, and how many may be; maps and directories are not counted.
    pub(super) open_files: usize,
    pub(super) open_files_max: usize,
    faults: Faults,
    capacity: Option<u64>,
    full_errno: i32,
    next_op: u64,
    crash_at: Option<CrashPoint>,
    crashed: bool,
    log: Option<Vec<Op>>,
    observer: Option<(OpSet, Observer)>,
    before: Option<(OpSet, Before)>,
}

/// The gate's decision about a call.
#[derive(Debug)]
pub(super) enum Verdict {
    Pass,
    Hit(Effect),
    /// The machine crashes during this call: a write may do a part of its work, then must return the crash
    /// error.
    Torn,
}

impl State {
    fn new(world: World, seed: u64) -> Self {
        Self {
            world,
            handles: BTreeMap::new(),
            locks: BTreeMap::new(),
            rng: Rng::new(seed),
            sync_model: SyncModel::default(),
            habits: Habits::LINUX,
            is_read_only: false,
            removed: BTreeMap::new(),
            open_files: 0,
            open_files_max: usize::MAX,
            faults: Faults::default(),
            capacity: None,
            full_errno: errno::ENOSPC,
            next_op: 0,
            crash_at: None,
            crashed: false,
            log: Some(Vec::new()),
            observer: None,
            before: None,
        }
    }

    /// Admits a call or fails it. Fills in `op.index`.
    pub(super) fn gate(&mut self, op: &mut Op) -> io::Result<Verdict> {
        if self.crashed {
            return Err(crash_error());
        }
        op.index = self.next_op;
        if let Some((ops, mut observer)) = self.observer.take() {
            if ops.has(op.kind) {
                observer(op, self.fork());
            }
            self.observer = Some((ops, observer));
        }
        self.next_op += 1;
        if self.is_read_only && OpSet::CHANGES.has(op.kind) && op.kind != OpKind::Lock {
            self.note(op);
            return Err(os(Errno::ROFS));
        }
        if let Some(point) = self.crash_at.filter(|point| point.index <= op.index) {
            self.crashed = true;
            if point.torn && OpSet::WRITES.has(op.kind) {
                return Ok(Verdict::Torn);
            }
            self.note(op);
            return Err(crash_error());
        }
        match self.faults.strike(op, &mut self.rng) {
            None => Ok(Verdict::Pass),
            // The effect of a failed file sync depends on the file system, so the call itself applies it.
            Some(Effect::Errno(n)) if !OpSet::SYNCS.has(op.kind) => {
                self.note(op);
                Err(io::Error::from_raw_os_error(n))
            }
            Some(effect) => Ok(Verdict::Hit(effect)),
        }
    }

    pub(super) fn crashed(&self) -> bool {
        self.crashed
    }

    /// Appends a call to the log, if the log is on.
    pub(super) fn note(&mut self, op: &Op) {
        if let Some(log) = &mut self.log {
            log.push(op.clone());
        }
    }

    /// Returns how many more bytes files may take.
    pub(super) fn room(&self) -> u64 {
        match self.capacity {
            None => u64::MAX,
            Some(capacity) => capacity.saturating_sub(self.used()),
        }
    }

    pub(super) fn full(&self) -> io::Error {
        io::Error::from_raw_os_error(self.full_errno)
    }

    fn used(&self) -> u64 {
        self.world.used(|id| self.handles.contains_key(&id))
    }

    pub(super) fn space(&self) -> crate::Space {
        let total = self.capacity.unwrap_or(UNLIMITED);
        crate::Space { free: total.saturating_sub(self.used()), total }
    }

    pub(super) fn collect(&mut self) {
        let Self { world, handles, .. } = self;
        world.collect(|id| handles.contains_key(&id));
    }

    fn fork(&self) -> SimDisk {
        let mut world = self.world.clone();
        for (dir, name) in self.removed.keys() {
            world.remove_after_kill(*dir, name);
        }
        world.collect(|_| false);
        SimDisk::with(world, self.rng.clone().next(), self)
    }
}

impl SimDisk {
    /// Creates an empty disk. The seed determines every random choice it makes.
    pub fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(World::new(), seed))) }
    }

    /// Creates a disk with the settings of `like`, but without its faults, locks and limits.
    fn with(world: World, seed: u64, like: &State) -> Self {
        let state = State { sync_model: like.sync_model, habits: like.habits, ..State::new(world, seed) };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns a full copy of the disk, with all pending changes: the state the next process finds if only this
    /// process died. The copy has no faults, locks, limits or open files, and counts calls from 0. It is cheap,
    /// because content is shared until written.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.state.lock().fork()
    }

    /// Returns a disk as it may be found if the power failed now: all its bytes and names are durable. It has
    /// no faults, locks or limits, and counts calls from 0. The same seed gives the same image.
    #[must_use]
    pub fn crash_image(&self, image: &Image, seed: u64) -> Self {
        let state = self.state.lock();
        Self::with(image::build(&state.world, image, seed), seed, &state)
    }

    /// Like [`SimDisk::crash_image`], of a machine that goes on: its file system was shut down by an error, or its device was away, and
    /// it was mounted again without the bytes that the system had in memory.
    #[must_use]
    pub fn lost_mount(&self, image: &Image, seed: u64) -> Self {
        let mounted = self.crash_image(image, seed);
        let mut state = mounted.state.lock();
        state.world.boots -= 1;
        state.world.mounts += 1;
        drop(state);
        mounted
    }

    /// Number of name changes that are not durable yet, which is the number of bits that
    /// [`NameFate::Mask`](super::NameFate::Mask) uses.
    pub fn pending_names(&self) -> usize {
        self.state.lock().world.dirs.values().map(|dir| dir.pending.len()).sum()
    }

    /// Number of writes that are not durable yet.
    pub fn pending_writes(&self) -> usize {
        self.state.lock().world.files.values().map(|file| file.writes.len()).sum()
    }

    /// Number of calls so far, including failed ones. This is the index of the next call.
    pub fn op_count(&self) -> u64 {
        self.state.lock().next_op
    }

    /// Returns the calls so far, if the log is on.
    pub fn ops(&self) -> Vec<Op> {
        self.state.lock().log.clone().unwrap_or_default()
    }

    /// Turns the log of calls on (the default) or off. Turning it off also empties it.
    pub fn log_ops(&self, on: bool) {
        self.state.lock().log = on.then(Vec::new);
    }

    /// Returns how many bytes `call` reads from the disk and passes to [`crc32c`](crate::crc32c) in this thread: the work of a parser, to
    /// compare with the length of its file. Checksums are counted in builds with debug assertions only. Empties the log of calls.
    ///
    /// ```
    /// use tidesdb_io::sim::SimDisk;
    /// use tidesdb_io::{Access, Dir, Disk, File, crc32c};
    ///
    /// let disk = SimDisk::new(1);
    /// let dir = disk.open_dir("/db".as_ref(), true)?;
    /// disk.write_file("/db/file", b"the tide rises")?;
    /// let file = dir.open("file", Access::Random)?;
    /// let work = disk.work(|| {
    ///     let mut bytes = [0; 8];
    ///     assert_eq!(file.read_at(&mut bytes, 0).ok(), Some(8));
    ///     crc32c(0, &bytes);
    /// });
    /// assert_eq!(work, if cfg!(debug_assertions) { 16 } else { 8 });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn work(&self, call: impl FnOnce()) -> u64 {
        self.log_ops(true);
        let before = checksummed_bytes();
        call();
        let read: u64 = self.ops().iter().filter(|op| op.kind == OpKind::Read).map(|op| op.len).sum();
        checksummed_bytes() - before + read
    }

    /// Calls `observer` before each later call of a kind in `ops`. It gets that call (not done yet, so not
    /// `ok`) and a [fork](Self::fork) of the disk, which is the state that a crash at that call leaves. The
    /// observer must use only the fork, not this disk or its files.
    pub fn observe(&self, ops: impl Into<OpSet>, observer: impl FnMut(&Op, Self) + Send + 'static) {
        self.state.lock().observer = Some((ops.into(), Box::new(observer)));
    }

    /// Ends [`SimDisk::observe`].
    pub fn stop_observing(&self) {
        self.state.lock().observer = None;
    }

    /// Calls `before` with the path before each later sync of a file or directory. It may block: other calls go on, as on a device that is
    /// slow to sync.
    pub fn before_syncs(&self, before: impl Fn(&str) + Send + Sync + 'static) {
        self.before_calls(OpSet::SYNCS | OpKind::SyncDir, before);
    }

    /// The same before each later call of `ops`.
    pub fn before_calls(&self, ops: OpSet, before: impl Fn(&str) + Send + Sync + 'static) {
        self.state.lock().before = Some((ops, Arc::new(before)));
    }

    /// Makes call `index` and every later one fail without effect, with an error that [`is_crash`] recognises.
    pub fn crash_at(&self, index: u64) {
        self.state.lock().crash_at = Some(CrashPoint { index, torn: false });
    }

    /// Like [`SimDisk::crash_at`], but if the call is a write, a random prefix of it is written.
    pub fn crash_at_torn(&self, index: u64) {
        self.state.lock().crash_at = Some(CrashPoint { index, torn: true });
    }

    /// Crashes: every later call fails.
    pub fn crash_now(&self) {
        self.state.lock().crashed = true;
    }

    /// Returns true if the disk has crashed.
    pub fn crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// Adds a fault. It applies to later calls.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.state.lock().faults.inject(fault)
    }

    /// Returns how often a fault has struck; 0 once it is removed.
    pub fn struck(&self, id: FaultId) -> u64 {
        self.state.lock().faults.struck(id)
    }

    /// Removes one fault.
    pub fn remove_fault(&self, id: FaultId) {
        self.state.lock().faults.remove(id);
    }

    /// Removes all faults. A crash and a space limit stay.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Sets what happens to pages when the sync of a file fails.
    pub fn set_sync_model(&self, model: SyncModel) {
        self.state.lock().sync_model = model;
    }

    /// Limits the growth of all files together to `free` more bytes, or removes the limit. The write that
    /// crosses the limit is short; the next one fails with `ENOSPC`. Truncating and unlinking files frees
    /// space. Holes take none.
    pub fn limit_space(&self, free: Option<u64>) {
        let mut state = self.state.lock();
        state.capacity = free.map(|free| free.saturating_add(state.used()));
    }

    /// Makes the medium read-only: every call that would change it fails with `EROFS`. A lock for reading needs no file then.
    pub fn set_read_only(&self, on: bool) {
        self.state.lock().is_read_only = on;
    }

    /// Allows `max` open files: an open of a further one fails with `EMFILE`.
    pub fn limit_open_files(&self, max: usize) {
        self.state.lock().open_files_max = max;
    }

    /// Sets the errno of a full disk, `ENOSPC` by default.
    pub fn set_full_errno(&self, errno: i32) {
        self.state.lock().full_errno = errno;
    }

    /// Gives the disk the habits of another file system. Set them before the first call.
    pub fn set_habits(&self, habits: Habits) {
        self.state.lock().habits = habits;
    }

    /// Sets whether files can be mapped for writing, whatever the habits.
    pub fn enable_map_shared(&self, on: bool) {
        self.state.lock().habits.maps = on;
    }

    /// Passes a call through the gate, runs it and logs it.
    pub(super) fn call<T>(
        &self,
        kind: OpKind,
        path: &Arc<str>,
        range: (u64, u64),
        act: impl FnOnce(&mut State, Verdict) -> io::Result<T>,
    ) -> io::Result<T> {
        let (offset, len) = range;
        #[cfg(simulated)]
        tidesdb_sync::scheduler::io(kind, path, offset);
        let before = self.state.lock().before.clone();
        if let Some((_, before)) = before.filter(|(ops, _)| ops.has(kind)) {
            before(path);
        }
        let mut state = self.state.lock();
        let mut op = Op { index: 0, kind, path: Arc::clone(path), offset, len, ok: false };
        let verdict = state.gate(&mut op)?;
        let result = act(&mut state, verdict);
        op.ok = result.is_ok();
        state.note(&op);
        #[cfg(simulated)]
        tidesdb_sync::scheduler::note(if op.ok { "done" } else { "failed" }, len, "");
        result
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("SimDisk");
        // Printing must not block, because the thread that prints may hold the lock.
        if let Some(state) = self.state.try_lock() {
            out.field("ops", &state.next_op).field("files", &state.world.files.len());
        }
        out.finish_non_exhaustive()
    }
}

/// Converts an errno into an [`io::Error`].
pub(super) fn os(errno: Errno) -> io::Error {
    errno.into()
}
