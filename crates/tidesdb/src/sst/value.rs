//! A value as a lookup hands it out.

use std::ops::Deref;

use crate::types::Slice;

/// A value of a table.
#[derive(Clone, Debug)]
pub enum TableValue<'g> {
    /// In the map, or in the cache, while the guard lives.
    InPlace(&'g [u8]),
    /// Read or decoded for the asker.
    Owned(Slice),
}

impl TableValue<'_> {
    /// The value, to keep.
    pub fn into_slice(self) -> Slice {
        match self {
            Self::InPlace(bytes) => bytes.into(),
            Self::Owned(slice) => slice,
        }
    }
}

impl Deref for TableValue<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::Owned(slice) => slice,
        }
    }
}
