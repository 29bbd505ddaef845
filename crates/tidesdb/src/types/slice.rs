//! A value returned to the user: owned, or a reference into a memtable that it keeps alive. `Send + 'static`,
//! dereferences to bytes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use tidesdb_memtable::ValueHandle;

/// Bytes of a value. Cloning copies small values and shares large ones; keeping a slice keeps its memory alive.
///
/// ```
/// let s = tidesdb::Slice::from(b"abc".as_slice());
/// assert_eq!(&*s, b"abc");
/// assert_eq!(s, b"abc");
/// assert_eq!(format!("{s:?}"), "b\"abc\"");
/// assert!(s < tidesdb::Slice::from(vec![b'b']));
/// assert_eq!(Vec::from(s), b"abc");
/// ```
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Owned(Box<[u8]>),
    Memtable(ValueHandle),
}

impl Slice {
    /// A slice of a memtable's arena, which it keeps alive.
    pub(crate) fn pinned(handle: ValueHandle) -> Self {
        Self(Repr::Memtable(handle))
    }

    /// The bytes as an owned vector; copies unless the slice already owns them.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Owned(b) => b.into_vec(),
            Repr::Memtable(h) => h.to_vec(),
        }
    }
}

impl Deref for Slice {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Owned(b) => b,
            Repr::Memtable(h) => h,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        Self(Repr::Owned(bytes.into()))
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Repr::Owned(bytes.into_boxed_slice()))
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Self {
        slice.into_vec()
    }
}

/// Number of bytes that `Debug` shows.
const SHOWN_MAX: usize = 64;

/// Shows the first 64 bytes as a byte string, and the length of what is longer.
impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self[..self.len().min(SHOWN_MAX)];
        write!(f, "b\"{}\"", shown.escape_ascii())?;
        if shown.len() < self.len() { write!(f, "... ({} bytes)", self.len()) } else { Ok(()) }
    }
}
