//! [`Iter`]: a range of keys as a standard double-ended iterator. Owned, `Send + 'static`.

use std::ops::Bound;

use super::Cursor;
use crate::types::{KEY_BYTES_MAX, KeyRange, PrefixLayout, Slice};
use crate::{Error, Result};

/// Iterates over a range at one read timestamp, from either end. Yields keys with their values. An error ends it, except
/// [`Error::Merge`], which stands for one key: the next call continues after it.
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
    keys_only: bool,
    /// Keys without this prefix are skipped.
    prefix: Option<Box<[u8]>>,
}

impl Iter {
    /// Iterates over the keys of `cursor` in `range`, in the family's key order.
    pub(crate) fn new(mut cursor: Cursor, range: impl KeyRange) -> Self {
        cursor.set_range(range);
        Self { front: cursor, placed: false, back: None, done: false, keys_only: false, prefix: None }
    }

    /// Iterates over the keys of `cursor` that begin with `prefix`. A key order that scatters them causes a scan of all
    /// keys.
    pub(crate) fn with_prefix(cursor: Cursor, prefix: &[u8]) -> Self {
        let Some((first, end)) = prefix_range(prefix) else {
            return Self { done: true, ..Self::new(cursor, ..) };
        };
        match cursor.order().prefix_layout() {
            PrefixLayout::Ascending => Self::new(cursor, (first, end)),
            // In descending order, `end` is before all keys with the prefix, and `first` is the last of them.
            PrefixLayout::Descending => Self::new(cursor, (end, first)),
            PrefixLayout::Anywhere => Self { prefix: Some(prefix.into()), ..Self::new(cursor, ..) },
        }
    }

    /// Yields empty values and never reads a value.
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        if !self.placed && self.back.is_none() {
            self.front.set_keys_only();
        }
        self
    }

    fn item(&mut self, from_back: bool) -> Result<(Slice, Slice)> {
        let cursor = match (from_back, &mut self.back) {
            (true, Some(back)) => back,
            _ => &mut self.front,
        };
        let key = Slice::from(cursor.key());
        let value = if self.keys_only { Slice::from(&[][..]) } else { cursor.value().map(Slice::from)? };
        Ok((key, value))
    }

    /// Moves one key on. Returns true if there is one that the other end has not reached.
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

    /// Returns whether the current key begins with the prefix, or there is none.
    fn has_prefix(&self, from_back: bool) -> bool {
        let Some(prefix) = &self.prefix else { return true };
        let cursor = if from_back { self.back.as_deref() } else { Some(&self.front) };
        cursor.is_some_and(|cursor| cursor.key().starts_with(prefix))
    }

    fn advance(&mut self, from_back: bool) -> Option<Result<(Slice, Slice)>> {
        if self.done {
            return None;
        }
        let stepped = loop {
            let stepped = if from_back { self.step_back() } else { self.step_front() };
            if !matches!(stepped, Ok(true)) || self.has_prefix(from_back) {
                break stepped;
            }
        };
        let out = match stepped {
            Ok(true) => Some(self.item(from_back)),
            Ok(false) => None,
            Err(e) => Some(Err(e)),
        };
        self.done = !matches!(out, Some(Ok(_) | Err(Error::Merge { .. })));
        out
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;
    fn next(&mut self) -> Option<Self::Item> {
        self.advance(false)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance(true)
    }
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("done", &self.done).finish_non_exhaustive()
    }
}

/// Returns the first key after all keys that begin with `prefix`, in byte order; `None` if there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// A lower and an upper bound.
type OwnedRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns the range of all keys that begin with `prefix`, in byte order; `None` for a prefix that is longer than any key.
pub(crate) fn prefix_range(prefix: &[u8]) -> Option<OwnedRange> {
    let end = || prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (prefix.len() <= KEY_BYTES_MAX).then(|| (Bound::Included(prefix.to_vec()), end()))
}
