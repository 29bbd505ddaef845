//! Keys of the rows of a group. All start with the number of the group, so groups never meet:
//!
//! | family | key | value |
//! | --- | --- | --- |
//! | log | group, 0, [`VOTE`], [`COMMITTED`] or [`PURGED`] | a note |
//! | log | group, 1, index | an entry |
//! | state | group, 0, [`APPLIED`] or [`MEMBERSHIP`] | a note |
//! | state | group, 1, key of the application | its value |
//!
//! Numbers are big-endian, so that their order is that of the keys.

use std::ops::Range;

pub(crate) const VOTE: u8 = 0;
pub(crate) const COMMITTED: u8 = 1;
pub(crate) const PURGED: u8 = 2;

pub(crate) const APPLIED: u8 = 0;
pub(crate) const MEMBERSHIP: u8 = 1;

/// Bytes before the key of an application.
pub(crate) const DATA_PREFIX: usize = 9;

/// Maximum length of a key of an [`Application`](crate::Application) in bytes: 65,527. A longer one is an error of [`State`](crate::State), which ends
/// the node, so check keys before they are proposed.
pub const KEY_BYTES_MAX: usize = tidesdb::KEY_BYTES_MAX - DATA_PREFIX;

const NOTES: u8 = 0;
const ROWS: u8 = 1;
const END: u8 = 2;

/// The number of a Raft group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) u64);

impl Group {
    fn key(self, kind: u8, rest: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(DATA_PREFIX + rest.len());
        key.extend_from_slice(&self.0.to_be_bytes());
        key.push(kind);
        key.extend_from_slice(rest);
        key
    }

    pub(crate) fn note(self, note: u8) -> Vec<u8> {
        self.key(NOTES, &[note])
    }

    pub(crate) fn entry(self, index: u64) -> Vec<u8> {
        self.key(ROWS, &index.to_be_bytes())
    }

    /// Returns the keys of the entries with an index of at least `from` and, if there is an `end`, below it.
    pub(crate) fn entries(self, from: u64, end: Option<u64>) -> Range<Vec<u8>> {
        self.entry(from)..end.map_or_else(|| self.key(END, &[]), |end| self.entry(end))
    }

    pub(crate) fn data(self, key: &[u8]) -> Vec<u8> {
        self.key(ROWS, key)
    }

    /// Returns the keys of all data of the application from the full key `from` on.
    pub(crate) fn data_from(self, from: Vec<u8>) -> Range<Vec<u8>> {
        from..self.key(END, &[])
    }

    /// Returns the keys of everything that the group has in a family.
    pub(crate) fn all(self) -> Range<Vec<u8>> {
        self.key(NOTES, &[])..self.key(END, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_indices_sort_as_numbers() {
        let (a, b) = (Group(255), Group(256));
        assert!(a.entry(255) < a.entry(256) && a.entry(u64::MAX) < b.note(VOTE));
        assert!(a.all().contains(&a.note(PURGED)) && a.all().contains(&a.entry(u64::MAX)));
        assert!(!a.all().contains(&b.note(VOTE)) && !b.all().contains(&a.data(&[0xff; 20])));
        assert!(a.entries(3, None).contains(&a.entry(u64::MAX)));
        assert!(!a.entries(3, Some(5)).contains(&a.entry(5)));
        assert!(a.note(PURGED) < a.entry(0), "the entries are the last rows");
    }
}
