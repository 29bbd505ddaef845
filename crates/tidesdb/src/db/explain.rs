//! Explanations of single reads.

use super::Snapshot;
use crate::Result;
use crate::read::{self, Explanation, RangeExplanation};
use crate::types::KeyRange;
use crate::write::Family;

impl Family {
    /// Explains [`Family::get`] of `key`: makes the same look-up, and returns what it looked into, what it read for it and from where, and
    /// which versions of the key each source has, with the reason why each is shown or not.
    ///
    /// It is a read: the bytes that it reads pass the page cache of the system. It puts nothing into the block cache of the database, and causes no
    /// merge; that it looked at a cached block counts as a use of that block. To see the versions that a get does not need, it reads more than
    /// the get: [`Explanation::extra_reads`]. It takes some microseconds, and a read of a block for each table that may have the key.
    ///
    /// A [`Reader`](crate::Reader) explains its own view: what its own memory and cache have. Memtables and cache of the process that writes are not
    /// known to it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::{Outcome, Verdict};
    /// db.put("whale", "blue")?;
    /// db.flush()?;
    /// db.delete("whale")?;
    /// let explained = db.default_family().explain("whale")?;
    /// assert!(matches!(explained.outcome, Outcome::Deleted { .. }));
    /// let [memtable, table] = &explained.sources[..] else { panic!("{explained}") };
    /// assert_eq!(memtable.versions[0].verdict, Verdict::Deletes);
    /// assert!(!table.is_searched, "the tombstone in memory is the answer");
    /// assert!(matches!(table.versions[0].verdict, Verdict::Overwritten { .. }));
    /// assert_eq!(explained.dead_versions(), 2);
    /// println!("{explained}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Family::get`], except those of a value that cannot be combined or is too long to be read whole: [`Outcome::Failed`](crate::Outcome::Failed).
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        read::explain_key(&self.ctx.reads, &self.core, key.as_ref(), None)
    }

    /// Explains a scan of `range` from its first row to its end, or to the row number `rows_max`: makes the scan, without the values in value
    /// logs, and returns which sources it merged, what it met in each, and what it read.
    ///
    /// It keeps the key of each row in memory. It puts nothing into the block cache, so a block that the scan comes to twice is read twice. Versions of
    /// one key that fill several blocks are read, while a scan goes around them. Otherwise as [`Family::explain`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for n in 0..100u32 { db.put(format!("{n:03}"), "v")?; }
    /// db.flush()?;
    /// for n in 0..90u32 { db.delete(format!("{n:03}"))?; }
    /// let explained = db.default_family().explain_range("000".."100", 1000)?;
    /// assert_eq!(explained.keys.len(), 10);
    /// assert_eq!(explained.total(|source| source.tombstones), 90);
    /// assert_eq!(explained.total(|source| source.older), 90, "the values that the tombstones delete");
    /// println!("{explained}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn explain_range(&self, range: impl KeyRange, rows_max: usize) -> Result<RangeExplanation> {
        read::explain_range(&self.ctx.reads, &self.core, range.bounds(), rows_max, None)
    }
}

impl Snapshot {
    /// Explains [`Snapshot::get`] of `key`: see [`Family::explain`].
    ///
    /// # Errors
    /// As [`Family::explain`].
    pub fn explain(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.check(family)?;
        read::explain_key(&family.ctx.reads, &family.core, key.as_ref(), Some(self.seq()))
    }

    /// Explains a scan of `range`: see [`Family::explain_range`].
    ///
    /// # Errors
    /// As [`Family::explain`].
    pub fn explain_range(
        &self,
        family: &Family,
        range: impl KeyRange,
        rows_max: usize,
    ) -> Result<RangeExplanation> {
        self.check(family)?;
        read::explain_range(&family.ctx.reads, &family.core, range.bounds(), rows_max, Some(self.seq()))
    }
}
