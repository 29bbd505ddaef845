//! How many values are loaded at once: which the device is asked for, and which are read with one call.
//!
//! Every reader of many values does the same: it starts the loads of those that it wants next, so that the device works on all of them at
//! the same time, and reads them afterwards. Values that lie near each other are one request. The readers differ in what they want next:
//!
//! | reader | wants | in |
//! | --- | --- | --- |
//! | `multi_get` | the values of up to 128 keys | `read/get.rs` |
//! | a long scan | the values of the next rows: a second cursor runs ahead | `read/stored.rs` |
//! | a merge that moves values | the next 4 MiB of them: a second cursor runs ahead ([`LoadAhead`]) | `mover.rs` |
//! | a reader of a long value | the next chunk | `read/value.rs` |
//!
//! A scan or a merge begins with requests for exactly the values that it wants. The values of neighbouring keys may lie anywhere, so that is
//! one request to the device for each. A reader that wants a good part of all values will want those between them too: from then on whole
//! blocks are loaded, each once. A device that serves 50 thousand requests for a page in a second loads three times as many bytes in blocks
//! (docs/design/0006-value-log.md).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::{VlogPointer, VlogSet};
use crate::Result;
use crate::order::sort_places;
use crate::types::{EntryCursor, VlogId};

/// Longest record that is read together with its neighbours.
const NEAR_BYTES_MAX: u64 = 80 << 10;
/// Maximum bytes between two records that are read together.
const GAP_BYTES_MAX: u64 = 8 << 10;
/// Length of a block in bytes.
const BLOCK_BYTES: u64 = 64 << 10;
/// A reader that wanted this part of the live bytes is taken for one that wants them all. With a larger part the slow beginning is longer,
/// with a smaller one more scans load blocks in vain.
const PART: u64 = 32;
/// A reader of fewer bytes is not taken for one, however few bytes are live: the number of live bytes may be older than the values.
const LEAST_BYTES: u64 = 4 * BLOCK_BYTES;
/// Bytes that a merge loads ahead. They stay in the page cache until they are moved. A merge reads everything, so it begins with all of them.
const WINDOW_BYTES: u64 = 4 << 20;

impl VlogSet {
    /// Starts loading the values that [`VlogSet::read_many`] will read, so that the device works on all of them. Errors are left to the
    /// reads.
    pub fn load_many(&self, wanted: &[VlogPointer]) {
        for group in groups(wanted, &order_in_files(wanted)) {
            let (first, last) = (&wanted[group[0]], &wanted[group[group.len() - 1]]);
            if let Ok(file) = self.file(first.vlog) {
                file.load_ahead(first, last);
            }
        }
    }

    /// Reads the values that `wanted` address, in the order in which they lie in the files. Records that are near each
    /// other are read with one call. Passes each result to `visit` with its index in `wanted`.
    pub fn read_many(&self, wanted: &[VlogPointer], mut visit: impl FnMut(usize, Result<Vec<u8>>)) {
        for group in groups(wanted, &order_in_files(wanted)) {
            match (group, self.file(wanted[group[0]].vlog)) {
                ([i], Ok(file)) => visit(*i, file.read(&wanted[*i])),
                (_, Ok(file)) => file.read_group(wanted, group, &mut visit),
                (_, Err(e)) => group.iter().for_each(|&i| visit(i, Err(e.clone()))),
            }
        }
    }
}

/// Returns the indexes of `wanted` in the order in which the records lie in the files.
fn order_in_files(wanted: &[VlogPointer]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let place = |i: usize| (wanted[i].vlog, wanted[i].offset);
    sort_places(&mut order, &mut |a, b| place(a).cmp(&place(b)));
    order
}

/// Divides `order`, indexes of `wanted`, into groups of records that are near each other.
fn groups<'o>(wanted: &[VlogPointer], order: &'o [usize]) -> impl Iterator<Item = &'o [usize]> {
    order.chunk_by(|&a, &b| is_near(&wanted[a], &wanted[b]))
}

/// Returns whether the record `b` begins so soon after `a`, and both are so short, that they are read with one call.
fn is_near(a: &VlogPointer, b: &VlogPointer) -> bool {
    let gap = b.offset.checked_sub(a.offset.saturating_add(a.record_bytes()));
    let short = |p: &VlogPointer| p.record_bytes() <= NEAR_BYTES_MAX;
    a.vlog == b.vlog && gap.is_some_and(|gap| gap <= GAP_BYTES_MAX) && short(a) && short(b)
}

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
        Self::from(if keeps { (set.sizes.live() / PART).max(LEAST_BYTES) } else { u64::MAX })
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
            set.load_many(wanted);
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

/// A cursor over the entries of a merge. It runs ahead of the merge and starts the loads of the values that are to be moved.
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
                if self.cursor.kind().holds_pointer()
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
