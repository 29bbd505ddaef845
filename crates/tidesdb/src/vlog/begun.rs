//! The files of this session until the manifest names them as sealed, and the syncs that make them durable and complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use tidesdb_sync::{Mutex, RwLock, rank};

use super::facts::BegunFile;
use super::file::VlogFile;
use super::open::OpenFiles;
use crate::codec::Salt;
use crate::types::VlogId;
use crate::{Error, Result, files};

/// The files of this session that the manifest does not name as sealed.
#[derive(Default)]
pub struct BegunFiles {
    /// Including those that could not be reopened for reading.
    files: RwLock<BTreeMap<VlogId, Begun>, { rank::VLOG_BEGUN }>,
    /// Held while a sync runs. Contains the first failure: what that sync covered may be lost, so no later sync may
    /// succeed.
    syncing: Mutex<Option<Error>, { rank::VLOG_SYNCING }>,
}

struct Begun {
    salt: Salt,
    users: Arc<()>,
    /// The file as it is written, until it is complete.
    written: Option<Arc<VlogFile>>,
    /// Final length of a complete file.
    complete: Option<u64>,
}

impl BegunFiles {
    /// Adds a file to which nothing has been appended.
    pub(super) fn add(&self, file: &Arc<VlogFile>) {
        let (salt, users) = (file.salt, Arc::clone(&file.users));
        let begun = Begun { salt, users, written: Some(Arc::clone(file)), complete: None };
        self.files.write().insert(file.id, begun);
    }

    /// Returns the files that are not complete and that `which` selects.
    pub(super) fn written(&self, which: impl Fn(&VlogFile) -> bool) -> Vec<Arc<VlogFile>> {
        let files = self.files.read();
        let written = files.values().filter_map(|begun| begun.written.as_ref());
        written.filter(|file| which(file)).cloned().collect()
    }

    /// Makes all files durable, and their names. Those that receive no more appends are then complete, and `open` has them for reading only.
    ///
    /// # Errors
    /// `Io`. Every later call returns the same error, because the state of the values on disk is unknown.
    pub(super) fn sync(&self, open: &OpenFiles) -> Result<()> {
        let mut failed = self.syncing.lock();
        let files = self.written(|_| true);
        sync_files(open, &mut failed, &files)?;
        // The order of the checks matters: a write sets `dirty` before it is added to `settled`.
        let is_complete = |file: &&Arc<VlogFile>| file.sealed_len().is_some() && !file.is_dirty();
        // After a failed write the file may be shorter than what was reserved.
        let length = |file: &Arc<VlogFile>| (file.id, file.len().ok().or(file.sealed_len()));
        let complete: Vec<_> = files.iter().filter(is_complete).map(length).collect();
        drop(files);
        complete.into_iter().for_each(|(id, len)| self.complete(open, id, len));
        Ok(())
    }

    /// Makes the files durable that were begun before this call, so that the manifest may name them.
    ///
    /// # Errors
    /// As [`BegunFiles::sync`].
    pub(super) fn sync_begun(&self, open: &OpenFiles) -> Result<()> {
        let mut failed = self.syncing.lock();
        let files = self.written(|file| !file.is_durable());
        sync_files(open, &mut failed, &files)
    }

    /// Notes that a file has its final length, and opens it for reading. Files open for reading share a descriptor budget.
    fn complete(&self, open: &OpenFiles, id: VlogId, len: Option<u64>) {
        let written = self.files.write().get_mut(&id).and_then(|begun| begun.written.take());
        // Before the open: no other descriptor may be left.
        open.close(id);
        drop(written);
        let _ = open.get(id); // on failure, the next read opens it
        // After the open: the file may now be sealed, found dead and removed, and would stay open.
        if let Some(begun) = self.files.write().get_mut(&id) {
            begun.complete = len;
        }
    }

    /// Says which files may be sealed, and which may be named.
    pub fn facts(&self) -> Vec<BegunFile> {
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
        self.files.read().iter().map(file).collect()
    }

    /// Returns the files that the manifest may name: their headers and names are durable.
    pub fn nameable(&self) -> impl Iterator<Item = VlogId> + use<> {
        self.facts().into_iter().filter(|file| file.is_durable).map(|file| file.id)
    }

    /// The numbers of the files.
    pub(super) fn ids(&self) -> Vec<VlogId> {
        self.files.read().keys().copied().collect()
    }

    /// Called when the manifest names a file as sealed.
    pub fn sealed(&self, id: VlogId) {
        let mut files = self.files.write();
        if files.get(&id).is_some_and(|begun| begun.written.is_none()) {
            files.remove(&id);
        }
    }

    /// Forgets all files; returns their numbers.
    pub(super) fn take(&mut self) -> impl Iterator<Item = VlogId> + use<> {
        std::mem::take(self.files.get_mut()).into_keys()
    }
}

/// Makes `files` durable, and those names that are not. `failed` is the first failure of a sync.
fn sync_files(open: &OpenFiles, failed: &mut Option<Error>, files: &[Arc<VlogFile>]) -> Result<()> {
    if let Some(e) = &*failed {
        return Err(e.clone());
    }
    let dir = &open.dir;
    let sync_names = || match files.iter().all(|file| file.is_durable()) {
        true => Ok(()),
        false => dir.sync().map_err(|e| Error::io("sync", &dir.path().to_string_lossy(), e)),
    };
    if let Err(e) = files.iter().try_for_each(|file| file.sync()).and_then(|()| sync_names()) {
        files::note_failed_sync(&**dir);
        *failed = Some(e.clone());
        return Err(e);
    }
    files.iter().for_each(|file| file.set_durable());
    Ok(())
}
