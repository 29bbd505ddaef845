//! Moves live values out of files that are mostly garbage, so that these files can be removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Lease, VlogPointer, VlogSet};
use crate::types::VlogId;
use crate::{Error, Result};

/// Moves the values of some files to the current file of their set, as the entries that refer to them are written to new
/// tables. Keeps leases on the files that it wrote: drop it after the tables are installed.
#[derive(Debug)]
pub struct ValueMover<'a> {
    set: &'a VlogSet,
    from: Arc<BTreeSet<VlogId>>,
    leases: Vec<Lease>,
    bytes: u64,
    damaged: Option<(VlogId, Error)>,
}

impl<'a> ValueMover<'a> {
    /// Moves the values of the files `from` of `set`.
    pub fn new(set: &'a VlogSet, from: Arc<BTreeSet<VlogId>>) -> Self {
        Self { set, from, leases: Vec::new(), bytes: 0, damaged: None }
    }

    /// Returns the new place of the value that the encoded pointer `old` addresses, as an encoded pointer, or `None` if
    /// the value stays where it is. A damaged value stays, so that a read of it reports the damage, and so do the other
    /// values of its file.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn moved(&mut self, old: &[u8]) -> Result<Option<[u8; VlogPointer::BYTES]>> {
        if self.from.is_empty() {
            return Ok(None);
        }
        let old = VlogPointer::decode(old)
            .ok_or_else(|| Error::internal("an entry holds a pointer of the wrong length"))?;
        let is_damaged = self.damaged.as_ref().is_some_and(|(id, _)| *id == old.vlog);
        if is_damaged || !self.from.contains(&old.vlog) {
            return Ok(None);
        }
        match self.set.copy(&old, &mut self.leases) {
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
    pub fn sync(&self) -> Result<()> {
        if self.bytes > 0 { self.set.sync() } else { Ok(()) }
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
