//! How large the next file of a set may be.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::FILE_BYTES_MAX;

/// Minimum size of a file in bytes: a smaller file is never full.
pub(super) const FILE_BYTES_MIN: u64 = 4096;
/// The size limit of a new file is this part of the live bytes, so that a small set has small files: space is freed file by file.
const FILE_PART: u64 = 16;
/// Minimum size limit of a new file, however few bytes are live: a file costs two syncs.
const FILE_BYTES_LEAST: u64 = 8 << 20;

/// What the size of new files follows.
#[derive(Debug)]
pub struct FileSizes {
    most: AtomicU64,
    /// Live bytes of all files when they were last counted.
    live: AtomicU64,
    /// Bytes of the files that were filled in this session.
    filled: AtomicU64,
    /// Bytes of the long values that are being written.
    coming: AtomicU64,
}

impl FileSizes {
    pub(super) fn new(most: u64) -> Self {
        let sizes = Self {
            most: AtomicU64::new(0),
            live: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            coming: AtomicU64::new(0),
        };
        sizes.set_most(most);
        sizes
    }

    /// Sets the size limit of files created from now on.
    pub fn set_most(&self, bytes: u64) {
        self.most.store(bytes.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX), Ordering::Relaxed);
    }

    /// Returns the size of new files.
    pub fn of_new(&self) -> u64 {
        let part = self.live() / FILE_PART;
        part.max(self.coming.load(Ordering::Relaxed))
            .max(FILE_BYTES_LEAST)
            .min(self.most.load(Ordering::Relaxed))
    }

    /// Sets the live bytes of all files.
    pub fn set_live(&self, bytes: u64) {
        self.live.store(bytes, Ordering::Relaxed);
    }

    /// Returns the live bytes of all files when they were last counted.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Counts a file that was filled.
    pub(super) fn add_filled(&self, bytes: u64) {
        self.filled.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the files that were filled in this session.
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    /// Announces a long value.
    pub(super) fn expect(&self, bytes: u64) {
        self.coming.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes an announcement back.
    pub(super) fn expected(&self, bytes: u64) {
        self.coming.fetch_sub(bytes, Ordering::Relaxed);
    }
}
