//! Read-ahead of values in value logs.
//!
//! The values of neighbouring keys may lie anywhere in the value logs. So once a scan in one direction has read some of
//! them, a second cursor runs ahead, collects the pointers of the next rows, and their values are read in the order in
//! which they lie in the files: neighbours with one call. Half of the rows are read, while the device loads the values of the other half.
//! [`Readahead`] decides how many.

use std::collections::VecDeque;

use super::cursor::ReaderCursor;
use crate::Result;
use crate::types::{EntryCursor, Readahead, Slice};
use crate::vlog::{ValueLoads, VlogPointer, VlogSet};

/// Read-ahead, counted in values: starts after eight values that were read one by one.
type ValueReadahead = Readahead<8, 128>;
/// Maximum bytes of values to hold. Longer values keep the disk busy on their own.
const BYTES_MAX: u64 = 1 << 20;
/// Longest value to read ahead.
const VALUE_BYTES_MAX: u32 = 64 << 10;

/// Values that were read ahead of a cursor, and the second cursor.
#[derive(Default)]
pub(super) struct StoredAhead {
    backwards: bool,
    readahead: ValueReadahead,
    buffer: Option<Box<Buffer>>,
}

struct Buffer {
    /// Stands on the first row whose pointer was not collected.
    scout: ReaderCursor,
    loads: ValueLoads,
    /// In the order of the scan.
    read: VecDeque<(VlogPointer, Result<Slice>)>,
    /// Values that the device is loading: those of the rows after `read`.
    loading: Vec<VlogPointer>,
    /// The second cursor met an error after these rows.
    failed: bool,
    /// Bytes of the values of the last fill, and of their places.
    bytes: usize,
}

impl StoredAhead {
    /// Bytes of the values that were read ahead, and of the second cursor without its blocks.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| size_of::<Buffer>() + buffer.bytes)
    }

    /// Starts anew: the cursor moves elsewhere.
    #[inline]
    pub(super) fn forget(&mut self) {
        (self.readahead, self.buffer) = (Readahead::default(), None);
    }

    /// Notes the direction of a step; a turn starts anew.
    #[inline]
    pub(super) fn step(&mut self, backwards: bool) {
        if self.backwards != backwards {
            self.backwards = backwards;
            self.forget();
        }
    }

    /// Returns the value that `pointer`, the current row's, leads to, if [`StoredAhead::prepare`] has it.
    ///
    /// # Errors
    /// That of reading it. A second call returns `None`.
    pub(super) fn take(&mut self, pointer: &VlogPointer) -> Result<Option<Slice>> {
        let buffer =
            self.buffer.as_mut().filter(|buffer| buffer.read.front().is_some_and(|(at, _)| at == pointer));
        buffer.and_then(|buffer| buffer.read.pop_front()).map(|(_, value)| value).transpose()
    }

    /// Called before the value of the current row is read, to which `pointer` leads. Reads the values of the next rows if it is time to.
    /// `keeps` tells whether the page cache can keep all values. `scout` creates a cursor on the current row. The scan returns an error
    /// of that cursor when it reaches the row: the rows before it can be read.
    pub(super) fn prepare(
        &mut self,
        pointer: &VlogPointer,
        vlogs: &VlogSet,
        keeps: impl FnOnce() -> bool,
        scout: impl FnOnce(bool) -> Result<ReaderCursor>,
    ) {
        let Self { backwards, readahead, buffer } = self;
        readahead.step();
        readahead.consume(1);
        if !readahead.is_long() || pointer.raw_len > VALUE_BYTES_MAX {
            return readahead.load(1);
        }
        if buffer.as_mut().is_some_and(|buffer| buffer.skip_to(pointer, readahead)) {
            return;
        }
        if buffer.is_none() {
            let loads = || ValueLoads::of_scan(vlogs, keeps());
            *buffer = scout(*backwards).ok().map(|scout| Box::new(Buffer::new(scout, loads())));
        }
        if let Some(buffer) = buffer {
            buffer.fill(vlogs, *backwards, readahead);
        }
        if buffer.as_ref().is_none_or(|buffer| buffer.read.is_empty()) {
            self.forget(); // an error, or the end
        }
    }
}

impl Buffer {
    fn new(scout: ReaderCursor, loads: ValueLoads) -> Self {
        Self { scout, loads, read: VecDeque::new(), loading: Vec::new(), failed: false, bytes: 0 }
    }

    /// Drops the values before that of `pointer`: the scan did not request them. Returns whether the value of `pointer` is there.
    fn skip_to(&mut self, pointer: &VlogPointer, readahead: &mut ValueReadahead) -> bool {
        let at = self.read.iter().position(|(at, _)| at == pointer);
        let skipped = self.read.drain(..at.unwrap_or(self.read.len()));
        readahead.consume(skipped.len() as u64);
        at.is_some()
    }

    /// Reads the values of the next rows, and starts loading those of the rows after them.
    fn fill(&mut self, vlogs: &VlogSet, backwards: bool, readahead: &mut ValueReadahead) {
        let mut pointers = std::mem::take(&mut self.loading);
        if pointers.is_empty() {
            pointers = self.load(vlogs, backwards, readahead.allowance().div_ceil(2), readahead);
        }
        self.loading = self.load(vlogs, backwards, readahead.allowance(), readahead);
        self.bytes =
            pointers.iter().map(|p| p.raw_len as usize + 3 * size_of::<(VlogPointer, Slice)>()).sum();
        let mut read: Vec<Result<Slice>> = Vec::new();
        read.resize_with(pointers.len(), || Ok(Slice::from(&[][..])));
        vlogs.read_many(&pointers, |i, value| read[i] = value.map(Slice::from));
        self.read.extend(pointers.into_iter().zip(read));
    }

    /// Moves the second cursor over the next `rows` rows, starts loading their values and returns their pointers; none after an error of
    /// that cursor.
    fn load(
        &mut self,
        vlogs: &VlogSet,
        backwards: bool,
        rows: u64,
        readahead: &mut ValueReadahead,
    ) -> Vec<VlogPointer> {
        let (mut pointers, mut bytes) = (Vec::new(), 0);
        for _ in 0..rows {
            if self.failed || !self.scout.valid() || bytes >= BYTES_MAX {
                break;
            }
            let next = self.next(backwards);
            self.failed = next.is_err();
            if let Ok(Some(pointer)) = next {
                bytes += u64::from(pointer.raw_len);
                pointers.push(pointer);
            }
        }
        readahead.load(pointers.len() as u64);
        self.loads.load(vlogs, &pointers);
        pointers
    }

    /// Moves the second cursor to the next row, and returns the pointer of the row before unless its value is long.
    fn next(&mut self, backwards: bool) -> Result<Option<VlogPointer>> {
        let (_, kind, value) = self.scout.entry()?;
        let pointer = kind.holds_pointer().then(|| VlogPointer::decode(value)).flatten();
        if backwards { self.scout.prev() } else { self.scout.next() }?;
        Ok(pointer.filter(|p| p.raw_len <= VALUE_BYTES_MAX))
    }
}
