//! Starts loading values for a reader of many.
//!
//! At first exactly the values that the reader wants next. The values of neighbouring keys may lie anywhere, so that is one request to the
//! device for each. A reader that wants a good part of all values will want those between them too: from then on whole blocks are
//! loaded, each once. A device that serves 50 thousand requests for a page in a second loads three times as many bytes in blocks
//! (docs/design/0006-value-log.md).

use std::collections::BTreeMap;

use super::{VlogPointer, VlogSet};
use crate::types::VlogId;

/// Length of a block in bytes.
const BLOCK_BYTES: u64 = 64 << 10;
/// A reader that wanted this part of the live bytes is taken for one that wants them all. With a larger part the slow beginning is longer,
/// with a smaller one more scans load blocks in vain.
const PART: u64 = 32;
/// A reader of fewer bytes is not taken for one, however few bytes are live: the number of live bytes may be older than the values.
const LEAST_BYTES: u64 = 4 * BLOCK_BYTES;

/// The loads of one reader of values.
#[derive(Debug)]
pub struct ValueLoads {
    /// Bytes wanted so far.
    wanted: u64,
    /// Whole blocks are loaded once `wanted` reaches this.
    blocks_from: u64,
    /// The blocks of each file that were loaded.
    loaded: BTreeMap<VlogId, Vec<bool>>,
}

impl ValueLoads {
    /// The loads of a scan of `set`. `keeps`: the page cache can keep all of the set, so that what was loaded is there
    /// when the scan wants it.
    pub fn of_scan(set: &VlogSet, keeps: bool) -> Self {
        Self::from(if keeps { (set.live() / PART).max(LEAST_BYTES) } else { u64::MAX })
    }

    /// The loads of a reader that wants most values of some files. `keeps`: the page cache can keep these files.
    pub fn of_files(keeps: bool) -> Self {
        Self::from(if keeps { 0 } else { u64::MAX })
    }

    fn from(blocks_from: u64) -> Self {
        Self { wanted: 0, blocks_from, loaded: BTreeMap::new() }
    }

    /// Starts loading the values at `wanted`, and returns the bytes that the device loads for them. Errors are left to the reads.
    pub fn load(&mut self, set: &VlogSet, wanted: &[VlogPointer]) -> u64 {
        if self.wanted < self.blocks_from {
            let bytes = wanted.iter().map(VlogPointer::record_bytes).fold(0, u64::saturating_add);
            self.wanted += bytes;
            set.load_many_ahead(wanted);
            return bytes;
        }
        let mut blocks = 0;
        for pointer in wanted {
            let Ok(file) = set.file(pointer.vlog) else { continue };
            let loaded = self.loaded.entry(pointer.vlog).or_default();
            file.load_blocks_ahead(pointer, BLOCK_BYTES, |block| {
                if loaded.len() <= block {
                    loaded.resize(block + 1, false);
                }
                let is_new = !std::mem::replace(&mut loaded[block], true);
                blocks += u64::from(is_new);
                is_new
            });
        }
        blocks * BLOCK_BYTES
    }
}
