//! The interface of everything that yields entries in order: memtables, tables, levels and merges.

use super::{EntryMeta, Kind, ReadPoint, Rows, Scope, SeqNo};
use crate::Result;

/// Key, kind and value of an entry, borrowed from where they are stored.
pub type Stored<'a> = (&'a [u8], Kind, &'a [u8]);

/// Iterates versions in the order (key ascending, sequence number descending), both ways.
///
/// A new cursor is not valid until positioned. Every positioning call either leaves the cursor on an entry (`valid()`),
/// or past an end (not valid, `Ok`), or fails (not valid, `Err`); it never skips a damaged entry. `key`, `entry_meta`, `seq`
/// and `kind` may be called only while valid and cost no I/O and no decompression.
#[expect(clippy::missing_errors_doc, reason = "all fail alike: `Corrupt` or `Io` of the source")]
pub trait EntryCursor: Send {
    /// Limits the walk. Entries out of scope may be left out from now on, and those that take a read or a block of their own are; the
    /// others may be shown. The cursor must be positioned again, by a seek into the scope.
    fn set_scope(&mut self, scope: &Scope);
    /// Returns true if the cursor is on an entry.
    fn valid(&self) -> bool;
    /// Moves to the first entry of all.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry of all.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the newest version of the first key at or after `target`.
    fn seek(&mut self, target: &[u8]) -> Result<()>;
    /// Moves to the first entry at or after version `seq` of `target`: the newest version of `target` at or below
    /// `seq`, or, if there is none, the newest of the next key. Costs one seek, however many versions `target` has.
    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()>;
    /// Moves to the oldest version of the last key at or before `target`.
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()>;
    /// Moves one entry forward.
    fn next(&mut self) -> Result<()>;
    /// Moves to the newest version of the next key, past the older versions of this one. Costs at most a step and a
    /// seek.
    fn next_key(&mut self) -> Result<()>;
    /// Like [`EntryCursor::next_key`], if the source knows without a look at each that all older versions of this key have its kind, and
    /// that none of these versions expires. Returns their number; `None` if the cursor did not move.
    fn next_key_past_alike(&mut self) -> Option<u64> {
        None
    }
    /// Moves one entry back.
    fn prev(&mut self) -> Result<()>;
    /// Key of the entry.
    fn key(&self) -> &[u8];
    /// Sequence number, kind and expiry of the entry.
    fn entry_meta(&self) -> EntryMeta;
    /// Sequence number of the entry.
    #[inline]
    fn seq(&self) -> SeqNo {
        self.entry_meta().seq
    }
    /// Kind of the entry.
    #[inline]
    fn kind(&self) -> Kind {
        self.entry_meta().kind()
    }
    /// Returns true if the entry is a write of the reader's own transaction, whose sequence number says nothing about its age.
    fn is_own(&self) -> bool {
        false
    }
    /// Bytes of the value of the entry as stored, known without reading it. 0 if the source does not take part in merges.
    fn value_len(&self) -> usize {
        0
    }
    /// Key, kind and value of the entry. May read and decompress.
    fn entry(&mut self) -> Result<Stored<'_>>;
    /// Value bytes of the entry as stored (a pointer for `PutPointer`). Like [`EntryCursor::entry`], may read and
    /// decompress.
    #[inline]
    fn value(&mut self) -> Result<&[u8]> {
        Ok(self.entry()?.2)
    }
    /// Moves forward from an entry older than `below` over further such entries, but not to a key after `until` (`None` =
    /// no bound). Skips only whole tables and blocks, which is cheap, and never an entry that is not older than `below`.
    /// By default it stays where it is.
    fn skip_older(&mut self, below: SeqNo, until: Option<&[u8]>) -> Result<()> {
        let _ = (below, until);
        Ok(())
    }
    /// Appends visible rows to `rows`, which may already hold some, from the newest version of the current key on.
    /// Stops when `rows` is full, at `until` (`None` = no bound; given only where keys are ordered bytewise), or at an
    /// entry that needs more work than a check.
    /// Leaves the cursor on the newest version of the first key not copied, which may be the current one. All copied
    /// rows were read without error: an error concerns what follows them.
    /// By default it copies none.
    fn copy_rows(&mut self, reader: ReadPoint, until: Option<&[u8]>, rows: &mut Rows) -> Result<()> {
        let _ = (reader, until, rows);
        Ok(())
    }
    /// Returns whether the source may hold a version of exactly `key`. `false` is reliable, `true` is not. Costs no I/O
    /// (a filter in memory). Lets a seek of a merge skip older sources if a newer one holds the key. Called only if keys are
    /// ordered bytewise, so a filter over key bytes is sufficient.
    fn may_contain(&self, key: &[u8]) -> bool {
        let _ = key;
        true
    }
}
