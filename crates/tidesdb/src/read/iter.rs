//! [`Iter`]: a range of keys as a standard double-ended iterator. Owned, `Send + 'static`.

use std::fmt;
use std::iter::FusedIterator;

use super::Cursor;
use crate::types::{KeyRange, Slice, prefix_range};
use crate::{Error, Result};

/// Iterates over a range at one read timestamp, from either end. Yields keys with their values; [`Iter::keys`] yields keys alone, and
/// [`Iter::next_ref`] lends the row instead of copying it. An error ends it, except [`Error::Merge`], which stands for one key: the next
/// call continues after it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// for n in 0..5u8 { db.put(&[n], b"v")?; }
/// let keys: Vec<u8> = db.range(&[1u8][..]..&[4u8][..])?.rev().map(|kv| kv.map(|(k, _)| k[0])).collect::<Result<_, _>>()?;
/// assert_eq!(keys, [3, 2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Iter {
    /// Stands on the key that was returned last, once it is placed.
    front: Cursor,
    placed: bool,
    /// The same from the other end.
    back: Option<Box<Cursor>>,
    done: bool,
}

/// An end of an [`Iter`].
#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

impl Iter {
    /// Iterates over the keys of `cursor` in `range`, in the family's key order.
    pub(crate) fn new(mut cursor: Cursor, range: impl KeyRange) -> Self {
        cursor.set_range(range);
        Self { front: cursor, placed: false, back: None, done: false }
    }

    /// Iterates over the keys of `cursor` that begin with `prefix`.
    ///
    /// # Errors
    /// As [`prefix_range`].
    pub(crate) fn with_prefix(cursor: Cursor, prefix: &[u8]) -> Result<Self> {
        let range = prefix_range(cursor.order(), prefix)?;
        Ok(Self::new(cursor, range))
    }

    /// Iterates over the keys alone, and reads no value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for key in ["a", "b"] { db.put(key, "v")?; }
    /// let keys: Vec<_> = db.iter()?.keys().collect::<Result<_, _>>()?;
    /// assert_eq!(keys, ["a", "b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(mut self) -> Keys {
        if !self.placed && self.back.is_none() {
            self.front.set_keys_only();
        }
        Keys(self)
    }

    /// Moves to the next row and lends it, where [`Iterator::next`] copies it: for a program that copies a part of each row itself, such as
    /// the key without its prefix, or that looks at many rows and keeps few. `None` at the end.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for key in ["user:ann", "user:ben"] { db.put(key, "v")?; }
    /// let (prefix, mut names) = ("user:", Vec::new());
    /// let mut rows = db.prefix(prefix)?;
    /// while let Some((key, _value)) = rows.next_ref()? {
    ///     names.push(String::from_utf8_lossy(&key[prefix.len()..]).into_owned());
    /// }
    /// assert_eq!(names, ["ann", "ben"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As those that the iterator yields.
    pub fn next_ref(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.row(End::Front)
    }

    /// Moves to the next row from the end and lends it: see [`Iter::next_ref`].
    ///
    /// # Errors
    /// As [`Iter::next_ref`].
    pub fn next_back_ref(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.row(End::Back)
    }

    /// Moves to the next row from `end` and lends it.
    fn row(&mut self, end: End) -> Result<Option<(&[u8], &[u8])>> {
        if !self.step(end)? {
            return Ok(None);
        }
        let Self { front, back, done, .. } = self;
        match at(end, front, back).entry() {
            Ok(row) => Ok(Some(row)),
            Err(e) => {
                *done = !is_of_one_key(&e);
                Err(e)
            }
        }
    }

    /// Moves to the next key from `end` and lends it.
    fn key(&mut self, end: End) -> Result<Option<&[u8]>> {
        if !self.step(end)? {
            return Ok(None);
        }
        Ok(Some(at(end, &mut self.front, &mut self.back).key()))
    }

    /// Moves one key on from `end`. Returns true if there is one that the other end has not reached.
    fn step(&mut self, end: End) -> Result<bool> {
        if self.done {
            return Ok(false);
        }
        let stepped = match end {
            End::Front => self.step_front(),
            End::Back => self.step_back(),
        };
        self.done = match &stepped {
            Ok(there) => !there,
            Err(e) => !is_of_one_key(e),
        };
        stepped
    }

    fn step_front(&mut self) -> Result<bool> {
        if self.placed {
            self.front.next()?;
        } else {
            self.placed = true;
            self.front.seek_to_first()?;
        }
        Ok(self.front.valid() && !self.has_met())
    }

    fn step_back(&mut self) -> Result<bool> {
        if let Some(back) = &mut self.back {
            back.prev()?;
        } else {
            let mut back = Box::new(self.front.sibling()?);
            back.seek_to_last()?;
            self.back = Some(back);
        }
        Ok(self.back.as_ref().is_some_and(|back| back.valid()) && !self.has_met())
    }

    /// Whether both ends have yielded what is between them.
    fn has_met(&self) -> bool {
        let Some(back) = self.back.as_ref().filter(|back| back.valid()) else { return false };
        self.placed && self.front.valid() && self.front.order().compare(self.front.key(), back.key()).is_ge()
    }
}

/// The cursor of `end`.
fn at<'a>(end: End, front: &'a mut Cursor, back: &'a mut Option<Box<Cursor>>) -> &'a mut Cursor {
    match (end, back) {
        (End::Back, Some(back)) => back,
        _ => front,
    }
}

/// Returns true for an error after which the iterator continues.
fn is_of_one_key(e: &Error) -> bool {
    matches!(e, Error::Merge { .. })
}

/// Copies a row.
fn owned((key, value): (&[u8], &[u8])) -> (Slice, Slice) {
    (key.into(), value.into())
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_ref().map(|row| row.map(owned)).transpose()
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_back_ref().map(|row| row.map(owned)).transpose()
    }
}

impl FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("done", &self.done).finish_non_exhaustive()
    }
}

/// Iterates over the keys of a range, from either end, and reads no value; made by [`Iter::keys`].
#[derive(Debug)]
pub struct Keys(Iter);

impl Keys {
    /// Moves to the next key and lends it: see [`Iter::next_ref`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for key in ["a", "bb", "ccc"] { db.put(key, "v")?; }
    /// let (mut keys, mut bytes) = (db.iter()?.keys(), 0);
    /// while let Some(key) = keys.next_ref()? { bytes += key.len(); }
    /// assert_eq!(bytes, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As those that the iterator yields.
    pub fn next_ref(&mut self) -> Result<Option<&[u8]>> {
        self.0.key(End::Front)
    }

    /// Moves to the next key from the end and lends it: see [`Iter::next_ref`].
    ///
    /// # Errors
    /// As [`Keys::next_ref`].
    pub fn next_back_ref(&mut self) -> Result<Option<&[u8]>> {
        self.0.key(End::Back)
    }
}

impl Iterator for Keys {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_ref().map(|key| key.map(Slice::from)).transpose()
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_back_ref().map(|key| key.map(Slice::from)).transpose()
    }
}

impl FusedIterator for Keys {}
