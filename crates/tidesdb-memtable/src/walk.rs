//! [`KeyCursor`]: the interface for iterating over the keys of a map. It does not handle the versions of a key.
//!
//! A positioning call sees every key whose insert returned before the call began; it may or may not see later
//! ones. A `KeyCursor` is used by one thread at a time.

use crate::record::RecordRef;

/// A position among the keys of a map, in the map's own order.
pub(crate) trait KeyCursor<'a> {
    /// Moves to the first key.
    fn first(&mut self);
    /// Moves to the last key.
    fn last(&mut self);
    /// Moves to the first key at or after `key`. Returns whether that is `key` itself.
    fn at_or_after(&mut self, key: &[u8]) -> bool;
    /// Moves to the last key at or before `key`. Returns whether that is `key` itself.
    fn at_or_before(&mut self, key: &[u8]) -> bool;
    /// Moves from the current key to the next one.
    fn after(&mut self);
    /// Moves from the current key to the previous one.
    fn before(&mut self);
    /// Returns the newest version of the current key; `None` past an end.
    fn newest(&self) -> Option<RecordRef<'a>>;
}
