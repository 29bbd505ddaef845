//! Loads the values that a merge is about to move, before it gets to them.
//!
//! A merge meets values in the order of their keys, which is no order in their files. One read after the other would wait for the device
//! each time. So a second cursor over the same entries runs ahead and starts these reads.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use super::{ValueLoads, ValuePlace, VlogSet};
use crate::Result;
use crate::types::{Comparator, EntryCursor, Kind, VlogId};

/// Bytes that are loaded ahead. They stay in the page cache until they are moved.
const WINDOW_BYTES: u64 = 4 << 20;

/// A cursor that runs ahead of a merge.
pub struct LoadAhead {
    cursor: Box<dyn EntryCursor>,
    order: Comparator,
    loads: ValueLoads,
    /// Values that were asked for and that the merge has not reached: keys, and bytes loaded for them.
    asked: VecDeque<(Vec<u8>, u64)>,
    bytes: u64,
}

impl fmt::Debug for LoadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadAhead").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl LoadAhead {
    /// Runs ahead with `cursor`, which stands where the merge begins. `keeps`: the page cache can keep the files whose values move.
    pub fn new(cursor: Box<dyn EntryCursor>, order: Comparator, keeps: bool) -> Self {
        Self { cursor, order, loads: ValueLoads::of_files(keeps), asked: VecDeque::new(), bytes: 0 }
    }

    /// The merge has reached `key`: loads values of the files `from` of `set` that follow.
    ///
    /// # Errors
    /// Those of reading the entries.
    pub(super) fn follow(&mut self, set: &VlogSet, from: &BTreeSet<VlogId>, key: &[u8]) -> Result<()> {
        while let Some((first, bytes)) = self.asked.front()
            && self.order.compare(first, key).is_le()
        {
            self.bytes -= bytes;
            self.asked.pop_front();
        }
        while self.bytes < WINDOW_BYTES && self.cursor.valid() {
            let is_asked = self.asked.back().is_some_and(|(last, _)| *last == self.cursor.key());
            // The merge keeps the newest version of a key, as a rule.
            if !is_asked && self.cursor.kind() == Kind::PutPointer {
                let place = ValuePlace::decode(self.cursor.value()?);
                if let Some(ValuePlace::Record(pointer)) = place
                    && from.contains(&pointer.vlog)
                    && self.order.compare(self.cursor.key(), key).is_gt()
                {
                    let bytes = self.loads.load(set, &[pointer]).max(pointer.record_bytes());
                    self.bytes += bytes;
                    self.asked.push_back((self.cursor.key().to_vec(), bytes));
                }
            }
            self.cursor.next()?;
        }
        Ok(())
    }
}
