//! Families: create, drop, rename, list. Each is one manifest edit, so after a crash it is done or not done. Names are
//! data, any UTF-8 up to 127 bytes; no file name contains them.

use std::sync::Arc;

use super::Db;
use crate::engine::Engine;
use crate::events::{Event, LevelPart};
use crate::family::FamilyCore;
use crate::jobs::Job;
use crate::options::{FamilyOptions, LiveOptions};
use crate::sources::TableVersion;
use crate::types::FamilyId;
use crate::version::{Change, FAMILY_BYTES, VersionEdit};
use crate::vlog::VlogSet;
use crate::write::Family;
use crate::{Error, Result};

/// Loads every family that the manifest names.
pub(super) fn load(engine: &Arc<Engine>) -> Result<()> {
    for family in engine.maintenance.versions.state().families.values() {
        let version = engine.maintenance.versions.version(family.id);
        let version = version.ok_or_else(|| Error::internal("a family of the manifest has no version"))?;
        let core = core(engine, family.id, &family.name, family.options.clone(), version);
        engine.write.families.write().insert(core);
    }
    Ok(())
}

/// Returns the size at which a value log of the family is complete. With a limit for local files, it is capped at an
/// eighth of the limit or 1 MiB, whichever is larger, because a value log is fetched and removed as a whole.
fn file_bytes(engine: &Engine, options: &FamilyOptions) -> u64 {
    let limit =
        engine.remote.as_ref().map(|remote| remote.options.local_bytes_max).filter(|bytes| *bytes > 0);
    limit.map_or(options.vlog_file_bytes, |limit| options.vlog_file_bytes.min((limit / 8).max(1 << 20)))
}

/// Builds the set of value logs of a family.
fn vlog_set(engine: &Arc<Engine>, id: FamilyId, options: &FamilyOptions) -> VlogSet {
    let weak = Arc::downgrade(engine);
    let new_id = move || match weak.upgrade() {
        Some(engine) => engine.maintenance.versions.new_vlog_id(),
        None => Err(Error::Closed),
    };
    let (dir, entropy) = (Arc::clone(&engine.maintenance.dir), Arc::clone(&engine.write.env.entropy));
    let weak = Arc::downgrade(engine);
    let relieve = move || {
        let families = weak.upgrade().map(|engine| engine.write.all_families());
        // A failed sync is remembered by the set; the next sync of the log reports it.
        families.iter().flatten().for_each(|family| drop(family.vlog.give_back()));
    };
    let logs = VlogSet::new(dir, entropy, id, file_bytes(engine, options), new_id);
    let index = Arc::clone(&engine.write.index);
    let logs = logs.limited(Arc::clone(&engine.vlog_writes), relieve).noticed(move || index.sweep_next(id));
    let logs = logs.until(&engine.maintenance.tables.closed);
    match engine.write.options.background_threads {
        Some(0) => logs,
        _ => logs.helped(Arc::clone(&engine.write.env.threads)),
    }
}

/// Builds the in-memory state of a family.
pub(super) fn core(
    engine: &Arc<Engine>,
    id: FamilyId,
    name: &str,
    options: FamilyOptions,
    version: Arc<TableVersion>,
) -> Arc<FamilyCore> {
    let vlog = vlog_set(engine, id, &options);
    Arc::new(FamilyCore::new(id, name, options, vlog, version, (&engine.write.memory, &engine.write.index)))
}

/// Assigns the number of a new family; fails if there is no memory for it, or its name is taken.
pub(super) fn new_id(engine: &Engine, name: &str) -> Result<FamilyId> {
    if by_name(engine, name).is_some() {
        return Err(Error::Exists { what: format!("family {name:?}").into() });
    }
    engine.write.memory.check_new_family()?;
    engine.maintenance.versions.new_family_id()
}

/// Records what became of a family. The caller holds the lock of the catalog, so that lines have the order of the changes. They are written at
/// once: a background thread would write those of ten thousand families too late.
pub(super) fn tell(engine: &Engine, event: &Event) {
    engine.write.events.record(event);
    engine.write.events.write();
}

/// Creates a family, with `edit`, and records `event`.
pub(super) fn create(
    engine: &Arc<Engine>,
    name: &str,
    options: FamilyOptions,
    mut edit: VersionEdit,
    event: Option<&Event>,
) -> Result<Arc<FamilyCore>> {
    let _call = engine.write.begin_call()?;
    let _catalog = engine.catalog.lock();
    let id = new_id(engine, name)?;
    edit.push(Change::CreateFamily { family: id, name: name.into(), options: options.clone() });
    // Commits before this sequence number do not belong to this family.
    edit.push(Change::FlushedTo { family: id, seq: engine.write.log.sequencer().visible_end() - 1 });
    let made = publish_new(engine, id, name, options, edit)?;
    event.into_iter().for_each(|event| tell(engine, event));
    Ok(made)
}

/// Installs an edit that creates family `id`, and publishes the family with it.
pub(super) fn publish_new(
    engine: &Arc<Engine>,
    id: FamilyId,
    name: &str,
    options: FamilyOptions,
    edit: VersionEdit,
) -> Result<Arc<FamilyCore>> {
    options.compression.require()?;
    let mut made = None;
    engine.maintenance.install_with(&edit, |versions| {
        if let Some(version) = versions.get(&id) {
            let core = core(engine, id, name, options, Arc::clone(version));
            engine.write.families.write().insert(Arc::clone(&core));
            made = Some(core);
        }
    })?;
    engine.write.log.note_data(FAMILY_BYTES);
    engine.write.log.restore_reserve();
    made.ok_or_else(|| Error::internal("a new family has no version"))
}

/// Tables and bytes of each level of a family.
fn parts(family: &FamilyCore) -> Vec<LevelPart> {
    let mut parts: Vec<LevelPart> = Vec::new();
    for run in family.owned_view().version.runs() {
        let bytes = run.tables().map(|table| table.meta().file_bytes);
        let part = LevelPart { level: run.level(), tables: bytes.clone().count() as u64, bytes: bytes.sum() };
        match parts.last_mut().filter(|last| last.level == part.level) {
            Some(last) => (last.tables, last.bytes) = (last.tables + part.tables, last.bytes + part.bytes),
            None => parts.push(part),
        }
    }
    parts
}

/// Fails if this build lacks the compression of a family.
pub(super) fn check_compression(engine: &Engine) -> Result<()> {
    engine.write.families.read().values().try_for_each(|family| family.options.compression().require())
}

/// Returns the family called `name`.
pub(super) fn by_name(engine: &Engine, name: &str) -> Option<Arc<FamilyCore>> {
    engine.write.families.read().named(name).cloned()
}

/// Returns the family called `name`, or `NotFound`.
pub(super) fn find(engine: &Engine, name: &str) -> Result<Arc<FamilyCore>> {
    by_name(engine, name).ok_or_else(|| Error::no_family(name))
}

impl Family {
    /// Changes the settings that `options` name ([`FamilyOptions`]), for good, and for what is written from now on: the next memtable,
    /// flush, merge or value. Existing data stays as it is. A merge operator can be added to a family that has none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::FamilyOptions;
    /// let family = db.default_family();
    /// family.change_options(FamilyOptions::default().value_threshold(4096))?;
    /// assert_eq!(family.current_options().value_threshold, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the key order differs, or a merge operator is replaced or removed; `NotFound` (dropped family), `Io`,
    /// `ReadOnly`, `Poisoned`, `Closed`. Nothing changed.
    pub fn change_options(&self, options: FamilyOptions) -> Result<()> {
        self.change(options, true)
    }

    /// Like [`Family::change_options`], until the database is closed: the next open finds the settings that were stored.
    ///
    /// # Errors
    /// As [`Family::change_options`]; `InvalidArgument` for a new merge operator, since its operands stay.
    pub fn change_options_until_close(&self, options: FamilyOptions) -> Result<()> {
        self.change(options, false)
    }

    fn change(&self, options: FamilyOptions, keep: bool) -> Result<()> {
        self.ctx.database()?.change_options(&self.core, options, keep)
    }
}

/// Changes the settings of a family: see [`OpenDatabase::change_options`](crate::context::OpenDatabase::change_options).
pub(super) fn change_options(
    engine: &Engine,
    core: &Arc<FamilyCore>,
    options: FamilyOptions,
    keep: bool,
) -> Result<()> {
    let _call = engine.write.begin_call()?;
    let _catalog = engine.catalog.lock();
    core.check_usable()?;
    let stored = if keep { Some(options.clone().over(stored(engine, core)?)) } else { None };
    let options = options.over(core.options.now());
    core.options.check_change(&core.name(), &options)?;
    if !keep && core.options.adds_operator(&options) {
        return Err(Error::invalid("a merge operator is added for good, by change_options"));
    }
    if let Some(stored) = stored {
        let mut edit = VersionEdit::new();
        edit.push(Change::SetOptions { family: core.id, options: stored });
        engine.maintenance.install(&edit, &[core])?;
        tidesdb_sync::reclaim(); // the replaced view would keep its files while this thread is idle
    }
    core.options.change(&options);
    core.vlog.sizes.set_most(file_bytes(engine, &options));
    core.note_values(); // the limit of garbage may have changed
    core.ask_for_sweep();
    engine.write.jobs.push(Job::Compact(core.id)); // the trigger may have changed
    Ok(())
}

/// Applies and stores the settings that the caller names for an existing family.
///
/// # Errors
/// As [`Family::change_options`]; a database that is open for reading only keeps its settings.
pub(super) fn put_in_force(family: &Family, wanted: FamilyOptions) -> Result<()> {
    let options = &family.core.options;
    let all = wanted.clone().over(options.now());
    options.check_change(&family.core.name(), &all)?;
    if family.ctx.options.read_only || (options.are(&all) && is_stored(family, &wanted)?) {
        return Ok(());
    }
    family.change_options(wanted)
}

/// Returns whether the manifest has the settings that `wanted` names: those in force may end with the session.
fn is_stored(family: &Family, wanted: &FamilyOptions) -> Result<bool> {
    let stored = family.ctx.database()?.stored_options(&family.core)?;
    let wanted = wanted.clone().over(stored.clone());
    Ok(LiveOptions::new(stored).are(&wanted))
}

/// Returns the settings of a family that the manifest has.
pub(super) fn stored(engine: &Engine, family: &FamilyCore) -> Result<FamilyOptions> {
    let stored = engine.maintenance.versions.family(family.id);
    stored.map(|stored| stored.options.clone()).ok_or_else(|| Error::no_family(&family.name()))
}

impl Db {
    pub(super) fn handle(&self, core: Arc<FamilyCore>) -> Family {
        Family { core, ctx: Arc::clone(&self.inner.engine.write) }
    }

    /// Returns the family called `name`.
    ///
    /// # Errors
    /// `NotFound`, `Closed`.
    pub fn family(&self, name: &str) -> Result<Family> {
        self.inner.engine.reads.check_open()?;
        find(&self.inner.engine, name).map(|core| self.handle(core))
    }

    /// Returns whether there is a family called `name`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// assert!(!db.has_family("users"));
    /// db.create_family("users", Default::default())?;
    /// assert!(db.has_family("users"));
    /// assert_eq!(db.families(), ["default", "users"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_family(&self, name: &str) -> bool {
        by_name(&self.inner.engine, name).is_some()
    }

    /// Creates a family, at once and for good: no transaction undoes it. How tables become part of transactions, by a family that maps their
    /// names to families, is in `docs/design/0036-families-outside-transactions.md` in the repository.
    ///
    /// # Errors
    /// `Exists`, `InvalidArgument` (name), `MemoryLimit` (it says how many families fit), `Io`, `ReadOnly`, `Poisoned`, `Closed`.
    pub fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        let engine = &self.inner.engine;
        let created = Event::FamilyCreated { family: name.into(), source: "".into() };
        create(engine, name, options, VersionEdit::new(), Some(&created)).map(|core| self.handle(core))
    }

    /// Returns the family called `name`; creates it with `options` if there is none. If it exists, the settings that `options` name
    /// ([`FamilyOptions`]) are put in force and stored, and the others stay: `FamilyOptions::default()` changes nothing.
    ///
    /// # Errors
    /// As [`Db::create_family`], except `Exists`; `InvalidArgument`, naming both values, if a named setting differs that
    /// cannot change, such as the key order.
    pub fn family_or_create(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        let family = match self.family(name) {
            Err(Error::NotFound { .. }) => match self.create_family(name, options.clone()) {
                Err(Error::Exists { .. }) => self.family(name)?,
                other => return other,
            },
            other => other?,
        };
        put_in_force(&family, options)?;
        Ok(family)
    }

    /// Drops a family with all its data. Its files are removed when the last reader is gone.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` for the default family, `Io`, `ReadOnly`, `Poisoned`, `Closed`.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        let engine = &self.inner.engine;
        let _call = engine.write.begin_call()?;
        let _catalog = engine.catalog.lock();
        let core = self.find_other(name, "dropped")?;
        let mut edit = VersionEdit::new();
        edit.push(Change::DropFamily { family: core.id });
        let mut levels = Vec::new();
        let drop_it = || {
            engine.maintenance.install_with(&edit, |_| {
                levels = parts(&core); // no flush or merge installs any more
                core.set_dropped();
                engine.write.families.write().remove(&core);
            })
        };
        engine.maintenance.with_reserve(drop_it)?;
        tell(engine, &Event::FamilyDropped { family: core.name(), levels });
        core.give_up_taken();
        engine.write.pacing.subtract_flush_debt(core.forget_memtables());
        core.forget_tables();
        engine.write.jobs.set_small(core.id, false);
        if let Some(store) = engine.log_store() {
            store.kept.forget(core.id);
        }
        // Commits that are under way do not put it on this list again.
        engine.write.dirty_vlogs.lock().remove(&core.id);
        engine.maintenance.remove_obsolete();
        Ok(())
    }

    /// Renames a family. Handles stay valid.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `InvalidArgument` (name, or the default family), `Io`, `ReadOnly`, `Poisoned`, `Closed`.
    pub fn rename_family(&self, old: &str, new: &str) -> Result<()> {
        let engine = &self.inner.engine;
        let _call = engine.write.begin_call()?;
        let _catalog = engine.catalog.lock();
        let core = self.find_other(old, "renamed")?;
        let mut edit = VersionEdit::new();
        edit.push(Change::RenameFamily { family: core.id, name: new.into() });
        engine.maintenance.install_with(&edit, |_| engine.write.families.write().rename(&core, new))?;
        tell(engine, &Event::FamilyRenamed { family: new.into(), before: old.into() });
        Ok(())
    }

    /// Returns the family called `name`, unless it is the default family, which cannot be `changed`.
    fn find_other(&self, name: &str, changed: &str) -> Result<Arc<FamilyCore>> {
        let core = find(&self.inner.engine, name)?;
        if core.id == self.inner.default.id() {
            return Err(Error::invalid(format!("the default family cannot be {changed}")));
        }
        Ok(core)
    }

    /// Returns the names of all families, sorted. That of the default family ([`Db::default_family`]) is one of them.
    pub fn families(&self) -> Vec<String> {
        self.inner.engine.write.families.read().names().map(str::to_owned).collect()
    }
}
