//! Read-ahead of values in value logs.
//!
//! The values of neighbouring keys may lie anywhere in the value logs. So once a scan in one direction has read some of
//! them, a second cursor runs ahead, collects the pointers of the next rows, and their values are read in the order in
//! which they lie in the files: neighbours with one call. The number of rows doubles from fill to fill, so a short scan
//! reads little in vain.

use std::collections::VecDeque;

use crate::Result;
use crate::types::{EntryCursor, Kind, Slice};
use crate::vlog::{ValueLoads, VlogPointer, VlogSet};

/// Values read one by one before read-ahead starts.
const VALUES: u32 = 8;
/// Rows of the first fill, and of the longest.
const FEWEST: usize = 8;
const MOST: usize = 64;
/// Most bytes of values to hold. Longer values keep the disk busy on their own.
const BYTES_MAX: u64 = 1 << 20;
/// Longest value to read ahead.
const VALUE_BYTES_MAX: u32 = 64 << 10;

/// Values that were read ahead of a cursor, and the second cursor, of type `C`.
#[derive(Debug)]
pub(super) struct StoredAhead<C> {
    backwards: bool,
    /// Values read since the last seek or turn.
    values: u32,
    buffer: Option<Box<Buffer<C>>>,
}

#[derive(Debug)]
struct Buffer<C> {
    /// Stands on the first row whose pointer was not collected.
    scout: C,
    loads: ValueLoads,
    /// In the order of the scan.
    read: VecDeque<(VlogPointer, Result<Slice>)>,
    /// Values that the device is loading: those of the rows after `read`.
    loading: Vec<VlogPointer>,
    /// The second cursor met an error after these rows.
    failed: bool,
    /// Rows of the next fill.
    rows: usize,
    /// Bytes of the values of the last fill, and of their places.
    bytes: usize,
}

impl<C> Default for StoredAhead<C> {
    fn default() -> Self {
        Self { backwards: false, values: 0, buffer: None }
    }
}

impl<C: EntryCursor> StoredAhead<C> {
    /// Bytes of the values that were read ahead, and of the second cursor without its blocks.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| size_of::<Buffer<C>>() + buffer.bytes)
    }

    /// Starts anew: the cursor moves elsewhere.
    #[inline]
    pub(super) fn forget(&mut self) {
        if self.values > 0 {
            self.values = 0;
            self.buffer = None;
        }
    }

    /// Notes the direction of a step; a turn starts anew.
    #[inline]
    pub(super) fn step(&mut self, backwards: bool) {
        if self.backwards != backwards {
            self.backwards = backwards;
            self.forget();
        }
    }

    /// Returns the value that `pointer`, the current row's, leads to, if it was read ahead.
    ///
    /// # Errors
    /// That of reading it. A second call returns `None`.
    pub(super) fn take(&mut self, pointer: &VlogPointer) -> Result<Option<Slice>> {
        let Some(buffer) = &mut self.buffer else { return Ok(None) };
        let Some(at) = buffer.read.iter().position(|(at, _)| at == pointer) else { return Ok(None) };
        buffer.read.drain(..at); // values that were not asked for
        buffer.read.pop_front().map(|(_, value)| value).transpose()
    }

    /// Called before the value of a row is read. Reads the values of the next rows if it is time to. `keeps` tells
    /// whether the page cache can keep all values. `scout` creates a cursor on the current row. An error of that cursor
    /// is left to the scan, which meets it when it gets there: the rows before it can be read.
    pub(super) fn prepare(
        &mut self,
        vlogs: &VlogSet,
        keeps: impl FnOnce() -> bool,
        scout: impl FnOnce(bool) -> Result<C>,
    ) {
        self.values = self.values.saturating_add(1);
        if self.values <= VALUES || self.buffer.as_ref().is_some_and(|b| !b.read.is_empty()) {
            return;
        }
        if self.buffer.is_none() {
            let buffer = |scout| Buffer {
                scout,
                loads: ValueLoads::of_scan(vlogs, keeps()),
                read: VecDeque::new(),
                loading: Vec::new(),
                failed: false,
                rows: FEWEST,
                bytes: 0,
            };
            self.buffer = scout(self.backwards).ok().map(|scout| Box::new(buffer(scout)));
        }
        if let Some(buffer) = &mut self.buffer {
            buffer.fill(vlogs, self.backwards);
        }
        if self.buffer.as_ref().is_none_or(|buffer| buffer.read.is_empty()) {
            self.forget(); // long values, an error, or the end
        }
    }
}

impl<C: EntryCursor> Buffer<C> {
    /// Reads the values of the next rows, and starts loading those of the rows after them.
    fn fill(&mut self, vlogs: &VlogSet, backwards: bool) {
        let mut pointers = std::mem::take(&mut self.loading);
        if pointers.is_empty() {
            pointers = self.collect(backwards);
            self.loads.load(vlogs, &pointers);
        }
        if self.rows == MOST {
            self.loading = self.collect(backwards);
            self.loads.load(vlogs, &self.loading);
        }
        self.rows = (2 * self.rows).min(MOST);
        self.bytes =
            pointers.iter().map(|p| p.raw_len as usize + 3 * size_of::<(VlogPointer, Slice)>()).sum();
        let mut read: Vec<Result<Slice>> = Vec::new();
        read.resize_with(pointers.len(), || Ok(Slice::from(&[][..])));
        vlogs.read_many(&pointers, |i, value| read[i] = value.map(Slice::from));
        self.read.extend(pointers.into_iter().zip(read));
    }

    /// Moves the second cursor over the next rows and returns their pointers; none after an error of that cursor.
    fn collect(&mut self, backwards: bool) -> Vec<VlogPointer> {
        let mut pointers = Vec::with_capacity(self.rows);
        if !self.failed {
            self.failed = self.collect_to(&mut pointers, backwards).is_err();
        }
        pointers
    }

    /// Moves the second cursor over the next rows and adds their pointers.
    fn collect_to(&mut self, pointers: &mut Vec<VlogPointer>, backwards: bool) -> Result<()> {
        let (mut rows, mut bytes) = (0, 0);
        while self.scout.valid() && rows < self.rows && bytes < BYTES_MAX {
            rows += 1;
            let (_, kind, value) = self.scout.entry()?;
            let pointer = (kind == Kind::PutPointer).then(|| VlogPointer::decode(value)).flatten();
            if let Some(pointer) = pointer.filter(|p| p.raw_len <= VALUE_BYTES_MAX) {
                bytes += u64::from(pointer.raw_len);
                pointers.push(pointer);
            }
            if backwards { self.scout.prev() } else { self.scout.next() }?;
        }
        Ok(())
    }
}
