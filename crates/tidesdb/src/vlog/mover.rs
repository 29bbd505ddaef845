//! Moves live values out of files that are mostly garbage, so that these files can be removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ChunkedPlace, Lease, LoadAhead, ValuePlace, VlogPointer, VlogSet};
use crate::codec::Compression;
use crate::types::VlogId;
use crate::{Error, Result};

/// Moves the values of some files to the current file of their set, as the entries that refer to them are written to new
/// tables. Keeps leases on the files that it wrote: drop it after the tables are installed.
#[derive(Debug, Default)]
pub struct ValueMover {
    from: Arc<BTreeSet<VlogId>>,
    leases: Vec<Lease>,
    bytes: u64,
    damaged: Option<(VlogId, Error)>,
    ahead: Option<LoadAhead>,
}

impl ValueMover {
    /// Moves the values of the files `from`.
    pub fn new(from: &Arc<BTreeSet<VlogId>>) -> Self {
        Self { from: Arc::clone(from), ..Self::default() }
    }

    /// Lets `ahead` load values before they are moved.
    #[must_use]
    pub fn loading(mut self, ahead: LoadAhead) -> Self {
        self.ahead = Some(ahead);
        self
    }

    /// Nothing more is loaded.
    pub fn end_loading(&mut self) {
        self.ahead = None;
    }

    /// Returns the new place in `set` of the value that the encoded pointer `old` addresses, as an encoded pointer, or `None` if
    /// the value stays where it is. A damaged value stays, so that a read of it reports the damage, and so do the other
    /// values of its file.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn moved(&mut self, set: &VlogSet, old: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.from.is_empty() {
            return Ok(None);
        }
        match ValuePlace::decode(old) {
            Some(ValuePlace::Record(old)) => Ok(self.record(set, &old)?.map(|new| new.encode().to_vec())),
            Some(ValuePlace::Chunks(old)) => Ok(self.chunks(set, &old)?.map(|new| new.encode())),
            None => Err(Error::internal("an entry holds a malformed pointer")),
        }
    }

    fn moves(&self, file: VlogId) -> bool {
        let is_damaged = self.damaged.as_ref().is_some_and(|(id, _)| *id == file);
        !is_damaged && self.from.contains(&file)
    }

    fn record(&mut self, set: &VlogSet, old: &VlogPointer) -> Result<Option<VlogPointer>> {
        if !self.moves(old.vlog) {
            return Ok(None);
        }
        // Errors are left to the merge, which reads the same entries.
        self.ahead.take_if(|ahead| ahead.follow(set, &self.from, old).is_err());
        match set.copy_from(set, old, &mut self.leases) {
            Ok(new) => {
                self.bytes += new.record_bytes();
                Ok(Some(new))
            }
            Err(e) => self.note_damage(old.vlog, e),
        }
    }

    /// Moves the chunks that lie in the files to empty, and the index, which names them.
    fn chunks(&mut self, set: &VlogSet, old: &ChunkedPlace) -> Result<Option<ChunkedPlace>> {
        let Some(victim) = old.parts.iter().map(|p| p.vlog).find(|&id| self.moves(id)) else {
            return Ok(None);
        };
        let mut index = match set.read_index(old) {
            Ok(index) => index,
            Err(e) => return self.note_damage(victim, e), // its chunks cannot be found
        };
        for chunk in index.chunks_mut() {
            if let Some(new) = self.record(set, chunk)? {
                *chunk = new;
            }
        }
        let new = set.append_index(&index, Compression::Lz4, &mut self.leases)?;
        self.bytes += new.index.record_bytes();
        Ok(Some(new))
    }

    /// Remembers damage that keeps `file` from being emptied; other errors are returned.
    fn note_damage<T>(&mut self, file: VlogId, e: Error) -> Result<Option<T>> {
        if !e.is_corruption() {
            return Err(e);
        }
        self.damaged.get_or_insert((file, e));
        Ok(None)
    }

    /// Makes the moved values durable.
    ///
    /// # Errors
    /// As [`VlogSet::sync`].
    pub fn sync(&self, set: &VlogSet) -> Result<()> {
        if self.bytes > 0 { set.sync() } else { Ok(()) }
    }

    /// Takes over what `other` moved for another part of the same merge.
    pub fn absorb(&mut self, other: Self) {
        self.leases.extend(other.leases);
        self.bytes += other.bytes;
        self.damaged = self.damaged.take().or(other.damaged);
    }

    /// Returns the bytes of the records that were moved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the first file in which a damaged value was found, and the damage.
    pub fn damaged(&self) -> Option<&(VlogId, Error)> {
        self.damaged.as_ref()
    }
}
