//! What the methods that take a range of keys accept.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `a..b`, `a..=b`, `a..`, `..b`, `..=b`, `..`, or a pair of [`Bound`]s, of `&str`, `&[u8]`, `Vec<u8>`,
/// arrays, and whatever else is `AsRef<[u8]>`.
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
