//! Checkpoint and backup: a second database made of hard links or of copies, which opens on its own.
//!
//! All families are rotated at one boundary and flushed up to it while no other flush runs. So the tables hold a prefix
//! of the commits across all families. Then links to the files, or copies, and a new manifest are written to the
//! target.

use std::path::Path;
use std::sync::Arc;

use tidesdb_io::{Access, Dir, FileExt, PooledDir};

use super::Db;
use crate::maintenance::MaintenanceCtx;
use crate::sst::{Table, TableContext};
use crate::types::{Comparator, WalId};
use crate::version::{Change, Context, State, VersionEdit, VersionSet};
use crate::wal::layout::UNIT;
use crate::{Error, Result, files, flush};

/// Bytes copied per read.
const COPY_BYTES: u64 = 1 << 20;

impl Db {
    /// Makes a consistent copy of the database as of now, in the new or empty directory `path` on the same file system.
    /// Tables and value logs are hard links, so it is fast and at first needs no extra space.
    ///
    /// # Errors
    /// `Exists` if the directory is not empty, `InvalidArgument` for an empty path, on another file system, and on one without hard links,
    /// such as exFAT, `NoSpace`, `Io`, `Closed`, `Poisoned`.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.duplicate(path.as_ref(), link)
    }

    /// Makes a consistent copy of the database as of now, in the new or empty directory `path` on any file system. The
    /// copy shares nothing with the database and is durable when this returns. Commits, flushes and merges continue
    /// meanwhile.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tidesdb::Db::open(dir.path().join("db"))?;
    /// db.put(b"k", b"v")?;
    /// db.backup(dir.path().join("copy"))?;
    /// assert!(tidesdb::Db::open(dir.path().join("copy"))?.contains(b"k")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Exists` if the directory is not empty, `InvalidArgument` for an empty path, `NoSpace` in either place, `Io`, `Closed`, `Poisoned`.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<()> {
        self.duplicate(path.as_ref(), copy)
    }

    fn duplicate(&self, path: &Path, transfer: Transfer) -> Result<()> {
        let engine = &self.inner.engine;
        let _call = engine.write.begin_call()?;
        let catalog = engine.catalog.lock();
        let flush::Prefix { state, versions, families, .. } = flush::prefix(&engine.maintenance)?;
        drop(catalog);
        let result = write(&engine.maintenance, &state, path, transfer);
        drop((versions, families)); // these kept the files alive, also of families dropped meanwhile
        result
    }
}

/// Links or copies a file of the database into another directory, under the same name.
type Transfer = fn(&MaintenanceCtx, &str, &Arc<dyn Dir>) -> Result<()>;

fn write(ctx: &MaintenanceCtx, state: &State, path: &Path, transfer: Transfer) -> Result<()> {
    files::check_path(path)?;
    let name = path.display().to_string();
    let target = ctx.write.env.disk.open_dir(path, true).map_err(|e| Error::io("create", &name, e))?;
    let target = PooledDir::wrap(target, &ctx.write.env.descriptors);
    let exists = || Error::Exists {
        what: format!("a file or folder in the directory {name}, which must be empty,").into(),
    };
    if !target.is_empty().map_err(|e| Error::io("list", &name, e))? {
        return Err(exists());
    }
    let lock = target.lock(files::LOCK, true).map_err(|e| Error::io("lock", &name, e))?;
    // Again: another copy may have come in between, and its files are not removed below.
    if target.list().map_err(|e| Error::io("list", &name, e))?.iter().any(|file| file != files::LOCK) {
        return Err(exists());
    }
    let result = fill(ctx, state, &target, transfer);
    if result.is_err() {
        // A failed copy must not look like a database, at no moment.
        let _ = target.unlink(files::CURRENT);
        for file in target.list().unwrap_or_default() {
            let _ = target.unlink(&file);
        }
    }
    drop(lock);
    result
}

fn link(ctx: &MaintenanceCtx, name: &str, target: &Arc<dyn Dir>) -> Result<()> {
    ctx.dir.link(name, &**target, name).map_err(|e| match e.kind() {
        std::io::ErrorKind::CrossesDevices => {
            Error::invalid("a checkpoint must be on the same file system; use a backup otherwise")
        }
        std::io::ErrorKind::Unsupported => {
            Error::invalid("the file system has no hard links, of which a checkpoint consists; use a backup")
        }
        _ => Error::io("link", name, e),
    })
}

/// Copies the current length of the file. A value log may grow meanwhile, but the copy does not refer to the new bytes.
fn copy(ctx: &MaintenanceCtx, name: &str, target: &Arc<dyn Dir>) -> Result<()> {
    let file = ctx.dir.open(name, Access::Read).map_err(|e| Error::io("open", name, e))?;
    let len = file.len().map_err(|e| Error::io("stat", name, e))?;
    let copied = target.create_new(name, len).and_then(|new| {
        let mut buf = vec![0; COPY_BYTES.min(len) as usize];
        for at in (0..len).step_by(COPY_BYTES as usize) {
            if ctx.write.jobs.is_closed() {
                return Ok(false);
            }
            let part = &mut buf[..COPY_BYTES.min(len - at) as usize];
            file.read_exact_at(part, at)?;
            new.write_all_at(part, at)?;
        }
        new.sync_all().map(|()| true)
    });
    let whole = copied.map_err(|e| match Error::io("copy", name, e) {
        e if e.is_full() => Error::NoSpace {
            dir: target.path().display().to_string().into(),
            free: target.space().map_or(0, |space| space.free),
            needed: len,
        },
        e => e,
    })?;
    if whole { Ok(()) } else { Err(Error::Closed) }
}

/// Transfers the files first, then writes a manifest that names them all. Until `CURRENT` exists, nothing looks like a
/// database.
fn fill(ctx: &MaintenanceCtx, state: &State, target: &Arc<dyn Dir>, transfer: Transfer) -> Result<()> {
    state.file_names().try_for_each(|name| {
        ctx.write.jobs.check_open()?;
        transfer(ctx, &name, target)
    })?;
    target.sync().map_err(|e| Error::io("sync", &target.path().display().to_string(), e))?;
    let tables = TableContext::new(target, &ctx.write.memory, 0);
    let comparators: Vec<Comparator> =
        ctx.write.all_families().iter().map(|f| f.options.comparator.clone()).collect();
    let context = Context {
        dir: Arc::clone(target),
        entropy: Arc::clone(&ctx.write.env.entropy),
        threads: Arc::clone(&ctx.write.env.threads),
        comparators,
        operators: Vec::new(),
        lacks_operators: true,
        leaves_out: false,
        open_table: Arc::new(move |family, meta| {
            Table::open(&tables, &family.options.comparator, meta.clone())
        }),
    };
    let segment_bytes = ctx.versions.identity().wal_segment_bytes;
    let log_start = WalId(state.log_start.0.max(state.newest_seq() * UNIT / segment_bytes) + 1);
    let copy = VersionSet::create_with(context, segment_bytes, state.clone())?;
    // The copy has no log. Its first log begins above every sequence number already assigned.
    let mut edit = VersionEdit::new();
    edit.push(Change::LogStart { wal: log_start });
    copy.close(&edit)
}
