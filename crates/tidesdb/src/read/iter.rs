//! [`Iter`]: a range of keys as a standard double-ended iterator. Owned, `Send + 'static`.

use std::ops::{Bound, RangeBounds};

use super::Cursor;
use crate::Result;
use crate::types::{PrefixPlace, Slice};

/// Iterates over a range at one read timestamp, from either end. Yields keys with their values; an error ends it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// for n in 0..5u8 { db.put(&[n], b"v")?; }
/// let keys: Vec<u8> = db.range::<&[u8]>(&[1u8][..]..&[4u8][..])?.rev().map(|kv| kv.map(|(k, _)| k[0])).collect::<Result<_, _>>()?;
/// assert_eq!(keys, [3, 2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Iter {
    front: Cursor,
    back: Option<Box<Cursor>>,
    state: State,
    keys_only: bool,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// Keys without this prefix are skipped.
    prefix: Option<Box<[u8]>>,
}

/// Progress of an iterator. `front` has yielded the key it stands on, and so has `back`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    Running,
    Done,
}

impl Iter {
    /// Iterates over the keys of `cursor` in `range`, in the family's key order.
    pub(crate) fn new<B: AsRef<[u8]>>(mut cursor: Cursor, range: impl RangeBounds<B>) -> Self {
        let own = |b: Bound<&B>| b.map(|b| b.as_ref().to_vec());
        let (low, high) = (own(range.start_bound()), own(range.end_bound()));
        cursor.clip(&low, &high);
        Self { low, high, front: cursor, back: None, state: State::Fresh, keys_only: false, prefix: None }
    }

    /// Iterates over the keys of `cursor` that begin with `prefix`. A key order that scatters them causes a scan of all
    /// keys.
    pub(crate) fn with_prefix(cursor: Cursor, prefix: &[u8]) -> Self {
        let (first, end) = prefix_range(prefix);
        match cursor.order().prefix_place() {
            PrefixPlace::Ascending => Self::new(cursor, (first, end)),
            // In descending order, `end` comes before all keys with the prefix, and `first` is the last of them.
            PrefixPlace::Descending => Self::new(cursor, (end, first)),
            PrefixPlace::Anywhere => Self { prefix: Some(prefix.into()), ..Self::new::<&[u8]>(cursor, ..) },
        }
    }

    /// Yields empty values and never reads a value.
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    fn item(&mut self, from_back: bool) -> Result<(Slice, Slice)> {
        let cursor = match (from_back, &mut self.back) {
            (true, Some(back)) => back,
            _ => &mut self.front,
        };
        let key = Slice::from(cursor.key());
        let value = if self.keys_only { Slice::from(&[][..]) } else { cursor.value_slice()? };
        Ok((key, value))
    }

    fn step_front(&mut self) -> Result<bool> {
        if self.state == State::Fresh || self.front_unplaced() {
            self.state = State::Running;
            match &self.low {
                Bound::Unbounded => self.front.seek_to_first()?,
                Bound::Included(low) => self.front.seek(low)?,
                Bound::Excluded(low) => {
                    self.front.seek(low)?;
                    if self.front.valid() && self.front.compare_key(low).is_eq() {
                        self.front.next()?;
                    }
                }
            }
            self.front.placed = true;
        } else {
            self.front.next()?;
        }
        let inside = self.front.valid()
            && match &self.high {
                Bound::Unbounded => true,
                Bound::Included(high) => self.front.compare_key(high).is_le(),
                Bound::Excluded(high) => self.front.compare_key(high).is_lt(),
            };
        let met = match &self.back {
            Some(back) if inside && back.valid() => self.front.compare_key(back.key()).is_ge(),
            _ => false,
        };
        Ok(inside && !met)
    }

    fn front_unplaced(&self) -> bool {
        !self.front.placed
    }

    fn step_back(&mut self) -> Result<bool> {
        let Some(back) = &mut self.back else {
            let mut back = Box::new(self.front.sibling());
            match &self.high {
                Bound::Unbounded => back.seek_to_last()?,
                Bound::Included(high) => back.seek_for_prev(high)?,
                Bound::Excluded(high) => {
                    back.seek_for_prev(high)?;
                    if back.valid() && back.compare_key(high).is_eq() {
                        back.prev()?;
                    }
                }
            }
            self.back = Some(back);
            self.state = State::Running;
            return Ok(self.back_inside());
        };
        back.prev()?;
        Ok(self.back_inside())
    }

    fn back_inside(&self) -> bool {
        let Some(back) = self.back.as_ref().filter(|b| b.valid()) else {
            return false;
        };
        let inside = match &self.low {
            Bound::Unbounded => true,
            Bound::Included(low) => back.compare_key(low).is_ge(),
            Bound::Excluded(low) => back.compare_key(low).is_gt(),
        };
        let met = self.front.placed && self.front.valid() && back.compare_key(self.front.key()).is_le();
        inside && !met
    }

    /// Returns whether the current key begins with the prefix, or there is none.
    fn has_prefix(&self, from_back: bool) -> bool {
        let Some(prefix) = &self.prefix else { return true };
        let cursor = if from_back { self.back.as_deref() } else { Some(&self.front) };
        cursor.is_some_and(|cursor| cursor.key().starts_with(prefix))
    }

    fn advance(&mut self, from_back: bool) -> Option<Result<(Slice, Slice)>> {
        if self.state == State::Done {
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
        if !matches!(out, Some(Ok(_))) {
            self.state = State::Done;
        }
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
        f.debug_struct("Iter").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Returns the first key after all keys that begin with `prefix`, in byte order; `None` if there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Returns the range of all keys that begin with `prefix`, in byte order.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Included(prefix.to_vec()), prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded))
}
