//! The maps of a memtable, for tests that run with each.

use std::sync::Arc;

use tidesdb_memtable::KeyOrder;

/// The two maps of a memtable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapKind {
    Tree,
    SkipList,
}

impl MapKind {
    /// Byte by byte, kept in this map.
    pub(crate) fn order(self) -> KeyOrder {
        match self {
            MapKind::Tree => KeyOrder::Bytewise,
            MapKind::SkipList => KeyOrder::Custom(Arc::new(<[u8]>::cmp)),
        }
    }
}
