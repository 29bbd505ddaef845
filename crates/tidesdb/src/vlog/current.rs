//! The files that receive appends.

use std::sync::Arc;

use tidesdb_io::Entropy;
use tidesdb_sync::{RwLock, rank};

use super::begun::BegunFiles;
use super::budget::WriteBudget;
use super::file::VlogFile;
use super::format::FileHeader;
use super::open::OpenFiles;
use super::sizes::FileSizes;
use crate::Result;
use crate::types::VlogId;

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

/// The current file of each lane, and what the next one needs.
pub(super) struct CurrentFiles {
    /// `None` until the first value of a file is appended.
    files: [RwLock<Option<Arc<VlogFile>>, { rank::VLOG_CURRENT }>; LANES],
    entropy: Arc<dyn Entropy>,
    new_id: Box<NewId>,
    /// Limit on files open for writing, and what makes room under it.
    pub(super) limit: Option<(Arc<WriteBudget>, Box<Relieve>)>,
    /// Called when a file receives no more appends.
    pub(super) on_close: Option<Box<OnClose>>,
}

impl CurrentFiles {
    pub(super) fn new(entropy: Arc<dyn Entropy>, new_id: Box<NewId>) -> Self {
        Self { files: Default::default(), entropy, new_id, limit: None, on_close: None }
    }

    pub(super) fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// Returns the file of `lane`.
    pub(super) fn of(&self, lane: Lane) -> Option<Arc<VlogFile>> {
        self.files[lane as usize].read().clone()
    }

    /// Returns whether the file receives appends.
    pub(super) fn has(&self, id: VlogId) -> bool {
        self.files.iter().any(|lane| lane.read().as_ref().is_some_and(|file| file.id == id))
    }

    /// Returns true if too many files are open for writing.
    pub(super) fn is_budget_spent(&self) -> bool {
        self.limit.as_ref().is_some_and(|(budget, _)| budget.is_spent())
    }

    /// Creates the next file of `lane`, unless another thread has replaced `full` as the current file.
    pub(super) fn begin(
        &self,
        lane: Lane,
        full: Option<&Arc<VlogFile>>,
        sizes: &FileSizes,
        (begun, open): (&BegunFiles, &OpenFiles),
    ) -> Result<()> {
        let mut current = self.files[lane as usize].write();
        if current.as_ref().map(|f| f.id) != full.map(|f| f.id) {
            return Ok(());
        }
        let header = FileHeader { family: open.family, vlog: (self.new_id)()?, salt: self.entropy.salt() };
        let counted = self.limit.as_ref().map(|(budget, _)| budget.count());
        let file = Arc::new(VlogFile::create(&*open.dir, header, sizes.of_new(), counted)?);
        begun.add(&file);
        open.add(Arc::clone(&file));
        sizes.add_filled(full.map_or(0, |full| full.settled_len()));
        if current.replace(file).is_some() {
            self.note_close();
        }
        Ok(())
    }

    /// Closes the files that `which` selects for appends; the next value creates a new one.
    pub(super) fn close(&self, sizes: &FileSizes, which: impl Fn(&VlogFile) -> bool) {
        for lane in &self.files {
            if let Some(file) = lane.write().take_if(|file| which(file)) {
                file.close();
                sizes.add_filled(file.settled_len());
                self.note_close();
            }
        }
    }

    fn note_close(&self) {
        if let Some(on_close) = &self.on_close {
            on_close();
        }
    }
}
