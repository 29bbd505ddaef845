//! The order of keys in a map. The maps call a custom order from any thread, so it must be `Send + Sync`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A user-defined key order. It must be total and must never change.
pub type CompareFn = dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync;

/// The key order of a memtable. It decides which map keeps the entries.
#[derive(Clone)]
pub enum KeyOrder {
    /// Byte by byte; a prefix sorts before longer keys. Kept in the B+tree with optimistic locks.
    Bytewise,
    /// Any total order, kept in the lock-free skip list. Keys that compare equal are the same key.
    Custom(Arc<CompareFn>),
}

impl fmt::Debug for KeyOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyOrder::Bytewise => "Bytewise",
            KeyOrder::Custom(_) => "Custom",
        })
    }
}
