//! What the methods that take a range of keys accept.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::{Comparator, KEY_BYTES_MAX, PrefixLayout};
use crate::{Error, Result};

/// A range of keys: `a..b`, `a..=b`, `a..`, `..b`, `..=b`, `..`, or a pair of [`Bound`]s, of `&str`, `&[u8]`, `Vec<u8>`,
/// arrays, and whatever else is `AsRef<[u8]>`. [`Family::prefix_range`](crate::Family::prefix_range) makes the range of the keys with a
/// prefix. The bounds are in the order of the family: in a reverse order a range begins with its largest key. A range that ends before it
/// begins is empty.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use std::ops::Bound::{Excluded, Unbounded};
/// for key in ["a", "b", "c"] { db.put(key, "v")?; }
/// assert_eq!(db.range("a".."c")?.count(), 2);
/// assert_eq!(db.range(vec![b'b']..)?.count(), 2);
/// assert_eq!(db.range(..=[b'b'])?.count(), 2);
/// assert_eq!(db.range((Excluded("a"), Unbounded))?.count(), 2);
/// assert_eq!(db.range(..)?.count(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyRange {
    /// Returns where the range begins and where it ends.
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
}

impl KeyRange for RangeFull {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<R: KeyRange + ?Sized> KeyRange for &R {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (**self).bounds()
    }
}

macro_rules! key_range {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> KeyRange for $range {
            fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
                let bound = |bound| Bound::map(bound, K::as_ref);
                (bound(RangeBounds::<K>::start_bound(self)), bound(RangeBounds::<K>::end_bound(self)))
            }
        }
    )*};
}

key_range!(Range<K>, RangeInclusive<K>, RangeFrom<K>, RangeTo<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>));

/// A lower and an upper bound: a [`KeyRange`] that owns its keys.
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Where a borrowed range begins and where it ends.
pub type KeySpan<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Returns the range of all keys that begin with `prefix`, in `order`.
///
/// # Errors
/// `InvalidArgument` if `order` may put other keys between them.
pub fn prefix_range(order: &Comparator, prefix: &[u8]) -> Result<KeyBounds> {
    if prefix.is_empty() {
        return Ok((Bound::Unbounded, Bound::Unbounded));
    }
    let layout = order.prefix_layout();
    if layout == PrefixLayout::Anywhere {
        return Err(Error::invalid(format!(
            "the key order {:?} may put other keys between those with a common prefix; take a range of this order, or look at all keys",
            order.name()
        )));
    }
    if prefix.len() > KEY_BYTES_MAX {
        return Ok((Bound::Included(vec![0]), Bound::Excluded(vec![0]))); // it begins no key
    }
    let (first, end) = (Bound::Included(prefix.to_vec()), end_of(prefix));
    // In descending order, `end` is before all keys with the prefix, and `first` is the last of them.
    Ok(if layout == PrefixLayout::Ascending { (first, end) } else { (end, first) })
}

/// Returns the end of the keys that begin with `prefix`, in byte order.
fn end_of(prefix: &[u8]) -> Bound<Vec<u8>> {
    let Some(last) = prefix.iter().rposition(|byte| *byte != u8::MAX) else { return Bound::Unbounded };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Bound::Excluded(end)
}
