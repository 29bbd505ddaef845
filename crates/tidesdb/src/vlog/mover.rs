//! Moves live values out of files that are mostly garbage, so that these files can be removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Lease, VlogPointer, VlogSet};
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
}

impl ValueMover {
    /// Moves the values of the files `from`.
    pub fn new(from: &Arc<BTreeSet<VlogId>>) -> Self {
        Self { from: Arc::clone(from), ..Self::default() }
    }

    /// Returns the new place in `set` of the value that the encoded pointer `old` addresses, as an encoded pointer, or `None` if
    /// the value stays where it is. A damaged value stays, so that a read of it reports the damage, and so do the other
    /// values of its file.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn moved(&mut self, set: &VlogSet, old: &[u8]) -> Result<Option<[u8; VlogPointer::BYTES]>> {
        if self.from.is_empty() {
            return Ok(None);
        }
        let old = VlogPointer::decode(old)
            .ok_or_else(|| Error::internal("an entry holds a pointer of the wrong length"))?;
        let is_damaged = self.damaged.as_ref().is_some_and(|(id, _)| *id == old.vlog);
        if is_damaged || !self.from.contains(&old.vlog) {
            return Ok(None);
        }
        match set.copy(&old, &mut self.leases) {
            Ok(new) => {
                self.bytes += new.record_bytes();
                Ok(Some(new.encode()))
            }
            Err(e) if e.is_corruption() => {
                self.damaged.get_or_insert((old.vlog, e));
                Ok(None)
            }
            Err(e) => Err(e),
        }
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

    /// Returns the files whose values it moves.
    pub fn from(&self) -> &BTreeSet<VlogId> {
        &self.from
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
