//! Files that no version needs.
//!
//! Each slot of a version owns a [`FileGuard`]. When an edit that drops the file is durable, the guard is marked
//! obsolete. When the last version or reader that shares the slot is gone, the guard puts the file on the queue. The
//! background unlinks the files on the queue; failures stay on it. Files that a crash left behind are orphans at the
//! next open. So a file is never unlinked before the manifest has durably removed it, nor while a reader uses it.
//!
//! A value log has one guard, which the first version that names it or the first reader of one of its values makes: a memtable may refer
//! to a file before the manifest names it. So a reader keeps the files of its value, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tidesdb_io::Dir;
use tidesdb_sync::{Mutex, rank};

use super::state::State;
use crate::files::{self, FileKind};
use crate::order::Gather;
use crate::types::{TableId, VlogId};

/// Extension of a file set aside.
const ORPHAN: &str = ".orphan";

/// Queue of files to unlink.
#[derive(Debug, Default)]
pub struct ObsoleteFiles {
    files: Mutex<Files, { rank::OBSOLETE }>,
    /// Obsolete files that a version or a reader still uses.
    in_use: AtomicUsize,
}

#[derive(Debug, Default)]
struct Files {
    queue: Vec<FileKind>,
    /// The guards of value logs that are in use.
    values: BTreeMap<VlogId, Weak<FileGuard>>,
}

impl ObsoleteFiles {
    /// Adds a file that no version and no reader needs, and that the manifest in force does not name.
    pub(super) fn push(&self, file: FileKind) {
        self.files.lock().queue.push(file);
    }

    /// Returns the guard of a value log, which exists.
    pub(super) fn value(self: &Arc<Self>, id: VlogId) -> Arc<FileGuard> {
        let mut files = self.files.lock();
        if let Some(guard) = files.values.get(&id).and_then(Weak::upgrade) {
            return guard;
        }
        let guard = Arc::new(FileGuard::new(FileKind::Vlog(id), self));
        files.values.insert(id, Arc::downgrade(&guard));
        guard
    }

    /// Forgets the guard of a value log, unless there is a new one.
    fn forget(&self, id: VlogId) {
        let values = &mut self.files.lock().values;
        if values.get(&id).is_some_and(|guard| guard.strong_count() == 0) {
            values.remove(&id);
        }
    }

    /// Takes all files from the queue.
    pub fn take(&self) -> Vec<FileKind> {
        std::mem::take(&mut self.files.lock().queue)
    }

    /// Returns the number of obsolete files that a version or a reader still uses.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }

    /// Returns the number of queued files.
    pub fn len(&self) -> usize {
        self.files.lock().queue.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unlinks the queued files, each after `close`; returns how many. Files that could not be unlinked stay on the queue.
    pub fn unlink_all(&self, dir: &dyn Dir, close: impl Fn(FileKind)) -> usize {
        let files = self.take();
        let count = files.len();
        let gone = |file: FileKind| {
            close(file);
            unlink(dir, file)
        };
        let failed: Vec<FileKind> = files.into_iter().filter(|f| !gone(*f)).collect();
        let gone = count - failed.len();
        self.files.lock().queue.extend(failed);
        gone
    }
}

fn unlink(dir: &dyn Dir, file: FileKind) -> bool {
    let Some(name) = name_of(file) else { return true };
    match dir.unlink(&name) {
        Ok(()) => true,
        Err(e) if e.kind() == ErrorKind::NotFound => true,
        Err(e) => {
            tracing::warn!(file = %name, error = %e, "an obsolete file could not be unlinked; it will be retried");
            false
        }
    }
}

/// Returns the name of a numbered file.
fn name_of(file: FileKind) -> Option<String> {
    match file {
        FileKind::Manifest(n) => Some(files::manifest(n)),
        FileKind::Wal(id) => Some(files::wal(id)),
        FileKind::Table(id) => Some(files::table(id)),
        FileKind::Vlog(id) => Some(files::vlog(id)),
        _ => None,
    }
}

/// Keeps a file alive for its owner. Dropping the guard of an obsolete file queues the file for unlinking.
#[derive(Debug)]
pub struct FileGuard {
    file: FileKind,
    obsolete: AtomicBool,
    queue: Arc<ObsoleteFiles>,
}

impl FileGuard {
    pub(super) fn new(file: FileKind, queue: &Arc<ObsoleteFiles>) -> Self {
        Self { file, obsolete: AtomicBool::new(false), queue: Arc::clone(queue) }
    }

    /// Records that the durable manifest no longer names the file.
    pub(super) fn set_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.queue.in_use.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        if let FileKind::Vlog(id) = self.file {
            self.queue.forget(id);
        }
        if self.obsolete.load(Ordering::Acquire) {
            self.queue.push(self.file);
            self.queue.in_use.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Result of settling the orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanReport {
    /// Files set aside.
    pub set_aside: usize,
    /// Files that an earlier open had set aside, unlinked now.
    pub unlinked: usize,
    /// Files that could not be renamed or unlinked; the next open retries.
    pub failed: usize,
}

/// Files found in the directory at open that the manifest does not name.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    strays: Vec<String>,
    aside: Vec<String>,
}

impl Orphans {
    /// Finds orphans among `names`, which must not contain the manifest in force. The manifest `spent` will be unlinked
    /// and is no orphan. Files set aside earlier may be unlinked only if the last session was closed cleanly.
    pub(super) fn find(names: &[String], state: &State, spent: Option<u64>, clean: bool) -> Self {
        let aside = |name: &str| match files::parse(name) {
            Some(FileKind::Building) => true, // nothing can refer to it
            kind => clean && name.ends_with(ORPHAN) && kind == Some(FileKind::Aside),
        };
        Self {
            strays: strays(names, state, spent),
            aside: names.iter().filter(|n| aside(n)).cloned().collect(),
        }
    }

    /// Renames orphans to set them aside, except those that `state` names by now: recovery adopts value logs that only
    /// the log referred to. Unlinks what was set aside earlier.
    pub(super) fn settle(self, dir: &dyn Dir, state: &State) -> OrphanReport {
        let mut report = OrphanReport::default();
        for name in self.aside {
            count(dir.unlink(&name), &name, &mut report.unlinked, &mut report.failed);
        }
        for name in strays(&self.strays, state, None) {
            let to = format!("{name}{ORPHAN}");
            count(dir.rename(&name, &to), &name, &mut report.set_aside, &mut report.failed);
        }
        report
    }
}

/// Returns the tables, value logs and manifests among `names` that `state` does not name, without the manifest `spent`.
fn strays(names: &[String], state: &State, spent: Option<u64>) -> Vec<String> {
    let tables: BTreeSet<TableId> = state.families.values().flat_map(|f| f.tables.ids()).gather();
    let vlogs: BTreeSet<&VlogId> = state.families.values().flat_map(|f| f.vlogs.keys()).gather();
    let is_stray = |name: &&String| match files::parse(name) {
        Some(FileKind::Table(id)) => !tables.contains(&id),
        Some(FileKind::Vlog(id)) => !vlogs.contains(&id),
        Some(FileKind::Manifest(n)) => spent != Some(n),
        _ => false,
    };
    names.iter().filter(is_stray).cloned().collect()
}

fn count(done: std::io::Result<()>, name: &str, good: &mut usize, bad: &mut usize) {
    match done {
        Ok(()) => *good += 1,
        Err(e) => {
            tracing::warn!(file = %name, error = %e, "an orphan could not be set aside or unlinked; the next open retries");
            *bad += 1;
        }
    }
}
