//! The version set: the state in force, and [`VersionSet::install`], the only way to change it.
//!
//! An install applies the edit to the state, opens the tables it adds, appends it to the manifest and
//! syncs. Only then do the versions change, under the single lock; if anything fails, the edit is taken back before the lock is free. `publish` also runs under this lock,
//! so installs are seen in the order in which they became durable. If anything fails, nothing is published. After a
//! failed write or sync the durable state is unknown: every later install is refused until the database is reopened.
//!
//! The first install of a session writes a new manifest with the state that it leaves. The state that was read, perhaps only from the
//! page cache, becomes durable again before anything relies on it. And no append ever follows a torn one.

mod opening;
mod orders;

pub use orders::without_comparator;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_io::{Dir, Entropy, Threads};
use tidesdb_sync::{Mutex, rank};

use super::current::{self, Current};
use super::edit::{Change, VersionEdit};
use super::format::{Header, Identity, PAYLOAD_BYTES_MAX, RECORDS_AT};
use super::manifest::{Failure, Manifest};
use super::obsolete::{ObsoleteFiles, OrphanReport, Orphans};
use super::replay::{self, ManifestReport, Presence};
use super::state::{FamilyState, State};
use super::{FamilyVersion, OpenTable, presence};
use crate::files::{self, FileKind};
use crate::sst::{Table, TableMeta};
use crate::types::{Comparator, FILE_NUMBER_MAX, FamilyId, ID_MAX, MergeOperator, TableId, VlogId};
use crate::{Error, Result};

/// Up to so many families, a build with debug assertions checks the whole state after each edit.
const CHECKED_FAMILIES_MAX: usize = 64;
/// A file whose number exceeds the counter by this much does not move the counter.
const STRAY_MAX: u64 = 1 << 20;

/// Dependencies of a version set.
pub struct Context<T = Table> {
    /// Directory of the database, locked.
    pub dir: Arc<dyn Dir>,
    /// Source of random salts.
    pub entropy: Arc<dyn Entropy>,
    /// Custom key orders.
    pub comparators: Vec<Comparator>,
    /// Custom merge operators.
    pub operators: Vec<MergeOperator>,
    /// Whether families may lack their merge operators: their operands can then be neither read nor written.
    pub lacks_operators: bool,
    /// Whether families without their key order are left out; only for reading.
    pub leaves_out: bool,
    /// Opens tables.
    pub open_table: Arc<OpenTable<T>>,
    /// Open the tables of a large database.
    pub threads: Arc<dyn Threads>,
}

/// The versions of all families.
pub type Versions<T = Table> = BTreeMap<FamilyId, Arc<FamilyVersion<T>>>;

/// The state in force and the manifest that records it.
pub struct VersionSet<T = Table> {
    context: Context<T>,
    identity: Identity,
    next_table: AtomicU64,
    next_vlog: AtomicU64,
    next_family: AtomicU64,
    installs: AtomicU64,
    /// The manifest that was read records a clean shutdown.
    was_clean: bool,
    /// Files found at open with numbers far above the counters. These numbers are skipped.
    taken: BTreeSet<FileKind>,
    obsolete: Arc<ObsoleteFiles>,
    orphans: Mutex<Option<Orphans>, { rank::ORPHANS }>,
    inner: Mutex<Inner<T>, { rank::VERSIONS }>,
}

struct Inner<T> {
    phase: Phase,
    state: State,
    versions: Versions<T>,
    next_manifest: u64,
}

/// An edit that the state has and the manifest may not have: it is taken back when this is dropped, also by a panic.
struct Tried<'a, T> {
    inner: &'a mut Inner<T>,
    edit: &'a VersionEdit,
    /// `None`: it stays.
    before: Option<State>,
}

impl<'a, T> Tried<'a, T> {
    fn apply(inner: &'a mut Inner<T>, edit: &'a VersionEdit) -> Result<Self> {
        let before = Some(inner.state.before(edit));
        let tried = Self { inner, edit, before };
        tried.inner.state.apply(edit)?;
        Ok(tried)
    }

    /// Keeps the edit.
    fn keep(&mut self) -> &mut Inner<T> {
        self.before = None;
        self.inner
    }
}

impl<T> Drop for Tried<'_, T> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.inner.state.take_back(self.edit, before);
        }
    }
}

enum Phase {
    ReadOnly,
    /// The manifest that was read is in force. The first install writes a new one and makes that with this number obsolete, if it is given.
    Unbegun(Option<u64>),
    Writable(Manifest),
    Poisoned(Arc<Error>),
    Closed,
}

impl<T: Send + Sync + 'static> VersionSet<T> {
    /// Creates the database: a first manifest without families, and `CURRENT`.
    ///
    /// # Errors
    /// `Exists` if there is a database, `Corrupt` if there are parts of one, `NoSpace` and `Io` from the disk.
    pub fn create(context: Context<T>, wal_segment_bytes: u64) -> Result<Self> {
        if presence(&*context.dir)? == Presence::Present {
            return Err(Error::Exists { what: format!("database in {:?}", context.dir.path()).into() });
        }
        Self::create_with(context, wal_segment_bytes, State::default())
    }

    /// Creates a database with `state` in its first manifest. The directory must contain exactly the files that `state`
    /// names, and they must be durable.
    ///
    /// # Errors
    /// `NoSpace` and `Io` from the disk, and errors of opening tables.
    pub fn create_with(context: Context<T>, wal_segment_bytes: u64, mut state: State) -> Result<Self> {
        let identity = Identity { uuid: context.entropy.salt(), wal_segment_bytes };
        orders::assign(&mut state, &context)?;
        let names = replay::list(&*context.dir)?;
        let this = Self::new(context, identity, state, &names);
        this.open_tables()?;
        this.prepare(&names, None, false);
        this.begin()?;
        Ok(this)
    }

    /// Opens the database. For writing, a new manifest replaces the one read, and the directory must be locked: at once after damage,
    /// otherwise with the first install. A database that was closed cleanly stays as it is until then. After a crash the device may be
    /// busy with what it was given before, and a sync would keep the first read waiting. `read_only` changes nothing on disk.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Corrupt` for damage; `FormatTooNew`; `InvalidArgument` for unknown key orders
    /// and merge operators; errors of opening tables.
    pub fn open(context: Context<T>, read_only: bool) -> Result<(Self, ManifestReport)> {
        let loaded = replay::load(&*context.dir, &mut |_, _| {})?;
        let mut state = loaded.state;
        orders::assign(&mut state, &context)?;
        let names = replay::list(&*context.dir)?;
        state.clean = false;
        let mut this = Self::new(context, loaded.header.identity, state, &names);
        this.was_clean = loaded.report.clean && !loaded.report.repaired_mark;
        this.open_tables().map_err(|e| match e {
            // Only the manifest has described these tables so far, so the manifest is what is damaged.
            Error::Internal { what } => Error::corrupt(&loaded.report.file, RECORDS_AT, what),
            other => other,
        })?;
        if !read_only {
            if this.inner.lock().state.families.is_empty() {
                // A kill may have ended the creation before the name `CURRENT` was durable. Without it the log would look like the rest of
                // a database.
                let synced = this.context.dir.sync();
                synced.map_err(|e| Error::io("sync", "database directory", e))?;
            }
            // A damaged manifest is set aside like an orphan, as evidence.
            let spent = Some(loaded.header.number).filter(|_| !loaded.report.repaired_mark);
            this.prepare(&names, spent, loaded.report.clean);
            if loaded.report.repaired_mark {
                this.begin()?;
            }
        }
        Ok((this, loaded.report))
    }

    /// Opens `state`, which a manifest had when another process wrote it, for reading only. Shares the open tables of
    /// `prev`, and everything of the families that `is_same` says have not changed since.
    ///
    /// # Errors
    /// `InvalidArgument` for unknown key orders and merge operators; errors of opening tables.
    pub fn view(
        context: Context<T>,
        identity: Identity,
        mut state: State,
        prev: Option<&Self>,
        is_same: impl Fn(FamilyId) -> bool,
    ) -> Result<Self> {
        let (known, versions) = match prev.map(|prev| prev.inner.lock()) {
            Some(inner) => (inner.state.families.clone(), inner.versions.clone()),
            None => Default::default(),
        };
        for (id, family) in state.families.iter_mut().filter(|(id, _)| is_same(**id)) {
            if let Some(known) = known.get(id) {
                *family = Arc::clone(known);
            }
        }
        orders::assign(&mut state, &context)?;
        state.clean = false;
        let this = Self::new(context, identity, state, &[]);
        if prev.is_none() {
            this.open_tables()?;
            return Ok(this);
        }
        let mut inner = this.inner.lock();
        for (id, family) in inner.state.families.clone() {
            let version = match versions.get(&id) {
                Some(version) if is_same(id) => Arc::clone(version),
                version => {
                    let (prev, open) = (version.map(|version| &**version), &*this.context.open_table);
                    Arc::new(FamilyVersion::build(&family, prev, &this.obsolete, open)?)
                }
            };
            inner.versions.insert(id, version);
        }
        drop(inner);
        Ok(this)
    }

    fn new(context: Context<T>, identity: Identity, state: State, names: &[String]) -> Self {
        let (mut table, mut vlog) = (state.next_table.0, u64::from(state.next_vlog.0));
        let mut manifest = 1;
        let mut taken = BTreeSet::new();
        for name in names {
            // A file that was set aside keeps its number too, so a later file is not set aside under the same name.
            let Some(kind) = files::parse(name.trim_end_matches(".orphan")) else { continue };
            let (n, next) = match kind {
                FileKind::Table(id) => (id.0, &mut table),
                FileKind::Vlog(id) => (id.0.into(), &mut vlog),
                FileKind::Manifest(n) => (n, &mut manifest),
                _ => continue,
            };
            // A foreign file may have a huge number, which would use up all numbers below it.
            if n < next.saturating_add(STRAY_MAX) {
                *next = (*next).max(n + 1);
            } else {
                taken.insert(kind);
            }
        }
        let inner = Inner {
            phase: Phase::ReadOnly,
            next_manifest: free_manifest(&taken, manifest),
            versions: BTreeMap::new(),
            state: state.clone(),
        };
        Self {
            context,
            identity,
            next_table: AtomicU64::new(table),
            next_vlog: AtomicU64::new(vlog),
            next_family: AtomicU64::new(state.next_family.0.into()),
            installs: AtomicU64::new(0),
            was_clean: false,
            obsolete: Arc::default(),
            taken,
            orphans: Mutex::new(None),
            inner: Mutex::new(inner),
        }
    }

    /// Builds the first versions of all families.
    fn open_tables(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let mut versions = BTreeMap::new();
        let open = &self.context.open_table;
        let opened = opening::open_all(&inner.state, open, &*self.context.threads);
        let open_rest = |family: &FamilyState, meta: &Arc<TableMeta>| match opened.get(&meta.id) {
            Some(table) => Ok(Arc::clone(table)),
            None => open(family, meta),
        };
        for (id, family) in &inner.state.families {
            let version = FamilyVersion::build(family, None, &self.obsolete, &open_rest)?;
            versions.insert(*id, Arc::new(version));
        }
        inner.versions = versions;
        Ok(())
    }

    /// Lets the next [`VersionSet::begin`] or install write a new manifest, which makes `spent` obsolete. The directory has the files
    /// `names`; `clean` tells whether the last session was closed cleanly.
    fn prepare(&self, names: &[String], spent: Option<u64>, clean: bool) {
        let mut inner = self.inner.lock();
        inner.phase = Phase::Unbegun(spent);
        *self.orphans.lock() = Some(Orphans::find(names, &inner.state, spent, clean));
    }

    /// Writes the state to a new manifest and puts it in force. Called by an open, which fails with its error.
    fn begin(&self) -> Result<()> {
        let begun = self.begin_locked(&mut self.inner.lock());
        if begun.is_err() && !self.is_poisoned() {
            self.unlink_obsolete(); // nothing else would unlink them
        }
        begun
    }

    /// Like [`VersionSet::begin`], unless a new manifest was begun already.
    fn begin_locked(&self, inner: &mut Inner<T>) -> Result<()> {
        match inner.phase {
            Phase::Unbegun(spent) => self.switch_manifest(inner, spent),
            _ => Ok(()),
        }
    }

    /// Writes the state to a new manifest, puts that in force, and makes the manifest `spent` obsolete. If the outcome is unknown, later
    /// calls fail; otherwise a failure changes nothing.
    fn switch_manifest(&self, inner: &mut Inner<T>, spent: Option<u64>) -> Result<()> {
        match self.write_manifest(inner) {
            Ok(manifest) => {
                inner.phase = Phase::Writable(manifest);
                spent.into_iter().for_each(|n| self.obsolete.push(FileKind::Manifest(n)));
                Ok(())
            }
            Err(failure) => Err(inner.failed(failure)),
        }
    }

    fn write_manifest(&self, inner: &mut Inner<T>) -> Result<Manifest, Failure> {
        let header = Header {
            salt: self.context.entropy.salt(),
            identity: self.identity,
            number: inner.next_manifest,
        };
        if header.number > FILE_NUMBER_MAX {
            return Err(used_up().into());
        }
        inner.next_manifest = free_manifest(&self.taken, header.number + 1);
        let dir = &*self.context.dir;
        let scrap = |error| {
            self.obsolete.push(FileKind::Manifest(header.number));
            Failure::from(error)
        };
        let manifest = Manifest::create(dir, header, &inner.state.snapshot()).map_err(scrap)?;
        // A directory reports a failed sync only once. Names created by other threads may be lost too, so the outcome
        // is unknown.
        dir.sync().map_err(|e| Failure::unknown(Error::io("directory sync", "manifest", e)))?;
        let to = Current { number: header.number, salt: header.salt, uuid: header.identity.uuid };
        current::switch(dir, &to).map_err(|e| if e.unknown { e } else { scrap(e.error) })?;
        Ok(manifest)
    }

    /// Returns whether the manifest says that the log may take tables.
    pub fn log_takes_tables(&self) -> bool {
        self.inner.lock().state.log_takes_tables
    }

    /// Returns a number for a new table.
    ///
    /// # Errors
    /// `InvalidArgument` after 2^56 numbers.
    pub fn new_table_id(&self) -> Result<TableId> {
        let number = self.draw(&self.next_table, FILE_NUMBER_MAX, |n| FileKind::Table(TableId(n)));
        number.map(TableId)
    }

    /// Returns a number for a new value log.
    ///
    /// # Errors
    /// `InvalidArgument` after about 2^32 numbers.
    pub fn new_vlog_id(&self) -> Result<VlogId> {
        let number = self.draw(&self.next_vlog, ID_MAX.into(), |n| FileKind::Vlog(VlogId(n as u32)));
        number.map(|n| VlogId(n as u32))
    }

    /// Returns a number for a new family.
    ///
    /// # Errors
    /// `InvalidArgument` after about 2^32 numbers.
    pub fn new_family_id(&self) -> Result<FamilyId> {
        take(&self.next_family, ID_MAX.into()).map(|n| FamilyId(n as u32))
    }

    /// Takes the next number of `counter` that no file has.
    fn draw(&self, counter: &AtomicU64, max: u64, file: impl Fn(u64) -> FileKind) -> Result<u64> {
        loop {
            let number = take(counter, max)?;
            if !self.taken.contains(&file(number)) {
                return Ok(number);
            }
        }
    }

    /// Returns the number of installs. A state taken after this call includes at least that many.
    pub fn installs(&self) -> u64 {
        self.installs.load(Ordering::SeqCst)
    }

    /// Returns a number above `least` for a manifest stored elsewhere. No manifest of this set ever gets it.
    pub fn new_manifest_number(&self, least: u64) -> u64 {
        let mut inner = self.inner.lock();
        let number = free_manifest(&self.taken, inner.next_manifest.max(least.saturating_add(1)));
        inner.next_manifest = free_manifest(&self.taken, number + 1);
        number
    }

    /// Returns the directory of the database.
    pub fn dir(&self) -> &Arc<dyn Dir> {
        &self.context.dir
    }

    /// Returns what was fixed when the database was created.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the state in force.
    pub fn state(&self) -> State {
        self.inner.lock().state.clone()
    }

    /// Returns the state in force and the versions of all families, which keep its files alive.
    pub fn pinned_state(&self) -> (State, Vec<Arc<FamilyVersion<T>>>) {
        let inner = self.inner.lock();
        (inner.state.clone(), inner.versions.values().cloned().collect())
    }

    /// Returns what is recorded of a family.
    pub fn family(&self, id: FamilyId) -> Option<Arc<FamilyState>> {
        self.inner.lock().state.families.get(&id).cloned()
    }

    /// Returns the version of a family in force.
    pub fn version(&self, family: FamilyId) -> Option<Arc<FamilyVersion<T>>> {
        self.inner.lock().versions.get(&family).cloned()
    }

    /// Returns number and used bytes of the manifest in force; `None` if it takes no more edits.
    #[cfg(test)]
    pub fn manifest(&self) -> Option<(u64, u64)> {
        match &self.inner.lock().phase {
            Phase::Writable(m) => Some((m.number(), m.bytes())),
            _ => None,
        }
    }

    /// Returns whether an earlier failure left the durable state unknown, so that edits are refused.
    pub fn is_poisoned(&self) -> bool {
        matches!(self.inner.lock().phase, Phase::Poisoned(_))
    }

    /// Returns true if the manifest in force is still that of a clean shutdown.
    pub fn is_untouched(&self) -> bool {
        self.was_clean && matches!(self.inner.lock().phase, Phase::Unbegun(_))
    }

    /// Returns the queue of files to unlink.
    pub fn obsolete(&self) -> &Arc<ObsoleteFiles> {
        &self.obsolete
    }

    /// Unlinks the files that no version and no reader needs; returns how many. The next call retries failures.
    pub fn unlink_obsolete(&self) -> usize {
        self.unlink_obsolete_after(|_| {})
    }

    /// Like [`VersionSet::unlink_obsolete`], and calls `close` with each file before it is unlinked.
    pub fn unlink_obsolete_after(&self, close: impl Fn(FileKind)) -> usize {
        self.obsolete.unlink_all(&*self.context.dir, close)
    }

    /// Sets aside files that were found at open and that the manifest does not name. If the last session was closed
    /// cleanly, also unlinks those set aside earlier. Call once, after recovery has succeeded.
    pub fn settle_orphans(&self) -> OrphanReport {
        let orphans = self.orphans.lock().take();
        orphans.map(|o| o.settle(&*self.context.dir, &self.inner.lock().state)).unwrap_or_default()
    }

    /// Makes `edit` durable, puts it in force and calls `publish` with the new versions. Installs run one at a time. `publish` must not call
    /// the set.
    ///
    /// # Errors
    /// In all cases nothing was published. `Exists`, `NotFound`, `InvalidArgument`, `Internal` for an edit that does
    /// not fit the state, `NoSpace`, and errors of opening tables: nothing was written. `Io`: the edit may or may not
    /// be durable, and later calls fail with `Poisoned`; the files it adds must stay, because the next open may find
    /// them in the manifest (see [`VersionSet::is_poisoned`]). `ReadOnly`, `Closed`.
    pub fn install(&self, edit: &VersionEdit, publish: impl FnOnce(&Versions<T>)) -> Result<()> {
        let mut inner = self.inner.lock();
        self.install_locked(&mut inner, edit.clone())?;
        publish(&inner.versions);
        Ok(())
    }

    /// Installs `edit` as the last one and records a clean shutdown.
    ///
    /// # Errors
    /// As [`VersionSet::install`]. For a read-only set, and if the manifest is still that of a clean shutdown, it does nothing and returns no
    /// error.
    pub fn close(&self, edit: &VersionEdit) -> Result<()> {
        let mut inner = self.inner.lock();
        match inner.phase {
            Phase::ReadOnly => {}
            Phase::Unbegun(_) if self.was_clean => {}
            _ => {
                // A clean shutdown is a record of its own.
                self.begin_locked(&mut inner)?;
                let mut edit = edit.clone();
                edit.push(Change::CleanShutdown);
                self.install_locked(&mut inner, edit)?;
            }
        }
        inner.phase = Phase::Closed;
        Ok(())
    }

    fn install_locked(&self, inner: &mut Inner<T>, mut edit: VersionEdit) -> Result<()> {
        let unbegun = match inner.phase {
            Phase::Unbegun(spent) => Some(spent),
            _ => self.roll_if_large(inner).map(|()| None)?,
        };
        self.add_counters(&inner.state, &mut edit);
        assert_inputs_exist(&inner.state, &edit);
        let mut tried = Tried::apply(inner, &edit)?;
        let inner = &mut *tried.inner;
        let few = inner.state.families.len() <= CHECKED_FAMILIES_MAX;
        debug_assert!(!few || inner.state.check().is_ok(), "{:?}", inner.state.check());
        let edits = edit.by_family();
        let fresh = self.build_touched(inner, &edits)?;
        match unbegun {
            Some(spent) => self.switch_manifest(inner, spent)?,
            None if edit.changes.is_empty() => {}
            None => self.append(inner, &edit)?,
        }
        let inner = tried.keep();
        self.next_table.fetch_max(inner.state.next_table.0, Ordering::Relaxed);
        self.next_vlog.fetch_max(inner.state.next_vlog.0.into(), Ordering::Relaxed);
        self.next_family.fetch_max(inner.state.next_family.0.into(), Ordering::Relaxed);
        self.installs.fetch_add(1, Ordering::SeqCst);
        for (id, next) in fresh {
            let prev = match &next {
                Some(next) => inner.versions.insert(id, Arc::clone(next)),
                None => inner.versions.remove(&id),
            };
            if let (Some(prev), Some(edit)) = (prev, edits.get(&id)) {
                prev.retire_into(next.as_deref(), edit);
            }
        }
        Ok(())
    }

    /// Records the numbers assigned since the last edit as used.
    fn add_counters(&self, state: &State, edit: &mut VersionEdit) {
        let table = TableId(self.next_table.load(Ordering::Relaxed));
        let vlog = VlogId(clamp(&self.next_vlog));
        let family = FamilyId(clamp(&self.next_family));
        if !edit.changes.is_empty()
            && (table, vlog, family) != (state.next_table, state.next_vlog, state.next_family)
        {
            edit.push(Change::NextIds { table, vlog, family });
        }
    }

    /// Builds new versions of the families that edits touch, which the state has; `None` for those that they drop.
    fn build_touched(
        &self,
        inner: &Inner<T>,
        edits: &BTreeMap<FamilyId, VersionEdit>,
    ) -> Result<BTreeMap<FamilyId, Option<Arc<FamilyVersion<T>>>>> {
        let build = |(id, edit): (&FamilyId, &VersionEdit)| {
            let prev = inner.versions.get(id).map(|v| &**v);
            let (queue, open) = (&self.obsolete, &*self.context.open_table);
            let next = |family| FamilyVersion::successor(family, prev, edit, queue, open).map(Arc::new);
            Ok((*id, inner.state.families.get(id).map(next).transpose()?))
        };
        edits.iter().map(build).collect()
    }

    /// Makes `edit`, which the state has, durable: as one record, or with a new manifest if it is too long for that.
    fn append(&self, inner: &mut Inner<T>, edit: &VersionEdit) -> Result<()> {
        let manifest = inner.manifest()?;
        match edit.encode_within(PAYLOAD_BYTES_MAX) {
            Some(payload) => {
                let appended = manifest.append(&*self.context.dir, &payload);
                appended.map_err(|failure| inner.failed(failure))
            }
            None => {
                let spent = Some(manifest.number());
                self.switch_manifest(inner, spent)
            }
        }
    }

    /// Begins a new manifest if the current one has grown too large. A failure is harmless unless `CURRENT` may have
    /// changed.
    fn roll_if_large(&self, inner: &mut Inner<T>) -> Result<()> {
        let manifest = inner.manifest()?;
        if !manifest.wants_roll() {
            return Ok(());
        }
        let spent = Some(manifest.number());
        match (self.switch_manifest(inner, spent), &mut inner.phase) {
            (Err(error), Phase::Writable(manifest)) => {
                tracing::warn!(%error, "the manifest could not be replaced by a new one; it keeps growing for now");
                manifest.postpone_roll();
                Ok(())
            }
            (switched, _) => switched,
        }
    }
}

impl<T> fmt::Debug for VersionSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionSet").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl<T> Inner<T> {
    /// Returns the manifest, if it accepts edits.
    fn manifest(&mut self) -> Result<&mut Manifest> {
        match &mut self.phase {
            Phase::Writable(m) => Ok(m),
            Phase::ReadOnly => Err(Error::ReadOnly),
            Phase::Unbegun(_) => Err(Error::internal("a manifest that was not begun")),
            Phase::Closed => Err(Error::Closed),
            Phase::Poisoned(cause) => Err(Error::Poisoned { cause: Arc::clone(cause) }),
        }
    }

    /// Returns the error of `failure`. If it is not known what is in force now, no more edits are accepted.
    fn failed(&mut self, Failure { error, unknown }: Failure) -> Error {
        if unknown {
            self.phase = Phase::Poisoned(Arc::new(error.clone()));
        }
        error
    }
}

/// Reads the manifest of the database in `dir` edit by edit, for tools. Calls `visit` with the offset of each record.
///
/// # Errors
/// As [`VersionSet::open`]; `visit` has seen the edits before the damage.
pub fn inspect(dir: &dyn Dir, visit: &mut dyn FnMut(u64, &VersionEdit)) -> Result<(State, ManifestReport)> {
    let loaded = replay::load(dir, visit)?;
    Ok((loaded.state, loaded.report))
}

/// Returns the first number from `number` on that no file in `taken` has.
fn free_manifest(taken: &BTreeSet<FileKind>, mut number: u64) -> u64 {
    while taken.contains(&FileKind::Manifest(number)) {
        number += 1;
    }
    number
}

fn take(counter: &AtomicU64, max: u64) -> Result<u64> {
    let number = counter.fetch_add(1, Ordering::Relaxed);
    if number <= max { Ok(number) } else { Err(used_up()) }
}

fn used_up() -> Error {
    Error::invalid("all numbers for files or families are used; copy the data to a new database")
}

fn clamp(counter: &AtomicU64) -> u32 {
    u32::try_from(counter.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
}

/// Law: an edit replaces only tables that are in force, so no merge of old tables undoes another. Cost: one look into a map for
/// each table that is removed. A family that was dropped meanwhile is an error of `apply`.
fn assert_inputs_exist(state: &State, edit: &VersionEdit) {
    for change in &edit.changes {
        let Change::RemoveTable { family, level, table } = change else { continue };
        let Some(family) = state.families.get(family) else { continue };
        let found = family.tables.get(*table).map(|found| found.level);
        assert_eq!(found, Some(*level), "table {} goes from a level where it is not", table.0);
    }
}
