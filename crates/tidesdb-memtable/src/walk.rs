//! [`KeyWalk`]: what a map must offer to be walked from key to key. The versions of a key are not its concern.
//!
//! A positioning call sees every key whose insert returned before it began; later ones may be seen or missed. A
//! walk belongs to one thread at a time.

use crate::record::RecordRef;

/// A place among the keys of a map, in the map's own order.
pub(crate) trait KeyWalk<'a> {
    /// To the first key.
    fn first(&mut self);
    /// To the last key.
    fn last(&mut self);
    /// To the first key at or after `key`; whether that is `key` itself.
    fn at_or_after(&mut self, key: &[u8]) -> bool;
    /// To the last key at or before `key`; whether that is `key` itself.
    fn at_or_before(&mut self, key: &[u8]) -> bool;
    /// To the next key, from a key.
    fn after(&mut self);
    /// To the previous key, from a key.
    fn before(&mut self);
    /// The newest version of the key stood on; `None` past an end.
    fn newest(&self) -> Option<RecordRef<'a>>;
}
