//! The files that are open, and the directory in which others are found by their numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb_io::Dir;
use tidesdb_sync::{RwLock, rank};

use super::facts::VlogInfo;
use super::file::VlogFile;
use crate::types::{FamilyId, VlogId};
use crate::{Error, Result};

/// The open files of one family. Others are opened when they are needed.
pub struct OpenFiles {
    pub(super) dir: Arc<dyn Dir>,
    pub(super) family: FamilyId,
    files: RwLock<BTreeMap<VlogId, Arc<VlogFile>>, { rank::VLOG_FILES }>,
    /// Set before the directory is unlocked: another open may then remove any file.
    closed: Arc<AtomicBool>,
}

impl OpenFiles {
    pub(super) fn new(dir: Arc<dyn Dir>, family: FamilyId) -> Self {
        Self { dir, family, files: RwLock::default(), closed: Arc::default() }
    }

    pub(super) fn until(&mut self, closed: &Arc<AtomicBool>) {
        self.closed = Arc::clone(closed);
    }

    /// Returns the file `id`, opening it if necessary.
    pub(super) fn get(&self, id: VlogId) -> Result<Arc<VlogFile>> {
        if let Some(file) = self.files.read().get(&id) {
            return Ok(Arc::clone(file));
        }
        // Two threads may open the file at once; the first one inserted is kept.
        let opened = VlogFile::open(&*self.dir, self.family, id);
        let judged = |e| if self.closed.load(Ordering::SeqCst) { Error::Closed } else { e };
        let file = Arc::new(opened.map_err(judged)?);
        Ok(Arc::clone(self.files.write().entry(id).or_insert(file)))
    }

    /// Returns the file `id` if it is open.
    pub(super) fn find(&self, id: VlogId) -> Option<Arc<VlogFile>> {
        self.files.read().get(&id).cloned()
    }

    /// Returns whether the file is open.
    pub fn has(&self, id: VlogId) -> bool {
        self.files.read().contains_key(&id)
    }

    /// Opens a file by its name, also if it is open, so that all its bytes can be read from now on even if another process
    /// removes the name. A file that is open may have been mapped when it was shorter.
    ///
    /// # Errors
    /// `Corrupt` if the file is missing or its header is damaged; `Io`; `FormatTooNew`.
    pub fn open_anew(&self, id: VlogId) -> Result<()> {
        self.add(Arc::new(VlogFile::open(&*self.dir, self.family, id)?));
        Ok(())
    }

    pub(super) fn add(&self, file: Arc<VlogFile>) {
        self.files.write().insert(file.id, file);
    }

    /// Closes a file. The next [`OpenFiles::get`] reopens it; who uses it keeps it.
    pub fn close(&self, id: VlogId) {
        let closed = self.files.write().remove(&id);
        drop(closed); // without the lock
    }

    /// The open files in ascending number order.
    pub fn infos(&self) -> Vec<VlogInfo> {
        self.files.read().values().map(|file| VlogInfo::of(file)).collect()
    }

    /// Takes over the open files of `from`, another set of the same family, that `keep` selects.
    pub fn adopt(&self, from: &Self, keep: impl Fn(VlogId) -> bool) {
        let files = from.files.read().clone();
        self.files.write().extend(files.into_iter().filter(|(id, _)| keep(*id)));
    }

    /// Closes all files; returns their numbers.
    pub(super) fn take(&mut self) -> impl Iterator<Item = VlogId> + use<> {
        std::mem::take(self.files.get_mut()).into_keys()
    }
}
