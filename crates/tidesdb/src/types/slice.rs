//! A value returned to the user: owned, or a reference into a memtable that it keeps alive. `Send + 'static`,
//! dereferences to bytes.

use std::fmt;
use std::ops::Deref;

use tidesdb_memtable::ValueHandle;

/// Bytes of a value. Cloning copies small values and shares large ones; keeping a slice keeps its memory alive.
///
/// ```
/// let s = tidesdb::types::Slice::from(b"abc".as_slice());
/// assert_eq!(&*s, b"abc");
/// assert_eq!(s, b"abc");
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

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slice").field(&self.len()).finish()
    }
}
