//! The contract of everything that yields entries in order: memtables, tables, levels and merges.

use super::{Kind, Rows, SeqNo, Sight};
use crate::Result;

/// What a version says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its sequence number.
    pub seq: SeqNo,
    /// Its kind.
    pub kind: Kind,
    /// When it expires in UNIX seconds, 0 = never.
    pub expiry: u32,
}

impl Default for Stamp {
    fn default() -> Self {
        Self { seq: 0, kind: Kind::Put, expiry: 0 }
    }
}

/// Key, kind and value of an entry, where they lie.
pub type Stored<'a> = (&'a [u8], Kind, &'a [u8]);

/// Walks versions in the order (key ascending, sequence number descending), both ways.
///
/// A new cursor is not valid until positioned. Every positioning call either leaves the cursor on an entry
/// (`valid()`), or past an end (not valid, `Ok`), or fails (not valid, `Err`); it never skips a damaged entry.
/// `key`, `stamp`, `seq` and `kind` may be called only while valid and cost no I/O and no decompression.
#[expect(clippy::missing_errors_doc, reason = "all fail alike: `Corrupt` or `Io` of the source")]
pub trait EntryCursor: Send {
    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// To the first entry of all.
    fn seek_to_first(&mut self) -> Result<()>;
    /// To the last entry of all.
    fn seek_to_last(&mut self) -> Result<()>;
    /// To the newest version of the first key at or after `target`.
    fn seek(&mut self, target: &[u8]) -> Result<()>;
    /// To the first entry at or after version `seq` of `target`: the newest version of `target` at or below `seq`, or, if
    /// there is none, the newest of the next key. Costs what a seek costs, however many versions `target` has.
    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()>;
    /// To the oldest version of the last key at or before `target`.
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()>;
    /// One entry on.
    fn next(&mut self) -> Result<()>;
    /// To the newest version of the next key, past the older versions of this one. Costs no more than a step and a seek.
    fn next_key(&mut self) -> Result<()>;
    /// One entry back.
    fn prev(&mut self) -> Result<()>;
    /// Key of the entry.
    fn key(&self) -> &[u8];
    /// What is to be known of the entry beside its key and value.
    fn stamp(&self) -> Stamp;
    /// Sequence number of the entry.
    #[inline]
    fn seq(&self) -> SeqNo {
        self.stamp().seq
    }
    /// Kind of the entry.
    #[inline]
    fn kind(&self) -> Kind {
        self.stamp().kind
    }
    /// Key, kind and value of the entry. May read and decompress.
    fn entry(&mut self) -> Result<Stored<'_>>;
    /// Value bytes of the entry as stored (a pointer for `PutPointer`). As [`EntryCursor::entry`].
    #[inline]
    fn value(&mut self) -> Result<&[u8]> {
        Ok(self.entry()?.2)
    }
    /// Forwards over keys whose newest version is a tombstone at or below `seq`, at most `most` of them and none from `until` on (`None` =
    /// no bound), as far as it costs less than a walk; how many they were. It ends on the newest version of a key.
    fn skip_dead(&mut self, seq: SeqNo, until: Option<&[u8]>, most: u64) -> Result<u64> {
        let _ = (seq, until, most);
        Ok(0)
    }
    /// Forwards from an entry that is older than `below`, on past others such, but not to a key after `until` (`None` = no bound)
    /// and as far as it costs little: whole tables and blocks. Not past any other entry.
    fn skip_older(&mut self, below: SeqNo, until: Option<&[u8]>) -> Result<()>;
    /// Forwards from the newest version of a key over keys before `until` (`None` = no bound; not `None` only where keys are
    /// ordered bytewise), copying to `rows`, which may have some, what `sight` shows of them, as long as each takes but a look and there
    /// is room. It ends on the newest version of the first key that was not copied: of the one it stood on, perhaps. What was copied
    /// was read without a fault: an error is of what comes after it.
    fn copy_rows(&mut self, sight: Sight, until: Option<&[u8]>, rows: &mut Rows) -> Result<()>;
}
