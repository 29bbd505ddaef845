//! Checkpoint: a second database made of hard links, openable on its own.
//!
//! All families are rotated at one boundary and flushed up to it while no other flush runs, so the tables are a prefix
//! of the commits across all families. Then the state is written as a new manifest beside links to its files.

use std::path::Path;
use std::sync::Arc;

use tidesdb_cache::Cache;
use tidesdb_io::Dir;

use super::Db;
use crate::shared::Shared;
use crate::sst::{Table, TableContext};
use crate::types::{Comparator, WalId};
use crate::version::{Change, Context, State, VersionEdit, VersionSet};
use crate::wal::layout::UNIT;
use crate::{Error, Result, files, flush};

impl Db {
    /// Makes a consistent copy of the database, as of now, in the new or empty directory `path` of the same file system.
    /// Tables and value logs are hard links: it takes little time and, at first, no space.
    ///
    /// # Errors
    /// `Exists` if the directory is not empty, `InvalidArgument` on another file system, `NoSpace`, `Io`, `Closed`, `Poisoned`.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        let shared = &self.inner.shared;
        shared.check_writable()?;
        let _catalog = shared.catalog.lock();
        let families = shared.all_families();
        let flushing: Vec<_> = families.iter().map(|f| f.flushing.lock()).collect();
        let boundary = shared.rotate_all(&families);
        for family in &families {
            flush::up_to(shared, family, boundary)?; // and no further: the copy holds a prefix of the commits
        }
        let (state, versions) = shared.versions.pinned_state();
        drop(flushing);
        let result = write(shared, &state, path.as_ref());
        drop(versions);
        result
    }
}

fn write(shared: &Arc<Shared>, state: &State, path: &Path) -> Result<()> {
    let name = path.display().to_string();
    let target = shared.env.disk.open_dir(path, true).map_err(|e| Error::io("create", &name, e))?;
    if !target.list().map_err(|e| Error::io("list", &name, e))?.is_empty() {
        return Err(Error::Exists { what: format!("something in {name}").into() });
    }
    let lock = target.lock(files::LOCK, true).map_err(|e| Error::io("lock", &name, e))?;
    let result = fill(shared, state, &target);
    if result.is_err() {
        // Nothing of a failed checkpoint may look like a database.
        for file in target.list().unwrap_or_default() {
            let _ = target.unlink(&file);
        }
    }
    drop(lock);
    result
}

fn link_all(shared: &Shared, state: &State, target: &Arc<dyn Dir>) -> Result<()> {
    let tables = state.families.values().flat_map(|f| f.tables.keys().map(|id| files::table(*id)));
    let vlogs = state.families.values().flat_map(|f| f.vlogs.keys().map(|id| files::vlog(*id)));
    for name in tables.chain(vlogs) {
        shared.dir.link(&name, &**target, &name).map_err(|e| match e.kind() {
            std::io::ErrorKind::CrossesDevices => {
                Error::invalid("a checkpoint must be on the file system of the database")
            }
            _ => Error::io("link", &name, e),
        })?;
    }
    target.sync().map_err(|e| Error::io("sync", &target.path().display().to_string(), e))
}

/// The files first, then a first manifest that names them all: until `CURRENT` is there nothing looks like a database.
fn fill(shared: &Shared, state: &State, target: &Arc<dyn Dir>) -> Result<()> {
    link_all(shared, state, target)?;
    let tables = TableContext { dir: Arc::clone(target), cache: Arc::new(Cache::new(0)), use_mmap: false };
    let comparators: Vec<Comparator> =
        shared.all_families().iter().map(|f| f.options.comparator.clone()).collect();
    let context = Context {
        dir: Arc::clone(target),
        entropy: Arc::clone(&shared.env.entropy),
        comparators,
        may_wait: |_| true,
        open_table: Box::new(move |family, meta| {
            Table::open(&tables, &family.options.comparator, meta.clone())
        }),
    };
    let segment_bytes = shared.versions.identity().wal_segment_bytes;
    let log_start = WalId(state.log_start.0.max(state.last_seq * UNIT / segment_bytes) + 1);
    let copy = VersionSet::create_with(context, segment_bytes, state.clone())?;
    // The copy has no log, and one that is begun later comes after every number that was given out.
    let mut edit = VersionEdit::new();
    edit.push(Change::LogStart { wal: log_start });
    copy.close(&edit)
}
