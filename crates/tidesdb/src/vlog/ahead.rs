//! Loads the values that a merge is about to move, before it gets to them.
//!
//! A merge moves values in the order of their keys, but in the files these values have no order. One read after the other would wait
//! for the device each time. So a second cursor over the same entries runs ahead and starts these reads.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use super::{ValueLoads, VlogPointer, VlogSet};
use crate::Result;
use crate::types::{EntryCursor, Kind, VlogId};

/// Bytes that are loaded ahead. They stay in the page cache until they are moved. A merge reads everything, so it begins with all of them.
const WINDOW_BYTES: u64 = 4 << 20;

/// A cursor that runs ahead of a merge.
pub struct LoadAhead {
    cursor: Box<dyn EntryCursor>,
    /// Key of the last entry that the cursor passed.
    passed: Vec<u8>,
    loads: ValueLoads,
    /// Values that are loading or loaded and that the merge has not reached, and bytes loaded for them.
    loading: VecDeque<(VlogPointer, u64)>,
    bytes: u64,
}

impl fmt::Debug for LoadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadAhead").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl LoadAhead {
    /// Runs ahead with `cursor`, which stands where the merge begins. `keeps`: the page cache can keep the files whose values move.
    pub fn new(cursor: Box<dyn EntryCursor>, keeps: bool) -> Self {
        let loads = ValueLoads::of_files(keeps);
        Self { cursor, passed: Vec::new(), loads, loading: VecDeque::new(), bytes: 0 }
    }

    /// The merge has reached the value at `pointer`: loads values of the files `from` of `set` that follow.
    ///
    /// # Errors
    /// Errors of reading the entries.
    pub(super) fn follow(
        &mut self,
        set: &VlogSet,
        from: &BTreeSet<VlogId>,
        pointer: &VlogPointer,
    ) -> Result<()> {
        if let Some(at) = self.loading.iter().position(|(loading, _)| loading == pointer) {
            // Values before it are not moved: the merge drops them.
            self.bytes -= self.loading.drain(..=at).map(|(_, bytes)| bytes).sum::<u64>();
        }
        while self.bytes < WINDOW_BYTES && self.cursor.valid() {
            // Only the value of the newest version of a key is loaded: the merge usually drops the others.
            if self.passed != self.cursor.key() {
                self.passed.clear();
                self.passed.extend_from_slice(self.cursor.key());
                if self.cursor.kind() == Kind::PutPointer
                    && let Some(pointer) = VlogPointer::decode(self.cursor.value()?)
                    && from.contains(&pointer.vlog)
                {
                    let bytes = self.loads.load(set, &[pointer]).max(pointer.record_bytes());
                    self.bytes += bytes;
                    self.loading.push_back((pointer, bytes));
                }
            }
            self.cursor.next()?;
        }
        Ok(())
    }
}
