//! Iterators of the extended interface: many rows a call, between two bounds, in both directions.

use std::sync::Arc;

use tidesdb::{Cursor, Error, KeyBounds};

use super::{CLOSED, Reading, SCANS};
use crate::abi::ERR_NOT_FOUND;
use crate::abi::extended::{ERR_TOO_LARGE, Row};
use crate::failure::{Answer, Failure, told};
use crate::gate::Gate;
use crate::handle::Handle;
use crate::pointer::{Places, Room};

const AT_END: Failure = told!(ERR_NOT_FOUND, "the iterator has reached the end");
pub(crate) const NO_ROOM: Failure = told!(ERR_TOO_LARGE, "the buffer is too short for the row");

/// Memory of its own rows that an iterator keeps between two calls.
const KEPT_BYTES: usize = 1 << 20;

/// Where an iterator is: between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first row when it moves forwards, after the last one when it moves backwards.
    Fresh,
    /// Before the first row.
    Start,
    /// After the last row.
    End,
    /// Before the row that the cursor is on.
    Before,
    /// After the row that the cursor is on.
    After,
}

/// The direction in which rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Forwards,
    Backwards,
}

/// An iterator.
pub(crate) struct Scan {
    cursor: Cursor,
    place: Place,
    /// Why a move failed: no row is read until a seek.
    failed: Option<Failure>,
    keys_only: bool,
    /// Shut when its database is closed: from then on it does not move, because the cursor would call functions of the program.
    calls: Arc<Gate>,
    /// Rows that it lends until the next call.
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

/// Where rows go.
pub(crate) trait Sink {
    /// Adds a row. Returns false if it has no room.
    fn add(&mut self, key: &[u8], value: &[u8]) -> bool;
    /// Returns true if it takes no further row.
    fn is_full(&self) -> bool;
    /// Number of rows that it has.
    fn count(&self) -> usize;
}

/// A buffer and an array of the caller.
pub(crate) struct Buffers {
    room: Room,
    rows: Places<Row>,
    used: usize,
    count: usize,
    /// Bytes of the row for which there was no room.
    pub(crate) needed: usize,
}

impl Buffers {
    /// Wraps the caller's memory.
    pub(crate) fn new(room: Room, rows: Places<Row>) -> Self {
        Self { room, rows, used: 0, count: 0, needed: 0 }
    }
}

impl Sink for Buffers {
    #[inline]
    fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        if key.len() + value.len() > self.room.len() - self.used {
            self.needed = key.len() + value.len();
            return false;
        }
        self.rows.set(self.count, Row { offset: self.used, key_size: key.len(), value_size: value.len() });
        self.room.put(self.used, key);
        self.room.put(self.used + key.len(), value);
        self.used += key.len() + value.len();
        self.count += 1;
        true
    }

    fn is_full(&self) -> bool {
        self.count == self.rows.count()
    }

    fn count(&self) -> usize {
        self.count
    }
}

/// The memory of an iterator. The first row has room in any case.
struct Own<'s> {
    bytes: &'s mut Vec<u8>,
    rows: &'s mut Vec<Row>,
    rows_max: usize,
    bytes_max: usize,
}

impl Sink for Own<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        let (offset, more) = (self.bytes.len(), key.len() + value.len());
        if !self.rows.is_empty() && more > self.bytes_max.saturating_sub(offset) {
            return false;
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.rows.push(Row { offset, key_size: key.len(), value_size: value.len() });
        true
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= self.rows_max
    }

    fn count(&self) -> usize {
        self.rows.len()
    }
}

/// The keys that an iterator shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bounds<'a> {
    /// From the first on, and before the second.
    Range(Option<&'a [u8]>, Option<&'a [u8]>),
    Prefix(&'a [u8]),
}

impl Bounds<'_> {
    /// Returns them as a range of keys of `family`.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a prefix in an order that puts other keys between.
    pub(crate) fn of(self, family: &tidesdb::Family) -> Answer<KeyBounds> {
        match self {
            Self::Range(start, end) => Ok(super::writing::bounds(start, end)),
            Self::Prefix(prefix) => Ok(family.prefix_range(prefix)?),
        }
    }
}

/// Creates an iterator.
///
/// # Errors
/// Errors of [`Reading::on`]; the engine's errors.
pub(crate) fn new(cf: Handle, reading: &Reading, bounds: Bounds<'_>) -> Answer<Handle> {
    reading.on(cf, |view, owner| {
        let database = owner.get()?;
        let mut cursor = view.cursor(reading.keys_only)?;
        cursor.set_range(bounds.of(view.family())?);
        let calls = Arc::clone(database.calls());
        let scan = Scan {
            cursor,
            place: Place::Fresh,
            failed: None,
            keys_only: reading.keys_only,
            calls,
            bytes: Vec::new(),
            rows: Vec::new(),
        };
        SCANS.insert(scan, database.handle())
    })
}

/// Runs `body` on an iterator whose database is open.
///
/// # Errors
/// `ERR_INVALID_ARGS`, `ERR_BUSY`, `ERR_INVALID_DB`; those of `body`.
#[inline]
pub(crate) fn on<R>(iter: Handle, body: impl FnOnce(&mut Scan) -> Answer<R>) -> Answer<R> {
    SCANS.with(iter, |scan| if scan.calls.is_shut() { Err(CLOSED) } else { body(scan) })
}

/// Frees an iterator, also of a closed database. If a call uses it now, it ends with that call.
///
/// # Errors
/// `ERR_INVALID_ARGS`.
pub(crate) fn free(iter: Handle) -> Answer {
    SCANS.remove_shut(iter).map(drop)
}

impl Scan {
    /// Moves before the first key at or after this one; to the start without a key.
    ///
    /// # Errors
    /// The engine's errors.
    pub(crate) fn seek(&mut self, key: Option<&[u8]>) -> Answer {
        (self.failed, self.place) = (None, Place::Start);
        let Some(key) = key else { return Ok(()) };
        let done = self.cursor.seek(key);
        self.land(done, (Place::Before, Place::End)).map(drop)
    }

    /// Moves after the last key at or before this one; to the end without a key.
    ///
    /// # Errors
    /// The engine's errors.
    pub(crate) fn seek_for_prev(&mut self, key: Option<&[u8]>) -> Answer {
        (self.failed, self.place) = (None, Place::End);
        let Some(key) = key else { return Ok(()) };
        let done = self.cursor.seek_for_prev(key);
        self.land(done, (Place::After, Place::Start)).map(drop)
    }

    /// Moves the cursor to the next row on the way. Returns false if there is none.
    #[inline]
    fn step(&mut self, way: Way) -> Answer<bool> {
        let done = match (way, self.place) {
            (Way::Forwards, Place::After) => self.cursor.next(),
            (Way::Backwards, Place::Before) => self.cursor.prev(),
            (Way::Forwards, Place::Before) | (Way::Backwards, Place::After) => return Ok(true),
            (Way::Forwards, Place::Fresh | Place::Start) => self.cursor.seek_to_first(),
            (Way::Backwards, Place::Fresh | Place::End) => self.cursor.seek_to_last(),
            (Way::Forwards, Place::End) | (Way::Backwards, Place::Start) => return Ok(false),
        };
        let places = match way {
            Way::Forwards => (Place::Before, Place::End),
            Way::Backwards => (Place::After, Place::Start),
        };
        self.land(done, places)
    }

    /// Sets the place after a move of the cursor: the first one if it is on a row, which is returned, else the second one.
    #[inline]
    fn land(&mut self, moved: tidesdb::Result<()>, (there, beyond): (Place, Place)) -> Answer<bool> {
        if let Err(e) = moved {
            let failure = Failure::from(e);
            self.failed = Some(failure.clone());
            return Err(failure);
        }
        let valid = self.cursor.valid();
        self.place = if valid { there } else { beyond };
        Ok(valid)
    }

    /// Notes that the row of the cursor has been passed.
    #[inline]
    fn pass(&mut self, way: Way) {
        self.place = if way == Way::Forwards { Place::After } else { Place::Before };
    }

    /// Adds rows until `sink` is full or there is none. Fails only if it has added none.
    fn fill(&mut self, way: Way, sink: &mut impl Sink) -> Answer {
        if let Some(failure) = &self.failed {
            return Err(failure.clone());
        }
        while !sink.is_full() {
            match self.step(way) {
                Ok(true) => {}
                Ok(false) if sink.count() == 0 => return Err(AT_END),
                Err(failure) if sink.count() == 0 => return Err(failure),
                Ok(false) | Err(_) => return Ok(()), // the next call fails
            }
            match self.add(way, sink) {
                Ok(true) => self.pass(way),
                Ok(false) if sink.count() == 0 => return Err(NO_ROOM),
                Ok(false) => return Ok(()),
                Err(_) if sink.count() > 0 => return Ok(()), // the next call reads this row again
                Err(e) => {
                    if matches!(e, Error::Merge { .. }) {
                        self.pass(way); // it is the error of one row
                    }
                    return Err(e.into());
                }
            }
        }
        Ok(())
    }

    /// Adds the row of the cursor, and those that it has read ahead as long as there is room. The cursor stands on the last row added.
    #[inline]
    fn add(&mut self, way: Way, sink: &mut impl Sink) -> tidesdb::Result<bool> {
        if self.keys_only {
            return Ok(sink.add(self.cursor.key(), &[]));
        }
        let (key, value) = self.cursor.entry()?;
        if !sink.add(key, value) {
            return Ok(false);
        }
        if way == Way::Forwards {
            let (bytes, rows) = self.cursor.buffered();
            let mut more = 0;
            for row in rows.iter().skip(1) {
                let (value, end) =
                    (row.start() + row.key_len(), row.start() + row.key_len() + row.value_len());
                if sink.is_full() || !sink.add(&bytes[row.start()..value], &bytes[value..end]) {
                    break;
                }
                more += 1;
            }
            self.cursor.advance(more);
        }
        Ok(true)
    }

    /// Copies rows to the caller.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND` at the end; `ERR_TOO_LARGE` if the next row has no room; the engine's errors. It has not moved then, except over
    /// a row whose merge operator failed.
    pub(crate) fn copy(&mut self, way: Way, to: &mut Buffers) -> Answer {
        self.fill(way, to)
    }

    /// Copies rows into the memory of the iterator and returns them.
    ///
    /// # Errors
    /// As [`Scan::copy`], except `ERR_TOO_LARGE`.
    pub(crate) fn lend(&mut self, way: Way, rows_max: usize, bytes_max: usize) -> Answer<(&[u8], &[Row])> {
        let (mut bytes, mut rows) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.rows));
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES);
        rows.clear();
        let mut own = Own { bytes: &mut bytes, rows: &mut rows, rows_max, bytes_max };
        let filled = self.fill(way, &mut own);
        (self.bytes, self.rows) = (bytes, rows);
        filled?;
        Ok((&self.bytes, &self.rows))
    }
}
